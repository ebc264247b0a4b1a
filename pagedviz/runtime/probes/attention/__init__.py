"""Probes that run a kernel over the newest token of a sequence, or show what a launch was given."""
