"""The whole app in a real Chromium: server, compute process, kernels and page together."""

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pagedviz import lesson
from pagedviz.run.trace import VERSION
from pagedviz.scenario.operations import Add, Append, Draft, Generate, Verify
from pagedviz.scenario.scenario import Scenario, parse
from pagedviz.scenario.settings import CacheConfig
from pagedviz.ui import address
from pagedviz.ui.sandbox.dry_run import dry_run
from tests.browser.bare_page import THEMES
from tests.browser.conftest import STAGE, Server, Visit, at_each, go_to, press, watched

pytestmark = pytest.mark.browser
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")


def expect_stage(page: Any, timeout: float = 60_000, **attributes: object) -> None:
    for name, value in attributes.items():
        wanted = value if isinstance(value, re.Pattern) else str(value)
        playwright.expect(page.locator(STAGE)).to_have_attribute(f"data-{name}", wanted, timeout=timeout)


def said(page: Any) -> str:
    """What the page's alerts say."""
    page.get_by_test_id("stAlert").first.wait_for()
    return " ".join(page.get_by_test_id("stAlert").all_inner_texts())


def test_the_first_screen_shows_a_stage_with_a_mapping_that_is_not_the_identity(visit: Visit) -> None:
    page = visit()
    expect_stage(page, verdict="ok")
    rows = page.locator("[data-table-seq=A]").evaluate_all("rows => rows.map(row => row.dataset.physical)")
    assert rows == ["7", "1"]


STRETCH = 12  # steps at either end of a lesson that are gone through one by one
SHORT = 40  # a lesson of at most so many steps is waited for until it is checked whole


@pytest.fixture(scope="module")
def reader(app: Server, contexts: Callable[[str], Any]) -> Iterator[Any]:
    """A page on which one lesson after the other is opened by its link; it is never loaded again."""
    with watched() as watch:
        page = go_to(watch(contexts("light").new_page()), app)
        page.evaluate("window.still = true")
        yield page
        assert page.evaluate("window.still")


@pytest.mark.parametrize("name", lesson.names())
def test_a_link_leads_to_a_lesson_that_is_checked_and_can_be_stepped_at_both_ends(reader: Any, name: str) -> None:
    """That every step of every lesson is good on the kernels is tested without a browser."""
    taught = lesson.load(name)
    last = taught.pages[-1].graded_at
    reader.locator("summary", has_text="Lessons").click()
    reader.locator(".items a", has_text=taught.title).click()
    reader.wait_for_url(re.compile(f"lesson={name}"))
    expect_stage(reader, step=taught.pages[0].step, steps=last)
    reader.evaluate("document.activeElement.blur()")
    reader.keyboard.press("End")
    expect_stage(reader, step=last)
    checked = last if last <= SHORT else STRETCH
    reader.get_by_role("slider", name="Step").fill(str(checked))
    place = reader.locator(".step-place")
    playwright.expect(place).to_have_text(f"step {checked} of {last}, all {checked} checked", timeout=120_000)
    verdict = "root => root.dataset.verdict"
    forward, back = range(min(last, STRETCH) + 1), range(last, max(0, last - STRETCH) - 1, -1)
    assert at_each(reader, forward, verdict) == [["ok"]] * len(forward)
    at_the_end = {seen for (seen,) in at_each(reader, back, verdict)}
    assert at_the_end <= ({"ok"} if checked == last else {"ok", "pending"})


def test_a_right_prediction_is_graded_by_the_engine_and_then_shown_happening(visit: Visit) -> None:
    page = visit("lesson=02_block_table")
    page.get_by_label("Your prediction (blocks)").fill("2")
    press(page, "Check")
    playwright.expect(page.get_by_text("Right: 2.")).to_be_visible()
    expect_stage(page, step=lesson.load("02_block_table").pages[1].step)


def test_a_wrong_prediction_is_explained_with_the_numbers(visit: Visit) -> None:
    page = visit("lesson=06_copy_on_write&step=7")
    page.get_by_text("B writes into block 1", exact=True).click()
    press(page, "Check")
    playwright.expect(
        page.get_by_text(re.compile("You said “B writes into block 1”; the answer is “B copies block 1"))
    ).to_be_visible()
    expect_stage(page, step=11)


