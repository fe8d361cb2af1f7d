"""Items: JSON values by key, with a time to live, conditional writes, and a choice of which fields search sees.

An item can carry vectors that its writer made with a model of their own. They are part of its state. Such a model has
a name, and a search by a vector of it looks only at vectors with that name.

An item can be written without history: its former states are not kept, its deletion is final, and search does not see
it. Caches, checkpoints and secrets of other programs are written that way.
"""

from __future__ import annotations

import base64
import heapq
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from commonplace.checks import (
    JSON,
    MAX_KEY_BYTES,
    Limits,
    Namespace,
    check_json,
    check_line,
    check_number,
    check_visible,
    expiry,
    microseconds,
    moment,
    optional_moment,
)
from commonplace.engine.search import MAX_LIMIT, MAX_OFFSET, SearchResult
from commonplace.entry import WITHOUT_HISTORY, Draft, Entry, Hit
from commonplace.errors import Conflict, InvalidInput, NotFound, Outdated, TooLarge
from commonplace.filters import Condition, Filter, parse_conditions
from commonplace.language.snippets import snippet
from commonplace.space.handle import Handle, awaited
from commonplace.space.names import ITEM
from commonplace.space.records import text_of
from commonplace.store import Order, Scan, Transaction

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

MAX_ITEMS = 10_000
"""How many items one call may write, read or delete."""

MAX_FIELDS = 50
MAX_VECTORS = 100
MAX_DIMENSIONS = 16_000
PAGE = 1_000
FIRST_PAGE = 20
"""How many items of each namespace are read at first for a list over several."""

FIELDS, TTL, VECTORS = "$fields", "$ttl", "$vectors"
"""Names of attributes. A filter cannot name them, because `$` begins an operator."""

_HAS_HISTORY = Condition((WITHOUT_HISTORY,), "$ne", False)
_ORDERS: tuple[Order, ...] = ("key", "created", "updated")
_STEP = re.compile(r"\[(\*|-?\d{1,6})\]|([^.\[\]]+)")


@dataclass(frozen=True, slots=True)
class Item:
    """A value by its key. `fields` are the paths that search sees; None means all of it, () nothing."""

    key: str
    value: JSON
    namespace: Namespace
    revision: int
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    ttl_seconds: float | None = None
    fields: tuple[str, ...] | None = None
    history: bool = True
    model: str | None = None
    """The model of the vectors that its writer gave."""


@dataclass(frozen=True, slots=True)
class NewItem:
    """An item to be written, as `Items.put` takes it."""

    key: str
    value: JSON
    fields: Sequence[str] | None = None
    ttl_seconds: float | None = None
    revision: int | None = None
    history: bool = True
    model: str | None = None
    vectors: Sequence[Sequence[float]] = ()


@dataclass(frozen=True, slots=True)
class ItemPage:
    items: tuple[Item, ...]
    cursor: str | None


