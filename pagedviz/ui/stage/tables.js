// Block tables: one row per logical block, naming a physical block. The learner's page table.
import { h, setAttr, setText, syncKeyed } from "./dom.js";
import { blockOf, isHost, linkOf, nameOf } from "./replay.js";
import { concernedLogicals, filledIn, concerned } from "./derive.js";

const COLUMNS = ["logical", "physical", "filled", "where"];

export function makeTable(seq) {
  const head = h("tr", {}, ...COLUMNS.map((name) => h("th", { scope: "col" }, name)));
  return h(
    "table",
    { class: "table", "data-table": seq },
    h("caption", { class: "hidden" }, `Block table of sequence ${seq}`),
    h("thead", {}, head),
    h("tbody"),
  );
}

export function drawTable(table, seq, shown, view, event) {
  const { state } = view;
  const focus = concernedLogicals(event, state, seq);
  const moved = concerned(event, state.blockSize).from;
  const entries = state.tables.get(seq);
  setAttr(table, "data-empty", entries.length ? null : "");
  syncKeyed(
    table.querySelector("tbody"),
    shown,
    (j) => (typeof j === "number" ? j : `gap${j.after}`),
    (j) => (typeof j === "number" ? makeEntry() : h("tr", {}, h("td", { colspan: "4", class: "quiet" }))),
    (row, j) => {
      if (typeof j !== "number") setText(row.firstElementChild, `⋯ ${j.gap} more`);
      else drawEntry(row, seq, j, entries[j], state, focus.includes(j), focus.includes(j) && moved ? moved.old : null);
    },
  );
}

function makeEntry() {
  return h(
    "tr",
    {},
    h("td"),
    h("td", {}, h("s"), h("button", { type: "button", class: "entry", "data-rove": "entry", tabindex: "-1" })),
    h("td"),
    h("td"),
  );
}

function drawEntry(row, seq, logical, entry, state, now, old) {
  const filled = filledIn(state, seq, logical);
  setAttr(row, "data-table-seq", seq);
  setAttr(row, "data-table-logical", logical);
  setAttr(row, "data-physical", nameOf(entry));
  setAttr(row, "data-now", now ? "" : null);
  const [index, physical, fill, where] = row.children;
  const [struck, button] = physical.children;
  setText(index, logical);
  setText(struck, old === null ? "" : nameOf(old));
  setAttr(struck, "aria-label", old === null ? null : `was ${nameOf(old)}`);
  setText(button, nameOf(entry));
  setAttr(button, "data-link", linkOf(entry));
  setAttr(button, "aria-label", `table of sequence ${seq}, logical block ${logical} is in ${isHost(entry) ? "host" : "physical"} block ${blockOf(entry)}`);
  setText(fill, `${filled}/${state.blockSize}`);
  setText(where, entry === state.nullBlock ? "null" : isHost(entry) ? "host" : "device");
}
