"""What the papers name exists: paths, modules that are run, and targets of make. The README is short."""

import os
import re
from functools import cache
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
PAPERS = [
    *("README.md", "CONTRIBUTING.md", "GLOSSARY.md"),
    *("benchmarks/README.md", "docs/scenario.md", "docs/architecture.md"),
]
FAMILIES = ("blocks", "windows", "drafts", "requests", "transfers")
WRITTEN_LATER = {"benchmarks/measured.json"}

PATH = re.compile(r"[\w./-]*/(?=[\s`])|[\w./-]+\.(?:py|js|md|txt|json|png|webp)\b")


def text_of(paper: str) -> str:
    return (PROJECT / paper).read_text(encoding="utf-8")


def code_of(paper: str) -> str:
    """What a paper says in code quotes, in lines that are set in, and as pictures; each followed by a space."""
    text = text_of(paper)
    set_in = re.findall(r"^    .*$", text, re.MULTILINE)
    quoted = re.findall(r"`([^`\n]+)`", re.sub(r"^    .*$", "", text, flags=re.MULTILINE))
    return "".join(f"{code} " for code in [*set_in, *quoted, *re.findall(r'(?:src|srcset)="([^"]+)"', text)])


@cache
def tree() -> frozenset[str]:
    """All files and folders of the project, each with a slash before it, folders with one behind as well."""
    found = []
    for folder, folders, files in os.walk(PROJECT):
        folders[:] = [name for name in folders if not name.startswith((".", "__"))]
        here = Path(folder).relative_to(PROJECT).as_posix()
        found += [f"/{here}/{name}" for name in (*files, *(f"{name}/" for name in folders))]
    return frozenset(found)


def exists(path: str) -> bool:
    """Whether a path ends as one of the project's does: a paper may leave out the folder that it speaks of."""
    if "FAMILY" in path:
        return all(exists(path.replace("FAMILY", family)) for family in FAMILIES)
    return any(known.endswith(f"/{path}") for known in tree())


def paths(paper: str) -> set[str]:
    return {path for path in PATH.findall(code_of(paper)) if "NN_" not in path} - WRITTEN_LATER


def test_every_paper_is_looked_at():
    found = [path for folder in (".", "docs", "benchmarks") for path in (PROJECT / folder).glob("*.md")]
    assert sorted(path.relative_to(PROJECT).as_posix() for path in found) == sorted(PAPERS)


@pytest.mark.parametrize("paper", PAPERS)
def test_every_path_that_a_paper_names_exists(paper):
    assert sorted(path for path in paths(paper) if not exists(path)) == []


def test_paths_are_found_wherever_a_paper_names_one():
    """In a line that is set in, in quotes, as a folder, as a picture, and with the family left open."""
    found = paths("README.md") | paths("CONTRIBUTING.md")
    assert found >= {"app.py", "docs/scenario.md", "kernels/", "docs/page_dark.png", "engine/log/events/FAMILY.py"}
    assert not exists("pagedviz/engine/no_such_file.py")
    assert not exists("runtime/app.py")


@pytest.mark.parametrize("paper", PAPERS)
def test_every_module_and_make_target_that_a_paper_names_exists(paper):
    code = code_of(paper)
    modules = {name.replace(".", "/") for name in re.findall(r"python -m ([\w.]+)", code)}
    assert [name for name in modules if not (exists(f"{name}.py") or exists(f"{name}/__main__.py"))] == []
    assert [name for name in re.findall(r"\bmake ([a-z-]+)", code) if f"\n{name}:" not in text_of("Makefile")] == []


def test_readme_has_at_most_150_lines():
    assert len(text_of("README.md").splitlines()) <= 150


def test_readme_has_a_row_for_each_dependency():
    required = text_of("requirements.txt") + text_of("requirements-dev.txt")
    packages = re.findall(r"^\w[\w-]*", required, re.MULTILINE)
    rows = re.findall(r"^\| (.+?) \| .+ \|$", text_of("README.md").split("## Dependencies")[1], re.MULTILINE)[1:]
    assert sorted(name.split(" (")[0] for row in rows for name in row.split(", ")) == sorted(packages)
