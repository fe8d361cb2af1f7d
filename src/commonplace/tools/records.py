"""The record tools: memory_create, memory_search, memory_list, memory_get and memory_delete on one space.

They word requests and answers; what a record is and how it is found lives in `space.records` and `space.search`. A
tool never raises for what was sent: the answer says what to correct. The readers behind `mem://` resources raise.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import unquote

from commonplace.entry import Hit
from commonplace.errors import CommonplaceError, InvalidInput, NotFound
from commonplace.space.keys import FILE, MESSAGE, RECORD
from commonplace.space.space import Space
from commonplace.tools.records_answer import (
    FILE_URI,
    ITEM_URI,
    MESSAGE_URI,
    Answer,
    Link,
    found_text,
    full_file,
    full_message,
    full_record,
    hit_item,
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
FullRecords: TypeAlias = list[dict[str, Any]]
_KNOWN = {tool.name: tuple(tool.input_schema["properties"]) for tool in TOOLS}


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
        return self._page(limit)

    def by_tags(self, tags: Sequence[str], limit: object = LIST_LIMIT, match: object = "all") -> FullRecords:
        """The newest records with all of the tags, or with any, in full."""
        return self._page(limit, tags=tags, match=check_match(match))

    def by_type(self, type: str, limit: object = LIST_LIMIT) -> FullRecords:
        """The newest records of a type, in full."""
        return self._page(limit, type=type)

    def item(self, id: str) -> dict[str, Any]:
        """One record in full; raises NotFound where there is none."""
        return full_record(self.space.records.get(id))

    def message(self, id: str) -> dict[str, Any]:
        """One message in full; raises NotFound where there is none."""
        return full_message(self.space.threads.get_message(id))

    def _page(self, limit: object, **narrowed: Any) -> FullRecords:
        wanted = number(limit)
        if wanted is None:
            raise InvalidInput("limit must be a positive number")
        page = self.space.records.list(limit=int(min(max(wanted, 1), RESOURCE_LIMIT)), **narrowed)
        return [*map(full_record, page.records)]

    # Tools

    def _create(self, given: Arguments) -> Answer:
        type = given.text("type")
        if not given.has("content"):
            raise InvalidInput("content is required")
        fields: dict[str, Any] = {
            "type": type,
            "content": given.get("content"),
            "source": given.text("source"),
            "confidence": given.confidence(),
        }
        if given.has("tags"):
            fields["tags"] = given.tags()
        id = given.optional_text("id")
        records = self.space.records
        saved = records.create(**fields) if id is None else records.update(_bare_id(id), **fields)
        item = saved_item(saved)
        return Answer(saved_text(saved), {"items": [item]}, (link(record_item(saved)),))

    def _search(self, given: Arguments) -> Answer:
        query = given.query()
        type = given.optional_text("type")
        kinds = given.kinds()
        narrowed: dict[str, Any] = {"tags": given.tags(), "match": given.match()}
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
        return _found([*map(hit_item, hits[:limit])], {"notices": [*notices]} if notices else {})

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
        kind, name = _kind_and_name(given.text("id"))
        if kind == FILE:
            full = full_file(self.space.files.stat(name), self.space.files.read(name))
        elif kind == MESSAGE:
            full = self.message(name)
        else:
            full = self._item_or_message(name)
        return Answer(json.dumps(full, ensure_ascii=False, indent=2, default=dict), {"items": [full]})

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
        self.space.records.delete(id)
        return Answer(f"Memory deleted.\nID: {id}", {"items": [{"id": id}]})


def _found(items: list[dict[str, Any]], more: Mapping[str, Any]) -> Answer:
    return Answer(found_text(items), {"items": items, **more}, tuple(map(link, items)))


def _bare_id(id: str) -> str:
    """A record's id, also from its address."""
    return unquote(id.removeprefix(ITEM_URI)) if id.startswith(ITEM_URI) else id.strip()


def _kind_and_name(id: str) -> tuple[str, str]:
    """What an id or an address stands for; a bare id that is no path may be a record's or a message's."""
    if id.startswith(FILE_URI):
        return FILE, "/" + unquote(id.removeprefix(FILE_URI))
    if id.startswith(MESSAGE_URI):
        return MESSAGE, unquote(id.removeprefix(MESSAGE_URI))
    if id.startswith("/"):
        return FILE, id
    return RECORD, _bare_id(id)
