"""Threads: conversations as a chat with tool calls folded, and working memories as forms made from their schemas."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import Any, Literal, cast

from fastapi import APIRouter
from fastapi.responses import Response

from commonplace.checks import JSON
from commonplace.errors import Conflict, InvalidInput, NotFound, Outdated
from commonplace.filters import equal
from commonplace.server.http.sessions import PAGE_PATH
from commonplace.server.http.worker_threads import ThreadedRoute
from commonplace.server.page.records_screen import as_json
from commonplace.server.page.visit import Visit, VisitOf, own_address, parse_seen, with_done
from commonplace.space.message_text import message_parts
from commonplace.space.messages import Message
from commonplace.space.names import MESSAGE, THREAD, WORKING
from commonplace.space.working_memory import Schema, WorkingMemory, shape_of

THREADS = f"{PAGE_PATH}/threads"
PAGE_SIZE = 50
MESSAGES_SHOWN = 50
"""How many messages of a thread are shown at once: the newest, or those before or after one of them."""

SHOWN_CHARACTERS = 3_000
"""How much of a part of a message is shown, unless the message is opened alone."""

LONG_TEXT = 80
"""A text of more characters gets a field of several lines."""

DEEPEST = 4
MOST_FIELDS = 500
router = APIRouter(route_class=ThreadedRoute)


# The list


@router.get(THREADS, include_in_schema=False)
def threads(visit: VisitOf) -> Response:
    kind, key = visit.opened
    if kind == WORKING:
        return _working_page(visit, key)
    if kind in (THREAD, MESSAGE):
        return _thread_page(visit, kind, key)
    page = visit.space.threads.list(limit=PAGE_SIZE, cursor=visit.param("cursor") or None, as_of=visit.as_of)
    counts = {} if visit.as_of else visit.space.threads.count_messages([thread.id for thread in page.threads])
    return visit.render(
        "threads.html",
        threads=page.threads,
        counts=counts,
        cursor=page.cursor,
        default_resource=visit.space.threads.default_resource,
    )


# A thread


@dataclass(frozen=True, slots=True)
class ShownPart:
    kind: str
    text: str
    name: str | None
    is_cut: bool


@dataclass(frozen=True, slots=True)
class ShownMessage:
    id: str
    role: str
    name: str | None
    created_at: datetime
    parts: tuple[ShownPart, ...]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Messages of a thread without gaps, and whether there are older and newer ones."""

    messages: tuple[Message, ...]
    has_older: bool
    has_newer: bool


