"""Open streams: one whose caller has lost its access since is ended, as soon as a new call of it would be refused."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import anyio
from anyio.to_thread import run_sync

from commonplace.errors import CommonplaceError, Unauthorized
from commonplace.server.http.access.gate import CREDENTIAL_HEADERS, Gate

LOOK_SECONDS = 2.0
_log = logging.getLogger(__name__)


class Streams:
    """Used on the event loop alone. Callers that stay are asked for together: one look a credential."""

    def __init__(self, gate: Gate, *, look_seconds: float = LOOK_SECONDS) -> None:
        self._gate = gate
        self._look_seconds = look_seconds
        self._open: dict[anyio.CancelScope, Mapping[str, str]] = {}

    def add(self, scope: anyio.CancelScope, headers: Mapping[str, str]) -> None:
        self._open[scope] = headers

    def remove(self, scope: anyio.CancelScope) -> None:
        self._open.pop(scope, None)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as group:
            group.start_soon(self._look_after)
            try:
                yield
            finally:
                group.cancel_scope.cancel()

    async def _look_after(self) -> None:
        while True:
            await anyio.sleep(self._look_seconds)
            held: dict[tuple[str | None, ...], list[anyio.CancelScope]] = {}
            for scope, headers in self._open.items():
                held.setdefault(tuple(headers.get(name) for name in CREDENTIAL_HEADERS), []).append(scope)
            for credential, scopes in held.items():
                shown = {
                    name: text for name, text in zip(CREDENTIAL_HEADERS, credential, strict=True) if text is not None
                }
                if not await run_sync(self._is_known, shown):
                    for scope in scopes:
                        scope.cancel()

    def _is_known(self, headers: Mapping[str, str]) -> bool:
        try:
            self._gate.check(headers)
        except Unauthorized:
            return False
        except CommonplaceError as error:
            _log.warning("who has a stream open cannot be looked up now: %s", error)
        return True
