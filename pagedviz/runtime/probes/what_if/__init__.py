"""Probes that play the run so far again in another way: other block sizes, policies or preemptions, or a radix tree."""
