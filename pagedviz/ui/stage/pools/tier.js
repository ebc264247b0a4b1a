// The host tier: chunks that hold copies of cached blocks by their hash, the order of eviction, and unfinished transfers.
import { cellsPerRow, drawCells, h, setAttr, setText, syncKeyed } from "../dom.js";
import { focusOf } from "../state/focus.js";
import { listed, tokenText } from "../text.js";

const MOST_CHUNKS = 64;
const MOST_CHIPS = 24;
const MOST_PAIRS = 8; // of one transfer

// The tier's hashes have 64 digits; eight are enough to tell them apart, and the events of device blocks have eight.
const tierHash = (hash) => hash.slice(0, 8);

export function makeTier() {
  const detail = h("span", { class: "quiet" });
  const body = h("div", { class: "pool", "data-tier": "" });
  const more = h("p", { class: "quiet" });
  const recency = h("ol", { class: "recency", "aria-label": "Host tier, least recently used first" });
  const transfers = h("ul", { class: "transfers", "aria-label": "Unfinished transfers" });
  const node = h(
    "section",
    { class: "pool-box tier-box", "aria-label": "Host tier", hidden: "" },
    h("h3", {}, h("span", {}, "Host tier"), detail),
    body,
    more,
    h("div", { class: "queue-box" }, h("h3", {}, "Used, longest ago first"), recency),
    h("div", { class: "queue-box" }, h("h3", {}, "Transfers"), transfers),
  );
  return { node, detail, body, more, recency, transfers };
}

export function drawTier(ui, view) {
  const { tier } = view.state;
  setAttr(ui.node, "hidden", tier ? null : "");
  if (!tier) return;
  setText(ui.detail, ` ${tier.numChunks} chunks of one block each, ${tier.chunks.size} in use`);
  const about = focusOf(view.event, view.state).chunks;
  const fixed = tier.numChunks <= MOST_CHUNKS;
  const all = fixed ? Array.from({ length: tier.numChunks }, (_, chunk) => chunk) : [...tier.chunks.keys()].sort((a, b) => a - b);
  const shown = all.slice(0, MOST_CHUNKS);
  setText(ui.more, fixed ? "" : `${all.length > shown.length ? `⋯ ${all.length - shown.length} more in use, ` : ""}${tier.numChunks - tier.chunks.size} free`);
  ui.body.style.setProperty("--columns", cellsPerRow(view.state.blockSize));
  setAttr(ui.body, "data-tiny", view.state.blockSize > 6 ? "" : null);
  const blocks = blocksByHash(view.state);
  syncKeyed(ui.body, shown, (chunk) => chunk, makeChunk, (node, chunk) => drawChunk(node, chunk, tier, blocks, view.state.blockSize, about.includes(chunk)));
  drawRecency(ui.recency, tier);
  drawTransfers(ui.transfers, tier, view.event);
}

// Hash -> the device blocks that hold its tokens.
function blocksByHash({ cached }) {
  const out = new Map();
  for (const [block, { hash }] of cached) out.set(hash, [...(out.get(hash) ?? []), block]);
  return out;
}

function makeChunk(chunk) {
  return h(
    "div",
    { class: "block chunk", role: "button", "data-rove": "tier", tabindex: "-1", "data-chunk": chunk },
    h("div", { class: "head" }, h("b", { class: "id" }, `c${chunk}`), h("span", { class: "note" }), h("span", { class: "badge" })),
    h("div", { class: "cells" }),
    h("p", { class: "hash-line" }, h("b", { class: "hash" }), h("span", { class: "parent" })),
  );
}

function stateWords(held, chunk, tier) {
  if (!held) return "free";
  const by = [...tier.transfers].filter(([, { chunks }]) => chunks.includes(chunk)).map(([id, { kind }]) => `${kind} ${id}`);
  return by.length ? `${held.state}, ${listed(by)}` : held.state;
}

