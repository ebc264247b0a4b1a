// What the drawings need to know about a state, in one pass over the tables.
import { blockOf, isHost, hostEntry, linkOf, nameOf, writesOf } from "./replay.js";
import { chainOf, hashWords, ordinal } from "./hashes.js";

// Okabe and Ito's colours, each with the text colour that reads on it (4.5:1 or better).
const DARK = "#14161a";
export const COLOURS = [
  { fill: "#0072b2", text: "#ffffff" },
  { fill: "#e69f00", text: DARK },
  { fill: "#009e73", text: DARK },
  { fill: "#cc79a7", text: DARK },
  { fill: "#56b4e9", text: DARK },
  { fill: "#d55e00", text: DARK },
  { fill: "#f0e442", text: DARK },
  { fill: "#a6a6a6", text: DARK },
];

// A sequence keeps one colour through the whole run: by the order in which the run first names it.
export function colourBook(base, steps) {
  const book = new Map();
  const learn = (seq) => book.has(seq) || book.set(seq, COLOURS[book.size % COLOURS.length]);
  Object.keys(base.block_tables ?? {}).forEach(learn);
  for (const { event } of steps) {
    if (["SequenceAdded", "SequenceForked", "RequestSubmitted"].includes(event.kind)) learn(event.seq_id);
  }
  return book;
}

// The slot that the next token of each sequence goes to, or null when its last block is full.
export function nextSlot(state, seq) {
  const position = state.tokens.get(seq).length;
  const logical = Math.floor(position / state.blockSize);
  const row = state.tables.get(seq);
  return logical < row.length ? { logical, offset: position % state.blockSize, entry: row[logical] } : null;
}

// What comes into the unfilled slots of a logical block, by offset: {fill, token}. "pending" is written by this step's
// launch, "sampled" is the newest output, which no slot holds yet, "next" is whatever comes next, if it is known.
export function comingIn(state, seq, logical) {
  const coming = {};
  const held = state.tokens.get(seq).length;
  const { prompt, output } = state.requests.get(seq) ?? { prompt: [], output: [] };
  const { from, count } = state.launching.get(seq) ?? { from: 0, count: 0 };
  // a block may have its hash before its tokens, when it is given to be filled by this launch
  const promised = state.cached.get(state.tables.get(seq)[logical])?.tokens ?? [];
  for (let offset = 0; offset < state.blockSize; offset += 1) {
    const position = logical * state.blockSize + offset;
    if (position < held) continue;
    const token = position < prompt.length ? prompt[position] : output[position - prompt.length] ?? null;
    if (offset < promised.length) coming[offset] = { fill: "pending", token: promised[offset] };
    else if (position >= from && position < from + count) coming[offset] = { fill: "pending", token };
    else if (position === held) coming[offset] = { fill: position >= prompt.length && token !== null ? "sampled" : "next", token };
  }
  return coming;
}

// The newest output of a sequence while no slot holds it; null when there is none.
export function sampledOf(state, seq) {
  const { prompt, output } = state.requests.get(seq) ?? { prompt: [], output: [] };
  const newest = prompt.length + output.length - 1;
  return output.length && (state.tokens.get(seq)?.length ?? 0) <= newest ? output[output.length - 1] : null;
}

export const filledIn = (state, seq, logical) =>
  Math.max(0, Math.min(state.blockSize, state.tokens.get(seq).length - logical * state.blockSize));

// Who names which block: entry -> [{seq, logical}], sequences in table order.
export function ownersByEntry(state) {
  const owners = new Map();
  for (const [seq, row] of state.tables) {
    for (let logical = 0; logical < row.length; logical += 1) {
      const list = owners.get(row[logical]);
      if (list) list.push({ seq, logical });
      else owners.set(row[logical], [{ seq, logical }]);
    }
  }
  return owners;
}

// One physical block as it is drawn: state, owners, tokens of its filled slots, offsets of "next".
export function physicalBlock(state, entry, owners, colours) {
  const block = blockOf(entry);
  const named = owners.get(entry) ?? [];
  const refCount = isHost(entry) ? state.hostRefs[block] : state.refs[block];
  const pinned = !isHost(entry) && state.pins.has(block);
  const isNull = !isHost(entry) && state.nullBlock === block;
  let tokens = pinned ? state.pins.get(block) : [];
  const coming = {};
  for (const { seq, logical } of isNull ? [] : named) {
    const held = state.tokens.get(seq).slice(logical * state.blockSize, (logical + 1) * state.blockSize);
    if (held.length > tokens.length) tokens = held;
    for (const [offset, { fill, token }] of Object.entries(comingIn(state, seq, logical))) {
      if (coming[offset]?.fill !== "pending") coming[offset] = { fill, token };
    }
  }
  const seqs = [...new Set(named.map((owner) => owner.seq))];
  return {
    entry,
    block,
    name: nameOf(entry),
    link: linkOf(entry),
    named,
    seqs,
    refCount,
    tokens,
    coming,
    kind: isNull ? "null" : pinned ? "pinned" : refCount === 0 ? "free" : refCount > 1 ? "shared" : "used",
    kept: keptIn(state, entry, owners),
    place: refCount === 0 && !isHost(entry) ? state.free.indexOf(block) + 1 : 0,
    fills: seqs.map((seq) => colours.get(seq) ?? COLOURS[7]),
  };
}

