"""The walls: which room may know which. Arrows run one way, from the ground up; `python -m tests.rooms` draws them."""

import ast
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent
ENGINE, RUNTIME, UI = "pagedviz.engine", "pagedviz.runtime", "pagedviz.ui"
EVENTS = f"{ENGINE}.log.events"
BASE = f"{EVENTS}.base"
TENSORS = ("kernels", "torch")

# What the files of each room may import beside their neighbours and the standard library. A name stands for all that
# is inside it, so the shortest list is the strongest wall.
MAY_IMPORT: dict[str, set[str]] = {
    "kernels/**/*.py": {"kernels", "torch", "triton"},  # the walls inside are in tests/kernels/test_walls.py
    # The engine, from the ground up.
    "pagedviz/engine/policies/*.py": set(),
    "pagedviz/engine/log/text/*.py": set(),
    "pagedviz/engine/log/events/*.py": {f"{ENGINE}.log.text"},
    "pagedviz/engine/log/*.py": {f"{ENGINE}.log.text", EVENTS},
    "pagedviz/engine/log/replay/*.py": {EVENTS, f"{ENGINE}.log.snapshot", f"{ENGINE}.log.host_snapshot"},
    "pagedviz/engine/log/invariants/*.py": {f"{ENGINE}.log", f"{ENGINE}.policies"},
    "pagedviz/engine/blocks/*.py": {f"{ENGINE}.log", f"{ENGINE}.policies"},
    "pagedviz/engine/blocks/changes/*.py": {f"{ENGINE}.blocks", EVENTS, f"{ENGINE}.policies"},
    "pagedviz/engine/host_tier/*.py": {f"{ENGINE}.blocks", f"{ENGINE}.log", f"{ENGINE}.policies"},
    "pagedviz/engine/manager/*.py": {
        *(f"{ENGINE}.{room}" for room in ("blocks", "host_tier", "log", "policies")),
    },
    "pagedviz/engine/requests/*.py": {f"{ENGINE}.manager", f"{ENGINE}.log", f"{ENGINE}.policies"},
    "pagedviz/engine/radix/*.py": {BASE, f"{ENGINE}.log.errors", f"{ENGINE}.log.text"},
    # What a user can do, the model's words, and a run.
    "pagedviz/scenario/*.py": {f"{ENGINE}.policies", BASE, "regex"},
    "pagedviz/model/*.py": {"pagedviz.scenario", BASE, f"{ENGINE}.requests.beams", "numpy"},
    "pagedviz/run/*.py": {"pagedviz.scenario", "pagedviz.model", ENGINE},
    "pagedviz/formulas/*.py": {"pagedviz.scenario", f"{ENGINE}.log", f"{ENGINE}.policies"},
    "pagedviz/probe.py": {BASE},
    "pagedviz/measurements.py": set(),
    "pagedviz/lesson.py": {"pagedviz.probe", "pagedviz.run", "pagedviz.scenario", "pagedviz.model", ENGINE},
    "pagedviz/run_view.py": {
        *("pagedviz.formulas", "pagedviz.run", "pagedviz.model", "pagedviz.scenario", f"{ENGINE}.log"),
        f"{RUNTIME}.client",
    },
    "pagedviz/figures/*.py": {"pagedviz.run", "pagedviz.measurements", "plotly"},
    # Tensors. `client` is what the app's process has of them: it imports none.
    "pagedviz/runtime/client.py": {"pagedviz.probe", "pagedviz.run", "pagedviz.scenario"},
    "pagedviz/runtime/cache/*.py": {*TENSORS, f"{ENGINE}.log", "pagedviz.scenario"},
    "pagedviz/runtime/computing/*.py": {
        *(*TENSORS, f"{ENGINE}.log", f"{ENGINE}.policies", "pagedviz.scenario", "pagedviz.model"),
    },
    "pagedviz/runtime/checking/*.py": {
        *(*TENSORS, f"{ENGINE}.log", "pagedviz.scenario"),
        *(f"{RUNTIME}.{room}" for room in ("cache", "computing")),
    },
    "pagedviz/runtime/running/*.py": {
        *(*TENSORS, f"{ENGINE}.log", "pagedviz.scenario", "pagedviz.model", "pagedviz.run"),
        *(f"{RUNTIME}.{room}" for room in ("cache", "computing", "checking")),
    },
    "pagedviz/runtime/measuring/*.py": {*TENSORS, f"{RUNTIME}.cache"},
    "pagedviz/runtime/probes/*.py": {*TENSORS, "pagedviz.probe", "pagedviz.scenario", f"{RUNTIME}.running"},
    "pagedviz/runtime/probes/attention/*.py": {
        *(*TENSORS, "pagedviz.scenario", "pagedviz.probe", "pagedviz.run.source"),
        *(f"{RUNTIME}.{room}" for room in ("computing", "checking", "running")),
    },
    "pagedviz/runtime/probes/what_if/*.py": {
        *(*TENSORS, ENGINE, "pagedviz.scenario", "pagedviz.probe", "pagedviz.run"),
        *(f"{RUNTIME}.{room}" for room in ("checking", "running", "measuring")),
    },
    "pagedviz/runtime/probes/measured/*.py": {
        *(*TENSORS, "pagedviz.probe", f"{RUNTIME}.measuring", f"{RUNTIME}.running"),
    },
    "pagedviz/runtime/worker.py": {
        *(*TENSORS, "pagedviz.probe", "pagedviz.run", "pagedviz.scenario", f"{RUNTIME}.probes", f"{RUNTIME}.running"),
    },
    # The screen.
    "pagedviz/ui/elements/*.py": {"pagedviz.probe.Answer", "plotly", "streamlit"},
    "pagedviz/ui/links/*.py": {"streamlit"},
    "pagedviz/ui/stage/*.py": {"streamlit"},
    "pagedviz/ui/findings/**/*.py": {
        *(f"{UI}.findings", f"{UI}.elements", "pagedviz.figures", "pagedviz.probe", "pagedviz.measurements"),
        *(f"{ENGINE}.policies.windows", "streamlit"),
    },
    "pagedviz/ui/address.py": {"pagedviz.scenario", "streamlit"},
    "pagedviz/ui/compute.py": {
        *("pagedviz.probe", "pagedviz.run_view", f"{RUNTIME}.client", "pagedviz.scenario", "streamlit"),
    },
    "pagedviz/ui/run_panel.py": {
        *(f"{UI}.compute", f"{UI}.elements", f"{UI}.stage", "pagedviz.figures", "pagedviz.probe", "pagedviz.run"),
        *("pagedviz.run_view", f"{RUNTIME}.client", f"{ENGINE}.log.snapshot", "streamlit"),
    },
    "pagedviz/ui/sandbox/*.py": {
        *(f"{UI}.run_panel", f"{UI}.elements", f"{UI}.address", "pagedviz.run", "pagedviz.scenario"),
        *(f"{ENGINE}.log", f"{ENGINE}.policies.profiles", "streamlit"),
    },
    "pagedviz/ui/pages/*.py": {
        *(f"{UI}.sandbox", f"{UI}.findings", f"{UI}.run_panel", f"{UI}.compute", f"{UI}.address", f"{UI}.elements"),
        *(f"{UI}.links", "pagedviz.figures", "pagedviz.lesson", "pagedviz.measurements", "pagedviz.probe"),
        *("pagedviz.run", "pagedviz.run_view", f"{RUNTIME}.client", "pagedviz.scenario", f"{ENGINE}.log.snapshot"),
        "streamlit",
    },
    "pagedviz/ui/router.py": {
        *(f"{UI}.pages", f"{UI}.compute", f"{UI}.elements", f"{UI}.links", "pagedviz.lesson", "streamlit"),
    },
    # What starts it all.
    "pagedviz/__main__.py": {
        *("kernels", "pagedviz.lesson", "pagedviz.run", "pagedviz.scenario", f"{RUNTIME}.probes", f"{RUNTIME}.running"),
    },
    "lessons/*.py": {"pagedviz.lesson", "pagedviz.probe", "pagedviz.scenario", ENGINE},
    "app.py": {UI, "streamlit"},
}


