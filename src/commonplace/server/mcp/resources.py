"""Resources: every memory at an address of its own, `mem://…`, and the lists that a client may attach."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode

from commonplace.errors import InvalidInput, NotFound
from commonplace.server.mcp.memory import Memory
from commonplace.tools.record_tools import excerpt, how_to_go_on
from commonplace.tools.tool import ANSWER_CHARACTERS, check_count

JSON_TYPE = "application/json"
TEXT_TYPE = "text/plain"

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
    """What a client is given. Where that is not all, `rest` is the address to go on with and `note` says so."""

    text: str
    mime_type: str = JSON_TYPE
    note: str = ""
    rest: str = ""


def read(memory: Memory, uri: str) -> Contents:
    """What stands at an address; raises NotFound for what is missing and InvalidInput for a wrong address."""
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
    """The contents with the address of the rest, where there is one: the same from another place on."""
    if note is None:
        return contents
    address, _, written = uri.partition("?")
    query = {key: values[0] for key, values in parse_qs(written, keep_blank_values=True).items()}
    rest = f"{address}?{urlencode({**query, **place})}"
    return replace(contents, note=f"{note} The rest is at {rest}", rest=rest)


def parse_uri(uri: str) -> tuple[str, str, Mapping[str, str]]:
    """The kind of an address, its decoded path, and its query; refused where no resource has this shape."""
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
            raise InvalidInput(f"{name[:100]!r} is no parameter of mem://{kind}, or stands twice in {uri[:200]}")
        query[name] = values[0]
    return kind, unquote(rest, errors="surrogateescape"), query


def _json(value: object) -> Contents:
    return Contents(json.dumps(value, ensure_ascii=False, default=dict))
