"""A scenario is read, or refused with one sentence that says where, names the value and says what would be right."""

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedviz.engine.policies.limits import Limits, Speculation
from pagedviz.engine.policies.profiles import PROFILES
from pagedviz.scenario import scenario
from pagedviz.scenario.json_values import ScenarioError, tokens_from_text
from pagedviz.scenario.operations import (
    Abort,
    Add,
    Append,
    Draft,
    EndTransfer,
    EngineSteps,
    Fork,
    Free,
    Generate,
    Load,
    Op,
    Reload,
    ResetPrefixCache,
    Spill,
    Store,
    Submit,
    Verify,
)
from pagedviz.scenario.scenario import Scenario, parse
from pagedviz.scenario.settings import CacheConfig
from tests.engine.engine_cases import EXAMPLE

PAPER = Path(__file__).parents[2] / "docs/scenario.md"


def with_cache(**settings):
    return json.dumps({"pagedviz": 1, "cache": settings})


def with_ops(*ops):
    return json.dumps({"pagedviz": 1, "ops": ops})


def refusal(source):
    """The sentence that refuses a scenario: one line, and fit for any screen or file."""
    with pytest.raises(ScenarioError) as raised:
        parse(source)
    sentence = str(raised.value)
    assert "\n" not in sentence
    assert len(sentence) < 400
    sentence.encode()
    return sentence


# --- what is read ---


def test_example_of_the_issue_is_read():
    assert parse(EXAMPLE) == Scenario(
        seed=0,
        cache=CacheConfig(scatter=True),
        ops=(
            Add("A", ("Four", "score", "and", "seven", "years", "ago", "our")),
            Append("A", ("fathers",)),
            Fork("A", "B"),
            Append("B", (7, 7)),
            Generate("A", 2),
            Spill("A"),
            Reload("A"),
            Free("B"),
        ),
    )


def test_absent_keys_take_the_values_of_the_example_but_for_scatter():
    assert parse('{"pagedviz": 1}') == Scenario()
    assert {**CacheConfig().to_json(), "scatter": True} == {**json.loads(EXAMPLE)["cache"], "fork": False}


def test_absent_count_generates_one_token():
    assert parse(with_ops({"generate": "A"})).ops == (Generate("A", 1),)


def test_string_and_integer_tokens_stay_what_they_are():
    assert parse(with_ops({"add": "A", "tokens": ["7", 7, " ", "<b>", "🙂", "שלום"]})).ops == (
        Add("A", ("7", 7, " ", "<b>", "🙂", "שלום")),
    )


@pytest.mark.parametrize("beside", ['"fork": true', '"cache": {"fork": true}'])
def test_fork_may_stand_in_the_cache_or_beside_it(beside):
    assert parse(f'{{"pagedviz": 1, {beside}}}').cache.fork


def test_bytes_and_a_byte_order_mark_are_read():
    assert parse(EXAMPLE.encode("utf-8-sig")) == parse(EXAMPLE)


def test_block_size_may_be_1():
    assert parse(with_cache(block_size=1)).cache.block_size == 1


def test_v1_needs_a_block_beside_the_null_block():
    assert parse(with_cache(profile="vllm-v1", num_blocks=2)).cache.num_blocks == 2
    assert "from 2 to" in refusal(with_cache(profile="vllm-v1", num_blocks=1))


def test_requests_limits_and_policies_survive_being_written_and_read():
    served = Scenario(
        cache=CacheConfig(
            profile="vllm-v1",
            scheduler=Limits(max_num_batched_tokens=8, max_num_seqs=2, watermark=0.25),
            policies=(("order", "by_priority"), ("preemption", "swap")),
        ),
        ops=(
            Submit("A", ("a", 7), 3, priority=-2, salt="s"),
            Submit("B", ("b",), 2, says=("c", "7")),
            EngineSteps(4),
            Abort("B"),
            ResetPrefixCache(),
        ),
    )
    assert parse(served.to_text()) == served
    assert parse(json.dumps(served.to_json())) == served


