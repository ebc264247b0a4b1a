"""The decode kernels compile for an H100, with every option that changes their code."""

import pytest

from kernels import launch
from kernels.reference.lens import Lens
from tests.kernels.compiling import compiled, run_itself


def compile_all():
    import triton.language as tl

    from kernels.bundles import Cache, Queries, Scale, Table
    from kernels.decode.combine_splits import combine_splits_kernel
    from kernels.decode.kernel import paged_decode_kernel
    from kernels.decode.lazy_rescale import lazy_rescale_kernel
    from kernels.decode.minimal import minimal_decode_kernel

    half = {"fp32": tl.float32, "fp16": tl.float16, "bf16": tl.bfloat16}
    none, by_head = Scale(None, None, "i32", "i32", "i32"), Scale("*fp32", None, "i32", "i32", "i32")
    by_slot = Scale(None, "*fp32", "i64", "i64", 1)
    seen = Lens(*("*i32" if field in ("block", "position") else "*fp32" for field in Lens._fields))
    llama = {"NUM_HEADS": 32, "HEADS_PER_KV": 4, "HEAD_DIM": 128, "BLOCK_SIZE": 16}
    tile = {"TILE_HEADS": 16, "TILE_DIM": 128, "TILE_TOKENS": 64, "TILE_LANES": 64}
    odd = {"NUM_HEADS": 17, "HEADS_PER_KV": 17, "HEAD_DIM": 5, "BLOCK_SIZE": 3}
    small = {"TILE_HEADS": 32, "TILE_DIM": 16, "TILE_TOKENS": 3, "TILE_LANES": 16}
    plain = {"NARROW_Q": False, "SOFTCAP": False, "MASK_ALL": False, "OVERLAP": True, "lens": None, "max_turns": None}
    bent = {**plain, "SOFTCAP": True, "MASK_ALL": True}

    def decode(label, dtype, index, sizes, cached=None, scale=none, dot=None, **changes):
        arguments = {"out": f"*{dtype}", "lse": "*fp32", "q": Queries(f"*{dtype}", index, index, 1)}
        arguments |= {name: Cache(f"*{cached or dtype}", index, index, index, 1) for name in ("k_cache", "v_cache")}
        arguments |= {"block_tables": Table(f"*{index}", index, 1), "seq_lens": f"*{index}"}
        arguments |= {"k_scale": scale, "v_scale": scale, "score_scale": "fp32", "softcap_log2e": "fp32"}
        arguments |= {"window": "i32", "DOT_TYPE": half[dot or dtype]}
        compiled(paged_decode_kernel, label, arguments | sizes | changes)

    decode("plain", "bf16", "i32", {**llama, **tile, **plain}, lse=None)
    decode("softcap, splits", "bf16", "i64", {**odd, **small, **bent})
    decode("plain", "fp16", "i32", {**odd, **small, **plain}, lse=None)
    # Exact float32 dots are long code: small tiles of them hold every line.
    decode("softcap, splits", "fp32", "i64", {**odd, **small, **bent})
    decode("int8, by head", "bf16", "i32", {**odd, **small, **plain}, "i8", by_head, "fp16", NARROW_Q=True)
    decode("float8, by slot", "fp16", "i64", {**odd, **small, **plain}, "fp8e4nv", by_slot, "fp16", lse=None)
    decode("e5m2, by slot", "bf16", "i32", {**odd, **small, **plain}, "fp8e5", by_slot, "fp16", NARROW_Q=True, lse=None)
    one_block = {"MASK_ALL": True, "TILE_TOKENS": 16, "TILE_LANES": 16, "lens": seen, "max_turns": "i32"}
    decode("lens", "bf16", "i32", {**llama, **tile, **plain, **one_block})
    decode("lens", "fp32", "i64", {**odd, **small, **bent}, lens=seen, max_turns="i64")

    joined = {"out": "*bf16", "partial": "*fp32", "lse": "*fp32", "num_splits": "i32"}
    big = {"NUM_HEADS": 32, "HEAD_DIM": 128, "TILE_SPLITS": 64, "TILE_DIM": 64, "OVERLAP": True}
    little = {"NUM_HEADS": 17, "HEAD_DIM": 5, "TILE_SPLITS": 2, "TILE_DIM": 8, "OVERLAP": False}
    compiled(combine_splits_kernel, "overlap", joined | big)
    compiled(combine_splits_kernel, "float32", joined | little | {"out": "*fp32", "num_splits": "i64"})

    pointers = dict.fromkeys(("q", "k_cache", "v_cache"), "*bf16")
    pointers |= {"out": "*fp32", "block_tables": "*i32", "seq_lens": "*i32", "max_blocks": "i32", "scale": "fp32"}
    sizes = {"NUM_HEADS": 32, "NUM_KV_HEADS": 8, "HEAD_DIM": 128, "BLOCK_SIZE": 16}
    compiled(minimal_decode_kernel, "bf16", pointers | sizes)

    pointers = dict.fromkeys(("q", "k_cache", "v_cache"), "*bf16") | dict.fromkeys(("out", "m", "l"), "*fp32")
    pointers |= {"rescales": "*i32", "block_table": "*i64"}
    strides = {f"stride_{x}{axis}": 1 if axis == "d" else "i64" for x in "kv" for axis in "btd"}
    numbers = {"seq_len": "i32", "score_scale": "fp32", "threshold": "fp32"}
    sizes = {"HEAD_DIM": 5, "BLOCK_SIZE": 3, "TILE_DIM": 8, "TILE_LANES": 4}
    compiled(lazy_rescale_kernel, "odd", pointers | strides | numbers | sizes)


@pytest.mark.skipif(not launch.HAS_TRITON, reason="needs Triton")
def test_decode_kernels_compile_for_sm_90(tmp_path):
    made = run_itself(__name__, tmp_path)
    assert len(made) == 13
    # A decode stores its output, and lse where there are splits; a lens stores six things more, and costs others none.
    stores = [int(line.split()[-4]) for line in made if line.startswith("paged_decode_kernel")]
    assert stores == [1, 2, 1, 2, 2, 1, 1, 8, 8]


if __name__ == "__main__":
    compile_all()
