"""Resources: every memory has an address, `mem://…`, and so have lists. Completion of tags, types and paths."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode

from commonplace.errors import InvalidInput, NotADirectory, NotFound
from commonplace.server.mcp.lazy_memory import Memory
from commonplace.space.files import Files
from commonplace.space.names import ROOT
from commonplace.space.records import Record
from commonplace.tools.record_tools import excerpt, how_to_go_on
from commonplace.tools.tool import ANSWER_CHARACTERS, check_count

JSON_TYPE = "application/json"
TEXT_TYPE = "text/plain"

RECORDS_LOOKED_AT = 1_000
"""The newest records: enough to know the tags and types in use, and fast enough while a person types."""

RESOURCES: tuple[dict[str, Any], ...] = (
    {
        "uri": "mem://recent",
        "name": "recent",
        "title": "Recent memories",
        "description": "The newest records in full.",
        "mimeType": JSON_TYPE,
    },
)
TEMPLATES: tuple[dict[str, Any], ...] = (
    {
        "uriTemplate": "mem://recent{?limit}",
        "name": "recent",
        "title": "Recent memories",
        "description": "The newest records in full; limit 1 to 100, 20 by default.",
        "mimeType": JSON_TYPE,
    },
    {
        "uriTemplate": "mem://by-tags/{+tags}{?limit,match}",
        "name": "by-tags",
        "title": "Memories by tags",
        "description": "Records with all of the tags, divided by commas; match=any for those with one of them.",
        "mimeType": JSON_TYPE,
    },
    {
        "uriTemplate": "mem://by-type/{type}{?limit}",
        "name": "by-type",
        "title": "Memories by type",
        "description": "Records of a type, the newest first.",
        "mimeType": JSON_TYPE,
    },
    {
        "uriTemplate": "mem://item/{id}",
        "name": "item",
        "title": "One memory",
        "description": "A record in full.",
        "mimeType": JSON_TYPE,
    },
    {
        "uriTemplate": "mem://file/{+path}",
        "name": "file",
        "title": "A file",
        "description": "The text of a file in the memory's tree.",
        "mimeType": TEXT_TYPE,
    },
    {
        "uriTemplate": "mem://message/{id}",
        "name": "message",
        "title": "One message",
        "description": "A message of a conversation in full.",
        "mimeType": JSON_TYPE,
    },
)

_WITH_PATH = ("by-tags", "by-type", "item", "file", "message")
_QUERY = {
    "recent": ("limit", "cursor"),
    "by-tags": ("limit", "match", "cursor"),
    "by-type": ("limit", "cursor"),
    "file": ("offset",),
    "message": ("offset",),
}


@dataclass(frozen=True, slots=True)
class Contents:
    """What a client reads. If there is more, `rest` is the address to go on with, and `note` says so."""

    text: str
    mime_type: str = JSON_TYPE
    note: str = ""
    rest: str = ""


def read(memory: Memory, uri: str) -> Contents:
    """The contents of an address; NotFound if there are none, InvalidInput for an invalid address."""
    kind, rest, query = parse_uri(uri)
    records = memory.records
    if kind == "item":
        return _json(records.item(rest))
    if kind in ("file", "message"):
        full = (
            records.message(rest) if kind == "message" else {"id": rest, "content": memory.space.files.read("/" + rest)}
        )
        shown = excerpt(full, check_count("offset", query.get("offset")))
        contents = _json(shown) if kind == "message" else Contents(shown["content"], TEXT_TYPE)
        return _with_rest(contents, uri, how_to_go_on(shown), offset=shown.get("characters", {}).get("to"))
    narrowed: dict[str, Any] = {"tags": rest.split(","), "match": query.get("match")} if kind == "by-tags" else {}
    if kind == "by-type":
        narrowed["type"] = rest
    page = records.page(query.get("limit", "20"), cursor=query.get("cursor"), room=ANSWER_CHARACTERS, **narrowed)
    note = None if page.cursor is None else f"{len(page.records)} of {page.asked} memories."
    return _with_rest(_json(page.records), uri, note, limit=page.asked - len(page.records), cursor=page.cursor)


def _with_rest(contents: Contents, uri: str, note: str | None, **place: object) -> Contents:
    """The contents with the address of the rest, if there is one: the same address with another start."""
    if note is None:
        return contents
    address, _, written = uri.partition("?")
    query = {key: values[0] for key, values in parse_qs(written, keep_blank_values=True).items()}
    rest = f"{address}?{urlencode({**query, **place})}"
    return replace(contents, note=f"{note} The rest is at {rest}", rest=rest)


def parse_uri(uri: str) -> tuple[str, str, Mapping[str, str]]:
    """The kind of an address, its decoded path, and its query; NotFound if no resource has such an address."""
    scheme, _, address = uri.partition("://")
    address, _, written = address.partition("?")
    kind, _, rest = address.partition("/")
    is_known = not rest if kind == "recent" else bool(rest) and kind in _WITH_PATH
    if scheme != "mem" or not is_known:
        raise NotFound(
            f"Unknown resource: {uri[:200]}; there are mem://recent, mem://by-tags/TAG,TAG, mem://by-type/TYPE, "
            "mem://item/ID, mem://file/PATH and mem://message/ID"
        )
    query: dict[str, str] = {}
    for name, values in parse_qs(written, keep_blank_values=True).items():
        if name not in _QUERY.get(kind, ()) or len(values) > 1:
            raise InvalidInput(f"{name[:100]!r} is not a parameter of mem://{kind}, or is twice in {uri[:200]}")
        query[name] = values[0]
    return kind, unquote(rest, errors="surrogateescape"), query


def _json(value: object) -> Contents:
    return Contents(json.dumps(value, ensure_ascii=False, default=dict))


# Completion


def complete(memory: Memory, argument: str, typed: str, *, is_prompt: bool = False) -> list[str]:
    """The values in use for an argument, the most frequent first; none for an argument that takes any text."""
    if argument == "path" and not is_prompt:
        return [path.lstrip("/") for path in complete_path(memory.space.files, typed)]
    if argument == "type":
        return _most_used((record.type for record in _newest(memory)), typed)
    if argument == "tags":
        given, _, started = typed.rpartition(",")
        before = f"{given}," if given else ""
        chosen = given.split(",")
        tags = _most_used((tag for record in _newest(memory) for tag in record.tags), started.strip().lower())
        return [before + tag for tag in tags if tag not in chosen]
    return []


def _newest(memory: Memory) -> Iterator[Record]:
    yield from memory.space.records.list(limit=RECORDS_LOOKED_AT).records


def _most_used(values: Iterable[str], typed: str) -> list[str]:
    counts: dict[str, int] = {}
    for value in values:
        if value.startswith(typed):
            counts[value] = counts.get(value, 0) + 1
    return sorted(counts, key=lambda value: (-counts[value], value))


def complete_path(files: Files, typed: str, *, limit: int = 100) -> list[str]:
    """The paths that begin with the text, one level deep. A directory ends with `/`."""
    above, _, start = ("/" + typed.replace("\\", "/").lstrip("/")).rpartition("/")
    try:
        listed = files.list(above or ROOT)
    except (InvalidInput, NotFound, NotADirectory):
        return []  # nothing begins with this text
    found = (item.path + ("/" if item.kind == "directory" else "") for item in listed if item.name.startswith(start))
    return list(islice(found, limit))
