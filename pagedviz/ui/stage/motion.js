// Motion over a picture that is already final: ghosts fly, and the cells they land on are veiled until then.
// Everything is over in 400 ms at most, and finish() ends it at once.
import { h } from "./dom.js";
import { hostEntry, linkOf, writesOf } from "./replay.js";

const LONGEST = 380;
const MOST_FLIGHTS = 64; // of the tokens of one write; the others are there already
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
    return this.root.querySelector(`.physical[data-link="${linkOf(entry)}"]`);
  }

  rect(entry) {
    return this.physical(entry)?.getBoundingClientRect() ?? this.bigRect(linkOf(entry));
  }

  chip(entry) {
    return this.root.querySelector(`.free-chip[data-link="${linkOf(entry)}"]`);
  }

  logical(seq, index) {
    return this.root.querySelector(`.logical[data-seq="${CSS.escape(seq)}"][data-logical="${index}"]`);
  }

  // What must be measured or cloned before the picture changes.
  before(event) {
    if (this.still.matches) return null;
    const chips = new Map();
    for (const node of this.root.querySelectorAll(".free-chip")) chips.set(node.dataset.link, node.getBoundingClientRect());
    const cards = new Map();
    for (const node of this.root.querySelectorAll(".request")) cards.set(node.dataset.request, node.getBoundingClientRect());
    const leaver = ["RequestFinished", "RequestAborted"].includes(event.kind) ? this.card(event.seq_id) : null;
    const leaving = { BlockSpilled: event.block, BlockReloaded: hostEntry(event.host_block ?? 0), BlockFreed: event.where === "host" ? hostEntry(event.block) : event.block, BlockEvicted: event.block, BlockCollapsed: event.source }[event.kind];
    const cells = leaving === undefined ? null : this.strip(leaving);
    const taken = { BlockAllocated: event.block, BlockCopied: event.target, BlockHit: event.block }[event.kind];
    const chip = taken === undefined ? null : this.chip(taken);
    return { chips, cards, card: leaver && { ghost: leaver.cloneNode(true), rect: leaver.getBoundingClientRect() }, cells, leaving, top: this.poolsTop(), chip: chip && { ghost: chip.cloneNode(true), rect: chip.getBoundingClientRect() } };
  }

  poolsTop() {
    return this.root.querySelector(".pools").getBoundingClientRect().top;
  }

  // The cells of a block as a ghost, with its place.
  strip(entry) {
    const block = this.physical(entry);
    if (!block) {
      const rect = this.bigRect(linkOf(entry));
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

  after(event, before, speed) {
    if (!before) return;
    this.ms = Math.round(LONGEST / Math.max(1, speed));
    // a row more or less above them moves the pools as a whole: flights start from where things are now
    const shift = this.poolsTop() - before.top;
    const moved = (rect) => new DOMRect(rect.left, rect.top + shift, rect.width, rect.height);
    for (const [link, rect] of before.chips) before.chips.set(link, moved(rect));
    if (before.chip) before.chip.rect = moved(before.chip.rect);
    if (before.cells) before.cells.rect = this.physical(before.leaving)?.querySelector(".cells").getBoundingClientRect() ?? moved(before.cells.rect);
    this.origin = this.root.getBoundingClientRect();
    MOVES[event.kind]?.(this, event, before);
    this.slideQueue(before.chips);
    this.moveCards(before.cards);
    fade(this, before.card);
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

const fills = (block) => (block ? [...block.querySelectorAll('[data-fill="filled"] .fill')] : []);
const badge = (block) => block?.querySelector(".badge");
const hashOf = (block) => block?.querySelector(".hash");

// Fades away where it was, over what is there now.
function fade(motion, strip, frames = [{ opacity: 1 }, { opacity: 0 }]) {
  if (!strip) return;
  motion.fly(strip.ghost, strip.rect, strip.rect);
  motion.run(strip.ghost, frames);
}

function toQueue(motion, entry) {
  const chip = motion.chip(entry);
  const from = motion.physical(entry)?.querySelector(".id").getBoundingClientRect() ?? motion.rect(entry);
  if (!chip || !from) return;
  const to = chip.getBoundingClientRect();
  motion.fly(chip.cloneNode(true), new DOMRect(from.left, from.top, to.width, to.height), to, [chip]);
}

function land(motion, entry, strip) {
  const target = motion.physical(entry);
  if (strip) motion.fly(strip.ghost, strip.rect, target ? target.querySelector(".cells").getBoundingClientRect() : motion.rect(entry), fills(target));
}

function takeFromQueue(motion, entry, before) {
  if (!before.chip) return;
  const to = motion.physical(entry)?.querySelector(".id").getBoundingClientRect() ?? motion.rect(entry);
  if (to) motion.fly(before.chip.ghost, before.chip.rect, new DOMRect(to.left, to.top, before.chip.rect.width, before.chip.rect.height));
}

// Each token from its cell in the row to its slot. Those of one sequence leave one after the other and the last lands
// when time is up; several sequences' leave at once, for one launch wrote them all.
function flyTokens(motion, event) {
  const writes = writesOf(event);
  for (const write of writes) flyWrite(motion, write, Math.ceil(MOST_FLIGHTS / writes.length));
}

function flyWrite(motion, { seq_id, position, slots }, most) {
  const flights = [];
  for (const block of motion.root.querySelectorAll(`.logical[data-seq="${CSS.escape(seq_id)}"]`)) {
    for (const cell of block.querySelectorAll("[data-offset]")) {
      const slot = slots[block.dataset.logical * motion.blockSize + Number(cell.dataset.offset) - position];
      if (slot === undefined || flights.length === most) continue;
      const entry = Math.floor(slot / motion.blockSize);
      const target = motion.physical(entry)?.querySelector(`[data-offset="${slot % motion.blockSize}"]`);
      flights.push({ cell, target, from: cell.getBoundingClientRect(), to: target?.getBoundingClientRect() ?? motion.rect(entry) });
    }
  }
  if (flights.length === 0) return;
  const style = getComputedStyle(flights[0].cell);
  const colours = ["--fill", "--fill-text"].map((name) => [name, style.getPropertyValue(name)]);
  const duration = motion.ms * (flights.length > 1 ? 0.5 : 1);
  flights.forEach(({ cell, target, from, to }, k) => {
    const ghost = cell.cloneNode(true);
    for (const [name, value] of colours) ghost.style.setProperty(name, value);
    const delay = k && ((motion.ms - duration) * k) / (flights.length - 1);
    motion.fly(ghost, from, to, target ? [target.firstElementChild] : [], { delay, duration });
    motion.run(cell.firstElementChild, [{ transform: "scale(.8)", opacity: 0.3 }, { transform: "none", opacity: 1 }], { duration: motion.ms * 0.35 });
  });
}

const MOVES = {
  SequenceAdded: (m, e) => m.appear(m.root.querySelector(`[data-row="${CSS.escape(e.seq_id)}"]`)),
  SequenceForked: (m, e) => MOVES.SequenceAdded(m, e),
  BlockAllocated: (m, e, before) => {
    takeFromQueue(m, e.block, before);
    m.appear(m.logical(e.seq_id, e.logical_block));
    m.pulse(badge(m.physical(e.block)));
  },
  BlockShared: (m, e) => {
    m.appear(m.logical(e.seq_id, e.logical_block));
    m.pulse(badge(m.physical(e.where === "host" ? hostEntry(e.block) : e.block)), 1.6);
  },
  BlockHit: (m, e, before) => {
    takeFromQueue(m, e.block, before);
    m.appear(m.logical(e.seq_id, e.logical_block));
    for (const fill of before.chip ? fills(m.physical(e.block)) : []) m.run(fill, [{ opacity: 0.15 }, { opacity: 1 }]);
    m.pulse(hashOf(m.physical(e.block)), 1.4);
    m.pulse(badge(m.physical(e.block)), 1.6);
  },
  BlockCached: (m, e) => {
    for (const block of [m.logical(e.seq_id, e.logical_block - 1), m.physical(e.block), m.logical(e.seq_id, e.logical_block)]) m.pulse(hashOf(block), 1.4);
  },
  BlockEvicted: (m, e, before) => fade(m, before.cells, [{ opacity: 1, filter: "none" }, { opacity: 0, filter: "blur(5px)" }]),
  BlockCollapsed: (m, e, before) => {
    land(m, e.target, before.cells);
    m.pulse(m.logical(e.seq_id, e.logical_block)?.querySelector(".id"), 1.6);
    m.pulse(badge(m.physical(e.target)), 1.6);
    toQueue(m, e.source);
  },
  TokenWritten: flyTokens,
  TokensWritten: flyTokens,
  BatchWritten: flyTokens,
  WriteStopped: (m, e) => {
    const shake = [0, -3, 3, -2, 0].map((x) => ({ transform: `translateX(${x}px)` }));
    m.run(m.physical(e.block), shake);
    m.pulse(badge(m.physical(e.block)), 1.6);
  },
  BlockCopied: (m, e, before) => {
    land(m, e.target, m.strip(e.source));
    takeFromQueue(m, e.target, before);
  },
  EntryRewritten: (m, e) => {
    m.pulse(badge(m.physical(e.source)), 1.6);
    m.pulse(badge(m.physical(e.target)), 1.6);
    m.pulse(m.logical(e.seq_id, e.logical_block)?.querySelector(".id"), 1.6);
    m.pulse(m.root.querySelector(`[data-table="${CSS.escape(e.seq_id)}"] [data-now] .entry`), 1.4);
  },
  BlockReleased: (m, e) => m.pulse(badge(m.physical(e.where === "host" ? hostEntry(e.block) : e.block)), 1.6),
  BlockFreed: (m, e, before) => {
    fade(m, before.cells);
    toQueue(m, e.where === "host" ? hostEntry(e.block) : e.block);
  },
  BlockSpilled: (m, e, before) => land(m, hostEntry(e.host_block), before.cells),
  BlockReloaded: (m, e, before) => land(m, e.block, before.cells),
  RequestScheduled: (m, e) => {
    m.pulse(m.card(e.seq_id)?.querySelector(".share"), 1.2);
    m.appear(m.root.querySelector(`[data-share="${CSS.escape(e.seq_id)}"]`));
  },
  RequestWaits: (m) => m.appear(m.root.querySelector(".request-note:not(:empty)")),
  TokensSampled: (m, e) => {
    for (const seq of e.seq_ids) m.pulse(m.card(seq)?.querySelector(".request-token"), 1.2);
    for (const cell of m.root.querySelectorAll('[data-fill="sampled"]')) m.appear(cell);
  },
  OperationRefused: (m) => m.appear(m.root.querySelector(".notice")),
};
