// Who waits, who runs, who was swapped out, and how this step's token budget is spent. Only for runs with requests.
import { h, setAttr, setText, syncKeyed } from "./dom.js";
import { sampledOf } from "./derive.js";
import { isHost } from "./replay.js";
import { tokenText } from "./text.js";

const LANES = ["waiting", "running", "swapped"];
const MOST_CARDS = 12; // in a lane
const MOST_SEATS = 8;

export function makeRequests() {
  const lanes = Object.fromEntries(LANES.map((name) => [name, makeLaneOf(name)]));
  const spent = h("div", { class: "budget", role: "img" });
  const title = h("p", { class: "quiet budget-title" });
  const head = h("div", { class: "requests-head" }, h("h3", {}, "Requests"), title, spent);
  const node = h("section", { class: "requests", "aria-label": "Requests", hidden: "" }, head, ...LANES.map((name) => lanes[name].node));
  return { node, lanes, spent, title };
}

function makeLaneOf(name) {
  const title = h("h4", {}, name);
  const list = h("ol", { class: "request-list" });
  const seats = h("p", { class: "seats quiet" }, h("span", { "aria-hidden": "true" }), h("span"));
  const note = h("p", { class: "request-note quiet" });
  const node = h("div", { class: "request-lane", "data-lane-of": name }, h("div", {}, title, seats), h("div", { class: "request-row" }, list, note));
  return { node, list, seats, note };
}

export function drawRequests(ui, view) {
  const { state } = view;
  setAttr(ui.node, "hidden", view.usesRequests ? null : "");
  if (!view.usesRequests) return;
  drawBudget(ui, view);
  for (const name of LANES) drawLaneOf(ui.lanes[name], name, state[name], view);
  setAttr(ui.lanes.swapped.node, "hidden", view.usesSwap ? null : "");
  setText(ui.lanes.waiting.note, waitsWords(state));
  const idle = view.maxSeqs === null ? 0 : view.maxSeqs - state.running.length;
  const [signs, words] = ui.lanes.running.seats.children;
  setText(signs, "▢".repeat(Math.min(idle, MOST_SEATS)));
  setText(words, idle ? `${idle} of ${view.maxSeqs} seats idle` : "");
}

// Why the first in line waits is told when the reason is a new one: of an earlier step it is said that it was then.
function waitsWords({ waits, engineStep }) {
  if (!waits) return "";
  return waits.engineStep === engineStep ? `${waits.seq_id} waits: ${waits.reason}` : `${waits.seq_id} had to wait in engine step ${waits.engineStep}: ${waits.reason}`;
}

// The first of a long lane, and its last, who is preempted first.
const fewOf = (all) => (all.length <= MOST_CARDS ? all : [...all.slice(0, MOST_CARDS - 2), null, all[all.length - 1]]);

function drawLaneOf(lane, name, all, view) {
  setAttr(lane.list, "aria-label", `${name}: ${all.length} ${all.length === 1 ? "request" : "requests"}${name === "waiting" && all.length > 1 ? ", first in line first" : ""}`);
  setAttr(lane.list, "data-length", all.length);
  syncKeyed(
    lane.list,
    all.length ? fewOf(all) : [""],
    (seq) => (seq === null ? "more" : `:${seq}`),
    (seq) => (seq ? makeRequest(seq) : h("li", { class: "quiet" })),
    (node, seq) => {
      if (seq) drawRequest(node, seq, name, view);
      else setText(node, seq === null ? `⋯ ${all.length - MOST_CARDS + 1} more` : "nobody");
    },
  );
}

function makeRequest(seq) {
  return h(
    "li",
    { class: "request", "data-request": seq },
    h("div", { class: "request-head" }, h("bdi", { class: "owner" }, seq), h("span", { class: "quiet priority" }), h("b", { class: "share" })),
    h("p", { class: "request-size" }),
    h("p", { class: "request-state" }, h("span"), h("bdi", { class: "request-token", dir: "auto" })),
  );
}

