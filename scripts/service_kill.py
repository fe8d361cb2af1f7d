"""Kill and stop a service under load: nothing acknowledged may be lost, and a stop may not drop a request.

Real `commonplace serve` processes run on one book, with clients that keep their connections and write as fast as they
get answers: records, messages, and lines appended to files. The process gets SIGKILL and SIGTERM in turns. After each,
the book is opened and must contain everything that was acknowledged. After SIGTERM, every request that was sent on an
open connection must also have its complete answer, and the process must exit with 0 in time.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from serving import NAMESPACE, START_SECONDS, STOP_SECONDS, Service

import commonplace

CLIENTS = 12


@dataclass
class Client:
    """One persistent connection, and what was acknowledged on it, over all rounds."""

    number: int
    records: dict[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    sent: int = 0
    dropped: list[str] = field(default_factory=list)

    @property
    def path(self) -> str:
        return f"/load/{self.number}"

    @property
    def thread(self) -> str:
        return f"load-{self.number}"

    def write_until_the_end(self, address: str) -> None:
        """Write until the service accepts no more connections, or one breaks."""
        connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=STOP_SECONDS)
        while True:
            is_fresh = connection.sock is None
            try:
                connection.connect() if is_fresh else None
            except OSError:
                return
            try:
                self._write(connection)
            except (OSError, http.client.HTTPException) as error:
                # A reset before the first byte of an answer on a new connection: it was in the backlog of a closing
                # socket and was never accepted.
                if not (is_fresh and isinstance(error, ConnectionResetError | http.client.RemoteDisconnected)):
                    self.dropped.append(f"{type(error).__name__}: {error}")
                return

    def _write(self, connection: http.client.HTTPConnection) -> None:
        self.sent += 1
        word = f"write {self.number}-{self.sent}"
        if self.sent % 3 == 0:
            record = {"type": "note", "content": {"text": word}, "source": "load", "confidence": 0.5}
            answer = _call(connection, "POST", "/v1/records", record)
            self.records[str(answer["id"])] = word
        elif self.sent % 3 == 1:
            _call(connection, "POST", f"/v1/files{self.path}", word)
            self.lines.append(word)
        else:
            message = {"role": "user", "content": word}
            _call(connection, "POST", f"/v1/messages?thread={self.thread}", {"messages": [message]})
            self.messages.append(word)


def _call(
    connection: http.client.HTTPConnection, method: str, path: str, body: Mapping[str, object] | str
) -> dict[str, object]:
    """A complete write: the request and its whole answer."""
    is_text = isinstance(body, str)
    content = body if is_text else json.dumps(body)
    kind = "text/plain; charset=utf-8" if is_text else "application/json"
    connection.request(method, path, str(content).encode(), {"Content-Type": kind})
    answer = connection.getresponse()
    text = answer.read()
    if answer.status not in (200, 201):
        raise http.client.HTTPException(f"{answer.status} {text[:200]!r}")
    parsed: dict[str, object] = json.loads(text)
    return parsed


@dataclass
class Tally:
    kills: int = 0
    stops: int = 0
    slowest_stop_seconds: float = 0.0
    faults: list[str] = field(default_factory=list)


def run_round(book: Path, clients: list[Client], seconds: float, number: signal.Signals, tally: Tally) -> None:
    service = Service(str(book))
    connection = http.client.HTTPConnection(urlsplit(service.address).netloc, timeout=START_SECONDS)
    for client in clients:
        if not client.sent:
            _call(connection, "POST", "/v1/threads", {"id": client.thread})
    connection.close()
    threads = [threading.Thread(target=client.write_until_the_end, args=(service.address,)) for client in clients]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    began = time.monotonic()
    code = service.end(number)
    took = time.monotonic() - began
    for thread in threads:
        thread.join()
    dropped = [fault for client in clients for fault in client.dropped]
    for client in clients:
        client.dropped.clear()
    if number == signal.SIGTERM:
        tally.stops += 1
        tally.slowest_stop_seconds = max(tally.slowest_stop_seconds, took)
        tally.faults += [f"a stop dropped a request: {fault}" for fault in dropped]
        if code != 0:
            tally.faults.append(f"a stop ended with {code} after {took:.1f} s")
    else:
        tally.kills += 1


def check(book: Path, clients: list[Client], tally: Tally) -> None:
    """Check that everything acknowledged is stored; other writes may be stored too."""
    with commonplace.open(book, background=False) as opened:
        space = opened.space(*NAMESPACE)
        for client in clients:
            for id, word in client.records.items():
                if space.records.get(id).content != {"text": word}:
                    tally.faults.append(f"record {id} is not what was acknowledged")
            if client.lines:
                kept = space.files.read(client.path).splitlines()
                tally.faults += _missing(client.lines, kept, client.path)
            if client.messages:
                kept = [entry.text for entry in _messages(space, client.thread)]
                tally.faults += _missing(client.messages, kept, client.thread)
        tally.faults += opened.verify()


def _messages(space: commonplace.Space, thread: str) -> list[commonplace.Entry]:
    found: list[commonplace.Entry] = []
    cursor = None
    while True:
        page = space.threads.messages(thread, limit=1_000, cursor=cursor)
        found += [message.entry for message in page.messages if message.entry is not None]
        cursor = page.cursor
        if cursor is None:
            return found


def _missing(acknowledged: list[str], kept: list[str], place: str) -> list[str]:
    """Check that each is stored once, in the order of acknowledgement."""
    known = set(acknowledged)
    found = [word for word in kept if word in known]
    return [] if found == acknowledged else [f"{place}: {len(known - set(found))} lost, or not in their order"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("--short", action="store_true", help="at most a minute")
    parser.add_argument("--seconds", type=float, help="stop after so long")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    deadline = time.monotonic() + (arguments.seconds or (40 if arguments.short else 240))
    tally = Tally()
    clients = [Client(number) for number in range(CLIENTS)]
    with tempfile.TemporaryDirectory() as folder:
        book = Path(folder) / "book.db"
        while (time.monotonic() < deadline or tally.stops < 1) and not tally.faults:
            number = signal.SIGKILL if tally.kills <= tally.stops else signal.SIGTERM
            run_round(book, clients, chance.uniform(0.3, 1.5), number, tally)
            check(book, clients, tally)
    kept = sum(len(client.records) + len(client.lines) + len(client.messages) for client in clients)
    print(
        f"{tally.kills} kills and {tally.stops} stops under load, {kept} acknowledged writes checked, "
        f"{len(tally.faults)} faults; the slowest stop took {tally.slowest_stop_seconds:.1f} s"
    )
    for fault in tally.faults:
        print(fault)
    return 1 if tally.faults or not kept else 0


if __name__ == "__main__":
    sys.exit(main())
