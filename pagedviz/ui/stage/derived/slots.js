// What is in each slot of a sequence's blocks: filled, still to come, drafted, out of the window, or garbage.
import { slotOf } from "../state/places.js";
import { tablesIn } from "../state/changes.js";

const requestOf = (state, seq) => state.requests.get(state.requestOf.get(seq));
const outputOf = (request, seq) => request?.outputs.get(seq) ?? [];

// The slot that the next token of each sequence goes to, or null when its last block is full.
export function nextSlot(state, seq) {
  const position = state.tokens.get(seq).length;
  const logical = Math.floor(position / state.blockSize);
  const row = state.tables.get(seq);
  return logical < row.length ? { logical, offset: position % state.blockSize, entry: row[logical] } : null;
}

// The newest output of a sequence while no slot holds it; null when there is none.
export function sampledOf(state, seq) {
  const request = requestOf(state, seq);
  const output = outputOf(request, seq);
  const newest = (request?.prompt.length ?? 0) + output.length - 1;
  return output.length && (state.tokens.get(seq)?.length ?? 0) <= newest ? output[output.length - 1] : null;
}

export const filledIn = (state, seq, logical) =>
  Math.max(0, Math.min(state.blockSize, state.tokens.get(seq).length - logical * state.blockSize));

// What comes into the unfilled slots of a logical block, by offset: {fill, token}. This step's launch writes "pending" and
// "draft"; a draft may be rejected after it. "sampled" is the newest output, which no slot holds yet; "next" is the slot of
// the next token, with the token if it is known.
export function comingIn(state, seq, logical) {
  const coming = {};
  const held = state.tokens.get(seq).length;
  const request = requestOf(state, seq);
  const [prompt, output] = [request?.prompt ?? [], outputOf(request, seq)];
  const { from, count } = state.launching.get(seq) ?? { from: 0, count: 0 };
  const drafts = state.drafted.get(seq);
  // a block that this launch fills has its hash already, and its tokens after the launch
  const promised = state.cached.get(state.tables.get(seq)[logical])?.tokens ?? [];
  for (let offset = 0; offset < state.blockSize; offset += 1) {
    const position = logical * state.blockSize + offset;
    if (position < held) continue;
    const token = position < prompt.length ? prompt[position] : output[position - prompt.length] ?? null;
    const draft = drafts ? position - drafts.position : -1;
    if (draft >= 0 && draft < drafts.tokens.length) coming[offset] = { fill: "draft", token: drafts.tokens[draft], confidence: drafts.confidences[draft] ?? null };
    else if (offset < promised.length) coming[offset] = { fill: "pending", token: promised[offset] };
    else if (position >= from && position < from + count) coming[offset] = { fill: "pending", token };
    else if (position === held) coming[offset] = { fill: position >= prompt.length && token !== null ? "sampled" : "next", token };
  }
  return coming;
}

// The first position that the next token sees through one group's window; null where it sees all positions.
function firstSeen(state, seq, group) {
  const window = state.windows[group];
  return window === null ? null : Math.max(0, state.tokens.get(seq).length - window + 1);
}

// The mark of a filled slot in one group: not verified yet, in the window, or out of it; else null.
export function markOf(state, seq, position, group) {
  const drafts = state.unverified.get(seq);
  const draft = drafts ? position - state.tokens.get(seq).length + drafts.count : -1;
  if (draft >= 0) return { mark: "unverified", confidence: drafts.confidences[draft] ?? null };
  const first = firstSeen(state, seq, group);
  return first === null ? null : { mark: position < first ? "out" : "seen", first };
}

// The same in the row, which shows all groups at once: a token that one group still sees is not out of the window.
export function markInRow(state, seq, position) {
  const marks = state.windows.map((_, group) => markOf(state, seq, position, group));
  return marks.some((found) => found === null) ? null : marks.find(({ mark }) => mark !== "out") ?? marks[0];
}

// Whether every group has released the block.
export const isGone = (state, seq, logical) =>
  state.nullBlock !== null && state.windows.every((_, group) => tablesIn(state, group).get(seq)[logical] === state.nullBlock);

export const rolledBackAt = (state, seq, position) => state.rolledBack.get(slotOf(state, seq, position, 0)) ?? null;
