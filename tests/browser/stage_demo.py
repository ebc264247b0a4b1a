"""Runs for a page with nothing but the stage on it, and that page in Streamlit.

`streamlit run tests/browser/stage_demo.py`, then ?case=lesson and so on. Most tests show the runs on `bare_page`.

The blocks and events are the engine's own; the verdicts are made up here, because this page tests how they are drawn.
"""

import ast
import random
import sys
from collections.abc import Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from pagedviz.engine.log.events.base import Event  # noqa: E402
from pagedviz.engine.manager.block_manager import BlockManager  # noqa: E402
from pagedviz.engine.policies.profiles import PROFILES  # noqa: E402
from pagedviz.run.play import Happening, Player, planner  # noqa: E402
from pagedviz.scenario.operations import Add, Append, Fork, Free, Op, Reload, Spill  # noqa: E402
from pagedviz.scenario.scenario import Scenario, from_json  # noqa: E402
from pagedviz.scenario.settings import CacheConfig  # noqa: E402
from tests.browser import lens_answers, serving_cases  # noqa: E402

Data = dict[str, Any]
BACKEND = "Triton interpreter, CPU"
PROMPT = ("Four", "score", "and", "seven", "years", "ago", "our")
ODD_TOKENS = ("<img src=x onerror=window.hacked=1>", "👩‍👩‍👧", "שלום", "مرحبا", "\n", 128001, "donaudampfschifffahrt")

LESSON_OPS: tuple[Op, ...] = (
    Add("A", PROMPT),
    Fork("A", "B"),
    Append("B", ("mothers",)),
    Append("A", ("fathers",)),
    Spill("B"),
    Append("A", ("brought", "forth")),
    Reload("B"),
    Add("C", tuple(str(n) for n in range(40))),  # refused: it needs more blocks than are free
    Free("A"),
)


@cache
def _functions(file: str) -> list[tuple[int, int, str]]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return [(node.lineno, node.end_lineno or node.lineno, node.name) for node in found]


def _source(happening: Happening, excerpts: list[Data]) -> Data:
    file, line = happening.source.file, happening.source.line
    first, last, name = min((f for f in _functions(file) if f[0] <= line <= f[1]), key=lambda f: f[1] - f[0])
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()[first - 1 : last]
    excerpt = {"file": file, "name": name, "first_line": first, "lines": lines, "statements": {}}
    if excerpt not in excerpts:
        excerpts.append(excerpt)
    return {"excerpt": excerpts.index(excerpt), "line": line}


def _formula(event: Event, block_size: int) -> list[str]:
    if event.kind != "TokenWritten":
        return []
    e = vars(event)
    return [
        f"slot = table[{e['position']} // {block_size}] × {block_size} + {e['position']} % {block_size}",
        f"= {e['block']} × {block_size} + {e['offset']}",
        f"= {e['slot']}",
    ]


def check(happening: Happening | None, **changes: Any) -> Data:
    """A good verdict for the state after `happening`."""
    tables = happening.snapshot.block_tables if happening else {}
    compared = sum(bool(happening.snapshot.tokens[seq]) for seq in tables) if happening else 0
    weights = {}
    for seq, row in tables.items():
        raw = [1 + (7 * j + len(seq)) % 5 for j in range(len(row))]
        weights[seq] = [value / sum(raw) for value in raw]
    good = {
        "max_error": 5.9e-08 if compared else 0.0,
        "tolerance": 1e-05,
        "ok": True,
        "invariants": [],
        "num_invariants": 8,
    }
    good |= {"compared": compared, "num_layers": 2, "backend": BACKEND, "ms": 61.2, "weights": weights}
    return good | {"failed_sequences": []} | changes


def play(config: CacheConfig, ops: Iterable[Op]) -> tuple[Player, list[Happening]]:
    """The engine plays the operations; each happening carries the manager's own state after it."""
    player = planner(config, seed=3)
    return player, [happening for op in ops for happening in player.perform(op)]


