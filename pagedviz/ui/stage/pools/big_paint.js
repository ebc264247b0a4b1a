// Paints a big pool: every block as a square in its owner's colour, and, when zoomed in, its id and slots.
import { setAttr } from "../dom.js";
import { blockOf, endsOf, entryOf, isHost, nameOf } from "../state/entries.js";
import { physicalBlock } from "../derived/physical.js";
import { tokenText } from "../text.js";

export const MINI = { width: 132, height: 56 };
const THICK_RINGS = 16; // up to this many rings are thick and stand off their blocks

export function paintPool(pool) {
  pool.grid.clamp();
  const { width, height, columns, rows, side, origin } = pool.grid;
  const ratio = window.devicePixelRatio || 1;
  const g = pool.canvas.getContext("2d");
  const style = getComputedStyle(pool.node);
  for (const name of ["ink", "line", "quiet", "surface", "kept"]) {
    g.fillStyle = style.getPropertyValue(`--${name}`).trim();
    pool[name] = g.fillStyle; // as rgb: parsed once here, not once a block
  }
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.clearRect(0, 0, width, height);
  pool.brush = null;
  const firstRow = Math.max(0, Math.floor(origin.y / side));
  const lastRow = Math.min(rows - 1, Math.floor((origin.y + height) / side));
  for (let row = firstRow; row <= lastRow; row += 1) {
    for (let column = 0; column < columns; column += 1) {
      const index = row * columns + column;
      const x = column * side - origin.x;
      if (index >= pool.entries.length || x > width || x + side < 0) continue;
      paintBlock(pool, g, index, x, row * side - origin.y, side);
    }
  }
  const weight = pool.about.length > THICK_RINGS ? 1 : 2;
  for (const entry of pool.about) ring(pool, g, entry, pool.ink, weight);
  for (const entry of endsOf(pool.highlight.current()).map(entryOf)) {
    if (entry !== null && isHost(entry) === pool.onHost) ring(pool, g, entry, pool.ink, 3);
  }
  paintMini(pool, ratio);
}

// A sequence's own colour, or a grey: in use, free and cached, free.
const shade = (pool, fill) => (fill === null ? pool.line : fill[0].startsWith("#") ? fill[0] : fill[0] === "kept" ? pool.kept : pool.quiet);

function paintBlock(pool, g, index, x, y, side) {
  const gap = side > 3 ? Math.min(3, side * 0.14) : 0;
  const inner = side - gap;
  const fill = pool.fills[index];
  const colour = shade(pool, fill);
  if (colour !== pool.brush) g.fillStyle = pool.brush = colour;
  if (side < 48) {
    g.fillRect(x, y, inner, inner);
    if (fill?.[1]) {
      g.fillStyle = pool.brush = fill[1];
      g.fillRect(x + inner / 2, y, inner / 2, inner);
    }
    return;
  }
  pool.brush = null;
  const size = Math.min(12, side / 6);
  g.strokeStyle = pool.line;
  g.strokeRect(x + 0.5, y + 0.5, inner, inner);
  paintSlots(pool, g, pool.entries[index], x + 4, y + size + 8, inner - 8, inner - size - 12, fill);
  g.fillStyle = pool.ink;
  g.font = `600 ${size}px sans-serif`;
  g.fillText(nameOf(pool.entries[index]), x + 4, y + size + 3);
  const count = (pool.onHost ? pool.view.state.hostRefs : pool.view.state.refs)[index];
  if (count > 0) g.fillText(`×${count}`, x + inner - 4 - g.measureText(`×${count}`).width, y + size + 3);
}

function paintSlots(pool, g, entry, x, y, width, height, fill) {
  const { state, owners, colours } = pool.view;
  const block = physicalBlock(state, entry, owners, colours);
  const columns = Math.ceil(Math.sqrt(state.blockSize));
  const rows = Math.ceil(state.blockSize / columns);
  for (let offset = 0; offset < state.blockSize; offset += 1) {
    const w = width / columns;
    const hgt = height / rows;
    const cx = x + (offset % columns) * w;
    const cy = y + Math.floor(offset / columns) * hgt;
    if (offset < block.tokens.length) {
      g.fillStyle = fill?.[1] && offset % 2 ? fill[1] : fill && fill[0].startsWith("#") ? fill[0] : pool.quiet;
      g.globalAlpha = ["out", "unverified"].includes(block.marks[offset]?.mark) ? 0.4 : 1;
      g.fillRect(cx, cy, w - 1.5, hgt - 1.5);
      g.globalAlpha = 1;
      if (w > 34) {
        g.fillStyle = block.fills[fill?.[1] && offset % 2 ? 1 : 0]?.text ?? pool.surface;
        g.font = "10px sans-serif";
        g.fillText(tokenText(block.tokens[offset]), cx + 3, cy + hgt / 2 + 3, w - 7);
      }
    } else {
      g.strokeStyle = block.coming[offset] ? pool.ink : pool.line;
      g.setLineDash([2, 2]);
      g.strokeRect(cx + 0.5, cy + 0.5, w - 2.5, hgt - 2.5);
      g.setLineDash([]);
      if (block.kept && w > 34) {
        g.fillStyle = pool.quiet;
        g.font = "10px sans-serif";
        g.fillText(tokenText(block.kept.tokens[offset] ?? ""), cx + 3, cy + hgt / 2 + 3, w - 7);
      }
    }
  }
}

function ring(pool, g, entry, colour, weight) {
  const { x, y, side } = pool.grid.placeOf(blockOf(entry));
  const grow = weight > 1 ? Math.max(2, (9 - side) / 2) : 0;
  g.lineWidth = weight + 2;
  g.strokeStyle = pool.surface;
  g.strokeRect(x - grow, y - grow, side + 2 * grow - 1, side + 2 * grow - 1);
  g.lineWidth = weight;
  g.strokeStyle = colour;
  g.strokeRect(x - grow, y - grow, side + 2 * grow - 1, side + 2 * grow - 1);
  g.lineWidth = 1;
}

function paintMini(pool, ratio) {
  const { width, height, columns, rows, zoom, side, origin } = pool.grid;
  setAttr(pool.mini, "hidden", zoom > 1 ? null : "");
  if (zoom === 1) return;
  const g = pool.mini.getContext("2d");
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.clearRect(0, 0, MINI.width, MINI.height);
  const w = MINI.width / columns;
  const hgt = MINI.height / rows;
  pool.fills.forEach((fill, index) => {
    g.fillStyle = shade(pool, fill);
    g.fillRect((index % columns) * w, Math.floor(index / columns) * hgt, w, hgt);
  });
  g.strokeStyle = pool.ink;
  g.lineWidth = 2;
  g.strokeRect((origin.x / side) * w + 1, (origin.y / side) * hgt + 1, (width / side) * w - 2, (height / side) * hgt - 2);
}
