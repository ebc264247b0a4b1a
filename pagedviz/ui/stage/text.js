// Words and colours of the page around us.
import { h } from "./dom.js";

// A token as it is written in a cell; white space gets a sign, so that it is not an empty cell.
export const tokenText = (token) => {
  const text = String(token);
  return text.trim() === "" ? text.replace(/\n/g, "⏎").replace(/[ \t]/g, "␣") || "∅" : text;
};

// "A", "A and B", "A, B and C".
export const listed = (names) =>
  names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names[names.length - 1]}`;

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
