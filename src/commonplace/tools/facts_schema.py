"""The schemas that a model is shown of the facts tools, and a fact's content made plain JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from commonplace.checks import JSON
from commonplace.errors import ConfigurationError, InvalidInput

_PLAIN: dict[Any, str] = {
    str: "string",
    dict: "object",
    list: "array",
    int: "integer",
    float: "number",
    bool: "boolean",
}

SEARCH_ARGUMENTS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "What to look for, in words."},
        "limit": {"type": "integer", "minimum": 1, "default": 10, "description": "How many at most."},
        "offset": {"type": "integer", "minimum": 0, "default": 0, "description": "How many to pass over."},
        "filter": {
            "type": "object",
            "description": 'Fields that must hold, such as {"category": "preference", "age": {"$gte": 18}}.',
        },
    },
    "required": ["query"],
    "additionalProperties": False,
}


def content_schema(schema: Any) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """Its definitions and its JSON Schema; of a plain type, a pydantic model, or a JSON Schema as it is."""
    if isinstance(schema, type) and schema in _PLAIN:
        return {}, {"type": _PLAIN[schema]}
    if isinstance(schema, Mapping):
        written = dict(schema)
    elif hasattr(schema, "model_json_schema"):
        written = schema.model_json_schema()
    else:
        written = _adapter(schema).json_schema()
    # References start at the root, so the definitions have to move there.
    return written.pop("$defs", {}), written


def plain_content(schema: Any, content: Any) -> JSON:
    """The content as JSON: a model's instance is written out, and what a model describes is checked by it."""
    if hasattr(content, "model_dump"):
        return content.model_dump(mode="json")  # type: ignore[no-any-return]
    if content is None:
        raise InvalidInput("content is required")
    if hasattr(schema, "model_validate"):
        try:
            return schema.model_validate(content).model_dump(mode="json")  # type: ignore[no-any-return]
        except ValueError as error:
            raise InvalidInput(f"content does not fit its schema: {error}") from error
    return content  # type: ignore[no-any-return]


def _adapter(schema: Any) -> Any:
    try:
        from pydantic import TypeAdapter
    except ImportError as error:
        raise ConfigurationError(
            f"the schema {schema!r} needs pydantic: pip install pydantic, or give a JSON Schema"
        ) from error
    return TypeAdapter(schema)
