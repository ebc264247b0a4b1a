"""Skips what this machine cannot run, and says at the end what that was.

Imports neither streamlit (a GPU machine need not have it) nor triton (`kernels` must be imported before it).
"""

import importlib.util
import os
from collections import Counter
from functools import cache

import pytest

from tests import chromium

pytest.register_assert_rewrite("tests.engine.engine_cases", "tests.kernel_cases")

# Streams share a GPU's hardware queues, eight unless told otherwise: one that a test holds would hold others too.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")

NEEDED_BY_BROWSER_TESTS = [name for name in ("streamlit", "playwright") if importlib.util.find_spec(name) is None]
collect_ignore = ["browser"] if NEEDED_BY_BROWSER_TESTS else []


@cache
def missing(marker: str) -> str:
    """What this machine lacks for the tests with a marker; empty when it can run them."""
    if marker == "gpu":
        from kernels import launch

        return "" if launch.COMPILED else "no NVIDIA GPU with compiled Triton here"
    return "" if chromium.find() else "no Chromium here; `python -m tests.chromium` as root installs it"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for marker in ("gpu", "browser"):
            if item.get_closest_marker(marker) and missing(marker):
                item.add_marker(pytest.mark.skip(reason=f"{marker}: {missing(marker)}"), append=False)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Even with -q: how many tests did not run, and why."""
    stats = terminalreporter.stats
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in stats.get("skipped", []))
    if stats.get("deselected"):
        reasons["deselected by -m or -k"] = len(stats["deselected"])
    if not reasons and not collect_ignore:
        return
    terminalreporter.section("what did not run")
    for reason, count in sorted(reasons.items()):
        terminalreporter.line(f"{count:4} {'test' if count == 1 else 'tests'}: {reason}")
    if collect_ignore:
        terminalreporter.line(f"     all of tests/browser: {', '.join(NEEDED_BY_BROWSER_TESTS)} not installed")
