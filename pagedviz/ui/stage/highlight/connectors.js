// Connectors: from a lit logical block to its table entry, on to its physical block, and from the hash of that block to
// the hash of the block before it.
import { svg } from "../dom.js";
import { endsOf } from "../state/entries.js";

export class Connectors {
  constructor(root) {
    this.root = root;
    this.bigRect = () => null; // where an end is in a big pool
    this.node = svg("svg", { class: "wires", "aria-hidden": "true" });
    root.append(this.node);
  }

  draw(link, chain) {
    this.node.replaceChildren();
    if (link === null) return;
    const origin = this.root.getBoundingClientRect();
    const point = (x, y) => [x - origin.left, y - origin.top];
    for (const end of endsOf(link)) this.drawEnd(end, point);
    const chips = [...endsOf(link), ...chain].map((one) => this.root.querySelector(`.physical[data-link="${one}"] .hash`)?.getBoundingClientRect());
    for (let k = 1; k < chips.length; k += 1) {
      if (chips[k - 1]?.width && chips[k]?.width) this.arc(...[chips[k - 1], chips[k]].map((box) => [...point(box.left, box.top), box.width, box.height]));
    }
  }

  drawEnd(end, point) {
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
    this.node.append(
      svg("path", { d: `M${from}C${from[0] + bx} ${from[1] + by} ${to[0] + bx} ${to[1] + by} ${to}`, class: "chain" }),
      svg("path", { d: `M${to}${tip}`, class: "chain head" }),
    );
  }

  // Below the row and up to the table entry, or down from the entry to the pool: never through a neighbour's cells.
  curve([x0, y0], [x1, y1], colour, down) {
    const dy = Math.max(14, Math.abs(y1 - y0) * 0.5);
    const d = down ? `M${x0} ${y0}C${x0} ${y0 + dy} ${x1} ${y1 - dy} ${x1} ${y1}` : `M${x0} ${y0}C${x0} ${y0 + 22} ${x1 - 70} ${y0 + 22} ${x1} ${y1}`;
    this.node.append(
      svg("path", { d, class: "halo" }),
      svg("path", { d, style: `stroke:${colour}` }),
      svg("circle", { cx: x1, cy: y1, r: 3.5, style: `fill:${colour}` }),
    );
  }
}