// What a block with a hash holds, in use or free, or null; `whole`: a prompt can reach it.
export function keptIn(state, entry, owners) {
  const kept = isHost(entry) ? undefined : state.cached.get(entry);
  return kept ? { ...kept, whole: chainOf(state, owners, entry).whole } : null;
}

export function physicalLabel(view, blockSize) {
  const where = isHost(view.entry) ? "host block" : "physical block";
  const id = isHost(view.entry) ? view.name : view.block;
  if (view.kind === "null") return `${where} ${id}, the null block: reserved, never handed out, never written`;
  const pending = Object.values(view.coming).filter(({ fill }) => fill === "pending").length;
  const filled = `${view.tokens.length} of ${blockSize} slots filled${pending ? `, ${pending} in this step's launch` : ""}`;
  if (view.kind === "pinned") return `${where} ${id}, held for a copy under way, named by no table yet, ${filled}`;
  const hash = view.kept ? `, cached, ${hashWords(view.kept)}` : "";
  if (view.kind === "free") {
    return `${where} ${id}, free, ${view.kept ? `still holds ${view.kept.tokens.length} tokens${hash}, ${ordinal(view.place)} out of the free queue` : "nobody's"}`;
  }
  const names = view.seqs.length ? `named by ${listed(view.seqs)}` : "named by no table";
  return `${where} ${id}, ${names}, ${view.refCount} ${view.refCount === 1 ? "reference" : "references"}, ${filled}${hash}`;
}

export const listed = (names) =>
  names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names[names.length - 1]}`;

// The places an event is about: drawn with a strong outline at its step.
export function concerned(event, blockSize) {
  const none = { seqs: [], logical: [], entries: [], from: null };
  if (!event) return none;
  const seqs = event.seq_ids ?? (event.seq_id === undefined ? [] : [event.seq_id]);
  const onHost = event.where === "host";
  const entries = [];
  const writes = writesOf(event);
  if (writes.length) entries.push(...new Set(writes.flatMap(({ slots }) => slots.map((slot) => Math.floor(slot / blockSize)))));
  else if (event.kind === "BlockCopied") entries.push(event.source, event.target);
  else if (event.kind === "EntryRewritten" || event.kind === "BlockCollapsed") entries.push(event.target, event.source);
  else if (event.kind === "BlockSpilled") entries.push(hostEntry(event.host_block), event.block);
  else if (event.kind === "BlockReloaded") entries.push(event.block, hostEntry(event.host_block));
  else if (event.block !== undefined) entries.push(onHost ? hostEntry(event.block) : event.block);
  let logical = event.logical_block;
  const from =
    event.kind === "EntryRewritten" || event.kind === "BlockCollapsed" || event.kind === "BlockReloaded" || event.kind === "BlockSpilled"
      ? { entry: entries[0], old: entries[1] }
      : null;
  return { ...none, seqs: event.parent === undefined ? seqs : [...seqs, event.parent], logical, entries, from };
}

// The logical blocks an event is about in `seq`, in order: a run without gaps, or none.
export function concernedLogicals(event, state, seq) {
  if (!event) return [];
  if (event.seq_id === seq && event.logical_block !== undefined) return [event.logical_block];
  const write = writesOf(event).find(({ seq_id }) => seq_id === seq);
  if (write) {
    const first = Math.floor(write.position / state.blockSize);
    const last = Math.floor((write.position + write.tokens.length - 1) / state.blockSize);
    return Array.from({ length: last - first + 1 }, (_, k) => first + k);
  }
  if (event.seq_ids?.includes(seq) && event.block !== undefined) {
    const entry = event.kind === "BlockSpilled" ? hostEntry(event.host_block) : event.block;
    const at = state.tables.get(seq)?.indexOf(entry) ?? -1;
    return at < 0 ? [] : [at];
  }
  return [];
}
