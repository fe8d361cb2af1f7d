"""Two tenants on one service, and every request that the one can think of to reach the other.

The requests are made from the service's own description: each operation, each of its parameters, with the other's ids,
names and cursors in it. A parameter or a body that nothing is known about is an error, so a new route needs its values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx

import commonplace
from commonplace.space.memory_stores import MemoryStores
from commonplace.space.names import KINDS

CANARY = "zebracanary"
"""In everything that the other holds, and in no request."""

MINE, OTHER = ("user", "alice"), ("user", "bob")
AGENT = (*OTHER, "agent", "assistant")
"""Where Mastra's routes keep the memory of an agent of the other."""

QUERY = "quagga budget"
PATH = "shared/plan.md"
RESOURCE = "acme"


@dataclass(frozen=True)
class Held:
    """What the other's memory holds, by the names that the attacker has got hold of."""

    record: str
    thread: str
    message: str
    commit: int
    store: str
    memory: str
    version: str
    export: bytes
    cursors: tuple[str, ...] = ()
    agent_thread: str = ""
    agent_message: str = ""


def fill(book: commonplace.Book, namespace: tuple[str, ...], word: str) -> Held:
    """The same things in the same places, with another word in each."""
    space = book.space(*namespace)
    text = f"{word} {QUERY}"
    record = space.records.create(type=word, content={"text": text}, source=word, confidence=1, tags=["shared", word])
    space.records.update(record.id, content={"text": f"{text} again"})
    space.records.create(type=word, content={"text": f"second {word}"}, source=word, confidence=1)
    space.files.write(f"/{PATH}", text)
    space.files.append(f"/{PATH}", f"more {word}")
    space.files.write(f"/{word}/only.md", word)
    space.files.write("/gone.md", text)
    space.files.delete("/gone.md")
    thread = space.threads.create(title=word, resource=RESOURCE, metadata={"about": word})
    written = [{"role": "user", "content": text}, {"role": "assistant", "content": f"answer {word}"}]
    message, _ = space.threads.add(thread.id, written)
    space.threads.create(title=f"second {word}", resource=RESOURCE)
    space.threads.working.write(word, resource=RESOURCE)
    space.items.put("shared", {"text": text}, model="m", vectors=[[1.0, 2.0]])
    space.items.put(word, {"text": text}, history=False)
    stores = MemoryStores(space, lambda id: book.space(*namespace, "memory_store", id))
    store = stores.create(word, description=text, metadata={"about": word}).id
    stores.create(f"second {word}")
    memory = stores.open(store).create(f"/{PATH}", text)
    stores.open(store).update(memory.id, content=f"{text} again")
    stores.open(store).create(f"/{word}.md", word)
    export = whole_export(book, namespace)
    return Held(record.id, thread.id, message.id, space.stats().commit, store, memory.id, memory.version, export)


def whole_export(book: commonplace.Book, namespace: tuple[str, ...]) -> bytes:
    """A namespace with its memory stores."""
    stores = book.namespaces(*namespace, "memory_store", limit=1_000)
    lines: list[bytes] = []
    book.export(lines.append, namespaces=[namespace, *stores])
    return b"".join(lines)


def exported(book: commonplace.Book, namespace: tuple[str, ...]) -> list[bytes]:
    # The first line tells when the export was made.
    return whole_export(book, namespace).splitlines()[1:-1]


NAMESPACES = [
    "user/bob",
    "user",
    "user/alice/../bob",
    "user/alice/..",
    "user//bob",
    "/user/bob",
    "user/bob/",
    "user%2Fbob",
    "user/*",
    "*",
    "",
    "user/bob\x00",
    "user/{user_id}",
    '["user", "bob"]',
    "user\u2044bob",
    "USER/BOB",
]
"""Values of `namespace`: none of them is the caller's own."""


