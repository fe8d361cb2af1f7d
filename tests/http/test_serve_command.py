"""`commonplace serve` as people run it: a process that says where everything is, and ends in good order."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

import commonplace
from forked_program import ForkedProgram

SECONDS = 30
PROGRAM = [sys.executable, "-m", "commonplace.cli"]
OURS = ("COMMONPLACE_", "EMBEDDINGS_", "SEARCH_", "MAX_", "LOG_LEVEL", "MCP_", "OPENAI_", "DATABASE_URL", "OTEL_")


NOTE = {"type": "note", "content": {"text": "Deploys go out on Tuesdays"}, "source": "test://one", "confidence": 0.9}
ACCEPT = {"Accept": "application/json, text/event-stream"}
ABOUT = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


def rpc(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def is_listening(address: str) -> bool:
    try:
        httpx.get(f"{address}/healthz")
    except httpx.TransportError:
        return False
    return True


class Process:
    """A running server, from the line in which it says where it is."""

    def __init__(self, environment: dict[str, str], *words: str) -> None:
        self.process = ForkedProgram(["serve", "--json", "--port", "0", *words], environment, is_text=True)
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(self.process.stderr.read())
        self.said: dict[str, Any] = json.loads(line)
        self.address: str = self.said["address"]

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal; the exit code and what it wrote since."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=SECONDS)
        return self.process.wait(), errors


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    own = {"DATABASE_URL": str(tmp_path / "book.db"), "COMMONPLACE_MODELS": str(tmp_path / "no-models")}
    return {**plain, **own, "LOG_LEVEL": "error"}


@pytest.fixture
def start(environment: dict[str, str]) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def start_one(*words: str, **variables: str) -> Process:
        started.append(Process({**environment, **variables}, *words))
        return started[-1]

    yield start_one
    for one in started:
        one.process.close()


def run(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    program = ForkedProgram(words, environment, is_text=True)
    out, errors = program.communicate(SECONDS)
    return subprocess.CompletedProcess(words, program.wait(), out, errors)


@pytest.mark.promise("service-serve")
def test_serve_works_with_no_configuration_and_says_where_everything_is(start):
    server = start()
    assert server.said["needs_key"] is False
    with httpx.Client(base_url=server.address, timeout=SECONDS) as client:
        assert client.put("/v1/files/notes/today", content="hello").status_code < 300
        assert client.get("/v1/search", params={"q": "hello"}).json()["hits"]
        for place in ("page", "docs", "openapi", "health"):
            assert client.get(server.said[place]).status_code == 200, place
        assert client.get(server.said["rest"]).json()["namespace"] == "user/default"
    assert server.end() == (0, "")


@pytest.mark.promise("service-serve")
def test_people_are_told_in_words(environment):
    process = subprocess.Popen(
        [*PROGRAM, "serve", "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True
    )
    assert process.stdout is not None
    told = "".join(iter(process.stdout.readline, "Press Ctrl-C to stop.\n"))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    for word in (
        "/v1",
        "/docs",
        "/mcp",
        "/api/memory",
        "/metrics",
        "claude mcp add --transport http memory http://127",
    ):
        assert word in told
    assert "no key is needed, and the namespace is user/default" in told


@pytest.mark.promise("service-serve-stop")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_open_stream_does_not_hold_up_the_end(start, number):
    server = start()
    with (
        httpx.Client(base_url=server.address, timeout=SECONDS) as client,
        client.stream("GET", "/v1/changes/stream") as stream,
    ):
        lines = stream.iter_lines()
        next(lines)
        ended = server.end(number)
        assert [line for line in lines if line] == []
    assert ended == (0, "")


@pytest.mark.promise("service-serve-stop")
def test_an_mcp_call_under_way_is_answered_before_the_end(start, tmp_path):
    server = start()
    call = {"name": "memory_create", "arguments": NOTE}
    with (
        httpx.Client(base_url=server.address, timeout=SECONDS) as client,
        commonplace.open(tmp_path / "book.db", background=False) as book,
        ThreadPoolExecutor() as threads,
    ):
        opened = client.post("/mcp", json=rpc("initialize", **ABOUT), headers=ACCEPT)
        headers = {**ACCEPT, "Mcp-Session-Id": opened.headers["mcp-session-id"]}
        with book.store._queue.held():  # nobody else may write for now
            answer = threads.submit(client.post, "/mcp", json=rpc("tools/call", **call), headers=headers)
            while "commonplace_requests_in_flight 1.0" not in httpx.get(f"{server.address}/metrics").text:
                continue
            server.process.send_signal(signal.SIGTERM)
            while is_listening(server.address):
                continue
            time.sleep(1.2)  # the library that sends events looks twice a second whether it is to end them
        assert "Memory upserted" in answer.result(SECONDS).text
        assert server.process.wait(SECONDS) == 0
        assert len(book.space("user", "default").records.list().records) == 1


@pytest.mark.promise("service-serve-stop")
@pytest.mark.parametrize(
    ("step", "number", "code"),
    [
        ("build_app", signal.SIGTERM, -signal.SIGTERM),
        ("build_app", signal.SIGINT, 130),
        ("GracefulServer.run", signal.SIGTERM, 0),
        ("GracefulServer.run", signal.SIGINT, 0),
    ],
)
def test_a_stop_that_comes_while_it_starts_is_obeyed(environment, step, number, code):
    program = f"""
