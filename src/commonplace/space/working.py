"""Working memory: what an agent keeps in mind of a resource, across all its threads, or of one thread.

It is Markdown text, which is replaced, or data, which is merged: two updates at once both survive. What an update
loses, history keeps. With a schema, data that would not fit it after the merge is refused, and nothing changes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, cast

from commonplace.checks import JSON, check_number, check_text
from commonplace.entry import SEPARATOR, Draft, Entry, Revision
from commonplace.errors import Conflict, InvalidInput, Outdated
from commonplace.filters import equal
from commonplace.limits import Limits
from commonplace.space.conversation import check_id, check_object, check_owner, check_size, find_thread
from commonplace.space.handle import Handle
from commonplace.space.keys import THREAD, WORKING
from commonplace.space.message_text import CLOSING, OPENING
from commonplace.space.schemas import Schema, SchemaSource, schema_of
from commonplace.space.times import moment
from commonplace.store import Transaction

Scope = Literal["resource", "thread"]
EMPTIED = "Attempted to replace existing working memory with empty template. Update skipped to prevent data loss."

_EMPTY_LABEL = re.compile(r"[^:]{0,200}:[*_\s]*")
"""Such as `- **Name**:` and `Facts:`, with nothing after it."""

_NO_CLOSING = "<\\/"
"""Stands for `</`: JSON reads it so."""


@dataclass(frozen=True, slots=True)
class WorkingMemory:
    """The present state: a text, or data."""

    scope: Scope
    id: str
    content: str | Mapping[str, JSON]
    revision: int
    updated_at: datetime


class WorkingMemories:
    """The working memories of one namespace. Without a thread, a resource's; without either, the default resource's."""

    def __init__(self, handle: Handle, limits: Limits) -> None:
        self._handle = handle
        self._limits = limits

    def read(self, *, resource: str | None = None, thread: str | None = None) -> WorkingMemory | None:
        """The working memory, or None where there is none yet."""
        if thread is not None:
            find_thread(self._handle.get, thread, resource)
        entry = self._handle.get(WORKING, self._key(resource, thread))
        return None if entry is None else _working_of(entry)

    def write(
        self,
        content: str | Mapping[str, JSON],
        *,
        resource: str | None = None,
        thread: str | None = None,
        template: str | Mapping[str, JSON] | None = None,
        schema: SchemaSource | None = None,
        revision: int | None = None,
    ) -> WorkingMemory:
        """Replace the text, or merge data into the data: null deletes, lists are replaced, what is omitted stays.

        Neither the empty `template`, nor a text without any data, nor an update that empties every field of a `schema`
        that has several, or takes each to its default, replaces what is there. A schema is a JSON Schema or a pydantic
        model; what the merge makes must fit.
        With a `revision`, 0 being that of none, it is written only while that is the present one; else Outdated.
        """
        key = self._key(resource, thread)
        update = self._check(content)
        rules = schema_of(schema)
        if revision is not None:
            check_number("revision", revision)
        if rules is not None and isinstance(update, str):
            raise InvalidInput("this working memory has a schema: send an object with the fields to change, no text")

        def work(transaction: Transaction) -> Entry:
            owner = resource or self._handle.namespace[-1]
            if thread is not None:
                owner = cast(str, find_thread(transaction.get, thread, resource).attributes["resourceId"])
            entry = transaction.get(WORKING, key)
            found = 0 if entry is None else entry.revision
            if revision is not None and found != revision:
                raise Outdated(f"the working memory is at revision {found} by now; read it again, then decide", found)
            new: str | Mapping[str, JSON] = update if isinstance(update, str) else merged({}, update)
            if entry is not None:
                new = self._next(cast("str | Mapping[str, JSON]", entry.value), update, template, rules)
                if equal(new, entry.value):
                    return entry
            if rules is not None:
                rules.check("working memory", check_object("working memory", new, self._limits.metadata_bytes))
            check_size("working memory", new, self._limits.metadata_bytes)
            attributes: dict[str, JSON] = {"resourceId": owner, "threadId": thread}
            # Not searched: the whole of it stands in every prompt.
            return transaction.put(Draft(WORKING, key, new, text="", attributes=attributes))

        return _working_of(self._handle.write(work)[0])

    def clear(self, *, resource: str | None = None, thread: str | None = None) -> int | None:
        """Forget on purpose; the commit that `Space.undo` takes back, or None where there was nothing."""

        def work(transaction: Transaction) -> None:
            if thread is not None:
                find_thread(transaction.get, thread, resource)
            transaction.delete(WORKING, self._key(resource, thread))

        return self._handle.write(work, "delete")[1]

    def history(self, *, resource: str | None = None, thread: str | None = None) -> list[Revision]:
        """Every revision, oldest first, deletions included; also those of a thread that is gone."""
        owned = None if thread is None else self._handle.get(THREAD, check_id("thread", thread))
        if owned is not None:
            check_owner(owned.key, cast(str, owned.attributes["resourceId"]), resource)
        return self._handle.store.history(self._handle.namespace, WORKING, self._key(resource, thread))

    def _key(self, resource: str | None, thread: str | None) -> str:
        if thread is not None:
            return thread_key(check_id("thread", thread))
        owner = self._handle.namespace[-1] if resource is None else check_id("resource", resource)
        return f"resource{SEPARATOR}{owner}"

    def _check(self, content: object) -> str | dict[str, JSON]:
        if isinstance(content, str):
            return check_text("working memory", content, max_bytes=self._limits.metadata_bytes)
        if isinstance(content, Mapping):
            return check_object("working memory", content, self._limits.metadata_bytes)
        raise InvalidInput(f"working memory must be a text or an object, not {type(content).__name__}")

    def _next(
        self,
        present: str | Mapping[str, JSON],
        update: str | Mapping[str, JSON],
        template: str | Mapping[str, JSON] | None,
        schema: Schema | None,
    ) -> str | Mapping[str, JSON]:
        if isinstance(present, str) and isinstance(update, str):
            if _would_empty(present, update, template):
                raise Conflict(EMPTIED)
            return update
        if isinstance(present, str) or isinstance(update, str):
            kinds = ("a text", "data") if isinstance(present, str) else ("data", "a text")
            raise Conflict(
                f"the working memory is {kinds[0]} and cannot become {kinds[1]}; write {kinds[0]}, or clear it first"
            )
        new = merged(present, update)
        is_template = isinstance(template, Mapping) and equal(update, template)
        empties = schema is not None and schema.is_empty_template(update) and schema.says_something(present)
        if present and not equal(new, present) and (is_template or empties):
            raise Conflict(EMPTIED)
        return new


def thread_key(thread_id: str) -> str:
    return f"thread{SEPARATOR}{thread_id}"


def merged(present: Mapping[str, JSON], update: Mapping[str, JSON]) -> dict[str, JSON]:
    """A deep merge (RFC 7396): null deletes, lists and plain values are replaced, what is omitted stays."""
    result = dict(present)
    for name, value in update.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, Mapping):
            below = result.get(name)
            result[name] = merged(below if isinstance(below, Mapping) else {}, value)
        else:
            result[name] = value
    return result


def holds_data(text: str, template: str | Mapping[str, JSON] | None = None) -> bool:
    """Whether a Markdown text says anything: more than headings and labels without values, and not the template."""
    return not _is_empty(text, template) and any(_says_something(line.strip()) for line in text.splitlines())


def _says_something(line: str) -> bool:
    if line.startswith("#") and ":" not in line:
        return False
    return bool(line.strip("-=*+_` ")) and not _EMPTY_LABEL.fullmatch(line)


def _is_empty(text: str, template: str | Mapping[str, JSON] | None) -> bool:
    """Whether a text is blank or the template itself."""
    words = text.split()
    return not words or (isinstance(template, str) and words == template.split())


def _would_empty(present: str, update: str, template: str | Mapping[str, JSON] | None) -> bool:
    # A heading may be all that somebody wrote: what is empty beyond doubt replaces not even that.
    if _is_empty(update, template):
        return not _is_empty(present, template)
    return holds_data(present, template) and not holds_data(update, template)


def _working_of(entry: Entry) -> WorkingMemory:
    scope, _, id = entry.key.partition(SEPARATOR)
    return WorkingMemory(
        scope=cast(Scope, scope),
        id=id,
        content=cast("str | Mapping[str, JSON]", entry.value),
        revision=entry.revision,
        updated_at=moment(entry.updated_at),
    )


def state_text(content: str | Mapping[str, JSON]) -> str:
    """A state for a prompt, between the tags that no saved message keeps; nothing in it can close them."""
    if isinstance(content, str):
        written = content.strip()
    else:
        written = json.dumps(content, ensure_ascii=False, indent=2, default=dict)
    return f"{OPENING}\n{written.replace('</', _NO_CLOSING)}\n{CLOSING}"
