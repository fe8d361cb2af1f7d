"""A space of a service: everything that one namespace holds, through the service's REST face."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import Literal

from commonplace.checks import MAX_KEY_BYTES, Limits, Namespace, check_json, check_number, check_text
from commonplace.engine.search import SearchResult
from commonplace.entry import Change, Entry, Revision
from commonplace.errors import InvalidInput
from commonplace.remote.caller import MOST_AT_ONCE, Caller, tail, time_argument
from commonplace.remote.files import RemoteFiles
from commonplace.remote.records import RemoteRecords
from commonplace.remote.threads import RemoteThreads
from commonplace.remote.working import all_revisions
from commonplace.space.handle import Expected, Once, Seen
from commonplace.space.names import DIRECTORY, FILE, KINDS, normalise
from commonplace.space.space import Space
from commonplace.store import NamespaceStats
from commonplace.wire.forms import thing_of


class RemoteSpace(Space):
    """`Space` of a service."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    @property
    def namespace(self) -> Namespace:
        return self._caller.namespace

    @property
    def limits(self) -> Limits:
        return self._caller.limits

    @cached_property
    def files(self) -> RemoteFiles:
        return RemoteFiles(self._caller)

    @cached_property
    def records(self) -> RemoteRecords:
        return RemoteRecords(self._caller)

    @cached_property
    def threads(self) -> RemoteThreads:
        return RemoteThreads(self._caller)

    def once(self, key: str, fingerprint: str) -> RemoteSpace:
        return RemoteSpace(replace(self._caller, once=Once(key, fingerprint)))

    def expecting(self, kind: str, key: str, *revisions: Seen) -> RemoteSpace:
        name = self._name(kind, key)
        expected = Expected(kind, name, name, revisions)
        return RemoteSpace(replace(self._caller, expected=(*self._caller.expected, expected)))

    def search(
        self,
        query: str,
        *,
        limit: int = 10,
        offset: int = 0,
        kinds: Sequence[str] | None = None,
        type: str | None = None,
        tags: Sequence[str] = (),
        match: Literal["all", "any"] = "all",
        filter: Mapping[str, object] | None = None,
        after: datetime | str | None = None,
        before: datetime | str | None = None,
        as_of: datetime | str | None = None,
        now: datetime | str | None = None,
        below: bool = False,
    ) -> SearchResult:
        if isinstance(kinds, str):
            raise InvalidInput('kinds must be a list, such as ["file", "record"]')
        all_tags, any_tags = self.records.wanted_tags(tags, match)
        body = {
            "query": query,
            "limit": limit,
            "offset": offset,
            "kinds": None if kinds is None else list(kinds),
            "type": type,
            "tags": all_tags or any_tags,
            "match": match,
            "filter": check_json("filter", filter),
            "after": time_argument("after", after),
            "before": time_argument("before", before),
            "as_of": time_argument("as_of", as_of),
            "now": time_argument("now", now),
            "below": bool(below),
        }
        return thing_of(SearchResult, self._caller.read("/search", body=body))

    def history(self, kind: str, key: str) -> list[Revision]:
        return all_revisions(self._caller, f"/history/{self._entry(kind, key)}", {})

    def state(self, kind: str, key: str, revision: int) -> Entry:
        form = self._caller.read(f"/states/{self._entry(kind, key)}", {"revision": check_number("revision", revision)})
        return thing_of(Entry, {**form, "key": key})

    def restore(self, kind: str, key: str, revision: int) -> int:
        body = {"kind": kind, "key": self._name(kind, key), "revision": check_number("revision", revision)}
        return int(self._caller.change("POST", "/restore", None, body)["commit"])

    def undo(self, commit: int) -> int:
        return int(self._caller.change("POST", "/undo", None, {"commit": check_number("commit", commit)})["commit"])

    def changes(self, after: int = 0, limit: int = 1_000) -> list[Change]:
        query = {"after": check_number("after", after), "limit": min(check_number("limit", limit), MOST_AT_ONCE)}
        form = self._caller.read("/changes", query)
        found = [thing_of(Change, change) for change in form["changes"]]
        if limit <= MOST_AT_ONCE:
            return found
        while form["next"] is not None and len(found) <= limit:
            form = self._caller.read("/changes", {**query, "after": form["cursor"]})
            found += [thing_of(Change, change) for change in form["changes"]]
        if len(found) <= limit:
            return found
        # As a store does it: whole commits only, and one that is larger than the limit all the same.
        whole = [change for change in found if change.commit < found[limit].commit]
        return whole or self.changes(after, limit * 10)

    def stats(self) -> NamespaceStats:
        return thing_of(NamespaceStats, self._caller.read("/stats"))

    def purge(
        self, kind: str | None = None, key: str | None = None, *, history_before: datetime | str | None = None
    ) -> int:
        if key is not None and kind is None:
            raise InvalidInput("purge of one entry needs its kind as well, such as purge('file', '/notes/today')")
        body = {
            "kind": kind,
            "key": key,
            "history_before": time_argument("history_before", history_before),
            "everything": kind is None and history_before is None,
        }
        return int(self._caller.change("POST", "/purge", None, body)["states"])

    def _entry(self, kind: str, key: str) -> str:
        """An entry in an address. A path is refused here, before a proxy makes another one of it."""
        name = self._name(kind, key)
        return f"{kind}/{tail(name.removeprefix('/') if kind in (FILE, DIRECTORY) else name)}"

    def _name(self, kind: str, key: str) -> str:
        """The name of an entry as the service is told it, checked."""
        if kind not in KINDS:
            raise InvalidInput(f"unknown kind {kind!r}; use one of {', '.join(KINDS)}")
        if kind in (FILE, DIRECTORY):
            return normalise(key, self.limits)
        return check_text("key", key, max_bytes=MAX_KEY_BYTES)
