"""All events, by family. Every family is imported here, so that `Event.kinds` has every kind."""

from pagedviz.engine.log.events import blocks, drafts, requests, transfers, windows

__all__ = ["blocks", "drafts", "requests", "transfers", "windows"]
