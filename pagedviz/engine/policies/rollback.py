"""What happens to blocks that only rejected drafts had filled."""

from collections.abc import Callable

Rollback = Callable[[int, int], int]  # (entries of the table, entries that tokens need) -> entries that stay


def keep_blocks(entries: int, needed: int) -> int:
    """They stay, for the next tokens will want them. Source: vLLM V1."""
    return entries


def trim_blocks(entries: int, needed: int) -> int:
    """They are freed at once, and taken again when they are needed."""
    return needed
