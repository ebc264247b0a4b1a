"""The walls inside `kernels`: which folder may import which, and no circle between files."""

from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.test_imports import PROJECT, imported

KERNELS = PROJECT / "kernels"

# What the files of a folder may import of `kernels`, beside the files of their own folder. A name without a folder is
# a file at the top: launch.py, sizes.py, bundles.py.
WALLS = {
    "checks": {"launch"},
    "reference": {"checks", "sizes"},
    "decode": {"reference", "checks", "launch", "sizes", "bundles"},
    "prefill": {"decode", "checks", "launch", "sizes", "bundles"},
    "moves": {"reference", "checks", "launch", "sizes"},
}


def module_of(path: Path) -> str:
    """The dotted name of a file below `kernels`: "decode.plan"; "decode" for the `__init__.py` of a folder."""
    parts = path.relative_to(KERNELS).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


FILES = {module_of(path): path for path in KERNELS.rglob("*.py")}


def known(path: Path) -> set[str]:
    """The files of `kernels` that a file imports, by name."""
    names = {name.removeprefix("kernels.") for name in imported(path) if name.startswith("kernels.")}
    # "decode.plan.Plan" names the file "decode.plan"; the longest name that is a file is the file that is meant.
    return {max((file for file in FILES if file and f"{name}.".startswith(f"{file}.")), key=len) for name in names}


@pytest.mark.parametrize("folder", WALLS)
def test_folder_knows_only_the_folders_it_may(folder):
    allowed = WALLS[folder] | {folder}
    files = [name for name in FILES if name.split(".")[0] == folder]
    assert files
    wrong = {(name, other) for name in files for other in known(FILES[name]) if other.split(".")[0] not in allowed}
    assert wrong == set()


def test_every_folder_has_its_walls():
    assert {path.parent.name for path in KERNELS.glob("*/__init__.py")} == set(WALLS)


def test_files_import_in_no_circle():
    TopologicalSorter({name: known(path) - {name} for name, path in FILES.items() if name}).prepare()


def test_top_files_know_no_folder():
    """Only the package's own `__init__.py` gathers what lies above the files at the top."""
    top = [name for name, path in FILES.items() if name and path.parent == KERNELS]
    assert top
    assert {name: known(FILES[name]) for name in top} == {name: set() for name in top}


def test_no_folder_has_more_than_fourteen_files():
    for folder in {path.parent for path in FILES.values()}:
        assert len(list(folder.glob("*.py"))) <= 14, folder
