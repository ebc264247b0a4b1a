"""The stage in a real Chromium: what is drawn is what the engine's block manager holds, at every step."""

import re
import statistics
from typing import Any

import pytest

pytestmark = pytest.mark.browser
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

from tests.browser import stage_demo  # noqa: E402
from tests.browser.conftest import STAGE, Open, at, at_each, press, violations  # noqa: E402

# What the stage shows, read off the page.
READ = """root => {
  const all = (selector) => [...root.querySelectorAll(selector)];
  const filled = (block) => [...block.querySelectorAll('[data-fill=filled]')].map((cell) => cell.textContent);
  const tables = {};
  for (const row of all('[data-table-seq]')) (tables[row.dataset.tableSeq] ??= []).push(row.dataset.physical);
  const tokens = {};
  for (const block of all('.logical')) {
    (tokens[block.dataset.seq] ??= []).push(...filled(block));
  }
  const held = (list, id) => Object.fromEntries(list.map((block) => [block.dataset[id],
    [Number(block.dataset.refCount), filled(block)]]));
  const entries = Object.fromEntries(all('.logical').map((b) => [b.dataset.seq + b.dataset.logical, b.dataset.entry]));
  return {tables, tokens, entries,
    device: held(all('[data-block]'), 'block'), host: held(all('[data-host-block]'), 'hostBlock'),
    queues: all('.queue').map((queue) => [...queue.querySelectorAll('[data-free]')].map((chip) => chip.dataset.free)),
    rows: all('[data-row]').map((row) => row.dataset.row)};
}"""


def freeze(page: Any, milliseconds: int) -> int:
    """Hold all animations at one moment; how many there are."""
    return page.locator(STAGE).first.evaluate(
        "(root, at) => { const all = root.getRootNode().getAnimations();"
        " all.forEach((a) => { a.pause(); a.currentTime = at; }); return all.length; }",
        milliseconds,
    )


def step_held(page: Any, milliseconds: int) -> int:
    """Step forward and hold all animations at one moment, in one breath, so that none is over; how many there are."""
    page.locator(STAGE).evaluate(
        "root => { root.querySelector('[aria-label=\"Step forward\"]').click();"
        " root.getRootNode().getAnimations().forEach((a) => a.pause()); }"
    )
    return freeze(page, milliseconds)


def test_buttons_and_keys_step(show: Open) -> None:
    page = show("lesson")
    last = len(stage_demo.lesson()["steps"])
    at(page, 0)
    press(page, "Step forward")
    at(page, 1)
    press(page, "Step back")
    at(page, 0)
    page.evaluate("document.activeElement.blur()")
    for key, step in {"ArrowRight": 1, "End": last, "ArrowLeft": last - 1, "Home": 0}.items():
        page.keyboard.press(key)
        at(page, step)
    page.keyboard.press("Space")
    playwright.expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.keyboard.press("Space")
    playwright.expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible()


def test_keys_typed_into_streamlit_inputs_are_theirs(show_in_streamlit: Open) -> None:
    page = show_in_streamlit("lesson", step=5)
    page.get_by_label("Answer").fill("7")
    for key in ("ArrowLeft", "Home", "Space", "End"):
        page.keyboard.press(key)
    at(page, 5)


def test_space_on_a_button_presses_it_once(show: Open) -> None:
    page = show("lesson")
    page.clock.install()
    page.get_by_role("button", name="Step forward", exact=True).focus()
    page.keyboard.press("Space")
    at(page, 1)
    page.clock.run_for(3000)  # it does not play
    at(page, 1)


def test_the_scrubber_draws_while_it_is_dragged(show: Open) -> None:
    page = show("lesson")
    scrubber = page.get_by_role("slider", name="Step")
    box = scrubber.bounding_box()
    page.mouse.move(box["x"] + 9, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=4)
    middle = int(page.locator(STAGE).get_attribute("data-step"))
    assert 7 < middle < 14
    page.mouse.up()
    page.get_by_text(f"Python heard: {middle}").wait_for()


