"""Working memory: what an agent remembers about a resource, across all its threads, or about one thread.

It is a Markdown text, which an update replaces, or an object, which an update is merged into, so that two updates at
the same time both survive. History keeps what an update removes. With a JSON Schema, an update whose result does not
fit is refused and changes nothing.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, partial
from itertools import islice
from typing import Any, Literal, TypeAlias, cast

from commonplace.checks import JSON, Limits, check_number, check_text, microseconds, moment
from commonplace.entry import SEPARATOR, STAYS, Draft, Entry, Revision
from commonplace.errors import CommonplaceError, Conflict, InvalidInput, Outdated
from commonplace.filters import equal
from commonplace.space.conversation import check_id, check_object, check_owner, check_size, find_thread
from commonplace.space.handle import Handle, awaited
from commonplace.space.message_text import CLOSING, OPENING
from commonplace.space.names import THREAD, WORKING
from commonplace.space.records import canonical
from commonplace.store import Transaction

Scope = Literal["resource", "thread"]
SchemaSource: TypeAlias = "Schema | Mapping[str, Any] | type[Any]"
EMPTIED = "Attempted to replace existing working memory with empty template. Update skipped to prevent data loss."

_EMPTY_LABEL = re.compile(r"[^:]{0,200}:[*_\s]*")
"""A label without a value, such as `- **Name**:` or `Facts:`."""

_NO_CLOSING = "<\\/"
"""Replaces `</`; JSON reads both alike."""

MAX_SCHEMA_BYTES = 100_000
MAX_REFERENCES = 10_000
"""How many references one check may follow; a schema of 2 kB can have 2³⁰ of them to follow."""

MAX_DETOURS = 20
MAX_PROBLEMS = 5
MAX_PROBLEM_CHARACTERS = 200
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_UNEVALUATED = {"unevaluatedProperties": "additionalProperties", "unevaluatedItems": "items"}
"""Refused keywords, with what to use instead: jsonschema takes exponential time for them, past any counter."""

_DATA = ("const", "enum", "default", "examples")
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
"""Keywords whose values map arbitrary names to schemas."""

_left = threading.local()
"""How many references the current check may still follow."""


@dataclass(frozen=True, slots=True)
class WorkingMemory:
    """A working memory: a text or an object."""

    scope: Scope
    id: str
    content: str | Mapping[str, JSON]
    revision: int
    updated_at: datetime
    schema: Mapping[str, JSON] | None = field(default=None, compare=False, repr=False, metadata={STAYS: True})
    """The JSON Schema that it was last written with, if any. A client of a service checks schemas itself."""


class WorkingMemories:
    """The working memories of one namespace: of a thread, of a resource, or by default of the default resource."""

    def __init__(self, handle: Handle, limits: Limits) -> None:
        self._handle = handle
        self._limits = limits

    def read(
        self, *, resource: str | None = None, thread: str | None = None, as_of: datetime | str | None = None
    ) -> WorkingMemory | None:
        """The working memory, or None if nothing was written yet; with `as_of`, that of a time."""
        get = partial(self._handle.get, as_of=microseconds("as_of", as_of))
        if thread is not None:
            find_thread(get, thread, resource)
        entry = get(WORKING, self._key(resource, thread))
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
        """Replace the text, or merge an object: null deletes a field, lists are replaced, omitted fields stay.

        An update that would delete everything is refused: the empty `template`, a text without any data, or an object
        that empties every field of a `schema`, or resets it to its default. A schema is a JSON Schema or a pydantic
        model; the result of the merge must fit. With a `revision`, 0 meaning none, Outdated is raised unless that is
        the current one.
        """
        key = self._key(resource, thread)
        update = self._check(content)
        rules = schema_of(schema)
        if revision is not None:
            check_number("revision", revision)
        if rules is not None and isinstance(update, str):
            raise InvalidInput("this working memory has a schema; send an object with the fields to change, not a text")

        def work(transaction: Transaction) -> Entry:
            owner = resource or self._handle.default_resource
            if thread is not None:
                owner = cast("str", find_thread(transaction.get, thread, resource).attributes["resourceId"])
            entry = transaction.get(WORKING, key)
            found = 0 if entry is None else entry.revision
            if revision is not None and found != revision:
                raise Outdated(f"the working memory is now at revision {found}; read it again, then decide", found)
            new: str | Mapping[str, JSON] = update if isinstance(update, str) else merged({}, update)
            if entry is not None:
                new = self._next(cast("str | Mapping[str, JSON]", entry.value), update, template, rules)
                if equal(new, entry.value):
                    return entry
            if rules is not None:
                rules.check("working memory", check_object("working memory", new, self._limits.metadata_bytes))
            check_size("working memory", new, self._limits.metadata_bytes)
            attributes: dict[str, JSON] = {"resourceId": owner, "threadId": thread}
            written = _kept_schema(entry) if rules is None else rules.written
            if written is not None and isinstance(new, Mapping):
                attributes["schema"] = written
            # Not searched: all of it is part of every prompt.
            return transaction.put(Draft(WORKING, key, new, text="", attributes=attributes))

        return _working_of(self._handle.write("WorkingMemories.write", work)[0])

    def clear(self, *, resource: str | None = None, thread: str | None = None) -> int | None:
        """Delete it; return the commit, for `Space.undo`, or None if there was nothing."""

        def work(transaction: Transaction) -> None:
            if thread is not None:
                find_thread(transaction.get, thread, resource)
            transaction.delete(WORKING, self._key(resource, thread))

        return self._handle.write("WorkingMemories.clear", work, "delete")[1]

    def history(self, *, resource: str | None = None, thread: str | None = None) -> list[Revision]:
        """Every revision, oldest first, with deletions; also those of a deleted thread."""
        owned = None if thread is None else self._handle.get(THREAD, check_id("thread", thread))
        if owned is not None:
            check_owner(owned.key, cast("str", owned.attributes["resourceId"]), resource)
        return self._handle.store.history(self._handle.namespace, WORKING, self._key(resource, thread))

    def _key(self, resource: str | None, thread: str | None) -> str:
        if thread is not None:
            return thread_key(check_id("thread", thread))
        owner = self._handle.default_resource if resource is None else check_id("resource", resource)
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
    """A deep merge (RFC 7396): null deletes, lists and plain values are replaced, omitted fields stay."""
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
    """Whether a Markdown text has any content besides headings and empty labels, and is not the template."""
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
    # A heading may be all that somebody wrote: a blank text, or the template, does not replace it either.
    if _is_empty(update, template):
        return not _is_empty(present, template)
    return holds_data(present, template) and not holds_data(update, template)


def _working_of(entry: Entry) -> WorkingMemory:
    scope, _, id = entry.key.partition(SEPARATOR)
    return WorkingMemory(
        scope=cast("Scope", scope),
        id=id,
        content=cast("str | Mapping[str, JSON]", entry.value),
        revision=entry.revision,
        updated_at=moment(entry.updated_at),
        schema=_kept_schema(entry),
    )


def _kept_schema(entry: Entry | None) -> Mapping[str, JSON] | None:
    found = None if entry is None else entry.attributes.get("schema")
    return found if isinstance(found, Mapping) else None


def state_text(content: str | Mapping[str, JSON]) -> str:
    """A working memory as text for a prompt, in tags that saved messages lose; its content cannot close them."""
    if isinstance(content, str):
        written = content.strip()
    else:
        written = json.dumps(content, ensure_ascii=False, indent=2, default=dict)
    return f"{OPENING}\n{written.replace('</', _NO_CLOSING)}\n{CLOSING}"


# Schemas. A schema is a JSON Schema object or a pydantic model class. Nothing is fetched: a reference that leaves the
# schema is refused, and a check follows a bounded number of references. Python's `re` runs the patterns, so accept a
# schema only from the program itself.


class Schema:
    """A checked schema; `written` is the JSON Schema. Apply one that comes from a book without its patterns."""

    def __init__(self, source: Mapping[str, Any] | type[Any], *, with_patterns: bool = True) -> None:
        self.written = check_object("schema", _json_of(source), MAX_SCHEMA_BYTES)
        _check_references(self.written)
        _check_keywords(self.written)
        self._applied = self.written if with_patterns else cast("dict[str, JSON]", _without_patterns(self.written))
        self._validator_class = _validator_class(self._applied)
        if self.written.get("type", "object") != "object":
            raise InvalidInput(f"a working memory is an object: its schema has the type {self.written['type']!r}")

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The names of the top-level fields."""
        return tuple(self._properties(self.written))

    def check(self, name: str, data: Mapping[str, JSON]) -> None:
        """Raise InvalidInput that names each field that does not fit."""
        from jsonschema.exceptions import best_match  # type: ignore[import-untyped]
        from referencing import Registry
        from referencing.exceptions import Unresolvable

        # With an empty registry it fetches nothing.
        validator = self._validator_class(self._applied, registry=Registry())
        _left.references = MAX_REFERENCES
        try:
            found = islice(validator.iter_errors(data), MAX_PROBLEMS)
            # If no alternative of a choice fits, report the one that comes closest.
            problems = [_worded(best_match([problem])) for problem in found]
        except Unresolvable as error:
            raise InvalidInput(f"the schema has an unresolvable reference: {error}; correct the schema") from error
        except RecursionError as error:
            raise InvalidInput("the schema refers to itself without end; correct the schema") from error
        except CommonplaceError:
            raise
        except Exception as error:
            # A reference to something else than a schema, or a float overflow, can raise anything.
            raise InvalidInput(f"the schema cannot be applied to this ({error!r:.200}); correct the schema") from error
        if problems:
            raise InvalidInput(f"{name} does not fit its schema: {'; '.join(sorted(problems))}")

    def is_empty_template(self, data: Mapping[str, JSON]) -> bool:
        """Whether data has every field of a schema with several fields, and all of them are empty."""
        return len(self.fields) > 1 and set(self.fields) <= data.keys() and not self.says_something(data)

    def says_something(self, data: Mapping[str, JSON]) -> bool:
        """Whether any field is neither empty nor at its default."""
        return self._tells(data, self.written)

    def _tells(self, value: JSON, part: JSON) -> bool:
        if isinstance(part, Mapping) and "default" in part and equal(value, part["default"]):
            return False
        if isinstance(value, Mapping):
            properties = self._properties(part)
            return any(self._tells(item, properties.get(name)) for name, item in value.items())
        if isinstance(value, str):
            return bool(value.strip())
        if isinstance(value, Iterable):
            return any(self._tells(item, None) for item in value)
        return value is not None

    def _properties(self, part: JSON) -> dict[str, JSON]:
        """The fields of a part of the schema, including those of its `$ref` and `allOf`."""
        found: dict[str, JSON] = {}
        followed: set[str] = set()
        waiting = [part]
        while waiting:
            part = waiting.pop()
            if not isinstance(part, Mapping):
                continue
            properties, target, several = part.get("properties"), part.get("$ref"), part.get("allOf")
            if isinstance(properties, Mapping):
                found.update({name: below for name, below in properties.items() if name not in found})
            if isinstance(several, list):
                waiting.extend(several)
            if isinstance(target, str) and target not in followed:
                followed.add(target)
                waiting.append(_at(self.written, target))
        return found


