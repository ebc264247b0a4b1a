// What flies where when a server drafts, looks through windows, stores to the host tier, or chooses beams.
import { badge, fade, takeFromQueue, toQueue } from "./blocks.js";

// A node as it looks, free of what is round it.
export function ghostOf(node) {
  const ghost = node.cloneNode(true);
  const style = getComputedStyle(node);
  for (const name of ["--fill", "--fill-text", "--columns"]) ghost.style.setProperty(name, style.getPropertyValue(name));
  return ghost;
}

// The cells of a device block or a chunk, from one to the other.
function cross(motion, from, to) {
  if (from && to) motion.fly(ghostOf(from), from.getBoundingClientRect(), to.getBoundingClientRect());
}

const stripOf = (motion, block) => motion.physical(block)?.querySelector(".cells");
const pulseState = (motion, event) => event.chunks.forEach((chunk) => motion.pulse(motion.chunk(chunk)?.closest(".chunk").querySelector(".note"), 1.2));
const backToQueue = (motion, event) => event.device_blocks.forEach((block, k) => (event.queue_indices?.[k] ?? null) === null || toQueue(motion, block));

function transferEnded(motion, event) {
  pulseState(motion, event);
  backToQueue(motion, event);
}

const rowOf = (motion, seq) => motion.root.querySelector(`[data-row="${CSS.escape(seq)}"]`);

export const SERVING_MOVES = {
  NullBlockTaken: (m, e, before) => takeFromQueue(m, e.block, before),
  PrefixSkipped: (m, e) => {
    for (let logical = 0; logical < e.num_blocks; logical += 1) m.appear(m.logical(e.seq_id, logical));
  },
  BlockOutOfWindow: (m, e, before) => {
    fade(m, before.cells);
    m.pulse(m.logical(e.seq_id, e.logical_block)?.querySelectorAll(".id")[e.group ?? 0], 1.6);
    if (e.queue_index === null) m.pulse(badge(m.physical(e.block)), 1.6);
    else toQueue(m, e.block);
  },
  TokensDrafted: (m) => {
    for (const cell of m.root.querySelectorAll('[data-fill="draft"]')) m.appear(cell);
  },
  DraftsDropped: (m, e) => m.pulse(rowOf(m, e.seq_id)?.querySelector(".chip"), 1.2),
  // the accepted are filled as any other from now on; the rejected fade where they lay
  DraftsVerified: (m, e, before) => {
    for (const cell of before.garbage) fade(m, cell, [{ opacity: 1, filter: "none" }, { opacity: 0, filter: "blur(4px)" }]);
    const first = e.num_tokens - e.accepted.length;
    for (let at = first; at < e.num_tokens; at += 1) {
      m.pulse(m.logical(e.seq_id, Math.floor(at / m.state.blockSize))?.querySelector(`[data-offset="${at % m.state.blockSize}"] .text`), 1.3);
    }
  },
  TierStoreBegun: (m, e) => e.device_blocks.forEach((block, k) => cross(m, stripOf(m, block), m.chunk(e.chunks[k]))),
  TierStoreFinished: transferEnded,
  TierStoreFailed: transferEnded,
  TierStoreAborted: transferEnded,
  TierLoadBegun: pulseState,
  TierLoadFinished: (m, e) => e.device_blocks.forEach((block, k) => cross(m, m.chunk(e.chunks[k]), stripOf(m, block))),
  TierLoadFailed: transferEnded,
  TierLoadAborted: transferEnded,
  TierEvicted: (m, e, before) => fade(m, before.chunk, [{ opacity: 1, filter: "none" }, { opacity: 0, filter: "blur(5px)" }]),
  TierTouched: (m, e) => {
    for (const hash of e.block_hashes) m.pulse(m.root.querySelector(`.recency [data-hash="${CSS.escape(hash)}"]`), 1.15);
  },
  BlockLoaded: (m, e) => {
    m.pulse(m.physical(e.block)?.querySelector(".hash"), 1.4);
    toQueue(m, e.block);
  },
  RequestForked: (m, e) => e.seq_ids.forEach((seq) => m.appear(m.root.querySelector(`[data-seq-of-request="${CSS.escape(seq)}"]`))),
  BeamsChosen: (m) => {
    for (const node of m.root.querySelectorAll(".beam[data-new]")) m.appear(node);
  },
};
