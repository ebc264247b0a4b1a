"""Probes answer from the tensors of a moment: what the kernels report there, and why they cannot where they cannot."""

import math
from dataclasses import replace

import pytest
import torch

import kernels
from pagedviz import probe
from pagedviz.engine.blocks import hashing
from pagedviz.engine.log.snapshot import Snapshot
from pagedviz.probe import Probe
from pagedviz.runtime.probes.attention import flash_and_paged, lens
from pagedviz.runtime.probes.attention.newest import newest
from pagedviz.runtime.probes.what_if import block_sizes
from pagedviz.runtime.running.runner import Runner
from pagedviz.scenario.operations import Add, Append, Fork, Free, Spill
from tests.runtime.runner.runner_cases import TINY, Played, ask, same_bits

pytestmark = pytest.mark.slow

CACHE = replace(TINY, num_blocks=16)
WORDS = tuple("abcdefghijk")
OPS = (Add("A", WORDS), Add("B", tuple("xy")), Append("A", ("z",)), Spill("B"))


@pytest.fixture(scope="module")
def run():
    """A runner and how many happenings it has seen: A holds 12 tokens in 6 blocks, B is on the host."""
    runner = Runner(CACHE, 0)
    return runner, sum(1 for op in OPS for _ in runner.perform(op))


def test_newest_is_the_moments_own_query_and_its_keys_though_the_log_has_gone_on(run):
    runner, _ = run
    written = 8  # A arrived, took six blocks, and wrote its prompt
    at = newest(runner.recording.at(written), "A", 1, 1)
    logged = runner.log.sequences["A"]
    assert at.seq_len == 11
    assert (at.head, at.kv_head) == (1, 0)
    assert same_bits([at.q], [logged.q[1][10]])
    assert same_bits([at.k, at.v], [torch.stack(logged.k[1][:11]), torch.stack(logged.v[1][:11])])
    assert tuple(at.block_table.tolist()) == runner.recording.at(written).snapshot.block_tables["A"]


ASKED = (
    probe.FlashAndPaged("A", 0, 0, 4),
    probe.LazyRescale("A", 0, 0, 4, 8),
)


@pytest.mark.parametrize("asked", [*ASKED, probe.Lens("A", 0, 0, 1)], ids=lambda asked: type(asked).__name__)
@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"seq_id": "Z"}, "There is no sequence Z at this step; there is A, B."),
        ({"seq_id": "B"}, "B is not on the device at this step, and a kernel runs over resident sequences only."),
        ({"layer": 2}, "layer is 2; here it may be 0 to 1."),
        ({"layer": True}, "layer is True; here it may be 0 to 1."),
        ({"head": -1}, "head is -1; here it may be 0 to 1."),
        ({"head": "0"}, "head is '0'; here it may be 0 to 1."),
    ],
)
def test_what_is_not_there_is_refused_in_a_sentence(run, asked, wrong, sentence):
    runner, last = run
    assert ask(runner, replace(asked, **wrong), last) == {"refused": sentence}


def test_sequence_without_a_token_is_refused(run):
    runner, _ = run
    asked = probe.LazyRescale("A", 0, 0, 4, 8)
    assert ask(runner, asked, 1) == {"refused": "A has no token yet at this step, so no kernel runs over it."}
    assert ask(runner, asked, 0) == {"refused": "There is no sequence A at this step; there is none at all."}


def test_lens_shows_up_to_eight_splits_of_up_to_64_blocks(run, monkeypatch):
    runner, last = run
    for num_splits in (0, 9):
        refused = ask(runner, probe.Lens("A", 0, 0, num_splits), last)
        assert refused == {"refused": f"num_splits is {num_splits}; here it may be 1 to 8."}
    assert len(ask(runner, probe.Lens("A", 0, 0, 8), last)["splits"]) == 8
    assert lens.MAX_SHOWN_BLOCKS == 64
    monkeypatch.setattr(lens, "MAX_SHOWN_BLOCKS", 6)
    assert "refused" not in ask(runner, probe.Lens("A", 0, 0, 1), last)
    monkeypatch.setattr(lens, "MAX_SHOWN_BLOCKS", 5)
    refused = ask(runner, probe.Lens("A", 0, 0, 1), last)
    assert refused == {"refused": "A has 6 blocks; the lens shows sequences of up to 5."}


