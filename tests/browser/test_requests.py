"""Requests on the stage in a real Chromium: queues, budget and launches are the scheduler's at every step."""

import random
from typing import Any

import pytest

pytestmark = pytest.mark.browser
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

from tests.browser import stage_demo  # noqa: E402
from tests.browser.conftest import STAGE, Open, at_each, violations  # noqa: E402
from tests.browser.test_stage import READ, READ_HASHES, freeze, shown_hashes, shown_state, step_held  # noqa: E402

READ_REQUESTS = """root => {
  const all = (node, selector) => [...node.querySelectorAll(selector)];
  const lanes = Object.fromEntries(all(root, '.request-lane').map((lane) => [lane.dataset.laneOf,
    all(lane, '.request').map((card) => card.dataset.request)]));
  const cards = all(root, '.request-list .request');
  const text = (card, selector) => card.querySelector(selector).textContent;
  return {lanes,
    sizes: Object.fromEntries(cards.map((card) => [card.dataset.request, text(card, '.request-size')])),
    scheduled: Object.fromEntries(cards.filter((card) => card.dataset.scheduled)
      .map((card) => [card.dataset.request, Number(card.dataset.scheduled)])),
    budget: Object.fromEntries(all(root, '.budget [data-share]').map((part) => [part.dataset.share,
      Number(part.textContent.split(' ').at(-1))])),
    left: Number(root.querySelector('.budget').dataset.left)};
}"""

# By sequence, the tokens in the rows' cells of one kind.
READ_CELLS = """(root, fill) => {
  const out = {};
  for (const cell of root.querySelectorAll(`.logical [data-fill=${fill}]`)) {
    (out[cell.closest('.logical').dataset.seq] ??= []).push(cell.textContent);
  }
  return out;
}"""


def shown_requests(snapshot: Any) -> dict[str, Any]:
    queued = (*snapshot.waiting, *snapshot.running, *snapshot.swapped)
    return {
        "lanes": {name: list(getattr(snapshot, name)) for name in ("waiting", "running", "swapped")},
        "sizes": {
            seq: f"prompt {len(r.prompt)}, output {len(r.output)} of {r.num_tokens}"
            for seq, r in snapshot.requests.items()
            if seq in queued
        },
        "scheduled": dict(snapshot.scheduled),
        "budget": dict(snapshot.scheduled),
        "left": snapshot.token_budget - sum(snapshot.scheduled.values()),
    }


def played(name: str) -> tuple[list[Any], list[Any]]:
    """The states of a case from its start on, and the events between them."""
    scenario = stage_demo.scenario_of(name)
    player, happenings = stage_demo.play(scenario.cache, scenario.ops)
    return [player.base, *(happening.snapshot for happening in happenings)], [h.event for h in happenings]


def step_of(name: str, kind: str, nth: int = 0, **fields: Any) -> int:
    """The step that a case's nth event of a kind leads to."""
    _, events = played(name)
    found = [k for k, e in enumerate(events, 1) if e.kind == kind and vars(e).items() >= fields.items()]
    return found[nth]


def pending(states: list[Any], events: list[Any], step: int) -> dict[str, list[str]]:
    """What each sequence's row must show as coming with this step's launch, from the engine's own states."""
    started = max((k for k, e in enumerate(events[:step]) if e.kind == "StepStarted"), default=None)
    if started is None or any(e.kind.endswith("Written") for e in events[started:step]):
        return {}
    state = states[step]
    launch: dict[str, list[str]] = {}
    for seq, tokens in state.tokens.items():
        known = [*state.requests[seq].prompt, *state.requests[seq].output]
        ahead = [e for e in events[started:step] if e.kind == "BlockHit" and e.seq_id == seq and not e.computed]
        end = len(tokens) + sum(len(e.tokens) for e in ahead) + state.scheduled.get(seq, 0)
        for j, block in enumerate(state.block_tables[seq]):
            if block in state.cached:  # with a hash before its tokens are there
                end = max(end, (j + 1) * state.block_size)
        if end > len(tokens):
            launch[seq] = [str(token) for token in known[len(tokens) : end]]
    return launch


