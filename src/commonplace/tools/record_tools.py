"""The record tools: memory_create, memory_search, memory_list, memory_get and memory_delete on one space.

They only word requests and answers; `space.records` and `space.search` have the rules. A tool does not raise for a
wrong call: its answer says what to correct. The readers behind `mem://` resources do raise.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeAlias, cast
from urllib.parse import quote, unquote

from commonplace.checks import JSON, moment
from commonplace.entry import Hit
from commonplace.errors import InvalidInput, NotFound
from commonplace.language.snippets import snippet
from commonplace.space.files import FileInfo
from commonplace.space.items import Item
from commonplace.space.messages import Message
from commonplace.space.names import FILE, ITEM, MESSAGE, RECORD, SEARCHED_KINDS
from commonplace.space.records import Record, RecordPage, canonical
from commonplace.space.space import Space
from commonplace.tools.tool import (
    ANSWER_CHARACTERS,
    MIN_RELEVANCE,
    STRING,
    STRINGS,
    Arguments,
    Link,
    Schema,
    ToolAnswer,
    ToolSpec,
    call_tool,
    check_match,
    how_many_fit,
    input_schema,
    left_out_notice,
    list_schema,
    number,
    object_schema,
)

__all__ = ["TOOLS", "Link", "RecordTools", "ToolAnswer", "ToolSpec"]

LIST_LIMIT = 20
RESOURCE_LIMIT = 100
MAX_READ = 20
"""The most memories that one call reads."""

SUMMARY_CHARACTERS = 160
LINE_CHARACTERS = 130
"""How much of a summary a line of text has, so that ten hits with three tags each have less than 900 tokens."""

NOTHING_RELEVANT = "No relevant memories found."
ITEM_URI = "mem://item/"
FILE_URI = "mem://file/"
MESSAGE_URI = "mem://message/"
VALUE_URI = "mem://value/"
"""Of an item of the key-value store."""
FullRecords: TypeAlias = list[dict[str, Any]]


# What a model reads

_CONTENT = {"anyOf": [{"type": name} for name in ("object", "string", "array", "number", "boolean")]}
_NARROW_TAGS = {**STRINGS, "description": "Only memories with all of these tags, such as project:alpha."}
_MATCH = {"type": "string", "enum": ["all", "any"], "description": 'Must a memory have all tags (default) or "any"?'}
_ID = {"type": "string", "description": "The id of a record."}
_SHORT = {"id": STRING, "type": STRING, "tags": STRINGS, "createdAt": STRING, "uri": STRING, "summary": STRING}


def _output(required: Sequence[str], *, more: Mapping[str, Any] | None = None, **properties: Any) -> Schema:
    return object_schema(["items"], items=list_schema(object_schema(required, **properties)), **(more or {}))


CREATE = ToolSpec(
    name="memory_create",
    title="Save a memory",
    description=(
        "Save durable knowledge: a decision, a runbook, a fact, a preference, a fix that worked. Never secrets or raw "
        "logs. The same type, source and content saved again is the same memory: tags are joined, the larger "
        "confidence stays. To change a memory, give its id."
    ),
    input_schema=input_schema(
        ["type", "content", "source", "confidence"],
        type={"type": "string", "description": "Such as note, decision, runbook, todo, finding."},
        content={"description": 'What to remember: an object is best, such as {"summary": "…"}.', **_CONTENT},
        source={"type": "string", "description": "Where it comes from, such as chat://claude/2025-09-17."},
        confidence={
            "type": "number",
            "minimum": 0,
            "maximum": 1,
            "description": "0.9-1 confirmed, 0.6-0.8 likely, 0.3-0.5 a guess.",
        },
        tags={
            **STRINGS,
            "description": "Lower case, of a-z 0-9 : _ -; always one project:<name>, then topic:, env:, status:.",
        },
        importance={"type": "number", "minimum": 0, "maximum": 1, "description": "How much it matters, if you know."},
        id={"type": "string", "description": "Edit this memory; then give only the fields that change."},
    ),
    output_schema=_output(
        ["id", "type", "tags", "confidence", "createdAt"],
        more={"notices": STRINGS},
        id=STRING,
        type=STRING,
        tags=STRINGS,
        confidence={"type": "number"},
        createdAt=STRING,
        importance={"type": "number"},
    ),
    is_read_only=False,
    is_destructive=True,  # with an id it overwrites
    is_idempotent=True,
)

SEARCH = ToolSpec(
    name="memory_search",
    title="Search memories",
    description=(
        "Find memories by meaning and by words, the best first: records, files and messages. Call it before you "
        "answer. The hits are summaries: read one in full with memory_get, or at its mem:// address. Nothing found? "
        "Leave out type, then use fewer tags, then other words."
    ),
    input_schema=input_schema(
        ["query"],
        query={"type": "string", "minLength": 1, "maxLength": 1000, "description": "Short and specific."},
        type={"type": "string", "description": "Only memories of this type."},
        tags=_NARROW_TAGS,
        match=_MATCH,
        kinds={
            "type": "array",
            "items": {"type": "string", "enum": list(SEARCHED_KINDS)},
            "description": "Where to look; left out, everywhere.",
        },
        after={"type": "string", "description": "Only what changed at or after this day or time, such as 2026-01-31."},
        before={"type": "string", "description": "Only what changed before it."},
        limit={"type": "integer", "minimum": 1, "description": "How many at most; above the maximum it is capped."},
        min_relevance=MIN_RELEVANCE,
    ),
    output_schema=_output(
        ["id", "type", "similarity", "tags", "createdAt"],
        more={"notices": STRINGS},
        **_SHORT,
        similarity={"type": "number"},
    ),
    is_read_only=True,
    is_destructive=False,
    is_idempotent=True,
)

LIST = ToolSpec(
    name="memory_list",
    title="List memories",
    description="List records by type and tags, the newest first, without a search.",
    input_schema=input_schema(
        [],
        type={"type": "string", "description": "Only records of this type."},
        tags=_NARROW_TAGS,
        match=_MATCH,
        limit={"type": "integer", "minimum": 1, "description": "How many at most (20)."},
        cursor={"type": "string", "description": "nextCursor of the previous page."},
    ),
    output_schema=_output(["id", "type", "tags", "createdAt"], more={"nextCursor": STRING}, **_SHORT),
    is_read_only=True,
    is_destructive=False,
    is_idempotent=True,
)

GET = ToolSpec(
    name="memory_get",
    title="Read a memory",
    description="Read memories in full, by the ids or the mem:// addresses that a search or a list gave.",
    input_schema=input_schema(
        ["id"],
        id={
            "anyOf": [STRING, {**STRINGS, "maxItems": 20}],
            "description": "An id or a mem:// address, or a list of them.",
        },
        offset={"type": "integer", "minimum": 0, "description": "For a long memory: where to continue."},
    ),
    output_schema=_output(
        ["id", "type", "content", "tags", "createdAt"],
        more={"missing": STRINGS, "left": STRINGS},
        id=STRING,
        type=STRING,
        content={"anyOf": [*_CONTENT["anyOf"], {"type": "null"}]},  # of a message that only calls tools
        tags=STRINGS,
        createdAt=STRING,
    ),
    is_read_only=True,
    is_destructive=False,
    is_idempotent=True,
)

DELETE = ToolSpec(
    name="memory_delete",
    title="Delete a memory",
    description="Delete one record that is wrong or no longer wanted, or undo its deletion.",
    input_schema=input_schema(["id"], id=_ID, undo={"type": "boolean", "description": "Undo the deletion."}),
    output_schema=_output(["id"], id=STRING),
    is_read_only=False,
    is_destructive=True,
    is_idempotent=True,
)

TOOLS: tuple[ToolSpec, ...] = (CREATE, SEARCH, LIST, GET, DELETE)
_SPECS = {tool.name: tool for tool in TOOLS}


# The tools


@dataclass(frozen=True, slots=True)
class FullPage:
    """Records in full. If not all `asked` records fit, the cursor leads to the rest."""

    records: FullRecords
    asked: int
    cursor: str | None


@dataclass(frozen=True, slots=True)
class _Read:
    """Memories read by id: those found, those missing, and those left for another call."""

    items: FullRecords
    missing: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


class RecordTools:
    """The five tools, and the readers of one space's records."""

    def __init__(self, space: Space, *, default_limit: int = 10, max_limit: int = 100) -> None:
        if not 1 <= default_limit <= max_limit:
            raise InvalidInput(f"default_limit must be from 1 to max_limit ({max_limit}), not {default_limit}")
        self.space = space
        self.default_limit = default_limit
        self.max_limit = max_limit
        self._run: dict[str, Callable[[Arguments], ToolAnswer]] = {
            CREATE.name: self._create,
            SEARCH.name: self._search,
            LIST.name: self._list,
            GET.name: self._get,
            DELETE.name: self._delete,
        }

    def create(self, arguments: Mapping[str, Any]) -> ToolAnswer:
        return self.call(CREATE.name, arguments)

    def search(self, arguments: Mapping[str, Any]) -> ToolAnswer:
        return self.call(SEARCH.name, arguments)

    def list(self, arguments: Mapping[str, Any]) -> ToolAnswer:
        return self.call(LIST.name, arguments)

    def get(self, arguments: Mapping[str, Any]) -> ToolAnswer:
        return self.call(GET.name, arguments)

    def delete(self, arguments: Mapping[str, Any]) -> ToolAnswer:
        return self.call(DELETE.name, arguments)

    def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolAnswer:
        """Run one of `TOOLS` by its name."""
        return call_tool(_SPECS[tool], self._run[tool], arguments)

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
        """The newest records in full, starting at a cursor. `room` bounds their length in characters."""
        wanted = number(limit)
        if wanted is None:
            raise InvalidInput("limit must be a positive number")
        count = int(min(max(wanted, 1), RESOURCE_LIMIT))

        def read(limit: int) -> RecordPage:
            return self.space.records.list(type=type, tags=tags, match=check_match(match), limit=limit, cursor=cursor)

        found = [*map(full_record, read(count).records)]
        lengths = (len(json.dumps(record, ensure_ascii=False, default=dict)) for record in found)
        fitting = len(found) if room is None else how_many_fit(lengths, room)
        if fitting == len(found):
            return FullPage(found, len(found), None)
        return FullPage(found[:fitting], len(found), read(fitting).cursor)

    def item(self, id: str) -> dict[str, Any]:
        """One record in full; raises NotFound."""
        return full_record(self.space.records.get(id))

    def message(self, id: str) -> dict[str, Any]:
        """One message in full; raises NotFound."""
        return full_message(self.space.threads.get_message(id))

    def value(self, key: str) -> dict[str, Any]:
        """One item of the key-value store in full; raises NotFound."""
        return full_item(self.space.items.get(key))

    # Tools

    def _create(self, given: Arguments) -> ToolAnswer:
        records = self.space.records
        readers: dict[str, Callable[[], Any]] = {
            "type": lambda: given.text("type"),
            "content": lambda: given.required("content"),
            "source": lambda: given.text("source"),
            "confidence": lambda: given.fraction("confidence", is_required=True),
            "tags": lambda: records.clean_tags(given.tags()),
            "importance": lambda: given.fraction("importance"),
        }
        id = given.optional_text("id")
        needed = ("type", "content", "source", "confidence") if id is None else ()
        fields = given.read_all({name: readers[name] for name in readers if name in needed or given.has(name)})
        if not fields:
            raise InvalidInput(f"give what to change of {id}: {', '.join(readers)}")
        saved = records.create(**fields) if id is None else records.update(_bare_id(id), **fields)
        notices = _suggestion(saved)
        return ToolAnswer(
            _saved_text(saved),
            structured={"items": [_saved_item(saved)], **({"notices": [*notices]} if notices else {})},
            links=(_link(_record_item(saved)),),
            notices=notices,
        )

    def _search(self, given: Arguments) -> ToolAnswer:
        query = given.query()
        type = given.optional_text("type")
        kinds = given.kinds()
        narrowed: dict[str, Any] = {
            "tags": given.tags(),
            "match": given.match(),
            "after": given.time("after"),
            "before": given.time("before"),
            "min_relevance": given.min_relevance(),
        }
        limit = given.limit(self.default_limit, self.max_limit)
        # Files and messages have no type; their kind counts as one.
        searches: list[dict[str, Any]] = [{"kinds": kinds, "type": type}]
        if type is not None:
            searches = [{"kinds": [RECORD], "type": type}] if RECORD in kinds else []
            searches += [{"kinds": [type]}] if type in kinds and type != RECORD else []
        hits: list[Hit] = []
        notices: dict[str, None] = {}
        left_out = 0
        for search in searches:
            found = self.space.search(query, limit=limit, **narrowed, **search)
            hits += found
            left_out += found.left_out
            notices.update(dict.fromkeys(found.notices))
        hits.sort(key=lambda hit: -hit.score)
        notices.update(dict.fromkeys(left_out_notice(len(hits), limit, left_out)))
        answer = _found([*map(_hit_item, hits[:limit])], {"notices": [*notices]} if notices else {})
        if left_out and not hits:
            answer = replace(answer, text=NOTHING_RELEVANT)
        return replace(answer, notices=tuple(notices))

    def _list(self, given: Arguments) -> ToolAnswer:
        page = self.space.records.list(
            type=given.optional_text("type"),
            tags=given.tags(),
            match=given.match(),
            limit=given.limit(LIST_LIMIT, self.max_limit),
            cursor=given.optional_text("cursor"),
        )
        answer = _found([*map(_record_item, page.records)], {"nextCursor": page.cursor} if page.cursor else {})
        if page.cursor is None:
            return answer
        return replace(answer, text=f"{answer.text}\nMore with cursor {page.cursor}")

    def _get(self, given: Arguments) -> ToolAnswer:
        ids = given.texts("id", MAX_READ)
        offset = given.count("offset")
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
        return ToolAnswer("\n".join(lines), structured={"items": found.items, **more})

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
        if kind == ITEM:
            return self.value(name)
        return self.message(name) if kind == MESSAGE else self._item_or_message(name)

    def _item_or_message(self, id: str) -> dict[str, Any]:
        try:
            return self.item(id)
        except NotFound as missing:
            try:
                return self.message(id)
            except (NotFound, InvalidInput):
                raise missing from None

    def _delete(self, given: Arguments) -> ToolAnswer:
        id = _bare_id(given.text("id"))
        if given.flag("undo"):
            self.space.records.undelete(id)
            return ToolAnswer(f"Memory restored.\nID: {id}", structured={"items": [{"id": id}]})
        self.space.records.delete(id)
        undo = "To take this back, call memory_delete with this id and undo: true."
        return ToolAnswer(f"Memory deleted.\nID: {id}\n{undo}", structured={"items": [{"id": id}]})


