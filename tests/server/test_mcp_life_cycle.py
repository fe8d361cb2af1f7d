"""The life of a session on stdio: what comes before initialize, what a bad line gets, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from io import BytesIO

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from commonplace.server.mcp.jsonrpc import MAX_DEPTH, PARSE_ERROR, parse_line
from commonplace.server.mcp.lazy_memory import Memory
from commonplace.server.mcp.server import build_server
from commonplace.server.mcp.stdio import serve

from .conftest import NOTE, PROGRAM, SECONDS, Stdio, server_environment


@pytest.mark.promise("mcp-not-initialized")
def test_before_initialize_every_call_but_ping_is_refused(stdio):
    for method in ("tools/list", "tools/call", "resources/read", "prompts/list", "no/such/method"):
        assert stdio.ask(method)["error"] == {"code": -32002, "message": "Server not initialized"}
    assert stdio.ask("ping")["result"] == {}
    stdio.initialize()
    assert "error" not in stdio.ask("tools/list")


@pytest.mark.promise("mcp-initialize-lenient")
@pytest.mark.parametrize(
    "params",
    [
        None,
        {},
        {"protocolVersion": "2025-06-18"},
        {"protocolVersion": "2025-06-18", "clientInfo": {"name": "claude", "version": "1.0"}},
        {"protocolVersion": "2025-06-18", "capabilities": None, "clientInfo": {"name": "claude"}},
    ],
)
def test_initialize_takes_what_clients_leave_out(shared, params):
    result = shared.ask("initialize", params)["result"]
    assert result["serverInfo"]["name"] == "commonplace"
    assert result["instructions"]
    assert "tools" in shared.ask("tools/list")["result"]


@pytest.mark.promise("mcp-initialize-lenient")
def test_initialize_again_is_accepted_and_may_name_another_revision(stdio):
    assert stdio.initialize("2024-11-05")["protocolVersion"] == "2024-11-05"
    assert stdio.initialize("2025-06-18")["protocolVersion"] == "2025-06-18"
    assert stdio.call("memory_create", **NOTE)["content"][1]["type"] == "resource_link"


@pytest.mark.promise("mcp-answers-every-request")
def test_a_client_that_pipelines_and_leaves_gets_every_answer(stdio):
    stdio.send({"jsonrpc": "2.0", "id": "init", "method": "initialize"})
    for number in range(20):
        note = {**NOTE, "content": {"number": number}}
        call = {"name": "memory_create", "arguments": note}
        stdio.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call})
    stdio.send({"jsonrpc": "2.0", "id": "list", "method": "tools/call", "params": {"name": "memory_list"}})
    assert stdio.end() == 0
    assert [stdio.next()["id"] for _ in range(22)] == ["init", *range(20), "list"]


def test_calls_of_one_client_take_effect_in_the_order_sent(opened):
    for number in range(10):
        call = {"name": "memory_create", "arguments": {**NOTE, "content": {"number": number}}}
        opened.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call})
    listed = opened.call("memory_list")["structuredContent"]["items"]
    assert [item["summary"] for item in listed] == [str(number) for number in reversed(range(10))]


@pytest.mark.promise("mcp-errors")
@pytest.mark.parametrize(
    ("line", "code", "id"),
    [
        ("no json", -32700, None),
        ("{", -32700, None),
        (b"\xff\xfe", -32700, None),
        (
            '{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"memory_create","arguments":{"x":NaN}}}',
            -32700,
            7,
        ),
        ('{"jsonrpc":"2.0","id":7,"method":"ping","params":{"x":-Infinity}}', -32700, 7),
        ('{"jsonrpc":"2.0","id":7,"method":"ping","method":"ping"}', -32700, 7),
        ('{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":{"b":1,"b":2}}}', -32700, 7),
        ('{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":"\\ud800"}}', -32700, 7),
        ('{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":' + "9" * 10_000 + "}}", -32700, 7),
        ('{"jsonrpc":"2.0","id":7,"method":"ping","params":' + '{"a":' * 10_000 + "1" + "}" * 10_000 + "}", -32700, 7),
        ('{"jsonrpc":"2.0","id":"d","method":"ping","params":{"a":' + "[" * 10_000 + "]" * 10_000 + "}}", -32700, "d"),
        ("[" * 10_000, -32700, None),
        ('{"method":"ping","params":{"x":NaN},"jsonrpc":"2.0","id":7}', -32700, 7),
        ('{"method":"ping","params":{"a":{"b":1,"b":2}},"jsonrpc":"2.0","id":"last"}', -32700, "last"),
        ('{"method":"ping","params":{"a":"\\ud800"},"jsonrpc":"2.0","id":7}', -32700, 7),
        ('{"method":"ping","params":{"a":' + "9" * 10_000 + '},"jsonrpc":"2.0","id":7}', -32700, 7),
        ('{"method":"ping","params":{"a":' + "[" * 10_000 + "]" * 10_000 + '},"jsonrpc":"2.0","id":7}', -32700, 7),
        ('{"method":"ping","params":' + "[" * 200 + "]" * 200 + ',"id": "d" , "jsonrpc": "2.0"} ', -32700, "d"),
        (b'{"method":"ping","params":{"a":"caf\xe9"},"jsonrpc":"2.0","id":7}', -32700, 7),
        ('{"jsonrpc":"1.0","id":7,"method":"ping"}', -32600, 7),
        ('{"id":7,"method":"ping"}', -32600, 7),
        ('{"jsonrpc":"2.0","id":7}', -32600, 7),
        ('{"jsonrpc":"2.0","id":7,"method":5}', -32600, 7),
        ('{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, None),
        ('{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600, None),
        ('{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600, None),
        ('[{"jsonrpc":"2.0","id":7,"method":"ping"}]', -32600, None),
        ("5", -32600, None),
        ("null", -32600, None),
        ('{"jsonrpc":"2.0","id":7,"method":"tools/list","params":[1]}', -32602, 7),
        ('{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{}}', -32602, 7),
        ('{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"memory_list","arguments":[]}}', -32602, 7),
        ('{"jsonrpc":"2.0","id":7,"method":"no/such/method"}', -32601, 7),
        ('{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"no_such_tool"}}', -32601, 7),
        ('{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":"mem://item/none"}}', -32000, 7),
        ('{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":"http://x/"}}', -32000, 7),
        ('{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":"mem://by-tags/caf%E9"}}', -32000, 7),
        (
            '{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":"mem://by-tags/' + "a" * 9_000 + '"}}',
            -32000,
            7,
        ),
        ('{"jsonrpc":"2.0","id":7,"method":"prompts/get","params":{"name":"none"}}', -32000, 7),
    ],
    ids=lambda value: value[:60] if isinstance(value, str) else None,
)
def test_a_bad_line_gets_a_clear_error_and_the_server_goes_on(shared, line, code, id):
    shared.send(line)
    answer = shared.next()
    assert (answer["error"]["code"], answer["id"]) == (code, id)
    assert 10 < len(answer["error"]["message"]) <= 1_000
    assert shared.ask("ping")["result"] == {}


@pytest.mark.promise("mcp-errors")
@pytest.mark.parametrize(
    ("line", "id"),
    [
        ('{"method":"ping","params":{"a":DEEP,"id":9}}', None),
        ('{"method":"ping","params":{"a":DEEP,"b":",\\"id\\":9}"}}', None),
        ('{"method":"ping","params":DEEP,"a":",\\"id\\":\\"9"}', None),
        ('[DEEP,{"a":1,"id":9}]', None),
        ('{"a":",\\"id\\":9,","params":DEEP,"id":7}', 7),
        ('{"method":"ping","id":7,"params":{"a":NaN,"id":9}}', 7),
        ('{"method":"ping","params":{"a":NaN,"id":9}}', None),
        ('{"method":"ping","params":{"a":NaN},"id":"\\ud800"}', None),
        ('{"method":"ping","params":{"a":NaN},"id":true}', None),
        ('[{"a":NaN,"id":9}]', None),
        ('{"a":NaN,"id":9', None),
    ],
)
def test_an_unfit_line_is_refused_with_its_own_id_and_no_other(line, id):
    refusal = parse_line(line.replace("DEEP", "[" * 200 + "]" * 200).encode())
    assert (refusal.code, refusal.id) == (PARSE_ERROR, id)


def test_an_answer_that_cannot_be_written_is_an_error_with_its_id_and_the_server_goes_on():
    async def unfit(context, call_next):
        if context.request_id == 1:
            raise MCPError(-32000, "\udce9")
        return await call_next(context)

    server = build_server(Memory(lambda: pytest.fail("not needed")), is_stdio=True)
    server.middleware = [unfit]
    lines, written = b"".join(b'{"jsonrpc":"2.0","id":%d,"method":"ping"}\n' % id for id in (1, 2)), BytesIO()
    anyio.run(lambda: serve(server, BytesIO(lines), written))
    first, second = map(json.loads, written.getvalue().splitlines())
    assert (first["id"], first["error"]["code"]) == (1, -32603)
    assert second == {"jsonrpc": "2.0", "id": 2, "result": {}}


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One server for many bad lines: none of them may harm it."""
    server = Stdio(server_environment(tmp_path_factory.mktemp("shared")))
    assert server.ask("initialize")["result"]["protocolVersion"] == "2024-11-05"
    yield server
    server.close()


