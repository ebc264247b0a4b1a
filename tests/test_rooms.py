"""Arrows between rooms run one way, and no room is crowded. Which room may know which is stated in `test_imports`."""

from collections import Counter
from posixpath import dirname

import pytest

from tests.rooms import arrows, files_here, levels

MOST_FILES = 14


@pytest.fixture(scope="module")
def files():
    return files_here()


def test_rooms_know_each_other_in_no_circle(files):
    known = arrows(files)
    level = levels(known)
    assert {room: others - set(level) for room, others in known.items() if room not in level} == {}


def test_no_room_has_too_many_files_side_by_side(files):
    beside = Counter(dirname(name) for name in files if not name.endswith("/__init__.py"))
    assert {room: number for room, number in beside.items() if number > MOST_FILES} == {}


def test_a_circle_is_found_between_folders_and_between_files_that_lie_beside_folders():
    folders = {"pagedviz/a/x.py": "from pagedviz.b.y import z", "pagedviz/b/y.py": "def f():\n    import pagedviz.a.x"}
    assert arrows(folders) == {"pagedviz/a/": {"pagedviz/b/"}, "pagedviz/b/": {"pagedviz/a/"}}
    assert levels(arrows(folders)) == {}
    beside = {
        "pagedviz/ui/low.js": 'import { a } from "./rooms/a.js";\n',
        "pagedviz/ui/rooms/a.js": "",
        "pagedviz/ui/high.js": 'import {\n  a,\n} from "./rooms/a.js";\nimport { b } from "./low.js";\n',
    }
    assert levels(arrows(beside)) == {"pagedviz/ui/rooms/": 0, "pagedviz/ui/low.js": 1, "pagedviz/ui/high.js": 2}
    beside["pagedviz/ui/low.js"] += 'import { c } from "./high.js";\n'
    assert levels(arrows(beside)) == {"pagedviz/ui/rooms/": 0}
