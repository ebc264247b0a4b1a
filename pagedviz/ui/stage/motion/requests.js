// Requests: what moves when the scheduler acts. Cards that change their place are moved at every event, by Motion.
import { fade, seen } from "./ghosts.js";

const cardLeaving = (m, e) => {
  const card = m.card(e.seq_id);
  return { card: card && seen(card) };
};

export const measures = {
  RequestFinished: cardLeaving,
  RequestAborted: cardLeaving,
};

export const moves = {
  RequestForked: (m, e) => e.seq_ids.forEach((seq) => m.appear(m.root.querySelector(`[data-seq-of-request="${CSS.escape(seq)}"]`))),
  RequestScheduled: (m, e) => {
    m.pulse(m.card(e.seq_id)?.querySelector(".share"), 1.2);
    m.appear(m.root.querySelector(`[data-share="${CSS.escape(e.seq_id)}"]`));
  },
  RequestWaits: (m) => m.appear(m.root.querySelector(".request-note:not(:empty)")),
  TokensSampled: (m, e) => {
    for (const seq of e.seq_ids) m.pulse(m.card(seq)?.querySelector(".request-token"), 1.2);
    for (const cell of m.root.querySelectorAll('[data-fill="sampled"]')) m.appear(cell);
  },
  BeamsChosen: (m) => {
    for (const node of m.root.querySelectorAll(".beam[data-new]")) m.appear(node);
  },
  RequestFinished: (m, e, before) => fade(m, before.card),
  RequestAborted: (m, e, before) => fade(m, before.card),
};
