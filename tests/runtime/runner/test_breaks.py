"""The checks fail when the code is wrong: one thing is broken at a time, and the verdict turns red and names it.

What is broken is the real code, on the real kernels; nothing else is changed.
"""

import json

import pytest
import torch

import kernels
from pagedviz.engine.blocks.changes import allocation
from pagedviz.engine.blocks.pool import BlockPool
from pagedviz.engine.log.events.blocks import BlockFreed, BlockReleased, BlockShared
from pagedviz.engine.log.events.transfers import BlockSpilled
from pagedviz.runtime.cache.kv_cache import KVCache
from pagedviz.runtime.checking.kv_log import KVLog
from pagedviz.scenario.operations import Add, Append, Fork, Free, Reload, Spill
from tests.runtime.runner.runner_cases import Played, on_attention, one_by_one

NAN = pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # NaN is the point here
pytestmark = [pytest.mark.slow, NAN]

ABC = ("a", "b", "c")
FORK_AND_WRITE = Add("A", ABC), Fork("A", "B"), Append("B", ("x",))
# The same three tokens through paged_prefill and through paged_decode, with the event that writes them.
PREFILL, DECODE = (Add("A", ABC),), one_by_one("A", ABC)
THROUGH_BOTH = pytest.mark.parametrize(
    ("ops", "event"), [(PREFILL, "TokensWritten"), (DECODE, "TokenWritten")], ids=["prefill", "decode"]
)
BYTES = "bytes: K or V of {} through its table differs from its log"


def first_failure(*ops):
    """The kind of the first event with a bad verdict, that verdict, and the state it judged."""
    played = Played(*ops)
    return next((h.event.kind, check, h.snapshot) for h, check in played.steps if not check.ok)


def test_nothing_broken_is_good():
    played = Played(*FORK_AND_WRITE, Append("A", ("y",)), Spill("A"), Reload("A"), Free("A"), Free("B"))
    assert all(check.ok for check in played.checks)


# --- copy-on-write ---


@pytest.mark.parametrize(
    "copied",
    [
        lambda copy, k, v, source, target: None,
        lambda copy, k, v, source, target: copy(k, k.clone().fill_(0), source, target),
        lambda copy, k, v, source, target: copy(v.clone().fill_(0), v, source, target),
        lambda copy, k, v, source, target: copy(k, v, target, source),
    ],
    ids=["nothing", "K only", "V only", "the wrong way"],
)
def test_copy_of_too_little_is_found_when_the_entry_names_it(monkeypatch, copied):
    copy = kernels.copy_blocks
    monkeypatch.setattr(kernels, "copy_blocks", lambda k, v, source, target: copied(copy, k, v, source, target))
    kind, check, _ = first_failure(*FORK_AND_WRITE)
    assert kind in ("BlockCopied", "EntryRewritten")
    assert check.max_error is None
    assert any(sentence.startswith("bytes: K or V of ") for sentence in check.broken)


def test_copy_of_the_first_layer_only_is_found(monkeypatch):
    copy, calls = kernels.copy_blocks, []

    def copy_once(*blocks):
        calls.append(blocks)
        if len(calls) % 2:
            copy(*blocks)

    monkeypatch.setattr(kernels, "copy_blocks", copy_once)
    kind, check, _ = first_failure(*FORK_AND_WRITE)
    assert (kind, check.failed, check.broken) == ("EntryRewritten", ("B",), (BYTES.format("B"),))


@pytest.mark.parametrize(
    ("tokens", "event"), [(("x",), "TokenWritten"), (("x", "y"), "TokensWritten")], ids=["one token", "several"]
)
def test_write_into_a_shared_block_is_found(monkeypatch, tokens, event):
    monkeypatch.setattr(allocation, "make_writable", lambda state, seq: None)
    kind, check, state = first_failure(*FORK_AND_WRITE[:2], Append("B", tokens), Append("A", ("y",)))
    slot = state.block_tables["B"][1] * 2 + 1
    assert kind == event
    assert f"write_alone: B wrote slot {slot} of block {slot // 2}, whose ref_count is 2" in check.broken