def test_another_seed_gives_a_problem_with_other_ids(visit: Visit) -> None:
    page = visit("lesson=02_block_table&seed=11")
    page.keyboard.press("End")
    expect_stage(page, verdict="ok")
    table = [str(block) for block in lesson.load("02_block_table", 11).pages[-1].outcome.after.block_tables["A"]]
    rows = page.locator("[data-table-seq=A]").evaluate_all("rows => rows.map(row => row.dataset.physical)")
    assert rows == table
    assert table[:3] != ["7", "1", "3"]


def test_a_link_opens_the_same_lesson_at_the_same_step(visit: Visit) -> None:
    page = visit("lesson=06_copy_on_write")
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    expect_stage(page, step=8)
    page.wait_for_url(re.compile("step=8"))
    again = visit(page.url.split("?")[1])
    expect_stage(again, step=8, verdict="ok")


def test_the_lens_asks_the_kernel_at_every_step_that_it_is_taken_to(visit: Visit) -> None:
    steps = lesson.load("02_block_table").pages[-1].graded_at
    page = visit(f"lesson=02_block_table&step={steps - 6}")
    page.keyboard.press("k")
    lens = page.locator(".lens")
    for step in range(steps - 6, steps + 1):
        expect_stage(page, step=step)
        playwright.expect(lens).to_have_attribute("data-state", "answered", timeout=30_000)
        playwright.expect(page.get_by_label("Lens: sequence")).to_have_value("A")
        page.keyboard.press("ArrowRight")
    page.keyboard.press("k")
    playwright.expect(lens).to_be_hidden()


def own(page: Any) -> dict[str, Any]:
    """The scenario that the address holds."""
    found = re.search("scenario=([^&]+)", page.url)
    assert found is not None
    return address.decode(found[1]).to_json()


def test_your_own_sequences_append_generate_fork_spill_reload_free_and_undo(visit: Visit) -> None:
    page = visit("page=sequences")
    expect_stage(page, steps=4, verdict="ok")
    page.get_by_label("More words").fill("fathers brought")
    press(page, "Append")
    expect_stage(page, steps=6, step=6, verdict="ok")
    press(page, "Generate 1")
    expect_stage(page, steps=7, step=7, verdict="ok")
    press(page, "Fork")
    expect_stage(page, steps=11, step=11, verdict="ok")
    press(page, "Free")
    expect_stage(page, steps=15, step=15, verdict="ok")
    press(page, "Undo")
    expect_stage(page, steps=11, step=11, verdict="ok")
    press(page, "Undo")
    expect_stage(page, steps=7, step=7)
    press(page, "Spill")
    expect_stage(page, steps=10, step=10, verdict="ok")
    press(page, "Reload")
    expect_stage(page, steps=13, step=13, verdict="ok")
    page.wait_for_url(re.compile("scenario="))
    verbs = [next(iter(op)) for op in own(page)["ops"]]
    assert verbs == ["add", "append", "generate", "spill", "reload"]
    again = visit(page.url.split("?")[1])
    expect_stage(again, steps=13, verdict="ok")


def test_drafts_are_verified_and_a_transfer_is_ended_by_the_buttons_that_apply(visit: Visit) -> None:
    cache = CacheConfig(num_blocks=5, block_size=2, prefix_caching=True, host_chunks=4)
    run = Scenario(cache=cache, ops=(Add("A", ("it", "was", "the", "best", "of")),))
    page = visit(f"page=sequences&scenario={address.encode(run)}")
    page.locator("summary", has_text="Drafts").click()
    press(page, "Draft")
    press(page, "Verify")
    steps = dry_run(run.with_ops(Draft("A", 3), Verify("A"))).num_steps
    expect_stage(page, steps=steps, step=steps, verdict="ok")
    page.get_by_role("button", name="Draft", exact=True).wait_for()
    page.locator("summary", has_text="Host tier").click()
    press(page, "Store A")
    page.get_by_text("Transfer 1:").wait_for()
    press(page, "Finish")
    playwright.expect(page.get_by_role("button", name="Cancel", exact=True)).to_have_count(0)
    press(page, "Free")
    playwright.expect(page.get_by_role("button", name="Free", exact=True)).to_have_count(0)
    page.get_by_label("New sequence").fill("1 2 3 4 5 6 7 8 9")
    press(page, "Add")
    press(page, "Free")
    playwright.expect(page.get_by_role("button", name="Free", exact=True)).to_have_count(0)
    page.get_by_label("Load what the host has of").fill("it was the best of")
    press(page, "Load")
    press(page, "Cancel")
    page.wait_for_url(re.compile("scenario="))
    playwright.expect(page.get_by_role("button", name="Cancel", exact=True)).to_have_count(0)
    verbs = [next(iter(op)) for op in own(page)["ops"]]
    assert verbs == ["add", "draft", "verify", "store", "finish", "free", "add", "free", "load", "cancel"]
    page.keyboard.press("End")
    steps = dry_run(parse(json.dumps(own(page)))).num_steps
    expect_stage(page, steps=steps, step=steps, verdict="ok")


