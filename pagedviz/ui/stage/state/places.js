// Where tokens lie: the slots of positions, the blocks of slots, and the logical blocks of positions.
import { tablesIn } from "./changes.js";

// The slot of a position in one group's table, or null when no block is there for it.
export function slotOf(state, seq, position, group) {
  const entry = tablesIn(state, group).get(seq)?.[Math.floor(position / state.blockSize)];
  return entry === undefined || entry < 0 || entry === state.nullBlock ? null : entry * state.blockSize + (position % state.blockSize);
}

// The slots of tokens from a position on, in every group: where they were written, or where drafts will be. Drafts have
// none while no block is there for them.
export const slotsOf = (state, { seq_id, position, tokens }) =>
  state.windows.flatMap((_, group) => tokens.map((_, k) => slotOf(state, seq_id, position + k, group))).filter((slot) => slot !== null);

export const blocksOf = (state, slots) => [...new Set(slots.map((slot) => Math.floor(slot / state.blockSize)))];

// The logical blocks of `count` tokens from a position on, in order.
export function logicalsOf(state, position, count) {
  const [first, last] = [position, position + count - 1].map((at) => Math.floor(at / state.blockSize));
  return Array.from({ length: last - first + 1 }, (_, k) => first + k);
}
