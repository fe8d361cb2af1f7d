"""A real server in a process of its own, spoken to line by line, without a model."""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from forked_program import ForkedProgram

SECONDS = 20
PROGRAM = [sys.executable, "-m", "commonplace.cli", "mcp"]
SETTINGS = ("COMMONPLACE_", "EMBEDDINGS_", "SEARCH_", "MAX_", "LOG_LEVEL", "MCP_", "OPENAI_", "DATABASE_URL")


class Stdio:
    """One server process. `ask` sends a message and gives the answer with its id."""

    def __init__(self, environment: dict[str, str], *words: str) -> None:
        self.process = ForkedProgram(["mcp", *words], environment)
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self.errors: list[bytes] = []
        threading.Thread(target=self._pump, daemon=True).start()
        threading.Thread(target=self._pump_errors, daemon=True).start()
        self._number = 1_000
        self._other: list[dict[str, Any]] = []

    def _pump(self) -> None:
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _pump_errors(self) -> None:
        self.errors.extend(self.process.stderr)

    def send(self, message: object) -> None:
        """A message as JSON; text and bytes go as they are."""
        line = message if isinstance(message, (str, bytes)) else json.dumps(message)
        self.process.stdin.write((line.encode() if isinstance(line, str) else line) + b"\n")
        self.process.stdin.flush()

    def next(self, seconds: float = SECONDS) -> dict[str, Any]:
        """The next message from the server."""
        line = self._lines.get(timeout=seconds)
        assert line is not None, b"".join(self.errors).decode()
        return json.loads(line)

    def answer(self, id: object) -> dict[str, Any]:
        """The answer with an id, whatever comes before it."""
        for known in self._other:
            if known.get("id") == id:
                self._other.remove(known)
                return known
        while (message := self.next()).get("id") != id:
            self._other.append(message)
        return message

    def ask(self, method: str, params: object = None, **more: object) -> dict[str, Any]:
        self._number += 1
        self.send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params, **more})
        return self.answer(self._number)

    def initialize(self, version: str = "2025-06-18", name: str = "test") -> dict[str, Any]:
        client = {"name": name, "version": "1"}
        return self.ask("initialize", {"protocolVersion": version, "clientInfo": client})["result"]

    def call(self, tool: str, **arguments: object) -> dict[str, Any]:
        return self.ask("tools/call", {"name": tool, "arguments": arguments})["result"]

    def end(self) -> int:
        """Close the input; the exit code."""
        self.process.stdin.close()
        return self.process.wait(SECONDS)

    def close(self) -> None:
        self.process.close()


def server_environment(folder: Path, **more: str) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(SETTINGS)}
    own = {"DATABASE_URL": str(folder / "book.db"), "COMMONPLACE_MODELS": str(folder / "no-models")}
    return {**plain, **own, **more}


StartServer = Callable[..., Stdio]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartServer]:
    """Starts servers on one book; words are arguments of `commonplace mcp`, names are variables."""
    started: list[Stdio] = []

    def start_one(*words: str, **variables: str) -> Stdio:
        server = Stdio(server_environment(tmp_path, **variables), *words)
        started.append(server)
        return server

    yield start_one
    for server in started:
        server.close()


@pytest.fixture
def stdio(start: StartServer) -> Stdio:
    return start()


@pytest.fixture
def opened(stdio: Stdio) -> Stdio:
    """A server past its handshake."""
    stdio.initialize()
    return stdio


NOTE = {"type": "note", "content": {"text": "Deploys go out on Tuesdays"}, "source": "test://one", "confidence": 0.9}
