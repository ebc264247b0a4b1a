// Right: the verdict of this step's check, the step's numbers, and the line of our own source that did it.
import { h, setAttr, setText, syncKeyed } from "../dom.js";
import { isHost, nameOf } from "../state/entries.js";
import { writesOf } from "../state/blocks.js";
import { tablesIn } from "../state/changes.js";
import { PATHS, icon } from "../icons.js";

export const verdictOf = (check) => (check === null || check === undefined ? "pending" : check.ok ? "ok" : "failed");

export const shortNumber = (value) => (value === 0 ? "0" : Math.abs(value) >= 0.001 && Math.abs(value) < 1000 ? String(Number(value.toPrecision(2))) : value.toExponential(1).replace("e-", "e-0").replace(/e-0(\d\d)/, "e-$1"));
export const tolerance = (value) => value.toExponential().replace(/e-(\d)$/, "e-0$1");
const plural = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;

export function makePanel() {
  const mark = h("span", { class: "mark", "aria-hidden": "true" });
  const headline = h("span", { class: "headline" });
  const lines = h("div", { class: "verdict-lines" });
  const broken = h("ul", { class: "broken" });
  const verdict = h("div", { class: "verdict" }, h("p", { class: "big" }, mark, headline), lines, broken);
  const formula = h("div", { class: "card formula" });
  const weights = h("div", { class: "card weights" });
  const numbers = h("section", { class: "numbers", "aria-label": "This step’s numbers" }, h("h3", {}, "This step’s numbers"), formula, weights);
  const place = h("p", { class: "place quiet" });
  const code = h("pre", { class: "card code", tabindex: "0", role: "region" });
  const source = h("section", { class: "source", "aria-label": "The line that did it" }, h("h3", {}, "The line that did it"), code, place);
  const checked = h("section", { "aria-label": "Checked against dense attention" }, h("h3", {}, "Checked against dense attention"), verdict);
  const node = h("aside", { class: "panel", "aria-label": "Checks, numbers and source" }, checked, numbers, source);
  return { node, verdict, mark, headline, lines, broken, formula, weights, numbers, code, place, source };
}

export function drawPanel(ui, view) {
  drawVerdict(ui, view.check, view.backend);
  drawNumbers(ui, view);
  drawSource(ui, view);
}

// What the check says, as a headline and a few quiet lines.
function verdictWords(check, backend) {
  if (verdictOf(check) === "pending") return { headline: "not checked yet", lines: backend ? [backend] : [], broken: [] };
  const total = check.num_invariants;
  const bad = check.invariants.length;
  const hold = bad ? `${total - bad} of ${total} invariants hold` : `${plural(total, "invariant")} ${total === 1 ? "holds" : "hold"}`;
  const timing = `${check.backend}, ${Math.round(check.ms)} ms`;
  if (check.compared === 0 && check.ok) {
    return { headline: "nothing to compare", lines: ["no sequence with tokens is on the device", hold, timing], broken: [] };
  }
  const notFinite = check.max_error === null && check.compared > 0;
  const off = notFinite || (check.max_error !== null && check.max_error > check.tolerance);
  const over = `largest error in ${plural(check.num_layers, "layer")}, tolerance ${tolerance(check.tolerance)}`;
  const who = plural(check.compared, "sequence");
  if (check.ok) return { headline: shortNumber(check.max_error), lines: [over, hold, `${who}, ${timing}`], broken: [] };
  const names = check.failed_sequences ?? [];
  const failed = names.length ? `failed for ${names.join(", ")}` : "failed";
  const reason = notFinite ? "NaN in the output" : off ? shortNumber(check.max_error) : plural(bad, "broken invariant");
  const lines = [notFinite ? "the kernel read a slot that nobody wrote" : off ? over : null, hold, `${who}, ${timing}`];
  return { headline: `${failed}: ${reason}`, lines: lines.filter(Boolean), broken: check.invariants };
}

function drawVerdict(ui, check, backend) {
  const verdict = verdictOf(check);
  const words = verdictWords(check, backend);
  const empty = verdict === "ok" && check.compared === 0;
  if (ui.verdict.dataset.state !== verdict) {
    setAttr(ui.verdict, "data-state", verdict);
    setAttr(ui.verdict, "role", verdict === "failed" ? "alert" : null);
    ui.mark.replaceChildren(...(verdict === "pending" ? [] : [icon(PATHS[verdict])]));
  }
  setAttr(ui.verdict, "data-compared", empty ? "0" : null);
  setText(ui.headline, words.headline);
  const line = () => h("p");
  syncKeyed(ui.lines, words.lines.map((text, i) => ({ text, i })), ({ i }) => i, line, (node, { text }) => setText(node, text));
  syncKeyed(ui.broken, words.broken.map((text, i) => ({ text, i })), ({ i }) => i, () => h("li"), (node, { text }) => setText(node, text));
}

function drawNumbers(ui, view) {
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
  const group = (numLayers - 1) % state.windows.length; // they are the last layer's
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

function drawSource(ui, view) {
  const at = view.info?.source;
  const excerpt = at ? view.excerpts[at.excerpt] : null;
  setAttr(ui.source, "hidden", excerpt ? null : "");
  if (!excerpt) return;
  drawCode(ui, excerpt, at.line, at.excerpt);
}

// An excerpt with one line lit; `which` tells it from others of the same file and length.
export function drawCode(ui, excerpt, line, which) {
  const key = `${which}:${line}:${excerpt.file}:${excerpt.first_line}:${excerpt.lines.length}`;
  if (ui.code.dataset.key === key) return;
  setAttr(ui.code, "data-key", key);
  const lit = line === null ? -1 : line - excerpt.first_line;
  const indent = Math.min(...excerpt.lines.filter((text) => text.trim()).map((text) => text.search(/\S/)), 40);
  ui.code.replaceChildren(
    ...excerpt.lines.map((text, i) => {
      const shown = text.slice(indent) || " ";
      const quiet = /^\s*(#|"""|''')/.test(text);
      return h("span", { class: quiet ? "code-line quiet" : "code-line", "data-lit-line": i === lit ? "" : null, "aria-current": i === lit ? "true" : null }, shown);
    }),
  );
  setAttr(ui.code, "aria-label", `Source of ${excerpt.name}${line === null ? "" : `, line ${line} lit`}`);
  setText(ui.place, line === null ? excerpt.file : `${excerpt.file}:${line}`);
  ui.unsettled = true;
}

// Brings the lit line to the middle; after the whole draw, so that the page is laid out once.
export function settlePanel(ui) {
  if (!ui.unsettled) return;
  ui.unsettled = false;
  const line = ui.code.querySelector("[data-lit-line]");
  if (line) ui.code.scrollTop = line.offsetTop - ui.code.clientHeight / 2 + line.offsetHeight / 2;
}