def schema_of(source: SchemaSource | None) -> Schema | None:
    """The schema that a caller gave, checked once."""
    return source if source is None or isinstance(source, Schema) else Schema(source)


def shape_of(schema: Mapping[str, JSON], part: JSON) -> Mapping[str, JSON]:
    """A part of a schema without its detours: references, and choices between one form and null."""
    for _ in range(MAX_DETOURS):
        if not isinstance(part, Mapping):
            return {}
        target = part.get("$ref")
        choices = [part[name] for name in ("anyOf", "oneOf", "allOf") if isinstance(part.get(name), list)]
        forms = [
            form for form in cast("list[JSON]", choices[0] if choices else []) if not equal(form, {"type": "null"})
        ]
        below = _at(schema, target) if isinstance(target, str) else forms[0] if len(forms) == 1 else None
        if not isinstance(below, Mapping):
            return part
        part = {**below, **{name: part[name] for name in ("title", "description", "default") if name in part}}
    return {}


def _without_patterns(schema: JSON) -> JSON:
    """A schema without regular expressions: a pattern can take for ever."""
    if isinstance(schema, list):
        return [*map(_without_patterns, schema)]
    if not isinstance(schema, Mapping):
        return schema
    kept: dict[str, JSON] = {}
    for name, below in schema.items():
        if name in _NAMED and isinstance(below, Mapping):
            kept[name] = {key: _without_patterns(part) for key, part in below.items()}
        else:
            kept[name] = below if name in _DATA else _without_patterns(below)
    return {name: below for name, below in kept.items() if name not in ("pattern", "patternProperties")}


