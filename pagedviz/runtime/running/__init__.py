"""A run on the tensors, step by step, and the way back to any earlier state of it."""
