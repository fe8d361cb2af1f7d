"""Memory servers that speak MCP over stdio: each is started as a client starts it, and called with its own tools.

`stdio_servers.py KIND COMMAND…`; a server embeds with what it has, so such a row shows the model's time.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from abc import abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from adapter import Peer, serve

START_SECONDS = 60.0
CALL_SECONDS = 120.0
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "peers", "version": "1"},
}


class Connection:
    """A server's process and its unanswered requests, of which there may be any number."""

    def __init__(self, command: Sequence[str], environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **environment},
            text=True,
        )
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()

    def request(self, method: str, parameters: object, seconds: float = CALL_SECONDS) -> Any:
        number = next(self._numbers)
        future: Future[Any] = Future()
        self._waiting[number] = future
        self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": parameters})
        answer = future.result(seconds)
        if "error" in answer:
            raise RuntimeError(answer["error"]["message"])
        return answer["result"]

    def tell(self, method: str) -> None:
        self._send({"jsonrpc": "2.0", "method": method})

    def _send(self, message: object) -> None:
        assert self.process.stdin is not None
        with self._lock:
            self.process.stdin.write(json.dumps(message) + "\n")
            self.process.stdin.flush()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.startswith("{"):
                continue
            message = json.loads(line)
            future = self._waiting.pop(message.get("id"), None)
            if future is not None:
                future.set_result(message)
        for future in self._waiting.values():
            future.set_exception(RuntimeError("the server has ended"))

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()


class Server(Peer):
    def __init__(self, command: Sequence[str]) -> None:
        self._command = command

    @abstractmethod
    def environment(self, folder: Path) -> dict[str, str]: ...

    def open(self, folder: Path) -> None:
        start = time.perf_counter()
        self.connection = Connection(self._command, self.environment(folder))
        self.connection.request("initialize", HELLO, START_SECONDS)
        self.started_seconds = time.perf_counter() - start
        self.connection.tell("notifications/initialized")

    def call(self, tool: str, **arguments: object) -> Any:
        """The structured content of a tool's answer, or its text parsed as JSON if it is JSON."""
        answer = self.connection.request("tools/call", {"name": tool, "arguments": arguments})
        text = "".join(block.get("text", "") for block in answer["content"])
        if answer.get("isError"):
            raise RuntimeError(text)
        if answer.get("structuredContent") is not None:
            return answer["structuredContent"]
        try:
            return json.loads(text)
        except ValueError:
            return text

    def process_ids(self) -> list[int]:
        """The server and all its child processes."""
        found = [self.connection.process.pid]
        for process_id in found:
            for thread in Path(f"/proc/{process_id}/task").iterdir():
                found += map(int, (thread / "children").read_text().split())
        return found

    def close(self) -> None:
        self.connection.close()


class Commonplace(Server):
    """Our own server, with the default model. Bulk loads use the library directly."""

    batch = 5_000

    def environment(self, folder: Path) -> dict[str, str]:
        from ours import Ours

        self._library = Ours("given")
        self._library.vectors = self.vectors
        self._folder = folder
        return {"DATABASE_URL": str(folder / "memory.db"), "COMMONPLACE_NAMESPACE": "user/bench"}

    def add(self, text: str) -> None:
        self.call("memory_create", type="note", content={"text": text}, source="bench", confidence=0.9, tags=["bench"])

    def fill(self, texts: Sequence[str]) -> None:
        self._library.open(self._folder)
        self._library.fill(texts)
        self._library.close()

    def settle(self) -> None:
        self.fill([])

    def search(self, query: str) -> int:
        return len(self.call("memory_search", query=query, limit=10)["items"])

    def found(self, texts: Sequence[str]) -> int:
        self._library.open(self._folder)
        found = self._library.found(texts)
        self._library.close()
        return found


class ServerMemory(Server):
    """The reference server of the protocol's authors: a JSON file, written whole at each change; no embedding."""

    def environment(self, folder: Path) -> dict[str, str]:
        self._file = folder / "memory.jsonl"
        return {"MEMORY_FILE_PATH": str(self._file)}

    def add(self, text: str) -> None:
        self.fill([text])

    def fill(self, texts: Sequence[str]) -> None:
        entities = [
            {"name": f"{os.getpid()}-{time.monotonic_ns()}-{number}", "entityType": "note", "observations": [text]}
            for number, text in enumerate(texts)
        ]
        self.call("create_entities", entities=entities)

    def search(self, query: str) -> int:
        # It only finds substrings of a memory. A sentence finds nothing, so the longest word is used.
        return len(self.call("search_nodes", query=max(query.split(), key=len))["entities"])

    def found(self, texts: Sequence[str]) -> int:
        there: set[str] = set()
        for line in self._file.read_text().splitlines():
            try:
                there.update(json.loads(line)["observations"])
            except ValueError:
                continue  # a line that two processes wrote at once
        return sum(text in there for text in texts)


class MemoryService(Server):
    """Only started here; without its extras it embeds by hashes, so its storage is measured with given vectors."""

    def environment(self, folder: Path) -> dict[str, str]:
        return {"HOME": str(folder), "MCP_MEMORY_BASE_DIR": str(folder), "HF_HUB_OFFLINE": "1"}

    def add(self, text: str) -> None:
        self.call("memory_store", content=text)

    def fill(self, texts: Sequence[str]) -> None:
        self.add(texts[0])

    def search(self, query: str) -> int:
        return str(self.call("memory_search", query=query, limit=10)).count("content_hash")

    def found(self, texts: Sequence[str]) -> int:
        return sum(text in str(self.call("memory_search", query=text, limit=1)) for text in texts)


class BasicMemory(Server):
    """Markdown files with an index in SQLite."""

    batch = 20

    def environment(self, folder: Path) -> dict[str, str]:
        self._home = folder / "notes"
        self._home.mkdir(exist_ok=True)
        return {
            "HOME": str(folder),
            "BASIC_MEMORY_HOME": str(self._home),
            "BASIC_MEMORY_CONFIG_DIR": str(folder / "config"),
            "BASIC_MEMORY_ENV": "user",
            "BASIC_MEMORY_SYNC_CHANGES": "false",
            # By meaning it searches with a model of its own, which it fetches from a hub.
            "BASIC_MEMORY_SEMANTIC_SEARCH_ENABLED": "false",
            "HF_HUB_OFFLINE": "1",
        }

    def add(self, text: str) -> None:
        title = f"note {os.getpid()}-{time.monotonic_ns()}"
        self.call("write_note", title=title, content=text, directory="bench")

    def search(self, query: str) -> int:
        answer = self.call("search_notes", query=query, page_size=10, output_format="json")
        return len(answer["result"]["results"])

    def found(self, texts: Sequence[str]) -> int:
        there = "\n".join(file.read_text() for file in self._home.rglob("*.md"))
        return sum(text in there for text in texts)


KINDS: dict[str, type[Server]] = {
    "commonplace": Commonplace,
    "server-memory": ServerMemory,
    "mcp-memory-service": MemoryService,
    "basic-memory": BasicMemory,
}

if __name__ == "__main__":
    serve(KINDS[sys.argv[1]](sys.argv[2:]))
