"""The record tools: memory_create, memory_search, memory_list, memory_get and memory_delete on one space.

They word requests and answers; what a record is and how it is found lives in `space.records` and `space.search`. A
tool never raises for what was sent: the answer says what to correct. The readers behind `mem://` resources raise.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias
from urllib.parse import unquote

from commonplace.entry import Hit
from commonplace.errors import CommonplaceError, InvalidInput, NotFound
from commonplace.space.names import FILE, MESSAGE, RECORD
from commonplace.space.records import RecordPage
from commonplace.space.space import Space
from commonplace.tools.records_answer import (
    ANSWER_CHARACTERS,
    FILE_URI,
    ITEM_URI,
    MESSAGE_URI,
    Answer,
    Link,
    excerpt,
    found_text,
    full_file,
    full_message,
    full_record,
    hit_item,
    how_to_go_on,
    link,
    record_item,
    refusal,
    saved_item,
    saved_text,
)
from commonplace.tools.records_arguments import Arguments, check_match, number
from commonplace.tools.records_specs import TOOLS, ToolSpec

__all__ = ["TOOLS", "Answer", "Link", "RecordTools", "ToolSpec"]

LIST_LIMIT = 20
RESOURCE_LIMIT = 100
MOST_READ = 20
"""So many memories are read in one call."""
FullRecords: TypeAlias = list[dict[str, Any]]
_KNOWN = {tool.name: tuple(tool.input_schema["properties"]) for tool in TOOLS}


@dataclass(frozen=True, slots=True)
class FullPage:
    """Records in full. Where not all of the `asked` fitted, the cursor leads to the rest."""

    records: FullRecords
    asked: int
    cursor: str | None


@dataclass(frozen=True, slots=True)
class _Read:
    """What was asked for by its ids: found, not there, and left for another call."""

    items: FullRecords
    missing: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


class RecordTools:
    """The five tools and the readers of one space's records."""

    def __init__(self, space: Space, *, default_limit: int = 10, max_limit: int = 100) -> None:
        if not 1 <= default_limit <= max_limit:
            raise InvalidInput(f"default_limit must be from 1 to max_limit ({max_limit}), not {default_limit}")
        self.space = space
        self.default_limit = default_limit
        self.max_limit = max_limit
        self._run: dict[str, Callable[[Arguments], Answer]] = {
            "memory_create": self._create,
            "memory_search": self._search,
            "memory_list": self._list,
            "memory_get": self._get,
            "memory_delete": self._delete,
        }

    def create(self, arguments: Mapping[str, Any]) -> Answer:
        return self.call("memory_create", arguments)

    def search(self, arguments: Mapping[str, Any]) -> Answer:
        return self.call("memory_search", arguments)

    def list(self, arguments: Mapping[str, Any]) -> Answer:
        return self.call("memory_list", arguments)

    def get(self, arguments: Mapping[str, Any]) -> Answer:
        return self.call("memory_get", arguments)

    def delete(self, arguments: Mapping[str, Any]) -> Answer:
        return self.call("memory_delete", arguments)

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Answer:
        """Run one of `TOOLS` by its name."""
        try:
            return self._run[tool](Arguments(tool, arguments, _KNOWN[tool]))
        except CommonplaceError as error:
            return refusal(str(error))

    # Resources

    def recent(self, limit: object = LIST_LIMIT) -> FullRecords:
        """The newest records in full."""
        return self.page(limit).records

    def by_tags(self, tags: Sequence[str], limit: object = LIST_LIMIT, match: object = "all") -> FullRecords:
        """The newest records with all of the tags, or with any, in full."""
        return self.page(limit, tags=tags, match=match).records

    def by_type(self, type: str, limit: object = LIST_LIMIT) -> FullRecords:
        """The newest records of a type, in full."""
        return self.page(limit, type=type).records

    def page(
        self,
        limit: object = LIST_LIMIT,
        *,
        type: str | None = None,
        tags: Sequence[str] = (),
        match: object = "all",
        cursor: str | None = None,
        room: int | None = None,
    ) -> FullPage:
        """The newest records in full, from a cursor on; with `room` only as many as fit into so many characters."""
        wanted = number(limit)
        if wanted is None:
            raise InvalidInput("limit must be a positive number")
        count = int(min(max(wanted, 1), RESOURCE_LIMIT))

        def read(limit: int) -> RecordPage:
            return self.space.records.list(type=type, tags=tags, match=check_match(match), limit=limit, cursor=cursor)

        found = [*map(full_record, read(count).records)]
        fitting = len(found) if room is None else _how_many_fit(found, room)
        if fitting == len(found):
            return FullPage(found, len(found), None)
        return FullPage(found[:fitting], len(found), read(fitting).cursor)

    def item(self, id: str) -> dict[str, Any]:
        """One record in full; raises NotFound where there is none."""
        return full_record(self.space.records.get(id))

    def message(self, id: str) -> dict[str, Any]:
        """One message in full; raises NotFound where there is none."""
        return full_message(self.space.threads.get_message(id))

    # Tools

    def _create(self, given: Arguments) -> Answer:
        records = self.space.records
        readers: dict[str, Callable[[], Any]] = {
            "type": lambda: given.text("type"),
            "content": lambda: given.required("content"),
            "source": lambda: given.text("source"),
            "confidence": given.confidence,
            "tags": lambda: records.clean_tags(given.tags()),
        }
        id = given.optional_text("id")
        needed = ("type", "content", "source", "confidence") if id is None else ()
        fields = given.read_all({name: readers[name] for name in readers if name in needed or given.has(name)})
        if not fields:
            raise InvalidInput(f"give what to change of {id}: {', '.join(readers)}")
        saved = records.create(**fields) if id is None else records.update(_bare_id(id), **fields)
        item = saved_item(saved)
        return Answer(saved_text(saved), {"items": [item]}, (link(record_item(saved)),))

    def _search(self, given: Arguments) -> Answer:
        query = given.query()
        type = given.optional_text("type")
        kinds = given.kinds()
        narrowed: dict[str, Any] = {
            "tags": given.tags(),
            "match": given.match(),
            "after": given.time("after"),
            "before": given.time("before"),
        }
        limit = given.limit(self.default_limit, self.max_limit)
        # A file or a message has no type of its own: what it is stands for it.
        searches: list[dict[str, Any]] = [{"kinds": kinds, "type": type}]
        if type is not None:
            searches = [{"kinds": [RECORD], "type": type}] if RECORD in kinds else []
            searches += [{"kinds": [type]}] if type in kinds and type != RECORD else []
        hits: list[Hit] = []
        notices: dict[str, None] = {}
        for search in searches:
            found = self.space.search(query, limit=limit, **narrowed, **search)
            hits += found
            notices.update(dict.fromkeys(found.notices))
        hits.sort(key=lambda hit: -hit.score)
        answer = _found([*map(hit_item, hits[:limit])], {"notices": [*notices]} if notices else {})
        return replace(answer, notices=tuple(notices))

    def _list(self, given: Arguments) -> Answer:
        page = self.space.records.list(
            type=given.optional_text("type"),
            tags=given.tags(),
            match=given.match(),
            limit=given.limit(LIST_LIMIT, self.max_limit),
            cursor=given.optional_text("cursor"),
        )
        answer = _found([*map(record_item, page.records)], {"nextCursor": page.cursor} if page.cursor else {})
        if page.cursor is None:
            return answer
        return Answer(f"{answer.text}\nMore with cursor {page.cursor}", answer.structured, answer.links)

    def _get(self, given: Arguments) -> Answer:
        ids = given.texts("id", MOST_READ)
        offset = given.offset()
        if len(ids) == 1:
            found = _Read([excerpt(self._full(ids[0]), offset)])
        elif offset:
            raise InvalidInput("offset is for one memory; give one id, or leave it out")
        else:
            found = self._full_ones(ids)
        more = {name: which for name, which in (("missing", found.missing), ("left", found.left)) if which}
        shown = found.items[0] if len(ids) == 1 else found.items
        lines = [json.dumps(shown, ensure_ascii=False, indent=2, default=dict)]
        lines += [line for line in map(how_to_go_on, found.items) if line]
        lines += [f"Not found: {', '.join(found.missing)}."] if found.missing else []
        lines += [f"Read these in another call, there was no room: {', '.join(found.left)}."] if found.left else []
        return Answer("\n".join(lines), {"items": found.items, **more})

    def _full_ones(self, ids: Sequence[str]) -> _Read:
        found = _Read([])
        room = ANSWER_CHARACTERS
        for place, id in enumerate(ids):
            try:
                full = self._full(id)
            except NotFound:
                found.missing.append(id)
                continue
            length = len(json.dumps(full, ensure_ascii=False, default=dict))
            if found.items and length > room:
                found.left.extend(ids[place:])
                break
            found.items.append(excerpt(full))
            room -= length
        if not found.items:
            raise NotFound(f"none of these memories was found: {', '.join(ids)}")
        return found

    def _full(self, id: str) -> dict[str, Any]:
        kind, name = _kind_and_name(id)
        if kind == FILE:
            return full_file(self.space.files.stat(name), self.space.files.read(name))
        return self.message(name) if kind == MESSAGE else self._item_or_message(name)

    def _item_or_message(self, id: str) -> dict[str, Any]:
        try:
            return self.item(id)
        except NotFound as missing:
            try:
                return self.message(id)
            except (NotFound, InvalidInput):
                raise missing from None

    def _delete(self, given: Arguments) -> Answer:
        id = _bare_id(given.text("id"))
        if given.flag("undo"):
            self._undelete(id)
            return Answer(f"Memory restored.\nID: {id}", {"items": [{"id": id}]})
        self.space.records.delete(id)
        undo = "To take this back, call memory_delete with this id and undo: true."
        return Answer(f"Memory deleted.\nID: {id}\n{undo}", {"items": [{"id": id}]})

    def _undelete(self, id: str) -> None:
        past = self.space.history(RECORD, id)
        if not past:
            raise NotFound(f"Memory {id} not found")
        if past[-1].action != "deleted":
            raise InvalidInput(f"Memory {id} is not deleted; there is nothing to take back")
        self.space.restore(RECORD, id, past[-2].revision)


