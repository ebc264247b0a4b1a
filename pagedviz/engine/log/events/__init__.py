"""What can happen, by family. All families are imported here, so that `Event.kinds` knows every kind."""

from pagedviz.engine.log.events import blocks, drafts, requests, transfers, windows

FAMILIES = (blocks, windows, drafts, requests, transfers)
