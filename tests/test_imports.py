"""The arrows run one way: kernels <- runtime; engine <- runtime, figures, lessons <- ui <- app.py."""

import ast
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent
PLAIN_MODULES = {f"pagedviz.{path.stem}" for path in (PROJECT / "pagedviz").glob("[!_]*.py")}

# What the files of each folder may import, beside the standard library. A name stands for all that is inside it.
MAY_IMPORT = {
    "kernels/**/*.py": {"kernels", "torch", "triton"},
    "pagedviz/engine/*.py": {"pagedviz.engine"},
    "pagedviz/[!_]*.py": {"pagedviz.engine", "numpy", "regex", "pagedviz.runtime.client", *PLAIN_MODULES},
    "pagedviz/__main__.py": {"pagedviz.runtime.running.runner", "pagedviz.runtime.probes", "kernels", *PLAIN_MODULES},
    "pagedviz/runtime/**/*.py": {"pagedviz.runtime", "pagedviz.engine", "kernels", "torch", *PLAIN_MODULES},
    "pagedviz/figures/*.py": {"pagedviz.figures", "pagedviz.engine", "plotly", *PLAIN_MODULES},
    "pagedviz/ui/**/*.py": {
        *("pagedviz.ui", "pagedviz.figures", "pagedviz.engine", "pagedviz.runtime.client", *PLAIN_MODULES),
        *("streamlit", "plotly"),
    },
    "lessons/*.py": {"pagedviz.lesson", "pagedviz.probe", "pagedviz.scenario", "pagedviz.engine"},
    "app.py": {"pagedviz.ui", "streamlit"},
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


def inside(name: str, packages: set[str]) -> bool:
    return any(f"{name}.".startswith(f"{package}.") for package in packages)


@pytest.mark.parametrize("files", MAY_IMPORT)
def test_arrows_run_one_way(files):
    paths = sorted(PROJECT.glob(files))
    assert paths
    wrong = {(path.name, name) for path in paths for name in imported(path) if not inside(name, MAY_IMPORT[files])}
    assert wrong == set()


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
    assert unseen <= {"pagedviz/__init__.py", "pagedviz/ui/__init__.py", "lessons/__init__.py"}