def test_what_is_usual_is_not_written():
    some = {"scheduler", "policies", "window", "groups", "host_chunks", "speculation"}
    assert some.isdisjoint(json.loads(Scenario().to_text())["cache"])
    request = Submit("A", ("a",), 2)
    assert request.to_json() == {"submit": "A", "tokens": ["a"], "max_tokens": 2}
    assert Draft("A", 3).to_json() == {"draft": "A", "tokens": 3}
    given = parse(with_cache(profile="vllm-v1", policies={"victim": "last_admitted", "order": "by_priority"}))
    assert given.cache.policies == (("order", "by_priority"),)


@pytest.mark.parametrize(
    ("written", "op", "said"),
    [
        ({"draft": "A", "tokens": 3}, Draft("A", 3), "draft 3 for A"),
        ({"draft": "A"}, Draft("A", 1), "draft 1 for A"),
        (
            {"draft": "A", "tokens": 2, "min_confidence": 0.3},
            Draft("A", 2, min_confidence=0.3),
            "draft 2 for A, confidence at least 0.3",
        ),
        ({"draft": "A", "tokens": ["x", 7]}, Draft("A", 2, ("x", 7)), "draft “x 7” for A"),
        ({"draft": "A", "text": "our fathers"}, Draft("A", 2, ("our", "fathers")), "draft “our fathers” for A"),
        ({"verify": "A"}, Verify("A"), "verify A"),
        ({"store": "A"}, Store("A"), "store A"),
        ({"load": "our fathers"}, Load(("our", "fathers")), "load “our fathers”"),
        ({"load": ["a", 7], "salt": "s"}, Load(("a", 7), "s"), "load “a 7” salt s"),
        ({"finish": 1}, EndTransfer(1, "finish"), "finish transfer 1"),
        ({"fail": 2}, EndTransfer(2, "fail"), "fail transfer 2"),
        ({"cancel": 3}, EndTransfer(3, "cancel"), "cancel transfer 3"),
        (
            {"submit": "A", "text": "a", "max_tokens": 2, "samples": 3},
            Submit("A", ("a",), 2, samples=3),
            "submit A “a”, to generate 2, 3 samples",
        ),
        (
            {"submit": "A", "text": "a", "beams": 2, "priority": 1},
            Submit("A", ("a",), 1, priority=1, beams=2),
            "submit A “a”, to generate 1, 2 beams, priority 1",
        ),
        (
            {"submit": "A", "text": "a", "says": "b c", "samples": 1, "beams": 1},
            Submit("A", ("a",), 2, ("b", "c")),
            "submit A “a”, to say “b c”",
        ),
    ],
    ids=str,
)
def test_operation_is_read_said_and_written(written, op, said):
    (got,) = parse(with_ops(written)).ops
    assert (got, str(got)) == (op, said)
    assert parse(with_ops(op.to_json())).ops == (op,)


def test_every_verb_has_an_operation_that_is_written_with_it():
    written = [
        *[Add("A", ("a",)), Append("A", ("a",)), Generate("A", 1), Fork("A", "B"), Spill("A"), Reload("A"), Free("A")],
        *[Submit("A", ("a",), 1), EngineSteps(1), Abort("A"), ResetPrefixCache(), Draft("A", 1), Verify("A")],
        *[Store("A"), Load(("a",)), *(EndTransfer(1, how) for how in ("finish", "fail", "cancel"))],
    ]
    assert [next(iter(op.to_json())) for op in written] == list(Op.kinds)


