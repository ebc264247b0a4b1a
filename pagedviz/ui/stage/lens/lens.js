// The kernel lens: what the decode kernel read, turn by turn, for one sequence, layer and head at the current step.
// It asks Python and shows only the answer to its newest question. While it is closed it does nothing at all.
import { h, setAttr, setText } from "../dom.js";
import { endOf } from "../state/entries.js";
import { icon, iconButton, PATHS } from "../icons.js";
import { settleCode } from "../panel/code.js";
import { shortNumber } from "../text.js";
import { drawChoices, hasTokens, makeChoices } from "./choices.js";
import { sentenceOf, turnName } from "./stops.js";
import { TurnPlayer } from "./turn_player.js";
import { drawTurns, makeTurns, settleTurns } from "./turns.js";
import { drawStrips, makeStrips } from "./strips.js";
import { drawMarks } from "./marks.js";
import { drawLensSource, drawPhases, makeLensSource, makePhases } from "./source.js";
import { drawVerdict, makeVerdict } from "./verdict.js";

const GLASS = "M7 2.500a4.500 4.500 0 1 0 0 9 4.500 4.500 0 0 0 0-9zM10.300 10.300 14 14";
const ASKED = ["run", "step", "seq_id", "layer", "head", "num_splits"];

const keyOf = (question) => question && JSON.stringify(ASKED.map((name) => question[name]));

// The learner's choice while it is there; else the one this step is about, the one before, or the first with tokens.
function sequenceOf({ state, event }, chosen, before) {
  const about = [chosen, event?.seq_id, event?.parent, ...(event?.seq_ids ?? []), before, ...state.tables.keys()];
  return about.find((seq) => hasTokens(state, seq)) ?? null;
}

export class Lens {
  constructor(stage) {
    this.stage = stage;
    this.isOpen = false;
    this.choice = { sequence: null, layer: null, head: 0, splits: 1 };
    this.question = null; // null: there is nothing to ask
    this.asked = null; // the key of the question that was sent to Python last
    this.due = null; // the key of the question that is sent once the learner rests
    this.player = new TurnPlayer(() => this.stage.draw(), () => this.draw());
    this.node = h("div", { class: "lens-place", hidden: "" });
    this.button = iconButton(GLASS, "Lens", { class: "lens-toggle", "aria-label": "Kernel lens", "aria-pressed": "false", "aria-keyshortcuts": "K", title: "Kernel lens (K)", hidden: "" });
    this.button.querySelector("svg").classList.remove("solid");
    this.button.addEventListener("click", () => this.toggle());
  }

