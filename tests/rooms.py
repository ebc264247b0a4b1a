"""Print the rooms: each folder of the program, how many files lie in it side by side, and which rooms it knows.

    python -m tests.rooms [--ref COMMIT]

A room stands below all rooms that know it; a circle is named at the end. With --ref, the files of that commit are read.
"""

import argparse
import ast
import re
import subprocess
from collections import Counter
from pathlib import Path
from posixpath import dirname, normpath

PROJECT = Path(__file__).parents[1]
PROGRAM = ("pagedviz/", "kernels/")
SCRIPT = re.compile(r'^import [^"]*"(\.[^"]*)";', re.MULTILINE)
Files = dict[str, str]


def files_here() -> Files:
    """The program's files, path to text."""
    found = [
        path for root in PROGRAM for path in sorted((PROJECT / root).rglob("*.*")) if path.suffix in (".py", ".js")
    ]
    return {path.relative_to(PROJECT).as_posix(): path.read_text(encoding="utf-8") for path in found}


def files_at(ref: str) -> Files:
    """The same of a commit."""
    names = _git("ls-tree", "-r", "--name-only", ref, *PROGRAM).split()
    return {name: _git("show", f"{ref}:{name}") for name in names if name.endswith((".py", ".js"))}


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=PROJECT, check=True, capture_output=True, text=True).stdout


def imported(name: str, files: Files) -> set[str]:
    """The files of the program that a file imports, wherever in it."""
    if name.endswith(".js"):
        return {normpath(f"{dirname(name)}/{path}") for path in SCRIPT.findall(files[name])} & set(files)
    words = set()
    for node in ast.walk(ast.parse(files[name])):
        if isinstance(node, ast.Import):
            words |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            words |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {file for word in words if (file := _file_of(word, files))}


def _file_of(word: str, files: Files) -> str | None:
    """The file that "package.module.name" stands for."""
    parts = word.split(".")
    for length in range(len(parts), 0, -1):
        path = "/".join(parts[:length])
        for file in (f"{path}.py", f"{path}/__init__.py"):
            if file in files:
                return file
    return None


def rooms(files: Files) -> dict[str, str]:
    """The room of each file: its folder, or the file itself where it lies beside other rooms."""
    folders = {dirname(name) for name in files}
    mixed = {folder for folder in folders if any(other.startswith(f"{folder}/") for other in folders)}
    return {name: name if dirname(name) in mixed else f"{dirname(name)}/" for name in files}


def arrows(files: Files) -> dict[str, set[str]]:
    """Which other rooms each room knows."""
    room = rooms(files)
    known: dict[str, set[str]] = {room[name]: set() for name in files}
    for name in files:
        known[room[name]] |= {room[other] for other in imported(name, files)} - {room[name]}
    return known


def levels(known: dict[str, set[str]]) -> dict[str, int]:
    """How many rooms lie one under the other below each. Rooms in a circle, and those that know one, have no level."""
    level: dict[str, int] = {}
    while ready := [room for room in known if room not in level and known[room] <= set(level)]:
        level |= {room: 1 + max((level[other] for other in known[room]), default=-1) for room in ready}
    return level


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ref")
    ref = parser.parse_args().ref
    files = files_at(ref) if ref else files_here()
    beside = Counter(dirname(name) for name in files if not name.endswith("/__init__.py"))
    print("files side by side")
    print("\n".join(f"{number:>5}  {folder}" for folder, number in sorted(beside.items())))
    known = arrows(files)
    level = levels(known)
    print("\nlevel, room, and the rooms that it knows")
    for room in sorted(level, key=lambda room: (level[room], room)):
        print(f"{level[room]:>5}  {room}" + "".join(f"\n{'':>10} {other}" for other in sorted(known[room])))
    circular = {room: sorted(known[room] - set(level)) for room in known if room not in level}
    print("\nno circle" if not circular else "\nin a circle, or knowing one")
    print("\n".join(f"{'':>5}  {room} -> {', '.join(others)}" for room, others in circular.items()))


if __name__ == "__main__":
    main()
