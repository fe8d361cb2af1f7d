"""Reads memories of other programs as records: server-memory, mem0, LangGraph's store, mcp-memory-service, Letta.

Databases are only read, as tables. Files that would have to be unpickled, and code in agent files, are never touched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from commonplace.checks import JSON
from commonplace.errors import InvalidInput, TooLarge
from commonplace.exchange.sources import (
    MAX_DOCUMENT_BYTES,
    Chat,
    Conversation,
    Document,
    Format,
    Item,
    Leaf,
    LeftOut,
    Memory,
    Problem,
    Tree,
    json_array,
    json_lines,
    kept_id,
    label_of,
    made_id,
    tag_of,
    text_of_parts,
    time_of,
)
from commonplace.store import Reader, Scan

MAX_HISTORY = 2_000_000
"""How many events of a history are read: they are sorted by memory, so all of them are in memory."""


def _members(leaf: Leaf) -> Mapping[str, Any]:
    """The fields of a JSON object; of JSON lines, those of the first line."""
    first = leaf.first
    if isinstance(first, tuple):
        first = first[0]
    return first if isinstance(first, dict) else {}


def _whole(leaf: Leaf) -> Any:
    first = leaf.first
    return first if isinstance(first, dict) else leaf.document()


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in row.items()}


def _json(written: object) -> Any:
    """A column that holds JSON; None if it does not."""
    if not isinstance(written, str):
        return written
    try:
        return json.loads(written)
    except (ValueError, RecursionError):
        return None


# @modelcontextprotocol/server-memory

RELATION = "relation"


def _is_server_memory(leaf: Leaf, tree: Tree) -> bool:
    lines = leaf.first if isinstance(leaf.first, tuple) else (leaf.first,)
    return any(
        isinstance(line, dict)
        and (
            (line.get("type") == "entity" and "observations" in line)
            or (line.get("type") == RELATION and "relationType" in line)
        )
        for line in lines
    )


def _read_server_memory(leaf: Leaf, tree: Tree) -> Iterator[Item]:
    with leaf.open() as stream:
        for number, line in json_lines(stream):
            if isinstance(line, Problem):
                yield line
            elif not isinstance(line, dict):
                yield Problem(f"line {number}", "it is not an object")
            elif line.get("type") == "entity":
                yield from _entity(number, line)
            elif line.get("type") == RELATION:
                yield _relation(number, line)
            else:
                yield Problem(f"line {number}", "it is neither an entity nor a relation")


def _entity(number: int, line: Mapping[str, Any]) -> Iterator[Item]:
    name, observations = line.get("name"), line.get("observations")
    if not isinstance(name, str) or not name.strip() or not isinstance(observations, list):
        yield Problem(f"line {number}", "an entity needs a name and a list of observations")
        return
    kind = label_of(line.get("entityType"), "entity")
    source = f"server-memory:{label_of(name, 'entity')}"
    tags, origin = (tag_of("entity", name),), ("server-memory",)
    if not observations:
        yield Memory(made_id("server-memory", name), kind, {"entity": name}, source, tags, origin=origin)
    for place, text in enumerate(observations, 1):
        if isinstance(text, str):
            yield Memory(made_id("server-memory", name, text), kind, text, source, tags, origin=origin)
        else:
            yield Problem(f"line {number}", f"observation {place} of {name} is not a text")


def _relation(number: int, line: Mapping[str, Any]) -> Item:
    ends = {name: line.get(name) for name in ("from", "to", "relationType")}
    if not all(isinstance(value, str) and value.strip() for value in ends.values()):
        return Problem(f"line {number}", "a relation needs from, to and relationType")
    one, other, kind = cast("list[str]", [*ends.values()])
    return Memory(
        made_id("server-memory", RELATION, one, other, kind),
        RELATION,
        cast("JSON", ends),
        f"server-memory:{label_of(one, 'entity')}",
        tuple(dict.fromkeys((tag_of("entity", one), tag_of("entity", other)))),
        origin=("server-memory",),
    )


def server_memory_lines(reader: Reader) -> Iterator[bytes]:
    """The records of a namespace as server-memory reads them.

    Records that came from it become their entities again. Others become the observations of one entity for each type.
    """
    entities: dict[str, dict[str, Any]] = {}
    relations: list[dict[str, JSON]] = []
    for entry in _records(reader):
        attributes = cast("Mapping[str, Any]", entry.attributes)
        kind, source, content = attributes["type"], attributes["source"], entry.value
        if kind == RELATION and isinstance(content, Mapping) and {"from", "to", "relationType"} <= content.keys():
            relations.append({"type": RELATION, **{name: content[name] for name in ("from", "to", "relationType")}})
            continue
        tool, _, name = source.partition(":")
        name = name if tool == "server-memory" and name else kind
        entity = entities.setdefault(name, {"type": "entity", "name": name, "entityType": kind, "observations": []})
        if not (isinstance(content, Mapping) and content.keys() == {"entity"}):
            text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, sort_keys=True)
            entity["observations"].append(text)
    for line in (*entities.values(), *relations):
        yield json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _records(reader: Reader) -> Iterator[Any]:
    from commonplace.filters import Filter

    scan: Scan | None = Scan(Filter(kinds=("record",)), order="created")
    while scan is not None:
        page = reader.scan(scan)
        yield from page.entries
        scan = None if page.cursor is None else Scan(scan.filter, order="created", after=page.cursor)


# mem0


def _is_mem0(leaf: Leaf, tree: Tree) -> bool:
    results = _members(leaf).get("results")
    if isinstance(results, list):
        return not results or _is_mem0_memory(results[0])
    first = leaf.first
    return isinstance(first, list) and bool(first) and _is_mem0_memory(first[0])


def _is_mem0_memory(one: object) -> bool:
    return isinstance(one, dict) and isinstance(one.get("memory"), str) and "id" in one


def _read_mem0(leaf: Leaf, tree: Tree) -> Iterator[Item]:
    for number, found in enumerate(_results(leaf, "results"), 1):
        if isinstance(found, Problem):
            yield found
        elif not _is_mem0_memory(found):
            yield Problem(f"memory {number}", "it has no id and no text")
        else:
            yield _mem0(found)


def _results(leaf: Leaf, field: str) -> Iterator[Any]:
    """The elements of an array, or of a field of an object."""
    if isinstance(leaf.first, list):
        with leaf.open() as stream:
            yield from json_array(stream)
        return
    document = _whole(leaf)
    found = document.get(field) if isinstance(document, dict) else None
    if not isinstance(found, list):
        raise InvalidInput(f"it has no list {field}")
    yield from found


_MEM0_OWNERS = (("user", "user_id"), ("agent", "agent_id"), ("run", "run_id"))
_MEM0_FIELDS = (
    "id",
    "memory",
    "hash",
    "score",
    "metadata",
    "created_at",
    "updated_at",
    "categories",
    "role",
    "actor_id",
)


def _mem0(found: Mapping[str, Any]) -> Memory:
    id = kept_id(found.get("id"), "mem0")
    owners = [
        (name, found[field]) for name, field in _MEM0_OWNERS if isinstance(found.get(field), str) and found[field]
    ]
    metadata = found.get("metadata")
    extra = {
        name: value
        for name, value in found.items()
        if name not in _MEM0_FIELDS and name not in dict(_MEM0_OWNERS).values() and value not in (None, [], {}, "")
    }
    if isinstance(metadata, dict) and metadata:
        extra["metadata"] = metadata
    content: JSON = {"text": found["memory"], **extra} if extra else found["memory"]
    created = time_of(found.get("created_at"))
    categories = found.get("categories")
    tags = [tag_of(name, value) for name, value in owners]
    tags += [tag_of(name, found[name]) for name in ("role", "actor_id") if isinstance(found.get(name), str)]
    tags += [tag_of("category", one) for one in categories or () if isinstance(one, str)] if categories else []
    return Memory(
        id,
        "memory",
        content,
        f"mem0:{id}",
        tuple(dict.fromkeys(tags)),
        created_at=created,
        updated_at=time_of(found.get("updated_at")) or created,
        origin=owners[0] if owners else ("mem0",),
    )


def _is_mem0_history(leaf: Leaf, tree: Tree) -> bool:
    return {"memory_id", "old_memory", "new_memory", "event"} <= leaf.columns.get("history", set())


_HISTORY = ("memory_id", "old_memory", "new_memory", "event", "created_at", "updated_at", "actor_id", "role")


def _read_mem0_history(leaf: Leaf, tree: Tree) -> Iterator[Item]:
    """Each memory with its revisions, in order. The file says nothing about users."""
    events: dict[str, list[dict[str, Any]]] = {}
    with leaf.tables() as tables:
        if tables.count("history") > MAX_HISTORY:
            raise TooLarge(f"the history has more than {MAX_HISTORY:,} events")
        present = set(tables.columns("history"))
        columns = {name: name for name in _HISTORY if name in present}
        for number, raw in enumerate(tables.rows("history", columns), 1):
            try:
                row = _row(raw)
            except UnicodeDecodeError:
                yield Problem(f"event {number}", "it is not UTF-8")
                continue
            if not isinstance(row["memory_id"], str) or row["event"] not in ("ADD", "UPDATE", "DELETE"):
                yield Problem(f"event {number}", "it has no memory_id, or an unknown event")
                continue
            events.setdefault(row["memory_id"], []).append(row)
    for id, rows in events.items():
        yield _mem0_revisions(id, rows)


def _mem0_revisions(id: str, rows: Sequence[Mapping[str, Any]]) -> Item:
    texts: list[tuple[JSON, int | None]] = []
    is_deleted = False
    for row in rows:
        at = time_of(row.get("updated_at")) or time_of(row.get("created_at"))
        is_deleted = row["event"] == "DELETE"
        old, new = row.get("old_memory"), row.get("new_memory")
        if not texts and isinstance(old, str) and old:  # the event that added it is missing
            texts.append((old, time_of(row.get("created_at"))))
        if not is_deleted and isinstance(new, str) and (not texts or texts[-1][0] != new):
            texts.append((new, at))
    if not texts:
        return Problem(f"memory {id}", "its events have no text")
    *former, (content, updated) = texts
    authors = {row.get("actor_id") for row in rows} - {None, ""}
    kept = kept_id(id, "mem0")
    return Memory(
        kept,
        "memory",
        content,
        f"mem0:{kept}",
        tuple(sorted(tag_of("actor", str(author)) for author in authors)),
        created_at=time_of(rows[0].get("created_at")),
        updated_at=updated,
        origin=("mem0",),
        former=tuple(former),
        is_deleted=is_deleted,
    )


# LangGraph's store

_STORE = ("prefix", "key", "value", "created_at", "updated_at", "expires_at")


def _is_langgraph(leaf: Leaf, tree: Tree) -> bool:
    return {"prefix", "key", "value"} <= leaf.columns.get("store", set())


def _read_langgraph(leaf: Leaf, tree: Tree) -> Iterator[Item]:
    with leaf.tables() as tables:
        present = set(tables.columns("store"))
        columns = {name: name for name in _STORE if name in present}
        for number, raw in enumerate(tables.rows("store", columns), 1):
            try:
                row = _row(raw)
            except UnicodeDecodeError:
                yield Problem(f"row {number}", "it is not UTF-8")
                continue
            yield _stored(number, row)


def _stored(number: int, row: Mapping[str, Any]) -> Item:
    prefix, key, value = row.get("prefix"), row.get("key"), _json(row.get("value"))
    if not isinstance(prefix, str) or not isinstance(key, str) or not isinstance(value, dict):
        return Problem(f"row {number}", "it has no prefix, key and JSON object")
    labels = tuple(label for label in prefix.split(".") if label) or ("store",)
    created = time_of(row.get("created_at"))
    return Memory(
        kept_id(f"{prefix}/{key}", "langgraph"),
        label_of(labels[-1], "memory"),
        value,
        f"langgraph:{label_of(f'{prefix}/{key}', 'store')}",
        tuple(dict.fromkeys(tag_of("label", label) for label in labels[:10])),
        created_at=created,
        updated_at=time_of(row.get("updated_at")) or created,
        expires_at=time_of(row.get("expires_at")),
        origin=labels,
    )


@contextmanager
def open_database(url: str) -> Iterator[Tree]:
    """A LangGraph store on PostgreSQL as a source."""
    from commonplace.errors import ConfigurationError, install_command

    try:
        from commonplace.backends.postgres.exchange import open_foreign
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"PostgreSQL needs {error.name}; run: {install_command('postgres')}") from error
    with open_foreign(url) as tables:
        if not tables.columns("store"):
            raise InvalidInput("the database has no table store, which LangGraph's PostgresStore makes; name another")
        yield Tree("PostgreSQL", (_Database(tables),))


class _Database(Leaf):
    """The table `store` of a database."""

    def __init__(self, tables: Any) -> None:
        def nothing() -> Any:
            raise InvalidInput("it is a database, not a file")

        super().__init__("the table store", 0, None, nothing)
        self._tables = tables
        self.__dict__["head"] = b""
        self.__dict__["first"] = None
        self.__dict__["columns"] = {"store": frozenset(tables.columns("store"))}

    @contextmanager
    def tables(self) -> Iterator[Any]:
        yield self._tables


# mcp-memory-service


def _is_memory_service(leaf: Leaf, tree: Tree) -> bool:
    members = _members(leaf)
    if isinstance(members.get("memories"), list) and ("export_metadata" in members or _is_exported(members)):
        return True
    return {"content_hash", "content", "memory_type"} <= leaf.columns.get("memories", set())


def _is_exported(members: Mapping[str, Any]) -> bool:
    return any(isinstance(one, dict) and "content_hash" in one for one in members["memories"][:1])


_MEMORIES = ("content_hash", "content", "tags", "memory_type", "metadata", "created_at", "updated_at", "deleted_at")


def _read_memory_service(leaf: Leaf, tree: Tree) -> Iterator[Item]:
    if not leaf.is_sqlite:
        for number, found in enumerate(_results(leaf, "memories"), 1):
            yield _service_memory(number, found)
        return
    with leaf.tables() as tables:
        present = set(tables.columns("memories"))
        columns = {name: name for name in _MEMORIES if name in present}
        for number, raw in enumerate(tables.rows("memories", columns), 1):
            try:
                row = _row(raw)
            except UnicodeDecodeError:
                yield Problem(f"row {number}", "it is not UTF-8")
                continue
            if row.get("deleted_at") is not None:
                yield LeftOut(f"row {number}", "it is deleted")
            else:
                yield _service_memory(number, row)


def _service_memory(number: int, found: Any) -> Item:
    if not isinstance(found, dict) or not isinstance(found.get("content"), str) or not found["content"].strip():
        return Problem(f"memory {number}", "it has no content")
    id = kept_id(found.get("content_hash"), "mcp-memory-service", found["content"])
    tags = found.get("tags") or ()
    names = tags.split(",") if isinstance(tags, str) else [one for one in tags if isinstance(one, str)]
    metadata = _json(found.get("metadata"))
    created = time_of(found.get("created_at")) or time_of(found.get("created_at_iso"))
    updated = time_of(found.get("updated_at")) or time_of(found.get("updated_at_iso"))
    content: JSON = found["content"]
    if isinstance(metadata, dict) and metadata:
        content = {"text": found["content"], "metadata": metadata}
    clean = [re.sub(r"[^a-z0-9:_-]+", "-", name.strip().lower()).strip("-")[:100] for name in names]
    return Memory(
        id,
        label_of(found.get("memory_type"), "memory"),
        content,
        f"mcp-memory-service:{id}",
        tuple(dict.fromkeys(name for name in clean if name)),
        created_at=created,
        updated_at=updated or created,
        origin=("mcp-memory-service",),
    )


# Letta


def _letta(leaf: Leaf) -> Mapping[str, Any] | None:
    """The agent file; sometimes it is JSON in a JSON string."""
    found = leaf.first
    if isinstance(found, tuple) and len(found) == 1:
        found = found[0]
    if isinstance(found, str) and len(found) <= MAX_DOCUMENT_BYTES:
        found = _json(found)
    if not isinstance(found, dict):
        return None
    if isinstance(found.get("agents"), list) and ("blocks" in found or "tools" in found):
        return found
    is_older = isinstance(found.get("core_memory"), list) and isinstance(found.get("messages"), list)
    return {"agents": [found], "blocks": []} if is_older else None


def _is_letta(leaf: Leaf, tree: Tree) -> bool:
    return _letta(leaf) is not None


def _read_letta(leaf: Leaf, tree: Tree) -> Iterator[Item]:
    found = _letta(leaf)
    if found is None:
        raise InvalidInput("it is not an agent file of Letta")
    blocks = {str(block.get("id", number)): block for number, block in enumerate(_objects(found.get("blocks")))}
    for number, agent in enumerate(found["agents"], 1):
        if isinstance(agent, dict):
            yield from _agent(number, agent, blocks)
        else:
            yield Problem(f"agent {number}", "it is not an object")


def _objects(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _agent(number: int, agent: Mapping[str, Any], blocks: Mapping[str, Mapping[str, Any]]) -> Iterator[Item]:
    name = re.sub(r"[/\\%\x00-\x1f\x7f]+", "-", str(agent.get("name") or "")).strip(" .")[:100] or f"agent-{number}"
    origin = ("letta", name)
    ids = agent.get("block_ids")
    own = [blocks[str(id)] for id in ids if str(id) in blocks] if isinstance(ids, list) else [*blocks.values()]
    for block in (*own, *_objects(agent.get("core_memory"))):
        label = re.sub(r"[/\\%\x00-\x1f\x7f]+", "-", str(block.get("label") or "")).strip(" .")[:100] or "block"
        if isinstance(block.get("value"), str):
            at = time_of(block.get("created_at"))
            updated = time_of(block.get("updated_at"))
            yield Document(f"/letta/{name}/{label}.md", block["value"], at, updated, origin)
        else:
            yield Problem(f"agent {name}: block {label}", "it has no text")
    listed = _objects(agent.get("messages"))
    first = str(listed[0].get("created_at")) if listed else ""
    # The ids in a file are counted from 0, so they say nothing outside of it.
    thread = made_id("letta", name, first)
    messages: list[dict[str, Any]] = []
    problems: list[Problem | LeftOut] = []
    for place, message in enumerate(listed, 1):
        found = _letta_message(thread, place, message)
        if found is None:
            problems.append(LeftOut(f"agent {name}: message {place}", "it is empty"))
        else:
            messages.append(found)
    if messages:
        metadata: dict[str, JSON] = {"source": f"letta:{name}"}
        chat = Chat(thread, messages, name, time_of(agent.get("created_at")), metadata=metadata)
        yield Conversation(f"agent {name}", (chat,), origin, tuple(problems))


def _letta_message(thread: str, place: int, message: Mapping[str, Any]) -> dict[str, Any] | None:
    content = message.get("content") if message.get("content") is not None else message.get("text")
    text = text_of_parts(content)
    calls = message.get("tool_calls")
    if not text and not calls:
        return None
    role = message.get("role")
    shown: dict[str, Any] = {
        "id": made_id(thread, str(message.get("id") or place)),
        "role": role if role in ("user", "assistant", "tool", "function", "system") else "data",
        "content": text or None,
        "createdAt": time_of(message.get("created_at")),
    }
    for extra in ("tool_calls", "tool_call_id", "name"):
        if message.get(extra):
            shown[extra] = message[extra]
    return shown


FORMATS = (
    Format("server-memory", "server-memory graph", _is_server_memory, _read_server_memory),
    # The history first: the memories of the same store then add what it does not say, such as their users.
    Format("mem0-history", "mem0 history", _is_mem0_history, _read_mem0_history),
    Format("mem0", "mem0 memories", _is_mem0, _read_mem0),
    Format("langgraph", "LangGraph store", _is_langgraph, _read_langgraph),
    Format("mcp-memory-service", "mcp-memory-service memories", _is_memory_service, _read_memory_service),
    Format("letta", "Letta agent file", _is_letta, _read_letta),
)
