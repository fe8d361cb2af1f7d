"""A book of a service: the face of a local one, and clear words where something needs the file itself."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from commonplace.book import Book, check_actor, check_namespaces
from commonplace.checks import Limits, Namespace, check_namespace, check_number
from commonplace.embedding import Embedder
from commonplace.errors import ConfigurationError, Unavailable
from commonplace.exchange import Exported, Imported
from commonplace.exchange.export import footer_line, header_line
from commonplace.remote.caller import CLIENT, MOST_AT_ONCE, Caller, query_text
from commonplace.remote.connection import Connections, Request
from commonplace.remote.space import RemoteSpace
from commonplace.space.rules import Rules
from commonplace.store import Progress, Store, StoreStats
from commonplace.wire.forms import thing_of

TIMEOUT_SECONDS = 60.0
MAX_RETRIES = 3
_HEADERS = {"User-Agent": CLIENT}


def connect(
    url: str,
    key: str | None = None,
    *,
    timeout_seconds: float = TIMEOUT_SECONDS,
    max_retries: int = MAX_RETRIES,
) -> RemoteBook:
    """The book of a service, such as `connect("http://127.0.0.1:8765", key="cp_…")`; asks it once who calls.

    Raises Unavailable where nobody answers and Unauthorized where the key is missing or wrong.
    """
    connections = Connections(url, key=key, timeout_seconds=timeout_seconds, max_retries=max_retries)
    return RemoteBook(connections)


class RemoteBook(Book):
    """`Book` of a service. `namespace` is the caller's own."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        caller = self._read("")
        known = {field.name for field in fields(Limits)}
        self.limits = Limits(**{name: value for name, value in caller["limits"].items() if name in known})
        self.namespace: Namespace = tuple(caller["namespace"].split("/"))

    @property
    def url(self) -> str:
        return self._connections.url

    def space(self, *labels: str, actor: str | None = None, rules: Rules | None = None) -> RemoteSpace:
        """The handle on one namespace; without labels the caller's own. What it may do, the service decides."""
        if rules is not None:
            raise ConfigurationError("a service has the rules of its keys; make one with `commonplace keys create`")
        namespace = check_namespace(labels) if labels else self.namespace
        return RemoteSpace(Caller(self._connections, namespace, self.limits, check_actor(actor)))

    def namespaces(self, *prefix: str, after: Namespace | None = None, limit: int = 1_000) -> list[Namespace]:
        below = "/".join(check_namespace(prefix)) if prefix else None
        last = None if after is None else "/".join(check_namespace(after))
        check_number("limit", limit)
        found: list[Namespace] = []
        while True:
            asked = min(limit - len(found), MOST_AT_ONCE)
            page = self._read("/namespaces", {"below": below, "after": last, "limit": asked})
            found += [tuple(name.split("/")) for name in page["namespaces"]]
            if page["next"] is None or len(found) == limit:
                return found
            last = page["namespaces"][-1]

    def stats(self) -> StoreStats:
        return thing_of(StoreStats, self._read("/store"))

    def export(
        self,
        write: Callable[[bytes], object],
        *,
        namespaces: Sequence[Namespace] | None = None,
        progress: Progress | None = None,
        salvage: bool = False,
    ) -> Exported:
        if salvage:
            raise ConfigurationError("salvage needs the book itself and not a service; run it where the book is")
        chosen = check_namespaces(namespaces)
        if chosen == []:  # to name none means the caller's own
            write(header_line())
            write(footer_line(0, 0))
            return Exported(0, 0)
        names = ["/".join(namespace) for namespace in chosen or ()]
        query = query_text({"namespace": names, "everything": chosen is None})
        end = b""
        with self._connections.stream(Request("GET", f"/v1/export?{query}", _HEADERS)) as pieces:
            for count, piece in enumerate(pieces, 1):
                write(piece)
                end = (end + piece)[-1_000:]
                if progress is not None:
                    progress(count, None, "pieces")
        return _footer(end)

    def import_lines(
        self,
        stream: BinaryIO,
        *,
        only: Namespace | None = None,
        merge: bool = False,
        actor: str | None = None,
        rules: Rules | None = None,
        progress: Progress | None = None,
    ) -> Iterator[Imported]:
        """As `Book.import_lines`; all are told of together, when the service has taken in the last."""
        if rules is not None:
            raise ConfigurationError("a service has the rules of its keys; make one with `commonplace keys create`")
        size = stream.seek(0, os.SEEK_END)
        stream.seek(0)
        query = query_text({"namespace": None if only is None else "/".join(only), "merge": bool(merge)})
        headers = {**_HEADERS, "Content-Length": str(size), "Content-Type": "application/jsonl"}
        answer = self._connections.ask(Request("POST", f"/v1/import?{query}", headers, stream)).json()
        if progress is not None:
            progress(size, size, "bytes")
        for form in answer["namespaces"]:
            yield thing_of(Imported, form)

    def close(self) -> None:
        """Close the connections; everything acknowledged is on the service's disk already."""
        self._connections.close()

    # What needs the file

    @property
    def store(self) -> Store:  # type: ignore[override]
        return self._needs_the_file("this")

    def reindex(self, embedder: Embedder | str | None = None, *, progress: Progress | None = None) -> None:
        self._needs_the_file("reindex")

    def rebuild_keywords(self, *, progress: Progress | None = None) -> None:
        self._needs_the_file("reindex --keywords")

    def backup(self, target: str | Path, *, progress: Progress | None = None) -> None:
        self._needs_the_file("backup")

    def verify(self, *, progress: Progress | None = None) -> list[str]:
        self._needs_the_file("doctor")

    def _needs_the_file(self, what: str) -> NoReturn:
        raise ConfigurationError(
            f"{what} needs the book itself and not a service ({self.url}); run it where the book is, with --db"
        )

    def _read(self, path: str, query: dict[str, Any] | None = None) -> Any:
        address = f"/v1{path}?{query_text(query or {})}".rstrip("?")
        return self._connections.ask(Request("GET", address, _HEADERS, is_repeatable=True)).json()


def _footer(end: bytes) -> Exported:
    """What the last line of an export counts; without it the export was cut off."""
    last = end[:-1].rpartition(b"\n")[2]
    if end.endswith(b"\n") and last.startswith(b'{"line":"footer"'):
        counts = json.loads(last)
        return Exported(counts["namespaces"], counts["states"])
    raise Unavailable("the export was cut off before its end; what was written is not complete: export again")
