"""Real clients, over stdio and over HTTP: what people install speaks with this server."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import anyio
import fastmcp
import httpx2
import pytest
import uvicorn
from fastmcp.client.transports import StdioTransport
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from commonplace.server.http.api_keys import Key, Keys
from commonplace.server.mcp import http_app
from commonplace.server.mcp.profiles import PROFILES

from .conftest import NOTE, server_environment
from .test_mcp_offers import TOOLS

WORDS = ["-m", "commonplace.cli", "mcp"]


@pytest.fixture
def address(book) -> Iterator[str]:
    """The app on a port of this computer."""
    listening = socket.create_server(("127.0.0.1", 0))
    app = http_app(book, ("user", "u1"))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    thread.join(10)
    listening.close()


@asynccontextmanager
async def mcp_client(tmp_path, address, transport, mode) -> AsyncIterator[Client]:
    if transport == "http":
        server = f"{address}/mcp"
    else:
        server = stdio_client(
            StdioServerParameters(command=sys.executable, args=WORDS, env=server_environment(tmp_path))
        )
    async with Client(server, mode=mode) as client:
        yield client


@pytest.mark.promise("mcp-clients")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_the_mcp_client_saves_finds_and_reads(tmp_path, address, transport, mode):
    async def session() -> None:
        async with mcp_client(tmp_path, address, transport, mode) as client:
            assert len((await client.list_tools()).tools) == 5
            saved = await client.call_tool("memory_create", NOTE)
            id = saved.structured_content["items"][0]["id"]
            found = await client.call_tool("memory_search", {"query": "deploys"})
            assert [item["id"] for item in found.structured_content["items"]] == [id]
            assert str(found.content[1].uri) == f"mem://item/{id}"
            read = await client.read_resource(f"mem://item/{id}")
            assert json.loads(read.contents[0].text)["content"] == NOTE["content"]
            assert len((await client.list_resource_templates()).resource_templates) == 7
            prompt = await client.get_prompt("memory_recall", {"query": "deploys"})
            assert "Deploys go out on Tuesdays" in prompt.messages[0].content.text
            refused = await client.call_tool("memory_create", {"type": "note"})
            assert refused.is_error
            assert refused.content[0].text.startswith("content is required; source is required")

    anyio.run(session)


@pytest.mark.promise("mcp-clients")
def test_the_mcp_client_takes_a_message_that_only_calls_a_tool(book, address):
    space = book.space("user", "u1")
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]}
    [said] = space.threads.add(space.threads.create().id, [call])

    async def session() -> None:
        async with Client(f"{address}/mcp") as client:
            await client.list_tools()
            [item] = (await client.call_tool("memory_get", {"id": said.id})).structured_content["items"]
            assert (item["content"], item["tool_calls"]) == (None, call["tool_calls"])

    anyio.run(session)


@pytest.mark.promise("mcp-clients")
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_the_fastmcp_client_saves_finds_and_reads(tmp_path, address, transport):
    async def session() -> None:
        spoken = StdioTransport(sys.executable, WORDS, env=server_environment(tmp_path), keep_alive=False)
        async with fastmcp.Client(f"{address}/mcp" if transport == "http" else spoken) as client:
            assert len(await client.list_tools()) == 5
            saved = await client.call_tool("memory_create", NOTE)
            id = saved.structured_content["items"][0]["id"]
            found = await client.call_tool("memory_search", {"query": "deploys"})
            assert [item["id"] for item in found.structured_content["items"]] == [id]
            read = await client.read_resource(f"mem://item/{id}")
            assert json.loads(read[0].text)["content"] == NOTE["content"]
            prompt = await client.get_prompt("memory_recall", {"query": "deploys"})
            assert "Deploys go out on Tuesdays" in prompt.messages[0].content.text

    anyio.run(session)


@pytest.mark.promise("mcp-http")
def test_every_profile_has_its_address(address):
    async def session() -> None:
        for profile in PROFILES:
            async with Client(f"{address}/mcp/{profile}") as client:
                assert [tool.name for tool in (await client.list_tools()).tools] == TOOLS[profile]

    anyio.run(session)


@pytest.mark.promise("mcp-http")
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "evil.example"}, 421),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "http://localhost:5173"}, 200),
        ({"Content-Type": "text/plain"}, 400),
    ],
)
def test_no_web_page_reaches_a_server_on_loopback(address, headers, status):
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    accept = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    answer = httpx2.post(f"{address}/mcp", content=json.dumps(body), headers={**accept, **headers})
    assert answer.status_code == status


def test_an_address_without_a_server_is_not_found(address):
    assert httpx2.post(f"{address}/mcp/no-such-profile", json={}).status_code == 404


INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize"}
ACCEPT = {"Accept": "application/json, text/event-stream"}


def posted(app, path="/mcp", **headers) -> httpx2.Response:
    async def post() -> httpx2.Response:
        client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://memory.example")
        async with app.router.lifespan_context(app), client:
            return await client.post(path, json=INITIALIZE, headers={**ACCEPT, **headers})

    return asyncio.run(post())


@pytest.mark.promise("mcp-http")
def test_an_app_for_another_host_leaves_access_to_what_stands_before_it(book):
    Keys(book.store).create(Key("laptop", ("user", "u2")))
    app = http_app(book, ("user", "u1"), host="0.0.0.0")
    assert posted(app, Authorization="Bearer of-the-proxy").status_code == 200
    assert posted(app, Origin="https://own.example").headers["mcp-session-id"]


@pytest.mark.promise("mcp-http")
def test_an_app_of_one_namespace_reaches_no_other_and_has_no_other_routes(book):
    app = http_app(book, ("user", "u1"), host="0.0.0.0")
    assert posted(app, "/mcp?namespace=user/u1").status_code == 200
    assert posted(app, "/mcp?namespace=user/u2").status_code == 403
    assert posted(app, "/v1/search").status_code == 404
    assert "mcp-session-id" not in posted(http_app(book, ("user", "u1"), host="0.0.0.0", is_stateless=True)).headers


@pytest.mark.promise("mcp-one-record-for-many-clients")
def test_32_clients_saving_the_same_record_at_once_leave_one_with_all_tags(address, book):
    async def save(number: int) -> None:
        async with Client(f"{address}/mcp") as client:
            tags = ["shared", f"t{number}"]
            answer = await client.call_tool("memory_create", {**NOTE, "tags": tags, "confidence": number / 32})
            assert not answer.is_error

    async def save_all() -> None:
        await asyncio.gather(*(save(number) for number in range(32)))

    asyncio.run(save_all())
    (record,) = book.space("user", "u1").records.list().records
    assert sorted(record.tags) == sorted(["shared", *(f"t{number}" for number in range(32))])
    assert record.confidence == 31 / 32