def run_of(name: str, config: CacheConfig, ops: Iterable[Op], **changes: Any) -> Data:
    """The data of a run that the engine plays, all checked."""
    return data_of(name, config, *play(config, ops), **changes)


def data_of(name: str, config: CacheConfig, player: Player, happenings: list[Happening], **changes: Any) -> Data:
    excerpts: list[Data] = []
    steps = [
        {
            "event": h.event.to_json(),
            "sentence": h.refused["sentence"] if h.refused else h.event.sentence,
            "refused": h.refused,
            "op": h.op_index,
            "op_text": h.op,
            "formula": _formula(h.event, config.block_size),
            "source": _source(h, excerpts),
        }
        for h in happenings
    ]
    data = {"run": name, "step": 0, "goto": None, "base": player.base.to_json(), "steps": steps, "excerpts": excerpts}
    data |= {
        "checks": [check(h) for h in (None, *happenings)],
        "pauses": [],
        "veil": None,
        "backend": BACKEND,
        "status": "",
    }
    return data | changes


def lesson(**changes: Any) -> Data:
    """Copy-on-write, spill, reload, a refusal and a free, on 12 blocks of 4 tokens in scrambled order."""
    return run_of("lesson", CacheConfig(scatter=True), LESSON_OPS, **changes)


CACHED_OPS: tuple[Op, ...] = (
    Add("A", tuple("abcdefghi")),
    Add("B", tuple("abcdefgh")),
    Free("A"),
    Free("B"),
    Add("C", tuple("abcdefgz")),
    Add("D", tuple("0123456789xyzuvw")),
)
CACHED = CacheConfig(num_blocks=6, host_blocks=0, scatter=True, prefix_caching=True)


def cached() -> Data:
    """Prefix caching in blocks of 4: hits, hashes, a collapse, evictions."""
    return run_of("cached", CACHED, CACHED_OPS)


def wide() -> Data:
    """A pool of a hundred blocks, drawn as one canvas, of which two free ones may be hit."""
    config = CacheConfig(num_blocks=100, scatter=True, prefix_caching=True)
    return run_of("wide", config, (Add("A", tuple("abcdefghi")), Free("A")))


def salted() -> Data:
    """The same prompt three times, and it is hit once: the second has another salt."""
    ops = (Add("A", tuple("abcde"), "red"), Add("B", tuple("abcde"), "blue"), Add("C", tuple("abcde"), "red"))
    return run_of("salted", CACHED, ops)


SAYS = ("brought forth on this continent a new nation", "in order to form a more perfect union", "he said")
SUBMITTED = (
    {"submit": "A", "text": "Four score and seven years ago our fathers", "says": SAYS[0]},
    {"submit": "B", "text": "We the people of the United States", "says": SAYS[1], "priority": 1},
    {"step": 2},
    {"submit": "C", "text": "Four score and seven years ago", "says": SAYS[2]},
    {"step": 4},
    {"submit": "D", "text": "a house divided against itself cannot stand , he said", "says": "so it was"},
    {"step": 20},
)
SERVED: dict[str, tuple[Data, tuple[Data, ...]]] = {
    # continuous batching with chunks and hits, until B has to go back to the queue
    "served": ({"profile": "vllm-v1", "num_blocks": 8, "scheduler": {"max_num_batched_tokens": 10}}, SUBMITTED),
    # B's blocks go to the host, and come back
    "swapped": (
        {"profile": "vllm-v0", "num_blocks": 7, "host_blocks": 6, "policies": {"preemption": "swap"}},
        SUBMITTED,
    ),
    # two prompts that begin alike come in one step: B names blocks that A's part of the launch fills
    "same": (
        {"profile": "vllm-v1", "num_blocks": 12, "scheduler": {"max_num_batched_tokens": 24}},
        (
            {"submit": "A", "text": "a b c d e f g h i", "says": "j k"},
            {"submit": "B", "text": "a b c d e f g h x y", "says": "z z"},
            {"step": 3},
        ),
    ),
    # nobody comes in before the whole batch has finished
    "static": (
        {"num_blocks": 12, "scheduler": {"max_num_seqs": 3}, "policies": {"batching": "static_batches"}},
        (
            {"submit": "A", "text": "a b c", "says": "d"},
            {"submit": "B", "text": "e f", "says": "g h i j"},
            {"submit": "C", "text": "k l m n", "says": "o p"},
            {"submit": "D", "text": "q r", "says": "s t"},
            {"step": 9},
        ),
    ),
}