function drawChunk(node, chunk, tier, blocks, blockSize, now) {
  const held = tier.chunks.get(chunk) ?? null;
  const hash = held ? tierHash(held.hash) : "";
  const same = held ? blocks.get(hash) ?? [] : [];
  const words = stateWords(held, chunk, tier);
  setAttr(node, "data-state", held?.state ?? "free");
  setAttr(node, "data-link", [`c${chunk}`, ...same.map((block) => `d${block}`)].join(" "));
  setAttr(node, "data-now", now ? "" : null);
  const pins = held?.pins ? `${held.pins} ${held.pins === 1 ? "pin" : "pins"}` : "";
  const tokens = held?.tokens ?? [];
  const label = `host chunk ${chunk}, ${words}${pins ? `, ${pins}` : ""}${held ? `, hash ${hash}` : ""}${same.length ? `, also in device block ${listed(same)}` : ""}`;
  setAttr(node, "aria-label", label);
  setAttr(node, "data-tip", `${label}${tokens.length ? `: ${listed(tokens.map((token) => `“${token}”`))}` : ""}`);
  const [, note, badge] = node.firstElementChild.children;
  setText(note, words);
  setText(badge, pins);
  const [chip, beside] = node.lastElementChild.children;
  setText(chip, hash);
  setAttr(chip, "title", held?.hash ?? null);
  setText(beside, same.length ? `also in block ${same.join(", ")}` : "");
  drawCells(node.children[1], blockSize, (offset) => {
    const token = tokens[offset];
    if (token === undefined) return { state: "stale", text: "", tip: held ? `chunk ${chunk}` : `chunk ${chunk}: free` };
    const state = held.state === "pending" ? "pending" : held.state === "failed" ? "rolled" : "kept";
    return { state, text: tokenText(token), tip: `“${token}”, chunk ${chunk}, ${words}` };
  });
}

function drawRecency(list, tier) {
  const chunkOf = new Map([...tier.chunks].map(([chunk, { hash }]) => [hash, chunk]));
  const shown = tier.recency.slice(0, MOST_CHIPS);
  const next = tier.recency.find((hash) => tier.chunks.get(chunkOf.get(hash))?.state === "ready");
  const items = [...shown, ...(tier.recency.length > shown.length ? ["more"] : []), ...(shown.length ? [] : ["none"])];
  syncKeyed(
    list,
    items,
    (item) => item,
    (item) => (["more", "none"].includes(item) ? h("li", { class: "quiet" }) : h("li", { "data-hash": item }, h("button", { type: "button", class: "free-chip hash-chip", "data-rove": "recency", tabindex: "-1" }, tierHash(item)))),
    (node, item) => {
      if (item === "more") return setText(node, `and ${tier.recency.length - shown.length} more`);
      if (item === "none") return setText(node, "nothing is on the host");
      const chunk = chunkOf.get(item);
      setAttr(node, "data-head", item === next ? "" : null);
      setAttr(node.firstElementChild, "data-link", `c${chunk}`);
      setAttr(node.firstElementChild, "aria-label", `hash ${tierHash(item)} in chunk ${chunk}, ${tier.chunks.get(chunk)?.state}${item === next ? ", evicted next" : ""}`);
    },
  );
}

function drawTransfers(list, tier, event) {
  const items = tier.transfers.size ? [...tier.transfers] : [[null, null]];
  syncKeyed(
    list,
    items,
    ([id]) => id ?? "none",
    ([id]) => (id === null ? h("li", { class: "quiet" }, "none on the way") : h("li", { class: "transfer", "data-transfer-id": id }, h("b"), h("span", { class: "pairs" }), h("span", { class: "quiet" }))),
    (node, [id, transfer]) => {
      if (id === null) return;
      const { kind, blocks, chunks } = transfer;
      setAttr(node, "data-now", event?.transfer_id === id ? "" : null);
      const [name, pairs, state] = node.children;
      setText(name, `${kind} ${id}:`);
      const shown = chunks.slice(0, MOST_PAIRS).map((chunk, k) => ({ chunk, block: blocks[k] }));
      syncKeyed(pairs, shown, ({ chunk }) => chunk, () => h("span", { class: "pair", tabindex: "-1", "data-rove": "transfer", role: "button" }), (pair, { chunk, block }) => {
        setText(pair, kind === "store" ? `block ${block} → chunk ${chunk}` : `chunk ${chunk} → block ${block}`);
        setAttr(pair, "data-link", `d${block} c${chunk}`);
      });
      setText(state, `${chunks.length > shown.length ? `and ${chunks.length - shown.length} more, ` : ""}${kind === "store" ? "pending" : "loading"}`);
    },
  );
}