@pytest.mark.parametrize("order", ["forward", "jumping"])
@pytest.mark.parametrize("name", stage_demo.SERVED)
def test_the_drawn_queues_are_the_schedulers_at_every_step(show: Open, name: str, order: str) -> None:
    states, events = played(name)
    steps = list(range(len(states)))
    if order == "jumping":
        random.Random(1).shuffle(steps)
        steps = steps[:24]
    cells = f"root => ({READ_CELLS})(root, 'pending')"
    seen = at_each(show(name, step=steps[0]), steps, READ_REQUESTS, READ, cells, READ_HASHES)
    for step, (requests, state, launch, hashes) in zip(steps, seen, strict=True):
        assert requests == shown_requests(states[step]), f"step {step}"
        assert state == shown_state(states[step]), f"step {step}"
        assert launch == pending(states, events, step), f"step {step}"
        if states[step].cached:
            assert hashes == shown_hashes(states[step]), f"step {step}"


def test_a_run_without_requests_has_no_lanes(show: Open) -> None:
    page = show("lesson", step=8)
    assert page.locator(".requests").is_hidden()


def test_the_newest_token_is_dashed_until_it_is_written(show: Open) -> None:
    step = step_of("served", "TokensSampled", 1)
    page = show("served", step=step)
    stage = page.locator(STAGE)
    assert stage.evaluate(READ_CELLS, "sampled") == {"A": ["forth"], "B": ["in"]}
    assert page.locator(".physical [data-fill=sampled]").all_inner_texts() == ["in", "forth"]
    assert "sampled, in no slot:" in page.locator("[data-request=A]").inner_text()
    assert page.locator("[data-request=A] .request-token").inner_text() == "forth"
    style = "node => getComputedStyle(node).borderTopStyle"
    assert page.locator(".logical [data-fill=sampled]").first.evaluate(style) == "dashed"
    label = page.locator(".logical[data-seq=A]").last.get_attribute("aria-label")
    assert "“forth” is sampled and not written yet" in label
    page.get_by_role("slider", name="Step").fill(str(step_of("served", "BatchWritten", 2)))
    assert stage.evaluate(READ_CELLS, "sampled") == {}
    assert page.locator("[data-request=A] .request-token").text_content() == ""


def test_a_block_that_another_fills_in_the_same_launch_is_pending_until_then(show: Open) -> None:
    step = step_of("same", "BlockHit", 1)
    page = show("same", step=step)
    stage = page.locator(STAGE)
    assert stage.evaluate(READ_CELLS, "pending")["B"] == list("abcdefgh")
    assert stage.evaluate(READ_CELLS, "filled") == {}
    label = page.locator(".logical[data-seq=B]").last.get_attribute("aria-label")
    assert "0 of 4 tokens" in label
    assert "4 in this step's launch" in label
    page.get_by_role("slider", name="Step").fill(str(step_of("same", "BatchWritten")))
    assert stage.evaluate(READ_CELLS, "filled")["B"] == list("abcdefghxy")
    assert stage.evaluate(READ_CELLS, "pending") == {}


def test_the_tokens_of_one_launch_land_together(show: Open) -> None:
    step = step_of("served", "BatchWritten", 2)
    event = played("served")[1][step - 1]
    assert len(event.seq_ids) == 3
    page = show("served", step=step - 1)
    step_held(page, 0)
    assert page.locator(".ghost").count() == sum(map(len, event.tokens))
    last = [f"[data-block='{slots[-1] // 4}'] [data-offset='{slots[-1] % 4}'] .fill" for slots in event.slots]
    seen = []
    for moment in (0, 200, 376, 381):
        freeze(page, moment)
        seen.append([page.locator(fill).evaluate("n => getComputedStyle(n).opacity") for fill in last])
    assert seen == [["0"] * 3, ["0"] * 3, ["0"] * 3, ["1"] * 3]
    now = page.locator(".request[data-now]").evaluate_all("all => all.map((card) => card.dataset.request)")
    assert now == list(event.seq_ids)


