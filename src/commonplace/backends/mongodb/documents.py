"""Rows as documents, and back. A text or value that is too large for one document is divided.

Values and attributes are stored as JSON texts, as on every backend: MongoDB's own documents would change numbers, the
names of fields and their order. A state of more than PART_CHARACTERS is stored in documents of `part`, whose `owner`
names the state. A document may have 16 MB, and a character takes at most 4 bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from commonplace.backends.mongodb.connection import Document, Location, Session
from commonplace.backends.rows import Former, Live, damaged, labels
from commonplace.entry import INDEXED_ATTRIBUTES
from commonplace.store import FORMER_STATE_BYTES

PART_CHARACTERS = 3_000_000
HEAD = [name for name in Live._fields if name not in ("id", "text", "value")]
"""The fields of a live state without its text and value."""
FORMER_HEAD = [name for name in Former._fields if name not in ("text", "value")]
_CONTENT = ("text", "value")


class Torn(Exception):
    """A divided text was replaced while it was being read; read it in a snapshot."""


def live_document(place: Location, row: Live) -> Document:
    document = {name: value for name, value in row._asdict().items() if value is not None and name != "id"}
    marks = labels(json.loads(row.attributes), INDEXED_ATTRIBUTES) if row.attributes != "{}" else ()
    if marks:
        document["labels"] = sorted(map(mark_of, marks))
    return {"_id": row.id, **place.mine, **document}


def former_document(place: Location, row: Former) -> Document:
    return {**place.mine, **{name: value for name, value in row._asdict().items() if value is not None}}


def mark_of(label: tuple[str, str]) -> str:
    """A label as one string. No indexed attribute has an equals sign in its name."""
    return "=".join(label)


def live_row(document: Document) -> Live:
    return Live._make((document["_id"], *map(document.get, Live._fields[1:])))


def former_row(document: Document) -> Former:
    return Former._make(map(document.get, Former._fields))


# Divided contents


def divide(place: Location, document: Document, owner: str) -> list[Document]:
    """Take what is too large out of a document; returns the documents of its parts."""
    size = sum(len(document[name]) for name in _CONTENT if isinstance(document.get(name), (str, bytes)))
    if size <= PART_CHARACTERS:
        return []
    parts: list[Document] = []
    for name in _CONTENT:
        content = document.get(name)
        if not isinstance(content, (str, bytes)):
            continue
        pieces = [content[start : start + PART_CHARACTERS] for start in range(0, len(content), PART_CHARACTERS)]
        document[name] = {"parts": len(pieces), "owner": owner}
        for number, piece in enumerate(pieces):
            parts.append(
                {"_id": f"{owner}:{name}:{number}", **place.mine, "owner": owner, "field": name, "number": number,
                 "content": piece}
            )  # fmt: skip
    return parts


def live_owner(row: Live) -> str:
    return f"e:{row.id}:{row.commit}:{row.revision}"


def former_owner(row: Former) -> str:
    return f"h:{row.entry}:{row.revision}"


def is_divided(document: Document) -> bool:
    return any(isinstance(document.get(name), dict) for name in _CONTENT)


def owners_of(document: Document) -> set[str]:
    return {document[name]["owner"] for name in _CONTENT if isinstance(document.get(name), dict)}


def whole_documents(session: Session, place: Location, documents: Iterable[Document]) -> Iterator[Document]:
    """The documents with their divided contents put together. One is read at a time, since it is large."""
    for document in documents:
        if is_divided(document):
            _join(session, place, document)
        yield document


def _join(session: Session, place: Location, document: Document) -> None:
    found: dict[tuple[str, str], dict[int, Any]] = {}
    query = {**place.mine, "owner": {"$in": sorted(owners_of(document))}}
    for part in session.iterate("part", query):
        found.setdefault((part["owner"], part["field"]), {})[part["number"]] = part["content"]
    for name in _CONTENT:
        content = document.get(name)
        if not isinstance(content, dict):
            continue
        pieces = found.get((content["owner"], name), {})
        if sorted(pieces) != list(range(content["parts"])):
            if not session.is_snapshot:
                raise Torn
            raise damaged(place.namespace, document.get("kind"), document.get("key"))
        ordered = [pieces[number] for number in range(content["parts"])]
        document[name] = b"".join(ordered) if isinstance(ordered[0], bytes) else "".join(ordered)


# Sizes, as usage counts them


def live_bytes(row: Live) -> int:
    return sum(len(part.encode()) for part in (row.attributes, row.text, row.value) if part is not None)


def former_bytes(row: Former) -> int:
    return (
        FORMER_STATE_BYTES + len(row.attributes.encode()) + sum(_stored_bytes(part) for part in (row.text, row.value))
    )


def _stored_bytes(stored: Any) -> int:
    if stored is None:
        return 0
    return len(stored) if isinstance(stored, bytes) else len(str(stored).encode())
