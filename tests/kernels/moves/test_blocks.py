"""copy_blocks, gather_blocks and scatter_blocks move whole blocks, bit for bit, and touch nothing else."""

import pytest
import torch

import kernels
from kernels import reference
from kernels.checks.arguments import EIGHT_BITS
from kernels.moves.block_rows import rows_of
from tests.kernel_cases import DTYPES, assert_same_bits, ids, on_gpu, random_bits, sparse_memory

ALL_DTYPES = [*DTYPES, *EIGHT_BITS]


def two_caches(num_blocks=6, block_size=4, kv_heads=2, head_dim=8, dtype=torch.float32):
    k_cache = random_bits(num_blocks, block_size, kv_heads, head_dim, dtype=dtype)
    return k_cache, k_cache.flip(0).contiguous()


def check_copy(k_cache, v_cache, sources, targets):
    k_expected, v_expected = k_cache.clone(), v_cache.clone()
    for source, target in zip(sources, targets, strict=True):
        k_expected[int(target)] = k_cache[int(source)]
        v_expected[int(target)] = v_cache[int(source)]
    kernels.copy_blocks(k_cache, v_cache, sources, targets)
    assert_same_bits(k_cache, k_expected)
    assert_same_bits(v_cache, v_expected)


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
def test_copy_moves_every_bit_of_k_and_v(dtype):
    check_copy(*two_caches(dtype=dtype), [3, 0], [5, 1])


def test_copy_keeps_the_payload_of_a_signalling_nan():
    k_cache, v_cache = two_caches()
    k_cache.view(torch.int32)[2] = 0x7F80_0001
    v_cache.view(torch.int32)[2] = -0x7F_FFFE
    check_copy(k_cache, v_cache, [2], [4])


def test_one_source_may_serve_many_targets():
    check_copy(*two_caches(), [3, 3, 3], [5, 0, 1])


def test_copying_nothing_changes_nothing():
    check_copy(*two_caches(), [], [])
    check_copy(*two_caches(), ids(), ids())


def test_a_chain_is_refused_and_copies_right_call_by_call():
    k_cache, v_cache = two_caches()
    before = k_cache.clone()
    with pytest.raises(ValueError, match=r"copy_blocks: blocks \[2\] are both read and written; copy a chain"):
        kernels.copy_blocks(k_cache, v_cache, [1, 2], [2, 3])
    assert_same_bits(k_cache, before)
    kernels.copy_blocks(k_cache, v_cache, [1], [2])
    kernels.copy_blocks(k_cache, v_cache, [2], [3])
    assert_same_bits(k_cache[3], before[1])


@pytest.mark.parametrize(
    ("sources", "targets", "message"),
    [
        ([1, 2], [3, 3], r"target_blocks names blocks \[3\] more than once"),
        ([1], [1], r"blocks \[1\] are both read and written"),
        ([6], [1], r"source_blocks names blocks \[6\]; the cache has blocks 0 to 5"),
        ([1], [-1], r"target_blocks names blocks \[-1\]; the cache has blocks 0 to 5"),
        ([1, 2], [3], r"2 source_blocks and 1 target_blocks"),
        (torch.tensor([1.0]), [3], r"source_blocks is torch.float32 \[1\]; it must be int32 or int64"),
    ],
)
def test_copy_refuses_what_would_race_or_fall_outside_and_changes_nothing(sources, targets, message):
    k_cache, v_cache = two_caches()
    before = k_cache.clone(), v_cache.clone()
    with pytest.raises(ValueError, match=f"copy_blocks: {message}"):
        kernels.copy_blocks(k_cache, v_cache, sources, targets)
    assert_same_bits(k_cache, before[0])
    assert_same_bits(v_cache, before[1])


def test_copy_works_on_views_of_one_pool():
    pool = random_bits(6, 2, 4, 2, 8)
    before = pool.clone()
    kernels.copy_blocks(pool[:, 0], pool[:, 1], ids(0, dtype=torch.int32), ids(5, dtype=torch.int32))
    before[5] = before[0]
    assert_same_bits(pool, before)


def test_copy_takes_k_and_v_of_different_strides():
    check_copy(random_bits(6, 4, 2, 8), random_bits(6, 4, 2, 16)[..., ::2], [4], [1])


ODD = [(1, 1, 1), (3, 5, 17), (16, 3, 80), (5, 1, 600), (17, 4, 64)]


@pytest.mark.parametrize(("block_size", "kv_heads", "head_dim"), ODD)
def test_copy_takes_any_block_size_head_count_and_head_dim(block_size, kv_heads, head_dim):
    check_copy(*two_caches(3, block_size, kv_heads, head_dim), [2], [0])


