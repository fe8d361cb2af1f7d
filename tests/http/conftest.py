"""The service as its users meet it: a real server on a port of this computer, on a book with the tests' own clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from real_server import Server, start_server

import commonplace
from commonplace.server.http.api_keys import Key, Keys
from commonplace.server.http.auth import Gate, Principal
from commonplace.server.http.service import Service
from commonplace.settings import Settings


@pytest.fixture
def service(book: commonplace.Book, clock: Any) -> Service:
    """Without keys: everybody on this computer is the local principal, with the namespace user/default."""
    gate = Gate(Keys(book.store, clock=clock), Principal("local", ("user", "default"), "all"))
    return Service(book, gate, Settings())


@pytest.fixture
def server(service: Service) -> Iterator[Server]:
    server = start_server(service)
    yield server
    server.stop()


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    """A client without a key."""
    with server.client() as client:
        yield client


MakeKey = Callable[..., str]


@pytest.fixture
def make_key(service: Service) -> MakeKey:
    """Makes keys of the running service, which needs one from then on; gives a key's text."""

    def make(name: str, namespace: str = "user/u1", **options: Any) -> str:
        actions = frozenset(options.pop("actions", ("read", "write", "delete")))
        key = Key(name, tuple(namespace.split("/")), actions=actions, **options)
        return service.access.keys.create(key)[1]

    return make
