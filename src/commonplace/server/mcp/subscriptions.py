"""Subscriptions: a client gets a notification when a resource that it watches has changed, whoever changed it.

They follow the change feed of the namespace, so they see writes of other processes too. Without subscriptions nothing
is read. There are two ways to subscribe: `resources/subscribe`, and since 2026-07-28 `subscriptions/listen`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
import mcp_types as types
from anyio.to_thread import run_sync
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated

from commonplace.entry import Change
from commonplace.errors import CommonplaceError, Conflict, InvalidInput, Unavailable
from commonplace.server.mcp.lazy_memory import Memory
from commonplace.server.mcp.resources import parse_uri
from commonplace.space.names import FILE, RECORD, normalise

POLL_SECONDS = 0.5
SEND_SECONDS = 5.0
"""Long enough for a client that is reading a large answer. A client that is dropped gets no notice of it."""

MAX_SUBSCRIPTIONS = 1_000
_PAGE = 1_000
_log = logging.getLogger(__name__)

Context = ServerRequestContext[Any, Any]


@dataclass
class Watcher:
    """The subscriptions of all clients, and the task that follows the feed for them."""

    memory: Memory
    poll_seconds: float = POLL_SECONDS
    _sessions: dict[tuple[Connection, str], ServerSession] = field(default_factory=dict)
    _listened: Counter[str] = field(default_factory=Counter)
    _targets: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    _seen: int | None = None

    def __post_init__(self) -> None:
        self._bus = InMemorySubscriptionBus()
        self._listen = ListenHandler(self._bus, max_subscriptions=MAX_SUBSCRIPTIONS)
        self._wake = anyio.Event()

    @asynccontextmanager
    async def lifespan(self, server: Server[Any]) -> AsyncIterator[dict[str, Any]]:
        async with anyio.create_task_group() as group:
            group.start_soon(self._follow)
            try:
                yield {}
            finally:
                self._listen.close()
                group.cancel_scope.cancel()

    def look_now(self) -> None:
        """Read the feed now: this server may have just changed something."""
        if self._targets:
            self._wake.set()

    # The protocol's requests

    async def subscribe(self, context: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        uri = str(params.uri)
        if len(self._sessions) >= MAX_SUBSCRIPTIONS:
            raise Unavailable(f"this server takes at most {MAX_SUBSCRIPTIONS:,} subscriptions; end some first")
        await self._begin([uri])
        connection = _connection(context)
        if all(known is not connection for known, _ in self._sessions):
            connection.exit_stack.callback(self._drop, connection)
        self._sessions[connection, uri] = context.session
        return types.EmptyResult()

    async def unsubscribe(self, context: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        uri = str(params.uri)
        self._sessions.pop((_connection(context), uri), None)
        self._forget([uri])
        return types.EmptyResult()

    async def listen(
        self, context: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        uris = [str(uri) for uri in params.notifications.resource_subscriptions or ()]
        await self._begin(uris)
        self._listened.update(uris)
        try:
            return await self._listen(context, params)
        finally:
            self._listened -= Counter(uris)
            self._forget(uris)

    # What is watched

    async def _begin(self, uris: list[str]) -> None:
        """Watch resources. The position in the feed is known before the client is answered, so no change is missed."""
        targets = {uri: await run_sync(partial(_target, self.memory, uri)) for uri in uris}
        if not self._targets or self._seen is None:
            self._seen = await run_sync(lambda: self.memory.space.stats().commit)
        self._targets.update(targets)
        self._wake.set()

    def _drop(self, connection: Connection) -> None:
        """End the subscriptions of a client that has disconnected."""
        ended = [key for key in self._sessions if key[0] is connection]
        for key in ended:
            del self._sessions[key]
        self._forget(uri for _, uri in ended)

    def _forget(self, uris: Iterable[str]) -> None:
        watched = {uri for _, uri in self._sessions} | self._listened.keys()
        for uri in set(uris) - watched:
            self._targets.pop(uri, None)

    # The feed

    async def _follow(self) -> None:
        while True:
            with anyio.move_on_after(self.poll_seconds if self._targets else None):
                await self._wake.wait()
            self._wake = anyio.Event()
            if not self._targets:
                continue
            try:
                changes = await run_sync(self._changes)
            except CommonplaceError as error:
                _log.debug("cannot read the feed now: %s", error)
                continue
            targets = self._targets.items()
            for uri in [uri for uri, target in targets if changes is None or _is_touched(target, changes)]:
                await self._notify(uri)

    def _changes(self) -> list[Change] | None:
        """The changes since the last call; None if a purge removed them from the feed: anything may have changed."""
        try:
            changes = self.memory.space.changes(self._seen or 0, _PAGE)
        except Conflict:
            self._seen = self.memory.space.stats().commit
            return None
        if changes:
            self._seen = changes[-1].commit
        return changes

    async def _notify(self, uri: str) -> None:
        await self._bus.publish(ResourceUpdated(uri=uri))
        async with anyio.create_task_group() as group:
            for (connection, watched), session in self._sessions.items():
                if watched == uri:
                    group.start_soon(self._send, connection, session, uri)

    async def _send(self, connection: Connection, session: ServerSession, uri: str) -> None:
        """Notify one client. A client that does not read is dropped, because the others would wait for it."""
        with anyio.move_on_after(SEND_SECONDS) as limit:
            await session.send_resource_updated(uri)
        if limit.cancelled_caught:
            _log.info("a client does not read its notifications; its subscriptions end")
            self._drop(connection)


def _connection(context: Context) -> Connection:
    # The SDK has no public event for a closed connection. Without one, a server would keep all subscriptions forever.
    return context.session._connection


def _target(memory: Memory, uri: str) -> tuple[str, str | None]:
    """The kind of entry behind an address, and its key if it is a single entry."""
    kind, rest, _ = parse_uri(uri)
    if kind == "message":
        raise InvalidInput("messages cannot be subscribed to; watch mem://recent, mem://item/ID or mem://file/PATH")
    if kind == "file":
        return FILE, normalise("/" + rest, memory.space.limits)
    return RECORD, rest if kind == "item" else None


def _is_touched(target: tuple[str, str | None], changes: Iterable[Change]) -> bool:
    # Any change of a record may change a list: the feed does not have a former type or tag.
    kind, key = target
    return any(change.kind == kind and key in (None, change.key) for change in changes)
