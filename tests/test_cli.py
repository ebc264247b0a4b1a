"""The command line: exit 0 all good, 1 a check failed, 2 the file is wrong and one line on standard error says how."""

import json
import os
import subprocess
import sys

import pytest

import kernels
from pagedviz.__main__ import main
from pagedviz.engine.log.events.base import Event
from pagedviz.run import trace
from pagedviz.run.play import PROJECT, planner
from pagedviz.run.trace import Check, Step
from pagedviz.scenario import scenario
from tests.engine.engine_cases import EXAMPLE

NAN = pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # NaN where a check fails
pytestmark = [pytest.mark.slow, NAN]

EXAMPLES = sorted((PROJECT / "examples").glob("*.json"))
# What only a server under pressure does, and a profile that collapses duplicates.
OF_NO_EXAMPLE = {
    *("RequestWaits", "RequestPreempted", "RequestSwappedIn", "RequestAborted", "RequestDropped"),
    *("BlockCollapsed", "OperationRefused"),
}

TINY = {"num_blocks": 4, "block_size": 2, "num_layers": 1, "num_heads": 1, "head_dim": 4}


def command(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "pagedviz", *map(str, arguments)],
        **{"cwd": PROJECT, "capture_output": True, "timeout": 120, **options},
    )


@pytest.fixture
def run(tmp_path, capsys):
    """Run operations in this process; returns the exit status, the lines, and what is on standard error."""

    def run(*ops, options=(), **cache):
        file = tmp_path / "scenario.json"
        file.write_text(json.dumps({"pagedviz": 1, "cache": {**TINY, **cache}, "ops": ops}))
        status = main(["run", str(file), *options])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


# --- exit 0 ---


def test_example_prints_its_steps_one_a_line(tmp_path):
    (tmp_path / "example.json").write_text(EXAMPLE)
    done = command("run", tmp_path / "example.json")
    assert (done.returncode, done.stderr) == (0, b"")
    lines = done.stdout.decode().splitlines()
    assert len(lines) == 20
    assert all(line.split()[:2] == [str(i), "ok"] for i, line in enumerate(lines[:-1], start=1))
    assert "One launch wrote A's 7 tokens (positions 0-6)" in lines[3]
    assert "fathers” at position 7: offset 3 of block 9, which is slot 39" in lines[4]
    assert lines[-1] == f"19 steps, all verdicts good; {kernels.backend_name()}"


def test_json_has_the_shape_that_the_issue_gives(run):
    fork = [{"add": "A", "text": "a b c"}, {"fork": "A", "as": "B"}, {"append": "B", "tokens": [7]}]
    status, out, _ = run(*fork, {"spill": "B"}, {"free": "X"}, {"free": "A"}, options=["--json"])
    printed = json.loads(out)
    assert status == 0
    assert printed["ok"] is True
    assert printed["backend"] == kernels.backend_name()
    for step in printed["steps"]:
        assert {"event", "sentence", "refused", "snapshot", "check"} <= step.keys()
        assert isinstance(step["event"]["kind"], str)
        assert step["check"]["ok"] is True
        assert step["check"]["invariants"] == []
        assert step["check"]["tolerance"] == 1e-5
        assert 0 <= step["check"]["max_error"] < 1e-5
    spilled = next(step for step in printed["steps"] if step["event"]["kind"] == "BlockSpilled")
    assert spilled["refused"] is None
    assert spilled["sentence"].startswith("Block 2 moved to host block 0")
    expected = {
        "block_tables": {"A": [0, 1], "B": [0, None]},
        "host_tables": {"A": [None, None], "B": [None, 0]},
        "seq_lens": {"A": 3, "B": 4},
        "ref_counts": {"0": 2, "1": 1},
        "free_blocks": [2, 3],
        "host_free_blocks": [1, 2, 3, 4, 5],
    }
    assert {key: spilled["snapshot"][key] for key in expected} == expected
    refused = next(step for step in printed["steps"] if step["refused"])
    assert refused["event"] == {"kind": "OperationRefused", "op": "free X"}
    assert refused["refused"]["error"] == "UnknownSequence"
    assert refused["sentence"] == refused["refused"]["sentence"]
    assert list(printed["steps"][-1]["snapshot"]["block_tables"]) == ["B"]


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_example_files_trace_is_what_was_planned_and_reads_back(capsys, file):
    status = main(["run", str(file), "--json"])
    parsed, claims = trace.parse(capsys.readouterr().out)
    assert status == 0
    assert parsed == scenario.parse(file.read_text())
    assert claims.ok
    player = planner(parsed.cache, parsed.seed)
    planned = [happening for op in parsed.ops for happening in player.perform(op)]
    assert len(claims.steps) == len(planned)
    for step, happening in zip(claims.steps, planned, strict=True):
        assert Step.from_json(step).agrees(Step.of(happening))
        assert trace.alike(step["snapshot"], json.loads(json.dumps(happening.snapshot.to_json())))
        assert Check.from_json(step["check"]).ok
        assert step["refused"] is None


