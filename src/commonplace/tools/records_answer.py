"""How records, files and messages look to a client of the record tools: as items, in full, as links and as text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast
from urllib.parse import quote

from commonplace.checks import JSON, moment
from commonplace.entry import Hit
from commonplace.errors import InvalidInput
from commonplace.language.snippets import snippet
from commonplace.space.files import FileInfo
from commonplace.space.messages import Message
from commonplace.space.names import FILE, MESSAGE, RECORD
from commonplace.space.records import Record, canonical

ITEM_URI = "mem://item/"
FILE_URI = "mem://file/"
MESSAGE_URI = "mem://message/"
NONE_FOUND = "No memories found."
SUMMARY_CHARACTERS = 160
ANSWER_CHARACTERS = 50_000
"""About 12,000 tokens of English: more than a model wants of one memory, less than what clients cut off."""
LONGEST_REFUSAL = 1_000
_TIMES = ("createdAt", "updatedAt")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Link:
    """Where the full content can be read. The item has the words for it: a model need not read them twice."""

    uri: str
    name: str
    mime_type: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool call came to. A refused call has `is_error`, the reason as its text, and neither items nor links.

    `notices` say what a search could not look at: a model reads them after the text.
    """

    text: str
    structured: dict[str, Any] = field(default_factory=dict)
    links: tuple[Link, ...] = ()
    is_error: bool = False
    notices: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """All that a model is to read."""
        return (self.text, *(f"Note: {notice}." for notice in self.notices))


def refusal(reason: str) -> Answer:
    return Answer(wire_text(reason), is_error=True)


def wire_text(reason: str) -> str:
    """Why something was refused; it may quote what was sent, so it is made short and fit for the wire."""
    text = _LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", reason)
    return text if len(text) <= LONGEST_REFUSAL else text[: LONGEST_REFUSAL - 1] + "…"


# Items


def hit_item(hit: Hit) -> dict[str, Any]:
    """A find, without its content."""
    attributes = cast("Mapping[str, Any]", hit.entry.attributes)
    is_record = hit.kind == RECORD
    return {
        "id": hit.key,
        "type": attributes["type"] if is_record else hit.kind,
        "similarity": round(min(max(hit.score, 0.0), 1.0), 4),
        "tags": list(attributes["tags"]) if is_record else [],
        "createdAt": iso(moment(hit.entry.created_at)),
        "uri": uri_of(hit.kind, hit.key),
        "summary": hit.snippet,
    }


def record_item(record: Record) -> dict[str, Any]:
    """A record in a list, without its content."""
    return {
        "id": record.id,
        "type": record.type,
        "tags": list(record.tags),
        "createdAt": iso(record.created_at),
        "uri": uri_of(RECORD, record.id),
        "summary": snippet(" ".join(_words(record.content)), {}, SUMMARY_CHARACTERS),
    }


def saved_item(record: Record) -> dict[str, Any]:
    return {
        "id": record.id,
        "type": record.type,
        "tags": list(record.tags),
        "confidence": record.confidence,
        "createdAt": iso(record.created_at),
    }


# In full


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


_OWN_FIELDS = ("id", "type", "content", "source", "role", "threadId", "tags", "confidence")


def excerpt(full: Mapping[str, Any], offset: int = 0, room: int = ANSWER_CHARACTERS) -> dict[str, Any]:
    """A memory with as much of its content, from `offset` on, as there is room for.

    Where that is not all of it, the content is a text, `characters` says which part of it, and large fields of others
    are left out.
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
    """What to do for the rest of an excerpt; None where nothing is left."""
    shown = item.get("characters")
    if shown is None or shown["to"] == shown["of"]:
        return None
    return (
        f"Characters {shown['from']:,} to {shown['to']:,} of {shown['of']:,} of {item['id']}. "
        f"Read on with offset {shown['to']}."
    )


# Words


def saved_text(record: Record) -> str:
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


def found_text(items: Sequence[Mapping[str, Any]]) -> str:
    """A line for each item, with its address: a client without links can follow it."""
    if not items:
        return NONE_FOUND
    return "\n".join((f"Found {len(items)} memories:", *map(_line, items)))


def _line(item: Mapping[str, Any]) -> str:
    similarity = f" sim={item['similarity']:.3f}" if "similarity" in item else ""
    return f"• [{item['type']}]{similarity} tags={', '.join(item['tags'])} {item['uri']} {item['summary']}".rstrip()


def link(item: Mapping[str, Any]) -> Link:
    """The link to what an item stands for."""
    uri = cast("str", item.get("uri") or uri_of(RECORD, item["id"]))
    is_file = uri.startswith(FILE_URI)
    return Link(
        uri=uri,
        name=f"file:{item['id']}" if is_file else f"memory:{item['id']}",
        mime_type="text/plain" if is_file else "application/json",
    )


def uri_of(kind: str, name: str) -> str:
    if kind == FILE:
        return FILE_URI + quote(name.lstrip("/"))
    return (MESSAGE_URI if kind == MESSAGE else ITEM_URI) + quote(name, safe="")


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
