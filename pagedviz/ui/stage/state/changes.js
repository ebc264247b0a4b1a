// Small pure changes that all families use. Each returns something new and leaves the old as it is.

export const withEntry = (map, key, value) => new Map(map).set(key, value);
export const withoutEntry = (map, key) => (map.has(key) ? new Map([...map].filter(([other]) => other !== key)) : map);
export const without = (queue, item) => queue.filter((other) => other !== item);

export function inserted(queue, index, item) {
  const out = queue.slice();
  out.splice(index, 0, item);
  return out;
}

export function withCounts(counts, changes) {
  const out = counts.slice();
  for (const [block, count] of changes) out[block] = count;
  return out;
}

// The tables of one group; `group` is null where there is one group.
export const tablesIn = (state, group) => (group ? state.groupTables[group - 1] : state.tables);

function withTables(state, group, tables) {
  return group ? { groupTables: state.groupTables.map((other, k) => (k === group - 1 ? tables : other)) } : { tables };
}

export const withRow = (state, seq, row, group) => withTables(state, group, withEntry(tablesIn(state, group), seq, row));

export function tableWith(state, seq, logical, entry, group) {
  const row = (tablesIn(state, group).get(seq) ?? []).slice();
  row[logical] = entry;
  return withRow(state, seq, row, group);
}
