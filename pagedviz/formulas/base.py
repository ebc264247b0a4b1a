"""Parts of lines that several families use."""

from pagedviz.scenario.settings import CacheConfig


def block_bytes(cache: CacheConfig) -> str:
    """The bytes of one block, as a product."""
    factors = (2, cache.layers_per_block, cache.block_size, cache.num_kv_heads, cache.head_dim, 4)
    return f"{' × '.join(map(str, factors))} = {cache.bytes_per_block:,}"


def head(queue: tuple[int, ...]) -> str:
    """The first few blocks of a queue."""
    return f"[{', '.join(map(str, queue[:5]))}{', …' if len(queue) > 5 else ''}]"
