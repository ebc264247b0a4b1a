// Timeline: one tick per event in a window around the current step; the scrubber spans the whole run.
import { h, setAttr, setText, syncKeyed } from "../dom.js";
import { icon, kindOf, VEILED } from "../icons.js";
import { verdictOf } from "../panel/verdict.js";

const TICK_WIDTH = 46;

export function makeTimeline(onStep) {
  const node = h("ol", { class: "timeline", "aria-label": "Timeline" });
  node.addEventListener("click", (event) => {
    const tick = event.target.closest("[data-tick]");
    if (tick) onStep(Number(tick.dataset.tick));
  });
  return { node, first: 1, width: 900 };
}

// The window stays put until the current step comes near its edge, so that ticks do not slide at every step.
function windowOf(ui, step, total) {
  const room = Math.max(6, Math.floor((ui.width + 4) / TICK_WIDTH));
  if (total <= room) ui.first = 1;
  else if (step < ui.first + 1 || step > ui.first + room - 3) ui.first = step - Math.floor(room / 2);
  ui.first = Math.max(1, Math.min(ui.first, total - room + 1));
  return { first: ui.first, last: Math.min(total, ui.first + room - 1) };
}

export function drawTimeline(ui, { steps, step, checks, veil }) {
  const { first, last } = windowOf(ui, step, steps.length);
  const numbers = Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => first + i);
  setAttr(ui.node, "data-before", first > 1 ? "" : null);
  setAttr(ui.node, "data-after", last < steps.length ? "" : null);
  syncKeyed(ui.node, numbers, (k) => k, makeTick, (node, k) => {
    const info = steps[k - 1];
    const veiled = veil !== null && veil !== undefined && k > veil;
    const { word, path } = veiled ? VEILED : kindOf(info.event.kind);
    const button = node.firstElementChild;
    const [mark, label] = button.children;
    if (mark.dataset.path !== path) {
      mark.dataset.path = path;
      mark.replaceChildren(icon(path));
    }
    setText(label, veiled ? k : word);
    const verdict = verdictOf(checks[k]);
    const words = veiled ? `step ${k}` : `step ${k}: ${info.sentence}`;
    setAttr(button, "aria-label", verdict === "failed" ? `${words} Check failed.` : words);
    setAttr(button, "title", veiled ? `step ${k}` : info.sentence);
    setAttr(button, "aria-current", k === step ? "step" : null);
    setAttr(button, "data-past", k < step ? "" : null);
    setAttr(button, "data-veiled", veiled ? "" : null);
    setAttr(button, "data-check", veiled && verdict !== "failed" ? "pending" : verdict);
    setAttr(button, "tabindex", k === step || (step < first && k === first) ? 0 : -1);
    setAttr(node, "data-new-op", k > 1 && steps[k - 2].op !== info.op ? "" : null);
  });
}

const makeTick = (k) =>
  h(
    "li",
    {},
    h("button", { type: "button", class: "tick", "data-tick": k, "data-rove": "tick" }, h("span", { class: "mark" }), h("span", { class: "word" })),
  );