def references(schema: JSON) -> list[str]:
    """Every reference in a schema."""
    found = [part.get(name) for part in _parts(schema) for name in _REFERENCES]
    return [target for target in found if isinstance(target, str)]


def _json_of(source: object) -> object:
    if isinstance(source, type) and hasattr(source, "model_json_schema"):
        try:
            return source.model_json_schema()
        except Exception as error:
            reason = next(iter(str(error).splitlines()), repr(error))
            raise InvalidInput(
                f"the model {source.__name__} has no JSON schema: {reason:.200}; correct it, or give a JSON Schema"
            ) from error
    if isinstance(source, Mapping):
        return source
    raise InvalidInput(f"a schema is a JSON Schema object or a pydantic model class, not {source!r:.100}")


def _parts(schema: JSON) -> Iterator[Mapping[str, JSON]]:
    """The schema and all its subschemas; data such as a default is skipped."""
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting.extend(part)
        elif isinstance(part, Mapping):
            yield part
            for name, below in part.items():
                if name in _NAMED and isinstance(below, Mapping):
                    waiting.extend(below.values())
                elif name not in _DATA:
                    waiting.append(below)


def _at(schema: JSON, target: str) -> JSON:
    """The target of a local reference such as `#/$defs/Node`, or None."""
    root, *steps = target.split("/")
    part = schema if root == "#" else None
    for step in steps:
        name = step.replace("~1", "/").replace("~0", "~")
        part = part.get(name) if isinstance(part, Mapping) else None
    return part


