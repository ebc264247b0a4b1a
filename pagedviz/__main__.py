"""The command line: play a scenario or the lessons without a screen.

    python -m pagedviz run FILE [--json]      the steps of a scenario, one a line, with verdicts
    python -m pagedviz lessons [NAME ...]     every lesson, one a line

Exit status: 0 all verdicts are good, 1 a check or an invariant failed, 2 the input is wrong.
"""

import argparse
import io
import json
import os
import sys
from pathlib import Path

from pagedviz.run import trace
from pagedviz.run.trace import Step
from pagedviz.scenario import scenario
from pagedviz.scenario.json_values import ScenarioError


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pagedviz", description="Play a scenario or the lessons.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="play a scenario file, one step a line")
    run.add_argument("file", help="the scenario, JSON; - for standard input")
    run.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    lessons = commands.add_parser("lessons", help="play lessons, one a line")
    lessons.add_argument("names", nargs="*", metavar="NAME", help="all when left out")
    chosen = parser.parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        if chosen.command == "run" and chosen.json:
            sys.stdout.reconfigure(encoding="utf-8")  # JSON is UTF-8, in any terminal
        else:
            sys.stdout.reconfigure(errors="backslashreplace")  # tokens may have characters that it lacks
    try:
        return _run(chosen.file, chosen.json) if chosen.command == "run" else _lessons(chosen.names)
    except ScenarioError as error:
        print(_printable(f"pagedviz: {error}"), file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader, for example `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run(file: str, as_json: bool) -> int:
    try:
        source = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise ScenarioError(f"{file} cannot be read: {error.strerror}") from None
    try:
        parsed = scenario.parse(source)
    except ScenarioError as error:
        raise ScenarioError(f"{file}: {error}") from None

    import kernels  # torch and triton take seconds to load: only for a valid file
    from pagedviz.runtime.running.runner import Runner

    runner = Runner(parsed.cache, parsed.seed)
    start = runner.check_start()
    ok, steps = start.ok, []
    for op in parsed.ops:
        for happening, check in runner.perform(op):
            step = Step.of(happening)
            steps.append((step, happening.snapshot, check))
            ok = ok and check.ok
            if not as_json:
                shown = "not finite" if check.max_error is None else f"{check.max_error:.1e}"
                verdict = "ok    " if check.ok else "FAILED"
                line = f"{len(steps):4}  {verdict}  {shown:>10}  {step.sentence}"
                print(*map(_printable, (line, *check.broken)), sep="\n      ")
    if as_json:
        print(json.dumps({**trace.to_json(parsed, kernels.backend_name(), steps), "ok": ok}, ensure_ascii=False))
    else:
        counted = f"{len(steps)} step{'' if len(steps) == 1 else 's'}"
        print(f"{counted}, {'all verdicts good' if ok else 'NOT all verdicts good'}; {kernels.backend_name()}")
    return 0 if ok else 1


def _printable(line: str) -> str:
    """Replace what a terminal would take as a command: a token may hold any character."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)


def _lessons(names: list[str]) -> int:
    from pagedviz import lesson

    found = lesson.names()
    for name in names:
        if name not in found:
            raise ScenarioError(f"there is no lesson {name}; there is: {', '.join(found)}")

    from pagedviz.runtime import probes
    from pagedviz.runtime.running.runner import Runner

    all_ok = True
    for name in names or found:
        taught = lesson.load(name)
        runner = Runner(taught.scenario.cache, taught.scenario.seed)
        checks = [runner.check_start()]
        checks += [check for op in taught.scenario.ops for _, check in runner.perform(op)]
        worst = max((check.max_error if check.max_error is not None else float("inf")) for check in checks)
        answers = [probes.answer(question, runner.recording.at(index)) for index, question in taught.probes()]
        ok = all(check.ok for check in checks) and not any("refused" in answer for answer in answers)
        all_ok = all_ok and ok
        verdict = "ok    " if ok else "FAILED"
        print(f"{verdict}  {name:28}  {len(checks) - 1:3} steps, largest error {worst:.1e}, {checks[0].backend}")
    return 0 if all_ok else 1


if __name__ == "__main__":
    sys.exit(main())
