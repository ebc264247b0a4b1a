"""Every kernel compiles for an H100 (sm_90) on a machine without a GPU: the interpreter accepts more than the compiler.

Compiling needs Triton uninterpreted, so each dtype is compiled by this file run as a script in a process of its own.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kernels import launch
from kernels.reference.lens import Lens
from tests.kernel_cases import run_python

POINTERS = {"out", "q", "k", "v", "k_cache", "v_cache", "cache", "packed"}
FLOAT32_POINTERS = {
    "m",
    "l",
    "lse",
    "partial",
    "k_scale",
    "v_scale",
    "k_head_scale",
    "v_head_scale",
    "k_slot_scale",
    "v_slot_scale",
}
FLOAT32 = {"score_scale", "softcap_log2e", "threshold"}
INDEX_POINTERS = {
    "rescales",
    "block_table",
    "block_tables",
    "seq_lens",
    "slot_mapping",
    "source_blocks",
    "target_blocks",
    "blocks",
}


def signature_of(kernel, dtype, index, constants, cached):
    """Type a kernel's arguments as its launcher would: the last stride 1, the others past 2^31 or below by `index`."""
    types = {}
    for name in kernel.arg_names:
        if name in constants:
            types[name] = "constexpr"
        elif name == "lens":
            types[name] = Lens(*("*i32" if field in ("block", "position") else "*fp32" for field in Lens._fields))
        elif name in FLOAT32_POINTERS:
            types[name] = "*fp32"
        elif name in POINTERS:
            types[name] = f"*{cached}" if name.endswith("_cache") else f"*{dtype}"
        elif name in INDEX_POINTERS:
            types[name] = f"*{index}"
        else:
            types[name] = "fp32" if name in FLOAT32 else index
    return types


def compile_all(dtype):
    """Compile each kernel for this dtype with a couple of constants, and print the size of what comes out."""
    import triton.language as tl
    from triton import compile as triton_compile
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from kernels.decode.combine_splits import combine_splits_kernel
    from kernels.decode.kernel import paged_decode_kernel
    from kernels.decode.lazy_rescale import lazy_rescale_kernel
    from kernels.moves.copy_blocks import copy_blocks_kernel
    from kernels.moves.gather_blocks import gather_blocks_kernel, scatter_blocks_kernel
    from kernels.moves.store_kv import store_kv_kernel

    half = {"fp32": tl.float32, "fp16": tl.float16, "bf16": tl.bfloat16}[dtype]
    llama = {"NUM_HEADS": 32, "HEADS_PER_KV": 4, "HEAD_DIM": 128, "BLOCK_SIZE": 16}
    odd = {"NUM_HEADS": 17, "HEADS_PER_KV": 17, "HEAD_DIM": 5, "BLOCK_SIZE": 3}
    tile = {"TILE_HEADS": 16, "TILE_DIM": 128, "TILE_TOKENS": 64, "TILE_LANES": 64, "DOT_TYPE": half}
    small = {"TILE_HEADS": 32, "TILE_DIM": 16, "TILE_TOKENS": 3, "TILE_LANES": 16, "DOT_TYPE": half}
    plain = {"NARROW_Q": False, "SOFTCAP": False, "MASK_ALL": False, "OVERLAP": True}
    fast = {**plain, "lens": None, "max_turns": None}
    direct = {"lse": None}
    by_head = {"k_slot_scale": None, "v_slot_scale": None}
    unscaled = {**by_head, "k_head_scale": None, "v_head_scale": None}
    decode = [
        {**llama, **tile, **fast, **unscaled, **direct},
        {**odd, **small, **fast, **unscaled, "SOFTCAP": True, "MASK_ALL": True},
    ]
    eight_bits = [
        {**llama, **tile, **fast, **by_head},
        {**odd, **small, **fast, **direct, "k_head_scale": None, "v_head_scale": None},
    ]
    eight_bits = [{**constants, "NARROW_Q": dtype == "bf16"} for constants in eight_bits]
    if dtype == "bf16":
        eight_bits = [{**constants, "DOT_TYPE": tl.float16} for constants in eight_bits]
    seen = [
        {**llama, **tile, **plain, **unscaled, "MASK_ALL": True, "TILE_TOKENS": 16, "TILE_LANES": 16},
        {**odd, **small, **plain, "SOFTCAP": True, "MASK_ALL": True},
    ]
    combine = [
        {"NUM_HEADS": 32, "HEAD_DIM": 128, "TILE_SPLITS": 64, "TILE_DIM": 64, "OVERLAP": True},
        {"NUM_HEADS": 17, "HEAD_DIM": 5, "TILE_SPLITS": 2, "TILE_DIM": 8, "OVERLAP": False},
    ]
    store = [
        {"NUM_KV_HEADS": 8, "HEAD_DIM": 128, "BLOCK_SIZE": 16, "TILE_ROWS": 8, "TILE_DIM": 128},
        {"NUM_KV_HEADS": 1, "HEAD_DIM": 1, "BLOCK_SIZE": 3, "TILE_ROWS": 1024, "TILE_DIM": 1},
    ]
    as_it_is = {"LARGEST": None, "MANTISSA": 0, "BIAS": 0, "CAST": None, "K_WRITES": False, "V_WRITES": False}
    as_it_is |= {"k_scale": None, "v_scale": None}
    e4m3 = {"LARGEST": 448.0, "MANTISSA": 3, "BIAS": 7, "CAST": tl.float8e4nv, "K_WRITES": True, "V_WRITES": False}
    int8 = {"LARGEST": 127.0, "MANTISSA": 0, "BIAS": 0, "CAST": None, "K_WRITES": False, "V_WRITES": True}
    narrow = [constants | form for constants, form in zip(store, (e4m3, int8), strict=True)]
    store = [constants | as_it_is for constants in store]
    move = [
        {"OUTER": 1, "INNER": 1, "RUN": 4096, "STEP": 2, "TILE_ROWS": 1, "TILE_RUN": 1024},
        {"OUTER": 3, "INNER": 17, "RUN": 5, "STEP": 1, "TILE_ROWS": 128, "TILE_RUN": 8},
    ]
    lazy = [
        {"HEAD_DIM": 128, "BLOCK_SIZE": 16, "TILE_DIM": 128, "TILE_LANES": 16},
        {"HEAD_DIM": 5, "BLOCK_SIZE": 3, "TILE_DIM": 8, "TILE_LANES": 4},
    ]
    for kernel, all_constants, cached in [
        (paged_decode_kernel, decode, dtype),
        (paged_decode_kernel, eight_bits, "i8"),
        (paged_decode_kernel, eight_bits, "fp8e4nv"),
        (paged_decode_kernel, seen, dtype),
        (combine_splits_kernel, combine, dtype),
        (store_kv_kernel, store, dtype),
        (store_kv_kernel, narrow, "u8"),
        (copy_blocks_kernel, move, dtype),
        (gather_blocks_kernel, move, dtype),
        (scatter_blocks_kernel, move, dtype),
        (lazy_rescale_kernel, lazy, dtype),
    ]:
        for constants, index in zip(all_constants, ("i32", "i64"), strict=True):
            # Triton compiles a stride of 1 into the code, as the launch does.
            ones = {name: 1 for name in kernel.arg_names if name.startswith("stride") and name[-1] in "dr"}
            constants = constants | ones
            source = ASTSource(kernel, signature_of(kernel, dtype, index, constants, cached), constants)
            made = triton_compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 2})
            stores = made.asm["ttir"].count("tt.store")
            print(f"{kernel.__name__} {dtype} {index} stores {stores} cubin {len(made.asm['cubin'])} bytes")


