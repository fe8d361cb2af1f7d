"""The facts tools: `manage_memory` creates, updates and deletes facts, `search_memory` finds them.

They are plain callables. The namespace of a call comes from the caller's configuration, never from the model's
arguments. A fact is a record, so the record tools find what these tools write, and the other way round.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, Protocol

from commonplace.checks import JSON, Namespace, moment
from commonplace.entry import Entry, Hit
from commonplace.errors import ConfigurationError, InvalidInput, NotFound
from commonplace.filters import Condition, hold, parse_conditions
from commonplace.language.relevance import DEFAULT_FLOOR
from commonplace.space.names import MESSAGE, RECORD
from commonplace.tools.namespace_template import NamespaceTemplate
from commonplace.tools.tool import (
    ANSWER_CHARACTERS,
    MIN_RELEVANCE,
    Arguments,
    Schema,
    ToolAnswer,
    ToolSpec,
    how_many_fit,
    left_out_notice,
    list_schema,
    number,
    object_schema,
)

if TYPE_CHECKING:
    from commonplace.book import Book
    from commonplace.space.space import Space

__all__ = ["Fact", "ManageMemoryTool", "SearchMemoryTool", "create_manage_memory_tool", "create_search_memory_tool"]

Action = Literal["create", "update", "delete"]
ACTIONS: tuple[Action, ...] = ("create", "update", "delete")
FACT = "fact"
_PAGE = 1_000
_LAST_OFFSET = 10_000
DEFAULT_INSTRUCTIONS = """Proactively call this tool when you:

1. Identify a new USER preference.
2. Receive an explicit USER request to remember something or otherwise alter your behavior.
3. Are working and want to record important context.
4. Identify that an existing MEMORY is incorrect or outdated.
"""

Config = Mapping[str, Any] | None


class Spaces(Protocol):
    """A Book, or anything else that returns spaces."""

    def space(self, *labels: str) -> Space: ...


class _Tool:
    """What both tools share: a name, a description, the arguments as JSON Schema, and the space of a call."""

    def __init__(
        self,
        name: str,
        description: str,
        args_schema: Mapping[str, Any],
        place: NamespaceTemplate,
        store: Spaces | None,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise InvalidInput("a tool's name must be a non-empty string")
        self.name = self.__name__ = name
        self.description = self.__doc__ = description
        self.args_schema = args_schema
        self._place = place
        self._store = store

    def _space(self, config: Config) -> Space:
        labels = self._place.resolve(config)
        return (self._store or _own_book()).space(*labels)

    def _spec(self, title: str, output_schema: Schema, *, is_read_only: bool) -> ToolSpec:
        return ToolSpec(
            name=self.name,
            title=title,
            description=self.description,
            input_schema=dict(self.args_schema),
            output_schema=output_schema,
            is_read_only=is_read_only,
            is_destructive=not is_read_only,
            is_idempotent=is_read_only,
        )

    def _arguments(self, arguments: object) -> Mapping[str, Any]:
        """A model's arguments. Only those of the schema are allowed, so that none is taken for the configuration."""
        return Arguments(self.name, arguments, tuple(self.args_schema["properties"])).given


class ManageMemoryTool(_Tool):
    """Creates, updates and deletes facts, limited to the permitted actions."""

    def __init__(
        self,
        place: NamespaceTemplate,
        store: Spaces | None,
        *,
        schema: Any,
        actions: Sequence[Action],
        instructions: str,
        name: str,
    ) -> None:
        self.actions_permitted = _check_actions(actions)
        self.default_action: Action = "create" if "create" in actions else self.actions_permitted[0]
        self._schema = schema
        described = (
            f"{_verbs(self.actions_permitted)} a memory to persist across conversations.\n"
            "Include the MEMORY ID when updating or deleting a MEMORY. "
            "Omit when creating a new MEMORY - it will be created for you.\n"
            f"{instructions}"
        )
        super().__init__(name, described, self._manage_schema(), place, store)

    def __call__(
        self,
        content: Any = None,
        action: str | None = None,
        *,
        id: str | uuid.UUID | None = None,
        config: Config = None,
    ) -> str:
        """Run one action; returns a text such as `created memory {id}`."""
        action = self.default_action if action is None else action
        if action not in self.actions_permitted:
            raise InvalidInput(f"Invalid action {action}. Must be one of {self.actions_permitted}.")
        if action == "create" and id is not None:
            raise InvalidInput(
                "You cannot provide a MEMORY ID when creating a MEMORY. Please try again, omitting the id argument."
            )
        if action != "create" and not id:
            raise InvalidInput("You must provide a MEMORY ID when deleting or updating a MEMORY.")
        space = self._space(config)
        try:
            if action == "delete":
                space.records.delete(str(id))
                return f"Deleted memory {id}"
            plain = _plain_content(self._schema, content)
            if action == "update":
                return f"updated memory {space.records.update(str(id), content=plain).id}"
            return f"created memory {_create_fact(space, plain)}"
        except NotFound as error:
            raise InvalidInput(f"Memory {id} not found") from error

    def call(self, arguments: Mapping[str, Any], config: Config = None) -> str:
        """Run a model's call."""
        return self(**self._arguments(arguments), config=config)

    def answer(self, arguments: Mapping[str, Any], config: Config = None) -> ToolAnswer:
        """Run a model's call, for a server; raises like `call`."""
        return ToolAnswer(self.call(arguments, config))

    @property
    def spec(self) -> ToolSpec:
        return self._spec("Manage facts", {}, is_read_only=False)

    def _manage_schema(self) -> dict[str, Any]:
        definitions, content = _content_schema(self._schema)
        properties: dict[str, Any] = {}
        if self.actions_permitted != ("delete",):
            properties["content"] = {"description": "What to remember, for create and update.", **content}
        properties["action"] = {
            "type": "string",
            "enum": list(self.actions_permitted),
            "default": self.default_action,
        }
        if self.actions_permitted != ("create",):
            properties["id"] = {"type": "string", "description": "The MEMORY ID, for update and delete."}
        shared = {"$defs": definitions} if definitions else {}
        return {"type": "object", "properties": properties, "required": [], "additionalProperties": False, **shared}


