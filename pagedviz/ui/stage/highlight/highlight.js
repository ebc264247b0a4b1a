// Linked ends: a logical block, its table entry, its physical block and its free-queue chip light up together.
// Hover and focus light them for as long as they last; a click pins; Escape lets go.
import { h, svg, setAttr, setText } from "../dom.js";
import { endsOf } from "../state/entries.js";

const isEnd = (node, ends) => endsOf(node.dataset.link).some((one) => ends.includes(one));

const NEXT = { ArrowDown: 1, ArrowUp: -1 };

export class Links {
  constructor(root) {
    this.root = root;
    this.hovered = null;
    this.focused = null;
    this.pinned = null;
    this.read = null; // what the lens reads just now
    this.repaint = () => {};
    this.bigRect = () => null;
    this.chainOf = () => [];
    this.wires = svg("svg", { class: "wires", "aria-hidden": "true" });
    this.tip = h("div", { class: "tip", role: "tooltip", hidden: "" });
    root.append(this.wires, this.tip);
    root.addEventListener("pointerover", (event) => this.onOver(event));
    root.addEventListener("pointerleave", () => this.leave());
    root.addEventListener("focusin", (event) => this.onFocus(event));
    root.addEventListener("focusout", () => this.onBlur());
    root.addEventListener("click", (event) => this.onClick(event));
    root.addEventListener("keydown", (event) => this.onKey(event));
  }

  current() {
    return this.hovered ?? this.focused ?? this.pinned ?? this.read;
  }

  hover(link, words = null, at = null) {
    const changed = this.hovered !== link;
    this.hovered = link;
    if (words) this.showTip(words, at);
    if (changed) this.light();
  }

  leave() {
    this.hideTip();
    if (this.hovered === null) return;
    this.hovered = null;
    this.light();
  }

  pin(link) {
    this.pinned = this.pinned === link ? null : link;
    this.light();
  }

  // What was searched for stays lit, whatever the pointer happens to rest on.
  select(link) {
    this.hovered = null;
    this.pinned = link;
    this.light();
  }

  onOver(event) {
    if (event.target.closest("canvas")) return;
    const end = event.target.closest("[data-link]");
    const told = event.target.closest(".cell[data-tip], .lens [data-tip]");
    if (!end && !told) return this.leave();
    this.hovered = end?.dataset.link ?? null;
    if (told) {
      this.tellOf(told);
    } else this.hideTip();
    this.light();
  }

  onFocus(event) {
    const end = event.target.closest("[data-link]");
    this.focused = end && event.target.matches(":focus-visible") ? end.dataset.link : null;
    if (this.focused && end.dataset.tip) this.tellOf(end);
    const group = event.target.dataset?.rove;
    if (group) for (const node of this.root.querySelectorAll(`[data-rove="${group}"]`)) setAttr(node, "tabindex", node === event.target ? 0 : -1);
    this.light();
  }

  onBlur() {
    if (this.focused === null) return;
    this.focused = null;
    this.hideTip();
    this.light();
  }

  onClick(event) {
    const end = event.target.closest("[data-link]");
    if (end) this.pin(end.dataset.link);
  }

  // Up and down move inside a group of blocks (left and right always step); Enter pins, Escape lets go.
  onKey(event) {
    if (event.key === "Escape") {
      if ((this.hovered ?? this.focused ?? this.pinned) === null && this.tip.hidden) return;
      this.hovered = this.pinned = this.focused = null;
      this.hideTip();
      this.light();
      return;
    }
    const group = event.target.dataset?.rove;
    if (!group || event.ctrlKey || event.altKey || event.metaKey) return;
    if (NEXT[event.key]) {
      const all = [...this.root.querySelectorAll(`[data-rove="${group}"]`)];
      const to = all[all.indexOf(event.target) + NEXT[event.key]];
      event.preventDefault();
      to?.focus();
    } else if ((event.key === "Enter" || event.key === " ") && event.target.localName !== "button") {
      event.preventDefault();
      this.pin(event.target.dataset.link);
    }
  }

  // After a draw: one tab stop in each group, and the marks on the ends as they are now.
  refresh() {
    const groups = new Map();
    for (const node of this.root.querySelectorAll("[data-rove]")) {
      const group = groups.get(node.dataset.rove);
      if (group) group.push(node);
      else groups.set(node.dataset.rove, [node]);
    }
    for (const nodes of groups.values()) {
      if (!nodes.some((node) => node.tabIndex === 0)) setAttr(nodes[0], "tabindex", 0);
    }
    this.light({ repaint: false });
  }

