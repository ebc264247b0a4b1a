// Which requests wait, run and are swapped out, and how this step's token budget is spent. Only for runs with requests.
import { h, setAttr, setText, syncKeyed } from "../dom.js";
import { drawBeams, makeBeams } from "./beams.js";
import { isHost } from "../state/entries.js";
import { isSeveral, widthOf } from "../state/requests.js";
import { sampledOf } from "../derived/slots.js";
import { tokenText } from "../text.js";

const LANES = ["waiting", "running", "swapped"];
const MOST_CARDS = 12; // in a lane
const MOST_SEATS = 8;

export function makeRequests() {
  const lanes = Object.fromEntries(LANES.map((name) => [name, makeLaneOf(name)]));
  const spent = h("div", { class: "budget", role: "img" });
  const title = h("p", { class: "quiet budget-title" });
  const head = h("div", { class: "requests-head" }, h("h3", {}, "Requests"), title, spent);
  const beams = makeBeams();
  const node = h("section", { class: "requests", "aria-label": "Requests", hidden: "" }, head, ...LANES.map((name) => lanes[name].node), beams);
  return { node, lanes, spent, title, beams };
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
  setAttr(ui.node, "hidden", view.features.requests ? null : "");
  if (!view.features.requests) return;
  drawBudget(ui, view);
  for (const name of LANES) drawLaneOf(ui.lanes[name], name, state[name], view);
  setAttr(ui.lanes.swapped.node, "hidden", view.features.swap ? null : "");
  setText(ui.lanes.waiting.note, waitsWords(state));
  const seated = state.running.reduce((sum, id) => sum + widthOf(state.requests.get(id)), 0);
  const idle = view.maxSeqs === null ? 0 : view.maxSeqs - seated;
  const [signs, words] = ui.lanes.running.seats.children;
  setText(signs, "▢".repeat(Math.min(idle, MOST_SEATS)));
  setText(words, idle ? `${idle} of ${view.maxSeqs} seats idle` : "");
  drawBeams(ui.beams, view);
}

// Why the first request of the queue waits. The event comes only with a new reason, so the words name an earlier step.
function waitsWords({ waits, engineStep }) {
  if (!waits) return "";
  return waits.engineStep === engineStep ? `${waits.seq_id} waits: ${waits.reason}` : `${waits.seq_id} had to wait in engine step ${waits.engineStep}: ${waits.reason}`;
}

// Of a long lane the first requests and the last one, which is preempted first.
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

function makeRequest(id) {
  return h(
    "li",
    { class: "request", "data-request": id },
    h("div", { class: "request-head" }, h("bdi", { class: "owner" }, id), h("span", { class: "quiet priority" }), h("b", { class: "share" })),
    h("p", { class: "request-size" }),
    h("p", { class: "request-state" }, h("span"), h("bdi", { class: "request-token", dir: "auto" })),
    h("ul", { class: "request-seqs" }),
  );
}

const isAbout = (event, names) => names.some((name) => event?.seq_id === name || event?.seq_ids?.includes(name));

function drawRequest(node, id, lane, view) {
  const { state, event } = view;
  const request = state.requests.get(id);
  const { prompt, outputs, numTokens, priority, salt, samples = 1, beams = 1 } = request;
  const seqs = [...outputs.keys()];
  const several = isSeveral(request);
  const colour = view.colours.get(seqs[0]);
  const given = seqs.filter((seq) => state.scheduled.has(seq));
  const scheduled = given.length ? given.reduce((sum, seq) => sum + state.scheduled.get(seq), 0) : null;
  const sampled = lane === "running" && !several ? sampledOf(state, id) : null;
  node.style.setProperty("--fill", several ? "var(--ink)" : colour.fill);
  node.style.setProperty("--fill-text", several ? "var(--paper)" : colour.text);
  setAttr(node, "data-now", isAbout(event, [id, ...seqs]) ? "" : null);
  setAttr(node, "data-scheduled", scheduled);
  setAttr(node, "data-preempted", state.preempted.get(id) ?? null);
  const [head, size, words, list] = node.children;
  const how = beams > 1 ? `${beams} beams` : samples > 1 ? `${samples} samples` : "";
  const notes = [how, priority === 0 ? "" : `priority ${priority}`, salt === null || salt === undefined ? "" : `salt “${salt}”`];
  setText(head.children[1], notes.filter(Boolean).join(", "));
  setText(head.children[2], scheduled === null ? "" : `${scheduled} in this step`);
  setText(size, `prompt ${prompt.length}, output ${Math.max(...seqs.map((seq) => outputs.get(seq).length))} of ${numTokens}`);
  setText(words.children[0], stateOf(state, id, seqs, sampled));
  setText(words.children[1], sampled === null ? "" : tokenText(sampled));
  drawSeqs(list, several && lane === "running" ? seqs : [], view);
}

// The sequences of a request that has several, each with its newest output while no slot holds it.
function drawSeqs(list, seqs, view) {
  syncKeyed(list, seqs, (seq) => seq, (seq) => h("li", { "data-seq-of-request": seq }, h("bdi", { class: "owner" }, seq), h("bdi", { class: "request-token", dir: "auto" })), (node, seq) => {
    const colour = view.colours.get(seq);
    node.style.setProperty("--fill", colour.fill);
    node.style.setProperty("--fill-text", colour.text);
    const sampled = sampledOf(view.state, seq);
    setText(node.lastElementChild, sampled === null ? "" : tokenText(sampled));
  });
}

function stateOf(state, id, seqs, sampled) {
  const { prompt, outputs } = state.requests.get(id);
  const known = prompt.length + seqs.reduce((sum, seq) => sum + outputs.get(seq).length, 0);
  const how = state.preempted.get(id);
  if (state.swapped.includes(id)) return swapWords(state, seqs.flatMap((seq) => state.tables.get(seq) ?? []));
  if (how) return `preempted: computes ${known} ${known === 1 ? "token" : "tokens"} again`;
  if (sampled !== null) return "sampled, in no slot:";
  const [first] = seqs;
  const needed = prompt.length + outputs.get(first).length;
  const computed = state.tokens.get(first)?.length ?? 0;
  return state.running.includes(id) && computed < needed && (seqs.length === 1 || computed < prompt.length) ? `${computed} of ${needed} tokens computed` : "";
}

// The blocks of a swapped request are on the host or on their way. A block that other sequences name too stays where it is.
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
  setText(ui.title, state.tokenBudget ? `engine step ${state.engineStep}, ${left} left of a budget of ${state.tokenBudget} tokens` : "no engine step has been taken yet");
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
    // a name may run from right to left; the number still stands behind it
    setText(node.firstElementChild, seq ?? `${count} left`);
    setText(node.lastElementChild, seq === null ? "" : ` ${count}`);
  });
}
