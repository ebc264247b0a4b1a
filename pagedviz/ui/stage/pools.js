// The device pool and the host pool as fixed grids (a block never moves), and their free queues.
import { h, setAttr, setText, syncKeyed, drawCells, cellsPerRow } from "./dom.js";
import { hostEntry, isHost, linkOf, nameOf } from "./replay.js";
import { concerned, listed, physicalBlock, physicalLabel } from "./derive.js";
import { comingCell } from "./sequences.js";
import { drawHashLine, makeHashLine, ordinal, shortHash } from "./hashes.js";
import { tokenText } from "./text.js";
import { BigPool } from "./bigpool.js";

export const GRID_LIMIT = 64;
const QUEUE_LIMIT = { grid: 40, big: 12 };

export function makePools(links) {
  const part = (name, attribute) => {
    const title = h("h3");
    const body = h("div", { class: "pool", [attribute]: "" });
    const queueTitle = h("h3", {}, "Free queue");
    const queue = h("ol", { class: "queue", "aria-label": `${name} free queue, next out first` });
    const queueBox = h("div", { class: "queue-box" }, queueTitle, queue);
    const node = h("section", { class: "pool-box", "aria-label": `${name} pool` }, title, body, queueBox);
    return { node, title, body, queue, queueTitle, big: null };
  };
  const device = part("device", "data-pool");
  const host = part("host", "data-host-pool");
  const sign = (fill, words, when) => h("span", { class: `legend-item ${when}` }, h("span", { class: "cell sample", "data-fill": fill }), words);
  const legend = h(
    "p",
    { class: "legend quiet", "aria-hidden": "true" },
    sign("next", "next token", ""),
    sign("pending", "in this step’s launch", "of-requests"),
    sign("kept", "free, may be hit", "of-hashes"),
    sign("stale", "nobody's: stale or NaN", ""),
  );
  return { node: h("div", { class: "pools" }, device.node, host.node), device, host, legend, links };
}

export function drawPools(ui, view) {
  const { state } = view;
  setAttr(ui.node, "data-hashes", view.usesHashes ? "" : null);
  setAttr(ui.node, "data-requests", view.usesRequests ? "" : null);
  drawPool(ui, ui.device, view, Array.from({ length: state.numBlocks }, (_, block) => block), {
    title: `Device pool`,
    detail: ` ${state.numBlocks} blocks of ${state.blockSize} tokens`,
    free: state.free,
  });
  ui.device.title.append(ui.legend);
  setAttr(ui.host.node, "hidden", state.hostBlocks ? null : "");
  setAttr(ui.host.node, "data-quiet", view.usesHost ? null : "");
  if (!state.hostBlocks) return;
  drawPool(ui, ui.host, view, Array.from({ length: state.hostBlocks }, (_, block) => hostEntry(block)), {
    title: "Host pool",
    detail: view.usesHost ? ` ${state.hostBlocks} blocks` : ` ${state.hostBlocks} blocks, none used in this run`,
    free: state.hostFree.map(hostEntry),
  });
}

function drawPool(ui, part, view, entries, { title, detail, free }) {
  if (!part.title.firstChild) part.title.append(h("span"), h("span", { class: "quiet" }));
  setText(part.title.children[0], title);
  setText(part.title.children[1], detail);
  setText(part.queueTitle, part === ui.host ? "Host free queue" : "Free queue");
  const big = entries.length > GRID_LIMIT;
  drawQueue(part.queue, view.state.cached, free, big ? QUEUE_LIMIT.big : QUEUE_LIMIT.grid);
  setAttr(part.body, "data-big", big ? "" : null);
  if (big) {
    if (!part.big) {
      part.big = new BigPool(ui.links, part === ui.host);
      part.body.replaceChildren(part.big.node);
    }
    part.big.draw(view, entries);
    return;
  }
  if (part.big) {
    part.big.destroy();
    part.big = null;
    part.body.replaceChildren();
  }
  drawGrid(part.body, entries, view);
}

