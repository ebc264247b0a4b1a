"""The stage's folders know of each other one way only, and each event's code lies with its family."""

import re
from pathlib import PurePosixPath

import pytest

from pagedviz.engine.log import replay
from pagedviz.engine.log.events.base import Event
from pagedviz.ui import stage
from pagedviz.ui.stage.bundle import imports

MODULES = stage.modules()
MOST_FILES = 14

# What the modules of a folder may import, beside those of the folder itself.
MAY_IMPORT = {
    "state": set(),
    "derived": {"state"},
    "panel": {"state", "dom", "text", "icons"},
    "draw": {"panel", "derived", "state", "dom", "text", "icons"},
    "pools": {"draw", "derived", "state", "dom", "text"},
    "highlight": {"state", "dom"},
    "motion": {"state", "dom"},
    "lens": {"panel", "state", "dom", "text", "icons"},
    "dom": set(),
    "text": {"dom"},
    "icons": {"dom"},
    "keys": set(),
    "playback": set(),
    "stage": {
        "draw",
        "pools",
        "panel",
        "highlight",
        "motion",
        "lens",
        "derived",
        "state",
        "dom",
        "text",
        "keys",
        "playback",
    },
}

BY_FAMILY = ("state", "motion")  # the folders with a file a family


def room(name: str) -> str:
    """The folder of a module, or the module itself where it lies beside the folders."""
    return PurePosixPath(name).parts[0].removesuffix(".js")


def family(kind: str) -> str:
    """The family of a kind of event: the Python module that defines it."""
    return Event.kinds[kind].__module__.rpartition(".")[-1]


@pytest.mark.parametrize("name", MODULES)
def test_arrows_run_one_way(name):
    known = {room(other) for other in imports(name, MODULES[name])}
    assert known <= {room(name)} | MAY_IMPORT[room(name)]


def test_the_walls_are_no_wider_than_they_need_to_be():
    for wall, allowed in MAY_IMPORT.items():
        known = {room(other) for name in MODULES if room(name) == wall for other in imports(name, MODULES[name])}
        assert allowed <= known, f"nothing in {wall} imports {sorted(allowed - known)}"


def test_no_folder_is_long():
    for folder in [stage.HERE, *(path for path in stage.HERE.iterdir() if path.is_dir())]:
        files = [path.name for path in folder.iterdir() if path.suffix in (".js", ".css")]
        assert len(files) <= MOST_FILES, f"{folder.name} has {len(files)} files"


@pytest.mark.parametrize("name", [name for name in MODULES if room(name) in BY_FAMILY])
def test_an_event_is_handled_in_the_file_of_its_family(name):
    kinds = set(re.findall(r"\b[A-Z]\w+", re.sub(r"//.*", "", MODULES[name]))) & set(Event.kinds)
    assert {kind: family(kind) for kind in kinds} == dict.fromkeys(kinds, PurePosixPath(name).stem)


def test_the_events_that_change_the_state_in_python_change_it_in_the_stage():
    """The stage also keeps why a request waits, to write it on its card."""
    texts = [text for name, text in MODULES.items() if room(name) == "state"]
    tables = [text.partition("export const changes = {")[2].partition("\n};")[0] for text in texts]
    changing = re.findall(r"^  ([A-Z]\w+):", "\n".join(tables), flags=re.MULTILINE)
    assert set(changing) == {kind.__name__ for kind in replay.CHANGES} | {"RequestWaits"}


def test_every_event_has_an_icon_and_a_word():
    kinds = re.findall(r"^  (\w+): \{ word: \"\w", MODULES["icons.js"], flags=re.MULTILINE)
    assert set(kinds) == set(Event.kinds)
    assert len(kinds) == len(set(kinds))
