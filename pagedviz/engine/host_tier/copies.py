"""What can be asked of the host tier, through the cache beside it."""

from collections.abc import Sequence as Tokens

from pagedviz.engine.host_tier.beside_cache import How, TierChanges
from pagedviz.engine.log import errors
from pagedviz.engine.log.events.base import Token
from pagedviz.engine.log.host_snapshot import Transfer


class HostCopies(TierChanges):
    """Stores and loads of cached blocks. Each is refused before it has changed anything."""

    def store(self, seq_id: str) -> Transfer:
        """Begin to copy a sequence's cached blocks to the host tier, as far as it has them not: all or none."""
        if self.tier is None:
            raise errors.NoHostTier()
        blocks = [block for block in self._find(seq_id).device_blocks if block in self.cache]
        new = [b for b in blocks if b not in self.pending and self.cache.links[b].key not in self.tier]
        store = self._begin_store(new)
        if store is None:
            raise errors.NothingToStore(seq_id=seq_id, cached=len(blocks))
        return store

    def load(self, tokens: Tokens[Token], salt: str | None = None) -> None:
        """Begin to bring back what the host tier has of a prompt behind what is cached on the device."""
        if self.tier is None:
            raise errors.NoHostTier()
        hits, links = self._on_host(tokens, salt)
        if not links:
            raise errors.NothingToLoad(hit=len(hits) * self.block_size)
        self._begin_load(hits, links)

    def fetch(self, tokens: Tokens[Token], salt: str | None) -> bool:
        """Begin to bring back what the host has of a prompt, unless a load does already. False: none is on its way."""
        if self.tier is None:
            return False
        hits, links = self._on_host(tokens, salt)
        loading = {key for transfer in self.tier.transfers if transfer.kind == "load" for key in transfer.block_hashes}
        if links and links[0].key not in loading:
            try:
                self._begin_load(hits, links)
            except errors.NoRoomToLoad:
                return False
        return bool(links)

    def end_transfer(self, transfer_id: int, how: How) -> None:
        """A copy has come to its end, or was called off."""
        if self.tier is None:
            raise errors.NoHostTier()
        self._end(transfer_id, how)

    @property
    def is_transferring(self) -> bool:
        """A copy to or from the host has not ended."""
        return self.tier is not None and bool(self.tier.transfers)

    def finish_transfers(self) -> None:
        """All copies that were begun have come to their end."""
        for transfer in self.tier.transfers if self.tier else ():
            self._end(transfer.transfer_id, "finish")
