"""Search through the library: finds by words and by meaning, what was written last included; never what is gone."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import commonplace
from commonplace import InvalidInput, Space, TooLarge, Unavailable
from commonplace.checks import moment
from commonplace.cli import main
from commonplace.embedding import create_embedder
from commonplace.engine.embedders import embed
from commonplace.engine.search import Notice
from doubles import Clock, OpenBook, WordEmbedder, rounds
from postgres_server import empty, shared_book


def keys(space: Space, query: str, **options: Any) -> list[str]:
    return [hit.key for hit in space.search(query, **options)]


def by_words(space: Space, query: str, **options: Any) -> list[str]:
    return [hit.key for hit in space.search(query, **options) if "keyword" in hit.parts]


@pytest.mark.promise("engine-identifiers-findable")
@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("call getUserById(id) first", "getUserById"),
        ("call getUserById(id) first", "user by id"),
        ("call getUserById(id) first", "get_user_by_id"),
        ("fails with ERR_2048 at night", "ERR_2048"),
        ("fails with ERR_2048 at night", "err 2048"),
        ("set max_retry_count to 5", "max_retry_count"),
        ("set max_retry_count to 5", "retry"),
        ("see src/commonplace/store.py:12", "store.py"),
        ("costs 1,250,000 euro", "1250000"),
        ("on 2026-01-31 at noon", "2026-01-31"),
        ("the café in Zürich", "cafe zurich"),
        ("the cafe in Zurich", "CAFÉ ZÜRICH"),
        ("straße", "STRASSE"),
        ("東京都に住んでいます", "東京"),
        ("東京都に住んでいます", "住んで"),
        ("그는 서울에 살아요", "서울"),
        ("Он живёт в Москве", "москве"),
        ("ในกรุงเทพ", "กรุงเทพ"),
        ("ship it \U0001f680", "\U0001f680"),
        ("mail alice@example.com", "alice@example.com"),
        ("they were running tests", "run test"),
        ("C++ and C#", "c++"),
        ("it is what it is", "what is it"),
    ],
)
def test_a_text_is_found_by_its_words_in_any_script_and_spelling(space: Space, text: str, query: str) -> None:
    space.files.write("/target", text)
    for number in range(3):
        space.files.write(f"/other{number}", "Nothing alike stands here, only filler words.")
    assert by_words(space, query)[0] == "/target"


@pytest.mark.promise("engine-long-texts")
def test_a_word_of_a_long_file_is_found_among_short_notes(space: Space) -> None:
    words = [f"word{number % 2}x{number // 2}" for number in range(150)]
    space.files.write("/long", "\n".join(words))
    space.files.write_all({f"/note{number}": "x0" for number in range(300)})
    for word in words[::10]:
        assert by_words(space, word)[0] == "/long"
        assert word in space.search(word)[0].snippet


@pytest.mark.promise("engine-any-query-is-safe")
@settings(max_examples=rounds(60), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(query=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=60))
@example('"')
@example("NEAR(a b, 5)")
@example("terms:words AND OR NOT")
@example("*")
@example("words*")
@example("^words")
@example("a\"b'c; DROP TABLE entry; --")
@example("{}[]()|&!~^$#@%+-=<>,.?/\\")
@example("words " * 10_000)
@example("w" * 99_999)
@example("".join(f"word{number} " for number in range(8_000)))
def test_any_query_is_answered(space: Space, query: str) -> None:
    space.files.write("/f", "some words")
    if not query.strip():
        with pytest.raises(InvalidInput):
            space.search(query)
        return
    for hit in space.search(query):
        assert 0 <= hit.score <= 1


@pytest.mark.parametrize("query", ["", "  ", "\n", None, 5, "a\x00b", "\ud800"])
def test_a_query_that_asks_nothing_is_refused(space: Space, query: Any) -> None:
    with pytest.raises(InvalidInput):
        space.search(query)


def test_an_endless_query_is_refused_at_once_and_an_endless_word_is_stored(space: Space) -> None:
    with pytest.raises(TooLarge):
        space.search("x" * 1_000_000)
    begin = time.monotonic()
    space.files.write("/f", "y" * 1_000_000 + " needle")
    assert by_words(space, "needle") == ["/f"]
    assert by_words(space, "y" * 90_000) == ["/f"]
    assert time.monotonic() - begin < 20


@pytest.mark.parametrize("limit", [0, -1, 1_001])
def test_a_limit_or_offset_out_of_bounds_is_refused(space: Space, limit: int) -> None:
    with pytest.raises(InvalidInput, match="limit"):
        space.search("x", limit=limit)
    with pytest.raises(InvalidInput, match="offset"):
        space.search("x", offset=-1)


@pytest.mark.promise("engine-search-sees-writes")
def test_the_next_search_after_a_write_sees_it_by_words_and_by_meaning(space: Space) -> None:
    for word in ("zebra", "yak", "quokka", "emu", "ibex"):
        space.files.write(f"/{word[0]}", f"{word} thing")
        first = space.search(word)[0]
        assert first.key == f"/{word[0]}"
        assert set(first.parts) == {"keyword", "meaning"}
    space.files.write("/q", "altogether different")
    assert by_words(space, "quokka") == []
    assert keys(space, "altogether different")[0] == "/q"


@pytest.mark.promise("engine-deleted-never-found")
def test_a_deleted_file_never_appears_in_search(space: Space) -> None:
    for number in range(20):
        space.files.write(f"/f{number}", f"zebra {number}")
    assert len(keys(space, "zebra", limit=50)) == 20
    for number in range(0, 20, 2):
        space.files.delete(f"/f{number}")
    assert sorted(keys(space, "zebra", limit=50)) == sorted(f"/f{number}" for number in range(1, 20, 2))
    space.files.move("/f1", "/moved")
    assert "/f1" not in keys(space, "zebra", limit=50)
    assert "/moved" in keys(space, "zebra", limit=50)
    space.files.delete("/")
    assert keys(space, "zebra") == []


def test_a_page_is_full_and_pages_follow_one_another(space: Space) -> None:
    for number in range(30):
        space.files.write(f"/f{number}", "zebra " * (number % 5 + 1))
    everything = keys(space, "zebra", limit=30)
    assert sorted(everything) == sorted(f"/f{number}" for number in range(30))
    assert [key for start in range(0, 30, 7) for key in keys(space, "zebra", limit=7, offset=start)] == everything
    assert keys(space, "zebra", limit=5, offset=30) == []


@pytest.mark.parametrize("limit", [3, 7, 40])
def test_pages_of_equal_texts_lose_and_double_nothing_whenever_each_was_written(space: Space, limit: int) -> None:
    for number in range(120):
        space.files.write(f"/f{number}", "apple pie")
    for number in (3, 110, 0, 57, 5, 1, 99, 4, 2, *range(60, 90)):
        space.files.write(f"/f{number}", "another text")
        space.files.write(f"/f{number}", "apple pie")
    while space.search("apple pie").notices:
        pass
    paged = [key for start in range(0, 120, limit) for key in keys(space, "apple pie", limit=limit, offset=start)]
    assert paged == keys(space, "apple pie", limit=120)
    assert sorted(paged) == sorted(f"/f{number}" for number in range(120))
    assert paged[0] == "/f89"


def test_pages_over_several_namespaces_lose_and_double_nothing(book: commonplace.Book) -> None:
    for name in "abc":
        part = book.space("org", name)
        for number in range(10):
            part.files.write(f"/f{number}", "apple pie")
        for number in (3, 1, 7):
            part.files.write(f"/f{number}", "another text")
            part.files.write(f"/f{number}", "apple pie")
    found = [
        (hit.entry.namespace, hit.key)
        for start in range(0, 30, 4)
        for hit in book.space("org").search("apple pie", limit=4, offset=start, below=True)
    ]
    assert len(found) == len(set(found)) == 30


WORDS = ("tea", "ferry", "Ana", "cabin", "deploy", "garden", "lamp", "yesterday")


def fill_with_every_kind(book: commonplace.Book, clock: Clock) -> datetime:
    """Files, records and messages of people and assistants in three namespaces; a third of them was changed later."""
    chance = random.Random(5)

    def text() -> str:
        return " ".join(chance.choices(WORDS, k=chance.randint(1, 12)))

    for labels, count in ((("org",), 240), (("org", "a"), 60), (("org", "b"), 7)):
        space = book.space(*labels)
        for number in range(7):
            space.threads.create(id=f"t{number}")
        for number in range(count // 3):
            clock.advance(chance.choice((1, 3_600, 86_400)))
            space.files.write(f"/{number % 3}/{number}.md", text())
            space.records.create(
                type=chance.choice(("note", "fact")),
                content=text(),
                source="test",
                confidence=1.0,
                tags=chance.sample(WORDS[:3], 2),
            )
            said = {"role": chance.choice(("user", "assistant")), "content": text(), "createdAt": moment(clock())}
            space.threads.add(f"t{number * number % 7}", [{**said, "name": "Ana"} if number % 3 == 0 else said])
    then = moment(clock())
    clock.advance(60)
    for number in range(0, 80, 3):
        book.space("org").files.write(f"/{number % 3}/{number}.md", text())
    for labels in (("org",), ("org", "a"), ("org", "b")):
        while book.space(*labels).search("tea").notices:
            pass
    return then


@pytest.mark.promise("search-pages-are-one-list")
@pytest.mark.parametrize("place", ["sqlite", "postgres"])
def test_pages_of_any_size_are_parts_of_one_list(open_book: OpenBook, clock: Clock, place: str) -> None:
    """The number of candidates depended on the page, and so did the order of the results."""
    if place == "postgres":
        empty(shared_book())
    book = open_book(shared_book() if place == "postgres" else None)
    then = fill_with_every_kind(book, clock)
    space, chance = book.space("org"), random.Random(7)
    for query in ("tea on the ferry with Ana", "what did we say about the garden yesterday?", "lamp", "cabin deploy"):
        for options in (
            {},
            {"kinds": ["message"]},
            {"below": True},
            {"as_of": then},
            {"type": "note", "tags": ["tea"]},
            {"filter": {"role": "user"}, "below": True, "as_of": then},
        ):
            everything = space.search(query, limit=1_000, **options).hits
            assert len({(hit.entry.namespace, hit.kind, hit.key) for hit in everything}) == len(everything)
            assert [hit.score for hit in everything] == sorted((hit.score for hit in everything), reverse=True)
            cuts = ((0, 1), (0, 10), (0, 50), (10, 10), (len(everything), 3))
            for offset, limit in (*cuts, *((chance.randrange(200), chance.randint(1, 120)) for _ in range(2))):
                page = space.search(query, limit=limit, offset=offset, **options).hits
                assert page == everything[offset : offset + limit], (query, options, offset, limit)


def write_pending(book: commonplace.Book, count: int) -> None:
    """Files of which a search embeds a few at a time."""
    chance = random.Random(3)
    for number in range(count):
        text = " ".join(chance.choices(WORDS, k=chance.randint(1, 12)))
        book.space("org").files.write(f"/{number}", f"{text} {number}")


@pytest.mark.promise("search-pages-are-one-list")
def test_pages_are_parts_of_one_list_while_vectors_arrive(open_book: OpenBook, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page embedded more of what was pending, and was cut from another list than the page before."""
    monkeypatch.setattr("commonplace.engine.search.LAG_SECONDS", 0.0)
    book = open_book()
    space = book.space("org")
    write_pending(book, 150)
    embed_some(book, space)
    pages = []
    for offset in range(0, 160, 10):
        page = space.search("tea on the ferry", limit=10, offset=offset)
        assert [notice.code for notice in page.notices if isinstance(notice, Notice)] == ["pending"]
        pages += page.hits
        embed_some(book, space)
    assert len({hit.key for hit in pages}) == len(pages) > 100
    assert [hit.score for hit in pages] == sorted((hit.score for hit in pages), reverse=True)
    assert all(hit.snippet and hit.entry.revision for hit in pages)


