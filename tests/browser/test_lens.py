"""The kernel lens in a real Chromium: it shows the answer to what it asks just now, turn by turn, and nothing else."""

from functools import partial
from typing import Any

import pytest

pytestmark = pytest.mark.browser
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

from tests.browser import lens_answers, stage_demo  # noqa: E402
from tests.browser.conftest import STAGE, Open, at, at_each, press, violations  # noqa: E402

LENS = ".lens"
STEP = 15  # A holds ten tokens in three blocks: the last two lanes of the third hold no token
PHASES = ["table", "keys", "scores", "running", "values"]


def asked(page: Any, **what: Any) -> None:
    """Wait until Python has heard what the lens asks."""
    for name, value in what.items():
        playwright.expect(page.get_by_text("The lens asks: ")).to_contain_text(f"'{name}': {value!r}")


def answered(page: Any) -> None:
    # the first question of all imports torch and triton
    playwright.expect(page.locator(LENS)).to_have_attribute("data-state", "answered", timeout=30_000)


def opened(page: Any, splits: int = 1, motion: str = "reduce") -> Any:
    """Open the lens with the keyboard and wait for its first turn to be there whole; without motion it is at once."""
    page.emulate_media(reduced_motion=motion)
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("k")
    answered(page)
    if splits > 1:
        page.get_by_label("Lens: splits").select_option(str(splits))
        asked(page, num_splits=splits)
        playwright.expect(page.locator(".turns")).to_have_attribute("data-splits", "")
    settled(page)
    return page


def settled(page: Any) -> None:
    """Wait until the last phase of a stop is lit."""
    playwright.expect(page.locator(LENS)).to_have_attribute("data-whole", "")


def answer(step: int = STEP, seq: str = "A", splits: int = 1, run: str = "lesson", wrong: bool = False) -> Any:
    """What the kernel answers to the lens's first question at a step."""
    what = {"run": run, "step": step, "seq_id": seq, "layer": 1, "head": 0, "num_splits": splits}
    return lens_answers.answer(stage_demo.CASES[run](), what, wrong)


def shortly(value: float) -> str:
    """A number as the lens prints it."""
    text = f"{value:.2f}" if value == 0 or abs(value) >= 0.01 else f"{value:.1g}"
    return text.replace("-", "−")


def said(page: Any) -> str:
    return str(page.locator(".lens-say").text_content())


def test_closed_it_asks_nothing_and_draws_nothing(show: Open) -> None:
    page = show("lesson", step=STEP)
    assert page.locator(f"{LENS}, [data-read], [data-lane]").count() == 0
    page.keyboard.press("ArrowRight")
    page.get_by_text(f"Python heard: {STEP + 1}").wait_for()
    assert page.get_by_text("The lens asks: None").is_visible()


def test_open_it_asks_about_the_step_and_closed_again_it_leaves_no_trace(show_in_streamlit: Open) -> None:
    page = show_in_streamlit("lesson", step=STEP)
    button = page.get_by_role("button", name="Kernel lens", exact=True)
    button.click()
    asked(page, run="lesson", step=STEP, seq_id="A", layer=1, head=0, num_splits=1)
    answered(page)
    assert button.get_attribute("aria-pressed") == "true"
    assert page.locator(".panel .source").is_hidden()
    press(page, "Close the lens")
    page.get_by_text("The lens asks: None").wait_for()
    assert page.locator(LENS).is_hidden()
    assert page.locator("[data-read], [data-lane=masked].cell, .wires path").count() == 0
    assert page.locator(".panel .source").is_visible()
    assert (
        page.locator(STAGE).evaluate("r => r.getRootNode().activeElement.getAttribute('aria-label')") == "Kernel lens"
    )


def test_a_stage_without_a_cache_has_no_lens(show_in_streamlit: Open) -> None:
    page = show_in_streamlit("two", step=STEP)
    page.locator(STAGE).nth(1).wait_for()
    visible = page.locator(".lens-toggle").evaluate_all("all => all.map((button) => !button.hidden)")
    assert visible == [True, False]


