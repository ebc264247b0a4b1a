// The stage: one instance per place on the page, kept through Streamlit's reruns.
import { h, setAttr } from "./dom.js";
import { entryOf, isHost } from "./state/entries.js";
import { Replay } from "./state/replay.js";
import { colourBook } from "./derived/colours.js";
import { ownersByEntry } from "./derived/owners.js";
import { featuresOf } from "./derived/features.js";
import { drawHeader, makeHeader } from "./draw/header.js";
import { drawSequences, makeSequences } from "./draw/sequences.js";
import { drawRequests, makeRequests } from "./draw/requests.js";
import { drawPools, makePools } from "./pools/pools.js";
import { drawPanel, makePanel } from "./panel/panel.js";
import { settleCode } from "./panel/code.js";
import { verdictOf } from "./panel/verdict.js";
import { drawTimeline, makeTimeline } from "./draw/timeline.js";
import { drawTransport, makeTransport } from "./draw/transport.js";
import { Highlight } from "./highlight/highlight.js";
import { chainEnds } from "./derived/chains.js";
import { Motion } from "./motion/motion.js";
import { Playback } from "./playback.js";
import { Lens } from "./lens/lens.js";
import { listenToKeys } from "./keys.js";
import { isDark } from "./text.js";

const REST_MS = 150;

class Stage {
  constructor(parent) {
    this.parent = parent;
    this.step = 0;
    this.playback = new Playback(this);
    this.chosen = "";
    this.pauseText = "";
    this.build();
    this.unlisten = listenToKeys(this);
    this.observer = new ResizeObserver(([{ contentRect }]) => this.onResize(contentRect.width));
    this.observer.observe(this.root);
  }

  build() {
    this.root = h("div", { class: "stage", "data-testid": "stage" });
    this.header = makeHeader();
    this.sequences = makeSequences((seq) => {
      this.chosen = seq;
      this.draw();
    });
    this.requests = makeRequests();
    this.highlight = new Highlight(this.root);
    this.pools = makePools(this.highlight);
    this.panel = makePanel();
    this.lens = new Lens(this);
    this.timeline = makeTimeline((step) => this.goTo(step, { animate: step === this.step + 1 }));
    this.transport = makeTransport({
      back: () => this.back(),
      forward: () => this.forward(),
      toggle: () => this.playback.toggle(),
      speed: (speed) => (this.playback.speed = speed),
      scrub: (step) => this.goTo(step),
    }, this.lens.button);
    const bigOf = (entry) => (entry === null ? null : isHost(entry) ? this.pools.host.big : this.pools.device.big);
    const bigRect = (end) => bigOf(entryOf(end))?.rectOf(entryOf(end)) ?? null;
    this.highlight.connectors.bigRect = bigRect;
    this.highlight.chainOf = (link) => (this.drawn ? chainEnds(this.drawn, link) : []);
    this.highlight.repaint = () => [this.pools.device.big, this.pools.host.big].forEach((big) => big?.view && big.paint());
    this.motion = new Motion(this.root, bigRect);
    const main = h("div", { class: "main" }, this.requests.node, this.sequences.node, this.pools.node, this.lens.node);
    const bar = h("footer", { class: "bar" }, this.transport.pause, this.transport.node, this.timeline.node);
    this.root.prepend(h("div", { class: "body" }, h("div", { class: "middle" }, this.header.node, main), this.panel.node), bar);
    this.parent.append(this.root);
  }

  // New data from Python: another run starts over; the same run keeps its step, and new checks only redraw.
  update(data, send) {
    this.send = send;
    setAttr(this.root, "data-theme", isDark(this.root) ? "dark" : "light");
    const first = this.data === undefined;
    const known = this.data?.run === data.run;
    const length = this.data?.steps.length;
    this.data = data;
    if (!known || length !== data.steps.length) {
      this.replay = new Replay(data.base, data.steps);
      this.colours = colourBook(data.base, data.steps);
      this.features = featuresOf(data.base, data.steps);
    }
    const total = data.steps.length;
    const before = this.step;
    if (!known) {
      this.playback.stop();
      this.motion.finish();
      this.pauseText = "";
      this.chosen = "";
      this.step = data.step ?? 0;
      this.playback.until = this.step > total ? this.step : 0; // a step that is not known yet is played to once it is
    }
    this.step = Math.max(0, Math.min(this.step, total));
    if (known && length !== total && before !== this.step) this.motion.finish();
    this.draw();
    if (!first && this.step !== before) this.reportSoon();
    this.follow(data.goto);
    if (known && total > length && this.playback.until > this.step) this.playback.play(this.playback.until);
  }

