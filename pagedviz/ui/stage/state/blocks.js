// Blocks: what the events of sequences, blocks and tables change, and what they are about.
import { hostEntry } from "./entries.js";
import { inserted, tablesIn, tableWith, withCounts, withEntry, without, withoutEntry, withRow } from "./changes.js";
import { blocksOf, logicalsOf, slotsOf } from "./places.js";
import { draftsAfterWrite, withoutDrafts, withoutRolledBack } from "./drafts.js";
import { launchAfterWrite } from "./requests.js";

export function fromSnapshot(snapshot) {
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
    // block that prompts may hit, in use or free -> what it holds; a snapshot has the hash only
    cached: new Map(Object.entries(snapshot.cached ?? {}).map(([block, hash]) => [Number(block), { hash, parent: null, tokens: [], salt: null, group: 0 }])),
  };
}

function counts(byBlock, size) {
  const out = new Int32Array(size);
  for (const [block, count] of Object.entries(byBlock ?? {})) out[block] = count;
  return out;
}

// What a launch wrote, one element a sequence, for each of the three kinds of write; [] for any other event.
export function writesOf(event) {
  if (event?.kind === "TokenWritten") return [{ seq_id: event.seq_id, position: event.position, tokens: [event.token], slots: [event.slot] }];
  if (event?.kind === "TokensWritten") return [event];
  if (event?.kind !== "BatchWritten") return [];
  return event.seq_ids.map((seq_id, k) => ({ seq_id, position: event.positions[k], tokens: event.tokens[k], slots: event.slots[k] }));
}

function written(s, e) {
  const writes = writesOf(e);
  const tokens = new Map(s.tokens);
  for (const { seq_id, position, tokens: wrote } of writes) {
    let held = s.tokens.get(seq_id);
    while (held.length < position) held = [...held, ...s.cached.get(s.tables.get(seq_id)[Math.floor(held.length / s.blockSize)]).tokens];
    tokens.set(seq_id, [...held, ...wrote]);
  }
  return { tokens, ...launchAfterWrite(s, writes), ...draftsAfterWrite(s, writes) };
}

// The table of a sequence without the block and those after it. The tokens follow the table of the first group.
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

export const changes = {
  SequenceAdded: (s, e) => added(s, e.seq_id, e.salt),
  // blocks that are out of the parent's window are out of the child's too
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
    ...withoutDrafts(s, e.seq_id),
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
    // a block that an earlier sequence of the same launch fills: it is named now, and has its tokens after the launch
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
    ...withoutRolledBack(s, e.source),
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
      ...withoutRolledBack(s, e.target),
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
      : { refs: withCounts(s.refs, [[e.block, 0]]), free: inserted(s.free, e.queue_index, e.block), ...withoutRolledBack(s, e.block) }),
  }),
};

const write = {
  entries: (e, s) => blocksOf(s, writesOf(e).flatMap((each) => slotsOf(s, each))),
  logicals: (e, s, seq) => {
    const { position, tokens } = writesOf(e).find(({ seq_id }) => seq_id === seq);
    return logicalsOf(s, position, tokens.length);
  },
};

export const focus = {
  TokenWritten: write,
  TokensWritten: write,
  BatchWritten: write,
  BlockCopied: { entries: (e) => [e.source, e.target] },
  EntryRewritten: { entries: (e) => [e.target, e.source], isRepointed: true },
  BlockCollapsed: { entries: (e) => [e.target, e.source], isRepointed: true },
};
