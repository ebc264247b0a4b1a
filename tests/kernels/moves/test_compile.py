"""The kernels that move data compile for an H100, with every option that changes their code."""

import re

import pytest

from kernels import launch
from tests.kernel_cases import run_python
from tests.kernels.compiling import compiled, run_itself


def compile_all():
    import triton.language as tl

    from kernels.moves.copy_blocks import copy_blocks_kernel
    from kernels.moves.gather_blocks import gather_blocks_kernel, scatter_blocks_kernel
    from kernels.moves.store_kv import store_kv_kernel

    def store(label, dtype, cached, index, sizes, k_scale=None, v_scale=None, **form):
        arguments = {"k": f"*{dtype}", "v": f"*{dtype}", "k_cache": f"*{cached}", "v_cache": f"*{cached}"}
        arguments |= {"k_scale": k_scale, "v_scale": v_scale, "slot_mapping": f"*{index}", "num_tokens": index}
        strides = {name: index for name in store_kv_kernel.arg_names if name.startswith("stride")}
        ones = {name: 1 for name in strides if name.endswith("d")}
        form = {"LARGEST": None, "MANTISSA": 0, "BIAS": 0, "CAST": None, "K_WRITES": False, "V_WRITES": False} | form
        compiled(store_kv_kernel, label, arguments | strides | ones | sizes | form)

    llama = {"NUM_KV_HEADS": 8, "HEAD_DIM": 128, "BLOCK_SIZE": 16, "TILE_ROWS": 8, "TILE_DIM": 128}
    odd = {"NUM_KV_HEADS": 1, "HEAD_DIM": 1, "BLOCK_SIZE": 3, "TILE_ROWS": 128, "TILE_DIM": 1}
    store("as it is", "bf16", "bf16", "i32", llama)
    store("as it is", "fp32", "fp32", "i64", odd)
    by_hand = {"LARGEST": 448.0, "MANTISSA": 3, "BIAS": 7}
    store("e4m3, cast", "bf16", "u8", "i32", llama, "*fp32", "*fp32", **by_hand, CAST=tl.float8e4nv, K_WRITES=True)
    store("e4m3, by hand", "fp16", "u8", "i64", odd, "*fp32", "*fp32", **by_hand)
    store("int8", "fp32", "u8", "i64", odd, "*fp32", "*fp32", LARGEST=127.0, V_WRITES=True)

    # Blocks move as integers, whatever their dtype.
    wide = {"OUTER": 1, "INNER": 1, "RUN": 4096, "STEP": 2, "TILE_ROWS": 1, "TILE_RUN": 1024}
    gaps = {"OUTER": 3, "INNER": 17, "RUN": 5, "STEP": 1, "TILE_ROWS": 128, "TILE_RUN": 8}
    for kernel in (copy_blocks_kernel, gather_blocks_kernel, scatter_blocks_kernel):
        for label, sizes, integer, index in (("one run", wide, "i64", "i32"), ("gaps", gaps, "i16", "i64")):
            ids = {"source_blocks", "target_blocks", "blocks"}
            pointers = {"k_cache", "v_cache", "cache", "packed"}
            types = {name: f"*{integer}" if name in pointers else index for name in kernel.arg_names}
            types |= {name: "*i64" if name in ids else 1 for name in types if name in ids or name.endswith("r")}
            compiled(kernel, label, types | sizes)


@pytest.mark.skipif(not launch.HAS_TRITON, reason="needs Triton")
def test_kernels_that_move_data_compile_for_sm_90(tmp_path):
    assert len(run_itself(__name__, tmp_path)) == 11


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
    compile_all()
