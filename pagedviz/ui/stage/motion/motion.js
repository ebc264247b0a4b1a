// Motion over a picture that is already final: ghosts fly, and the cells they land on are veiled until then.
// Everything is over in 400 ms at most, and finish() ends it at once.
import { h } from "../dom.js";
import { endOf } from "../state/entries.js";
import { moves as baseMoves } from "./base.js";
import { measures as blockMeasures, moves as blockMoves } from "./blocks.js";
import { measures as windowMeasures, moves as windowMoves } from "./windows.js";
import { measures as draftMeasures, moves as draftMoves } from "./drafts.js";
import { measures as requestMeasures, moves as requestMoves } from "./requests.js";
import { measures as transferMeasures, moves as transferMoves } from "./transfers.js";
import { seen } from "./ghosts.js";

// By kind of event: what must be measured or cloned before the picture changes, and what moves after it.
const MEASURES = { ...blockMeasures, ...windowMeasures, ...draftMeasures, ...requestMeasures, ...transferMeasures };
const MOVES = { ...baseMoves, ...blockMoves, ...windowMoves, ...draftMoves, ...requestMoves, ...transferMoves };

const LONGEST = 380;
const EASE = "cubic-bezier(.4, 0, .2, 1)";

export class Motion {
  constructor(root, bigRect) {
    this.root = root;
    this.bigRect = bigRect;
    this.layer = h("div", { class: "flights", "aria-hidden": "true" });
    root.append(this.layer);
    this.running = [];
    this.still = window.matchMedia("(prefers-reduced-motion: reduce)");
  }

  finish() {
    for (const animation of this.running.splice(0)) animation.finish();
    this.layer.replaceChildren();
  }

  physical(entry) {
    return this.root.querySelector(`.physical[data-link="${endOf(entry)}"]`);
  }

  rect(entry) {
    return this.physical(entry)?.getBoundingClientRect() ?? this.bigRect(endOf(entry));
  }

  chip(entry) {
    return this.root.querySelector(`.free-chip[data-link="${endOf(entry)}"]`);
  }

  logical(seq, index) {
    return this.root.querySelector(`.logical[data-seq="${CSS.escape(seq)}"][data-logical="${index}"]`);
  }

  chunk(number) {
    return this.root.querySelector(`.chunk[data-chunk="${number}"] .cells`);
  }

  // The cells of slots in the pool, where it is drawn block by block.
  cellsAt(slots) {
    const { blockSize } = this.state;
    return slots.map((slot) => this.physical(Math.floor(slot / blockSize))?.querySelector(`[data-offset="${slot % blockSize}"]`)).filter(Boolean);
  }

  before(event, state) {
    if (this.still.matches) return null;
    this.state = state;
    const placesOf = (nodes, name) => new Map([...this.root.querySelectorAll(nodes)].map((node) => [node.dataset[name], node.getBoundingClientRect()]));
    return {
      chips: placesOf(".free-chip", "link"),
      cards: placesOf(".request", "request"),
      top: this.poolsTop(),
      ...MEASURES[event.kind]?.(this, event),
    };
  }

  // The chip of a block that leaves the free queue.
  taken(entry) {
    const chip = this.chip(entry);
    return { chip: chip && seen(chip) };
  }

  // The cells of a block that loses what is in them.
  left(entry) {
    return { leaving: entry, cells: this.strip(entry) };
  }

  poolsTop() {
    return this.root.querySelector(".pools").getBoundingClientRect().top;
  }

  // The cells of a block as a ghost, with its place.
  strip(entry) {
    const block = this.physical(entry);
    if (!block) {
      const rect = this.bigRect(endOf(entry));
      return rect && { ghost: h("span", { class: "dot" }), rect };
    }
    const cells = block.querySelector(".cells");
    const ghost = cells.cloneNode(true);
    const style = block.closest(".pool").style;
    for (const name of ["--fill", "--fill-text"]) ghost.style.setProperty(name, block.style.getPropertyValue(name));
    ghost.style.setProperty("--columns", style.getPropertyValue("--columns"));
    if (block.dataset.kind === "shared") ghost.dataset.shared = "";
    return { ghost, rect: cells.getBoundingClientRect() };
  }