@pytest.mark.promise("search-pages-are-one-list")
@pytest.mark.parametrize("limits", [(10, 50), (50, 10)])
def test_another_limit_cuts_the_same_list_while_vectors_arrive(
    open_book: OpenBook, monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int]
) -> None:
    monkeypatch.setattr("commonplace.engine.search.LAG_SECONDS", 0.0)
    book = open_book()
    space = book.space("org")
    write_pending(book, 150)
    embed_some(book, space)
    first, second = limits
    one = keys(space, "tea on the ferry", limit=first)
    embed_some(book, space)
    other = keys(space, "tea on the ferry", limit=second)
    assert one[:10] == other[:10]
    book.indexer.run()
    again = keys(space, "tea on the ferry", limit=second)
    assert again[:10] != one[:10]
    assert keys(space, "tea on the ferry", limit=first)[:10] == again[:10]


def test_a_kept_list_is_made_again_after_a_write_and_by_a_search_from_the_start(
    open_book: OpenBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commonplace.engine.search.LAG_SECONDS", 0.0)
    book = open_book()
    space = book.space("org")
    write_pending(book, 60)
    embed_some(book, space)
    first = keys(space, "tea on the ferry", limit=60)
    assert keys(space, "tea on the ferry", limit=60, offset=5) == first[5:]
    space.files.delete(first[7])
    assert first[7] not in keys(space, "tea on the ferry", limit=60, offset=5)
    book.indexer.run()
    again = keys(space, "tea on the ferry", limit=60)
    assert again != [key for key in first if key != first[7]]
    assert keys(space, "tea on the ferry", limit=60, offset=5) == again[5:]


@pytest.mark.promise("search-pages-never-show-what-was-removed")
@pytest.mark.parametrize("remove", ["purge", "delete", "write", "expire"])
def test_a_further_page_never_shows_what_was_removed_meanwhile(
    open_book: OpenBook, clock: Clock, monkeypatch: pytest.MonkeyPatch, remove: str
) -> None:
    monkeypatch.setattr("commonplace.engine.search.LAG_SECONDS", 0.0)
    book = open_book()
    space = book.space("org")
    write_pending(book, 40)
    space.items.put("soon", {"text": "tea on the ferry with Ana"}, ttl_seconds=60)
    embed_some(book, space)
    hits = space.search("tea on the ferry", limit=60).hits
    gone = next(hit for hit in hits if (hit.kind == "item") == (remove == "expire"))
    if remove == "purge":
        book.store.purge(space.namespace, kind=gone.kind, key=gone.entry.key)
    elif remove == "delete":
        space.files.delete(gone.key)
    elif remove == "write":
        space.files.write(gone.key, "nothing of the kind")
    else:
        clock.advance(120)
    shown = space.search("tea on the ferry", limit=60, offset=1)
    assert gone.entry.text not in [hit.entry.text for hit in shown]
    assert len(shown) >= len(hits) - 2


def test_a_write_during_a_search_is_found_by_its_next_page(
    open_book: OpenBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list was taken for one that was made after the write."""
    monkeypatch.setattr("commonplace.engine.search.LAG_SECONDS", 0.0)
    book = open_book()
    space = book.space("org")
    write_pending(book, 40)
    embed_some(book, space)
    search = book.store.search

    def search_then_write(*arguments: Any, **options: Any) -> Any:
        found = search(*arguments, **options)
        if found is not None and not space.files.exists("/late"):
            space.files.write("/late", "tea on the ferry")
        return found

    monkeypatch.setattr(book.store, "search", search_then_write)
    assert "/late" not in keys(space, "tea on the ferry", limit=5)
    further = keys(space, "tea on the ferry", limit=59, offset=1)
    fresh = keys(space, "tea on the ferry", limit=60)
    assert "/late" in fresh[:10]
    assert further == fresh[1:]


def test_lists_of_other_namespaces_filters_and_floors_are_apart(
    open_book: OpenBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commonplace.engine.search.LAG_SECONDS", 0.0)
    book = open_book()
    space, other = book.space("org"), book.space("other")
    write_pending(book, 60)
    other.files.write("/theirs", "tea on the ferry")
    other.files.write("/theirs too", "tea on the ferry in June")
    embed_some(book, space)
    everything = space.search("tea on the ferry", limit=100).hits
    assert {hit.entry.namespace for hit in space.search("tea on the ferry", offset=1)} == {("org",)}
    assert {hit.entry.namespace for hit in other.search("tea on the ferry", offset=1)} == {("other",)}
    assert len(space.search("tea on the ferry", limit=100, offset=1)) == len(everything) - 1
    assert len(space.search("tea on the ferry", limit=100, offset=1, kinds=["record"])) == 0
    assert len(space.search("tea on the ferry", limit=100, offset=1, filter={"x": 1})) == 0
    floored = space.search("tea on the ferry", limit=100, offset=1, min_relevance=0.9)
    assert all(hit.relevance is None or hit.relevance >= 0.9 or "meaning" not in hit.parts for hit in floored)


def test_kept_lists_are_bounded(open_book: OpenBook, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("LAG_SECONDS", 0.0), ("KEPT_LISTS", 4), ("KEPT_RESULTS", 150)):
        monkeypatch.setattr(f"commonplace.engine.search.{name}", value)
    book = open_book()
    space = book.space("org")
    write_pending(book, 100)
    embed_some(book, space)
    kept = space._searcher._lists._kept
    for number in range(6):
        space.search(f"lamp {number}", limit=1)
    assert 1 <= len(kept) <= 4
    assert sum(len(one.ranking) for one in kept.values()) <= 150
    assert all(not one.entry.text and not one.entry.attributes for one in next(iter(kept.values())).ranking._ranked)
    space.search("tea on the ferry", limit=1_000)
    space.search("tea on the ferry", limit=1_000, offset=1)
    assert sum(len(one.ranking) for one in kept.values()) <= 150
    monkeypatch.setattr("commonplace.engine.search.KEPT_SECONDS", -1.0)
    kept.clear()
    space.search("lamp", limit=1)
    assert not kept


def embed_some(book: commonplace.Book, space: Space) -> None:
    """Make the vectors of eight pending passages, as the background thread does."""
    if not hasattr(book, "indexer"):
        pytest.skip("the service makes the vectors of its own book")
    embedder = book.indexer.target()
    some = book.store.pending(space.namespace, 8)
    if book.store.models() == (None, None):
        book.indexer.set_target_model(embedder)
    vectors = embed(embedder, [passage.text for passage in some], "passage")
    book.store.index(embedder.identity, [(passage.chunk_id, row) for passage, row in zip(some, vectors, strict=True)])


def test_scores_fall_and_tell_their_parts(space: Space) -> None:
    space.files.write("/same", "blue green deployment")
    space.files.write("/part", "green grass and a lot of other things to read about")
    space.files.write("/none", "unrelated")
    hits = space.search("blue green deployment")
    assert [hit.key for hit in hits][:2] == ["/same", "/part"]
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert hits[0].score > 0.85
    for hit in hits:
        assert 0 <= hit.score <= 1
        assert all(0 <= part <= 1 for part in hit.parts.values())
        assert set(hit.parts) <= {"keyword", "meaning"}
    assert hits[0].snippet
    assert space.search("blue green deployment").hits == hits.hits


def test_kinds_types_tags_fields_and_times_narrow_a_search(space: Space, clock: Any) -> None:
    start = clock.now
    space.files.write("/f", "zebra in a file")
    clock.advance(10)
    note = space.records.create(
        type="note", content={"text": "zebra note", "weight": 3}, source="s", confidence=0.5, tags=["a", "b"]
    )
    clock.advance(10)
    todo = space.records.create(type="todo", content={"text": "zebra todo"}, source="s", confidence=0.9, tags=["b"])
    found = {"/f": "f", note.id: "n", todo.id: "t"}

    def narrowed(**options: Any) -> str:
        return "".join(sorted(found[key] for key in keys(space, "zebra", **options)))

    assert narrowed() == "fnt"
    assert narrowed(kinds=["file"]) == "f"
    assert narrowed(kinds=["record"]) == "nt"
    assert narrowed(type="note") == "n"
    assert narrowed(tags=["b"]) == "nt"
    assert narrowed(tags=["a", "B "]) == "n"
    assert narrowed(tags=["a", "b"], match="any") == "nt"
    assert narrowed(filter={"weight": {"$gt": 2}}) == "n"
    assert narrowed(filter={"confidence": {"$gte": 0.9}}) == "t"
    assert narrowed(filter={"weight": {"$ne": 3}}) == "ft"
    assert narrowed(after=moment(start + 5_000_000)) == "nt"
    assert narrowed(before=moment(start + 15_000_000)) == "fn"
    assert narrowed(after=moment(start + 5_000_000).isoformat(), before=moment(start + 15_000_000)) == "n"
    with pytest.raises(InvalidInput):
        space.search("zebra", kinds=["nonsense"])
    with pytest.raises(InvalidInput):
        space.search("zebra", filter={"a": {"$near": 1}})


def test_a_filter_that_few_pass_still_fills_the_page(space: Space) -> None:
    for number in range(150):
        space.files.write(f"/f{number}", "zebra zebra")
    for number in range(5):
        space.records.create(type="note", content=f"one zebra among many words {number}", source="s", confidence=1)
    assert len(keys(space, "zebra", kinds=["record"], limit=5)) == 5


@pytest.mark.promise("engine-long-texts")
def test_a_long_text_is_found_by_a_passage_anywhere_in_it_and_once(space: Space) -> None:
    filler = "Nothing of interest happens in this sentence of the report. " * 80
    space.files.write("/long", filler + "The zebra sleeps at noon. " + filler + "A yak wakes up. " + filler)
    space.files.write("/short", "No animals here.")
    for query, words in (("zebra sleeps", "zebra"), ("yak wakes", "yak")):
        hits = space.search(query)
        assert [hit.key for hit in hits].count("/long") == 1
        assert hits[0].key == "/long"
        assert words in hits[0].entry.text[hits[0].start : hits[0].end]
        assert words in hits[0].snippet
    space.files.append("/long", "At the very end a quokka.")
    assert "quokka" in space.search("quokka")[0].snippet


@pytest.mark.promise("engine-as-of-search")
def test_a_search_of_the_past_finds_what_was_there_then(space: Space, clock: Any) -> None:
    space.files.write("/kept", "zebra kept")
    space.files.write("/edited", "zebra before")
    space.files.write("/deleted", "zebra deleted")
    space.files.write("/expiring", "zebra expiring", ttl_seconds=5)
    space.search("zebra")
    then = moment(clock.advance(1))
    clock.advance(10)
    space.files.write("/edited", "yak after")
    space.files.delete("/deleted")
    space.files.write("/new", "zebra new")
    space.files.move("/kept", "/renamed")
    found = {hit.key: hit.entry.value for hit in space.search("zebra", as_of=then) if "keyword" in hit.parts}
    assert found == {
        "/kept": "zebra kept", "/edited": "zebra before", "/deleted": "zebra deleted", "/expiring": "zebra expiring"
    }  # fmt: skip
    assert all("meaning" in hit.parts for hit in space.search("zebra", as_of=then))
    assert set(by_words(space, "zebra")) == {"/renamed", "/new"}
    assert by_words(space, "yak", as_of=then) == []
    assert keys(space, "zebra", as_of=moment(1)) == []


@pytest.mark.parametrize("end", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
@pytest.mark.parametrize("query", ["tea", "tea of yesterday", "tea last year", "tea in May", "tea 900 years ago"])
def test_a_search_is_answered_from_either_end_of_the_calendar(space: Space, end: datetime, query: str) -> None:
    space.files.write("/a", "tea")
    assert keys(space, query, now=end) == ["/a"]
    assert len(space.search(query, as_of=end)) == (end.year == 9999)
    assert list(space.threads.search(query, now=end)) == []


def test_a_search_of_the_past_finds_all_that_has_expired_since_however_much(space: Space, clock: Any) -> None:
    for number in range(1_100):
        space.files.write(f"/f{number}", "zebra", ttl_seconds=5)
    then = moment(clock.advance(1))
    clock.advance(10)
    assert len(keys(space, "zebra", as_of=then, limit=1_000)) == 1_000
    assert len(keys(space, "zebra", as_of=then, limit=1_000, offset=1_000)) == 100


def test_a_search_of_the_past_finds_by_paths_types_and_tags_as_one_of_today_does(space: Space, clock: Any) -> None:
    space.files.write("/zebra/plan.md", "hello world")
    record = space.records.create(type="quokka", content="a fact", source="s", confidence=1, tags=["wombat"])
    then = moment(clock.advance(1))

    def found(**options: Any) -> list[list[tuple[str, int, int]]]:
        asked = ("zebra", "plan", "zebra hello", "quokka", "wombat")
        hits = [[hit for hit in space.search(query, **options) if "keyword" in hit.parts] for query in asked]
        return [[(hit.key, hit.start, hit.end) for hit in some] for some in hits]

    before = found()
    assert before == 3 * [[("/zebra/plan.md", 0, 11)]] + 2 * [[(record.id, 0, 6)]]
    clock.advance(10)
    space.files.delete("/zebra")
    space.records.delete(record.id)
    assert found() == 5 * [[]]
    assert found(as_of=then) == before


@pytest.mark.promise("engine-keywords-without-model")
def test_without_a_model_keywords_answer_and_a_notice_says_so(space: Space, embedder: Any) -> None:
    space.files.write("/f", "zebra")
    embedder.error = Unavailable("the model cannot be loaded; install it")
    result = space.search("zebra")
    assert [hit.key for hit in result] == ["/f"]
    assert set(result[0].parts) == {"keyword"}
    assert any("keywords only" in notice and "install it" in notice for notice in result.notices)
    embedder.error = None
    result = space.search("zebra")
    assert set(result[0].parts) == {"keyword", "meaning"}
    assert result.notices == ()


@pytest.mark.promise("engine-model-change")
def test_a_new_model_takes_over_while_the_old_vectors_serve(book: commonplace.Book, embedder: Any) -> None:
    from doubles import WordEmbedder

    space = book.space("user", "u1")
    for number in range(30):
        space.files.write(f"/f{number}", f"zebra {number}")
    book.reindex()  # a search would embed as many as it can in its time, which may be none
    before = len(embedder.embedded)
    newer = WordEmbedder("words@2", 32)
    seen: list[int] = []

    def stop_halfway(done: int, total: int | None, word: str) -> None:
        seen.append(done)
        if done >= 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        book.reindex(newer, progress=stop_halfway)
    halfway = len(newer.embedded)
    assert 0 < halfway < 30
    result = space.search("zebra", limit=30)
    assert {frozenset(hit.parts) for hit in result} == {frozenset({"keyword", "meaning"})}
    assert any("words@2" in notice for notice in result.notices)
    assert book.stats().model == "words@1"
    book.reindex(newer)
    assert book.stats().model == "words@2"
    assert len(newer.embedded) <= 30 + 8  # the half that was done is not done again, but for one batch in hand
    result = space.search("zebra", limit=30)
    assert {frozenset(hit.parts) for hit in result} == {frozenset({"keyword", "meaning"})}
    assert result.notices == ()
    assert len(embedder.embedded) == before
    assert book.stats().vectors == 30
    assert book.verify() == []


@pytest.mark.promise("engine-model-change")
def test_a_model_that_cannot_embed_does_not_become_the_books(open_book: Any) -> None:
    from doubles import WordEmbedder

    absent = WordEmbedder("absent@1", 32)
    absent.error = Unavailable("install it")
    first = open_book(embedder=absent)
    first.space("user", "u1").files.write("/f", "zebra")
    assert "install it" in str(first.space("user", "u1").search("zebra").notices)
    first.close()
    book = open_book()
    space = book.space("user", "u1")
    for name in ("/f", "/g"):
        space.files.write(name, "zebra")
        result = space.search("zebra")
        assert {frozenset(hit.parts) for hit in result} == {frozenset({"keyword", "meaning"})}
        assert result.notices == ()
        with pytest.raises(Unavailable, match="install it"):
            book.reindex(absent)
    assert book.store.models() == ("words@1", "words@1")


def test_doctor_tells_of_a_model_that_new_texts_wait_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COMMONPLACE_MODELS", str(tmp_path / "no-models"))
    with commonplace.open(tmp_path / "book.db", background=False) as book:
        book.store.set_target_model("words@1", 64)
        book.store.set_target_model(create_embedder("all-MiniLM-L6-v2").identity, 384)
    assert main(["--db", str(tmp_path / "book.db"), "doctor", "--json"]) == 1
    told = {one["check"]: one["text"] for one in json.loads(capsys.readouterr().out)["checks"] if not one["ok"]}
    assert sorted(told) == ["model", "vectors"]
    assert "commonplace model pull all-MiniLM-L6-v2" in told["vectors"]


def test_a_book_of_another_model_answers_by_keywords_and_says_what_to_do(open_book: Any) -> None:
    from doubles import WordEmbedder

    first = open_book()
    first.space("user", "u1").files.write("/f", "zebra")
    first.space("user", "u1").search("zebra")
    first.close()
    second = open_book(embedder=WordEmbedder("other@1", 16))
    result = second.space("user", "u1").search("zebra")
    assert [hit.key for hit in result] == ["/f"]
    assert any("reindex" in notice for notice in result.notices)
    second.reindex()
    result = second.space("user", "u1").search("zebra")
    assert set(result[0].parts) == {"keyword", "meaning"}
    assert result.notices == ()


def test_the_background_indexer_embeds_without_being_asked(open_book: Any, embedder: Any) -> None:
    book = open_book(background=True, clock=None)
    for number in range(20):
        book.space("user", f"u{number}").files.write("/f", f"text {number}")
    deadline = time.monotonic() + 10
    while book.stats().pending and time.monotonic() < deadline:
        time.sleep(0.01)
    assert book.stats().pending == 0
    assert book.stats().vectors == 20


@pytest.mark.promise("search-embeds-keyword-matches-first")
def test_where_much_waits_for_vectors_the_passages_that_the_words_find_get_theirs_first(
    space: Space, embedder: Any
) -> None:
    for number in range(3):
        space.files.write(f"/old{number}", f"the lighthouse of harbour {number}")
    for number in range(40):
        space.files.write(f"/new{number}", f"a later note, number {number}")
    result = space.search("lighthouse", limit=3)
    assert sorted(embedder.embedded[:3]) == [f"the lighthouse of harbour {number}" for number in range(3)]
    assert embedder.embedded[3] == "a later note, number 39"
    assert all(set(hit.parts) == {"keyword", "meaning"} for hit in result)


class EverythingAlike(WordEmbedder):
    """Finds all texts near each other, and can be told to embed no more passages."""

    is_out_of_order = False

    def embed(self, texts: Sequence[str], *, purpose: str) -> NDArray[np.float32]:
        if purpose == "passage" and self.is_out_of_order:
            raise Unavailable("the model is out of order")
        rows = super().embed(texts, purpose=purpose)
        rows[:, 0] += 1
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.promise("search-pending-not-ranked-lower")
def test_a_text_that_waits_for_its_vector_does_not_stand_below_all_that_have_one(open_book: Any) -> None:
    embedder = EverythingAlike()
    space = open_book(embedder=embedder).space("user", "u1")
    for number in range(6):
        space.files.write(f"/other{number}", f"a note on subject {number}")
    assert space.search("note").notices == ()
    embedder.is_out_of_order = True
    space.files.write("/lamp", "the lamp of the lighthouse")
    result = space.search("lighthouse lamp", limit=3)
    assert (result[0].key, set(result[0].parts)) == ("/lamp", {"keyword"})
    assert all(set(hit.parts) == {"meaning"} for hit in result[1:])
    assert result.notices == ("new passages are found by keywords only: the model is out of order",)


def test_two_books_on_one_file_find_what_the_other_wrote(open_book: Any) -> None:
    one, two = open_book(), open_book()
    for number in range(5):
        one.space("user", "u1").files.write(f"/one{number}", f"zebra {number}")
        found = two.space("user", "u1").search("zebra", limit=20)
        assert len(found) == number + 1
        assert all("meaning" in hit.parts for hit in found)
    two.space("user", "u1").files.delete("/one2")
    assert "/one2" not in keys(one.space("user", "u1"), "zebra", limit=20)


@pytest.mark.usefixtures("on_file")
def test_upkeep_ends_and_changes_no_answer(book: commonplace.Book) -> None:
    space = book.space("user", "upkeep")
    for number in range(40):
        space.files.write(f"/notes/{number}", f"note number {number}")
    before = [(hit.key, hit.score) for hit in space.search("note number", limit=50)]
    assert len(before) == 40
    steps = 0
    while book.store.maintain():
        steps += 1
        assert steps < 1_000
    assert steps > 0
    assert [(hit.key, hit.score) for hit in space.search("note number", limit=50)] == before
    assert book.verify() == []


def test_a_hit_tells_its_times_as_files_and_records_do(space: Space, clock: Clock) -> None:
    """Whoever took `hit.entry.created_at` for a datetime, as everywhere, found a number of microseconds."""
    space.files.write("/f", "zebra")
    clock.advance(60)
    info = space.files.append("/f", "more")
    [hit] = space.search("zebra").hits
    assert (hit.created_at, hit.updated_at) == (info.created_at, info.updated_at)
    assert hit.updated_at - hit.created_at == timedelta(seconds=60)


@pytest.mark.promise("recent-newest-first")
def test_recent_lists_what_changed_last_of_every_kind(book: commonplace.Book, space: Space, clock: Clock) -> None:
    space.files.write("/notes/a", "first  line\nsecond")
    clock.advance(1)
    record = space.records.create(type="note", content={"text": "tea"}, source="s", confidence=1, tags=["ana"])
    clock.advance(1)
    thread = space.threads.create()
    [message] = space.threads.add(thread.id, [{"role": "user", "content": "hello"}])
    clock.advance(1)
    space.files.append("/notes/a", "third")
    space.files.write("/notes/gone", "x")
    space.files.delete("/notes/gone")
    book.space("user", "u2").files.write("/other", "of somebody else")

    found = space.recent()
    assert [(entry.kind, entry.key) for entry in found] == [
        ("file", "/notes/a"),
        ("message", message.id),
        ("record", record.id),
    ]
    assert (found[0].snippet, found[0].revision) == ("first line second third", 2)
    assert found[0].updated_at - found[0].created_at == timedelta(seconds=3)
    assert (found[1].thread, found[1].role, found[1].snippet) == (thread.id, "user", "hello")
    assert (found[2].type, found[2].tags, found[2].snippet) == ("note", ("ana",), "tea")
    assert space.recent(limit=2) == found[:2]
    assert space.recent(kinds=["record", "record"]) == found[2:]
    assert [entry.key for entry in space.recent(kinds=["thread"])] == [thread.id]
    for wrong in ({"limit": -1}, {"kinds": ["thing"]}, {"kinds": "file"}):
        with pytest.raises(InvalidInput):
            space.recent(**wrong)  # type: ignore[arg-type]
