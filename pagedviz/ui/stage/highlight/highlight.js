// The ends of a link light up together: a logical block, its table entry, its physical block and its chip in the free queue.
// Hover and focus light them for as long as they last; a click pins them; Escape lets go.
import { setAttr } from "../dom.js";
import { endsOf } from "../state/entries.js";
import { Connectors } from "./connectors.js";
import { keepTabStops, moveFocus, moveTabStop } from "./tab_stops.js";
import { Tip } from "./tip.js";

const isEnd = (node, ends) => endsOf(node.dataset.link).some((one) => ends.includes(one));

export class Highlight {
  constructor(root) {
    this.root = root;
    this.hovered = null;
    this.focused = null;
    this.pinned = null;
    this.read = null; // the block that the lens reads
    this.repaint = () => {};
    this.chainOf = () => [];
    this.connectors = new Connectors(root);
    this.tip = new Tip(root);
    root.addEventListener("pointerover", (event) => this.onOver(event));
    root.addEventListener("pointerleave", () => this.leave());
    root.addEventListener("focusin", (event) => this.onFocus(event));
    root.addEventListener("focusout", () => this.onBlur());
    root.addEventListener("click", (event) => this.onClick(event));
    root.addEventListener("keydown", (event) => this.onKey(event));
  }

  // The lit link, or null.
  current() {
    return this.hovered ?? this.focused ?? this.pinned ?? this.read;
  }

  hover(link, words = null, at = null) {
    const changed = this.hovered !== link;
    this.hovered = link;
    if (words) this.tip.show(words, at);
    if (changed) this.light();
  }

  leave() {
    this.tip.hide();
    if (this.hovered === null) return;
    this.hovered = null;
    this.light();
  }

  pin(link) {
    this.pinned = this.pinned === link ? null : link;
    this.light();
  }

  // A block that was searched for stays lit, whatever the pointer rests on.
  select(link) {
    this.hovered = null;
    this.pinned = link;
    this.light();
  }

  onOver(event) {
    if (event.target.closest("canvas")) return;
    const end = event.target.closest("[data-link]");
    const tipped = event.target.closest(".cell[data-tip], .lens [data-tip]");
    if (!end && !tipped) return this.leave();
    this.hovered = end?.dataset.link ?? null;
    if (tipped) this.tip.showOf(tipped);
    else this.tip.hide();
    this.light();
  }

  onFocus(event) {
    const end = event.target.closest("[data-link]");
    this.focused = end && event.target.matches(":focus-visible") ? end.dataset.link : null;
    if (this.focused && end.dataset.tip) this.tip.showOf(end);
    moveTabStop(this.root, event.target);
    this.light();
  }

  onBlur() {
    if (this.focused === null) return;
    this.focused = null;
    this.tip.hide();
    this.light();
  }

  onClick(event) {
    const end = event.target.closest("[data-link]");
    if (end) this.pin(end.dataset.link);
  }

  // Up and down move inside a group of blocks (left and right always step); Enter pins, Escape lets go.
  onKey(event) {
    if (event.key === "Escape") {
      if ((this.hovered ?? this.focused ?? this.pinned) === null && this.tip.node.hidden) return;
      this.hovered = this.pinned = this.focused = null;
      this.tip.hide();
      this.light();
      return;
    }
    if (!event.target.dataset?.rove || event.ctrlKey || event.altKey || event.metaKey || moveFocus(this.root, event)) return;
    if ((event.key === "Enter" || event.key === " ") && event.target.localName !== "button") {
      event.preventDefault();
      this.pin(event.target.dataset.link);
    }
  }

  // After a draw: one tab stop in each group, and the marks on the ends as they are now.
  refresh() {
    keepTabStops(this.root);
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
    this.connectors.draw(link, chain);
  }
}
