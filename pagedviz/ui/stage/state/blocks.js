// What the events of sequences, blocks and tables mean.
import { hostEntry, writesOf } from "./entries.js";
import { inserted, tableWith, tablesIn, tablesMoved, withCounts, withEntry, withRow, without, withoutEntry } from "./changes.js";

export function blocksFrom(snapshot) {
  const tables = new Map();
  const tokens = new Map();
  for (const [seq, row] of Object.entries(snapshot.block_tables ?? {})) {
    const hostRow = snapshot.host_tables?.[seq] ?? [];
    tables.set(seq, row.map((block, j) => (block === null ? hostEntry(hostRow[j]) : block)));
    tokens.set(seq, snapshot.tokens?.[seq] ?? []);
  }
  return {
    blockSize: snapshot.block_size,
    numBlocks: snapshot.num_blocks,
    hostBlocks: snapshot.host_blocks ?? 0,
    nullBlock: snapshot.null_block ?? null,
    tables,
    tokens,
    refs: counts(snapshot.ref_counts, snapshot.num_blocks),
    hostRefs: counts(snapshot.host_ref_counts, snapshot.host_blocks ?? 0),
    // block held for a copy under way -> the tokens that were copied into it
    pins: new Map((snapshot.pinned ?? []).map((block) => [block, []])),
    free: snapshot.free_blocks ?? [],
    hostFree: snapshot.host_free_blocks ?? [],
    salts: new Map(Object.entries(snapshot.salts ?? {})),
    // block that prompts may hit, in use or free -> what it holds; a snapshot names the hash alone
    cached: new Map(Object.entries(snapshot.cached ?? {}).map(([block, hash]) => [Number(block), { hash, parent: null, tokens: [], salt: null, group: 0 }])),
  };
}

function counts(byBlock, size) {
  const out = new Int32Array(size);
  for (const [block, count] of Object.entries(byBlock ?? {})) out[block] = count;
  return out;
}

function written(s, e) {
  const tokens = new Map(s.tokens);
  for (const { seq_id, position, tokens: wrote } of writesOf(e)) {
    let held = s.tokens.get(seq_id);
    while (held.length < position) held = [...held, ...s.cached.get(s.tables.get(seq_id)[Math.floor(held.length / s.blockSize)]).tokens];
    tokens.set(seq_id, [...held, ...wrote]);
  }
  return { tokens };
}

// A table ends before a block; the tokens are those of the first group's table.
function dropped(s, e) {
  const row = tablesIn(s, e.group).get(e.seq_id).slice(0, e.logical_block);
  const tokens = e.group ? s.tokens : withEntry(s.tokens, e.seq_id, s.tokens.get(e.seq_id).slice(0, e.num_tokens));
  return { ...withRow(s, e.seq_id, row, e.group), tokens };
}

const added = (s, seq, salt) => ({
  tables: withEntry(s.tables, seq, []),
  groupTables: s.groupTables.map((tables) => withEntry(tables, seq, [])),
  tokens: withEntry(s.tokens, seq, []),
  salts: withEntry(s.salts, seq, salt ?? null),
});