def test_examples_show_what_a_server_has():
    kinds = set()
    for file in EXAMPLES:
        shown = scenario.parse(file.read_text())
        player = planner(shown.cache, shown.seed)
        kinds |= {happening.event.kind for op in shown.ops for happening in player.perform(op)}
        assert f"`{file.name}`" in (PROJECT / "docs/scenario.md").read_text(encoding="utf-8")
    assert kinds == set(Event.kinds) - OF_NO_EXAMPLE


def test_refused_operation_is_a_step_and_the_run_goes_on(run):
    status, out, err = run({"add": "A", "text": "a b c d e f g h i"}, {"add": "A", "text": "a"})
    lines = out.splitlines()
    assert (status, err) == (0, "")
    assert "A needs 5 blocks by itself, and the whole device pool has 4" in lines[0]
    assert "“a” at position 0" in lines[3]
    assert lines[-1].startswith("4 steps, all verdicts good")


def test_scenario_without_operations_is_good(run):
    status, out, _ = run()
    assert (status, out) == (0, f"0 steps, all verdicts good; {kernels.backend_name()}\n")


def test_scenario_may_come_from_standard_input():
    done = command("run", "-", input=json.dumps({"pagedviz": 1, "cache": TINY, "ops": []}).encode())
    assert (done.returncode, done.stderr) == (0, b"")


def test_tokens_that_the_terminal_cannot_show_are_no_traceback(tmp_path):
    ops = [{"add": "🙂", "tokens": ["שלום", "<b>", "\u001b[31m"]}]
    (tmp_path / "s.json").write_text(json.dumps({"pagedviz": 1, "cache": TINY, "ops": ops}))
    done = command("run", tmp_path / "s.json", env={**os.environ, "PYTHONIOENCODING": "latin-1"})
    assert (done.returncode, done.stderr) == (0, b"")


def test_json_is_in_utf_8_whatever_the_terminal_takes(tmp_path):
    ops = [{"add": "🙂", "tokens": ["שלום", "é"]}]
    (tmp_path / "s.json").write_text(json.dumps({"pagedviz": 1, "cache": TINY, "ops": ops}))
    done = command("run", tmp_path / "s.json", "--json", env={**os.environ, "PYTHONIOENCODING": "latin-1"})
    assert json.loads(done.stdout.decode("utf-8"))["scenario"]["ops"] == ops


def test_reader_may_leave_early(tmp_path):
    (tmp_path / "s.json").write_text(json.dumps({"pagedviz": 1, "cache": TINY, "ops": [{"free": "X"}] * 900}))
    line = f"{sys.executable} -m pagedviz run {tmp_path / 's.json'} | head -1"
    done = subprocess.run(["bash", "-c", line], cwd=PROJECT, capture_output=True, timeout=120)
    assert done.stderr == b""
    assert done.stdout.count(b"\n") == 1