class SearchMemoryTool(_Tool):
    """Finds facts by keyword and by meaning."""

    def __init__(
        self,
        place: NamespaceTemplate,
        store: Spaces | None,
        *,
        instructions: str,
        response_format: Literal["content", "content_and_artifact"],
        name: str,
        kinds: Sequence[str],
        below: bool,
    ) -> None:
        if response_format not in ("content", "content_and_artifact"):
            raise InvalidInput(f'response_format must be "content" or "content_and_artifact", not {response_format!r}')
        self.response_format = response_format
        self._kinds = tuple(kinds)
        self._below = below
        described = (
            f"Search your long-term memories for information relevant to your current context. {instructions}".strip()
        )
        super().__init__(name, described, _SEARCH_SCHEMA, place, store)

    def __call__(
        self,
        query: str,
        *,
        limit: int = 10,
        offset: int = 0,
        filter: Mapping[str, Any] | None = None,
        min_relevance: float | Literal["default"] = DEFAULT_FLOOR,
        config: Config = None,
    ) -> str | tuple[str, list[Fact]]:
        """The facts found as a JSON list; with `content_and_artifact`, also as objects."""
        facts = self.find(query, limit=limit, offset=offset, filter=filter, min_relevance=min_relevance, config=config)
        return self._result(_written(facts), facts)

    def call(self, arguments: Mapping[str, Any], config: Config = None) -> str | tuple[str, list[Fact]]:
        """Run a model's call. Null means "not given". If nothing relevant was found, the answer says so."""
        facts = self.find(**self._given(arguments), config=config)
        written = _written(facts)
        return self._result(written if facts else "\n".join((written, *facts.left_out_notices)), facts)

    def _result(self, written: str, facts: list[Fact]) -> str | tuple[str, list[Fact]]:
        return written if self.response_format == "content" else (written, facts)

    def answer(self, arguments: Mapping[str, Any], config: Config = None) -> ToolAnswer:
        """Run a model's call, for a server; raises like `call`. Facts that do not fit are left out, with a notice."""
        facts = self.find(**self._given(arguments), config=config)
        fitting = how_many_fit((len(_written([fact])) for fact in facts), ANSWER_CHARACTERS)
        written = _written(facts[:fitting])
        notices = facts.notices + facts.left_out_notices
        if fitting < len(facts):
            notices += (f"{fitting} of {len(facts)} facts fit into this answer; a larger offset shows the others",)
        more = {"notices": [*notices]} if notices else {}
        return ToolAnswer(written, structured={"items": json.loads(written), **more}, notices=notices)

    @property
    def spec(self) -> ToolSpec:
        return self._spec("Search facts", _SEARCH_OUTPUT, is_read_only=True)

    def _given(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        given = {name: value for name, value in self._arguments(arguments).items() if value is not None}
        return {"query": None, **given}

    def find(
        self,
        query: str,
        *,
        limit: int = 10,
        offset: int = 0,
        filter: Mapping[str, Any] | None = None,
        min_relevance: float | Literal["default"] = DEFAULT_FLOOR,
        config: Config = None,
    ) -> FoundFacts:
        """The facts, best first, with the notices of the search."""
        if not isinstance(query, str) or not query.strip():
            raise InvalidInput("query is required and must be a non-empty string")
        floor = _fraction("min_relevance", min_relevance)
        search = _FactSearch(self._space(config), query, self._kinds, self._below, filter, floor)
        return search.page(_whole("limit", limit, 1), _whole("offset", offset, 0))


def create_manage_memory_tool(
    namespace: tuple[str, ...] | str | NamespaceTemplate | None = None,
    *,
    schema: Any = str,
    actions_permitted: Sequence[Action] = ACTIONS,
    instructions: str = DEFAULT_INSTRUCTIONS,
    name: str = "manage_memory",
    store: Spaces | None = None,
) -> ManageMemoryTool:
    """A tool that creates, updates and deletes facts.

    `namespace` is a template such as `("{user_id}", "memories")`, filled from the configuration at each call. Without
    it, `user_id`, or `org_id` with `agent_id`, selects the namespace. `schema` describes the content: `str`, a pydantic
    model, or a JSON Schema. `store` is a book, by default the user's own.
    """
    return ManageMemoryTool(
        _template(namespace),
        store,
        schema=schema,
        actions=actions_permitted,
        instructions=instructions,
        name=name,
    )


def create_search_memory_tool(
    namespace: tuple[str, ...] | str | NamespaceTemplate | None = None,
    *,
    instructions: str = "",
    response_format: Literal["content", "content_and_artifact"] = "content",
    name: str = "search_memory",
    store: Spaces | None = None,
    kinds: Sequence[str] = (RECORD,),
    below: bool = False,
) -> SearchMemoryTool:
    """A tool that finds facts in the namespace of the call.

    `below` searches the namespaces below it as well. `kinds` may add files and messages.
    """
    return SearchMemoryTool(
        _template(namespace),
        store,
        instructions=instructions,
        response_format=response_format,
        name=name,
        kinds=kinds,
        below=below,
    )


def _written(facts: Sequence[Fact]) -> str:
    """Facts as the JSON list for a model."""
    return json.dumps([fact.dict() for fact in facts], ensure_ascii=False, separators=(",", ":"), default=dict)


def _template(namespace: tuple[str, ...] | str | NamespaceTemplate | None) -> NamespaceTemplate:
    return namespace if isinstance(namespace, NamespaceTemplate) else NamespaceTemplate(namespace)


@cache
def _own_book() -> Book:
    """The user's own book, opened once for all tools without a store."""
    from commonplace.book import open_book

    return open_book()


def _create_fact(space: Space, content: JSON) -> str:
    """Create a record with a unique source, so that equal facts are not merged."""
    id = str(uuid.uuid4())
    return space.records.create(type=FACT, content=content, source=f"fact://{id}", confidence=1.0, id=id).id


def _check_actions(actions: Sequence[Action]) -> tuple[Action, ...]:
    if not actions:
        raise InvalidInput("actions_permitted cannot be empty")
    if isinstance(actions, str) or any(action not in ACTIONS for action in actions):
        raise InvalidInput(f"actions_permitted must be some of {ACTIONS}, not {actions!r}")
    return tuple(dict.fromkeys(actions))


def _verbs(actions: Sequence[str]) -> str:
    *first, last = actions
    joined = f"{', '.join(first)}, or {last}" if len(first) > 1 else " or ".join((*first, last))
    return joined.capitalize()


def _whole(name: str, value: object, least: int) -> int:
    """A whole number, also from a string."""
    given = number(value)
    if given is None or given < least or given != int(given):
        raise InvalidInput(f"{name} must be a whole number of at least {least}, not {value!r}")
    return int(given)


def _fraction(name: str, value: object) -> float | Literal["default"]:
    """A number from 0 to 1, also from a string, or `default`."""
    if value == DEFAULT_FLOOR:
        return DEFAULT_FLOOR
    given = number(value)
    if given is None or not 0 <= given <= 1:
        raise InvalidInput(f"{name} must be a number between 0 and 1, not {value!r:.100}")
    return given


# Schemas, and a fact's content as plain JSON

_PLAIN: dict[Any, str] = {
    str: "string",
    dict: "object",
    list: "array",
    int: "integer",
    float: "number",
    bool: "boolean",
}

_FACT: Schema = {"key": {"type": "string"}, "value": {"type": "object"}, "score": {"type": ["number", "null"]}}
_SEARCH_OUTPUT: Schema = object_schema(
    ["items"], items=list_schema(object_schema(["key", "value"], **_FACT)), notices={"type": "array"}
)
_SEARCH_SCHEMA: Schema = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "What to look for, in words."},
        "limit": {"type": "integer", "minimum": 1, "default": 10, "description": "How many at most."},
        "offset": {"type": "integer", "minimum": 0, "default": 0, "description": "How many to skip."},
        "filter": {
            "type": "object",
            "description": 'Fields that must hold, such as {"category": "preference", "age": {"$gte": 18}}.',
        },
        "min_relevance": MIN_RELEVANCE,
    },
    "required": ["query"],
    "additionalProperties": False,
}


