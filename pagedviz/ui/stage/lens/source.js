// The kernel's own source with the line of the current phase lit, and the phases as buttons.
import { h, setAttr, setText, syncKeyed } from "../dom.js";
import { drawCode } from "../panel/code.js";

export function makePhases(onPhase) {
  const node = h("ol", { class: "phases", "aria-label": "Phases of a turn" });
  node.addEventListener("click", (event) => {
    const button = event.target.closest("[data-phase]");
    if (button) onPhase(button.dataset.phase);
  });
  return { node };
}

export function drawPhases(ui, { answer, phases, phase }) {
  syncKeyed(ui.node, answer.source.phases, ({ name }) => name, ({ name }) => h("li", {}, h("button", { type: "button", "data-phase": name }, name)), (node, { name, says }) => {
    const at = phases.findIndex((other) => other.name === name);
    setAttr(node.firstElementChild, "aria-current", at === phase && at >= 0 ? "step" : null);
    setAttr(node.firstElementChild, "data-past", at >= 0 && at < phase ? "" : null);
    setAttr(node.firstElementChild, "title", says);
  });
}

export function makeLensSource() {
  const title = h("h3", {}, "The kernel’s own source");
  const says = h("p", { class: "says" });
  const code = h("pre", { class: "card code", tabindex: "0", role: "region" });
  const place = h("p", { class: "place quiet" });
  return { node: h("section", { class: "lens-source", "aria-label": "The kernel’s own source" }, title, says, code, place), says, code, place };
}

export function drawLensSource(ui, { answer, phases, phase }) {
  const lit = phases[phase];
  setText(ui.says, lit ? `${lit.name}: ${lit.says}` : "");
  const excerpt = answer.source.excerpts[lit?.excerpt ?? 0];
  if (excerpt) drawCode(ui, excerpt, lit?.line ?? null, `${answer.source.excerpts.indexOf(excerpt)}`);
}