function drawGrid(grid, entries, view) {
  const { state, owners, colours, event } = view;
  const about = concerned(event, state.blockSize);
  grid.style.setProperty("--columns", cellsPerRow(state.blockSize));
  setAttr(grid, "data-tiny", state.blockSize > 6 ? "" : null);
  const nextOut = state.free[0];
  syncKeyed(grid, entries, linkOf, makePhysical, (node, entry) => {
    const block = physicalBlock(state, entry, owners, colours);
    const at = about.entries.indexOf(entry);
    const now = at < 0 ? null : at > 0 && about.from ? "old" : "";
    drawPhysical(node, block, state, event, now, entry === nextOut);
  });
}

// How each node looks now: most steps change a block or two, and the rest are left alone.
const drawn = new WeakMap();

function makePhysical(entry) {
  return h(
    "div",
    { class: "block physical", role: "button", "data-rove": isHost(entry) ? "host" : "pool", tabindex: "-1" },
    h("div", { class: "head" }, h("b", { class: "id" }, nameOf(entry)), h("span", { class: "owners" }), h("span", { class: "note" }), h("span", { class: "badge" })),
    h("div", { class: "cells" }),
    makeHashLine(),
  );
}

function drawPhysical(node, block, state, event, now, nextOut) {
  const looks = JSON.stringify([block.kind, block.refCount, block.seqs, block.fills, block.tokens, block.coming, block.kept, block.place, now, now === null ? "" : event.kind, nextOut, state.blockSize]);
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
  const [, owners, note, badge] = node.firstElementChild.children;
  drawOwners(owners, block);
  setText(note, block.kind === "null" ? "null block" : block.kind === "pinned" ? "held for the copy" : block.kind !== "free" ? "" : nextOut ? "next out" : block.kept ? `${ordinal(block.place)} out` : "");
  setText(badge, block.refCount > 0 && block.kind !== "null" ? `×${block.refCount}` : "");
  drawHashLine(node.lastElementChild, block.kept, now === "" && event.kind === "BlockEvicted" ? event.block_hash : null, block.kind === "null");
  drawCells(node.children[1], state.blockSize, (offset) => {
    const slot = block.block * state.blockSize + offset;
    if (offset < block.tokens.length) {
      const token = block.tokens[offset];
      return { state: "filled", text: tokenText(token), tip: `“${token}”, ${isHost(block.entry) ? "host slot" : "slot"} ${slot}` };
    }
    if (block.coming[offset]) return comingCell(block.coming[offset], `slot ${slot}`);
    if (block.kept && block.kind === "free") {
      const token = block.kept.tokens[offset];
      return { state: "kept", text: tokenText(token), tip: `“${token}”, slot ${slot}: kept for whoever begins with the same tokens` };
    }
    return { state: "stale", text: "", tip: `slot ${slot}: nobody's, stale or NaN` };
  });
}

// Stripes in the owners' colours when several sequences share the block.
export function fillOf(fills) {
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

function drawQueue(queue, cached, free, limit) {
  const shown = free.slice(0, limit);
  const items = [...shown, ...(free.length > shown.length ? ["more"] : []), ...(free.length ? [] : ["none"])];
  setAttr(queue, "data-length", free.length);
  syncKeyed(
    queue,
    items,
    (item) => item,
    (item) => (typeof item === "number" ? h("li", {}, h("button", { type: "button", class: "free-chip", "data-rove": "queue", tabindex: "-1", "data-link": linkOf(item) }, nameOf(item))) : h("li", { class: "quiet" })),
    (node, item) => {
      if (item === "more") setText(node, `and ${(free.length - shown.length).toLocaleString("en")} more`);
      else if (item === "none") setText(node, "empty: no block is free");
      else {
        const first = item === free[0];
        setAttr(node, "data-free", nameOf(item));
        setAttr(node, "data-head", first ? "" : null);
        const kept = cached.get(item);
        setAttr(node.firstElementChild, "data-kept", kept ? "" : null);
        setAttr(node.firstElementChild, "aria-label", `free block ${nameOf(item)}${first ? ", next out" : ""}${kept ? `, cached, still holds hash ${shortHash(kept.hash)}` : ""}`);
      }
    },
  );
}
