// The chain of hashes from a cached block back to the first block of its prefix.
import { endOf, endsOf, entryOf } from "../state/entries.js";
import { tablesIn } from "../state/changes.js";

const byHash = new WeakMap();

function holdersOf(cached) {
  if (!byHash.has(cached)) {
    const holders = new Map();
    for (const [block, { hash, group }] of cached) {
      const key = `${group}:${hash}`; // equal tokens have one hash in all groups, and a group hits its own blocks
      holders.set(key, [...(holders.get(key) ?? []), block]);
    }
    byHash.set(cached, holders);
  }
  return byHash.get(cached);
}

// The cached blocks before `block`, its parent first. `whole`: they reach the first block, so a prompt can reach `block`.
// When several blocks hold the parent's tokens: the one before `block` in a table; else the first, which a prompt hits.
export function chainOf(state, owners, block) {
  const { cached } = state;
  const holders = holdersOf(cached);
  const blocks = [];
  for (let at = block; ; at = blocks[blocks.length - 1]) {
    const { parent, group } = cached.get(at);
    if (parent === null) return { blocks, whole: true };
    const found = holders.get(`${group}:${parent}`) ?? [];
    // with a window a prompt needs only the blocks that the window sees
    if (!found.length) return { blocks, whole: state.windows[group] !== null };
    const before = (owners.get(at) ?? []).map(({ seq, logical }) => tablesIn(state, group).get(seq)[logical - 1]);
    blocks.push(found.find((other) => before.includes(other)) ?? found[0]);
  }
}

// The ends of the blocks in the chains of a link, which light up with it; none for a block without a hash.
export function chainEnds({ state, owners }, link) {
  const chains = endsOf(link).map(entryOf).filter((block) => state.cached.has(block)).map((block) => chainOf(state, owners, block).blocks.map(endOf));
  return [...new Set(chains.flat())];
}
