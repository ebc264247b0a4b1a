// The tip: the full text of a cell or block.
import { h, setAttr, setText } from "../dom.js";

export class Tip {
  constructor(root) {
    this.root = root;
    this.node = h("div", { class: "tip", role: "tooltip", hidden: "" });
    root.append(this.node);
  }

  // Above a node in the rows, below it in the pools, where the connectors come from above.
  showOf(node) {
    const box = node.getBoundingClientRect();
    const below = node.closest(".physical") !== null;
    this.show(node.dataset.tip, { x: box.left + box.width / 2, y: below ? box.bottom : box.top, below });
  }

  show(words, { x, y, below }) {
    const origin = this.root.getBoundingClientRect();
    setText(this.node, words);
    setAttr(this.node, "hidden", null);
    const box = this.node.getBoundingClientRect();
    const left = Math.max(4, Math.min(x - origin.left - box.width / 2, origin.width - box.width - 4));
    const top = y - origin.top + (below ? 7 : -box.height - 7);
    this.node.style.transform = `translate(${Math.round(left)}px, ${Math.round(Math.max(0, top))}px)`;
  }

  hide() {
    setAttr(this.node, "hidden", "");
  }
}
