// A pool of more than 64 blocks: one canvas with zoom, an overview, and a summary in words.
import { h, setAttr, setText } from "../dom.js";
import { blockOf, hostEntry, isHost, endOf } from "../state/entries.js";
import { focusOf } from "../state/focus.js";
import { physicalBlock } from "../derived/physical.js";
import { physicalLabel } from "../draw/labels.js";
import { MINI, paintPool } from "./big_paint.js";

const HEIGHT = 264;
const MAX_ZOOM = 32;
const MOST_TOLD = 4; // blocks of one step that are described in words

export class BigPool {
  constructor(highlight, onHost) {
    this.highlight = highlight;
    this.onHost = onHost;
    this.zoom = 1;
    this.origin = { x: 0, y: 0 };
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
      drag = { x: event.offsetX, y: event.offsetY, origin: { ...this.origin }, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (drag && Math.hypot(event.offsetX - drag.x, event.offsetY - drag.y) > 4) drag.moved = true;
      if (drag?.moved) {
        this.origin = { x: drag.origin.x - (event.offsetX - drag.x), y: drag.origin.y - (event.offsetY - drag.y) };
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
      if (!event.ctrlKey && !event.metaKey && this.zoom === 1 && event.deltaY > 0) return;
      event.preventDefault();
      this.zoomBy(event.deltaY < 0 ? 1.25 : 0.8, event.offsetX, event.offsetY);
    }, { passive: false });
    mini.addEventListener("pointerdown", (event) => this.centre((event.offsetX / MINI.width) * this.size.width * this.zoom, (event.offsetY / MINI.height) * this.size.height * this.zoom));
  }

  findBlock(text) {
    const block = Number(text);
    if (text === "" || !Number.isInteger(block) || block < 0 || block >= this.entries.length) return;
    const entry = this.onHost ? hostEntry(block) : block;
    if (this.zoom < 8) this.zoom = 8;
    this.reveal(entry, true);
    this.highlight.select(endOf(entry));
  }

  describe(entry) {
    const { state, owners, colours } = this.view;
    const block = physicalBlock(state, entry, owners, colours);
    const words = (block.tokens.length ? block.tokens : block.kept?.tokens ?? []).slice(0, 8).map((token) => `“${token}”`).join(" ");
    return `${physicalLabel(block, state.blockSize)}${words ? `: ${words}` : ""}`;
  }

  zoomBy(factor, x = this.size.width / 2, y = this.size.height / 2) {
    const before = this.zoom;
    this.zoom = factor === 0 ? 1 : Math.min(MAX_ZOOM, Math.max(1, this.zoom * factor));
    const ratio = this.zoom / before;
    this.origin = { x: (this.origin.x + x) * ratio - x, y: (this.origin.y + y) * ratio - y };
    this.paint();
  }

  centre(x, y) {
    this.origin = { x: x - this.size.width / 2, y: y - this.size.height / 2 };
    this.paint();
  }

  // The grid that fits the whole pool at zoom 1; its shape never depends on the step.
  measure() {
    const width = Math.max(200, this.width || this.node.clientWidth);
    const count = this.entries.length;
    let columns = Math.ceil(Math.sqrt((count * width) / HEIGHT));
    columns = Math.max(16, Math.ceil(columns / 16) * 16);
    const rows = Math.ceil(count / columns);
    const cell = Math.min(width / columns, HEIGHT / rows, 40);
    const height = Math.ceil(rows * cell);
    this.size = { width, height, columns, rows, cell };
    for (const [canvas, w, hgt] of [[this.canvas, width, height], [this.mini, MINI.width, MINI.height]]) {
      const ratio = window.devicePixelRatio || 1;
      if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(hgt * ratio)) {
        canvas.width = Math.round(w * ratio);
        canvas.height = Math.round(hgt * ratio);
        canvas.style.width = `${w}px`;
        canvas.style.height = `${hgt}px`;
      }
    }
  }

  placeOf(index) {
    const side = this.size.cell * this.zoom;
    return {
      x: (index % this.size.columns) * side - this.origin.x,
      y: Math.floor(index / this.size.columns) * side - this.origin.y,
      side,
    };
  }

  entryAt(x, y) {
    const side = this.size.cell * this.zoom;
    const column = Math.floor((x + this.origin.x) / side);
    const index = Math.floor((y + this.origin.y) / side) * this.size.columns + column;
    if (column < 0 || column >= this.size.columns || index < 0 || index >= this.entries.length) return null;
    return this.entries[index];
  }

  // Where a block is on the page, for connectors and flights; null when it is scrolled out of the view.
  rectOf(entry) {
    const { x, y, side } = this.placeOf(blockOf(entry));
    if (x < -side || y < -side || x > this.size.width || y > this.size.height) return null;
    const box = this.canvas.getBoundingClientRect();
    return new DOMRect(box.left + x, box.top + y, side, side);
  }

  reveal(entry, always = false) {
    const { x, y, side } = this.placeOf(blockOf(entry));
    const inside = x >= 0 && y >= 0 && x + side <= this.size.width && y + side <= this.size.height;
    if (!inside || always) this.origin = { x: this.origin.x + x + side / 2 - this.size.width / 2, y: this.origin.y + y + side / 2 - this.size.height / 2 };
  }

  draw(view, entries) {
    this.view = view;
    this.entries = entries;
    setAttr(this.find, "max", entries.length - 1);
    this.about = focusOf(view.event, view.state).entries.filter((entry) => isHost(entry) === this.onHost);
    this.measure();
    if (this.zoom > 1 && this.about.length && this.step !== view.step) this.reveal(this.about[0]);
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
    const told = this.about.slice(0, MOST_TOLD).map((entry) => this.describe(entry));
    if (this.about.length > MOST_TOLD) told.push(`and ${number(this.about.length - MOST_TOLD)} more blocks`);
    const about = told.length ? `. This step: ${told.join("; ")}` : "";
    setAttr(this.canvas, "aria-label", `${this.onHost ? "Host" : "Device"} pool, ${number(this.entries.length)} blocks: ${words}${about}`);
  }
}
