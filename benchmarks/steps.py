"""How long a step takes to compute and check: every lesson, on this machine's backend.

    python -m benchmarks.steps [--rounds 5]

A step is the model's rows, the stores, one launch of attention a layer over all resident sequences, float64 dense
attention over the log, the comparison of every byte, and the sweep for poison. The first round compiles and is left
out.
"""

import argparse
import platform
import statistics
from importlib.metadata import version

import kernels
from pagedviz import lesson
from pagedviz.run.trace import Check
from pagedviz.runtime.running.runner import Runner


def play(taught: lesson.Lesson) -> list[Check]:
    runner = Runner(taught.scenario.cache, taught.scenario.seed)
    return [check for op in taught.scenario.ops for _, check in runner.perform(op)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    print(
        f"{kernels.backend_name()}; torch {version('torch')}, triton {version('triton')}, "
        f"Python {platform.python_version()}"
    )
    print(f"{'lesson':32} {'steps':>5} {'median ms':>10} {'p95 ms':>8} {'largest error':>14}  verdicts")
    for name in lesson.names():
        taught = lesson.load(name)
        play(taught)
        checks = [check for _ in range(rounds) for check in play(taught)]
        times = sorted(check.milliseconds for check in checks)
        worst = max(float("inf") if check.max_error is None else check.max_error for check in checks)
        p95 = times[int(len(times) * 0.95)]
        print(
            f"{name:32} {len(checks) // rounds:5} {statistics.median(times):10.2f} {p95:8.2f} "
            f"{worst:14.1e}  {'all ok' if all(check.ok for check in checks) else 'FAILED'}"
        )


if __name__ == "__main__":
    main()