def _found(items: list[dict[str, Any]], more: Mapping[str, Any]) -> ToolAnswer:
    return ToolAnswer(_found_text(items), structured={"items": items, **more}, links=tuple(map(_link, items)))


# Ids and addresses


def uri_of(kind: str, name: str) -> str:
    if kind == FILE:
        return FILE_URI + quote(name.lstrip("/"))
    return {MESSAGE: MESSAGE_URI, ITEM: VALUE_URI}.get(kind, ITEM_URI) + quote(name, safe="")


def _bare_id(id: str) -> str:
    """A record's id, from the id itself, its address or the name of its link."""
    id = id.strip().removeprefix("memory:")
    return unquote(id.removeprefix(ITEM_URI)) if id.startswith(ITEM_URI) else id


def _kind_and_name(id: str) -> tuple[str, str]:
    """What an id or an address names. A bare id that is not a path may belong to a record or a message."""
    id = id.strip()
    if id.startswith("file:/"):  # the name of a link
        return FILE, id.removeprefix("file:")
    if id.startswith(FILE_URI):
        return FILE, "/" + unquote(id.removeprefix(FILE_URI))
    if id.startswith(MESSAGE_URI):
        return MESSAGE, unquote(id.removeprefix(MESSAGE_URI))
    if id.startswith(VALUE_URI):
        return ITEM, unquote(id.removeprefix(VALUE_URI))
    if id.startswith("/"):
        return FILE, id
    return RECORD, _bare_id(id)