def test_a_preempted_request_goes_to_the_front_and_says_what_it_lost(show: Open) -> None:
    step = step_of("served", "RequestPreempted")
    page = show("served", step=step - 1)
    running = page.locator("[data-lane-of=running] [data-request=B]").bounding_box()
    step_held(page, 0)
    card = page.locator("[data-lane-of=waiting] .request").first
    assert card.get_attribute("data-request") == "B"
    assert abs(card.bounding_box()["y"] - running["y"]) < 1  # it starts from where it was
    assert "preempted: computes 13 tokens again" in card.inner_text()
    page.get_by_role("slider", name="Step").fill(str(step_of("served", "RequestAdmitted", seq_id="B", nth=1)))
    assert "preempted" not in page.locator("[data-request=B]").inner_text()


def test_a_request_that_is_swapped_out_has_a_lane_of_its_own(show: Open) -> None:
    step = step_of("swapped", "RequestPreempted")
    page = show("swapped", step=step)
    card = page.locator("[data-lane-of=swapped] .request")
    size = len(played("swapped")[0][step].block_tables["B"])
    for moved in range(size + 1):
        said = f"in transfer: {moved} of {size}" if moved < size else f"swapped out: all {size}"
        assert f"{said} blocks on the host" in card.inner_text()
        step_held(page, 100)
    assert show("served").locator("[data-lane-of=swapped]").is_hidden()


def test_a_finished_request_leaves_and_its_seat_stays_empty_in_a_static_batch(show: Open) -> None:
    step = step_of("static", "RequestFinished", 1)
    page = show("static", step=step - 1)
    seats = page.locator("[data-lane-of=running] .seats")
    assert "1 of 3 seats idle" in seats.inner_text()
    step_held(page, 100)
    assert page.locator(".flights [data-request=C]").count() == 1  # it fades where it was
    assert page.locator(".request-list [data-request=C]").count() == 0
    assert "2 of 3 seats idle" in seats.inner_text()
    waiting = page.locator("[data-lane-of=waiting]")
    assert "D had to wait in engine step 5: 3 sequences run already" in waiting.inner_text()
    page.get_by_role("slider", name="Step").fill(str(step_of("static", "RequestWaits")))
    assert "D waits: 3 sequences run already, and max_num_seqs is 3" in waiting.inner_text()


def test_the_budget_is_told_in_words(show: Open) -> None:
    page = show("served", step=step_of("served", "BatchWritten", 1))
    bar = page.get_by_role("img", name="Token budget 10: A 1, B 5, 4 left")
    widths = bar.locator(":scope > span").evaluate_all("all => all.map((part) => part.getBoundingClientRect().width)")
    assert widths[1] / widths[0] == pytest.approx(5, rel=0.05)
    assert "4 left of a budget of 10 tokens" in page.locator(".requests").inner_text()
    assert page.get_by_role("list", name="running: 2 requests").count() == 1
    assert "priority 1" in page.locator("[data-request=B]").inner_text()
    assert "priority" not in page.locator("[data-request=A]").inner_text()


@pytest.mark.parametrize(
    ("name", "kind", "theme"), [("served", "TokensSampled", "dark"), ("swapped", "RequestPreempted", "light")]
)
@pytest.mark.parametrize("width", [390, 1280])
def test_axe_finds_nothing_and_nothing_sticks_out(show: Open, name: str, kind: str, theme: str, width: int) -> None:
    page = show(name, step=step_of(name, kind), theme=theme, width=width)
    assert page.locator(".stMain").evaluate("n => n.scrollWidth - n.clientWidth") <= 0
    assert violations(page) == []
