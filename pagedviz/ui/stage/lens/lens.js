// The kernel lens: what the decode kernel read, turn by turn, for one sequence, layer and head at the current step.
// It asks Python, shows nothing but the answer to what it asks just now, and while it is closed it does nothing at all.
import { h, setAttr, setText, syncKeyed } from "../dom.js";
import { endOf } from "../state/entries.js";
import { PATHS, icon, iconButton } from "../icons.js";
import { settleCode } from "../panel/code.js";
import { shortNumber, tolerance } from "../text.js";
import { phasesOf, sentenceOf, stopsOf, turnName } from "./stops.js";
import { drawTurns, makeTurns, settleTurns } from "./turns.js";
import { drawStrips, makeStrips } from "./strips.js";
import { drawMarks } from "./marks.js";
import { drawLensSource, drawPhases, makeLensSource, makePhases } from "./source.js";

const GLASS = "M7 2.500a4.500 4.500 0 1 0 0 9 4.500 4.500 0 0 0 0-9zM10.300 10.300 14 14";
const SPLITS = [1, 2, 3, 4];
const PHASE_MS = 75;
const TURN_MS = 1600;
const ASKED = ["run", "step", "seq_id", "layer", "head", "num_splits"];

const keyOf = (asked) => asked && JSON.stringify(ASKED.map((name) => asked[name]));
const hasTokens = (state, seq) => (state.tokens.get(seq)?.length ?? 0) > 0;

// The learner's choice while it is there; else the one this step is about, the one before, or the first with tokens.
function sequenceOf({ state, event }, chosen, before) {
  const about = [chosen, event?.seq_id, event?.parent, ...(event?.seq_ids ?? []), before, ...state.tables.keys()];
  return about.find((seq) => hasTokens(state, seq)) ?? null;
}

export class Lens {
  constructor(stage) {
    this.stage = stage;
    this.isOpen = false;
    this.choice = { seq: null, layer: null, head: 0, splits: 1 };
    this.wanted = null; // what is asked just now, what Python was told of it, and what it will be told soon
    this.told = null;
    this.due = null;
    this.still = window.matchMedia("(prefers-reduced-motion: reduce)");
    this.node = h("div", { class: "lens-place", hidden: "" });
    this.button = iconButton(GLASS, "Lens", { class: "lens-toggle", "aria-label": "Kernel lens", "aria-pressed": "false", "aria-keyshortcuts": "K", title: "Kernel lens (K)", hidden: "" });
    this.button.querySelector("svg").classList.remove("solid");
    this.button.addEventListener("click", () => this.toggle());
  }

  build() {
    this.say = h("p", { class: "lens-say", "aria-live": "polite" });
    this.selects = Object.fromEntries(["sequence", "layer", "head", "splits"].map((name) => [name, h("select", { "aria-label": `Lens: ${name}` })]));
    const { sequence, layer, head, splits } = this.selects;
    const choose = (select, name, read) => select.addEventListener("change", () => {
      this.choice[name] = read(select.value);
      this.stage.draw();
      this.askNow();
    });
    choose(sequence, "seq", String);
    choose(layer, "layer", Number);
    choose(head, "head", Number);
    choose(splits, "splits", Number);
    const button = (path, name, key, act) => {
      const node = iconButton(path, name, { "aria-keyshortcuts": key, title: `${name} (${key})` });
      node.addEventListener("click", act);
      return node;
    };
    this.back = button(PATHS.back, "Previous turn", "J", () => this.turn(-1));
    this.player = button(PATHS.play, "Play turns", "P", () => this.toggleTurns());
    this.forward = button(PATHS.forward, "Next turn", "L", () => this.turn(1));
    this.phases = makePhases((name) => this.toPhase(name));
    this.turns = makeTurns((index) => this.goTo(index));
    this.strips = makeStrips();
    this.verdict = h("div", { class: "verdict", role: "group", "aria-label": "The lens against dense attention" }, h("p", { class: "big" }, h("span", { class: "mark", "aria-hidden": "true" }), h("span")), h("p"));
    this.about = h("p", { class: "quiet" });
    const keys = h("p", { class: "quiet" }, "J L turn · , . phase · P plays turns · ↑ ↓ in the lanes · K closes");
    this.source = makeLensSource();
    const close = h("button", { type: "button", class: "lens-close", "aria-label": "Close the lens", title: "Close the lens (K)" }, icon(PATHS.failed));
    close.addEventListener("click", () => {
      this.toggle();
      this.button.focus();
    });
    const label = (name) => h("label", { class: "quiet" }, `${name} `, this.selects[name]);
    this.body = h("div", { class: "lens-body" },
      h("div", { class: "lens-bar" }, h("div", { class: "lens-buttons" }, this.back, this.player, this.forward), this.phases.node),
      this.turns.node, h("div", { class: "lens-found" }, this.verdict, this.strips.node), h("div", { class: "lens-about" }, this.about, keys));
    this.section = h("section", { class: "lens", "aria-label": "Kernel lens" },
      h("div", { class: "lens-head" }, h("h3", {}, "Kernel lens"), h("div", { class: "lens-choices" }, label("sequence"), label("layer"), label("head"), label("splits")), close),
      this.say, this.body);
    this.section.addEventListener("focusin", ({ target }) => target.matches("[data-tip]:focus-visible") && this.stage.highlight.tip.showOf(target));
    this.section.addEventListener("focusout", () => this.stage.highlight.tip.hide());
    // a lane or a dimension has nothing to pin
    this.section.addEventListener("keydown", (event) => event.key === "Enter" && event.target.matches("[data-rove]") && event.stopPropagation());
    this.node.append(this.section);
    this.stage.panel.node.append(this.source.node);
  }

