"""A clock that jumps far ahead and back does not put a book's commits into the future; a book that has such is mended.

A stranger's machine wrote once with a clock in 2096: `--ttl 1s` never expired again, `as_of` now hid later writes, time
filters were wrong, and `doctor` said that all was well.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import commonplace
from commonplace import ConfigurationError
from commonplace.backends import ledger as times
from commonplace.cli import main
from commonplace.exchange.move import move_book
from doubles import Clock, WordEmbedder
from postgres_server import shared_server

YEAR = 366 * 86_400_000_000
TODAY = int(datetime.now(UTC).timestamp()) * 1_000_000
IN_2096 = int(datetime(2096, 2, 1, tzinfo=UTC).timestamp()) * 1_000_000


@pytest.fixture(params=["file", "server"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "book.db") if request.param == "file" else shared_server().create_database() + "?partitions=2"


@pytest.fixture
def clock() -> Clock:
    return Clock(TODAY)


@pytest.fixture
def book(url: str, clock: Clock) -> Iterator[commonplace.Book]:
    with commonplace.open(url, embedder=WordEmbedder(), clock=clock, background=False) as opened:
        yield opened


@pytest.mark.promise("engine-wrong-clock")
def test_a_write_by_a_clock_that_is_decades_ahead_is_refused(book: commonplace.Book, clock: Clock) -> None:
    space = book.space("user", "u1")
    space.files.write("/a", "before")
    clock.now = IN_2096
    for name in ("u1", "u2"):
        with pytest.raises(ConfigurationError, match=r"the clock says 2096-02-01.*nothing was changed.*set the clock"):
            book.space("user", name).files.write("/a", "in the future")
    clock.now = TODAY + 1_000_000
    assert space.files.read("/a") == "before"
    space.files.write("/a", "after")
    assert book.store.namespace_stats(("user", "u1")).updated_at < TODAY + 2_000_000
    assert book.namespaces() == [("user", "u1")]
    assert book.verify() == []


@pytest.mark.promise("engine-wrong-clock")
@pytest.mark.parametrize("years", [1, 9])
def test_a_machine_that_was_off_for_years_writes_on(book: commonplace.Book, clock: Clock, years: int) -> None:
    book.space("user", "u1").files.write("/a", "before")
    clock.now += years * YEAR
    book.space("user", "u1").files.write("/a", "after")
    clock.now += 9 * YEAR
    book.space("user", "u1").files.write("/a", "long after")
    assert book.verify() == []


def spoil(book: commonplace.Book, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a book as it was before such clocks were refused."""
    space = book.space("user", "u1")
    space.files.write("/a", "first")
    space.files.write("/short", "soon gone")
    book.space("user", "well").files.write("/w", "untouched")
    clock.now = IN_2096
    monkeypatch.setattr(times, "FARTHEST", timedelta(days=100_000))
    space.files.write("/a", "in the future")
    clock.now = TODAY + 60_000_000
    space.files.append("/a", "later")
    space.files.write("/expires", "in a second", ttl_seconds=1)
    space.files.delete("/short")


@pytest.mark.promise("engine-wrong-clock")
@pytest.mark.parametrize("there", ["file", "server"])
def test_times_ahead_of_the_clock_are_told_and_set_back_by_a_move(
    book: commonplace.Book, clock: Clock, there: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(book, clock, monkeypatch)
    (problem,) = book.verify()
    assert problem.startswith("times: the last commit of 1 namespaces is ahead of the clock, up to 2096-02-01; `common")
    target = str(tmp_path / "mended.db") if there == "file" else shared_server().create_database() + "?partitions=2"
    clock.now += 60_000_000
    with commonplace.open(target, embedder=WordEmbedder(), clock=clock, background=False) as copy:
        moved = move_book(book.store, copy.store, now=clock.now)
        assert moved.namespaces == 2
        again = move_book(book.store, copy.store, now=clock.now + 5_000_000)
        assert (again.namespaces, again.already_there) == (0, 2)
        assert copy.verify() == []
        space = copy.space("user", "u1")
        assert space.files.read("/a") == "in the future\nlater"
        assert [state.revision for state in space.history("file", "/a")] == [1, 2, 3]
        now = datetime.fromtimestamp(clock.now / 1e6, UTC)
        assert [hit.key for hit in space.search("later", as_of=now).hits] == ["/a"]
        assert [info.path for info in space.files.list("/")] == ["/a"]
        space.files.append("/a", "at last")
        assert copy.store.namespace_stats(("user", "u1")).updated_at < clock.now + 1_000
        assert copy.space("user", "well").files.read("/w") == "untouched"


def test_doctor_tells_of_times_ahead_and_the_commands_that_it_names_mend_them(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE_URL", str(tmp_path / "book.db"))
    with commonplace.open("book.db", embedder=WordEmbedder(), clock=clock, background=False) as book:
        spoil(book, clock, monkeypatch)

    def told() -> str:
        main(["doctor"])
        return capsys.readouterr().out

    assert "move SRC DST --mend-times" in told()
    assert main(["move", "book.db", "mended.db", "--mend-times"]) == 0
    assert main(["restore-backup", "mended.db"]) == 0
    assert "2096" not in told()
