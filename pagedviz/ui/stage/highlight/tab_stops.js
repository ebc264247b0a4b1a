// One tab stop in each group of `data-rove`; up and down move inside the group.
import { setAttr } from "../dom.js";

const BY_KEY = { ArrowDown: 1, ArrowUp: -1 };

const groupOf = (root, node) => [...root.querySelectorAll(`[data-rove="${node.dataset.rove}"]`)];

// After a draw: a group that lost its tab stop gets one.
export function keepTabStops(root) {
  const groups = new Map();
  for (const node of root.querySelectorAll("[data-rove]")) {
    const group = groups.get(node.dataset.rove);
    if (group) group.push(node);
    else groups.set(node.dataset.rove, [node]);
  }
  for (const nodes of groups.values()) {
    if (!nodes.some((node) => node.tabIndex === 0)) setAttr(nodes[0], "tabindex", 0);
  }
}

// The focused node becomes the tab stop of its group.
export function moveTabStop(root, focused) {
  if (!focused.dataset?.rove) return;
  for (const node of groupOf(root, focused)) setAttr(node, "tabindex", node === focused ? 0 : -1);
}

// Whether the key moved the focus, or would have at the end of the group.
export function moveFocus(root, event) {
  if (!BY_KEY[event.key]) return false;
  const group = groupOf(root, event.target);
  event.preventDefault();
  group[group.indexOf(event.target) + BY_KEY[event.key]]?.focus();
  return true;
}
