"""A memory for the tests of the page: a book with a real service on it, and three weeks of entries to look at."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import commonplace
from commonplace.checks import moment
from commonplace.server.http.api_keys import Key, Keys
from commonplace.server.http.auth import Gate, Principal
from commonplace.server.http.service import Service
from commonplace.settings import Settings
from doubles import Clock, WordEmbedder

sys.path.append(str(Path(__file__).parent.parent / "http"))
from real_server import Server, start_server

NAMESPACE = ("user", "default")
DAY = 86_400
PLAN = "# Harbour plan\n\nThe **crane** on pier 4 is repaired in June.\n\n- order the bolts\n- call Ada\n"
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "city": {"type": "string"}, "likes": {"type": "array"}},
}


@dataclass
class Memory:
    """A book that is served: the library on one side, the page on the other."""

    book: commonplace.Book
    server: Server

    @property
    def address(self) -> str:
        return self.server.address

    @property
    def space(self) -> commonplace.Space:
        """The memory that the page shows to a caller without a key."""
        return self.book.space(*NAMESPACE, actor="a test")

    def make_key(self, name: str, namespace: str = "/".join(NAMESPACE), **options: Any) -> str:
        """A key of the service, which needs one from then on; gives its text."""
        actions = frozenset(options.pop("actions", ("read", "write", "delete")))
        key = Key(name, tuple(namespace.split("/")), actions=actions, **options)
        return self.server.service.access.keys.create(key)[1]

    def close(self) -> None:
        self.server.stop()
        self.book.close()


def serve(url: str) -> Memory:
    """A book and a service on it, in threads of this process."""
    book = commonplace.open(url, embedder=WordEmbedder(), background=False, durability="normal")
    local = Principal("local", NAMESPACE, "all")
    return Memory(book, start_server(Service(book, Gate(Keys(book.store), local), Settings())))


@dataclass(frozen=True)
class Furnished:
    """What a furnished memory has, by the names that addresses need."""

    record: str
    thread: str
    commit: int
    week_ago: str
    """After `/notes/plan.md` said "in May", and before the record about tea was deleted."""


def furnish(url: str) -> Furnished:
    """Fill a book with files, records and a thread, over three weeks, with edits and a deletion."""
    clock = Clock(int((time.time() - 21 * DAY) * 1e6))
    with commonplace.open(url, embedder=WordEmbedder(), clock=clock, background=False, durability="normal") as book:
        space = book.space(*NAMESPACE, actor="ada")
        space.files.write("/notes/plan.md", PLAN.replace("June", "May"))
        space.files.write("/notes/2026/january/ice.md", "The harbour froze for a day.")
        space.files.write("/letters/to ada.md", "Dear Ada,\n\nthe ships are late.\n")
        clock.advance(5 * DAY)
        tea = space.records.create(type="preference", content="Ada drinks green tea", source="chat", confidence=0.7)
        made = [
            space.records.create(
                type="fact", content=f"Ship number {number} carries grain", source="log", confidence=0.9, tags=["ship"]
            )
            for number in range(5)
        ]
        clock.advance(5 * DAY)
        thread = space.threads.create("About the harbour", resource="ada").id
        space.threads.add(thread, CONVERSATION, resource="ada")
        space.threads.working.write({"name": "Ada", "city": "Hamburg"}, resource="ada", schema=SCHEMA)
        clock.advance(4 * DAY)
        week_ago = moment(clock.now).isoformat()
        clock.advance(5 * DAY)
        space.records.delete(tea.id)
        commit = book.space(*NAMESPACE, actor="grace").files.edit("/notes/plan.md", lambda _: PLAN)
        assert commit.revision == 2
        book.space("user", "grace", actor="grace").files.write("/hello.md", "A memory of another person.")
        return Furnished(made[0].id, thread, space.stats().commit, week_ago)


CONVERSATION: list[dict[str, object]] = [
    {"role": "user", "content": "When does the crane work again?"},
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "Let me look."},
            {"type": "tool_use", "id": "call_1", "name": "search", "input": {"query": "crane"}},
        ],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "repaired in June"}]},
    {"role": "assistant", "content": "In June, says the plan."},
]
