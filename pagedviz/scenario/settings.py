"""The settings of a run: the cache, the toy model, and the engine's limits. This module reads and checks them."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from pagedviz.engine.policies.limits import Limits, Speculation
from pagedviz.engine.policies.profiles import POLICIES, PROFILES
from pagedviz.scenario import json_values
from pagedviz.scenario.json_values import ScenarioError, show

# Limits, both ends included.
RANGES = {  # a profile with a null block needs one more block
    "num_blocks": (1, 8_192),
    "block_size": (1, 256),
    "host_blocks": (0, 8_192),
    "host_chunks": (0, 8_192),
    "num_layers": (1, 4),
    "num_heads": (1, 8),
    "num_kv_heads": (1, 8),
    "head_dim": (2, 128),
}
WINDOWS = (1, 1_024)  # tokens that a layer sees
GROUPS = (2, 4)
SCHEDULER_RANGES = {"max_num_batched_tokens": (1, 1_024), "max_num_seqs": (1, 256)}
SPECULATION_RANGES = {"num_drafts": (0, 8), "load_limit": (1, 1_024)}
MAX_CACHE_BYTES = 256 * 2**20  # K and V, all layers, device and host, in float32
USUAL_LIMITS = Limits()
NO_DRAFTS = Speculation()


@dataclass(frozen=True)
class CacheConfig:
    """The cache and the toy model that fills it. `num_blocks` includes the null block, if the profile has one.

    Each layer sees the last `window` tokens, or all of them if it is None. With G `groups`, layer l belongs to group
    l % G and sees that group's window; each group has its own block tables.
    """

    num_blocks: int = 12
    block_size: int = 4
    host_blocks: int = 6
    num_layers: int = 2
    num_heads: int = 2
    num_kv_heads: int = 1
    head_dim: int = 8
    profile: str = "vllm-v0"
    prefix_caching: bool = False
    scatter: bool = False
    auto_spill: bool = False
    fork: bool = False
    window: int | None = None
    groups: tuple[int | None, ...] = ()
    host_chunks: int = 0
    speculation: Speculation = NO_DRAFTS
    scheduler: Limits = USUAL_LIMITS
    policies: tuple[tuple[str, str], ...] = ()  # (kind, name) of each policy that is not the profile's own, by kind

    def to_json(self) -> dict[str, Any]:
        """The settings. Those that only some runs have are left out at their defaults."""
        data = dataclasses.asdict(self)
        data["groups"], data["policies"] = list(self.groups), dict(self.policies)
        for name in ("window", "groups", "host_chunks", "speculation", "scheduler", "policies"):
            if getattr(self, name) == getattr(USUAL, name):
                del data[name]
        return data

    @property
    def windows(self) -> tuple[int | None, ...]:
        """The window of each group; None if its layers see all tokens."""
        return self.groups or (self.window,)

    @property
    def layers_per_block(self) -> int:
        """A block belongs to one group, and holds K and V of that group's layers."""
        return self.num_layers // len(self.windows)

    @property
    def bytes_per_block(self) -> int:
        """K and V of one block in all layers of a group, float32."""
        return 2 * self.layers_per_block * self.block_size * self.num_kv_heads * self.head_dim * 4


USUAL = CacheConfig()


def cache_from_json(data: Any) -> CacheConfig:
    """Read the cache settings; absent keys take their defaults."""
    if not isinstance(data, dict):
        raise ScenarioError(f'"cache" is {show(data)}; it must be an object of settings')
    json_values.only_known(data, [field.name for field in dataclasses.fields(CacheConfig)], "cache")
    profile = data.get("profile", USUAL.profile)
    if not isinstance(profile, str) or profile not in PROFILES:
        raise ScenarioError(f"cache.profile is {show(profile)}; it must be one of {', '.join(PROFILES)}")

    def number(name: str, more: int = 0) -> int:
        low, high = RANGES[name]
        return json_values.whole(data, name, f"cache.{name}", getattr(USUAL, name), low + more, high)

    def switch(name: str) -> bool:
        return json_values.switch(data, name, f"cache.{name}", getattr(USUAL, name))

    cache = CacheConfig(
        num_blocks=number("num_blocks", more=PROFILES[profile].null_block),
        block_size=number("block_size"),
        host_blocks=number("host_blocks"),
        num_layers=number("num_layers"),
        num_heads=number("num_heads"),
        num_kv_heads=number("num_kv_heads"),
        head_dim=number("head_dim"),
        profile=profile,
        prefix_caching=switch("prefix_caching"),
        scatter=switch("scatter"),
        auto_spill=switch("auto_spill"),
        fork=switch("fork"),
        window=_window(data.get("window"), "cache.window"),
        groups=_groups(data.get("groups", [])),
        host_chunks=number("host_chunks"),
        speculation=_speculation(data.get("speculation", {})),
        scheduler=_limits(data.get("scheduler", {})),
        policies=_policies(data.get("policies", {}), profile),
    )
    _check_model(cache)
    _check_groups(cache)
    _check_tier(cache)
    total = cache.bytes_per_block * (cache.num_blocks + cache.host_blocks + cache.host_chunks)
    if total > MAX_CACHE_BYTES:
        raise ScenarioError(
            f"the pools would hold {total / 2**20:,.0f} MiB of K and V; the limit is {MAX_CACHE_BYTES // 2**20} MiB: "
            "take fewer or smaller blocks, layers or heads"
        )
    return cache


