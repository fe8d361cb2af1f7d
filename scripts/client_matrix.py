"""Real clients against our MCP server, over stdio and streamable HTTP: what each of them saw, fact by fact.

`python scripts/client_matrix.py [--only NAME]` installs them into `.clients/` at the first run. Each client connects,
lists the tools, saves a memory, finds it, makes a call that must be refused, reads the memory at its address, and lists
and gets prompts; some subscribe. Their results are compared with what was saved. docs/internal/clients.md says more.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

HERE = Path(__file__).resolve().parent
CLIENTS = HERE / "clients"
sys.path.insert(0, str(CLIENTS))

from checks import calls, faults_of  # noqa: E402
from conformance import EXPECTED, VERSION, conformance, install  # noqa: E402
from install import node, npm, python  # noqa: E402

SECONDS = 120
BOTH = ("stdio", "http")
SETTINGS = ("COMMONPLACE_", "EMBEDDINGS_", "SEARCH_", "MAX_", "LOG_LEVEL", "MCP_", "OPENAI_", "DATABASE_URL")
"""Variables of the caller that would change what our server answers."""


@dataclass(frozen=True, slots=True)
class Client:
    """A third-party client.

    `command` installs it if needed and returns the command that starts it, and its folder. `more` are arguments after
    the task; with `subscribes`, it subscribes and must be notified of its own change.
    """

    name: str
    protocol: str
    command: Callable[[], tuple[Sequence[str], Path]]
    transports: tuple[str, ...] = BOTH
    more: tuple[str, ...] = ()
    subscribes: bool = False


def _python(family: str, script: str, *packages: str) -> Callable[[], tuple[Sequence[str], Path]]:
    return lambda: ([str(python(family, *packages)), str(CLIENTS / script)], CLIENTS)


def _typescript(version: str) -> Callable[[], tuple[Sequence[str], Path]]:
    def command() -> tuple[Sequence[str], Path]:
        folder = npm(f"typescript-sdk-{version}", f"@modelcontextprotocol/sdk@{version}")
        return [str(node()), str(CLIENTS / "typescript_sdk.mjs")], folder

    return command


def _inspector(version: str) -> Callable[[], tuple[Sequence[str], Path]]:
    def command() -> tuple[Sequence[str], Path]:
        return [sys.executable, str(CLIENTS / "inspector.py")], npm(
            f"inspector-{version}", f"@modelcontextprotocol/inspector@{version}"
        )

    return command


_SDK_2 = _python("python-sdk-2", "python_sdk_2.py", "mcp==2.3.0", "fastmcp==4.1.2")
MATRIX = (
    Client("mcp 2.3.0", "2026-07-28", _SDK_2, subscribes=True),
    Client("mcp 2.3.0 (handshake)", "2025-11-25", _SDK_2, more=("legacy",), subscribes=True),
    Client("mcp 1.30.0", "2025-11-25", _python("python-sdk-1", "python_sdk_1.py", "mcp==1.30.0"), subscribes=True),
    Client("fastmcp 4.1.2", "2026-07-28", _python("python-sdk-2", "fastmcp_client.py", "mcp==2.3.0", "fastmcp==4.1.2")),
    Client(
        "langchain-mcp-adapters 0.3.2",
        "2025-11-25",
        _python("langchain", "langchain_client.py", "langchain-mcp-adapters==0.3.2"),
    ),
    Client(
        "openai-agents 0.24.0",
        "2026-07-28",
        _python("openai-agents", "openai_agents_client.py", "openai-agents==0.24.0"),
    ),
    Client("TypeScript SDK 1.32.2", "2025-11-25", _typescript("1.32.2"), subscribes=True),
    # Before streamable HTTP.
    Client("TypeScript SDK 1.0.4", "2024-11-05", _typescript("1.0.4"), transports=("stdio",), subscribes=True),
    Client(
        "MCP Inspector 2.12.0",
        "2025-11-25",
        _inspector("2.12.0"),
    ),
)


SUITE = f"conformance {VERSION}"


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one client on one transport. `notes` are for the reader; `faults` make it a failure."""

    client: str
    protocol: str
    transport: str
    faults: Sequence[str]
    notes: Sequence[str] = ()

    def __str__(self) -> str:
        result = "FAILED" if self.faults else "passed"
        line = f"{self.client:30} | {self.protocol:10} | {self.transport:9} | {result}"
        return "\n    ".join((line, *self.faults, *self.notes))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", metavar="NAME", default="", help="only clients with this in their name")
    wanted = parser.parse_args().only.lower()
    chosen = [client for client in MATRIX if wanted in client.name.lower()]
    has_suite = wanted in SUITE.lower()
    if not chosen and not has_suite:
        sys.exit(f"no client is called {wanted!r}; there are {', '.join([one.name for one in MATRIX] + [SUITE])}")
    commands = {client.name: client.command() for client in chosen}
    print(f"{'client':30} | {'protocol':10} | {'transport':9} | result")
    print(f"{'-' * 30} | {'-' * 10} | {'-' * 9} | ------")
    passed = failed = 0
    with tempfile.TemporaryDirectory(prefix="commonplace-clients-") as name:
        for row in chain(_visits(chosen, commands, Path(name)), _suite(Path(name)) if has_suite else ()):
            print(row, flush=True)
            passed, failed = passed + (not row.faults), failed + bool(row.faults)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def _visits(
    clients: Sequence[Client], commands: Mapping[str, tuple[Sequence[str], Path]], books: Path
) -> Iterator[Row]:
    with _http_server(books / "http.db") as url:
        for client in clients:
            for transport in client.transports:
                faults, notes = _run(client, *commands[client.name], transport, url, books)
                yield Row(client.name, client.protocol, transport, faults, notes)


