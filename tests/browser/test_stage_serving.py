"""What a real server has, on the stage in a real Chromium: what is drawn is what the engine's snapshots say."""

import re
from typing import Any

import pytest

pytestmark = pytest.mark.browser
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

from tests.browser import serving_cases  # noqa: E402
from tests.browser.conftest import STAGE, Open, at, at_each, violations  # noqa: E402
from tests.browser.test_stage import freeze, step_held  # noqa: E402

# Tables by group and sequence; the ids in the rows' blocks; the group of each block in the pool.
READ_GROUPS = """root => {
  const all = (node, selector) => [...node.querySelectorAll(selector)];
  const tables = {};
  for (const table of all(root, '.table')) {
    (tables[table.dataset.group] ??= {})[table.dataset.table] = all(table, '[data-physical]').map((row) =>
      [Number(row.dataset.physical), 'null' in row.dataset]);
  }
  const rows = Object.fromEntries(all(root, '.seq').map((row) => [row.dataset.row, all(row, '.logical').map((block) =>
    all(block, '.id-of').map((id) => Number(id.querySelector('.id').textContent)))]));
  const marks = Object.fromEntries(all(root, '[data-block]').map((block) => [block.dataset.block,
    block.querySelector('.group').textContent]).filter(([, mark]) => mark));
  return { tables, rows, marks };
}"""

# By sequence, position and cell: [text, fill, mark] of what is not simply filled or empty.
READ_SLOTS = """root => {
  const out = {};
  for (const block of root.querySelectorAll('.logical')) {
    const cells = [...block.querySelectorAll('.cell')];
    cells.forEach((cell, offset) => {
      const { fill, mark = null } = cell.dataset;
      if (mark || ['draft', 'rolled', 'gone'].includes(fill)) {
        const coming = ['next', 'pending', 'sampled'].includes(fill);
        out[block.dataset.seq + (block.dataset.logical * cells.length + offset)] =
          coming ? ['', 'coming', mark] : [cell.textContent, fill, mark];
      }
    });
  }
  return out;
}"""

READ_TIER = """root => {
  const all = (selector) => [...root.querySelectorAll(selector)];
  return {
    chunks: Object.fromEntries(all('.chunk').filter((chunk) => chunk.dataset.state !== 'free').map((chunk) =>
      [chunk.dataset.chunk, [chunk.dataset.state, chunk.querySelector('.badge').textContent,
       chunk.querySelector('.hash').textContent]])),
    recency: all('.recency .free-chip').map((chip) => chip.textContent),
    transfers: all('.transfer').map((one) => one.querySelector('b').textContent
      + [...one.querySelectorAll('.pair')].map((pair) => pair.textContent).join(', ')),
    held: Object.fromEntries(all('[data-block][data-transfer]').map((block) => [block.dataset.block,
      block.querySelector('.note').textContent])),
  };
}"""


def step_of(name: str, kind: str, nth: int = 0) -> int:
    """The step that a case's nth event of a kind leads to."""
    _, happenings = serving_cases.played(name)
    return [k for k, happening in enumerate(happenings, 1) if happening.event.kind == kind][nth]


def go(page: Any, step: int) -> None:
    page.get_by_role("slider", name="Step").fill(str(step))
    at(page, step)


def states(name: str) -> list[Any]:
    player, happenings = serving_cases.played(name)
    return [player.base, *(happening.snapshot for happening in happenings)]


def test_each_group_has_its_table_and_each_block_its_group(show: Open) -> None:
    snapshots = states("groups")
    for step, (seen,) in enumerate(at_each(show("groups"), range(len(snapshots)), READ_GROUPS)):
        snapshot = snapshots[step]
        rows = {seq: [snapshot.tables(group)[seq] for group in (0, 1)] for seq in snapshot.block_tables}
        named = {seq: max(map(len, both)) for seq, both in rows.items()}
        null = snapshot.null_block
        assert seen["tables"] == {
            str(group): {seq: [[block, block == null] for block in both[group]] for seq, both in rows.items()}
            for group in (0, 1)
            if rows
        }, f"step {step}"
        assert seen["rows"] == {
            seq: [[row[j] for row in both if j < len(row)] for j in range(named[seq])] for seq, both in rows.items()
        }, f"step {step}"
        cached = {block: held.group for block, held in snapshot.cached.items()}
        owned = {block: group for both in rows.values() for group, row in enumerate(both) for block in row}
        groups = {str(block): f"g{group}" for block, group in {**cached, **owned}.items() if block != null}
        assert seen["marks"] == groups, f"step {step}"


