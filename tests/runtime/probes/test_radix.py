"""What the radix tree answers at each state of a run, and what each order of the waiting would have hit."""

from dataclasses import replace

import pytest

from pagedviz import probe
from pagedviz.runtime.running.runner import Runner
from pagedviz.scenario.operations import Add, Append, Fork, Free
from pagedviz.scenario.settings import CacheConfig
from tests.runtime.runner.runner_cases import TINY, ask

pytestmark = pytest.mark.slow

CACHE = replace(TINY, num_blocks=8, block_size=2, profile="vllm-v1", prefix_caching=True)  # 7 blocks, 14 slots
OPS = (Add("A", tuple("abcde")), Add("B", tuple("abcxyz")), Append("A", tuple("f")), Free("A"))


def run_of(*ops, cache: CacheConfig = CACHE):
    """A runner and, for each operation, how many events there were after it."""
    runner, ends = Runner(cache, 0), [0]
    for op in ops:
        ends.append(ends[-1] + sum(1 for _ in runner.perform(op)))
    return runner, ends


@pytest.fixture(scope="module")
def run():
    return run_of(*OPS)


def drawn(answer):
    """Each node as (its parent, its tokens, its pages, locks, who ends there)."""
    return {
        n["node"]: (n["parent"], "".join(n["tokens"]), n["pages"], n["lock_count"], "".join(n["held_by"]))
        for n in answer["nodes"]
    }


def own(answer):
    return [(page["seq_id"], "".join(page["tokens"]), page["page"]) for page in answer["own"]]


def test_tree_is_the_one_of_the_step(run):
    runner, ends = run
    at = [ask(runner, probe.Radix(2), end) for end in ends]
    assert drawn(at[0]) == {0: (None, "", [], 0, "")}
    assert drawn(at[1]) == {0: (None, "", [], 1, ""), 1: (0, "abcd", [0, 1], 1, "A")}
    assert own(at[1]) == [("A", "e", 2)]
    split = {
        0: (None, "", [], 2, ""),
        2: (0, "ab", [0], 2, ""),
        1: (2, "cd", [1], 1, "A"),
        3: (2, "cxyz", [3, 4], 1, "B"),
    }
    assert drawn(at[2]) == split
    assert drawn(at[3]) == split
    assert own(at[3]) == [("A", "ef", 2)]
    assert drawn(at[4])[4] == (1, "ef", [2], 0, "")
    assert (at[4]["num_pages"], at[4]["num_free"], at[4]["own"]) == (7, 2, [])


def test_parents_come_first_and_the_next_leaf_to_go_is_marked(run):
    runner, ends = run
    nodes = ask(runner, probe.Radix(2), ends[-1])["nodes"]
    assert [node["node"] for node in nodes] == [0, 2, 1, 4, 3]
    assert [node["node"] for node in nodes if node["next_out"]] == [4]
    assert not any(node["next_out"] for node in ask(runner, probe.Radix(2), ends[-2])["nodes"])


def test_of_two_leaves_that_nobody_locks_the_one_used_longer_ago_goes_next():
    runner, ends = run_of(Add("A", tuple("ab")), Add("B", tuple("cd")), Free("B"), Free("A"))
    nodes = ask(runner, probe.Radix(2), ends[-1])["nodes"]
    assert ["".join(node["tokens"]) for node in nodes if node["next_out"]] == ["cd"]


def test_prompt_that_is_not_written_yet_is_admitted_and_in_no_node(run):
    runner, ends = run
    for end in range(ends[1] + 1, ends[2]):
        answer = ask(runner, probe.Radix(2), end)
        written = runner.recording.at(end).snapshot.tokens.get("B") == tuple("abcxyz")
        assert ("B" in "".join(node[4] for node in drawn(answer).values())) is True
        assert (3 in drawn(answer)) is written
        assert own(answer) == [("A", "e", 2)] + ([] if written else [("B", "cx", 3), ("B", "yz", 4)])
    reported = ask(runner, probe.Radix(2), ends[1] + 1)["reported"]
    assert [event.split()[0] for event in reported] == ["Node", "The", "Node"]


def test_sequence_holds_its_nodes_until_it_is_gone(run):
    runner, ends = run
    for end in range(ends[3] + 1, ends[4]):
        assert drawn(ask(runner, probe.Radix(2), end))[1][3:] == (1, "A")