import signal, sys
from commonplace.cli import main
from commonplace.server.http import run

def stopped(*arguments, step=run.{step}, **options):
    signal.raise_signal({int(number)})
    return step(*arguments, **options)

run.{step} = stopped
sys.exit(main(["serve", "--port", "0"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.promise("service-serve-port")
def test_a_port_in_use_is_told_with_the_option_that_helps(environment):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run(environment, "serve", "--port", str(port))
    assert (done.returncode, done.stderr) == (
        5,
        f"commonplace: port {port} of 127.0.0.1 is in use; choose another with --port\n",
    )


@pytest.mark.promise("service-refuses-to-be-open")
def test_the_refusal_to_be_open_names_the_command_that_makes_a_key(environment, start):
    refused = run(environment, "serve", "--host", "0.0.0.0", "--port", "0")
    assert refused.returncode == 6
    command = refused.stderr.partition("`")[2].partition("`")[0]
    assert command == "commonplace keys create NAME --namespace user/NAME"
    made = run(environment, *command.split()[1:])
    assert made.returncode == 0, made.stderr
    server = start("--host", "0.0.0.0")
    with httpx.Client(base_url=server.address, timeout=SECONDS) as client:
        assert client.get("/v1").status_code == 401
        answer = client.get("/v1", headers={"X-API-Key": made.stdout.strip()})
        assert (answer.status_code, answer.json()["namespace"]) == (200, "user/NAME")


@pytest.mark.promise("service-keys-revocation")
def test_a_key_made_and_revoked_by_the_command_holds_for_a_running_service(environment, start):
    server = start()
    key = run(environment, "keys", "create", "laptop").stdout.strip()
    with httpx.Client(base_url=server.address, timeout=SECONDS) as client:
        assert client.get("/v1", headers={"X-API-Key": key}).status_code == 200
        while client.get("/v1").status_code != 401:
            continue
        run(environment, "keys", "revoke", "laptop")
        while client.get("/v1", headers={"X-API-Key": key}).status_code != 401:
            continue
        assert "was revoked" in client.get("/v1", headers={"X-API-Key": key}).json()["detail"]


def test_the_flags_stand_above_the_variables(start, environment):
    server = start("--rate", "2/d", COMMONPLACE_RATE="1/d", COMMONPLACE_MAX_ENTRIES="1")
    with httpx.Client(base_url=server.address, timeout=SECONDS) as client:
        assert client.put("/v1/files/a", content="x").status_code < 300
        assert client.put("/v1/files/b", content="x").json()["code"] == "too_large"
        assert client.put("/v1/files/c", content="x").json()["code"] == "rate_limited"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--port", "70000"], 2, "is not a port"),
        (["--rate", "fast"], 2, "is not a rate"),
        (["--jwt-jwks", "/no/such"], 6, "--jwt-audience"),
        (["--jwt-issuer", "https://id.example"], 6, "give --jwt-jwks"),
        (["--jwt-namespace", "org/{org}"], 6, "give --jwt-jwks"),
        (["--jwt-actions-claim", "scope"], 6, "give --jwt-jwks"),
        (["--host", "256.1.1.1"], 6, "make one first"),
        (["--max-entries", "0"], 2, "above 0"),
        (["--max-message-bytes", "5"], 2, "from 1,000 to 100,000,000"),
    ],
)
def test_a_wrong_flag_is_one_line_and_an_exit_code(environment, words, code, told):
    done = run(environment, "serve", "--port", "0", *words)
    assert done.returncode == code
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_package_names_the_command_that_installs_it(environment):
    hidden = (
        "import importlib.util, sys; find = importlib.util.find_spec; "
        "importlib.util.find_spec = lambda name, package=None: None if name == 'fastapi' else find(name, package); "
        "from commonplace.cli import main; sys.exit(main(['serve']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", hidden], env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 6
    assert "pip install 'commonplace-memory[server]'" in done.stderr


@pytest.mark.promise("service-not-loaded-for-other-commands")
def test_no_other_command_loads_the_server(environment):
    code = (
        "import sys; from commonplace.cli.parser import build_parser; build_parser(); "
        "import commonplace.server.http.api_keys; "
        "print(sorted({'fastapi', 'uvicorn', 'mcp', 'jwt', 'httpx', 'starlette'} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=SECONDS, check=True
    )
    assert done.stdout == "[]\n"
