// The features that a run uses: lanes, pools and signs of the legend that it never needs are not on the screen.

const isFilled = (map) => Object.keys(map ?? {}).length > 0;

export function featuresOf(base, steps) {
  const has = (...kinds) => steps.some(({ event }) => kinds.includes(event.kind));
  return {
    host: isFilled(base.host_ref_counts) || has("BlockSpilled", "BlockReloaded"),
    hashes: isFilled(base.cached) || has("BlockCached"),
    requests: isFilled(base.requests) || has("RequestSubmitted"),
    swap: steps.some(({ event }) => event.kind === "RequestPreempted" && event.how === "swap"),
    drafts: isFilled(base.drafted) || isFilled(base.unverified) || has("TokensDrafted"),
    windows: (base.windows ?? []).some((window) => window !== null),
  };
}
