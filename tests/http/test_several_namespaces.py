"""Reads of several namespaces at once: no key sees anything outside of its reach, on any interface."""

from __future__ import annotations

import json
from typing import Any

import pytest
from real_server import Server

import commonplace
from commonplace.adapters.langgraph import CommonplaceStore

SPACES = [("team",), ("team", "a"), ("team", "a", "x"), ("team", "ab"), ("team", "b"), ("other",)]
KEYS: list[tuple[str, str, set[tuple[str, ...]]]] = [
    ("own", "team/a", {("team", "a")}),
    ("below", "team/a", {("team", "a"), ("team", "a", "x")}),
    ("below", "team", {*SPACES[:5]}),
    ("all", "team/a", {*SPACES}),
]
NAMES = [None, "team", "team/a", "team/a/x", "team/ab", "team/b", "other", "", "/", "*", "team/a/../b", "team/%"]


@pytest.fixture
def filled(server: Server) -> Server:
    for labels in SPACES:
        space = server.service.book.space(*labels)
        word = "canary" + "".join(labels)
        space.items.put("k", {"text": f"green tea {word}"}, model="m", vectors=[[1.0, 2.0]])
        space.files.write("/note", f"green tea {word}")
    return server


def canaries(text: str) -> set[tuple[str, ...]]:
    return {labels for labels in SPACES if f'canary{"".join(labels)}"' in text or f"canary{''.join(labels)} " in text}


def questions() -> list[tuple[str, str, dict[str, Any]]]:
    flags = [{"below": "true"}, {"everywhere": "true"}, {"below": "true", "everywhere": "true"}]
    asked: list[tuple[str, str, dict[str, Any]]] = []
    for name in NAMES:
        where = {} if name is None else {"namespace": name}
        for flag in flags:
            asked.append(("GET", "/v1/search", {**where, **flag, "q": "green tea", "full": "true", "limit": 100}))
            body = dict.fromkeys(flag, True)
            for query in ({"query": "green tea"}, {"vector": [1.0, 2.0], "model": "m"}):
                asked.append(("POST", "/v1/search", {**where, "full": "true", "body": {**query, **body, "limit": 100}}))
        for flag in ({}, {"everywhere": "true"}):
            asked.append(("GET", "/v1/items-below", {**where, **flag}))
        asked.append(("GET", "/v1/namespaces", {} if name is None else {"below": name, "emptied": "true"}))
    return asked


@pytest.mark.promise("several-namespaces-need-the-right")
@pytest.mark.parametrize(("reach", "namespace", "allowed"), KEYS)
def test_no_key_reads_outside_of_its_reach(
    filled: Server, make_key: Any, reach: str, namespace: str, allowed: set[tuple[str, ...]]
) -> None:
    key = make_key("key", namespace=namespace, reach=reach)
    seen: set[tuple[str, ...]] = set()
    with filled.client(key) as http:
        for method, address, query in questions():
            body = query.pop("body", None)
            answer = http.request(method, address, params=query, json=body)
            assert answer.status_code < 500, answer.text
            seen |= canaries(answer.text)
            if address == "/v1/namespaces" and answer.status_code == 200:
                assert {tuple(name.split("/")) for name in answer.json()["namespaces"]} <= allowed
    assert seen <= allowed
    if reach != "own":
        assert seen == allowed


@pytest.mark.promise("several-namespaces-need-the-right")
@pytest.mark.parametrize(("reach", "namespace", "allowed"), KEYS)
def test_the_client_and_an_adapter_read_no_further(
    filled: Server, make_key: Any, reach: str, namespace: str, allowed: set[tuple[str, ...]]
) -> None:
    key = make_key("key", namespace=namespace, reach=reach)
    seen: set[tuple[str, ...]] = set()
    with commonplace.connect(filled.address, key=key) as book:
        store = CommonplaceStore(book)
        for below in ((), ("team",), ("team", "a"), ("team", "b"), ("other",)):
            for ask in (
                lambda below=below: [hit.entry.namespace for hit in book.search("green tea", below=below)],
                lambda below=below: [hit.entry.namespace for hit in book.search(vector=[1, 2], model="m", below=below)],
                lambda below=below: [item.namespace for item in book.list_items(below=below)],
                lambda below=below: [item.namespace for item in store.search(below, query="green tea")],
                lambda below=below: [item.namespace for item in store.search(below)],
                lambda below=below: store.list_namespaces(prefix=below),
            ):
                try:
                    seen |= set(ask())
                except commonplace.Forbidden:
                    continue
    assert seen <= allowed


@pytest.mark.promise("several-namespaces-need-the-right")
def test_a_tool_of_a_model_cannot_ask_for_other_namespaces(filled: Server, make_key: Any) -> None:
    key = make_key("key", namespace="team/a", reach="below")
    with filled.client(key) as http:
        headers = {"Accept": "application/json, text/event-stream"}
        for more in ({}, {"below": True}, {"everywhere": True}, {"namespace": "team/b"}, {"below": ["other"]}):
            call = {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {"name": "memory_search", "arguments": {"query": "green tea", "limit": 50, **more}},
            }
            answer = http.post("/mcp/all", json=call, headers=headers)
            assert canaries(json.dumps(answer.text)) <= {("team", "a")}
