// The turns side by side. Below each token stands its weight in dense attention over the whole sequence.
import { h, setAttr, setText, syncKeyed } from "../dom.js";
import { newestTurn, readWords, shares, shortly, turnName } from "./stops.js";

const WIDE = 8; // lanes; with more, a lane's number is in its tip only

// The name of a lane's weight in the sum, by kind of stop.
const LEFT = "2^(s − m)";
const leftNames = { divide: "2^(s − m) ÷ l", join: "joined weight" };

// A number that is not finite comes as null, and makes the sum NaN.
const together = (weights) => weights.reduce((sum, weight) => sum + (weight ?? NaN), 0);

export function makeTurns(onTurn) {
  const label = (name, text) => h("span", { class: `row-${name}` }, text);
  const labels = h(
    "div",
    { class: "turn-labels quiet", "aria-hidden": "true" },
    label("split", ""), label("head", "block read"), label("position", "position"), label("score", "score s"),
    label("weight", ""), label("running", "max m, sum l"), label("dense", "dense weight"), label("share", ""),
  );
  const list = h("ol", { class: "turn-list", "aria-label": "Turns, in the order in which the kernel took them" });
  list.addEventListener("click", (event) => {
    const head = event.target.closest("[data-stop]");
    if (head) onTurn(Number(head.dataset.stop));
  });
  const node = h("div", { class: "turns" }, labels, list);
  return { node, labels, list };
}

export function drawTurns(ui, scene) {
  const { answer, stops, stop } = scene;
  const size = answer.block_size;
  setAttr(ui.node, "data-wide", size > 32 ? "very" : size > WIDE ? "" : null);
  setAttr(ui.node, "data-padded", answer.lanes > size ? "" : null);
  setAttr(ui.node, "data-splits", answer.splits.length > 1 ? "" : null);
  setText(ui.labels.querySelector(".row-weight"), leftNames[stop.kind] ?? LEFT);
  const total = together(answer.dense.weights);
  setText(ui.labels.querySelector(".row-share"), Number.isFinite(total) ? `together ${shortly(total)}` : "not finite");
  const most = Math.max(...answer.dense.weights);
  const counted = shares(answer);
  const columns = stops.map((place, index) => ({ place, index })).filter(({ place }) => place.kind === "turn" || place.kind === "empty");
  syncKeyed(ui.list, columns, ({ place }) => `${place.kind}${place.split}:${place.turn}`, ({ place }) => makeColumn(place), (node, { place, index }) => {
    const when = index < scene.index ? "done" : index === scene.index ? "now" : "later";
    setAttr(node, "data-when", when);
    setText(node.children[0], place.turn === 0 || place.kind === "empty" ? `split ${place.split + 1}` : "");
    if (place.kind === "turn") drawColumn(node, place, index, { ...scene, when, most, counted });
  });
}

// Scrolls the current turn into view; only the list moves, never the page.
export function settleTurns({ list }) {
  const now = list.querySelector("[data-when=now]");
  if (!now) return;
  const [left, right] = [now.offsetLeft - list.offsetLeft, now.offsetLeft - list.offsetLeft + now.offsetWidth];
  if (left < list.scrollLeft) list.scrollLeft = left - 24;
  else if (right > list.scrollLeft + list.clientWidth) list.scrollLeft = right - list.clientWidth + 24;
}

function makeColumn(place) {
  const split = h("span", { class: "row-split quiet" });
  if (place.kind === "empty") return h("li", { class: "turn empty" }, split, h("p", { class: "quiet no-block" }, "no block"));
  const lanes = (name) => h("div", { class: `lanes row-${name}`, "aria-hidden": name === "position" ? null : "true" });
  return h(
    "li",
    { class: "turn" },
    split,
    h("button", { type: "button", class: "turn-head row-head" }, h("span"), h("b")),
    lanes("position"), lanes("score"), lanes("weight"),
    h("p", { class: "row-running" }, h("span"), h("span", { class: "quiet" })),
    lanes("dense"),
    h("p", { class: "row-share", "aria-hidden": "true" }),
  );
}

// The weight of a lane in the sum as it is now: scaled to the newest maximum of its split, at the end divided by l.
// Null for a masked lane and for a lane that is not summed yet.
function remaining(scene, { split }, position, score) {
  const newest = newestTurn(scene, split, "running");
  if (position === null || !newest) return null;
  const weight = 2 ** ((score ?? NaN) - (newest.m ?? NaN));
  const { kind } = scene.stop;
  return kind === "divide" ? weight / newest.l : kind === "join" ? (weight / newest.l) * scene.counted[split] : weight;
}

