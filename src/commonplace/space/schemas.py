"""JSON Schemas for working memory: taken in with care, then asked whether data fits, field by field.

A schema is an object, or a pydantic model class. Nothing is fetched: a reference that leaves the schema is refused,
and following references is bounded. Patterns are run by Python's `re`, so a schema must be the program's own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import Any, TypeAlias

from commonplace.checks import JSON
from commonplace.errors import CommonplaceError, InvalidInput
from commonplace.filters import equal
from commonplace.space.conversation import check_object
from commonplace.space.records import canonical

MAX_SCHEMA_BYTES = 100_000
MAX_REFERENCES = 10_000
"""How many references one check may follow: a schema of 2 kB can ask for 2³⁰ of them."""

MAX_PROBLEMS = 5
MAX_PROBLEM_CHARACTERS = 200
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_UNEVALUATED = {"unevaluatedProperties": "additionalProperties", "unevaluatedItems": "items"}
"""With what to say instead: to find what they mean takes exponential time in jsonschema, past any counter."""

_DATA = ("const", "enum", "default", "examples")
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
"""Below these stand names, whatever they are, each with a schema."""

_left = threading.local()
"""How many references the check under way may still follow."""

SchemaSource: TypeAlias = "Schema | Mapping[str, Any] | type[Any]"


class Schema:
    """A checked schema; `written` is its JSON."""

    def __init__(self, source: Mapping[str, Any] | type[Any]) -> None:
        self.written = check_object("schema", _json_of(source), MAX_SCHEMA_BYTES)
        _check_references(self.written)
        _check_keywords(self.written)
        self._validator_class = _validator_class(self.written)
        if self.written.get("type", "object") != "object":
            raise InvalidInput(f"a working memory is an object: its schema has the type {self.written['type']!r}")

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The names that it gives to the fields of the data."""
        return tuple(self._properties(self.written))

    def check(self, name: str, data: Mapping[str, JSON]) -> None:
        """Raise InvalidInput that names each field at fault."""
        from jsonschema.exceptions import best_match  # type: ignore[import-untyped]
        from referencing import Registry
        from referencing.exceptions import Unresolvable

        # With a registry of its own it looks nowhere else, least of all in the net.
        validator = self._validator_class(self.written, registry=Registry())
        _left.references = MAX_REFERENCES
        try:
            found = islice(validator.iter_errors(data), MAX_PROBLEMS)
            # Of a choice that fails, the place where its likeliest part does.
            problems = [_worded(best_match([problem])) for problem in found]
        except Unresolvable as error:
            raise InvalidInput(f"the schema has a reference that leads nowhere: {error}; correct the schema") from error
        except RecursionError as error:
            raise InvalidInput("the schema refers to itself without end; correct the schema") from error
        except CommonplaceError:
            raise
        except Exception as error:
            # A reference to what is no schema, or arithmetic beyond a float, fails with whatever it meets first.
            raise InvalidInput(f"the schema cannot be applied to this ({error!r:.200}); correct the schema") from error
        if problems:
            raise InvalidInput(f"{name} does not fit its schema: {'; '.join(sorted(problems))}")

    def is_empty_template(self, data: Mapping[str, JSON]) -> bool:
        """Whether data names every field of the schema, and several, only to say nothing in any."""
        return len(self.fields) > 1 and set(self.fields) <= data.keys() and not self.says_something(data)

    def says_something(self, data: Mapping[str, JSON]) -> bool:
        """Whether any field holds more than nothing, or than its default."""
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
        """The fields that a part of the schema names, by itself, by what it refers to and in its `allOf`."""
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
    """A schema from what a caller gave; one that is checked already stays as it is."""
    return source if source is None or isinstance(source, Schema) else Schema(source)


def references(schema: JSON) -> list[str]:
    """Every reference that a schema makes."""
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
    """The schema and each that stands in it. Data, such as a default, is none."""
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
    """What a local reference such as `#/$defs/Node` leads to; None where that is nothing, or more than a path."""
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
                f"the schema refers to {target[:200]!r}; nothing is fetched, put what it means into $defs"
            )


def _check_keywords(schema: JSON) -> None:
    for part in _parts(schema):
        for name, instead in _UNEVALUATED.items():
            if name in part:
                raise InvalidInput(f"a schema with {name} can take for ever to apply; use {instead} instead")


def _validator_class(schema: Mapping[str, JSON]) -> Any:
    """The validator of the schema's own draft, counting the references it follows."""
    import attrs
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import (  # type: ignore[import-untyped]
        Draft202012Validator,
        extend,
        validator_for,
    )

    draft = schema.get("$schema")
    if draft is not None and not isinstance(draft, str):
        raise InvalidInput(f"this is no JSON Schema: $schema: {draft!r:.100} is not of type 'string'")
    chosen = validator_for(schema, default=Draft202012Validator)
    try:
        chosen.check_schema(schema)
    except SchemaError as error:
        raise InvalidInput(f"this is no JSON Schema: {_worded(error)}") from error
    except RecursionError as error:
        raise InvalidInput("the schema is nested too deeply; flatten it") from error
    known = chosen.VALIDATORS
    changed = {name: _counted(known[name]) for name in _REFERENCES if name in known}
    counting = extend(chosen, {**changed, **dict.fromkeys(_UNEVALUATED, _refused), "uniqueItems": _unique})
    # Its own would take another validator for a part with a `$schema`, one that does not count.
    counting.evolve = attrs.evolve
    return counting


def _counted(follow: Any) -> Any:
    def followed(validator: Any, reference: Any, instance: Any, schema: Any) -> Iterator[Any]:
        _left.references -= 1
        if _left.references < 0:
            raise InvalidInput(f"the schema follows more than {MAX_REFERENCES:,} references; write it plainer")
        yield from follow(validator, reference, instance, schema) or ()

    return followed


def _refused(validator: Any, value: Any, instance: Any, schema: Any) -> None:
    """For a keyword in what was no schema until a reference led there."""
    _check_keywords(schema)


def _unique(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """As jsonschema's own, which compares every item with every other where they cannot be sorted."""
    from jsonschema.exceptions import ValidationError

    if wanted and validator.is_type(instance, "array"):
        # As texts: whoever writes the data can choose numbers that all have one hash.
        different = {canonical(item) for item in instance}
        if len(different) < len(instance):
            yield ValidationError(f"{instance!r} has non-unique elements")


def _worded(problem: Any) -> str:
    """Where, and what: `activeProjects[0].status: 'done' is not one of ['active', 'blocked']`."""
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in problem.absolute_path)
    message = str(problem.message)
    if len(message) > MAX_PROBLEM_CHARACTERS:
        message = message[: MAX_PROBLEM_CHARACTERS - 1] + "…"
    return f"{place.removeprefix('.')[:MAX_PROBLEM_CHARACTERS] or 'at its top'}: {message}"
