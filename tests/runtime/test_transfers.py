"""Blocks spill and reload beside the computation, and no block is used while a copy still reads or fills it.

On a GPU one of the two streams is held, and what must wait for it is launched meanwhile: without the event between them
it would be too early, and the numbers would tell. Where the CPU itself must wait, a timer lets go (`holds.py`).
"""

import re
from types import SimpleNamespace

import pytest
import torch

import kernels
from kernels import launch
from pagedviz.engine.log.events.blocks import BlockCopied, BlockEvicted, BlockFreed
from pagedviz.engine.log.events.transfers import (
    BlockReloaded,
    BlockSpilled,
    TierEvicted,
    TierLoadBegun,
    TierLoadFailed,
    TierLoadFinished,
    TierStoreBegun,
    TierStoreCancelled,
    TierStoreFinished,
)
from pagedviz.runtime.cache.kv_cache import KVCache
from pagedviz.runtime.cache.transfers import Transfers
from pagedviz.scenario.operations import Add, Reload, Spill
from pagedviz.scenario.settings import CacheConfig
from tests.kernel_cases import NAN, assert_same_bits, on_gpu, random_bits, run_python
from tests.runtime.holds import rehearsed
from tests.runtime.runner.runner_cases import Played

SLABS, BLOCKS, HOST_BLOCKS, BLOCK = 3, 6, 4, (4, 2, 8)


def make(poison=NAN):
    """Random bits on the device, nothing on the host."""
    return Transfers(random_bits(SLABS, BLOCKS, *BLOCK), HOST_BLOCKS, poison)


def sides(transfers):
    """What the device and the host hold when everything has arrived, [slabs, blocks, ...], on the CPU."""
    transfers.claim()
    transfers.wait_for_host()
    return transfers.device.cpu().clone(), transfers.host.clone()


def holding_transfers(holds, poison=NAN):
    transfers = make(poison)
    before = sides(transfers)[0]
    holds.hold(transfers.stream)
    return transfers, before


def holding_compute(holds, poison=NAN):
    transfers = make(poison)
    before = sides(transfers)[0]
    holds.hold(torch.cuda.current_stream())
    return transfers, before


# --- what moves ---


def test_spill_takes_every_slab_of_every_block_and_leaves_poison_behind():
    transfers = make()
    before = sides(transfers)[0]
    transfers.spill([5, 1, 2], [3, 0, 2])
    device, host = sides(transfers)
    assert_same_bits(host[:, [3, 0, 2]], before[:, [5, 1, 2]])
    assert host[:, 1].isnan().all()
    assert device[:, [5, 1, 2]].isnan().all()
    assert_same_bits(device[:, [0, 3, 4]], before[:, [0, 3, 4]])


def test_reload_brings_every_bit_back_to_other_blocks_and_leaves_poison_behind():
    transfers = make()
    before = sides(transfers)[0]
    transfers.spill([5, 1, 2], [3, 0, 2])
    transfers.reload([0, 3], [5, 4])
    device, host = sides(transfers)
    assert_same_bits(device[:, [5, 4]], before[:, [1, 5]])
    assert_same_bits(device[:, [0, 3]], before[:, [0, 3]])
    assert host[:, [0, 1, 3]].isnan().all()
    assert_same_bits(host[:, 2], before[:, 2])


def test_without_poison_what_is_left_behind_stays():
    transfers = make(poison=None)
    before = sides(transfers)[0]
    transfers.spill([5], [3])
    transfers.reload([3], [0])
    transfers.forget([3])
    device, host = sides(transfers)
    assert_same_bits(device[:, [5, 0]], before[:, [5, 5]])
    assert_same_bits(host[:, 3], before[:, 5])


