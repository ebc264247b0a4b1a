// The step's numbers: lines of its formula, and the attention weights of the newest token, block by block.
import { h, setAttr, setText, syncKeyed } from "../dom.js";
import { isHost, nameOf } from "../state/entries.js";
import { writesOf } from "../state/blocks.js";
import { tablesIn } from "../state/changes.js";

export function drawNumbers(ui, view) {
  const lines = view.info?.formula ?? [];
  syncKeyed(ui.formula, lines.map((text, i) => ({ text, i })), ({ i }) => i, () => h("p"), (node, { text }) => setText(node, text));
  setAttr(ui.formula, "hidden", lines.length ? null : "");
  const rows = weightRows(view);
  setAttr(ui.weights, "hidden", rows.length ? null : "");
  setAttr(ui.numbers, "hidden", rows.length || lines.length ? null : "");
  syncKeyed(ui.weights, rows, (row) => row.key, makeWeight, (node, row) => {
    setAttr(node, "class", row.share === undefined ? "weight-line" : "weight");
    setText(node.children[0], row.text);
    setText(node.children[1], row.share === undefined ? "" : row.share.toFixed(2));
    node.style.setProperty("--share", row.share === undefined ? 0 : Math.max(0, Math.min(1, row.share)));
    if (row.colour) node.style.setProperty("--fill", row.colour);
  });
}

const makeWeight = () => h("div", {}, h("span"), h("b"), h("i", { "aria-hidden": "true" }));

// Weights come per logical block, or per head and logical block.
function meanOverHeads(weights) {
  if (!Array.isArray(weights?.[0])) return [weights, 1];
  return [weights[0].map((_, j) => weights.reduce((sum, head) => sum + head[j], 0) / weights.length), weights.length];
}

// o = sum of w_j V_j, the weights added up block by block for the newest token of the event's sequence.
function weightRows({ check, event, state, colours, numLayers }) {
  const seq = event?.seq_id ?? writesOf(event)[0]?.seq_id;
  const [weights, heads] = meanOverHeads(check?.weights?.[seq]);
  const group = (numLayers - 1) % state.windows.length; // the weights are those of the last layer
  const row = tablesIn(state, group).get(seq);
  if (!weights || !row || !weights.length) return [];
  const seen = weights.map((share, j) => ({ share, j })).filter(({ share, j }) => share > 0 || row[j] !== state.nullBlock);
  const named = seen.map(({ share, j }) => ({
    key: j,
    text: row[j] === undefined ? `w(logical ${j})` : `w(${isHost(row[j]) ? "host " : ""}block ${nameOf(row[j])})`,
    share,
    colour: colours.get(seq).fill,
  }));
  const few = named.length > 7 ? [...named.slice(0, 3), { key: "gap", text: `⋯ ${named.length - 6} more` }, ...named.slice(-3)] : named;
  const total = weights.reduce((sum, share) => sum + share, 0);
  return [{ key: "o", text: `o(${seq}) = Σₜ wₜ vₜ${state.windows.length > 1 ? ` in the last layer, of group ${group}` : ""}, wₜ by block:` }, ...few, { key: "sum", text: `together ${total.toFixed(2)}, over all blocks${heads > 1 ? `; mean of ${heads} heads` : ""}` }];
}