  after(event, before, state, speed) {
    if (!before) return;
    this.state = state;
    this.ms = Math.round(LONGEST / Math.max(1, speed));
    // a new row above the pools moves them as a whole: flights start from where things are now
    const shift = this.poolsTop() - before.top;
    const moved = (rect) => new DOMRect(rect.left, rect.top + shift, rect.width, rect.height);
    for (const [link, rect] of before.chips) before.chips.set(link, moved(rect));
    if (before.chip) before.chip.rect = moved(before.chip.rect);
    if (before.cells) before.cells.rect = this.physical(before.leaving)?.querySelector(".cells").getBoundingClientRect() ?? moved(before.cells.rect);
    this.origin = this.root.getBoundingClientRect();
    MOVES[event.kind]?.(this, event, before);
    this.slideQueue(before.chips);
    this.moveCards(before.cards);
  }

  card(seq) {
    return this.root.querySelector(`.request[data-request="${CSS.escape(seq)}"]`);
  }

  // A request's card goes from where it was to where it is, in another lane or further up in its own.
  moveCards(cards) {
    for (const node of this.root.querySelectorAll(".request")) {
      const from = cards.get(node.dataset.request);
      const to = node.getBoundingClientRect();
      if (!from) this.appear(node);
      else if (Math.abs(from.left - to.left) + Math.abs(from.top - to.top) > 1) {
        this.run(node, [{ transform: `translate(${from.left - to.left}px, ${from.top - to.top}px)` }, { transform: "none" }]);
      }
    }
  }

  run(node, frames, options = {}) {
    if (!node) return null;
    const animation = node.animate(frames, { duration: this.ms, easing: EASE, ...options });
    this.running.push(animation);
    return animation;
  }

  fly(ghost, from, to, landing = [], { delay = 0, duration = this.ms } = {}) {
    if (!isSeen(from) || !isSeen(to)) return;
    const origin = this.origin;
    ghost.classList.add("ghost");
    for (const node of [ghost, ...ghost.querySelectorAll("*")]) {
      for (const name of ["tabindex", "data-link", "data-rove", "role", "aria-label"]) node.removeAttribute(name);
    }
    Object.assign(ghost.style, { left: `${from.left - origin.left}px`, top: `${from.top - origin.top}px`, width: `${from.width}px`, height: `${from.height}px` });
    this.layer.append(ghost);
    const move = `translate(${to.left - from.left}px, ${to.top - from.top}px) scale(${to.width / from.width}, ${to.height / from.height})`;
    const flight = this.run(ghost, [{ transform: "none" }, { transform: move }], { delay, duration });
    flight.onfinish = () => ghost.remove();
    for (const node of landing) this.run(node, [{ opacity: 0 }, { opacity: 0 }], { easing: "linear", duration: delay + duration });
  }

  pulse(node, scale = 1.35) {
    this.run(node, [{ transform: "none" }, { transform: `scale(${scale})` }, { transform: "none" }]);
  }

  appear(node) {
    this.run(node, [{ opacity: 0, transform: "translateY(4px)" }, { opacity: 1, transform: "none" }]);
  }

  slideQueue(chips) {
    for (const node of this.root.querySelectorAll(".free-chip")) {
      const from = chips.get(node.dataset.link);
      if (!from) continue;
      const to = node.getBoundingClientRect();
      const [dx, dy] = [from.left - to.left, from.top - to.top];
      if (Math.abs(dx) > 1 && Math.abs(dy) < 1) this.run(node, [{ transform: `translateX(${dx}px)` }, { transform: "none" }]);
    }
  }
}

// What is not displayed, such as the free queue while the lens is open, has a rectangle of no size, at 0, 0.
const isSeen = (rect) => Boolean(rect?.width);
