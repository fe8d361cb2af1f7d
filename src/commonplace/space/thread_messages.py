"""The messages of conversations: added, read by page, by time or around one of them, changed and deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

from commonplace.checks import JSON
from commonplace.engine.undo import draft_of
from commonplace.entry import Entry
from commonplace.errors import InvalidInput, NotFound
from commonplace.filters import equal
from commonplace.limits import Limits
from commonplace.space import timeline
from commonplace.space.conversation import (
    changed_fields,
    check_count,
    check_id,
    check_object,
    check_owner,
    find_thread,
)
from commonplace.space.handle import Handle
from commonplace.space.keys import MESSAGE, THREAD
from commonplace.space.messages import (
    MOST_AHEAD,
    Incoming,
    Message,
    MessagePage,
    Numbering,
    check_ids,
    incoming,
    message_draft,
    message_of,
    thread_prefix,
)
from commonplace.space.numbered import Direction, NumberedPage, OrderBy, PageRequest, numbered_page
from commonplace.space.times import microseconds
from commonplace.space.tool_calls import ties_of
from commonplace.store import Page, Transaction

UNSET: Any = object()
"""Left out, where None would be a value."""


class ThreadMessages:
    """The messages of all threads of one namespace."""

    def __init__(self, handle: Handle, limits: Limits) -> None:
        self._handle = handle
        self._limits = limits

    @property
    def reads_at_once(self) -> bool:
        """Whether few messages are read so quickly that an event loop need not hand it to a thread."""
        return self._handle.store.reads_at_once

    def add(
        self,
        thread_id: str,
        messages: Sequence[Mapping[str, object]],
        *,
        resource: str | None = None,
        verbatim: bool = False,
    ) -> tuple[Message, ...]:
        """Save messages, all or none, in their order; those that are there already stay as they are.

        A message without an id gets one, and without `createdAt` a time that keeps its place: the commit's, or one
        that fits between those of its neighbours. System messages are left out.
        With `verbatim` any objects are kept to the letter, each as a new message at the thread's end: ids and times in
        them are theirs, not ours.
        """
        arrived = self._arrived(messages, check_id("thread id", thread_id), verbatim=verbatim)

        def work(transaction: Transaction) -> tuple[Entry, ...]:
            owner = find_thread(transaction.get, thread_id, resource).attributes["resourceId"]
            return saved(transaction, thread_id, cast(str, owner), arrived, at_end=verbatim)

        return tuple(map(message_of, self._handle.write(work)[0]))

    def _arrived(self, messages: object, thread_id: str, *, verbatim: bool = False) -> list[Incoming]:
        arrived = incoming(messages, thread_id, self._limits, verbatim=verbatim)
        if self._handle.rules.screen is None:
            return arrived
        # Before it is compared with what is there already.
        return [replace(one, draft=self._handle.rules.screened(one.draft)) for one in arrived]

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
        narrowed = timeline.messages_filter(
            check_id("thread id", thread_id), after=microseconds("after", after), before=microseconds("before", before)
        )
        if last is None:
            size = check_count("limit", limit, 1, timeline.MAX_PAGE)
            page = timeline.page(self._handle, narrowed, size, timeline.check_cursor(cursor))
        elif cursor is None:
            count = check_count("last", last, 0, timeline.MAX_PAGE)
            page = Page(timeline.last(self._handle, narrowed, count), None)
        else:
            raise InvalidInput("the last messages have no cursor; give `last`, or `limit` and `cursor`")
        if page.entries:  # a message says whose it is, so the thread need not be read for that
            check_owner(thread_id, cast(str, page.entries[0].attributes["resourceId"]), resource)
        else:
            find_thread(self._handle.get, thread_id, resource)
        return MessagePage(tuple(map(message_of, page.entries)), page.cursor)

    def items(self, thread_id: str, *, last: int, resource: str | None = None) -> tuple[JSON, ...]:
        """The last so many messages as they came in, oldest first: without an id, a time or an owner of ours."""
        count = check_count("last", last, 0, timeline.MAX_PAGE)
        found = timeline.last_values(self._handle, timeline.messages_filter(check_id("thread id", thread_id)), count)
        if resource is not None or not found:
            find_thread(self._handle.get, thread_id, resource)
        return tuple(found)

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
        """A thread's messages by page number from 0, with a total; `after` (inclusive) and `before` narrow by time."""
        request = PageRequest(page, per_page, order_by, direction)
        find_thread(self._handle.get, thread_id, resource)
        narrowed = timeline.messages_filter(
            thread_id, after=microseconds("after", after), before=microseconds("before", before)
        )
        # Keys are in the order of time, and tell apart what was said in the same moment.
        return numbered_page(self._handle, narrowed, request, message_of, created="key")

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
        content: JSON = UNSET,
        metadata: Mapping[str, JSON] = UNSET,
        resource: str | None = None,
    ) -> Message:
        """Replace a message's content, or change fields of its metadata: null removes one. Its place stays."""
        fields = {} if metadata is UNSET else self._check_metadata(metadata)

        def work(transaction: Transaction) -> Entry:
            entry = _found(transaction.find(MESSAGE, check_id("message id", id)), id, resource)
            old = message_of(entry)
            value = dict(cast(Mapping[str, JSON], entry.value))
            if content is not UNSET:
                value["content"] = content
            if fields:
                present = value.get("metadata")
                value["metadata"] = changed_fields(present if isinstance(present, Mapping) else {}, fields)
            checked = check_object("message", value, self._limits.message_bytes)
            if content is UNSET:  # a verbatim item may be what no other message is
                draft = replace(draft_of(entry), value=checked)
            else:
                draft = message_draft(
                    "message",
                    entry.key,
                    checked,
                    thread_id=old.thread_id,
                    resource=old.resource_id,
                    identity=id,
                )
            if equal(draft.value, entry.value):
                return entry
            transaction.touch(THREAD, old.thread_id)
            return transaction.put(draft)

        return message_of(self._handle.write(work)[0])

    def clear(self, id: str, *, resource: str | None = None) -> int | None:
        """Delete all messages of a thread, which stays; the one commit, or None where there was none of them."""

        def work(transaction: Transaction) -> None:
            find_thread(transaction.get, id, resource)
            if transaction.delete_range(MESSAGE, thread_prefix(id)):
                transaction.touch(THREAD, id)

        return self._handle.write(work, "delete")[1]

    def delete_messages(self, ids: Sequence[str], *, resource: str | None = None) -> int | None:
        """Delete those of these messages that there are; the one commit, or None where there was none of them."""
        wanted = check_ids(ids)

        def work(transaction: Transaction) -> None:
            for id in wanted:
                entry = transaction.find(MESSAGE, id)
                if entry is not None:
                    _found(entry, id, resource)
                    transaction.delete(MESSAGE, entry.key)
                    transaction.touch(THREAD, message_of(entry).thread_id)

        return self._handle.write(work, "delete")[1]

    def _message(self, id: str, resource: str | None) -> Entry:
        found = self._handle.store.find(self._handle.namespace, MESSAGE, check_id("message id", id))
        return _found(found, id, resource)

    def _check_metadata(self, metadata: Mapping[str, JSON]) -> dict[str, JSON]:
        return check_object("metadata", metadata, self._limits.metadata_bytes)


