// What the host tier's events mean: chunks by block hash, transfers that take time, and the device blocks they hold.
import { inserted, withCounts, withEntry, without, withoutEntry } from "./changes.js";

export function tierFrom(snapshot) {
  const { tier } = snapshot;
  if (!tier) return { tier: null, held: new Map() };
  const transfers = Object.entries(tier.transfers).map(([id, t]) => [
    Number(id), { kind: t.kind, hashes: t.block_hashes, blocks: t.device_blocks, chunks: t.chunks },
  ]);
  const chunks = Object.entries(tier.chunks).map(([chunk, c]) => [Number(chunk), { hash: c.block_hash, state: c.state, pins: c.pins, tokens: null }]);
  return {
    tier: { numChunks: tier.num_chunks, chunks: new Map(chunks), transfers: new Map(transfers), recency: tier.recency },
    // device block -> the transfer that holds it; after a load until it is cached
    held: new Map(transfers.flatMap(([id, { kind, blocks }]) => blocks.map((block) => [block, { id, kind }]))),
  };
}

const withTier = (s, changes) => ({ tier: { ...s.tier, ...changes } });
const forgottenOf = (recency, gone) => recency.filter((hash) => !gone.includes(hash));

// Some chunks otherwise than before, null for those that are free from now on.
function chunksWith(s, changes) {
  const chunks = new Map(s.tier.chunks);
  for (const [chunk, held] of changes) held ? chunks.set(chunk, held) : chunks.delete(chunk);
  return chunks;
}

function begun(s, e, kind) {
  const transfer = { kind, hashes: e.block_hashes, blocks: e.device_blocks, chunks: e.chunks };
  const held = new Map(s.held);
  for (const block of e.device_blocks) held.set(block, { id: e.transfer_id, kind });
  return { transfers: withEntry(s.tier.transfers, e.transfer_id, transfer), held };
}

// The device blocks have one pin fewer, and those that nobody names go back where the event says: the last goes first.
function letGo(s, e) {
  let { free, held } = s;
  for (let k = e.device_blocks.length - 1; k >= 0; k -= 1) {
    held = withoutEntry(held, e.device_blocks[k]);
    if (e.queue_indices[k] !== null) free = inserted(free, e.queue_indices[k], e.device_blocks[k]);
  }
  return { free, held, refs: withCounts(s.refs, e.device_blocks.map((block) => [block, s.refs[block] - 1])) };
}

function storeBegun(s, e) {
  const pending = e.chunks.map((chunk, k) => [chunk, { hash: e.block_hashes[k], state: "pending", pins: 0, tokens: s.cached.get(e.device_blocks[k])?.tokens ?? null }]);
  const { transfers, held } = begun(s, e, "store");
  return {
    ...withTier(s, { transfers, chunks: chunksWith(s, pending), recency: [...s.tier.recency, ...e.block_hashes] }),
    held,
    free: s.free.filter((block) => !e.device_blocks.includes(block)),
    refs: withCounts(s.refs, e.device_blocks.map((block) => [block, s.refs[block] + 1])),
  };
}

function storeEnded(s, e, stored) {
  const chunks = chunksWith(s, e.chunks.map((chunk) => [chunk, stored ? { ...s.tier.chunks.get(chunk), state: "ready" } : null]));
  const recency = stored ? s.tier.recency : forgottenOf(s.tier.recency, e.block_hashes);
  return { ...withTier(s, { transfers: withoutEntry(s.tier.transfers, e.transfer_id), chunks, recency }), ...letGo(s, e) };
}

const pinned = (s, e, by) => e.chunks.map((chunk) => {
  const held = s.tier.chunks.get(chunk);
  const pins = held.pins + by;
  return [chunk, { ...held, pins, state: held.state === "failed" ? "failed" : pins ? "loading" : "ready" }];
});

function loadBegun(s, e) {
  const { transfers, held } = begun(s, e, "load");
  return {
    ...withTier(s, { transfers, chunks: chunksWith(s, pinned(s, e, 1)) }),
    held,
    free: s.free.filter((block) => !e.device_blocks.includes(block)),
    refs: withCounts(s.refs, e.device_blocks.map((block) => [block, 1])),
  };
}

function loadEnded(s, e) {
  const chunks = chunksWith(s, [...pinned(s, e, -1), ...e.freed.map((chunk) => [chunk, null])]);
  return withTier(s, { transfers: withoutEntry(s.tier.transfers, e.transfer_id), chunks });
}

// What was loaded lies in its blocks; each is held until it has its hash.
function loadFinished(s, e) {
  const held = new Map(s.held);
  e.device_blocks.forEach((block, k) => held.set(block, { ...held.get(block), tokens: s.tier.chunks.get(e.chunks[k]).tokens ?? [] }));
  return { ...loadEnded(s, e), held };
}

function loadFailed(s, e) {
  const lost = e.block_hashes.filter((_, k) => s.tier.chunks.get(e.chunks[k]).state !== "failed");
  const failed = e.chunks.map((chunk) => [chunk, { ...s.tier.chunks.get(chunk), state: "failed" }]);
  const after = { ...s, ...withTier(s, { chunks: chunksWith(s, failed), recency: forgottenOf(s.tier.recency, lost) }) };
  return { ...loadEnded(after, e), ...letGo(s, e) };
}

export const TIER_CHANGES = {
  TierEvicted: (s, e) => withTier(s, { chunks: chunksWith(s, [[e.chunk, null]]), recency: without(s.tier.recency, e.block_hash) }),
  TierTouched: (s, e) => withTier(s, { recency: [...forgottenOf(s.tier.recency, e.block_hashes), ...e.block_hashes.slice().reverse()] }),
  TierStoreBegun: storeBegun,
  TierStoreFinished: (s, e) => storeEnded(s, e, true),
  TierStoreFailed: (s, e) => storeEnded(s, e, false),
  TierStoreAborted: (s, e) => storeEnded(s, e, false),
  TierLoadBegun: loadBegun,
  TierLoadFinished: loadFinished,
  TierLoadFailed: loadFailed,
  TierLoadAborted: (s, e) => ({ ...loadEnded(s, e), ...letGo(s, e) }),
  BlockLoaded: (s, e) => ({
    cached: withEntry(s.cached, e.block, { hash: e.block_hash, parent: e.parent_hash, tokens: e.tokens, salt: e.salt, group: 0 }),
    held: withoutEntry(s.held, e.block),
    refs: withCounts(s.refs, [[e.block, 0]]),
    free: inserted(s.free, e.queue_index, e.block),
  }),
};