def test_a_tick_of_the_timeline_goes_to_its_step(show: Open) -> None:
    page = show("lesson")
    tick = page.locator("[data-tick='4']")
    assert tick.get_attribute("aria-label") == "step 4: " + stage_demo.lesson()["steps"][3]["sentence"]
    tick.click()
    at(page, 4)
    assert tick.get_attribute("aria-current") == "step"


def shown_state(snapshot: Any) -> dict[str, Any]:
    """What READ must find for a state of the block manager."""
    size = snapshot.block_size
    rows = {
        seq: [
            f"h{host}" if block is None else str(block)
            for block, host in zip(row, snapshot.host_tables[seq], strict=True)
        ]
        for seq, row in snapshot.block_tables.items()
    }
    device = {str(block): [snapshot.ref_counts.get(block, 0), []] for block in range(snapshot.num_blocks)}
    host = {str(block): [snapshot.host_ref_counts.get(block, 0), []] for block in range(snapshot.host_blocks)}
    for seq, row in rows.items():
        for j, name in enumerate(row):
            held = [str(token) for token in snapshot.tokens[seq][j * size : (j + 1) * size]]
            pool = host if name.startswith("h") else device
            if len(held) > len(pool[name.removeprefix("h")][1]):
                pool[name.removeprefix("h")][1] = held
    return {
        "tables": {seq: row for seq, row in rows.items() if row},
        "tokens": {seq: [str(token) for token in snapshot.tokens[seq]] for seq, row in rows.items() if row},
        "entries": {f"{seq}{j}": name for seq, row in rows.items() for j, name in enumerate(row)},
        "device": device,
        "host": host,
        "queues": [[str(b) for b in snapshot.free_blocks], [f"h{b}" for b in snapshot.host_free_blocks]],
        "rows": list(rows),
    }


@pytest.mark.parametrize("direction", ["forward", "back", "jumping"])
def test_the_drawn_state_is_the_managers_at_every_step(show: Open, direction: str) -> None:
    player, happenings = stage_demo.play(stage_demo.CacheConfig(scatter=True), stage_demo.LESSON_OPS)
    snapshots = [player.base, *(happening.snapshot for happening in happenings)]
    order = list(range(len(snapshots)))
    if direction == "back":
        order.reverse()
    elif direction == "jumping":
        order = [step * 5 % len(snapshots) for step in order]
    page = show("lesson", step=order[0])
    for step, (seen,) in zip(order, at_each(page, order, READ), strict=True):
        expected = shown_state(snapshots[step])
        copying = [str(block) for block in snapshots[step].pinned]
        for block in copying:  # no table says what a pinned block holds: the copy event did
            assert seen["device"][block][1] == ["years", "ago", "our"]
            expected["device"][block][1] = seen["device"][block][1]
        assert seen == expected, f"step {step}"


def test_the_drawn_state_is_the_managers_at_every_step_with_cached_prefixes(show: Open) -> None:
    player, happenings = stage_demo.play(stage_demo.CACHED, stage_demo.CACHED_OPS)
    kinds = {happening.event.kind for happening in happenings}
    assert {"BlockHit", "BlockCached", "BlockCollapsed", "BlockEvicted"} <= kinds
    snapshots = [player.base, *(happening.snapshot for happening in happenings)]
    seen = at_each(show("cached"), range(len(snapshots)), READ, READ_HASHES)
    for step, (snapshot, (state, hashes)) in enumerate(zip(snapshots, seen, strict=True)):
        assert state == shown_state(snapshot), f"step {step}"
        assert hashes == shown_hashes(snapshot), f"step {step}"


