"""The servers of the service benchmark: how each is installed, started and used for the same work.

A peer gets its own virtual environment, created at the first run; one that cannot be installed or started is reported
with the reason. All servers that can use the model on this machine use the same one.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

MODEL = "all-MiniLM-L6-v2"
START_SECONDS = 90
STOP_SECONDS = 30
INSTALL_SECONDS = 1_800
THREAD = "bench"

Request = tuple[str, str, object]
"""A method, a path and a body."""


class NotThere(Exception):
    """A server cannot be measured here; the text is the reason."""


@dataclass(frozen=True, slots=True)
class Running:
    """Where a server is."""

    host: str
    port: int
    pid: int

    @property
    def address(self) -> str:
        return f"http://{self.host}:{self.port}"

    def cpu_seconds(self) -> float | None:
        """The CPU time that it has used, if the system reports it: the most stable figure on a busy machine."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Target(ABC):
    """A server that can save and search."""

    name: str
    durability: str
    """What an acknowledged write survives, as a short text."""

    @abstractmethod
    def install(self, folder: Path) -> None:
        """Prepare it for the start, or raise NotThere."""

    @abstractmethod
    def command(self, folder: Path, data: Path, port: int) -> tuple[list[str], dict[str, str]]:
        """The command that starts it with empty data, and its environment."""

    @property
    @abstractmethod
    def health(self) -> str: ...

    @abstractmethod
    def create(self, text: str) -> Request: ...

    @abstractmethod
    def search(self, query: str) -> Request: ...

    def message(self, text: str) -> Request | None:
        """Add to a conversation; None if it has no conversations."""
        return None

    def first(self) -> list[Request]:
        """What must exist before messages can be added."""
        return []

    def waiting(self, address: str) -> int:
        """How many of the saved texts have no vector yet."""
        return 0

    @contextmanager
    def running(self, folder: Path, data: Path) -> Iterator[Running]:
        """The running server on empty data."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        command, environment = self.command(folder, data, port)
        log = data / "server.log"
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **environment})
        try:
            _await_answer(f"http://127.0.0.1:{port}{self.health}", process, log)
            yield Running("127.0.0.1", port, process.pid)
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _await_answer(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = monotonic() + START_SECONDS
    while monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            sleep(0.1)
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    raise NotThere(f"does not start: {lines[-1][:300] if lines else 'it says nothing'}")


class Commonplace(Target):
    name = "commonplace"
    durability = "FULL: on disk before the answer"
    health = "/healthz"

    def install(self, folder: Path) -> None:
        from commonplace.embedding.catalog import default_models_folder
        from commonplace.embedding.pull import pull

        pull(MODEL, folder=default_models_folder())

    def command(self, folder: Path, data: Path, port: int) -> tuple[list[str], dict[str, str]]:
        words = ["-m", "commonplace.cli", "--db", str(data / "book.db"), "serve", "--port", str(port)]
        return [sys.executable, *words], {"EMBEDDINGS_MODEL": MODEL, "COMMONPLACE_NAMESPACE": "user/bench"}

    def create(self, text: str) -> Request:
        record = {"type": "note", "content": {"text": text}, "source": "bench", "confidence": 0.9, "tags": ["bench"]}
        return "POST", "/v1/records", record

    def search(self, query: str) -> Request:
        return "POST", "/v1/search", {"query": query, "limit": 10}

    def message(self, text: str) -> Request:
        return "POST", f"/v1/messages?thread={THREAD}", {"messages": [{"role": "user", "content": text}]}

    def first(self) -> list[Request]:
        return [("POST", "/v1/threads", {"id": THREAD})]

    def waiting(self, address: str) -> int:
        try:
            with urllib.request.urlopen(f"{address}/readyz", timeout=30) as answer:
                report: Mapping[str, object] = json.load(answer)
        except urllib.error.HTTPError as error:
            report = json.load(error)
        waiting = report["pending_passages"]
        return waiting if isinstance(waiting, int) else 1


class McpMemoryService(Target):
    """doobidoo's mcp-memory-service with its default store, sqlite-vec, and ONNX on this machine's model files."""

    name = "mcp-memory-service"
    durability = "NORMAL: a power cut may lose the last answers"
    health = "/api/health"

    def install(self, folder: Path) -> None:
        python = _environment(folder / "mcp-memory-service", "mcp-memory-service==12.2.0", "onnxruntime", "tokenizers")
        # It would download this model from its own server; ours has the same files except for the tokenizer's format.
        from commonplace.embedding.catalog import default_models_folder

        ours = default_models_folder() / MODEL
        place = folder / "home/.cache/mcp_memory/onnx_models" / MODEL / "onnx"
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(ours / "model.onnx", place / "model.onnx")
        program = (
            "import sys; from tokenizers import BertWordPieceTokenizer as T; "
            "T(sys.argv[1], lowercase=True).save(sys.argv[2])"
        )
        subprocess.run([python, "-c", program, ours / "vocab.txt", place / "tokenizer.json"], check=True)

    def command(self, folder: Path, data: Path, port: int) -> tuple[list[str], dict[str, str]]:
        program = folder / "mcp-memory-service/bin/memory"
        return [str(program), "server", "--http", "--http-port", str(port)], {
            "HOME": str(folder / "home"),
            "MCP_MEMORY_USE_ONNX": "true",
            "MCP_ALLOW_ANONYMOUS_ACCESS": "true",
            "MCP_MEMORY_SQLITE_PATH": str(data / "memory.db"),
            "MCP_MEMORY_BASE_DIR": str(data),
            "HF_HUB_OFFLINE": "1",
        }

    def create(self, text: str) -> Request:
        return "POST", "/api/memories", {"content": text, "tags": ["bench"]}

    def search(self, query: str) -> Request:
        return "POST", "/api/search", {"query": query, "n_results": 10}


class Mem0(Target):
    """mem0's REST server is in its repository, not in the package, and is built as containers."""

    name = "mem0"
    durability = ""
    health = "/"

    def install(self, folder: Path) -> None:
        python = _environment(folder / "mem0", "mem0ai==2.2.1")
        probe = (
            "import importlib.util as u; print(any(u.find_spec(f'mem0.{name}') for name in ('server', 'api', 'rest')))"
        )
        found = subprocess.run([python, "-c", probe], capture_output=True, text=True, check=False)
        if found.stdout.strip() != "True":
            raise NotThere(
                "mem0ai 2.2.1 installs and has no server in it: mem0's is a set of containers in its repository, "
                "with PostgreSQL and a key for a hosted model"
            )
        raise NotThere("this version has a server that this benchmark does not know how to start")

    def command(self, folder: Path, data: Path, port: int) -> tuple[list[str], dict[str, str]]:
        raise NotThere("it has no server")

    def create(self, text: str) -> Request:
        return "POST", "/memories", {"messages": [{"role": "user", "content": text}], "user_id": "bench"}

    def search(self, query: str) -> Request:
        return "POST", "/search", {"query": query, "user_id": "bench"}


TARGETS: tuple[Target, ...] = (Commonplace(), McpMemoryService(), Mem0())


def _environment(folder: Path, *packages: str) -> Path:
    """A virtual environment with packages, of a Python whose SQLite can load extensions, as sqlite-vec needs it."""
    python = folder / "bin/python"
    ready = folder / ".installed"
    if ready.exists():
        return python
    folder.parent.mkdir(parents=True, exist_ok=True)
    steps = (
        [_python_with_extensions(), "-m", "venv", "--clear", "--without-pip", str(folder)],
        [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", *packages],
    )
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.strip() and "WARNING" not in line]
            raise NotThere(f"does not install: {lines[-1][:300] if lines else step}")
    ready.touch()
    return python


def _python_with_extensions() -> str:
    probe = "import sqlite3; sqlite3.connect(':memory:').enable_load_extension(True)"
    known = (sys.executable, "/usr/bin/python3", "python3.13", "python3.12", "python3")
    for python in filter(None, map(shutil.which, known)):
        if subprocess.run([python, "-c", probe], capture_output=True, check=False).returncode == 0:
            return python
    return sys.executable