def test_the_paper_has_a_row_for_every_setting_and_every_operation():
    rows = [line for line in PAPER.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    documented = " ".join(row.split(" | ")[0] for row in rows)
    settings = [field.name for field in fields(CacheConfig)]
    assert [name for name in settings if f"`{name}`" not in documented] == []
    assert [verb for verb in Op.kinds if f'{{"{verb}":' not in documented] == []


def test_windows_groups_tier_and_speculation_survive_being_written_and_read():
    grouped = CacheConfig(profile="vllm-v1", num_layers=4, groups=(None, 8))
    assert grouped.to_json()["groups"] == [None, 8]
    drafting = CacheConfig(prefix_caching=True, host_chunks=3, speculation=Speculation(4, 0.25, 16))
    assert drafting.to_json()["speculation"] == {"num_drafts": 4, "min_confidence": 0.25, "load_limit": 16}
    for cache in (grouped, drafting, CacheConfig(window=8)):
        assert parse(Scenario(cache=cache).to_text()).cache == cache
    assert parse(with_cache(speculation={"num_drafts": 2})).cache.speculation == Speculation(2)
    assert (CacheConfig().windows, CacheConfig(window=8).windows, grouped.windows) == ((None,), (8,), (None, 8))


@pytest.mark.parametrize("profile", [name for name, profile in PROFILES.items() if profile.null_block])
def test_a_block_of_one_of_several_groups_holds_the_layers_of_that_group(profile):
    one = CacheConfig(profile=profile, num_layers=4)
    two = replace(one, groups=(None, 8))
    assert (one.bytes_per_block, two.bytes_per_block) == (2 * 4 * 4 * 8 * 4, 2 * 2 * 4 * 8 * 4)
    most = {"num_blocks": 8192, "block_size": 64, "num_layers": 4, "head_dim": 16, "profile": profile}
    assert "the pools would hold 256 MiB" in refusal(with_cache(**most, host_blocks=1))
    assert parse(with_cache(**most, host_blocks=0, groups=[8, 4])).cache.bytes_per_block == 2**14


def test_host_chunks_count_towards_the_size_of_the_pools():
    most = {"num_blocks": 8191, "block_size": 64, "num_layers": 4, "head_dim": 16, "host_blocks": 0}
    assert parse(with_cache(**most, prefix_caching=True, host_chunks=1)).cache.host_chunks == 1
    assert "the pools would hold 256 MiB" in refusal(with_cache(**most, prefix_caching=True, host_chunks=2))


def test_drafts_loads_samples_and_beams_count_towards_the_limits_of_a_run():
    assert "the run writes 1,027 tokens" in refusal(
        with_ops({"add": "A", "tokens": [1] * 1000}, {"draft": "A", "tokens": 8}, {"load": [1] * 18})
    )
    for several in ("samples", "beams"):
        request = {"submit": "A", "text": "a", "max_tokens": 128, several: 8}
        assert "the run writes 1,025 tokens; it may write at most 1,024" in refusal(with_ops(request))
        assert parse(with_ops({**request, "max_tokens": 127}))
        requests = [{"submit": f"A{i}", "text": "a", "max_tokens": 2, several: 8} for i in range(33)]
        assert "the run makes 264 sequences; it may make at most 256" in refusal(with_ops(*requests))


def test_steps_and_the_tokens_of_requests_are_limited():
    assert "the run takes 1,001 engine steps; it may take at most 1,000" in refusal(
        with_ops({"submit": "A", "text": "a"}, {"step": 1000}, {"step": 1})
    )
    many = {"submit": "A", "text": "a", "max_tokens": 1024}
    assert "the run writes 1,025 tokens; it may write at most 1,024" in refusal(with_ops(many))


# --- what is refused ---


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("", "the file is not JSON, line 1"),
        (EXAMPLE[: len(EXAMPLE) // 2], "the file is not JSON, line 3"),
        ("PK\x03\x04", "the file is not JSON"),
        (b"\x89PNG\r\n\x1a\n\xff", "the file is not text in UTF-8"),
        ("[1]", "not [1]"),
        ("null", "not null"),
        ("{}", '"pagedviz" is missing'),
        ('{"pagedviz": 2}', '"pagedviz" is 2; this program reads version 1'),
        ('{"pagedviz": "1"}', '"pagedviz" is "1"; this program reads version 1'),
        ('{"pagedviz": true}', '"pagedviz" is true; this program reads version 1'),
        ('{"pagedviz": 1, "sede": 3}', 'the scenario has "sede", which is unknown; it may have cache, ops, pagedviz'),
        ('{"pagedviz": 1, "seed": 1.5}', "seed is 1.5; it must be a whole number from 0"),
        ('{"pagedviz": 1, "seed": -1}', "seed is -1"),
        ('{"pagedviz": 1, "seed": true}', "seed is true"),
        ('{"pagedviz": 1, "seed": null}', "seed is null"),
        ('{"pagedviz": 1, "seed": NaN}', "seed is NaN"),
        ('{"pagedviz": 1, "seed": -Infinity}', "seed is -Infinity"),
        ('{"pagedviz": 1, "seed": 1e400}', "seed is Infinity"),
        ('{"pagedviz": 1, "seed": 9223372036854775808}', "seed is 9223372036854775808"),
        (f'{{"pagedviz": 1, "seed": {"9" * 5000}}}', "a number of more than 4,300 digits"),
        ('{"pagedviz": 1, "cache": []}', '"cache" is []; it must be an object'),
        ('{"pagedviz": 1, "ops": {}}', '"ops" is {}; it must be a list'),
        (with_ops(*[{"free": "A"}] * 1001), '"ops" has 1,001 operations; a run has at most 1,000'),
    ],
)
def test_wrong_file_is_refused_with_where_and_what(source, sentence):
    assert sentence in refusal(source)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"block_size": 0}, "cache.block_size is 0; it must be a whole number from 1 to 256"),
        ({"block_size": 10**9}, "cache.block_size is 1000000000; it must be a whole number from 1 to 256"),
        ({"block_size": -4}, "cache.block_size is -4"),
        ({"block_size": 4.0}, "cache.block_size is 4.0"),
        ({"block_size": "4"}, 'cache.block_size is "4"'),
        ({"block_size": True}, "cache.block_size is true"),
        ({"num_blocks": 0}, "cache.num_blocks is 0; it must be a whole number from 1 to 8,192"),
        ({"num_blocks": 10**9}, "cache.num_blocks is 1000000000"),
        ({"host_blocks": -1}, "cache.host_blocks is -1; it must be a whole number from 0"),
        ({"num_layers": 0}, "cache.num_layers is 0"),
        ({"num_heads": 3, "num_kv_heads": 2}, "cache.num_heads is 3 and cache.num_kv_heads is 2"),
        ({"num_heads": 1, "num_kv_heads": 2}, "cache.num_heads is 1 and cache.num_kv_heads is 2"),
        ({"head_dim": 7}, "cache.head_dim is 7; rotary positions turn pairs, so it must be even"),
        ({"profile": "vllm-v2"}, 'cache.profile is "vllm-v2"; it must be one of vllm-v0, vllm-v1'),
        ({"profile": ["vllm-v0"]}, 'cache.profile is ["vllm-v0"]'),
        ({"scatter": 1}, "cache.scatter is 1; it must be true or false"),
        ({"auto_spill": "no"}, 'cache.auto_spill is "no"; it must be true or false'),
        ({"fork": None}, "cache.fork is null; it must be true or false"),
        ({"scheduler": 8}, "cache.scheduler is 8; it must be an object of settings"),
        ({"scheduler": {"budget": 8}}, 'cache.scheduler has "budget", which is unknown; it may have max_num_batched'),
        ({"scheduler": {"max_num_seqs": 0}}, "cache.scheduler.max_num_seqs is 0; it must be a whole number from 1"),
        ({"scheduler": {"max_num_batched_tokens": 2000}}, "max_num_batched_tokens is 2000; it must be a whole number"),
        ({"scheduler": {"watermark": 1}}, "cache.scheduler.watermark is 1; it must be a number from 0 up to"),
        ({"scheduler": {"watermark": "0"}}, 'cache.scheduler.watermark is "0"'),
        ({"policies": "fifo"}, 'cache.policies is "fifo"; it must be an object like {"victim": "least_urgent"}'),
        (
            {"policies": {"evict": "lru"}},
            'cache.policies has "evict", which is unknown; it may have admission, batching',
        ),
        ({"policies": {"victim": "first"}}, 'cache.policies.victim is "first"; it must be one of last_admitted, least'),
        ({"policies": {"victim": [1]}}, "cache.policies.victim is [1]; it must be one of"),
        (
            {"policies": {"publish": "when_scheduled"}},
            "cache.policies.duplicates is collapsed and publish is when_scheduled; a block that the same launch",
        ),
        (
            {"profile": "vllm-v1", "policies": {"duplicates": "last_writer"}},
            "cache.policies.duplicates is last_writer and publish is when_scheduled; a block that the same",
        ),
        ({"blocksize": 4}, 'cache has "blocksize", which is unknown; it may have'),
        ({"window": 0}, "cache.window is 0; it must be null, for all tokens, or a whole number from 1 to 1,024"),
        ({"window": True}, "cache.window is true; it must be null"),
        ({"groups": None}, "cache.groups is null; it must be a list of 2 to 4 windows, null for all tokens"),
        ({"groups": [8]}, "cache.groups is [8]; it must be a list of 2 to 4 windows"),
        ({"groups": [8] * 5}, "cache.groups is [8, 8, 8, 8, 8]; it must be a list of 2 to 4 windows"),
        ({"groups": [8, "none"]}, 'cache.groups[1] is "none"; it must be null, for all tokens, or a whole number'),
        ({"groups": [8, 4], "window": 8}, "cache.groups is [8, 4] and cache.window is 8; each group has a window of"),
        (
            {"groups": [None, 8, 4], "profile": "vllm-v1"},
            "cache.groups is [null, 8, 4] and cache.num_layers is 2; all groups have equally many layers, so "
            "num_layers must be a multiple of 3",
        ),
        (
            {"groups": [None, 8]},
            'cache.groups is [null, 8] and cache.profile is "vllm-v0"; an entry below a window names the null block, '
            "so the profile must be one of vllm-v1, sglang",
        ),
        (
            {"groups": [None, 8], "profile": "vllm-v1", "fork": True},
            "cache.groups is [null, 8] and cache.fork is true; with several groups it must be false",
        ),
        ({"groups": [None, 8], "profile": "sglang", "auto_spill": True}, "and cache.auto_spill is true; with several"),
        (
            {"groups": [None, 8], "profile": "vllm-v1", "policies": {"preemption": "swap"}},
            "and cache.policies.preemption is swap; with several groups it must be recompute",
        ),
        ({"host_chunks": 8193}, "cache.host_chunks is 8193; it must be a whole number from 0 to 8,192"),
        (
            {"host_chunks": 4},
            "cache.host_chunks is 4 and cache.prefix_caching is false; the host tier finds blocks by their hash",
        ),
        (
            {"host_chunks": 4, "prefix_caching": True, "window": 8},
            "cache.host_chunks is 4 and cache.window is 8; the host tier needs one group of layers that see all",
        ),
        (
            {"host_chunks": 4, "prefix_caching": True, "profile": "vllm-v1", "groups": [None, 8]},
            "cache.host_chunks is 4 and cache.groups is [null, 8]; the host tier needs one group",
        ),
        ({"speculation": 3}, "cache.speculation is 3; it must be an object of settings"),
        ({"speculation": {"drafts": 3}}, 'cache.speculation has "drafts", which is unknown; it may have load_limit'),
        ({"speculation": {"num_drafts": 9}}, "cache.speculation.num_drafts is 9; it must be a whole number from 0 to"),
        ({"speculation": {"load_limit": 0}}, "cache.speculation.load_limit is 0; it must be a whole number from 1 to"),
        (
            {"speculation": {"min_confidence": 1.5}},
            "cache.speculation.min_confidence is 1.5; it must be a number from 0 to 1",
        ),
        (
            {"num_blocks": 8192, "block_size": 256, "num_layers": 4, "num_kv_heads": 2, "head_dim": 128},
            "the pools would hold 16,396 MiB of K and V; the limit is 256 MiB",
        ),
    ],
    ids=str,
)
def test_wrong_cache_is_refused_with_field_and_value(settings, sentence):
    assert sentence in refusal(with_cache(**settings))


