// The places that an event is about: they are drawn with a strong outline at its step. Most events name them in fields
// with common names; the family of an event says where it differs.
import { hostEntry } from "./entries.js";
import { focus as blocks } from "./blocks.js";
import { focus as windows } from "./windows.js";
import { focus as drafts } from "./drafts.js";
import { focus as transfers } from "./transfers.js";

const FOCUS = { ...blocks, ...windows, ...drafts, ...transfers };

const named = (event) => (event.block === undefined ? [] : [event.where === "host" ? hostEntry(event.block) : event.block]);

// `repointed`: a table entry that named the block `old` and now names `entry`.
export function focusOf(event, state) {
  if (!event) return { entries: [], repointed: null, chunks: [] };
  const { entries: entriesIn = named, isRepointed = false } = FOCUS[event.kind] ?? {};
  const entries = entriesIn(event, state);
  return {
    entries,
    repointed: isRepointed ? { entry: entries[0], old: entries[1] } : null,
    chunks: event.chunks ?? (event.chunk === undefined ? [] : [event.chunk]),
  };
}

// The logical blocks of `seq` that an event is about, in order: neighbours, or none.
export function logicalsInFocus(event, state, seq) {
  if (event?.seq_id !== seq && !event?.seq_ids?.includes(seq)) return [];
  if (event.logical_block !== undefined) return [event.logical_block];
  return FOCUS[event.kind]?.logicals?.(event, state, seq) ?? [];
}

// Whether an event changes the table of a group; without a group it is about all of them.
export const isInFocus = (event, group) => [null, group].includes(event?.group ?? null);
