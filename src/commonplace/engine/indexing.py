"""Embedding behind the writes: a thread that gives pending passages their vectors, and searches that hurry it.

A write only leaves a mark. Whoever searches first sees to it that its own namespace's newest passages are embedded,
for a bounded time; several searches share that work. Nothing here is needed for a write, and a model that cannot be
loaded stops nothing but vectors.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from commonplace.checks import Namespace
from commonplace.embedding import Embedder
from commonplace.engine.models import Models, embed
from commonplace.engine.passage_vectors import as_it_reads
from commonplace.errors import CommonplaceError
from commonplace.store import Candidate, Indexing, Pending, Progress, Store

BATCH = 8
LEASE_SECONDS = 60.0
RETRY_SECONDS = 30.0
IDLE_SECONDS = 5.0
PAUSE_SECONDS = 0.05
BURST_SECONDS = 0.5
"""Embedding begins when nobody has written for the first, or after the second: its own two commits for each batch, and
its turns at the interpreter, would make a burst of writes wait. A search hurries it anyway."""
CLOSE_SECONDS = 10.0
"""How long closing waits for a model that is busy; the passages in its hands stay pending."""


class Indexer:
    """Works on one store in one process. `is_background` false leaves all embedding to searches and `run`."""

    def __init__(self, store: Store, models: Models, *, is_background: bool = True) -> None:
        self._store = store
        self._models = models
        self._is_background = is_background
        self._work = threading.Lock()
        self._urgent = 0
        self._wake = threading.Event()
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._is_untidy = False

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
            while state.pending and time.monotonic() < deadline:
                with self._work:
                    waiting = self._store.pending(namespace, BATCH, among=first) if first else []
                    if not waiting:
                        first = []
                        waiting = self._store.pending(namespace, BATCH)
                    if not self._embed(waiting):
                        break
                state = self._store.indexing(namespace)
        finally:
            with self._mutex:
                self._urgent -= 1
        return self._store.indexing(namespace)

    def run(self, progress: Progress | None = None) -> None:
        """Embed all that is pending, here and now, even what another program has leased and may have left behind."""
        total = self._store.indexing().pending
        while pending := self._store.indexing().pending:
            if progress is not None:
                progress(max(0, total - pending), max(total, pending), "passages")
            with self._work:
                if not self._embed(self._store.claim(BATCH, LEASE_SECONDS, even_leased=True)):
                    return
        if progress is not None:
            progress(total, total, "passages")

    def try_model(self) -> None:
        """Embed a word with the model that searches use, loading it where need be; raises where that fails."""
        serving, _ = self._store.models()
        embed(self._models.chosen if serving is None else self._models.for_identity(serving), ["ready"], "query")

    def aim(self, embedder: Embedder) -> None:
        """Make a model the one to embed with; the old vectors serve until all is done."""
        target = as_it_reads(embedder)
        self._store.aim(target.identity, target.dimensions)

    def _embed(self, claimed: Sequence[Pending]) -> bool:
        """Embed one batch; False when it is empty."""
        if not claimed:
            return False
        embedder = self._target()
        vectors = embed(embedder, [passage.text for passage in claimed], "passage")
        self._store.index(
            embedder.identity,
            [(passage.chunk_id, vector) for passage, vector in zip(claimed, vectors, strict=True)],
        )
        return True

    def _target(self) -> Embedder:
        _, target = self._store.models()
        if target is None:
            self.aim(self._models.chosen)
            return self._models.chosen
        return self._models.for_identity(target)

    def _loop(self) -> None:
        while not self._is_closed:
            is_idle = not self._wake.wait(IDLE_SECONDS)
            self._wake.clear()
            if not is_idle:
                self._let_writes_pass()
            try:
                self._embed_all()
                if is_idle and self._is_untidy:
                    self._is_untidy = self._store.tidy()
            except CommonplaceError:
                # Searches meet the same error and tell of it; here it only means to wait.
                self._closed_within(RETRY_SECONDS)

    def _let_writes_pass(self) -> None:
        deadline = time.monotonic() + BURST_SECONDS
        while not self._is_closed and time.monotonic() < deadline and self._wake.wait(PAUSE_SECONDS):
            self._wake.clear()

    def _embed_all(self) -> None:
        while not self._is_closed:
            while self._urgent and not self._is_closed:
                time.sleep(0.005)
            with self._work:
                if self._is_closed or not self._embed(self._store.claim(BATCH, LEASE_SECONDS)):
                    return

    def _closed_within(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._is_closed and time.monotonic() < deadline:
            self._wake.wait(1.0)
            self._wake.clear()

    def close(self) -> None:
        """Stop after the batch in hand; what is left stays pending for the next program."""
        self._is_closed = True
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(CLOSE_SECONDS)
