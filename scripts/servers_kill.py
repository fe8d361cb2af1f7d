"""Kill servers and database connections under load; nothing may be lost or duplicated through any interface.

Four real `commonplace serve` processes on one real PostgreSQL, written to at once through REST, MCP and Mastra's
routes, into the same files, threads and documents. Meanwhile servers get SIGKILL and are replaced, and the database
closes connections. At the end everything that was acknowledged must exist once, what was not acknowledged at most once,
and the search of each interface must find it.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psycopg
from servers_load import HTTP_INTERFACES, Writer, prepare, reading
from servers_mcp import MCP_INTERFACES
from serving import NAMESPACE, Fleet

import commonplace

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from postgres_server import DURABLE, PostgresServer  # type: ignore[import-not-found]

INTERFACES: tuple[type[Writer], ...] = (*HTTP_INTERFACES, *MCP_INTERFACES)
SERVERS = 4
WRITERS = 2
"""How many writers each interface has."""

SEARCHED = 5
"""How many words of each writer are searched for at the end, including the last one."""

LONGEST_SECONDS = 600


@dataclass(frozen=True)
class Plan:
    """How long servers are killed, and on a busy machine until every writer has succeeded `least` times."""

    seconds: float
    least: int = 5
    servers: int = SERVERS
    writers: int = WRITERS
    seconds_between_kills: float = 4.0
    also: Callable[[], None] | None = None
    """Other trouble, made after each kill of a server."""


@dataclass
class Tally:
    kills: int = 0
    ended_connections: int = 0
    acknowledged: Counter[str] = field(default_factory=Counter)
    uncertain: int = 0
    searched: int = 0
    faults: list[str] = field(default_factory=list)


class Trouble:
    """Kills servers, and closes a few connections of the database at a time, until its time is over."""

    def __init__(self, fleet: Fleet, url: str, chance: random.Random) -> None:
        self._fleet = fleet
        self._url = url
        self._chance = chance
        self.ended = 0

    def make(self, plan: Plan, is_enough: Callable[[], bool]) -> None:
        began = time.monotonic()
        next_kill = began + 1
        server, database = self._url.rpartition("/")[0], urlsplit(self._url).path[1:]
        with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
            while time.monotonic() < began + plan.seconds or not (self._fleet.kills and is_enough()):
                if time.monotonic() > began + LONGEST_SECONDS:
                    return
                time.sleep(self._chance.uniform(0.05, 0.4))
                self.ended += connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
                    " ORDER BY random() LIMIT %s",
                    (database, self._chance.randint(1, 3)),
                ).rowcount
                if time.monotonic() > next_kill:
                    self._fleet.kill_one()
                    if plan.also is not None:
                        plan.also()
                    next_kill = time.monotonic() + self._chance.uniform(0.5, 1.5) * plan.seconds_between_kills


def run(url: str, plan: Plan, *, seed: int = 1, environment: Mapping[str, str] | None = None) -> Tally:
    """Write to the database at an address while servers are killed, then check everything through every interface."""
    tally = Tally()
    with commonplace.open(url, background=False):
        pass  # the schema is created before connections are closed
    with Fleet(url, plan.servers, random.Random(seed), environment) as fleet:
        prepare(fleet)
        writers = [interface(number, fleet) for interface in INTERFACES for number in range(plan.writers)]
        trouble = Trouble(fleet, url.partition("?")[0], random.Random(seed))
        _write_during(trouble, plan, writers)
        fleet.wait_until_whole()
        tally.kills, tally.ended_connections = fleet.kills, trouble.ended
        with reading(fleet) as reader:
            for interface in INTERFACES:
                check(reader, [writer for writer in writers if type(writer) is interface], tally)
        tally.faults += [f"a server ended with {code}" for code in fleet.stop() if code != 0]
    with commonplace.open(url, background=False) as book:
        tally.faults += book.verify()
        _check_working(book, writers, tally)
    return tally


def _write_during(trouble: Trouble, plan: Plan, writers: list[Writer]) -> None:
    stop = threading.Event()
    threads = [threading.Thread(target=writer.write_until, args=(stop,)) for writer in writers]
    for thread in threads:
        thread.start()
    try:
        trouble.make(plan, lambda: all(writer.has_written(plan.least) for writer in writers))
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def check(reader: httpx.Client, writers: list[Writer], tally: Tally) -> None:
    """Check all words of an interface: acknowledged ones once and in order, others of its writers at most once, no
    others.
    """
    interface = writers[0]
    words = [*interface.words(reader)]
    counted = Counter(words)
    acknowledged = {word for writer in writers for word in writer.acknowledged}
    uncertain = {word for writer in writers for word in writer.uncertain}
    tally.acknowledged[interface.name] += len(acknowledged)
    tally.uncertain += len(uncertain)
    tally.faults += [f"{interface.name}: {fault}" for writer in writers for fault in writer.faults]
    tally.faults += [f"{interface.name}: {word} is lost" for word in sorted(acknowledged - counted.keys())]
    tally.faults += [f"{interface.name}: {word} is there {count} times" for word, count in counted.items() if count > 1]
    tally.faults += [f"{interface.name}: nobody wrote {word!r}" for word in counted.keys() - acknowledged - uncertain]
    for writer in writers:
        own = set(writer.acknowledged)
        kept = [word for word in words if word in own]
        if interface.order and kept[:: interface.order] != writer.acknowledged:
            tally.faults.append(f"{interface.name}: what one writer wrote is not in its order")
    if not acknowledged:
        tally.faults.append(f"{interface.name}: nothing was acknowledged")
    for writer in writers:
        for word in _some(writer.acknowledged):
            tally.searched += 1
            if not writer.finds(reader, word):
                tally.faults.append(f"{interface.name}: the search does not find {word}")


def _some(words: list[str]) -> list[str]:
    return [*random.sample(words[:-1], min(SEARCHED - 1, len(words[:-1]))), *words[-1:]]


def _check_working(book: commonplace.Book, writers: list[Writer], tally: Tally) -> None:
    """A change of the shared document that was sent again after a lost answer must be only one revision."""
    revisions = book.space(*NAMESPACE).threads.working.history()
    sent = sum(
        int(word.partition("x")[2]) for writer in writers if writer.name == "working" for word in writer.acknowledged
    )
    if len(revisions) != sent:
        tally.faults.append(f"working: {sent} changes were acknowledged, and there are {len(revisions)} revisions")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("--short", action="store_true", help="about a minute")
    parser.add_argument("--seconds", type=float, help="how long servers are killed")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    server = PostgresServer({**DURABLE, "max_connections": "300"})
    try:
        url = server.create_database() + "?partitions=4"
        plan = Plan(arguments.seconds or (30 if arguments.short else 240))
        tally = run(url, plan, seed=arguments.seed)
    finally:
        server.remove()
    counts = ", ".join(f"{count} {name}" for name, count in tally.acknowledged.items())
    print(
        f"{tally.kills} kills of {SERVERS} servers, {tally.ended_connections} connections ended, "
        f"{tally.acknowledged.total()} acknowledged writes checked ({counts}), {tally.uncertain} without an answer, "
        f"{tally.searched} searched for, {len(tally.faults)} faults"
    )
    for fault in tally.faults[:50]:
        print(fault)
    return 1 if tally.faults or not tally.kills else 0


if __name__ == "__main__":
    sys.exit(main())