def imported(path: Path) -> set[str]:
    """Full names of all that a file imports, wherever in the file; relative imports are not used here."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in names if name.split(".")[0] not in sys.stdlib_module_names}


def _module(path: Path) -> str:
    return ".".join(path.parts)


def inside(name: str, packages: set[str]) -> bool:
    return any(f"{name}.".startswith(f"{package}.") for package in packages)


@pytest.mark.parametrize("files", MAY_IMPORT)
def test_arrows_run_one_way(files):
    paths = sorted(PROJECT.glob(files))
    assert paths
    neighbours = set() if files.endswith("**/*.py") or "*" not in files else {_module(Path(files).parent)}
    allowed = MAY_IMPORT[files] | neighbours
    wrong = {(path.name, name) for path in paths for name in imported(path) if not inside(name, allowed)}
    assert wrong == set()
    # A wall that could stand closer is no wall.
    needed = {name for path in paths for name in imported(path)}
    assert {name for name in MAY_IMPORT[files] if not any(inside(used, {name}) for used in needed)} == set()


@pytest.mark.parametrize("file", ["pagedviz/__main__.py", "pagedviz/runtime/client.py"])
def test_torch_is_not_loaded_before_it_is_needed(file):
    """A wrong file is refused at once, and the app's process is a client only."""
    tree = ast.parse((PROJECT / file).read_text(encoding="utf-8"))
    at_the_top = ast.unparse([node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)])
    assert not any(name in at_the_top for name in ("torch", "kernels", "runner", "worker", "kv_", "toy_model"))


def test_every_file_of_the_program_is_looked_at():
    looked_at = {path for files in MAY_IMPORT for path in PROJECT.glob(files)}
    of_the_program = {path for root in ("pagedviz", "kernels", "lessons") for path in (PROJECT / root).rglob("*.py")}
    unseen = {path.relative_to(PROJECT).as_posix() for path in of_the_program - looked_at}
    assert all(path.endswith("/__init__.py") for path in unseen)
    assert [path for path in unseen if imported(PROJECT / path)] == []
