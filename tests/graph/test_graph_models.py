"""The ready chat models, against a real HTTP server with scripted answers; agents run whole tool loops through them."""

from __future__ import annotations

import json
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from commonplace import ConfigurationError, Unavailable
from commonplace.graph import Agent, AnthropicChat, MemoryConnector, MemoryNode, OpenAIChat
from commonplace.graph.chat_model import to_anthropic
from commonplace.tools import UnifiedMemoryTool


def send(status, body, **headers):
    def answer(handler):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    return answer


def openai_answer(**message):
    return send(
        200, {"id": "x", "choices": [{"index": 0, "message": {"role": "assistant", "refusal": None, **message}}]}
    )


def anthropic_answer(*blocks):
    usage = {"input_tokens": 1, "output_tokens": 1}
    fixed = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None, "usage": usage}
    return send(200, {**fixed, "content": list(blocks), "stop_reason": "end_turn"})


class Endpoint:
    """A server that gives the scripted answers in order and remembers what it was asked."""

    def __init__(self):
        self.script = []
        self.requests = []
        self.headers = []
        self.waits = []
        self.released = threading.Event()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                endpoint.requests.append((self.path, body))
                endpoint.headers.append({name.lower(): value for name, value in self.headers.items()})
                endpoint.script.pop(0)(self)

            def log_message(self, format, *args):
                """Keep the test's output clean."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def openai(self, **options):
        return OpenAIChat("m", url=f"{self.url}/v1/", sleep=self.waits.append, **options)

    def anthropic(self, **options):
        return AnthropicChat("m", **{"url": self.url, "api_key": "k", "max_retries": 0, **options})

    def hang(self, handler):
        self.released.wait(30)

    def hang_up(self, handler):
        handler.connection.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def endpoint():
    one = Endpoint()
    thread = threading.Thread(target=one.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield one
    one.released.set()
    one.server.shutdown()
    thread.join()
    one.server.server_close()


@pytest.fixture
def agent_on(book):
    """Makes an agent with a memory tool and its memory shown."""
    node = MemoryNode(book, "M", ("user", "u1"))

    def make(model, placement="after_system"):
        agent = Agent(model, system_prompt="Be kind.", tools=[UnifiedMemoryTool(node)])
        agent.set_memory_connector(MemoryConnector(node, placement=placement))
        return agent, node

    return make


USER = [{"role": "user", "content": "Hello"}]
APPEND = {"path": "/likes", "command": "append", "content": "té"}
DONE = '{"command":"append","path":"/likes","ok":true,"result":{"status":"ok"}}'


# OpenAI-compatible


@pytest.mark.promise("graph-openai-model")
def test_an_agent_runs_a_tool_loop_through_an_openai_endpoint(endpoint, agent_on):
    calls = [{"id": "c1", "type": "function", "function": {"name": "memory", "arguments": json.dumps(APPEND)}}]
    endpoint.script = [openai_answer(content=None, tool_calls=calls), openai_answer(content="Noted.")]
    agent, node = agent_on(endpoint.openai(api_key="k", options={"temperature": 0}))

    run = agent.run("Remember: té.")

    system, user = {"role": "system", "content": "Be kind."}, {"role": "user", "content": "Remember: té."}
    asked = {"role": "assistant", "content": None, "tool_calls": calls}
    told = {"role": "tool", "tool_call_id": "c1", "content": DONE}
    tools = [UnifiedMemoryTool().openai_schema()]
    fixed = {"temperature": 0, "model": "m", "tools": tools}
    memory = [{"role": "system", "content": text} for text in ("Memory\n/", "Memory\n/\n[F] likes")]
    assert run.output == "Noted."
    assert run.messages == (user, asked, told, {"role": "assistant", "content": "Noted."})
    assert endpoint.requests == [
        ("/v1/chat/completions", {**fixed, "messages": [system, memory[0], user]}),
        ("/v1/chat/completions", {**fixed, "messages": [system, memory[1], user, asked, told]}),
    ]
    assert [headers["authorization"] for headers in endpoint.headers] == ["Bearer k"] * 2
    assert node.get_all() == {"/likes": "té"}


def test_no_key_and_no_tools_send_neither(endpoint):
    endpoint.script = [openai_answer(content="Hi")]
    assert endpoint.openai()(USER, []) == {"role": "assistant", "content": "Hi"}
    assert endpoint.requests == [("/v1/chat/completions", {"model": "m", "messages": USER})]
    assert "authorization" not in endpoint.headers[0]


@pytest.mark.promise("graph-model-retries")
def test_short_failures_are_retried_within_a_bound(endpoint):
    endpoint.script = [send(503, b"busy"), endpoint.hang_up, send(200, b"<html>"), openai_answer(content="Hi")]
    assert endpoint.openai(max_retries=3)(USER, [])["content"] == "Hi"
    assert len(endpoint.waits) == 3
    assert all(0 < wait <= 2 for wait in endpoint.waits)
    endpoint.script = [send(429, b"slow down", Retry_After="2"), send(500, b"broken")]
    endpoint.waits.clear()
    with pytest.raises(Unavailable, match="failed 2 times, last with: HTTP 500 broken"):
        endpoint.openai(max_retries=1)(USER, [])
    assert [2 <= wait <= 2.5 for wait in endpoint.waits] == [True]


@pytest.mark.promise("graph-model-retries")
def test_a_wait_that_is_too_long_is_not_waited_for(endpoint):
    endpoint.script = [send(429, b"", Retry_After="3600")]
    with pytest.raises(Unavailable, match="failed 1 times"):
        endpoint.openai()(USER, [])
    assert endpoint.waits == []


@pytest.mark.promise("graph-model-retries")
@pytest.mark.parametrize("body", [b"[]", b"{}", b'{"choices":[]}', b'{"choices":[{"message":"hi"}]}'])
def test_an_answer_without_a_message_is_no_answer(endpoint, body):
    endpoint.script = [send(200, body)]
    with pytest.raises(Unavailable, match="the response has no message"):
        endpoint.openai(max_retries=0)(USER, [])


@pytest.mark.promise("graph-model-retries")
def test_a_refusal_is_not_retried_and_a_redirect_carries_the_key_nowhere(endpoint):
    endpoint.script = [send(401, b"bad key"), send(302, b"", Location=f"{endpoint.url}/elsewhere")]
    for said in ("HTTP 401 bad key", "HTTP 302"):
        with pytest.raises(ConfigurationError, match=said):
            endpoint.openai(api_key="k")(USER, [])
    assert len(endpoint.requests) == 2


@pytest.mark.promise("graph-model-timeouts")
def test_an_endpoint_that_hangs_is_given_up(endpoint):
    endpoint.script = [endpoint.hang, endpoint.hang]
    with pytest.raises(Unavailable, match="timed out"):
        endpoint.openai(timeout_seconds=0.2, max_retries=0)(USER, [])
    with pytest.raises(Unavailable, match="timed out"):
        endpoint.anthropic(timeout_seconds=0.2)(USER, [])


@pytest.mark.parametrize("url", ["", "ftp://host/v1", "host/v1", "https://", "https://u:p@host/v1"])
def test_an_address_that_cannot_be_is_refused(url):
    with pytest.raises(ConfigurationError, match="URL"):
        OpenAIChat("m", url=url)


# Anthropic


@pytest.mark.promise("graph-anthropic-model")
@pytest.mark.parametrize("placement", ["after_system", "last_message"])
def test_an_agent_runs_a_tool_loop_through_anthropics_api(endpoint, agent_on, placement):
    use = {"type": "tool_use", "id": "c1", "name": "memory", "input": APPEND}
    endpoint.script = [
        anthropic_answer({"type": "text", "text": "One moment."}, use),
        anthropic_answer({"type": "text", "text": "Noted."}),
    ]
    agent, node = agent_on(endpoint.anthropic(), placement)

    run = agent.run("Remember: té.")

    def text(given):
        return {"type": "text", "text": given}

    result = {"type": "tool_result", "tool_use_id": "c1", "content": DONE}
    memory = ["Memory\n/", "Memory\n/\n[F] likes"]
    is_last = placement == "last_message"
    systems = ["Be kind."] * 2 if is_last else [f"Be kind.\n\n{shown}" for shown in memory]
    last = [[text(shown)] if is_last else [] for shown in memory]
    question = [text("Remember: té.")]
    turns = [
        [{"role": "user", "content": question + last[0]}],
        [
            {"role": "user", "content": question},
            {"role": "assistant", "content": [text("One moment."), use]},
            {"role": "user", "content": [result, *last[1]]},
        ],
    ]
    fixed = {"model": "m", "max_tokens": 4096, "tools": [UnifiedMemoryTool().anthropic_schema()]}
    assert endpoint.requests == [
        ("/v1/messages", {**fixed, "system": system, "messages": messages})
        for system, messages in zip(systems, turns, strict=True)
    ]
    assert run.output == "Noted."
    assert [message["role"] for message in run.messages] == ["user", "assistant", "tool", "assistant"]
    assert run.messages[1]["tool_calls"][0]["function"]["arguments"] == json.dumps(APPEND, ensure_ascii=False)
    assert node.get_all() == {"/likes": "té"}


@pytest.mark.promise("graph-model-retries")
def test_anthropics_failures_are_said_by_what_to_do(endpoint):
    error = {"type": "error", "error": {"type": "e", "message": "no"}}
    for status, kind in ((529, Unavailable), (429, Unavailable), (401, ConfigurationError), (400, ConfigurationError)):
        endpoint.script = [send(status, error)]
        with pytest.raises(kind, match="chat model m "):
            endpoint.anthropic()(USER, [])
    endpoint.script = [endpoint.hang_up]
    with pytest.raises(Unavailable, match="could not be reached"):
        endpoint.anthropic()(USER, [])
    endpoint.script = [send(503, error, Retry_After_Ms="1"), anthropic_answer({"type": "text", "text": "Hi"})]
    assert endpoint.anthropic(max_retries=1)(USER, []) == {"role": "assistant", "content": "Hi"}


def test_no_key_for_anthropic_is_said_at_once(monkeypatch):
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigurationError, match="no API key"):
        AnthropicChat("m")


def test_messages_of_any_kind_become_turns_that_alternate():
    function = {"name": "memory", "arguments": "{garbled"}
    system, turns = to_anthropic(
        [
            {"role": "developer", "content": [{"type": "text", "text": "A"}]},
            {"role": "system", "content": "B"},
            {"role": "user", "content": "one"},
            {"role": "user", "content": [{"type": "text", "text": "two"}]},
            {"role": "assistant", "content": " ", "tool_calls": [{"id": "c1", "function": function}]},
            {"role": "tool", "tool_call_id": "c1", "content": "no"},
            {"role": "assistant", "content": ""},
            {"role": "system", "content": "late"},
        ]
    )
    assert system == "A\n\nB"
    assert turns == [
        {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "memory", "input": {}}]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "no"},
                {"type": "text", "text": "late"},
            ],
        },
    ]


def test_a_missing_sdk_names_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "anthropic", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'commonplace-memory\[anthropic\]'"):
        AnthropicChat("m", api_key="k")
