// The marks of the lens on the stage: blocks in the order in which they were loaded, and the lanes of the current block.
import { setAttr } from "../dom.js";

export function drawMarks(root, scene) {
  for (const node of root.querySelectorAll("[data-read]")) {
    setAttr(node, "data-read", null);
    setAttr(node, "data-turn", null);
  }
  for (const cell of root.querySelectorAll(".cell[data-lane]")) setAttr(cell, "data-lane", null);
  if (!scene) return;
  const { answer, stops, index, known } = scene;
  stops.slice(0, index + 1).forEach((place, at) => {
    if (place.kind !== "turn") return;
    const turn = answer.splits[place.split].turns[place.turn];
    const when = at === index ? "now" : "done";
    const seq = CSS.escape(answer.seq_id);
    const block = root.querySelector(`.physical[data-block="${turn.block}"]`);
    const ends = [
      block,
      root.querySelector(`.logical[data-seq="${seq}"][data-logical="${turn.logical_block}"]`),
      root.querySelector(`[data-group="${scene.group}"] [data-table-seq="${seq}"][data-table-logical="${turn.logical_block}"]`),
    ];
    for (const end of ends) if (end) setAttr(end, "data-read", when);
    if (!block) return;
    setAttr(block, "data-turn", answer.splits.length > 1 ? `split ${place.split + 1}, turn ${place.turn + 1}` : `turn ${place.turn + 1}`);
    if (when === "done" || !known("keys", at)) return;
    for (const cell of block.querySelectorAll(".cell")) setAttr(cell, "data-lane", turn.positions[cell.dataset.offset] === null ? "masked" : "read");
  });
}