def _link(item: Mapping[str, Any]) -> Link:
    uri = cast("str", item["uri"])
    is_file = uri.startswith(FILE_URI)
    return Link(
        uri=uri,
        name=f"file:{item['id']}" if is_file else f"memory:{item['id']}",
        mime_type="text/plain" if is_file else "application/json",
    )


# Items: memories without their content


def _hit_item(hit: Hit) -> dict[str, Any]:
    attributes = cast("Mapping[str, Any]", hit.entry.attributes)
    is_record = hit.kind == RECORD
    return {
        "id": uri_of(ITEM, hit.key) if hit.kind == ITEM else hit.key,
        "type": attributes["type"] if is_record else hit.kind,
        "similarity": similarity(hit),
        "tags": list(attributes["tags"]) if is_record else [],
        "createdAt": iso(moment(hit.entry.created_at)),
        "uri": uri_of(hit.kind, hit.key),
        "summary": hit.snippet,
    }


def _record_item(record: Record) -> dict[str, Any]:
    return {
        "id": record.id,
        "type": record.type,
        "tags": list(record.tags),
        "createdAt": iso(record.created_at),
        "uri": uri_of(RECORD, record.id),
        "summary": snippet(" ".join(_words(record.content)), {}, SUMMARY_CHARACTERS),
    }