def values(held: Held) -> dict[str, list[Any]]:
    """What to put into a parameter, by its name."""
    ids = [held.record, held.thread, held.message]
    cursors = ["0", "x", *held.cursors]
    paths = [PATH, "", "../bob/shared/plan.md", "..%2f..%2fbob", "\x01shared", "user/bob/shared/plan.md"]
    return {
        "path": paths,
        "id": ids,
        "kind": [*KINDS, "*"],
        "key": [f"/{PATH}", *ids, "*"],
        "thread": [held.thread],
        "threadId": [held.thread, held.agent_thread],
        "thread_id": [held.agent_thread, held.thread],
        "agentId": ["assistant", "bob", "user/bob"],
        "networkId": ["bob"],
        "memoryConfig": ['{"semanticRecall": {"scope": "resource"}}', '{"workingMemory": {"scope": "resource"}}'],
        "include": [json.dumps([{"id": held.message, "threadId": held.thread, "withPreviousMessages": 5}])],
        "messageId": [held.message],
        "resource": [RESOURCE, "*", "user/bob"],
        "resourceId": [RESOURCE, "*", "user/bob"],
        "q": [QUERY, "*", "a OR b"],
        "query": [QUERY],
        "searchQuery": [QUERY],
        "tag": ["shared", "*"],
        "type": ["note", "*", "%"],
        "filter": ['{"tags": {"$ne": "x"}}', '{"namespace": ["user", "bob"]}', '{"source": {"$exists": true}}'],
        "metadata": ['{"about": {"$ne": 1}}', '{"about": "x"}'],
        "cursor": cursors,
        "after": ["0", "user/bob", "2020-01-01T00:00:00Z", *held.cursors],
        "before": ["2", "2100-01-01T00:00:00Z"],
        "below": ["user/bob", "user", "true", "*"],
        "everything": ["true"],
        "everywhere": ["true"],
        "emptied": ["true"],
        "item": ["shared", "*", "../bob/shared", f"/{PATH}"],
        "prefix": ["", "s", "user/bob"],
        "scope": ["resource", "all", "thread"],
        "revision": ["1", "2"],
        "as_of": ["2025-06-15T15:06:40Z", "2100-01-01T00:00:00Z"],
        "limit": ["1000", "1", "100"],
        "entries": ["true"],
        "full": ["true"],
        "merge": ["true"],
        "memory_store_id": [held.store, "*", f"../{held.store}", f"user/bob/memory_store/{held.store}"],
        "memory_id": [held.memory, "*", PATH],
        "memory_version_id": [held.version, held.memory],
        "page": ["0", "1", "x", *held.cursors],
        "path_prefix": ["/", "/shared/", "/../"],
        "view": ["full", "basic"],
        "include_archived": ["true"],
        "created_at[gte]": ["2020-01-01T00:00:00Z"],
        "created_at[lte]": ["2100-01-01T00:00:00Z"],
        "operation": ["created", "modified"],
        "api_key_id": ["bob", "*"],
        "map": ["*=user/bob", "user/*=user/bob", "=user/bob"],
    }


UNREMARKABLE = frozenset(
    (
        *("offset", "last", "top", "neighbours", "match", "now", "overwrite", "wrapped", "ttl_seconds"),
        *("min_relevance", "minRelevance", "format", "again", "dry_run", "name", "depth", "history"),
        *("session_id", "service_account_id", "expected_content_sha256"),
        *("per_page", "order", "order_by", "descending", "direction", "perPage", "orderBy", "sortDirection"),
    )
)
"""Parameters that choose how an answer looks, not whose it is."""


