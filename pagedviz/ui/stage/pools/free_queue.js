// A free queue: a chip a block, next out first; of a long queue only the first chips.
import { h, setAttr, setText, syncKeyed } from "../dom.js";
import { endOf, nameOf } from "../state/entries.js";
import { shortHash } from "../draw/hashes.js";

export function drawFreeQueue(queue, cached, free, limit) {
  const shown = free.slice(0, limit);
  const items = [...shown, ...(free.length > shown.length ? ["more"] : []), ...(free.length ? [] : ["none"])];
  setAttr(queue, "data-length", free.length);
  syncKeyed(
    queue,
    items,
    (item) => item,
    (item) => (typeof item === "number" ? h("li", {}, h("button", { type: "button", class: "free-chip", "data-rove": "queue", tabindex: "-1", "data-link": endOf(item) }, nameOf(item))) : h("li", { class: "quiet" })),
    (node, item) => {
      if (item === "more") setText(node, `and ${(free.length - shown.length).toLocaleString("en")} more`);
      else if (item === "none") setText(node, "empty: no block is free");
      else {
        const first = item === free[0];
        setAttr(node, "data-free", nameOf(item));
        setAttr(node, "data-head", first ? "" : null);
        const kept = cached.get(item);
        setAttr(node.firstElementChild, "data-kept", kept ? "" : null);
        setAttr(node.firstElementChild, "aria-label", `free block ${nameOf(item)}${first ? ", next out" : ""}${kept ? `, cached, still holds hash ${shortHash(kept.hash)}` : ""}`);
      }
    },
  );
}
