// Where the lens can stop: at each turn of each split, then where acc is divided by l, then where several splits are joined.
// A stop has phases, in the kernel's own order, and one sentence.
import { listed } from "../text.js";

export function stopsOf(answer) {
  const stops = answer.splits.flatMap(({ turns }, split) =>
    turns.length ? turns.map((_, turn) => ({ kind: "turn", split, turn })) : [{ kind: "empty", split }],
  );
  stops.push({ kind: "divide" });
  if (answer.splits.length > 1) stops.push({ kind: "join" });
  return stops;
}

export const phasesOf = (answer, { kind }) =>
  answer.source.phases.filter(({ name }) => (name === "divide" || name === "join" ? name === kind : kind === "turn"));

// The last turn of a split whose `what` (keys, scores, running sums or values) is known by now.
export function newestTurn({ answer, stops, known }, split, what) {
  const at = stops.findLastIndex((stop, i) => stop.kind === "turn" && stop.split === split && known(what, i));
  return at < 0 ? null : answer.splits[split].turns[stops[at].turn];
}

// Two decimals, more where two would show only zeros. A number that is not finite comes as null.
export function shortly(value, unknown = "NaN") {
  if (value === null || value === undefined) return unknown;
  const size = Math.abs(value);
  const digits = size >= 100 ? value.toPrecision(3) : size >= 0.01 || size === 0 ? value.toFixed(2) : value.toPrecision(1);
  return (Number(digits) === 0 ? digits.replace("-", "") : digits).replace("-", "−");
}
export const inPowers = (value) => shortly(value, "−∞");
const factor = (value) => (value < 1 && value > 0.995 ? "almost 1" : shortly(value));

const masked = (count) => (count === 0 ? "no lane is masked" : count === 1 ? "1 lane is masked" : `${count} lanes are masked`);

function placed(positions) {
  if (positions.length === 0) return "no position";
  if (positions.length === 1) return `position ${positions[0]}`;
  const [first, last] = [positions[0], positions[positions.length - 1]];
  const inOneRun = positions.length > 2 && last - first === positions.length - 1;
  return `positions ${inOneRun ? `${first} to ${last}` : listed(positions)}`;
}

// "block 7, positions 4 and 5; 2 lanes are masked": about the block's own lanes; padding is always masked.
export function readWords(answer, turn) {
  const lanes = turn.positions.slice(0, answer.block_size);
  const real = lanes.filter((position) => position !== null);
  return `block ${turn.block}, ${placed(real)}; ${masked(lanes.length - real.length)}`;
}

function summedWords({ m, l, shrink }) {
  // every turn reads a token, so the maximum is never −∞
  if (m === null) return "the maximum and the sum are NaN";
  if (shrink === null) return `the maximum is ${shortly(m)} and the sum is ${shortly(l)}`;
  if (shrink === 1) return `the maximum stays ${shortly(m)}, so what was summed keeps its scale`;
  return `the maximum grew to ${shortly(m)}, so what was summed is scaled by ${factor(shrink)}`;
}

// How much each split counts in the join; NaN for all when a split that read a block has no finite lse.
export const shares = (answer) => {
  if (answer.splits.some(({ turns, lse }) => turns.length && lse === null)) return answer.splits.map(() => NaN);
  const largest = Math.max(...answer.splits.map(({ lse }) => lse ?? -Infinity));
  const raw = answer.splits.map(({ lse }) => (lse === null ? 0 : 2 ** (lse - largest)));
  const total = raw.reduce((sum, value) => sum + value, 0);
  return raw.map((value) => (total ? value / total : 0));
};

export function turnName({ splits }, { split, turn }) {
  const of = `${turn + 1} of ${splits[split].turns.length}`;
  return splits.length > 1 ? `Split ${split + 1} of ${splits.length}, turn ${of}` : `Turn ${of}`;
}

export function sentenceOf(answer, stop) {
  const several = answer.splits.length > 1;
  if (stop.kind === "turn") {
    const turn = answer.splits[stop.split].turns[stop.turn];
    return `${turnName(answer, stop)}: ${readWords(answer, turn)}; ${summedWords(turn)}.`;
  }
  if (stop.kind === "empty") {
    return `Split ${stop.split + 1} of ${answer.splits.length} has no block to read: its lse is −∞, so it weighs nothing.`;
  }
  if (stop.kind === "divide" && several) return "Each split divides its accumulator by its own sum l, and keeps lse = m + log₂ l: how much its scores weigh in all.";
  if (stop.kind === "divide") return "Every block is read: the accumulator is divided by the sum l once, and that is the attention.";
  const parts = shares(answer).map((share, split) => `split ${split + 1} counts ${shortly(share)}`);
  return `The splits are joined, each weighed by 2^(lse − largest lse): ${listed(parts)}.`;
}
