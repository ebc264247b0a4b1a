// The cell of a slot: its text and its tip.
import { tokenText } from "../text.js";

const sure = (confidence) => (confidence === null ? "" : `, confidence ${confidence.toFixed(2)}`);

const MARKS = {
  unverified: ({ confidence }) => `, a draft${sure(confidence)}: written, and not verified yet`,
  seen: () => ", in the window of the next token",
  out: ({ first }) => `, out of the window: the next token sees positions from ${first} on`,
};

// The cell of a filled slot.
export function filledCell(token, where, marked) {
  return { state: "filled", mark: marked?.mark, text: tokenText(token), tip: `“${token}”, ${where}${marked ? MARKS[marked.mark](marked) : ""}` };
}

// A slot that is not filled yet, and what comes into it; `garbage` is the rejected token that still lies there.
export function comingCell({ fill, token, confidence }, where, garbage = null) {
  const text = token === null ? "next" : tokenText(token);
  const over = garbage === null ? "" : `; rejected “${garbage}” still lies there`;
  const cell = { state: fill, mark: garbage === null ? null : "rolled", text };
  if (fill === "draft") return { ...cell, tip: `${where}: “${token}” is a draft${sure(confidence)}; the next launch computes it${over}` };
  if (fill === "pending") return { ...cell, text: token === null ? "" : text, tip: `${where}: “${token}” is written by this step's launch${over}` };
  if (fill === "sampled") return { ...cell, tip: `${where}: “${token}” is sampled, and in no slot yet${over}` };
  return { ...cell, tip: (token === null ? `${where}: where the next token goes` : `${where}: “${token}” is the next to be computed`) + over };
}

// A rejected token is garbage: no kernel reads it, and the next write to its slot overwrites it.
export const rolledCell = (token, where) => ({ state: "rolled", text: tokenText(token), tip: `${where}: rejected “${token}” was rolled back; it is garbage until it is overwritten` });

export const goneCell = (token, where) => ({ state: "gone", text: tokenText(token), tip: `“${token}”, ${where}: out of the window, and its block is given back` });