@pytest.mark.parametrize(
    ("op", "sentence"),
    [
        ("free A", 'ops[1] is "free A"; an operation is an object like'),
        ({}, "ops[1] is {}; an operation has exactly one of add, append, generate, fork, spill, reload, free, submit"),
        ({"evict": "A"}, 'ops[1] is {"evict": "A"}; an operation has exactly one of add'),
        ({"add": "A", "free": "A"}, "ops[1] is add, free; an operation has exactly one of"),
        ({"add": "A"}, 'ops[1] (add A) needs either "text" or "tokens"'),
        ({"add": "A", "text": "a", "tokens": [1]}, 'ops[1] (add A) needs either "text" or "tokens"'),
        ({"add": "A", "text": ""}, 'ops[1].text is ""; it needs at least one word'),
        ({"add": "A", "text": " \n "}, 'ops[1].text is " \\n "; it needs at least one word'),
        ({"add": "A", "text": 7}, "ops[1].text is 7; it must be a string"),
        ({"add": "A", "text": "word " * 10_000}, "ops[1].text has 10,000 tokens; a run writes at most 1,024"),
        (
            {"add": "A", "text": "a " + "x" * 65},
            'ops[1].text[1] is "' + "x" * 56 + "... and has 65 characters; a token has 1 to 64",
        ),
        ({"add": "A", "tokens": []}, "ops[1].tokens is []; it must be a list of at least one string or integer"),
        ({"add": "A", "tokens": "a b"}, 'ops[1].tokens is "a b"; it must be a list'),
        ({"add": "A", "tokens": [1, 2.5]}, "ops[1].tokens[1] is 2.5; a token is a string or an integer"),
        ({"add": "A", "tokens": [False]}, "ops[1].tokens[0] is false; a token is a string or an integer"),
        ({"add": "A", "tokens": [None]}, "ops[1].tokens[0] is null"),
        ({"add": "A", "tokens": [["a"]]}, 'ops[1].tokens[0] is ["a"]'),
        ({"add": "A", "text": "a", "salt": ""}, 'ops[1].salt is ""; a salt has 1 to 16 printable characters'),
        ({"append": "A", "text": "a", "salt": "s"}, 'ops[1] (append) has "salt", which is unknown'),
        ({"submit": "A", "text": "a", "max_tokens": 0}, "ops[1].max_tokens is 0; it must be a whole number from 1"),
        (
            {"submit": "A", "text": "a", "says": []},
            "ops[1].says is []; it must be text or a list of at least one token",
        ),
        (
            {"submit": "A", "text": "a", "says": "b", "max_tokens": 1},
            'has "says" and "max_tokens"; the words are given or',
        ),
        (
            {"submit": "A", "text": "a", "priority": 1.5},
            "ops[1].priority is 1.5; it must be a whole number from -1,000",
        ),
        ({"submit": "A", "max_tokens": 4}, 'ops[1] (submit A) needs either "text" or "tokens"'),
        ({"step": 0}, "ops[1].step is 0; it must be a whole number from 1 to 1,000"),
        ({"step": "1"}, 'ops[1].step is "1"; it must be a whole number'),
        ({"reset_prefix_cache": "A"}, 'ops[1].reset_prefix_cache is "A"; it must be true'),
        ({"abort": 7}, "ops[1].abort is 7; a sequence's name has 1 to 16"),
        ({"submit": "A", "text": "a", "samples": 9}, "ops[1].samples is 9; it must be a whole number from 1 to 8"),
        ({"submit": "A", "text": "a", "beams": 0}, "ops[1].beams is 0; it must be a whole number from 1 to 8"),
        (
            {"submit": "A", "text": "a", "samples": 2, "beams": 3},
            'ops[1] (submit A) has "samples": 2 and "beams": 3; only one of the two may be above 1',
        ),
        (
            {"submit": "A", "text": "a", "says": "b", "beams": 2},
            'ops[1] (submit A) has "says" and "beams"; given words have only one sequence',
        ),
        (
            {"submit": "A", "text": "a", "says": "b", "samples": 2},
            'ops[1] (submit A) has "says" and "samples"; given words have only one sequence',
        ),
        ({"draft": "A", "tokens": 0}, "ops[1].tokens is 0; it must be a whole number from 1 to 8"),
        ({"draft": "A", "tokens": 9}, "ops[1].tokens is 9; it must be a whole number from 1 to 8"),
        ({"draft": "A", "tokens": [1] * 9}, "ops[1] (draft A) has 9 drafts; it may have 8 at most"),
        ({"draft": "A", "tokens": []}, "ops[1].tokens is []; it must be a list of at least one string or integer"),
        ({"draft": "A", "tokens": 1, "text": "a"}, 'ops[1] (draft A) needs either "text" or "tokens"'),
        ({"draft": "A", "min_confidence": -1}, "ops[1].min_confidence is -1; it must be a number from 0 to 1"),
        (
            {"draft": "A", "text": "a", "min_confidence": 0.5},
            'ops[1] (draft A) has drafts and "min_confidence"; only the drafter\'s own have a confidence',
        ),
        ({"verify": ""}, 'ops[1].verify is ""; a sequence\'s name has 1 to 16'),
        ({"store": "A", "salt": "s"}, 'ops[1] (store) has "salt", which is unknown; it may have store'),
        ({"load": 7}, "ops[1].load is 7; it must be text or a list of at least one token"),
        ({"load": ""}, 'ops[1].load is ""; it needs at least one word'),
        ({"load": [None]}, "ops[1].load[0] is null; a token is a string or an integer"),
        ({"finish": 0}, "ops[1].finish is 0; it must be a whole number from 1 to 1,000,000"),
        ({"fail": "1"}, 'ops[1].fail is "1"; it must be a whole number'),
        ({"cancel": 1, "finish": 1}, "ops[1] is finish, cancel; an operation has exactly one of add"),
        ({"add": "A", "tokens": [""]}, 'ops[1].tokens[0] is "" and has 0 characters; a token has 1 to 64'),
        ({"add": "A", "tokens": [2**53]}, "ops[1].tokens[0] is 9007199254740992; an integer token lies between"),
        ({"add": "A", "tokens": ["\ud83d"]}, 'ops[1].tokens[0] is "\\ud83d"; half of a surrogate pair'),
        ({"add": "A", "text": "a \udc00"}, 'ops[1].text[1] is "\\udc00"; half of a surrogate pair'),
        ({"add": "", "text": "a"}, 'ops[1].add is ""; a sequence\'s name has 1 to 16 printable characters'),
        ({"add": "  ", "text": "a"}, 'ops[1].add is "  "'),
        ({"add": 7, "text": "a"}, "ops[1].add is 7"),
        ({"add": "A" * 17, "text": "a"}, 'ops[1].add is "AAAAAAAAAAAAAAAAA"'),
        ({"add": "A\nB", "text": "a"}, 'ops[1].add is "A\\nB"'),
        ({"add": "\ud83d", "text": "a"}, 'ops[1].add is "\\ud83d"'),
        (
            {"add": "A", "text": "a", "as": "B"},
            'ops[1] (add) has "as", which is unknown; it may have add, salt, text, tokens',
        ),
        ({"append": "A"}, 'ops[1] (append A) needs either "text" or "tokens"'),
        ({"generate": "A", "tokens": 0}, "ops[1].tokens is 0; it must be a whole number from 1 to 1,024"),
        ({"generate": "A", "tokens": [1]}, "ops[1].tokens is [1]; it must be a whole number"),
        ({"generate": "A", "tokens": True}, "ops[1].tokens is true"),
        (
            {"generate": "A", "text": "a"},
            'ops[1] (generate) has "text", which is unknown; it may have generate, tokens',
        ),
        ({"fork": "A"}, 'ops[1] (fork) needs "as", the name of the new sequence'),
        ({"fork": "A", "as": ""}, 'ops[1].as is ""'),
        ({"spill": "A", "tokens": 1}, 'ops[1] (spill) has "tokens", which is unknown; it may have spill'),
        ({"reload": None}, "ops[1].reload is null"),
        ({"free": ["A"]}, 'ops[1].free is ["A"]'),
    ],
    ids=lambda value: str(value)[:40].encode("ascii", "replace").decode(),
)
def test_wrong_operation_is_refused_with_its_number_field_and_value(op, sentence):
    assert sentence in refusal(with_ops({"free": "Z"}, op))


