"""The host tier beside the cache: which blocks are copied there, held meanwhile, and brought back."""

import dataclasses
from collections.abc import Collection
from collections.abc import Sequence as Tokens
from itertools import islice
from typing import Literal

from pagedviz.engine.blocks import hashing
from pagedviz.engine.blocks.changes import BlockChanges
from pagedviz.engine.blocks.hashing import Link
from pagedviz.engine.host_tier.tier import HostTier
from pagedviz.engine.log import errors
from pagedviz.engine.log.events.base import Token
from pagedviz.engine.log.events.transfers import (
    BlockHash,
    BlockLoaded,
    TierEvent,
    TierEvicted,
    TierLoadBegun,
    TierLoadFailed,
    TierLoadFinished,
    TierStoreAborted,
    TierStoreBegun,
    TierStoreFailed,
    TierTransferEnded,
)
from pagedviz.engine.log.host_snapshot import Transfer
from pagedviz.engine.policies.free_orders import Freed
from pagedviz.engine.policies.host_writes import Moment

How = Literal["finish", "fail", "abort"]


class TierChanges(BlockChanges):
    """A device block that a transfer reads or writes has a pin: it is in no free queue, and counted in `ref_count`.

    `host_links` are what the host's chunks hold, by their key, which is the whole hash.
    """

    def _begin_tier(self, num_chunks: int) -> None:
        self.tier = HostTier(num_chunks, report=self._tier_changed) if num_chunks else None
        self.is_stored = self.tier is not None
        self.host_links: dict[BlockHash, Link] = {}
        self._loading: dict[int, list[Link]] = {}  # by transfer: a chunk that fails for one load is not lost to another
        self._goes_out = False  # what is stored now is wanted for other tokens at once

    def _offer(
        self, what: Literal["computed", "hit", "evicted"], blocks: Collection[int], kept: Collection[str] = ()
    ) -> None:
        """A moment in the life of cached blocks: the profile says whether it is one to store them."""
        if self.tier is None:
            return
        wants = self.profile.host_write
        wanted = [b for b in blocks if b not in self.pending and wants(Moment(what, self._uses[b]))]
        try:
            store = self._begin_store(wanted, kept)
        except errors.TooFewChunks:
            return  # what is on its way to or from the host stays; the block gets its next chance when it is hit
        if store and what == "evicted":
            self._goes_out = True
            self.tier.finish(store.transfer_id)
            self._goes_out = False

    def _begin_store(self, blocks: Collection[int], kept: Collection[str] = ()) -> Transfer | None:
        assert self.tier is not None
        links = [self.cache.links[block] for block in blocks]
        stored: dict[BlockHash, int] = {link.key: block for link, block in zip(links, blocks, strict=True)}
        store = self.tier.begin_store(stored, kept)
        if links:
            # Who uses the deepest of them uses all that stands before it.
            self.tier.touch([link.key for link in hashing.chain(links[-1])])
        return store

    def _on_host(self, tokens: Tokens[Token], salt: str | None) -> tuple[list[int], list[Link]]:
        """The cached blocks that a prompt names, and what the host has behind them, without a gap."""
        assert self.tier is not None
        hits, size = self.cache.longest_prefix(tokens, salt), self.block_size
        parent, found = self.cache.links[hits[-1]] if hits else None, list[Link]()
        for start in range(len(hits) * size, (len(tokens) - 1) // size * size, size):
            link = hashing.link(parent, tokens[start : start + size], salt)
            held = self.host_links.get(link.key)
            if held is None or not self.tier.longest_run([link.key]) or not hashing.same_content(held, link):
                break
            parent = held
            found.append(held)
        return hits, found

    def _begin_load(self, hits: Collection[int], links: Tokens[Link]) -> None:
        """Load into the blocks that go out next, but into none that the same prompt hits."""
        assert self.tier is not None
        blocks = list(islice((block for block in self.pool.free_blocks if block not in hits), len(links)))
        if len(blocks) < len(links):
            raise errors.NoRoomToLoad(needed=len(links), free=len(blocks), total=self.total)
        keys = [link.key for link in links]
        self.tier.touch(keys)
        for block in blocks:
            # Where that is written back, it takes no chunk of what is about to be loaded.
            self._evict_for_others(block, keys)
        self.tier.begin_load(dict(zip(keys, blocks, strict=True)))

    def _end(self, transfer_id: int, how: How) -> None:
        assert self.tier is not None
        getattr(self.tier, how)(transfer_id)

    def _tier_changed(self, event: TierEvent) -> None:
        """Do to the device's blocks what a change of the tier means for them, then tell both."""
        match event:
            case TierEvicted():
                del self.host_links[event.block_hash]
            case TierStoreBegun():
                for key, block in zip(event.block_hashes, event.device_blocks, strict=True):
                    self.host_links[key] = self.cache.links[block]
                    self._pin(block)
            case TierLoadBegun():
                self._loading[event.transfer_id] = [self.host_links[key] for key in event.block_hashes]
                for block in event.device_blocks:
                    self._pin(block)
            case TierStoreFailed() | TierStoreAborted() | TierLoadFailed():
                for key in event.block_hashes:
                    if self.tier is not None and key not in self.tier:
                        self.host_links.pop(key, None)
        loading = self._loading.pop(event.transfer_id, []) if isinstance(event, TierTransferEnded) else []
        if isinstance(event, TierTransferEnded) and not isinstance(event, TierLoadFinished):
            event = dataclasses.replace(event, queue_indices=self._unpin(event.device_blocks))
        self._report(event)
        if isinstance(event, TierLoadFinished):
            # The deepest first, so that the tail of the chain is evicted first.
            for block, link in reversed(list(zip(event.device_blocks, loading, strict=True))):
                self._loaded(block, link)

    def _pin(self, block: int) -> None:
        self.pool.take_hit(block)
        self.pinned.add(block)

    def _unpin(self, blocks: Tokens[int]) -> tuple[int | None, ...]:
        """Give up a pin of each, the last first; return the places in the free queue of those that nobody names."""
        places, run = list[int | None](), list[int]()
        for block in reversed(blocks):
            self.pinned.remove(block)
            if self.pool.release(block):
                places.append(None)
            elif self._goes_out:
                self.pool.free_blocks.insert(block, None)
                places.append(0)
            else:
                last_used = self._last_used.pop(block, 0)
                freed = Freed(block, block in self.cache, (last_used, 0), run)
                places.append(self.pool.put_back(freed, self.profile.free_order))
        return tuple(reversed(places))

    def _loaded(self, block: int, link: Link) -> None:
        self.pinned.remove(block)
        self.pool.release(block)
        self.cache.put(block, link)
        self._uses[block] = 1
        place = self.pool.put_back(Freed(block, True, (self.engine_step, 0)), self.profile.free_order)
        self._report(BlockLoaded(block, link.short, link.parent_short, link.tokens, link.salt, place))
