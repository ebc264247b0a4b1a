"""What happens to blocks that held only rejected drafts."""

from collections.abc import Callable

Rollback = Callable[[int, int], int]  # (entries of the table, entries that tokens need) -> entries that stay


def keep_blocks(entries: int, needed: int) -> int:
    """They stay, because the next tokens will need them. Source: vLLM V1."""
    return entries


def trim_blocks(entries: int, needed: int) -> int:
    """They are freed at once. The next tokens take new blocks."""
    return needed