@pytest.mark.parametrize(
    "asked",
    [
        *ASKED,
        probe.BlockSizes((1, 4), ("A", "B")),
        probe.Bandwidth(),
        probe.Radix(4),
        probe.Orders(("A", "B"), 1),
        probe.UnchainedHit("A", "B", 1),
        probe.SwapOrRecompute((1, 4), ("swap",)),
        probe.PreemptionCost(),
    ],
)
def test_every_probe_survives_json_and_can_be_a_key(asked):
    again = Probe.from_json(asked.to_json())
    assert again == asked
    assert hash(again) == hash(asked)


def test_same_tile_is_the_same_bits_and_another_tile_the_same_number(run):
    runner, last = run
    same = ask(runner, probe.FlashAndPaged("A", 1, 1, 2), last)
    assert (same["turns_that_differ"], same["numbers_that_differ"], same["difference"]) == (0, 0, 0.0)
    assert [(t["m"], t["l"]) for t in same["paged"]] == [(t["m"], t["l"]) for t in same["flash"]]
    assert [t["place"] for t in same["paged"]] == list(runner.recording.at(last).snapshot.block_tables["A"])
    assert [t["place"] for t in same["flash"]] == list(range(6))
    other = ask(runner, probe.FlashAndPaged("A", 1, 1, 5), last)
    assert len(other["flash"]) == 3
    assert other["turns_that_differ"] is None
    assert other["flash"][-1]["m"] == other["paged"][-1]["m"]
    assert other["flash"][-1]["l"] == pytest.approx(other["paged"][-1]["l"], rel=1e-6)
    assert same["ok"]
    assert other["ok"]


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: type(asked).__name__)
def test_number_that_is_not_finite_is_never_within_the_tolerance(asked):
    runner = Runner(CACHE, 0)
    last = sum(1 for _ in runner.perform(OPS[0]))
    moment = runner.recording.at(last)
    moment.kv.v[0, moment.snapshot.block_tables["A"][1]] = math.nan
    assert ask(runner, asked, last) == {"refused": probe.NOT_FINITE}


def test_nan_that_only_the_loop_over_tiles_meets_is_not_within_the_tolerance(run, monkeypatch):
    runner, last = run
    real = flash_and_paged._side_by_side
    monkeypatch.setattr(flash_and_paged, "_side_by_side", lambda cache, at, tile: real(cache, at, tile) * math.nan)
    assert ask(runner, probe.FlashAndPaged("A", 0, 0, 4), last) == {"refused": probe.NOT_FINITE}


def test_lazy_rescales_and_the_plain_ones_are_counted_over_the_same_scores(run):
    runner, last = run
    plain = ask(runner, probe.LazyRescale("A", 0, 1, 8, 0), last)
    lazy = ask(runner, probe.LazyRescale("A", 0, 1, 8, 8), last)
    assert plain["m"] == plain["plain_m"] == lazy["plain_m"]
    grown = sum(now > before for before, now in zip(plain["m"], plain["m"][1:], strict=False))
    assert (plain["done"], plain["skipped"]) == (grown, 0)
    assert lazy["done"] + lazy["skipped"] == grown
    assert lazy["done"] == sum(now > before for before, now in zip(lazy["m"], lazy["m"][1:], strict=False))
    assert all(0 <= true - used <= 8 for true, used in zip(lazy["plain_m"], lazy["m"], strict=True))
    assert plain["ok"]
    assert lazy["ok"]


def test_other_block_sizes_waste_name_copy_and_hit_what_can_be_counted_by_hand():
    runner = Runner(CACHE, 0)
    ops = (Add("A", tuple("abcdefg")), Add("C", (*"abcdef", "x", "y")), Fork("A", "D"), Append("D", ("z",)))
    last = sum(1 for op in ops for _ in runner.perform(op))
    rows = ask(runner, probe.BlockSizes((1, 2, 4, 8), ("A", "C")), last)["rows"]
    counted = [
        [row[name] for name in ("block_size", "num_blocks", "wasted", "entries", "copies", "hit")] for row in rows
    ]
    # A has 7 tokens, C 8, D 8: A's 7th is shared where blocks hold one, else copied with its block.
    assert counted == [[1, 32, 0, 23, 0, 6], [2, 16, 1, 12, 1, 6], [4, 8, 1, 6, 1, 4], [8, 4, 1, 3, 1, 0]]
    slot_bytes = CACHE.bytes_per_block // CACHE.block_size
    assert [row["bytes_copied"] for row in rows] == [0, 2 * slot_bytes, 4 * slot_bytes, 8 * slot_bytes]
    assert all(0 < row["max_error"] <= 1e-5 for row in rows)


