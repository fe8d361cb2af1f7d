"""Pages of a listing and of the feed, on every backend: cursors, limits and key ranges; `EmptyReader`."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from commonplace.checks import INT64, Namespace
from commonplace.entry import SEPARATOR, Change, Entry, Revision
from commonplace.errors import Conflict, InvalidInput
from commonplace.filters import Filter
from commonplace.store import NOTHING, Child, NamespaceStats, Page, Reader, Scan, States, Usage

MAX_PAGE = 10_000
ORDER_COLUMNS = {"key": ("kind", "key"), "created": ("created_at", "id"), "updated": ("updated_at", "id")}
_LAST_CHARACTER = "\U0010ffff"

Position = tuple[Any, Any]
"""The position of an entry in an order: its kind and key, or a time and the entry's number."""

Place = tuple[int, str, str]
"""The same in a cursor of an order by time: a time, and the entry's kind and key. The number is left out, because it
would reveal how many other entries there are.
"""


def check_limit(limit: int) -> None:
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidInput(f"limit must be between 1 and {MAX_PAGE:,}, not {limit}")


def check_feed(after: int, floor: int, last: int) -> None:
    """Raise Conflict if the feed cannot continue after a commit."""
    if after < floor:
        raise Conflict(
            f"the feed no longer reaches back to commit {after}; read everything again and continue from commit {floor}"
        )
    if after > last:  # the book was restored from a backup
        raise Conflict(
            f"the feed ends at commit {last}, before commit {after}; read everything again, then continue from "
            f"commit {last}"
        )


def whole_commits(limit: int, read: Callable[[int], list[Change]]) -> list[Change]:
    """A page of the feed with whole commits only. `read` returns the first changes, up to a number."""
    changes = read(limit + 1)
    if len(changes) <= limit:
        return changes
    last = changes[-1].commit
    whole = [change for change in changes if change.commit < last]
    return whole or whole_commits(limit * 10, read)  # a commit that is larger than the page is still returned whole


def without(kinds: Iterable[tuple[str, int]], expired: Iterable[tuple[str, int]]) -> dict[str, int]:
    """How many entries of each kind there are, without the expired ones."""
    gone = dict(expired)
    return {kind: count - gone.get(kind, 0) for kind, count in kinds if count > gone.get(kind, 0)}


def single_labels(filter: Filter) -> list[tuple[str, str]]:
    """The labels, by name and value, that every entry must have to pass the filter."""
    wanted = [("type", filter.types), ("tags", filter.any_tags), *(("tags", (tag,)) for tag in filter.all_tags)]
    if filter.resource is not None:
        wanted.append(("resourceId", (filter.resource,)))
    return [(name, values[0]) for name, values in wanted if values and len(values) == 1]


def position(scan: Scan, entry: Entry) -> Position:
    if scan.order == "key":
        return entry.kind, entry.key
    return (entry.created_at if scan.order == "created" else entry.updated_at), entry.id


def by_kind(scan: Scan) -> list[Scan]:
    """A scan as scans that have an index each. Those of times begin with the kind."""
    if scan.order == "key" or len(scan.filter.kinds) < 2:
        return [scan]
    return [replace(scan, filter=replace(scan.filter, kinds=(kind,))) for kind in dict.fromkeys(scan.filter.kinds)]


def is_after(scan: Scan, entry: Entry, place: Position | None) -> bool:
    """Whether an entry belongs to the pages after a position."""
    if place is None:
        return True
    return position(scan, entry) < place if scan.descending else position(scan, entry) > place


def cursor_of(scan: Scan, entry: Entry) -> str:
    """Where the page after this entry begins."""
    time = () if scan.order == "key" else position(scan, entry)[:1]
    written = json.dumps((*time, entry.kind, entry.key), separators=(",", ":"))
    return base64.urlsafe_b64encode(written.encode()).decode().rstrip("=")


