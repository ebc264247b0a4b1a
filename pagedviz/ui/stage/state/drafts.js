// Drafts: what their events change, and what they are about; also the slots that hold rejected tokens, which no snapshot
// has and no kernel reads.
import { withEntry, withoutEntry } from "./changes.js";
import { blocksOf, logicalsOf, slotOf, slotsOf } from "./places.js";

export function fromSnapshot(snapshot) {
  const drafted = Object.entries(snapshot.drafted ?? {}).map(([seq, tokens]) => {
    const position = (snapshot.tokens[seq]?.length ?? 0) + 1; // after the one known token
    return [seq, { position, tokens, confidences: [] }];
  });
  return {
    drafted: new Map(drafted), // what the next launch verifies
    unverified: new Map(Object.entries(snapshot.unverified ?? {}).map(([seq, count]) => [seq, { count, confidences: [] }])),
    rolledBack: new Map(), // slot -> the token that was rejected there, until the slot is written or its block goes
  };
}

const withoutSlots = (rolledBack, gone) => (rolledBack.size ? new Map([...rolledBack].filter(([slot]) => !gone(slot))) : rolledBack);
const groupsOf = (s) => s.windows.map((_, group) => group);

// After a launch: the drafts that it computed are in their slots and not verified yet.
export function draftsAfterWrite(s, writes) {
  const drafted = new Map(s.drafted);
  const unverified = new Map(s.unverified);
  const slots = new Set();
  for (const { seq_id, position, tokens } of writes) {
    const drafts = drafted.get(seq_id);
    if (drafts) unverified.set(seq_id, { count: drafts.tokens.length, confidences: drafts.confidences });
    drafted.delete(seq_id);
    if (s.rolledBack.size) tokens.forEach((_, k) => groupsOf(s).forEach((group) => slots.add(slotOf(s, seq_id, position + k, group))));
  }
  return { drafted, unverified, rolledBack: withoutSlots(s.rolledBack, (slot) => slots.has(slot)) };
}

// A block that leaves its sequence, or is written as a whole, holds no rejected token any more.
export const withoutRolledBack = (s, block) => ({ rolledBack: withoutSlots(s.rolledBack, (slot) => Math.floor(slot / s.blockSize) === block) });

export const withoutDrafts = (s, seq) => ({ drafted: withoutEntry(s.drafted, seq), unverified: withoutEntry(s.unverified, seq) });

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

// The last drafts, often all of them, will not be verified.
function dropLast(s, e) {
  const { position, tokens, confidences } = s.drafted.get(e.seq_id);
  const keep = tokens.length - e.tokens.length;
  const kept = { position, tokens: tokens.slice(0, keep), confidences: confidences.slice(0, keep) };
  return { drafted: keep > 0 ? withEntry(s.drafted, e.seq_id, kept) : withoutEntry(s.drafted, e.seq_id) };
}

export const changes = {
  TokensDrafted: (s, e) => ({ drafted: withEntry(s.drafted, e.seq_id, { position: e.position, tokens: e.tokens, confidences: e.confidences }) }),
  DraftsDropped: dropLast,
  DraftsVerified: verified,
};

export const focus = {
  TokensDrafted: {
    entries: (e, s) => blocksOf(s, slotsOf(s, e)),
    logicals: (e, s) => logicalsOf(s, e.position, e.tokens.length),
  },
  DraftsVerified: {
    entries: (e, s) => blocksOf(s, e.slots),
    logicals: (e, s) => logicalsOf(s, e.num_tokens - e.accepted.length, e.accepted.length + e.rejected.length),
  },
};