# --- reference counts and the free queue ---


def test_forgotten_release_is_found(monkeypatch):
    monkeypatch.setattr(BlockPool, "release", lambda self, block: self.ref_count[block])
    kind, check, _ = first_failure(*FORK_AND_WRITE)
    assert kind == "EntryRewritten"
    assert any(sentence.startswith("ref_count: device block") for sentence in check.broken)


def test_forgotten_count_of_a_sharer_is_found(monkeypatch):
    monkeypatch.setattr(BlockPool, "share", lambda self, block: self.ref_count[block])
    kind, check, state = first_failure(*FORK_AND_WRITE)
    block = state.block_tables["A"][0]
    assert kind == "BlockShared"
    assert f"ref_count: device block {block} has ref_count 1, and 2 entries or pins name it" in check.broken


def test_block_that_never_returns_to_the_queue_is_found(monkeypatch):
    monkeypatch.setattr(BlockPool, "put_back", lambda self, freed, order: 0)
    kind, check, _ = first_failure(Add("A", ABC), Free("A"))
    assert kind == "BlockFreed"
    assert any("is in 0 states, not in one" in sentence for sentence in check.broken)


def test_block_handed_out_while_in_use_is_found(monkeypatch):
    def take(self):
        self.ref_count[self.free_blocks.first] = 1
        return self.free_blocks.first

    monkeypatch.setattr(BlockPool, "take", take)
    kind, check, _ = first_failure(Add("A", ABC))
    assert kind == "BlockAllocated"
    assert any("is in 2 states, not in one" in sentence for sentence in check.broken)


# --- the kernel reads through the table ---


