class Absent(Exception):
    """A peer cannot run something here; the message is the reason in one line."""
