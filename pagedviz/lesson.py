"""What a lesson is: a generator. Its pages explain, and the code between two pages makes the run's next steps.

    def lesson(run):
        yield Page("Two words", "...")          # about the empty cache
        run.add("A", "Four score")               # happens next, step by step
        yield Page("They landed", f"... block {run.state.block_tables['A'][0]} ...")

A page's question is asked before the code behind it runs. Its answer is computed from the state after that code.
Nothing here draws. The app and the command line both play what `load` returns.
"""

import importlib
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pagedviz.engine.log.events.base import Event, Token
from pagedviz.engine.log.snapshot import Snapshot
from pagedviz.engine.requests.beams import Candidates
from pagedviz.model import drafter, sampling
from pagedviz.model.dense_model import dense_model
from pagedviz.probe import Answer, Probe
from pagedviz.run.play import Happening, planner
from pagedviz.scenario import scenario
from pagedviz.scenario.json_values import tokens_from_text
from pagedviz.scenario.operations import (
    Abort,
    Add,
    Append,
    Draft,
    EngineSteps,
    Fork,
    Free,
    Generate,
    Op,
    Reload,
    Spill,
    Submit,
    Verify,
)
from pagedviz.scenario.scenario import Scenario
from pagedviz.scenario.settings import CacheConfig

LESSONS = Path(__file__).parent.parent / "lessons"


@dataclass(frozen=True)
class After:
    """What a question is graded from: the state before it, the events that followed, the state after them, and, if the
    question has a probe, the probe's answer at that state (`found`)."""

    before: Snapshot
    events: tuple[Event, ...]
    after: Snapshot
    found: Answer = field(default_factory=dict)

    def first(self, kind: str) -> Any:
        """The first event of a kind, or None."""
        return next((event for event in self.events if event.kind == kind), None)


@dataclass(frozen=True)
class Question:
    """A prediction that the learner enters before the next step runs.

    `answer` computes the right answer from what follows; `explain` says why, with the actual numbers. With `choices`
    the learner picks one, else types a whole number of `unit`. A `probe` is answered first, at the state at which the
    question is graded: its answer is `found`.
    """

    text: str
    answer: Callable[[After], int | str]
    explain: Callable[[After], str]
    choices: tuple[str, ...] = ()
    unit: str = ""
    probe: Probe | None = None


@dataclass(frozen=True)
class Page:
    """The text at one state of the run: one claim, in Markdown. The answer to `shows` stands below the stage: for that
    state, or for each state until the next page."""

    title: str
    text: str
    question: Question | None = None
    shows: Probe | None = None


@dataclass(frozen=True)
class PlacedPage:
    """A page that is shown from state `step` on, until the next page. Its question is graded at state `graded_at`."""

    page: Page
    step: int
    graded_at: int
    outcome: After

    def graded(self, found: Answer | None = None) -> tuple[int | str, str]:
        """The right answer and the reason; `found` is the answer of the question's probe, if it has one."""
        question = self.page.question
        assert question is not None
        outcome = replace(self.outcome, found=found or {})
        return question.answer(outcome), question.explain(outcome)


@dataclass(frozen=True)
class Lesson:
    """A lesson with its seed filled in: a scenario, and the pages beside it."""

    name: str
    title: str
    claim: str
    scenario: Scenario
    pages: tuple[PlacedPage, ...]

    def probes(self) -> list[tuple[int, Probe]]:
        """All probes of the pages, each with the index of the state that it is about."""
        found = [(placed.step, placed.page.shows) for placed in self.pages]
        found += [(placed.graded_at, placed.page.question.probe) for placed in self.pages if placed.page.question]
        return [(index, probe) for index, probe in found if probe is not None]

    def page_at(self, step: int) -> PlacedPage:
        """The page shown at a step: the last one up to there, or the first page before its own step."""
        return next((placed for placed in reversed(self.pages) if placed.step <= step), self.pages[0])


