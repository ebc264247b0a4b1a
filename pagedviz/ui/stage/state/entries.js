// A table entry is one number: a device block is its id (0, 1, ...), a host block h is -1 - h. A link names what lights up
// together: d7 a device block, h2 a host block, c3 a chunk of the host tier; several are written with spaces between.

export const hostEntry = (hostBlock) => -1 - hostBlock;
export const isHost = (entry) => entry < 0;
export const blockOf = (entry) => (entry < 0 ? -1 - entry : entry);
export const linkOf = (entry) => (entry < 0 ? `h${-1 - entry}` : `d${entry}`);
export const endsOf = (link) => (link ?? "").split(" ").filter(Boolean);
export const entryOf = (end) => (end[0] === "d" ? Number(end.slice(1)) : end[0] === "h" ? hostEntry(Number(end.slice(1))) : null);
export const nameOf = (entry) => (entry < 0 ? `h${-1 - entry}` : String(entry));
