"""Embedding behind the writes gives way to them: it begins in a pause, and a search does not wait for one."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import commonplace
from commonplace.engine import indexer
from doubles import WordEmbedder


class Watched(WordEmbedder):
    """Notes which thread had passages embedded."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[str] = []
        self.is_called = threading.Event()

    def embed(self, texts: Sequence[str], *, purpose: str) -> NDArray[np.float32]:
        if purpose == "passage":
            self.threads.append(threading.current_thread().name)
            self.is_called.set()
        return super().embed(texts, purpose=purpose)


@pytest.mark.promise("engine-writes-before-embedding")
def test_a_burst_of_writes_is_embedded_after_it_or_by_the_search_that_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "PAUSE_SECONDS", 600.0)
    monkeypatch.setattr(indexer, "BURST_SECONDS", 600.0)
    embedder = Watched()
    with commonplace.open(tmp_path / "memory.db", embedder=embedder) as book:
        space = book.space("user", "u1")
        for number in range(20):
            space.files.write(f"/notes/{number}", f"tea number {number}")
        assert embedder.threads == []
        assert len(space.search("tea", limit=20)) == 20
        assert set(embedder.threads) == {threading.current_thread().name}


@pytest.mark.promise("engine-writes-before-embedding")
def test_writes_without_end_do_not_keep_embedding_from_its_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "PAUSE_SECONDS", 600.0)
    monkeypatch.setattr(indexer, "BURST_SECONDS", 0.0)
    embedder = Watched()
    with commonplace.open(tmp_path / "memory.db", embedder=embedder) as book:
        book.space("user", "u1").files.write("/notes/1", "tea")
        assert embedder.is_called.wait(60)
    assert embedder.threads == ["commonplace-indexer"]


class Unloaded(Watched):
    """Would load a model at its first call, and tells when it is asked about that."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked = threading.Event()

    @property
    def is_loaded(self) -> bool:
        self.is_asked.set()
        return bool(self.threads)


@pytest.mark.promise("engine-short-writers-load-nothing")
def test_a_program_that_writes_a_little_and_ends_loads_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 programs that appended a line each loaded a model each, and some could not write for more than 10 s."""
    monkeypatch.setattr(indexer, "LOAD_PAUSE_SECONDS", 600.0)
    embedder = Unloaded()
    with commonplace.open(tmp_path / "memory.db", embedder=embedder) as book:
        book.space("user", "u1").files.write("/notes/1", "tea")
        assert embedder.is_asked.wait(60)
    assert embedder.threads == []


def test_whoever_waits_for_vectors_or_searches_has_the_model_loaded_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "LOAD_PAUSE_SECONDS", 600.0)
    for ask in (lambda book: book.indexer.settle(60), lambda book: book.space("user", "u1").search("tea")):
        embedder = Unloaded()
        with commonplace.open(":memory:", embedder=embedder) as book:
            book.space("user", "u1").files.write("/notes/1", "tea")
            assert embedder.is_asked.wait(60)
            assert ask(book)
            assert len(embedder.threads) == 1


def test_a_program_that_stays_has_its_writes_embedded_after_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "LOAD_PAUSE_SECONDS", 0.01)
    embedder = Unloaded()
    with commonplace.open(tmp_path / "memory.db", embedder=embedder) as book:
        book.space("user", "u1").files.write("/notes/1", "tea")
        assert embedder.is_called.wait(60)
    assert embedder.threads == ["commonplace-indexer"]
