// A pool of more than 64 blocks: one canvas with zoom, an overview, and a summary in words.
import { h, setAttr, setText } from "../dom.js";
import { blockOf, endOf, hostEntry, isHost } from "../state/entries.js";
import { focusOf } from "../state/focus.js";
import { physicalBlock } from "../derived/physical.js";
import { physicalLabel } from "../draw/labels.js";
import { BigGrid } from "./big_grid.js";
import { MINI, paintPool } from "./big_paint.js";

const MOST_DESCRIBED = 4; // blocks of one step that are described in words

export class BigPool {
  constructor(highlight, onHost) {
    this.highlight = highlight;
    this.onHost = onHost;
    this.grid = new BigGrid();
    this.canvas = h("canvas", { class: "big", role: "img" });
    this.mini = h("canvas", { class: "mini", "aria-hidden": "true" });
    this.summary = h("p", { class: "quiet summary" });
    this.find = h("input", { type: "number", min: "0", "aria-label": `Find ${onHost ? "host " : ""}block`, placeholder: "block" });
    const button = (text, name, act) => {
      const node = h("button", { type: "button", "aria-label": name, title: name }, text);
      node.addEventListener("click", act);
      return node;
    };
    const bar = h(
      "div",
      { class: "big-bar" },
      h("div", { class: "big-words" }, this.summary, h(
        "div",
        { class: "big-tools" },
        button("−", "Zoom out", () => this.zoomBy(0.5)),
        button("+", "Zoom in", () => this.zoomBy(2)),
        button("fit", "Show the whole pool", () => this.zoomBy(0)),
        h("label", {}, "find ", this.find),
      )),
      this.mini,
    );
    this.node = h("div", { class: "big-pool" }, bar, this.canvas);
    this.find.addEventListener("change", () => this.findBlock(this.find.value));
    this.listen();
    this.width = 0;
    this.observer = new ResizeObserver(([{ contentRect }]) => {
      this.width = contentRect.width;
      if (this.view) this.paint();
    });
    this.observer.observe(this.node);
  }

  destroy() {
    this.observer.disconnect();
  }

