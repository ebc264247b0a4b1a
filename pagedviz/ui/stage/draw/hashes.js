// How the hash of a full block is shown: short in a chip, in words, and as the line below a block's cells.
import { h, setAttr, setText } from "../dom.js";

// Four digits are enough to tell the hashes of a picture apart; a tip has all digits that the event has.
export const shortHash = (hash) => hash.slice(0, 4);

const ENDINGS = { one: "st", two: "nd", few: "rd", other: "th" };
const rules = new Intl.PluralRules("en", { type: "ordinal" });
export const ordinal = (place) => `${place}${ENDINGS[rules.select(place)]}`;

// "hash ab12 after cd34", "hash ab12, first of its prefix, salt “red”"; with a note when the chain is broken.
export function hashWords({ hash, parent, salt, whole }) {
  const behind = parent !== null ? ` after ${shortHash(parent)}` : salt === null ? ", first of its prefix" : `, first of its prefix, salt “${salt}”`;
  return `hash ${shortHash(hash)}${behind}${whole ? "" : ", which is cached no more, so that no prompt reaches it"}`;
}

export const makeHashLine = () => h("p", { class: "hash-line" }, h("s"), h("b", { class: "hash" }), h("span", { class: "parent" }));

// `lost` is the hash that was evicted at this step.
export function drawHashLine(line, kept, lost, isNull) {
  const [struck, hash, parent] = line.children;
  setText(struck, lost ? shortHash(lost) : "");
  setText(hash, kept ? shortHash(kept.hash) : "");
  setAttr(hash, "title", kept ? `${kept.hash}: of its tokens and ${kept.parent ?? (kept.salt === null ? "nothing before" : `the salt “${kept.salt}”`)}` : null);
  setText(parent, isNull ? "reserved, never handed out" : !kept ? (lost ? "evicted" : "") : kept.parent !== null ? `after ${shortHash(kept.parent)}` : kept.salt === null ? "first" : `salt “${kept.salt}”`);
  setAttr(parent, "data-gone", kept && !kept.whole ? "" : null);
}
