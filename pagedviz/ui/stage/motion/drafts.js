// Drafts: what flies where when tokens are drafted, dropped and verified.
import { fade, seen } from "./ghosts.js";

const rowOf = (motion, seq) => motion.root.querySelector(`[data-row="${CSS.escape(seq)}"]`);

export const measures = {
  DraftsVerified: (m, e) => ({ garbage: m.cellsAt(e.slots).map(seen) }),
};

export const moves = {
  TokensDrafted: (m) => {
    for (const cell of m.root.querySelectorAll('[data-fill="draft"]')) m.appear(cell);
  },
  DraftsDropped: (m, e) => m.pulse(rowOf(m, e.seq_id)?.querySelector(".chip"), 1.2),
  // accepted tokens are filled like any other from now on; rejected tokens fade where they lay
  DraftsVerified: (m, e, before) => {
    for (const cell of before.garbage) fade(m, cell, [{ opacity: 1, filter: "none" }, { opacity: 0, filter: "blur(4px)" }]);
    const first = e.num_tokens - e.accepted.length;
    for (let at = first; at < e.num_tokens; at += 1) {
      m.pulse(m.logical(e.seq_id, Math.floor(at / m.state.blockSize))?.querySelector(`[data-offset="${at % m.state.blockSize}"] .text`), 1.3);
    }
  },
};
