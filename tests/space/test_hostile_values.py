"""Times, numbers and names that no store can hold: refused with their name, never a raw error."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

import pytest

import commonplace
from commonplace import InvalidInput
from commonplace.checks import microseconds, moment

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


class NoZone(tzinfo):
    def utcoffset(self, time: datetime | None) -> timedelta | None:
        return None


class UnfinishedZone(tzinfo):
    pass


@pytest.mark.parametrize("time", [FIRST, LAST, datetime(1970, 1, 1, tzinfo=UTC)])
def test_every_time_that_there_is_comes_back(time: datetime) -> None:
    found = microseconds("when", time)
    assert found is not None
    assert moment(found) == time


@pytest.mark.parametrize(
    "time",
    [
        "9999-12-31T23:59:59-23:59",
        "0001-01-01T00:00:00+23:59",
        datetime(2025, 1, 1, tzinfo=NoZone()),
        datetime(2025, 1, 1, tzinfo=UnfinishedZone()),
        datetime(2025, 1, 1),
    ],
)
def test_a_time_that_is_none_is_refused(time: datetime | str) -> None:
    with pytest.raises(InvalidInput, match="when"):
        microseconds("when", time)


def test_a_search_as_of_the_edge_of_time_is_answered_or_refused(space):
    space.files.write("/a", "walrus")
    assert len(space.search("walrus", now="9999-12-31T23:59:59Z")) == 1
    with pytest.raises(InvalidInput, match="now"):
        space.search("walrus", now="9999-12-31T23:59:59-23:59")


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, None, "1", 1.5, True, [1]])
def test_a_commit_or_revision_that_is_none_is_refused(space, number):
    space.files.write("/a", "text")
    for call in (
        lambda: space.undo(number),
        lambda: space.changes(number),
        lambda: space.changes(limit=number),
        lambda: space.state("file", "/a", number),
        lambda: space.restore("file", "/a", number),
    ):
        with pytest.raises(InvalidInput):
            call()


def test_a_page_of_changes_may_be_as_long_as_a_number_is():
    with commonplace.open(":memory:", background=False) as book:  # a service has a limit of its own
        space = book.space("user", "u1")
        space.files.write("/a", "text")
        assert len(space.changes(limit=2**63 - 1)) == 1


@pytest.mark.parametrize("key", ["\ud800", None, ["a"], "a\0b", "x" * 10_000])
def test_a_key_that_no_entry_has_is_refused(space, key):
    for kind in ("message", "thread", "working", "record"):
        with pytest.raises(InvalidInput):
            space.history(kind, key)


@pytest.mark.parametrize("actor", ["a\0b", "\ud800", "two\nlines", 5, "x" * 2_000])
def test_an_actor_that_no_history_can_name_is_refused(tmp_path, actor):
    with commonplace.open(tmp_path / "book.db", background=False) as book, pytest.raises(InvalidInput):
        book.space("user", "u1", actor=actor)


def test_a_prefix_that_no_namespace_has_is_refused(tmp_path):
    with commonplace.open(tmp_path / "book.db", background=False) as book:
        for wrong in (5, "\ud800", "a/b"):
            with pytest.raises(InvalidInput):
                book.namespaces(wrong)


def test_a_page_of_namespaces_that_cannot_be_is_refused(tmp_path):
    with commonplace.open(tmp_path / "book.db", background=False) as book:
        for after in ("a/b", ("a\0",), ("\ud800",), ()):
            with pytest.raises(InvalidInput, match="namespace"):
                book.namespaces(after=after)
        for limit in (-1, 0, 2**63, "1", None):
            with pytest.raises(InvalidInput, match="limit"):
                book.namespaces(limit=limit)