# The hashes that are drawn, and the tokens of free blocks that still hold some.
READ_HASHES = """root => {
  const all = (selector) => [...root.querySelectorAll(selector)];
  const of = (block) => block.querySelector('.hash').textContent;
  const line = (block) => [of(block), block.querySelector('.parent').textContent];
  const kept = (block) => [...block.querySelectorAll('[data-fill=kept]')].map((cell) => cell.textContent);
  const pool = all('[data-block]').filter(of);
  return {pool: Object.fromEntries(pool.map((block) => [block.dataset.block, line(block)])),
    rows: Object.fromEntries(all('.logical').filter(of).map((b) => [b.dataset.seq + b.dataset.logical, of(b)])),
    kept: Object.fromEntries(all('[data-block]').filter((b) => kept(b).length).map((b) => [b.dataset.block, kept(b)])),
    said: pool.filter((b) => b.getAttribute('aria-label').includes(`cached, hash ${of(b)}`)).length,
    chips: all('.queue .free-chip[data-kept]').map((chip) => chip.textContent)};
}"""


def shown_hashes(snapshot: Any) -> dict[str, Any]:
    cached, free = snapshot.cached, snapshot.free_blocks
    parents = {block: entry.parent_hash for block, entry in cached.items()}
    return {
        "pool": {
            str(b): [e.block_hash[:4], f"after {parents[b][:4]}" if parents[b] else "first"] for b, e in cached.items()
        },
        "rows": {
            f"{seq}{j}": cached[block].block_hash[:4]
            for seq, row in snapshot.block_tables.items()
            for j, block in enumerate(row)
            if block in cached
        },
        "kept": {str(block): list(cached[block].tokens) for block in free if block in cached},
        "said": len(cached),
        "chips": [str(block) for block in free if block in cached],
    }


def test_a_free_block_that_may_be_hit_says_what_it_holds_and_when_it_goes(show: Open) -> None:
    page = show("cached", step=20)
    label = "physical block 2, free, still holds 4 tokens, cached, hash 724c after 7616, 5th out of the free queue"
    assert page.locator("[data-block='2']").get_attribute("aria-label") == label
    chip = page.locator(".free-chip[data-link=d2]")
    assert chip.get_attribute("aria-label") == "free block 2, cached, still holds hash 724c"
    assert "5th out" in page.locator("[data-block='2']").inner_text()
    page.locator("[data-block='2'] .cell").first.hover()
    assert page.get_by_role("tooltip").inner_text().startswith("“e”, slot 8: kept for")


def test_a_hit_brings_the_tokens_back_to_life(show: Open) -> None:
    page = show("cached", step=20)
    assert opacities(page, 0) == []
    step_held(page, 0)
    assert opacities(page, 0) == ["0.15"] * 4
    assert page.locator(".ghost").count() == 1  # its place in the free queue comes with it
    freeze(page, 379)
    assert {round(float(opacity)) for opacity in opacities(page, 0)} == {1}
    assert page.locator("[data-free='0']").count() == 0


def test_an_evicted_hash_is_struck_out_at_its_step_and_its_tokens_fade(show: Open) -> None:
    page = show("cached", step=28)
    block = page.locator("[data-block='2']")
    assert block.locator("[data-fill=kept]").count() == 4
    step_held(page, 100)
    assert page.locator(".ghost [data-fill=kept]").count() == 4
    assert block.locator("[data-fill=kept]").count() == 0
    assert block.locator("s").inner_text() == "724c"
    press(page, "Step forward")
    assert block.locator("s").text_content() == ""


def test_a_collapsed_block_gives_its_place_to_the_cached_one(show: Open) -> None:
    page = show("cached", step=11)
    step_held(page, 100)
    assert page.locator(".ghost [data-fill=filled]").count() == 4
    assert page.locator("[data-table-seq=B][data-table-logical='1'] s").text_content() == "5"
    assert page.locator("[data-block='2']").get_attribute("data-now") == ""
    assert page.locator("[data-block='5']").get_attribute("data-now") == "old"


def test_a_focused_block_shows_the_chain_that_its_hash_stands_for(show: Open) -> None:
    page = show("cached", step=35)
    chained = page.locator(".physical[data-chain]")
    assert chained.count() == 0
    page.locator("[data-block='1']").focus()
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.shadowRoot.activeElement.dataset.block") == "2"
    assert chained.evaluate_all("all => all.map((block) => block.dataset.block)") == ["1", "4", "5"]
    assert page.locator(".wires .chain:not(.head)").count() == 3
    page.keyboard.press("Escape")
    assert chained.count() == 0


