"""Fuzz all described routes of a real server: schemathesis with hundreds of examples per operation.

    python scripts/fuzz_rest.py [--examples 400] [--processes 2] [--only /v1] [--seed 1] [-- options of schemathesis]

No answer may be a server error, and none may have a status, a media type, a header or a shape that /openapi.json does
not describe. The event stream has no end, so the tests cover it.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import commonplace

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
ENDLESS = "/v1/changes/stream"
START_SECONDS = 60
PROGRAMS = Path(sys.executable).parent


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """A service on a new book in a folder; yields its address. Its log is shown if it failed."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    log = folder / "log"
    environment = {**os.environ, "DATABASE_URL": str(folder / "book.db")}
    with log.open("wb") as written:
        server = subprocess.Popen(
            [PROGRAMS / "commonplace", "serve", "--port", str(port)], env=environment, stdout=written, stderr=written
        )
        try:
            _wait(address, server, log)
            yield address
        finally:
            server.terminate()
            code = server.wait(START_SECONDS)
            errors = [line for line in log.read_text(errors="replace").splitlines() if "Traceback" in line]
            print(f"the server ended with {code}; {len(errors)} tracebacks in its log")
            for line in errors[:5]:
                print(line[-300:])


def _wait(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{address}/healthz", timeout=1):
                return
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"the server did not start:\n{log.read_text(errors='replace')}")


def fill(address: str) -> None:
    """Store something, so that not every answer is "not found"."""
    with commonplace.connect(address) as book:
        space = book.space()
        space.files.write("/notes/today", "Deploys go out on Tuesdays\n")
        space.records.create(type="note", content={"text": "tea"}, source="s", confidence=0.9, tags=["a"], id="r-1")
        thread = space.threads.create("Deploys", id="t-1")
        space.threads.add(thread.id, [{"id": "m-1", "role": "user", "content": "When do we deploy?"}])
        space.threads.working.write({"name": "Ana"})
        threads = book.space("agent", "a-1").threads
        threads.add(threads.create("Deploys", id="t-1").id, [{"id": "m-1", "role": "user", "content": "When?"}])


def shares(address: str, count: int, prefix: str) -> list[list[str]]:
    """The operations below a path, divided into shares.

    Processes run them and not threads, because CPython 3.11 fails to parse in several threads at once.
    """
    with urllib.request.urlopen(f"{address}/openapi.json", timeout=START_SECONDS) as answer:
        paths = json.load(answer)["paths"]
    names = [
        operation["operationId"]
        for path, methods in paths.items()
        if path.startswith(prefix) and path != ENDLESS
        for operation in methods.values()
    ]
    return [names[start::count] for start in range(count)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=400, help="examples an operation (default 400)")
    parser.add_argument("--processes", type=int, default=2, help="how many fuzz at once (default 2)")
    parser.add_argument("--only", default="/", metavar="PATH", help="operations at or below this path (default all)")
    parser.add_argument("--seed", type=int, default=None, help="repeat a run")
    parser.add_argument("further", nargs="*", help="passed to schemathesis")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, served(Path(name)) as address:
        fill(address)
        command = [
            *(str(PROGRAMS / "schemathesis"), "run", f"{address}/openapi.json"),
            *(f"--checks={','.join(CHECKS)}", "--phases=examples,coverage,fuzzing", "--continue-on-failure"),
            *(f"--max-examples={arguments.examples}", "--request-timeout=30", "--suppress-health-check=all"),
            *("--workers=1", "--warnings=off", "--no-color"),
            *([] if arguments.seed is None else [f"--seed={arguments.seed}"]),
            *arguments.further,
        ]
        running = []
        for number, operations in enumerate(shares(address, arguments.processes, arguments.only)):
            chosen = [f"--include-operation-id={operation}" for operation in operations]
            place = Path(name, str(number))
            place.mkdir()
            with (place / "output").open("wb") as output:
                running.append((place, subprocess.Popen([*command, *chosen], cwd=place, stdout=output, stderr=output)))
        codes = [process.wait() for _, process in running]
        for place, _ in running:
            print((place / "output").read_text(errors="replace"))
        return max(codes)


if __name__ == "__main__":
    sys.exit(main())
