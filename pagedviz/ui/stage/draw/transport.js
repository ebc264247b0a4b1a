// Transport bar: step back, play, step forward, speed, the scrubber, and what has been checked so far.
import { h, setAttr, setText } from "../dom.js";
import { icon, iconButton, PATHS } from "../icons.js";
import { verdictOf } from "../panel/verdict.js";

const SPEEDS = [0.5, 1, 2, 4];

export function makeTransport(act, lensButton) {
  const back = iconButton(PATHS.back, "Step back", { "aria-label": "Step back" });
  const play = iconButton(PATHS.play, "Play", { class: "play", "aria-label": "Play" });
  const forward = iconButton(PATHS.forward, "Step forward", { class: "primary", "aria-label": "Step forward" });
  const speed = h("select", { "aria-label": "Speed" }, ...SPEEDS.map((value) => h("option", { value, selected: value === 1 }, `${value}×`)));
  const scrubber = h("input", { type: "range", "aria-label": "Step", min: 0, step: 1 });
  const place = h("p", { class: "step-place" });
  const pause = h("p", { class: "pause", role: "status" });
  const hint = h("p", { class: "hint quiet" }, "← → step · Space plays · ↑ ↓ in the blocks · K lens");
  back.addEventListener("click", act.back);
  play.addEventListener("click", act.toggle);
  forward.addEventListener("click", act.forward);
  speed.addEventListener("change", () => act.speed(Number(speed.value)));
  scrubber.addEventListener("input", () => act.scrub(Number(scrubber.value)));
  const node = h("div", { class: "transport" }, h("div", { class: "buttons" }, back, play, forward, speed, lensButton), scrubber, h("div", { class: "status" }, place, hint));
  return { node, back, play, forward, speed, scrubber, place, pause };
}

export function drawTransport(ui, { step, steps, checks, playing, pauseText }) {
  const total = steps.length;
  setAttr(ui.scrubber, "max", total);
  if (Number(ui.scrubber.value) !== step) ui.scrubber.value = String(step);
  setAttr(ui.scrubber, "aria-valuetext", `step ${step} of ${total}`);
  ui.scrubber.style.setProperty("--done", total ? step / total : 0);
  // aria-disabled rather than disabled: a disabled button would drop the keyboard focus at the last step
  setAttr(ui.back, "aria-disabled", step === 0 ? "true" : null);
  setAttr(ui.forward, "aria-disabled", step === total ? "true" : null);
  const name = playing ? "Pause" : "Play";
  if (ui.play.lastElementChild.textContent !== name) {
    ui.play.firstElementChild.replaceWith(icon(playing ? PATHS.pause : PATHS.play, true));
    setText(ui.play.lastElementChild, name);
    setAttr(ui.play, "aria-label", name);
  }
  setText(ui.place, `step ${step} of ${total}${checkWords(checks, step)}`);
  setText(ui.pause, pauseText ?? "");
}

// "all 13 checked", "4 not checked yet", "1 failed": over the steps up to this one.
function checkWords(checks, step) {
  const count = { ok: 0, failed: 0, pending: 0 };
  for (let k = 1; k <= step; k += 1) count[verdictOf(checks[k])] += 1;
  if (step === 0) return "";
  const parts = [];
  if (count.failed) parts.push(`${count.failed} failed`);
  if (count.pending) parts.push(`${count.pending} not checked yet`);
  if (!parts.length) parts.push(`all ${step} checked`);
  return `, ${parts.join(", ")}`;
}
