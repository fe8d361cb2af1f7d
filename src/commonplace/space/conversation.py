"""What the parts of conversations share: threads, their owners, checks of ids and counts, and numbered pages."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar, cast

from commonplace.checks import JSON, check_json, check_line, check_text, moment
from commonplace.entry import Draft, Entry
from commonplace.errors import Forbidden, InvalidInput, NotFound, TooLarge
from commonplace.filters import Filter
from commonplace.space.handle import Handle
from commonplace.space.names import THREAD
from commonplace.store import Order, Scan

T = TypeVar("T")
OrderBy = Literal["createdAt", "updatedAt"]
Direction = Literal["ASC", "DESC"]
MAX_PAGE_NUMBER = 10_000_000
MAX_PAGE = 1_000
MAX_ID_BYTES = 200
MAX_TITLE_BYTES = 2_000
MOST_BYTES_A_CHARACTER = 6
"""In JSON: a control character is `\\u001f`."""
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Context:
    """What fits into a prompt: `messages` as they came, in time order, and `system`, a text for the system prompt.

    `system` has the standing instructions and preferences first, which `standing` has alone, then the working memory.
    """

    messages: tuple[Mapping[str, JSON], ...]
    system: str | None
    tokens: int
    omitted: int
    """How many recalled messages did not fit, or lack the call or the result that they belong to."""
    notices: tuple[str, ...] = ()
    standing: str | None = None


@dataclass(frozen=True, slots=True)
class Thread:
    """A conversation, without its messages."""

    id: str
    resource_id: str
    title: str | None
    metadata: Mapping[str, JSON]
    created_at: datetime
    updated_at: datetime
    revision: int = field(default=0, compare=False, repr=False)
    _context: Callable[..., Context] | None = field(default=None, compare=False, repr=False)

    def context(self, query: str | None = None, max_tokens: int | None = None, **options: Any) -> Context:
        """The part of this conversation to send to a model; the options are those of `Threads.context`."""
        if self._context is None:
            raise InvalidInput("this thread was not read from a space; call space.threads.context with its id")
        return self._context(self.id, query, max_tokens=max_tokens, **options)

    def bound_to(self, context: Callable[..., Context]) -> Thread:
        """This thread, with the method that `context` calls."""
        return replace(self, _context=context)


def thread_of(entry: Entry) -> Thread:
    attributes = cast("Mapping[str, Any]", entry.attributes)
    return Thread(
        id=entry.key,
        resource_id=attributes["resourceId"],
        title=attributes["title"],
        metadata=attributes["metadata"],
        created_at=moment(entry.created_at),
        updated_at=moment(entry.updated_at),
        revision=entry.revision,
    )


def thread_draft(id: str, resource: str, title: str | None, metadata: Mapping[str, JSON]) -> Draft:
    attributes: dict[str, JSON] = {"resourceId": resource, "title": title, "metadata": metadata}
    return Draft(THREAD, id, {}, text=title or "", attributes=attributes)


def find_thread(get: Callable[[str, str], Entry | None], id: str, resource: str | None) -> Entry:
    """The thread with an id that a caller sent; it is refused if it belongs to another resource than `resource`."""
    return known_thread(get, check_id("thread id", id), resource)


def known_thread(get: Callable[[str, str], Entry | None], id: str, resource: str | None) -> Entry:
    """The same for an id that is checked already."""
    entry = get(THREAD, id)
    if entry is None:
        raise NotFound(f"No thread found with id {id}")
    if resource is not None:
        check_owner(id, cast("str", entry.attributes["resourceId"]), resource)
    return entry


def check_owner(thread_id: str, owner: str, resource: str | None) -> None:
    if resource is not None and check_id("resource", resource) != owner:
        raise Forbidden(
            f"Thread with id {thread_id} is for resource with id {owner} but resource {resource} was queried."
        )


def changed_fields(present: Mapping[str, JSON], changes: Mapping[str, JSON]) -> dict[str, JSON]:
    """Fields after a change: null removes a field, fields that are not named stay."""
    removed = {name for name, field in changes.items() if field is None}
    return {name: field for name, field in {**present, **changes}.items() if name not in removed}


# Checks


def check_id(name: str, id: object) -> str:
    if not isinstance(id, str) or not id.strip():
        raise InvalidInput(f"{name} is required and must be a non-empty string")
    return check_line(name, id, max_bytes=MAX_ID_BYTES)


def check_title(title: str | None) -> str | None:
    return None if title is None else check_text("title", title, max_bytes=MAX_TITLE_BYTES)


def check_count(name: str, count: object, least: int, most: int) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or not least <= count <= most:
        raise InvalidInput(f"{name} must be a whole number from {least:,} to {most:,}, not {count!r}")
    return count


def check_object(name: str, value: object, max_bytes: int) -> dict[str, JSON]:
    """Return a JSON object as plain dicts and lists, if it is not too large."""
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{name} must be an object, not {type(value).__name__}")
    if type(value) is dict and _is_short_ascii(value, max_bytes):
        return value.copy()
    check_json(name, value)
    plain = cast("dict[str, JSON]", _plain(cast("Mapping[str, JSON]", value)))
    check_size(name, plain, max_bytes)
    return plain


def _is_short_ascii(value: dict[Any, Any], max_bytes: int) -> bool:
    """Whether an object has only texts and passes all checks of it, as most messages do."""
    try:
        text = "".join([*value, *value.values()])
    except TypeError:
        return False
    # A character takes at most 6 bytes, so that most objects need not be encoded to know that they fit.
    size = MOST_BYTES_A_CHARACTER * (len(text) + 2 * len(value))
    return size <= max_bytes and text.isascii() and "\0" not in text


def check_size(name: str, value: JSON, max_bytes: int) -> None:
    try:
        size = len(_ENCODER.encode(value).encode())
    except ValueError as error:  # Python does not write integers of more than 4,300 digits
        raise InvalidInput(f"{name} contains a number that is too long; send it as a string") from error
    if size > max_bytes:
        raise TooLarge(f"{name} has {size:,} bytes; at most {max_bytes:,} are allowed")


def _plain(value: JSON) -> JSON:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def check_cursor(cursor: str | None) -> str | None:
    return None if cursor is None else check_text("cursor", cursor, max_bytes=10_000)


# Numbered pages


@dataclass(frozen=True, slots=True)
class NumberedPage(Generic[T]):
    """One page of a listing; `page` counts from 0, `total` is the number of items on all pages."""

    items: tuple[T, ...]
    total: int
    page: int
    per_page: int

    @property
    def has_more(self) -> bool:
        """Whether there are items on a later page; never if pages have no items."""
        return self.per_page > 0 and (self.page + 1) * self.per_page < self.total


@dataclass(frozen=True, slots=True)
class PageRequest:
    page: int
    per_page: int
    order_by: OrderBy
    direction: Direction

    def __post_init__(self) -> None:
        check_count("page", self.page, 0, MAX_PAGE_NUMBER)
        check_count("per_page", self.per_page, 0, MAX_PAGE)
        if self.order_by not in ("createdAt", "updatedAt"):
            raise InvalidInput(f'order_by must be "createdAt" or "updatedAt", not {self.order_by!r}')
        if self.direction not in ("ASC", "DESC"):
            raise InvalidInput(f'direction must be "ASC" or "DESC", not {self.direction!r}')


def numbered_page(
    handle: Handle, filter: Filter, request: PageRequest, read: Callable[[Entry], T], *, created: Order = "created"
) -> NumberedPage[T]:
    """The page with a number, and the total. `created` is the store's order that equals the order by createdAt.

    This reads every entry of the listing, a thousand at a time: 1 to 2 s for 100,000 entries. A page by cursor takes
    the same time wherever it is.
    """
    first = request.page * request.per_page
    order: Order = created if request.order_by == "createdAt" else "updated"
    scan = Scan(filter, order=order, descending=request.direction == "DESC", limit=MAX_PAGE)
    kept: list[Entry] = []
    total = 0
    while True:
        found = handle.store.scan(handle.namespace, scan)
        kept += found.entries[max(0, first - total) : max(0, first + request.per_page - total)]
        total += len(found.entries)
        if found.cursor is None:
            return NumberedPage(tuple(map(read, kept)), total, request.page, request.per_page)
        scan = replace(scan, after=found.cursor)