def test_a_refusal_says_the_numbers_and_leaves_the_run_as_it_was(visit: Visit) -> None:
    page = visit("page=sequences")
    page.get_by_label("New sequence").fill("word " * 60)
    press(page, "Add")
    assert "needs 15 blocks by itself, and the whole device pool has 12" in said(page)
    expect_stage(page, steps=4, verdict="ok")
    press(page, "Append")
    playwright.expect(page.get_by_text("it needs at least one word")).to_be_visible()
    page.get_by_label("More words").fill("word " * 10_000)
    press(page, "Append")
    playwright.expect(page.get_by_text("10,000 tokens")).to_be_visible()
    expect_stage(page, steps=4, verdict="ok")


def test_markup_emoji_and_right_to_left_words_are_tokens_like_any_other(visit: Visit) -> None:
    page = visit("page=sequences")
    page.get_by_label("New sequence").fill("<img src=x onerror=alert(1)> 👩‍👩‍👧 שלום **b**")
    press(page, "Add")
    expect_stage(page, verdict="ok", step=re.compile("1[0-9]"))
    assert page.locator(f"{STAGE} img").count() == 0


def test_long_work_says_how_far_it_is_and_can_be_stopped_though_its_tokens_are_not_known_yet(visit: Visit) -> None:
    cache = CacheConfig(num_blocks=40, num_layers=4)
    long = Scenario(0, cache, (Add("A", ("once",)), Generate("A", 100)))
    page = visit(f"page=sequences&scenario={address.encode(long)}")
    progress = page.get_by_text(re.compile(r"^\d+ of 128 steps checked$"))
    playwright.expect(progress).to_be_visible(timeout=30_000)  # on a machine that does much else
    press(page, "Stop")
    page.get_by_role("button", name="Check the rest", exact=True).wait_for()


def test_a_damaged_link_is_one_sentence_and_a_stage(visit: Visit) -> None:
    word = address.encode(Scenario(cache=CacheConfig(scatter=True), ops=(Add("A", ("a", "b", "c")),)))
    assert word is not None
    for damaged in (word[:-7], "x" * 50, "%00", word[:10] + "AAAA" + word[14:]):
        page = visit(f"page=sequences&scenario={damaged}")
        assert "Not loaded" in said(page)
        expect_stage(page, steps=4)


def test_a_scenario_is_edited_as_text_and_a_wrong_one_changes_nothing(visit: Visit) -> None:
    page = visit("page=sequences")
    page.get_by_text("Scenario as text").click()
    field = page.get_by_role("textbox", name="Scenario")
    field.fill('{"pagedviz": 1, "cache": {"block_size": 0}, "ops": []}')
    press(page, "Run this text")
    assert "cache.block_size is 0" in said(page)
    expect_stage(page, steps=4)
    field.fill('{"pagedviz": 1, "cache": {"block_size": 2}, "ops": [{"add": "Q", "text": "one two three four five"}]}')
    press(page, "Run this text")
    expect_stage(page, steps=5, step=5, verdict="ok")


def test_what_can_never_fit_is_refused_with_what_there_is(visit: Visit) -> None:
    page = visit("page=sequences")
    page.get_by_text("Scenario as text").click()
    ops = '[{"add": "A", "text": "one two three four five six seven eight nine"}]'
    field = page.get_by_role("textbox", name="Scenario")
    field.fill(f'{{"pagedviz": 1, "cache": {{"num_blocks": 2}}, "ops": {ops}}}')
    press(page, "Run this text")
    expect_stage(page, steps=1, step=1, verdict="ok")
    playwright.expect(page.get_by_text("Refused: 3 needed, 2 in all.")).to_be_visible()