  light({ repaint = true } = {}) {
    const link = this.current();
    const ends = endsOf(link);
    const chain = this.chainOf(link);
    for (const node of this.root.querySelectorAll("[data-link]")) {
      setAttr(node, "data-lit", isEnd(node, ends) ? "" : null);
      setAttr(node, "data-chain", isEnd(node, chain) ? "" : null);
      if (node.localName !== "button") setAttr(node, "aria-pressed", String(node.dataset.link === this.pinned));
    }
    setAttr(this.root, "data-linking", link === null ? null : "");
    if (repaint) this.repaint();
    this.wire(link, chain);
  }

  // Logical block -> table entry -> physical block -> the block whose hash is in its own, for the lit ends only.
  wire(link, chain) {
    this.wires.replaceChildren();
    if (link === null) return;
    const origin = this.root.getBoundingClientRect();
    const point = (x, y) => [x - origin.left, y - origin.top];
    for (const end of endsOf(link)) this.wireEnd(end, point);
    const chips = [...endsOf(link), ...chain].map((one) => this.root.querySelector(`.physical[data-link="${one}"] .hash`)?.getBoundingClientRect());
    for (let k = 1; k < chips.length; k += 1) {
      if (chips[k - 1]?.width && chips[k]?.width) this.arc(...[chips[k - 1], chips[k]].map((box) => [...point(box.left, box.top), box.width, box.height]));
    }
  }

  wireEnd(end, point) {
    const target = this.root.querySelector(`.physical[data-link="${end}"]`)?.getBoundingClientRect() ?? this.bigRect(end);
    for (const block of this.root.querySelectorAll(`.logical[data-link~="${end}"]`)) {
      const row = `[data-table-logical="${block.dataset.logical}"]`;
      const entry = block.closest(".seq").querySelector(`${row} .entry[data-link="${end}"]`);
      if (!entry || !block.getClientRects().length) continue;
      const colour = getComputedStyle(block).getPropertyValue("--fill");
      const from = block.getBoundingClientRect();
      const via = entry.getBoundingClientRect();
      const start = point(from.left + from.width / 2, from.bottom);
      const into = point(via.left - 3, via.top + via.height / 2);
      this.curve(start, into, colour, false);
      if (!target) continue;
      const down = point(target.left + Math.min(target.width / 2, 80), target.top);
      this.curve(point(via.left + via.width / 2, via.bottom + 2), down, colour, true);
    }
  }

  // From a hash to its parent's: below both, or beside both when one stands over the other.
  arc([x0, y0, w0, h0], [x1, y1, w1, h1]) {
    const beside = Math.abs(x1 - x0) < 24;
    const [from, to] = beside ? [[x0, y0 + h0 / 2], [x1, y1 + h1 / 2]] : [[x0 + w0 / 2, y0 + h0], [x1 + w1 / 2, y1 + h1]];
    const [bx, by] = beside ? [-18, 0] : [0, 18];
    const tip = beside ? "l-5 -3.500m5 3.500l-5 3.500" : "l-3.500 5m3.500 -5l3.500 5";
    this.wires.append(
      svg("path", { d: `M${from}C${from[0] + bx} ${from[1] + by} ${to[0] + bx} ${to[1] + by} ${to}`, class: "chain" }),
      svg("path", { d: `M${to}${tip}`, class: "chain head" }),
    );
  }

  // Below the row and up to the table entry, or down from the entry to the pool: never through a neighbour's cells.
  curve([x0, y0], [x1, y1], colour, down) {
    const dy = Math.max(14, Math.abs(y1 - y0) * 0.5);
    const d = down ? `M${x0} ${y0}C${x0} ${y0 + dy} ${x1} ${y1 - dy} ${x1} ${y1}` : `M${x0} ${y0}C${x0} ${y0 + 22} ${x1 - 70} ${y0 + 22} ${x1} ${y1}`;
    this.wires.append(
      svg("path", { d, class: "halo" }),
      svg("path", { d, style: `stroke:${colour}` }),
      svg("circle", { cx: x1, cy: y1, r: 3.5, style: `fill:${colour}` }),
    );
  }

  // The full text of a cell or block: above it in the rows, below it in the pools, where the connectors come from above.
  tellOf(node) {
    const box = node.getBoundingClientRect();
    const below = node.closest(".physical") !== null;
    this.showTip(node.dataset.tip, { x: box.left + box.width / 2, y: below ? box.bottom : box.top, below });
  }

  showTip(words, { x, y, below }) {
    const origin = this.root.getBoundingClientRect();
    setText(this.tip, words);
    setAttr(this.tip, "hidden", null);
    const box = this.tip.getBoundingClientRect();
    const left = Math.max(4, Math.min(x - origin.left - box.width / 2, origin.width - box.width - 4));
    const top = y - origin.top + (below ? 7 : -box.height - 7);
    this.tip.style.transform = `translate(${Math.round(left)}px, ${Math.round(Math.max(0, top))}px)`;
  }

  hideTip() {
    setAttr(this.tip, "hidden", "");
  }
}
