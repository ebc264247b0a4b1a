"""Windows and groups of layers on the real kernels: every step is right, and what is broken turns red."""

from dataclasses import replace

import pytest
import torch

from pagedviz import probe
from pagedviz.engine.blocks.changes import windows
from pagedviz.engine.blocks.prefix_cache import PrefixCache
from pagedviz.model.vocabulary import VOCABULARY
from pagedviz.runtime.cache.kv_cache import KVCache
from pagedviz.runtime.running import runner as runners
from pagedviz.scenario.operations import Add, Append, EngineSteps, Free, Generate, Submit
from tests.model.model_cases import dense
from tests.runtime.runner.runner_cases import TINY, Played, ask

NAN = pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # NaN is the point here
pytestmark = [pytest.mark.slow, NAN]

WORDS = tuple("abcdefgh")
# A comes and goes; B begins with the same words and goes on.
COME_AND_GO = (Add("A", WORDS), Generate("A", 2), Free("A"), Add("B", (*WORDS, "i")), Append("B", ("j",)))
WINDOWED = replace(TINY, num_blocks=16, window=3, policies=(("window_release", "below_window"),))
CACHED = replace(WINDOWED, profile="vllm-v1", prefix_caching=True, policies=())
GROUPS = replace(CACHED, num_blocks=32, num_layers=4, window=None, groups=(None, 4))
CACHES = {
    "window, v0": replace(WINDOWED, policies=()),
    "window, v1": CACHED,
    "full and 4, v1": GROUPS,
    "4 and full, sglang": replace(GROUPS, num_layers=2, groups=(4, None), profile="sglang"),
}


@pytest.fixture(scope="module", params=CACHES)
def played(request):
    return Played(*COME_AND_GO, cache=CACHES[request.param])


def kinds(played):
    return [happening.event.kind for happening, _ in played.steps]


def test_every_step_is_right(played):
    assert played.first_failure is None
    assert not any(happening.refused for happening, _ in played.steps)
    assert kinds(played).count("BlockOutOfWindow") >= 2


def test_a_prefix_is_hit_in_every_group_and_skipped_where_no_window_reaches(played):
    groups = range(len(played.state.windows)) if len(played.state.windows) > 1 else [None]
    hit = {happening.event.group for happening, _ in played.steps if happening.event.kind == "BlockHit"}
    skipped = {happening.event.group for happening, _ in played.steps if happening.event.kind == "PrefixSkipped"}
    if played.runner.cache.prefix_caching:
        assert hit == set(groups)
        assert skipped == {group for group in groups if played.state.windows[group or 0]}


def test_words_are_those_of_a_model_without_a_cache(played):
    said = [happening.event.token for happening, _ in played.steps if happening.event.kind == "TokenWritten"][:2]
    expected = list(WORDS)
    for _ in said:
        expected.append(VOCABULARY[int(dense(played.runner.cache, 0, expected)[2][-1].argmax())])
    assert (*WORDS, *said) == tuple(expected)


def test_log_is_whole_although_blocks_are_not(played):
    k, v, _ = dense(played.runner.cache, 0, played.state.tokens["B"])
    logged = played.runner.log.sequences["B"]
    for rows, wanted in ((logged.k, k), (logged.v, v)):
        torch.testing.assert_close(
            torch.stack([torch.stack(row) for row in rows]).cpu().double(), wanted, atol=1e-5, rtol=0
        )
    tables = [table["B"] for table in played.state.all_tables]
    assert any(played.state.null_block in row for row in tables)
    assert played.runner.kv.k[:, played.state.null_block].isnan().all()


def test_weights_of_blocks_out_of_the_window_are_none(played):
    weights = torch.tensor(played.last.weights["B"])
    assert torch.allclose(weights.sum(dim=1), torch.ones(2), atol=1e-3)
    window = played.state.windows[-1]
    unseen = (played.state.seq_len("B") - window) // 2 if window else 0
    assert (weights[:, :unseen] == 0).all()
    assert (weights[:, unseen:] > 0).all()