def test_other_block_sizes_are_counted_at_the_end_of_the_operation_and_say_which():
    runner = Runner(CACHE, 0)
    ends = [sum(1 for _ in runner.perform(op)) for op in (Add("A", tuple("abcde")), Add("C", tuple("abc")), Free("C"))]
    added, freed = ends[0] + ends[1], sum(ends)
    asked = probe.BlockSizes((1, 8), ("A", "C"))
    whole = ask(runner, asked, added)
    assert whole["after"] == "add C “a b c”"
    assert [row["entries"] for row in whole["rows"]] == [8, 2]
    assert [ask(runner, asked, step) == whole for step in range(ends[0], added)] == [False] + [True] * (ends[1] - 1)
    # C is there when the first of its blocks has gone, and no more when the operation is over.
    assert ask(runner, asked, added + 1) == {"refused": "There is no sequence C after “free C”."}
    assert ask(runner, probe.BlockSizes((1,), ("A", "A")), freed)["rows"][0]["entries"] == 5


@pytest.mark.parametrize(("profile", "num_blocks"), [("vllm-v0", 7), ("vllm-v1", 8)])
def test_pool_cut_anew_has_the_slots_of_before_and_a_null_block_of_its_own(profile, num_blocks):
    cache = replace(CACHE, profile=profile, num_blocks=num_blocks, block_size=4, host_blocks=3)
    cut = block_sizes.cut(cache, 2)
    assert (cut.block_size, cut.num_blocks, cut.host_blocks) == (2, 14 + num_blocks - 7, 6)


def test_turn_differs_if_either_of_its_numbers_does():
    one, other = (torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 2.0, 3.5]))
    zeros = torch.tensor([0.0, 0.0, 0.0])
    assert flash_and_paged._differing((one, zeros), (other, zeros)) == 1
    assert flash_and_paged._differing((zeros, one), (-zeros, one)) == 3


def test_block_size_that_the_run_does_not_fit_is_refused():
    runner = Runner(replace(CACHE, num_blocks=4), 0)
    ops = (Add("A", tuple("abc")), Add("B", tuple("xyz")))
    last = sum(1 for op in ops for _ in runner.perform(op))
    found = ask(runner, probe.BlockSizes((8,), ("A", "B")), last)
    assert found == {"refused": "With blocks of 8, the pool is too small for “add B “x y z””."}
    assert ask(runner, probe.BlockSizes((0,), ("A", "B")), last) == {
        "refused": "block_size is 0; here it may be 1 to 256."
    }
    assert ask(runner, probe.BlockSizes((1,), ("A", "Z")), last) == {
        "refused": "There is no sequence Z after “add B “x y z””."
    }


# --- a hit without the chain ---

UNCHAINED = probe.UnchainedHit("D", "A", 1)
BEHIND_ANOTHER_PREFIX = (Add("A", tuple("abcde")), Add("X", tuple("xyz")), Add("D", tuple("xycdefg")))


def unchained(asked, *ops, **cache):
    runner = Runner(replace(CACHE, **cache), 0)
    last = sum(1 for op in ops for _ in runner.perform(op))
    return runner, last, ask(runner, asked, last)


def test_block_behind_another_prefix_is_right_in_the_first_layer_only():
    runner, last, found = unchained(UNCHAINED, *BEHIND_ANOTHER_PREFIX)
    first, second = found["layers"]
    assert (first["k_error"], first["v_error"]) == (0.0, 0.0)
    assert 0 < first["out_error"] <= found["tolerance"]
    for name, what in (("k_error", "k"), ("v_error", "v")):
        rows = [torch.stack(getattr(runner.log.sequences[seq_id], what)[1][2:4]) for seq_id in "DA"]
        assert second[name] == float((rows[0] - rows[1]).abs().max()) > 0.1
    assert second["out_error"] == found["max_error"] > 0.01
    assert (found["equal_layers"], found["first_behind"], found["ok"]) == (1, 4, False)
    state = runner.recording.at(last).snapshot
    assert (found["block"], found["own_block"]) == (state.block_tables["A"][1], state.block_tables["D"][1])