function drawColumn(node, place, index, scene) {
  const { answer, known, most, stop, tokens } = scene;
  const turn = answer.splits[place.split].turns[place.turn];
  const [, head, position, score, weight, running, dense, share] = node.children;
  const isKnown = (what) => known(what, index);
  setAttr(head, "data-stop", index);
  setAttr(head, "aria-current", scene.when === "now" ? "step" : null);
  setText(head.children[0], `turn ${place.turn + 1}: ${turn.logical_block} → `);
  setText(head.children[1], turn.block);
  setAttr(head, "aria-label", scene.when === "later" ? `${turnName(answer, place)}, not taken yet` : `${turnName(answer, place)}: ${readWords(answer, turn)}`);

  const isWeight = stop.kind === "join" || (stop.kind === "divide" && answer.splits.length === 1);
  const first = turn.logical_block * answer.block_size;
  const lanes = Array.from({ length: answer.block_size }, (_, lane) => {
    const at = turn.positions[lane];
    const is = first + lane < answer.seq_len ? (answer.dense.weights[first + lane] ?? NaN) : null;
    const left = isKnown("running") ? remaining(scene, place, at, turn.scores[lane]) : null;
    const parts = [at === null ? "masked: its score is −∞, and neither its key nor its value is loaded" : `position ${at}, “${tokens[at]}”`];
    if (at !== null && isKnown("scores")) parts.push(`score ${shortly(turn.scores[lane])}`);
    if (left !== null) parts.push(`${leftNames[stop.kind] ?? LEFT} ${shortly(left)}`);
    if (is !== null) parts.push(`dense weight ${shortly(is)}`);
    return { lane, at, is, left, tip: isKnown("keys") ? parts.join(", ") : "not loaded yet" };
  });
  const padding = answer.lanes - answer.block_size;
  drawLanes(position, padding > 0 ? [...lanes, { lane: "pad", at: null, tip: `${padding} more lanes, beyond the block: they fill the tile, and are masked always` }] : lanes, (cell, { lane, at, tip }) => {
    setAttr(cell, "class", lane === "pad" ? "lane pad" : "lane");
    setAttr(cell, "role", "img");
    setAttr(cell, "data-rove", "lane");
    if (!cell.hasAttribute("tabindex")) setAttr(cell, "tabindex", -1);
    setAttr(cell, "data-lane", !isKnown("keys") ? null : at === null ? "masked" : "read");
    setText(cell, lane === "pad" ? `+${padding}` : isKnown("keys") && at !== null ? at : "");
    setAttr(cell, "aria-label", tip);
    setAttr(cell, "data-tip", tip);
  });
  drawLanes(score, lanes, (cell, { lane, at }) => setText(cell, isKnown("scores") && at !== null ? shortly(turn.scores[lane]) : ""));
  drawLanes(weight, lanes, (cell, { left, tip }) => drawBar(cell, left, isWeight ? most : 1, tip));
  drawLanes(dense, lanes, (cell, { is }) => drawBar(cell, is, most, is === null ? null : `dense weight ${shortly(is)}`));
  const end = Math.min(first + answer.block_size, answer.seq_len);
  setText(share, `Σ ${shortly(together(answer.dense.weights.slice(first, end)))}`);
  setText(running.children[0], isKnown("running") ? `m ${shortly(turn.m)}, l ${shortly(turn.l)}` : "");
  setText(running.children[1], !isKnown("running") || turn.shrink === null ? "" : turn.shrink === 1 ? "the old keeps its scale" : `the old × ${shortly(turn.shrink)}`);
}

function drawLanes(row, lanes, update) {
  syncKeyed(row, lanes, ({ lane }) => lane, () => h("span", { class: "lane" }), update);
}

function drawBar(cell, value, whole, tip) {
  setText(cell, value === null ? "" : shortly(value).replace(/^0\./, "."));
  setAttr(cell, "data-tip", tip);
  setAttr(cell, "data-bar", value === null ? null : "");
  cell.style.setProperty("--share", !Number.isFinite(value) || !whole ? 0 : Math.max(0, Math.min(1, value / whole)));
}
