"""What the settings choose of the engine's policies."""

import dataclasses
import random
from typing import Any

from pagedviz.engine.policies.profiles import PROFILES, Profile, policy
from pagedviz.scenario.settings import CacheConfig


def profile_of(cache: CacheConfig) -> Profile:
    """The cache's profile, with the policies that were chosen otherwise; "fork": true lets any profile fork."""
    chosen = PROFILES[cache.profile]
    others: dict[str, Any] = {kind: policy(kind, name) for kind, name in cache.policies}
    return dataclasses.replace(chosen, fork=chosen.fork or cache.fork, **others)


def free_queue_of(cache: CacheConfig, seed: int) -> list[int]:
    """The device's first free queue, head first: the profile's own order, or shuffled once as a used pool would be."""
    blocks = list(range(1 if PROFILES[cache.profile].null_block else 0, cache.num_blocks))
    if cache.scatter:
        random.Random(seed).shuffle(blocks)
    return blocks
