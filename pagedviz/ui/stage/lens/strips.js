// Vectors as signed bars: the accumulator while it grows; at the end the kernel's output beside that of dense attention.
import { h, setAttr, setText, syncKeyed } from "../dom.js";
import { inPowers, newestTurn, shares, shortly } from "./stops.js";

const PRINTED = 16; // dimensions; with more, the numbers are in the tips only

export const makeStrips = () => ({ node: h("div", { class: "strips" }) });

const zeros = (answer) => answer.out.map(() => 0);

// The strips of a stop, each with a note that says what it is.
function stripsOf(scene) {
  const { answer, stop } = scene;
  const dense = { key: "dense", name: "dense out", note: "softmax over the whole sequence at once, float64", values: answer.dense.out };
  const several = answer.splits.length > 1;
  if (stop.kind === "divide" || stop.kind === "join") {
    const counted = shares(answer);
    const parts = answer.splits.map(({ out, lse, turns }, split) => ({
      key: `split${split}`,
      name: several ? `split ${split + 1}` : "acc ÷ l",
      note: !several ? "what the kernel gives" : `${turns.length ? "its acc ÷ its l" : "no block"}, lse ${turns.length ? shortly(lse) : inPowers(lse)}${stop.kind === "join" ? `, counts ${shortly(counted[split])}` : ""}`,
      values: out,
    }));
    if (!several) return [{ ...parts[0], values: answer.out }, dense];
    return stop.kind === "divide" ? parts : [...parts, { key: "out", name: "joined", note: "what the kernel gives", values: answer.out }, dense];
  }
  const { turns } = answer.splits[stop.split];
  const last = newestTurn(scene, stop.split, "values");
  const count = last ? turns.indexOf(last) + 1 : 0;
  const note = count ? `the weighted values after turn ${count}, not divided by l yet` : "starts at zero";
  return [{ key: "acc", name: "accumulator", note, values: last?.acc ?? zeros(answer), scale: turns.flatMap(({ acc }) => acc) }];
}

export function drawStrips(ui, scene) {
  const strips = stripsOf(scene);
  const most = Math.max(1e-12, ...strips.flatMap(({ values, scale }) => scale ?? values).map((value) => Math.abs(value ?? 0)));
  syncKeyed(ui.node, strips, ({ key }) => key, makeStrip, (node, { name, note, values }) => {
    const [title, bars] = node.children;
    setText(title.children[0], name);
    setText(title.children[1], note);
    setAttr(bars, "aria-label", `${name}, ${note}`);
    setAttr(bars, "data-many", values.length > PRINTED ? "" : null);
    syncKeyed(bars, values.map((value, dim) => ({ value, dim })), ({ dim }) => dim, makeDim, (cell, { value, dim }) => {
      const tip = `dimension ${dim}: ${value === null ? "NaN" : shortly(value)}`;
      setAttr(cell, "aria-label", tip);
      setAttr(cell, "data-tip", tip);
      setAttr(cell, "data-sign", value === null ? "nan" : value < 0 ? "minus" : "plus");
      cell.style.setProperty("--share", Math.abs(value ?? 0) / most);
      setText(cell.children[1], values.length > PRINTED ? "" : shortly(value));
    });
  });
}

const makeStrip = () =>
  h("div", { class: "strip" }, h("p", {}, h("b"), h("span", { class: "quiet" })), h("div", { class: "dims", role: "group" }));

const makeDim = () => h("span", { class: "dim", role: "img", "data-rove": "dim", tabindex: "-1" }, h("i"), h("span"));