function drawRequest(node, seq, lane, view) {
  const { state, event } = view;
  const { prompt, output, numTokens, priority, salt } = state.requests.get(seq);
  const colour = view.colours.get(seq);
  const scheduled = state.scheduled.get(seq);
  const sampled = lane === "running" ? sampledOf(state, seq) : null;
  const about = event?.seq_id === seq || event?.seq_ids?.includes(seq);
  node.style.setProperty("--fill", colour.fill);
  node.style.setProperty("--fill-text", colour.text);
  setAttr(node, "data-now", about ? "" : null);
  setAttr(node, "data-scheduled", scheduled ?? null);
  setAttr(node, "data-preempted", state.preempted.get(seq) ?? null);
  const [head, size, words] = node.children;
  const notes = [priority === 0 ? "" : `priority ${priority}`, salt === null || salt === undefined ? "" : `salt “${salt}”`];
  setText(head.children[1], notes.filter(Boolean).join(", "));
  setText(head.children[2], scheduled === undefined ? "" : `${scheduled} in this step`);
  setText(size, `prompt ${prompt.length}, output ${output.length} of ${numTokens}`);
  setText(words.children[0], stateOf(state, seq, sampled));
  setText(words.children[1], sampled === null ? "" : tokenText(sampled));
}

function stateOf(state, seq, sampled) {
  const { prompt, output } = state.requests.get(seq);
  const known = prompt.length + output.length;
  const how = state.preempted.get(seq);
  if (state.swapped.includes(seq)) return swapWords(state, state.tables.get(seq) ?? []);
  if (how) return `preempted: computes ${known} ${known === 1 ? "token" : "tokens"} again`;
  if (sampled !== null) return "sampled, in no slot:";
  const computed = state.tokens.get(seq)?.length ?? 0;
  return state.running.includes(seq) && computed < known ? `${computed} of ${known} tokens computed` : "";
}

// All of its blocks on the host, or on their way; what others name as well stays where it is.
function swapWords({ refs }, row) {
  const onHost = row.filter(isHost).length;
  const left = row.filter((entry) => !isHost(entry));
  if (!left.length) return `swapped out: all ${onHost} blocks on the host`;
  const shared = left.filter((block) => refs[block] > 1).length;
  if (shared === left.length && onHost) return `swapped out: ${onHost} blocks on the host, ${shared} shared and still here`;
  return `in transfer: ${onHost} of ${row.length} blocks on the host`;
}

function drawBudget(ui, { state, colours }) {
  const used = [...state.scheduled];
  const left = state.tokenBudget - used.reduce((sum, [, count]) => sum + count, 0);
  setText(ui.title, state.tokenBudget ? `engine step ${state.engineStep}, ${left} left of a budget of ${state.tokenBudget} tokens` : "no step has been taken yet");
  setAttr(ui.spent, "data-empty", state.tokenBudget ? null : "");
  const shares = used.map(([seq, count]) => `${seq} ${count}`);
  setAttr(ui.spent, "aria-label", state.tokenBudget ? `Token budget ${state.tokenBudget}: ${[...shares, `${left} left`].join(", ")}` : "No token budget yet");
  setAttr(ui.spent, "data-left", left);
  const parts = [...used.map(([seq, count]) => ({ seq, count })), ...(left > 0 ? [{ seq: null, count: left }] : [])];
  syncKeyed(ui.spent, parts, ({ seq }) => (seq === null ? "left" : `:${seq}`), () => h("span", {}, h("bdi"), h("span")), (node, { seq, count }) => {
    const colour = seq === null ? null : colours.get(seq);
    node.style.setProperty("flex-grow", count);
    node.style.setProperty("--fill", colour?.fill ?? "none");
    node.style.setProperty("--fill-text", colour?.text ?? "var(--quiet)");
    setAttr(node, "data-share", seq ?? null);
    setAttr(node, "title", seq === null ? `${count} left` : `${seq}: ${count}`);
    // A name may run from right to left; the number stands behind it all the same.
    setText(node.firstElementChild, seq ?? `${count} left`);
    setText(node.lastElementChild, seq === null ? "" : ` ${count}`);
  });
}