class Items:
    """The items of one namespace."""

    def __init__(self, handle: Handle, limits: Limits) -> None:
        self._handle = handle
        self._limits = limits

    def put(
        self,
        key: str,
        value: JSON,
        *,
        fields: Sequence[str] | None = None,
        ttl_seconds: float | None = None,
        revision: int | None = None,
        history: bool = True,
        model: str | None = None,
        vectors: Sequence[Sequence[float]] = (),
    ) -> Item:
        """Write an item: a new one, or a new revision of the one with this key.

        `fields` are the paths that search sees, such as `title` or `parts[*].text`; by default all of the value, and
        with () nothing. `revision` is the one that you have seen, 0 if none may exist; another one raises Outdated.
        `history=False` keeps no former states and is not searched. `vectors` are yours, made with your `model`.
        """
        new = NewItem(key, value, fields, ttl_seconds, revision, history, model, vectors)
        return self.write_all([new])[0]

    def write_all(self, puts: Sequence[NewItem | Mapping[str, Any]], deletes: Sequence[str] = ()) -> tuple[Item, ...]:
        """Write and delete items in one commit, or change nothing. Keys to delete need not exist."""
        drafts = [(self._checked(new), self._draft(self._checked(new))) for new in _check_many("puts", puts)]
        gone = [check_item_key(key) for key in _check_many("deletes", deletes)]

        def work(transaction: Transaction) -> tuple[Entry, ...]:
            written = tuple(_put(transaction, new, draft) for new, draft in drafts)
            for key in gone:
                transaction.delete(ITEM, key)
            return written

        actions = (("write",) if drafts or not gone else ()) + (("delete",) if gone else ())
        return tuple(map(item_of, self._handle.write("Items.write_all", work, *actions)[0]))  # type: ignore[arg-type]

    def get(self, key: str, *, as_of: datetime | str | None = None) -> Item:
        entry = self._handle.get(ITEM, check_item_key(key), as_of=microseconds("as_of", as_of))
        if entry is None:
            raise NotFound(f"there is no item {key!r:.200}; list the items to see which exist")
        return item_of(entry)

    def get_all(self, keys: Sequence[str]) -> tuple[Item | None, ...]:
        """The items with these keys, in this order; None for one that does not exist."""
        wanted = [check_item_key(key) for key in _check_many("keys", keys)]
        entries = self._handle.store.get(self._handle.namespace, ITEM, wanted) if wanted else []
        return tuple(None if entry is None else item_of(entry) for entry in entries)

    def refresh(self, keys: Sequence[str]) -> tuple[Item | None, ...]:
        """As `get_all`, and the time to live of each begins again. That is neither a revision nor an update."""
        wanted = [check_item_key(key) for key in _check_many("keys", keys)]

        def work(transaction: Transaction) -> list[Entry | None]:
            return [_renewed(transaction, entry) for entry in transaction.get_all(ITEM, wanted)]

        found = self._handle.write("Items.refresh", work)[0] if wanted else []
        return tuple(None if entry is None else item_of(entry) for entry in found)

    def delete(self, key: str, *, revision: int | None = None) -> int | None:
        """Delete an item; return the commit, or None if it does not exist. Another revision raises Outdated."""
        name = check_item_key(key)
        seen = None if revision is None else check_number("revision", revision)

        def work(transaction: Transaction) -> None:
            if seen is not None:
                _check_revision(transaction.get(ITEM, name), name, seen)
            transaction.delete(ITEM, name)

        return self._handle.write("Items.delete", work, "delete")[1]

    def clear(self, prefix: str = "", *, filter: Mapping[str, object] | None = None) -> int:
        """Delete the items whose keys begin with a prefix and that pass a filter, in one commit; return how many."""
        narrowed = _narrowed(prefix, filter)

        def work(transaction: Transaction) -> int:
            keys = [entry.key for entry in _all_pages(lambda scan: transaction.scan(scan), Scan(narrowed, limit=PAGE))]
            for key in keys:
                transaction.delete(ITEM, key)
            return len(keys)

        return self._handle.write("Items.clear", work, "delete")[0]

    def list(
        self,
        prefix: str = "",
        *,
        filter: Mapping[str, object] | None = None,
        order: Order = "key",
        descending: bool = False,
        limit: int = 100,
        cursor: str | None = None,
        as_of: datetime | str | None = None,
    ) -> ItemPage:
        """Items by their keys, or by when they were `created` or `updated`; with a prefix, those that begin with it."""
        scan = Scan(
            _narrowed(prefix, filter),
            order=_check_order(order),
            descending=bool(descending),
            limit=check_number("limit", limit),
            after=cursor,
            as_of=microseconds("as_of", as_of),
        )
        page = self._handle.store.scan(self._handle.namespace, scan)
        return ItemPage(tuple(map(item_of, page.entries)), page.cursor)

    def list_below(
        self,
        *,
        filter: Mapping[str, object] | None = None,
        order: Order = "updated",
        descending: bool = True,
        limit: int = 100,
        offset: int = 0,
        history: bool = False,
    ) -> tuple[Item, ...]:
        """The items of this namespace and of all below it, in one order. Each namespace is read on its own.

        `history=True` leaves out the items without history, which are caches and checkpoints of programs.
        """
        if not 1 <= check_number("limit", limit) <= MAX_LIMIT:
            raise InvalidInput(f"limit must be between 1 and {MAX_LIMIT:,}, not {limit}")
        if not 0 <= check_number("offset", offset) <= MAX_OFFSET:
            raise InvalidInput(f"offset must be between 0 and {MAX_OFFSET:,}, not {offset}")
        narrowed = _narrowed("", filter)
        if history:
            narrowed = replace(narrowed, conditions=(*narrowed.conditions, _HAS_HISTORY))
        scan = Scan(narrowed, order=_check_order(order), descending=bool(descending))
        namespaces = self._handle.namespaces_below((ITEM,))
        lists = [self._in_order(namespace, scan, offset + limit) for namespace in namespaces]
        merged = heapq.merge(*lists, key=_POSITIONS[scan.order], reverse=scan.descending)
        return tuple(
            item_of(entry) for number, entry in zip(range(offset + limit), merged, strict=False) if number >= offset
        )

    def _in_order(self, namespace: Namespace, scan: Scan, wanted: int) -> Iterator[Entry]:
        first = replace(scan, limit=min(wanted, FIRST_PAGE))
        return _all_pages(lambda scan: self._handle.store.scan(namespace, scan), first, next_limit=min(wanted, PAGE))

    # Rules

    def _checked(self, new: NewItem | Mapping[str, Any]) -> NewItem:
        if isinstance(new, NewItem):
            return new
        if not isinstance(new, Mapping):
            raise InvalidInput("an item to write is an object with a key and a value")
        if unknown := new.keys() - NewItem.__dataclass_fields__.keys():
            raise InvalidInput(f"an item to write has an unknown field {min(map(str, unknown))!r:.100}")
        if missing := {"key", "value"} - new.keys():
            raise InvalidInput(f"an item to write needs the field {min(missing)!r}")
        return NewItem(**new)

    def _draft(self, new: NewItem) -> Draft:
        key = check_visible("key", check_item_key(new.key))
        if new.value is None:
            raise InvalidInput("value is required; delete the item to remove it")
        value = check_json("value", new.value)
        size = len(json.dumps(value, ensure_ascii=False, default=dict).encode())
        if size > self._limits.item_bytes:
            raise TooLarge(f"value has {size:,} bytes; at most {self._limits.item_bytes:,} are allowed")
        if new.revision is not None and check_number("revision", new.revision) < 0:
            raise InvalidInput(f"revision must be 0 or more, not {new.revision}")
        expiry(0, new.ttl_seconds)
        fields = None if new.fields is None else check_fields(new.fields)
        attributes: dict[str, JSON] = {}
        if not isinstance(new.history, bool):
            raise InvalidInput("history must be true or false")
        if not new.history:
            if fields or new.vectors:
                raise InvalidInput("an item without history is not searched; leave out fields and vectors")
            fields = ()
            attributes[WITHOUT_HISTORY] = False
        if fields is not None:
            attributes[FIELDS] = list(fields)
        if new.ttl_seconds is not None:
            attributes[TTL] = new.ttl_seconds
        if new.vectors or new.model is not None:
            attributes[VECTORS] = {"model": check_model(new.model), "rows": _check_vectors(new.vectors)}
        is_searched = fields != ()
        text = "\n".join(texts_at(value, fields)) if is_searched else ""
        heading = key if is_searched else None
        return self._handle.prepared(Draft(ITEM, key, value, text=text, heading=heading, attributes=attributes))