def _thread_page(visit: Visit, kind: str, key: str, typed: str | None = None) -> Response:
    """A thread. `typed` is a title that could not be saved, because somebody else had changed it."""
    is_alone = kind == MESSAGE and visit.param("whole") == "1"
    stretch = _around(visit, key, 0 if is_alone else MESSAGES_SHOWN // 2) if kind == MESSAGE else _part(visit, key)
    thread_id = stretch.messages[0].thread_id if kind == MESSAGE else key
    thread = visit.space.threads.get(thread_id, as_of=visit.as_of)
    most = None if is_alone else SHOWN_CHARACTERS
    return visit.render(
        "thread.html",
        200 if typed is None else 409,
        thread=thread,
        typed=typed,
        stretch=stretch,
        messages=[_shown(message, most) for message in stretch.messages],
        opened=key if kind == MESSAGE else None,
        is_alone=is_alone,
        working=_working_form(visit, THREAD, thread_id),
        resource=thread.resource_id,
    )


def _part(visit: Visit, id: str) -> Stretch:
    """The messages before or after the one that the address names, or the newest of a thread."""
    before, after = visit.param("before"), visit.param("after")
    found = _beside(visit, before or after, bool(before)) if before or after else None
    if found is not None and found.messages and found.messages[0].thread_id == id:
        return found
    newest = visit.space.threads.messages(id, last=MESSAGES_SHOWN + 1, as_of=visit.as_of).messages
    return Stretch(newest[-MESSAGES_SHOWN:], len(newest) > MESSAGES_SHOWN, has_newer=False)


def _beside(visit: Visit, id: str, is_before: bool) -> Stretch | None:
    """The messages right before or after one; None if that does not exist any more."""
    most = MESSAGES_SHOWN + 1
    try:
        found = visit.space.threads.around(
            id, before=most if is_before else 0, after=0 if is_before else most, as_of=visit.as_of
        )
    except NotFound:
        return None
    if is_before:
        return Stretch(found[:-1][-MESSAGES_SHOWN:], len(found) > most, has_newer=True)
    return Stretch(found[1:][:MESSAGES_SHOWN], has_older=True, has_newer=len(found) > most)


def _around(visit: Visit, id: str, side: int) -> Stretch:
    """A message with those around it."""
    found = visit.space.threads.around(id, before=side + 1, after=side + 1, as_of=visit.as_of)
    place = next(number for number, message in enumerate(found) if message.id == id)
    first, stop = max(place - side, 0), place + side + 1
    return Stretch(found[first:stop], first > 0, stop < len(found))


def _shown(message: Message, most: int | None) -> ShownMessage:
    assert message.entry is not None
    name = message.extra.get("name")
    return ShownMessage(
        message.id,
        message.role,
        name if isinstance(name, str) and message.role not in ("tool", "function") else None,
        message.created_at,
        tuple(
            ShownPart(part.kind, part.text[:most], part.name, most is not None and len(part.text) > most)
            for part in message_parts(cast("Mapping[str, JSON]", message.entry.value))
        ),
    )


@router.post(f"{THREADS}/rename", include_in_schema=False)
def rename_thread(visit: VisitOf) -> Response:
    id, title = visit.field("id"), visit.field("title").strip()
    revision, _ = parse_seen(visit.field("seen"))
    try:
        # A new message updates a thread without a new revision, and does not touch its title.
        thread = visit.space.expecting(THREAD, id, revision).threads.update(id, title=title or None)
    except Outdated:
        return _thread_page(visit, THREAD, id, typed=title)
    commit = None if thread.revision == revision else visit.space.state(THREAD, id, thread.revision).commit
    return visit.done("saved", commit, THREADS, open=f"thread:{id}")


@router.post(f"{THREADS}/delete", include_in_schema=False)
def delete_thread(visit: VisitOf) -> Response:
    return visit.done("deleted", visit.space.threads.delete(visit.field("id")), THREADS)


@router.post(f"{THREADS}/delete-message", include_in_schema=False)
def delete_message(visit: VisitOf) -> Response:
    id = visit.field("message")
    commit = visit.space.threads.delete_messages([id])
    if commit is None:
        raise NotFound(f"there is no message {id}; it was deleted already")
    return visit.redirect(with_done(own_address(visit.field("back"), THREADS), "deleted", commit))


# Working memory


FieldKind = Literal["text", "long", "number", "whole", "yesno", "choice", "lines", "json", "group"]


@dataclass(frozen=True, slots=True)
class FormField:
    """A field of the form of a working memory. `path` leads to it, `written` is what the form shows."""

    path: tuple[str, ...]
    kind: FieldKind
    label: str
    about: str = ""
    stored: JSON = None
    written: str = ""
    choices: tuple[str, ...] = ()
    fields: tuple[FormField, ...] = ()

    @property
    def name(self) -> str:
        return "field " + json.dumps(self.path, ensure_ascii=False)

    @property
    def element(self) -> str:
        """The id of its element."""
        return "f-" + sha256(self.name.encode()).hexdigest()[:16]

    @property
    def options(self) -> tuple[tuple[str, str], ...]:
        """The values that can be chosen, and what they are called."""
        if self.kind == "yesno":
            return (("true", "yes"), ("false", "no"))
        return tuple((choice, choice) for choice in self.choices)

    def leaves(self) -> Iterator[FormField]:
        if self.kind != "group":
            yield self
        for field in self.fields:
            yield from field.leaves()

    def filled(self, visit: Visit) -> FormField:
        """This field as it was sent."""
        fields = tuple(field.filled(visit) for field in self.fields)
        return replace(self, written=visit.field(self.name, self.written), fields=fields)

    def parsed(self) -> JSON:
        """What was typed, as a value; None if the field is empty."""
        if not self.written.strip():
            return None
        read, wanted = _READERS[self.kind]
        try:
            return read(self.written)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"{self.label} must be {wanted}; correct it and save again") from error


def _lines(written: str) -> JSON:
    return [line.strip() for line in written.split("\n") if line.strip()]


def _number(written: str) -> JSON:
    value = json.loads(written)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("not a number")
    return value


def _yes_or_no(written: str) -> JSON:
    if written not in ("true", "false"):
        raise ValueError("neither yes nor no")
    return written == "true"


