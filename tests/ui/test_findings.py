"""What stands below the stage says what the probe answered: real answers of a small run, shown without a browser."""

import json
import math
import re
from dataclasses import replace

import pytest

testing = pytest.importorskip("streamlit.testing.v1", reason="streamlit is not installed")

from pagedviz import measurements, probe  # noqa: E402
from pagedviz.engine.policies.limits import Limits  # noqa: E402
from pagedviz.runtime import probes  # noqa: E402
from pagedviz.runtime.recording import Moment  # noqa: E402
from pagedviz.runtime.runner import Runner  # noqa: E402
from pagedviz.scenario.operations import Add, Append, EngineSteps, Free, Submit  # noqa: E402
from pagedviz.scenario.scenario import Scenario  # noqa: E402
from pagedviz.scenario.settings import CacheConfig  # noqa: E402
from pagedviz.ui import findings  # noqa: E402
from tests.benchmarks import measurement_cases as made  # noqa: E402

CACHE = CacheConfig(num_blocks=9, profile="vllm-v1", host_blocks=0, scatter=True)
OPS = (Add("A", tuple("abcdefghi")), Append("A", ("j",)), Add("C", tuple("abcdxy")))


@pytest.fixture(scope="module")
def run():
    runner = Runner(CACHE, 7)
    return runner, sum(1 for op in OPS for _ in runner.perform(op))


def page():
    import json

    import streamlit as st

    from pagedviz.probe import Probe
    from pagedviz.ui import findings

    findings.show(Probe.from_json(json.loads(st.session_state["asked"])), json.loads(st.session_state["answer"]))


def shown(asked, answer):
    app = testing.AppTest.from_function(page, default_timeout=60)
    app.session_state["asked"], app.session_state["answer"] = json.dumps(asked.to_json()), json.dumps(answer)
    app.run()
    assert not app.exception
    return app


def found(run, asked):
    runner, last = run
    answer = runner.ask(asked, last)
    assert "refused" not in answer
    return answer, shown(asked, answer)


def table(app):
    """The cells of the table below its head, a list for each row, with **bold** and `code` as they were written."""
    (html,) = [block.proto.body for block in app.get("html")]
    html = re.sub(r"</?strong>", "**", re.sub(r"</?code>", "`", html.replace("\u00a0", " ")))
    rows = re.findall(r"<tr>(.*?)</tr>", html.split("<tbody>")[1])
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]


def test_launch_is_cut_by_sequence_and_printed_whole(run):
    answer, app = found(run, probe.Launch())
    row, other = answer["block_tables"]
    assert table(app)[0] == ["**A**", " ".join(f"`{block}`" for block in row), "10", "0", "-1"]
    slots = " ".join(f"`{slot}`" for slot in answer["slot_mapping"][1:])
    assert table(app)[1] == ["**C**", f"`{other[0]}` `{other[1]}` 0", "6", "1 … 6", slots]
    assert f"query_start_loc int32 [3]     {answer['query_start_loc']}" in app.code[0].value


def test_launch_of_several_groups_has_a_row_and_tensors_for_each():
    """Window 4: A's newest token, at position 9, sees 6 to 9; of B's new ones the first, at position 6, sees 3 to 6."""
    runner = Runner(replace(CACHE, num_blocks=20, groups=(None, 4)), 7)
    ops = (Add("A", tuple("abcdefghi")), Append("A", ("j",)), Add("B", tuple("abcdef")), Append("B", ("x", "y")))
    last = sum(1 for op in ops for _ in runner.perform(op))
    answer, app = found((runner, last), probe.Launch())
    tables = [runner.recording.at(last).snapshot.tables(group) for group in (0, 1)]
    (a0, a1), (b0, b1) = ([table[seq_id] for table in tables] for seq_id in "AB")
    slots = [[4 * row[1] + 2, 4 * row[1] + 3] for row in (b0, b1)]
    assert a1[0] == 0 != b1[0]
    assert table(app) == [
        ["**A**", "0, full attention", " ".join(f"`{b}`" for b in a0), "10", "0", "-1"],
        ["**A**", "1, window 4", f"{a1[0]} `{a1[1]}` `{a1[2]}`", "10", "0", "-1"],
        ["**B**", "0, full attention", f"`{b0[0]}` `{b0[1]}` 0", "8", "1 … 2", f"`{slots[0][0]}` `{slots[0][1]}`"],
        ["**B**", "1, window 4", f"`{b1[0]}` `{b1[1]}` 0", "8", "1 … 2", f"`{slots[1][0]}` `{slots[1][1]}`"],
    ]
    printed = app.code[0].value
    of_group_1 = printed[printed.index("# group 1, window 4") : printed.index("# every group")]
    assert f"slot_mapping    int64 [3]     {answer['groups'][1]['slot_mapping']}" in of_group_1


