// Windows: what the events of windows and groups change, and what they are about. Entries below a window name the null block.
import { inserted, tablesIn, tableWith, withCounts, withEntry, without, withRow } from "./changes.js";
import { withoutRolledBack } from "./drafts.js";

export function fromSnapshot(snapshot) {
  return {
    windows: snapshot.windows ?? [null], // by group, null: full attention
    groupTables: (snapshot.group_tables ?? []).map((tables) => new Map(Object.entries(tables))), // of groups 1, 2, ...
  };
}

export const changes = {
  PrefixSkipped: (s, e) => {
    const row = [...Array(e.num_blocks).fill(e.null_block), ...(tablesIn(s, e.group).get(e.seq_id) ?? []).slice(e.num_blocks)];
    const tokens = e.group ? s.tokens : withEntry(s.tokens, e.seq_id, [...s.tokens.get(e.seq_id), ...e.tokens]);
    return { ...withRow(s, e.seq_id, row, e.group), tokens };
  },
  NullBlockTaken: (s, e) => ({ nullBlock: e.block, free: without(s.free, e.block) }),
  BlockOutOfWindow: (s, e) => ({
    ...tableWith(s, e.seq_id, e.logical_block, e.null_block, e.group),
    refs: withCounts(s.refs, [[e.block, e.ref_count]]),
    ...(e.queue_index === null ? {} : { free: inserted(s.free, e.queue_index, e.block), ...withoutRolledBack(s, e.block) }),
  }),
};

export const focus = {
  PrefixSkipped: { logicals: (e) => Array.from({ length: e.num_blocks }, (_, k) => k) },
  BlockOutOfWindow: { entries: (e) => [e.null_block, e.block], isRepointed: true },
};