def scenario_of(name: str) -> Scenario:
    cache, ops = SERVED[name]
    usual = {"block_size": 4, "host_blocks": 0, "scatter": True, "prefix_caching": cache.get("profile") == "vllm-v1"}
    return from_json({"pagedviz": 1, "cache": usual | cache, "ops": list(ops)})


def served(name: str) -> Data:
    """Requests, and the steps of the engine that serve them."""
    scenario = scenario_of(name)
    seats = scenario.cache.scheduler.max_num_seqs
    return run_of(name, scenario.cache, scenario.ops, cache={"max_num_seqs": seats})


def serving(name: str) -> Data:
    """What a real server has: windows, groups, drafts, a host tier, samples and beams."""
    config = serving_cases.scenario_of(name).cache
    return data_of(name, config, *serving_cases.played(name), cache={"max_num_seqs": config.scheduler.max_num_seqs})


def odd() -> Data:
    """Tokens that are markup, emoji, right-to-left, white space, numbers and long words."""
    ops = (Add("A", ODD_TOKENS), Fork("A", "אב"), Append("אב", ("<b>bold</b>",)))
    return run_of("odd", CacheConfig(scatter=True), ops)


def v1() -> Data:
    """vLLM v1: block 0 is the null block; blocks of 16 tokens."""
    tokens = tuple(f"t{n}" for n in range(37))
    return run_of(
        "v1", CacheConfig(profile="vllm-v1", block_size=16, num_blocks=10, scatter=True), (Add("A", tokens), Free("A"))
    )


def failed() -> Data:
    """Step 5 read a slot that nobody wrote; step 7 broke an invariant."""
    data = lesson(run="failed")
    data["checks"][5] |= {"ok": False, "max_error": None, "failed_sequences": ["A"]}
    broken = "block 7 is in the free queue and in A's table"
    data["checks"][7] |= {"ok": False, "max_error": 0.031, "invariants": [broken], "failed_sequences": ["A"]}
    return data


def big(num_sequences: int = 256, num_blocks: int = 8192, num_steps: int = 300) -> Data:
    """A server's pool: 256 sequences, 8192 blocks, 300 steps; the first write is of 40 tokens."""
    rng = random.Random(1)
    free = list(range(num_blocks))
    rng.shuffle(free)
    events: list[Event] = []
    manager = BlockManager(
        block_size=4,
        num_blocks=num_blocks,
        free_blocks=free,
        host_blocks=0,
        profile=PROFILES["vllm-v0"],
        auto_spill=False,
        report=events.append,
    )
    names = [f"s{n}" for n in range(num_sequences)]
    for name in names:
        manager.add(name, list(range(rng.randrange(40, 120))))
    base = manager.snapshot().to_json()
    events.clear()
    manager.append(names[0], list(range(40)))
    while len(events) < num_steps:
        manager.append(rng.choice(names), [len(events)])
        if len(events) % 50 < 2:
            names.append(f"f{len(events)}")
            manager.fork(rng.choice(names[:num_sequences]), names[-1])
    steps = [
        {
            "event": e.to_json(),
            "sentence": e.sentence,
            "refused": None,
            "op": k,
            "op_text": e.kind,
            "formula": [],
            "source": None,
        }
        for k, e in enumerate(events[:num_steps])
    ]
    data = {"run": "big", "step": 0, "goto": None, "base": base, "steps": steps, "excerpts": [], "backend": BACKEND}
    return data | {"checks": [None] * (num_steps + 1), "pauses": [], "veil": None, "status": ""}


