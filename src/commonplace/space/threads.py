"""Conversations (placeholder while it is being written)."""

from __future__ import annotations

from commonplace.engine.search import Searcher
from commonplace.limits import Limits
from commonplace.space.handle import Handle


class Threads:
    def __init__(self, handle: Handle, searcher: Searcher, limits: Limits) -> None:
        self._handle = handle