def test_gather_packs_blocks_in_the_order_named():
    cache, _ = two_caches()
    packed = kernels.gather_blocks(cache, [5, 0, 5])
    assert_same_bits(packed, cache[[5, 0, 5]])


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
def test_spill_and_reload_give_every_bit_back(dtype):
    cache, _ = two_caches(dtype=dtype)
    before = cache.clone()
    packed = kernels.gather_blocks(cache, ids(4, 1, dtype=torch.int32))
    for block in (4, 1):
        cache[block].zero_()
    kernels.scatter_blocks(cache, [4, 1], packed)
    assert_same_bits(cache, before)


def test_copy_takes_scales_per_slot_as_one_number_a_head():
    k_scale, v_scale = random_bits(6, 4, 3), random_bits(6, 4, 3).flip(0).contiguous()
    before = k_scale.clone(), v_scale.clone()
    kernels.copy_blocks(k_scale[..., None], v_scale[..., None], [3], [1])
    for scale, old in zip((k_scale, v_scale), before, strict=True):
        assert_same_bits(scale[1], old[3])
        assert_same_bits(scale[[0, 2, 3, 4, 5]], old[[0, 2, 3, 4, 5]])


def test_reload_may_use_other_blocks_than_the_spill():
    cache, _ = two_caches()
    expected = cache.clone()
    expected[[0, 3]] = cache[[4, 1]]
    kernels.scatter_blocks(cache, [0, 3], kernels.gather_blocks(cache, [4, 1]))
    assert_same_bits(cache, expected)


@pytest.mark.parametrize(("block_size", "kv_heads", "head_dim"), ODD)
def test_gather_and_scatter_take_any_shape_and_strides(block_size, kv_heads, head_dim):
    pool = random_bits(4, 2, block_size, kv_heads, head_dim)
    cache, before = pool[:, 1], pool.clone()
    wider = random_bits(2, block_size, kv_heads, head_dim + 1)
    out = wider[..., :head_dim]
    assert kernels.gather_blocks(cache, [3, 0], out=out) is out
    assert_same_bits(out, cache[[3, 0]])
    cache[[3, 0]] = 0
    kernels.scatter_blocks(cache, [3, 0], out)
    assert_same_bits(pool, before)