@THROUGH_BOTH
def test_unmasked_v_lets_nan_through(monkeypatch, ops, event):
    """Zero times NaN is NaN: weights of 0 do not hide what lies behind the last token."""

    def unmasked(attend, q, k_cache, v_cache, block_tables, seq_lens):
        last = int(block_tables[0, (int(seq_lens[0]) - 1) // 2])
        return attend(q, k_cache, v_cache, block_tables, seq_lens) + 0.0 * v_cache[last].sum()

    on_attention(monkeypatch, unmasked)
    kind, check, _ = first_failure(*ops)
    assert (kind, check.max_error, check.failed, check.broken) == (event, None, ("A",), ())


@THROUGH_BOTH
def test_unmasked_k_and_v_let_nan_through(monkeypatch, ops, event):
    def whole_blocks(attend, q, k_cache, v_cache, block_tables, seq_lens):
        return attend(q, k_cache, v_cache, block_tables, (seq_lens + 1) // 2 * 2)

    on_attention(monkeypatch, whole_blocks)
    kind, check, _ = first_failure(*ops)
    assert (kind, check.max_error) == (event, None)
    assert "NaN" not in json.dumps(check.to_json()), "a browser reads no JSON with NaN in it, and shows no stage at all"


@THROUGH_BOTH
@pytest.mark.parametrize(
    "shorter",
    [lambda seq_lens: seq_lens // 2 * 2, lambda seq_lens: seq_lens - 1],
    ids=["full blocks only", "newest token left out"],
)
def test_tokens_left_out_are_found(monkeypatch, ops, event, shorter):
    def left_out(attend, q, k_cache, v_cache, block_tables, seq_lens):
        return attend(q, k_cache, v_cache, block_tables, shorter(seq_lens))

    on_attention(monkeypatch, left_out)
    kind, check, _ = first_failure(*ops)
    assert kind == event
    assert check.max_error > 1e-2
    assert check.broken == ()


@pytest.mark.parametrize(
    ("ops", "event", "seq_len"),
    [(PREFILL, "TokensWritten", 3), (DECODE, "BlockAllocated", 2)],
    ids=["prefill", "decode"],
)
def test_full_and_partial_block_swapped_are_found(monkeypatch, ops, event, seq_len):
    def swapped(attend, q, k_cache, v_cache, block_tables, seq_lens):
        return attend(q, k_cache, v_cache, block_tables.flip(1), seq_lens)

    on_attention(monkeypatch, swapped)
    kind, check, state = first_failure(*ops)
    assert (kind, check.max_error, state.seq_len("A")) == (event, None, seq_len)


def swap_full_blocks(monkeypatch):
    def swapped(attend, q, k_cache, v_cache, block_tables, seq_lens):
        row = block_tables if int(seq_lens[0]) < 4 else block_tables.flip(1)
        return attend(q, k_cache, v_cache, row, seq_lens)

    on_attention(monkeypatch, swapped)


def test_full_blocks_swapped_for_the_kernel_alone_give_the_same_sum(monkeypatch):
    """K carries its position, so attention does not ask for order. In the manager's table the bytes would tell."""
    swap_full_blocks(monkeypatch)
    assert all(check.ok for check in Played(*one_by_one("A", (*ABC, "d"))).checks)


def test_full_blocks_swapped_are_found_where_queries_see_only_the_tokens_before_them(monkeypatch):
    swap_full_blocks(monkeypatch)
    kind, check, _ = first_failure(Add("A", (*ABC, "d")))
    assert (kind, check.failed) == ("TokensWritten", ("A",))
    assert check.max_error > 1e-2


@THROUGH_BOTH
def test_error_in_a_deeper_layer_alone_is_found(monkeypatch, ops, event):
    calls = []

    def second_layer_off(attend, *arguments):
        calls.append(arguments)
        return attend(*arguments) + (1e-3 if len(calls) % 2 == 0 else 0.0)

    on_attention(monkeypatch, second_layer_off)
    kind, check, _ = first_failure(*ops)
    assert kind == event
    assert check.max_error == pytest.approx(1e-3, rel=1e-2)


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("row", [0, 1, 2])
@pytest.mark.parametrize("wrong", [1e-3, float("nan")])
def test_one_wrong_row_of_a_prompt_is_found_and_its_sequence_named(monkeypatch, row, layer, wrong):
    prefill, calls = kernels.paged_prefill, []

    def one_row_off(*arguments, **options):
        out = prefill(*arguments, **options)
        if len(calls) % 2 == layer:
            out[1 + row] += wrong  # row 0 is the newest token of B
        calls.append(out)
        return out

    monkeypatch.setattr(kernels, "paged_prefill", one_row_off)
    kind, check, _ = first_failure(Add("B", ("x",)), Add("A", ABC))
    assert (kind, check.failed, check.broken) == ("TokensWritten", ("A",), ())
    assert check.max_error == (None if wrong != wrong else pytest.approx(wrong, rel=1e-2))


def test_query_that_sees_a_later_token_is_found(monkeypatch):
    """Without the causal mask: every row of the prompt is the last token's view."""
    prefill = kernels.paged_prefill

    def all_seen(q, k_cache, v_cache, block_tables, seq_lens, query_start_loc, **options):
        rows = block_tables.repeat_interleave(len(q), 0), seq_lens.repeat_interleave(len(q), 0)
        starts = torch.arange(len(q) + 1, dtype=torch.int32, device=q.device)
        return prefill(q, k_cache, v_cache, *rows, starts, **options)

    monkeypatch.setattr(kernels, "paged_prefill", all_seen)
    kind, check, _ = first_failure(Add("A", ABC))
    assert (kind, check.failed, check.broken) == ("TokensWritten", ("A",), ())
    assert check.max_error > 1e-2


@pytest.mark.parametrize(
    ("ops", "event"),
    [((Add("B", ("x", "y", "z")),), "TokensWritten"), (one_by_one("B", ("x", "y", "z")), "TokenWritten")],
    ids=["prefill", "decode"],
)
def test_rows_of_two_sequences_swapped_are_found(monkeypatch, ops, event):
    def swapped(attend, q, k_cache, v_cache, block_tables, seq_lens):
        return attend(q, k_cache, v_cache, block_tables.flip(0), seq_lens.flip(0))

    on_attention(monkeypatch, swapped)
    kind, check, _ = first_failure(Add("A", ABC), *ops)
    assert (kind, check.failed) == (event, ("A", "B"))


@THROUGH_BOTH
def test_stale_table_is_found_after_a_journey(monkeypatch, ops, event):
    """The table of the first launch is kept, as one that is built once and never updated."""
    kept = {}

    def stale(attend, q, k_cache, v_cache, block_tables, seq_lens):
        table = kept.setdefault(tuple(block_tables.shape), block_tables)
        return attend(q, k_cache, v_cache, table, seq_lens)

    on_attention(monkeypatch, stale)
    played = Played(*ops)
    assert all(check.ok for check in played.checks)
    played.play(Spill("A"), Reload("A"))
    assert played.first_failure[0] == "BlockReloaded"
    assert played.first_failure[1].failed == ("A",)


# --- storing ---


@THROUGH_BOTH
@pytest.mark.parametrize(
    "stored",
    [
        lambda store, k, v, k_cache, v_cache, slots: store(k, v, k_cache, v_cache, slots ^ 1),
        lambda store, k, v, k_cache, v_cache, slots: store(v, k, k_cache, v_cache, slots),
        lambda store, k, v, k_cache, v_cache, slots: store(k, v, k_cache, v_cache, slots * 0 - 1),
    ],
    ids=["in the next slot", "K as V", "nowhere"],
)
def test_token_stored_wrongly_is_found_at_once(monkeypatch, ops, event, stored):
    store = kernels.store_kv
    monkeypatch.setattr(kernels, "store_kv", lambda *arguments: stored(store, *arguments))
    played = Played(*ops)
    kind, check = played.first_failure
    assert kind == event
    assert BYTES.format("A") in check.broken


@pytest.mark.parametrize("left_out", [0, 1, 2])
def test_one_token_of_a_prompt_that_is_not_stored_is_found(monkeypatch, left_out):
    store = kernels.store_kv

    def all_but_one(k, v, k_cache, v_cache, slots):
        slots = slots.clone()
        slots[left_out] = -1
        store(k, v, k_cache, v_cache, slots)

    monkeypatch.setattr(kernels, "store_kv", all_but_one)
    kind, check, _ = first_failure(Add("A", ABC))
    assert (kind, check.max_error, check.failed) == ("TokensWritten", None, ("A",))
    assert BYTES.format("A") in check.broken


def test_row_without_a_slot_that_is_written_all_the_same_is_named_as_unowned(monkeypatch):
    """While B writes, A's newest token only asks: its slot is -1."""
    store = kernels.store_kv

    def somewhere(k, v, k_cache, v_cache, slots):
        last = k_cache.shape[0] * k_cache.shape[1] - 1
        store(k, v, k_cache, v_cache, slots.masked_fill(slots < 0, last))

    monkeypatch.setattr(kernels, "store_kv", somewhere)
    kind, check, state = first_failure(Add("A", ("a",)), Add("B", ABC))
    assert 7 in state.free_blocks
    assert (kind, check.broken) == (
        "TokensWritten",
        ("poison: device block 7 holds a number in an unowned slot",),
    )


@pytest.mark.parametrize("tokens", [("a",), ABC], ids=["decode", "prefill"])
def test_token_stored_behind_the_last_is_named_as_unowned(monkeypatch, tokens):
    store = kernels.store_kv
    monkeypatch.setattr(kernels, "store_kv", lambda *arguments: store(*arguments[:4], arguments[4] ^ 1))
    _, check, state = first_failure(Add("A", tokens))
    block = state.block_tables["A"][-1]
    assert f"poison: device block {block} holds a number in an unowned slot" in check.broken


# --- spilling, reloading, freeing ---


def test_skipped_gather_is_found_on_the_host(monkeypatch):
    gather = kernels.gather_blocks
    monkeypatch.setattr(kernels, "gather_blocks", lambda cache, blocks: torch.zeros_like(gather(cache, blocks)))
    kind, check, _ = first_failure(Add("A", ABC), Spill("A"))
    assert (kind, check.failed) == ("BlockSpilled", ("A",))
    assert BYTES.format("A") in check.broken


def test_skipped_scatter_is_found(monkeypatch):
    monkeypatch.setattr(kernels, "scatter_blocks", lambda cache, blocks, values: None)
    kind, check, _ = first_failure(Add("A", ABC), Spill("A"), Reload("A"))
    assert (kind, check.failed) == ("BlockReloaded", ("A",))
    assert BYTES.format("A") in check.broken


@pytest.mark.parametrize("left_by", [BlockSpilled, BlockFreed])
def test_slots_left_unpoisoned_are_named(monkeypatch, left_by):
    apply = KVCache.apply

    def leave(self, event, cached):
        k = self.k.clone()
        apply(self, event, cached)
        if isinstance(event, left_by):
            self.claim([event.block])
            self.k[:, event.block] = k[:, event.block]

    monkeypatch.setattr(KVCache, "apply", leave)
    kind, check, state = first_failure(Add("A", ABC), Spill("A") if left_by is BlockSpilled else Free("A"))
    assert kind == left_by.__name__
    assert check.broken == (f"poison: device block {state.free_blocks[0]} holds a number in an unowned slot",)


def test_host_slots_left_behind_by_a_reload_are_named(monkeypatch):
    apply = KVCache.apply

    def leave(self, event, cached):
        host_v = self.host_v.clone()
        apply(self, event, cached)
        if event.kind == "BlockReloaded":
            self.transfers.wait_for_host()
            self.host_v[:] = host_v

    monkeypatch.setattr(KVCache, "apply", leave)
    kind, check, _ = first_failure(Add("A", ABC), Spill("A"), Reload("A"))
    assert kind == "BlockReloaded"
    assert check.broken == ("poison: host block 0 holds a number in an unowned slot",)


# --- the log that judges ---


def test_log_shared_by_two_sequences_is_found(monkeypatch):
    apply = KVLog.apply

    def share(self, event):
        apply(self, event)
        if isinstance(event, BlockShared):
            child, parent = self.sequences[event.seq_id], self.sequences[event.parent]
            if len(child.x) == len(parent.x):
                self.sequences[event.seq_id] = parent

    monkeypatch.setattr(KVLog, "apply", share)
    kind, check, _ = first_failure(*FORK_AND_WRITE)
    assert (kind, check.failed) == ("TokenWritten", ("A",))
    assert check.broken == (BYTES.format("A"),)


def test_log_shared_by_two_runs_is_found(monkeypatch):
    logs, begin = {}, KVLog.__init__

    def shared(self, *given):
        begin(self, *given)
        self.sequences = logs

    monkeypatch.setattr(KVLog, "__init__", shared)
    one, other = Played(Add("A", ABC), seed=1), Played(seed=2)
    assert one.last.ok
    other.play(Add("A", ABC))
    one.play(Fork("A", "B"))
    assert BYTES.format("A") in one.last.broken


def test_log_that_is_not_shortened_is_found(monkeypatch):
    apply = KVLog.apply

    def keep(self, event):
        if not isinstance(event, BlockReleased | BlockFreed):
            apply(self, event)

    monkeypatch.setattr(KVLog, "apply", keep)
    kind, check, _ = first_failure(Add("A", ABC), Free("A"))
    assert (kind, check.failed) == ("BlockFreed", ("A",))
