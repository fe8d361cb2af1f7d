"""Nothing that a client sends reaches another namespace: no argument, filter, URI, completion or subscription."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import commonplace
from doubles import rounds

from .conftest import Stdio, server_environment

CANARY = "zebracanary"
MINE, OTHER = ("user", "mine"), ("user", "mine-too")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stdio, Path, list[str]]]:
    """A server for one namespace on a book in which another one holds a word that must never come out."""
    folder = tmp_path_factory.mktemp("isolation")
    with commonplace.open(folder / "book.db", background=False) as book:
        other = book.space(*OTHER)
        record = other.records.create(
            type=CANARY, content={"text": CANARY}, source=CANARY, confidence=1, tags=[f"project:{CANARY}"]
        )
        other.files.write(f"/secret/{CANARY}.md", CANARY)
        thread = other.threads.create(title=CANARY)
        (message,) = other.threads.add(thread.id, [{"role": "user", "content": CANARY}])
        book.space(*MINE).files.write("/notes/own.md", "my own note")
    server = Stdio(server_environment(folder), "--profile", "all", "--namespace", "/".join(MINE))
    server.initialize()
    yield server, folder, [record.id, thread.id, message.id]
    server.close()


def everything(folder: Path) -> list[str]:
    """The other namespace as it is stored."""
    with commonplace.open(folder / "book.db", background=False) as book:
        return [repr(line) for line in book.store.export([OTHER])]


def hostile_texts(ids: list[str]) -> st.SearchStrategy[Any]:
    known = [
        *ids,
        "/".join(OTHER),
        f"../{OTHER[1]}",
        f"/memories/../{OTHER[1]}",
        "%2e%2e/mine-too",
        "/secret",
        "/",
        "/memories",
        "*",
        "%",
        "' OR 1=1 --",
        "mine-too",
        "\x01secret",
    ]
    return st.sampled_from(known) | st.text(max_size=12) | st.sampled_from([list(OTHER), {"namespace": list(OTHER)}, 1])


def hostile_requests(ids: list[str]) -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    texts = hostile_texts(ids)
    arguments = st.dictionaries(
        st.sampled_from(
            [
                "query",
                "type",
                "tags",
                "id",
                "path",
                "old_path",
                "new_path",
                "command",
                "content",
                "file_text",
                "action",
                "limit",
                "filter",
                "namespace",
                "kinds",
                "match",
                "cursor",
                "source",
                "confidence",
                "threadId",
                "user_id",
                "configurable",
            ]
        ),
        texts | st.lists(texts, max_size=2) | st.dictionaries(st.sampled_from(["$ne", "tags", "namespace"]), texts),
        max_size=5,
    )
    tools = st.sampled_from(
        [
            "memory_create",
            "memory_search",
            "memory_list",
            "memory_get",
            "memory",
            "memory_delete",
            "claude_memory",
            "manage_memory",
            "search_memory",
        ]
    )
    meta = st.just({}) | st.just({"_meta": {"threadId": "x", "namespace": list(OTHER), "user_id": "mine-too"}})
    uris = st.builds(
        "mem://{}{}".format,
        st.sampled_from(["item/", "file/", "by-tags/", "by-type/", "message/", "recent?namespace=", ""]),
        st.sampled_from(
            [*ids, f"secret/{OTHER[1]}.md", "../mine-too", "%2e%2e%2fmine-too", "*", "project:*", "record"]
        ),
    )
    called = st.builds(
        lambda name, given, more: ("tools/call", {"name": name, "arguments": given, **more}), tools, arguments, meta
    )
    read = st.builds(lambda uri: ("resources/read", {"uri": uri}), uris)
    subscribed = st.builds(lambda uri: ("resources/subscribe", {"uri": uri}), uris)
    completed = st.builds(
        lambda uri, name, typed: (
            "completion/complete",
            {"ref": {"type": "ref/resource", "uri": uri}, "argument": {"name": name, "value": typed}},
        ),
        st.sampled_from(["mem://by-tags/{+tags}", "mem://by-type/{type}", "mem://file/{+path}", "mem://item/{id}"]),
        st.sampled_from(["tags", "type", "path", "id"]),
        st.sampled_from(["", "z", "ze", "project:", "/", "/se", *ids]),
    )
    recalled = st.builds(
        lambda query: ("prompts/get", {"name": "memory_recall", "arguments": {"query": query}}), st.text(min_size=1)
    )
    return called | read | subscribed | completed | recalled


@pytest.mark.promise("mcp-isolation")
def test_no_request_reaches_another_namespace(place: tuple[Stdio, Path, list[str]]) -> None:
    server, folder, ids = place
    before = everything(folder)

    @given(hostile_requests(ids))
    @settings(max_examples=rounds(250), deadline=None, suppress_health_check=list(HealthCheck))
    def send(request: tuple[str, dict[str, Any]]) -> None:
        method, params = request
        answer = server.ask(method, params)
        assert CANARY not in json.dumps(answer), request

    send()
    assert CANARY not in json.dumps(server.call("memory_search", query=CANARY))
    assert everything(folder) == before
