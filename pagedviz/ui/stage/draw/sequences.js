// Left: each sequence as a row of its logical blocks, and beside it its block table.
import { cellsPerRow, h, setAttr, setText, syncKeyed } from "../dom.js";
import { tablesIn } from "../state/changes.js";
import { logicalsInFocus } from "../state/focus.js";
import { nextSlot, sampledOf } from "../derived/slots.js";
import { drawLogical, makeLogical } from "./logical.js";
import { drawTables, makeTables } from "./tables.js";

const MAX_ROWS = 6;
const MAX_BLOCKS = 12;
const FEW = 3; // rows are shown when there are more sequences than fit

export function makeSequences(onChoose) {
  const rows = h("div", { class: "seqs" });
  const select = h("select", { "aria-label": "Show a sequence" });
  select.addEventListener("change", () => onChoose(select.value));
  const note = h("span", { class: "quiet" });
  const chooser = h("div", { class: "chooser", hidden: "" }, note, select);
  const title = h("h3", { class: "tables-title" });
  const head = h(
    "div",
    { class: "seqs-head" },
    h("h3", {}, "Sequences", h("span", { class: "quiet" }, " what each one sees")),
    title,
  );
  const empty = h("p", { class: "quiet empty" }, "No sequence is in the cache.");
  const node = h("section", { class: "seqs-box", "aria-label": "Sequences and block tables" }, head, chooser, rows, empty);
  return { node, rows, title, select, note, chooser, empty };
}

// Of many sequences: the chosen one, and those that the last events were about.
function shownSequences(state, steps, step, chosen) {
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

// Which logical blocks are drawn: all of a short row; of a long row both ends, and those around the first block in focus.
function shownBlocks(length, focus, many) {
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
  setAttr(ui.node, "data-groups", state.windows.length > 1 ? state.windows.length : null);
  setText(ui.title, state.windows.length > 1 ? "Block tables, one a group" : "Block tables");
  if (total > MAX_ROWS) drawChooser(ui, state, seqs.length, chosen);
  syncKeyed(
    ui.rows,
    seqs,
    (seq) => seq,
    (seq) => makeRow(seq),
    (row, seq) => drawRow(row, seq, view, logicalsInFocus(event, state, seq), colours.get(seq)),
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
  return h(
    "div",
    { class: "seq", "data-row": seq },
    h("div", { class: "chip", title: `sequence ${seq}` }, h("bdi", {}, seq)),
    h("div", { class: "logicals" }, h("div", { class: "logical-list" }), h("p", { class: "after quiet" }), h("p", { class: "salt quiet" })),
    makeTables(),
  );
}

function drawRow(row, seq, view, focus, colour) {
  const { state, event } = view;
  row.style.setProperty("--fill", colour.fill);
  row.style.setProperty("--fill-text", colour.text);
  const length = Math.max(...state.windows.map((_, group) => tablesIn(state, group).get(seq).length));
  const next = nextSlot(state, seq);
  const many = state.tables.size > MAX_ROWS;
  const shown = shownBlocks(length, view.reading?.seq === seq ? view.reading.logical : focus[0] ?? null, many);
  setAttr(row, "data-asked", view.reading?.seq === seq ? "" : null);
  const [, logicals, tables] = row.children;
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
  setText(after, length === 0 ? `no block yet${size ? "" : ", no token"}` : next ? "" : allocates);
  setAttr(after, "hidden", after.textContent ? null : "");
  const salted = state.salts.get(seq) ?? null;
  setText(salt, salted === null ? "" : `salt “${salted}”: hits only blocks of the same salt`);
  drawTables(tables, seq, shown, view, event);
}
