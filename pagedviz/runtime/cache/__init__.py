"""K and V in blocks, on the device and on the host, and what carries blocks between the two."""