@pytest.mark.parametrize("splits", [1, 2])
def test_blocks_light_up_in_the_order_in_which_the_kernel_loaded_them(show: Open, splits: int) -> None:
    page = opened(show("lesson", step=STEP), splits)
    turns = [turn for split in answer(splits=splits)["splits"] for turn in split["turns"]]
    for count, turn in enumerate(turns, 1):
        marks = page.locator(STAGE).evaluate(
            """root => {
          const ends = (when, of, id) =>
            [...root.querySelectorAll(`${of}[data-read=${when}]`)].map((node) => Number(node.dataset[id]));
          return {now: [ends('now', '.physical', 'block'), ends('now', '.logical', 'logical'),
                        ends('now', 'tr', 'tableLogical')], done: ends('done', '.physical', 'block')}; }"""
        )
        assert marks["now"] == [[turn["block"]], [turn["logical_block"]], [turn["logical_block"]]]
        assert sorted(marks["done"]) == sorted(before["block"] for before in turns[: count - 1])
        lit = page.locator(f"[data-block='{turn['block']}'], .entry[data-link=d{turn['block']}]")
        assert set(lit.evaluate_all("ends => ends.map((end) => end.dataset.lit)")) == {""}
        assert page.locator(".wires path:not(.halo)").count() == 2  # of the current block only, in one row
        page.keyboard.press("l")
        settled(page)
    assert page.locator(".physical[data-read=now]").count() == 0


def test_masked_lanes_are_hatched_in_the_block_and_in_the_strip(show: Open) -> None:
    page = opened(show("lesson", step=STEP))
    for _ in range(2):
        page.keyboard.press("l")
    settled(page)
    hatched = (
        "all => all.map((lane) => [lane.dataset.lane, /repeating/.test(getComputedStyle(lane, {}).backgroundImage)])"
    )
    block = page.locator("[data-block='10'] .cell")
    assert [lane for lane, _ in block.evaluate_all(hatched)] == ["read", "read", "masked", "masked"]
    over = block.evaluate_all("all => all.map((cell) => getComputedStyle(cell, '::after').backgroundImage)")
    assert ["repeating" in image for image in over] == [False, False, True, True]
    strip = page.locator("[data-when=now] .row-position .lane")
    assert strip.evaluate_all(hatched.replace("lane, {}", "lane")) == [
        ["read", False],
        ["read", False],
        ["masked", True],
        ["masked", True],
        ["masked", True],  # the twelve lanes of the tile beyond the block
    ]
    assert strip.last.text_content() == "+12"


def test_the_numbers_are_the_answers(show: Open) -> None:
    page = opened(show("lesson", step=STEP))
    found = answer()
    for turn in found["splits"][0]["turns"]:
        text = f"m {shortly(turn['m'])}, l {shortly(turn['l'])}"
        playwright.expect(page.locator("[data-when=now] .row-running span").first).to_have_text(text)
        bars = page.locator(".dim span").all_text_contents()
        assert bars == [shortly(value) for value in turn["acc"]]
        page.keyboard.press("l")
        settled(page)
    read = "cells => cells.map((cell) => Number(cell.style.getPropertyValue('--share')))"
    paged = page.locator(".row-weight .lane[data-bar]").evaluate_all(read)
    dense = page.locator(".row-dense .lane[data-bar]").evaluate_all(read)
    most = max(found["dense"]["weights"])
    assert dense == pytest.approx([weight / most for weight in found["dense"]["weights"]])
    assert paged == pytest.approx(
        dense, rel=1e-5
    )  # divided by l, what the turns summed is the softmax over the whole sequence
    assert page.locator(".turn-labels .row-share").text_content() == "together 1.00"
    assert page.locator(".strip b").all_text_contents() == ["acc ÷ l", "dense out"]
    assert page.locator(f"{LENS} .verdict").get_attribute("data-state") == "ok"


def test_what_was_summed_shrinks_when_the_maximum_grows(show: Open) -> None:
    page = opened(show("lesson", step=STEP))
    first = page.locator(".turn").first.locator(".row-weight .lane[data-bar]")
    scores = answer()["splits"][0]["turns"][0]["scores"][:4]
    for turn in answer()["splits"][0]["turns"]:
        shares = first.evaluate_all("all => all.map((cell) => Number(cell.style.getPropertyValue('--share')))")
        assert shares == pytest.approx([2 ** (score - turn["m"]) for score in scores])
        page.keyboard.press("l")
        settled(page)


def test_nothing_is_shown_before_the_kernel_has_answered(show_in_streamlit: Open) -> None:
    page = show_in_streamlit("lesson", step=STEP)
    page.get_by_text("the kernel is busy").click()
    press(page, "Kernel lens")
    asked(page, run="lesson", step=STEP)
    assert said(page) == "asking the kernel…"
    assert page.locator(f"{LENS} .turn, [data-read]").count() == 0
    page.get_by_text("the kernel is busy").click()
    answered(page)


