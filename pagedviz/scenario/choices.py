"""The policies and the free queue that a cache's settings choose."""

import dataclasses
import random
from typing import Any

from pagedviz.engine.policies.profiles import PROFILES, Profile, policy
from pagedviz.scenario.settings import CacheConfig


def profile_of(cache: CacheConfig) -> Profile:
    """The cache's profile, with the policies that the settings choose; "fork": true lets any profile fork."""
    chosen = PROFILES[cache.profile]
    others: dict[str, Any] = {kind: policy(kind, name) for kind, name in cache.policies}
    return dataclasses.replace(chosen, fork=chosen.fork or cache.fork, **others)


def free_queue_of(cache: CacheConfig, seed: int) -> list[int]:
    """The first free queue of the device, head first: in order, or shuffled once, as in a pool that was used before."""
    blocks = list(range(1 if PROFILES[cache.profile].null_block else 0, cache.num_blocks))
    if cache.scatter:
        random.Random(seed).shuffle(blocks)
    return blocks
