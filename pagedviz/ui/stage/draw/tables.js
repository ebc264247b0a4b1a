// Block tables, the page tables of a sequence: one table a group, one row a logical block, which names a physical block.
import { h, setAttr, setText, syncKeyed } from "../dom.js";
import { blockOf, endOf, isHost, nameOf } from "../state/entries.js";
import { tablesIn } from "../state/changes.js";
import { focusOf, isInFocus, logicalsInFocus } from "../state/focus.js";
import { filledIn } from "../derived/slots.js";

const COLUMNS = ["logical", "physical", "filled", "where"];

export const makeTables = () => h("div", { class: "tables" });

const namesOf = (windows, group) => [`group ${group} · `, windows[group] === null ? "full attention" : `window ${windows[group]}`];

export function drawTables(box, seq, shown, view, event) {
  const { windows } = view.state;
  const groups = windows.map((_, group) => group);
  syncKeyed(box, groups, (group) => group, () => makeTable(seq), (table, group) => {
    setAttr(table, "data-group", group);
    const [name, sees] = windows.length > 1 ? namesOf(windows, group) : [`Block table of sequence ${seq}`, ""];
    setText(table.caption.firstChild, name);
    setText(table.caption.lastChild, sees);
    setAttr(table.caption, "class", windows.length > 1 ? "group-name quiet" : "hidden");
    setAttr(table, "aria-label", windows.length > 1 ? `Block table of sequence ${seq}, ${name}${sees}` : null);
    drawTable(table, seq, group, shown, view, isInFocus(event, group) ? event : null);
  });
}

function makeTable(seq) {
  const head = h("tr", {}, ...COLUMNS.map((name) => h("th", { scope: "col" }, name)));
  return h("table", { class: "table", "data-table": seq }, h("caption", {}, document.createTextNode(""), h("span")), h("thead", {}, head), h("tbody"));
}

function drawTable(table, seq, group, shown, view, event) {
  const { state } = view;
  const focus = logicalsInFocus(event, state, seq);
  const moved = focusOf(event, state).repointed;
  const entries = tablesIn(state, group).get(seq);
  setAttr(table, "data-empty", entries.length ? null : "");
  const there = shown.filter((j) => typeof j !== "number" || entries[j] !== undefined); // while a block is taken, another group's table may be longer
  syncKeyed(
    table.querySelector("tbody"),
    there,
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
  const isNull = entry === state.nullBlock;
  setAttr(row, "data-table-seq", seq);
  setAttr(row, "data-table-logical", logical);
  setAttr(row, "data-physical", nameOf(entry));
  setAttr(row, "data-now", now ? "" : null);
  setAttr(row, "data-null", isNull ? "" : null);
  const [index, physical, fill, where] = row.children;
  const [struck, button] = physical.children;
  setText(index, logical);
  setText(struck, old === null ? "" : nameOf(old));
  setAttr(struck, "aria-label", old === null ? null : `was ${nameOf(old)}`);
  setText(button, nameOf(entry));
  setAttr(button, "data-link", endOf(entry));
  setAttr(button, "aria-label", `table of sequence ${seq}, logical block ${logical} is in ${isHost(entry) ? "host" : "physical"} block ${blockOf(entry)}${isNull ? ", the null block" : ""}`);
  setText(fill, isNull ? "–" : `${filledIn(state, seq, logical)}/${state.blockSize}`);
  setText(where, isNull ? "null" : isHost(entry) ? "host" : "device");
}
