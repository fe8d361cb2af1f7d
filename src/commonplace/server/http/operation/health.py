"""`/healthz`: the process lives. `/readyz`: the store answers and the model works, told in bounded time.

Nothing here waits on the event loop: the store and the model are asked in threads, one at a time, and an answer is used
again for a moment, so that probes cannot pile up on a slow disk.
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
from commonplace.server.http.operation.work import Work
from commonplace.server.http.problems import RETRY_AFTER_SECONDS

T = TypeVar("T")

HEALTH_PATHS = frozenset(("/healthz", "/readyz"))
"""Need no key: who probes has none, and they tell nothing of what is remembered."""

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
    """What a question gave: an answer, a failure, or None of both while it is still being asked."""

    answer: T | None = None
    error: CommonplaceError | None = None


class _Question(Generic[T]):
    """Asked in a thread, never twice at once; a good answer holds for some time, a bad one until it is asked again."""

    def __init__(self, ask: Callable[[], T], fresh_seconds: float) -> None:
        self._ask = ask
        self._fresh_seconds = fresh_seconds
        self._asking: asyncio.Task[_Outcome[T]] | None = None
        self._is_stale_at = 0.0

    async def outcome(self, seconds: float) -> _Outcome[T]:
        if self._asking is None or (self._asking.done() and time.monotonic() >= self._is_stale_at):
            self._asking = asyncio.create_task(self._run())
        await asyncio.wait((self._asking,), timeout=seconds)
        return self._asking.result() if self._asking.done() else _Outcome()

    async def _run(self) -> _Outcome[T]:
        try:
            outcome = _Outcome(answer=await asyncio.to_thread(self._ask))
        except CommonplaceError as error:
            _log.warning("not ready: %s", error)
            outcome = _Outcome(error=error)
        kept = self._fresh_seconds if outcome.error is None else min(RETRY_SECONDS, self._fresh_seconds)
        self._is_stale_at = time.monotonic() + kept
        return outcome


class Live(BaseModel):
    status: Literal["ok"] = "ok"


class Ready(BaseModel):
    """Whether to send requests here, and why not. It has no counts: anybody may read it.

    A store in which a request has met damage still answers for what is whole: it is ready, and `damaged`.
    """

    status: Literal["ready", "not ready"]
    store: Literal["ok", "damaged", "slow", "failing"]
    model: ModelWord
    reasons: list[str] = Field(default_factory=list)


class Readiness:
    """Asks the store and the model of one book."""

    def __init__(self, book: Book, work: Work) -> None:
        self._work = work
        self._book = book
        self._store = _Question(partial(_asked, book), STORE_FRESH_SECONDS)
        self._model = _Question(partial(_tried, book), MODEL_FRESH_SECONDS)

    async def report(self) -> Ready:
        store, model = await asyncio.gather(self._store.outcome(WAIT_SECONDS), self._model.outcome(WAIT_SECONDS))
        reasons = ["the server is stopping"] if self._work.is_stopping else []
        # Open to everybody: the log has the errors themselves, which may name files and addresses.
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


def _asked(book: Book) -> Literal[True]:
    book.store.system_get("readiness", "")  # a row that nobody writes: the least that a store can be asked
    return True


class _StoreFails(Unavailable):
    """The store does not tell which model it uses, so nothing is known of the model."""


def _tried(book: Book) -> Literal[True]:
    try:
        book.store.models()
    except CommonplaceError as error:
        raise _StoreFails(str(error)) from error
    book.indexer.try_model()
    return True


def _model_word(model: _Outcome[Literal[True]], *, is_store_well: bool) -> ModelWord:
    """The store says which model it uses: where it fails or is slow, nothing is known of the model."""
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
