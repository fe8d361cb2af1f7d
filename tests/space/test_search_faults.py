"""Searches go on where a model gives nonsense, refuses some texts, or where another program keeps the book busy."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import commonplace
from commonplace import Unavailable
from commonplace.checks import moment
from commonplace.engine import indexer
from commonplace.language.passages import Passage, passages
from doubles import OpenBook, WordEmbedder

SEARCH_SECONDS = 5.0
"""Half of what a write waits for others; a search should take some tenths of a second."""


class Odd(WordEmbedder):
    """Gives something else for passages than it should, until it is mended."""

    def __init__(self, change: Callable[[Any], Any], *, reads_sentences: bool = False) -> None:
        super().__init__()
        self.reads_sentences = reads_sentences
        self.change: Callable[[Any], Any] = change
        self.is_called = threading.Event()

    def embed(self, texts: Sequence[str], *, purpose: str) -> Any:
        rows = super().embed(texts, purpose=purpose)
        if purpose == "query":
            return rows
        self.is_called.set()
        return self.change(rows)


class Picky(WordEmbedder):
    """Refuses a batch with a bitter text in it; `asked` counts the batches."""

    def __init__(self, identity: str = "picky@1") -> None:
        super().__init__(identity)
        self.asked = 0

    def embed(self, texts: Sequence[str], *, purpose: str) -> Any:
        if purpose == "passage":
            self.asked += 1
            if any("bitter" in text for text in texts):
                raise ValueError("400: input refused")
        return super().embed(texts, purpose=purpose)


def settled(book: commonplace.Book, pending: int) -> bool:
    deadline = time.monotonic() + 30
    while book.stats().pending != pending and time.monotonic() < deadline:
        time.sleep(0.01)
    return book.stats().pending == pending


@contextmanager
def kept_busy(book: commonplace.Book) -> Iterator[None]:
    """Another program is in the middle of a long write."""
    has_begun, may_end = threading.Event(), threading.Event()

    def work(_: object) -> None:
        has_begun.set()
        may_end.wait(60)

    writer = threading.Thread(target=book.store.write, args=(("user", "other"), work))
    writer.start()
    assert has_begun.wait(30)
    try:
        yield
    finally:
        may_end.set()
        writer.join()


# A model that gives nonsense


@pytest.mark.promise("engine-keywords-without-model")
@pytest.mark.parametrize("reads_sentences", [False, True])
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda rows: rows[:, :5], "shape"),
        (lambda rows: rows[:-1], "shape"),
        (lambda rows: rows * np.nan, "not finite"),
        (lambda rows: rows[0], "shape"),
        (lambda rows: [[0.5], [0.5, 0.5]], "failed"),
    ],
)
def test_what_is_no_vector_is_not_stored_and_a_notice_names_the_model(
    open_book: OpenBook, change: Callable[[Any], Any], told: str, reads_sentences: bool
) -> None:
    embedder = Odd(change, reads_sentences=reads_sentences)
    book = open_book(embedder=embedder)
    space = book.space("user", "u1")
    space.files.write("/a", "Apples are red. Pears are green.")
    space.files.write("/b", "plums")
    result = space.search("apples")
    assert [hit.key for hit in result] == ["/a"]
    (notice,) = result.notices
    assert told in notice
    assert "words@1" in notice
    assert book.stats().vectors == 0
    assert book.verify() == []
    embedder.change = lambda rows: rows
    assert space.search("apples").notices == ()
    assert book.stats().vectors == 2


def test_vectors_may_be_lists(open_book: OpenBook) -> None:
    for reads_sentences in (False, True):
        book = open_book(":memory:", embedder=Odd(lambda rows: rows.tolist(), reads_sentences=reads_sentences))
        book.space("user", "u1").files.write("/a", "Apples are red. Pears are green.")
        assert "meaning" in book.space("user", "u1").search("apples")[0].parts


def test_a_query_whose_vector_is_nonsense_is_answered_by_keywords(
    open_book: OpenBook, embedder: WordEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = open_book().space("user", "u1")
    space.files.write("/a", "apples")
    space.search("anything")
    sound = embedder.embed
    monkeypatch.setattr(embedder, "embed", lambda texts, *, purpose: sound(texts, purpose=purpose)[:, :5])
    result = space.search("apples")
    assert [hit.key for hit in result] == ["/a"]
    assert "keywords only: the embedder words@1" in result.notices[0]


def test_embedding_behind_the_writes_goes_on_after_any_failure(
    open_book: OpenBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(indexer, "IDLE_SECONDS", 0.01)
    embedder = Odd(lambda rows: rows[:-1])
    book = open_book(embedder=embedder, background=True, clock=None)
    monkeypatch.setattr(indexer, "LEASE_SECONDS", 0.0)
    book.space("user", "u1").files.write("/a", "apples")
    assert embedder.is_called.wait(30)
    claim, failed = book.store.claim, threading.Event()

    def claim_in_vain(*_: object, **__: object) -> Any:
        failed.set()
        raise ValueError("unforeseen")

    monkeypatch.setattr(book.store, "claim", claim_in_vain)
    assert failed.wait(30)
    monkeypatch.setattr(book.store, "claim", claim)
    embedder.change = lambda rows: rows
    assert settled(book, 0)


def test_vectors_of_a_wrong_length_are_told_of_and_made_anew(open_book: OpenBook) -> None:
    book = open_book()
    space = book.space("user", "u1")
    for name in ("/a", "/b"):
        space.files.write(name, "apples")
    space.search("apples")
    space.files.write("/b", "plums")
    (waiting,) = book.store.pending(("user", "u1"), 5)
    book.store.index("words@1", [(waiting.chunk_id, np.ones(5, np.float32))])
    (problem,) = book.verify()
    assert "1 vectors with another length than their model's; `commonplace reindex`" in problem
    book.reindex()
    assert book.verify() == []
    assert space.search("plums")[0].parts["meaning"] > 0.9


# A model that refuses some texts


def test_a_refused_passage_keeps_no_other_from_its_vector(open_book: OpenBook) -> None:
    embedder = Picky()
    book = open_book(embedder=embedder)
    space = book.space("user", "u1")
    space.files.write("/first", "bitter almonds")
    for number in range(30):
        space.files.write(f"/{number}", f"apple {number}")
    space.files.write("/last", "bitter herbs")
    for _ in range(20):
        space.search("apple")
    assert "2 passages wait" in space.search("bitter").notices[0]
    asked = embedder.asked
    assert {hit.key for hit in space.search("bitter", limit=2)} == {"/first", "/last"}
    assert embedder.asked == asked


def test_a_reindex_comes_past_refused_passages_and_tells_of_them(open_book: OpenBook) -> None:
    book = open_book(embedder=Picky())
    space = book.space("user", "u1")
    for number in range(30):
        space.files.write(f"/{number}", f"apple {number}")
    for number in range(3 * indexer.BATCH):
        space.files.write(f"/bitter/{number}", f"bitter {number}")
    for _ in range(2):
        with pytest.raises(Unavailable, match=r"picky@1 refuses 24 passages.*others are embedded") as told:
            book.reindex()
        assert len(told.value.__notes__) == indexer.REFUSED_SHOWN
        assert "user/u1: 'bitter 23': the embedder picky@1 failed: ValueError: 400" in told.value.__notes__[0]
        assert (book.stats().vectors, book.stats().pending) == (30, 24)


@pytest.mark.promise("engine-model-change")
def test_a_change_of_model_ends_when_what_it_refused_is_gone_or_goes_back(open_book: OpenBook) -> None:
    book = open_book()
    space = book.space("user", "u1")
    for name, text in (("/a", "apples"), ("/b", "bitter")):
        space.files.write(name, text)
    space.search("apples")
    for _ in range(2):
        with pytest.raises(Unavailable, match=r"picky@1 refuses 1 passage,.*searches use words@1"):
            book.reindex(Picky())
        assert book.store.models() == ("words@1", "picky@1")
        assert "meaning" in space.search("apples")[0].parts
        book.reindex()
        assert (book.store.models(), book.stats().pending) == (("words@1", "words@1"), 0)
    space.files.delete("/b")
    book.reindex(Picky())
    assert (book.store.models(), book.stats().pending) == (("picky@1", "picky@1"), 0)


def test_embedding_behind_the_writes_comes_past_refused_passages(open_book: OpenBook) -> None:
    book = open_book(embedder=Picky(), background=True, clock=None)
    space = book.space("user", "u1")
    for number in range(30):
        space.files.write(f"/{number}", f"{'bitter' if number % 15 == 7 else 'apple'} {number}")
    assert settled(book, 2)


def test_a_model_that_is_away_is_not_asked_for_each_passage(open_book: OpenBook) -> None:
    asked: list[int] = []

    def fail(rows: Any) -> Any:
        asked.append(len(rows))
        raise OSError("connection refused")

    book = open_book(embedder=Odd(fail))
    for number in range(8):
        book.space("user", "u1").files.write(f"/{number}", f"apple {number}")
    assert "connection refused" in book.space("user", "u1").search("apple").notices[0]
    assert asked == [8, 1]


# A busy book


@pytest.mark.usefixtures("on_file")
def test_a_search_does_not_wait_for_another_program_that_writes(open_book: OpenBook) -> None:
    book, other = open_book(), open_book()
    space = book.space("user", "u1")
    space.files.write("/old", "apples")
    space.search("apples")
    space.files.write("/new", "apples and plums")
    with kept_busy(other):
        start = time.monotonic()
        for _ in range(3):
            result = space.search("apples")
            assert {hit.key for hit in result} == {"/old", "/new"}
            assert "1 passage waits for its vector" in result.notices[0]
        assert time.monotonic() - start < SEARCH_SECONDS
    assert settled(book, 0)
    assert space.search("apples").notices == ()


def test_the_first_search_of_a_book_does_not_wait_either(open_book: OpenBook) -> None:
    book, other = open_book(), open_book()
    book.space("user", "u1").files.write("/a", "apples")
    with kept_busy(other):
        start = time.monotonic()
        assert [hit.key for hit in book.space("user", "u1").search("apples")] == ["/a"]
        assert time.monotonic() - start < SEARCH_SECONDS
    assert settled(book, 0)


def test_a_search_of_the_past_writes_only_where_something_has_expired(open_book: OpenBook, clock: Any) -> None:
    book, other = open_book(), open_book()
    space = book.space("user", "u1")
    space.files.write("/a", "apples")
    space.files.write("/b", "apples", ttl_seconds=60)
    space.search("apples")
    then = moment(clock.advance())
    with kept_busy(other):
        assert len(space.search("apples", as_of=then)) == 2
    clock.advance(100)
    assert len(space.search("apples", as_of=then)) == 2
    assert len(space.search("apples")) == 1


def test_a_long_text_is_cut_into_passages_before_others_have_to_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut: list[int] = []

    def cut_while_another_writes(text: str) -> tuple[Passage, ...]:
        if len(text) > 100:
            other.space("user", "u2").files.append("/n", "not kept waiting")
            cut.append(len(text))
        return passages(text)

    monkeypatch.setattr("commonplace.entry.passages", cut_while_another_writes)
    text = "apples " * 5_000
    path = tmp_path / "book.db"
    with (
        commonplace.open(path, background=False) as book,
        commonplace.open(path, background=False, busy_seconds=0.1) as other,
    ):
        book.space("user", "u1").files.write("/long", text)
        assert cut == [len(text)]