def _window(value: Any, where: str) -> int | None:
    low, high = WINDOWS
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high):
        raise ScenarioError(
            f"{where} is {show(value)}; it must be null, for all tokens, or a whole number from {low:,} to {high:,}"
        )
    return value


def _groups(data: Any) -> tuple[int | None, ...]:
    low, high = GROUPS
    if not isinstance(data, list) or (data and not low <= len(data) <= high):
        raise ScenarioError(
            f"cache.groups is {show(data)}; it must be a list of {low} to {high} windows, null for all tokens"
        )
    return tuple(_window(value, f"cache.groups[{i}]") for i, value in enumerate(data))


def _speculation(data: Any) -> Speculation:
    if not isinstance(data, dict):
        raise ScenarioError(f"cache.speculation is {show(data)}; it must be an object of settings")
    where = "cache.speculation"
    json_values.only_known(data, [field.name for field in dataclasses.fields(Speculation)], where)
    numbers = {
        name: json_values.whole(data, name, f"{where}.{name}", getattr(NO_DRAFTS, name), low, high)
        for name, (low, high) in SPECULATION_RANGES.items()
    }
    cut = json_values.part(data, "min_confidence", f"{where}.min_confidence", NO_DRAFTS.min_confidence)
    return Speculation(**numbers, min_confidence=cut)


def _limits(data: Any) -> Limits:
    if not isinstance(data, dict):
        raise ScenarioError(f"cache.scheduler is {show(data)}; it must be an object of settings")
    where = "cache.scheduler"
    json_values.only_known(data, [field.name for field in dataclasses.fields(Limits)], where)
    watermark = json_values.part(data, "watermark", f"{where}.watermark", USUAL_LIMITS.watermark, below_1=True)
    numbers = {
        name: json_values.whole(data, name, f"{where}.{name}", getattr(USUAL_LIMITS, name), low, high)
        for name, (low, high) in SCHEDULER_RANGES.items()
    }
    return Limits(**numbers, watermark=watermark)


def _policies(data: Any, profile: str) -> tuple[tuple[str, str], ...]:
    """The policies that are not the profile's own, by kind."""
    if not isinstance(data, dict):
        example = '{"victim": "least_urgent"}'
        raise ScenarioError(f"cache.policies is {show(data)}; it must be an object like {example}")
    json_values.only_known(data, POLICIES, "cache.policies")
    for kind, name in data.items():
        names = [function.__name__ for function in POLICIES[kind]]
        if name not in names:
            raise ScenarioError(f"cache.policies.{kind} is {show(name)}; it must be one of {', '.join(names)}")
    chosen = {kind: getattr(PROFILES[profile], kind).__name__ for kind in POLICIES} | data
    if chosen["publish"] == "when_scheduled" and chosen["duplicates"] != "kept":
        raise ScenarioError(
            f"cache.policies.duplicates is {chosen['duplicates']} and publish is when_scheduled; a block that the same "
            "launch fills may have been hit already and must be kept, so publish must be when_written"
        )
    return tuple(sorted((k, name) for k, name in data.items() if name != getattr(PROFILES[profile], k).__name__))


def _check_model(cache: CacheConfig) -> None:
    if cache.num_heads % cache.num_kv_heads:
        raise ScenarioError(
            f"cache.num_heads is {cache.num_heads} and cache.num_kv_heads is {cache.num_kv_heads}; "
            "every KV head serves the same number of query heads, so the first must be a multiple of the second"
        )
    if cache.head_dim % 2:
        raise ScenarioError(f"cache.head_dim is {cache.head_dim}; rotary positions turn pairs, so it must be even")


def _check_groups(cache: CacheConfig) -> None:
    """Check that several groups fit the other settings: their tables stay on the device and are equally long."""
    if not cache.groups:
        return
    shown = f"cache.groups is {show(list(cache.groups))}"
    if cache.window is not None:
        raise ScenarioError(
            f"{shown} and cache.window is {cache.window}; each group has a window of its own, so give one of the two"
        )
    if cache.num_layers % len(cache.groups):
        raise ScenarioError(
            f"{shown} and cache.num_layers is {cache.num_layers}; all groups have equally many layers, so num_layers "
            f"must be a multiple of {len(cache.groups)}"
        )
    if not PROFILES[cache.profile].null_block:
        able = ", ".join(name for name, profile in PROFILES.items() if profile.null_block)
        raise ScenarioError(
            f"{shown} and cache.profile is {show(cache.profile)}; an entry below a window names the null block, so the "
            f"profile must be one of {able}"
        )
    preemption = dict(cache.policies).get("preemption", PROFILES[cache.profile].preemption.__name__)
    for unfit, setting in ((cache.fork, "fork is true"), (cache.auto_spill, "auto_spill is true")):
        if unfit:
            raise ScenarioError(f"{shown} and cache.{setting}; with several groups it must be false")
    if preemption == "swap":
        raise ScenarioError(f"{shown} and cache.policies.preemption is swap; with several groups it must be recompute")


def _check_tier(cache: CacheConfig) -> None:
    """Check that a host tier fits the other settings: it finds whole prefixes of one table by their hashes."""
    shown = f"cache.host_chunks is {cache.host_chunks:,}"
    if cache.host_chunks and not cache.prefix_caching:
        raise ScenarioError(
            f"{shown} and cache.prefix_caching is false; the host tier finds blocks by their hash, so it must be true"
        )
    if cache.host_chunks and cache.windows != (None,):
        setting = f"groups is {show(list(cache.groups))}" if cache.groups else f"window is {cache.window}"
        raise ScenarioError(f"{shown} and cache.{setting}; the host tier needs one group of layers that see all tokens")