def _content_schema(schema: Any) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """The definitions and the JSON Schema of a plain type, a pydantic model or a JSON Schema."""
    if isinstance(schema, type) and schema in _PLAIN:
        return {}, {"type": _PLAIN[schema]}
    if isinstance(schema, Mapping):
        written = dict(schema)
    elif hasattr(schema, "model_json_schema"):
        written = schema.model_json_schema()
    else:
        written = _adapter(schema).json_schema()
    # References start at the root, so the definitions must be there.
    return written.pop("$defs", {}), written


def _plain_content(schema: Any, content: Any) -> JSON:
    """The content as JSON. A pydantic schema checks it; an instance is dumped."""
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


# Searches


@dataclass(frozen=True, slots=True)
class Fact:
    """A memory that was found. `value` is `{"content": …}` with the content as it was saved."""

    namespace: Namespace
    key: str
    value: Mapping[str, JSON]
    created_at: datetime
    updated_at: datetime
    score: float

    def dict(self) -> dict[str, Any]:
        return {
            "namespace": list(self.namespace),
            "key": self.key,
            "value": self.value,
            "created_at": self.created_at.isoformat(),
            "updated_at": self.updated_at.isoformat(),
            "score": self.score,
        }


class FoundFacts(list[Fact]):
    """Facts, best first. `notices` say where vectors were missing, `left_out_notices` what was not relevant."""

    def __init__(
        self, facts: Iterable[Fact], notices: Sequence[str] = (), left_out_notices: Sequence[str] = ()
    ) -> None:
        super().__init__(facts)
        self.notices = tuple(notices)
        self.left_out_notices = tuple(left_out_notices)


