"""PostgreSQL goes away under a running service: callers are told to come again, and it goes on by itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpx
import mcp
import pytest

from postgres_server import DURABLE, PostgresServer

CALL_SECONDS = 30
"""No answer takes as long, whatever the database does."""

AWAY_SECONDS = 2
AT_ONCE = 200
NOTE = {"type": "note", "source": "test://one", "confidence": 0.9}


@dataclass
class Place:
    """A database server, and a service on it that is never started again."""

    database: PostgresServer
    process: subprocess.Popen[str]
    address: str

    def client(self) -> httpx.Client:
        limits = httpx.Limits(max_connections=AT_ONCE)
        return httpx.Client(base_url=self.address, timeout=CALL_SECONDS, limits=limits)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    database = PostgresServer(DURABLE)
    environment = {
        **os.environ,
        "DATABASE_URL": database.create_database() + "?partitions=2",
        "COMMONPLACE_MODELS": str(tmp_path_factory.mktemp("no-models")),
        "LOG_LEVEL": "error",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "commonplace.cli", "serve", "--json", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
    )
    assert process.stdout is not None
    yield Place(database, process, json.loads(process.stdout.readline())["address"])
    process.terminate()
    _, errors = process.communicate(timeout=60)
    database.remove()
    assert (process.returncode, errors) == (0, "")


Call = Callable[[httpx.Client, str], httpx.Response]
CALLS: dict[str, Call] = {
    "append": lambda client, word: client.post("/v1/files/log", content=word, headers={"Idempotency-Key": word}),
    "record": lambda client, word: client.post("/v1/records", json={**NOTE, "content": {"text": word}}),
    "search": lambda client, word: client.get("/v1/search", params={"q": "word"}),
    "listing": lambda client, word: client.get("/v1/records"),
    "changes": lambda client, word: client.get("/v1/changes"),
    "export": lambda client, word: client.get("/v1/export", params={"everything": True}),
    "mastra": lambda client, word: client.get("/api/memory/threads", params={"agentId": "a", "resourceId": "r"}),
    "metrics": lambda client, word: client.get("/metrics"),
}


@dataclass
class Caller:
    """Makes one call again and again, and keeps what it was answered."""

    call: Call
    statuses: Counter[int] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)

    def run(self, place: Place, stop: threading.Event) -> None:
        number = 0
        with place.client() as client:
            while not stop.is_set():
                number += 1
                word = f"word{number}"
                began = time.monotonic()
                try:
                    answer = self.call(client, word)
                except httpx.HTTPError as error:
                    self.faults.append(f"{error!r} after {time.monotonic() - began:.1f} s")
                    continue
                self.statuses[answer.status_code] += 1
                if answer.status_code == 503:
                    if "retry-after" not in answer.headers:
                        self.faults.append(f"503 without Retry-After: {answer.text}")
                elif answer.is_success:
                    self.acknowledged.append(word)
                else:
                    self.faults.append(f"{answer.status_code} {answer.text}")


@pytest.mark.promise("service-survives-a-restart-of-postgres")
def test_a_restart_under_load_is_answered_with_success_or_come_again(place: Place) -> None:
    stop = threading.Event()
    callers = {name: Caller(call) for name, call in CALLS.items()}
    threads = [threading.Thread(target=caller.run, args=(place, stop)) for caller in callers.values()]
    for thread in threads:
        thread.start()

    def wait_for_successes(more: int) -> None:
        wanted = {name: len(caller.acknowledged) + more for name, caller in callers.items()}
        while any(len(caller.acknowledged) < wanted[name] for name, caller in callers.items()):
            assert place.process.poll() is None
            time.sleep(0.01)

    wait_for_successes(3)
    place.database.stop(signal.SIGQUIT)  # as a crash would
    time.sleep(AWAY_SECONDS)
    place.database.start()
    wait_for_successes(3)
    stop.set()
    for thread in threads:
        thread.join()
    assert {name: caller.faults for name, caller in callers.items() if caller.faults} == {}
    with place.client() as client:
        kept = Counter(client.get("/v1/files/log").text.splitlines())
    assert [word for word, count in kept.items() if count > 1] == []
    assert set(callers["append"].acknowledged) <= kept.keys()


@pytest.mark.promise("service-reports-postgres-down-at-once")
def test_while_the_database_is_away_every_face_says_so_at_once_and_streams_stay_open(place: Place) -> None:
    with place.client() as client, ThreadPoolExecutor(AT_ONCE) as threads:
        assert client.post("/v1/files/watched", content="before").status_code == 200
        with client.stream("GET", "/v1/changes/stream") as stream:
            lines = stream.iter_lines()
            assert next(lines) == "retry: 1000"
            place.database.stop()
            while (first := client.get("/v1/records")).status_code == 200:
                continue
            assert (first.status_code, first.json()["code"]) == (503, "unavailable")
            assert_told(first.json()["detail"])
            began = time.monotonic()
            answers = list(threads.map(lambda number: client.get(f"/v1/files/f{number}"), range(AT_ONCE)))
            # Each waiting for the database by itself, they would take some 25 s: a service has 40 threads for them.
            assert time.monotonic() - began < 15
            assert {(answer.status_code, answer.headers.get("retry-after")) for answer in answers} == {(503, "1")}
            ready = client.get("/readyz")
            assert (ready.status_code, ready.headers["retry-after"], ready.json()["store"]) == (503, "1", "failing")
            assert client.get("/healthz").status_code == 200
            assert_told(anyio.run(refusal, place.address))
            place.database.start()
            while client.post("/v1/files/watched", content="after").status_code != 200:
                continue
            event = json.loads(next(line for line in lines if line.startswith("data: ")).removeprefix("data: "))
            assert [change["key"] for change in event["changes"]] == ["/watched"]
        assert anyio.run(saved, place.address)


def assert_told(words: str) -> None:
    """What is the matter and what to do, and not where the database is."""
    assert ("the database" in words, "try again" in words, "postgresql:" in words) == (True, True, False), words


async def refusal(address: str) -> str:
    """What a client of MCP is told: by the tool, or by the service before a session begins."""
    try:
        async with mcp.Client(f"{address}/mcp") as client:
            return str((await client.call_tool("memory_create", note("away"))).content)
    except Exception as error:  # noqa: BLE001 - the SDK wraps the service's refusal in its own
        return repr(error)


async def saved(address: str) -> bool:
    async with mcp.Client(f"{address}/mcp") as client:
        return not (await client.call_tool("memory_create", note("back"))).is_error


def note(text: str) -> dict[str, Any]:
    return {**NOTE, "content": {"text": text}}
