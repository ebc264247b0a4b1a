// One logical block: what the sequence sees of it, and the physical block of each group that it is in.
import { drawCells, h, setAttr, setText, syncKeyed } from "../dom.js";
import { blockOf, endOf, isHost, nameOf } from "../state/entries.js";
import { tablesIn } from "../state/changes.js";
import { keptIn } from "../derived/physical.js";
import { listed } from "../text.js";
import { comingCell, filledCell, goneCell, rolledCell } from "./cells.js";
import { comingIn, filledIn, isGone, markInRow, rolledBackAt } from "../derived/slots.js";
import { hashWords, shortHash } from "./hashes.js";

export function makeLogical() {
  return h(
    "div",
    { class: "block logical", role: "button", "data-rove": "logical", tabindex: "-1" },
    h("div", { class: "head" }, h("span", { class: "index" }), h("span", { class: "arrow", "aria-hidden": "true" }, "→"), h("span", { class: "ids" }), h("span", { class: "note" }), h("span", { class: "hash" }), h("span", { class: "badge" })),
    h("div", { class: "cells" }),
  );
}

export function drawLogical(node, seq, logical, view, now) {
  const { state } = view;
  const all = state.windows.map((_, group) => ({ group, entry: tablesIn(state, group).get(seq)[logical] }));
  const entries = all.filter(({ entry }) => entry !== undefined); // while a block is taken, one group's table is longer
  const [{ entry }] = entries;
  const several = state.windows.length > 1;
  const isNull = (one) => one === state.nullBlock;
  const held = entries.map((one) => one.entry).filter((one) => !isNull(one));
  const pins = state.held.has(entry) ? 1 : 0; // the pin of a transfer is not a reference of another sequence
  const refs = isHost(entry) ? state.hostRefs[blockOf(entry)] : state.refs[blockOf(entry)] - pins;
  const gone = isGone(state, seq, logical);
  setAttr(node, "data-seq", seq);
  setAttr(node, "data-logical", logical);
  setAttr(node, "data-entry", nameOf(entry));
  setAttr(node, "data-link", (held.length ? held : [entry]).map(endOf).join(" "));
  setAttr(node, "data-filled", filledIn(state, seq, logical));
  setAttr(node, "data-now", now ? "" : null);
  setAttr(node, "data-where", isHost(entry) ? "host" : "device");
  setAttr(node, "data-gone", gone ? "" : null);
  setAttr(node, "data-stopped", now && view.event?.kind === "WriteStopped" ? "" : null);
  const shared = several || isNull(entry) ? 1 : refs;
  const kept = several ? null : keptIn(state, entry, view.owners);
  const coming = comingIn(state, seq, logical);
  setAttr(node, "aria-label", labelOf(state, seq, logical, entries, shared, coming, kept));
  const tokens = state.tokens.get(seq).slice(logical * state.blockSize, (logical + 1) * state.blockSize);
  setAttr(node, "data-tip", `${seq}, logical block ${logical}: ${listed(tokens.map((t) => `“${t}”`)) || "no token yet"}${gone ? ", out of the window" : ""}`);
  const [index, , ids, note, hash, badge] = node.firstElementChild.children;
  setText(index, logical);
  drawIds(ids, entries, several, state.nullBlock);
  setText(note, gone ? "null, out of the window" : isNull(entry) && !several ? "null" : isHost(entry) ? "on host" : "");
  setText(hash, kept ? shortHash(kept.hash) : "");
  setText(badge, shared > 1 ? `×${refs}` : "");
  drawCells(node.lastElementChild, state.blockSize, (offset) => cellOf(state, seq, logical * state.blockSize + offset, tokens[offset], coming[offset], gone));
}

function cellOf(state, seq, position, token, coming, gone) {
  if (token !== undefined) return gone ? goneCell(token, `position ${position}`) : filledCell(token, `position ${position}`, markInRow(state, seq, position));
  const garbage = rolledBackAt(state, seq, position);
  if (coming) return comingCell(coming, `position ${position} of ${seq}`, garbage);
  if (garbage !== null) return rolledCell(garbage, `behind the last token of ${seq}`);
  return { state: "stale", text: "", tip: "unfilled: whatever is there is nobody's (stale or NaN), and no kernel reads it" };
}

// The physical ids, each with its group where there are several groups.
function drawIds(ids, entries, several, nullBlock) {
  syncKeyed(ids, entries, ({ group }) => group, () => h("span", { class: "id-of" }, h("b", { class: "id" }), h("span", { class: "group" })), (node, { entry, group }) => {
    setText(node.children[0], nameOf(entry));
    setText(node.children[1], several ? `g${group}` : "");
    setAttr(node, "data-null", entry === nullBlock ? "" : null);
  });
}

function labelOf(state, seq, logical, entries, refs, coming, kept) {
  const places = entries.map(({ entry, group }) => {
    const where = isHost(entry) ? `host block ${nameOf(entry)}` : `physical block ${nameOf(entry)}`;
    return `${where}${entry === state.nullBlock ? ", the null block" : ""}${entries.length > 1 ? ` of group ${group}` : ""}`;
  });
  const shared = refs > 1 ? `, shared, ${refs} references` : "";
  return `sequence ${seq}, logical block ${logical}, ${filledIn(state, seq, logical)} of ${state.blockSize} tokens${isGone(state, seq, logical) ? ", out of the window" : ""}, ${places.join(", ")}${shared}${comingWords(coming)}${draftWords(state, seq, logical)}${kept ? `, cached, ${hashWords(kept)}` : ""}`;
}

function comingWords(coming) {
  const all = Object.values(coming);
  const [pending, drafts] = ["pending", "draft"].map((wanted) => all.filter(({ fill }) => fill === wanted).length);
  const sampled = all.find(({ fill }) => fill === "sampled");
  return `${pending ? `, ${pending} in this step's launch` : ""}${drafts ? `, ${drafts} drafted` : ""}${sampled ? `, “${sampled.token}” is sampled and not written yet` : ""}`;
}

function draftWords(state, seq, logical) {
  const positions = Array.from({ length: state.blockSize }, (_, offset) => logical * state.blockSize + offset);
  const held = state.tokens.get(seq).length;
  const unverified = positions.filter((position) => position < held && position >= held - (state.unverified.get(seq)?.count ?? 0)).length;
  const garbage = positions.filter((position) => rolledBackAt(state, seq, position) !== null).length;
  return `${unverified ? `, ${unverified} not verified yet` : ""}${garbage ? `, ${garbage} rolled back` : ""}`;
}
