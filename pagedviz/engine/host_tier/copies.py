"""What can be asked of the host tier beside the cache: store, load, and end a transfer. Stores as the profile says."""

from collections.abc import Callable, Collection
from collections.abc import Sequence as Tokens
from itertools import islice
from typing import Literal

from pagedviz.engine.blocks import hashing
from pagedviz.engine.blocks.changes import caching
from pagedviz.engine.blocks.hashing import Link
from pagedviz.engine.blocks.state import CacheState, Occasion
from pagedviz.engine.host_tier.device_side import DeviceSide
from pagedviz.engine.host_tier.tier import HostTier
from pagedviz.engine.log import errors
from pagedviz.engine.log.events.base import Event, Token
from pagedviz.engine.log.events.transfers import BlockHash
from pagedviz.engine.log.host_snapshot import Transfer
from pagedviz.engine.policies.host_writes import Offer

How = Literal["finish", "fail", "cancel"]


class HostCopies:
    """Up to `num_chunks` copies of cached blocks. Each operation is refused before it has changed anything."""

    def __init__(self, state: CacheState, num_chunks: int, report: Callable[[Event], None]) -> None:
        self._state = state
        self._device = DeviceSide(state)
        self.tier = HostTier(num_chunks, device=self._device, report=report)
        state.listener = self._offered

    @property
    def host_links(self) -> dict[BlockHash, Link]:
        """What the host's chunks hold, by the whole hash."""
        return self._device.host_links

    @property
    def is_transferring(self) -> bool:
        """A copy to or from the host has not ended."""
        return bool(self.tier.transfers)

    def store(self, seq_id: str) -> Transfer:
        """Begin to copy the cached blocks of a sequence that the host does not have: all of them, or none."""
        cache = self._state.cache
        blocks = [block for block in self._state.find(seq_id).device_blocks if block in cache]
        new = [b for b in blocks if b not in self._state.pending and cache.links[b].key not in self.tier]
        store = self._begin_store(new)
        if store is None:
            raise errors.NothingToStore(seq_id=seq_id, cached=len(blocks))
        return store

    def load(self, tokens: Tokens[Token], salt: str | None = None) -> None:
        """Begin to bring back the blocks of a prompt that the host has, behind those that are cached on the device."""
        hits, links = self._on_host(tokens, salt)
        if not links:
            raise errors.NothingToLoad(hit=len(hits) * self._state.block_size)
        self._begin_load(hits, links)

    def fetch(self, tokens: Tokens[Token], salt: str | None) -> bool:
        """Begin to bring back the blocks of a prompt that the host has, unless a load does already. False: no load is
        on its way."""
        hits, links = self._on_host(tokens, salt)
        loading = {key for transfer in self.tier.transfers if transfer.kind == "load" for key in transfer.block_hashes}
        if links and links[0].key not in loading:
            try:
                self._begin_load(hits, links)
            except errors.NoRoomToLoad:
                return False
        return bool(links)

    def end_transfer(self, transfer_id: int, how: How) -> None:
        """A copy has come to its end, failed, or is cancelled."""
        {"finish": self.tier.finish, "fail": self.tier.fail, "cancel": self.tier.cancel}[how](transfer_id)

    def finish_transfers(self) -> None:
        """All copies that were begun have come to their end."""
        for transfer in self.tier.transfers:
            self.tier.finish(transfer.transfer_id)

    # --- helpers ---

    def _offered(self, occasion: Occasion, blocks: Collection[int], kept: Collection[str] = ()) -> None:
        """Store those of these cached blocks that the profile stores on this occasion."""
        state, wants = self._state, self._state.profile.host_write
        wanted = [b for b in blocks if b not in state.pending and wants(Offer(occasion, state.uses[b]))]
        try:
            store = self._begin_store(wanted, kept)
        except errors.TooFewChunks:
            return  # the host is busy with other transfers; the block gets its next chance when it is hit
        if store and occasion == "evicted":
            self._device.goes_out = True
            self.tier.finish(store.transfer_id)
            self._device.goes_out = False

    def _begin_store(self, blocks: Collection[int], kept: Collection[str] = ()) -> Transfer | None:
        links = [self._state.cache.links[block] for block in blocks]
        stored: dict[BlockHash, int] = {link.key: block for link, block in zip(links, blocks, strict=True)}
        store = self.tier.begin_store(stored, kept)
        if links:
            # A use of the deepest block is a use of all blocks before it.
            self.tier.touch([link.key for link in hashing.chain(links[-1])])
        return store

    def _on_host(self, tokens: Tokens[Token], salt: str | None) -> tuple[list[int], list[Link]]:
        """The cached blocks that a prompt names, and what the host has behind them, without a gap."""
        cache, size = self._state.cache, self._state.block_size
        hits = cache.longest_prefix(tokens, salt)
        parent, found = cache.links[hits[-1]] if hits else None, list[Link]()
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
        state = self._state
        blocks = list(islice((block for block in state.pool.free_blocks if block not in hits), len(links)))
        if len(blocks) < len(links):
            raise errors.NoRoomToLoad(needed=len(links), free=len(blocks), total=state.total)
        keys = [link.key for link in links]
        self.tier.touch(keys)
        for block in blocks:
            # A block that is written back takes no chunk of what is about to be loaded.
            caching.evict_for_others(state, block, keys)
        self.tier.begin_load(dict(zip(keys, blocks, strict=True)))