def test_an_answer_to_something_else_is_not_shown(show_in_streamlit: Open) -> None:
    page = opened(show_in_streamlit("lesson", step=STEP))
    page.get_by_text("reply to the step before").click()
    playwright.expect(page.locator(LENS)).to_have_attribute("data-state", "asking")
    assert said(page) == "asking the kernel…"
    assert page.locator(".turns").is_hidden()
    assert page.locator("[data-read], .wires path").count() == 0
    page.get_by_text("reply to the step before").click()
    answered(page)


def test_stepping_the_run_asks_again(show: Open) -> None:
    page = opened(show("lesson", step=STEP - 1))
    page.keyboard.press("ArrowRight")
    at(page, STEP)
    assert said(page) == "asking the kernel…"
    asked(page, step=STEP)
    playwright.expect(page.locator(".lens-say")).to_contain_text("Turn 1 of 3: block 1, positions 0 to 3")
    page.keyboard.press("ArrowRight")  # B comes back from the host, and the step is B's
    asked(page, step=STEP + 1, seq_id="B")
    playwright.expect(page.get_by_label("Lens: sequence")).to_have_value("B")


def test_what_the_lens_hides_takes_part_in_no_flight(show: Open) -> None:
    page = show("lesson", step=0)
    page.keyboard.press("k")
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    widths = "root => [...root.querySelectorAll('.ghost')].map((ghost) => ghost.getBoundingClientRect().width)"
    steps = range(1, len(stage_demo.CASES["lesson"]()["steps"]) + 1)
    flown = at_each(page, steps, widths)
    for step, (left,) in zip(steps, flown, strict=True):
        assert 0 not in left, f"a ghost without size at step {step}"
    assert any(left for (left,) in flown)
    assert said == []


def test_layer_head_and_sequence_can_be_chosen(show: Open) -> None:
    page = opened(show("lesson", step=11))
    page.get_by_label("Lens: layer").select_option("0")
    asked(page, layer=0, head=0)
    page.get_by_label("Lens: head").select_option("1")
    asked(page, layer=0, head=1)
    page.get_by_label("Lens: sequence").select_option("A")
    asked(page, seq_id="A", layer=0, head=1)
    answered(page)
    assert page.locator("[data-row]:visible").evaluate_all("rows => rows.map((row) => row.dataset.row)") == ["A"]


def test_a_refusal_is_its_sentence(show: Open) -> None:
    page = opened(show("lesson", step=14))
    page.get_by_label("Lens: sequence").select_option("B")  # it is on the host
    playwright.expect(page.locator(LENS)).to_have_attribute("data-state", "refused")
    assert said(page) == answer(14, "B")["refused"]
    assert page.locator("[data-read]").count() == 0
    assert page.locator(".turns, .lens-source").evaluate_all("all => all.every((n) => !n.offsetParent)")


def test_before_there_is_a_token_it_says_so_and_asks_nothing(show: Open) -> None:
    heard: list[Any] = []
    page = show("lesson", step=1, answer=lambda data, asked: heard.append(asked))
    page.clock.install()
    press(page, "Kernel lens")
    assert said(page) == "No sequence has a token here, so there is nothing to attend to."
    page.clock.run_for(1000)
    assert page.get_by_text("The lens asks: None").is_visible()
    assert heard == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_wrong_answer_is_red_at_once(show: Open, theme: str) -> None:
    page = show("lesson", step=STEP, theme=theme, answer=partial(lens_answers.answer, wrong=True))
    press(page, "Kernel lens")
    verdict = page.locator(f"{LENS} .verdict")
    answered(page)
    playwright.expect(verdict).to_be_visible()
    assert verdict.get_attribute("role") == "alert"
    found = answer(wrong=True)
    assert not found["ok"]
    assert verdict.locator(".big").inner_text() == f"wrong: {found['max_error']:.2g}"
    colour = verdict.locator(".big").evaluate("n => getComputedStyle(n).color.match(/\\d+/g).map(Number)")
    assert colour[0] > max(colour[1:3]) + 80


def test_a_nan_is_called_one(show: Open) -> None:
    page = opened(show("lesson", step=STEP, answer=partial(lens_answers.answer, nan=True)))
    assert said(page).endswith("the maximum and the sum are NaN.")
    now = page.locator(".turn[data-when=now]")
    assert now.locator(".row-score .lane").all_inner_texts()[0] == "NaN"
    assert now.locator(".row-running").inner_text().startswith("m NaN, l NaN")
    assert now.locator(".row-weight .lane").all_inner_texts()[0] == "NaN"
    assert page.locator(".turn-labels .row-share").text_content() == "together 1.00"  # dense attention is whole
    verdict = page.locator(f"{LENS} .verdict")
    assert verdict.locator(".big").inner_text() == "wrong: not finite"
    assert "nothing can be compared" in verdict.inner_text()