@pytest.mark.skipif(not launch.HAS_TRITON, reason="needs Triton")
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_every_kernel_compiles_for_sm_90(dtype, tmp_path):
    env = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    script = [sys.executable, "-m", "tests.kernels.test_compile", dtype]
    root = Path(__file__).parents[2]
    done = subprocess.run(script, capture_output=True, text=True, env=env, cwd=root, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    made = done.stdout.splitlines()
    assert len(made) == 22
    assert all(int(line.split()[-2]) > 1000 for line in made), made
    # A decode stores its output, and lse where there are splits; a lens stores six things more, and costs others none.
    stores = [int(line.split()[4]) for line in made if line.startswith("paged_decode_kernel")]
    assert stores == [1, 2, 2, 1, 2, 1, 8, 8]


PTX_OF_A_PLAIN_COPY = """
import kernels, torch
from kernels.moves.block_rows import rows_of
from kernels.moves.copy_blocks import copy_blocks_kernel as kernel
from triton import compile as triton_compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
cache = torch.empty(6, 16, 8, 80, dtype=torch.bfloat16)
constants = rows_of(cache, cache).constants | {"stride_kr": 1, "stride_vr": 1}
pointers = {"k_cache": "*i64", "v_cache": "*i64", "source_blocks": "*i64", "target_blocks": "*i64"}
types = {name: "constexpr" if name in constants else pointers.get(name, "i32") for name in kernel.arg_names}
# As a launch finds them: pointers to where 16 bytes begin, strides that may be any number.
aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(kernel.arg_names) if name in pointers}
source = ASTSource(kernel, types, constants, aligned)
print(triton_compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"])
"""


@pytest.mark.skipif(not launch.HAS_TRITON, reason="needs Triton")
def test_blocks_of_a_plain_cache_move_sixteen_bytes_an_access():
    done = run_python(PTX_OF_A_PLAIN_COPY, TRITON_INTERPRET="0")
    assert done.returncode == 0, done.stderr[-3000:]
    stores = re.findall(r"st\.global\S*", done.stdout)
    assert set(stores) == {"st.global.v2.b64"}
    assert len(re.findall(r"ld\.global\.v2\.b64", done.stdout)) == len(stores)


if __name__ == "__main__":
    compile_all(sys.argv[1])
