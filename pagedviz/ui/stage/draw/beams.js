// The tree of a request's beams: one token a node. Each step keeps the likeliest and leaves the others behind.
import { h, setAttr, setText, syncKeyed } from "../dom.js";
import { tokenText } from "../text.js";

export const makeBeams = () => h("div", { class: "beams", hidden: "" });

export function drawBeams(box, view) {
  const { state } = view;
  const unfinished = [...state.waiting, ...state.running, ...state.swapped];
  // of finished requests only the last one's tree stays in view
  const trees = [...state.beamTrees].filter(([id], k, all) => unfinished.includes(id) || k === all.length - 1);
  setAttr(box, "hidden", trees.length ? null : "");
  syncKeyed(box, trees, ([id]) => id, makeTree, (node, [id, levels]) => drawTree(node, id, levels, view, unfinished.includes(id)));
}

function makeTree([id]) {
  const list = h("ul", { class: "beam-level" });
  const scroll = h("div", { class: "beam-scroll", tabindex: "0", role: "region", "aria-label": `Beams of ${id}` }, list);
  return h("section", { class: "beam-tree", "data-beams-of": id }, h("h3", {}, h("bdi", {}, `Beams of ${id}`), h("span", { class: "quiet" })), scroll);
}

// The nodes of a level that have one parent, each with the nodes below it. A node is alive when a node of the last level
// descends from it. The living nodes come first, so that a tall tree shows them.
function grown(levels, level, parent) {
  const nodes = (levels[level] ?? []).flatMap((node, place) => {
    if (level && node.parent !== parent) return [];
    const children = grown(levels, level + 1, place);
    const alive = level === levels.length - 1 || children.some((child) => child.alive);
    return [{ ...node, key: `${level}:${place}`, isLast: level === levels.length - 1, alive, children }];
  });
  return nodes.sort((a, b) => Number(b.alive) - Number(a.alive));
}

function drawTree(node, id, levels, view, goesOn) {
  const last = levels[levels.length - 1];
  const [title, scroll] = node.children;
  setText(title.lastElementChild, ` ${last.length} ${goesOn ? "living" : "left at the end,"} after ${levels.length} ${levels.length === 1 ? "token" : "tokens"}, scores are sums of log-probabilities`);
  const event = view.event?.kind === "BeamsChosen" && view.event.seq_id === id ? view.event : null;
  drawLevel(scroll.firstElementChild, grown(levels, 0, -1), view, event);
  if (Number(scroll.dataset.levels) === levels.length) return;
  setAttr(scroll, "data-levels", levels.length);
  scroll.scrollLeft = scroll.scrollWidth; // the newest tokens are at the right end
}

function drawLevel(list, nodes, view, event) {
  syncKeyed(
    list,
    nodes,
    ({ key }) => key,
    () => h("li", {}, h("span", { class: "beam" }, h("bdi", { class: "text", dir: "auto" }), h("span", { class: "score" }), h("bdi", { class: "owner" }), h("span", { class: "hidden" })), h("ul", { class: "beam-level" })),
    (node, beam) => {
      const [shown, below] = node.children;
      const [token, score, owner, fate] = shown.children;
      const colour = view.colours.get(beam.seq);
      setAttr(node, "data-alive", beam.alive ? "" : null);
      setAttr(shown, "data-last", beam.isLast ? "" : null);
      setAttr(shown, "data-new", event && beam.isLast ? "" : null);
      shown.style.setProperty("--fill", beam.isLast ? colour.fill : "transparent");
      shown.style.setProperty("--fill-text", beam.isLast ? colour.text : "var(--ink)");
      setText(token, tokenText(beam.token));
      setAttr(token, "title", `“${beam.token}”, ${beam.seq}, score ${beam.score}`);
      setText(score, beam.score.toFixed(2).replace("-", "−"));
      setText(owner, beam.isLast ? beam.seq : "");
      setText(fate, beam.isLast ? "" : beam.alive ? ", kept" : ", goes no further");
      setAttr(below, "hidden", beam.children.length ? null : "");
      drawLevel(below, beam.children, view, event);
    },
  );
}
