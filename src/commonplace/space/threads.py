"""Conversations: threads, their messages in time order, what they recall, and working memory.

A thread belongs to a resource, by default the namespace's last label. A call that names a resource is refused on a
thread of another one; a call that names none takes the thread by its id alone.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, cast

from commonplace.checks import JSON, check_text
from commonplace.engine.search import Searcher
from commonplace.entry import Entry
from commonplace.errors import AlreadyExists, InvalidInput, NotFound, TooLarge
from commonplace.filters import Filter
from commonplace.limits import Limits
from commonplace.space import timeline
from commonplace.space.cloning import Cut, clone_thread
from commonplace.space.conversation import (
    Thread,
    check_count,
    check_id,
    check_object,
    check_owner,
    check_size,
    check_title,
    find_thread,
    thread_draft,
    thread_of,
)
from commonplace.space.handle import Handle
from commonplace.space.keys import MESSAGE, THREAD, WORKING
from commonplace.space.messages import (
    MAX_MESSAGES,
    Message,
    MessagePage,
    Numbering,
    incoming,
    message_draft,
    message_of,
)
from commonplace.space.recall import Recall, RecallRequest, RecallScope, recall
from commonplace.space.times import microseconds
from commonplace.space.working import WorkingMemories, thread_key
from commonplace.store import Scan, Transaction

_UNSET: Any = object()


@dataclass(frozen=True, slots=True)
class ThreadPage:
    threads: tuple[Thread, ...]
    cursor: str | None
    """Where the next page begins, or None at the end."""


class Threads:
    """The conversations of one namespace."""

    def __init__(self, handle: Handle, searcher: Searcher, limits: Limits) -> None:
        self._handle = handle
        self._searcher = searcher
        self._limits = limits

    @cached_property
    def working(self) -> WorkingMemories:
        return WorkingMemories(self._handle, self._limits)

    @property
    def default_resource(self) -> str:
        return self._handle.namespace[-1]

    # Threads

    def create(
        self,
        title: str | None = None,
        *,
        resource: str | None = None,
        metadata: Mapping[str, JSON] | None = None,
        id: str | None = None,
    ) -> Thread:
        """Begin a conversation; one with this id must not exist yet."""
        new_id = str(uuid.uuid4()) if id is None else check_id("thread id", id)
        owner = self.default_resource if resource is None else check_id("resource", resource)
        draft = thread_draft(new_id, owner, check_title(title), self._check_metadata(metadata or {}))

        def work(transaction: Transaction) -> Entry:
            if transaction.get(THREAD, new_id) is not None:
                raise AlreadyExists(f"a thread with id {new_id} exists already; choose another id")
            return transaction.put(draft)

        return thread_of(self._handle.write(work)[0])

    def get(self, id: str, *, resource: str | None = None) -> Thread:
        return thread_of(find_thread(self._handle.get, id, resource))

    def list(self, *, resource: str | None = None, limit: int = 20, cursor: str | None = None) -> ThreadPage:
        """The threads of a resource, or all; the one used last comes first."""
        owner = None if resource is None else check_id("resource", resource)
        scan = Scan(
            Filter(kinds=(THREAD,), resource=owner),
            order="updated",
            descending=True,
            limit=check_count("limit", limit, 1, timeline.MAX_PAGE),
            after=_check_cursor(cursor),
        )
        page = self._handle.store.scan(self._handle.namespace, scan)
        return ThreadPage(tuple(map(thread_of, page.entries)), page.cursor)

    def update(
        self,
        id: str,
        *,
        title: str | None = _UNSET,
        metadata: Mapping[str, JSON] = _UNSET,
        resource: str | None = None,
    ) -> Thread:
        """Change the title, or fields of the metadata: null removes one, those not named stay."""
        new_title = title if title is _UNSET else check_title(title)
        fields = {} if metadata is _UNSET else self._check_metadata(metadata)

        def work(transaction: Transaction) -> Entry:
            entry = find_thread(transaction.get, id, resource)
            old = thread_of(entry)
            both = {name: field for name, field in {**old.metadata, **fields}.items() if field is not None}
            check_size("metadata", both, self._limits.message_bytes)
            draft = thread_draft(id, old.resource_id, old.title if new_title is _UNSET else new_title, both)
            return entry if draft.attributes == entry.attributes else transaction.put(draft)

        return thread_of(self._handle.write(work)[0])

    def delete(self, id: str, *, resource: str | None = None) -> int:
        """Delete a thread with its messages and its working memory; the one commit that `Space.undo` takes back."""

        def work(transaction: Transaction) -> None:
            find_thread(transaction.get, id, resource)
            for message in [entry.key for entry in timeline.all_messages(transaction, id)]:
                transaction.delete(MESSAGE, message)
            transaction.delete(WORKING, thread_key(id))
            transaction.delete(THREAD, id)

        _, commit = self._handle.write(work)
        assert commit is not None
        return commit

    def clone(
        self,
        id: str,
        *,
        upto_message: str | None = None,
        upto: datetime | str | None = None,
        title: str | None = None,
        resource: str | None = None,
    ) -> Thread:
        """Copy a thread with its messages, all or up to a message or a time (inclusive), which get new ids.

        Its working memory goes along with a whole copy only: it may know of what comes after.
        """
        new_id, new_title = str(uuid.uuid4()), check_title(title)
        last = None if upto_message is None else check_id("message id", upto_message)
        cut = Cut(last, microseconds("upto", upto))

        def work(transaction: Transaction) -> Entry:
            source = find_thread(transaction.get, id, resource)
            return clone_thread(transaction, source, new_id, new_title, cut)

        return thread_of(self._handle.write(work)[0])

    # Messages

    def add(
        self, thread_id: str, messages: Sequence[Mapping[str, object]], *, resource: str | None = None
    ) -> tuple[Message, ...]:
        """Save messages, all or none, in their order; those that are there already stay as they are.

        A message without an id gets one, and without `createdAt` the commit's time. System messages are left out.
        """
        owner = self.get(thread_id, resource=resource).resource_id
        arrived = incoming(messages, thread_id, owner, self._limits)

        def work(transaction: Transaction) -> tuple[Entry, ...]:
            find_thread(transaction.get, thread_id, owner)
            numbering = Numbering(transaction, thread_id)
            saved: dict[str, Entry] = {}
            is_new = False
            for message in arrived:
                known = transaction.find(MESSAGE, message.id)
                if known is not None:
                    message.check_same(known, thread_id)
                    saved.setdefault(message.id, known)
                    continue
                at = transaction.time if message.created_at is None else message.created_at
                saved[message.id] = transaction.put(message.placed(numbering.key(at), at))
                is_new = True
            if is_new:
                transaction.touch(THREAD, thread_id)
            return tuple(saved.values())

        return tuple(map(message_of, self._handle.write(work)[0]))

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
        """A thread's messages, oldest first: a page of them, or the `last` so many.

        `after` (inclusive) and `before` narrow by time.
        """
        find_thread(self._handle.get, thread_id, resource)
        narrowed = timeline.messages_filter(
            thread_id, after=microseconds("after", after), before=microseconds("before", before)
        )
        if last is not None:
            if cursor is not None:
                raise InvalidInput("the last messages have no cursor; give `last`, or `limit` and `cursor`")
            count = check_count("last", last, 0, timeline.MAX_PAGE)
            return MessagePage(tuple(map(message_of, timeline.last(self._handle, narrowed, count))), None)
        size = check_count("limit", limit, 1, timeline.MAX_PAGE)
        page = timeline.page(self._handle, narrowed, size, _check_cursor(cursor))
        return MessagePage(tuple(map(message_of, page.entries)), page.cursor)

    def around(
        self, message_id: str, *, before: int = 1, after: int = 1, resource: str | None = None
    ) -> tuple[Message, ...]:
        """A message with so many of its thread before and after it, oldest first."""
        check_count("before", before, 0, timeline.MAX_PAGE)
        check_count("after", after, 0, timeline.MAX_PAGE)
        entry = self._message(message_id, resource)
        return tuple(map(message_of, timeline.around(self._handle, entry, before, after)))

    def get_message(self, id: str, *, resource: str | None = None) -> Message:
        return message_of(self._message(id, resource))

    def update_message(
        self,
        id: str,
        *,
        content: JSON = _UNSET,
        metadata: Mapping[str, JSON] = _UNSET,
        resource: str | None = None,
    ) -> Message:
        """Replace a message's content, or change fields of its metadata: null removes one. Its place stays."""
        fields = {} if metadata is _UNSET else self._check_metadata(metadata)

        def work(transaction: Transaction) -> Entry:
            entry = _found(transaction.find(MESSAGE, check_id("message id", id)), id, resource)
            old = message_of(entry)
            value = dict(cast(Mapping[str, JSON], entry.value))
            if content is not _UNSET:
                value["content"] = content
            if fields:
                present = value.get("metadata")
                both = {**(present if isinstance(present, Mapping) else {}), **fields}
                value["metadata"] = {name: field for name, field in both.items() if field is not None}
            checked = check_object("message", value, self._limits.message_bytes)
            draft = message_draft(
                "message",
                entry.key,
                checked,
                thread_id=old.thread_id,
                resource=old.resource_id,
                identity=id,
            )
            if draft.value == entry.value:
                return entry
            transaction.touch(THREAD, old.thread_id)
            return transaction.put(draft)

        return message_of(self._handle.write(work)[0])

    def delete_messages(self, ids: Sequence[str], *, resource: str | None = None) -> int | None:
        """Delete those of these messages that there are; the one commit, or None where there was none of them."""
        if isinstance(ids, (str, bytes)) or not isinstance(ids, Sequence):
            raise InvalidInput("ids must be a list of message ids")
        if len(ids) > MAX_MESSAGES:
            raise TooLarge(f"there are {len(ids):,} ids; one call takes at most {MAX_MESSAGES:,}")
        wanted = dict.fromkeys(check_id("message id", id) for id in ids)

        def work(transaction: Transaction) -> None:
            for id in wanted:
                entry = transaction.find(MESSAGE, id)
                if entry is not None:
                    _found(entry, id, resource)
                    transaction.delete(MESSAGE, entry.key)
                    transaction.touch(THREAD, message_of(entry).thread_id)

        return self._handle.write(work)[1]

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
        """The last messages, and the `top` that the query finds, each with its neighbours; each once, in time order.

        With the scope `resource` it looks into all threads of the thread's resource.
        """
        request = RecallRequest(query, last, top, neighbours, scope)
        thread = find_thread(self._handle.get, thread_id, resource)
        return recall(self._handle, self._searcher, thread, request)

    # Rules

    def _message(self, id: str, resource: str | None) -> Entry:
        found = self._handle.store.find(self._handle.namespace, MESSAGE, check_id("message id", id))
        return _found(found, id, resource)

    def _check_metadata(self, metadata: Mapping[str, JSON]) -> dict[str, JSON]:
        return check_object("metadata", metadata, self._limits.message_bytes)


def _found(entry: Entry | None, id: str, resource: str | None) -> Entry:
    if entry is None:
        raise NotFound(f"No message found with id {id}")
    message = message_of(entry)
    check_owner(message.thread_id, message.resource_id, resource)
    return entry


def _check_cursor(cursor: str | None) -> str | None:
    return None if cursor is None else check_text("cursor", cursor, max_bytes=10_000)
