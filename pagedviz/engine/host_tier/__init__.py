"""Copies of cached blocks on the host, and what their transfers mean for the device's blocks."""
