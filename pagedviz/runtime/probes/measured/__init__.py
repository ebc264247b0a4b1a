"""Probes that time this machine's GPU, once in a process."""
