"""The page as a person meets it: a real server on SQLite and on PostgreSQL, or with `--on=mongodb` on MongoDB."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import Browser

import commonplace
from commonplace.server.http.api_keys import Key, Keys
from commonplace.server.http.auth import Gate, Principal
from commonplace.server.http.service import Service
from commonplace.settings import Settings
from doubles import OpenBook
from postgres_server import empty, shared_book

sys.path.append(str(Path(__file__).parent.parent / "http"))
from real_server import Server, start_server


@pytest.fixture(params=["sqlite", "postgres"])
def book(request: pytest.FixtureRequest, open_book: OpenBook) -> commonplace.Book:
    """Tests of what is read and written run on both backends."""
    if request.param == "sqlite":
        return open_book(clock=None)
    if request.config.getoption("--on") != "file":
        pytest.skip("on MongoDB each test runs once")
    url = shared_book()
    commonplace.open(url, background=False).close()  # the schema, where no test has made it yet
    empty(url)
    return open_book(url, clock=None)


@pytest.fixture
def service(book: commonplace.Book) -> Service:
    return Service(book, Gate(Keys(book.store), Principal("local", ("user", "default"), "all")), Settings())


@pytest.fixture
def space(book: commonplace.Book) -> commonplace.Space:
    """The memory that the page shows to a caller without a key."""
    return book.space("user", "default", actor="a test")


@pytest.fixture
def server(service: Service) -> Iterator[Server]:
    server = start_server(service)
    yield server
    server.stop()


@pytest.fixture
def new_browser(server: Server) -> Iterator[Callable[[], Browser]]:
    opened = []

    def make() -> Browser:
        opened.append(server.client())
        return Browser(opened[-1])

    yield make
    for client in opened:
        client.close()


@pytest.fixture
def browser(new_browser: Callable[[], Browser]) -> Browser:
    return new_browser()


@pytest.fixture
def make_key(service: Service) -> Callable[..., str]:
    """Makes a key of the running service, which needs one from then on; gives its text."""

    def make(name: str, namespace: str = "user/default", **options: Any) -> str:
        actions = frozenset(options.pop("actions", ("read", "write", "delete")))
        return service.access.keys.create(Key(name, tuple(namespace.split("/")), actions=actions, **options))[1]

    return make
