"""The conversations of a namespace of a service."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import Any, cast

from commonplace.checks import JSON, Namespace, check_json
from commonplace.entry import Entry
from commonplace.errors import InvalidInput
from commonplace.remote.caller import Caller, tail, time_argument
from commonplace.remote.working import RemoteWorkingMemories
from commonplace.space.context import Budget, CountTokens, build_context, estimate_tokens, system_text
from commonplace.space.conversation import (
    MAX_PAGE,
    Context,
    Direction,
    NumberedPage,
    OrderBy,
    PageRequest,
    Thread,
    check_count,
    check_id,
)
from commonplace.space.handle import Handle
from commonplace.space.messages import UNSET, Message, MessagePage
from commonplace.space.recall import Recall, RecallRequest, RecallScope, ThreadSearchResult
from commonplace.space.threads import ThreadPage, Threads
from commonplace.store import Page, Scan
from commonplace.wire.forms import thing_of

_OWN_FIELDS = ("id", "threadId", "resourceId", "createdAt")


class RemoteThreads(Threads):
    """`Threads` of a service."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._limits = caller.limits

    @property
    def reads_at_once(self) -> bool:
        return False

    @cached_property
    def working(self) -> RemoteWorkingMemories:
        return RemoteWorkingMemories(self._caller)

    @property
    def default_resource(self) -> str:
        return self._caller.namespace[-1]

    # Threads

    def create(
        self,
        title: str | None = None,
        *,
        resource: str | None = None,
        metadata: Mapping[str, JSON] | None = None,
        id: str | None = None,
    ) -> Thread:
        body = {"title": title, "resource": resource, "metadata": _json("metadata", metadata), "id": id}
        return self._read_thread(self._caller.make("POST", "/threads", None, body))

    def begin(
        self, messages: Sequence[Mapping[str, object]], title: str | None = None, *, resource: str | None = None
    ) -> tuple[Message, ...]:
        body = {"messages": _messages(messages, verbatim=False), "title": title, "resource": resource}
        return _read_messages(self._caller.make("POST", "/conversations", {"entries": True}, body))

    def get(self, id: str, *, resource: str | None = None) -> Thread:
        return self._read_thread(self._caller.read(_thread(id), {"resource": _id(resource)}))

    def list(self, *, resource: str | None = None, limit: int = 20, cursor: str | None = None) -> ThreadPage:
        check_count("limit", limit, 1, MAX_PAGE)
        form = self._caller.read("/threads", {"resource": _id(resource), "limit": limit, "cursor": cursor})
        return ThreadPage(tuple(map(self._read_thread, form["threads"])), form["cursor"])

    def page_of_threads(
        self,
        page: int = 0,
        *,
        resource: str | None = None,
        metadata: Mapping[str, JSON] | None = None,
        per_page: int = 100,
        order_by: OrderBy = "updatedAt",
        direction: Direction = "DESC",
    ) -> NumberedPage[Thread]:
        PageRequest(page, per_page, order_by, direction)
        query = {
            "page": page,
            "resource": _id(resource),
            "metadata": None if metadata is None else json.dumps(_json("filter", metadata), default=dict),
            "per_page": per_page,
            "order_by": order_by,
            "direction": direction,
        }
        form = self._caller.read("/numbered-threads", query)
        found = thing_of(NumberedPage, form, Thread)
        items = tuple(thread.bound_to(self.context) for thread in found.items)
        return NumberedPage(items, found.total, found.page, found.per_page)

    def update(
        self,
        id: str,
        *,
        title: str | None = UNSET,
        metadata: Mapping[str, JSON] = UNSET,
        resource: str | None = None,
    ) -> Thread:
        body = _given(title=title, metadata=_json("metadata", metadata))
        return self._read_thread(self._caller.make("PATCH", _thread(id), {"resource": _id(resource)}, body))

    def suggest_title(self, id: str, title: str, *, resource: str | None = None) -> Thread:
        body = {"thread": id, "title": title}
        return self._read_thread(self._caller.make("POST", "/title-suggestions", {"resource": _id(resource)}, body))

    def delete(self, id: str, *, resource: str | None = None) -> int:
        return int(self._caller.change("DELETE", _thread(id), {"resource": _id(resource)})["commit"])

    def clone(
        self,
        id: str,
        *,
        upto_message: str | None = None,
        upto: datetime | str | None = None,
        after: datetime | str | None = None,
        only: Sequence[str] | None = None,
        last: int | None = None,
        title: str | None = None,
        metadata: Mapping[str, JSON] | None = None,
        new_id: str | None = None,
        to: str | None = None,
        resource: str | None = None,
    ) -> Thread:
        body = {
            "thread": id,
            "upto_message": upto_message,
            "upto": time_argument("upto", upto),
            "after": time_argument("after", after),
            "only": only if only is None or isinstance(only, str) else [*only],
            "last": last,
            "title": title,
            "metadata": _json("metadata", metadata),
            "new_id": new_id,
            "to": to,
        }
        return self._read_thread(self._caller.make("POST", "/clones", {"resource": _id(resource)}, body))

    def transfer(self, id: str, to: str, *, resource: str | None = None) -> Thread:
        body = {"thread": id, "to": to}
        return self._read_thread(self._caller.make("POST", "/transfers", {"resource": _id(resource)}, body))

    # Messages

    def add(
        self,
        thread_id: str,
        messages: Sequence[Mapping[str, object]],
        *,
        resource: str | None = None,
        verbatim: bool = False,
    ) -> tuple[Message, ...]:
        query = {"thread": check_id("thread id", thread_id), "resource": _id(resource), "entries": True}
        body = {"messages": _messages(messages, verbatim), "verbatim": bool(verbatim)}
        return _read_messages(self._caller.make("POST", "/messages", query, body))

    def messages(
        self,
        thread_id: str,
        *,
        resource: str | None = None,
        last: int | None = None,
        limit: int = 100,
        cursor: str | None = None,
        after: datetime | str | None = None,
        before: datetime | str | None = None,
    ) -> MessagePage:
        if last is None:
            check_count("limit", limit, 1, MAX_PAGE)
        elif cursor is None:
            check_count("last", last, 0, MAX_PAGE)
        query = {
            "thread": check_id("thread id", thread_id),
            "resource": _id(resource),
            "last": last,
            "limit": limit,
            "cursor": cursor,
            "after": time_argument("after", after),
            "before": time_argument("before", before),
            "entries": True,
        }
        form = self._caller.read("/messages", query)
        return MessagePage(_read_messages(form), form["cursor"])

    def items(self, thread_id: str, *, last: int, resource: str | None = None) -> tuple[JSON, ...]:
        found = self.messages(thread_id, last=last, resource=resource).messages
        return tuple(message.entry.value for message in found if message.entry is not None)

    def page_of_messages(
        self,
        thread_id: str,
        page: int = 0,
        *,
        resource: str | None = None,
        per_page: int = 40,
        order_by: OrderBy = "createdAt",
        direction: Direction = "ASC",
        after: datetime | str | None = None,
        before: datetime | str | None = None,
    ) -> NumberedPage[Message]:
        PageRequest(page, per_page, order_by, direction)
        query = {
            "thread": check_id("thread id", thread_id),
            "page": page,
            "resource": _id(resource),
            "per_page": per_page,
            "order_by": order_by,
            "direction": direction,
            "after": time_argument("after", after),
            "before": time_argument("before", before),
            "entries": True,
        }
        return thing_of(NumberedPage, self._caller.read("/numbered-messages", query), Message)

    def around(
        self, message_id: str, *, before: int = 1, after: int = 1, resource: str | None = None
    ) -> tuple[Message, ...]:
        check_count("before", before, 0, MAX_PAGE)
        check_count("after", after, 0, MAX_PAGE)
        address = f"/around/{tail(check_id('message id', message_id))}"
        query = {"before": before, "after": after, "resource": _id(resource), "entries": True}
        return _read_messages(self._caller.read(address, query))

    def get_message(self, id: str, *, resource: str | None = None) -> Message:
        return thing_of(Message, self._caller.read(_message(id), {"resource": _id(resource), "entries": True}))

    def update_message(
        self,
        id: str,
        *,
        content: JSON = UNSET,
        metadata: Mapping[str, JSON] = UNSET,
        resource: str | None = None,
    ) -> Message:
        body = _given(content=_json("message", content), metadata=_json("metadata", metadata))
        query = {"resource": _id(resource), "entries": True}
        return thing_of(Message, self._caller.make("PATCH", _message(id), query, body))

    def clear(self, id: str, *, resource: str | None = None) -> int | None:
        query = {"thread": check_id("thread id", id), "resource": _id(resource)}
        return _commit(self._caller.change("DELETE", "/messages", query))

    def delete_messages(self, ids: Sequence[str], *, resource: str | None = None) -> int | None:
        if isinstance(ids, (str, bytes)) or not isinstance(ids, Sequence):
            raise InvalidInput("ids must be a list of message ids")
        body = {"ids": list_of(ids)}
        return _commit(self._caller.change("POST", "/message-deletions", {"resource": _id(resource)}, body))

    def recall(
        self,
        thread_id: str,
        *,
        resource: str | None = None,
        query: str | None = None,
        last: int = 10,
        top: int = 4,
        neighbours: int = 1,
        scope: RecallScope = "thread",
    ) -> Recall:
        body = {
            "thread": thread_id,
            "resource": resource,
            "query": query,
            "last": last,
            "top": top,
            "neighbours": neighbours,
            "scope": scope,
        }
        return thing_of(Recall, self._caller.read("/recall", {"entries": True}, body=body))

    def context(
        self,
        thread_id: str,
        query: str | None = None,
        *,
        max_tokens: int | None = None,
        resource: str | None = None,
        last: int = 10,
        top: int = 4,
        neighbours: int = 1,
        scope: RecallScope = "thread",
        working: bool = True,
        count_tokens: CountTokens = estimate_tokens,
    ) -> Context:
        """As `Threads.context`; with a counter of the caller's own it is put together on this side."""
        options: dict[str, Any] = {
            "query": query,
            "resource": _id(resource),
            "last": last,
            "top": top,
            "neighbours": neighbours,
            "scope": scope,
        }
        if count_tokens is estimate_tokens:
            body = {"thread": thread_id, **options, "max_tokens": max_tokens, "working": bool(working)}
            return thing_of(Context, self._caller.read("/context", body=body))
        RecallRequest(query, last, top, neighbours, scope)
        budget = Budget(max_tokens, count_tokens)
        thread = self.get(thread_id, resource=resource)
        memories = (self.working.read(resource=thread.resource_id), self.working.read(thread=thread_id))
        recalled = self.recall(thread_id, **options)
        beside = cast("Handle", _Beside(self, recalled))
        return build_context(beside, thread_id, recalled, last, budget, system_text(memories if working else ()))

    def search(
        self, query: str, *, limit: int = 10, resource: str | None = None, now: datetime | str | None = None
    ) -> ThreadSearchResult:
        body = {"query": query, "limit": limit, "resource": resource, "now": time_argument("now", now)}
        found = thing_of(ThreadSearchResult, self._caller.read("/thread-search", body=body))
        bound = (replace(hit, thread=hit.thread.bound_to(self.context)) for hit in found.threads)
        return replace(found, threads=tuple(bound))

    def _read_thread(self, form: Mapping[str, Any]) -> Thread:
        return thing_of(Thread, form).bound_to(self.context)


