"""The fixtures that all tests share: a clock, an embedder, and books on them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

import commonplace
from doubles import Clock, OpenBook, WordEmbedder

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", settings.get_profile("default"), max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

if TYPE_CHECKING:
    from over_http import Services


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--over", choices=("library", "http"), default="library", help="how tests reach their books")
    parser.addoption("--on", choices=("file", "mongodb"), default="file", help="where the tests' books are")
    parser.addoption("--every", type=int, default=1, metavar="N", help="run the first of every N tests")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    step = config.getoption("--every")
    config.hook.pytest_deselected(items=[item for number, item in enumerate(items) if number % step])
    items[:] = items[::step]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def embedder() -> WordEmbedder:
    return WordEmbedder()


@pytest.fixture(scope="session")
def services(request: pytest.FixtureRequest) -> Iterator[Services | None]:
    """With `--over=http`, what the tests' books are reached through."""
    if request.config.getoption("--over") != "http":
        yield None
        return
    from over_http import Services

    services = Services()
    yield services
    services.stop()


@pytest.fixture
def book_url(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    """Where a test's book is: a file, or with `--on=mongodb` a database on a real server."""
    if request.config.getoption("--on") == "file":
        return tmp_path / "book.db"
    from mongodb_server import empty, shared_book

    empty(shared_book())
    return shared_book()


@pytest.fixture
def on_file(request: pytest.FixtureRequest) -> None:
    """Skips a test about what only a file does, unless the tests' books are files."""
    if request.config.getoption("--on") != "file":
        pytest.skip("about books in files")


@pytest.fixture
def open_book(
    request: pytest.FixtureRequest, clock: Clock, embedder: WordEmbedder, services: Services | None
) -> Iterator[OpenBook]:
    """Opens books that are closed with the test; by default on one file, with the test's clock and embedder."""
    opened: list[commonplace.Book] = []

    def open_one(url: str | Path | None = None, **options: object) -> commonplace.Book:
        chosen = {"embedder": embedder, "clock": clock, "background": False, "durability": "normal", **options}
        place = request.getfixturevalue("book_url") if url is None else url
        book = commonplace.open(place, **chosen)
        if services is not None:
            return services.connect(book)
        opened.append(book)
        return book

    yield open_one
    if services is not None:
        services.release()
    for book in opened:
        book.close()


@pytest.fixture
def book(open_book: OpenBook) -> commonplace.Book:
    return open_book()


@pytest.fixture
def space(book: commonplace.Book) -> commonplace.Space:
    return book.space("user", "u1")


@pytest.fixture(scope="session")
def own_services() -> Iterator[Services]:
    """Servers for tests that reach a book in several ways, whatever `--over` says."""
    from over_http import Services

    services = Services()
    yield services
    services.stop()


@pytest.fixture(params=["file", "postgres", "service"])
def every_book(request: pytest.FixtureRequest, clock: Clock, embedder: WordEmbedder) -> Iterator[commonplace.Book]:
    """A book on a file, on PostgreSQL, and behind a service, one after the other."""
    url: str | Path = request.getfixturevalue("book_url")
    if request.param == "postgres":
        from postgres_server import empty, shared_book

        url = shared_book()
        empty(url)
    book = commonplace.open(url, embedder=embedder, clock=clock, background=False, durability="normal")
    if request.param != "service":
        yield book
        book.close()
        return
    services = request.getfixturevalue("own_services")
    yield services.connect(book)
    services.release()