  toggle() {
    this.isOpen = !this.isOpen && Boolean(this.stage.data.cache);
    if (this.isOpen && !this.section) this.build();
    if (!this.isOpen) this.choice.seq = null;
    this.stage.draw();
    this.askNow();
    this.unseen = this.isOpen;
  }

  // What is asked at this step, and the answer to just that, before the stage is drawn.
  follow(view) {
    const { data } = this.stage;
    if (!data.cache) this.isOpen = false;
    this.view = view;
    const shown = this.answer;
    this.answer = null;
    if (!this.isOpen) {
      this.wanted = this.stops = null;
    } else {
      const { num_layers: layers, num_heads: heads } = data.cache;
      this.seq = sequenceOf(view, this.choice.seq, this.seq);
      this.layer = Math.min(this.choice.layer ?? layers - 1, layers - 1);
      this.head = Math.min(this.choice.head, heads - 1);
      const { seq, layer, head } = this;
      this.wanted = seq === null ? null : { run: data.run, step: view.step, seq_id: seq, layer, head, num_splits: this.choice.splits };
      if (this.wanted && keyOf(data.lens?.asked) === keyOf(this.wanted)) this.answer = data.lens.answer;
      if (!this.answer || this.answer.refused) this.stops = null;
      else if (!this.stops || this.shownFor !== keyOf(this.wanted)) this.start();
      view.chosen = seq ?? view.chosen;
      view.reading = { seq, logical: this.turnNow()?.logical_block ?? null };
    }
    if (!this.stops) this.halt();
    if (shown && !this.answer && this.section) this.section.style.minHeight = `${this.section.offsetHeight}px`; // nothing jumps while it asks
    if (keyOf(this.wanted) !== this.told && keyOf(this.wanted) !== this.due) this.stage.tellSoon();
    this.due = keyOf(this.wanted);
  }

  start() {
    this.halt();
    this.shownFor = keyOf(this.wanted);
    this.stops = stopsOf(this.answer);
    this.index = 0;
    this.phase = Infinity;
    this.lightPhases();
  }

  askNow() {
    if (keyOf(this.wanted) === this.told) return;
    this.told = keyOf(this.wanted);
    this.stage.tell("lens", this.wanted);
  }

  actionOf(key) {
    if (key.toLowerCase() === "k") return this.stage.data?.cache ? () => this.toggle() : undefined;
    if (!this.stops) return undefined;
    return { j: () => this.turn(-1), l: () => this.turn(1), ",": () => this.stepPhase(-1), ".": () => this.stepPhase(1), p: () => this.toggleTurns() }[key.toLowerCase()];
  }

  halt() {
    clearInterval(this.lighting);
    clearTimeout(this.playing);
    this.lighting = this.playing = null;
  }

  lastPhase() {
    return Math.max(0, phasesOf(this.answer, this.stops[this.index]).length - 1);
  }

