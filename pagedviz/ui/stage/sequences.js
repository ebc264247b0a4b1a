// Left: each sequence as a row of its logical blocks, and beside it its block table.
import { h, setAttr, setText, syncKeyed, drawCells, cellsPerRow } from "./dom.js";
import { blockOf, isHost, linkOf, nameOf } from "./replay.js";
import { comingIn, concernedLogicals, filledIn, keptIn, listed, nextSlot, sampledOf } from "./derive.js";
import { hashWords, shortHash } from "./hashes.js";
import { drawTable, makeTable } from "./tables.js";
import { tokenText } from "./text.js";

export const MAX_ROWS = 6;
const MAX_BLOCKS = 12;
const FEW = 3; // rows, when there are more sequences than fit

export function makeSequences(onChoose) {
  const rows = h("div", { class: "seqs" });
  const select = h("select", { "aria-label": "Show a sequence" });
  select.addEventListener("change", () => onChoose(select.value));
  const note = h("span", { class: "quiet" });
  const chooser = h("div", { class: "chooser", hidden: "" }, note, select);
  const head = h(
    "div",
    { class: "seqs-head" },
    h("h3", {}, "Sequences", h("span", { class: "quiet" }, " what each one sees")),
    h("h3", { class: "tables-title" }, "Block tables"),
  );
  const empty = h("p", { class: "quiet empty" }, "No sequence yet.");
  const node = h("section", { class: "seqs-box", "aria-label": "Sequences and block tables" }, head, chooser, rows, empty);
  return { node, rows, select, note, chooser, empty };
}

// With many sequences: the chosen one, and those that the last events were about.
export function shownSequences(state, steps, step, chosen) {
  const all = [...state.tables.keys()];
  if (all.length <= MAX_ROWS) return all;
  const wanted = new Set(chosen && state.tables.has(chosen) ? [chosen] : []);
  for (let k = step; k > 0 && wanted.size < FEW && k > step - 400; k -= 1) {
    const { event } = steps[k - 1];
    for (const seq of [event.seq_id, event.parent, ...(event.seq_ids ?? []).slice(0, 3)]) {
      if (seq !== undefined && state.tables.has(seq) && wanted.size < FEW) wanted.add(seq);
    }
  }
  for (const seq of all) if (wanted.size < FEW) wanted.add(seq);
  return all.filter((seq) => wanted.has(seq));
}

// Which logical blocks are drawn: all of a short row; of a long one the ends, and those round the first concerned one.
export function shownBlocks(length, focus, many) {
  if (length <= (many ? 4 : MAX_BLOCKS)) return Array.from({ length }, (_, j) => j);
  const keep = new Set(many ? [0, length - 1] : [0, 1, length - 3, length - 2, length - 1]);
  const around = focus === null ? [] : many ? [focus] : [focus - 1, focus, focus + 1];
  for (const j of around) if (j >= 0 && j < length) keep.add(j);
  const out = [];
  let previous = -1;
  for (const j of [...keep].sort((a, b) => a - b)) {
    if (j > previous + 1) out.push({ gap: j - previous - 1, after: previous });
    out.push(j);
    previous = j;
  }
  return out;
}

export function drawSequences(ui, view) {
  const { state, colours, event, steps, step, chosen } = view;
  const seqs = shownSequences(state, steps, step, chosen);
  const total = state.tables.size;
  setAttr(ui.chooser, "hidden", total > MAX_ROWS ? null : "");
  setAttr(ui.empty, "hidden", total ? "hidden" : null);
  const longest = Math.max(1, ...seqs.map((seq) => [...seq].length));
  ui.node.style.setProperty("--name-width", `${Math.max(28, Math.min(96, longest * 8 + 12))}px`);
  if (total > MAX_ROWS) drawChooser(ui, state, seqs.length, chosen);
  syncKeyed(
    ui.rows,
    seqs,
    (seq) => seq,
    (seq) => makeRow(seq),
    (row, seq) => drawRow(row, seq, view, concernedLogicals(event, state, seq), colours.get(seq)),
  );
}

function drawChooser(ui, state, shown, chosen) {
  setText(ui.note, `${shown} of ${state.tables.size}: those that the last steps were about. Also show`);
  const options = ["", ...state.tables.keys()];
  syncKeyed(ui.select, options, (seq) => `:${seq}`, (seq) => h("option", { value: seq }, seq || "none"), null);
  const value = chosen && state.tables.has(chosen) ? chosen : "";
  if (ui.select.value !== value) ui.select.value = value;
}

function makeRow(seq) {
  const name = h("bdi", {}, seq);
  const row = h(
    "div",
    { class: "seq", "data-row": seq },
    h("div", { class: "chip", title: `sequence ${seq}` }, name),
    h("div", { class: "logicals" }, h("div", { class: "logical-list" }), h("p", { class: "after quiet" }), h("p", { class: "salt quiet" })),
  );
  row.append(makeTable(seq));
  return row;
}

