"""Reads of one namespace: live and former states, ranges, children, history, the feed.

Labels, times and keys are compared by the database, fields of values by `Filter.matches`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from commonplace.backends import deltas, pages
from commonplace.backends.mongodb.connection import Document, Location, Session, tenant_of
from commonplace.backends.mongodb.documents import (
    FORMER_HEAD,
    HEAD,
    former_row,
    live_row,
    mark_of,
    whole_documents,
)
from commonplace.backends.pages import after_prefix
from commonplace.backends.rows import Former, Live, damaged, entry_of, value_of
from commonplace.checks import Namespace
from commonplace.entry import SEPARATOR, Action, Change, Entry, Revision
from commonplace.filters import Filter
from commonplace.store import Child, NamespaceStats, Page, Reader, Scan, States, Usage

_LOSSES: tuple[Action, ...] = ("deleted", "expired", "moved_away")
_OPERATORS = {">": "$gt", ">=": "$gte", "<": "$lt", "<=": "$lte"}
_COLUMNS = {"commit_number": "commit", "id": "_id"}
_BATCH = 1_000


@dataclass(slots=True)
class NamespaceRow:
    """The counters of a namespace, as the transaction will write them."""

    number: int = 0
    commit_number: int = 0
    commit_time: int = 0
    history_floor: int = 0
    chunk_count: int = 0
    term_total: int = 0
    chunks_ended: int = 0
    entries: int = 0
    bytes: int = 0
    former_states: int = 0
    former_bytes: int = 0
    expires_next: int | None = None
    last_id: int = 0

    @property
    def usage(self) -> Usage:
        return Usage(self.entries, self.bytes, self.former_states, self.former_bytes)

    @property
    def fields(self) -> Document:
        return {name: getattr(self, name) for name in self.__slots__}


def namespace_query(namespace: Namespace) -> Document:
    return {"_id": "/".join(namespace), "tenant": tenant_of(namespace)}


def namespace_row(document: Document) -> NamespaceRow:
    return NamespaceRow(*map(document.get, NamespaceRow.__slots__))  # type: ignore[arg-type]


def read_namespace(session: Session, namespace: Namespace) -> NamespaceRow | None:
    found = session.find("namespace", namespace_query(namespace))
    return namespace_row(found[0]) if found else None


# Filters as queries


def unexpired(at: int) -> Document:
    return {"$not": {"$lte": at}}


def filter_query(filter: Filter) -> Document:
    """Everything of a filter but its conditions on fields."""
    query: Document = {}
    if filter.kinds:
        query["kind"] = filter.kinds[0] if len(filter.kinds) == 1 else {"$in": list(filter.kinds)}
    wanted: list[Document] = []
    if filter.types:
        wanted.append({"labels": {"$in": [mark_of(("type", one)) for one in filter.types]}})
    wanted += [{"labels": mark_of(("tags", tag))} for tag in filter.all_tags]
    if filter.any_tags:
        wanted.append({"labels": {"$in": [mark_of(("tags", tag)) for tag in filter.any_tags]}})
    if filter.resource is not None:
        wanted.append({"labels": mark_of(("resourceId", filter.resource))})
    for name, operator, bound in (
        ("created_at", "$gte", filter.created_after),
        ("created_at", "$lt", filter.created_before),
        ("updated_at", "$gte", filter.updated_after),
        ("updated_at", "$lt", filter.updated_before),
        ("valid_from", "$lte", filter.unchanged_since),
        *(("key", _OPERATORS[operator], key) for operator, key in pages.key_bounds(filter)),
    ):
        if bound is not None:
            query.setdefault(name, {})[operator] = bound
    if wanted:
        query["$and"] = wanted
    return query


def add_condition(query: Document, condition: Document) -> None:
    query.setdefault("$and", []).append(condition)


def keys_below(prefix: str) -> Document:
    return {"$gte": prefix, "$lt": after_prefix(prefix)}


class MongoReader(Reader):
    """Reads a namespace at a time. Transactions read in the same way."""

    def __init__(self, session: Session, place: Location, now: int) -> None:
        self._session = session
        self._spot = place
        self._namespace = place.namespace
        self._now = now

    # Live entries

    def _live(self, query: Document, **options: Any) -> Iterator[Entry]:
        found = self._session.iterate("entry", {**self._spot.mine, **query}, **options)
        return (entry_of(self._namespace, live_row(one)) for one in whole_documents(self._session, self._spot, found))

    def get_all(
        self, kind: str, names: Sequence[str], *, by: Literal["key", "identity"] = "key", as_of: int | None = None
    ) -> list[Entry | None]:
        if as_of is not None:
            return [self._get_as_of(kind, key, as_of) for key in names]
        found: dict[str | None, Entry] = {}
        for start in range(0, len(names), _BATCH):
            some = list(names[start : start + _BATCH])
            which = some[0] if len(some) == 1 else {"$in": some}
            for entry in self._live({"kind": kind, by: which, "expires_at": unexpired(self._now)}):
                found[entry.key if by == "key" else entry.identity] = entry
        return [found.get(name) for name in names]

    def _get_as_of(self, kind: str, key: str, as_of: int) -> Entry | None:
        place = {"kind": kind, "key": key, "valid_from": {"$lte": as_of}}
        for entry in self._live({**place, "expires_at": unexpired(as_of)}):
            return entry
        query = {**self._spot.mine, **place, "valid_to": {"$gt": as_of}}
        for document in self._session.find("history", query, sort=[("revision", -1)], limit=1):
            return self._former_entry(former_row(document))
        return None

    def load(self, ids: Sequence[int]) -> dict[int, Entry]:
        found: dict[int, Entry] = {}
        for start in range(0, len(ids), _BATCH):
            some = list(ids[start : start + _BATCH])
            for entry in self._live({"_id": {"$in": some}, "expires_at": unexpired(self._now)}):
                found[entry.id] = entry
        return found

    def scan(self, scan: Scan) -> Page:
        """One page. With `as_of`, the live rows that were valid then and the former states, merged."""
        pages.check_limit(scan.limit)
        position = self._position(scan)
        found = list(self._live_page(scan, position))
        if scan.as_of is not None:
            found += self._former_page(scan, position)
            found.sort(key=lambda entry: pages.position(scan, entry), reverse=scan.descending)
        page = found[: scan.limit]
        return Page(tuple(page), pages.cursor_of(scan, page[-1]) if len(found) > scan.limit else None)

    def _page_query(self, scan: Scan, position: pages.Position | None, filter: Filter, number: str) -> Document:
        """The query of a scan; `number` is the field of an entry's number."""
        if position is not None and scan.order == "key" and filter.kinds == (position[0],):
            filter, position = pages.from_key(filter, position[1], scan.descending), None
        query = {**self._spot.mine, **filter_query(filter)}
        if position is not None:
            first, second = (number if name == "id" else name for name in pages.ORDER_COLUMNS[scan.order])
            beyond = "$lt" if scan.descending else "$gt"
            either = [{first: {beyond: position[0]}}, {first: position[0], second: {beyond: position[1]}}]
            add_condition(query, {"$or": either})
            add_condition(query, {first: {f"{beyond}e": position[0]}})  # which gives the index its bounds
        return query

    def _sort(self, scan: Scan, number: str) -> list[tuple[str, int]]:
        direction = -1 if scan.descending else 1
        return [(number if name == "id" else name, direction) for name in pages.ORDER_COLUMNS[scan.order]]

    def _live_page(self, scan: Scan, position: pages.Position | None) -> Iterator[Entry]:
        query = self._page_query(scan, position, scan.filter, "_id")
        query["expires_at"] = unexpired(self._now if scan.as_of is None else scan.as_of)
        if scan.as_of is not None:
            add_condition(query, {"valid_from": {"$lte": scan.as_of}})
        conditions = Filter(conditions=scan.filter.conditions)
        most = 0 if scan.filter.conditions else scan.limit + 1
        count = 0
        for entry in self._live(query, sort=self._sort(scan, "_id"), limit=most):
            if conditions.matches(entry):
                yield entry
                count += 1
                if count > scan.limit:
                    return

    def _former_page(self, scan: Scan, position: pages.Position | None) -> Iterator[Entry]:
        """The first former states of a page, in order; the others are not decoded."""
        filter = scan.filter
        bare = replace(filter, types=(), all_tags=(), any_tags=(), resource=None, conditions=(), unchanged_since=None)
        query = self._page_query(scan, position, bare, "entry")
        add_condition(query, {"valid_from": {"$lte": scan.as_of}, "valid_to": {"$gt": scan.as_of}})
        heads = replace(filter, conditions=())
        found = 0
        for document in self._session.find("history", query, FORMER_HEAD, sort=self._sort(scan, "entry")):
            head = former_row(document)
            if not heads.matches(entry_of(self._namespace, (*head.head, None, "null"))):
                continue
            state = self._former_entry(head)
            if filter.matches(state):
                yield state
                found += 1
                if found > scan.limit:
                    return

    def _position(self, scan: Scan) -> pages.Position | None:
        def number_of(kind: str, key: str) -> int | None:
            place = {**self._spot.mine, "kind": kind, "key": key}
            at = scan.as_of
            then = {} if at is None else {"valid_from": {"$lte": at}}  # another entry may have had the key at that time
            for document in self._session.find("entry", {**place, **then}, ["_id"], limit=1):
                return int(document["_id"])
            ended = {} if at is None else {"valid_to": {"$gt": at}}
            query = {**place, **then, **ended}
            for document in self._session.find("history", query, ["entry"], sort=[("entry", -1)], limit=1):
                return int(document["entry"])
            return None

        return pages.position_of(scan, number_of)

    def counts(self, kind: str, prefixes: Sequence[str]) -> list[int]:
        live = {**self._spot.mine, "kind": kind, "expires_at": unexpired(self._now)}
        return [self._session.count("entry", {**live, "key": keys_below(prefix)}) for prefix in prefixes]

    def children(
        self, kind: str, prefix: str, *, as_of: int | None = None, after: str = "", limit: int | None = None
    ) -> list[Child]:
        """The names directly below a prefix. The index of keys is read over everything below it."""
        query = {**self._spot.mine, "kind": kind, "key": self._direct_keys(prefix, after)}
        most = limit or 0
        at = self._now if as_of is None else as_of
        order = [("key", 1)]
        live: Document = {**query, "expires_at": unexpired(at)}
        if as_of is None:
            heads: Iterable[Live | Former] = map(
                live_row, self._session.find("entry", live, HEAD, sort=order, limit=most)
            )
            return [_child(prefix, head) for head in heads]
        live["valid_from"] = {"$lte": as_of}
        former = {**query, "valid_from": {"$lte": as_of}, "valid_to": {"$gt": as_of}}
        known: dict[str, Live | Former] = {}
        for document in self._session.find("entry", live, HEAD, sort=order, limit=most):
            known[document["key"]] = live_row(document)
        for document in self._session.find("history", former, FORMER_HEAD, sort=order, limit=most):
            known[document["key"]] = former_row(document)
        return [_child(prefix, known[key]) for key in sorted(known)][:limit]

    @staticmethod
    def _direct_keys(prefix: str, after: str) -> Document:
        bounds = {"$gte": prefix} if not after else {"$gt": prefix + after}
        return {**bounds, "$lt": after_prefix(prefix), "$regex": f"^{re.escape(prefix)}[^{SEPARATOR}]+\\z"}

    # History

    def history(self, kind: str, key: str) -> list[Revision]:
        """Every state that a key had, and every time it lost one, oldest first."""
        place = {**self._spot.mine, "kind": kind, "key": key}
        lines: list[Revision] = []
        for former in map(former_row, self._session.find("history", place, FORMER_HEAD, sort=[("revision", 1)])):
            lines.append(Revision(former.revision, former.begun_by, former.commit, former.valid_from, former.actor))
            if former.ended_by in _LOSSES:
                loss = (former.ended_by, former.ended_commit, former.valid_to, former.ended_actor)
                lines.append(Revision(former.revision + 1, *loss))
        for live in map(live_row, self._session.find("entry", place, HEAD)):
            lines.append(Revision(live.revision, live.begun_by, live.commit, live.valid_from, live.actor))
            if live.expires_at is not None and live.expires_at <= self._now:
                lines.append(Revision(live.revision + 1, "expired", live.commit, live.expires_at, None))
        return lines

    def states(self, which: States) -> list[Entry]:
        conditions = {_COLUMNS.get(name, name): value for name, value in which.conditions.items()}
        found: list[Entry] = []
        if which.has_live:
            found = list(self._live(conditions, sort=[("_id", 1)]))
            if found and which.is_one:
                return found[:1]
        query: Document = {**self._spot.mine, **conditions}
        if which.ended is not None:
            query["ended_commit"] = which.ended
        if which.former_at is not None:
            query |= {"valid_from": {"$lte": which.former_at}, "valid_to": {"$gt": which.former_at}}
        order = [("ended_commit", -1)] if which.newest else [("entry", 1)]
        documents = self._session.find("history", query, FORMER_HEAD, sort=order, limit=1 if which.newest else 0)
        return found + [self._former_entry(former_row(document)) for document in documents]

    def _former_entry(self, head: Former) -> Entry:
        """The entry of a former state, whose text and value are decoded from the states after it."""
        try:
            content = decode_former(self._session, self._spot, head.entry, head.revision)
        except deltas.DAMAGE as error:
            raise damaged(self._namespace, head.kind, head.key, revision=head.revision) from error
        return entry_of(self._namespace, (*head.head, *content))

    def was_used(self, kind: str, first: str, last: str) -> bool:
        query = {**self._spot.mine, "kind": kind, "key": {"$gte": first, "$lte": last}}
        return any(self._session.find(name, query, ["_id"], limit=1) for name in ("entry", "history"))

    def changes(self, after: int, limit: int) -> list[Change]:
        row = read_namespace(self._session, self._namespace) or NamespaceRow()
        pages.check_feed(after, row.history_floor, row.commit_number)
        return pages.whole_commits(limit, lambda most: self._changes(after, most))

    def _changes(self, after: int, limit: int) -> list[Change]:
        """Every state's beginning and every key's loss of one, in commit order."""
        later = {"$gt": after}
        order = [("commit", 1), ("key", 1), ("revision", 1)]
        ended_order = [("ended_commit", 1), ("key", 1), ("revision", 1)]
        mine = self._spot.mine
        found = [
            _begun(document)
            for name in ("entry", "history")
            for document in self._session.find(name, {**mine, "commit": later}, FORMER_HEAD, sort=order, limit=limit)
        ]
        losses = {**mine, "ended_commit": later, "ended_by": {"$ne": "updated"}}
        found += map(_ended, self._session.find("history", losses, FORMER_HEAD, sort=ended_order, limit=limit))
        found.sort(key=lambda change: (change.commit, change.key, change.revision))
        return found[:limit]

    def commits(self, numbers: Sequence[int], limit: int, *, skip: int = 0) -> list[tuple[int, list[Change]]]:
        found = []
        for number in numbers:
            commit = self._last_commit(number)
            found.append((commit, self._commit_changes(commit, limit + skip)[skip:] if commit else []))
        return found

    def _last_commit(self, number: int) -> int:
        last = 0
        for name, field in (("entry", "commit"), ("history", "commit"), ("history", "ended_commit")):
            query = {**self._spot.mine, field: {"$lte": number}}
            for document in self._session.find(name, query, [field], sort=[(field, -1)], limit=1):
                last = max(last, document[field])
        return last

    def _commit_changes(self, commit: int, limit: int) -> list[Change]:
        mine = self._spot.mine
        found: list[Change] = []
        for name, query, order, make in (
            ("entry", {"commit": commit}, "_id", _begun),
            ("history", {"commit": commit}, "entry", _begun),
            ("history", {"ended_commit": commit, "ended_by": {"$nin": ["updated", "expired"]}}, "entry", _ended),
            ("history", {"ended_commit": commit, "ended_by": "expired"}, "entry", _ended),
        ):
            if len(found) < limit:
                documents = self._session.find(
                    name, {**mine, **query}, FORMER_HEAD, sort=[(order, 1)], limit=limit - len(found)
                )
                found += map(make, documents)
        return found

    # Counts

    def has_expired(self) -> bool:
        query = {**self._spot.mine, "expires_at": {"$lte": self._now}}
        return bool(self._session.find("entry", query, ["_id"], limit=1))

    def usage(self) -> Usage:
        row = read_namespace(self._session, self._namespace)
        return (row or NamespaceRow()).usage

    def last_commit(self) -> int:
        row = read_namespace(self._session, self._namespace)
        return 0 if row is None else row.commit_number

    def stats(self) -> NamespaceStats:
        row = read_namespace(self._session, self._namespace) or NamespaceRow()
        live = {**self._spot.mine, "expires_at": unexpired(self._now)}
        kinds = self._session.aggregate(
            "entry", [{"$match": live}, {"$group": {"_id": "$kind", "count": {"$sum": 1}}}, {"$sort": {"_id": 1}}]
        )
        return NamespaceStats(
            self._namespace,
            {one["_id"]: one["count"] for one in kinds},
            row.commit_number,
            row.commit_time,
            row.chunk_count,
            self._session.count("pending", self._spot.mine),
            row.former_states,
            row.bytes,
            row.former_bytes,
        )


