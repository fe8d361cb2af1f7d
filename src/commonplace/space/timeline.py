"""A thread's messages as a range in time order: its end, its pages, and the neighbourhood of one message."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from commonplace.checks import JSON, check_text
from commonplace.entry import Entry
from commonplace.filters import Filter
from commonplace.space.handle import Handle
from commonplace.space.keys import MESSAGE
from commonplace.space.messages import thread_of_key, thread_prefix
from commonplace.store import Page, Scan, Transaction

MAX_PAGE = 1_000


def check_cursor(cursor: str | None) -> str | None:
    return None if cursor is None else check_text("cursor", cursor, max_bytes=10_000)


def messages_filter(thread_id: str, *, after: int | None = None, before: int | None = None) -> Filter:
    """A thread's messages from one time (inclusive) to another."""
    prefix = thread_prefix(thread_id)
    return Filter(kinds=(MESSAGE,), key_prefix=prefix, created_after=after, created_before=before)


def page(handle: Handle, filter: Filter, limit: int, cursor: str | None) -> Page:
    return handle.store.scan(handle.namespace, Scan(filter, limit=limit, after=cursor))


def last(handle: Handle, filter: Filter, count: int) -> tuple[Entry, ...]:
    """The newest so many, oldest first."""
    if not count:
        return ()
    newest = handle.store.scan(handle.namespace, Scan(filter, descending=True, limit=count))
    return newest.entries[::-1]


def last_values(handle: Handle, filter: Filter, count: int) -> list[JSON]:
    """The values of the newest so many, oldest first."""
    return handle.store.values(handle.namespace, Scan(filter, descending=True, limit=count))[::-1] if count else []


def around(handle: Handle, entry: Entry, before: int, after: int) -> tuple[Entry, ...]:
    """A message with so many of its thread before and after it, oldest first."""
    return (*beside(handle, entry, -before)[::-1], entry, *beside(handle, entry, after))


def beside(handle: Handle, entry: Entry, count: int) -> tuple[Entry, ...]:
    """So many messages after one, or before it where the count is negative; the nearest first."""
    if not count:
        return ()
    filter = messages_filter(thread_of_key(entry.key))
    filter = replace(filter, key_before=entry.key) if count < 0 else replace(filter, key_after=entry.key)
    return handle.store.scan(handle.namespace, Scan(filter, descending=count < 0, limit=abs(count))).entries


def all_messages(transaction: Transaction, thread_id: str) -> Iterator[Entry]:
    """Every message of a thread inside a transaction, in time order."""
    cursor: str | None = None
    while True:
        found = transaction.scan(Scan(messages_filter(thread_id), limit=MAX_PAGE, after=cursor))
        yield from found.entries
        cursor = found.cursor
        if cursor is None:
            return
