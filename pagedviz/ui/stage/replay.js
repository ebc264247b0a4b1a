// Replay: the state after k events, found from the base snapshot. Nothing here touches the page.
//
// A table entry is one number: a device block is its id (0, 1, ...), a host block h is -1 - h.
// apply() returns a new state and shares with the old one what the event left alone.

export const hostEntry = (hostBlock) => -1 - hostBlock;
export const isHost = (entry) => entry < 0;
export const blockOf = (entry) => (entry < 0 ? -1 - entry : entry);
export const linkOf = (entry) => (entry < 0 ? `h${-1 - entry}` : `d${entry}`);
export const nameOf = (entry) => (entry < 0 ? `h${-1 - entry}` : String(entry));

export function fromSnapshot(snapshot) {
  const tables = new Map();
  const tokens = new Map();
  for (const [seq, row] of Object.entries(snapshot.block_tables ?? {})) {
    const hostRow = snapshot.host_tables?.[seq] ?? [];
    tables.set(seq, row.map((block, j) => (block === null ? hostEntry(hostRow[j]) : block)));
    tokens.set(seq, snapshot.tokens?.[seq] ?? []);
  }
  return {
    blockSize: snapshot.block_size,
    numBlocks: snapshot.num_blocks,
    hostBlocks: snapshot.host_blocks ?? 0,
    nullBlock: snapshot.null_block ?? null,
    tables,
    tokens,
    refs: counts(snapshot.ref_counts, snapshot.num_blocks),
    hostRefs: counts(snapshot.host_ref_counts, snapshot.host_blocks ?? 0),
    // block held for a copy under way -> the tokens that were copied into it
    pins: new Map((snapshot.pinned ?? []).map((block) => [block, []])),
    free: snapshot.free_blocks ?? [],
    hostFree: snapshot.host_free_blocks ?? [],
    ...queuesFrom(snapshot),
    salts: new Map(Object.entries(snapshot.salts ?? {})),
    // block that prompts may hit, in use or free -> what it holds; a snapshot names the hash alone
    cached: new Map(Object.entries(snapshot.cached ?? {}).map(([block, hash]) => [Number(block), { hash, parent: null, tokens: [], salt: null }])),
  };
}

function queuesFrom(snapshot) {
  const requests = Object.entries(snapshot.requests ?? {}).map(([seq, { num_tokens: numTokens, ...rest }]) => [seq, { ...rest, numTokens }]);
  return {
    requests: new Map(requests),
    waiting: snapshot.waiting ?? [],
    running: snapshot.running ?? [],
    swapped: snapshot.swapped ?? [],
    scheduled: new Map(Object.entries(snapshot.scheduled ?? {})),
    engineStep: snapshot.engine_step ?? 0,
    tokenBudget: snapshot.token_budget ?? 0,
    // What is drawn beside the queues and no snapshot has: the tokens that this step's launch will write, from where on;
    // who was preempted and how; why the first of the waiting waits.
    launching: new Map(),
    ahead: new Map(), // "A:1": A's logical block 1 names a block that this launch fills
    preempted: new Map(),
    waits: null,
  };
}

function counts(byBlock, size) {
  const out = new Int32Array(size);
  for (const [block, count] of Object.entries(byBlock ?? {})) out[block] = count;
  return out;
}

const withEntry = (map, key, value) => new Map(map).set(key, value);
const withoutEntry = (map, key) => new Map([...map].filter(([other]) => other !== key));
const without = (queue, block) => queue.filter((other) => other !== block);

function withCounts(counts_, changes) {
  const out = counts_.slice();
  for (const [block, count] of changes) out[block] = count;
  return out;
}

function inserted(queue, index, block) {
  const out = queue.slice();
  out.splice(index, 0, block);
  return out;
}

function tableWith(state, seq, logical, entry) {
  const row = (state.tables.get(seq) ?? []).slice();
  row[logical] = entry;
  return withEntry(state.tables, seq, row);
}

// Every table in `seqs` that names `from` names `to` instead.
function tablesMoved(state, seqs, from, to) {
  const tables = new Map(state.tables);
  for (const seq of seqs) tables.set(seq, tables.get(seq).map((entry) => (entry === from ? to : entry)));
  return tables;
}