def _saved_item(record: Record) -> dict[str, Any]:
    return {
        "id": record.id,
        "type": record.type,
        "tags": list(record.tags),
        "confidence": record.confidence,
        "createdAt": iso(record.created_at),
        **_importance(record),
    }


def _suggestion(record: Record) -> tuple[str, ...]:
    """What to tell the user of a record that is or may be a standing instruction or preference."""
    if record.suggested_type is None:
        return ()
    return (
        f"this reads like a standing {record.suggested_type}; as type {record.suggested_type}, and once the user runs "
        f"`commonplace confirm {record.id}`, it is recalled for every question",
    )


def _importance(record: Record) -> dict[str, float]:
    return {} if record.importance is None else {"importance": record.importance}


def similarity(hit: Hit) -> float:
    """A hit's score as the tools show it, from 0 to 1."""
    return round(min(max(hit.score, 0.0), 1.0), 4)


def iso(time: datetime) -> str:
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _words(content: JSON) -> Iterator[str]:
    if isinstance(content, Mapping):
        content = list(content.values())
    if isinstance(content, (list, tuple)):
        for item in content:
            yield from _words(item)
    elif content is not None:
        yield content if isinstance(content, str) else canonical(content)


# Memories in full


def full_record(record: Record) -> dict[str, Any]:
    return {
        "id": record.id,
        "type": record.type,
        "content": record.content,
        "source": record.source,
        "tags": list(record.tags),
        "confidence": record.confidence,
        "createdAt": iso(record.created_at),
        "updatedAt": iso(record.updated_at),
        "hash": record.hash,
        **_importance(record),
    }


