// Top: what the server is doing, the operation and its sentence, and a refusal with its numbers.
import { h, setAttr, setText } from "../dom.js";
import { marked } from "../text.js";

export function makeHeader() {
  const status = h("p", { class: "server-status", role: "status" });
  const operation = h("p", { class: "op quiet" });
  const sentence = h("p", { class: "sentence", "aria-live": "polite" });
  const notice = h("div", { class: "notice", hidden: "" }, h("b"), h("p"), h("p", { class: "quiet" }, "Nothing has changed."));
  return { node: h("header", { class: "top" }, status, operation, sentence, notice), status, operation, sentence, notice };
}

export function drawHeader(ui, { info, step, steps, event, status }) {
  setText(ui.status, status);
  setText(ui.operation, info?.op_text ?? "");
  const words = info?.sentence ?? (steps.length ? "The start: no step has been taken yet." : "Nothing has happened yet.");
  if (ui.sentence.textContent !== words) ui.sentence.replaceChildren(...marked(words));
  setAttr(ui.sentence, "data-key", step);
  const refused = info?.refused ?? null;
  setAttr(ui.notice, "hidden", refused ? null : "");
  if (!refused) return;
  const { needed, free, total } = refused;
  const there = free === undefined ? (total === undefined ? null : `${total} in all`) : `${free} free`;
  setText(ui.notice.children[0], `Refused${needed === undefined || there === null ? "" : `: ${needed} needed, ${there}`}.`);
  setText(ui.notice.children[1], refused.sentence === words ? "" : refused.sentence);
  setAttr(ui.notice, "data-kind", event.kind);
}
