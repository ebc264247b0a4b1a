// Small helpers. User text arrives through textContent and attributes only, never as markup.

const SVG = "http://www.w3.org/2000/svg";

export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) setAttr(node, name, value);
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

// Setters that leave the page alone when nothing changes: no flicker, no repeated announcement.
export function setAttr(node, name, value) {
  if (value === null || value === undefined || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
  } else if (node.getAttribute(name) !== String(value)) {
    node.setAttribute(name, String(value));
  }
}

export function setText(node, text) {
  if (node.textContent !== String(text)) node.textContent = String(text);
}

const keyed = new WeakMap();

// Children of `parent` = one node per key, in that order; nodes are kept, moved or made, never rebuilt.
export function syncKeyed(parent, items, keyOf, make, update) {
  if (!keyed.has(parent)) keyed.set(parent, new Map());
  const nodes = keyed.get(parent);
  const wanted = new Set(items.map(keyOf));
  for (const [key, node] of nodes) {
    if (!wanted.has(key)) {
      node.remove();
      nodes.delete(key);
    }
  }
  let cursor = parent.firstChild;
  for (const item of items) {
    const key = keyOf(item);
    let node = nodes.get(key);
    if (!node) {
      node = make(item);
      nodes.set(key, node);
    }
    if (node === cursor) cursor = cursor.nextSibling;
    else parent.insertBefore(node, cursor);
    update?.(node, item);
  }
}

// A row of `count` cells; each is a slot (hatched or dashed) with the fill that covers it.
export function drawCells(parent, count, cellAt) {
  while (parent.children.length > count) parent.lastElementChild.remove();
  while (parent.children.length < count) {
    const text = h("bdi", { class: "text", dir: "auto" });
    parent.append(h("span", { class: "cell" }, h("span", { class: "fill" }, text)));
  }
  for (let offset = 0; offset < count; offset += 1) {
    const { state, text, tip, mark = null } = cellAt(offset);
    const cell = parent.children[offset];
    setAttr(cell, "data-offset", offset);
    setAttr(cell, "data-fill", state);
    setAttr(cell, "data-mark", mark);
    setAttr(cell, "data-tip", tip);
    setText(cell.firstElementChild.firstElementChild, text);
  }
}

export const cellsPerRow = (blockSize) => (blockSize <= 6 ? blockSize : blockSize <= 8 ? 4 : blockSize <= 32 ? 8 : 16);
