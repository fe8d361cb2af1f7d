"""Every JSON message that seed 003 shows, in its order, with the answer that this server gives.

`<id>` stands for the id of the record that was saved last, `<time>` for any time, `<similarity>` for any number from 0
to 1. The seed's `123e4567`, `9b5f…` and `[/* concise */]` are no ids and no JSON: the first two are not found, the
third is an empty list. What the seed leaves out, `notifications/initialized`, is left out here too.
"""

from __future__ import annotations

from typing import Any

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "clientInfo": {"name": "claude", "version": "1.0"}},
}
DISCOVERY: list[tuple[dict[str, Any], str, list[str]]] = [
    (
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
        "tools",
        ["memory_create", "memory_search", "memory_list", "memory_get", "memory_delete"],
    ),
    ({"jsonrpc": "2.0", "id": 3, "method": "resources/list"}, "resources", ["recent"]),
    (
        {"jsonrpc": "2.0", "id": 4, "method": "resources/templates/list"},
        "resourceTemplates",
        ["recent", "by-tags", "by-type", "item", "file", "message", "value"],
    ),
    ({"jsonrpc": "2.0", "id": 5, "method": "prompts/list"}, "prompts", ["memory_recall", "memory_save"]),
]


def call(id: int | str, tool: str, **arguments: object) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}


def read(id: int | str, uri: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": "resources/read", "params": {"uri": uri}}


LINK = {
    "type": "resource_link",
    "uri": "mem://item/<id>",
    "name": "memory:<id>",
    "mimeType": "application/json",
}


def answer(id: int | str, text: str, items: list[dict[str, Any]], *links: dict[str, Any]) -> dict[str, Any]:
    content = [{"type": "text", "text": text}, *links]
    return {
        "jsonrpc": "2.0",
        "id": id,
        "result": {"content": content, "structuredContent": {"items": items}, "isError": False},
    }


def saved(id: int | str, type: str, tags: list[str], confidence: float) -> dict[str, Any]:
    written = ",".join(f'"{tag}"' for tag in tags)
    text = f"Memory upserted.\nID: <id>\nType: {type}\nTags: [{written}]\nConfidence: {confidence}\nCreated: <time>"
    item = {"id": "<id>", "type": type, "tags": tags, "confidence": confidence, "createdAt": "<time>"}
    return answer(id, text, [item], LINK)


def found(id: int | str, type: str, tags: list[str], summary: str, *, is_search: bool) -> dict[str, Any]:
    similarity = " sim=<similarity>" if is_search else ""
    text = f"Found 1 memories:\n• [{type}]{similarity} tags={', '.join(tags)} mem://item/<id> {summary}"
    item: dict[str, Any] = {"id": "<id>", "type": type, "tags": tags, "createdAt": "<time>"}
    item |= {"uri": "mem://item/<id>", "summary": summary}
    if is_search:
        item["similarity"] = "<similarity>"
    return answer(id, text, [item], LINK)


def nothing(id: int | str) -> dict[str, Any]:
    return answer(id, "No memories found.", [])


def contents(id: int | str, uri: str, text: str) -> dict[str, Any]:
    one = {"uri": uri, "mimeType": "application/json", "text": text}
    return {"jsonrpc": "2.0", "id": id, "result": {"contents": [one]}}


def missing(id: int | str, name: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "error": {"code": -32000, "message": f"Memory {name} not found"}}


RELEASE = ["project:service-x", "topic:release", "status:accepted"]
HEALTH = ["project:alpha", "topic:observability", "env:prod"]
HEALTH_TEXT = "Use /healthz for readiness; /livez for liveness"
BLUE_GREEN = {
    "summary": "Adopt Blue/Green deploy for service-x",
    "rationale": ["zero-downtime", "fast rollback"],
    "owners": ["alice", "bob"],
    "next_steps": ["create runbook", "add health probes"],
}
BLUE_GREEN_TITLE = (
    "Adopt Blue/Green deploy for service-x zero-downtime fast rollback alice bob create runbook add health probes"
)
SESSION = "chat://claude/session-2025-09-17"
NOTE = {"type": "note", "source": "agent://pipeline/step-42", "confidence": 0.9}
DECISION = {"type": "decision", "source": SESSION, "confidence": 0.9}
RUNBOOK = {"type": "runbook", "source": SESSION, "confidence": 0.95}

EXCHANGES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    # Tool contracts
    (
        call(
            10,
            "memory_search",
            query="deployment checklist for service-x",
            type="note",
            tags=["project:service-x", "env:prod"],
            limit=5,
        ),
        nothing(10),
    ),
    (read(11, "mem://item/123e4567"), missing(11, "123e4567")),
    (read("recent", "mem://recent?limit=20"), contents("recent", "mem://recent?limit=20", "[]")),
    (
        read("by-tags", "mem://by-tags/project:alpha,topic:etl?limit=50"),
        contents("by-tags", "mem://by-tags/project:alpha,topic:etl?limit=50", "[]"),
    ),
    (
        read("by-type", "mem://by-type/note?limit=100"),
        contents("by-type", "mem://by-type/note?limit=100", "[]"),
    ),
    (
        call(12, "memory_create", content=BLUE_GREEN, tags=RELEASE, **DECISION),
        saved(12, "decision", RELEASE, 0.9),
    ),
    (call(13, "memory_list", type="todo", tags=["project:service-x"]), nothing(13)),
    # Example end-to-end
    (
        call(
            21,
            "memory_search",
            query="rollback steps for service-x deploy",
            tags=["project:service-x", "topic:release"],
            limit=3,
        ),
        found(21, "decision", RELEASE, BLUE_GREEN_TITLE, is_search=True),
    ),
    (read(22, "mem://item/9b5f…"), missing(22, "9b5f…")),
    (
        call(23, "memory_create", content={"title": "Service-X Rollback v2", "steps": []}, tags=RELEASE, **RUNBOOK),
        saved(23, "runbook", RELEASE, 0.95),
    ),
    # agents.md, section 3
    (
        call("save-1", "memory_create", content={"text": HEALTH_TEXT}, tags=HEALTH, **NOTE),
        saved("save-1", "note", HEALTH, 0.9),
    ),
    (
        call(
            "search-1",
            "memory_search",
            query="readiness check endpoint for alpha",
            tags=["project:alpha", "topic:observability"],
            limit=3,
        ),
        found("search-1", "note", HEALTH, HEALTH_TEXT, is_search=True),
    ),
    (
        read("read-1", "mem://item/<id>"),
        contents(
            "read-1",
            "mem://item/<id>",
            f'{{"id": "<id>", "type": "note", "content": {{"text": "{HEALTH_TEXT}"}}, '
            '"source": "agent://pipeline/step-42", "tags": ["project:alpha", "topic:observability", "env:prod"], '
            '"confidence": 0.9, "createdAt": "<time>", "updatedAt": "<time>", "hash": "<hash>"}',
        ),
    ),
    (call("list-1", "memory_list", type="decision", tags=["project:alpha"]), nothing("list-1")),
]
