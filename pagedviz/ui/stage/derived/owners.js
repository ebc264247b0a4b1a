// Which sequences name which block: entry -> [{seq, logical, group}], sequences in table order.
import { tablesIn } from "../state/changes.js";

export function ownersByEntry(state) {
  const owners = new Map();
  state.windows.forEach((_, group) => {
    for (const [seq, row] of tablesIn(state, group)) {
      for (let logical = 0; logical < row.length; logical += 1) {
        const list = owners.get(row[logical]);
        if (list) list.push({ seq, logical, group });
        else owners.set(row[logical], [{ seq, logical, group }]);
      }
    }
  });
  return owners;
}