export const BLOCK_CHANGES = {
  SequenceAdded: (s, e) => added(s, e.seq_id, e.salt),
  // what the parent's window has passed is passed for the child too
  SequenceForked: (s, e) => {
    const skipped = e.num_skipped ?? 0;
    return {
      ...added(s, e.seq_id, s.salts.get(e.parent)),
      tables: withEntry(s.tables, e.seq_id, s.tables.get(e.parent).slice(0, skipped)),
      tokens: withEntry(s.tokens, e.seq_id, s.tokens.get(e.parent).slice(0, skipped * s.blockSize)),
    };
  },
  SequenceFreed: (s, e) => ({
    tables: withoutEntry(s.tables, e.seq_id),
    groupTables: s.groupTables.map((tables) => withoutEntry(tables, e.seq_id)),
    tokens: withoutEntry(s.tokens, e.seq_id),
    salts: withoutEntry(s.salts, e.seq_id),
  }),
  BlockAllocated: (s, e) => ({
    free: without(s.free, e.block),
    ...tableWith(s, e.seq_id, e.logical_block, e.block, e.group),
    refs: withCounts(s.refs, [[e.block, 1]]),
  }),
  BlockShared: (s, e) => {
    const onHost = e.where === "host";
    return {
      ...tableWith(s, e.seq_id, e.logical_block, onHost ? hostEntry(e.block) : e.block),
      tokens: withEntry(s.tokens, e.seq_id, [...s.tokens.get(e.seq_id), ...e.tokens]),
      ...(onHost
        ? { hostRefs: withCounts(s.hostRefs, [[e.block, e.ref_count]]) }
        : { refs: withCounts(s.refs, [[e.block, e.ref_count]]) }),
    };
  },
  BlockHit: (s, e) => ({
    free: without(s.free, e.block),
    ...tableWith(s, e.seq_id, e.logical_block, e.block, e.group),
    // a block that an earlier sequence of the same launch fills is named now, and its tokens are there after the launch
    ...(e.computed === false
      ? { ahead: withEntry(s.ahead, `${e.seq_id}:${e.logical_block}`, e.seq_id) }
      : { tokens: e.group ? s.tokens : withEntry(s.tokens, e.seq_id, [...s.tokens.get(e.seq_id), ...e.tokens]) }),
    refs: withCounts(s.refs, [[e.block, e.ref_count]]),
  }),
  BlockCached: (s, e) => {
    const salt = e.logical_block ? null : s.salts.get(e.seq_id) ?? null;
    return { cached: withEntry(s.cached, e.block, { hash: e.block_hash, parent: e.parent_hash, tokens: e.tokens, salt, group: e.group ?? 0 }) };
  },
  BlockEvicted: (s, e) => ({ cached: withoutEntry(s.cached, e.block) }),
  BlockCollapsed: (s, e) => ({
    free: inserted(without(s.free, e.target), e.queue_index, e.source),
    ...tableWith(s, e.seq_id, e.logical_block, e.target, e.group),
    refs: withCounts(s.refs, [[e.source, 0], [e.target, e.ref_count]]),
  }),
  TokenWritten: written,
  TokensWritten: written,
  BatchWritten: written,
  BlockCopied: (s, e) => {
    const start = e.logical_block * s.blockSize;
    const copied = (s.tokens.get(e.seq_id) ?? []).slice(start, start + e.num_slots);
    return {
      free: without(s.free, e.target),
      refs: withCounts(s.refs, [[e.target, 1]]),
      pins: withEntry(s.pins, e.target, copied),
    };
  },
  EntryRewritten: (s, e) => ({
    ...tableWith(s, e.seq_id, e.logical_block, e.target),
    refs: withCounts(s.refs, [[e.source, e.ref_count], [e.target, 1]]),
    pins: withoutEntry(s.pins, e.target),
  }),
  BlockReleased: (s, e) => ({
    ...dropped(s, e),
    ...(e.where === "host"
      ? { hostRefs: withCounts(s.hostRefs, [[e.block, e.ref_count]]) }
      : { refs: withCounts(s.refs, [[e.block, e.ref_count]]) }),
  }),
  BlockFreed: (s, e) => ({
    ...dropped(s, e),
    ...(e.where === "host"
      ? { hostRefs: withCounts(s.hostRefs, [[e.block, 0]]), hostFree: inserted(s.hostFree, e.queue_index, e.block) }
      : { refs: withCounts(s.refs, [[e.block, 0]]), free: inserted(s.free, e.queue_index, e.block) }),
  }),
  BlockSpilled: (s, e) => ({
    tables: tablesMoved(s, e.seq_ids, e.block, hostEntry(e.host_block)),
    hostRefs: withCounts(s.hostRefs, [[e.host_block, s.refs[e.block]]]),
    refs: withCounts(s.refs, [[e.block, 0]]),
    hostFree: without(s.hostFree, e.host_block),
    free: inserted(s.free, e.queue_index, e.block),
  }),
  BlockReloaded: (s, e) => ({
    tables: tablesMoved(s, e.seq_ids, hostEntry(e.host_block), e.block),
    refs: withCounts(s.refs, [[e.block, s.hostRefs[e.host_block]]]),
    hostRefs: withCounts(s.hostRefs, [[e.host_block, 0]]),
    free: without(s.free, e.block),
    hostFree: inserted(s.hostFree, e.queue_index, e.host_block),
  }),
};