def _found(items: list[dict[str, Any]], more: Mapping[str, Any]) -> Answer:
    return Answer(found_text(items), {"items": items, **more}, tuple(map(link, items)))


def _how_many_fit(records: FullRecords, room: int) -> int:
    """How many of the first are so long together; at least one, or a reader would never come further."""
    for count, record in enumerate(records):
        room -= len(json.dumps(record, ensure_ascii=False, default=dict))
        if room < 0:
            return max(count, 1)
    return len(records)


def _bare_id(id: str) -> str:
    """A record's id, also from its address or from the name of its link."""
    id = id.strip().removeprefix("memory:")
    return unquote(id.removeprefix(ITEM_URI)) if id.startswith(ITEM_URI) else id


def _kind_and_name(id: str) -> tuple[str, str]:
    """What an id or an address stands for; a bare id that is no path may be a record's or a message's."""
    id = id.strip()
    if id.startswith("file:/"):  # the name of a link
        return FILE, id.removeprefix("file:")
    if id.startswith(FILE_URI):
        return FILE, "/" + unquote(id.removeprefix(FILE_URI))
    if id.startswith(MESSAGE_URI):
        return MESSAGE, unquote(id.removeprefix(MESSAGE_URI))
    if id.startswith("/"):
        return FILE, id
    return RECORD, _bare_id(id)
