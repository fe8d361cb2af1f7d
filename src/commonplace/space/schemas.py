"""JSON Schemas for working memory: taken in with care, then asked whether data fits, field by field.

A schema is an object, or a pydantic model class. Nothing is fetched: a reference that leaves the schema is refused,
and following references is bounded. Patterns are run by Python's `re`, so a schema must be the program's own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, TypeAlias

from commonplace.checks import JSON
from commonplace.errors import CommonplaceError, InvalidInput
from commonplace.space.conversation import check_object

MAX_SCHEMA_BYTES = 100_000
MAX_REFERENCES = 10_000
"""How many references one check may follow: a schema of 2 kB can ask for 2³⁰ of them."""

MAX_PROBLEMS = 5
MAX_PROBLEM_CHARACTERS = 200
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_left = threading.local()
"""How many references the check under way may still follow."""

SchemaSource: TypeAlias = "Schema | Mapping[str, Any] | type[Any]"


class Schema:
    """A checked schema; `written` is its JSON."""

    def __init__(self, source: Mapping[str, Any] | type[Any]) -> None:
        self.written = check_object("schema", _json_of(source), MAX_SCHEMA_BYTES)
        _check_references(self.written)
        self._validator_class = _validator_class(self.written)
        if self.written.get("type", "object") != "object":
            raise InvalidInput(f"a working memory is an object: its schema has the type {self.written['type']!r}")
        self._rules = _of_one_draft(self.written)

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The names that it gives to the fields of the data."""
        properties = self.written.get("properties")
        return tuple(properties) if isinstance(properties, Mapping) else ()

    def check(self, name: str, data: Mapping[str, JSON]) -> None:
        """Raise InvalidInput that names each field at fault."""
        from jsonschema.exceptions import best_match  # type: ignore[import-untyped]
        from referencing import Registry
        from referencing.exceptions import Unresolvable

        # With a registry of its own it looks nowhere else, least of all in the net.
        validator = self._validator_class(self._rules, registry=Registry())
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
        return len(self.fields) > 1 and set(self.fields) <= data.keys() and not _says_something(data)


def schema_of(source: SchemaSource | None) -> Schema | None:
    """A schema from what a caller gave; one that is checked already stays as it is."""
    return source if source is None or isinstance(source, Schema) else Schema(source)


def _json_of(source: object) -> object:
    if isinstance(source, type) and hasattr(source, "model_json_schema"):
        return source.model_json_schema()
    if isinstance(source, Mapping):
        return source
    raise InvalidInput(f"a schema is a JSON Schema object or a pydantic model class, not {source!r:.100}")


def _check_references(schema: JSON) -> None:
    waiting: list[JSON] = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping):
            for name in _REFERENCES:
                target = part.get(name)
                if isinstance(target, str) and not target.startswith("#"):
                    raise InvalidInput(
                        f"the schema refers to {target[:200]!r}; nothing is fetched, put what it means into $defs"
                    )
            waiting.extend(part.values())
        elif isinstance(part, Sequence) and not isinstance(part, str):
            waiting.extend(part)


def _validator_class(schema: Mapping[str, JSON]) -> Any:
    """The validator of the schema's own draft, counting the references it follows."""
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
    return extend(chosen, {name: _counted(known[name]) for name in _REFERENCES if name in known})


def _counted(follow: Any) -> Any:
    def followed(validator: Any, reference: Any, instance: Any, schema: Any) -> Iterator[Any]:
        _left.references -= 1
        if _left.references < 0:
            raise InvalidInput(f"the schema follows more than {MAX_REFERENCES:,} references; write it plainer")
        yield from follow(validator, reference, instance, schema) or ()

    return followed


def _of_one_draft(schema: JSON) -> JSON:
    """A schema without the `$schema` of its parts, each of which would bring a validator that does not count."""
    if isinstance(schema, Mapping):
        return {
            name: _of_one_draft(part)
            for name, part in schema.items()
            if not (name == "$schema" and isinstance(part, str))
        }
    if isinstance(schema, list):
        return [_of_one_draft(part) for part in schema]
    return schema


def _worded(problem: Any) -> str:
    """Where, and what: `activeProjects[0].status: 'done' is not one of ['active', 'blocked']`."""
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in problem.absolute_path)
    message = str(problem.message)
    if len(message) > MAX_PROBLEM_CHARACTERS:
        message = message[: MAX_PROBLEM_CHARACTERS - 1] + "…"
    return f"{place.removeprefix('.')[:MAX_PROBLEM_CHARACTERS] or 'at its top'}: {message}"


def _says_something(value: JSON) -> bool:
    if isinstance(value, Mapping):
        return any(_says_something(item) for item in value.values())
    if isinstance(value, str):
        return bool(value.strip())
    if isinstance(value, Iterable):
        return any(_says_something(item) for item in value)
    return value is not None