def test_a_salt_is_named_where_the_chain_begins(show: Open) -> None:
    page = show("salted", step=len(stage_demo.salted()["steps"]))
    first = {
        seq: page.locator(f".logical[data-seq={seq}][data-logical='0']").get_attribute("data-entry") for seq in "ABC"
    }
    assert first["A"] == first["C"] != first["B"]
    for seq, salt in {"A": "red", "B": "blue"}.items():
        assert page.locator(f"[data-block='{first[seq]}'] .parent").inner_text() == f"salt “{salt}”"
        assert f"salt “{salt}”" in page.locator(f"[data-row={seq}] .salt").inner_text()
        assert f", salt “{salt}”" in page.locator(f"[data-block='{first[seq]}']").get_attribute("aria-label")


def test_the_next_slot_is_drawn_once_for_each_sequence_in_both_places(show: Open) -> None:
    page = show("lesson", step=11)  # B has written its eighth token, A has seven
    dashed = page.locator(f"{STAGE} .block [data-fill=next]")
    assert dashed.evaluate_all("cells => cells.map((c) => c.closest('.block').dataset.link)") == ["d7", "d7"]
    assert page.locator("[data-row=B] .after").text_content() == "next write allocates a block"
    assert page.locator("[data-row=A] .after").text_content() == ""


def test_a_rewritten_entry_keeps_its_old_id_struck_out_for_that_step(show: Open) -> None:
    page = show("lesson", step=10)
    row = page.locator("[data-table-seq=B][data-table-logical='1']")
    assert row.locator("s").text_content() == "7"
    assert row.get_attribute("data-physical") == "10"
    page.keyboard.press("ArrowRight")
    at(page, 11)
    assert row.locator("s").text_content() == ""


def test_a_block_says_what_it_is(show: Open) -> None:
    page = show("lesson", step=10)
    label = "physical block 1, named by A and B, 2 references, 4 of 4 slots filled"
    assert page.locator("[data-block='1']").get_attribute("aria-label") == label
    label = "sequence B, logical block 1, 3 of 4 tokens, physical block 10"
    assert page.locator("[data-seq=B][data-logical='1']").get_attribute("aria-label") == label


def test_all_ends_light_up_together_and_a_click_pins_them(show: Open) -> None:
    page = show("lesson", step=11)
    lit = page.locator(f"{STAGE} [data-lit]")
    page.locator(".free-chip[data-link=d5]").hover()
    assert lit.evaluate_all("ends => ends.map((end) => end.className)") == ["block physical", "free-chip"]
    page.locator("[data-block='1'] .id").hover()
    classes = lit.evaluate_all("ends => ends.map((end) => end.className)")
    assert classes == ["block logical", "entry", "block logical", "entry", "block physical"]
    assert page.locator(".wires path:not(.halo)").count() == 4
    page.locator("[data-block='1'] .id").click()
    page.mouse.move(2, 2)
    assert lit.count() == 5
    page.keyboard.press("Escape")
    assert lit.count() == 0
    assert page.locator(".wires path").count() == 0


def test_blocks_are_one_tab_stop_and_up_and_down_move_between_them(show: Open) -> None:
    page = show("lesson", step=11)
    assert page.locator("[data-rove=pool][tabindex='0']").count() == 1
    page.locator("[data-block='0']").focus()
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.shadowRoot.activeElement.dataset.block") == "1"
    playwright.expect(page.get_by_role("tooltip")).to_contain_text("named by A and B")
    page.keyboard.press("ArrowRight")
    at(page, 12)
    assert page.evaluate("document.activeElement.shadowRoot.activeElement.dataset.block") == "1"


