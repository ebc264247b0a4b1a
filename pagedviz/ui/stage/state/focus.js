// The places an event is about: drawn with a strong outline at its step.
import { hostEntry, writesOf } from "./entries.js";
import { slotOf } from "./changes.js";

const REPOINTED = ["EntryRewritten", "BlockCollapsed", "BlockReloaded", "BlockSpilled", "BlockOutOfWindow"];

// The slots of tokens from a position on, in every group: where they were written, or where drafts will be. Drafts have
// none while no block is there for them.
const slotsIn = (state, { seq_id, position, tokens }) =>
  state.windows.flatMap((_, group) => tokens.map((_, k) => slotOf(state, seq_id, position + k, group))).filter((slot) => slot !== null);

function entriesOf(event, state) {
  const blocks = (slots) => [...new Set(slots.map((slot) => Math.floor(slot / state.blockSize)))];
  const writes = writesOf(event);
  if (writes.length) return blocks(writes.flatMap((write) => slotsIn(state, write)));
  if (event.kind === "TokensDrafted") return blocks(slotsIn(state, event));
  if (event.kind === "DraftsVerified") return blocks(event.slots);
  if (event.kind === "BlockCopied") return [event.source, event.target];
  if (event.kind === "EntryRewritten" || event.kind === "BlockCollapsed") return [event.target, event.source];
  if (event.kind === "BlockSpilled") return [hostEntry(event.host_block), event.block];
  if (event.kind === "BlockReloaded") return [event.block, hostEntry(event.host_block)];
  if (event.kind === "BlockOutOfWindow") return [event.null_block, event.block];
  if (event.device_blocks) return event.device_blocks;
  if (event.block === undefined) return [];
  return [event.where === "host" ? hostEntry(event.block) : event.block];
}

export function concerned(event, state) {
  if (!event) return { seqs: [], logical: [], entries: [], from: null, chunks: [] };
  const seqs = event.seq_ids ?? (event.seq_id === undefined ? [] : [event.seq_id]);
  const entries = entriesOf(event, state);
  return {
    seqs: event.parent === undefined ? seqs : [...seqs, event.parent],
    logical: event.logical_block,
    entries,
    from: REPOINTED.includes(event.kind) ? { entry: entries[0], old: entries[1], group: event.group ?? 0 } : null,
    chunks: event.chunks ?? (event.chunk === undefined ? [] : [event.chunk]),
  };
}

const runOf = (first, last) => Array.from({ length: last - first + 1 }, (_, k) => first + k);

// The logical blocks an event is about in `seq`, in order: a run without gaps, or none.
export function concernedLogicals(event, state, seq) {
  if (!event) return [];
  const at = (position) => Math.floor(position / state.blockSize);
  if (event.seq_id === seq && event.logical_block !== undefined) return [event.logical_block];
  if (event.seq_id === seq && event.kind === "PrefixSkipped") return runOf(0, event.num_blocks - 1);
  if (event.seq_id === seq && event.kind === "TokensDrafted") return runOf(at(event.position), at(event.position + event.tokens.length - 1));
  if (event.seq_id === seq && event.kind === "DraftsVerified") {
    const verified = event.accepted.length + event.rejected.length;
    return runOf(at(event.num_tokens - event.accepted.length), at(event.num_tokens - event.accepted.length + verified - 1));
  }
  const write = writesOf(event).find(({ seq_id }) => seq_id === seq);
  if (write) return runOf(at(write.position), at(write.position + write.tokens.length - 1));
  if (event.seq_ids?.includes(seq) && event.block !== undefined) {
    const entry = event.kind === "BlockSpilled" ? hostEntry(event.host_block) : event.block;
    const place = state.tables.get(seq)?.indexOf(entry) ?? -1;
    return place < 0 ? [] : [place];
  }
  return [];
}

// The group whose table an event changes; null: it is about all of them.
const concernedGroup = (event) => event?.group ?? null;
export const isConcerned = (event, group) => [null, group].includes(concernedGroup(event));
