// Hashes of full blocks: what stands in a chip, and the chain from a block back to the first of its prefix.
import { h, setAttr, setText } from "../dom.js";
import { endsOf, entryOf, linkOf } from "../state/entries.js";
import { tablesIn } from "../state/changes.js";

// Four of its digits tell the hashes of a picture apart; a tip has all that the events have.
export const shortHash = (hash) => hash.slice(0, 4);

const byHash = new WeakMap();

function holdersOf(cached) {
  if (!byHash.has(cached)) {
    const holders = new Map();
    for (const [block, { hash, group }] of cached) {
      const key = `${group}:${hash}`; // equal tokens hash alike in every group, and each finds its own
      holders.set(key, [...(holders.get(key) ?? []), block]);
    }
    byHash.set(cached, holders);
  }
  return byHash.get(cached);
}

// The cached blocks before `block`, its parent first. `whole`: they reach the first block, so that a prompt may too.
// Of several that hold the parent, the one before it in a table; else the first, which is the one that is hit.
export function chainOf(state, owners, block) {
  const { cached } = state;
  const holders = holdersOf(cached);
  const blocks = [];
  for (let at = block; ; at = blocks[blocks.length - 1]) {
    const { parent, group } = cached.get(at);
    if (parent === null) return { blocks, whole: true };
    const found = holders.get(`${group}:${parent}`) ?? [];
    // behind a window a prompt needs only what the window sees
    if (!found.length) return { blocks, whole: state.windows[group] !== null };
    const before = (owners.get(at) ?? []).map(({ seq, logical }) => tablesIn(state, group).get(seq)[logical - 1]);
    blocks.push(found.find((other) => before.includes(other)) ?? found[0]);
  }
}

// The links of a block's chain, for those who light it; none for a block without a hash.
export function chainLinks({ state, owners }, link) {
  const chains = endsOf(link).map(entryOf).filter((block) => state.cached.has(block)).map((block) => chainOf(state, owners, block).blocks.map(linkOf));
  return [...new Set(chains.flat())];
}

const ENDINGS = { one: "st", two: "nd", few: "rd", other: "th" };
const rules = new Intl.PluralRules("en", { type: "ordinal" });
export const ordinal = (place) => `${place}${ENDINGS[rules.select(place)]}`;

// "hash ab12 after cd34", "hash ab12, first of its prefix, salt “red”"; of a broken chain, what that means.
export function hashWords({ hash, parent, salt, whole }) {
  const behind = parent !== null ? ` after ${shortHash(parent)}` : salt === null ? ", first of its prefix" : `, first of its prefix, salt “${salt}”`;
  return `hash ${shortHash(hash)}${behind}${whole ? "" : ", which is cached no more, so that no prompt reaches it"}`;
}

export const makeHashLine = () => h("p", { class: "hash-line" }, h("s"), h("b", { class: "hash" }), h("span", { class: "parent" }));

// `lost` is the hash that went at this step.
export function drawHashLine(line, kept, lost, isNull) {
  const [struck, hash, parent] = line.children;
  setText(struck, lost ? shortHash(lost) : "");
  setText(hash, kept ? shortHash(kept.hash) : "");
  setAttr(hash, "title", kept ? `${kept.hash}: of its tokens and ${kept.parent ?? (kept.salt === null ? "nothing before" : `the salt “${kept.salt}”`)}` : null);
  setText(parent, isNull ? "reserved, never handed out" : !kept ? (lost ? "evicted" : "") : kept.parent !== null ? `after ${shortHash(kept.parent)}` : kept.salt === null ? "first" : `salt “${kept.salt}”`);
  setAttr(parent, "data-gone", kept && !kept.whole ? "" : null);
}
