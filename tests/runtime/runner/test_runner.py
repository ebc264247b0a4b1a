"""The whole line on the real kernels: every state is computed, compared with dense attention, and judged."""

import math
from dataclasses import replace

import pytest
import torch

import kernels
from pagedviz.engine.log.invariants import INVARIANTS
from pagedviz.model.vocabulary import VOCABULARY
from pagedviz.run.play import planner
from pagedviz.run_view import CLOSE
from pagedviz.runtime.checking.tolerance import MAX_SHOWN_BLOCKS
from pagedviz.runtime.computing import decode_graph
from pagedviz.runtime.running.runner import Runner
from pagedviz.scenario.operations import Add, Append, EngineSteps, Fork, Free, Generate, Reload, Spill, Submit
from pagedviz.scenario.scenario import parse
from pagedviz.scenario.settings import CacheConfig
from tests.engine.engine_cases import EXAMPLE
from tests.model.model_cases import dense
from tests.runtime.runner.runner_cases import TINY, Played, on_attention, one_by_one, same_bits

pytestmark = pytest.mark.slow

ABC = ("a", "b", "c")


def test_example_run_is_good_at_every_step():
    scenario = parse(EXAMPLE)
    played = Played(*scenario.ops, cache=scenario.cache, seed=scenario.seed)
    assert len(played.steps) == 19
    assert played.start.ok
    assert all(check.ok and check.max_error < 1e-5 and check.failed == () for check in played.checks)
    assert played.state.block_tables == {"A": (1, 9, 5)}


@pytest.mark.parametrize(
    "cache",
    [
        replace(TINY, block_size=1, num_layers=1, num_heads=1, head_dim=2),
        replace(TINY, block_size=3, num_heads=4, num_kv_heads=4),
        replace(TINY, block_size=5, num_heads=6, num_kv_heads=2, head_dim=6, num_layers=3),
        replace(TINY, profile="vllm-v1", fork=True),
    ],
    ids=["one token a block", "a KV head for each head", "odd sizes", "v1"],
)
def test_any_shape_is_good_at_every_step(cache):
    ops = Add("A", ABC), Fork("A", "B"), Append("A", ("d",)), Generate("B", 2), Spill("A"), Reload("A"), Free("B")
    played = Played(*ops, cache=cache)
    assert [check for check in played.checks if not check.ok] == []
    assert not any(happening.refused for happening, _ in played.steps)


def test_every_resident_sequence_is_compared_at_every_event():
    played = Played(Add("A", ABC), Add("B", ABC), Spill("A"), Reload("A"), Free("A"))
    compared = [(happening.event.kind, check.compared) for happening, check in played.steps]
    assert compared[:4] == [
        ("SequenceAdded", 0),
        ("BlockAllocated", 0),
        ("BlockAllocated", 0),
        ("TokensWritten", 1),
    ]
    assert compared[4:8] == [("SequenceAdded", 1)] + [("BlockAllocated", 1)] * 2 + [("TokensWritten", 2)]
    # A is not resident from its first spilled block to its last reloaded one.
    assert compared[8:12] == [("BlockSpilled", 1), ("BlockSpilled", 1), ("BlockReloaded", 1), ("BlockReloaded", 2)]
    assert compared[12:] == [("BlockFreed", 2), ("BlockFreed", 1), ("SequenceFreed", 1)]


def test_check_says_what_computed_it():
    check = Played(Add("A", ABC)).last
    assert (check.backend, check.tolerance, check.num_layers) == (kernels.backend_name(), 1e-5, 2)
    assert check.num_invariants == len(INVARIANTS) + 2  # the bytes, and the poison
    assert check.milliseconds > 0


def test_refused_operation_is_checked_and_changes_no_bit():
    played = Played(Add("A", ABC))
    k, v = played.runner.kv.k.clone(), played.runner.kv.v.clone()
    played.play(Append("A", ("x",) * 40))
    assert played.steps[-1][0].refused["error"] == "NeverFits"
    assert played.last.ok
    assert same_bits((k, v), (played.runner.kv.k, played.runner.kv.v))


# --- what is in the cache ---


def test_slots_that_nobody_owns_hold_nan_in_every_layer():
    played = Played(Add("A", ABC), Add("B", ABC), Spill("A"), Free("B"))
    kv = played.runner.kv
    assert all(memory.isnan().all() for memory in (kv.k, kv.v))
    host = played.state.host_tables["A"]
    assert kv.host_k[:, host[0]].isfinite().all()
    assert kv.host_k[:, host[1], 0].isfinite().all()
    assert kv.host_k[:, host[1], 1].isnan().all()
    assert kv.host_k.isfinite().sum() == kv.host_v.isfinite().sum() == 2 * 3 * 4  # layers * tokens * head_dim


