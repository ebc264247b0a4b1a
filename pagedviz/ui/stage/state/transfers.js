// Transfers: what spill, reload and the events of the host tier change, and what they are about. The tier has chunks by
// block hash, transfers that take time, and device blocks that a transfer holds.
import { hostEntry } from "./entries.js";
import { inserted, withCounts, withEntry, without, withoutEntry } from "./changes.js";
import { withoutRolledBack } from "./drafts.js";

export function fromSnapshot(snapshot) {
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

// Every table in `seqs` that names `from` names `to` instead.
function tablesMoved(state, seqs, from, to) {
  const tables = new Map(state.tables);
  for (const seq of seqs) tables.set(seq, tables.get(seq).map((entry) => (entry === from ? to : entry)));
  return tables;
}

const withTier = (s, changes) => ({ tier: { ...s.tier, ...changes } });
const withoutHashes = (recency, gone) => recency.filter((hash) => !gone.includes(hash));

// The chunks with some of them changed; null for a chunk that is free from now on.
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

// The device blocks have one pin fewer. Those that no table names go back to the free queue where the event says, the last
// of them first.
function released(s, e) {
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
  const recency = stored ? s.tier.recency : withoutHashes(s.tier.recency, e.block_hashes);
  return { ...withTier(s, { transfers: withoutEntry(s.tier.transfers, e.transfer_id), chunks, recency }), ...released(s, e) };
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

// The loaded tokens lie in their blocks; each block is held until it has its hash.
function loadFinished(s, e) {
  const held = new Map(s.held);
  e.device_blocks.forEach((block, k) => held.set(block, { ...held.get(block), tokens: s.tier.chunks.get(e.chunks[k]).tokens ?? [] }));
  return { ...loadEnded(s, e), held };
}

function loadFailed(s, e) {
  const lost = e.block_hashes.filter((_, k) => s.tier.chunks.get(e.chunks[k]).state !== "failed");
  const failed = e.chunks.map((chunk) => [chunk, { ...s.tier.chunks.get(chunk), state: "failed" }]);
  const after = { ...s, ...withTier(s, { chunks: chunksWith(s, failed), recency: withoutHashes(s.tier.recency, lost) }) };
  return { ...loadEnded(after, e), ...released(s, e) };
}

export const changes = {
  BlockSpilled: (s, e) => ({
    tables: tablesMoved(s, e.seq_ids, e.block, hostEntry(e.host_block)),
    hostRefs: withCounts(s.hostRefs, [[e.host_block, s.refs[e.block]]]),
    refs: withCounts(s.refs, [[e.block, 0]]),
    hostFree: without(s.hostFree, e.host_block),
    free: inserted(s.free, e.queue_index, e.block),
    ...withoutRolledBack(s, e.block),
  }),
  BlockReloaded: (s, e) => ({
    tables: tablesMoved(s, e.seq_ids, hostEntry(e.host_block), e.block),
    refs: withCounts(s.refs, [[e.block, s.hostRefs[e.host_block]]]),
    hostRefs: withCounts(s.hostRefs, [[e.host_block, 0]]),
    free: without(s.free, e.block),
    hostFree: inserted(s.hostFree, e.queue_index, e.host_block),
  }),
  TierEvicted: (s, e) => withTier(s, { chunks: chunksWith(s, [[e.chunk, null]]), recency: without(s.tier.recency, e.block_hash) }),
  TierTouched: (s, e) => withTier(s, { recency: [...withoutHashes(s.tier.recency, e.block_hashes), ...e.block_hashes.slice().reverse()] }),
  TierStoreBegun: storeBegun,
  TierStoreFinished: (s, e) => storeEnded(s, e, true),
  TierStoreFailed: (s, e) => storeEnded(s, e, false),
  TierStoreAborted: (s, e) => storeEnded(s, e, false),
  TierLoadBegun: loadBegun,
  TierLoadFinished: loadFinished,
  TierLoadFailed: loadFailed,
  TierLoadAborted: (s, e) => ({ ...loadEnded(s, e), ...released(s, e) }),
  BlockLoaded: (s, e) => ({
    cached: withEntry(s.cached, e.block, { hash: e.block_hash, parent: e.parent_hash, tokens: e.tokens, salt: e.salt, group: 0 }),
    held: withoutEntry(s.held, e.block),
    refs: withCounts(s.refs, [[e.block, 0]]),
    free: inserted(s.free, e.queue_index, e.block),
  }),
};

// A table's entry goes from one block to another; the event names no place in the table.
const repointing = (to, from) => ({
  entries: (e) => [to(e), from(e)],
  logicals: (e, s, seq) => [s.tables.get(seq)?.indexOf(to(e)) ?? -1].filter((place) => place >= 0),
  isRepointed: true,
});
const deviceBlock = (e) => e.block;
const hostBlock = (e) => hostEntry(e.host_block);
const transfer = { entries: (e) => e.device_blocks };

export const focus = {
  BlockSpilled: repointing(hostBlock, deviceBlock),
  BlockReloaded: repointing(deviceBlock, hostBlock),
  TierStoreBegun: transfer,
  TierStoreFinished: transfer,
  TierStoreFailed: transfer,
  TierStoreAborted: transfer,
  TierLoadBegun: transfer,
  TierLoadFinished: transfer,
  TierLoadFailed: transfer,
  TierLoadAborted: transfer,
};
