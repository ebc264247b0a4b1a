"""What the lens answers for one query head: the kernel's turns, dense attention beside, and where in our source."""

import itertools
import json
import math

import pytest
import torch

import kernels
from kernels import launch
from pagedviz import probe
from pagedviz.run.play import PROJECT
from pagedviz.runtime.checking.tolerance import TOLERANCE
from pagedviz.runtime.probes.attention import lens
from pagedviz.runtime.probes.attention.newest import Newest
from tests.kernel_cases import NAN, Shape, make_batch

pytestmark = pytest.mark.slow

IN_A_TURN = ["table", "keys", "scores", "running", "values"]


def ask(batch, *, head=3, num_splits=1, log=None):
    """Ask for the last sequence of a batch; `log` is what its K and V should be, if not what they are."""
    row, seq_len = len(batch.q) - 1, int(batch.seq_lens[-1])
    k, v = log or logged(batch)
    at = Newest(
        head=head,
        kv_head=head // (batch.q.shape[1] // batch.k_cache.shape[2]),
        q=batch.q[row],
        k_cache=batch.k_cache,
        v_cache=batch.v_cache,
        block_table=batch.block_tables[row, : -(-seq_len // batch.k_cache.shape[1])].int(),
        k=k,
        v=v,
    )
    return lens.lens_answer(probe.Lens("A", 1, head, num_splits), at)


def logged(batch):
    return tuple(batch.own(cache, len(batch.q) - 1).float() for cache in (batch.k_cache, batch.v_cache))


@pytest.fixture
def batch():
    return make_batch(Shape(lens=(3, 11)))


def test_the_answer_is_plain_json_with_the_fields_of_the_contract(batch):
    answer = ask(batch)
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer
    asked, found = "seq_id layer head kv_head num_splits block_size seq_len window lanes", "scale splits out dense"
    wanted = [*asked.split(), *found.split(), "max_error", "tolerance", "ok", "backend", "ms", "source"]
    assert list(answer) == wanted
    assert [answer[name] for name in asked.split()] == ["A", 1, 3, 1, 1, 4, 11, None, 16]
    assert answer["backend"] == kernels.backend_name()
    assert answer["ms"] > 0


@pytest.mark.parametrize("num_splits", [1, 2, 5])
@pytest.mark.parametrize("head", [0, 3])
def test_turns_are_the_tables_blocks_in_order_and_lead_to_the_output(batch, head, num_splits):
    answer = ask(batch, head=head, num_splits=num_splits)
    turns = [turn for split in answer["splits"] for turn in split["turns"]]
    assert [turn["block"] for turn in turns] == batch.block_tables[1].tolist()
    assert [turn["logical_block"] for turn in turns] == [0, 1, 2]
    positions = [p for turn in turns for p in turn["positions"]]
    assert [p for p in positions if p is not None] == list(range(11))
    assert all(len(turn["positions"]) == len(turn["scores"]) == 16 for turn in turns)
    masked = [score is None for turn in turns for score in turn["scores"]]
    assert masked == [p is None for p in positions]

    dense, kv_head = answer["dense"], head // 2
    scores = [score for turn in turns for score in turn["scores"] if score is not None]
    assert scores == pytest.approx(dense["scores"], abs=1e-5)
    q, k, v = (x.double() for x in (batch.q[1, head], *(batch.own(c, 1) for c in (batch.k_cache, batch.v_cache))))
    expected = torch.softmax(k[:, kv_head] @ q * 8**-0.5, 0)
    assert dense["weights"] == pytest.approx(expected.tolist(), abs=1e-6)
    assert dense["out"] == pytest.approx((expected @ v[:, kv_head]).tolist(), abs=1e-6)
    assert sum(dense["weights"]) == pytest.approx(1)
    assert dense["m"] == max(dense["scores"])
    assert dense["l"] == pytest.approx(sum(2 ** (score - dense["m"]) for score in dense["scores"]))
    assert answer["out"] == pytest.approx(dense["out"], abs=1e-5)
    assert answer["max_error"] <= TOLERANCE
    assert answer["ok"] is True


def test_shrink_is_what_scales_the_sum_so_far(batch):
    shrinks = []
    for head in range(4):
        turns = ask(batch, head=head)["splits"][0]["turns"]
        assert turns[0]["shrink"] is None
        for before, turn in itertools.pairwise(turns):
            shrinks.append(turn["shrink"])
            assert turn["shrink"] == pytest.approx(2 ** (before["m"] - turn["m"]), rel=1e-5)
            added = sum(2 ** (score - turn["m"]) for score in turn["scores"] if score is not None)
            assert turn["l"] == pytest.approx(before["l"] * turn["shrink"] + added, rel=1e-5)
    assert min(shrinks) < 1.0


def test_splits_are_joined_by_their_lse(batch):
    answer = ask(batch, num_splits=2)
    shares = [2 ** split["lse"] for split in answer["splits"]]
    for dim, out in enumerate(answer["out"]):
        joined = sum(share * split["out"][dim] for share, split in zip(shares, answer["splits"], strict=True))
        assert out == pytest.approx(joined / sum(shares), abs=1e-5)
    for split in answer["splits"]:
        last = split["turns"][-1]
        assert split["lse"] == pytest.approx(last["m"] + math.log2(last["l"]), abs=1e-5)
        assert split["out"] == pytest.approx([x / last["l"] for x in last["acc"]], abs=1e-5)


def test_a_split_without_a_block_has_no_turn_and_no_weight(batch):
    empty = ask(batch, num_splits=5)["splits"][3:]
    assert empty == [{"split": split, "turns": [], "lse": None, "out": [0.0] * 8} for split in (3, 4)]


def test_a_wrong_value_in_the_cache_is_seen_and_a_nan_is_null(batch):
    log = logged(batch)
    batch.v_cache[batch.block_tables[1, 0], 0, 1, 0] += 1.0
    answer = ask(batch, log=log)
    assert answer["ok"] is False
    assert answer["max_error"] > TOLERANCE
    batch.v_cache[batch.block_tables[1, 0], 0, 1, 0] = NAN
    answer = ask(batch, log=log)
    assert (answer["ok"], answer["max_error"], answer["out"][0]) == (False, None, None)
    assert answer["dense"]["out"][0] is not None


@pytest.mark.parametrize("statements", [lens.TRITON, lens.TWIN], ids=["triton", "twin"])
@pytest.mark.parametrize("joined", [False, True])
def test_every_phase_is_found_on_the_line_that_holds_its_statement(statements, joined):
    shown = lens.source_of(statements, joined)
    names = [*IN_A_TURN, "divide", *["join"] * joined]
    assert [phase["name"] for phase in shown["phases"]] == names
    assert set(lens.PHASE_SENTENCES) == set(statements)
    for phase in shown["phases"]:
        excerpt = shown["excerpts"][phase["excerpt"]]
        file, statement = statements[phase["name"]]
        text = (PROJECT / file).read_text().splitlines()
        assert excerpt["file"] == file
        assert excerpt["lines"][phase["line"] - excerpt["first_line"]].strip().startswith(statement)
        assert sum(line.strip().startswith(statement) for line in text) == 1
        assert phase["says"]
    in_turn = [phase["line"] for phase in shown["phases"] if phase["name"] in IN_A_TURN]
    assert in_turn == sorted(set(in_turn))


def test_the_source_is_of_what_computed(batch):
    names = {excerpt["name"] for excerpt in ask(batch, num_splits=2)["source"]["excerpts"]}
    triton = {"attend_tile", "paged_decode_kernel", "combine_splits_kernel"}
    assert names == (triton if launch.USES_TRITON else {"paged_decode_lens"})
