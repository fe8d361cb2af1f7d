"""Requests per second and their times, for our server and others in one run: `python benchmarks/service.py [--quick]`.

Every server starts empty and gets the same texts. Then searches, writes and, if it supports conversations, messages are
measured at 1, 32 and 256 connections. A separate process on the same machine generates the load and shares its cores.
Only compare lines of the same run on the same machine.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine_report import milliseconds, quantile
from engine_texts import Texts
from service_load import WARM_UP_SECONDS
from service_targets import MODEL, TARGETS, NotThere, Request, Running, Target

HERE = Path(__file__).resolve().parent
CONNECTIONS = (1, 32, 256)
LOAD = HERE / "service_load.py"
FOLDER = HERE.parent / ".clients" / "service-peers"
QUERIES = 2_000
SETTLE_SECONDS = 20.0
UNIQUE = " @@@@@@@@"


@dataclass(frozen=True, slots=True)
class Size:
    texts: int
    seconds: float


def main() -> int:
    options = _options()
    size = Size(300, 3.0) if options.quick else Size(1_000, 8.0)
    chosen = [target for target in TARGETS if options.only is None or target.name in options.only]
    print(
        f"{os.cpu_count()} cores, Python {platform.python_version()}, model {MODEL}, {size.texts:,} texts to search\n"
    )
    print("| server | what | connections | requests/s | p50 | p99 | CPU a request | errors |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    errors = 0
    notes: list[str] = []
    for target in chosen:
        try:
            target.install(FOLDER)
            failed = measure(target, size, notes)
            errors += failed if target is TARGETS[0] else 0
        except NotThere as reason:
            print(f"| {target.name} | not measured | | | | | | |", flush=True)
            notes.append(f"{target.name} {reason}.")
    print("\n" + "\n".join(f"- {note}" for note in notes))
    print("\nno request of ours failed" if not errors else f"\n{errors} requests of ours failed")
    return 1 if errors else 0


def measure(target: Target, size: Size, notes: list[str]) -> int:
    """Print the lines of one server; returns how many requests failed."""
    texts = Texts()
    stored = [texts.text() for _ in range(size.texts)]
    queries = [query.text for query in texts.queries(QUERIES)]
    fresh = [texts.text() + UNIQUE for _ in range(QUERIES)]
    failed = 0
    with tempfile.TemporaryDirectory(prefix="commonplace-bench-") as name:
        data = Path(name)
        with target.running(FOLDER, data) as server:
            began = time.monotonic()
            _post_all(server, [*target.first(), *map(target.create, stored)])
            saved = time.monotonic() - began
            while target.waiting(server.address):
                time.sleep(0.2)
            notes.append(
                f"{target.name}: {size.texts:,} texts saved one by one in {saved:.1f} s, "
                f"found by meaning after {time.monotonic() - began:.1f} s. Durability {target.durability}."
            )
            work: dict[str, Sequence[Request]] = {
                "search": [target.search(query) for query in queries],
                "save a record": [target.create(text) for text in fresh],
            }
            messages = [message for text in fresh if (message := target.message(text)) is not None]
            if messages:
                work["add a message"] = messages
            for what, requests in work.items():
                for connections in CONNECTIONS:
                    seen = load(server, connections, size.seconds, requests)
                    print(f"| {target.name} | {what} | {connections} | {seen} |", flush=True)
                    failed += sum(seen.errors.values())
                    _settle(target, server)
    return failed


@dataclass(frozen=True, slots=True)
class Seen:
    """The answers in a number of seconds, and the CPU time that the server used."""

    length: float
    seconds: list[float]
    errors: dict[str, int]
    cpu_seconds: float | None

    def __str__(self) -> str:
        """The cells of the table."""
        done = len(self.seconds)
        times = [milliseconds(quantile(self.seconds, share)) if done else "" for share in (0.5, 0.99)]
        cpu = milliseconds(self.cpu_seconds / done) if done and self.cpu_seconds is not None else ""
        errors = ", ".join(f"{count} × {error}" for error, count in self.errors.items()) or "0"
        return f"{done / self.length:,.0f} | {times[0]} | {times[1]} | {cpu} | {errors}"


def load(server: Running, connections: int, seconds: float, requests: Sequence[Request]) -> Seen:
    words = [sys.executable, str(LOAD), server.host, str(server.port), str(connections), str(seconds)]
    before = server.cpu_seconds()
    done = subprocess.run(words, input=json.dumps(requests), capture_output=True, text=True, check=True)
    after = server.cpu_seconds()
    # The load generator warms up for a second, in which the server works too.
    share = seconds / (seconds + WARM_UP_SECONDS)
    cpu = None if before is None or after is None else (after - before) * share
    seen = json.loads(done.stdout)
    return Seen(seconds, seen["seconds"], seen["errors"], cpu)


def _settle(target: Target, server: Running) -> None:
    """Wait, for a bounded time, until background work of the last writes is done."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while target.waiting(server.address) and time.monotonic() < deadline:
        time.sleep(0.5)


def _post_all(server: Running, requests: Sequence[Request]) -> None:
    connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
    for method, path, body in requests:
        connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        if not 200 <= answer.status < 300:
            raise NotThere(f"refuses a text: {answer.status} {text[:200]!r}")
    connection.close()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="300 texts and 3 seconds a line instead of 1,000 and 8")
    parser.add_argument("--only", action="append", choices=[target.name for target in TARGETS], help="one server")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
