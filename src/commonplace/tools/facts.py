"""The facts tools: `manage_memory` creates, updates and deletes facts, `search_memory` finds them.

They are plain callables. Whose facts they are is decided at each call, from the caller's configuration and never from
the model's arguments. A fact is a record: what these tools write, the record tools find, and the other way round.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Protocol

from commonplace.checks import JSON
from commonplace.errors import InvalidInput, NotFound
from commonplace.space.names import RECORD
from commonplace.tools.facts_schema import SEARCH_ARGUMENTS, content_schema, plain_content
from commonplace.tools.facts_search import Fact, FactSearch, FoundFacts
from commonplace.tools.namespace_template import NamespaceTemplate
from commonplace.tools.records_arguments import number

if TYPE_CHECKING:
    from commonplace.book import Book
    from commonplace.space.space import Space

__all__ = ["Fact", "ManageMemoryTool", "SearchMemoryTool", "create_manage_memory_tool", "create_search_memory_tool"]

Action = Literal["create", "update", "delete"]
ACTIONS: tuple[Action, ...] = ("create", "update", "delete")
FACT = "fact"
DEFAULT_INSTRUCTIONS = """Proactively call this tool when you:

1. Identify a new USER preference.
2. Receive an explicit USER request to remember something or otherwise alter your behavior.
3. Are working and want to record important context.
4. Identify that an existing MEMORY is incorrect or outdated.
"""

Config = Mapping[str, Any] | None


class Spaces(Protocol):
    """Where tools find a namespace: a Book, or anything that gives its spaces."""

    def space(self, *labels: str) -> Space: ...


class _Tool:
    """What both tools have: a name, a description, the arguments as JSON Schema, and the space of a call."""

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

    def _check_arguments(self, arguments: object) -> Mapping[str, Any]:
        """A model's arguments: those of the schema and no other, so that none passes for the configuration."""
        known = self.args_schema["properties"]
        if not isinstance(arguments, Mapping):
            raise InvalidInput("arguments must be an object")
        for name in arguments:
            if name not in known:
                raise InvalidInput(f'unknown argument "{name}"; {self.name} takes {", ".join(known)}')
        return arguments


class ManageMemoryTool(_Tool):
    """Creates, updates and deletes facts, as far as it is permitted to."""

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
        super().__init__(name, described, self._arguments(), place, store)

    def __call__(
        self,
        content: Any = None,
        action: str | None = None,
        *,
        id: str | uuid.UUID | None = None,
        config: Config = None,
    ) -> str:
        """Do one action; what it came to, such as `created memory {id}`."""
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
            plain = plain_content(self._schema, content)
            if action == "update":
                return f"updated memory {space.records.update(str(id), content=plain).id}"
            return f"created memory {_create_fact(space, plain)}"
        except NotFound as error:
            raise InvalidInput(f"Memory {id} not found") from error

    def call(self, arguments: Mapping[str, Any], config: Config = None) -> str:
        """The same with a model's arguments as they came."""
        return self(**self._check_arguments(arguments), config=config)

    def _arguments(self) -> dict[str, Any]:
        definitions, content = content_schema(self._schema)
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
    """Finds facts by words and by meaning."""

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
        super().__init__(name, described, SEARCH_ARGUMENTS, place, store)

    def __call__(
        self,
        query: str,
        *,
        limit: int = 10,
        offset: int = 0,
        filter: Mapping[str, Any] | None = None,
        config: Config = None,
    ) -> str | tuple[str, list[Fact]]:
        """The found facts as a JSON list; with `content_and_artifact` also as objects."""
        facts = self.find(query, limit=limit, offset=offset, filter=filter, config=config)
        written = written_facts(facts)
        return written if self.response_format == "content" else (written, facts)

    def call(self, arguments: Mapping[str, Any], config: Config = None) -> str | tuple[str, list[Fact]]:
        """The same with a model's arguments as they came; one that is null counts as not given."""
        return self(**self._given(arguments), config=config)

    def find_for(self, arguments: Mapping[str, Any], config: Config = None) -> FoundFacts:
        """`find` with a model's arguments as they came."""
        return self.find(**self._given(arguments), config=config)

    def _given(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        given = {name: value for name, value in self._check_arguments(arguments).items() if value is not None}
        return {"query": None, **given}

    def find(
        self,
        query: str,
        *,
        limit: int = 10,
        offset: int = 0,
        filter: Mapping[str, Any] | None = None,
        config: Config = None,
    ) -> FoundFacts:
        """The facts themselves, the best first, with the notices of the search."""
        if not isinstance(query, str) or not query.strip():
            raise InvalidInput("query is required and must be a non-empty string")
        search = FactSearch(self._space(config), query, self._kinds, self._below, filter)
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

    `namespace` is a template such as `("{user_id}", "memories")`, filled from the configuration at each call; left out,
    `user_id`, or `org_id` with `agent_id`, says whose facts they are. `schema` is what a content looks like: `str`, a
    pydantic model, or a JSON Schema. `store` is a book; left out, the user's own.
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
    """A tool that finds facts, in exactly the namespace of the call.

    `below` looks into the namespaces under it as well; `kinds` looks at files and messages too.
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


# Parts


def written_facts(facts: Sequence[Fact]) -> str:
    """Facts as the JSON list that a model reads."""
    return json.dumps([fact.dict() for fact in facts], ensure_ascii=False, separators=(",", ":"), default=dict)


def _template(namespace: tuple[str, ...] | str | NamespaceTemplate | None) -> NamespaceTemplate:
    return namespace if isinstance(namespace, NamespaceTemplate) else NamespaceTemplate(namespace)


@cache
def _own_book() -> Book:
    """The user's own book, opened once for all tools that were given no store."""
    from commonplace.book import open_book

    return open_book()


def _create_fact(space: Space, content: JSON) -> str:
    """A record whose source names itself: equal facts never become one."""
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
    """A whole number, also one that came as a string."""
    given = number(value)
    if given is None or given < least or given != int(given):
        raise InvalidInput(f"{name} must be a whole number of at least {least}, not {value!r}")
    return int(given)