def test_weights_that_are_not_finite_have_no_sum(show: Open) -> None:
    page = opened(show("lesson", step=STEP, answer=partial(lens_answers.answer, lost=True)), splits=2)
    assert page.locator(".turn-labels .row-share").text_content() == "not finite"
    assert page.locator(".turn .row-share").all_text_contents() == ["Σ NaN"] * 3
    assert page.locator(".turn[data-when=now] .row-dense .lane").all_inner_texts() == ["NaN"] * 4
    for _ in range(4):
        page.keyboard.press("l")
    settled(page)
    assert said(page).endswith("split 1 counts NaN and split 2 counts NaN.")
    assert page.locator(".strip p .quiet").first.inner_text() == "its acc ÷ its l, lse NaN, counts NaN"


def test_a_split_without_a_block_says_so_and_weighs_nothing(show: Open) -> None:
    page = opened(show("three", step=3), splits=2)  # three tokens, one block
    found = answer(3, splits=2, run="three")
    assert [len(split["turns"]) for split in found["splits"]] == [1, 0]
    assert said(page).startswith("Split 1 of 2, turn 1 of 1: block 1, positions 0 to 2; 1 lane is masked; ")
    page.keyboard.press("l")
    assert said(page) == "Split 2 of 2 has no block to read: its lse is −∞, so it weighs nothing."
    page.keyboard.press("l")
    assert page.locator(".strip p").all_text_contents()[1] == "split 2no block, lse −∞"
    page.keyboard.press("l")
    assert said(page).endswith("split 1 counts 1.00 and split 2 counts 0.00.")
    assert page.locator(".strip b").all_text_contents() == ["split 1", "split 2", "joined", "dense out"]
    assert page.get_by_role("button", name="Next turn").get_attribute("aria-disabled") == "true"


def test_one_sentence_a_turn_is_announced(show: Open) -> None:
    page = show("lesson", step=STEP)
    opened(page)
    say = page.locator(".lens-say")
    assert say.get_attribute("aria-live") == "polite"
    say.evaluate(
        """node => { window.said = [node.textContent]; const heard = () => window.said.push(node.textContent);
      new MutationObserver(heard).observe(node, {childList: true, subtree: true}); }"""
    )
    for _ in range(3):
        page.keyboard.press("l")
        settled(page)
    turns = answer()["splits"][0]["turns"]
    grew = [f"{turn['m']:.2f}" for turn in turns]
    assert page.evaluate("window.said") == [
        f"Turn 1 of 3: block 1, positions 0 to 3; no lane is masked; the maximum is {grew[0]} and the sum is "
        f"{turns[0]['l']:.2f}.",
        f"Turn 2 of 3: block 7, positions 4 to 7; no lane is masked; the maximum stays {grew[1]}, "
        "so what was summed keeps its scale.",
        f"Turn 3 of 3: block 10, positions 8 and 9; 2 lanes are masked; the maximum grew to {grew[2]}, "
        f"so what was summed is scaled by {turns[2]['shrink']:.2f}.",
        "Every block is read: the accumulator is divided by the sum l once, and that is the attention.",
    ]


LIT = """root => { window.lit = [];
  new MutationObserver(() => {
    const now = root.querySelector('.phases [aria-current]').textContent;
    if (window.lit.at(-1) !== now) window.lit.push(now);
  }).observe(root.querySelector('.phases'), {attributes: true, subtree: true}); }"""


def test_the_phases_of_a_turn_light_up_one_after_the_other(show: Open) -> None:
    page = opened(show("lesson", step=STEP), motion="no-preference")
    page.locator(STAGE).evaluate(LIT)
    page.keyboard.press("l")
    settled(page)
    playwright.expect(page.locator("[data-phase=values]")).to_have_attribute("aria-current", "step")
    assert page.evaluate("window.lit") == PHASES


def test_without_motion_a_turn_is_there_at_once(show: Open) -> None:
    page = opened(show("lesson", step=STEP))
    page.locator(STAGE).evaluate(LIT)
    for _ in range(2):
        page.keyboard.press("l")
        assert page.locator("[data-when=now] .row-running").inner_text() != ""
    assert page.evaluate("window.lit") == []  # from the values of one turn to the values of the next
    assert page.locator(STAGE).evaluate("root => root.getRootNode().getAnimations().length") == 0