def test_spill_and_reload_bring_back_the_same_bits_in_other_blocks():
    played = Played(Add("A", ABC))
    before, row = played.kv("A"), played.state.block_tables["A"]
    played.play(Spill("A"), Add("B", ("x",)), Reload("A"))
    assert played.state.block_tables["A"] != row
    assert same_bits(played.kv("A"), before)


def test_copy_on_write_copies_the_bits_and_then_parts():
    played = Played(Add("A", ABC), Fork("A", "B"))
    before = played.kv("A")
    played.play(Append("B", ("x",)))
    assert same_bits(played.kv("A"), before)
    assert same_bits([part[:, :3] for part in played.kv("B")], before)
    played.play(Append("A", ("y",)))
    assert not same_bits(played.kv("A"), played.kv("B"))
    assert all(check.ok for check in played.checks)


@pytest.mark.parametrize("more", [("x",), ("x", "y")], ids=["decode", "prefill"])
def test_v1_pads_tables_with_the_null_block_whose_slots_stay_nan(monkeypatch, more):
    tables = watched_tables(monkeypatch)
    cache = replace(TINY, profile="vllm-v1", scatter=False)
    played = Played(Add("A", ABC), Add("B", more), cache=cache)
    assert tables[-1] == [[1, 2], [3, 0]]
    assert played.runner.kv.k[:, 0].isnan().all()
    assert played.runner.kv.v[:, 0].isnan().all()
    assert all(check.ok for check in played.checks)


@pytest.mark.parametrize("more", [("x",), ("x", "y")], ids=["decode", "prefill"])
def test_v0_pads_tables_with_minus_one(monkeypatch, more):
    tables = watched_tables(monkeypatch)
    Played(Add("A", ABC), Add("B", more), cache=replace(TINY, scatter=False))
    assert tables[-1] == [[0, 1], [2, -1]]


def watched_tables(monkeypatch):
    """The block tables of every launch of attention from here on."""
    tables = []

    def watched(attend, q, k_cache, v_cache, block_tables, seq_lens):
        tables.append(block_tables.tolist())
        return attend(q, k_cache, v_cache, block_tables, seq_lens)

    on_attention(monkeypatch, watched)
    return tables


# --- a prompt is one launch ---


def launches(monkeypatch):
    """The name of every kernel of attention that is launched from here on, with its number of queries."""
    names = []

    def watch(name):
        real = getattr(kernels, name)

        def watched(q, *arguments, **options):
            names.append((name, len(q)))
            return real(q, *arguments, **options)

        monkeypatch.setattr(kernels, name, watched)

    monkeypatch.setattr(decode_graph, "MOST_GRAPHS", 0)
    watch("paged_decode")
    watch("paged_prefill")
    return names


def test_tokens_given_together_are_one_launch_a_layer_and_a_single_one_is_a_decode(monkeypatch):
    names = launches(monkeypatch)
    played = Played(Add("A", ABC))
    assert names == [("paged_prefill", 3)] * TINY.num_layers
    names.clear()
    played.play(Append("A", ("d",)))
    # the block that it took was checked by a launch of its own
    assert names == [("paged_decode", 1)] * TINY.num_layers
    names.clear()
    played.play(Append("A", ("e", "f")))
    assert names == [("paged_decode", 1)] * TINY.num_layers + [("paged_prefill", 2)] * TINY.num_layers
    names.clear()
    played.play(Add("B", ("x", "y")))
    assert names[-TINY.num_layers :] == [("paged_prefill", 3)] * TINY.num_layers  # A's newest token and B's two
    names.clear()
    played.play(Generate("A", 2))
    assert {name for name, _ in names} == {"paged_decode"}


@pytest.mark.parametrize(
    "cache",
    [
        TINY,
        replace(TINY, block_size=1, num_layers=1, num_heads=1, head_dim=2),
        replace(TINY, block_size=3, num_heads=6, num_kv_heads=2, head_dim=6, num_layers=3),
        replace(TINY, block_size=32, num_heads=4, num_kv_heads=4, profile="vllm-v1"),
    ],
    ids=["tiny", "one token a block", "odd sizes", "v1, one block"],
)
def test_prompt_gives_what_the_same_tokens_give_one_by_one(cache):
    tokens = ("Four", "score", 7, "🙂", "Four", "seven", "ago")
    single = Played(Add("Z", ABC[:1]), *one_by_one("A", tokens), cache=cache)
    for ops in ([Add("A", tokens)], [Add("A", tokens[:2]), Append("A", tokens[2:6]), Append("A", tokens[6:])]):
        together = Played(Add("Z", ABC[:1]), *ops, cache=cache)
        assert all(check.ok for check in together.checks)
        for mine, theirs in zip(together.logged("A"), single.logged("A"), strict=True):  # q, k, v of each layer; x
            torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-5)
        for mine, theirs in zip(together.kv("A"), single.kv("A"), strict=True):
            torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-5)


