"""The cache engine: plain Python, no tensors. It decides which block; the runtime moves what is in it."""