// What a launch wrote, one element a sequence, whichever of the three kinds told it; of other events nothing.
export function writesOf(event) {
  if (event?.kind === "TokenWritten") return [{ seq_id: event.seq_id, position: event.position, tokens: [event.token], slots: [event.slot] }];
  if (event?.kind === "TokensWritten") return [event];
  if (event?.kind !== "BatchWritten") return [];
  return event.seq_ids.map((seq_id, k) => ({ seq_id, position: event.positions[k], tokens: event.tokens[k], slots: event.slots[k] }));
}

// Where a sequence's computed tokens end once the blocks are filled that it names ahead of their tokens.
function endOfNamed(s, seq) {
  const row = s.tables.get(seq) ?? [];
  let end = (s.tokens.get(seq) ?? []).length;
  while (end % s.blockSize === 0 && s.ahead.has(`${seq}:${end / s.blockSize}`)) end += s.cached.get(row[end / s.blockSize]).tokens.length;
  return end;
}

function written(s, e) {
  const tokens = new Map(s.tokens);
  const launching = new Map(s.launching);
  for (const { seq_id, position, tokens: wrote } of writesOf(e)) {
    let held = s.tokens.get(seq_id);
    while (held.length < position) held = [...held, ...s.cached.get(s.tables.get(seq_id)[Math.floor(held.length / s.blockSize)]).tokens];
    tokens.set(seq_id, [...held, ...wrote]);
    launching.delete(seq_id);
  }
  return { tokens, launching, ahead: new Map([...s.ahead].filter(([, seq]) => launching.has(seq))) };
}

// A request in no queue and in no launch.
function left(s, seq) {
  const [waiting, running, swapped] = [s.waiting, s.running, s.swapped].map((queue) => without(queue, seq));
  const preempted = withoutEntry(s.preempted, seq);
  const waits = s.waits?.seq_id === seq ? null : s.waits;
  const ahead = new Map([...s.ahead].filter(([, other]) => other !== seq));
  return { waiting, running, swapped, scheduled: withoutEntry(s.scheduled, seq), launching: withoutEntry(s.launching, seq), ahead, preempted, waits };
}

const toRunning = (s, e) => ({ ...left(s, e.seq_id), running: [...without(s.running, e.seq_id), e.seq_id] });

function putBack(s, seq, how) {
  const out = left(s, seq);
  const queues = how === "swap" ? { swapped: [...out.swapped, seq] } : { waiting: [seq, ...out.waiting] };
  return { ...out, ...queues, preempted: withEntry(out.preempted, seq, how) };
}

