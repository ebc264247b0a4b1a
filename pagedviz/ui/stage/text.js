// Text as it is written on the page, and whether the page is dark.
import { h } from "./dom.js";

// A token as it is written in a cell; white space gets a sign, so that it is not an empty cell.
export const tokenText = (token) => {
  const text = String(token);
  return text.trim() === "" ? text.replace(/\n/g, "⏎").replace(/[ \t]/g, "␣") || "∅" : text;
};

// "A", "A and B", "A, B and C".
export const listed = (names) =>
  names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names[names.length - 1]}`;

// 0.00032 as 3.2e-04, and 1e-4 as 1e-04.
export const shortNumber = (value) => (value === 0 ? "0" : Math.abs(value) >= 0.001 && Math.abs(value) < 1000 ? String(Number(value.toPrecision(2))) : value.toExponential(1).replace("e-", "e-0").replace(/e-0(\d\d)/, "e-$1"));
export const tolerance = (value) => value.toExponential().replace(/e-(\d)$/, "e-0$1");

const PARTS = /“[^”]*”|(?<=\b(?:[Bb]locks?|slots?|chunks?) |\b(?:blocks|chunks) \[(?:\d+, )*|\bslots (?:\d+, )*)\d+/g;

// The sentence with its block and slot numbers in bold and its tokens kept apart (they may run right to left).
// Everything stays text.
export function marked(sentence) {
  const out = [];
  let at = 0;
  for (const { 0: part, index } of sentence.matchAll(PARTS)) {
    out.push(sentence.slice(at, index), part.startsWith("“") ? h("bdi", {}, part) : h("b", {}, part));
    at = index + part.length;
  }
  out.push(sentence.slice(at));
  return out.filter((part) => part !== "");
}

// Dark or light: by the luminance of Streamlit's background.
export function isDark(node) {
  const style = getComputedStyle(node);
  const probe = document.createElement("canvas").getContext("2d");
  probe.fillStyle = "#ffffff";
  probe.fillStyle = style.getPropertyValue("--st-background-color").trim() || "#ffffff";
  const hex = probe.fillStyle;
  const [r, g, b] = hex.startsWith("#")
    ? [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16))
    : hex.match(/[\d.]+/g).map(Number);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b < 128;
}