function drawRow(row, seq, view, focus, colour) {
  const { state, event } = view;
  row.style.setProperty("--fill", colour.fill);
  row.style.setProperty("--fill-text", colour.text);
  const table = state.tables.get(seq);
  const next = nextSlot(state, seq);
  const many = state.tables.size > MAX_ROWS;
  const shown = shownBlocks(table.length, view.reading?.seq === seq ? view.reading.logical : focus[0] ?? null, many);
  setAttr(row, "data-asked", view.reading?.seq === seq ? "" : null);
  const [, logicals, tableNode] = row.children;
  const [list, after, salt] = logicals.children;
  list.style.setProperty("--columns", cellsPerRow(state.blockSize));
  setAttr(list, "data-wide", state.blockSize > 6 ? "" : null);
  setAttr(list, "data-few", many && state.blockSize <= 6 ? "" : null);
  syncKeyed(
    list,
    shown,
    (j) => (typeof j === "number" ? j : `gap${j.after}`),
    (j) => (typeof j === "number" ? makeLogical() : h("p", { class: "gap quiet" })),
    (node, j) => {
      if (typeof j === "number") drawLogical(node, seq, j, view, focus.includes(j));
      else setText(node, many ? `⋯ ${j.gap}` : `⋯ ${j.gap} more blocks`);
    },
  );
  const size = state.tokens.get(seq).length;
  const sampled = next ? null : sampledOf(state, seq);
  const allocates = sampled === null ? "next write allocates a block" : `“${sampled}” is sampled and in no slot; its write allocates a block`;
  setText(after, table.length === 0 ? `no block yet${size ? "" : ", no token"}` : next ? "" : allocates);
  setAttr(after, "hidden", after.textContent ? null : "");
  const salted = state.salts.get(seq) ?? null;
  setText(salt, salted === null ? "" : `salt “${salted}”: hits only blocks of the same salt`);
  drawTable(tableNode, seq, shown, view, event);
}

function makeLogical() {
  return h(
    "div",
    { class: "block logical", role: "button", "data-rove": "logical", tabindex: "-1" },
    h("div", { class: "head" }, h("span", { class: "index" }), h("span", { class: "arrow", "aria-hidden": "true" }, "→"), h("b", { class: "id" }), h("span", { class: "note" }), h("span", { class: "hash" }), h("span", { class: "badge" })),
    h("div", { class: "cells" }),
  );
}

function drawLogical(node, seq, logical, view, now) {
  const { state } = view;
  const entry = state.tables.get(seq)[logical];
  const filled = filledIn(state, seq, logical);
  const refs = isHost(entry) ? state.hostRefs[blockOf(entry)] : state.refs[blockOf(entry)];
  const isNull = entry === state.nullBlock;
  setAttr(node, "data-seq", seq);
  setAttr(node, "data-logical", logical);
  setAttr(node, "data-entry", nameOf(entry));
  setAttr(node, "data-link", linkOf(entry));
  setAttr(node, "data-filled", filled);
  setAttr(node, "data-now", now ? "" : null);
  setAttr(node, "data-where", isHost(entry) ? "host" : "device");
  setAttr(node, "data-stopped", now && view.event?.kind === "WriteStopped" ? "" : null);
  const place = isHost(entry) ? `host block ${nameOf(entry)}` : `physical block ${nameOf(entry)}`;
  const shared = refs > 1 && !isNull ? `, shared, ${refs} references` : "";
  const kept = keptIn(state, entry, view.owners);
  setAttr(node, "aria-label", `sequence ${seq}, logical block ${logical}, ${filled} of ${state.blockSize} tokens, ${place}${isNull ? ", the null block" : ""}${shared}${comingWords(comingIn(state, seq, logical))}${kept ? `, cached, ${hashWords(kept)}` : ""}`);
  const coming = comingIn(state, seq, logical);
  const tokens = state.tokens.get(seq);
  setAttr(node, "data-tip", `${seq}, logical block ${logical}: ${listed(tokens.slice(logical * state.blockSize, logical * state.blockSize + filled).map((t) => `“${t}”`)) || "no token yet"}`);
  const [index, , id, note, hash, badge] = node.firstElementChild.children;
  setText(index, logical);
  setText(id, nameOf(entry));
  setText(note, isNull ? "null" : isHost(entry) ? "on host" : "");
  setText(hash, kept ? shortHash(kept.hash) : "");
  setText(badge, refs > 1 && !isNull ? `×${refs}` : "");
  drawCells(node.lastElementChild, state.blockSize, (offset) => {
    const position = logical * state.blockSize + offset;
    if (offset < filled) {
      const token = tokens[position];
      return { state: "filled", text: tokenText(token), tip: `“${token}”, position ${position}` };
    }
    return coming[offset]
      ? comingCell(coming[offset], `position ${position} of ${seq}`)
      : { state: "stale", text: "", tip: "unfilled: whatever is there is nobody's (stale or NaN), and no kernel reads it" };
  });
}

function comingWords(coming) {
  const all = Object.values(coming);
  const pending = all.filter(({ fill }) => fill === "pending").length;
  const sampled = all.find(({ fill }) => fill === "sampled");
  return `${pending ? `, ${pending} in this step's launch` : ""}${sampled ? `, “${sampled.token}” is sampled and not written yet` : ""}`;
}

// A slot that is not filled yet, and what comes into it.
export function comingCell({ fill, token }, where) {
  const text = token === null ? "next" : tokenText(token);
  if (fill === "pending") return { state: fill, text: token === null ? "" : text, tip: `${where}: “${token}” is written by this step's launch` };
  if (fill === "sampled") return { state: fill, text, tip: `${where}: “${token}” is sampled, and in no slot yet` };
  return { state: fill, text, tip: token === null ? `${where}: where the next token goes` : `${where}: “${token}” is the next to be computed` };
}