def saved(
    transaction: Transaction, thread_id: str, owner: str, arrived: Sequence[Incoming], *, at_end: bool = False
) -> tuple[Entry, ...]:
    """Put messages into a thread that is there; those that are in it already stay as they are.

    One without a time comes after what is in the thread, and between those that it came between.
    """
    numbering = Numbering(transaction, thread_id)
    is_any_undated = any(message.created_at is None for message in arrived)
    now = numbering.end(None if at_end else MOST_AHEAD) if is_any_undated else transaction.time
    before: int | None = None  # the time of the message that came before
    next_times = _next_times(arrived)
    entries: dict[str, Entry] = {}
    is_new = False
    for message, next_time in zip(arrived, next_times, strict=True):
        message.check_owner(owner)
        known = transaction.find(MESSAGE, message.id) if message.is_named else None
        if known is not None:
            message.check_same(known, thread_id)
            before = entries.setdefault(message.id, known).created_at
            continue
        at = message.created_at
        if at is None:
            at = now if next_time is None else min(now, next_time)
            # Where the times around it are in no order, a result stays with what called for it.
            if before is not None and (next_time is None or before <= next_time or ties_of(message.value).results):
                at = max(at, before)
        before = at
        draft = message.placed(numbering.key(at), at, owner)
        entries[message.id] = transaction.put(draft, is_fresh=True)
        is_new = True
    if is_new:
        transaction.touch(THREAD, thread_id)
    return tuple(entries.values())


def _next_times(arrived: Sequence[Incoming]) -> list[int | None]:
    """For each message the first time that one after it came with."""
    times: list[int | None] = [None]
    for message in reversed(arrived[1:]):
        times.append(times[-1] if message.created_at is None else message.created_at)
    return times[::-1][: len(arrived)]


def _found(entry: Entry | None, id: str, resource: str | None) -> Entry:
    if entry is None:
        raise NotFound(f"No message found with id {id}")
    message = message_of(entry)
    check_owner(message.thread_id, message.resource_id, resource)
    return entry