# Writes


def _put(transaction: Transaction, new: NewItem, draft: Draft) -> Entry:
    known = transaction.get(ITEM, draft.key)
    if new.revision is not None:
        _check_revision(known, draft.key, new.revision)
    if known is not None and (known.attributes.get(WITHOUT_HISTORY) is False) == new.history:
        raise Conflict(
            f"the item {draft.key!r:.200} was written {'without' if new.history else 'with'} history; "
            "write it the same way, or delete it first"
        )
    return transaction.put(draft.with_expiry(expiry(transaction.time, new.ttl_seconds)))


def _check_revision(known: Entry | None, key: str, seen: int) -> None:
    found = 0 if known is None else known.revision
    if found != seen:
        present = f"is at revision {found}" if found else "does not exist"
        raise Outdated(f"the item {key!r:.200} {present}; read it again, then decide", found)


def _renewed(transaction: Transaction, entry: Entry | None) -> Entry | None:
    seconds = None if entry is None else entry.attributes.get(TTL)
    if entry is None or not isinstance(seconds, (int, float)):
        return entry
    ends = expiry(transaction.time, seconds)
    assert ends is not None
    return transaction.renew(ITEM, entry.key, ends)


# Checks


def check_item_key(key: object) -> str:
    if not isinstance(key, str) or not key:
        raise InvalidInput("key is required and must be a non-empty string")
    return check_line("key", key, max_bytes=MAX_KEY_BYTES)


def check_model(model: object) -> str:
    if not isinstance(model, str) or not model.strip():
        raise InvalidInput("vectors need the name of their model, such as openai:text-embedding-3-small")
    return check_line("model", model, max_bytes=200)


