"""Our own source, as the screen shows it: the function around a line."""

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[2]


@dataclass(frozen=True)
class SourceLine:
    """A line of our own source: the one that reported an event or raised a refusal."""

    file: str  # relative to the project
    line: int


@cache
def excerpt(source: SourceLine) -> dict[str, Any]:
    """The function that contains a line: {"file", "name", "first_line", "lines", "statements"}, lines without their
    indent. `statements` has the last line of each statement that goes over several, by its first line."""
    text = (PROJECT / source.file).read_text(encoding="utf-8")
    around, name = None, ""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.lineno <= source.line <= (node.end_lineno or 0):
            around, name = node, f"{name}.{node.name}" if name else node.name
    all_lines = text.splitlines()
    first, last = (around.lineno, around.end_lineno or 0) if around else (1, len(all_lines))
    lines = all_lines[first - 1 : last]
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    statements = {
        str(node.lineno): node.end_lineno
        for node in ast.walk(around or tree)
        if isinstance(node, ast.Expr | ast.Assign | ast.Return | ast.Raise)
        if node.end_lineno is not None and node.end_lineno > node.lineno
    }
    return {
        "file": source.file,
        "name": name,
        "first_line": first,
        "lines": [line[indent:] for line in lines],
        "statements": statements,
    }