def test_a_verdict_arrives_without_a_remount(show_in_streamlit: Open) -> None:
    page = show_in_streamlit("pending", step=9)
    stage = page.locator(STAGE)
    assert stage.get_attribute("data-verdict") == "pending"
    assert "not checked yet" in page.locator(".verdict").inner_text()
    assert page.locator(".step-place").inner_text() == "step 9 of 21, 9 not checked yet"
    page.keyboard.press("ArrowRight")
    stage.evaluate("root => { root.mine = true; root.querySelector('[data-block]').mine = true; }")
    press(page, "check all")
    playwright.expect(stage).to_have_attribute("data-verdict", "ok")
    at(page, 10)
    assert stage.evaluate("root => root.mine && root.querySelector('[data-block]').mine")
    assert "5.9e-08" in page.locator(".verdict").inner_text()
    assert page.locator(".step-place").inner_text() == "step 10 of 21, all 10 checked"


def test_nothing_to_compare_is_said_so(show: Open) -> None:
    page = show("lesson", step=2)
    words = page.locator(".verdict").inner_text()
    assert "no sequence with tokens is on the device" in words
    assert "8 invariants hold" in words


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_failed_check_is_red_and_says_what_failed(show: Open, theme: str) -> None:
    page = show("failed", step=5, theme=theme)
    assert page.locator(STAGE).get_attribute("data-verdict") == "failed"
    verdict = page.locator(".verdict")
    assert "failed for A: NaN in the output" in verdict.inner_text()
    colour = verdict.locator(".big").evaluate("n => getComputedStyle(n).color")
    red, green, blue = map(int, re.findall(r"\d+", colour)[:3])
    assert red > green + 80
    assert red > blue + 80
    page.locator("[data-tick='7']").click()
    assert "block 7 is in the free queue and in A's table" in verdict.inner_text()
    assert page.locator(".step-place").inner_text() == "step 7 of 21, 2 failed"


def test_a_refusal_shows_its_numbers_and_changes_nothing(show: Open) -> None:
    page = show("lesson", step=16)
    before = page.locator(STAGE).evaluate(READ)
    page.keyboard.press("ArrowRight")
    at(page, 17)
    notice = page.locator(".notice").inner_text()
    assert "Refused: 10 needed, 8 free" in notice
    assert page.locator(STAGE).evaluate(READ) == before
    page.keyboard.press("ArrowRight")
    assert page.locator(".notice").is_hidden()


def test_tokens_are_text_whatever_they_contain(show: Open) -> None:
    page = show("odd", step=11)
    stage = page.locator(STAGE)
    assert stage.locator("img").count() == 0
    assert page.evaluate("window.hacked") is None
    texts = stage.locator("[data-block='1'] bdi.text").all_text_contents()
    assert texts == [str(token) for token in stage_demo.ODD_TOKENS[:4]]
    arabic = stage.locator("[data-block='1'] bdi.text").nth(3)
    assert arabic.evaluate("n => getComputedStyle(n).direction") == "rtl"
    assert stage.locator(".sentence").evaluate("n => getComputedStyle(n).direction") == "ltr"
    page.locator("[data-block='1'] .cell").first.hover()
    assert page.get_by_role("tooltip").inner_text().startswith("“<img src=x onerror=window.hacked=1>”, slot 4")


def test_the_null_block_is_shown_as_such(show: Open) -> None:
    page = show("v1", step=5)
    assert page.locator("[data-block='0']").get_attribute("data-kind") == "null"
    assert page.locator("[data-block='0']").inner_text().split() == "0 null block reserved, never handed out".split()
    label = "physical block 0, the null block: reserved, never handed out, never written"
    assert page.locator("[data-block='0']").get_attribute("aria-label") == label
    assert page.locator("[data-free='0']").count() == 0


def test_play_stops_at_a_pause_and_step_forward_does_not(show: Open) -> None:
    page = show("pauses", step=2)
    page.clock.install()
    press(page, "Play")
    page.clock.run_for(5000)
    at(page, 4)
    playwright.expect(page.locator(".pause")).to_have_text("A question on the left comes first.")
    press(page, "Step forward")
    at(page, 5)
    assert page.locator(".pause").text_content() == ""
    veiled = page.locator("[data-tick='7']")
    assert veiled.get_attribute("aria-label") == "step 7"
    assert veiled.get_attribute("title") == "step 7"


