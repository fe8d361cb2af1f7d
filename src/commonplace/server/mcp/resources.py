"""Resources: every memory has an address, `mem://…`, and so have lists. Completion of tags, types and paths.

Subscriptions notify a client when a resource that it watches has changed, whoever changed it. They follow the change
feed of the namespace, so they see writes of other processes too. Without subscriptions nothing is read. There are two
ways to subscribe: `resources/subscribe`, and since 2026-07-28 `subscriptions/listen`.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode

import anyio
import mcp_types as types
from anyio.to_thread import run_sync
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated

from commonplace.entry import Change
from commonplace.errors import CommonplaceError, Conflict, InvalidInput, NotADirectory, NotFound, Unavailable
from commonplace.server.mcp.lazy_memory import Memory
from commonplace.space.files import Files
from commonplace.space.names import FILE, ITEM, RECORD, ROOT, normalise
from commonplace.space.records import Record
from commonplace.tools.record_tools import excerpt, how_to_go_on
from commonplace.tools.tool import ANSWER_CHARACTERS, check_count

JSON_TYPE = "application/json"
TEXT_TYPE = "text/plain"

RECORDS_LOOKED_AT = 1_000
"""The newest records: enough to know the tags and types in use, and fast enough while a person types."""

POLL_SECONDS = 0.5
SEND_SECONDS = 5.0
"""Long enough for a client that is reading a large answer. A client that is dropped gets no notice of it."""

MAX_SUBSCRIPTIONS = 1_000
_PAGE = 1_000
_log = logging.getLogger(__name__)

Context = ServerRequestContext[Any, Any]

RESOURCES: tuple[dict[str, Any], ...] = (
    {
        "uri": "mem://recent",
        "name": "recent",
        "title": "Recent memories",
        "description": "The newest records in full.",
        "mimeType": JSON_TYPE,
    },
)
TEMPLATES: tuple[dict[str, Any], ...] = (
    {
        "uriTemplate": "mem://recent{?limit}",
        "name": "recent",
        "title": "Recent memories",
        "description": "The newest records in full; limit 1 to 100, 20 by default.",
        "mimeType": JSON_TYPE,
    },
    {
        "uriTemplate": "mem://by-tags/{+tags}{?limit,match}",
        "name": "by-tags",
        "title": "Memories by tags",
        "description": "Records with all of the tags, separated by commas; match=any for those with one of them.",
        "mimeType": JSON_TYPE,
    },
    {
        "uriTemplate": "mem://by-type/{type}{?limit}",
        "name": "by-type",
        "title": "Memories by type",
        "description": "Records of a type, the newest first.",
        "mimeType": JSON_TYPE,
    },
    {
        "uriTemplate": "mem://item/{id}",
        "name": "item",
        "title": "One memory",
        "description": "A record in full.",
        "mimeType": JSON_TYPE,
    },
    {
        "uriTemplate": "mem://file/{+path}",
        "name": "file",
        "title": "A file",
        "description": "The text of a file in the memory's tree.",
        "mimeType": TEXT_TYPE,
    },
    {
        "uriTemplate": "mem://message/{id}",
        "name": "message",
        "title": "One message",
        "description": "A message of a conversation in full.",
        "mimeType": JSON_TYPE,
    },
    {
        "uriTemplate": "mem://value/{key}",
        "name": "value",
        "title": "One value",
        "description": "An item of the key-value store in full.",
        "mimeType": JSON_TYPE,
    },
)

_WITH_PATH = ("by-tags", "by-type", "item", "file", "message", "value")
_QUERY = {
    "recent": ("limit", "cursor"),
    "by-tags": ("limit", "match", "cursor"),
    "by-type": ("limit", "cursor"),
    "file": ("offset",),
    "message": ("offset",),
    "value": ("offset",),
}


@dataclass(frozen=True, slots=True)
class Contents:
    """What a client reads. If there is more, `rest` is the address to continue with, and `note` says so."""

    text: str
    mime_type: str = JSON_TYPE
    note: str = ""
    rest: str = ""


def read(memory: Memory, uri: str) -> Contents:
    """The contents of an address; NotFound if there are none, InvalidInput for an invalid address."""
    kind, rest, query = parse_uri(uri)
    records = memory.records
    if kind == "item":
        return _json(records.item(rest))
    if kind in ("file", "message", "value"):
        full = _full(memory, kind, rest)
        shown = excerpt(full, check_count("offset", query.get("offset")))
        contents = Contents(shown["content"], TEXT_TYPE) if kind == "file" else _json(shown)
        return _with_rest(contents, uri, how_to_go_on(shown), offset=shown.get("characters", {}).get("to"))
    narrowed: dict[str, Any] = {"tags": rest.split(","), "match": query.get("match")} if kind == "by-tags" else {}
    if kind == "by-type":
        narrowed["type"] = rest
    page = records.page(query.get("limit", "20"), cursor=query.get("cursor"), room=ANSWER_CHARACTERS, **narrowed)
    note = None if page.cursor is None else f"{len(page.records)} of {page.asked} memories."
    return _with_rest(_json(page.records), uri, note, limit=page.asked - len(page.records), cursor=page.cursor)


def _full(memory: Memory, kind: str, name: str) -> Mapping[str, Any]:
    if kind == "file":
        return {"id": name, "content": memory.space.files.read("/" + name)}
    return memory.records.message(name) if kind == "message" else memory.records.value(name)


def _with_rest(contents: Contents, uri: str, note: str | None, **place: object) -> Contents:
    """The contents with the address of the rest, if there is one: the same address with another start."""
    if note is None:
        return contents
    address, _, written = uri.partition("?")
    query = {key: values[0] for key, values in parse_qs(written, keep_blank_values=True).items()}
    rest = f"{address}?{urlencode({**query, **place})}"
    return replace(contents, note=f"{note} The rest is at {rest}", rest=rest)


def parse_uri(uri: str) -> tuple[str, str, Mapping[str, str]]:
    """The kind of an address, its decoded path, and its query; NotFound if no resource has such an address."""
    scheme, _, address = uri.partition("://")
    address, _, written = address.partition("?")
    kind, _, rest = address.partition("/")
    is_known = not rest if kind == "recent" else bool(rest) and kind in _WITH_PATH
    if scheme != "mem" or not is_known:
        raise NotFound(
            f"Unknown resource: {uri[:200]}; there are mem://recent, mem://by-tags/TAG,TAG, mem://by-type/TYPE, "
            "mem://item/ID, mem://file/PATH, mem://message/ID and mem://value/KEY"
        )
    query: dict[str, str] = {}
    for name, values in parse_qs(written, keep_blank_values=True).items():
        if name not in _QUERY.get(kind, ()) or len(values) > 1:
            raise InvalidInput(f"{name[:100]!r} is not a parameter of mem://{kind}, or is twice in {uri[:200]}")
        query[name] = values[0]
    return kind, unquote(rest, errors="surrogateescape"), query


def _json(value: object) -> Contents:
    return Contents(json.dumps(value, ensure_ascii=False, default=dict))


# Completion


def complete(memory: Memory, argument: str, typed: str, *, is_prompt: bool = False) -> list[str]:
    """The values in use for an argument, the most frequent first; none for an argument that takes any text."""
    if argument == "path" and not is_prompt:
        return [path.lstrip("/") for path in complete_path(memory.space.files, typed)]
    if argument == "type":
        return _most_used((record.type for record in _newest(memory)), typed)
    if argument == "tags":
        given, _, started = typed.rpartition(",")
        before = f"{given}," if given else ""
        chosen = given.split(",")
        tags = _most_used((tag for record in _newest(memory) for tag in record.tags), started.strip().lower())
        return [before + tag for tag in tags if tag not in chosen]
    return []


def _newest(memory: Memory) -> Iterator[Record]:
    yield from memory.space.records.list(limit=RECORDS_LOOKED_AT).records


def _most_used(values: Iterable[str], typed: str) -> list[str]:
    counts: dict[str, int] = {}
    for value in values:
        if value.startswith(typed):
            counts[value] = counts.get(value, 0) + 1
    return sorted(counts, key=lambda value: (-counts[value], value))


def complete_path(files: Files, typed: str, *, limit: int = 100) -> list[str]:
    """The paths that begin with the text, one level deep. A directory ends with `/`."""
    above, _, start = ("/" + typed.replace("\\", "/").lstrip("/")).rpartition("/")
    try:
        listed = files.list(above or ROOT)
    except (InvalidInput, NotFound, NotADirectory):
        return []  # nothing begins with this text
    found = (item.path + ("/" if item.kind == "directory" else "") for item in listed if item.name.startswith(start))
    return list(islice(found, limit))


# Subscriptions


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
    if kind == "value":
        return ITEM, rest
    return RECORD, rest if kind == "item" else None


def _is_touched(target: tuple[str, str | None], changes: Iterable[Change]) -> bool:
    # Any change of a record may change a list: the feed does not have a former type or tag.
    kind, key = target
    return any(change.kind == kind and key in (None, change.key) for change in changes)
