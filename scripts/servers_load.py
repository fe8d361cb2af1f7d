"""Writers through REST and Mastra's routes of several services, and the answers that they got.

A writer always continues: it uses any service, and another one if that is gone or answers 503. A call with its own key
or id is sent again until it is answered, so it must take effect once. A call without one is not repeated after a lost
answer, so it may take effect once or not at all.
"""

from __future__ import annotations

import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from serving import Fleet

CALL_SECONDS = 30
PATIENCE_SECONDS = 120
"""How long a call is repeated; no outage lasts that long."""

PAUSE_SECONDS = 0.1
THREAD, FILE, UNIFIED_FILE, CLAUDE_FILE = "load", "load/lines", "load/unified", "load.md"
AGENT, RESOURCE = "load", "everybody"


class Writer(ABC):
    """One client of one interface. Its words are unique: `name` and number, `x`, and a step."""

    name: str
    order: int = 0
    """1 if the words of a writer are in the order in which it wrote them, -1 if the last comes first."""

    def __init__(self, number: int, fleet: Fleet) -> None:
        self._number = number
        self._fleet = fleet
        self._step = 0
        self.acknowledged: list[str] = []
        self.uncertain: list[str] = []
        self.faults: list[str] = []

    def next_word(self) -> str:
        self._step += 1
        return f"{self.name}{self._number}x{self._step}"

    def has_written(self, least: int) -> bool:
        """Whether it has succeeded that often, or never will."""
        return self._step > least or bool(self.faults)

    @abstractmethod
    def write_until(self, stop: threading.Event) -> None:
        """Write until stopped; the current call is then completed."""

    @abstractmethod
    def words(self, reader: httpx.Client) -> Iterator[str]:
        """Every stored word of all writers of this interface, with duplicates."""

    @abstractmethod
    def finds(self, reader: httpx.Client, word: str) -> bool:
        """Whether this interface's own search finds a word."""


class HttpWriter(Writer):
    """Sends a call again, with the same key or id, until it is answered."""

    def write_until(self, stop: threading.Event) -> None:
        with httpx.Client(timeout=CALL_SECONDS) as client:
            while not stop.is_set() and not self.faults:
                word = self.next_word()
                if self._sent(client, word):
                    self.note(word)

    def note(self, word: str) -> None:
        self.acknowledged.append(word)

    def _sent(self, client: httpx.Client, word: str) -> bool:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            client.base_url = httpx.URL(self._fleet.address())
            try:
                answer = self.send(client, word, {"Idempotency-Key": word})
            except httpx.TransportError:
                time.sleep(PAUSE_SECONDS)
                continue
            if answer.status_code in (200, 201):
                return True
            if answer.status_code != 503 or "retry-after" not in answer.headers:
                self.faults.append(f"{word}: {answer.status_code} {answer.text[:200]}")
                return False
            time.sleep(PAUSE_SECONDS)
        self.faults.append(f"{word} was not answered within {PATIENCE_SECONDS} s")
        return False

    @abstractmethod
    def send(self, client: httpx.Client, word: str, once: dict[str, str]) -> httpx.Response: ...


class Appends(HttpWriter):
    """Lines of one file that all append to."""

    name, order = "line", 1

    def send(self, client: httpx.Client, word: str, once: dict[str, str]) -> httpx.Response:
        return client.post(f"/v1/files/{FILE}", content=word, headers=once)

    def words(self, reader: httpx.Client) -> Iterator[str]:
        yield from read(reader, f"/v1/files/{FILE}").text.splitlines()

    def finds(self, reader: httpx.Client, word: str) -> bool:
        return word in found(reader, word, "file")


class Records(HttpWriter):
    name = "record"

    def send(self, client: httpx.Client, word: str, once: dict[str, str]) -> httpx.Response:
        record = {"type": "note", "content": {"text": word}, "source": "load://rest", "confidence": 0.5}
        return client.post("/v1/records", json=record, headers=once)

    def words(self, reader: httpx.Client) -> Iterator[str]:
        for record in pages(reader, "/v1/records?type=note&limit=1000", "records"):
            if record["source"] == "load://rest":
                yield record["content"]["text"]

    def finds(self, reader: httpx.Client, word: str) -> bool:
        return word in found(reader, word, "record")


