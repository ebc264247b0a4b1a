"""The prefill kernels compile for an H100 (sm_90) on a machine without a GPU, as in `test_kernels_compile.py`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernels import launch
from tests.kernels.test_compile import signature_of


def compile_all():
    """Compile the prefill kernels with a few constants each, and print the size of what comes out."""
    import triton.language as tl
    from triton import compile as triton_compile
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from kernels.prefill.descriptor_kernel import paged_prefill_descriptor_kernel
    from kernels.prefill.kernel import paged_prefill_kernel
    from kernels.prefill.work import list_pieces_kernel

    llama = {"NUM_HEADS": 32, "HEADS_PER_KV": 4, "HEAD_DIM": 128, "lse": None, "SOFTCAP": False, "WINDOW": False}
    cache = {"BLOCK_SIZE": 16, "stride_kb": 16384, "stride_kt": 1024, "stride_vb": 16384, "stride_vt": 1024}
    tile = {"TILE_ROWS": 128, "TILE_DIM": 128, "TILE_TOKENS": 128, "TILE_LANES": 128, "MASK_ALL": False}
    by_slot = {"k_head_scale": None, "v_head_scale": None}
    unscaled = {"k_slot_scale": None, "v_slot_scale": None}
    fast = {**llama, **cache, **tile, **by_slot, **unscaled, "DOT_TYPE": tl.bfloat16, "NARROW_Q": False}
    narrow = {**llama, **cache, **tile, **by_slot, "DOT_TYPE": tl.float16, "NARROW_Q": True, "TILE_ROWS": 64}
    odd = {"NUM_HEADS": 34, "HEADS_PER_KV": 17, "HEAD_DIM": 5, "SOFTCAP": True, "WINDOW": True, "MASK_ALL": True}
    odd |= {"BLOCK_SIZE": 3, "TILE_ROWS": 32, "TILE_DIM": 16, "TILE_TOKENS": 3, "TILE_LANES": 16, **unscaled}
    odd |= {"stride_kb": 2**33, "stride_kt": 30, "stride_vb": 30, "stride_vt": 10, "NARROW_Q": False}
    boxes = {**llama, "BLOCK_SIZE": 256, "TILE_ROWS": 128, "TILE_TOKENS": 128, "DOT_TYPE": tl.bfloat16}
    box = {"k_boxes": "tensordesc<bf16[128, 128]>", "v_boxes": "tensordesc<bf16[128, 128]>"}
    listing = {"PIECE": 32, "TILE_PIECES": 64, "TILE_SEQS": 64}
    for kernel, constants, dtype, cached, index in [
        (paged_prefill_kernel, fast, "bf16", "bf16", "i32"),
        (paged_prefill_kernel, {**narrow, "TILE_TOKENS": 64, "TILE_LANES": 64}, "bf16", "fp8e4nv", "i32"),
        (paged_prefill_kernel, {**odd, "DOT_TYPE": tl.float16}, "fp16", "i8", "i64"),
        (paged_prefill_kernel, {**odd, "DOT_TYPE": tl.float32}, "fp32", "fp32", "i64"),
        (paged_prefill_descriptor_kernel, boxes, "bf16", "bf16", "i32"),
        (list_pieces_kernel, listing, "", "", "i64"),
    ]:
        constants |= {name: 1 for name in ("stride_qd", "stride_kd", "stride_vd") if name in kernel.arg_names}
        types = signature_of(kernel, dtype, index, constants, cached) | {"pieces": "*i32"}
        types |= {"query_start_loc": f"*{index}"} if "query_start_loc" in types else box if "k_boxes" in types else {}
        types = {name: types[name] for name in kernel.arg_names}
        source = ASTSource(kernel, types, constants)
        made = triton_compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8, "num_stages": 3})
        print(f"{kernel.__name__} {dtype} {cached} cubin {len(made.asm['cubin'])} bytes")


@pytest.mark.skipif(not launch.HAS_TRITON, reason="needs Triton")
def test_prefill_kernels_compile_for_sm_90(tmp_path):
    env = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    script = [sys.executable, "-m", "tests.kernels.prefill.test_compile"]
    root = Path(__file__).parents[3]
    done = subprocess.run(script, capture_output=True, text=True, env=env, cwd=root, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    made = done.stdout.splitlines()
    assert len(made) == 6
    assert all(int(line.split()[-2]) > 1000 for line in made), made


if __name__ == "__main__":
    compile_all()
