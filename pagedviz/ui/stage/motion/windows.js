// Windows: what flies where when the null block is taken and when blocks leave a window.
import { badge, fade, takeFromQueue, toQueue } from "./ghosts.js";

export const measures = {
  NullBlockTaken: (m, e) => m.taken(e.block),
  BlockOutOfWindow: (m, e) => (e.queue_index === null ? {} : m.left(e.block)),
};

export const moves = {
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
};