def full_file(info: FileInfo, text: str) -> dict[str, Any]:
    return {
        "id": info.path,
        "type": FILE,
        "content": text,
        "tags": [],
        "createdAt": iso(info.created_at),
        "updatedAt": iso(info.updated_at),
    }


def full_item(item: Item) -> dict[str, Any]:
    return {
        "id": VALUE_URI + quote(item.key, safe=""),
        "type": ITEM,
        "content": item.value,
        "tags": [],
        "createdAt": iso(item.created_at),
        "updatedAt": iso(item.updated_at),
    }


def full_message(message: Message) -> dict[str, Any]:
    return {
        **message.extra,
        "id": message.id,
        "type": MESSAGE,
        "content": message.content,
        "role": message.role,
        "threadId": message.thread_id,
        "tags": [],
        "createdAt": iso(message.created_at),
    }


_OWN_FIELDS = ("id", "type", "content", "source", "role", "threadId", "tags", "confidence", "importance")
_TIMES = ("createdAt", "updatedAt")


def excerpt(full: Mapping[str, Any], offset: int = 0, room: int = ANSWER_CHARACTERS) -> dict[str, Any]:
    """A memory with as much of its content, from `offset` on, as fits.

    If that is not everything, the content is a text, `characters` says which part of it, and large fields that are not
    ours are left out.
    """
    content = full["content"]
    written = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, default=dict)
    other = {name: value for name, value in full.items() if name not in _OWN_FIELDS}
    is_large = sum(len(json.dumps(value, ensure_ascii=False, default=dict)) for value in other.values()) > room
    if not offset and len(written) <= room and not is_large:
        return dict(full)
    if offset and offset >= len(written):
        raise InvalidInput(f"offset {offset} is past the end; {full['id']} has {len(written):,} characters")
    kept = {name: value for name, value in full.items() if not is_large or name in _OWN_FIELDS or name in _TIMES}
    part = written[offset : offset + room]
    shown = {"from": offset, "to": offset + len(part), "of": len(written)}
    return {**kept, "content": part, "characters": shown}


def how_to_go_on(item: Mapping[str, Any]) -> str | None:
    """How to read the rest of an excerpt; None if nothing is left."""
    shown = item.get("characters")
    if shown is None or shown["to"] == shown["of"]:
        return None
    return (
        f"Characters {shown['from']:,} to {shown['to']:,} of {shown['of']:,} of {item['id']}. "
        f"Read on with offset {shown['to']}."
    )


# Texts


def _saved_text(record: Record) -> str:
    return "\n".join(
        (
            "Memory upserted.",
            f"ID: {record.id}",
            f"Type: {record.type}",
            f"Tags: {json.dumps(list(record.tags), separators=(',', ':'))}",
            f"Confidence: {canonical(record.confidence)}",
            f"Created: {iso(record.created_at)}",
        )
    )


def _found_text(items: Sequence[Mapping[str, Any]]) -> str:
    """A line for each item, with its address for clients that do not follow links."""
    if not items:
        return "No memories found."
    return "\n".join((f"Found {len(items)} memories:", *map(_line, items)))


def _line(item: Mapping[str, Any]) -> str:
    summary = item["summary"]
    if len(summary) > LINE_CHARACTERS:
        summary = summary[: LINE_CHARACTERS - 1].rstrip(" …") + "…"
    similar = f" sim={item['similarity']:.3f}" if "similarity" in item else ""
    return f"• [{item['type']}]{similar} tags={', '.join(item['tags'])} {item['uri']} {summary}".rstrip()
