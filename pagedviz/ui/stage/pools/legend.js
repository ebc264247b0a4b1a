// The legend: what the cells mean. A sign that a run does not use is not there.
import { h, setAttr } from "../dom.js";

const SIGNS = [
  ["next", null, "next token", null],
  ["pending", null, "in this step’s launch", "requests"],
  ["draft", null, "draft", "drafts"],
  ["filled", "unverified", "not verified yet", "drafts"],
  ["rolled", null, "rolled back", "drafts"],
  ["filled", "seen", "in the next token’s window", "windows"],
  ["filled", "out", "out of it", "windows"],
  ["kept", null, "free, may be hit", "hashes"],
  ["stale", null, "nobody's: stale or NaN", null],
];

export function makeLegend() {
  const sign = ([fill, mark, words, feature]) => h("span", { class: "legend-item", "data-of": feature }, h("span", { class: "cell sample", "data-fill": fill, "data-mark": mark }, h("span", { class: "fill" })), words);
  return h("p", { class: "legend quiet", "aria-hidden": "true" }, ...SIGNS.map(sign));
}

export function drawLegend(legend, features) {
  for (const sign of legend.children) setAttr(sign, "hidden", !sign.dataset.of || features[sign.dataset.of] ? null : "");
}
