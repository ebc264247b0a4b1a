"""What a step is judged by: the plain log of every sequence, dense attention over it, and the tolerance."""