@pytest.mark.promise("mcp-large-line")
def test_a_line_of_5_mb_is_answered_with_what_to_correct(opened):
    result = opened.call("memory_create", **{**NOTE, "content": {"text": "x" * 5_000_000}})
    assert result["isError"]
    assert result["content"][0]["text"] == "content is too large (max 10000 characters)"
    assert opened.call("memory_list")["content"][0]["text"] == "No memories found."


@pytest.mark.promise("mcp-large-line")
@pytest.mark.parametrize("length", [500, 5_000])
@pytest.mark.parametrize(
    ("before", "after"),
    [(b'{"jsonrpc":"2.0","id":4,', b"}"), (b"{", b',"jsonrpc":"2.0","id":4}')],
)
def test_a_line_above_the_bound_is_refused_with_its_id(monkeypatch, before, after, length):
    from commonplace.server.mcp import jsonrpc, stdio

    monkeypatch.setattr(stdio, "MAX_LINE_BYTES", 100)
    long = before + b'"method":"ping","params":{"a":"' + b"x" * length + b'"}' + after + b"\n"
    lines = stdio._Input(BytesIO(long + b'{"jsonrpc":"2.0","id":5,"method":"ping"}\n'), None)
    refused = lines.next()
    assert isinstance(refused, jsonrpc.Refusal)
    assert (refused.id, refused.code) == (4, -32600)
    assert lines.next() == {"jsonrpc": "2.0", "id": 5, "method": "ping"}
    assert lines.next() is None


