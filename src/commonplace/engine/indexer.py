"""Embedding in the background: a thread computes the vectors of pending passages, and a search can ask for some first.

A write only marks its passages as pending. A search first embeds the newest passages of its own namespace, for a
bounded time; several searches share that work. No write needs anything here. If a model cannot be loaded, only vectors
are missing.

A program that ends waits for the current batches: a thread that is inside a model while Python shuts down crashes the
process (SIGABRT, SIGSEGV).
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from commonplace.checks import Namespace, stored_namespace
from commonplace.embedding import Embedder
from commonplace.engine.embedders import Models, embed, is_loaded, with_sentences
from commonplace.errors import CommonplaceError, Unavailable
from commonplace.language.passages import passages
from commonplace.language.tokenizer import STEM
from commonplace.store import Candidate, Indexing, Pending, Progress, Scan, Store

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

BATCH = 8
STORED_TOGETHER = 64
TOGETHER_SECONDS = 0.005
"""A search stores the vectors of several batches in one commit, up to this many and for this long."""
LEASE_SECONDS = 60.0
RETRY_SECONDS = 30.0
IDLE_SECONDS = 5.0
MAINTENANCE_SECONDS = 60.0
MAINTAINED_SECONDS = 1.0
"""A program that writes maintains the store when it was idle for IDLE_SECONDS, and at least every MAINTENANCE_SECONDS,
for about MAINTAINED_SECONDS each time."""
PAUSE_SECONDS = 0.05
BURST_SECONDS = 0.5
"""Embedding starts when nobody has written for PAUSE_SECONDS, or BURST_SECONDS after the first write: its two commits a
batch, and its share of the interpreter, would slow down a burst of writes. A search does not wait for either."""
LOAD_PAUSE_SECONDS = 2.0
LOAD_BURST_SECONDS = 30.0
"""The same for a model that is not loaded yet. A short program that writes a few lines has ended by then: loading takes
a hundred times as long as its writes, and dozens of such programs at a time would slow each other down. Its passages
stay pending until a search or a program that runs longer."""
CLOSE_SECONDS = 5.0
"""How long `close`, and the end of a program, wait for a busy model; its passages stay pending."""
ROUND_SECONDS = 86_400
NAMESPACES_A_STEP = 20
"""Old history is erased in one round a day over all namespaces, some of them in a step."""
STORE_SECONDS = 0.2
"""How long a search waits at least for the commit of the vectors that it computed; without other writers it takes
milliseconds."""
REFUSED_SHOWN = 5
"""How many of the passages that a model refuses an error shows."""

_ROUND = ("maintenance", "history")
_log = logging.getLogger(__name__)
_ending = threading.Event()
_busy: set[int] = set()
"""The threads of this process that are embedding now, of all books and agents."""


@contextmanager
def _delaying_exit() -> Iterator[None]:
    """The program does not end in this block, for a bounded time. The block checks `_stops` after each batch."""
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
    os.register_at_fork(after_in_child=_busy.clear)  # a child process has no threads of its parent


class Indexer:
    """Embeds the passages of one store in one process. Without `is_background`, only searches and `run` embed. With
    `embeds=False` other processes do it, and the thread in the background only maintains the store.
    """

    def __init__(
        self,
        store: Store,
        models: Models,
        *,
        is_background: bool = True,
        embeds: bool = True,
        keep_history_seconds: float | None = None,
    ) -> None:
        self._store = store
        self._models = models
        self._is_background = is_background
        self._embeds = embeds
        self._keep_history_seconds = keep_history_seconds
        self._work = threading.Lock()
        self._storer = ThreadPoolExecutor(1, "commonplace-vectors")
        self._storing: Future[None] | None = None
        self._refused: set[int] = set()  # passages that the model refused; searches do not send them again
        self._urgent = 0
        self._wake = threading.Event()
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None
        self._writing: set[int] = set()  # the threads that write or wait to write
        self._is_closed = False
        self._is_awaited = False
        self._needs_maintenance = False
        self._maintained_at = time.monotonic()

    @property
    def _stops(self) -> bool:
        return self._is_closed or _ending.is_set()

    def begin_write(self) -> None:
        """Call this before each write of this process, and `end_write` after it: meanwhile the program is not idle."""
        self._writing.add(threading.get_ident())

    def end_write(self) -> None:
        self._writing.discard(threading.get_ident())

    def notice_write(self) -> None:
        """Call this after a commit: there may be passages to embed."""
        if not self._is_background or self._is_closed:
            return
        self._needs_maintenance = True
        self._wake.set()
        if self._thread is None:
            with self._mutex:
                if self._thread is None and not self._is_closed:
                    thread = threading.Thread(target=self._loop, name="commonplace-indexer", daemon=True)
                    # Python starts no more threads when the program is ending; what is pending waits for the next one.
                    with suppress(RuntimeError):
                        thread.start()
                        self._thread = thread

    def embed_pending(
        self, namespace: Namespace, seconds: float, likely: Callable[[], Sequence[Candidate]]
    ) -> Indexing:
        """Embed what is pending in a namespace, for at most about this many seconds; return what is left.

        If more than one batch is pending, the `likely` passages come first, then the newest.
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
                    if self._storing is None or self._storing.done():
                        self._storing = self._embed_newest(namespace, first)
                    storing = self._storing
                finally:
                    self._work.release()
                if storing is None:
                    break
                try:
                    storing.result(max(STORE_SECONDS, deadline - time.monotonic()))
                except TimeoutError:
                    break
                state = self._store.indexing(namespace)
        finally:
            with self._mutex:
                self._urgent -= 1
        return self._store.indexing(namespace)

    def run(self, progress: Progress | None = None) -> None:
        """Embed everything that is pending, in this thread, even what another program has leased.

        `close` stops it after the current batch. Passages that the model refuses are skipped; at the end Unavailable
        names them.
        """
        refused: dict[Pending, CommonplaceError] = {}
        with _delaying_exit():
            total = self._store.indexing().pending
            while pending := self._store.indexing().pending:
                if progress is not None:
                    progress(max(0, total - pending), max(total, pending), "passages")
                with self._work:
                    if self._stops:
                        return
                    # Refused passages, which may be the newest, are claimed again.
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
        """Wait until nothing is pending; False if that takes longer. Without a background thread, do not wait."""
        deadline = time.monotonic() + seconds
        self._is_awaited = True
        self._wake.set()
        while self._is_background and not self._is_closed and self._store.indexing().pending:
            if time.monotonic() > deadline:
                return False
            time.sleep(PAUSE_SECONDS)
        return True

    def work(self, stops: Callable[[], bool]) -> None:
        """Embed what any process of the book writes, until `stops` says so. Raises if the model fails at the start."""
        self.try_model(of_writes=True)
        waker = self._store.waker()
        try:
            while not stops():
                self.notice_write()
                waker.wait(IDLE_SECONDS)
        finally:
            waker.close()

    def try_model(self, *, of_writes: bool = False) -> None:
        """Load the model of searches, or that of new texts, and embed a word with it; raise if that fails."""
        serving, target = self._store.models()
        identity = target if of_writes else serving
        embed(self._models.chosen if identity is None else self._models.for_identity(identity), ["ready"], "query")

    def target(self) -> Embedder:
        """The model that new texts are embedded with: the target of the book, or the chosen one if it has none yet."""
        _, target = self._store.models()
        return self._models.chosen if target is None else self._models.for_identity(target)

    def set_target_model(self, embedder: Embedder) -> None:
        """Embed with this model from now on, unless it fails; searches use the old vectors until all are made."""
        target = with_sentences(embedder)
        embed(target, ["ready"], "query")
        self._store.set_target_model(target.identity, target.dimensions)

    def _embed_newest(self, namespace: Namespace, first: list[tuple[int, int]]) -> Future[None] | None:
        """Embed some batches, of the `first` if those are pending; None if there was nothing to store.

        Another thread stores the vectors: in a busy book a write waits for longer than a search should.
        """
        waiting = self._not_refused(self._store.pending(namespace, STORED_TOGETHER, among=first)) if first else []
        if not waiting:
            first.clear()
            waiting = self._not_refused(self._store.pending(namespace, STORED_TOGETHER))
        if not waiting:
            return None
        embedder = self.target()
        vectors = self._vectors_at_once(embedder, waiting)
        with self._mutex:
            if not vectors or self._is_closed:
                return None
            try:
                return self._storer.submit(self._store_vectors, embedder, vectors)
            except RuntimeError:  # Python starts no more work when the program is ending
                return None

    def _vectors_at_once(self, embedder: Embedder, waiting: Sequence[Pending]) -> dict[int, NDArray[float32]]:
        """The vectors of as many batches as a fast model makes in the time that a commit takes; one batch at least."""
        vectors: dict[int, NDArray[float32]] = {}
        enough = time.monotonic() + TOGETHER_SECONDS
        for start in range(0, len(waiting), BATCH):
            try:
                vectors |= self._vectors(embedder, waiting[start : start + BATCH])[0]
            except CommonplaceError:
                if not vectors:
                    raise
                break
            if time.monotonic() > enough or self._stops:
                break
        return vectors

    def _not_refused(self, waiting: Sequence[Pending]) -> list[Pending]:
        return [passage for passage in waiting if passage.chunk_id not in self._refused]

    def _embed(self, claimed: Sequence[Pending]) -> dict[Pending, CommonplaceError]:
        """Embed one batch; return the passages that the model refused, which stay pending."""
        embedder = self.target()
        vectors, refused = self._vectors(embedder, claimed)
        if vectors:
            self._store_vectors(embedder, vectors)
        return refused

    def _vectors(
        self, embedder: Embedder, claimed: Sequence[Pending]
    ) -> tuple[dict[int, NDArray[float32]], dict[Pending, CommonplaceError]]:
        """The vectors of the passages that the model accepts, and the refused ones; raise if it accepts none."""
        vectors: dict[int, NDArray[float32]] = {}
        refused: dict[Pending, CommonplaceError] = {}
        try:
            rows = embed(embedder, [passage.text for passage in claimed], "passage")
            vectors = {passage.chunk_id: row for passage, row in zip(claimed, rows, strict=True)}
        except CommonplaceError:
            embed(embedder, ["ready"], "passage")  # an unavailable model is not called for each passage
            for passage in claimed:
                try:
                    vectors[passage.chunk_id] = embed(embedder, [passage.text], "passage")[0]
                except CommonplaceError as error:
                    _log.info("no vector for a passage of %s: %s", "/".join(passage.namespace), error)
                    refused[passage] = error
        self._refused.difference_update(vectors)
        self._refused.update(passage.chunk_id for passage in refused)
        return vectors, refused

    def _store_vectors(self, embedder: Embedder, vectors: Mapping[int, NDArray[float32]]) -> None:
        if self._store.models() == (None, None):
            self.set_target_model(embedder)
        self._store.index(embedder.identity, list(vectors.items()))

    def _refusal(self, refused: Mapping[Pending, CommonplaceError]) -> Unavailable:
        serving, target = self._store.models()
        until = "" if serving == target else f"; until they have vectors too, searches use {serving}"
        passages = "1 passage" if len(refused) == 1 else f"{len(refused):,} passages"
        error = Unavailable(
            f"{target} refuses {passages}, found by keywords only; all others are embedded"
            f"{until}; change or delete these texts or choose another model, then reindex again"
        )
        for passage, reason in list(refused.items())[:REFUSED_SHOWN]:
            error.add_note(f"{'/'.join(passage.namespace)}: {passage.text[:60]!r}: {reason}")
        return error

    def _loop(self) -> None:
        while not self._stops:
            is_idle = not self._wake.wait(IDLE_SECONDS)
            self._wake.clear()
            if not is_idle:
                self._let_writes_pass(PAUSE_SECONDS, BURST_SECONDS)
            self._maintain_if_due(is_idle=is_idle)
            if not self._embeds:
                continue
            try:
                if not is_idle and not self._is_awaited and not is_loaded(self.target()):
                    self._let_writes_pass(LOAD_PAUSE_SECONDS, LOAD_BURST_SECONDS)
                with _delaying_exit():
                    self._embed_all()
            except CommonplaceError:
                # Searches meet the same error and report it; here it only means to wait.
                self._closed_within(RETRY_SECONDS)
            except Exception:  # noqa: BLE001 - without this thread nothing would embed
                _log.exception("embedding failed; retrying in %g seconds", RETRY_SECONDS)
                self._closed_within(RETRY_SECONDS)

    def _maintain_if_due(self, *, is_idle: bool) -> None:
        """Do what the store has to do, in steps: it must not grow where nobody is ever idle, or no model works."""
        is_due = is_idle or time.monotonic() - self._maintained_at >= MAINTENANCE_SECONDS
        if not is_due or not self._needs_maintenance:
            return
        self._needs_maintenance = False  # a write meanwhile sets it again
        enough = time.monotonic() + MAINTAINED_SECONDS
        try:
            with _delaying_exit():
                while not self._stops and (self._store.maintain() or self._forget_history()):
                    if time.monotonic() > enough:
                        self._needs_maintenance = True
                        break
        except CommonplaceError as error:
            self._needs_maintenance = True
            _log.warning("maintenance failed, and is tried again: %s", error)
        except Exception:  # noqa: BLE001 - this thread must go on
            _log.exception("maintenance failed")
        self._maintained_at = time.monotonic()

    def _forget_history(self) -> bool:
        """Erase what was replaced or deleted too long ago; returns whether this round has more to look at.

        Where the round is is stored in the book, so that the processes of a book share it.
        """
        if self._keep_history_seconds is None:
            return False
        now = time.time()
        stored = self._store.system_get(*_ROUND)
        after = stored.get("after") if isinstance(stored, dict) else None
        begun = stored.get("begun", 0) if isinstance(stored, dict) else 0
        if after is None and isinstance(begun, int | float) and now - begun < ROUND_SECONDS:
            return False
        page = self._store.namespaces(
            after=stored_namespace(after) if isinstance(after, str) and after else None, limit=NAMESPACES_A_STEP
        )
        before = round((now - self._keep_history_seconds) * 1_000_000)
        for namespace in page:
            if self._stops:
                return False
            if self._store.read(namespace, lambda reader: reader.usage()).former_states:
                self._store.purge(namespace, history_before=before)
        is_over = len(page) < NAMESPACES_A_STEP
        begun = now if after is None else begun
        self._store.system_put(*_ROUND, {"begun": begun, "after": None if is_over else "/".join(page[-1])})
        return not is_over

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
        """Stop after the current batch; the rest stays pending for the next program."""
        with self._mutex:
            self._is_closed = True
        self._storer.shutdown(wait=False)
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(CLOSE_SECONDS)


SAMPLED = 100
"""Of how many namespaces, and of how many entries in each, the stems are looked for."""


def lacks_stems(store: Store) -> bool:
    """Whether texts in other languages than English were indexed by a program that did not know their stems.

    Such texts are found by their words. Only some of them are looked at.
    """
    for namespace in store.namespaces(limit=SAMPLED):
        entries = store.scan(namespace, Scan(limit=SAMPLED)).entries
        stems = {
            term for entry in entries for part in passages(entry.text) for term in part.terms if term.startswith(STEM)
        }
        if stems and not all(store.term_counts(namespace, sorted(stems)).containing.values()):
            return True
    return False
