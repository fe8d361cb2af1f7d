"""Working memory: what an agent keeps in mind of a resource, across all its threads, or of one thread.

It is Markdown text, which is replaced, or data, which is merged: two updates at once both survive. What an update
loses, history keeps. Whether data fits a schema is for the caller to check.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, cast

from commonplace.checks import JSON, check_text
from commonplace.entry import SEPARATOR, Draft, Entry, Revision
from commonplace.errors import Conflict, InvalidInput
from commonplace.filters import equal
from commonplace.limits import Limits
from commonplace.space.conversation import check_id, check_object, check_size, find_thread
from commonplace.space.handle import Handle
from commonplace.space.keys import WORKING
from commonplace.space.times import moment
from commonplace.store import Transaction

Scope = Literal["resource", "thread"]
EMPTIED = "Attempted to replace existing working memory with empty template. Update skipped to prevent data loss."

_EMPTY_LABEL = re.compile(r"[^:]{0,200}:[*_\s]*")
"""Such as `- **Name**:` and `Facts:`, with nothing after it."""


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
    ) -> WorkingMemory:
        """Replace the text, or merge data into the data: null deletes, lists are replaced, what is omitted stays.

        Neither the empty `template` nor a text without any data replaces what is there.
        """
        key = self._key(resource, thread)
        update = self._check(content)

        def work(transaction: Transaction) -> Entry:
            owner = resource or self._handle.namespace[-1]
            if thread is not None:
                owner = cast(str, find_thread(transaction.get, thread, resource).attributes["resourceId"])
            entry = transaction.get(WORKING, key)
            new: str | Mapping[str, JSON] = update if isinstance(update, str) else merged({}, update)
            if entry is not None:
                new = self._next(cast("str | Mapping[str, JSON]", entry.value), update, template)
                if equal(new, entry.value):
                    return entry
            check_size("working memory", new, self._limits.message_bytes)
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

        return self._handle.write(work)[1]

    def history(self, *, resource: str | None = None, thread: str | None = None) -> list[Revision]:
        """Every revision, oldest first, deletions included."""
        return self._handle.store.history(self._handle.namespace, WORKING, self._key(resource, thread))

    def _key(self, resource: str | None, thread: str | None) -> str:
        if thread is not None:
            return thread_key(check_id("thread", thread))
        owner = self._handle.namespace[-1] if resource is None else check_id("resource", resource)
        return f"resource{SEPARATOR}{owner}"

    def _check(self, content: object) -> str | dict[str, JSON]:
        if isinstance(content, str):
            return check_text("working memory", content, max_bytes=self._limits.message_bytes)
        if isinstance(content, Mapping):
            return check_object("working memory", content, self._limits.message_bytes)
        raise InvalidInput(f"working memory must be a text or an object, not {type(content).__name__}")

    def _next(
        self,
        present: str | Mapping[str, JSON],
        update: str | Mapping[str, JSON],
        template: str | Mapping[str, JSON] | None,
    ) -> str | Mapping[str, JSON]:
        if isinstance(present, str) and isinstance(update, str):
            if holds_data(present, template) and not holds_data(update, template):
                raise Conflict(EMPTIED)
            return update
        if isinstance(present, str) or isinstance(update, str):
            kinds = ("a text", "data") if isinstance(present, str) else ("data", "a text")
            raise Conflict(
                f"the working memory is {kinds[0]} and cannot become {kinds[1]}; write {kinds[0]}, or clear it first"
            )
        if present and isinstance(template, Mapping) and equal(update, template):
            raise Conflict(EMPTIED)
        return merged(present, update)


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
    if isinstance(template, str) and text.split() == template.split():
        return False
    return any(_says_something(line.strip()) for line in text.splitlines())


def _says_something(line: str) -> bool:
    return bool(line.strip("-=*+_` ")) and not line.startswith("#") and not _EMPTY_LABEL.fullmatch(line)


def _working_of(entry: Entry) -> WorkingMemory:
    scope, _, id = entry.key.partition(SEPARATOR)
    return WorkingMemory(
        scope=cast(Scope, scope),
        id=id,
        content=cast("str | Mapping[str, JSON]", entry.value),
        revision=entry.revision,
        updated_at=moment(entry.updated_at),
    )
