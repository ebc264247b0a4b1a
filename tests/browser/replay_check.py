"""The stage's own replay, run in a browser over a log of events, as a snapshot after each: no page is drawn."""

from collections.abc import Iterable
from typing import Any

from pagedviz.engine.log.events.base import Event
from pagedviz.engine.log.snapshot import Snapshot
from pagedviz.ui import stage
from pagedviz.ui.stage.bundle import bundle

Data = dict[str, Any]

# What the stage knows at each step, in the snapshot's words; of cached blocks the group too, which JSON does not say.
IMPORT_REPLAY = 'import { Replay } from "./state/replay.js";'
REPLAY = """(base, events) => {
  const plain = (map, of = (value) => value) => Object.fromEntries([...map].map(([key, value]) => [key, of(value)]));
  const counts = (list) => Object.fromEntries([...list].map((n, block) => [block, n]).filter(([, n]) => n));
  const device = (tables) => plain(tables, (row) => row.map((entry) => (entry < 0 ? null : entry)));
  const of = ({ prompt, outputs, numTokens, priority, salt, samples, beams, scores }) =>
    ({ prompt, outputs: plain(outputs), num_tokens: numTokens, priority, salt, samples, beams, scores: plain(scores) });
  const tier = (t) => t && ({ num_chunks: t.numChunks, recency: t.recency,
    chunks: plain(t.chunks, ({ hash, state, pins }) => ({ block_hash: hash, state, pins })),
    transfers: plain(t.transfers, ({ kind, hashes, blocks, chunks }) =>
      ({ kind, block_hashes: hashes, device_blocks: blocks, chunks })) });
  const shown = (s) => ({
    null_block: s.nullBlock, block_tables: device(s.tables), group_tables: s.groupTables.map(device),
    host_tables: plain(s.tables, (row) => row.map((entry) => (entry < 0 ? -1 - entry : null))),
    tokens: plain(s.tokens), ref_counts: counts(s.refs), host_ref_counts: counts(s.hostRefs),
    pinned: [...s.pins.keys(), ...s.held.keys()].sort((a, b) => a - b),
    free_blocks: s.free, host_free_blocks: s.hostFree, cached: plain(s.cached, ({ hash, group }) => [hash, group]),
    requests: plain(s.requests, of), waiting: s.waiting, running: s.running, swapped: s.swapped,
    scheduled: plain(s.scheduled), engine_step: s.engineStep, token_budget: s.tokenBudget, windows: s.windows,
    drafted: plain(s.drafted, ({ tokens }) => tokens), unverified: plain(s.unverified, ({ count }) => count),
    tier: tier(s.tier),
  });
  const replay = new Replay(base, events.map((event) => ({ event })));
  return [...events.keys(), events.length].map((step) => shown(replay.at(step)));
}"""


def call(browser: Any, imports: str, function: str, *arguments: Any) -> Any:
    """What a function returns that uses the stage's modules; `imports` are its import lines."""
    modules = stage.modules() | {"call.js": f"{imports}\nexport default {function};\n"}
    page = browser.new_page()
    try:
        js = bundle(modules, "call.js").replace("export default", "return")
        return page.evaluate("([js, given]) => new Function(js)()(...given)", [js, arguments])
    finally:
        page.close()


def replayed(browser: Any, base: Snapshot, events: Iterable[Event]) -> list[Data]:
    """What the stage makes of a log: the state before it, and after each event."""
    states: list[Data] = call(browser, IMPORT_REPLAY, REPLAY, base.to_json(), [event.to_json() for event in events])
    return states


def expected(snapshot: Snapshot) -> Data:
    """The engine's state, in the form that the stage's is compared in."""
    data = snapshot.to_json()
    for name in ("block_size", "num_blocks", "host_blocks", "seq_lens", "last_scheduled", "salts"):
        data.pop(name, None)
    data["cached"] = {str(block): [held.block_hash, held.group] for block, held in snapshot.cached.items()}
    if data["tier"]:
        data["tier"].pop("free_chunks")
        named = ("kind", "block_hashes", "device_blocks", "chunks")
        transfers = data["tier"]["transfers"]
        data["tier"]["transfers"] = {number: {key: t[key] for key in named} for number, t in transfers.items()}
    return plain(data)


def plain(value: Any) -> Any:
    """Tuples as lists and keys as text, as JSON has them."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value
