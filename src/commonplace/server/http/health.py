"""`/healthz`: the process is alive. `/readyz`: the store answers and the model works, reported in bounded time.

Nothing blocks the event loop. The store and the model are checked in threads, one check at a time, and a result is
cached for a moment, so that probes cannot pile up on a slow disk.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, Literal, TypeVar

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from commonplace.book import Book
from commonplace.errors import CommonplaceError, Unavailable
from commonplace.server.http.error_answers import RETRY_AFTER_SECONDS
from commonplace.server.http.request_limits import Work

T = TypeVar("T")

HEALTH_PATHS = frozenset(("/healthz", "/readyz"))
"""They need no key, because probes have none, and they reveal nothing about the memory."""

WAIT_SECONDS = 2.0
STORE_FRESH_SECONDS = 0.5
MODEL_FRESH_SECONDS = 60.0
RETRY_SECONDS = 5.0

ModelWord = Literal["ok", "loading", "failing", "unknown"]
_MODEL_REASONS = {
    "failing": "the embedding model cannot be used; `commonplace doctor` says why",
    "loading": "the embedding model is still being loaded",
}
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Outcome(Generic[T]):
    """The result of a check: an answer, an error, or neither while the check is running."""

    answer: T | None = None
    error: CommonplaceError | None = None


class _Check(Generic[T]):
    """Runs in a thread, never twice at once. A good result is cached for some time, an error for less."""

    def __init__(self, call: Callable[[], T], fresh_seconds: float) -> None:
        self._call = call
        self._fresh_seconds = fresh_seconds
        self._running: asyncio.Task[_Outcome[T]] | None = None
        self._is_stale_at = 0.0

    async def outcome(self, seconds: float) -> _Outcome[T]:
        if self._running is None or (self._running.done() and time.monotonic() >= self._is_stale_at):
            self._running = asyncio.create_task(self._run())
        await asyncio.wait((self._running,), timeout=seconds)
        return self._running.result() if self._running.done() else _Outcome()

    async def _run(self) -> _Outcome[T]:
        try:
            outcome = _Outcome(answer=await asyncio.to_thread(self._call))
        except CommonplaceError as error:
            _log.warning("not ready: %s", error)
            outcome = _Outcome(error=error)
        kept = self._fresh_seconds if outcome.error is None else min(RETRY_SECONDS, self._fresh_seconds)
        self._is_stale_at = time.monotonic() + kept
        return outcome


class Live(BaseModel):
    status: Literal["ok"] = "ok"


class Ready(BaseModel):
    """Whether to send requests here, and why not. It has no counts, because anybody may read it.

    A store in which a request has found damage still answers for the rest: it is ready, and `damaged`.
    """

    status: Literal["ready", "not ready"]
    store: Literal["ok", "damaged", "slow", "failing"]
    model: ModelWord
    reasons: list[str] = Field(default_factory=list)


class Readiness:
    """Checks the store and the model of one book."""

    def __init__(self, book: Book, work: Work) -> None:
        self._work = work
        self._book = book
        self._store = _Check(partial(_check_store, book), STORE_FRESH_SECONDS)
        self._model = _Check(partial(_check_model, book), MODEL_FRESH_SECONDS)

    async def report(self) -> Ready:
        store, model = await asyncio.gather(self._store.outcome(WAIT_SECONDS), self._model.outcome(WAIT_SECONDS))
        reasons = ["the server is stopping"] if self._work.is_stopping else []
        # Anybody may read this. The errors, which may name files and addresses, are only in the log.
        if store.error is not None:
            reasons.append("the store fails; the server's log says how")
        elif store.answer is None:
            reasons.append(f"the store gave no answer within {WAIT_SECONDS:g} s")
        word = _model_word(model, is_store_well=store.answer is not None)
        if word in _MODEL_REASONS:
            reasons.append(_MODEL_REASONS[word])
        return Ready(
            status="not ready" if reasons else "ready",
            store="failing" if store.error is not None else "slow" if store.answer is None else self._store_word(),
            model=word,
            reasons=reasons,
        )

    def _store_word(self) -> Literal["ok", "damaged"]:
        return "damaged" if self._book.store.is_damaged else "ok"


def _check_store(book: Book) -> Literal[True]:
    book.store.system_get("readiness", "")  # a row that nobody writes: the cheapest read
    return True


class _StoreFails(Unavailable):
    """The store cannot say which model it uses, so the state of the model is unknown."""


def _check_model(book: Book) -> Literal[True]:
    try:
        book.store.models()
    except CommonplaceError as error:
        raise _StoreFails(str(error)) from error
    book.indexer.try_model()
    return True


def _model_word(model: _Outcome[Literal[True]], *, is_store_well: bool) -> ModelWord:
    """The store says which model it uses. If it fails or is slow, the state of the model is unknown."""
    if model.answer is not None:
        return "ok"
    if model.error is not None and not isinstance(model.error, _StoreFails):
        return "failing"
    return "loading" if is_store_well else "unknown"


def health_router(readiness: Readiness) -> APIRouter:
    router = APIRouter(tags=["operation"])

    @router.get("/healthz", summary="Whether the process lives", description="Needs no key and asks nobody.")
    async def live() -> Live:
        return Live()

    @router.get(
        "/readyz",
        summary="Whether requests should be sent here",
        description=(
            "The store answers, the embedding model works, and the server is not stopping. Needs no key. The first "
            "call loads the model, in a thread; until then the model is `loading`."
        ),
        response_model=Ready,
        responses={503: {"model": Ready, "description": "Not ready; `reasons` say why."}},
    )
    async def ready() -> JSONResponse:
        report = await readiness.report()
        if not report.reasons:
            return JSONResponse(report.model_dump())
        return JSONResponse(report.model_dump(), 503, {"Retry-After": str(RETRY_AFTER_SECONDS)})

    return router
