// One physical block of a grid: the sequences that name it, and what its slots hold.
import { cellsPerRow, drawCells, h, setAttr, setText, syncKeyed } from "../dom.js";
import { endOf, isHost, nameOf } from "../state/entries.js";
import { focusOf } from "../state/focus.js";
import { listed, tokenText } from "../text.js";
import { physicalBlock } from "../derived/physical.js";
import { physicalLabel, transferWords } from "../draw/labels.js";
import { comingCell, filledCell, rolledCell } from "../draw/cells.js";
import { drawHashLine, makeHashLine, ordinal } from "../draw/hashes.js";

export function drawGrid(grid, entries, view) {
  const { state, owners, colours, event } = view;
  const about = focusOf(event, state);
  grid.style.setProperty("--columns", cellsPerRow(state.blockSize));
  setAttr(grid, "data-tiny", state.blockSize > 6 ? "" : null);
  const nextOut = state.free[0];
  syncKeyed(grid, entries, endOf, makePhysical, (node, entry) => {
    const block = physicalBlock(state, entry, owners, colours);
    const at = about.entries.indexOf(entry);
    const now = at < 0 ? null : at > 0 && about.repointed ? "old" : "";
    drawPhysical(node, block, state, event, now, entry === nextOut);
  });
}

// What each node shows now. Most steps change a block or two, and the other nodes are left alone.
const drawn = new WeakMap();

function makePhysical(entry) {
  return h(
    "div",
    { class: "block physical", role: "button", "data-rove": isHost(entry) ? "host" : "pool", tabindex: "-1" },
    h("div", { class: "head" }, h("b", { class: "id" }, nameOf(entry)), h("span", { class: "group" }), h("span", { class: "owners" }), h("span", { class: "note" }), h("span", { class: "badge" })),
    h("div", { class: "cells" }),
    makeHashLine(),
  );
}

function drawPhysical(node, block, state, event, now, nextOut) {
  const lying = garbageIn(state, block);
  const looks = JSON.stringify([block.kind, block.group, block.transfer, block.refCount, block.seqs, block.fills, block.tokens, block.marks, block.coming, lying, block.kept, block.place, now, now === null ? "" : event.kind, nextOut, state.blockSize]);
  if (drawn.get(node) === looks) return;
  drawn.set(node, looks);
  setAttr(node, isHost(block.entry) ? "data-host-block" : "data-block", block.block);
  setAttr(node, "data-ref-count", block.refCount);
  setAttr(node, "data-kind", block.kind);
  setAttr(node, "data-link", block.link);
  setAttr(node, "data-now", now);
  setAttr(node, "data-stopped", now !== null && event.kind === "WriteStopped" ? "" : null);
  setAttr(node, "aria-label", physicalLabel(block, state.blockSize));
  const held = (block.tokens.length ? block.tokens : block.kept?.tokens ?? []).map((token) => `“${token}”`);
  setAttr(node, "data-tip", `${physicalLabel(block, state.blockSize)}${held.length ? `: ${listed(held)}` : ""}`);
  node.style.setProperty("--fill", fillOf(block.fills));
  node.style.setProperty("--fill-text", block.fills.length === 1 ? block.fills[0].text : "var(--ink)");
  setAttr(node, "data-transfer", block.transfer?.kind ?? null);
  const [, group, owners, note, badge] = node.firstElementChild.children;
  setText(group, block.group === null ? "" : `g${block.group}`);
  drawOwners(owners, block);
  setText(note, noteOf(block, nextOut));
  setText(badge, block.refCount > 0 && block.kind !== "null" ? `×${block.refCount}` : "");
  drawHashLine(node.lastElementChild, block.kept, now === "" && event.kind === "BlockEvicted" ? event.block_hash : null, block.kind === "null");
  const garbage = new Map(lying);
  drawCells(node.children[1], state.blockSize, (offset) => {
    const slot = block.block * state.blockSize + offset;
    const where = `${isHost(block.entry) ? "host slot" : "slot"} ${slot}`;
    if (offset < block.tokens.length) return filledCell(block.tokens[offset], where, block.marks[offset]);
    if (block.coming[offset]) return comingCell(block.coming[offset], where, garbage.get(offset) ?? null);
    const token = block.kind === "free" || block.transfer ? (block.kept ?? block.transfer)?.tokens?.[offset] : undefined;
    if (token !== undefined) return { state: "kept", text: tokenText(token), tip: `“${token}”, slot ${slot}: kept for whoever begins with the same tokens` };
    if (garbage.has(offset)) return rolledCell(garbage.get(offset), where);
    return { state: "stale", text: "", tip: `slot ${slot}: nobody's, stale or NaN` };
  });
}

// The rejected tokens that still lie in a block's slots, by offset.
const garbageIn = ({ rolledBack, blockSize }, { block, entry }) =>
  isHost(entry) ? [] : [...rolledBack].filter(([slot]) => Math.floor(slot / blockSize) === block).map(([slot, token]) => [slot % blockSize, token]);

function noteOf(block, nextOut) {
  if (block.kind === "null") return "null block";
  if (block.transfer) return transferWords(block.transfer);
  if (block.kind === "pinned") return "held for the copy";
  if (block.kind !== "free") return "";
  return nextOut ? "next out" : block.kept ? `${ordinal(block.place)} out` : "";
}

// Stripes in the owners' colours when several sequences share the block.
function fillOf(fills) {
  if (fills.length === 0) return "var(--held)";
  if (fills.length === 1) return fills[0].fill;
  const stops = fills.slice(0, 4).map(({ fill }, i) => `${fill} ${i * 6}px ${(i + 1) * 6}px`);
  return `repeating-linear-gradient(135deg, ${stops.join(", ")})`;
}

function drawOwners(box, block) {
  const few = block.seqs.length > 3 ? [...block.seqs.slice(0, 2), null] : block.seqs;
  syncKeyed(
    box,
    few,
    (seq) => (seq === null ? "more" : `:${seq}`),
    () => h("bdi", { class: "owner" }),
    (node, seq) => {
      setText(node, seq === null ? `+${block.seqs.length - 2}` : seq);
      const colour = seq === null ? null : block.fills[block.seqs.indexOf(seq)];
      node.style.setProperty("--fill", colour ? colour.fill : "var(--line)");
      node.style.setProperty("--fill-text", colour ? colour.text : "var(--ink)");
    },
  );
}
