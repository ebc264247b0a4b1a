// One icon and one short word per kind of event. Paths are drawn on a 16 x 16 grid.
import { h, svg } from "./dom.js";

const KINDS = {
  SequenceAdded: { word: "add", path: "M8 3v10M3 8h10" },
  SequenceForked: { word: "fork", path: "M8 14V9M8 9C8 6 3.5 7 3.5 3M8 9c0-3 4.5-2 4.5-6M1.7 4.6 3.5 2.8l1.8 1.8M10.7 4.6l1.8-1.8 1.8 1.8" },
  BlockAllocated: { word: "take", path: "M2.5 5.5h11v8h-11zM8 1v6.5M5.8 5.3 8 7.5l2.2-2.2" },
  BlockShared: { word: "share", path: "M2 2.5h8v8H2zM6 5.5h8v8H6z" },
  BlockHit: { word: "hit", path: "M2.500 2.500h11v11h-11zM8 5.500a2.500 2.500 0 1 0 0 5 2.500 2.500 0 0 0 0-5z" },
  BlockCached: { word: "cache", path: "M2.500 2.500h11v11h-11zM6 5v6M10 5v6M5 6.500h6M5 9.500h6" },
  BlockEvicted: { word: "evict", path: "M2.500 2.500h11v11h-11zM5.500 5.500l5 5M10.500 5.500l-5 5" },
  BlockCollapsed: { word: "collapse", path: "M2 2.500h5v5H2zM9 8.500h5v5H9zM14 4.500H9.500M11.300 2.700 9.500 4.500l1.800 1.800" },
  TokenWritten: { word: "write", path: "M3 13l.8-3.2L11 2.6l2.4 2.4-7.2 7.2zM9.4 4.2l2.4 2.4" },
  TokensWritten: { word: "prefill", path: "M2 3.500h7M2 7h4.500M2 10.500h2M6.500 13.500l.7-2.800 4.900-4.900 2.100 2.100-4.900 4.900z" },
  BatchWritten: { word: "batch", path: "M2 3.500h12M2 8h8M2 12.500h5M9 13.200l.6-2.200 3.400-3.400 1.600 1.600-3.400 3.400z" },
  RequestSubmitted: { word: "submit", path: "M2.500 8.500v5h11v-5M8 10.500V2.500M5 5.500l3-3 3 3" },
  StepStarted: { word: "step", path: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM8 4.500V8l2.500 1.800" },
  RequestAdmitted: { word: "admit", path: "M13.500 2.500v11H9M2 8h7.500M6.500 5l3 3-3 3" },
  RequestScheduled: { word: "schedule", path: "M2 5h12v6H2zM6 5v6M2.500 8h3" },
  RequestWaits: { word: "wait", path: "M4 2.500h8M4 13.500h8M5 2.500c0 5.500 6 5.500 6 11M11 2.500c0 5.500-6 5.500-6 11" },
  RequestPreempted: { word: "preempt", path: "M6 3.500 2.500 7 6 10.500M2.500 7H10a3.500 3.500 0 0 1 0 7H7" },
  RequestDropped: { word: "drop", path: "M6 3.500 2.500 7 6 10.500M2.500 7H10a3.500 3.500 0 0 1 0 7H7" },
  RequestSwappedIn: { word: "swap in", path: "M2 10v3.500h12V10M8 10.500V2M5 4.800 8 2l3 2.800" },
  TokensSampled: { word: "sample", path: "M2.500 2.500h11v11h-11zM6 6h.01M10 10h.01M10 6h.01M6 10h.01" },
  RequestFinished: { word: "finish", path: "M3.500 14V2.500h9l-2 3 2 3h-9" },
  RequestAborted: { word: "abort", path: "M4 4l8 8M12 4l-8 8" },
  WriteStopped: { word: "stop", path: "M5.5 2h5L14 5.5v5L10.5 14h-5L2 10.5v-5zM5 8h6" },
  BlockCopied: { word: "copy", path: "M2 2.5h5v5H2zM9 8.500h5v5H9zM4.500 10v1.500h2M6 9.800l1.800 1.700L6 13.200" },
  EntryRewritten: { word: "entry", path: "M2 3.500h12M2 8h5M2 12.500h12M9 8h5M12 6l2 2-2 2" },
  BlockReleased: { word: "release", path: "M2 2.500h8v8H2zM6 13.500h8v-8M4 6.500h4" },
  BlockFreed: { word: "free", path: "M2.500 2.500h2M7 2.500h2M11.500 2.500h2v2M13.500 7v2M13.500 11.500v2h-2M9 13.500H7M4.500 13.500h-2v-2M2.500 9V7M2.500 4.500v-2" },
  SequenceFreed: { word: "end", path: "M4 4l8 8M12 4l-8 8" },
  BlockSpilled: { word: "spill", path: "M2 10v3.500h12V10M8 2v8M5 7.200 8 10l3-2.800" },
  BlockReloaded: { word: "reload", path: "M2 10v3.500h12V10M8 10.500V2M5 4.800 8 2l3 2.800" },
  NullBlockTaken: { word: "null", path: "M2.500 2.500h11v11h-11zM2.500 13.500l11-11" },
  BlockOutOfWindow: { word: "window", path: "M6 2.500h7.500v11H6zM1.500 8h3M9.800 2.500v11M6 8h7.500" },
  PrefixSkipped: { word: "skip", path: "M2 4.500 6 8l-4 3.500M7 4.500 11 8l-4 3.500M13.500 3.500v9" },
  TokensDrafted: { word: "draft", path: "M2 13.500h2M6 13.500h2M10 13.500h2M3 10l.7-2.700 5.400-5.400 2 2-5.400 5.400z" },
  DraftsVerified: { word: "verify", path: "M2 5l2 2 3.500-4M9.500 9.500l4 4M13.500 9.500l-4 4" },
  DraftsDropped: { word: "drop", path: "M3 4.500h10M6 4.500V2.500h4v2M4.500 4.500l.7 9h5.600l.7-9" },
  RequestForked: { word: "fork", path: "M8 14V9M8 9C8 6 3.5 7 3.5 3M8 9c0-3 4.5-2 4.5-6M1.7 4.6 3.5 2.8l1.8 1.8M10.7 4.6l1.8-1.8 1.8 1.8" },
  BeamsChosen: { word: "beams", path: "M2 8h4M6 8l4-4.500h4M6 8l4 4.500M10 12.500l1.500 1.500M11.500 11 10 12.500" },
  TierEvicted: { word: "evict", path: "M2.500 2.500h11v11h-11zM5.500 5.500l5 5M10.500 5.500l-5 5" },
  TierTouched: { word: "touch", path: "M8 2a6 6 0 1 0 6 6M8 4.500V8l2.500 1.500M10 2.500l4 .5-.5 3" },
  TierStoreBegun: { word: "store", path: "M2 10v3.500h12V10M8 2v8M5 7.200 8 10l3-2.800" },
  TierStoreFinished: { word: "stored", path: "M2 10v3.500h12V10M4.500 6l3 3 5-6" },
  TierStoreFailed: { word: "failed", path: "M2 10v3.500h12V10M5 3l6 6M11 3 5 9" },
  TierStoreAborted: { word: "cancel", path: "M2 10v3.500h12V10M4.500 6h7" },
  TierLoadBegun: { word: "load", path: "M2 10v3.500h12V10M8 10.500V2M5 4.800 8 2l3 2.800" },
  TierLoadFinished: { word: "loaded", path: "M2 6V2.500h12V6M4.500 10l3 3 5-6" },
  TierLoadFailed: { word: "failed", path: "M2 6V2.500h12V6M5 8l6 6M11 8l-6 6" },
  TierLoadAborted: { word: "cancel", path: "M2 6V2.500h12V6M4.500 10.500h7" },
  BlockLoaded: { word: "cache", path: "M2.500 2.500h11v11h-11zM6 5v6M10 5v6M5 6.500h6M5 9.500h6" },
  OperationRefused: { word: "refused", path: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM3.800 3.800l8.400 8.400" },
};
const UNKNOWN = { word: "event", path: "M8 6a2 2 0 1 0 0 4 2 2 0 0 0 0-4z" };
export const VEILED = { word: "", path: UNKNOWN.path };

export const kindOf = (kind) => KINDS[kind] ?? UNKNOWN;

export const PATHS = {
  back: "M11 3 5 8l6 5z",
  forward: "M5 3l6 5-6 5z",
  play: "M4 2.500l9 5.500-9 5.500z",
  pause: "M4 3h3v10H4zM9 3h3v10H9z",
  ok: "M2.500 8.500l3.500 3.500 7.500-8",
  failed: "M3.500 3.500l9 9M12.500 3.500l-9 9",
};

export function icon(path, solid = false) {
  return svg(
    "svg",
    { class: solid ? "icon solid" : "icon", viewBox: "0 0 16 16", "aria-hidden": "true" },
    svg("path", { d: path }),
  );
}

export function iconButton(path, name, attributes = {}) {
  return h("button", { type: "button", ...attributes }, icon(path, true), h("span", { class: "word" }, name));
}