def _child(prefix: str, head: Live | Former) -> Child:
    attributes: Any = value_of(True, head.attributes)
    return Child(head.key[len(prefix) :], attributes, head.revision, head.created_at, head.updated_at)


def _begun(one: Document) -> Change:
    place = (one["kind"], one["key"], one["revision"])
    return Change(one["commit"], one["valid_from"], one["begun_by"], *place, one.get("actor"))


def _ended(one: Document) -> Change:
    place = (one["kind"], one["key"], one["revision"] + 1)
    return Change(one["ended_commit"], one["valid_to"], one["ended_by"], *place, one.get("ended_actor"))


def decode_former(session: Session, place: Location, entry_id: int, revision: int) -> tuple[str | None, str]:
    """The stored `text` and `value` of a former state; a damaged state after it raises one of deltas.DAMAGE."""
    chain: list[tuple[Any, Any]] = []
    query = {"tenant": place.tenant, "entry": entry_id, "revision": {"$gte": revision}}
    found = session.iterate("history", query, ["kind", "key", "text", "value"], sort=[("revision", 1)])
    for document in whole_documents(session, place, found):
        text, value = document.get("text"), document["value"]
        chain.append((text, value))
        if deltas.is_whole(value) and (text is None or deltas.is_whole(text)):
            break
    chain.reverse()
    newest_text = newest_value = None
    if not chain or not deltas.is_whole(chain[0][1]) or (chain[0][0] is not None and not deltas.is_whole(chain[0][0])):
        live = session.find("entry", {"_id": entry_id, "tenant": place.tenant}, ["kind", "key", "text", "value"])
        for document in whole_documents(session, place, live):
            newest_text, newest_value = document.get("text"), document.get("value")
    value = deltas.decode_last(newest_value, [former for _, former in chain])
    if chain[-1][0] is None:
        return None, value
    # A text that was replaced by a state without a text was stored whole.
    return deltas.decode_last(newest_text, [former for former, _ in chain if former is not None]), value