def long() -> Data:
    """Two thousand steps and two."""
    config = CacheConfig(num_blocks=64, block_size=16, scatter=True)
    ops = [op for n in range(154) for op in (Add("A", tuple(range(n, n + 76))), Free("A"))]
    return run_of("long", config, ops)


def three() -> Data:
    """A prompt of three tokens, in one block."""
    return run_of("three", CacheConfig(scatter=True), (Add("A", PROMPT[:3]),))


def pauses() -> Data:
    """Play stops at step 4, and what comes after step 6 is not told yet."""
    return lesson(pauses=[{"step": 4, "text": "A question on the left comes first."}], veil=6)


def pending() -> Data:
    """The lesson before any verdict has come."""
    data = lesson()
    return data | {"checks": [None] * len(data["checks"])}


def wished() -> Data:
    """A wish that was made before the stage came onto the page."""
    return lesson(goto={"nonce": 1, "step": 6, "play": True})


CASES = {
    "lesson": lesson,
    "three": three,
    "cached": cached,
    "salted": salted,
    "wide": wide,
    "odd": odd,
    "v1": v1,
    "failed": failed,
    "pauses": pauses,
    "pending": pending,
    "wished": wished,
    "big": big,
    **{name: partial(served, name) for name in SERVED},
    **{name: partial(serving, name) for name in serving_cases.CASES},
    "long": long,
}


def case_data(case: str) -> Data:
    """A case's data, with the sizes of the model that the lens asks."""
    data = CASES[case]()
    return data | {"cache": lens_answers.CACHE | data.get("cache", {}), "lens": None}


def page() -> None:
    """The page of one case; its buttons change the data as the app would."""
    import streamlit as st

    from pagedviz.ui.stage import stage

    st.set_page_config(layout="wide", page_title="stage demo")
    name = st.query_params.get("case", "lesson")
    state = st.session_state
    if "data" not in state:
        state.data = case_data("lesson" if name == "two" else name) | {"step": int(st.query_params.get("step", 0))}
        state.full = list(state.data["steps"])
    data = state.data
    st.html("<style>.stMainBlockContainer { padding: 3rem 1.5rem 0 }</style>")
    left, right = st.columns([0.27, 0.73], gap="medium")
    with left:
        st.subheader("Copy-on-write")
        st.text_input("Answer", key="answer")
        if st.button("check all"):
            data["checks"] = lesson()["checks"]
        if st.button("undo"):
            data["steps"] = state.full[:10]
        if st.button("redo"):
            data["steps"] = state.full
        if st.button("play to 6"):
            data["goto"] = {"nonce": (data["goto"] or {"nonce": 0})["nonce"] + 1, "step": 6, "play": True}
        if st.button("jump to 9"):
            data["goto"] = {"nonce": (data["goto"] or {"nonce": 0})["nonce"] + 1, "step": 9, "play": False}
        if st.button("new run"):
            data |= {"run": data["run"] + "+", "step": 2}
        hidden = st.checkbox("hide")
        withheld = st.checkbox("the kernel is busy")
        late = st.checkbox("reply to the step before")
    asked = (state.get("stage") or {}).get("lens")
    left.write(f"The lens asks: {asked}")
    found = None if withheld or not asked else lens_answers.answer(data, asked)
    data["lens"] = asked and {"asked": asked, "answer": found}
    if asked and late:
        data["lens"]["asked"] = asked | {"step": asked["step"] - 1}
    with right:
        shown = {} if hidden else stage(data, key="stage")
        if name == "two":
            stage(lesson(run="second"), key="second")
    left.write(f"Python heard: {(shown.get('at') or {}).get('step')}")


if __name__ == "__main__":
    page()
