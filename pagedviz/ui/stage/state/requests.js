// Requests: what their events change in queues, launches, outputs by sequence, and the tree of beams of a request.
import { inserted, withEntry, without, withoutEntry } from "./changes.js";

export function fromSnapshot(snapshot) {
  const requests = new Map(Object.entries(snapshot.requests ?? {}).map(([id, { num_tokens: numTokens, outputs, scores, ...rest }]) => [
    id, { ...rest, numTokens, outputs: new Map(Object.entries(outputs)), scores: new Map(Object.entries(scores ?? {})) },
  ]));
  return {
    requests,
    requestOf: new Map([...requests].flatMap(([id, { outputs }]) => [...outputs.keys()].map((seq) => [seq, id]))),
    waiting: snapshot.waiting ?? [],
    running: snapshot.running ?? [],
    swapped: snapshot.swapped ?? [],
    scheduled: new Map(Object.entries(snapshot.scheduled ?? {})),
    engineStep: snapshot.engine_step ?? 0,
    tokenBudget: snapshot.token_budget ?? 0,
    // What is drawn beside the queues and no snapshot has:
    launching: new Map(), // sequence -> the tokens that this step's launch will write: from which position on, how many
    ahead: new Map(), // "A:1" -> A: A's logical block 1 names a block that this launch fills
    preempted: new Map(), // request -> how it was preempted
    waits: null, // why the first of the waiting requests waits
    beamTrees: new Map(), // request -> levels of {seq, parent, token, score}; parent: the place in the level before
  };
}

export const widthOf = ({ samples = 1, beams = 1 }) => Math.max(samples, beams); // how many sequences it goes on as
export const isSeveral = (request) => widthOf(request) > 1;
export const firstOf = (id, request) => (isSeveral(request) ? `${id}.1` : id);

// How many tokens of a sequence are computed once the blocks that it names ahead of their tokens are filled.
function endOfNamed(s, seq) {
  const row = s.tables.get(seq) ?? [];
  let end = (s.tokens.get(seq) ?? []).length;
  while (end % s.blockSize === 0 && s.ahead.has(`${seq}:${end / s.blockSize}`)) end += s.cached.get(row[end / s.blockSize]).tokens.length;
  return end;
}

// After a launch: the tokens of its sequences are written.
export function launchAfterWrite(s, writes) {
  const launching = new Map(s.launching);
  for (const { seq_id } of writes) launching.delete(seq_id);
  return { launching, ahead: new Map([...s.ahead].filter(([, seq]) => launching.has(seq))) };
}

// A request leaves all queues and the launch, and so do its sequences.
function left(s, id) {
  const [waiting, running, swapped] = [s.waiting, s.running, s.swapped].map((queue) => without(queue, id));
  const stays = ([seq]) => (s.requestOf.get(seq) ?? seq) !== id;
  return {
    waiting, running, swapped,
    scheduled: new Map([...s.scheduled].filter(stays)),
    launching: new Map([...s.launching].filter(stays)),
    ahead: new Map([...s.ahead].filter(([, seq]) => stays([seq]))),
    preempted: withoutEntry(s.preempted, id),
    waits: s.waits?.seq_id === id ? null : s.waits,
  };
}

const toRunning = (s, e) => ({ ...left(s, e.seq_id), running: [...without(s.running, e.seq_id), e.seq_id] });

function putBack(s, id, how) {
  const out = left(s, id);
  const queues = how === "swap" ? { swapped: [...out.swapped, id] } : { waiting: [id, ...out.waiting] };
  return { ...out, ...queues, preempted: withEntry(out.preempted, id, how) };
}

// A request's outputs are these from now on.
function withOutputs(s, id, outputs, scores) {
  const requestOf = new Map(s.requestOf);
  for (const seq of outputs.keys()) requestOf.set(seq, id);
  const request = s.requests.get(id);
  return { requests: withEntry(s.requests, id, { ...request, outputs, scores: scores ?? request.scores }), requestOf };
}

function beamsChosen(s, e) {
  const before = s.requests.get(e.seq_id).outputs;
  const outputs = new Map(e.seq_ids.map((seq, k) => [seq, [...(before.get(e.parents[k]) ?? []), e.tokens[k]]]));
  const levels = s.beamTrees.get(e.seq_id) ?? [];
  const above = levels[levels.length - 1] ?? [];
  const level = e.seq_ids.map((seq, k) => ({ seq, parent: above.findIndex((node) => node.seq === e.parents[k]), token: e.tokens[k], score: e.scores[k] }));
  return {
    ...withOutputs(s, e.seq_id, outputs, new Map(e.seq_ids.map((seq, k) => [seq, e.scores[k]]))),
    scheduled: new Map([...s.scheduled].filter(([seq]) => !e.pruned.includes(seq))),
    beamTrees: withEntry(s.beamTrees, e.seq_id, [...levels, level]),
  };
}

export const changes = {
  RequestSubmitted: (s, e) => {
    const { tokens: prompt, num_tokens: numTokens, priority, salt, samples = 1, beams = 1 } = e;
    const request = { prompt, numTokens, priority, salt, samples, beams, outputs: new Map(), scores: new Map() };
    return {
      ...withOutputs({ ...s, requests: withEntry(s.requests, e.seq_id, request) }, e.seq_id, new Map([[firstOf(e.seq_id, request), []]])),
      waiting: inserted(s.waiting, e.queue_index, e.seq_id),
    };
  },
  RequestForked: (s, e) => {
    const { outputs } = s.requests.get(e.seq_id);
    const [first] = outputs.values();
    return withOutputs(s, e.seq_id, new Map(e.seq_ids.map((seq) => [seq, outputs.get(seq) ?? first])));
  },
  StepStarted: (s, e) => ({ engineStep: e.engine_step, tokenBudget: e.token_budget, scheduled: new Map(), launching: new Map(), ahead: new Map() }),
  RequestAdmitted: toRunning,
  RequestSwappedIn: toRunning,
  RequestScheduled: (s, e) => ({
    scheduled: withEntry(s.scheduled, e.seq_id, e.num_tokens),
    launching: withEntry(s.launching, e.seq_id, { from: endOfNamed(s, e.seq_id), count: e.num_tokens }),
  }),
  RequestWaits: (s, e) => ({ waits: { seq_id: e.seq_id, reason: e.reason, engineStep: s.engineStep } }),
  RequestPreempted: (s, e) => putBack(s, e.seq_id, e.how),
  RequestDropped: (s, e) => putBack(s, e.seq_id, "recompute"),
  TokensSampled: (s, e) => {
    const requests = new Map(s.requests);
    e.seq_ids.forEach((seq, k) => {
      const id = s.requestOf.get(seq);
      const request = requests.get(id);
      requests.set(id, { ...request, outputs: withEntry(request.outputs, seq, [...request.outputs.get(seq), ...e.tokens[k]]) });
    });
    return { requests };
  },
  BeamsChosen: beamsChosen,
  RequestFinished: (s, e) => left(s, e.seq_id),
  RequestAborted: (s, e) => left(s, e.seq_id),
};
