"""Mastra's own JavaScript client over every memory route that it has, against our real server.

`python scripts/mastra_routes.py` installs `@mastra/client-js` into `.clients/` at the first run, starts
`commonplace serve` on a fresh book, and runs `clients/mastra_client.mjs`, which checks the answers. Then the client's
own source and its list of routes are read: a route in them that was not called, or that we do not have, is a failure.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CLIENTS = HERE / "clients"
sys.path.insert(0, str(CLIENTS))

from install import node, npm  # noqa: E402

VERSION = "1.47.0"
SECONDS = 120
PREFIX = "/api"
SETTINGS = ("COMMONPLACE_", "EMBEDDINGS_", "SEARCH_", "MAX_", "LOG_LEVEL", "MCP_", "OPENAI_", "DATABASE_URL")
"""Variables of the caller that would change what our server answers."""

_REQUESTED = re.compile(r"`(/memory/[^`]*)")
_CONTRACT = re.compile(r"'([A-Z]+) (/memory/[^']*)': \w+_RouteContract;")
_THREAD = re.compile(r"\$\{(?:this\.)?threadId\}")
_MORE = re.compile(r"\$\{.*|\?.*")


def main() -> int:
    folder = npm("mastra-client", f"@mastra/client-js@{VERSION}")
    package = folder / "node_modules" / "@mastra" / "client-js" / "dist"
    with tempfile.TemporaryDirectory() as scratch, serving(Path(scratch)) as address:
        visit = run_client(folder, address)
        ours = routes_of(address)
    faults = [
        *(f"the client has {route}, which the script does not call" for route in requested(package) - visited(visit)),
        *(f"Mastra's contract has {route}, which we do not have" for route in contract(package) - ours),
    ]
    print(f"@mastra/client-js {VERSION}: {visit['checked']} answers checked, {len(visit['called'])} addresses called,")
    print(f"  {len(requested(package))} paths in its source, {len(contract(package))} routes in its contract")
    for fault in sorted(faults):
        print(f"  {fault}")
    return 1 if faults else 0


@contextmanager
def serving(scratch: Path) -> Iterator[str]:
    """Our server on a free port of this computer; yields its address."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(SETTINGS)}
    command = [sys.executable, "-m", "commonplace.cli", "--db", str(scratch / "book.db"), "serve", "--port", "0"]
    log = (scratch / "log").open("w+")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=env)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                yield found[0]
                return
        log.seek(0)
        sys.exit(f"the server did not start:\n{log.read()}")
    finally:
        process.terminate()
        process.wait(SECONDS)
        log.close()


def run_client(folder: Path, address: str) -> dict[str, Any]:
    command = [str(node()), str(CLIENTS / "mastra_client.mjs"), address]
    answer = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    if answer.returncode:
        sys.exit(f"the client got an unexpected result:\n{answer.stdout}{answer.stderr}")
    visit: dict[str, Any] = json.loads(answer.stdout)
    return visit


def requested(package: Path) -> set[str]:
    """The paths in the client's source, without what differs from call to call."""
    source = (package / "index.js").read_text(encoding="utf-8")
    return {_MORE.sub("", _THREAD.sub("{id}", path)) for path in _REQUESTED.findall(source)}


def contract(package: Path) -> set[str]:
    """Method and path of each memory route of Mastra's own server, from its client's contract."""
    types = (package / "route-types.generated.d.ts").read_text(encoding="utf-8")
    return {f"{method} {path.replace(':threadId', '{id}')}" for method, path in _CONTRACT.findall(types)}


def visited(visit: dict[str, Any]) -> set[str]:
    paths = {route.partition(" ")[2].removeprefix(PREFIX) for route in visit["called"]}
    return {re.sub(r"/threads/[^/]+", "/threads/{id}", path) for path in paths}


def routes_of(address: str) -> set[str]:
    with urllib.request.urlopen(f"{address}/openapi.json", timeout=SECONDS) as answer:
        paths = json.load(answer)["paths"]
    return {
        f"{method.upper()} {path.removeprefix(PREFIX).replace('{thread_id}', '{id}')}"
        for path, methods in paths.items()
        for method in methods
        if path.startswith(f"{PREFIX}/memory")
    }


if __name__ == "__main__":
    sys.exit(main())
