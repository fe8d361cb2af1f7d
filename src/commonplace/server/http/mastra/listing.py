"""A thread's messages as Mastra's client lists them: pages from the newest on, filters, chosen ones with neighbours."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from commonplace.checks import JSON
from commonplace.entry import Entry
from commonplace.errors import InvalidInput, NotFound
from commonplace.filters import equal
from commonplace.server.http.mastra.forms import role_form
from commonplace.server.http.mastra.requests import MILLISECOND, later, metadata_of, time_of
from commonplace.space.conversation import MAX_PAGE, Direction, NumberedPage
from commonplace.space.messages import Message, in_time_order
from commonplace.space.threads import Threads

MAX_INCLUDED = 100


@dataclass(frozen=True, slots=True)
class MessagesFilter:
    """Which messages: from a time on, before another, of some roles, with these fields of metadata."""

    after: datetime | None = None
    before: datetime | None = None
    roles: frozenset[str] | None = None
    metadata: Mapping[str, JSON] | None = None

    def takes(self, message: Message) -> bool:
        """Whether roles and metadata are those asked for."""
        if self.roles is not None and role_form(message) not in self.roles:
            return False
        known = _metadata_of(message)
        return all(name in known and equal(known[name], value) for name, value in (self.metadata or {}).items())


def filter_of(written: Mapping[str, Any] | None) -> MessagesFilter:
    """Mastra's `filter`. Its times have milliseconds, ours microseconds: an inclusive end takes all of one."""
    asked = written or {}
    roles, metadata, times = asked.get("roles"), asked.get("metadata", {}), asked.get("dateRange") or {}
    if not isinstance(times, Mapping) or not isinstance(metadata, dict) or not isinstance(roles or [], list):
        raise InvalidInput("filter has dateRange (an object), roles (a list) and metadata (an object)")
    start, end = (
        time_of("filter.dateRange.start", times.get("start")),
        time_of("filter.dateRange.end", times.get("end")),
    )
    if start is not None and times.get("startExclusive") is True:
        start = later(start, MILLISECOND)
    if end is not None and times.get("endExclusive") is not True:
        end = later(end, MILLISECOND)
    return MessagesFilter(start, end, None if roles is None else frozenset(map(str, roles)), metadata_of(metadata))


def _metadata_of(message: Message) -> Mapping[str, JSON]:
    content = message.content
    inside = content.get("metadata") if isinstance(content, Mapping) else None
    found = inside if inside is not None else message.extra.get("metadata")
    return found if isinstance(found, Mapping) else {}


@dataclass(frozen=True, slots=True)
class Listing:
    thread: str
    resource: str | None
    page: int
    per_page: int
    direction: Direction | None
    filter: MessagesFilter

    def has(self, message: Message) -> bool:
        """Whether a message is on one of the pages."""
        after, before = self.filter.after, self.filter.before
        is_in_time = (after is None or message.created_at >= after) and (before is None or message.created_at < before)
        return message.thread_id == self.thread and is_in_time and self.filter.takes(message)


def listed(threads: Threads, asked: Listing) -> NumberedPage[Message]:
    """A page in the order that was asked for; without one, pages count from the newest, and each is in time order."""
    order: Direction = asked.direction or "DESC"
    if not asked.per_page:  # only what is included: nothing needs to be counted
        threads.get(asked.thread, resource=asked.resource)
        return NumberedPage((), 0, asked.page, 0)
    if asked.filter.roles is None and not asked.filter.metadata:
        found = threads.page_of_messages(
            asked.thread,
            asked.page,
            resource=asked.resource,
            per_page=asked.per_page,
            direction=order,
            after=asked.filter.after,
            before=asked.filter.before,
        )
    else:
        found = _filtered(threads, asked, order)
    if asked.direction is None:
        return NumberedPage(found.items[::-1], found.total, found.page, found.per_page)
    return found


def _filtered(threads: Threads, asked: Listing, order: Direction) -> NumberedPage[Message]:
    threads.page_of_messages(asked.thread, asked.page, resource=asked.resource, per_page=asked.per_page)  # the checks
    first, end = asked.page * asked.per_page, (asked.page + 1) * asked.per_page
    kept: deque[Message] = deque(maxlen=end if order == "DESC" else None)
    total = 0
    for message in _all(threads, asked):
        if asked.filter.takes(message):
            if order == "DESC" or first <= total < end:
                kept.append(message)
            total += 1
    items = tuple(kept) if order == "ASC" else tuple(kept)[::-1][first:end]
    return NumberedPage(items, total, asked.page, asked.per_page)


def _all(threads: Threads, asked: Listing) -> Iterator[Message]:
    cursor: str | None = None
    while True:
        found = threads.messages(
            asked.thread,
            resource=asked.resource,
            limit=MAX_PAGE,
            cursor=cursor,
            after=asked.filter.after,
            before=asked.filter.before,
        )
        yield from found.messages
        cursor = found.cursor
        if cursor is None:
            return


def with_included(
    threads: Threads, items: Sequence[Message], include: Sequence[Any], asked: Listing
) -> tuple[Message, ...]:
    """The messages of a page and those that were chosen, with their neighbours; each once, in order of time.

    One that is not there, or not any more, is passed over.
    """
    if not include:
        return tuple(items)
    if len(include) > MAX_INCLUDED:
        raise InvalidInput(f"include names {len(include):,} messages; at most {MAX_INCLUDED} are allowed")
    both = {message.id: message for message in items}
    for one in include:
        if not isinstance(one, Mapping) or not isinstance(one.get("id"), str):
            raise InvalidInput("include is a list of objects with the id of a message")
        before, after = one.get("withPreviousMessages", 0), one.get("withNextMessages", 0)
        with suppress(NotFound):
            for message in threads.around(one["id"], before=before, after=after, resource=asked.resource):
                both[message.id] = message
    return tuple(
        sorted(
            both.values(), key=lambda one: in_time_order(cast("Entry", one.entry)), reverse=asked.direction == "DESC"
        )
    )