const CHANGES = {
  SequenceAdded: (s, e) => ({
    tables: withEntry(s.tables, e.seq_id, []),
    tokens: withEntry(s.tokens, e.seq_id, []),
    salts: withEntry(s.salts, e.seq_id, e.salt ?? null),
  }),
  SequenceForked: (s, e) => CHANGES.SequenceAdded(s, { seq_id: e.seq_id, salt: s.salts.get(e.parent) }),
  BlockAllocated: (s, e) => ({
    free: without(s.free, e.block),
    tables: tableWith(s, e.seq_id, e.logical_block, e.block),
    refs: withCounts(s.refs, [[e.block, 1]]),
  }),
  BlockShared: (s, e) => {
    const onHost = e.where === "host";
    return {
      tables: tableWith(s, e.seq_id, e.logical_block, onHost ? hostEntry(e.block) : e.block),
      tokens: withEntry(s.tokens, e.seq_id, [...s.tokens.get(e.seq_id), ...e.tokens]),
      ...(onHost
        ? { hostRefs: withCounts(s.hostRefs, [[e.block, e.ref_count]]) }
        : { refs: withCounts(s.refs, [[e.block, e.ref_count]]) }),
    };
  },
  BlockHit: (s, e) => ({
    free: without(s.free, e.block),
    tables: tableWith(s, e.seq_id, e.logical_block, e.block),
    // a block that an earlier sequence of the same launch fills is named now, and its tokens are there after the launch
    ...(e.computed === false
      ? { ahead: withEntry(s.ahead, `${e.seq_id}:${e.logical_block}`, e.seq_id) }
      : { tokens: withEntry(s.tokens, e.seq_id, [...s.tokens.get(e.seq_id), ...e.tokens]) }),
    refs: withCounts(s.refs, [[e.block, e.ref_count]]),
  }),
  BlockCached: (s, e) => {
    const salt = e.logical_block ? null : s.salts.get(e.seq_id) ?? null;
    return { cached: withEntry(s.cached, e.block, { hash: e.block_hash, parent: e.parent_hash, tokens: e.tokens, salt }) };
  },
  BlockEvicted: (s, e) => ({ cached: withoutEntry(s.cached, e.block) }),
  BlockCollapsed: (s, e) => ({
    free: inserted(without(s.free, e.target), e.queue_index, e.source),
    tables: tableWith(s, e.seq_id, e.logical_block, e.target),
    refs: withCounts(s.refs, [[e.source, 0], [e.target, e.ref_count]]),
  }),
  TokenWritten: written,
  TokensWritten: written,
  BatchWritten: written,
  RequestSubmitted: (s, e) => ({
    requests: withEntry(s.requests, e.seq_id, { prompt: e.tokens, output: [], numTokens: e.num_tokens, priority: e.priority, salt: e.salt }),
    waiting: inserted(s.waiting, e.queue_index, e.seq_id),
  }),
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
    e.seq_ids.forEach((seq, k) => requests.set(seq, { ...requests.get(seq), output: [...requests.get(seq).output, e.tokens[k]] }));
    return { requests };
  },
  RequestFinished: (s, e) => left(s, e.seq_id),
  RequestAborted: (s, e) => left(s, e.seq_id),
  BlockCopied: (s, e) => {
    const start = e.logical_block * s.blockSize;
    const copied = (s.tokens.get(e.seq_id) ?? []).slice(start, start + e.num_slots);
    return {
      free: without(s.free, e.target),
      refs: withCounts(s.refs, [[e.target, 1]]),
      pins: withEntry(s.pins, e.target, copied),
    };
  },
  EntryRewritten: (s, e) => {
    const pins = new Map(s.pins);
    pins.delete(e.target);
    return {
      tables: tableWith(s, e.seq_id, e.logical_block, e.target),
      refs: withCounts(s.refs, [[e.source, e.ref_count], [e.target, 1]]),
      pins,
    };
  },
  BlockReleased: (s, e) => ({
    ...dropped(s, e),
    ...(e.where === "host"
      ? { hostRefs: withCounts(s.hostRefs, [[e.block, e.ref_count]]) }
      : { refs: withCounts(s.refs, [[e.block, e.ref_count]]) }),
  }),
  BlockFreed: (s, e) => ({
    ...dropped(s, e),
    ...(e.where === "host"
      ? { hostRefs: withCounts(s.hostRefs, [[e.block, 0]]), hostFree: inserted(s.hostFree, e.queue_index, e.block) }
      : { refs: withCounts(s.refs, [[e.block, 0]]), free: inserted(s.free, e.queue_index, e.block) }),
  }),
  SequenceFreed: (s, e) => {
    const tables = new Map(s.tables);
    const tokens = new Map(s.tokens);
    tables.delete(e.seq_id);
    tokens.delete(e.seq_id);
    return { tables, tokens, salts: withoutEntry(s.salts, e.seq_id) };
  },
  BlockSpilled: (s, e) => ({
    tables: tablesMoved(s, e.seq_ids, e.block, hostEntry(e.host_block)),
    hostRefs: withCounts(s.hostRefs, [[e.host_block, s.refs[e.block]]]),
    refs: withCounts(s.refs, [[e.block, 0]]),
    hostFree: without(s.hostFree, e.host_block),
    free: inserted(s.free, e.queue_index, e.block),
  }),
  BlockReloaded: (s, e) => ({
    tables: tablesMoved(s, e.seq_ids, hostEntry(e.host_block), e.block),
    refs: withCounts(s.refs, [[e.block, s.hostRefs[e.host_block]]]),
    hostRefs: withCounts(s.hostRefs, [[e.host_block, 0]]),
    free: without(s.free, e.block),
    hostFree: inserted(s.hostFree, e.queue_index, e.host_block),
  }),
};

function dropped(state, event) {
  const row = state.tables.get(event.seq_id).slice(0, event.logical_block);
  const tokens = state.tokens.get(event.seq_id).slice(0, event.num_tokens);
  return {
    tables: withEntry(state.tables, event.seq_id, row),
    tokens: withEntry(state.tokens, event.seq_id, tokens),
  };
}

// WriteStopped, OperationRefused and kinds of a later version change nothing.
export function apply(event, state) {
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