def test_a_logical_block_lights_its_block_in_every_group(show: Open) -> None:
    written = step_of("groups", "TokensWritten", 1)
    page = show("groups", step=written)
    snapshot = states("groups")[written]
    now = page.locator(".physical[data-now]").evaluate_all("all => all.map((node) => Number(node.dataset.block))")
    assert now == sorted(snapshot.tables(group)["A"][j] for group in (0, 1) for j in (1, 2))
    captions = page.locator("[data-row=A] caption").all_inner_texts()
    assert captions == ["group 0 · full attention", "group 1 · window 6"]
    page.locator(".logical[data-seq=A][data-logical='1'] .cells").hover()
    lit = page.locator(f"{STAGE} [data-lit]").evaluate_all(
        "all => all.map((node) => node.dataset.link).sort().join(';')"
    )
    both = [f"d{snapshot.tables(group)['A'][1]}" for group in (0, 1)]
    assert lit == ";".join(sorted([*both, *both, " ".join(both)]))  # in the pool, in the tables, in the row
    assert page.locator(".wires path[style]").count() == 4


def window_marks(snapshot: Any, window: int) -> dict[str, list[Any]]:
    size = snapshot.block_size
    out = {}
    for seq, tokens in snapshot.tokens.items():
        for position, token in enumerate(tokens):
            seen = "seen" if position > len(tokens) - window else "out"
            gone = snapshot.block_tables[seq][position // size] == snapshot.null_block
            out[f"{seq}{position}"] = [token, "gone", None] if gone else [token, "filled", seen]
    return out


def test_what_is_out_of_the_window_is_dimmed_and_its_block_leaves(show: Open) -> None:
    snapshots = states("window")
    left = step_of("window", "BlockOutOfWindow")
    page = show("window", step=left - 1)
    stage = page.locator(STAGE)
    _, happenings = serving_cases.played("window")
    block = happenings[left - 1].event.block
    assert stage.evaluate(READ_SLOTS) == window_marks(snapshots[left - 1], 6)
    assert step_held(page, 100) > 0
    assert page.locator(".ghost.free-chip").inner_text() == str(block)  # on its way to the free queue
    row = page.locator("[data-table-seq=A][data-table-logical='0']")
    assert row.locator("s, button, td:nth-child(n + 3)").all_inner_texts() == [str(block), "0", "–", "null"]
    label = page.locator(".logical[data-seq=A]").first.get_attribute("aria-label")
    assert "4 of 4 tokens, out of the window, physical block 0, the null block" in label
    for step in (left, len(snapshots) - 1):
        go(page, step)
        assert stage.evaluate(READ_SLOTS) == window_marks(snapshots[step], 6), f"step {step}"


def draft_cells(snapshots: list[Any], events: list[Any]) -> dict[str, list[Any]]:
    """What READ_SLOTS must find of one sequence A with drafts, from the engine's events and its last state."""
    snapshot, garbage = snapshots[-1], dict[int, Any]()
    for before, event, after in zip(snapshots, events, snapshots[1:], strict=False):
        if event.kind == "DraftsVerified":
            kept = len(after.tokens["A"])
            garbage |= dict(enumerate(before.tokens["A"][kept:], kept))
        for write in getattr(event, "writes", ()):
            for position in range(write.position, write.position + len(write.tokens)):
                garbage.pop(position, None)
    held = len(snapshot.tokens["A"]) if snapshot.tokens else 0
    out = {f"A{p}": ["", "coming", "rolled"] if p == held else [token, "rolled", None] for p, token in garbage.items()}
    for position, token in enumerate(snapshot.drafted.get("A", ()), held + 1):
        if position < len(snapshot.block_tables["A"]) * snapshot.block_size:
            out[f"A{position}"] = [token, "draft", "rolled" if position in garbage else None]
    for position in range(held - snapshot.unverified.get("A", 0), held):
        out[f"A{position}"] = [snapshot.tokens["A"][position], "filled", "unverified"]
    return out


def test_drafts_are_ghosts_then_unverified_then_tokens_or_garbage(show: Open) -> None:
    events, snapshots = [h.event for h in serving_cases.played("drafts")[1]], states("drafts")
    labelled = "root => [...root.querySelectorAll('.logical')].map((b) => b.getAttribute('aria-label')).join()"
    found = set()
    for step, (seen, labels) in enumerate(at_each(show("drafts"), range(len(snapshots)), READ_SLOTS, labelled)):
        assert seen == draft_cells(snapshots[: step + 1], events[:step]), f"step {step}"
        found |= {(fill, mark) for _, fill, mark in seen.values()}
        garbage = sum("rolled" in cell[1:] for cell in seen.values())
        assert sum(map(int, re.findall(r"(\d+) rolled back", labels))) == garbage, f"step {step}"
    drawn = {("draft", None), ("draft", "rolled"), ("filled", "unverified"), ("rolled", None), ("coming", "rolled")}
    assert found == drawn


def test_a_draft_tells_its_confidence_and_the_rejected_fade(show: Open) -> None:
    drafted = step_of("drafts", "TokensDrafted", 1)
    verified = step_of("drafts", "DraftsVerified", 1)
    _, happenings = serving_cases.played("drafts")
    event = happenings[drafted - 1].event
    page = show("drafts", step=verified - 1)
    tip = page.get_by_role("tooltip")
    page.locator(".logical [data-mark=unverified]").first.hover()
    assert f"confidence {event.confidences[0]:.2f}: written, and not verified yet" in tip.inner_text()
    rejected = happenings[verified - 1].event.rejected
    assert step_held(page, 50) > 0
    assert page.locator(".ghost").all_inner_texts() == list(rejected)
    freeze(page, 379)
    page.locator(".physical [data-fill=rolled]").first.hover()
    assert "was rolled back; it is garbage until it is overwritten" in tip.inner_text()


def test_the_host_tier_shows_chunks_transfers_and_what_they_hold(show: Open) -> None:
    snapshots = states("tier")
    read = at_each(show("tier"), range(len(snapshots)), READ_TIER)
    for step, (snapshot, (seen,)) in enumerate(zip(snapshots, read, strict=True)):
        tier, pins = snapshot.tier, lambda n: "" if not n else f"{n} pin{'s' * (n > 1)}"
        assert seen["chunks"] == {
            str(chunk): [held.state, pins(held.pins), held.block_hash[:8]] for chunk, held in tier.chunks.items()
        }, f"step {step}"
        assert seen["recency"] == [block_hash[:8] for block_hash in tier.recency], f"step {step}"
        told = {"store": "block {block} → chunk {chunk}", "load": "chunk {chunk} → block {block}"}
        assert seen["transfers"] == [
            f"{t.kind} {number}:"
            + ", ".join(told[t.kind].format(block=b, chunk=c) for b, c in zip(t.device_blocks, t.chunks, strict=True))
            for number, t in tier.transfers.items()
        ], f"step {step}"
        assert set(seen["held"]) == {str(block) for block in snapshot.pinned}, f"step {step}"


def test_a_store_flies_to_its_chunk_and_a_chunk_lights_its_block(show: Open) -> None:
    begun = step_of("tier", "TierStoreBegun")
    page = show("tier", step=begun - 1)
    _, happenings = serving_cases.played("tier")
    event = happenings[begun - 1].event
    step_held(page, 100)
    assert page.locator(".ghost.cells").count() == len(event.device_blocks)
    page.get_by_role("button", name="Step back").click()
    go(page, begun)
    page.locator(f"[data-chunk='{event.chunks[0]}'] .head").hover()
    lit = page.locator(".physical[data-lit]").evaluate_all("all => all.map((node) => Number(node.dataset.block))")
    assert lit == [event.device_blocks[0]]
    label = page.locator(f"[data-chunk='{event.chunks[0]}']").get_attribute("aria-label")
    short = event.block_hashes[0][:8]
    assert label == f"host chunk {event.chunks[0]}, pending, store 1, hash {short}, also in device block {lit[0]}"


def test_beams_grow_a_tree_whose_pruned_branches_fade(show: Open) -> None:
    _, happenings = serving_cases.played("beams")
    chosen = [k for k, happening in enumerate(happenings, 1) if happening.event.kind == "BeamsChosen"]
    page = show("beams", step=chosen[2])
    tree = page.get_by_role("region", name="Beams of A")
    event = happenings[chosen[2] - 1].event
    leaves = tree.locator(".beam[data-last]")
    shown = leaves.evaluate_all(
        "all => all.map((n) => [n.querySelector('.text').textContent,"
        " n.querySelector('.score').textContent, n.querySelector('.owner').textContent])"
    )
    said = zip(event.tokens, event.scores, event.seq_ids, strict=True)
    assert sorted(shown) == sorted([token, f"{score:.2f}".replace("-", "−"), seq] for token, score, seq in said)
    # every leaf hangs below what its sequence had said before
    outputs = happenings[chosen[2] - 1].snapshot.requests["A"].outputs
    for seq, tokens in outputs.items():
        path = leaves.filter(has_text=seq).evaluate(
            "n => { const words = []; for (let li = n.closest('li'); li; li = li.parentElement.closest('li'))"
            " words.unshift(li.querySelector('.text').textContent); return words; }"
        )
        assert path == list(tokens)
    faded = tree.locator("li:not([data-alive]) > .beam")
    assert faded.count() == 3 * 3 - tree.locator("li[data-alive]").count() > 0
    assert "goes no further" in faded.first.text_content()
    living = tree.locator(".beam-level").evaluate_all(
        "all => all.map((n) => [...n.children].map((li) => 'alive' in li.dataset))"
    )
    assert all(level == sorted(level, reverse=True) for level in living)  # the living come first
    card = page.locator("[data-request=A]")
    assert card.locator("[data-seq-of-request]").all_inner_texts() == [
        f"{seq}\n{tokens[-1]}" for seq, tokens in outputs.items()
    ]


def test_the_legend_has_no_sign_that_a_run_does_not_use(show: Open) -> None:
    signs = "all => all.filter((sign) => !sign.hidden).map((sign) => sign.textContent)"
    usual = ["next token", "free, may be hit", "nobody's: stale or NaN"]
    for name, own in {"tier": [], "window": ["in the next token’s window", "out of it"]}.items():
        page = show(name)
        assert page.locator(".legend-item").evaluate_all(signs) == [usual[0], *own, *usual[1:]]
        assert page.locator(".tier-box").is_visible() == (name == "tier")


@pytest.mark.parametrize(
    ("name", "kind", "nth", "theme", "width"),
    [
        ("groups", "PrefixSkipped", 0, "dark", 390),
        ("window", "BlockOutOfWindow", 1, "light", 1280),
        ("drafts", "TokensWritten", 2, "dark", 1280),
        ("drafts", "DraftsVerified", 1, "light", 390),
        ("tier", "TierLoadBegun", 0, "light", 1280),
        ("beams", "BeamsChosen", 4, "dark", 390),
    ],
)
def test_axe_finds_nothing_and_nothing_sticks_out(
    show: Open, name: str, kind: str, nth: int, theme: str, width: int
) -> None:
    page = show(name, step=step_of(name, kind, nth), theme=theme, width=width)
    assert page.locator(".stMain").evaluate("n => n.scrollWidth - n.clientWidth") <= 0
    assert violations(page) == []
