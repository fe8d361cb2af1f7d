"""Google's Agent Development Kit on a book: a memory service and a session service.

    runner = Runner(agent=agent, app_name="app", memory_service=CommonplaceMemoryService(book), …)

In memory, each app and user has a namespace of its own below a prefix. An event is an item, by its id: a session that
is added again changes nothing, and what was deleted stays deleted. Sessions of an app are items without history in one
namespace; each value of a state is an item, so that sessions that run at once do not overwrite each other's values.

Both classes take `uri="commonplace://…"`, as `services.yaml` of the kit gives it: a file, `postgresql://…`, or nothing
for the default book.

Needs `pip install 'commonplace-memory[google-adk]'`.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast
from urllib.parse import quote, unquote

from commonplace.book import Book, open_book
from commonplace.checks import check_namespace
from commonplace.errors import ConfigurationError, InvalidInput, Outdated, install_command
from commonplace.space.items import Item, Items, NewItem
from commonplace.space.names import ITEM, item_key_of, label_of, text_of_item_key
from commonplace.space.space import Space

try:
    from google.adk.errors.already_exists_error import AlreadyExistsError
    from google.adk.errors.session_not_found_error import SessionNotFoundError
    from google.adk.events.event import Event
    from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
    from google.adk.memory.memory_entry import MemoryEntry
    from google.adk.sessions.base_session_service import BaseSessionService, ListSessionsResponse
    from google.adk.sessions.session import Session
    from google.adk.sessions.state import State
    from google.genai import types
except ImportError as error:
    raise ConfigurationError(
        f"google-adk is not installed, or too old; run: {install_command('google-adk')}"
    ) from error

__all__ = ["CommonplaceMemoryService", "CommonplaceSessionService"]

RESULTS = 10
PAGE = 1_000
PREFIX = "memory/"
DELETED = "deleted/"
"""Marks of memories that were deleted, so that adding the session again does not bring them back."""


class CommonplaceMemoryService(BaseMemoryService):
    """Memories by app and user, in namespaces below `prefix`; a search returns at most `results`."""

    def __init__(
        self,
        book: Book | None = None,
        *,
        uri: str | None = None,
        prefix: Sequence[str] = ("adk",),
        results: int = RESULTS,
        **kwargs: Any,
    ) -> None:
        self._book = _book_of(book, uri)
        self._prefix = check_namespace(prefix)
        self._results = results

    async def add_session_to_memory(self, session: Any) -> None:
        await asyncio.to_thread(self._add_events, session.app_name, session.user_id, session.events, session.id, None)

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Any],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        await asyncio.to_thread(self._add_events, app_name, user_id, events, session_id, custom_metadata)

    def _add_events(
        self,
        app: str,
        user: str,
        events: Iterable[Any],
        session: str | None,
        metadata: Mapping[str, object] | None,
    ) -> None:
        wanted = {
            _key(event.id): _value(event.content, event.author, event.timestamp, session, metadata)
            for event in events
            if event.content and event.content.parts
        }
        space = self._space(app, user)
        keys = [*wanted]
        marks = [DELETED + key.removeprefix(PREFIX) for key in keys]
        known = space.items.get_all([*keys, *marks])
        new = [
            NewItem(key, wanted[key], fields=["text"])
            for place, key in enumerate(keys)
            if known[place] is None and known[len(keys) + place] is None
        ]
        if new:
            space.items.write_all(new)

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        puts = [
            NewItem(
                _key(entry.id or uuid.uuid4().hex),
                _value(
                    entry.content,
                    entry.author,
                    entry.timestamp,
                    None,
                    {**(custom_metadata or {}), **entry.custom_metadata},
                ),
                fields=["text"],
            )
            for entry in memories
        ]
        if puts:
            await asyncio.to_thread(self._space(app_name, user_id).items.write_all, puts)

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        if not query.strip():
            return SearchMemoryResponse(memories=[])
        hits = await asyncio.to_thread(
            lambda: self._space(app_name, user_id).search(
                query[:8_000], kinds=[ITEM], limit=self._results, min_relevance="default"
            )
        )
        # Other programs may keep items of their own in this namespace.
        own = (hit for hit in hits if hit.key.startswith(PREFIX))
        return SearchMemoryResponse(memories=[_entry(hit.key, hit.entry.value) for hit in own])

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        if not memory_id:
            return
        key = _key(memory_id)
        mark = NewItem(DELETED + key.removeprefix(PREFIX), True, history=False)
        await asyncio.to_thread(self._space(app_name, user_id).items.write_all, [mark], [key])

    def _space(self, app: str, user: str) -> Space:
        if not app or not user:
            raise InvalidInput("app_name and user_id are required")
        return self._book.space(*self._prefix, label_of(app), label_of(user))


def _key(id: str) -> str:
    return PREFIX + item_key_of(id)


def _value(
    content: types.Content,
    author: str | None,
    timestamp: float | str | None,
    session: str | None,
    metadata: Mapping[str, object] | None,
) -> dict[str, Any]:
    at = datetime.fromtimestamp(timestamp, UTC).isoformat() if isinstance(timestamp, (int, float)) else timestamp
    return {
        "text": "\n".join(part.text for part in content.parts or () if part.text),
        "content": content.model_dump(mode="json", exclude_none=True),
        "author": author,
        "timestamp": at,
        "session": session,
        "metadata": dict(metadata or {}),
    }


def _entry(key: str, value: Any) -> MemoryEntry:
    stored = cast("Mapping[str, Any]", value)
    return MemoryEntry(
        id=text_of_item_key(key.removeprefix(PREFIX)),
        content=types.Content.model_validate(stored["content"]),
        author=stored["author"],
        timestamp=stored["timestamp"],
        custom_metadata=dict(stored["metadata"]),
    )


def _book_of(book: Book | None, uri: str | None) -> Book:
    if (book is None) == (uri is None):
        raise InvalidInput("give a book, or a uri such as commonplace:///home/ana/memory.db")
    if book is not None:
        return book
    scheme, _, rest = str(uri).partition("://")
    if scheme != "commonplace":
        raise InvalidInput(f"the uri begins with commonplace://, not {uri!r:.200}")
    return open_book(rest or None)


# Sessions


class CommonplaceSessionService(BaseSessionService):
    """Sessions with their events and states, in a namespace for each app below `prefix`."""

    def __init__(
        self,
        book: Book | None = None,
        *,
        uri: str | None = None,
        prefix: Sequence[str] = ("adk-sessions",),
        **kwargs: Any,
    ) -> None:
        self._book = _book_of(book, uri)
        self._prefix = check_namespace(prefix)

    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> Session:
        id = (session_id or "").strip() or str(uuid.uuid4())
        return await asyncio.to_thread(self._create, app_name, user_id, id, state or {})

    def _create(self, app: str, user: str, id: str, state: Mapping[str, Any]) -> Session:
        puts = [_new(_path("meta", user, id), {"user": user, "id": id, "at": time.time()}, revision=0)]
        try:
            self._space(app).items.write_all([*puts, *_state_puts(user, id, state)])
        except Outdated as error:
            raise AlreadyExistsError(f"Session with id {id} already exists.") from error
        found = self._get(app, user, id, None)
        assert found is not None
        return found

    async def get_session(self, *, app_name: str, user_id: str, session_id: str, config: Any = None) -> Session | None:
        return await asyncio.to_thread(self._get, app_name, user_id, session_id.strip(), config)

    def _get(self, app: str, user: str, id: str, config: Any) -> Session | None:
        items = self._space(app).items
        (meta,) = items.get_all([_path("meta", user, id)])
        if meta is None:
            return None
        recent = None if config is None else config.num_recent_events
        events = [] if recent == 0 else _events(items, user, id, recent)
        if config is not None and config.after_timestamp is not None:
            events = [event for event in events if event.timestamp >= config.after_timestamp]
        return self._session(app, meta, {**self._shared(items, user), **_values(items, "state", user, id)}, events)

    def _shared(self, items: Items, user: str) -> dict[str, Any]:
        """The state of the app and of the user, with their prefixes."""
        of_app = {State.APP_PREFIX + name: value for name, value in _values(items, "app").items()}
        return {**of_app, **{State.USER_PREFIX + name: value for name, value in _values(items, "user", user).items()}}

    @staticmethod
    def _session(app: str, meta: Item, state: dict[str, Any], events: list[Event]) -> Session:
        value = cast("Mapping[str, Any]", meta.value)
        return Session(
            app_name=app,
            user_id=value["user"],
            id=value["id"],
            state=state,
            events=events,
            last_update_time=value["at"],
        )

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        return ListSessionsResponse(sessions=await asyncio.to_thread(self._list, app_name, user_id))

    def _list(self, app: str, user: str | None) -> list[Session]:
        items = self._space(app).items
        found = []
        for meta in _pages(items, _path("meta", "") if user is None else _path("meta", user, "")):
            value = cast("Mapping[str, Any]", meta.value)
            state = {**self._shared(items, value["user"]), **_values(items, "state", value["user"], value["id"])}
            found.append(self._session(app, meta, state, []))
        return sorted(found, key=lambda session: (session.last_update_time, session.user_id, session.id))

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        await asyncio.to_thread(self._delete, app_name, user_id, session_id.strip())

    def _delete(self, app: str, user: str, id: str) -> None:
        items = self._space(app).items
        items.delete(_path("meta", user, id))
        for part in ("state", "event"):
            items.clear(_path(part, user, id, ""))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        return await asyncio.to_thread(lambda: _values(self._space(app_name).items, "user", user_id))

    async def append_event(self, session: Session, event: Event) -> Event:
        if event.partial:
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        is_new = await asyncio.to_thread(self._append, session, event)
        if is_new:
            self._commit_event_to_session(session, event)
            session.last_update_time = event.timestamp
        return event

    def _append(self, session: Session, event: Event) -> bool:
        """Write an event, the time of the session and the changed values in one commit; False if it is there."""
        user, id = session.user_id, session.id
        space = self._space(session.app_name)
        key, meta = _path("event", user, id, event.id), _path("meta", user, id)
        stored = event.model_dump(mode="json", exclude_none=True, by_alias=False)
        delta = stored.get("actions", {}).get("state_delta", {})
        puts = [
            _new(key, stored, revision=0),
            _new(meta, {"user": user, "id": id, "at": event.timestamp}),
            *_state_puts(user, id, delta),
        ]
        try:
            space.expecting(ITEM, meta).items.write_all(puts)
        except Outdated as error:
            present, known = space.items.get_all([meta, key])
            if present is None:
                raise SessionNotFoundError(f"Session {id} not found.") from error
            if known is None:
                raise
            return False
        return True

    def _space(self, app: str) -> Space:
        if not app:
            raise InvalidInput("app_name is required")
        return self._book.space(*self._prefix, label_of(app))


def _path(*parts: str) -> str:
    return "/".join(quote(part, safe="") for part in parts)


def _new(key: str, value: Any, *, revision: int | None = None) -> NewItem:
    return NewItem(key, value, revision=revision, history=False)


def _state_puts(user: str, id: str, state: Mapping[str, Any]) -> list[NewItem]:
    """The values of a state, each where its prefix says: of the app, of the user, of the session; none for `temp:`."""
    puts = []
    for name, value in state.items():
        if name.startswith(State.TEMP_PREFIX):
            continue
        if name.startswith(State.APP_PREFIX):
            key = _path("app", name.removeprefix(State.APP_PREFIX))
        elif name.startswith(State.USER_PREFIX):
            key = _path("user", user, name.removeprefix(State.USER_PREFIX))
        else:
            key = _path("state", user, id, name)
        puts.append(_new(key, {"value": value}))
    return puts


def _values(items: Items, *parts: str) -> dict[str, Any]:
    prefix = _path(*parts, "")
    return {unquote(one.key[len(prefix) :]): cast("Any", one.value)["value"] for one in _pages(items, prefix)}


def _events(items: Items, user: str, id: str, recent: int | None) -> list[Event]:
    prefix = _path("event", user, id, "")
    if recent is not None and recent <= PAGE:
        page = items.list(prefix, order="created", descending=True, limit=recent)
        stored = [*reversed(page.items)]
    else:
        stored = [*_pages(items, prefix, "created")][-(recent or 0) :]
    return [Event.model_validate(item.value) for item in stored]


def _pages(items: Items, prefix: str, order: Any = "key") -> Iterator[Item]:
    cursor: str | None = None
    while True:
        page = items.list(prefix, order=order, limit=PAGE, cursor=cursor)
        yield from page.items
        cursor = page.cursor
        if cursor is None:
            return