def _check_prefix(prefix: object) -> str | None:
    if prefix == "":
        return None
    return check_line("prefix", prefix, max_bytes=MAX_KEY_BYTES)


def _check_many(name: str, some: Any) -> Sequence[Any]:
    if isinstance(some, (str, bytes, Mapping)) or not isinstance(some, Sequence):
        raise InvalidInput(f"{name} must be a list")
    if len(some) > MAX_ITEMS:
        raise TooLarge(f"there are {len(some):,} {name}; one call takes at most {MAX_ITEMS:,}")
    return some


def _check_order(order: Any) -> Order:
    if order not in _ORDERS:
        raise InvalidInput(f"order must be one of {', '.join(_ORDERS)}, not {order!r:.100}")
    return cast("Order", order)


def check_fields(fields: Any) -> tuple[str, ...]:
    if isinstance(fields, (str, bytes)) or not isinstance(fields, Sequence):
        raise InvalidInput('fields must be a list of paths, such as ["title", "parts[*].text"]')
    if len(fields) > MAX_FIELDS:
        raise InvalidInput(f"there are {len(fields)} fields; at most {MAX_FIELDS} are allowed")
    for field in fields:
        if not field:
            raise InvalidInput("a field is a path, such as title; an empty one is not allowed")
        check_line("field", field, max_bytes=1_000)
    return tuple(fields)


def _check_vectors(vectors: Any) -> list[JSON]:
    _check_many("vectors", vectors)
    if not 1 <= len(vectors) <= MAX_VECTORS:
        raise InvalidInput(f"an item has 1 to {MAX_VECTORS} vectors of a model, not {len(vectors)}")
    rows = [check_vector(vector) for vector in vectors]
    if len({len(row) for row in rows}) > 1:
        raise InvalidInput("the vectors of an item must have one length")
    return [base64.b64encode(row.astype("<f2").tobytes()).decode() for row in rows]


def check_vector(vector: Any) -> NDArray[float32]:
    """A vector that a caller sent, with length 1."""
    import numpy as np

    if isinstance(vector, (str, bytes, Mapping)) or not hasattr(vector, "__len__"):
        raise InvalidInput("a vector is a list of numbers")
    if not 1 <= len(vector) <= MAX_DIMENSIONS:
        raise InvalidInput(f"a vector has 1 to {MAX_DIMENSIONS:,} numbers, not {len(vector):,}")
    if not isinstance(vector, np.ndarray) and any(
        isinstance(number, bool) or not isinstance(number, (int, float, np.number)) for number in vector
    ):
        raise InvalidInput("a vector is a list of numbers")
    try:
        with np.errstate(over="ignore"):  # what overflows is refused below
            row: NDArray[float32] = np.asarray(vector, np.float32).reshape(-1)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidInput("a vector is a list of numbers") from error
    length = float(np.linalg.norm(row.astype(np.float64)))
    if not np.isfinite(length) or length == 0:
        raise InvalidInput("a vector must have finite numbers that are not all 0")
    return (row / length).astype(np.float32)


# What search sees


def texts_at(value: JSON, fields: Sequence[str] | None) -> list[str]:
    """The texts of the fields, one for each place that a path names; of all of the value if no fields are given."""
    if fields is None:
        return [text_of(value)]
    return [text for field in fields for found in _at(value, field) if (text := text_of(found))]


def _at(value: JSON, path: str) -> list[JSON]:
    """The values at a path: `a.b`, `a[0]`, `a[-1]`, `a[*].b`, `*`; `$` is the whole value."""
    found = [value]
    if path == "$":
        return found
    for index, name in _STEP.findall(path):
        found = [below for one in found for below in (_elements(one, index) if index else _members(one, name))]
    return found


def _elements(value: JSON, index: str) -> Sequence[JSON]:
    if not isinstance(value, (list, tuple)):
        return ()
    if index == "*":
        return value
    return value[int(index) :][:1] if int(index) != -1 else value[-1:]


def _members(value: JSON, name: str) -> Sequence[JSON]:
    if name == "*":
        return (
            tuple(value.values()) if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
        )
    return (value[name],) if isinstance(value, Mapping) and name in value else ()


# Reads


