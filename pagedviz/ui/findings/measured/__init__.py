"""What was timed on this machine's GPU."""
