// Copies of nodes that fly, and the flights that several families of events share.

// A copy of a node that looks the same outside its parents.
export function ghostOf(node) {
  const ghost = node.cloneNode(true);
  const style = getComputedStyle(node);
  for (const name of ["--fill", "--fill-text", "--columns"]) ghost.style.setProperty(name, style.getPropertyValue(name));
  return ghost;
}

// A node as a ghost, with its place.
export const seen = (node) => ({ ghost: ghostOf(node), rect: node.getBoundingClientRect() });

export const fills = (block) => (block ? [...block.querySelectorAll('[data-fill="filled"] .fill')] : []);
export const badge = (block) => block?.querySelector(".badge");
export const hashOf = (block) => block?.querySelector(".hash");

// The ghost fades away where its node was, over what is there now.
export function fade(motion, strip, frames = [{ opacity: 1 }, { opacity: 0 }]) {
  if (!strip) return;
  motion.fly(strip.ghost, strip.rect, strip.rect);
  motion.run(strip.ghost, frames);
}

export function toQueue(motion, entry) {
  const chip = motion.chip(entry);
  const from = motion.physical(entry)?.querySelector(".id").getBoundingClientRect() ?? motion.rect(entry);
  if (!chip || !from) return;
  const to = chip.getBoundingClientRect();
  motion.fly(chip.cloneNode(true), new DOMRect(from.left, from.top, to.width, to.height), to, [chip]);
}

export function land(motion, entry, strip) {
  const target = motion.physical(entry);
  if (strip) motion.fly(strip.ghost, strip.rect, target ? target.querySelector(".cells").getBoundingClientRect() : motion.rect(entry), fills(target));
}

export function takeFromQueue(motion, entry, before) {
  if (!before.chip) return;
  const to = motion.physical(entry)?.querySelector(".id").getBoundingClientRect() ?? motion.rect(entry);
  if (to) motion.fly(before.chip.ghost, before.chip.rect, new DOMRect(to.left, to.top, before.chip.rect.width, before.chip.rect.height));
}