class Run:
    """The run that a lesson makes: each call is one operation of the scenario, played at once on a real block manager.

    `until` stops in the middle of an operation: after its next event of that kind. The rest happens with `go_on`, or
    before the next operation.
    """

    def __init__(self, cache: CacheConfig, seed: int) -> None:
        self.cache, self.seed = cache, seed
        self.random = random.Random(seed)  # for choices that depend on the seed
        self.ops: list[Op] = []
        self.events: list[Event] = []
        self._player = planner(cache, seed)
        self.state = self._player.base
        self._happening: Iterator[Happening] = iter(())

    def add(self, seq_id: str, text: str | Sequence[Token], salt: str | None = None) -> None:
        self._do(Add(seq_id, _tokens(text), salt))

    def append(self, seq_id: str, text: str | Sequence[Token]) -> None:
        self._do(Append(seq_id, _tokens(text)))

    def generate(self, seq_id: str, num_tokens: int = 1) -> None:
        self._do(Generate(seq_id, num_tokens))

    def fork(self, parent: str, seq_id: str) -> None:
        self._do(Fork(parent, seq_id))

    def spill(self, seq_id: str) -> None:
        self._do(Spill(seq_id))

    def reload(self, seq_id: str) -> None:
        self._do(Reload(seq_id))

    def free(self, seq_id: str) -> None:
        self._do(Free(seq_id))

    def num_hit_tokens(self, tokens: Sequence[Token]) -> int:
        """Tokens of a prompt that are in cached blocks now. Changes nothing."""
        return len(self._player.manager.longest_prefix(tokens)) * self.cache.block_size

    def likeliest(self, tokens: Sequence[Token], k: int) -> Candidates:
        """The k likeliest next words after these tokens, with their log-probabilities. Changes nothing."""
        return sampling.best(dense_model(self.cache, self.seed).logits(tokens), k)

    def guesses(self, tokens: Sequence[Token], k: int, corrected: bool = True) -> list[tuple[Token, float]]:
        """What the drafter would draft after these tokens, each with its confidence. Changes nothing."""
        return drafter.drafts(self.cache, self.seed, tokens, k, corrected)

    def draft(self, seq_id: str, drafts: int | Sequence[Token], min_confidence: float = 0.0) -> None:
        """Draft that many tokens by the drafter, or take the given ones."""
        given = () if isinstance(drafts, int) else tuple(drafts)
        self._do(Draft(seq_id, drafts if isinstance(drafts, int) else len(given), given, min_confidence))

    def verify(self, seq_id: str, until: str = "") -> None:
        self._do(Verify(seq_id), until)

    def submit(
        self,
        seq_id: str,
        text: str | Sequence[Token],
        *,
        says: str | Sequence[Token] = (),
        max_tokens: int = 0,
        priority: int = 0,
        salt: str | None = None,
        samples: int = 1,
        beams: int = 1,
    ) -> None:
        """A request with given outputs (`says`), or with `max_tokens` outputs that the model generates."""
        outputs = _tokens(says)
        self._do(Submit(seq_id, _tokens(text), len(outputs) or max_tokens, outputs, priority, salt, samples, beams))

    def step(self, num_steps: int = 1, until: str = "") -> None:
        self._do(EngineSteps(num_steps), until)

    def abort(self, seq_id: str) -> None:
        self._do(Abort(seq_id))

    def again(self, **settings: Any) -> "Run":
        """Another run of the same operations so far, on a cache with other `settings`. It is no part of the lesson: it
        gives numbers to compare with the lesson's own."""
        beside = Run(replace(self.cache, **settings), self.seed)
        for op in self.ops:
            beside._do(op)
        return beside

    def go_on(self, until: str = "") -> None:
        """Play the rest of an operation that was stopped in the middle."""
        for happening in self._happening:
            self.events.append(happening.event)
            self.state = happening.snapshot
            if happening.event.kind == until:
                return

    def _do(self, op: Op, until: str = "") -> None:
        self.go_on()
        self.ops.append(op)
        self._happening = self._player.perform(op)
        self.go_on(until)


def listed(items: Iterable[object]) -> str:
    """Example: listed([2, 7]) -> "2, 7"."""
    return ", ".join(map(str, items))


def free_queue(state: Snapshot) -> str:
    """The free blocks of the device, head first; blocks with a hash are bold."""
    return listed(f"**{block}**" if block in state.cached else block for block in state.free_blocks)


def names() -> list[str]:
    """All lessons, in order: the file names without their ending."""
    return sorted(path.stem for path in LESSONS.glob("[0-9][0-9]_*.py"))


def load(name: str, seed: int | None = None) -> Lesson:
    """Play a whole lesson. Another seed shuffles the pool differently, so the questions have other answers."""
    module = importlib.import_module(f"lessons.{name}")
    seed = module.SEED if seed is None else seed
    run = Run(module.CACHE, seed)
    placed: list[tuple[Page, int, Snapshot]] = []
    for page in module.lesson(run):
        placed.append((page, len(run.events), run.state))
    run.go_on()
    ends = [(step, state) for _, step, state in placed[1:]] + [(len(run.events), run.state)]
    pages = tuple(
        PlacedPage(page, step, end, After(before, tuple(run.events[step:end]), after))
        for (page, step, before), (end, after) in zip(placed, ends, strict=True)
    )
    played = replace(scenario.Scenario(seed, module.CACHE), ops=tuple(run.ops))
    return Lesson(name, module.TITLE, module.CLAIM, played, pages)


def _tokens(text: str | Sequence[Token]) -> tuple[Token, ...]:
    return tokens_from_text(text) if isinstance(text, str) else tuple(text)
