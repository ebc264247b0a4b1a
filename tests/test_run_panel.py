"""What a browser sends is material to judge: a lens that makes no sense is not asked for."""

import pytest

pytest.importorskip("streamlit", reason="streamlit is not installed")

from pagedviz.probe import Lens
from pagedviz.ui.run_panel import lens_of

ASKED = {"run": "03-165", "step": 4, "seq_id": "A", "layer": 1, "head": 0, "num_splits": 2}


def test_what_the_stage_sends_is_a_probe():
    assert lens_of(ASKED) == Lens("A", 1, 0, 2)


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("value", [None, True, 1.0, -1, float("nan"), ["A"], {"A": 1}])
def test_anything_else_is_nothing(name, value):
    assert lens_of({**ASKED, name: value}) is None


@pytest.mark.parametrize(
    "asked", [None, "A", 7, [], {}, *({k: ASKED[k] for k in ASKED if k != name} for name in ASKED)]
)
def test_what_is_missing_is_nothing(asked):
    assert lens_of(asked) is None