  build() {
    const { player } = this;
    this.say = h("p", { class: "lens-say", "aria-live": "polite" });
    this.choices = makeChoices((name, value) => {
      this.choice[name] = value;
      this.stage.draw();
      this.askNow();
    });
    const button = (path, name, key, act) => {
      const node = iconButton(path, name, { "aria-keyshortcuts": key, title: `${name} (${key})` });
      node.addEventListener("click", act);
      return node;
    };
    this.back = button(PATHS.back, "Previous turn", "J", () => player.turn(-1));
    this.play = button(PATHS.play, "Play turns", "P", () => this.toggleTurns());
    this.forward = button(PATHS.forward, "Next turn", "L", () => player.turn(1));
    this.phases = makePhases((name) => player.toPhase(name));
    this.turns = makeTurns((index) => player.goTo(index));
    this.strips = makeStrips();
    this.verdict = makeVerdict();
    this.about = h("p", { class: "quiet" });
    const keys = h("p", { class: "quiet" }, "J L turn · , . phase · P plays turns · ↑ ↓ in the lanes · K closes");
    this.source = makeLensSource();
    const close = h("button", { type: "button", class: "lens-close", "aria-label": "Close the lens", title: "Close the lens (K)" }, icon(PATHS.failed));
    close.addEventListener("click", () => {
      this.toggle();
      this.button.focus();
    });
    this.body = h("div", { class: "lens-body" },
      h("div", { class: "lens-bar" }, h("div", { class: "lens-buttons" }, this.back, this.play, this.forward), this.phases.node),
      this.turns.node, h("div", { class: "lens-found" }, this.verdict, this.strips.node), h("div", { class: "lens-about" }, this.about, keys));
    this.section = h("section", { class: "lens", "aria-label": "Kernel lens" },
      h("div", { class: "lens-head" }, h("h3", {}, "Kernel lens"), this.choices.node, close),
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
    if (!this.isOpen) this.choice.sequence = null;
    this.stage.draw();
    this.askNow();
    this.unseen = this.isOpen;
  }

  // The question at this step, and the answer to it if it is here, before the stage is drawn.
  follow(view) {
    const { data } = this.stage;
    if (!data.cache) this.isOpen = false;
    this.view = view;
    const shown = this.answer;
    this.answer = null;
    this.question = null;
    if (this.isOpen) {
      const { num_layers: layers, num_heads: heads } = data.cache;
      this.sequence = sequenceOf(view, this.choice.sequence, this.sequence);
      this.layer = Math.min(this.choice.layer ?? layers - 1, layers - 1);
      this.head = Math.min(this.choice.head, heads - 1);
      const { sequence, layer, head } = this;
      this.question = sequence === null ? null : { run: data.run, step: view.step, seq_id: sequence, layer, head, num_splits: this.choice.splits };
      if (this.question && keyOf(data.lens?.asked) === keyOf(this.question)) this.answer = data.lens.answer;
    }
    if (!this.answer || this.answer.refused) this.player.clear();
    else if (!this.player.stops || this.shownFor !== keyOf(this.question)) {
      this.shownFor = keyOf(this.question);
      this.player.start(this.answer);
    } else this.player.answer = this.answer;
    if (this.isOpen) {
      view.chosen = this.sequence ?? view.chosen;
      view.reading = { seq: this.sequence, logical: this.player.turnNow()?.logical_block ?? null };
    }
    if (shown && !this.answer && this.section) this.section.style.minHeight = `${this.section.offsetHeight}px`; // nothing jumps while it asks
    if (keyOf(this.question) !== this.asked && keyOf(this.question) !== this.due) this.stage.reportSoon();
    this.due = keyOf(this.question);
  }

  askNow() {
    if (keyOf(this.question) === this.asked) return;
    this.asked = keyOf(this.question);
    this.stage.send("lens", this.question);
  }

  actionOf(key) {
    const { player } = this;
    if (key.toLowerCase() === "k") return this.stage.data?.cache ? () => this.toggle() : undefined;
    if (!player.stops) return undefined;
    return { j: () => player.turn(-1), l: () => player.turn(1), ",": () => player.stepPhase(-1), ".": () => player.stepPhase(1), p: () => this.toggleTurns() }[key.toLowerCase()];
  }

  toggleTurns() {
    if (this.player.playing) {
      this.player.halt();
      return this.stage.draw();
    }
    this.stage.playback.stop();
    this.player.play();
  }

  scene() {
    const { state } = this.view;
    return { ...this.player.scene(), tokens: state.tokens.get(this.sequence), group: this.layer % state.windows.length };
  }

  draw() {
    const { root, highlight } = this.stage;
    setAttr(this.button, "hidden", this.stage.data.cache ? null : "");
    setAttr(this.button, "aria-pressed", String(this.isOpen));
    setAttr(root, "data-lens", this.isOpen ? "" : null);
    setAttr(this.node, "hidden", this.isOpen ? null : "");
    const turn = this.player.turnNow();
    const read = turn ? endOf(turn.block) : null;
    if (!this.section) return;
    const scene = this.player.stops ? this.scene() : null;
    if (scene || this.marked) drawMarks(root, scene);
    this.marked = scene !== null;
    if (highlight.read !== read) {
      highlight.read = read;
      if (read) this.stage.pools.device.big?.reveal(turn.block);
      highlight.light();
    }
    const asking = this.isOpen && this.question && !this.answer;
    setAttr(this.source.node, "hidden", scene || (asking && this.source.code.firstChild) ? null : "");
    if (!this.isOpen) return;
    drawChoices(this.choices, { state: this.view.state, cache: this.stage.data.cache, sequence: this.sequence, layer: this.layer, head: this.head, splits: this.choice.splits });
    setAttr(this.section, "data-state", scene ? "answered" : asking ? "asking" : this.question ? "refused" : "nothing");
    setAttr(this.body, "hidden", scene ? null : "");
    setAttr(this.section, "data-whole", scene && scene.phase === this.player.lastPhase() ? "" : null);
    setText(this.say, this.words(scene));
    if (scene) this.drawScene(scene);
  }

  words(scene) {
    if (!this.question) return "No sequence has a token here, so there is nothing to attend to.";
    if (this.answer?.refused) return this.answer.refused;
    if (!scene) return "asking the kernel…";
    const { answer, stop, phases, phase } = scene;
    if (this.player.inPassing || stop.kind !== "turn" || phase === phases.length - 1) return sentenceOf(answer, stop);
    return `${turnName(answer, stop)}, ${phases[phase].name}: ${phases[phase].says}`;
  }

  drawScene(scene) {
    const { answer, stops, index } = scene;
    const { playing } = this.player;
    this.section.style.minHeight = "";
    const { fill, text } = this.view.colours.get(answer.seq_id);
    this.section.style.setProperty("--fill", fill);
    this.section.style.setProperty("--fill-text", text);
    setAttr(this.back, "aria-disabled", index === 0 ? "true" : null);
    setAttr(this.forward, "aria-disabled", index === stops.length - 1 ? "true" : null);
    const name = playing ? "Pause turns" : "Play turns";
    if (this.play.lastElementChild.textContent !== name) {
      this.play.firstElementChild.replaceWith(icon(playing ? PATHS.pause : PATHS.play, true));
      setText(this.play.lastElementChild, name);
      setAttr(this.play, "title", `${name} (P)`);
    }
    drawPhases(this.phases, scene);
    drawTurns(this.turns, scene);
    drawStrips(this.strips, scene);
    drawLensSource(this.source, scene);
    settleCode(this.source);
    settleTurns(this.turns);
    drawVerdict(this.verdict, answer, index === stops.length - 1);
    if (this.unseen) this.section.scrollIntoView({ block: "nearest" }); // once, after the lens was opened and has its answer
    this.unseen = false;
    const padding = answer.lanes - answer.block_size;
    const tile = padding > 0 ? ` A turn has ${answer.lanes} lanes; the ${padding} beyond the block are padding, and masked always.` : "";
    const many = this.stage.pools.device.big ? " In a pool this large only the current block is ringed." : "";
    setText(this.about, `Scores are in powers of 2, scale ${shortNumber(answer.scale)}.${tile}${many} ${answer.backend}, ${Math.round(answer.ms)} ms.`);
  }

  destroy() {
    this.player.halt();
  }
}