def test_huge_file_is_refused_by_its_size():
    source = with_ops({"add": "A", "text": "x" * 1_000_000})
    assert f"the file has {len(source):,} bytes; a scenario has at most 1,000,000" in refusal(source)


@pytest.mark.parametrize("where", ["%s", '{"pagedviz": 1, "seed": %s}', '{"pagedviz": 1, "ops": [{"free": %s}]}'])
@pytest.mark.parametrize("depth", [*range(900, 1000, 5), 100_000])
def test_deep_nesting_is_refused(where, depth):
    refusal(where % ("[" * depth + "]" * depth))


def test_run_of_too_many_tokens_is_refused():
    ops = [{"add": "A", "tokens": [1] * 1000}, {"generate": "A", "tokens": 20}, {"append": "A", "tokens": [1] * 5}]
    assert "the run writes 1,025 tokens; it may write at most 1,024" in refusal(with_ops(*ops))


def test_run_of_too_many_sequences_is_refused():
    ops = [{"add": "A", "text": "a"}] + [{"fork": "A", "as": f"B{i}"} for i in range(256)]
    assert "the run makes 257 sequences; it may make at most 256" in refusal(with_ops(*ops))


def test_operation_past_a_limit_is_refused_and_the_scenario_stays():
    full = parse(with_ops({"add": "A", "tokens": [1] * 1024}))
    with pytest.raises(ScenarioError, match="the run writes 1,025 tokens"):
        full.with_ops(Append("A", ("x",)))
    assert full.with_ops(Free("A")).ops[-1] == Free("A")
    assert len(full.ops) == 1