LAYOUTS = {
    "plain": (lambda: random_bits(6, 4, 2, 8), (1, 1, 32)),
    "K and V of a block side by side": (lambda: random_bits(6, 2, 4, 2, 8)[:, 1], (1, 1, 32)),
    "K and V of a token side by side": (lambda: random_bits(6, 4, 2, 2, 8)[:, :, 1], (1, 4, 8)),
    "heads before tokens": (lambda: random_bits(6, 2, 4, 8).transpose(1, 2), (1, 1, 32)),
    "every second token": (lambda: random_bits(6, 8, 2, 8)[:, ::2], (1, 4, 8)),
    "a part of every head": (lambda: random_bits(6, 4, 2, 12)[..., :8], (1, 8, 4)),
    "a part of some heads": (lambda: random_bits(6, 4, 3, 12)[:, :, :2, :8], (4, 2, 4)),
    "every second number": (lambda: random_bits(6, 4, 2, 16)[..., ::2], (1, 1, 64)),
    "dims before tokens": (lambda: random_bits(6, 2, 8, 4).permute(0, 3, 1, 2), (1, 1, 32)),
    "not where 16 bytes begin": (lambda: random_bits(6 * 64 + 1)[1:].view(6, 4, 2, 8), (1, 1, 64)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_blocks_move_in_runs_as_long_and_units_as_wide_as_the_layout_allows(layout):
    """The constants are OUTER, INNER and RUN: how many rows of a block, and how many integers side by side."""
    make, shape = LAYOUTS[layout]
    cache = make()
    constants = rows_of(cache, cache).constants
    assert (constants["OUTER"], constants["INNER"], constants["RUN"]) == shape
    other = make()
    check_copy(cache, other, [5, 1], [0, 2])
    before = cache.clone()
    packed = kernels.gather_blocks(cache, [3, 0])
    assert_same_bits(packed, before[[3, 0]])
    cache[[3, 0]] = 0
    kernels.scatter_blocks(cache, [3, 0], packed)
    assert_same_bits(cache, before)


def test_two_layouts_in_one_call_meet_at_what_both_allow():
    rows = rows_of(random_bits(6, 4, 2, 8), random_bits(6, 2, 4, 8).transpose(1, 2))
    assert [rows.constants[name] for name in ("OUTER", "INNER", "RUN")] == [4, 2, 4]
    check_copy(random_bits(6, 4, 2, 8), random_bits(6, 2, 4, 8).transpose(1, 2), [5, 1], [0, 2])


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
def test_reference_moves_what_the_kernels_move(dtype):
    ours, theirs = two_caches(dtype=dtype), two_caches(dtype=dtype)
    for moves, (k_cache, v_cache) in ((kernels, ours), (reference, theirs)):
        moves.copy_blocks(k_cache, v_cache, [3, 3], [5, 1])
        moves.scatter_blocks(k_cache, [0, 2], moves.gather_blocks(v_cache, [4, 5]))
    for one, other in zip(ours, theirs, strict=True):
        assert_same_bits(one, other)


def test_gather_and_scatter_of_nothing_do_nothing():
    cache, _ = two_caches()
    before = cache.clone()
    packed = kernels.gather_blocks(cache, [])
    assert packed.shape == (0, 4, 2, 8)
    kernels.scatter_blocks(cache, [], packed)
    assert_same_bits(cache, before)


@pytest.mark.parametrize(
    ("blocks", "values", "message"),
    [
        ([1, 1], (2, 4, 2, 8), r"blocks names blocks \[1\] more than once"),
        ([6], (1, 4, 2, 8), r"blocks names blocks \[6\]; the cache has blocks 0 to 5"),
        ([1], (2, 4, 2, 8), r"values is \[2, 4, 2, 8\]; 1 blocks of this cache are \[1, 4, 2, 8\]"),
    ],
)
def test_scatter_refuses_what_would_race_or_not_fit(blocks, values, message):
    cache, _ = two_caches()
    with pytest.raises(ValueError, match=f"scatter_blocks: {message}"):
        kernels.scatter_blocks(cache, blocks, torch.zeros(values, device=kernels.device()))


def test_gather_refuses_an_out_of_another_shape_or_dtype():
    cache, _ = two_caches()
    with pytest.raises(ValueError, match=r"gather_blocks: out is \[1, 4, 2, 8\]; 2 blocks of this cache are"):
        kernels.gather_blocks(cache, [0, 1], out=torch.empty(1, 4, 2, 8, device=kernels.device()))
    with pytest.raises(ValueError, match=r"gather_blocks: out is torch.float16 and cache is torch.float32"):
        kernels.gather_blocks(cache, [0], out=torch.empty(1, 4, 2, 8, dtype=torch.float16, device=kernels.device()))


def test_offsets_past_two_billion_elements_do_not_wrap(tmp_path):
    """Block 69,999 of 32,769 elements lies 2.29 billion in, and its id is past 65,535. Odd, so moved one by one."""
    memory = sparse_memory(tmp_path, 70_000 * 32_769)
    size, strides = (70_000, 2, 2, 8), (32_769, 16, 8, 1)
    k_cache, v_cache = memory.as_strided(size, strides), memory[64:].as_strided(size, strides)
    k_cache[69_999], v_cache[69_999] = random_bits(2, 2, 2, 8, dtype=torch.float16)
    kernels.copy_blocks(k_cache, v_cache, [69_999], [66_000])
    assert_same_bits(k_cache[66_000], k_cache[69_999])
    assert_same_bits(v_cache[66_000], v_cache[69_999])
    packed = kernels.gather_blocks(v_cache, [69_999])
    assert_same_bits(packed[0], v_cache[69_999])
    kernels.scatter_blocks(v_cache, [69_000], packed)
    assert_same_bits(v_cache[69_000], v_cache[69_999])


def test_packed_blocks_past_two_billion_elements_do_not_wrap(tmp_path):
    far = sparse_memory(tmp_path, 2_200_000_100).as_strided((3, 2, 2, 8), (1_100_000_001, 16, 8, 1))
    cache, _ = two_caches(block_size=2, dtype=torch.float16)
    before = cache.clone()
    kernels.gather_blocks(cache, [5, 0, 3], out=far)
    assert_same_bits(far[2], before[3])
    cache.zero_()
    kernels.scatter_blocks(cache, [5, 0, 3], far)
    assert_same_bits(cache[[5, 0, 3]], before[[5, 0, 3]])


@on_gpu
def test_ids_on_the_gpu_may_have_any_stride():
    """A CPU's ids are listed and checked; a GPU's are read by the kernel where they lie."""
    k_cache, v_cache = two_caches()
    pairs = ids(3, 5, 0, 1).view(2, 2)
    check_copy(k_cache, v_cache, pairs[:, 0], pairs[:, 1])
    before = k_cache.clone()
    assert_same_bits(kernels.gather_blocks(k_cache, pairs[:, 1].int()), before[[5, 1]])


@on_gpu
@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
@pytest.mark.parametrize("head_dim", [8, 80, 128, 256, 576])
@pytest.mark.parametrize("block_size", [1, 3, 16, 64, 256])
def test_every_bit_moves_over_the_wide_matrix(dtype, head_dim, block_size):
    k_cache, v_cache = two_caches(40, block_size, 8, head_dim, dtype)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0)).to(kernels.device())
    check_copy(k_cache, v_cache, order[:20], order[20:])
    before = k_cache.clone()
    packed = kernels.gather_blocks(k_cache, order)
    assert_same_bits(packed.view(torch.uint8), before.view(torch.uint8)[order])
    k_cache.zero_()
    kernels.scatter_blocks(k_cache, order, packed)
    assert_same_bits(k_cache, before)
