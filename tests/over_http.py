"""The library's own tests over a service: books that are opened here are reached through `commonplace.connect`.

    pytest --over=http tests/space

A server starts once and serves one book after the other, which costs a test a few milliseconds and not half a second.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import uvicorn

import commonplace
from commonplace.api.transport import Connections
from commonplace.remote import RemoteBook
from commonplace.server.http.api_keys import Keys
from commonplace.server.http.app import build_app
from commonplace.server.http.auth import Gate, Principal, credential_of
from commonplace.server.http.service import Service
from commonplace.settings import Settings
from commonplace.space.rules import Rules
from commonplace.space.space import Space
from commonplace.store import Store

SECONDS = 20


class RulesGate(Gate):
    """A gate that also knows callers with rules of a test's own, by what they send as their key."""

    callers: dict[str, Principal]

    def is_quick(self, headers: Mapping[str, str]) -> bool:
        return credential_of(headers) in self.callers

    def principal(self, headers: Mapping[str, str], path: str | None = None) -> Principal:
        return self.callers.get(credential_of(headers) or "") or super().principal(headers, path)


class ServedBook(RemoteBook):
    """The book as a client sees it. What needs the file is done where the book is; rules become those of a key."""

    def __init__(self, address: str, book: commonplace.Book, gate: RulesGate, key: str | None = None) -> None:
        super().__init__(Connections(address, key=key, timeout_seconds=SECONDS, max_retries=1))
        self._book = book
        self._gate = gate
        self.reindex, self.verify = book.reindex, book.verify  # type: ignore[method-assign]

    @property
    def store(self) -> Store:  # type: ignore[override]
        return self._book.store

    def space(self, *labels: str, actor: str | None = None, rules: Rules | None = None) -> Space:
        if rules is None:
            return super().space(*labels, actor=actor)
        key = f"caller-{len(self._gate.callers)}"
        self._gate.callers[key] = Principal(key, labels, rules=rules)
        return ServedBook(self.url, self._book, self._gate, key).space(*labels, actor=actor)


class SwitchingServer:
    """A running server whose book can be exchanged; who may call is decided on a book of its own."""

    def __init__(self) -> None:
        keys = Keys(commonplace.open(":memory:", background=False).store)
        self._gate = RulesGate(keys, Principal("local", ("user", "default"), "all"))
        object.__setattr__(self._gate, "callers", {})
        self._service = Service(commonplace.open(":memory:", background=False), self._gate, Settings())
        self._app = build_app(self._service)
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._uvicorn = uvicorn.Server(uvicorn.Config(self._app, log_level="error", timeout_graceful_shutdown=1))
        self._thread = threading.Thread(target=self._uvicorn.run, kwargs={"sockets": [self._socket]}, daemon=True)
        self._thread.start()
        self.address = f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def serve(self, book: commonplace.Book) -> ServedBook:
        self._app.state.service = replace(self._service, book=book)
        return ServedBook(self.address, book, self._gate)

    def stop(self) -> None:
        self._uvicorn.should_exit = True
        self._thread.join(SECONDS)
        self._socket.close()
        assert not self._thread.is_alive()


@dataclass
class Services:
    """Servers for the books that a test has open at once."""

    _free: list[SwitchingServer] = field(default_factory=list)
    _all: list[SwitchingServer] = field(default_factory=list)
    _used: list[tuple[SwitchingServer, commonplace.Book, commonplace.Book]] = field(default_factory=list)

    def connect(self, book: commonplace.Book) -> commonplace.Book:
        """The book as a client of a service sees it."""
        if not self._free:
            server = SwitchingServer()
            self._all.append(server)
            self._free.append(server)
        server = self._free.pop()
        remote = server.serve(book)
        self._used.append((server, book, remote))
        return remote

    def release(self) -> None:
        """Close what a test has opened."""
        for server, book, remote in self._used:
            remote.close()
            book.close()
            self._free.append(server)
        self._used.clear()

    def stop(self) -> None:
        for server in self._all:
            server.stop()
