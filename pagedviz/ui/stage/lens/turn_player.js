// Where the lens is in an answer: at which stop, and in which phase of it. It moves by hand, or by itself.
import { phasesOf, stopsOf } from "./stops.js";

const PHASE_MS = 75;
const TURN_MS = 1600;

export class TurnPlayer {
  // `moved` is called at another stop or phase, `lit` when only a phase has lit up or the play button changes.
  constructor(moved, lit) {
    this.moved = moved;
    this.lit = lit;
    this.stops = null; // null while there is no answer
    this.playing = null;
    this.still = window.matchMedia("(prefers-reduced-motion: reduce)");
  }

  start(answer) {
    this.halt();
    this.answer = answer;
    this.stops = stopsOf(answer);
    this.index = 0;
    this.phase = Infinity;
    this.lightPhases();
  }

  clear() {
    this.halt();
    this.stops = null;
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
      this.lit();
    }, PHASE_MS);
  }

  goTo(index, { playing = false } = {}) {
    if (!playing) this.halt();
    const forward = index >= this.index;
    this.index = Math.max(0, Math.min(index, this.stops.length - 1));
    this.inPassing = false;
    this.phase = this.lastPhase();
    if (forward) this.lightPhases();
    this.moved();
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
    this.moved();
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
    this.moved();
  }

  play() {
    const next = () => {
      this.goTo(this.index + 1, { playing: true });
      this.playing = this.index < this.stops.length - 1 ? setTimeout(next, TURN_MS) : null;
      this.lit();
    };
    if (this.index === this.stops.length - 1) this.goTo(0);
    this.playing = setTimeout(next, this.index ? 60 : TURN_MS / 2);
    this.moved();
  }

  turnNow() {
    const stop = this.stops?.[this.index];
    return stop?.kind === "turn" ? this.answer.splits[stop.split].turns[stop.turn] : null;
  }

  // All that the drawings need of it. `known(what, at)`: whether a phase of a stop has been reached.
  scene() {
    const { answer, stops, index } = this;
    const stop = stops[index];
    const phases = phasesOf(answer, stop);
    const phase = Math.min(this.phase, this.lastPhase());
    const known = (what, at) => at < index || (at === index && phase >= phases.findIndex(({ name }) => name === what));
    return { answer, stops, index, stop, phases, phase, known };
  }
}
