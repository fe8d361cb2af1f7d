"""The measured systems: where each comes from, what it has to do, and the remarks in its row."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from peers_install import ROOT, NotThere, npm_environment, our_environment, python_environment

ADAPTERS = ROOT / "benchmarks" / "peers"
Kind = Literal["library", "server"]


@dataclass(frozen=True, slots=True)
class Target:
    """A row. `prepare` creates its environment in a folder and returns the adapter's command."""

    name: str
    kind: Kind
    environment: str
    """The folder of its environment; rows may share one."""
    prepare: Callable[[Path], Sequence[str]]
    uses: str
    has_model_time: bool = False
    is_ours: bool = False
    is_python: bool = True
    server: Callable[[Path], Sequence[str]] | None = None
    """The command of its server, if the row itself is measured as a library."""
    unsynced: str = ""
    """Why an add is not durable although something is synced."""
    loses_all: bool = False
    """Whether it stores nothing on disk."""


def _ours(mode: str) -> Callable[[Path], Sequence[str]]:
    def prepare(folder: Path) -> Sequence[str]:
        return [str(our_environment(folder)), str(ADAPTERS / "ours.py"), mode]

    return prepare


def _our_server(folder: Path) -> Sequence[str]:
    python = str(our_environment(folder))
    return [python, str(ADAPTERS / "stdio_servers.py"), "commonplace", python, "-m", "commonplace.cli", "mcp"]


def _python(script: str, *packages: str, arguments: Sequence[str] = ()) -> Callable[[Path], Sequence[str]]:
    def prepare(folder: Path) -> Sequence[str]:
        return [str(python_environment(folder, packages)), str(ADAPTERS / script), *arguments]

    return prepare


def _server_memory(folder: Path) -> Sequence[str]:
    node = shutil.which("node")
    if node is None:
        raise NotThere("Node.js is missing")
    package = "@modelcontextprotocol/server-memory"
    script = npm_environment(folder, [f"{package}@2026.8.31"]) / "node_modules" / package / "dist" / "index.js"
    return [sys.executable, str(ADAPTERS / "stdio_servers.py"), "server-memory", node, str(script)]


def _memory_service(folder: Path) -> Sequence[str]:
    program = folder / "bin" / "memory"
    return [sys.executable, str(ADAPTERS / "stdio_servers.py"), "mcp-memory-service", str(program), "server"]


def _basic_memory(folder: Path) -> Sequence[str]:
    python = python_environment(folder, ["basic-memory==0.23.0"], newest=True)
    program = python.with_name("basic-memory")
    return [sys.executable, str(ADAPTERS / "stdio_servers.py"), "basic-memory", str(program), "mcp"]


_LANGGRAPH = ("langgraph==1.2.20", "langgraph-checkpoint-sqlite==3.1.2", "langmem==0.0.30", "numpy")

TARGETS: tuple[Target, ...] = (
    Target(
        "commonplace",
        "library",
        "commonplace",
        _ours("given"),
        "`space.records.create`, `space.search` (words and meaning)",
        is_ours=True,
    ),
    Target(
        "commonplace with its model",
        "library",
        "commonplace",
        _ours("model"),
        "the same; each query is embedded, each memory behind the write",
        has_model_time=True,
        is_ours=True,
    ),
    Target(
        "commonplace mcp",
        "server",
        "commonplace",
        _our_server,
        "`memory_create`, `memory_search` over stdio (words and meaning)",
        has_model_time=True,
        is_ours=True,
    ),
    Target(
        "LangGraph SqliteStore",
        "library",
        "langgraph",
        _python("langgraph_stores.py", *_LANGGRAPH, arguments=["sqlite"]),
        "LangMem's `manage_memory` and `search_memory` (meaning, sqlite-vec)",
    ),
    Target(
        "LangGraph InMemoryStore",
        "library",
        "langgraph",
        _python("langgraph_stores.py", *_LANGGRAPH, arguments=["memory"]),
        "LangMem's `manage_memory` and `search_memory` (meaning)",
        loses_all=True,
    ),
    Target(
        "mem0",
        "library",
        "mem0",
        _python("mem0_memory.py", "mem0ai==2.2.1"),
        "`add(infer=False)`, `search` (meaning, Qdrant in the process)",
    ),
    Target(
        "ChromaDB",
        "library",
        "chroma",
        _python("chroma.py", "chromadb==1.5.9"),
        "`collection.add`, `collection.query` of a PersistentClient (meaning, HNSW)",
    ),
    Target(
        "mcp-memory-service",
        "library",
        "mcp-memory-service",
        _python("memory_service.py", "mcp-memory-service==12.2.0"),
        "`store` and `retrieve` of its sqlite-vec storage (meaning); started as its own server over stdio",
        server=_memory_service,
    ),
    Target(
        "server-memory (npm)",
        "server",
        "server-memory",
        _server_memory,
        "`create_entities`, `search_nodes` with one word, over stdio (substrings; no model)",
        is_python=False,
    ),
    Target(
        "basic-memory",
        "server",
        "basic-memory",
        _basic_memory,
        "`write_note`, `search_notes` over stdio (words)",
        unsynced="its notes are files that are not synced",
    ),
)
