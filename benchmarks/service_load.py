"""The load generator of the service benchmark, a separate process: several connections with one request at a time each.

`python service_load.py HOST PORT CONNECTIONS SECONDS < requests.json` prints what it saw as JSON. The requests are sent
in turn, from the first again after the last; `@@@@@@@@` in a body is replaced by a number that is new each time.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from typing import cast

WARM_UP_SECONDS = 1.0
LAST_ANSWER_SECONDS = 15.0
NUMBER = b"@@@@@@@@"


@dataclass
class Load:
    """What to send, until when, and the results."""

    requests: list[bytes]
    begins_at: float
    ends_at: float
    seconds: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    numbers: count[int] = field(default_factory=count)

    def next(self) -> bytes:
        number = next(self.numbers)
        return self.requests[number % len(self.requests)].replace(NUMBER, b"%08d" % number)

    def note(self, began: float, error: str | None) -> None:
        now = time.perf_counter()
        if now < self.begins_at or began >= self.ends_at:
            return
        if error is None:
            self.seconds.append(now - began)
        else:
            self.errors[error] += 1


class Connection(asyncio.Protocol):
    """Sends the next request when an answer is complete."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._answer = bytearray()
        self._began = 0.0
        self.is_over = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass of it
        self._send()

    def _send(self) -> None:
        self._answer.clear()
        self._began = time.perf_counter()
        if self._began >= self._load.ends_at:
            self._began = 0.0
            self._transport.close()
        else:
            self._transport.write(self._load.next())

    def data_received(self, data: bytes) -> None:
        self._answer += data
        if _is_whole(self._answer):
            status = int(self._answer[9:12])
            self._load.note(self._began, None if 200 <= status < 300 else f"status {status}")
            self._send()

    def connection_lost(self, error: Exception | None) -> None:
        if self._began:
            self._load.note(self._began, f"the connection broke: {error or 'closed'}")
        if not self.is_over.done():
            self.is_over.set_result(None)


def _is_whole(answer: bytearray) -> bool:
    head, found, body = answer.partition(b"\r\n\r\n")
    if not found:
        return False
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(body) >= int(line.partition(b":")[2])
    return body.endswith(b"0\r\n\r\n")


async def _keep_connected(load: Load, host: str, port: int) -> None:
    loop = asyncio.get_running_loop()
    while time.perf_counter() < load.ends_at:
        try:
            _, connection = await loop.create_connection(lambda: Connection(load), host, port)
        except OSError as error:
            load.note(time.perf_counter(), f"no connection: {error}")
            await asyncio.sleep(0.05)
            continue
        await connection.is_over


async def run(host: str, port: int, connections: int, seconds: float, requests: list[bytes]) -> Load:
    begins_at = time.perf_counter() + WARM_UP_SECONDS
    load = Load(requests, begins_at, begins_at + seconds)
    tasks = [asyncio.create_task(_keep_connected(load, host, port)) for _ in range(connections)]
    _, late = await asyncio.wait(tasks, timeout=WARM_UP_SECONDS + seconds + LAST_ANSWER_SECONDS)
    for task in late:
        load.errors["no answer in time"] += 1
        task.cancel()
    return load


def raw(host: str, port: int, method: str, path: str, body: object) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


def main() -> None:
    host, port, connections, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    requests = [raw(host, port, *request) for request in json.load(sys.stdin)]
    try:
        from uvloop import run as run_loop
    except ImportError:
        from asyncio import run as run_loop  # type: ignore[assignment]
    load = run_loop(run(host, port, connections, seconds, requests))
    print(json.dumps({"seconds": load.seconds, "errors": load.errors}))


if __name__ == "__main__":
    main()
