// A table entry is one number: a device block is its id (0, 1, ...), a host block h is -1 - h.
// An end is what lights up: d7 is a device block, h2 a host block, c3 a chunk of the host tier. A link is one end or several,
// with spaces between, that light up together.

export const hostEntry = (hostBlock) => -1 - hostBlock;
export const isHost = (entry) => entry < 0;
export const blockOf = (entry) => (entry < 0 ? -1 - entry : entry);
export const endOf = (entry) => (entry < 0 ? `h${-1 - entry}` : `d${entry}`);
export const endsOf = (link) => (link ?? "").split(" ").filter(Boolean);
export const entryOf = (end) => (end[0] === "d" ? Number(end.slice(1)) : end[0] === "h" ? hostEntry(Number(end.slice(1))) : null);
export const nameOf = (entry) => (entry < 0 ? `h${-1 - entry}` : String(entry));