def _suite(books: Path) -> Iterator[Row]:
    install()
    with _http_server(books / "conformance.db", "--fixtures") as url:
        for revision in EXPECTED:
            faults, what = conformance(url, revision)
            yield Row(SUITE, revision, "http", faults, [what])


def _run(
    client: Client, command: Sequence[str], folder: Path, transport: str, url: str, books: Path
) -> tuple[list[str], list[str]]:
    """Run a client against our server; returns the errors in what it saw, and its warnings."""
    tag = re.sub(r"[^a-z0-9]+", "-", client.name.lower()).strip("-") + f":{transport}"
    asked = calls(tag)
    task = {
        "url": url if transport == "http" else None,
        "command": str(Path(sys.executable).with_name("commonplace")),
        "args": ["mcp"],
        "env": {**_plain_environment(), "DATABASE_URL": str(books / f"{tag.replace(':', '-')}.db")},
        **asked,
    }
    try:
        answer = subprocess.run(
            [*command, json.dumps(task), *client.more],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [f"no answer within {SECONDS} s"], []
    if answer.returncode:
        return [f"exit {answer.returncode}", *answer.stderr.splitlines()[-15:]], []
    warnings = re.findall(r"^Warning: .*$", answer.stderr, re.MULTILINE)
    try:
        seen = json.loads(answer.stdout.splitlines()[-1])
        return list(faults_of(seen, asked, client.protocol, subscribes=client.subscribes)), warnings
    except (LookupError, TypeError, ValueError) as error:
        return [f"an answer of another form: {error!r}", *answer.stdout.splitlines()[-5:]], warnings


def _plain_environment() -> Mapping[str, str]:
    kept = ("PATH", "HOME", "LANG", "XDG_CACHE_HOME")
    return {name: os.environ[name] for name in kept if name in os.environ}


@contextmanager
def _http_server(book: Path, *words: str) -> Iterator[str]:
    """Our server in its own process; yields its address."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(SETTINGS)}
    process = subprocess.Popen(
        [sys.executable, str(CLIENTS / "serve_http.py"), str(book), *words],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        if not port:
            sys.exit("our server over HTTP did not start")
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait(20)


if __name__ == "__main__":
    sys.exit(main())