def test_text_that_a_learner_typed_is_refused_by_the_same_sentences():
    with pytest.raises(ScenarioError, match='text is "  "; it needs at least one word'):
        tokens_from_text("  ")
    assert tokens_from_text("<b>🙂 שלום") == ("<", "b", ">", "🙂", "שלום")


# --- there and back ---

TOKEN = st.integers(-(2**53) + 1, 2**53 - 1) | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
TOKENS = st.lists(TOKEN, min_size=1, max_size=5).map(tuple)
NAME = st.sampled_from(["A", "mapping", "🙂", "שלום", "<b>", '"', "\\", "a b"])
OP = st.one_of(
    st.builds(Add, NAME, TOKENS, st.none() | NAME),
    st.builds(Append, NAME, TOKENS),
    st.builds(Generate, NAME, st.integers(1, 9)),
    st.builds(Fork, NAME, NAME),
    st.builds(Spill, NAME),
    st.builds(Reload, NAME),
    st.builds(Free, NAME),
    st.builds(Submit, NAME, TOKENS, st.integers(1, 9), priority=st.integers(-9, 9), samples=st.integers(1, 8)),
    st.builds(Submit, NAME, TOKENS, st.integers(1, 9), salt=st.none() | NAME, beams=st.integers(1, 8)),
    st.builds(Draft, NAME, st.integers(1, 8), min_confidence=st.floats(0, 1)),
    st.builds(lambda name, drafts: Draft(name, len(drafts), drafts), NAME, TOKENS),
    st.builds(Verify, NAME),
    st.builds(Store, NAME),
    st.builds(Load, TOKENS, st.none() | NAME),
    st.builds(EndTransfer, st.integers(1, 99), st.sampled_from(["finish", "fail", "cancel"])),
)
CACHE = st.builds(
    CacheConfig,
    num_blocks=st.integers(2, 99),
    block_size=st.integers(1, 16),
    host_blocks=st.integers(0, 99),
    num_layers=st.integers(1, 4),
    num_heads=st.sampled_from([4, 8]),
    num_kv_heads=st.sampled_from([1, 2, 4]),
    head_dim=st.sampled_from([2, 8, 64]),
    profile=st.sampled_from(["vllm-v0", "vllm-v1", "nano-vllm"]),
    prefix_caching=st.booleans(),
    scatter=st.booleans(),
    auto_spill=st.booleans(),
    fork=st.booleans(),
    window=st.none() | st.integers(1, 1024),
    speculation=st.builds(Speculation, st.integers(0, 8), st.floats(0, 1), st.integers(1, 1024)),
)
SCENARIO = st.builds(Scenario, st.integers(0, 2**63 - 1), CACHE, st.lists(OP, max_size=6).map(tuple))


@given(SCENARIO)
def test_scenario_survives_being_written_and_read(written):
    text = written.to_text()
    assert parse(text) == parse(text.encode()) == written
    assert scenario.from_json(written.to_json()) == written
    assert text == replace(written).to_text()


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=5))
def test_no_json_at_all_gives_anything_but_a_sentence(value):
    for source in (value, {"pagedviz": value}, {"pagedviz": 1, "ops": value}, {"pagedviz": 1, "cache": value}):
        try:
            parse(json.dumps(source))
        except ScenarioError as error:
            str(error).encode()


@pytest.mark.parametrize(
    ("op", "sentence"),
    [
        (
            Submit("A", ("a",), 1, samples=3, beams=2),
            'the operation (submit A) has "samples": 3 and "beams": 2; only one of the two may be above 1',
        ),
        (Submit("A", ("a",), 1, salt="\t"), r'the operation.salt is "\t"; a salt has 1 to 16 printable characters'),
    ],
)
def test_a_run_takes_no_operation_that_its_own_text_could_not_hold(op, sentence):
    with pytest.raises(ScenarioError) as raised:
        Scenario().with_ops(op)
    assert str(raised.value) == sentence
