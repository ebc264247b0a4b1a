"""store_kv puts every token into its slot, bit for bit, and touches nothing else."""

import pytest
import torch

import kernels
from kernels import reference
from tests.kernel_cases import DTYPES, NAN, assert_same_bits, ids, on_gpu, random_bits, sparse_memory


def store_both_ways(k, v, k_cache, v_cache, slots):
    """Store with the kernel and by plain indexing, and compare the whole caches."""
    expected = k_cache.clone(), v_cache.clone()
    reference.store_kv(k, v, *expected, slots)
    kernels.store_kv(k, v, k_cache, v_cache, slots)
    assert_same_bits(k_cache, expected[0])
    assert_same_bits(v_cache, expected[1])


def fresh(num_blocks, block_size, kv_heads, head_dim, dtype=torch.float32):
    return torch.full((num_blocks, block_size, kv_heads, head_dim), NAN, dtype=dtype, device=kernels.device())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_bit_arrives(dtype):
    k, v = random_bits(3, 2, 8, dtype=dtype), random_bits(3, 2, 8, dtype=dtype).flip(0)
    store_both_ways(k, v, fresh(4, 4, 2, 8, dtype), fresh(4, 4, 2, 8, dtype), ids(9, 0, 15))


def test_slot_is_block_times_block_size_plus_offset():
    """The docstring's example: block_table=[7, 2], position=5, block_size=4 -> slot 9, block 2, offset 1."""
    k_cache, v_cache = fresh(8, 4, 1, 1), fresh(8, 4, 1, 1)
    one = torch.ones(1, 1, 1, device=kernels.device())
    kernels.store_kv(one, 2 * one, k_cache, v_cache, ids(2 * 4 + 1))
    assert k_cache[2, 1].item() == 1
    assert v_cache[2, 1].item() == 2
    assert int(k_cache.isnan().sum()) == int(v_cache.isnan().sum()) == 31


def test_slot_minus_one_is_skipped():
    k = random_bits(4, 1, 4)
    # Views one block into larger memory, so that a write to slot -1 would land where it can be seen.
    k_pool, v_pool = fresh(4, 4, 1, 4), fresh(4, 4, 1, 4)
    expected = k_pool.clone()
    kernels.store_kv(k, k, k_pool[1:3], v_pool[1:3], ids(-1, -1, -1, -1))
    assert_same_bits(k_pool, expected)
    assert_same_bits(v_pool, expected)
    kernels.store_kv(k, k, k_pool[1:3], v_pool[1:3], ids(-1, 7, -1, 2))
    expected[2, 3], expected[1, 2] = k[1], k[3]
    assert_same_bits(k_pool, expected)
    assert_same_bits(v_pool, expected)


@pytest.mark.parametrize(
    ("block_size", "kv_heads", "head_dim"), [(1, 1, 1), (3, 5, 17), (16, 3, 80), (5, 1, 600), (2, 40, 64)]
)
def test_any_block_size_head_count_and_head_dim(block_size, kv_heads, head_dim):
    k, v = random_bits(2, kv_heads, head_dim), random_bits(2, kv_heads, head_dim).flip(0)
    k_cache, v_cache = fresh(4, block_size, kv_heads, head_dim), fresh(4, block_size, kv_heads, head_dim)
    store_both_ways(k, v, k_cache, v_cache, ids(3 * block_size, block_size - 1))


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
def test_slots_are_int32_or_int64_of_any_stride(index_dtype):
    slots = torch.stack([ids(3, -1, 6), ids(0, 0, 0)], dim=1).to(index_dtype)[:, 0]
    k = random_bits(3, 2, 8)
    store_both_ways(k, k, fresh(2, 4, 2, 8), fresh(2, 4, 2, 8), slots)


def test_k_and_v_may_be_views_of_one_projection_and_one_pool():
    qkv = random_bits(3, 8, 8)
    pool = fresh(4, 2, 4, 16).view(4, 2, 4, 2, 8)
    before = pool.clone()
    slots = ids(2, 13, 8)
    kernels.store_kv(qkv[:, 4:6], qkv[:, 6:8], pool[:, 0], pool[:, 1], slots)
    for token, slot in enumerate(slots.tolist()):
        before[slot // 4, 0, slot % 4] = qkv[token, 4:6]
        before[slot // 4, 1, slot % 4] = qkv[token, 6:8]
    assert_same_bits(pool, before)


def test_k_and_v_need_not_have_the_same_strides():
    k, v = random_bits(3, 2, 8), random_bits(3, 8, 2).transpose(1, 2)
    store_both_ways(k, v, fresh(4, 4, 2, 8), fresh(4, 8, 2, 4).transpose(1, 3), ids(2, 13, 8))


def test_no_tokens_change_nothing():
    store_both_ways(random_bits(0, 2, 8), random_bits(0, 2, 8), fresh(2, 4, 2, 8), fresh(2, 4, 2, 8), ids())


def test_offsets_past_two_billion_elements_do_not_wrap(tmp_path):
    """Block 69,999 of 32,768 elements lies 2.29 billion elements in, and its id is past 65,535."""
    memory = sparse_memory(tmp_path, 70_000 * 32_768)
    size, strides = (70_000, 2, 2, 8), (32_768, 16, 8, 1)
    k_cache, v_cache = memory.as_strided(size, strides), memory[64:].as_strided(size, strides)
    k, v = random_bits(2, 2, 8, dtype=torch.float16), random_bits(2, 2, 8, dtype=torch.float16).flip(0)
    kernels.store_kv(k, v, k_cache, v_cache, ids(139_999, 66_000 * 2))
    assert_same_bits(k_cache[[69_999, 66_000], [1, 0]], k)
    assert_same_bits(v_cache[[69_999, 66_000], [1, 0]], v)


def test_new_tokens_past_two_billion_elements_do_not_wrap(tmp_path):
    far = sparse_memory(tmp_path, 2_200_000_100).as_strided((3, 2, 8), (1_100_000_000, 8, 1))
    k = random_bits(3, 2, 8, dtype=torch.float16)
    far.copy_(k)
    k_cache, v_cache = fresh(2, 2, 2, 8, torch.float16), fresh(2, 2, 2, 8, torch.float16)
    kernels.store_kv(far, far, k_cache, v_cache, ids(0, 1, 3))
    assert_same_bits(k_cache.flatten(0, 1)[[0, 1, 3]], k)


@on_gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("head_dim", [8, 64, 80, 128, 256, 576])
@pytest.mark.parametrize("block_size", [1, 3, 16, 64, 256])
def test_every_bit_arrives_over_the_wide_matrix(dtype, head_dim, block_size):
    k, v = random_bits(500, 8, head_dim, dtype=dtype), random_bits(500, 8, head_dim, dtype=dtype).flip(0)
    num_blocks = -(-800 // block_size)
    slots = torch.randperm(num_blocks * block_size, generator=torch.Generator().manual_seed(0))[:500]
    slots[::7] = -1
    k_cache, v_cache = (
        fresh(num_blocks, block_size, 8, head_dim, dtype),
        fresh(num_blocks, block_size, 8, head_dim, dtype),
    )
    store_both_ways(k, v, k_cache, v_cache, slots.to(kernels.device()))
