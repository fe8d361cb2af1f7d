"""The working memories of a namespace of a service.

A schema is checked here, on this side: its patterns run in Python's `re`, and a service runs nobody's but its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from commonplace.checks import JSON
from commonplace.entry import Revision
from commonplace.errors import Conflict, InvalidInput, Outdated
from commonplace.remote.caller import Caller
from commonplace.space.conversation import check_id, check_object
from commonplace.space.working_memory import Schema, SchemaSource, WorkingMemories, WorkingMemory, merged, schema_of
from commonplace.wire.forms import thing_of

MAX_WRITES = 100
"""How often a write is made anew because somebody else was quicker."""

PAGE = 1_000


class RemoteWorkingMemories(WorkingMemories):
    """`WorkingMemories` of a service."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._limits = caller.limits

    def read(self, *, resource: str | None = None, thread: str | None = None) -> WorkingMemory | None:
        form = self._caller.read("/working-memory", _whose(resource, thread))["working_memory"]
        return None if form is None else thing_of(WorkingMemory, form)

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
        update = self._check(content)
        rules = schema_of(schema)
        body = {"content": update, "template": template, "revision": revision}
        query = _whose(resource, thread)
        if rules is None:
            return _made(self._caller, query, body)
        if isinstance(update, str):
            raise InvalidInput("this working memory has a schema: send an object with the fields to change, no text")
        for _ in range(MAX_WRITES):
            present = self.read(resource=resource, thread=thread)
            self._check_fit(present, update, template, rules)
            seen = _revision(present) if revision is None else revision
            try:
                return _made(self._caller, query, {**body, "revision": seen})
            except Outdated:
                if revision is not None:
                    raise
                # While the memory is as it was, it is another entry that is not as expected.
                if self._caller.expected and _revision(self.read(resource=resource, thread=thread)) == seen:
                    raise
        raise Conflict(f"the working memory was changed by others {MAX_WRITES} times meanwhile; try again later")

    def _check_fit(self, present: WorkingMemory | None, update: dict[str, JSON], template: Any, rules: Schema) -> None:
        """Refuse what would not fit the schema after the merge, as the library does inside its write."""
        new: Any = merged({}, update) if present is None else self._next(present.content, update, template, rules)
        rules.check("working memory", check_object("working memory", new, self._limits.metadata_bytes))

    def clear(self, *, resource: str | None = None, thread: str | None = None) -> int | None:
        commit = self._caller.change("DELETE", "/working-memory", _whose(resource, thread))["commit"]
        return None if commit is None else int(commit)

    def history(self, *, resource: str | None = None, thread: str | None = None) -> list[Revision]:
        return all_revisions(self._caller, "/working-memory/history", _whose(resource, thread))


def _whose(resource: str | None, thread: str | None) -> dict[str, str | None]:
    return {
        "resource": None if resource is None else check_id("resource", resource),
        "thread": None if thread is None else check_id("thread", thread),
    }


def _revision(memory: WorkingMemory | None) -> int:
    return 0 if memory is None else memory.revision


def _made(caller: Caller, query: Mapping[str, Any], body: object) -> WorkingMemory:
    return thing_of(WorkingMemory, caller.make("PUT", "/working-memory", query, body))


def all_revisions(caller: Caller, path: str, query: Mapping[str, Any]) -> list[Revision]:
    """All pages of a history."""
    found: list[Revision] = []
    cursor: str | None = None
    while True:
        page = caller.read(path, {**query, "limit": PAGE, "cursor": cursor})
        found += [thing_of(Revision, form) for form in page["revisions"]]
        cursor = page["cursor"]
        if cursor is None:
            return found
