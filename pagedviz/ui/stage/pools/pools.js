// The device pool and the host pool as fixed grids (a block never moves), and their free queues.
import { h, setAttr, setText } from "../dom.js";
import { hostEntry } from "../state/entries.js";
import { drawGrid } from "./physical.js";
import { drawFreeQueue } from "./free_queue.js";
import { drawLegend, makeLegend } from "./legend.js";
import { drawTier, makeTier } from "./tier.js";
import { BigPool } from "./big_pool.js";

const GRID_LIMIT = 64;
const QUEUE_LIMIT = { grid: 40, big: 12 };

export function makePools(highlight) {
  const part = (name, attribute) => {
    const title = h("h3");
    const body = h("div", { class: "pool", [attribute]: "" });
    const queueTitle = h("h3", {}, "Free queue");
    const queue = h("ol", { class: "queue", "aria-label": `${name} free queue, next out first` });
    const queueBox = h("div", { class: "queue-box" }, queueTitle, queue);
    const node = h("section", { class: "pool-box", "aria-label": `${name} pool` }, title, body, queueBox);
    return { node, title, body, queue, queueTitle, big: null };
  };
  const device = part("device", "data-pool");
  const host = part("host", "data-host-pool");
  const tier = makeTier();
  return { node: h("div", { class: "pools" }, device.node, host.node, tier.node), device, host, tier, legend: makeLegend(), highlight };
}

export function drawPools(ui, view) {
  const { state } = view;
  setAttr(ui.node, "data-hashes", view.features.hashes ? "" : null);
  drawLegend(ui.legend, view.features);
  drawPool(ui, ui.device, view, Array.from({ length: state.numBlocks }, (_, block) => block), {
    title: `Device pool`,
    detail: ` ${state.numBlocks} blocks of ${state.blockSize} tokens`,
    free: state.free,
  });
  ui.device.title.append(ui.legend);
  drawTier(ui.tier, view);
  setAttr(ui.host.node, "hidden", state.hostBlocks ? null : "");
  setAttr(ui.host.node, "data-quiet", view.features.host ? null : "");
  if (!state.hostBlocks) return;
  drawPool(ui, ui.host, view, Array.from({ length: state.hostBlocks }, (_, block) => hostEntry(block)), {
    title: "Host pool",
    detail: view.features.host ? ` ${state.hostBlocks} blocks` : ` ${state.hostBlocks} blocks, none used in this run`,
    free: state.hostFree.map(hostEntry),
  });
}

function drawPool(ui, part, view, entries, { title, detail, free }) {
  if (!part.title.firstChild) part.title.append(h("span"), h("span", { class: "quiet" }));
  setText(part.title.children[0], title);
  setText(part.title.children[1], detail);
  setText(part.queueTitle, part === ui.host ? "Host free queue" : "Free queue");
  const big = entries.length > GRID_LIMIT;
  drawFreeQueue(part.queue, view.state.cached, free, big ? QUEUE_LIMIT.big : QUEUE_LIMIT.grid);
  setAttr(part.body, "data-big", big ? "" : null);
  if (big) {
    if (!part.big) {
      part.big = new BigPool(ui.highlight, part === ui.host);
      part.body.replaceChildren(part.big.node);
    }
    part.big.draw(view, entries);
    return;
  }
  if (part.big) {
    part.big.destroy();
    part.big = null;
    part.body.replaceChildren();
  }
  drawGrid(part.body, entries, view);
}
