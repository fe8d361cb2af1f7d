"""Embedding behind the writes: a thread that gives pending passages their vectors, and searches that hurry it.

A write only leaves a mark. Whoever searches first sees to it that its own namespace's newest passages are embedded,
for a bounded time; several searches share that work. Nothing here is needed for a write, and a model that cannot be
loaded stops nothing but vectors.

A program that ends waits for the batches in hand: a thread that is inside a model while Python ends takes the whole
process with it (SIGABRT, SIGSEGV).
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from commonplace.checks import Namespace
from commonplace.embedding import Embedder
from commonplace.engine.embedders import Models, as_it_reads, embed, is_loaded
from commonplace.errors import CommonplaceError, Unavailable
from commonplace.store import Candidate, Indexing, Pending, Progress, Store

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

BATCH = 8
LEASE_SECONDS = 60.0
RETRY_SECONDS = 30.0
IDLE_SECONDS = 5.0
PAUSE_SECONDS = 0.05
BURST_SECONDS = 0.5
"""Embedding begins when nobody has written for the first, or after the second: its own two commits for each batch, and
its turns at the interpreter, would make a burst of writes wait. A search hurries it anyway."""
LOAD_PAUSE_SECONDS = 2.0
LOAD_BURST_SECONDS = 30.0
"""A model that is not loaded yet is loaded when nobody has written for the first, or after the second. A program that
writes a few lines and ends is gone by then: loading takes a hundred times as long as its writes, and dozens of such
programs at a time would keep each other from writing. Its passages wait for a search or for a program that stays."""
CLOSE_SECONDS = 5.0
"""How long closing, and the end of a program, wait for a model that is busy; its passages stay pending."""
KEEP_SECONDS = 0.2
"""How long a search waits at least for a commit of the vectors that it has made: without other writers milliseconds."""
REFUSED_TOLD = 5
"""So many of the passages that a model refuses are shown."""

_log = logging.getLogger(__name__)
_ending = threading.Event()
_busy: set[int] = set()
"""The threads of this process that embed behind the writes at the moment, of all books and agents."""


@contextmanager
def _held_till_done() -> Iterator[None]:
    """The program does not end meanwhile, for a bounded time; who works here looks at `_stops` after each batch."""
    thread = threading.get_ident()
    _busy.add(thread)
    try:
        yield
    finally:
        _busy.discard(thread)


@atexit.register
def _end() -> None:
    _ending.set()
    deadline = time.monotonic() + CLOSE_SECONDS
    while _busy and time.monotonic() < deadline:
        time.sleep(0.005)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_busy.clear)  # a child has none of its parent's threads


class Indexer:
    """Works on one store in one process. `is_background` false leaves all embedding to searches and `run`."""

    def __init__(self, store: Store, models: Models, *, is_background: bool = True) -> None:
        self._store = store
        self._models = models
        self._is_background = is_background
        self._work = threading.Lock()
        self._keeper = ThreadPoolExecutor(1, "commonplace-keeper")
        self._keeping: Future[None] | None = None
        self._refused: set[int] = set()  # passages that searches do not ask the model for again
        self._urgent = 0
        self._wake = threading.Event()
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None
        self._writing: set[int] = set()  # the threads that write or wait for their turn to write
        self._is_closed = False
        self._is_awaited = False
        self._is_untidy = False

    @property
    def _stops(self) -> bool:
        return self._is_closed or _ending.is_set()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Around a write of this process: while one waits for its turn, the program is not idle."""
        thread = threading.get_ident()
        self._writing.add(thread)
        try:
            yield
        finally:
            self._writing.discard(thread)

    def notice_write(self) -> None:
        """Called after a commit: there may be passages to embed."""
        if not self._is_background or self._is_closed:
            return
        self._is_untidy = True
        self._wake.set()
        if self._thread is None:
            with self._mutex:
                if self._thread is None and not self._is_closed:
                    self._thread = threading.Thread(target=self._loop, name="commonplace-indexer", daemon=True)
                    self._thread.start()

    def hurry(self, namespace: Namespace, seconds: float, likely: Callable[[], Sequence[Candidate]]) -> Indexing:
        """Embed what is pending in a namespace, for at most about so long; how far that came.

        Where more is pending than one batch, the `likely` come first, then the newest.
        """
        deadline = time.monotonic() + seconds
        state = self._store.indexing(namespace)
        if not state.pending or state.serving != state.target:
            return state
        first = [(one.entry_id, one.start) for one in likely()] if state.pending > BATCH else []
        with self._mutex:
            self._urgent += 1
        try:
            while state.pending and (left := deadline - time.monotonic()) > 0 and self._work.acquire(timeout=left):
                try:
                    if self._keeping is None or self._keeping.done():
                        self._keeping = self._embed_newest(namespace, first)
                    keeping = self._keeping
                finally:
                    self._work.release()
                if keeping is None:
                    break
                try:
                    keeping.result(max(KEEP_SECONDS, deadline - time.monotonic()))
                except TimeoutError:
                    break
                state = self._store.indexing(namespace)
        finally:
            with self._mutex:
                self._urgent -= 1
        return self._store.indexing(namespace)

    def run(self, progress: Progress | None = None) -> None:
        """Embed all that is pending, here and now, even what another program has leased and may have left behind.

        Closing stops it after the batch in hand. Passages that the model refuses are passed over and told of at the
        end, by Unavailable.
        """
        refused: dict[Pending, CommonplaceError] = {}
        with _held_till_done():
            total = self._store.indexing().pending
            while pending := self._store.indexing().pending:
                if progress is not None:
                    progress(max(0, total - pending), max(total, pending), "passages")
                with self._work:
                    if self._stops:
                        return
                    # The refused ones, which may be the newest, are claimed again.
                    claimed = self._store.claim(BATCH + len(refused), LEASE_SECONDS, even_leased=True)
                    claimed = [passage for passage in claimed if passage not in refused][:BATCH]
                    if not claimed:
                        if refused:
                            raise self._refusal(refused)
                        return
                    refused.update(self._embed(claimed))
            if progress is not None:
                progress(total, total, "passages")

    def settle(self, seconds: float) -> bool:
        """Wait until nothing is pending; whether that came to be in time. Where no thread embeds, do not wait."""
        deadline = time.monotonic() + seconds
        self._is_awaited = True
        self._wake.set()
        while self._is_background and not self._is_closed and self._store.indexing().pending:
            if time.monotonic() > deadline:
                return False
            time.sleep(PAUSE_SECONDS)
        return True

    def try_model(self, *, of_writes: bool = False) -> None:
        """Embed a word with the model of searches, or of new texts; loads it where need be, raises where that fails."""
        serving, target = self._store.models()
        identity = target if of_writes else serving
        embed(self._models.chosen if identity is None else self._models.for_identity(identity), ["ready"], "query")

    def target(self) -> Embedder:
        """The model that new texts are embedded with: the book's own, or while it has none the chosen one."""
        _, target = self._store.models()
        return self._models.chosen if target is None else self._models.for_identity(target)

    def aim(self, embedder: Embedder) -> None:
        """Make a model the one to embed with, unless it fails; the old vectors serve until all is done."""
        target = as_it_reads(embedder)
        embed(target, ["ready"], "query")
        self._store.aim(target.identity, target.dimensions)

    def _embed_newest(self, namespace: Namespace, first: list[tuple[int, int]]) -> Future[None] | None:
        """Embed one batch, of the `first` where they wait; None where nothing came of it.

        Another thread keeps the vectors: a book that is busy makes a write wait for longer than a search should.
        """
        waiting = self._not_refused(self._store.pending(namespace, BATCH, among=first)) if first else []
        if not waiting:
            first.clear()
            waiting = self._not_refused(self._store.pending(namespace, BATCH))
        if not waiting:
            return None
        embedder = self.target()
        vectors, _ = self._vectors(embedder, waiting)
        with self._mutex:
            if not vectors or self._is_closed:
                return None
            return self._keeper.submit(self._keep, embedder, vectors)

    def _not_refused(self, waiting: Sequence[Pending]) -> list[Pending]:
        return [passage for passage in waiting if passage.chunk_id not in self._refused]

    def _embed(self, claimed: Sequence[Pending]) -> dict[Pending, CommonplaceError]:
        """Embed one batch; those that the model refused, which stay pending."""
        embedder = self.target()
        vectors, refused = self._vectors(embedder, claimed)
        if vectors:
            self._keep(embedder, vectors)
        return refused

    def _vectors(
        self, embedder: Embedder, claimed: Sequence[Pending]
    ) -> tuple[dict[int, NDArray[float32]], dict[Pending, CommonplaceError]]:
        """The vectors of those that the model takes, and the others; raises where it takes nothing at all."""
        vectors: dict[int, NDArray[float32]] = {}
        refused: dict[Pending, CommonplaceError] = {}
        try:
            rows = embed(embedder, [passage.text for passage in claimed], "passage")
            vectors = {passage.chunk_id: row for passage, row in zip(claimed, rows, strict=True)}
        except CommonplaceError:
            embed(embedder, ["ready"], "passage")  # a model that is away is not asked for each passage
            for passage in claimed:
                try:
                    vectors[passage.chunk_id] = embed(embedder, [passage.text], "passage")[0]
                except CommonplaceError as error:
                    _log.info("a passage of %s gets no vector: %s", "/".join(passage.namespace), error)
                    refused[passage] = error
        self._refused.difference_update(vectors)
        self._refused.update(passage.chunk_id for passage in refused)
        return vectors, refused

    def _keep(self, embedder: Embedder, vectors: Mapping[int, NDArray[float32]]) -> None:
        if self._store.models() == (None, None):
            self.aim(embedder)
        self._store.index(embedder.identity, list(vectors.items()))

    def _refusal(self, refused: Mapping[Pending, CommonplaceError]) -> Unavailable:
        serving, target = self._store.models()
        until = "" if serving == target else f"; until they have vectors too, {serving} answers"
        passages = "1 passage" if len(refused) == 1 else f"{len(refused):,} passages"
        error = Unavailable(
            f"{target} refuses {passages}, found by keywords only; all others are embedded"
            f"{until}; change or delete these texts or choose another model, then reindex again"
        )
        for passage, reason in list(refused.items())[:REFUSED_TOLD]:
            error.add_note(f"{'/'.join(passage.namespace)}: {passage.text[:60]!r}: {reason}")
        return error

    def _loop(self) -> None:
        while not self._stops:
            is_idle = not self._wake.wait(IDLE_SECONDS)
            self._wake.clear()
            if not is_idle:
                self._let_writes_pass(PAUSE_SECONDS, BURST_SECONDS)
            try:
                if not is_idle and not self._is_awaited and not is_loaded(self.target()):
                    self._let_writes_pass(LOAD_PAUSE_SECONDS, LOAD_BURST_SECONDS)
                with _held_till_done():
                    self._embed_all()
                    if is_idle and self._is_untidy and not self._stops:
                        self._is_untidy = self._store.tidy()
            except CommonplaceError:
                # Searches meet the same error and tell of it; here it only means to wait.
                self._closed_within(RETRY_SECONDS)
            except Exception:  # noqa: BLE001 - nothing else would embed
                _log.exception("embedding failed; it is tried again in %g seconds", RETRY_SECONDS)
                self._closed_within(RETRY_SECONDS)

    def _let_writes_pass(self, pause_seconds: float, burst_seconds: float) -> None:
        """Wait until nobody has written for a while, or for long enough, or until someone waits for vectors."""
        deadline = time.monotonic() + burst_seconds
        while not self._stops and not self._is_awaited and time.monotonic() < deadline:
            if not self._wake.wait(pause_seconds) and not self._writing:
                return
            self._wake.clear()

    def _embed_all(self) -> None:
        while not self._stops:
            while self._urgent and not self._stops:
                time.sleep(0.005)
            with self._work:
                if self._stops or not (claimed := self._store.claim(BATCH, LEASE_SECONDS)):
                    return
                self._embed(claimed)

    def _closed_within(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._is_closed and time.monotonic() < deadline:
            self._wake.wait(1.0)
            self._wake.clear()

    def close(self) -> None:
        """Stop after the batch in hand; what is left stays pending for the next program."""
        with self._mutex:
            self._is_closed = True
        self._keeper.shutdown(wait=False)
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(CLOSE_SECONDS)