def test_python_moves_the_stage_by_nonce_length_and_run(show_in_streamlit: Open) -> None:
    page = show_in_streamlit("lesson", step=20)
    page.get_by_text("Python heard: None").wait_for()  # nothing is sent at mount
    press(page, "undo")
    at(page, 10)
    press(page, "redo")
    playwright.expect(page.locator(STAGE)).to_have_attribute("data-steps", "21")
    at(page, 10)
    press(page, "jump to 9")
    at(page, 9)
    press(page, "Step back")
    press(page, "Step back")
    press(page, "Step back")
    at(page, 6)
    press(page, "new run")
    at(page, 2)
    press(page, "play to 6")
    at(page, 3)
    page.clock.install()
    page.clock.run_for(8000)
    at(page, 6)


def test_a_wish_made_before_the_stage_came_onto_the_page_is_obeyed_once(show_in_streamlit: Open) -> None:
    page = show_in_streamlit("wished")
    page.clock.install()
    page.clock.run_for(10_000)
    at(page, 6)
    page.get_by_text("Python heard: 6").wait_for()
    press(page, "Step back")
    page.get_by_text("Python heard: 5").wait_for()
    press(page, "undo")  # other data, in which the wish still is
    playwright.expect(page.locator(STAGE)).to_have_attribute("data-steps", "10")
    page.clock.run_for(3000)
    at(page, 5)


def test_two_stages_do_not_answer_to_one_key(show_in_streamlit: Open) -> None:
    page = show_in_streamlit("two")
    page.locator(STAGE).nth(1).wait_for()
    page.keyboard.press("ArrowRight")
    steps = page.locator(STAGE).evaluate_all("all => all.map((root) => Number(root.dataset.step))")
    assert sorted(steps) == [0, 1]
    page.locator(STAGE).nth(1).get_by_role("button", name="Step forward").click()
    page.keyboard.press("ArrowRight")
    assert int(page.locator(STAGE).nth(1).get_attribute("data-step")) == steps[1] + 2
    at(page, steps[0])


def test_a_stage_that_is_taken_away_leaves_no_listener(show_in_streamlit: Open) -> None:
    page = show_in_streamlit("lesson")
    press(page, "Step forward")
    page.get_by_text("Python heard: 1").wait_for()
    for _ in range(2):
        page.get_by_text("hide").click()
        playwright.expect(page.locator(STAGE)).to_have_count(0)
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("ArrowRight")
        page.get_by_text("hide").click()
        at(page, 0)
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("ArrowRight")
    at(page, 1)


def test_a_flight_overlays_the_final_state_and_the_next_step_ends_it(show: Open) -> None:
    page = show("lesson", step=10)
    assert step_held(page, 190) > 0
    landing = page.locator("[data-block='10'] [data-offset='3'] .fill")
    assert landing.evaluate("n => getComputedStyle(n).opacity") == "0"  # not filled before its token lands
    assert page.locator("[data-block='10'] [data-offset='3']").get_attribute("data-fill") == "filled"
    assert page.locator(".ghost").count() == 1
    press(page, "Step back")
    at(page, 10)
    assert page.locator(".ghost").count() == 0
    assert page.locator(STAGE).evaluate("root => root.getRootNode().getAnimations().length") == 0
    read = "root => root.getRootNode().getAnimations().map((a) => a.effect.getComputedTiming().endTime)"
    durations = [duration for (found,) in at_each(page, range(11, 22), read) for duration in found]
    assert 0 < max(durations) <= 400


def opacities(page: Any, block: int) -> list[str]:
    cells = page.locator(f"[data-block='{block}'] [data-fill=filled] .fill")
    return cells.evaluate_all("cells => cells.map((cell) => getComputedStyle(cell).opacity)")


