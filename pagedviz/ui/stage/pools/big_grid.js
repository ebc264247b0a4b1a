// The grid of a big pool, and which part of it is in view: arithmetic alone, in pixels from the view's top left corner.

const HEIGHT = 264;
const MAX_ZOOM = 32;
const LARGEST_CELL = 40;

const limited = (value, most) => Math.max(0, Math.min(value, Math.max(0, most)));

export class BigGrid {
  constructor() {
    this.zoom = 1; // 1: the whole pool is in view
    this.origin = { x: 0, y: 0 }; // of the view, in the zoomed grid
  }

  // The grid that fits `count` blocks at zoom 1; its shape never depends on the step.
  fit(count, width) {
    const columns = Math.max(16, Math.ceil(Math.ceil(Math.sqrt((count * width) / HEIGHT)) / 16) * 16);
    const rows = Math.ceil(count / columns);
    const cell = Math.min(width / columns, HEIGHT / rows, LARGEST_CELL);
    Object.assign(this, { count, width, height: Math.ceil(rows * cell), columns, rows, cell });
  }

  get side() {
    return this.cell * this.zoom;
  }

  // The view stays inside the grid.
  clamp() {
    this.origin.x = limited(this.origin.x, this.columns * this.side - this.width);
    this.origin.y = limited(this.origin.y, this.rows * this.side - this.height);
  }

  // `factor` 0 shows the whole pool; the point x, y of the view stays where it is.
  zoomBy(factor, x = this.width / 2, y = this.height / 2) {
    const before = this.zoom;
    this.zoom = factor === 0 ? 1 : Math.min(MAX_ZOOM, Math.max(1, this.zoom * factor));
    const ratio = this.zoom / before;
    this.origin = { x: (this.origin.x + x) * ratio - x, y: (this.origin.y + y) * ratio - y };
  }

  // x and y are shares of the whole grid.
  centre(x, y) {
    this.origin = { x: x * this.width * this.zoom - this.width / 2, y: y * this.height * this.zoom - this.height / 2 };
  }

  placeOf(index) {
    return {
      x: (index % this.columns) * this.side - this.origin.x,
      y: Math.floor(index / this.columns) * this.side - this.origin.y,
      side: this.side,
    };
  }

  // The index of the block at a point of the view, or null.
  indexAt(x, y) {
    const column = Math.floor((x + this.origin.x) / this.side);
    const index = Math.floor((y + this.origin.y) / this.side) * this.columns + column;
    return column < 0 || column >= this.columns || index < 0 || index >= this.count ? null : index;
  }

  isInView(index) {
    const { x, y, side } = this.placeOf(index);
    return !(x < -side || y < -side || x > this.width || y > this.height);
  }

  // A block that is not wholly in view, or any with `always`, comes to the middle.
  reveal(index, always) {
    const { x, y, side } = this.placeOf(index);
    const isWhole = x >= 0 && y >= 0 && x + side <= this.width && y + side <= this.height;
    if (!isWhole || always) this.origin = { x: this.origin.x + x + side / 2 - this.width / 2, y: this.origin.y + y + side / 2 - this.height / 2 };
  }
}