  // The phases of a turn light up one after the other, all within 400 ms; without motion the turn is there at once.
  lightPhases() {
    clearInterval(this.lighting);
    this.phase = this.still.matches ? this.lastPhase() : 0;
    if (this.phase === this.lastPhase()) return;
    this.inPassing = true;
    this.lighting = setInterval(() => {
      this.phase += 1;
      if (this.phase >= this.lastPhase()) {
        clearInterval(this.lighting);
        this.inPassing = false;
      }
      this.draw();
    }, PHASE_MS);
  }

  goTo(index, { playing = false } = {}) {
    if (!playing) this.halt();
    const forward = index >= this.index;
    this.index = Math.max(0, Math.min(index, this.stops.length - 1));
    this.inPassing = false;
    this.phase = this.lastPhase();
    if (forward) this.lightPhases();
    this.stage.draw();
  }

  turn(by) {
    if (this.stops[this.index + by]) this.goTo(this.index + by);
  }

  stepPhase(by) {
    this.halt();
    this.inPassing = false;
    const phase = Math.min(this.phase, this.lastPhase()) + by;
    if (phase >= 0 && phase <= this.lastPhase()) this.phase = phase;
    else if (this.stops[this.index + by]) {
      this.index += by;
      this.phase = by > 0 ? 0 : this.lastPhase();
    }
    this.stage.draw();
  }

  toPhase(name) {
    this.halt();
    this.inPassing = false;
    const inStop = (stop) => phasesOf(this.answer, stop).findIndex((phase) => phase.name === name);
    if (inStop(this.stops[this.index]) < 0) {
      const ahead = this.stops.findIndex((stop, i) => i > this.index && inStop(stop) >= 0);
      this.index = ahead >= 0 ? ahead : this.stops.findLastIndex((stop) => inStop(stop) >= 0);
    }
    this.phase = inStop(this.stops[this.index]);
    this.stage.draw();
  }

  toggleTurns() {
    if (this.playing) {
      this.halt();
      return this.stage.draw();
    }
    this.stage.stop();
    const next = () => {
      this.goTo(this.index + 1, { playing: true });
      this.playing = this.index < this.stops.length - 1 ? setTimeout(next, TURN_MS) : null;
      this.draw();
    };
    if (this.index === this.stops.length - 1) this.goTo(0);
    this.playing = setTimeout(next, this.index ? 60 : TURN_MS / 2);
    this.stage.draw();
  }

  turnNow() {
    const stop = this.stops?.[this.index];
    return stop?.kind === "turn" ? this.answer.splits[stop.split].turns[stop.turn] : null;
  }

  // All that the drawings need to know of where the lens is.
  scene() {
    const { answer, stops, index } = this;
    const stop = stops[index];
    const phases = phasesOf(answer, stop);
    const phase = Math.min(this.phase, this.lastPhase());
    const known = (what, at) => at < index || (at === index && phase >= phases.findIndex(({ name }) => name === what));
    return { answer, stops, index, stop, phases, phase, known, tokens: this.view.state.tokens.get(this.seq), group: this.layer % this.view.state.windows.length };
  }

  draw() {
    const { root, highlight } = this.stage;
    setAttr(this.button, "hidden", this.stage.data.cache ? null : "");
    setAttr(this.button, "aria-pressed", String(this.isOpen));
    setAttr(root, "data-lens", this.isOpen ? "" : null);
    setAttr(this.node, "hidden", this.isOpen ? null : "");
    const turn = this.turnNow();
    const read = turn ? endOf(turn.block) : null;
    if (!this.section) return;
    const scene = this.stops ? this.scene() : null;
    if (scene || this.marked) drawMarks(root, scene);
    this.marked = scene !== null;
    if (highlight.read !== read) {
      highlight.read = read;
      if (read) this.stage.pools.device.big?.reveal(turn.block);
      highlight.light();
    }
    const asking = this.isOpen && this.wanted && !this.answer;
    setAttr(this.source.node, "hidden", scene || (asking && this.source.code.firstChild) ? null : "");
    if (!this.isOpen) return;
    this.drawChoices();
    setAttr(this.section, "data-state", scene ? "answered" : asking ? "asking" : this.wanted ? "refused" : "nothing");
    setAttr(this.body, "hidden", scene ? null : "");
    setAttr(this.section, "data-whole", scene && scene.phase === this.lastPhase() ? "" : null);
    setText(this.say, this.words(scene));
    if (scene) this.drawScene(scene);
  }

