"""The package says truly which backend computes, works without Triton, and lets threads take turns."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import kernels
from kernels import launch
from tests.kernel_cases import Shape, make_batch, run_python

WITHOUT_TRITON = """
import sys
sys.modules["triton"] = None
import torch, kernels
assert kernels.backend_name() == "PyTorch blockwise, no Triton on this platform", kernels.backend_name()
assert kernels.device() == torch.device("cpu")
k, v = torch.randn(6, 2, 8), torch.randn(6, 2, 8)
k_cache = torch.full((8, 4, 2, 8), float("nan"))
v_cache = k_cache.clone()
kernels.store_kv(k, v, k_cache, v_cache, torch.tensor([28, 29, 30, 31, 8, 9]))
kernels.copy_blocks(k_cache, v_cache, [2], [5])
packed = kernels.gather_blocks(k_cache, [7])
kernels.scatter_blocks(k_cache, [0], packed)
q = torch.randn(1, 4, 8)
out = kernels.paged_decode(q, k_cache, v_cache, torch.tensor([[7, 5]]), torch.tensor([6]), tokens_per_tile=4)
torch.testing.assert_close(out.double(), kernels.dense_attention(q, k, v), atol=1e-5, rtol=1e-5)
assert torch.equal(k_cache[0], k_cache[7])
try:
    kernels.store_kv(k.half(), v, k_cache, v_cache, torch.arange(6))
except ValueError as refusal:
    print(refusal)
"""


def test_without_triton_the_launchers_compute_with_plain_torch():
    done = run_python(WITHOUT_TRITON)
    assert done.returncode == 0, done.stderr
    assert "store_kv: k is torch.float16 and k_cache is torch.float32" in done.stdout


def test_backend_name_is_one_of_the_three_and_true_of_this_machine():
    if launch.COMPILED:
        assert kernels.backend_name() == f"Triton, compiled, {torch.cuda.get_device_name()}"
        assert kernels.device().type == "cuda"
    elif launch.HAS_TRITON:
        assert kernels.backend_name() == "Triton interpreter, CPU"
        assert kernels.device().type == "cpu"
    else:
        assert kernels.backend_name() == "PyTorch blockwise, no Triton on this platform"


@pytest.mark.skipif(not launch.HAS_TRITON, reason="needs Triton")
def test_a_choice_already_made_is_respected():
    say = "import kernels; print(kernels.backend_name())"
    assert run_python(say, TRITON_INTERPRET="1").stdout.strip() == "Triton interpreter, CPU"
    if not launch.HAS_NVIDIA_GPU:
        assert run_python(say, TRITON_INTERPRET="0").stdout.strip().startswith("PyTorch blockwise")


@pytest.mark.skipif(launch.HAS_NVIDIA_GPU or not launch.HAS_TRITON, reason="with a GPU the order does not matter")
def test_importing_triton_first_is_refused_with_the_reason():
    done = run_python("import triton, kernels")
    assert "import kernels first, or start Python with TRITON_INTERPRET=1" in done.stderr


def test_threads_that_launch_at_once_all_get_the_right_answer():
    batches = [make_batch(Shape(lens=(4 + i, 9), group=1 + i % 2)) for i in range(8)]
    with ThreadPoolExecutor(4) as threads:
        for future in [threads.submit(batch.check) for batch in batches * 2]:
            future.result()


def test_the_lock_is_held_only_by_interpreted_launches():
    held = launch.launching(make_batch(Shape()).q)
    assert (held is launch.INTERPRETER_LOCK) == launch.INTERPRETED
