// Source code with one statement lit.
import { h, setAttr, setText } from "../dom.js";

// An excerpt with the statement lit that begins on a line; `which` keeps it apart from excerpts of the same file and length.
export function drawCode(ui, excerpt, line, which) {
  const key = `${which}:${line}:${excerpt.file}:${excerpt.first_line}:${excerpt.lines.length}`;
  if (ui.code.dataset.key === key) return;
  setAttr(ui.code, "data-key", key);
  const lit = line === null ? -1 : line - excerpt.first_line;
  const end = line === null ? -1 : (excerpt.statements[line] ?? line) - excerpt.first_line;
  const indent = Math.min(...excerpt.lines.filter((text) => text.trim()).map((text) => text.search(/\S/)), 40);
  ui.code.replaceChildren(
    ...excerpt.lines.map((text, i) => {
      const shown = text.slice(indent) || " ";
      const quiet = /^\s*(#|"""|''')/.test(text);
      return h("span", { class: quiet ? "code-line quiet" : "code-line", "data-lit-line": i === lit ? "" : null, "data-lit-more": i > lit && i <= end ? "" : null, "aria-current": i === lit ? "true" : null }, shown);
    }),
  );
  setAttr(ui.code, "aria-label", `Source of ${excerpt.name}${line === null ? "" : `, line ${line} lit`}`);
  setText(ui.place, line === null ? excerpt.file : `${excerpt.file}:${line}`);
  ui.unsettled = true;
}

// Brings the lit line to the middle; after the whole draw, so that the page is laid out once.
export function settleCode(ui) {
  if (!ui.unsettled) return;
  ui.unsettled = false;
  const line = ui.code.querySelector("[data-lit-line]");
  if (line) ui.code.scrollTop = line.offsetTop - ui.code.clientHeight / 2 + line.offsetHeight / 2;
}
