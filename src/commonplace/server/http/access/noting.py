"""When keys were last used, written down beside the requests: none of them waits for it, or fails with it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.to_thread import run_sync

from commonplace.errors import CommonplaceError
from commonplace.server.http.access.keys import Keys

EVERY_SECONDS = 60.0
_log = logging.getLogger(__name__)


@asynccontextmanager
async def noting_uses(keys: Keys) -> AsyncIterator[None]:
    """Note uses once a minute, and at the end."""
    async with anyio.create_task_group() as group:
        group.start_soon(_note_now_and_then, keys)
        try:
            yield
        finally:
            group.cancel_scope.cancel()
    await run_sync(_note, keys)


async def _note_now_and_then(keys: Keys) -> None:
    while True:
        await anyio.sleep(EVERY_SECONDS)
        await run_sync(_note, keys)


def _note(keys: Keys) -> None:
    try:
        keys.note_uses()
    except CommonplaceError as error:
        _log.warning("when keys were last used cannot be noted now: %s", error)
