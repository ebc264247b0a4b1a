"""The prefill kernels compile for an H100, with every option that changes their code."""

import pytest

from kernels import launch
from tests.kernels.compiling import compiled, run_itself


def compile_all():
    import triton.language as tl

    from kernels.bundles import Cache, Queries, Scale, Table
    from kernels.prefill.descriptor_kernel import paged_prefill_descriptor_kernel
    from kernels.prefill.descriptors import Places
    from kernels.prefill.kernel import paged_prefill_kernel
    from kernels.prefill.work import list_pieces_kernel

    none, by_slot = Scale(None, None, "i32", "i32", "i32"), Scale(None, "*fp32", "i32", "i32", 1)
    by_head = Scale("*fp32", None, "i32", "i32", "i32")

    def common(dtype, index):
        arguments = {"out": f"*{dtype}", "lse": "*fp32", "q": Queries(f"*{dtype}", index, index, 1)}
        arguments |= {"block_tables": Table(f"*{index}", index, 1), "pieces": "*i32"}
        return arguments | {"score_scale": "fp32", "softcap_log2e": "fp32", "window": "i32"}

    def prefill(label, dtype, index, sizes, cached, strides, k_scale, v_scale):
        arguments = common(dtype, index) | {"k_scale": k_scale, "v_scale": v_scale}
        arguments |= {name: Cache(f"*{cached}", *strides, index, 1) for name in ("k_cache", "v_cache")}
        compiled(paged_prefill_kernel, label, arguments | sizes, num_warps=8)

    llama = {"NUM_HEADS": 32, "HEADS_PER_KV": 4, "HEAD_DIM": 128, "lse": None, "SOFTCAP": False, "WINDOW": False}
    tile = {"TILE_ROWS": 128, "TILE_DIM": 128, "TILE_TOKENS": 128, "TILE_LANES": 128, "MASK_ALL": False}
    fast = {**llama, **tile, "BLOCK_SIZE": 16, "DOT_TYPE": tl.bfloat16, "NARROW_Q": False}
    narrow = {**fast, "TILE_ROWS": 32, "TILE_TOKENS": 32, "TILE_LANES": 32, "DOT_TYPE": tl.float16, "NARROW_Q": True}
    odd = {"NUM_HEADS": 34, "HEADS_PER_KV": 17, "HEAD_DIM": 5, "SOFTCAP": True, "WINDOW": True, "MASK_ALL": True}
    odd |= {"BLOCK_SIZE": 3, "TILE_ROWS": 32, "TILE_DIM": 16, "TILE_TOKENS": 3, "TILE_LANES": 16, "NARROW_Q": False}
    prefill("plain", "bf16", "i32", fast, "bf16", (16384, 1024), none, none)
    prefill("float8, by slot", "bf16", "i32", narrow, "fp8e4nv", (16384, 1024), by_slot, by_slot)
    prefill("int8, by head", "fp16", "i64", odd | {"DOT_TYPE": tl.float16}, "i8", (2**33, 30), by_head, by_head)
    prefill("odd", "fp32", "i64", odd | {"DOT_TYPE": tl.float32}, "fp32", (30, 10), none, none)

    boxes = {"k_boxes": "tensordesc<bf16[128, 128]>", "v_boxes": "tensordesc<bf16[128, 128]>"}
    places = {name: Places("i32", "i32", "i32") for name in ("k_places", "v_places")}
    sizes = {"BLOCK_SIZE": 256, "TILE_ROWS": 128, "TILE_TOKENS": 128, "DOT_TYPE": tl.bfloat16}
    everything = common("bf16", "i32") | boxes | places | llama | sizes
    compiled(paged_prefill_descriptor_kernel, "boxes", everything, num_warps=8)

    listing = {"pieces": "*i32", "seq_lens": "*i64", "query_start_loc": "*i64"}
    listing |= dict.fromkeys(("num_pieces", "num_seqs", "num_tokens"), "i64")
    compiled(list_pieces_kernel, "64 sequences", listing | {"PIECE": 32, "TILE_PIECES": 64, "TILE_SEQS": 64})


@pytest.mark.skipif(not launch.HAS_TRITON, reason="needs Triton")
def test_prefill_kernels_compile_for_sm_90(tmp_path):
    assert len(run_itself(__name__, tmp_path)) == 6


if __name__ == "__main__":
    compile_all()