  words(scene) {
    if (!this.wanted) return "No sequence has a token here, so there is nothing to attend to.";
    if (this.answer?.refused) return this.answer.refused;
    if (!scene) return "asking the kernel…";
    const { answer, stop, phases, phase } = scene;
    if (this.inPassing || stop.kind !== "turn" || phase === phases.length - 1) return sentenceOf(answer, stop);
    return `${turnName(answer, stop)}, ${phases[phase].name}: ${phases[phase].says}`;
  }

  drawChoices() {
    const { sequence, layer, head, splits } = this.selects;
    const { cache } = this.stage.data;
    const groups = this.view.state.windows.length;
    const fill = (select, values, value, named = (item) => item) => {
      syncKeyed(select, values, (item) => `:${item}`, (item) => h("option", { value: item }, named(item)), null);
      if (value !== null && select.value !== String(value)) select.value = String(value);
    };
    const upTo = (count) => Array.from({ length: count }, (_, i) => i);
    fill(sequence, [...this.view.state.tables.keys()].filter((seq) => hasTokens(this.view.state, seq)), this.seq);
    fill(layer, upTo(cache.num_layers), this.layer, (item) => (groups > 1 ? `${item}, group ${item % groups}` : item));
    fill(head, upTo(cache.num_heads), this.head);
    fill(splits, SPLITS, this.choice.splits);
  }

  drawScene(scene) {
    const { answer, stops, index } = scene;
    this.section.style.minHeight = "";
    const { fill, text } = this.view.colours.get(answer.seq_id);
    this.section.style.setProperty("--fill", fill);
    this.section.style.setProperty("--fill-text", text);
    setAttr(this.back, "aria-disabled", index === 0 ? "true" : null);
    setAttr(this.forward, "aria-disabled", index === stops.length - 1 ? "true" : null);
    const name = this.playing ? "Pause turns" : "Play turns";
    if (this.player.lastElementChild.textContent !== name) {
      this.player.firstElementChild.replaceWith(icon(this.playing ? PATHS.pause : PATHS.play, true));
      setText(this.player.lastElementChild, name);
      setAttr(this.player, "title", `${name} (P)`);
    }
    drawPhases(this.phases, scene);
    drawTurns(this.turns, scene);
    drawStrips(this.strips, scene);
    drawLensSource(this.source, scene);
    settleCode(this.source);
    settleTurns(this.turns);
    this.drawVerdict(answer, index === stops.length - 1);
    if (this.unseen) this.section.scrollIntoView({ block: "nearest" }); // once, when what was opened is there
    this.unseen = false;
    const padding = answer.lanes - answer.block_size;
    const tile = padding > 0 ? ` A turn has ${answer.lanes} lanes; the ${padding} beyond the block are padding, and masked always.` : "";
    const many = this.stage.pools.device.big ? " In a pool this large only the current block is ringed." : "";
    setText(this.about, `Scores are in powers of 2, scale ${shortNumber(answer.scale)}.${tile}${many} ${answer.backend}, ${Math.round(answer.ms)} ms.`);
  }

  // At the end; at once when it is wrong.
  drawVerdict({ ok, max_error: error, tolerance: most }, atEnd) {
    setAttr(this.verdict, "hidden", atEnd || !ok ? null : "");
    const state = ok ? "ok" : "failed";
    if (this.verdict.dataset.state !== state) this.verdict.querySelector(".mark").replaceChildren(icon(PATHS[state]));
    setAttr(this.verdict, "data-state", state);
    setAttr(this.verdict, "role", ok ? "group" : "alert");
    const found = error === null ? "not finite" : shortNumber(error);
    setText(this.verdict.firstElementChild.lastElementChild, ok ? found : `wrong: ${found}`);
    const said = error === null ? "the kernel's numbers or dense attention's are NaN or infinite, so nothing can be compared" : "largest difference between what the kernel gives and dense attention";
    setText(this.verdict.lastElementChild, `${said}, tolerance ${tolerance(most)}`);
  }

  destroy() {
    this.halt();
  }
}
