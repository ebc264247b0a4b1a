"""What the kernels that move data mean, in plain torch: storing tokens, copying, gathering and scattering blocks."""

from torch import Tensor

from kernels.checks import moves as check
from kernels.checks.arguments import Blocks
from kernels.reference.eight_bits import LARGEST, quantized, scale_of


def store_kv(
    k: Tensor,
    v: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slot_mapping: Tensor,
    *,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
) -> None:
    """Write each token's key and value into its slot. Shapes, errors and meaning are those of `kernels.store_kv`."""
    check.store_kv(k, v, k_cache, v_cache, slot_mapping, k_scale, v_scale)
    for token, slot in enumerate(slot_mapping.tolist()):
        if slot < 0:
            continue
        block, offset = divmod(slot, k_cache.shape[1])
        for x, cache, scale in ((k[token], k_cache, k_scale), (v[token], v_cache, v_scale)):
            if scale is not None and scale.ndim == 3:
                scale[block, offset] = scale_of(x, cache.dtype)
                scale = scale[block, offset]
            cache[block, offset] = quantized(x, cache.dtype, scale) if cache.dtype in LARGEST else x


def copy_blocks(k_cache: Tensor, v_cache: Tensor, source_blocks: Blocks, target_blocks: Blocks) -> None:
    """Copy whole blocks, K and V. Shapes, errors and meaning are those of `kernels.copy_blocks`."""
    sources, targets = check.copy_blocks(k_cache, v_cache, source_blocks, target_blocks)
    for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
        k_cache[target] = k_cache[source]
        v_cache[target] = v_cache[source]


def gather_blocks(cache: Tensor, blocks: Blocks, out: Tensor | None = None) -> Tensor:
    """Pack scattered blocks side by side. Shapes, errors and meaning are those of `kernels.gather_blocks`."""
    blocks, out = check.gather_blocks(cache, blocks, out)
    for i, block in enumerate(blocks.tolist()):
        out[i] = cache[block]
    return out


def scatter_blocks(cache: Tensor, blocks: Blocks, values: Tensor) -> None:
    """Put packed blocks back. Shapes, errors and meaning are those of `kernels.scatter_blocks`."""
    for i, block in enumerate(check.scatter_blocks(cache, blocks, values).tolist()):
        cache[block] = values[i]
