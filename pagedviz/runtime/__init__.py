"""Tensors: the cache, the toy model, the runner that checks each step, and the process that owns them.

Only `worker` and what it imports load torch. The app's process uses `client` alone.
"""