def test_tokens_given_together_are_one_step_in_all_of_their_blocks(show: Open) -> None:
    page = show("lesson", step=3)
    before = page.locator(STAGE).evaluate(READ)
    press(page, "Step forward")
    at(page, 4)
    now = page.locator(f"{STAGE} [data-now]")
    names = now.evaluate_all("all => all.map((n) => n.dataset.link ?? n.dataset.physical)")
    assert names == ["d1", "d7", "1", "7", "d1", "d7"]  # in the row, in the table, in the pool
    assert now.evaluate_all("all => all.map((n) => n.dataset.now)") == [""] * 6
    assert page.locator("[data-tick='4']").inner_text() == "prefill"
    said = page.locator(".sentence")
    assert said.inner_text().startswith("One launch wrote A's 7 tokens (positions 0-6)")
    assert said.get_attribute("aria-live") == "polite"
    press(page, "Step back")
    assert page.locator(STAGE).evaluate(READ) == before
    page.locator("[data-tick='15']").click()  # two tokens behind eight: into the third block alone
    names = now.evaluate_all("all => all.map((n) => n.dataset.link ?? n.dataset.physical)")
    assert len({name.removeprefix("d") for name in names}) == 1
    assert len(names) == 3


def test_tokens_given_together_land_one_after_the_other(show: Open) -> None:
    page = show("lesson", step=3)
    step_held(page, 0)
    assert page.locator(".ghost").count() == 7
    assert opacities(page, 1) == ["0"] * 4
    assert opacities(page, 7) == ["0"] * 3
    freeze(page, 300)
    assert opacities(page, 1) == ["1"] * 4  # they lie there from 190 ms on, each 32 ms later
    assert opacities(page, 7) == ["0"] * 3
    freeze(page, 379)
    assert opacities(page, 7) == ["1", "1", "0"]
    press(page, "Step back")
    at(page, 3)
    assert page.locator(".ghost").count() == 0