def test_who_has_let_go_of_what_its_newest_token_sees_is_asked_again_when_it_writes():
    """8 tokens, window 3, blocks of 2: the next token sees positions 6 and 7, the newest saw 5 too."""
    played = Played(Add("A", WORDS), Add("B", ("x",)), Append("A", ("i",)), cache=WINDOWED)
    assert played.first_failure is None
    compared = [check.compared for happening, check in played.steps if happening.event.kind == "BlockOutOfWindow"]
    assert (compared[0], compared[-1], played.last.compared) == (1, 1, 2)
    index = 1 + kinds(played).index("BlockOutOfWindow")
    assert ask(played.runner, probe.Lens("A", 0, 0), index) == {
        "refused": "At this step some of what A's newest token sees is in none of its blocks: only the token to come "
        "can be computed."
    }


def test_prompts_of_one_launch_share_blocks_in_every_group():
    """Of B's first ten words four are there, and A computes the others; in group 1 nobody needs the first six."""
    words = (*WORDS, "i", "j")
    ops = (Add("Z", WORDS[:4]), Free("Z"), Submit("A", words, 1), Submit("B", (*words, "x"), 2), EngineSteps(2))
    played = Played(*ops, cache=replace(GROUPS, num_layers=2))
    assert played.first_failure is None
    hits = [h.event for h, _ in played.steps if h.event.kind == "BlockHit"]
    assert [(h.group, h.computed) for h in hits if h.seq_id == "B"] == [(0, True)] * 2 + [(0, False)] * 3 + [
        (1, False)
    ] * 2
    wrote = next(happening.event for happening, _ in played.steps if happening.event.kind == "BatchWritten")
    assert [(write.seq_id, write.position) for write in wrote.writes] == [("A", 4), ("B", 10)]


# --- what probes say ---


def test_lens_shows_what_the_window_shows():
    played = Played(Add("A", WORDS), cache=GROUPS)
    last = len(played.steps)
    full, windowed = (ask(played.runner, probe.Lens("A", layer, 1), last) for layer in (2, 3))
    assert (full["ok"], full["window"], windowed["ok"], windowed["window"]) == (True, None, True, 4)
    blocks = [[turn["block"] for turn in answer["splits"][0]["turns"]] for answer in (full, windowed)]
    assert blocks == [list(played.state.block_tables["A"]), list(played.state.tables(1)["A"][2:])]
    assert [weight > 0 for weight in windowed["dense"]["weights"]] == [False] * 4 + [True] * 4


def test_launch_probe_tells_the_tables_and_slots_of_each_group():
    played = Played(Add("A", WORDS), cache=GROUPS)
    found = ask(played.runner, probe.Launch(), len(played.steps))
    groups = found["groups"]
    assert [group["window"] for group in groups] == [None, 4]
    assert [group["block_tables"] for group in groups] == [[list(tables["A"])] for tables in played.state.all_tables]
    for group, tables in zip(groups, played.state.all_tables, strict=True):
        assert group["slot_mapping"] == [2 * tables["A"][p // 2] + p % 2 for p in range(8)]


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (probe.FlashAndPaged("A", 0, 0, 4), "This layer sees only the newest 3 tokens"),
        (probe.LazyRescale("A", 0, 0, 4, 8), "This layer sees only the newest 3 tokens"),
        (probe.UnchainedHit("A", "B", 1), "A wrong hit is shown where all layers are one group and see all tokens"),
    ],
)
def test_what_is_told_of_whole_sequences_is_refused_behind_a_window(asked, sentence):
    played = Played(Add("A", WORDS[:5]), Add("B", ("x", *WORDS[1:5])), cache=WINDOWED)
    assert ask(played.runner, asked, len(played.steps))["refused"].startswith(sentence)


# --- broken on purpose ---


def launches(monkeypatch, instead):
    """Each launch is `instead(real, snapshot, event, group)`."""
    real = runners.launch_input
    monkeypatch.setattr(runners, "launch_input", lambda *given: instead(real, *given))