def test_without_triton_every_step_is_good_and_the_backend_says_so(tmp_path):
    """As on a platform that has none, macOS say: the blockwise reference computes, in plain torch."""
    (tmp_path / "example.json").write_text(EXAMPLE)
    code = "import sys; sys.modules['triton'] = None; from pagedviz.__main__ import main; sys.exit(main(sys.argv[1:]))"
    line = [sys.executable, "-c", code, "run", str(tmp_path / "example.json")]
    done = subprocess.run(line, cwd=PROJECT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == (
        "19 steps, all verdicts good; PyTorch blockwise, no Triton on this platform"
    )


# --- exit 1 ---


def test_failed_check_is_exit_1_and_the_invariant_is_printed(run, monkeypatch):
    monkeypatch.setattr(kernels, "copy_blocks", lambda *blocks: None)
    ops = {"add": "A", "text": "a"}, {"fork": "A", "as": "B"}, {"append": "B", "text": "b"}
    status, out, err = run(*ops)
    assert (status, err) == (1, "")
    assert "FAILED  not finite  B's logical block 0 now names block 1" in out
    assert "\n      bytes: K or V of B through its table differs from its log\n" in out
    assert "NOT all verdicts good" in out.splitlines()[-1]
    status, out, _ = run(*ops, options=["--json"])
    printed = json.loads(out)
    assert (status, printed["ok"]) == (1, False)
    failed = next(step for step in printed["steps"] if not step["check"]["ok"])
    assert failed["check"]["max_error"] is None
    assert failed["check"]["invariants"] == ["bytes: K or V of B through its table differs from its log"]


# --- exit 2 ---


def one_line(done):
    """The only thing a wrong input prints."""
    assert done.returncode == 2
    assert done.stdout == b""
    line = done.stderr.decode()
    assert line.endswith("\n")
    assert line.count("\n") == 1
    assert line.startswith("pagedviz: ")
    return line


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "s.json: the file is not JSON, line 1"),
        (EXAMPLE.encode()[:300], "s.json: the file is not JSON, line 3"),
        (b"\xff\xd8\xff\xe0\x00\x10JFIF", "s.json: the file is not text in UTF-8"),
        (b"x" * 2_000_000, "s.json: the file has 2,000,000 bytes; a scenario has at most 1,000,000"),
        (b"[" * 500_000, "s.json: the file is nested too deeply"),
        (b'{"pagedviz": 2}', 's.json: "pagedviz" is 2; this program reads version 1'),
        (b'{"pagedviz": 1, "ops": [{"free": "A"}, {"evict": "A"}]}', 's.json: ops[1] is {"evict": "A"}'),
        (b'{"pagedviz": 1, "ops": [{"add": "A", "tokens": ["\\ud800"]}]}', "s.json: ops[0].tokens[0] is"),
        (b'{"pagedviz": 1, "ops": [{"free": "\xc2\x9b2J"}]}', 's.json: ops[0].free is "\\x9b2J"'),
        (b'{"pagedviz": 1, "cache": {"block_size": 0}}', "s.json: cache.block_size is 0; it must be a whole number"),
    ],
    ids=[
        "empty",
        "cut in half",
        "a picture",
        "huge",
        "deep",
        "version",
        "unknown op",
        "half a surrogate",
        "clears the terminal",
        "block size",
    ],
)
def test_wrong_file_is_one_line(tmp_path, content, sentence):
    (tmp_path / "s.json").write_bytes(content)
    assert sentence in one_line(command("run", tmp_path / "s.json"))


def test_file_that_cannot_be_read_is_one_line(tmp_path):
    assert "missing.json cannot be read: No such file or directory" in one_line(command("run", "missing.json"))
    assert f"{tmp_path} cannot be read: Is a directory" in one_line(command("run", tmp_path))


def test_unknown_lesson_is_one_line_with_the_names_there_are():
    line = one_line(command("lessons", "99_no_such"))
    assert "there is no lesson 99_no_such; there is: 02_block_table, 03_" in line


@pytest.mark.parametrize("arguments", [[], ["run"], ["run", "a", "b"], ["fly"]], ids=str)
def test_wrong_usage_is_exit_2_and_shows_the_usage(arguments):
    done = command(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(b"usage: python -m pagedviz")


# --- lessons ---


def test_lesson_is_one_line_with_its_largest_error(capsys):
    assert main(["lessons", "02_block_table"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("ok      02_block_table ")
    assert line.endswith(kernels.backend_name())


def test_failed_lesson_is_exit_1(capsys, monkeypatch):
    monkeypatch.setattr(kernels, "store_kv", lambda *arguments: None)
    assert main(["lessons", "02_block_table"]) == 1
    assert capsys.readouterr().out.startswith("FAILED  02_block_table ")