def test_tokens_given_together_are_told_on_a_canvas_too(show: Open) -> None:
    page = show("big", step=10)
    label = page.locator("canvas.big").get_attribute("aria-label")
    assert "This step: physical block" in label
    press(page, "Step forward")
    at(page, 11)
    event = stage_demo.big()["steps"][10]["event"]
    assert event["kind"] == "TokensWritten"
    blocks = list(dict.fromkeys(slot // 4 for slot in event["slots"]))
    label = page.locator("canvas.big").get_attribute("aria-label")
    assert [int(block) for block in re.findall(r"physical block (\d+)", label)] == blocks[:4]
    assert label.endswith(f"; and {len(blocks) - 4} more blocks")
    now = page.locator(f"{STAGE} .logical[data-now]").evaluate_all("all => all.map((n) => Number(n.dataset.entry))")
    assert now
    assert set(now) <= set(blocks)
    read = "root => root.getRootNode().getAnimations().map((a) => a.effect.getComputedTiming().endTime)"
    assert max(page.locator(STAGE).evaluate(read), default=0) <= 400


def test_reduced_motion_moves_nothing(show: Open) -> None:
    page = show("lesson", step=3, reduced_motion="reduce")
    moving = "root => root.getRootNode().getAnimations().length + root.querySelectorAll('.ghost').length"
    assert at_each(page, range(4, 18), moving) == [[0]] * 14
    assert max(at_each(show("lesson", step=3), range(4, 18), moving)) > [0]


@pytest.mark.parametrize(
    ("case", "step", "theme"),
    [
        ("lesson", 4, "dark"),
        ("lesson", 10, "light"),
        ("lesson", 13, "dark"),
        ("failed", 7, "light"),
        ("big", 3, "light"),
        ("cached", 20, "dark"),
        ("cached", 29, "light"),
        ("salted", 12, "dark"),
    ],
)
def test_axe_finds_nothing(show: Open, case: str, step: int, theme: str) -> None:
    page = show(case, step=step, theme=theme)
    assert violations(page) == []


@pytest.mark.parametrize("width", [390, 900, 1280])
def test_nothing_sticks_out_sideways(show: Open, width: int) -> None:
    page = show("lesson", step=11, width=width)
    assert page.locator(".stMain").evaluate("n => n.scrollWidth - n.clientWidth") <= 0
    names = ["Step back", "Play", "Step forward"]
    for name in names:
        assert page.get_by_role("button", name=name, exact=True).is_visible()


def test_a_big_pool_is_one_canvas_that_can_be_searched(show: Open) -> None:
    page = show("big", step=1)
    canvas = page.locator("canvas.big")
    assert canvas.get_attribute("aria-label").startswith("Device pool, 8,192 blocks: ")
    assert page.locator("[data-block]").count() == 0
    assert page.locator("[data-row]").count() <= 6
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 40, box["y"] + 10)
    playwright.expect(page.get_by_role("tooltip")).to_contain_text("physical block ")
    page.get_by_label("Show a sequence").select_option("s7")
    assert page.locator("[data-row=s7]").count() == 1
    entry = page.locator("[data-row=s7] .entry").first
    block = entry.inner_text()
    page.get_by_label("Find block").fill(block)
    page.keyboard.press("Enter")
    assert entry.get_attribute("data-lit") == ""
    assert page.locator("canvas.mini").is_visible()
    press(page, "Show the whole pool")
    assert page.locator("canvas.mini").is_hidden()


def test_a_canvas_tells_the_free_blocks_that_may_be_hit(show: Open) -> None:
    data = stage_demo.wide()
    page = show("wide", step=len(data["steps"]))
    words = "0 in use, 0 of them shared, 100 free, 2 of them cached"
    assert page.locator(".big-pool .summary").first.inner_text() == words
    block = next(step["event"]["block"] for step in data["steps"] if step["event"]["kind"] == "BlockCached")
    colours = page.locator("canvas.big").first.evaluate(
        """(canvas, block) => {
          const columns = Math.max(16, Math.ceil(Math.ceil(Math.sqrt(100 * canvas.clientWidth / 264)) / 16) * 16);
          const side = canvas.clientWidth / columns;
          const pixel = (n) => (n + 0.4) * side * devicePixelRatio;
          const at = (k) => canvas.getContext('2d')
            .getImageData(pixel(k % columns), pixel(Math.floor(k / columns)), 1, 1).data.join();
          return [...Array(100).keys()].filter((k) => at(k) === at(block));
        }""",
        block,
    )
    kept = {step["event"]["block"] for step in data["steps"] if step["event"]["kind"] == "BlockCached"}
    assert set(colours) == kept


def test_two_thousand_steps_have_a_window_of_ticks(show: Open) -> None:
    page = show("long", step=1000)
    assert page.locator("[data-tick]").count() < 60
    assert page.locator("[data-tick='1000']").get_attribute("aria-current") == "step"
    page.keyboard.press("End")
    at(page, 2002)
    assert page.locator("[data-tick='2002']").count() == 1


@pytest.mark.parametrize("case", ["lesson", "long", "big"])
def test_step_to_drawn_is_measured(show: Open, case: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Printed where no other process runs tests beside it: `pytest tests/browser -k measured`."""
    page = show(case)
    page.locator(STAGE).evaluate("""root => {
      window.times = [];
      document.addEventListener('click', (event) => {
        const from = event.timeStamp;
        requestAnimationFrame(() => { const channel = new MessageChannel();
          channel.port1.onmessage = () => window.times.push(performance.now() - from); channel.port2.postMessage(0); });
      }, true);
    }""")
    forward = page.get_by_role("button", name="Step forward", exact=True)
    for n in range(20):
        forward.click()
        page.wait_for_function("n => window.times.length > n", arg=n)
    times = sorted(page.evaluate("window.times"))
    assert len(times) == 20
    p95 = times[int(0.95 * len(times))]
    with capsys.disabled():
        print(f"\nstage, {case}: click to drawn p50 {statistics.median(times):.0f} ms, p95 {p95:.0f} ms")
