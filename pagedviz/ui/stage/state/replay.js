// Replay: the state after k events, found from the base snapshot. Nothing here touches the page.
// apply() returns a new state and shares with the old one what the event left alone.
import { BLOCK_CHANGES, blocksFrom } from "./blocks.js";
import { REQUEST_CHANGES, requestsFrom } from "./requests.js";
import { WINDOW_CHANGES, windowsFrom } from "./windows.js";
import { DRAFT_CHANGES, draftsFrom } from "./drafts.js";
import { TIER_CHANGES, tierFrom } from "./transfers.js";

// An event may mean something to several families, each in its turn.
const FAMILIES = [BLOCK_CHANGES, REQUEST_CHANGES, WINDOW_CHANGES, DRAFT_CHANGES, TIER_CHANGES];

function fromSnapshot(snapshot) {
  const state = { ...blocksFrom(snapshot), ...requestsFrom(snapshot), ...windowsFrom(snapshot), ...draftsFrom(snapshot), ...tierFrom(snapshot) };
  return { ...state, pins: new Map([...state.pins].filter(([block]) => !state.held.has(block))) };
}

// WriteStopped, OperationRefused and kinds of a later version change nothing.
function apply(event, state) {
  for (const changes of FAMILIES) {
    const change = changes[event.kind];
    if (change) state = { ...state, ...change(state, event) };
  }
  return state;
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