def position_of(scan: Scan, number_of: Callable[[str, str], int | None]) -> Position | None:
    """Where a scan begins. `number_of` gives the number of the entry that has a kind and key, or had them last."""
    if scan.after is None:
        return None
    place = _decoded(scan.after)
    if (len(place) == 2) != (scan.order == "key"):
        raise InvalidInput("the cursor belongs to a listing in another order; start again without it")
    if len(place) == 2:
        return place
    time, kind, key = place
    number = number_of(kind, key)
    # If nothing is left of the entry, repeat those of the same time rather than skip them.
    return time, (INT64[-1] if scan.descending else 0) if number is None else number


def _decoded(cursor: str) -> tuple[str, str] | Place:
    try:
        *time, kind, key = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if type(kind) is not str or type(key) is not str or b"\0" in f"{kind}{key}".encode():
            raise ValueError("not a text of a cursor")  # a lone surrogate is refused by encode
        if len(time) > 1 or any(type(part) is not int or part not in INT64 for part in time):
            raise ValueError("not a number of a cursor")
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidInput("the cursor does not come from an earlier page; start again without it") from error
    return (time[0], kind, key) if time else (kind, key)


def from_key(filter: Filter, key: str, descending: bool) -> Filter:
    """The filter narrowed to the rest of a listing in key order."""
    if descending:
        bound = key if filter.key_before is None else min(key, filter.key_before)
        return replace(filter, key_before=bound)
    bound = key if filter.key_after is None else max(key, filter.key_after)
    return replace(filter, key_after=bound)


def key_bounds(filter: Filter) -> list[tuple[str, str]]:
    """The tightest bounds on the key that a filter asks for, since an index range uses only one lower and one upper."""
    prefix, after, before = filter.key_prefix or "", filter.key_after, filter.key_before
    bounds = []
    if after is not None and after >= prefix:
        bounds.append((">", after))
    elif prefix:
        bounds.append((">=", prefix))
    stop = after_prefix(prefix) if prefix.rstrip(_LAST_CHARACTER) else None
    if before is not None and (stop is None or before < stop):
        bounds.append(("<", before))
    elif stop is not None:
        bounds.append(("<", stop))
    return bounds


def after_prefix(prefix: str) -> str:
    """The least string above everything that begins with `prefix`, in the order of code points."""
    prefix = prefix.rstrip(_LAST_CHARACTER)
    last = ord(prefix[-1]) + 1
    return prefix[:-1] + chr(0xE000 if 0xD800 <= last <= 0xDFFF else last)


def first_below(prefix: str, after: str) -> str:
    """A key below which, and at which, no child after the name `after` can be."""
    return f"{prefix}{after}{after_prefix(SEPARATOR)}" if after else prefix


class EmptyReader(Reader):
    """The reader of a namespace that does not exist, so that a backend need not ask its database."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def get_all(
        self, kind: str, names: Sequence[str], *, by: str = "key", as_of: int | None = None
    ) -> list[Entry | None]:
        return [None] * len(names)

    def load(self, ids: Sequence[int]) -> dict[int, Entry]:
        return {}

    def scan(self, scan: Scan) -> Page:
        check_limit(scan.limit)
        return Page((), None)

    def children(
        self, kind: str, prefix: str, *, as_of: int | None = None, after: str = "", limit: int | None = None
    ) -> list[Child]:
        return []

    def history(self, kind: str, key: str) -> list[Revision]:
        return []

    def states(self, which: States) -> list[Entry]:
        return []

    def was_used(self, kind: str, first: str, last: str) -> bool:
        return False

    def changes(self, after: int, limit: int) -> list[Change]:
        check_feed(after, 0, 0)
        return []

    def commits(self, numbers: Sequence[int], limit: int, *, skip: int = 0) -> list[tuple[int, list[Change]]]:
        return [(0, []) for _ in numbers]

    def has_expired(self) -> bool:
        return False

    def usage(self) -> Usage:
        return NOTHING

    def stats(self) -> NamespaceStats:
        return NamespaceStats(self._namespace, {}, 0, 0, 0, 0, 0, 0, 0)
