"""Where engines differ. A policy is one function. Every other folder may import this one; it imports only itself."""