def test_write_changes_the_slots_of_its_tokens_and_no_other_bit(monkeypatch):
    mappings, store = [], kernels.store_kv

    def watched(k, v, k_cache, v_cache, slot_mapping):
        mappings.append(slot_mapping.tolist())
        store(k, v, k_cache, v_cache, slot_mapping)

    monkeypatch.setattr(kernels, "store_kv", watched)
    played = Played(Add("A", ABC), Add("B", ("x",)))
    kv = played.runner.kv
    before = [cache.clone() for cache in (kv.k, kv.v)]
    mappings.clear()
    played.play(Append("A", ("d", "e", "f")))
    slots = list(played.steps[-1][0].event.slots)
    assert mappings == [[*slots, -1]] * TINY.num_layers  # B asks and writes nothing
    for cache, was in zip((kv.k, kv.v), before, strict=True):
        now, was = cache.clone().flatten(1, 2), was.flatten(1, 2)
        assert now[:, slots].isfinite().all()
        now[:, slots] = was[:, slots]
        assert same_bits((now,), (was,))
    assert played.last.ok


# --- the model ---


GQA = CacheConfig(num_blocks=12, block_size=3, num_heads=4, num_kv_heads=2, head_dim=6, scatter=True)


def test_cache_holds_the_k_and_v_of_a_model_without_a_cache():
    tokens = ("Four", "score", "and", "seven", 7, "🙂", "שלום")
    played = Played(Add("A", tokens), cache=GQA)
    k, v, _ = dense(GQA, 0, tokens)
    torch.testing.assert_close([x.cpu().double() for x in played.kv("A")], [k, v], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("seed", [0, 3])
def test_generated_tokens_are_those_of_a_model_without_a_cache(seed):
    played = Played(Add("A", ABC), Generate("A", 6), cache=GQA, seed=seed)
    expected = list(ABC)
    for _ in range(6):
        expected.append(VOCABULARY[int(dense(GQA, seed, expected)[2][-1].argmax())])
    assert played.state.tokens["A"] == tuple(expected)
    assert all(check.ok for check in played.checks)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.gpu) for seed in (1, 2))])
def test_kernels_say_what_was_planned_and_rounding_moves_scores_less_than_the_plan_allows(seed):
    ops = (Add("A", ABC), Generate("A", 4), Submit("R", ("x", 7), 3), EngineSteps(4))
    played = Played(*ops, cache=GQA, seed=seed)
    plan = planner(GQA, seed)
    planned = [happening.event for op in ops for happening in plan.perform(op)]
    assert [happening.event for happening, _ in played.steps] == planned
    for position in range(len(ABC) + 4):
        moved = played.runner.player._decoder._logits("A", position) - plan._decoder._logits("A", position)
        assert abs(moved).max() < CLOSE / 4


def test_neither_copies_nor_journeys_change_what_is_generated():
    plain = Played(Add("A", ABC), Generate("A", 4))
    moved = Played(Add("Z", ("z",)), Add("A", ABC), Fork("A", "B"), Append("B", ("x",)), Spill("A"), Free("Z"))
    moved.play(Reload("A"), Generate("A", 2), Spill("A"), Reload("A"), Generate("A", 2))
    assert moved.state.tokens["A"] == plain.state.tokens["A"]
    assert same_bits(moved.kv("A"), plain.kv("A"))


def test_company_in_the_batch_changes_no_bit():
    alone = Played(Add("A", ABC), Append("A", ("d", "e")))
    company = Played(Add("B", ("x",) * 5), Add("A", ABC), Add("C", ("y",)), Append("A", ("d", "e")))
    assert same_bits(alone.logged("A"), company.logged("A"))
    assert same_bits(alone.kv("A"), company.kv("A"))


def test_runs_with_the_same_names_do_not_leak_into_each_other():
    ops = (Add("A", ABC), Generate("A", 2), Fork("A", "B"), Append("B", ("x",)))
    alone = [Played(*ops, seed=seed) for seed in (1, 2)]
    both = [Played(seed=seed) for seed in (1, 2)]
    for op in ops:
        for played in both:
            played.play(op)
    for one, other in zip(alone, both, strict=True):
        assert one.state == other.state
        for seq_id in ("A", "B"):
            assert same_bits(one.kv(seq_id), other.kv(seq_id))
            assert same_bits(one.logged(seq_id), other.logged(seq_id))
    assert both[0].state.tokens != both[1].state.tokens
    assert not same_bits(both[0].kv("B"), both[1].kv("B"))