@pytest.mark.parametrize("profile", ["vllm-v0", pytest.param("vllm-v1", marks=pytest.mark.gpu)])
def test_unchained_hit_is_what_a_cache_with_a_hash_of_the_tokens_alone_computes(monkeypatch, profile):
    """With three layers, so that what the wrong block does to the tokens behind it is cached and attended to."""
    cache = {"num_layers": 3, "profile": profile, "prefix_caching": True}
    right, _, found = unchained(UNCHAINED, *BEHIND_ANOTHER_PREFIX, **cache)
    real = hashing.block_hash
    monkeypatch.setattr(hashing, "block_hash", lambda parent, tokens, salt: real(b"", tokens, salt))
    monkeypatch.setattr(hashing, "same_content", lambda one, other: True)
    wrong = Played(*BEHIND_ANOTHER_PREFIX, cache=replace(CACHE, **cache))
    assert wrong.state.block_tables["D"][1] == wrong.state.block_tables["A"][1]
    given, own = wrong.runner.log.sequences["D"], right.log.sequences["D"]
    for layer, row in enumerate(found["layers"]):
        outs = [
            kernels.dense_attention(torch.stack(logged.q[layer][4:]), *logged.stacked_kv(layer))
            for logged in (given, own)
        ]
        assert row["out_error"] == pytest.approx(float((outs[0] - outs[1]).abs().max()), abs=1e-5)
        assert row["k_error"] == float((given.stacked_kv(layer)[0] - own.stacked_kv(layer)[0])[2:4].abs().max())
    assert found["equal_layers"] == 1
    assert [row["out_error"] > 0.01 for row in found["layers"]] == [False, True, True]


def test_unchained_hit_leaves_the_moments_cache_as_it_was():
    runner, last, _ = unchained(UNCHAINED, *BEHIND_ANOTHER_PREFIX, num_layers=3)
    moment = runner.recording.at(last)
    logged = zip(*(moment.log["D"].stacked_kv(layer) for layer in range(3)), strict=True)
    assert same_bits(moment.kv.read(moment.snapshot, "D"), [torch.stack(rows) for rows in logged])


NOT_BEHIND = "logical_block is {}; it must be full in D and in A, and D must go on behind it."


@pytest.mark.parametrize(
    ("d", "logical_block", "sentence"),
    [
        ("xycde", 0, "Logical block 0 of D and that of A hold different tokens."),
        ("xycdef", 2, NOT_BEHIND.format(2)),  # A's third block has one token
        ("xycd", 1, NOT_BEHIND.format(1)),  # all but the last token may hit
        ("xycde", -1, NOT_BEHIND.format(-1)),
        ("xycde", True, NOT_BEHIND.format(True)),
        ("xycde", "1", NOT_BEHIND.format("'1'")),
        ("xydce", 1, "Logical block 1 of D and that of A hold different tokens."),
        ("abcde", 1, "D and A begin with the same tokens up to there: such a hit is right."),
    ],
)
def test_hit_that_would_not_be_wrong_or_not_be_one_is_refused(d, logical_block, sentence):
    *_, found = unchained(probe.UnchainedHit("D", "A", logical_block), Add("A", tuple("abcde")), Add("D", tuple(d)))
    assert found == {"refused": sentence}


def test_unchained_hit_of_a_sequence_that_is_not_on_the_device_is_refused():
    *_, found = unchained(UNCHAINED, *BEHIND_ANOTHER_PREFIX, Spill("A"))
    assert found["refused"].startswith("A is not on the device")
    *_, found = unchained(replace(UNCHAINED, other="Z"), *BEHIND_ANOTHER_PREFIX)
    assert found["refused"] == "There is no sequence Z at this step; there is A, X, D."


def state(size: int, **tokens: str) -> Snapshot:
    tables, first = {}, 0
    for seq_id, text in tokens.items():
        count = -(-len(text) // size)
        tables[seq_id] = tuple(range(first, first + count))
        first += count
    return Snapshot(
        block_size=size,
        num_blocks=first,
        host_blocks=0,
        null_block=None,
        block_tables=tables,
        host_tables={seq_id: (None,) * len(row) for seq_id, row in tables.items()},
        tokens={seq_id: tuple(text) for seq_id, text in tokens.items()},
        last_scheduled=dict.fromkeys(tokens, 0),
        ref_counts=dict.fromkeys(range(first), 1),
        host_ref_counts={},
        pinned=(),
        free_blocks=(),
        host_free_blocks=(),
    )


@pytest.mark.parametrize(
    ("one", "other", "hit"),
    [
        ("abcdef", "abcdxx", 4),
        ("abcdef", "abcdef", 6),
        ("abcde", "abcde", 4),  # the fifth is in no full block
        ("abcdef", "xbcdef", 0),  # what follows a difference is another context
        ("ab", "abcdef", 2),
    ],
)
def test_only_leading_full_blocks_with_equal_tokens_could_be_hit(one, other, hit):
    assert block_sizes.hit(state(2, A=one, C=other), "A", "C") == hit