  listen() {
    const { canvas, mini } = this;
    let drag = null;
    canvas.addEventListener("pointerdown", (event) => {
      drag = { x: event.offsetX, y: event.offsetY, origin: { ...this.grid.origin }, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (drag && Math.hypot(event.offsetX - drag.x, event.offsetY - drag.y) > 4) drag.moved = true;
      if (drag?.moved) {
        this.grid.origin = { x: drag.origin.x - (event.offsetX - drag.x), y: drag.origin.y - (event.offsetY - drag.y) };
        this.paint();
        return;
      }
      const entry = this.entryAt(event.offsetX, event.offsetY);
      if (entry === null) return this.highlight.leave();
      this.highlight.hover(endOf(entry), this.describe(entry), { x: event.clientX, y: event.clientY });
    });
    canvas.addEventListener("pointerup", (event) => {
      const entry = this.entryAt(event.offsetX, event.offsetY);
      if (drag && !drag.moved && entry !== null) this.highlight.pin(endOf(entry));
      drag = null;
    });
    canvas.addEventListener("pointerleave", () => this.highlight.leave());
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey && this.grid.zoom === 1 && event.deltaY > 0) return;
      event.preventDefault();
      this.zoomBy(event.deltaY < 0 ? 1.25 : 0.8, event.offsetX, event.offsetY);
    }, { passive: false });
    mini.addEventListener("pointerdown", (event) => {
      this.grid.centre(event.offsetX / MINI.width, event.offsetY / MINI.height);
      this.paint();
    });
  }

  findBlock(text) {
    const block = Number(text);
    if (text === "" || !Number.isInteger(block) || block < 0 || block >= this.entries.length) return;
    const entry = this.onHost ? hostEntry(block) : block;
    if (this.grid.zoom < 8) this.grid.zoom = 8;
    this.reveal(entry, true);
    this.highlight.select(endOf(entry));
  }

  describe(entry) {
    const { state, owners, colours } = this.view;
    const block = physicalBlock(state, entry, owners, colours);
    const words = (block.tokens.length ? block.tokens : block.kept?.tokens ?? []).slice(0, 8).map((token) => `“${token}”`).join(" ");
    return `${physicalLabel(block, state.blockSize)}${words ? `: ${words}` : ""}`;
  }

  zoomBy(factor, x, y) {
    this.grid.zoomBy(factor, x, y);
    this.paint();
  }

  measure() {
    const { grid } = this;
    grid.fit(this.entries.length, Math.max(200, this.width || this.node.clientWidth));
    for (const [canvas, { width, height }] of [[this.canvas, grid], [this.mini, MINI]]) {
      const ratio = window.devicePixelRatio || 1;
      if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
        canvas.width = Math.round(width * ratio);
        canvas.height = Math.round(height * ratio);
        canvas.style.width = `${width}px`;
        canvas.style.height = `${height}px`;
      }
    }
  }

  entryAt(x, y) {
    const index = this.grid.indexAt(x, y);
    return index === null ? null : this.entries[index];
  }

  // Where a block is on the page, for connectors and flights; null when it is scrolled out of the view.
  rectOf(entry) {
    if (!this.grid.isInView(blockOf(entry))) return null;
    const { x, y, side } = this.grid.placeOf(blockOf(entry));
    const box = this.canvas.getBoundingClientRect();
    return new DOMRect(box.left + x, box.top + y, side, side);
  }

  reveal(entry, always = false) {
    this.grid.reveal(blockOf(entry), always);
  }

  draw(view, entries) {
    this.view = view;
    this.entries = entries;
    setAttr(this.find, "max", entries.length - 1);
    this.about = focusOf(view.event, view.state).entries.filter((entry) => isHost(entry) === this.onHost);
    this.measure();
    if (this.grid.zoom > 1 && this.about.length && this.step !== view.step) this.reveal(this.about[0]);
    this.step = view.step;
    this.colour();
    this.paint();
    this.describePool();
  }

  // One colour pair per block, kept so that panning and hovering repaint without the state.
  colour() {
    const { state, owners, colours } = this.view;
    const refs = this.onHost ? state.hostRefs : state.refs;
    this.fills = this.entries.map((entry, index) => {
      if (!this.onHost && state.nullBlock === index) return ["null", null];
      const named = owners.get(entry);
      if (named) {
        const other = named.length > 1 ? colours.get(named[1].seq).fill : null;
        return [colours.get(named[0].seq).fill, other];
      }
      return refs[index] ? ["held", null] : !this.onHost && state.cached.has(index) ? ["kept", null] : null;
    });
  }

  paint() {
    this.measure();
    paintPool(this);
  }

  describePool() {
    const { state } = this.view;
    const refs = this.onHost ? state.hostRefs : state.refs;
    let used = 0;
    let shared = 0;
    for (const count of refs) {
      if (count > 0) used += 1;
      if (count > 1) shared += 1;
    }
    const free = (this.onHost ? state.hostFree : state.free).length;
    const number = (value) => value.toLocaleString("en");
    const kept = this.onHost ? 0 : state.free.reduce((count, block) => count + (state.cached.has(block) ? 1 : 0), 0);
    const words = `${number(used)} in use, ${number(shared)} of them shared, ${number(free)} free${kept ? `, ${number(kept)} of them cached` : ""}`;
    setText(this.summary, words);
    const described = this.about.slice(0, MOST_DESCRIBED).map((entry) => this.describe(entry));
    if (this.about.length > MOST_DESCRIBED) described.push(`and ${number(this.about.length - MOST_DESCRIBED)} more blocks`);
    const about = described.length ? `. This step: ${described.join("; ")}` : "";
    setAttr(this.canvas, "aria-label", `${this.onHost ? "Host" : "Device"} pool, ${number(this.entries.length)} blocks: ${words}${about}`);
  }
}
