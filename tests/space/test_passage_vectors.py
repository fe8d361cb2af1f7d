"""Passages that are heard by their sentences: what their vectors are, and books that were embedded without them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from commonplace import Space
from commonplace.embedding import create_embedder
from commonplace.engine.embedders import SUFFIX, SentenceReader
from commonplace.language.weights import LONGEST_SENTENCES as LONGEST
from doubles import OpenBook, WordEmbedder

TOPIC = "Could you recommend a recipe for a soup with lentils and carrots and a little cumin for the weekend please? "
ASIDE = "By the way my sister moved to Lyon."


class SentenceEmbedder(WordEmbedder):
    """The model of `embedder`, in the release that reads sentences too."""

    reads_sentences = True


def write_notes(space: Space, count: int) -> None:
    for number in range(count):
        space.files.write(f"/note{number}", f"{TOPIC}{ASIDE} Note {number}.")


@pytest.mark.promise("passages-embedded-by-sentence")
def test_a_short_passage_is_heard_by_its_sentences_as_well(open_book: OpenBook) -> None:
    embedder = SentenceEmbedder()
    space = open_book(embedder=embedder).space("user", "u1")
    space.files.write("/a", TOPIC + ASIDE)
    space.search("sister")
    assert set(embedder.embedded) == {TOPIC + ASIDE, TOPIC.strip(), ASIDE}

    mixed = SentenceReader(embedder).embed([TOPIC + ASIDE], purpose="passage")[0]
    plain = embedder.embed([TOPIC + ASIDE], purpose="passage")[0]
    heard = embedder.embed([ASIDE], purpose="query")[0]
    assert float(mixed @ heard) > float(plain @ heard)
    assert float(np.linalg.norm(mixed)) == pytest.approx(1.0)


def test_long_passages_single_sentences_and_queries_are_read_as_they_are(embedder: WordEmbedder) -> None:
    texts = ["One sentence stands here. " * (LONGEST // 20), "One. Two."]
    reader = SentenceReader(embedder)
    assert np.array_equal(reader.embed(texts, purpose="passage"), embedder.embed(texts, purpose="passage"))
    question = [TOPIC + ASIDE]
    assert np.array_equal(reader.embed(question, purpose="query"), embedder.embed(question, purpose="query"))


def test_only_the_model_that_was_measured_with_sentences_asks_for_them() -> None:
    asks = [getattr(create_embedder(name), "reads_sentences", False) for name in (None, "all-MiniLM-L6-v2")]
    assert asks == [True, False]


def test_vectors_with_sentences_have_an_identity_of_their_own(
    open_book: OpenBook, embedder: WordEmbedder, tmp_path: Path
) -> None:
    plain, reading = open_book(tmp_path / "plain.db"), open_book(tmp_path / "reading.db", embedder=SentenceEmbedder())
    for book in (plain, reading):
        write_notes(book.space("user", "u1"), 1)
        book.space("user", "u1").search("sister")
    assert (plain.stats().model, reading.stats().model) == (embedder.identity, embedder.identity + SUFFIX)


@pytest.mark.promise("passages-embedded-by-sentence-identity")
def test_a_book_from_before_sentences_were_heard_answers_and_is_embedded_anew_when_asked(
    open_book: OpenBook, embedder: WordEmbedder
) -> None:
    old = open_book()
    write_notes(old.space("user", "u1"), 20)
    before = old.space("user", "u1").search("sister Lyon", limit=30)
    old.close()

    newer = SentenceEmbedder()
    book = open_book(embedder=newer)
    space = book.space("user", "u1")
    assert space.search("sister Lyon", limit=30) == before
    assert newer.embedded == []

    space.files.write("/new", f"{TOPIC}{ASIDE}")
    found = space.search("sister Lyon", limit=30)
    assert {frozenset(hit.parts) for hit in found} == {frozenset({"keyword", "meaning"})}
    assert (newer.embedded, book.stats().model) == ([TOPIC + ASIDE], embedder.identity)  # never two kinds in one book

    def stop_halfway(done: int, total: int | None, word: str) -> None:
        if done >= 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        book.reindex(progress=stop_halfway)
    meanwhile = space.search("sister Lyon", limit=30)
    assert tuple(meanwhile) == tuple(found)
    assert any(f"{embedder.identity}{SUFFIX}" in notice for notice in meanwhile.notices)

    book.reindex()
    after = space.search("sister Lyon", limit=30)
    meanings = [{hit.key: hit.parts["meaning"] for hit in hits} for hits in (found, after)]
    assert meanings[0].keys() == meanings[1].keys()
    assert all(meanings[0][key] < meanings[1][key] for key in meanings[0])
    assert (book.stats().model, book.stats().vectors, book.stats().pending) == (embedder.identity + SUFFIX, 21, 0)
    assert (after.notices, book.verify()) == ((), [])


def test_a_book_that_is_opened_with_another_model_still_makes_queries_for_both_kinds(
    open_book: OpenBook, tmp_path: Path
) -> None:
    def make(name: str) -> WordEmbedder:
        return SentenceEmbedder(f"{name}@1")

    for number, first in enumerate((WordEmbedder("words@1"), SentenceEmbedder("words@1"))):
        written = open_book(tmp_path / f"book{number}.db", embedder=first)
        write_notes(written.space("user", "u1"), 2)
        expected = written.space("user", "u1").search("sister")
        written.close()
        other = open_book(tmp_path / f"book{number}.db", embedder=WordEmbedder("other@1", 16), make_embedder=make)
        assert other.space("user", "u1").search("sister") == expected