@dataclass(frozen=True, slots=True)
class _FactSearch:
    """One search. A filter looks up a field in an object content, then in the value, then in the attributes."""

    space: Space
    query: str
    kinds: Sequence[str]
    below: bool
    filter: Mapping[str, Any] | None
    min_relevance: float | Literal["default"]

    def page(self, limit: int, offset: int) -> FoundFacts:
        """The facts from `offset` on, best first."""
        notices: dict[str, None] = {}
        if not isinstance(self.filter, Mapping) or "content" not in self.filter:
            hits, left_out = self._hits(self.filter, limit, offset, notices)
            return FoundFacts([*map(_fact, hits)], [*notices], left_out_notice(len(hits), limit, left_out))
        rest = {name: wanted for name, wanted in self.filter.items() if name != "content"}
        conditions = parse_conditions({"content": self.filter["content"]})
        # Only this dialect has a field `content` for the whole content, so the store cannot filter by it.
        matching = (hit for hit in self._all_hits(rest, notices) if _has_content(hit.entry, conditions))
        facts = [*map(_fact, islice(matching, offset, offset + limit))]
        return FoundFacts(facts, [*notices])

    def _hits(
        self, filter: Mapping[str, Any] | None, limit: int, offset: int, notices: dict[str, None]
    ) -> tuple[Sequence[Hit], int]:
        """The hits, and how many less relevant ones were left out."""
        found = self.space.search(
            self.query,
            limit=limit,
            offset=offset,
            kinds=self.kinds,
            filter=filter,
            below=self.below,
            min_relevance=self.min_relevance,
        )
        notices.update(dict.fromkeys(found.notices))
        return found.hits, found.left_out

    def _all_hits(self, filter: Mapping[str, Any], notices: dict[str, None]) -> Iterator[Hit]:
        for offset in range(0, _LAST_OFFSET + 1, _PAGE):
            hits, _ = self._hits(filter, _PAGE, offset, notices)
            yield from hits
            if len(hits) < _PAGE:
                return


def _has_content(entry: Entry, conditions: Sequence[Condition]) -> bool:
    if not isinstance(entry.value, Mapping) or "content" not in entry.value:
        entry = replace(entry, value={"content": entry.value})
    return hold(conditions, entry.value, entry.attributes)


def _fact(hit: Hit) -> Fact:
    entry = hit.entry
    content = entry.value
    if hit.kind == MESSAGE and isinstance(content, Mapping):
        content = content.get("content")
    return Fact(
        namespace=entry.namespace,
        key=hit.key,
        value={"content": content},
        created_at=moment(entry.created_at),
        updated_at=moment(entry.updated_at),
        score=hit.score,
    )