def bodies(held: Held) -> dict[str, list[Any]]:
    """What to send, by the path of an operation; text is sent as it is."""
    thread, message, record = held.thread, held.message, held.record
    note = {"type": "note", "content": "mine", "source": "s", "confidence": 1.0}
    said = {"role": "user", "content": "mine"}
    return {
        "/v1/files/{path}": [
            "text",
            {"replace": {"old": QUERY, "new": "x"}},
            {"insert": {"line": 1, "text": "x"}},
        ],
        "/v1/move": [{"source": f"/{PATH}", "target": "/taken.md"}, {"source": "/../bob/shared", "target": "/t"}],
        "/v1/records": [note, {**note, "id": record}, {**note, "namespace": "user/bob"}],
        "/v1/records/{id}": [{"tags": ["x"]}, {"content": "x"}],
        "/v1/threads": [{"title": "x"}, {"id": thread}, {"resource": RESOURCE}],
        "/v1/threads/{id}": [{"title": "x"}],
        "/v1/clones": [{"thread": thread}, {"thread": thread, "upto_message": message, "to": RESOURCE}],
        "/v1/transfers": [{"thread": thread, "to": RESOURCE}, {"thread": thread, "to": "user/alice"}],
        "/v1/title-suggestions": [{"thread": thread, "title": "x"}],
        "/v1/working-memory": [{"content": "x"}, {"content": "x", "revision": 1}],
        "/v1/conversations": [{"messages": [said]}, {"messages": [{**said, "id": message}], "resource": RESOURCE}],
        "/v1/messages": [{"messages": [said]}, {"messages": [{**said, "id": message}]}],
        "/v1/messages/{id}": [{"content": "x"}],
        "/v1/message-deletions": [{"ids": [message]}],
        "/v1/message-replacements": [{"messages": [], "seen": {message: 1}}, {"messages": []}],
        "/v1/message-counts": [{"ids": [thread]}],
        "/v1/record-deletions": [{"ids": [record]}],
        "/v1/record-tags": [{"ids": [record], "add": ["x"]}],
        "/v1/items/{item}": [{"value": "x"}, {"value": "x", "revision": 1}, {"value": "x", "namespace": "user/bob"}],
        "/v1/item-reads": [{"keys": ["shared", "*"]}],
        "/v1/item-refreshes": [{"keys": ["shared"]}],
        "/v1/item-writes": [{"puts": [{"key": "shared", "value": 1}]}, {"puts": [], "deletes": ["shared"]}],
        "/v1/item-deletions": [{"prefix": ""}, {"prefix": "s"}],
        "/v1/recall": [{"thread": thread, "query": QUERY, "scope": "resource"}, {"thread": thread}],
        "/v1/context": [{"thread": thread, "query": QUERY, "scope": "resource"}, {"thread": thread}],
        "/v1/search": [
            {"query": QUERY},
            {"query": QUERY, "below": True},
            {"query": QUERY, "everywhere": True},
            {"vector": [1.0, 2.0], "model": "m"},
            {"vector": [1.0, 2.0], "model": "m", "everywhere": True},
            {"vector": [1.0, 2.0], "model": "m", "below": True},
            {"query": QUERY, "filter": {"namespace": ["user", "bob"]}},
            {"query": QUERY, "as_of": "2100-01-01T00:00:00Z"},
        ],
        "/v1/thread-search": [{"query": QUERY}, {"query": QUERY, "resource": RESOURCE}],
        "/v1/restore": [
            {"kind": "file", "key": f"/{PATH}", "revision": 1},
            {"kind": "file", "key": "/gone.md", "revision": 1},
            {"kind": "record", "key": record, "revision": 1},
        ],
        "/v1/undo": [{"commit": held.commit}, {"commit": 1}],
        "/v1/purge": [{"kind": "file", "key": f"/{PATH}"}, {"kind": "record", "key": record}],
        "/v1/import": [b"FORGED"],
        "/v1/import-memory": [b'{"role": "user", "content": "FORGED"}'],
        **memory_store_bodies(held),
        **mastra_bodies(held),
    }


def memory_store_bodies(held: Held) -> dict[str, list[Any]]:
    stores, store = "/v1/memory_stores", "/v1/memory_stores/{memory_store_id}"
    return {
        stores: [{"name": "mine"}, {"name": held.store, "metadata": {"namespace": "user/bob"}}],
        store: [{"name": "taken"}, {"metadata": {"about": None}}, {}],
        f"{store}/memories": [{"path": "/taken.md", "content": "x"}, {"path": "/../bob/taken.md", "content": "x"}],
        f"{store}/memories/{{memory_id}}": [{"content": "taken"}, {"path": "/taken.md"}, {}],
    }