_READERS: Mapping[str, tuple[Callable[[str], JSON], str]] = {
    "text": (str, "a text"),
    "long": (str, "a text"),
    "choice": (str, "one of the choices"),
    "lines": (_lines, "a line for each item"),
    "number": (_number, "a number"),
    "whole": (int, "a whole number"),
    "yesno": (_yes_or_no, "yes or no"),
    "json": (json.loads, "JSON"),
}
_TYPES: tuple[tuple[str, type | tuple[type, ...]], ...] = (
    ("boolean", bool),
    ("string", str),
    ("integer", int),
    ("number", (int, float)),
    ("array", list),
    ("object", dict),
)


def form_fields(schema: Mapping[str, JSON], content: Mapping[str, JSON]) -> tuple[FormField, ...]:
    """The fields of a schema, then those that only the content has. A part without a form of its own is JSON."""
    return _fields(schema, shape_of(schema, schema), content, (), [MOST_FIELDS])


def _fields(
    schema: Mapping[str, JSON],
    shape: Mapping[str, JSON],
    content: Mapping[str, JSON],
    path: tuple[str, ...],
    left: list[int],
) -> tuple[FormField, ...]:
    """`left` is how many fields the form may still get: a schema that refers to itself has any number of them."""
    found = shape.get("properties")
    known = found if isinstance(found, Mapping) else {}
    made = []
    for name in (*known, *(name for name in content if name not in known)):
        left[0] -= 1
        if left[0] < 0:
            break
        made.append(_field(schema, shape_of(schema, known.get(name)), content.get(name), (*path, name), left))
    return tuple(made)


def _field(
    schema: Mapping[str, JSON], shape: Mapping[str, JSON], value: JSON, path: tuple[str, ...], left: list[int]
) -> FormField:
    kind = _kind_of(shape, value, len(path))
    title, about = shape.get("title"), shape.get("description")
    field = FormField(
        path,
        kind,
        title if isinstance(title, str) and title else path[-1],
        about if isinstance(about, str) else "",
        value,
    )
    if kind == "group":
        below = cast("Mapping[str, JSON]", value or {})
        return replace(field, fields=_fields(schema, shape, below, path, left))
    if kind == "choice":
        field = replace(field, choices=tuple(cast("list[str]", shape["enum"])))
    return replace(field, written=_written(kind, value))


def _kind_of(shape: Mapping[str, JSON], value: JSON, depth: int) -> FieldKind:
    """How to show a value. One that does not fit its schema is shown as JSON."""
    types = shape.get("type")
    named = [one for one in types if one != "null"] if isinstance(types, list) else [types] if types else []
    actual = next((name for name, python in _TYPES if isinstance(value, python)), None)
    wanted = named[0] if len(named) == 1 else actual if not named else None
    if actual not in (None, wanted) and (actual, wanted) != ("integer", "number"):
        return "json"
    choices = shape.get("enum")
    if isinstance(choices, list) and choices:
        is_plain = all(isinstance(one, str) for one in choices) and (value is None or value in choices)
        return "choice" if is_plain else "json"
    if wanted == "string":
        return "long" if isinstance(value, str) and (len(value) > LONG_TEXT or "\n" in value) else "text"
    if wanted == "array":
        return "lines" if _is_list_of_lines(shape, value) else "json"
    if wanted == "object":
        has_fields = isinstance(shape.get("properties"), Mapping) or bool(value)
        return "group" if has_fields and depth < DEEPEST else "json"
    plain: Mapping[JSON, FieldKind] = {"boolean": "yesno", "integer": "whole", "number": "number"}
    return plain.get(wanted, "json")


def _is_list_of_lines(shape: Mapping[str, JSON], value: JSON) -> bool:
    items = shape.get("items")
    if value is None:
        return isinstance(items, Mapping) and items.get("type") == "string"
    return all(
        isinstance(item, str) and item == item.strip() != "" and "\n" not in item for item in cast("list[JSON]", value)
    )


def _written(kind: FieldKind, value: JSON) -> str:
    if value is None:
        return ""
    if kind == "lines":
        return "\n".join(cast("list[str]", value))
    return value if isinstance(value, str) and kind != "json" else as_json(value)


