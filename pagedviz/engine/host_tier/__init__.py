"""Copies of cached blocks on the host, and what they mean beside the cache."""
