"""Usage: what is counted, where the counts are kept, and that no search writes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from html import unescape

import pytest
from browsing import Browser

import commonplace
from commonplace.entry import SearchSeen
from commonplace.server import usage
from commonplace.server.http.service import Service
from commonplace.server.usage import CommitDays, SearchCounters, SearchCounts, bucket_of, last_days, seconds_of

SQLITE_ONLY = pytest.mark.parametrize("book", ["sqlite"], indirect=True)
DAY = datetime(2026, 11, 18, 9, 0, tzinfo=UTC)
ADA, BOB = ("user", "ada"), ("user", "bob")


def seen(namespace: tuple[str, ...] = ADA, seconds: float = 0.01, best: float = 0.5) -> SearchSeen:
    return SearchSeen(namespace, seconds, best)


def plain(html: str) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", html)))


# The screen


@pytest.mark.promise("page-usage")
def test_the_screen_shows_entries_writes_searches_latency_and_searches_in_vain(
    browser: Browser, space: commonplace.Space
):
    space.files.write("/harbour.md", "The harbour opens at nine.")
    space.records.create(type="fact", content="Bread needs flour", source="a test", confidence=1.0)
    browser.get("/ui?q=harbour opens")
    browser.get("/ui?q=zzzz&kind=message")
    page = browser.get("/ui/usage")
    text = plain(page.text)
    assert "Entries 2" in text
    assert "Writes 2" in text
    assert "Searches 2" in text
    assert "1 file and 1 record" in text
    assert re.search(r"Latency p50 [\d.]+ ms", text)
    assert re.search(r"Latency p95 [\d.]+ ms", text)
    today = datetime.now(UTC).date().isoformat()
    assert re.search(rf"Day Writes Searches {today} 2 2", text)
    assert re.search(rf"Day No good hit All searches {today} 1 2", text)
    assert "zzzz" not in page.text


@SQLITE_ONLY
def test_each_plot_has_its_numbers_as_json_and_as_a_table(browser: Browser, space: commonplace.Space):
    space.files.write("/a.md", "alpha")
    page = browser.get("/ui/usage?days=7").text
    plots = [json.loads(unescape(found)) for found in re.findall(r"data-plot='([^']*)'", page)]
    assert len(plots) == page.count("<table>") == 5
    assert all(len(plot["days"]) == 7 for plot in plots)
    assert plots[0]["series"][0] == {"label": "Writes", "unit": "number", "values": [0, 0, 0, 0, 0, 0, 1]}
    assert plots[1]["series"][0]["values"] == [None] * 7


@SQLITE_ONLY
def test_the_period_is_in_the_address(browser: Browser):
    assert 'href="/ui/usage?days=90" aria-current="true"' in browser.get("/ui/usage?days=90").text
    assert browser.get("/ui/usage?days=1000").status_code == 422


@SQLITE_ONLY
def test_the_usage_of_a_namespace_is_for_those_who_may_read_it(
    browser: Browser, make_key: Callable[..., str], book: commonplace.Book
):
    book.space(*BOB).files.write("/a.md", "alpha")
    browser.sign_in(make_key("ada", "user/ada", actions=["read"]))
    assert browser.get("/ui/usage").status_code == 200
    assert browser.get("/ui/usage?ns=user/bob").status_code == 403


# Counting


@pytest.mark.promise("usage-search-never-writes")
def test_a_search_writes_nothing_and_a_flush_is_no_commit(
    service: Service, browser: Browser, space: commonplace.Space, book: commonplace.Book
):
    space.files.write("/a.md", "alpha")
    before, feed = space.stats().commit, space.changes()
    browser.get("/ui?q=alpha")
    assert not _rows(book, space.namespace)
    assert service.searches.flush() == 1
    assert service.searches.flush() == 0
    (row,) = _rows(book, space.namespace).values()
    assert (row["searches"], row["entries"]) == (1, 1)
    assert (space.stats().commit, space.changes()) == (before, feed)
    assert "alpha" not in json.dumps(row)


def _rows(book: commonplace.Book, namespace: tuple[str, ...]) -> dict[str, dict[str, object]]:
    return book.store.system_list(usage._part(namespace))  # type: ignore[return-value]


@pytest.mark.promise("usage-servers-add-up")
def test_the_counts_of_several_servers_add_up(book: commonplace.Book):
    one, other = (SearchCounters(book.store, lambda: DAY) for _ in range(2))
    for counters, times in ((one, 3), (other, 2)):
        for _ in range(times):
            counters.count(seen())
        counters.flush()
    one.count(seen(best=0.0))
    found = other.days(ADA, DAY.date())[DAY.date()].counts
    assert (found.searches, found.without_good_hit) == (5, 0)
    one.flush()
    assert other.days(ADA, DAY.date())[DAY.date()].counts.searches == 6
    assert other.days(ADA, DAY.date())[DAY.date()].counts.without_good_hit == 1
    assert other.days(BOB, DAY.date()) == {}


@SQLITE_ONLY
def test_what_is_not_stored_yet_is_shown_and_what_cannot_be_stored_is_kept(
    book: commonplace.Book, monkeypatch: pytest.MonkeyPatch
):
    counters = SearchCounters(book.store, lambda: DAY)
    counters.count(seen())
    assert counters.days(ADA, DAY.date())[DAY.date()].counts.searches == 1

    def fail(*_: object, **__: object) -> bool:
        raise commonplace.Unavailable("the disk is full")

    with monkeypatch.context() as context:
        context.setattr(book.store, "system_put", fail)
        with pytest.raises(commonplace.Unavailable):
            counters.flush()
        counters.close()  # warns, and does not fail
    assert counters.flush() == 1
    assert counters.days(ADA, DAY.date())[DAY.date()].counts.searches == 1


@SQLITE_ONLY
@pytest.mark.promise("usage-bounded")
def test_memory_rows_and_flushes_are_bounded(book: commonplace.Book, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(usage, "MAX_COUNTED", 5)
    monkeypatch.setattr(usage, "ROWS_A_FLUSH", 2)
    now = DAY
    counters = SearchCounters(book.store, lambda: now)
    for number in range(8):
        counters.count(seen(("user", str(number))))
    assert counters.days(("user", "2"), now.date()) == {}
    assert len(counters.days(("user", "3"), now.date())) == 1
    assert [counters.flush() for _ in range(4)] == [2, 2, 1, 0]
    for ago in (usage.KEPT_DAYS + 1, 1, 0):
        now = DAY + timedelta(days=200 - ago)
        counters.count(seen())
        counters.flush()
    kept = [date.fromisoformat(key.split()[0]) for key in _rows(book, ADA)]
    assert kept == [now.date() - timedelta(days=1), now.date()]


@SQLITE_ONLY
def test_the_name_of_a_namespace_is_not_in_the_rows(book: commonplace.Book):
    part = usage._part(("user", "someone@example.org"))
    assert "someone" not in part


@SQLITE_ONLY
def test_a_stop_stores_what_was_counted(book: commonplace.Book):
    counters = SearchCounters(book.store, lambda: DAY)
    counters.start()
    counters.count(seen())
    counters.close()
    assert SearchCounters(book.store).days(ADA, DAY.date())[DAY.date()].counts.searches == 1


@SQLITE_ONLY
def test_a_further_page_of_a_search_is_not_another_search(book: commonplace.Book):
    space, counted = book.space(*ADA), []
    space.files.write("/a.md", "alpha")
    book.searcher.observe = counted.append
    space.search("alpha", limit=1)
    space.search("alpha", limit=1, offset=1)
    space.search("beta", kinds=["record"])
    assert [(one.namespace, usage.is_good(one.best, one.relevance)) for one in counted] == [(ADA, True), (ADA, False)]
    assert all(one.seconds > 0 for one in counted)


def test_latencies_are_kept_to_a_tenth():
    for seconds in (0.0004, 0.003, 0.05, 0.7, 9.0):
        assert seconds_of(bucket_of(seconds)) == pytest.approx(seconds, rel=0.1)
    assert bucket_of(0) == 0
    assert bucket_of(1e9) == bucket_of(1e12)
    counts = sum((SearchCounts.of(seen(seconds=one / 1_000)) for one in range(1, 101)), SearchCounts())
    assert counts.percentile(0.5) == pytest.approx(0.05, rel=0.1)
    assert counts.percentile(0.95) == pytest.approx(0.095, rel=0.1)
    assert SearchCounts().percentile(0.5) is None


# Writes


@pytest.mark.parametrize("book", ["sqlite", "postgres"], indirect=True)
def test_writes_are_counted_by_the_days_of_their_commits(book: commonplace.Book, monkeypatch: pytest.MonkeyPatch):
    from commonplace.server.page.connect_screen import sample_lines

    list(book.import_lines(_stream(sample_lines(("sample",)))))
    space = book.space("sample")
    days = last_days(date(2026, 11, 8), 60)
    feed = {change.commit: datetime.fromtimestamp(change.at / 1e6, UTC).date() for change in space.changes()}
    expected = [sum(day == one for one in feed.values()) for day in days]
    known = CommitDays()
    assert known.counts(space, days, space.stats().commit) == expected
    assert sum(expected) == space.stats().commit
    asked: list[int] = []
    real = type(space).changes
    monkeypatch.setattr(type(space), "changes", lambda *args: asked.append(1) or real(*args))
    assert known.counts(space, days, space.stats().commit) == expected
    assert len(asked) < 10, "past days are remembered"


@SQLITE_ONLY
def test_purged_commits_are_not_counted(book: commonplace.Book):
    space = book.space(*ADA)
    for number in range(5):
        space.files.write("/a.md", f"alpha {number}")
    space.purge()
    space.files.write("/b.md", "beta")
    today = datetime.now(UTC).date()
    assert CommitDays().counts(space, last_days(today, 3), space.stats().commit) == [0, 0, 1]


def _stream(lines: bytes):
    from io import BytesIO

    return BytesIO(lines)
