"""What a client must see: its task, and the errors in its report."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from visit import WATCHED

TOOLS = ["memory_create", "memory_delete", "memory_get", "memory_list", "memory_search"]
PROMPTS = ["memory_recall", "memory_save"]
REFUSAL = "query is required and must be a non-empty string"
_WITH_LINKS = "2025-06-18"


def calls(tag: str) -> dict[str, Any]:
    """The calls of a client, about a memory whose tag distinguishes it from those of other clients."""
    summary = f"Releases of {tag} go out on Tuesdays, näkemiin 日本"
    return {
        "create": {
            "type": "decision",
            "content": {"summary": summary, "steps": ["build", "ship"], "owner": None},
            "source": f"matrix://{tag}",
            "tags": [tag, "project:matrix"],
            "confidence": 0.75,
        },
        "search": {"query": "When do we release?", "tags": [tag], "limit": 5},
        "wrong_search": {"query": ""},
        "prompt": "memory_recall",
        "prompt_arguments": {"query": "When do we release?", "tags": tag},
    }


def faults_of(
    seen: Mapping[str, Any], asked: Mapping[str, Any], protocol: str, *, subscribes: bool = False
) -> Iterator[str]:
    """Every difference between what a client saw and what our server promises; with `subscribes`, it did."""
    if seen["protocol"] != protocol:
        yield f"protocol {seen['protocol']}, not {protocol}"
    if seen["server"] != "commonplace":
        yield f"server {seen['server']}"
    yield from _tool_faults(seen["tools"])
    text, items, links = _answer(seen["created"])
    match = re.match(r"Memory upserted\.\nID: ([0-9a-f-]{36})\nType: decision\nTags: ", text)
    if match is None or len(items) != 1:
        yield f"created: {seen['created']}"
        return
    id = match[1]
    address = f"mem://item/{id}"
    given = asked["create"]
    known = {name: given[name] for name in ("type", "tags", "confidence")}
    yield from _differences("created", items[0], {"id": id, **known})
    wanted_links = [address] if protocol >= _WITH_LINKS else []
    if links != wanted_links:
        yield f"created links to {links}, not {wanted_links}"
    if subscribes and seen["updated"] != WATCHED:
        yield f"was notified of a change of {seen['updated']}, not of {WATCHED}"
    yield from _search_faults(seen["found"], address, given, wanted_links)
    if not seen["refused"].get("isError") or _answer(seen["refused"])[0] != REFUSAL:
        yield f"refused: {seen['refused']}"
    yield from _resource_faults(seen["resource"], address, given)
    names = sorted(prompt["name"] for prompt in seen["prompts"])
    if names != PROMPTS:
        yield f"prompts {names}"
    shown = seen["prompt"]["messages"][0]["content"]["text"]
    for part in (address, given["content"]["summary"]):
        if part not in shown:
            yield f"the prompt does not say {part}: {shown}"


def _tool_faults(tools: list[dict[str, Any]]) -> Iterator[str]:
    names = sorted(tool["name"] for tool in tools)
    if names != TOOLS:
        yield f"tools {names}"
    for tool in tools:
        schema = tool["inputSchema"]
        if not tool["description"] or schema["type"] != "object" or "properties" not in schema:
            yield f"the tool {tool['name']} has no description or no schema"


def _search_faults(
    found: dict[str, Any], address: str, given: Mapping[str, Any], wanted_links: list[str]
) -> Iterator[str]:
    text, items, links = _answer(found)
    if not text.startswith("Found 1 memories:") or address not in text or len(items) != 1:
        yield f"found: {found}"
        return
    item = items[0]
    yield from _differences("found", item, {"uri": address, "type": given["type"], "tags": given["tags"]})
    if not 0 <= item["similarity"] <= 1:
        yield f"similarity {item['similarity']}"
    if given["content"]["summary"] not in item["summary"]:
        yield f"summary {item['summary']}"
    if links != wanted_links:
        yield f"found links to {links}, not {wanted_links}"


def _resource_faults(resource: dict[str, Any], address: str, given: Mapping[str, Any]) -> Iterator[str]:
    contents = resource["contents"]
    if [one["uri"] for one in contents] != [address]:
        yield f"read {contents}"
        return
    yield from _differences(
        "the resource", json.loads(contents[0]["text"]), {**given, "id": address.rpartition("/")[2]}
    )


def _answer(result: Mapping[str, Any]) -> tuple[str, list[dict[str, Any]], list[str]]:
    """A result's text, its structured items, and where its links lead."""
    content = result["content"]
    texts = [block["text"] for block in content if block["type"] == "text"]
    links = [block["uri"] for block in content if block["type"] == "resource_link"]
    return "\n".join(texts), (result.get("structuredContent") or {}).get("items", []), links


def _differences(what: str, value: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[str]:
    for name, known in wanted.items():
        given = value.get(name)
        is_same = sorted(given or []) == sorted(known) if name == "tags" else given == known
        if not is_same:
            yield f"{what}: {name} is {given!r}, not {known!r}"
