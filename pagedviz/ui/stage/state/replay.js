// Replay: the state after k events, from the base snapshot on. Nothing here touches the page.
import { changes as blockChanges, fromSnapshot as blocksFrom } from "./blocks.js";
import { changes as windowChanges, fromSnapshot as windowsFrom } from "./windows.js";
import { changes as draftChanges, fromSnapshot as draftsFrom } from "./drafts.js";
import { changes as requestChanges, fromSnapshot as requestsFrom } from "./requests.js";
import { changes as transferChanges, fromSnapshot as tierFrom } from "./transfers.js";

const CHANGES = { ...blockChanges, ...windowChanges, ...draftChanges, ...requestChanges, ...transferChanges };

function fromSnapshot(snapshot) {
  const state = Object.assign({}, ...[blocksFrom, windowsFrom, draftsFrom, requestsFrom, tierFrom].map((from) => from(snapshot)));
  return { ...state, pins: new Map([...state.pins].filter(([block]) => !state.held.has(block))) };
}

// The state after an event: a new one, which shares with the old one what the event leaves alone. WriteStopped,
// OperationRefused and kinds of a later version change nothing.
function apply(event, state) {
  const change = CHANGES[event.kind];
  return change ? { ...state, ...change(state, event) } : state;
}

const KEY_FRAME_EVERY = 32;

export class Replay {
  constructor(base, steps) {
    this.steps = steps;
    this.frames = new Map([[0, fromSnapshot(base)]]);
    this.last = [0, this.frames.get(0)];
  }

  at(step) {
    let from = step - (step % KEY_FRAME_EVERY);
    while (!this.frames.has(from)) from -= KEY_FRAME_EVERY;
    let state = this.frames.get(from);
    if (this.last[0] <= step && this.last[0] > from) [from, state] = this.last;
    for (let k = from; k < step; k += 1) {
      state = apply(this.steps[k].event, state);
      if ((k + 1) % KEY_FRAME_EVERY === 0) this.frames.set(k + 1, state);
    }
    this.last = [step, state];
    return state;
  }
}
