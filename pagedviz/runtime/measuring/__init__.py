"""Times on this machine's GPU. Everything that is timed is checked first."""
