// Transfers: what flies where between the device and the host.
import { hostEntry } from "../state/entries.js";
import { fade, ghostOf, hashOf, land, seen, toQueue } from "./ghosts.js";

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

const chunkLeaving = (m, e) => {
  const chunk = m.chunk(e.chunk);
  return { chunk: chunk && seen(chunk) };
};

export const measures = {
  BlockSpilled: (m, e) => m.left(e.block),
  BlockReloaded: (m, e) => m.left(hostEntry(e.host_block)),
  TierEvicted: chunkLeaving,
};

export const moves = {
  BlockSpilled: (m, e, before) => land(m, hostEntry(e.host_block), before.cells),
  BlockReloaded: (m, e, before) => land(m, e.block, before.cells),
  TierEvicted: (m, e, before) => fade(m, before.chunk, [{ opacity: 1, filter: "none" }, { opacity: 0, filter: "blur(5px)" }]),
  TierTouched: (m, e) => {
    for (const hash of e.block_hashes) m.pulse(m.root.querySelector(`.recency [data-hash="${CSS.escape(hash)}"]`), 1.15);
  },
  TierStoreBegun: (m, e) => e.device_blocks.forEach((block, k) => cross(m, stripOf(m, block), m.chunk(e.chunks[k]))),
  TierStoreFinished: transferEnded,
  TierStoreFailed: transferEnded,
  TierStoreAborted: transferEnded,
  TierLoadBegun: pulseState,
  TierLoadFinished: (m, e) => e.device_blocks.forEach((block, k) => cross(m, m.chunk(e.chunks[k]), stripOf(m, block))),
  TierLoadFailed: transferEnded,
  TierLoadAborted: transferEnded,
  BlockLoaded: (m, e) => {
    m.pulse(hashOf(m.physical(e.block)), 1.4);
    toQueue(m, e.block);
  },
};
