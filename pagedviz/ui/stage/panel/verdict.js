// The verdict of a step's check against dense attention.
import { h, setAttr, setText, syncKeyed } from "../dom.js";
import { icon, PATHS } from "../icons.js";
import { shortNumber, tolerance } from "../text.js";

const plural = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;

export const verdictOf = (check) => (check === null || check === undefined ? "pending" : check.ok ? "ok" : "failed");

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
  const sequences = plural(check.compared, "sequence");
  if (check.ok) return { headline: shortNumber(check.max_error), lines: [over, hold, `${sequences}, ${timing}`], broken: [] };
  const names = check.failed_sequences ?? [];
  const failed = names.length ? `failed for ${names.join(", ")}` : "failed";
  const reason = notFinite ? "NaN in the output" : off ? shortNumber(check.max_error) : plural(bad, "broken invariant");
  const lines = [notFinite ? "the kernel read a slot that nobody wrote" : off ? over : null, hold, `${sequences}, ${timing}`];
  return { headline: `${failed}: ${reason}`, lines: lines.filter(Boolean), broken: check.invariants };
}

export function drawVerdict(ui, check, backend) {
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