def test_splits_are_joined_by_their_shares(run):
    answer, app = found(run, probe.Lens("A", 1, 1, 2))
    first, second, joined, dense = table(app)
    assert [first[1], second[1]] == [
        " ".join(str(turn["block"]) for turn in split["turns"]) for split in answer["splits"]
    ]
    assert float(first[5]) + float(second[5]) == pytest.approx(1, abs=1e-4)
    weighed = [float(row[5]) * split["out"][0] for row, split in zip((first, second), answer["splits"], strict=True)]
    assert sum(weighed) == pytest.approx(answer["out"][0], abs=2e-4)
    assert joined[6] == dense[6]


def test_lens_that_is_not_finite_is_a_sentence(run):
    runner, last = run
    moment = runner.recording.at(last)
    k, block = moment.kv.k[1], moment.snapshot.block_tables["A"][0]
    kept = k[block].clone()
    k[block] = math.nan
    answer = runner.ask(probe.Lens("A", 1, 1, 2), last)
    k[block] = kept
    assert not answer["ok"]
    assert [caption.value for caption in shown(probe.Lens("A", 1, 1, 2), answer).caption] == [probe.NOT_FINITE]


@pytest.mark.parametrize(("tile", "said"), [(4, "equal bit for bit"), (5, "equal bit for bit|output numbers differ")])
def test_both_loops_stand_side_by_side(run, tile, said):
    answer, app = found(run, probe.FlashAndPaged("A", 0, 0, tile))
    rows = table(app)
    assert len(rows) == 3
    assert [row[1] for row in rows] == [str(turn["place"]) for turn in answer["paged"]]
    assert [row[4] for row in rows] == [*map(str, range(-(-10 // tile))), *[""] * (3 - -(-10 // tile))]
    assert any(re.search(said, block.value) for block in app.markdown)
    if tile == 4:
        assert all(row[2:4] == row[5:7] for row in rows)


def test_lazy_rescales_stand_beside_the_plain_loop(run):
    answer, app = found(run, probe.LazyRescale("A", 0, 0, 8, 8))
    rows = table(app)
    assert [row[1] for row in rows] == [str(block) for block in answer["blocks"]]
    assert sum(row[7] == "**rescaled**" for row in rows) == answer["done"]
    assert sum(row[7] == "skipped" for row in rows) == answer["skipped"]
    assert answer["done"] + answer["skipped"] == sum(row[4] != "" for row in rows) > 0


def test_what_the_lazy_kernel_does_is_not_given_away_before(run):
    _, app = found(run, probe.LazyRescale("A", 0, 0, 8, 0))
    assert {len(row) for row in table(app)} == {5}
    assert not any("counted" in block.value for block in app.markdown)


def test_block_sizes_are_a_figure_and_a_row_each(run):
    answer, app = found(run, probe.BlockSizes((2, 8), ("A", "C")))
    assert app.caption[0].value.startswith("Counted after “add C “a b c d x y””. Hit: tokens of C that ")
    assert [row[:5] for row in table(app)] == [
        [str(row[name]) for name in ("block_size", "num_blocks", "wasted", "hit", "entries")] for row in answer["rows"]
    ]
    assert len(app.get("plotly_chart")) == 1


def test_hit_without_the_chain_is_wrong_from_the_second_layer_on_and_red():
    runner = Runner(CACHE, 7)
    last = sum(1 for op in (OPS[0], Add("D", tuple("xyzwefgh!"))) for _ in runner.perform(op))
    answer, app = found((runner, last), probe.UnchainedHit("D", "A", 1))
    first, second = table(app)
    assert first[:3] == ["layer 0", "0", "0"]
    assert second == ["layer 1", *(f"{answer['layers'][1][name]:.2g}" for name in ("k_error", "v_error", "out_error"))]
    assert f"A's block {answer['block']} in the place of D's own {answer['own_block']}" in app.caption[0].value
    assert "from position 8 on" in app.caption[0].value
    assert app.error[0].value == (
        f"**Such a hit is wrong:** attention is off by {answer['max_error']:.2g}; the tolerance is 1e-05."
    )
    right = shown(probe.UnchainedHit("D", "A", 1), {**answer, "max_error": 0.0, "ok": True})
    assert not right.error
    assert right.success[0].value.startswith("**Such a hit would be right:**")


def recorded(monkeypatch, tmp_path, *rows):
    monkeypatch.setattr(measurements, "MEASURED", tmp_path / "none.json")
    monkeypatch.setattr(measurements, "RECORDED", tmp_path / "recorded.json")
    if rows:
        measurements.RECORDED.write_text(made.measurements(*rows).to_text(), encoding="utf-8")


SLOW = [
    made.row("GQA 8 × 8k, block_size 16", "Other", 100.0, table="block size"),
    made.row("GQA 8 × 8k, block_size 64", "Other", 88.0, table="block size", block_size=64),
    made.absent("GQA 8 × 8k, block_size 64", "Third", "is not installed"),
]


def test_recorded_bandwidth_is_labelled_so_and_says_what_a_kernel_loses(monkeypatch, tmp_path):
    recorded(monkeypatch, tmp_path, *SLOW)
    app = shown(probe.Bandwidth(), {"gpu": None, "rows": []})
    assert app.caption[0].value.startswith("Recorded on one Some GPU, 2026-01-02")
    assert len(app.get("plotly_chart")) == 1
    assert app.markdown[0].value == (
        "- **Other**: 100 GB/s at most, with blocks of 16; 88 at least, with blocks of 64: 12% less"
    )


def test_a_gpu_that_is_here_is_measured_and_comes_first(monkeypatch, tmp_path):
    recorded(monkeypatch, tmp_path, *SLOW)
    rows = [{"block_size": size, "microseconds": 2.0, "gb_s": 200.0 - size, "error": size / 8000} for size in (8, 16)]
    app = shown(probe.Bandwidth(), {"gpu": "My GPU", "rows": rows})
    assert app.caption[0].value.startswith("Measured on this machine's My GPU since the server started")
    assert app.caption[0].value.endswith("of its largest value: 2.0e-03.")
    assert app.markdown[0].value.startswith("- **pagedviz**: 192 GB/s at most, with blocks of 8; 184 at least")
    assert len(app.get("plotly_chart")) == 2


def test_no_record_is_one_sentence(monkeypatch, tmp_path):
    recorded(monkeypatch, tmp_path)
    app = shown(probe.Bandwidth(), {"gpu": None, "rows": []})
    said = (
        "Nothing has been recorded in recorded.json yet; on a machine with an NVIDIA GPU make bench writes none.json."
    )
    assert app.caption[0].value.replace("\\", "") == said


def test_every_kind_of_probe_can_be_shown():
    assert set(findings.SHOWN) == set(probe.Probe.kinds.values())


def test_refusal_and_waiting_are_sentences():
    assert shown(probe.Launch(), {"refused": "Not *now*."}).caption[0].value == r"Not \*now\*."
    assert shown(probe.Launch(), None).caption[0].value == "The compute process is being asked …"


def test_names_in_a_table_are_text():
    launch = {"kernel": "paged_decode", "block_size": 4, "seq_ids": ["<b>"], "query_lens": [1], "seq_lens": [1]}
    launch |= {"query_start_loc": [0, 1], "groups": [{"window": None, "block_tables": [[3]], "slot_mapping": [12]}]}
    assert table(shown(probe.Launch(), launch)) == [["**&lt;b&gt;**", "`3`", "1", "0", "`12`"]]


TREE = CacheConfig(num_blocks=9, block_size=2, num_layers=1, profile="vllm-v1", host_blocks=0, prefix_caching=True)


@pytest.fixture(scope="module")
def tree_run():
    runner = Runner(TREE, 0)
    ops = (Add("A", ("<b>", *"bcdefg")), Add("B", ("<b>", *"bcxy")), Free("A"))
    return runner, sum(1 for op in ops for _ in runner.perform(op))


def test_radix_tree_is_nested_lists_with_every_page_lock_and_holder(tree_run):
    answer, app = found(tree_run, probe.Radix(2))
    picture = app.get("html")[0].proto.body
    boxes = re.findall(r'<div class="(node[^"]*)"><span class="head">(.*?)</span>(.*?)</div>', picture)
    said = [(kind, re.sub("<.*?>", "", head), re.sub("<.*?>", "", pages)) for kind, head, pages in boxes]
    assert said == [
        ("node locked", "root", ""),
        ("node locked used", "node 2 · 1 lock · used at 5", "&lt;b&gt; bin page 0 "),
        ("node used", "node 1 · not locked · used at 5 · next to go", "c din page 1 e fin page 2 "),
        ("node locked", "node 3 · 1 lock · used at 4 · B ends here", "c xin page 4 "),
    ]
    assert picture.count("<ul>") == picture.count("</ul>") == 3
    (own,) = re.findall(r'<div class="own">(.*?)</div>', picture)
    assert re.sub("<.*?>", "", own) == "B’s own, in no nodeyin page 5 "
    assert app.caption[1].value == "8 pages: 4 in the tree, 1 a sequence's own, 3 free."
    assert app.expander[0].markdown[0].value.count("\n") == len(answer["reported"]) - 1


def test_hits_by_prompt_stand_below_the_tree(tree_run):
    _, app = found(tree_run, probe.Radix(1))
    rows = re.findall(r"<tr>(.*?)</tr>", app.get("html")[1].proto.body.split("<tbody>")[1])
    assert [re.findall(r">([^<]+)<", row) for row in rows] == [["A", "7", "0", "0", "0"], ["B", "5", "2", "2", "3"]]


def test_empty_tree_is_a_root_and_no_table(tree_run):
    runner, _ = tree_run
    app = shown(probe.Radix(1), runner.ask(probe.Radix(1), 0))
    (picture,) = (block.proto.body for block in app.get("html"))
    assert "not locked" not in picture
    assert ">root<" in picture
    assert not app.expander


def test_orders_are_a_row_each_with_who_was_served(tree_run):
    answer, app = found(tree_run, probe.Orders(("B", "A"), 1))
    assert table(app) == [
        [
            f"**{cache}**",
            {"first_come": "first come", "longest_prefix_first": "longest prefix first"}[row["order"]],
            f"**{row['hit']}**",
            ", ".join(f"{seq_id} {hit}" for seq_id, hit in row["served"]),
            str(12 - row["hit"]),
            str(row["evicted"]),
        ]
        for row, cache in zip(
            answer["rows"],
            (
                "blocks of 2",
                "blocks of 2",
                "tree, pages of 2",
                "tree, pages of 2",
                "tree, pages of 1",
                "tree, pages of 1",
            ),
            strict=True,
        )
    ]
    assert app.caption[0].value.startswith("B, A arrived in this order and have 12 tokens.")


def test_timetable_has_a_row_a_request_and_a_column_a_step():
    ops = [Submit("A", ("a", "b"), 1, ("c",)), Submit("B", ("a",), 2, ("c", "d")), Submit("C", ("a",), 1, ("c",))]
    runner = Runner(replace(CACHE, scheduler=Limits(16, 2)), 0)
    last = sum(1 for op in (*ops, EngineSteps(1)) for _ in runner.perform(op))
    asked = probe.Timetable((probe.Way(("static_batches",)),), seats=True)
    _, app = found((runner, last), asked)
    own, static = (re.findall(r"<tr>(.*?)</tr>", html.proto.body.split("<tbody>")[1]) for html in app.get("html"))
    assert [re.findall(r"<td>(.*?)</td>", row) for row in static] == [
        ["<strong>2</strong>", "", ""],
        ["<strong>1</strong>", "1", ""],
        ["·", "·", "<strong>1</strong>"],
        ["3", "1", "1"],
        ["", "1", "1"],
    ]
    assert [row.count("<td>") for row in own] == [1] * 5
    assert app.markdown[1].value == "**Static batches**: 3 steps, 6 seats, 2 of them idle."


def test_ways_of_chunking_are_a_row_each():
    ops = [
        Submit("A", ("a", "b"), 3, ("c", "d", "e")),
        EngineSteps(1),
        Submit("B", ("a",) * 6, 1, ("c",)),
        EngineSteps(1),
    ]
    runner = Runner(replace(CACHE, scheduler=Limits(4, 2)), 0)
    last = sum(1 for op in ops for _ in runner.perform(op))
    _, app = found(
        (runner, last), probe.Chunks("B", (probe.Way(("prefill_first", "never_split"), 8), probe.Way(("split",))))
    )
    first = app.get("html")[0].proto.body.replace("\u00a0", " ").replace("strong>", "b>")
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", first)[1:]]
    assert rows == [
        ["<b>Prompts first, in one piece</b>", "8", "1", "<b>6</b>", "21", "1", "<b>2</b>", "<b>7</b>", "6"],
        ["<b>Split</b>", "4", "2", "<b>9</b>", "21", "2", "<b>1</b>", "<b>4</b>", "4"],
    ]
    assert len(app.get("html")) == 3
    assert app.expander[0].label == "Step by step"


SWAPPED = replace(CACHE, num_blocks=5, host_blocks=2, policies=(("preemption", "swap"),))
PREEMPTING = (
    Submit("A", tuple("abcdefg"), 3, tuple("hij")),
    Submit("B", tuple("mnopqrs"), 3, tuple("tuv")),
    EngineSteps(20),
)


def test_swaps_are_counted_out_and_back_and_recomputed_tokens_only_where_they_are_asked_for():
    moment = Moment(Scenario(0, SWAPPED, PREEMPTING), None, None, None, {})
    asked = probe.SwapOrRecompute((1, 4), ("swap",))
    app = shown(asked, probes.answer(asked, moment))
    assert table(app) == [
        ["**swap**", "1", "B 8", "8 + 8", "32 + 32", "1,024 + 1,024", "1 + 1"],
        ["**swap**", "4", "B 8", "2 + 2", "8 + 8", "1,024 + 1,024", "1 + 1"],
    ]
    assert app.caption[0].value.startswith("Counted after “20 engine steps”, out + back.")
    out_only = replace(moment, scenario=replace(moment.scenario, ops=(*PREEMPTING[:2], EngineSteps(3))))
    assert table(shown(asked, probes.answer(asked, out_only)))[1][3:] == ["2 + 0", "8 + 0", "1,024 + 0", "1 + 0"]
    asked = probe.SwapOrRecompute((4,), ("recompute",))
    assert table(shown(asked, probes.answer(asked, moment))) == [
        ["**recompute**", "4", "B 8", "0", "0", "0", "0", "**8**", "0"]
    ]


def test_times_are_shown_where_they_were_measured_and_elsewhere_a_sentence_says_why_not():
    row = {"block_size": 16, "copies": 8192, "staged": 2, "plain_ms": 40.0, "staged_ms": 5.25, "recompute_ms": 30.0}
    answer = {"num_tokens": 1024, "num_layers": 32, "backend": "Triton interpreter, CPU", "gpu": None, "rows": []}
    app = shown(probe.WaysBack(), answer)
    assert app.caption[0].value.startswith("Nothing was timed: the kernels run in “Triton interpreter, CPU” here")
    assert not app.get("html")
    answer |= {"gpu": "My GPU", "rows": [{**row, "bytes": 2**27, "error": 0.004}]}
    app = shown(probe.WaysBack(), answer)
    assert app.caption[0].value.startswith("Measured on this machine's My GPU since the server started: 1,024 tokens")
    assert "128 MiB each way" in app.caption[0].value
    assert "was 4.0e-03 of its largest" in app.caption[0].value
    assert table(app) == [["16", "8,192", "40.00", "2", "5.25", "30.00"]]