def _check_references(schema: JSON) -> None:
    for target in references(schema):
        if not target.startswith("#"):
            raise InvalidInput(
                f"the schema refers to {target[:200]!r}; nothing is fetched, so put the definition into $defs"
            )


def _check_keywords(schema: JSON) -> None:
    for part in _parts(schema):
        for name, instead in _UNEVALUATED.items():
            if name in part:
                raise InvalidInput(f"a schema with {name} can take for ever to apply; use {instead} instead")


def _validator_class(schema: Mapping[str, JSON]) -> Any:
    """The validator for the draft of the schema, which counts the references that it follows."""
    import attrs
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import (  # type: ignore[import-untyped]
        Draft202012Validator,
        extend,
        validator_for,
    )

    draft = schema.get("$schema")
    if draft is not None and not isinstance(draft, str):
        raise InvalidInput(f"this is not a JSON Schema: $schema: {draft!r:.100} is not of type 'string'")
    chosen = validator_for(schema, default=Draft202012Validator)
    try:
        chosen.check_schema(schema)
    except SchemaError as error:
        raise InvalidInput(f"this is not a JSON Schema: {_worded(error)}") from error
    except RecursionError as error:
        raise InvalidInput("the schema is nested too deeply; flatten it") from error
    known = chosen.VALIDATORS
    changed = {name: _counted(known[name]) for name in _REFERENCES if name in known}
    counting = extend(chosen, {**changed, **dict.fromkeys(_UNEVALUATED, _refused), "uniqueItems": _unique})
    # The original would choose a validator that does not count for a part with a `$schema`.
    counting.evolve = attrs.evolve
    return counting


def _counted(follow: Any) -> Any:
    def followed(validator: Any, reference: Any, instance: Any, schema: Any) -> Iterator[Any]:
        _left.references -= 1
        if _left.references < 0:
            raise InvalidInput(f"the schema follows more than {MAX_REFERENCES:,} references; simplify it")
        yield from follow(validator, reference, instance, schema) or ()

    return followed


def _refused(validator: Any, value: Any, instance: Any, schema: Any) -> None:
    """For a refused keyword in a part that is a schema only because of a reference."""
    _check_keywords(schema)


def _unique(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """`uniqueItems` in linear time; jsonschema compares every pair of items that it cannot sort."""
    from jsonschema.exceptions import ValidationError

    if wanted and validator.is_type(instance, "array"):
        # As texts: a caller could send numbers that all have the same hash.
        different = {canonical(item) for item in instance}
        if len(different) < len(instance):
            yield ValidationError(f"{instance!r} has non-unique elements")


def _worded(problem: Any) -> str:
    """A message such as `activeProjects[0].status: 'done' is not one of ['active', 'blocked']`."""
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in problem.absolute_path)
    message = str(problem.message)
    if len(message) > MAX_PROBLEM_CHARACTERS:
        message = message[: MAX_PROBLEM_CHARACTERS - 1] + "…"
    return f"{place.removeprefix('.')[:MAX_PROBLEM_CHARACTERS] or 'at its top'}: {message}"


# The same for asyncio


class AsyncWorkingMemories:
    """`WorkingMemories`, asynchronous."""

    def __init__(self, wrapped: WorkingMemories) -> None:
        self._wrapped = wrapped

    read = awaited(WorkingMemories.read)
    write = awaited(WorkingMemories.write)
    clear = awaited(WorkingMemories.clear)
    history = awaited(WorkingMemories.history)
