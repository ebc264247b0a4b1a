"""Questions that the compute process answers about a step, each by running the kernels once more and looking."""
