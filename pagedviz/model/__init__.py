"""The toy model over plain tokens, in numpy, and what is said with it: words, samples, drafts."""