@pytest.mark.parametrize("cache", [WINDOWED, GROUPS], ids=["window", "groups"])
@pytest.mark.parametrize("window", [lambda w: None, lambda w: w - 1, lambda w: w + 1], ids=["none", "less", "more"])
def test_window_that_the_launch_does_not_keep_is_found(monkeypatch, cache, window):
    def other(real, *given):
        launch = real(*given)
        return launch if launch.window is None else replace(launch, window=window(launch.window))

    launches(monkeypatch, other)
    kind, check = Played(Add("A", WORDS), cache=cache).first_failure
    assert (kind, check.failed) == ("TokensWritten", ("A",))


@pytest.mark.parametrize("what", ["block_tables", "slot_mapping"])
def test_tables_and_slots_of_another_group_are_found(monkeypatch, what):
    def other(real, snapshot, event, group):
        return replace(real(snapshot, event, group), **{what: getattr(real(snapshot, event, 1 - group), what)})

    launches(monkeypatch, other)
    kind, check = Played(Add("A", WORDS), cache=GROUPS).first_failure
    assert (kind, check.failed) == ("TokensWritten", ("A",))


def test_block_let_go_too_early_is_found(monkeypatch):
    """By the kernel, whatever the engine says of it itself."""
    real = windows.ends
    monkeypatch.setattr(windows, "ends", lambda *of: [n + 1 for n in real(*of)])
    played = Played(Add("A", WORDS), Append("A", ("i",)), cache=WINDOWED)
    wrote = [check for happening, check in played.steps if happening.event.kind == "TokenWritten"][-1]
    assert (wrote.max_error, wrote.failed) == (None, ("A",))


def test_block_out_of_the_window_that_keeps_its_numbers_is_named(monkeypatch):
    apply = KVCache.apply
    monkeypatch.setattr(
        KVCache, "apply", lambda self, e, *more: None if e.kind == "BlockOutOfWindow" else apply(self, e, *more)
    )
    kind, check = Played(Add("A", WORDS), Append("A", ("i",)), cache=WINDOWED).first_failure
    assert kind == "BlockOutOfWindow"
    assert check.broken[0].startswith("poison: device block")


def test_block_of_another_group_that_is_hit_is_found(monkeypatch):
    real = PrefixCache.find
    monkeypatch.setattr(PrefixCache, "find", lambda self, link, group=0: real(self, link, 0))
    played = Played(Add("A", WORDS), Free("A"), Add("B", (*WORDS, "i")), cache=GROUPS)
    failed = [happening.event for happening, check in played.steps if check.failed == ("B",)]
    assert (failed[0].kind, failed[0].group) == ("BlockHit", 1)


def test_block_of_other_words_that_is_hit_is_found_when_all_groups_have_named_theirs(monkeypatch):
    real = PrefixCache.find

    def find(self, link, group=0):
        others = [block for block, of in self.groups.items() if of == 0 and self.links[block].tokens != link.tokens]
        return real(self, link, group) if group else others[0]

    ops = (Add("A", WORDS), Free("A"))
    played = Played(*ops, cache=GROUPS)
    monkeypatch.setattr(PrefixCache, "find", find)
    played.play(Add("B", (*WORDS, "i")))
    failed = [happening.event for happening, check in played.steps if check.failed == ("B",)]
    assert (failed[0].kind, failed[0].group) == ("PrefixSkipped", 1)


def test_one_bit_in_a_block_of_another_group_is_found():
    played = Played(Add("A", WORDS), cache=GROUPS)
    played.runner.kv.k[0, played.state.tables(1)["A"][3], 0].view(torch.int32)[0, 0] ^= 1
    played.play(Append("A", ("i",)))
    assert played.steps[-1][1].max_error < 1e-5
    assert "bytes: K or V of A through its table differs from its log" in played.last.broken


def test_number_in_the_null_block_is_named():
    played = Played(Add("A", WORDS), Append("A", ("i",)), cache=GROUPS)
    assert played.state.null_block in played.state.tables(1)["A"]
    played.runner.kv.v[1, played.state.null_block, 1] = 1.0
    assert played.play(Append("A", ("j",))).last.broken == ("poison: device block 0 holds a number in an unowned slot",)
