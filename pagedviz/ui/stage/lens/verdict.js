// The kernel's answer against dense attention.
import { h, setAttr, setText } from "../dom.js";
import { icon, PATHS } from "../icons.js";
import { shortNumber, tolerance } from "../text.js";

export function makeVerdict() {
  const big = h("p", { class: "big" }, h("span", { class: "mark", "aria-hidden": "true" }), h("span"));
  return h("div", { class: "verdict", role: "group", "aria-label": "The lens against dense attention" }, big, h("p"));
}

// At the end; at once when it is wrong.
export function drawVerdict(node, { ok, max_error: error, tolerance: most }, atEnd) {
  setAttr(node, "hidden", atEnd || !ok ? null : "");
  const state = ok ? "ok" : "failed";
  if (node.dataset.state !== state) node.querySelector(".mark").replaceChildren(icon(PATHS[state]));
  setAttr(node, "data-state", state);
  setAttr(node, "role", ok ? "group" : "alert");
  const found = error === null ? "not finite" : shortNumber(error);
  setText(node.firstElementChild.lastElementChild, ok ? found : `wrong: ${found}`);
  const note = error === null ? "the kernel's numbers or dense attention's are NaN or infinite, so nothing can be compared" : "largest difference between what the kernel gives and dense attention";
  setText(node.lastElementChild, `${note}, tolerance ${tolerance(most)}`);
}