def mastra_bodies(held: Held) -> dict[str, list[Any]]:
    said = {"threadId": held.agent_thread, "resourceId": RESOURCE, "role": "user", "content": "mine"}
    thread = "/api/memory/threads/{thread_id}"
    known: dict[str, list[Any]] = {
        "/api/memory/observational-memory/buffer-status": [{"agentId": "bob"}],
        f"{thread}/clone": [{}, {"resourceId": RESOURCE, "options": {"messageLimit": 9}}],
        f"{thread}/transfer": [{"resourceId": RESOURCE}, {"resourceId": "user/alice"}],
        f"{thread}/working-memory": [{"workingMemory": "x"}, {"workingMemory": "x", "resourceId": RESOURCE}],
        "/api/memory/threads": [{"resourceId": RESOURCE}, {"resourceId": RESOURCE, "threadId": held.thread}],
        thread: [{"title": "x"}, {"title": "x", "resourceId": RESOURCE}],
        "/api/memory/save-messages": [{"messages": [said]}, {"messages": [{**said, "id": held.agent_message}]}],
        "/api/memory/messages/delete": [{"messageIds": [held.agent_message]}, {"messageIds": held.message}],
    }
    networks = {path.replace("/api/memory", "/api/memory/network"): sent for path, sent in known.items()}
    return {**known, **networks}


@dataclass(frozen=True)
class Operation:
    method: str
    path: str
    described: dict[str, Any] = field(repr=False)

    @property
    def is_stream(self) -> bool:
        answers = self.described["responses"].get("200", {}).get("content", {})
        return "text/event-stream" in answers


def operations(description: dict[str, Any]) -> list[Operation]:
    return [
        Operation(method.upper(), path, described)
        for path, methods in description["paths"].items()
        for method, described in methods.items()
    ]


def attacks(operation: Operation, held: Held) -> Iterator[httpx.Request]:
    """Requests of one operation, the other's names in each place in turn."""
    known, sent = values(held), bodies(held)
    parameters = {
        (one["in"], one["name"]): one
        for one in operation.described.get("parameters", ())
        if one["in"] in ("path", "query")
    }
    names = {name for _, name in parameters} - {"namespace"} - UNREMARKABLE
    unknown = names - known.keys()
    assert not unknown, f"{operation}: say in tests/http/tenants.py what to put into {unknown}"
    has_body = "requestBody" in operation.described
    assert not has_body or operation.path in sent, f"{operation}: say in tests/http/tenants.py what to send"
    first = {
        (place, name): known[name][0]
        for (place, name), one in parameters.items()
        if name in names and (one.get("required") or name in ("thread", "resource", "agentId"))
    }
    given: list[dict[tuple[str, str], Any]] = [first]
    given += [{**first, (place, name): value} for place, name in parameters if name in names for value in known[name]]
    for body in sent[operation.path] if has_body else [None]:
        for choice in given:
            yield from _requests(operation, choice, body)
        # Also where no such parameter is described.
        for namespace in NAMESPACES:
            yield from _requests(operation, {**first, ("query", "namespace"): namespace}, body)
    for header in ("X-Namespace", "X-User-Id", "X-Forwarded-User", "X-Resource-Id", "Cookie"):
        body = sent[operation.path][0] if has_body else None
        for request in _requests(operation, first, body):
            request.headers[header] = "namespace=user/bob" if header == "Cookie" else "user/bob"
            yield request


def _requests(operation: Operation, choice: dict[tuple[str, str], Any], body: Any) -> Iterator[httpx.Request]:
    path = operation.path
    for (place, name), value in choice.items():
        if place == "path":
            path = path.replace("{" + name + "}", str(value).replace("\x01", "%01"))
    query = {name: value for (place, name), value in choice.items() if place == "query"}
    headers = {}
    content: bytes | None = None
    if isinstance(body, dict):
        content, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
    elif body is not None:
        content = body if isinstance(body, bytes) else body.encode()
        headers = {"Content-Type": "application/jsonl" if isinstance(body, bytes) else "text/plain"}
    yield httpx.Request(operation.method, f"http://tenants{path}", params=query, content=content, headers=headers)
