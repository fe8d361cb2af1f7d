"""A thread's messages as a range in time order: its end, its pages, and the neighbourhood of one message."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from commonplace.entry import Entry
from commonplace.filters import Filter
from commonplace.space.handle import Handle
from commonplace.space.keys import MESSAGE
from commonplace.space.messages import thread_of_key, thread_prefix
from commonplace.store import Page, Scan, Transaction

MAX_PAGE = 1_000
_BULK_PAGE = 1_000
_FEWEST = 20


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


def around(handle: Handle, entry: Entry, before: int, after: int) -> tuple[Entry, ...]:
    """A message with so many of its thread before and after it, oldest first."""
    earlier = tuple(_beside(handle, entry, before, descending=True))[::-1]
    return (*earlier, entry, *_beside(handle, entry, after, descending=False))


def _beside(handle: Handle, entry: Entry, count: int, *, descending: bool) -> Iterator[Entry]:
    # The bound is the time, so messages of the very same time are met again and passed over by their keys.
    at = entry.created_at
    bound = {"before": at + 1} if descending else {"after": at}
    scan_filter = messages_filter(thread_of_key(entry.key), **bound)

    def beyond() -> Iterator[Entry]:
        cursor: str | None = None
        while True:
            scan = Scan(scan_filter, descending=descending, limit=max(_FEWEST, count + 1), after=cursor)
            found = handle.store.scan(handle.namespace, scan)
            yield from (
                other for other in found.entries if (other.key < entry.key if descending else other.key > entry.key)
            )
            cursor = found.cursor
            if cursor is None:
                return

    return islice(beyond(), count)


def all_messages(transaction: Transaction, thread_id: str) -> Iterator[Entry]:
    """Every message of a thread inside a transaction, in time order."""
    cursor: str | None = None
    while True:
        found = transaction.scan(Scan(messages_filter(thread_id), limit=_BULK_PAGE, after=cursor))
        yield from found.entries
        cursor = found.cursor
        if cursor is None:
            return