def test_content_as_deep_as_the_store_takes_it_passes(opened):
    deep: object = "leaf"
    for _ in range(MAX_DEPTH - 15):
        deep = [deep]
    assert not opened.call("memory_create", **{**NOTE, "content": deep})["isError"]


def test_a_notification_and_an_unknown_response_get_no_answer(opened):
    opened.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    opened.send({"jsonrpc": "2.0", "method": "no/such/notification"})
    opened.send({"jsonrpc": "2.0", "id": 77, "result": {}})
    opened.send("   ")
    opened.send({"jsonrpc": "2.0", "id": "after", "method": "ping"})
    assert opened.next() == {"jsonrpc": "2.0", "id": "after", "result": {}}


@pytest.mark.promise("mcp-stdout-is-protocol")
def test_standard_output_has_protocol_only_and_logs_are_json_lines(start):
    server = start(LOG_LEVEL="debug")
    server.initialize()
    server.send("no json")
    server.next()
    server.call("memory_create", **NOTE)
    server.call("memory_search", query="deploys")
    assert server.end() == 0
    logged = [json.loads(line) for line in server.errors]
    assert {"time", "level", "logger", "message"} <= logged[0].keys()
    assert any("Parse error" in line["message"] for line in logged)


@pytest.mark.promise("mcp-lazy-store")
def test_the_handshake_opens_no_store_and_loads_no_model(tmp_path, stdio):
    stdio.initialize()
    stdio.ask("tools/list")
    assert not (tmp_path / "book.db").exists()
    loaded = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, commonplace.server.mcp.stdio;"
            "print([name for name in ('numpy', 'apsw', 'onnxruntime') if name in sys.modules])",
        ],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    assert loaded.stdout.strip() == "[]"
    stdio.call("memory_create", **NOTE)
    assert (tmp_path / "book.db").exists()


@pytest.mark.promise("mcp-errors")
def test_a_store_that_cannot_be_opened_is_told_to_whoever_calls(start, tmp_path):
    server = start(DATABASE_URL="postgres://user:pass@host:5432/db")
    server.initialize()
    result = server.call("memory_list")
    assert result["isError"]
    told = result["content"][0]["text"]
    assert "cannot be reached" in told
    assert "pass" not in told
    assert server.ask("resources/read", {"uri": "mem://recent"})["error"]["code"] == -32000
    assert server.ask("ping")["result"] == {}


def test_a_cancelled_request_does_not_hold_up_the_end(opened):
    call = {"name": "memory_search", "arguments": {"query": "x"}}
    opened.send({"jsonrpc": "2.0", "id": "slow", "method": "tools/call", "params": call})
    opened.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "slow"}})
    opened.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": {}}})
    opened.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "never sent"}})
    assert opened.ask("ping")["result"] == {}
    assert opened.end() == 0


def test_a_client_that_stops_reading_ends_the_server(tmp_path):
    reading, writing = os.pipe()
    server = subprocess.Popen(
        PROGRAM, stdin=subprocess.PIPE, stdout=writing, stderr=subprocess.DEVNULL, env=server_environment(tmp_path)
    )
    os.close(writing)
    os.close(reading)
    try:
        assert server.stdin is not None
        server.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        server.stdin.flush()
        assert server.wait(SECONDS) == 0
    finally:
        server.kill()
        server.wait(SECONDS)


@pytest.mark.parametrize("signal", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_server_while_it_waits_for_input(opened, signal):
    opened.call("memory_create", **NOTE)
    opened.process.send_signal(signal)
    assert opened.process.wait(SECONDS) in (130, -signal)
    assert b"Traceback" not in b"".join(opened.errors)


HOSTILE = {
    "an unclosed string": b"[" * 200 + b'"' + b'\\"' * 100_000,
    "an unclosed string that ends in a backslash": b"[" * 200 + b'"' + b'\\"' * 100_000 + b"\\",
    "an id that never comes": b"[" * 200 + b',"id":' * 1_000_000 + b" " * 1_000_000,
    "a key that stands twice after many others": b'{%s"z":0,"z":0}' % b"".join(b'"%d":0,' % n for n in range(30_000)),
}


@pytest.mark.parametrize("line", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_long_line_that_is_no_message_is_refused_at_once(line):
    began = time.monotonic()
    assert parse_line(line).code == PARSE_ERROR
    assert time.monotonic() - began < 5
