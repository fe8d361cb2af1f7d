"""LangGraph's InMemoryStore and SqliteStore behind LangMem's tools, as an agent uses them."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adapter import DIMENSIONS, Peer, serve

NAMESPACE = ("user", "bench")


class LangGraph(Peer):
    def __init__(self, kind: str) -> None:
        self._kind = kind

    def open(self, folder: Path) -> None:
        from langmem import create_manage_memory_tool, create_search_memory_tool  # type: ignore[import-untyped]

        index = {"dims": DIMENSIONS, "embed": self._embed, "fields": ["content"]}
        self._store: Any
        if self._kind == "memory":
            from langgraph.store.memory import InMemoryStore

            self._store = InMemoryStore(index=index)  # type: ignore[arg-type]
        else:
            from langgraph.store.sqlite import SqliteStore  # type: ignore[import-not-found,unused-ignore]

            self._context = SqliteStore.from_conn_string(str(folder / "store.db"), index=index)
            self._store = self._context.__enter__()
            self._store.setup()
        self._manage: Any = create_manage_memory_tool(NAMESPACE, store=self._store)
        self._search: Any = create_search_memory_tool(NAMESPACE, store=self._store)

    def _embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [self.vectors.floats(text) for text in texts]

    def add(self, text: str) -> None:
        self._manage.invoke({"content": text, "action": "create"})

    def fill(self, texts: Sequence[str]) -> None:
        from langgraph.store.base import PutOp

        self._store.batch([PutOp(NAMESPACE, str(uuid.uuid4()), {"content": text}) for text in texts])

    def search(self, query: str) -> int:
        import json

        answer = self._search.invoke({"query": query, "limit": 10})
        return len(json.loads(answer))

    def found(self, texts: Sequence[str]) -> int:
        there: set[str] = set()
        while some := self._store.search(NAMESPACE, limit=1_000, offset=len(there)):
            there.update(item.value["content"] for item in some)
        return sum(text in there for text in texts)

    def close(self) -> None:
        if self._kind == "sqlite":
            self._context.__exit__(None, None, None)


if __name__ == "__main__":
    serve(LangGraph(sys.argv[1]))
