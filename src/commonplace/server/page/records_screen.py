"""Records: a table with filters, changes of several records at once, and one record with where it was learned."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast
from urllib.parse import unquote

from fastapi import APIRouter
from fastapi.responses import Response

from commonplace.checks import JSON
from commonplace.errors import InvalidInput, NotFound, Outdated
from commonplace.language.snippets import matched_spans, snippet
from commonplace.language.tokenizer import query_terms
from commonplace.server.http.sessions import PAGE_PATH
from commonplace.server.http.worker_threads import ThreadedRoute
from commonplace.server.page.files_screen import with_line_ends_of
from commonplace.server.page.history_screen import changed_meanwhile
from commonplace.server.page.templates import pieces
from commonplace.server.page.visit import (
    Visit,
    VisitOf,
    own_address,
    page_number,
    parse_seen,
    seen_of,
    with_done,
)
from commonplace.space.names import FILE, MESSAGE, RECORD, THREAD
from commonplace.space.records import Record, record_of, text_of

RECORDS = f"{PAGE_PATH}/records"
PAGE_SIZE = 50
HITS = 20
"""How many records a page has that were searched for. The search for more takes twice as long."""

HITS_READ = 100
"""How many hits one request looks through for a source or a confidence."""

MOST_PAGES = 50
READ_FIRST = 200
MOST_READ = 1_000
"""How many records one request looks through for a source or a confidence, which have no index."""

SNIPPET_CHARACTERS = 200
SHOWN_CHARACTERS = 100_000
MOST_LINKS = 20
NO_TERMS: Mapping[str, float] = {}
_ADDRESS = re.compile(r"(?:mem://(item|file|message)/|\b(file|record|memory|thread|message):)([^\s\"'<>\\]{1,600})")
"""An address of a memory in a text, as tools give it (`mem://item/ID`), or as people write it (`record:ID`)."""

_KINDS = {"item": RECORD, "memory": RECORD, "record": RECORD, "file": FILE, "message": MESSAGE, "thread": THREAD}
_PLACES = {
    "threadId": THREAD,
    "thread_id": THREAD,
    "thread": THREAD,
    "messageId": MESSAGE,
    "message_id": MESSAGE,
    "message": MESSAGE,
}
"""Fields of a content that name where it was learned."""

router = APIRouter(route_class=ThreadedRoute)


# The table


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """What the table is narrowed to, as the address says."""

    text: str
    type: str
    tag: str
    source: str
    confidence: str

    @property
    def is_any(self) -> bool:
        return any((self.text, self.type, self.tag, self.source, self.confidence))

    @property
    def is_read_through(self) -> bool:
        """Whether records have to be looked at one by one."""
        return bool(self.source or self.confidence)

    @property
    def tags(self) -> list[str]:
        return split_tags(self.tag)

    @property
    def least(self) -> float:
        return _fraction("confidence", self.confidence) if self.confidence else 0.0

    def matches(self, record: Record) -> bool:
        """Whether a record has the source and the confidence; what else is asked for, the index finds."""
        return self.source.casefold() in record.source.casefold() and record.confidence >= self.least


@dataclass(frozen=True, slots=True)
class ShownRecord:
    """A row of the table."""

    record: Record
    pieces: tuple[tuple[str, bool], ...]


@dataclass(frozen=True, slots=True)
class Found:
    """The records of a page, and where the next one begins. `looked_at` is given if not all could be looked at."""

    rows: tuple[ShownRecord, ...]
    cursor: str | None = None
    number: int = 1
    has_more: bool = False
    looked_at: int | None = None


@router.get(RECORDS, include_in_schema=False)
def records(visit: VisitOf) -> Response:
    kind, id = visit.opened
    if kind == RECORD:
        return _record_page(visit, id)
    wanted = RecordFilter(*(visit.param(name).strip() for name in ("q", "type", "tag", "source", "confidence")))
    found = _searched(visit, wanted) if wanted.text else _listed(visit, wanted)
    return visit.render("records.html", wanted=wanted, found=found)


def _searched(visit: Visit, wanted: RecordFilter) -> Found:
    """Records that match a text, the best first; of those, the ones with the source and the confidence."""
    number = page_number(visit, MOST_PAGES)
    size = HITS_READ if wanted.is_read_through else HITS
    hits = visit.space.search(
        wanted.text,
        limit=size + 1,
        offset=(number - 1) * size,
        kinds=[RECORD],
        type=wanted.type or None,
        tags=wanted.tags,
        as_of=visit.as_of,
    )
    terms = query_terms(wanted.text)
    rows = [_row(record_of(hit.entry), hit.snippet, terms) for hit in hits[:size]]
    shown = tuple(row for row in rows if wanted.matches(row.record))
    has_more = len(hits) > size and number < MOST_PAGES
    looked_at = number * size if has_more and wanted.is_read_through else None
    return Found(shown, number=number, has_more=has_more, looked_at=looked_at)


def _listed(visit: Visit, wanted: RecordFilter) -> Found:
    """Records by type and tags, the newest first; of those, the ones with the source and the confidence."""
    size = READ_FIRST if wanted.is_read_through else PAGE_SIZE
    cursor = visit.param("cursor") or None
    found: list[Record] = []
    read = 0
    while True:
        page = visit.space.records.list(
            type=wanted.type or None, tags=wanted.tags, limit=size, cursor=cursor, as_of=visit.as_of
        )
        cursor, read = page.cursor, read + len(page.records)
        found += filter(wanted.matches, page.records)
        if cursor is None or len(found) >= PAGE_SIZE or read >= MOST_READ:
            break
        size = MOST_READ - read
    rows = tuple(_row(record) for record in found)
    is_cut = cursor is not None and len(found) < PAGE_SIZE
    return Found(rows, cursor, looked_at=read if is_cut else None)


def _row(record: Record, shown: str | None = None, terms: Mapping[str, float] = NO_TERMS) -> ShownRecord:
    text = snippet(text_of(record.content), {}, SNIPPET_CHARACTERS) if shown is None else shown
    return ShownRecord(record, tuple(pieces(text, matched_spans(text, terms))))


@router.post(f"{RECORDS}/several", include_in_schema=False)
def change_several(visit: VisitOf) -> Response:
    """Tag or delete the chosen records, in one commit."""
    chosen, action = visit.fields("id"), visit.field("do")
    if not chosen:
        raise InvalidInput("no record is chosen; go back and tick the records to change")
    known = visit.space.records
    if action == "delete":
        word, commit = "deleted", known.delete_all(chosen)
    else:
        tags = split_tags(visit.field("tags"))
        if action not in ("tag", "untag") or not tags:
            raise InvalidInput("no tag is given; go back and write one, such as project:alpha")
        word, commit = "tagged", known.tag_all(chosen, **{"add" if action == "tag" else "remove": tags})
    return visit.redirect(with_done(own_address(visit.field("back"), RECORDS), word, commit))


# One record


@dataclass(frozen=True, slots=True)
class EntryLink:
    """A memory that a record names, and what it begins with."""

    kind: str
    key: str
    name: str


@dataclass(frozen=True, slots=True)
class Shown:
    """A record as its page shows it. `content` is a text, or JSON if `is_json`."""

    record: Record
    content: str
    is_json: bool
    is_cut: bool
    learned: tuple[EntryLink, ...]
    links: tuple[EntryLink, ...]

    @property
    def seen(self) -> str:
        return seen_of(self.record)


def _record_page(visit: Visit, id: str) -> Response:
    record = visit.space.records.get(id, as_of=visit.as_of)
    is_json = not isinstance(record.content, str)
    content = as_json(record.content) if is_json else cast("str", record.content)
    is_cut = len(content) > SHOWN_CHARACTERS and visit.param("whole") != "1"
    learned = _known(visit, _places(record))
    known = {(link.kind, link.key) for link in learned} | {(RECORD, record.id)}
    links = tuple(link for link in _known(visit, _named(record)) if (link.kind, link.key) not in known)
    shown = Shown(record, content[:SHOWN_CHARACTERS] if is_cut else content, is_json, is_cut, learned, links)
    return visit.render("record.html", shown=shown)


def _places(record: Record) -> Iterator[tuple[str, str]]:
    """The threads, messages and files that a record names as where it was learned."""
    yield from _addresses(record.source)
    if record.source.startswith("/"):
        yield FILE, record.source
    content = record.content if isinstance(record.content, dict) else {}
    for part in (content, content.get("metadata"), content.get("source")):
        if isinstance(part, dict):
            named = [(kind, part.get(name)) for name, kind in _PLACES.items()]
            yield from ((kind, key) for kind, key in named if isinstance(key, str) and key)


def _named(record: Record) -> Iterator[tuple[str, str]]:
    """The memories that the content of a record names."""
    return _addresses(text_of(record.content))


def _addresses(text: str) -> Iterator[tuple[str, str]]:
    for match in _ADDRESS.finditer(text):
        kind, key = _KINDS[match[1] or match[2]], match[3].rstrip(".,;:)]}!?")
        key = unquote(key) if match[1] else key
        yield kind, f"/{key.lstrip('/')}" if kind == FILE else key


def _known(visit: Visit, named: Iterable[tuple[str, str]]) -> tuple[EntryLink, ...]:
    """Those of the named memories that exist, each once."""
    found = []
    for kind, key in list(dict.fromkeys(named))[:MOST_LINKS]:
        try:
            found.append(EntryLink(kind, key, _BEGINNINGS[kind](visit, key)))
        except (NotFound, InvalidInput):
            continue
    return tuple(found)


def _record_beginning(visit: Visit, id: str) -> str:
    return snippet(text_of(visit.space.records.get(id, as_of=visit.as_of).content), {})


def _thread_beginning(visit: Visit, id: str) -> str:
    return visit.space.threads.get(id, as_of=visit.as_of).title or "a thread without a title"


def _message_beginning(visit: Visit, id: str) -> str:
    [message] = visit.space.threads.around(id, before=0, after=0, as_of=visit.as_of)
    return snippet(message.entry.text if message.entry else "", {}) or f"a message of {message.role}"


def _file_beginning(visit: Visit, path: str) -> str:
    return visit.space.files.stat(path, as_of=visit.as_of).path


_BEGINNINGS: dict[str, Callable[[Visit, str], str]] = {
    RECORD: _record_beginning,
    THREAD: _thread_beginning,
    MESSAGE: _message_beginning,
    FILE: _file_beginning,
}


# Editing


@dataclass(frozen=True, slots=True)
class Draft:
    """A record that a person types, and the state that it was begun from; `0` if there was none."""

    id: str = ""
    type: str = "note"
    format: str = "text"
    content: str = ""
    source: str = "page"
    tags: str = ""
    confidence: str = "1"
    importance: str = ""
    seen: str = "0"

    @classmethod
    def of(cls, record: Record) -> Draft:
        is_text = isinstance(record.content, str)
        return cls(
            record.id,
            record.type,
            "text" if is_text else "json",
            cast("str", record.content) if is_text else as_json(record.content),
            record.source,
            " ".join(record.tags),
            f"{record.confidence:g}",
            "" if record.importance is None else f"{record.importance:g}",
            seen_of(record),
        )

    def fields(self) -> dict[str, Any]:
        """What is saved; raises InvalidInput for what cannot be read."""
        return {
            "type": self.type,
            "content": _parsed(self.content) if self.format == "json" else self.content,
            "source": self.source,
            "tags": split_tags(self.tags),
            "confidence": _fraction("confidence", self.confidence),
            "importance": _fraction("importance", self.importance) if self.importance else None,
        }


@router.get(f"{RECORDS}/new", include_in_schema=False)
def new_record(visit: VisitOf) -> Response:
    return visit.render("edit_record.html", draft=Draft(), present=None, is_conflict=False, problem="")


@router.get(f"{RECORDS}/edit", include_in_schema=False)
def edit_record(visit: VisitOf) -> Response:
    _, id = visit.opened
    draft = Draft.of(visit.space.records.get(id))
    return visit.render("edit_record.html", draft=draft, present=None, is_conflict=False, problem="")


@router.post(f"{RECORDS}/save", include_in_schema=False)
def save_record(visit: VisitOf) -> Response:
    names = ("id", "type", "format", "content", "source", "tags", "confidence", "importance", "seen")
    draft = Draft(*(visit.field(name) for name in names))
    revision, updated_at = parse_seen(draft.seen)
    try:
        saved = _saved(visit, draft, (revision, updated_at))
    except (Outdated, NotFound):
        return _conflict(visit, draft)
    except InvalidInput as problem:
        return visit.render("edit_record.html", 422, draft=draft, present=None, is_conflict=False, problem=str(problem))
    commit = None
    if (saved.id, saved.revision) != (draft.id, revision):  # else it is as it was
        commit = visit.space.state(RECORD, saved.id, saved.revision).commit
    return visit.done("saved" if revision else "created", commit, RECORDS, open=f"record:{saved.id}")


def _saved(visit: Visit, draft: Draft, seen: tuple[int, int]) -> Record:
    fields = draft.fields()
    if not seen[0]:
        return visit.space.records.create(**fields, id=draft.id or None)
    present = visit.space.records.get(draft.id)
    if replace(shown := Draft.of(present), content=shown.content.replace("\r\n", "\n")) == draft:
        return present
    if isinstance(present.content, str) and isinstance(fields["content"], str):
        fields["content"] = with_line_ends_of(present.content, fields["content"])
    return visit.space.expecting(RECORD, draft.id, seen).records.update(draft.id, **fields)


def _conflict(visit: Visit, draft: Draft) -> Response:
    """Both records, what was typed still in the form. Sending it once more replaces the one that is shown beside it."""
    try:
        present = visit.space.records.get(draft.id)
    except NotFound:
        present = None
    typed = replace(draft, seen="0" if present is None else seen_of(present))
    shown = None if present is None else Draft.of(present)
    return visit.render("edit_record.html", 409, draft=typed, present=shown, is_conflict=True, problem="")


@router.post(f"{RECORDS}/delete", include_in_schema=False)
def delete_record(visit: VisitOf) -> Response:
    id = visit.field("id")
    try:
        commit = visit.space.expecting(RECORD, id, parse_seen(visit.field("seen"))).records.delete(id)
    except Outdated:
        return changed_meanwhile(visit, f"{RECORDS}/delete", RECORD, "id")
    return visit.done("deleted", commit, RECORDS)


# What is typed


def split_tags(written: str) -> list[str]:
    """Tags that are separated by spaces or commas."""
    return written.replace(",", " ").split()


def as_json(value: JSON) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, default=dict)


def _parsed(written: str) -> JSON:
    try:
        return cast("JSON", json.loads(written))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the content is not JSON: {error}; correct it, or save it as a text") from error


def _fraction(name: str, written: str) -> float:
    try:
        found = float(written)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 1:
        raise InvalidInput(f"{name} must be a number between 0 and 1, such as 0.8")
    return found
