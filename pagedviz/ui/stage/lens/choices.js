// What the lens is asked about: a sequence, a layer, a head, and the number of splits.
import { h, syncKeyed } from "../dom.js";

const SPLITS = [1, 2, 3, 4];
const NAMES = ["sequence", "layer", "head", "splits"];

export const hasTokens = (state, seq) => (state.tokens.get(seq)?.length ?? 0) > 0;

// `onChoose` hears the name of a choice and its value.
export function makeChoices(onChoose) {
  const selects = Object.fromEntries(NAMES.map((name) => [name, h("select", { "aria-label": `Lens: ${name}` })]));
  for (const name of NAMES) {
    selects[name].addEventListener("change", ({ target }) => onChoose(name, name === "sequence" ? target.value : Number(target.value)));
  }
  return { node: h("div", { class: "lens-choices" }, ...NAMES.map((name) => h("label", { class: "quiet" }, `${name} `, selects[name]))), selects };
}

export function drawChoices({ selects }, { state, cache, sequence, layer, head, splits }) {
  const groups = state.windows.length;
  const fill = (select, values, value, named = (item) => item) => {
    syncKeyed(select, values, (item) => `:${item}`, (item) => h("option", { value: item }, named(item)), null);
    if (value !== null && select.value !== String(value)) select.value = String(value);
  };
  const upTo = (count) => Array.from({ length: count }, (_, i) => i);
  fill(selects.sequence, [...state.tables.keys()].filter((seq) => hasTokens(state, seq)), sequence);
  fill(selects.layer, upTo(cache.num_layers), layer, (item) => (groups > 1 ? `${item}, group ${item % groups}` : item));
  fill(selects.head, upTo(cache.num_heads), head);
  fill(selects.splits, SPLITS, splits);
}