  // Python asks for a step. Each request is followed once, also by a stage that comes onto the page after it was made, and
  // its nonce is reported.
  follow(goto) {
    if (!goto || goto.nonce === this.nonce) return;
    this.nonce = goto.nonce;
    this.reportSoon();
    if (goto.play && goto.step > this.step) this.playback.play(goto.step);
    else this.goTo(goto.step);
  }

  goTo(step, { animate = false, playing = false } = {}) {
    const target = Math.max(0, Math.min(step, this.data.steps.length));
    if (!playing) this.playback.giveUp();
    if (target === this.step) return this.drawBar();
    const event = target === this.step + 1 ? this.data.steps[target - 1].event : null;
    this.motion.finish();
    const before = animate && event ? this.motion.before(event, this.drawn.state) : null;
    this.step = target;
    this.pauseText = "";
    this.draw();
    if (before) this.motion.after(event, before, this.drawn.state, this.playback.isPlaying ? this.playback.speed : 1);
    this.reportSoon();
  }

  back() {
    this.goTo(this.step - 1);
  }

  forward() {
    this.goTo(this.step + 1, { animate: true });
  }

  // The step is reported to Python once the learner rests at it; during fast play only at the end.
  reportSoon() {
    clearTimeout(this.reporting);
    this.reporting = setTimeout(() => this.reportNow(), this.playback.isPlaying ? 4 * REST_MS : REST_MS);
  }

  reportNow() {
    this.lens.askNow();
    if (!this.reporting) return;
    clearTimeout(this.reporting);
    this.reporting = null;
    if (this.data.in_address) this.writeAddress();
    this.send("at", { run: this.data.run, step: this.step, nonce: this.nonce ?? 0 });
  }

  // The address holds the step, so that a copied link opens there. No history entry: Back leaves the page.
  writeAddress() {
    const address = new URL(window.location.href);
    address.searchParams.set("step", this.step);
    window.history.replaceState(window.history.state, "", address);
  }

  view() {
    const { data, step } = this;
    const state = this.replay.at(step);
    const info = step ? data.steps[step - 1] : null;
    return {
      state, step, info,
      event: info?.event ?? null,
      owners: ownersByEntry(state),
      colours: this.colours,
      steps: data.steps,
      status: data.status ?? "",
      checks: data.checks ?? [],
      check: data.checks?.[step] ?? null,
      excerpts: data.excerpts ?? [],
      backend: data.backend ?? "",
      veil: data.veil,
      chosen: this.chosen,
      features: this.features,
      maxSeqs: data.cache?.max_num_seqs ?? null,
      numLayers: data.cache?.num_layers ?? 1,
      playing: this.playback.isPlaying,
      pauseText: this.pauseText,
    };
  }

  draw() {
    const view = (this.drawn = this.view());
    this.lens.follow(view);
    drawHeader(this.header, view);
    setAttr(this.root, "data-refused", view.info?.refused ? "" : null);
    drawRequests(this.requests, view);
    drawSequences(this.sequences, view);
    drawPools(this.pools, view);
    drawPanel(this.panel, view);
    this.lens.draw();
    this.drawBar(view);
    this.highlight.refresh();
    setAttr(this.root, "data-steps", view.steps.length);
    setAttr(this.root, "data-verdict", verdictOf(view.check));
    setAttr(this.root, "data-step", view.step);
    settleCode(this.panel);
  }

  drawBar(view = this.view()) {
    drawTransport(this.transport, view);
    drawTimeline(this.timeline, view);
  }

  onResize(width) {
    if (!this.data || this.timeline.width === width) return;
    this.timeline.width = width;
    this.drawBar();
    this.highlight.light();
  }

  destroy() {
    this.playback.stop();
    clearTimeout(this.reporting);
    this.lens.destroy();
    this.motion.finish();
    this.observer.disconnect();
    this.unlisten();
    this.pools.device.big?.destroy();
    this.pools.host.big?.destroy();
    this.root.remove();
  }
}

const stages = new WeakMap();

export default function ({ data, parentElement, setStateValue }) {
  if (!data) return undefined;
  if (!stages.has(parentElement)) stages.set(parentElement, new Stage(parentElement));
  const stage = stages.get(parentElement);
  stage.update(data, setStateValue);
  // Streamlit may run this for an older update while the component lives on, so the page is asked.
  return () => {
    if (stage.root.isConnected || stages.get(parentElement) !== stage) return;
    stage.destroy();
    stages.delete(parentElement);
  };
}