def item_of(entry: Entry) -> Item:
    """The item that an entry is."""
    attributes = cast("Mapping[str, Any]", entry.attributes)
    fields, vectors = attributes.get(FIELDS), attributes.get(VECTORS)
    return Item(
        key=entry.key,
        value=entry.value,
        namespace=entry.namespace,
        revision=entry.revision,
        created_at=moment(entry.created_at),
        updated_at=moment(entry.updated_at),
        expires_at=optional_moment(entry.expires_at),
        ttl_seconds=attributes.get(TTL),
        fields=tuple(fields) if isinstance(fields, (list, tuple)) else None,
        history=attributes.get(WITHOUT_HISTORY) is not False,
        model=vectors.get("model") if isinstance(vectors, Mapping) else None,
    )


def _narrowed(prefix: str, filter: Mapping[str, object] | None) -> Filter:
    return Filter(kinds=(ITEM,), key_prefix=_check_prefix(prefix), conditions=parse_conditions(filter))


def _all_pages(read: Callable[[Scan], Any], scan: Scan, *, next_limit: int = PAGE) -> Iterator[Entry]:
    while True:
        page = read(scan)
        yield from page.entries
        if page.cursor is None:
            return
        scan = replace(scan, after=page.cursor, limit=next_limit)


_POSITIONS: Mapping[str, Callable[[Entry], Any]] = {
    "key": lambda entry: (entry.key, entry.namespace),
    "created": lambda entry: entry.created_at,
    "updated": lambda entry: entry.updated_at,
}


# Vectors of a caller's own model


def nearest(handle: Handle, namespaces: Iterable[Namespace], request: VectorSearch) -> SearchResult:
    """The items whose vectors of this very model are nearest. Every such item is compared."""
    import numpy as np

    found: list[tuple[float, Entry]] = []
    has_model = Condition((VECTORS, "model"), "$eq", request.model)
    narrowed = replace(request.filter, kinds=(ITEM,), conditions=(*request.filter.conditions, has_model))
    for namespace in namespaces:
        scan = Scan(narrowed, limit=PAGE, as_of=request.as_of)
        for entry in _all_pages(lambda scan, namespace=namespace: handle.store.scan(namespace, scan), scan):  # type: ignore[misc]
            rows = _rows_of(entry)
            if rows and len(rows[0]) == len(request.vector):
                found.append((float(max(np.stack(rows) @ request.vector)), entry))
            elif rows:
                raise InvalidInput(
                    f"vectors of the model {request.model} have {len(rows[0]):,} numbers, and the query has "
                    f"{len(request.vector):,}; give each model its own name"
                )
    found.sort(key=lambda pair: -pair[0])
    page = found[request.offset : request.offset + request.limit]
    return SearchResult(tuple(_hit(score, entry) for score, entry in page))


@dataclass(frozen=True, slots=True)
class VectorSearch:
    """A search by a vector of a caller's own model."""

    model: str
    vector: NDArray[float32]
    filter: Filter
    limit: int
    offset: int
    as_of: int | None


def _rows_of(entry: Entry) -> list[NDArray[float32]]:
    import numpy as np

    # The value itself may have a field of this name.
    vectors = cast("Mapping[str, Any]", entry.attributes.get(VECTORS, {}))
    rows = [np.frombuffer(base64.b64decode(row), "<f2").astype(np.float32) for row in vectors.get("rows", ())]
    return [row / max(float(np.linalg.norm(row)), 1e-12) for row in rows]


def _hit(cosine: float, entry: Entry) -> Hit:
    """A hit; its part `meaning` is the cosine, which can be negative."""
    score = max(0.0, min(1.0, cosine))
    return Hit(ITEM, entry.key, light(entry), score, {"meaning": cosine}, snippet(entry.text, {}), 0, 0)


def light(entry: Entry) -> Entry:
    """The entry without the vectors of its writer, which are large and which a hit need not show."""
    if VECTORS not in entry.attributes:
        return entry
    vectors = cast("Mapping[str, JSON]", entry.attributes[VECTORS])
    return replace(entry, attributes={**entry.attributes, VECTORS: {"model": vectors.get("model")}})


# The same for asyncio


class AsyncItems:
    """`Items`, asynchronous."""

    def __init__(self, wrapped: Items) -> None:
        self._wrapped = wrapped

    put = awaited(Items.put)
    write_all = awaited(Items.write_all)
    get = awaited(Items.get)
    get_all = awaited(Items.get_all)
    refresh = awaited(Items.refresh)
    delete = awaited(Items.delete)
    clear = awaited(Items.clear)
    list = awaited(Items.list)
    list_below = awaited(Items.list_below)