@dataclass(frozen=True, slots=True)
class WorkingForm:
    """A working memory in a form: a text, or fields. `stored` is what somebody else has written meanwhile."""

    scope: str
    id: str
    memory: WorkingMemory | None
    text: str | None
    fields: tuple[FormField, ...] = ()
    more: str = ""
    problem: str = ""
    stored: str | None = None

    @property
    def revision(self) -> int:
        return 0 if self.memory is None else self.memory.revision

    def update(self) -> str | dict[str, JSON]:
        """What is written: the text, or the fields that were changed; an emptied one is null."""
        if self.text is not None:
            return self.text
        more = FormField((), "json", "More fields", written=self.more).parsed() or {}
        if not isinstance(more, dict):
            raise InvalidInput('More fields must be a JSON object, such as {"name": "Ana"}')
        changed: dict[str, JSON] = {}
        for field in (leaf for top in self.fields for leaf in top.leaves()):
            value = field.parsed()
            if not equal(value, field.stored):
                place = changed
                for name in field.path[:-1]:
                    if place.get(name) is None:
                        place[name] = {}
                    place = _fields_below(place, name)
                place[field.path[-1]] = value
        return {**changed, **more}


def _fields_below(place: dict[str, JSON], name: str) -> dict[str, JSON]:
    below = place[name]
    if not isinstance(below, dict):
        raise InvalidInput(f"{name} has a value and fields of its own; empty one of them and save again")
    return below


def _working_form(visit: Visit, scope: str, id: str) -> WorkingForm:
    memory = visit.space.threads.working.read(**_owner(scope, id), as_of=visit.as_of)
    if memory is None or isinstance(memory.content, str):
        return WorkingForm(scope, id, memory, "" if memory is None else cast("str", memory.content))
    return WorkingForm(scope, id, memory, None, form_fields(memory.schema or {}, memory.content))


def _owner(scope: str, id: str) -> dict[str, Any]:
    if scope not in (THREAD, "resource") or not id:
        raise InvalidInput("a working memory belongs to a thread or a resource: open=working:thread/ID")
    return {"thread": id} if scope == THREAD else {"resource": id}


def _working_page(visit: Visit, key: str) -> Response:
    scope, _, id = key.partition("/")
    return visit.render("working.html", working=_working_form(visit, scope, id))


@router.post(f"{THREADS}/working", include_in_schema=False)
def save_working(visit: VisitOf) -> Response:
    scope, id = visit.field("scope"), visit.field("id")
    revision, _ = parse_seen(visit.field("seen"))
    form = _working_form(visit, scope, id)
    is_text = visit.field("form") == "text"
    typed = replace(
        form,
        text=visit.field("text") if is_text else None,
        fields=() if is_text else (*(field.filled(visit) for field in form.fields), *_unknown_fields(visit, form)),
        more=visit.field("more"),
    )
    try:
        if form.revision != revision:
            raise Outdated("the working memory was changed meanwhile", form.revision)
        schema = None if is_text or form.memory is None else form.memory.schema
        saved = visit.space.threads.working.write(
            typed.update(),
            **_owner(scope, id),
            schema=None if schema is None else Schema(schema, with_patterns=False),
            revision=revision,
        )
    except Outdated:
        return _working_conflict(visit, typed)
    except (InvalidInput, Conflict) as problem:
        status = 422 if isinstance(problem, InvalidInput) else 409
        return visit.render("working.html", status, working=replace(typed, problem=str(problem)))
    key = f"{scope}/{id}"
    commit = None if saved.revision == revision else visit.space.state(WORKING, key, saved.revision).commit
    return visit.redirect(with_done(_back(visit, key), "saved", commit))


def _unknown_fields(visit: Visit, form: WorkingForm) -> Iterator[FormField]:
    """Fields that were sent and that the stored memory no longer has: what was typed is not lost."""
    known = {leaf.name for field in form.fields for leaf in field.leaves()}
    for name in visit.form:
        if name.startswith("field ") and name not in known and visit.field(name):
            try:
                path = json.loads(name.removeprefix("field "))
            except (ValueError, RecursionError):
                continue
            if isinstance(path, list) and path and all(isinstance(step, str) for step in path):
                yield FormField(tuple(path), "long", path[-1], written=visit.field(name))


def _working_conflict(visit: Visit, typed: WorkingForm) -> Response:
    present = typed.memory
    stored = (
        "" if present is None else present.content if isinstance(present.content, str) else as_json(present.content)
    )
    return visit.render("working.html", 409, working=replace(typed, stored=stored))


@router.post(f"{THREADS}/clear-working", include_in_schema=False)
def clear_working(visit: VisitOf) -> Response:
    scope, id = visit.field("scope"), visit.field("id")
    commit = visit.space.threads.working.clear(**_owner(scope, id))
    return visit.redirect(with_done(_back(visit, f"{scope}/{id}"), "deleted", commit))


def _back(visit: Visit, key: str) -> str:
    return own_address(visit.field("back"), visit.entry_url(WORKING, key))
