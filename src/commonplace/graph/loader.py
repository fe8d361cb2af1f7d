"""Graphs from JSON: nodes and edges become connected memories, tools and agents. Errors name the node or edge."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from commonplace.book import Book
from commonplace.checks import Namespace, check_namespace, parse_namespace
from commonplace.errors import InvalidInput
from commonplace.graph.agent import DEFAULT_MAX_TURNS, Agent
from commonplace.graph.chat_model import CallModel, ChatModel
from commonplace.graph.memory_node import DEFAULT_MAX_CHARS, MemoryConnector, MemoryNode
from commonplace.tools.tool import ANSWER_CHARACTERS
from commonplace.tools.unified import COMMANDS, DEFAULT_DESCRIPTION, DEFAULT_NAME, UnifiedMemoryTool


@dataclass(frozen=True, slots=True)
class Graph:
    """The connected parts, by node id."""

    memories: Mapping[str, MemoryNode]
    tools: Mapping[str, UnifiedMemoryTool]
    agents: Mapping[str, Agent]
    call_models: Mapping[str, CallModel]


def load_graph(
    graph: str | Mapping[str, Any],
    book: Book,
    *,
    namespace: Sequence[str] = ("user", "default"),
    model: ChatModel | None = None,
    models: Mapping[str, ChatModel] | None = None,
    bind_within: Sequence[str] | None = None,
) -> Graph:
    """Read a graph, as JSON text or parsed, and connect its parts; raises if anything in it is wrong.

    `model` is for agents whose config names no model, `models` has the named ones. A memory's config may bind a
    namespace at or below `bind_within`, by default the graph's own; `()` allows any.
    """
    loader = _Loader(book, check_namespace(tuple(namespace)), model, models or {}, bind_within)
    return loader.load(_parse(graph))


def _parse(graph: str | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(graph, str):
        try:
            graph = json.loads(graph)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"the graph is not valid JSON: {error}") from error
    if not isinstance(graph, Mapping) or not all(isinstance(graph.get(key, []), list) for key in ("nodes", "edges")):
        raise InvalidInput('a graph is an object with the lists "nodes" and "edges"')
    return graph


@dataclass(frozen=True, slots=True)
class _Edge:
    source: str
    source_handle: str
    target: str
    target_handle: str

    def __str__(self) -> str:
        return f"edge {self.source} {self.source_handle} → {self.target} {self.target_handle}"


@dataclass
class _Loader:
    book: Book
    namespace: Namespace
    model: ChatModel | None
    models: Mapping[str, ChatModel]
    bind_within: Sequence[str] | None
    templates: dict[str, str] = field(default_factory=dict)
    memories: dict[str, MemoryNode] = field(default_factory=dict)
    connectors: dict[str, MemoryConnector] = field(default_factory=dict)
    tools: dict[str, UnifiedMemoryTool] = field(default_factory=dict)
    agents: dict[str, Agent] = field(default_factory=dict)
    call_models: dict[str, CallModel] = field(default_factory=dict)

    def load(self, graph: Mapping[str, Any]) -> Graph:
        for number, node in enumerate(graph.get("nodes", [])):
            self._add_node(number, node)
        edges = [self._check_edge(number, edge) for number, edge in enumerate(graph.get("edges", []))]
        seen: set[_Edge] = set()
        for edge in edges:
            if edge in seen:
                raise InvalidInput(f"{edge} occurs twice")
            seen.add(edge)
        # Connect call models first, because an agent's tools and memory belong to them.
        for edge in sorted(edges, key=lambda edge: edge.source_handle != "callModel"):
            with _named(str(edge)):
                self._wire(edge)
        return Graph(self.memories, self.tools, self.agents, self.call_models)

    # Nodes

    def _add_node(self, number: int, node: object) -> None:
        node_id = node.get("id") if isinstance(node, Mapping) else None
        if not isinstance(node, Mapping) or not isinstance(node_id, str) or not node_id:
            raise InvalidInput(f"node number {number + 1} has no id; give it a string")
        with _named(f"node {node_id}"):
            if node_id in self.templates:
                raise InvalidInput("this id is taken by another node")
            data = node.get("data")
            template = data.get("template") if isinstance(data, Mapping) else None
            if not isinstance(data, Mapping) or not isinstance(template, str) or template not in _TEMPLATES:
                raise InvalidInput(f"unknown template {template!r}; use one of {', '.join(_TEMPLATES)}")
            config = data.get("config")
            make, keys = _TEMPLATES[template]
            make(self, node_id, _check_config({} if config is None else config, keys))
            self.templates[node_id] = template

    def _add_memory(self, node_id: str, config: Mapping[str, Any]) -> None:
        bind = None if config.get("namespace") is None else self._check_bound(config["namespace"])
        scope = config.get("scope", "global")
        memory = MemoryNode(self.book, node_id, self.namespace, scope=scope, bind=bind)
        self.connectors[node_id] = MemoryConnector(
            memory,
            placement=config.get("placement", "after_system"),
            content=config.get("content", "tree"),
            max_chars=config.get("maxChars", DEFAULT_MAX_CHARS),
        )
        self.memories[node_id] = memory

    def _check_bound(self, given: str | list[str]) -> Namespace:
        bound = parse_namespace(given) if isinstance(given, str) else check_namespace(tuple(given))
        within = self.namespace if self.bind_within is None else tuple(self.bind_within)
        if bound[: len(within)] != within:
            raise InvalidInput(
                f"namespace {'/'.join(bound)} is outside of {'/'.join(within)}; bind one below that, "
                "or load the graph with bind_within"
            )
        return bound

    def _add_tool(self, node_id: str, config: Mapping[str, Any]) -> None:
        self.tools[node_id] = UnifiedMemoryTool(
            name=config.get("name", DEFAULT_NAME),
            description=config.get("description", DEFAULT_DESCRIPTION),
            title=config.get("title"),
            commands=config.get("commands", COMMANDS),
            max_characters=ANSWER_CHARACTERS,
        )

    def _add_agent(self, node_id: str, config: Mapping[str, Any]) -> None:
        self.agents[node_id] = Agent(
            self._model(config),
            system_prompt=config.get("systemPrompt"),
            max_turns=config.get("maxTurns", DEFAULT_MAX_TURNS),
        )

    def _add_call_model(self, node_id: str, config: Mapping[str, Any]) -> None:
        self.call_models[node_id] = CallModel(self._model(config), system_prompt=config.get("systemPrompt"))

    def _model(self, config: Mapping[str, Any]) -> ChatModel | None:
        name = config.get("model")
        if name is None:
            return self.model
        if name not in self.models:
            known = ", ".join(sorted(self.models)) or "none"
            raise InvalidInput(f"config.model {name!r} is not one of the given models: {known}")
        return self.models[name]

    # Edges

    def _check_edge(self, number: int, edge: object) -> _Edge:
        keys = ("source", "sourceHandle", "target", "targetHandle")
        if not isinstance(edge, Mapping) or not all(isinstance(edge.get(key), str) for key in keys):
            raise InvalidInput(f"edge number {number + 1} needs the strings {', '.join(keys)}")
        checked = _Edge(*(edge[key] for key in keys))
        with _named(str(checked)):
            for node_id in (checked.source, checked.target):
                if node_id not in self.templates:
                    raise InvalidInput(f"there is no node {node_id}")
            self._check_handle(checked.source, checked.source_handle, place=1, direction="source")
            self._check_handle(checked.target, checked.target_handle, place=3, direction="target")
            if self._kind(checked) not in _WIRES:
                source, target = self.templates[checked.source], self.templates[checked.target]
                raise InvalidInput(
                    f"{source} {checked.source_handle} does not go to {target} {checked.target_handle}; "
                    f"it goes to {_targets(source, checked.source_handle)}"
                )
        return checked

    def _check_handle(self, node_id: str, handle: str, *, place: int, direction: str) -> None:
        template = self.templates[node_id]
        known = sorted({wire[place] for wire in _WIRES if wire[place - 1] == template})
        if handle not in known:
            named = ", ".join(known) or "none"
            raise InvalidInput(f"{template} {node_id} has no {direction} handle {handle!r}; it has: {named}")

    def _kind(self, edge: _Edge) -> tuple[str, str, str, str]:
        return self.templates[edge.source], edge.source_handle, self.templates[edge.target], edge.target_handle

    def _wire(self, edge: _Edge) -> None:
        _WIRES[self._kind(edge)](self, edge)

    def _wire_tool(self, edge: _Edge) -> None:
        self._call_model(edge.source).add_tool(self.tools[edge.target])

    def _wire_memory(self, edge: _Edge) -> None:
        tool = self.tools[edge.target]
        if tool.memory is not None:
            raise InvalidInput(f"{edge.target} already has a memory; a tool has only one")
        tool.connect(self.memories[edge.source])

    def _wire_connector(self, edge: _Edge) -> None:
        call_model = self._call_model(edge.target)
        if call_model.memory_connector is not None:
            raise InvalidInput(f"{edge.target} already has a memory connector; it shows only one memory")
        call_model.set_memory_connector(self.connectors[edge.source])

    def _wire_call_model(self, edge: _Edge) -> None:
        agent = self.agents[edge.source]
        if agent.call_model in self.call_models.values():
            raise InvalidInput(f"{edge.source} already has a callModel; it has only one")
        if agent.call_model.system_prompt is not None or agent.call_model.model is not self.model:
            raise InvalidInput(f"model and systemPrompt belong in the config of {edge.target}, not of {edge.source}")
        agent.call_model = self.call_models[edge.target]

    def _call_model(self, node_id: str) -> CallModel:
        return self.agents[node_id].call_model if node_id in self.agents else self.call_models[node_id]


_TEXT_OR_NONE = (str, type(None))

# Each template with its constructor and the types of its config.
_TEMPLATES: dict[str, tuple[Callable[[_Loader, str, Mapping[str, Any]], None], Mapping[str, type | tuple[type, ...]]]]
_TEMPLATES = {
    "memory": (
        _Loader._add_memory,
        {"scope": str, "namespace": (str, list, type(None)), "placement": str, "content": str, "maxChars": int},
    ),
    "memoryTool": (_Loader._add_tool, {"name": str, "description": str, "title": _TEXT_OR_NONE, "commands": list}),
    "agent": (_Loader._add_agent, {"model": _TEXT_OR_NONE, "systemPrompt": _TEXT_OR_NONE, "maxTurns": int}),
    "callModel": (_Loader._add_call_model, {"model": _TEXT_OR_NONE, "systemPrompt": _TEXT_OR_NONE}),
}

# All possible edges: source template and handle, target template and handle.
_WIRES: dict[tuple[str, str, str, str], Callable[[_Loader, _Edge], None]] = {
    ("agent", "tools", "memoryTool", "$self"): _Loader._wire_tool,
    ("callModel", "tools", "memoryTool", "$self"): _Loader._wire_tool,
    ("memory", "$self", "memoryTool", "$memory"): _Loader._wire_memory,
    ("memory", "$self", "agent", "setMemoryConnector"): _Loader._wire_connector,
    ("memory", "$self", "callModel", "setMemoryConnector"): _Loader._wire_connector,
    ("agent", "callModel", "callModel", "$self"): _Loader._wire_call_model,
}


def _targets(template: str, handle: str) -> str:
    return ", ".join(f"{wire[2]} {wire[3]}" for wire in _WIRES if wire[:2] == (template, handle))


def _check_config(config: object, keys: Mapping[str, type | tuple[type, ...]]) -> Mapping[str, Any]:
    if not isinstance(config, Mapping):
        raise InvalidInput(f"config must be an object, not {type(config).__name__}")
    for key, value in config.items():
        if key not in keys:
            raise InvalidInput(f"config has no {key!r}; it has: {', '.join(keys)}")
        if not isinstance(value, keys[key]) or isinstance(value, bool):
            raise InvalidInput(f"config.{key} has the wrong type, {type(value).__name__}")
    return config


@contextmanager
def _named(part: str) -> Iterator[None]:
    """Prefix an error with its node or edge."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(f"{part}: {error}") from error
