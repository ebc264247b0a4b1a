import { firstOf } from "../state/requests.js";

// Okabe and Ito's colours, each with the text colour that reads on it (4.5:1 or better).
const DARK = "#14161a";
const COLOURS = [
  { fill: "#0072b2", text: "#ffffff" },
  { fill: "#e69f00", text: DARK },
  { fill: "#009e73", text: DARK },
  { fill: "#cc79a7", text: DARK },
  { fill: "#56b4e9", text: DARK },
  { fill: "#d55e00", text: DARK },
  { fill: "#f0e442", text: DARK },
  { fill: "#a6a6a6", text: DARK },
];
export const GREY = COLOURS[7];

// The sequences that an event may be the first to name. A request of several sequences is known by its first one.
function namedBy(event) {
  if (event.kind === "RequestSubmitted") return [firstOf(event.seq_id, event)];
  if (event.kind === "RequestForked" || event.kind === "BeamsChosen") return event.seq_ids;
  return event.kind === "SequenceAdded" || event.kind === "SequenceForked" ? [event.seq_id] : [];
}

// A sequence keeps one colour through the whole run. Colours are given in the order in which the run first names the
// sequences; a colour of a living sequence is passed over while others are left.
export function colourBook(base, steps) {
  const book = new Map();
  const alive = new Set();
  const learn = (seq) => {
    if (!book.has(seq)) {
      const taken = new Set([...alive].map((other) => book.get(other)));
      const inTurn = COLOURS.map((_, k) => COLOURS[(book.size + k) % COLOURS.length]);
      book.set(seq, inTurn.find((colour) => !taken.has(colour)) ?? inTurn[0]);
    }
    alive.add(seq);
  };
  Object.keys(base.block_tables ?? {}).forEach(learn);
  for (const { event } of steps) {
    namedBy(event).forEach(learn);
    if (event.kind === "SequenceFreed") alive.delete(event.seq_id);
  }
  return book;
}
