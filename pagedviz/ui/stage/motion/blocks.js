// Blocks: what flies where when sequences come and when blocks are taken, shared, written, copied and freed.
import { hostEntry } from "../state/entries.js";
import { writesOf } from "../state/blocks.js";
import { slotOf } from "../state/places.js";
import { badge, fade, fills, hashOf, land, takeFromQueue, toQueue } from "./ghosts.js";

const MOST_FLIGHTS = 64; // of the tokens of one write; the others are there already

const entryOf = (event) => (event.where === "host" ? hostEntry(event.block) : event.block);

export const measures = {
  BlockAllocated: (m, e) => m.taken(e.block),
  BlockHit: (m, e) => m.taken(e.block),
  BlockCopied: (m, e) => m.taken(e.target),
  BlockEvicted: (m, e) => m.left(e.block),
  BlockCollapsed: (m, e) => m.left(e.source),
  BlockFreed: (m, e) => m.left(entryOf(e)),
};

export const moves = {
  SequenceAdded: (m, e) => m.appear(m.root.querySelector(`[data-row="${CSS.escape(e.seq_id)}"]`)),
  SequenceForked: (m, e) => moves.SequenceAdded(m, e),
  BlockAllocated: (m, e, before) => {
    takeFromQueue(m, e.block, before);
    m.appear(m.logical(e.seq_id, e.logical_block));
    m.pulse(badge(m.physical(e.block)));
  },
  BlockShared: (m, e) => {
    m.appear(m.logical(e.seq_id, e.logical_block));
    m.pulse(badge(m.physical(entryOf(e))), 1.6);
  },
  BlockHit: (m, e, before) => {
    takeFromQueue(m, e.block, before);
    m.appear(m.logical(e.seq_id, e.logical_block));
    for (const fill of before.chip ? fills(m.physical(e.block)) : []) m.run(fill, [{ opacity: 0.15 }, { opacity: 1 }]);
    m.pulse(hashOf(m.physical(e.block)), 1.4);
    m.pulse(badge(m.physical(e.block)), 1.6);
  },
  BlockCached: (m, e) => {
    for (const block of [m.logical(e.seq_id, e.logical_block - 1), m.physical(e.block), m.logical(e.seq_id, e.logical_block)]) m.pulse(hashOf(block), 1.4);
  },
  BlockEvicted: (m, e, before) => fade(m, before.cells, [{ opacity: 1, filter: "none" }, { opacity: 0, filter: "blur(5px)" }]),
  BlockCollapsed: (m, e, before) => {
    land(m, e.target, before.cells);
    m.pulse(m.logical(e.seq_id, e.logical_block)?.querySelector(".id"), 1.6);
    m.pulse(badge(m.physical(e.target)), 1.6);
    toQueue(m, e.source);
  },
  TokenWritten: flyTokens,
  TokensWritten: flyTokens,
  BatchWritten: flyTokens,
  WriteStopped: (m, e) => {
    const shake = [0, -3, 3, -2, 0].map((x) => ({ transform: `translateX(${x}px)` }));
    m.run(m.physical(e.block), shake);
    m.pulse(badge(m.physical(e.block)), 1.6);
  },
  BlockCopied: (m, e, before) => {
    land(m, e.target, m.strip(e.source));
    takeFromQueue(m, e.target, before);
  },
  EntryRewritten: (m, e) => {
    m.pulse(badge(m.physical(e.source)), 1.6);
    m.pulse(badge(m.physical(e.target)), 1.6);
    m.pulse(m.logical(e.seq_id, e.logical_block)?.querySelector(".id"), 1.6);
    m.pulse(m.root.querySelector(`[data-table="${CSS.escape(e.seq_id)}"] [data-now] .entry`), 1.4);
  },
  BlockReleased: (m, e) => m.pulse(badge(m.physical(entryOf(e))), 1.6),
  BlockFreed: (m, e, before) => {
    fade(m, before.cells);
    toQueue(m, entryOf(e));
  },
};

// Each token flies from its cell in the row to its slot in every group, one after the other; the last lands when time is up.
function flyTokens(motion, event) {
  const writes = writesOf(event);
  for (const write of writes) flyWrite(motion, write, Math.ceil(MOST_FLIGHTS / writes.length));
}

function flyWrite(motion, { seq_id, position, tokens }, most) {
  const { state } = motion;
  const flights = [];
  for (const block of motion.root.querySelectorAll(`.logical[data-seq="${CSS.escape(seq_id)}"]`)) {
    for (const cell of block.querySelectorAll("[data-offset]")) {
      const at = block.dataset.logical * state.blockSize + Number(cell.dataset.offset);
      if (at < position || at >= position + tokens.length) continue;
      for (let group = 0; group < state.windows.length && flights.length < most; group += 1) {
        const slot = slotOf(state, seq_id, at, group);
        if (slot === null) continue;
        const entry = Math.floor(slot / state.blockSize);
        const target = motion.physical(entry)?.querySelector(`[data-offset="${slot % state.blockSize}"]`);
        flights.push({ cell, target, from: cell.getBoundingClientRect(), to: target?.getBoundingClientRect() ?? motion.rect(entry) });
      }
    }
  }
  if (flights.length === 0) return;
  const style = getComputedStyle(flights[0].cell);
  const colours = ["--fill", "--fill-text"].map((name) => [name, style.getPropertyValue(name)]);
  const duration = motion.ms * (flights.length > 1 ? 0.5 : 1);
  flights.forEach(({ cell, target, from, to }, k) => {
    const ghost = cell.cloneNode(true);
    for (const [name, value] of colours) ghost.style.setProperty(name, value);
    const delay = k && ((motion.ms - duration) * k) / (flights.length - 1);
    motion.fly(ghost, from, to, target ? [target.firstElementChild] : [], { delay, duration });
    motion.run(cell.firstElementChild, [{ transform: "scale(.8)", opacity: 0.3 }, { transform: "none", opacity: 1 }], { duration: motion.ms * 0.35 });
  });
}
