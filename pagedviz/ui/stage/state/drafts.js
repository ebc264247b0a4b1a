// What the events of drafts mean, and which slots hold what was rolled back: no snapshot has those, and no kernel reads them.
import { writesOf } from "./entries.js";
import { slotOf, withEntry, withoutEntry } from "./changes.js";

export function draftsFrom(snapshot) {
  const drafted = Object.entries(snapshot.drafted ?? {}).map(([seq, tokens]) => {
    const position = (snapshot.tokens[seq]?.length ?? 0) + 1; // behind the one known token
    return [seq, { position, tokens, confidences: [] }];
  });
  return {
    drafted: new Map(drafted), // what the next launch verifies
    unverified: new Map(Object.entries(snapshot.unverified ?? {}).map(([seq, count]) => [seq, { count, confidences: [] }])),
    rolledBack: new Map(), // slot -> the token that was rejected there, until the slot is written or its block goes
  };
}

const withoutSlots = (rolledBack, gone) => (rolledBack.size ? new Map([...rolledBack].filter(([slot]) => !gone(slot))) : rolledBack);
const cleared = (s, block) => ({ rolledBack: withoutSlots(s.rolledBack, (slot) => Math.floor(slot / s.blockSize) === block) });
const groupsOf = (s) => s.windows.map((_, group) => group);

function draftsWritten(s, e) {
  const drafted = new Map(s.drafted);
  const unverified = new Map(s.unverified);
  const slots = new Set();
  for (const { seq_id, position, tokens } of writesOf(e)) {
    const drafts = drafted.get(seq_id);
    if (drafts) unverified.set(seq_id, { count: drafts.tokens.length, confidences: drafts.confidences });
    drafted.delete(seq_id);
    if (s.rolledBack.size) tokens.forEach((_, k) => groupsOf(s).forEach((group) => slots.add(slotOf(s, seq_id, position + k, group))));
  }
  return { drafted, unverified, rolledBack: withoutSlots(s.rolledBack, (slot) => slots.has(slot)) };
}

function verified(s, e) {
  const held = s.tokens.get(e.seq_id);
  const rolledBack = new Map(s.rolledBack);
  for (let position = e.num_tokens; position < held.length; position += 1) {
    for (const group of groupsOf(s)) {
      const slot = slotOf(s, e.seq_id, position, group);
      if (slot !== null) rolledBack.set(slot, held[position]);
    }
  }
  return { tokens: withEntry(s.tokens, e.seq_id, held.slice(0, e.num_tokens)), unverified: withoutEntry(s.unverified, e.seq_id), rolledBack };
}

// The last of them will not be verified; often that is all.
function dropLast(s, e) {
  const { position, tokens, confidences } = s.drafted.get(e.seq_id);
  const keep = tokens.length - e.tokens.length;
  const kept = { position, tokens: tokens.slice(0, keep), confidences: confidences.slice(0, keep) };
  return { drafted: keep > 0 ? withEntry(s.drafted, e.seq_id, kept) : withoutEntry(s.drafted, e.seq_id) };
}

const forgotten = (s, e) => ({ drafted: withoutEntry(s.drafted, e.seq_id), unverified: withoutEntry(s.unverified, e.seq_id) });

export const DRAFT_CHANGES = {
  TokensDrafted: (s, e) => ({ drafted: withEntry(s.drafted, e.seq_id, { position: e.position, tokens: e.tokens, confidences: e.confidences }) }),
  DraftsDropped: dropLast,
  DraftsVerified: verified,
  TokenWritten: draftsWritten,
  TokensWritten: draftsWritten,
  BatchWritten: draftsWritten,
  SequenceFreed: forgotten,
  BlockFreed: (s, e) => (e.where === "host" ? {} : cleared(s, e.block)),
  BlockCollapsed: (s, e) => cleared(s, e.source),
  BlockCopied: (s, e) => cleared(s, e.target),
  BlockSpilled: (s, e) => cleared(s, e.block),
  BlockOutOfWindow: (s, e) => (e.queue_index === null ? {} : cleared(s, e.block)),
};