def test_keys_step_turns_and_phases_and_leave_the_stages_own_alone(show: Open) -> None:
    page = opened(show("lesson", step=STEP))
    current = page.locator(".phases [aria-current]")
    page.keyboard.press(".")  # from the values of turn 1
    assert said(page).startswith("Turn 2 of 3, table: ")
    assert current.text_content() == "table"
    assert page.locator("[data-when=now] [data-lane]").count() == 0  # no key is loaded yet
    lit = page.locator(".lens-source [data-lit-line]")
    assert "block = load(table" in lit.text_content()
    page.keyboard.press(".")
    assert page.locator("[data-when=now] [data-lane=read]").count() == 4
    assert page.locator("[data-when=now] .row-score").text_content() == ""
    assert "key = load(keys" in lit.text_content()
    page.keyboard.press(",")
    page.keyboard.press(",")
    assert said(page).startswith("Turn 1 of 3: ")
    page.keyboard.press("l")
    page.keyboard.press("l")
    page.keyboard.press("j")
    assert said(page).startswith("Turn 2 of 3: ")
    at(page, STEP)
    page.get_by_label("Lens: layer").focus()
    page.keyboard.press("l")  # a select keeps its letters
    assert said(page).startswith("Turn 2 of 3: ")
    page.get_by_role("button", name="Next turn").focus()
    page.keyboard.press("ArrowLeft")
    at(page, STEP - 1)
    page.keyboard.press("k")
    assert page.locator(LENS).is_hidden()
    page.keyboard.press("l")
    assert page.locator(LENS).is_hidden()


def test_turns_play_to_the_end_and_can_be_paused(show: Open) -> None:
    page = opened(show("lesson", step=STEP))
    page.clock.install()
    press(page, "Play turns")
    page.clock.run_for(1000)
    assert said(page).startswith("Turn 2 of 3")
    page.keyboard.press("p")
    page.clock.run_for(5000)
    assert said(page).startswith("Turn 2 of 3")
    page.keyboard.press("p")
    page.clock.run_for(5000)
    playwright.expect(page.locator("[data-phase=divide]")).to_have_attribute("aria-current", "step")
    playwright.expect(page.get_by_role("button", name="Play turns")).to_be_visible()


def test_lanes_and_dimensions_tell_their_numbers_to_the_keyboard(show: Open) -> None:
    page = opened(show("lesson", step=STEP))
    tip = page.get_by_role("tooltip")
    page.locator(".row-position .lane").first.focus()
    page.keyboard.press("ArrowDown")
    playwright.expect(tip).to_contain_text("position 1, “score”, score ")
    page.keyboard.press("Enter")
    at(page, STEP)
    page.locator(".dim").first.focus()
    page.keyboard.press("ArrowDown")
    playwright.expect(tip).to_contain_text("dimension 1: ")
    assert page.locator("[data-rove=lane][tabindex='0']").count() == 1


def test_in_a_canvas_the_current_block_is_ringed(show: Open) -> None:
    page = opened(show("big", step=30))
    page.keyboard.press("l")
    page.keyboard.press("l")
    settled(page)
    block = page.locator("[data-when=now] .turn-head b").text_content()
    assert page.locator(".seq[data-asked] .entry[data-lit]").text_content() == block
    assert page.locator(".wires path:not(.halo)").count() == 2
    assert "only the current block is ringed" in page.locator(".lens-about").inner_text()


@pytest.mark.parametrize("width", [390, 900, 1280])
@pytest.mark.parametrize(("case", "step"), [("lesson", STEP), ("v1", 5)])
def test_nothing_sticks_out_sideways(show: Open, case: str, step: int, width: int) -> None:
    page = opened(show(case, step=step, width=width))
    assert page.locator(".stMain").evaluate("n => n.scrollWidth - n.clientWidth") <= 0
    assert page.get_by_role("button", name="Next turn").is_visible()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("splits", "turns"), [(1, 2), (1, 3), (4, 5)])
def test_axe_finds_nothing(show: Open, theme: str, splits: int, turns: int) -> None:
    page = opened(show("lesson", step=STEP, theme=theme), splits)
    for _ in range(turns):
        page.keyboard.press("l")
    settled(page)
    page.set_viewport_size({"width": 1280, "height": 1700})  # contrast is judged of what is in sight only
    assert violations(page) == []