def test_host_blocks_that_follow_one_another_are_one_copy_and_others_one_each():
    transfers = make()
    staging = random_bits(4 * SLABS, *BLOCK)
    for host_blocks, lengths in (([0, 1, 2, 3], [4]), ([0, 2, 3], [1, 2]), ([1], [1]), ([0, 1, 3], [2, 1]), ([], [])):
        pairs = list(transfers._side_by_side(host_blocks, staging[: len(host_blocks) * SLABS]))
        assert [len(memory) // SLABS for memory, _ in pairs] == lengths
        assert all(memory.is_contiguous() and memory.shape == part.shape for memory, part in pairs)
    assert transfers.host.is_pinned() == (kernels.device().type == "cuda")


# --- what waits for what ---


@on_gpu
@rehearsed
def test_a_spilled_block_is_not_overwritten_before_it_was_read(holds):
    transfers, before = holding_transfers(holds, poison=None)
    transfers.spill([2], [1])
    transfers.claim([2])
    transfers.device[:, 2] = 7.0
    holds.let_go()
    device, host = sides(transfers)
    assert_same_bits(host[:, 1], before[:, 2])
    assert (device[:, 2] == 7.0).all()


@on_gpu
@rehearsed
def test_a_poisoned_block_that_is_reused_at_once_keeps_what_its_new_owner_wrote(holds):
    transfers, before = holding_transfers(holds)
    transfers.spill([2], [1])
    transfers.claim([2])
    transfers.device[:, 2] = 7.0
    holds.let_go()
    device, host = sides(transfers)
    assert_same_bits(host[:, 1], before[:, 2])
    assert (device[:, 2] == 7.0).all()


@on_gpu
@rehearsed
def test_a_spill_waits_for_what_was_written_before(holds):
    transfers, _ = holding_compute(holds)
    transfers.device[:, 2] = 7.0
    transfers.spill([2], [1])
    holds.let_go()
    assert (sides(transfers)[1][:, 1] == 7.0).all()


@on_gpu
@rehearsed
def test_a_reloaded_block_is_not_read_before_it_has_arrived(holds):
    transfers, before = holding_transfers(holds)
    transfers.spill([2], [1])
    transfers.reload([1], [4])
    transfers.claim([4])
    read = transfers.device[:, 4].clone()
    holds.let_go()
    assert_same_bits(read.cpu(), before[:, 2])


@on_gpu
@rehearsed
def test_a_reload_waits_for_what_still_reads_its_block(holds):
    transfers, before = holding_compute(holds)
    read = transfers.device[:, 4].clone()
    transfers.reload([1], [4])
    holds.let_go()
    assert_same_bits(read.cpu(), before[:, 4])
    assert sides(transfers)[0][:, 4].isnan().all()


@on_gpu
@rehearsed
def test_a_host_block_is_neither_poisoned_nor_overwritten_before_it_was_read(holds):
    for poison in (NAN, None):
        transfers, before = holding_transfers(holds, poison)
        transfers.spill([2], [1])
        transfers.reload([1], [4])
        transfers.spill([3], [1])
        holds.let_go()
        device, host = sides(transfers)
        assert_same_bits(device[:, 4], before[:, 2])
        assert_same_bits(host[:, 1], before[:, 3])


@on_gpu
@rehearsed
def test_the_cpu_reads_a_host_block_after_it_has_arrived(holds):
    transfers, before = holding_transfers(holds)
    transfers.spill([2], [1])
    holds.let_go_soon()
    transfers.wait_for_host()
    assert_same_bits(transfers.host[:, 1], before[:, 2])


@on_gpu
@rehearsed
def test_a_host_block_forgotten_at_once_is_poisoned_after_it_has_arrived(holds):
    transfers, _ = holding_transfers(holds)
    transfers.spill([2], [1])
    transfers.forget([1])
    holds.let_go()
    assert sides(transfers)[1].isnan().all()


@on_gpu
@rehearsed
def test_the_computation_goes_on_with_other_blocks_and_the_cpu_does_not_wait(holds):
    transfers, before = holding_transfers(holds)
    transfers.spill([2], [1])
    transfers.claim([0, 1, 3, 4, 5])
    read = transfers.device[:, 3].clone()
    torch.cuda.current_stream().synchronize()
    assert holds.rehearsal or not transfers.in_flight[2].query()
    assert_same_bits(read.cpu(), before[:, 3])


@on_gpu
@rehearsed
def test_staging_memory_is_not_given_away_while_a_copy_still_uses_it(holds):
    transfers, before = holding_transfers(holds, poison=None)
    transfers.spill([2, 5], [1, 3])
    transfers.reload([1], [4])
    # Of the sizes of all that the calls made and dropped.
    junk = [torch.full((blocks * SLABS, *BLOCK), 9.0, device="cuda") for blocks in (1, 2) * 8]
    holds.let_go()
    device, host = sides(transfers)
    assert_same_bits(host[:, [1, 3]], before[:, [2, 5]])
    assert_same_bits(device[:, 4], before[:, 2])
    assert all((x == 9.0).all() for x in junk)


@on_gpu
@rehearsed
def test_caches_freed_in_flight_are_not_given_away_before_the_copy_has_read_them(holds):
    transfers, before = holding_transfers(holds, poison=None)
    transfers.spill([2], [1])
    stream, host = transfers.stream, transfers.host
    del transfers
    junk = [torch.full((SLABS, BLOCKS, *BLOCK), 9.0, device="cuda") for _ in range(8)]
    holds.let_go()
    stream.synchronize()
    assert_same_bits(host[:, 1], before[:, 2])
    assert all((x == 9.0).all() for x in junk)


# --- the cache's events ---

CONFIG = CacheConfig(
    num_blocks=BLOCKS, block_size=4, host_blocks=HOST_BLOCKS, num_layers=2, num_kv_heads=2, head_dim=8, host_chunks=3
)


def cache_that_holds(holds):
    """A cache of ones, twos, ... by block, whose transfers are held on a GPU."""
    cache = KVCache(CONFIG, kernels.device())
    for block in range(BLOCKS):
        cache.k[:, block], cache.v[:, block] = block + 1.0, -block - 1.0
    if cache.transfers.stream is not None:
        holds.hold(cache.transfers.stream)
    return cache


def numbers(cache, chunks=False):
    """The number that each block of the device and of the host, or its chunk, holds everywhere in K, negated in V; None
    for poison."""
    cache.transfers.claim()
    cache.transfers.wait_for_host()

    def number(k, v):
        if k.isnan().all() and v.isnan().all():
            return None
        assert torch.equal(k, -v)
        return k.unique().item()

    host = (cache.chunk_k, cache.chunk_v) if chunks else (cache.host_k, cache.host_v)
    sides = (cache.k.cpu(), cache.v.cpu()), host
    return [[number(k[:, i], v[:, i]) for i in range(k.shape[1])] for k, v in sides]


def spilled(block, host_block):
    return BlockSpilled("A", ("A",), block, host_block, 0, "a test")


def reloaded(host_block, block):
    return BlockReloaded("A", ("A",), block, host_block, 0)


def freed(block, where):
    return BlockFreed("A", 0, block, where, 0, 4)


@rehearsed
def test_a_block_is_spilled_and_reused_at_once(holds):
    cache = cache_that_holds(holds)
    cache.apply(spilled(2, 1))
    token = torch.full((4, 2, 8), 9.0, device=cache.device)
    # A store takes its slots to the GPU behind what its stream waits for, and waits with it.
    holds.let_go_soon()
    for layer in range(2):
        cache.store(layer, token, -token, [8, 9, 10, 11])
    assert numbers(cache) == [[1, 2, 9, 4, 5, 6], [None, 3, None, None]]


@rehearsed
def test_a_block_is_reloaded_and_copied_at_once(holds):
    cache = cache_that_holds(holds)
    cache.apply(spilled(2, 1))
    cache.apply(reloaded(1, 4))
    cache.apply(BlockCopied("A", 0, 4, 0, 4))
    holds.let_go()
    assert numbers(cache) == [[3, 2, None, 4, 3, 6], [None] * 4]


@rehearsed
def test_a_block_is_reloaded_and_freed_at_once(holds):
    cache = cache_that_holds(holds)
    cache.apply(spilled(2, 1))
    cache.apply(spilled(3, 2))
    cache.apply(reloaded(1, 4))
    cache.apply(freed(4, "device"))
    cache.apply(freed(2, "host"))
    holds.let_go()
    assert numbers(cache) == [[1, 2, None, None, None, 6], [None] * 4]


@rehearsed
def test_a_block_is_stored_and_given_to_others_at_once(holds):
    cache = cache_that_holds(holds)
    cache.apply(TierStoreBegun(1, ("x", "y"), (2, 3), (1, 0)))
    cache.apply(TierStoreFinished(1, ("x", "y"), (2, 3), (1, 0), (0, None)), cached={2, 3})
    cache.apply(BlockEvicted(2, "x", 0, "a test"))
    holds.let_go()
    assert numbers(cache, chunks=True) == [[1, 2, None, 4, 5, 6], [4, 3, None]]
    assert numbers(cache)[1] == [None] * 4


@rehearsed
def test_a_block_is_loaded_and_its_chunk_evicted_at_once(holds):
    cache = cache_that_holds(holds)
    cache.apply(TierStoreBegun(1, ("x",), (2,), (1,)))
    cache.apply(TierLoadBegun(2, ("x",), (5,), (1,)))
    cache.apply(TierLoadFinished(2, ("x",), (5,), (1,)))
    cache.apply(TierEvicted("x", 1))
    holds.let_go()
    assert numbers(cache, chunks=True) == [[1, 2, 3, 4, 5, 3], [None] * 3]


@rehearsed
def test_what_ends_without_its_block_having_a_hash_is_poisoned(holds):
    cache = cache_that_holds(holds)
    cache.apply(TierStoreBegun(1, ("x", "y"), (2, 3), (0, 1)))
    cache.apply(TierStoreCancelled(1, ("x", "y"), (2, 3), (0, 1), (0, None)))  # block 2 lost its hash, 3 is in use
    cache.apply(TierStoreBegun(2, ("z",), (4,), (0,)))
    cache.apply(TierLoadBegun(3, ("z",), (5,), (0,)))
    cache.apply(TierLoadFailed(3, ("z",), (5,), (0,), (0,), freed=(0,)))
    holds.let_go()
    assert numbers(cache, chunks=True) == [[1, 2, None, 4, 5, None], [None] * 3]


@pytest.mark.parametrize("where", ["device", "host"])
@rehearsed
def test_a_block_is_read_at_once_wherever_it_is(holds, where):
    cache = cache_that_holds(holds)
    cache.apply(spilled(2, 1))
    if where == "device":
        cache.apply(reloaded(1, 4))
    rows = ((4,), (None,)) if where == "device" else ((None,), (1,))

    snapshot = SimpleNamespace(
        host_tables={"A": rows[1]}, tables=lambda group: {"A": rows[0]}, seq_len=lambda seq_id: 3
    )
    holds.let_go_soon()
    k, v = cache.read(snapshot, "A")
    assert k.shape == v.shape == (2, 3, 2, 8)
    assert (k == 3).all()
    assert (v == -3).all()


@on_gpu
@rehearsed
def test_a_run_attends_to_a_reloaded_block_when_it_has_arrived(holds):
    played = Played(Add("A", ("a",)), Spill("A"))
    holds.hold(played.runner.kv.transfers.stream)
    holds.let_go_soon()
    played.play(Reload("A"))
    assert [check.compared for check in played.checks][-1] == 1
    assert all(check.ok for check in played.checks)


# --- the hold itself ---

PTX_OF_THE_HOLD = """
import kernels
from tests.runtime.hold_kernel import hold_kernel
from triton import compile as triton_compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
source = ASTSource(hold_kernel, {"flags": "*i32", "longest": "i64"}, {})
print(triton_compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 1}).asm["ptx"])
"""


@pytest.mark.skipif(not launch.HAS_TRITON, reason="needs Triton")
def test_the_kernel_that_holds_a_stream_looks_at_memory_and_at_the_clock_in_every_turn():
    done = run_python(PTX_OF_THE_HOLD, TRITON_INTERPRET="0")
    assert done.returncode == 0, done.stderr[-3000:]
    # The loop is all between its label and the jump back to it.
    before, turn, after = re.split(r"(\$L__BB0_1:.*bra\s+\$L__BB0_1;)", done.stdout, flags=re.DOTALL)
    for what in ("ld.volatile.global.b32", "%globaltimer", "setp.eq", "setp.lt"):
        assert what in turn
    assert "%globaltimer" in before
    assert len(re.findall(r"st\.global\.b32", after)) == 1