def test_the_button_that_matters_can_be_read_under_the_pointer(visit: Visit) -> None:
    page = visit("lesson=02_block_table")
    check = page.get_by_role("button", name="Check")
    check.hover()
    playwright.expect(check).to_have_css("background-color", re.compile(r"/ 0\.1\)$"))


def test_a_trace_is_exported_and_an_opened_one_is_computed_again(visit: Visit, tmp_path: Path) -> None:
    page = visit("page=sequences")
    expect_stage(page, verdict="ok")
    press(page, "Export")
    with page.expect_download() as download:
        press(page, "Trace with verdicts (JSON)")
    file = tmp_path / "trace.json"
    download.value.save_as(file)
    trace = json.loads(file.read_text())
    assert trace["ok"]
    assert len(trace["steps"]) == 4
    assert parse(json.dumps(trace["scenario"])).ops
    again = visit("page=sequences")
    again.get_by_text("Open a file").click()
    again.locator("input[type=file]").set_input_files(file)
    playwright.expect(
        again.get_by_text("The trace has 4 steps, its run 4; 4 were computed here again, and 4 came")
    ).to_be_visible()
    old = tmp_path / "old.json"
    old.write_text(json.dumps({**trace, "pagedviz_trace": 1}))
    again.locator("input[type=file]").set_input_files(old)
    playwright.expect(again.get_by_text(f"the trace has version 1; versions 4 and {VERSION} are read")).to_be_visible()
    (tmp_path / "broken.json").write_bytes(old.read_bytes()[:500])
    again.locator("input[type=file]").set_input_files(tmp_path / "broken.json")
    playwright.expect(again.get_by_text("Not loaded")).to_be_visible()


def test_a_killed_compute_process_is_started_again_and_the_run_ends_fully_checked(visit: Visit, app: Server) -> None:
    words = tuple(Append("A", (f"word{n}",)) for n in range(60))
    cache = CacheConfig(num_blocks=20, num_layers=1)
    word = address.encode(Scenario(cache=cache, ops=(Add("A", ("first",)), *words)))
    page = visit(f"page=sequences&scenario={word}")
    workers = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _is_worker(pid, app.pid)]
    (worker,) = workers
    os.kill(worker, signal.SIGKILL)
    playwright.expect(page.get_by_text("It was started again")).to_be_visible(timeout=20_000)
    page.keyboard.press("End")
    expect_stage(page, timeout=120_000, step=78, verdict="ok")


def _is_worker(pid: int, server: int) -> bool:
    """Whether a process is the compute process of this server: others may run on this machine."""
    try:
        process = Path(f"/proc/{pid}")
        parent = int(process.joinpath("stat").read_text().rpartition(")")[2].split()[1])
        return parent == server and b"pagedviz.runtime.worker" in process.joinpath("cmdline").read_bytes()
    except OSError:
        return False


@pytest.mark.parametrize("scheme", THEMES)
def test_the_bare_page_gives_the_stage_the_colours_that_the_app_does(visit: Visit, scheme: str) -> None:
    page = visit(scheme=scheme)
    read = "(root, names) => names.map((name) => getComputedStyle(root).getPropertyValue(`--st-${name}`))"
    assert page.locator(STAGE).evaluate(read, list(THEMES[scheme])) == list(THEMES[scheme].values())


PLACES = (
    "",
    "lesson=06_copy_on_write",
    "lesson=09_radix_and_blocks&step=24",
    "lesson=19_flash_and_paged&step=10",
    "lesson=21_inside_the_worker&step=18",
    "page=sequences",
    "page=speed",
    "page=glossary",
)


AT_REST = """() => document.querySelector('.stApp[data-test-script-state=notRunning]')
  && !document.body.innerText.includes('is being asked')"""


@pytest.mark.parametrize("scheme", THEMES)
@pytest.mark.parametrize("place", PLACES)
def test_no_screen_has_a_serious_fault_for_screen_readers(visit: Visit, place: str, scheme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    landmark = "h1" if place in ("page=speed", "page=glossary") else f"{STAGE}[data-verdict=ok]"
    page = visit(place, scheme, landmark=landmark)
    page.wait_for_function(AT_REST)
    found = Axe().run(page).response["violations"]
    serious = [
        (v["id"], [n["html"][:120] for n in v["nodes"]]) for v in found if v["impact"] in ("serious", "critical")
    ]
    assert serious == []