class _Beside:
    """Stands where `build_context` expects a handle, and reads the neighbours of messages that it has seen."""

    def __init__(self, threads: RemoteThreads, recalled: Recall) -> None:
        self._threads = threads
        self._ids: dict[str, str] = {}
        self._note(recalled.messages)

    @property
    def namespace(self) -> Namespace:
        return self._threads._caller.namespace

    @property
    def store(self) -> _Beside:
        return self

    def scan(self, namespace: Namespace, scan: Scan) -> Page:
        """The entries before or after the one whose key the filter names, the nearest first."""
        id = self._ids[scan.filter.key_before or scan.filter.key_after or ""]
        if scan.descending:
            found = self._threads.around(id, before=scan.limit, after=0)[-2::-1]
        else:
            found = self._threads.around(id, before=0, after=scan.limit)[1:]
        return Page(self._note(found), None)

    def _note(self, messages: Sequence[Message]) -> tuple[Entry, ...]:
        entries = tuple(message.entry for message in messages if message.entry is not None)
        self._ids |= {entry.key: cast("str", entry.identity) for entry in entries}
        return entries


list_of = list


def _id(resource: str | None) -> str | None:
    return None if resource is None else check_id("resource", resource)


def _thread(id: str) -> str:
    return f"/threads/{tail(check_id('thread id', id))}"


def _message(id: str) -> str:
    return f"/messages/{tail(check_id('message id', id))}"


def _commit(form: Mapping[str, Any]) -> int | None:
    return None if form["commit"] is None else int(form["commit"])


def _read_messages(form: Mapping[str, Any]) -> tuple[Message, ...]:
    return tuple(thing_of(Message, message) for message in form["messages"])


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not UNSET}


def _json(name: str, value: Any) -> Any:
    return value if value is UNSET else check_json(name, value)


def _messages(messages: object, verbatim: bool) -> object:
    """Refuse what JSON would change on its way, such as a key that is a number; all else the service checks."""
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise InvalidInput('messages must be a list, such as [{"role": "user", "content": "…"}]')
    for number, message in enumerate(messages, 1):
        if isinstance(message, Mapping):
            left_out = () if verbatim else _OWN_FIELDS
            check_json(f"message {number}", {name: field for name, field in message.items() if name not in left_out})
    return list_of(messages)
