"""What the run so far would be in another way: other block sizes, policies or preemptions, or a radix tree."""