def test_integer_7_and_string_7_are_two_tokens():
    played = Played(Add("A", (7,)), Add("B", ("7",)), Add("C", (7,)))
    assert same_bits(played.kv("A"), played.kv("C"))
    assert not same_bits(played.kv("A"), played.kv("B"))


def test_deeper_k_and_v_depend_on_the_tokens_before():
    played = Played(Add("A", ("a", "x")), Add("B", ("b", "x")))
    (k_of_a, v_of_a), (k_of_b, v_of_b) = played.kv("A"), played.kv("B")
    assert same_bits((k_of_a[0, 1], v_of_a[0, 1]), (k_of_b[0, 1], v_of_b[0, 1]))
    assert not same_bits((k_of_a[1, 1],), (k_of_b[1, 1],))
    assert not same_bits((v_of_a[1, 1],), (v_of_b[1, 1],))


# --- what the check sees ---


def test_nan_that_reaches_the_output_is_a_failed_check_without_a_number():
    played = Played(Add("A", ABC), Add("B", ("x",)))
    played.runner.kv.v[0, played.state.block_tables["A"][0], 0] = math.nan
    played.play(Append("B", ("y",)))
    assert played.last.max_error is None
    assert played.last.failed == ("A",)
    assert not played.last.ok
    assert "bytes: K or V of A through its table differs from its log" in played.last.broken


def test_number_bent_in_the_cache_fails_the_sequence_that_owns_it():
    played = Played(Add("A", ABC), Add("B", ("x",)))
    played.runner.kv.k[1, played.state.block_tables["B"][0], 0] += 0.5
    played.play(Append("A", ("y",)))
    assert played.last.broken == ("bytes: K or V of B through its table differs from its log",)
    assert played.last.failed == ("B",)


def test_last_bit_of_a_spilled_sequence_is_watched():
    played = Played(Add("A", ABC), Spill("A"))
    value = played.runner.kv.host_k[1, played.state.host_tables["A"][0], 0, 0]
    value[0] = torch.nextafter(value[0], torch.tensor(math.inf))
    played.play(Add("B", ("x",)))
    assert played.last.broken == ("bytes: K or V of A through its table differs from its log",)
    assert not played.last.ok


def test_number_in_a_slot_that_nobody_owns_is_named():
    played = Played(Add("A", ABC))
    free, tail = played.state.free_blocks[-1], played.state.block_tables["A"][1]
    played.runner.kv.v[0, free, 1, 0, 2] = 0.0
    played.runner.kv.k[1, tail, 1] = 1.0
    played.runner.kv.host_k[0, 3, 0] = 1.0
    check = played.play(Fork("A", "B")).last
    assert set(check.broken) == {
        f"poison: device block {free} holds a number in an unowned slot",
        f"poison: device block {tail} holds a number in an unowned slot",
        "poison: host block 3 holds a number in an unowned slot",
    }


def test_weights_of_the_newest_token_are_those_of_dense_attention_by_block():
    played = Played(Add("A", (*ABC, "d")), cache=GQA)
    logged = played.runner.log.sequences["A"]
    q, k = logged.q[-1][-1].double(), torch.stack(logged.k[-1]).double()
    softmax = [(k[:, head // 2] @ q[head] / math.sqrt(GQA.head_dim)).softmax(0) for head in range(4)]
    expected = [[float(row[:3].sum()), float(row[3])] for row in softmax]
    assert played.last.weights["A"] == [pytest.approx(row, abs=1e-4) for row in expected]
    assert Played(Free("X")).last.weights == {}


def test_seed_decides_everything():
    assert same_bits(Played(Add("A", ABC), seed=5).kv("A"), Played(Add("A", ABC), seed=5).kv("A"))
    one, other = Runner(TINY, 5).model, Runner(TINY, 6).model
    for layer, other_layer in zip(one.layers, other.layers, strict=True):
        assert not any(torch.equal(layer[name], other_layer[name]) for name in layer)
    assert not torch.equal(one.head, other.head)
    assert not torch.equal(one.embed("a"), other.embed("a"))


def test_largest_seed_is_taken():
    assert Runner(TINY, 2**63 - 1).check_start().ok


def test_a_table_longer_than_the_lens_takes_is_good_too():
    cache = replace(TINY, block_size=1, num_blocks=72, num_layers=1)
    played = Played(Add("A", tuple(range(66))), Append("A", ("x",)), cache=cache)
    assert len(played.state.block_tables["A"]) > MAX_SHOWN_BLOCKS
    assert [check for check in played.checks if not check.ok] == []
    assert played.last.weights == {}
