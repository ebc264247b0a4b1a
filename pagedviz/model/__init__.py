"""The toy model over plain tokens, in numpy, and its outputs: greedy tokens, samples, beams' candidates and drafts."""
