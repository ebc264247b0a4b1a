import { blockOf, endOf, isHost, nameOf } from "../state/entries.js";
import { GREY } from "./colours.js";
import { chainOf } from "./chains.js";
import { comingIn, markOf } from "./slots.js";

// One physical block as it is drawn: its kind, the sequences that name it, the tokens of its filled slots with their marks,
// and what comes into the other slots.
export function physicalBlock(state, entry, owners, colours) {
  const block = blockOf(entry);
  const onHost = isHost(entry);
  const isNull = !onHost && state.nullBlock === block;
  const named = isNull ? [] : owners.get(entry) ?? [];
  const refCount = onHost ? state.hostRefs[block] : state.refs[block];
  const copied = onHost ? undefined : state.pins.get(block);
  const transfer = onHost ? null : state.held.get(block) ?? null;
  const tables = refCount - (transfer ? 1 : 0); // entries that name it, without the pin of a transfer
  let tokens = copied ?? [];
  const coming = {};
  for (const { seq, logical } of named) {
    const held = state.tokens.get(seq).slice(logical * state.blockSize, (logical + 1) * state.blockSize);
    if (held.length > tokens.length) tokens = held;
    for (const [offset, next] of Object.entries(comingIn(state, seq, logical))) {
      if (!["pending", "draft"].includes(coming[offset]?.fill)) coming[offset] = next;
    }
  }
  const seqs = [...new Set(named.map((owner) => owner.seq))];
  return {
    entry,
    block,
    name: nameOf(entry),
    link: endOf(entry),
    named,
    seqs,
    refCount,
    tables,
    transfer,
    tokens,
    marks: marksIn(state, named, tokens.length),
    coming,
    kind: isNull ? "null" : copied ? "pinned" : refCount === 0 ? "free" : tables === 0 ? "pinned" : tables > 1 ? "shared" : "used",
    group: state.windows.length > 1 ? named[0]?.group ?? state.cached.get(entry)?.group ?? null : null,
    kept: keptIn(state, entry, owners),
    place: refCount === 0 && !onHost ? state.free.indexOf(block) + 1 : 0,
    fills: seqs.map((seq) => colours.get(seq) ?? GREY),
  };
}

// The marks of the filled slots. A draft is a draft for all sequences; a token is out of the window when none of the
// sequences that name the block sees it.
function marksIn(state, named, filled) {
  if (!named.length || (!state.unverified.size && state.windows.every((window) => window === null))) return [];
  return Array.from({ length: filled }, (_, offset) => {
    const marks = named.map(({ seq, logical, group }) => markOf(state, seq, logical * state.blockSize + offset, group));
    return marks.some((found) => found === null) ? null : marks.find(({ mark }) => mark !== "out") ?? marks[0];
  });
}

// What a block with a hash holds, in use or free, or null. `whole`: a prompt can reach it.
export function keptIn(state, entry, owners) {
  const kept = isHost(entry) ? undefined : state.cached.get(entry);
  return kept ? { ...kept, whole: chainOf(state, owners, entry).whole } : null;
}