class Messages(HttpWriter):
    """Messages of one thread that all write to, each with its own id."""

    name, order = "message", 1

    def send(self, client: httpx.Client, word: str, once: dict[str, str]) -> httpx.Response:
        message = {"id": word, "role": "user", "content": word}
        return client.post(f"/v1/messages?thread={THREAD}", json={"messages": [message]})

    def words(self, reader: httpx.Client) -> Iterator[str]:
        for message in pages(reader, f"/v1/messages?thread={THREAD}&limit=1000", "messages"):
            if message["content"].startswith(self.name):
                yield message["content"]

    def finds(self, reader: httpx.Client, word: str) -> bool:
        return word in found(reader, word, "message")


class Working(HttpWriter):
    """One document that all change, each its own field, which must contain the last acknowledged step."""

    name = "working"

    def note(self, word: str) -> None:
        self.acknowledged = [word]

    def send(self, client: httpx.Client, word: str, once: dict[str, str]) -> httpx.Response:
        return client.put("/v1/working-memory", json={"content": self.member(word)}, headers=once)

    def member(self, word: str) -> dict[str, str]:
        return {word.partition("x")[0]: word}

    def words(self, reader: httpx.Client) -> Iterator[str]:
        kept = read(reader, "/v1/working-memory").json()["working_memory"]
        yield from kept["content"].values()

    def finds(self, reader: httpx.Client, word: str) -> bool:
        """It is not searched, because it is part of the context that a model gets."""
        answer = reader.post("/v1/context", json={"thread": THREAD})
        return word in answer.raise_for_status().json()["system"]


class MastraMessages(HttpWriter):
    """Messages of an agent's thread, as `@mastra/client-js` sends them."""

    name = "mastra"

    def send(self, client: httpx.Client, word: str, once: dict[str, str]) -> httpx.Response:
        message = {"id": word, "threadId": THREAD, "resourceId": RESOURCE, "role": "user", "content": word}
        return client.post(f"/api/memory/save-messages?agentId={AGENT}", json={"messages": [message]})

    def words(self, reader: httpx.Client) -> Iterator[str]:
        page = 0
        while True:
            address = f"/api/memory/threads/{THREAD}/messages?agentId={AGENT}&perPage=1000&page={page}"
            answer = read(reader, address).json()
            yield from (message["id"] for message in answer["messages"])
            if not answer["hasMore"]:
                return
            page += 1

    def finds(self, reader: httpx.Client, word: str) -> bool:
        query = f"agentId={AGENT}&resourceId={RESOURCE}&searchQuery={word}"
        return word in str(read(reader, f"/api/memory/search?{query}").json()["results"])


class MastraWorking(Working):
    """The same for an agent's thread, as `@mastra/client-js` sends it: a JSON object is merged."""

    name = "mind"

    def send(self, client: httpx.Client, word: str, once: dict[str, str]) -> httpx.Response:
        update = {"workingMemory": json.dumps(self.member(word)), "resourceId": RESOURCE}
        return client.post(self._address, json=update)

    @property
    def _address(self) -> str:
        return f"/api/memory/threads/{THREAD}/working-memory?agentId={AGENT}&resourceId={RESOURCE}"

    def words(self, reader: httpx.Client) -> Iterator[str]:
        yield from json.loads(read(reader, self._address).json()["workingMemory"]).values()

    def finds(self, reader: httpx.Client, word: str) -> bool:
        """It is read and not searched."""
        return word in self.words(reader)


HTTP_INTERFACES: tuple[type[HttpWriter], ...] = (Appends, Records, Messages, Working, MastraMessages, MastraWorking)


def prepare(fleet: Fleet) -> None:
    """Create what must exist before the writers start: the threads, and the file to insert into."""
    with reading(fleet) as client:
        client.post("/v1/threads", json={"id": THREAD}).raise_for_status()
        thread = {"threadId": THREAD, "resourceId": RESOURCE, "title": "load"}
        client.post(f"/api/memory/threads?agentId={AGENT}", json=thread).raise_for_status()
        client.put(f"/v1/files/{CLAUDE_FILE}", content="").raise_for_status()


# Reading back


@contextmanager
def reading(fleet: Fleet) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=fleet.address(), timeout=CALL_SECONDS) as client:
        yield client


def read(reader: httpx.Client, address: str) -> httpx.Response:
    return reader.get(address).raise_for_status()


def pages(reader: httpx.Client, address: str, name: str) -> Iterator[Any]:
    """The items of a listing, page by page."""
    following: str | None = address
    while following is not None:
        page = read(reader, following).json()
        yield from page[name]
        following = page["next"]


def found(reader: httpx.Client, word: str, kind: str) -> str:
    """The texts of a search's hits."""
    return read(reader, f"/v1/search?q={word}&kind={kind}&limit=20").text