def test_hits_are_counted_in_blocks_and_in_pages_of_both_sizes(run):
    runner, ends = run
    rows = ask(runner, probe.Radix(1), ends[-1])["requests"]
    assert rows == [
        {"seq_id": "A", "num_tokens": 5, "blocks": 0, "pages": {"2": 0, "1": 0}},
        {"seq_id": "B", "num_tokens": 6, "blocks": 2, "pages": {"2": 2, "1": 3}},
    ]
    assert list(ask(runner, probe.Radix(2), ends[-1])["requests"][0]["pages"]) == ["2"]


def test_what_the_tree_cannot_play_is_a_sentence():
    runner, ends = run_of(Add("A", tuple("abc")), Fork("A", "B"), cache=replace(CACHE, fork=True))
    said = "With pages of 1: the radix tree plays add, append and free, not “fork A as B”"
    assert ask(runner, probe.Radix(1), ends[-1]) == {"refused": said}
    assert ask(runner, probe.Radix(1), ends[1])["requests"][0]["pages"] == {"2": 0, "1": 0}
    assert ask(runner, probe.Radix(0), ends[1]) == {"refused": "page_size is 0; here it may be 1 to 256."}


# E needs all of the room. In blocks of 2: "ab" is a full block of A's, and F begins with both of A's.
WAITING = {"E": tuple("123456789012345678"), "F": tuple("abcdex"), "G": tuple("abX")}
LARGE = replace(CACHE, num_blocks=10)


@pytest.fixture(scope="module")
def served():
    ops = [Add("A", tuple("abcde")), Free("A")]
    for seq_id in "GEF":  # as they are on the stage is not how they arrived
        ops += [Add(seq_id, WAITING[seq_id]), Free(seq_id)]
    runner, ends = run_of(*ops, cache=LARGE)
    return runner, ends[-1]


def test_both_orders_are_counted_in_blocks_and_in_both_page_sizes(served):
    runner, last = served
    answer = ask(runner, probe.Orders(("E", "F", "G"), 1), last)
    assert (answer["arrived"], answer["num_tokens"]) == (["E", "F", "G"], 27)
    rows = {(row["page_size"], row["order"]): row for row in answer["rows"]}
    came, chosen = "first_come", "longest_prefix_first"
    assert list(rows) == [(size, order) for size in (None, 2, 1) for order in (came, chosen)]
    assert rows[None, came]["served"] == [["E", 0], ["F", 0], ["G", 2]]
    assert rows[None, chosen]["served"] == [["F", 4], ["G", 2], ["E", 0]]
    assert rows[2, came]["served"] == rows[None, came]["served"]
    assert rows[2, chosen]["served"] == rows[None, chosen]["served"]
    assert rows[1, chosen]["served"] == [["F", 5], ["G", 2], ["E", 0]]
    assert all(row["hit"] == sum(hit for _, hit in row["served"]) for row in rows.values())


def test_evicted_tokens_are_those_that_were_cached(served):
    """As they came, in blocks: A's two go for E, three of E's for F and one for G. In pages E's leaf goes whole."""
    runner, last = served
    rows = ask(runner, probe.Orders(("E", "F", "G"), 1), last)["rows"]
    came = {row["page_size"]: row["evicted"] for row in rows if row["order"] == "first_come"}
    assert came == {None: 4 + 6 + 2, 2: 4 + 18, 1: 5 + 18}


def test_what_was_evicted_before_they_waited_is_not_theirs():
    """B takes three free ones and one of A's. C takes another of A's blocks, but of A's pages none is left to evict."""
    ops = (Add("A", tuple("abcdefgh")), Free("A"), Add("B", tuple("12345678")), Add("C", tuple("5")))
    runner, ends = run_of(*ops)
    rows = ask(runner, probe.Orders(("C",), 2), ends[-1])["rows"]
    assert [row["evicted"] for row in rows] == [2, 2, 0, 0]


def test_prompt_that_never_came_and_pool_that_is_too_small_are_sentences(served):
    runner, last = served
    assert ask(runner, probe.Orders(("E", "Z"), 1), last) == {"refused": "There is no prompt Z at this step."}
    small, ends = run_of(Add("A", tuple("abc")), Add("B", tuple("123456789012345")), cache=CACHE)
    assert ask(small, probe.Orders(("A", "B"), 1), ends[-1])["refused"].startswith("The pool is too small for one of")
