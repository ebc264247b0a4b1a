// Right: the verdict of this step's check, the step's numbers, and the source line that reported its event.
import { h, setAttr } from "../dom.js";
import { drawCode } from "./code.js";
import { drawNumbers } from "./numbers.js";
import { drawVerdict } from "./verdict.js";

export function makePanel() {
  const mark = h("span", { class: "mark", "aria-hidden": "true" });
  const headline = h("span", { class: "headline" });
  const lines = h("div", { class: "verdict-lines" });
  const broken = h("ul", { class: "broken" });
  const verdict = h("div", { class: "verdict" }, h("p", { class: "big" }, mark, headline), lines, broken);
  const formula = h("div", { class: "card formula" });
  const weights = h("div", { class: "card weights" });
  const numbers = h("section", { class: "numbers", "aria-label": "This step’s numbers" }, h("h3", {}, "This step’s numbers"), formula, weights);
  const place = h("p", { class: "place quiet" });
  const code = h("pre", { class: "card code", tabindex: "0", role: "region" });
  const source = h("section", { class: "source", "aria-label": "The line that did it" }, h("h3", {}, "The line that did it"), code, place);
  const checked = h("section", { "aria-label": "Checked against dense attention" }, h("h3", {}, "Checked against dense attention"), verdict);
  const node = h("aside", { class: "panel", "aria-label": "Checks, numbers and source" }, checked, numbers, source);
  return { node, verdict, mark, headline, lines, broken, formula, weights, numbers, code, place, source };
}

export function drawPanel(ui, view) {
  drawVerdict(ui, view.check, view.backend);
  drawNumbers(ui, view);
  drawSource(ui, view);
}

function drawSource(ui, view) {
  const at = view.info?.source;
  const excerpt = at ? view.excerpts[at.excerpt] : null;
  setAttr(ui.source, "hidden", excerpt ? null : "");
  if (!excerpt) return;
  drawCode(ui, excerpt, at.line, at.excerpt);
}
