"""When servers, connections or PostgreSQL itself go away: what was acknowledged is there, once, and callers go on."""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from store_calls import HERE, delete, get, pages, put

import commonplace
from commonplace.backends.postgres import PostgresStore
from commonplace.entry import Draft
from commonplace.errors import ConfigurationError, Unavailable
from commonplace.filters import Filter
from commonplace.store import Scan, Transaction
from postgres_server import DURABLE, PostgresServer, empty, shared_book, shared_server


class Proxy:
    """Stands between a store and the server, and cuts the connection around a COMMIT when told to."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.cut: str | None = None
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, url: str) -> str:
        return url.replace(str(urlsplit(url).port), str(self.port), 1)

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            is_cut = threading.Event()
            for source, sink, is_client in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._pump, args=(source, sink, is_client, is_cut), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, is_client: bool, is_cut: threading.Event) -> None:
        """Both the statement and the answer to it are the word COMMIT with a NUL behind."""
        try:
            while data := source.recv(65536):
                is_commit = b"COMMIT\0" in data
                if is_client and is_commit and self.cut is not None:
                    how, self.cut = self.cut, None
                    self.cuts += 1
                    if how == "before":
                        break
                    is_cut.set()
                if not is_client and is_commit and is_cut.is_set():
                    break
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


@pytest.fixture
def proxied() -> Iterator[tuple[PostgresStore, Proxy]]:
    proxy = Proxy(shared_server().port)
    store = PostgresStore(proxy.url(shared_book()))
    empty(shared_book())
    yield store, proxy
    store.close()
    proxy.close()


def append(store: PostgresStore, line: str, namespace: tuple[str, ...] = HERE) -> None:
    def work(transaction: Transaction) -> None:
        known = transaction.get("file", "log")
        transaction.put(Draft("file", "log", line if known is None else f"{known.value}\n{line}"))

    store.write(namespace, work)


def lines(store: PostgresStore, namespace: tuple[str, ...] = HERE) -> list[str]:
    found = store.get(namespace, "file", ["log"])[0]
    return [] if found is None else str(found.value).split("\n")


@pytest.mark.promise("postgres-lost-commit")
@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_commit_whose_answer_was_lost_happens_once(proxied: tuple[PostgresStore, Proxy], cut: str) -> None:
    store, proxy = proxied
    for number in range(6):
        proxy.cut = cut if number % 2 else None
        append(store, str(number))
    assert proxy.cuts == 3
    assert lines(store) == [str(number) for number in range(6)]
    assert [change.commit for change in store.changes(HERE)] == list(range(1, 7))
    assert store.verify() == []


@pytest.mark.promise("postgres-lost-commit")
@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_commit_of_any_kind_whose_answer_was_lost_is_told_of_as_if_it_were_not(
    proxied: tuple[PostgresStore, Proxy], cut: str
) -> None:
    store, proxy = proxied
    for value in ("one", "two"):
        put(store, "gone", value)
    head, *states = store.export([HERE])
    delete(store, "gone")
    for number, (call, answer) in enumerate(
        (
            (lambda: store.purge(HERE, kind="file", key="gone"), 2),
            (lambda: store.adopt(head, lambda: states), 2),  # type: ignore[arg-type]
            (lambda: store.system_put("keys", "ada", {"n": 1}, only_new=True), True),
            (lambda: store.system_put("keys", "ada", {"n": 2}, only_new=True), False),
            (lambda: store.system_delete("keys", "ada"), True),
        )
    ):
        proxy.cut = cut
        assert call() == answer, number
        assert proxy.cuts == number + 1
    assert [line.action for line in store.history(HERE, "file", "gone")] == ["created", "updated"]
    assert store.verify() == []


@pytest.mark.promise("postgres-connections-killed")
def test_killed_connections_lose_and_double_nothing() -> None:
    store = PostgresStore(shared_book(), pool_size=6)
    empty(shared_book())
    stop = threading.Event()
    acknowledged: list[str] = []
    failures: list[BaseException] = []

    def write(number: int) -> None:
        for step in range(25):
            try:
                append(store, f"{number}-{step}")
                acknowledged.append(f"{number}-{step}")
            except Unavailable:
                continue
            except (commonplace.CommonplaceError, psycopg.Error) as error:
                failures.append(error)
                raise

    def kill() -> None:
        chance = random.Random(7)
        with psycopg.connect(shared_server().url(), autocommit=True) as connection:
            while not stop.wait(0.02):
                pids = connection.execute(
                    "SELECT pid FROM pg_stat_activity WHERE application_name = 'commonplace'"
                ).fetchall()
                if pids:
                    connection.execute("SELECT pg_terminate_backend(%s)", chance.choice(pids))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    killer = threading.Thread(target=kill)
    killer.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    killer.join()
    assert failures == []
    found = lines(store)
    assert len(found) == len(set(found)), "a write happened twice"
    assert set(acknowledged) <= set(found)
    assert len(acknowledged) > 50
    assert store.verify() == []
    store.close()


WORKER = """
import sys
import commonplace
from commonplace import Unavailable
url, number = sys.argv[1], sys.argv[2]
book = commonplace.open(url, background=False, pooling=None)
space = book.space("user", "shared")
thread = "t-" + number
step = 0
def told(call, what):
    while True:
        try:
            call()
        except Unavailable:
            continue
        print(what, flush=True)
        return
sys.stdout.write("ready\\n"); sys.stdout.flush()
while True:
    line = f"{number}-{step}"
    told(lambda: space.files.append("/log", line), f"line {line}")
    told(lambda: space.records.create(type="n", content={"text": line}, source="s", confidence=0.5), f"record {line}")
    told(lambda: space.threads.add("shared", [{"id": line, "role": "user", "content": line}]), f"message {line}")
    step += 1
"""


@pytest.mark.promise("postgres-many-servers")
def test_four_servers_killed_at_random_lose_and_double_nothing() -> None:
    url = shared_server().create_database() + "?partitions=4"
    with commonplace.open(url, background=False) as book:
        book.space("user", "shared").threads.create(id="shared")
    chance = random.Random(11)
    told: list[str] = []

    def start(number: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-W", "ignore", "-c", WORKER, url, str(number)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def kill(server: subprocess.Popen[str]) -> list[str]:
        """What it had been told was done."""
        server.send_signal(signal.SIGKILL)
        output, _ = server.communicate()
        return [line for line in output.split("\n") if line]

    killed = 0
    servers = [start(number) for number in range(4)]
    for server in servers:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
    with psycopg.connect(shared_server().url(), autocommit=True) as connection:
        deadline = time.monotonic() + 4
        while time.monotonic() < deadline or len(told) < 100:
            # Each turn is a moment of writing: a line of one of the servers has come.
            assert servers[-1].stdout is not None
            told.append(servers[-1].stdout.readline().rstrip("\n"))
            if chance.random() < 0.2:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name = 'commonplace' AND datname = %s ORDER BY random() LIMIT 2",
                    (urlsplit(url).path[1:],),
                )
            if chance.random() < 0.05:  # one of the others dies in the middle of its work, and another takes its place
                place = chance.randrange(3)
                told += kill(servers[place])
                killed += 1
                servers[place] = start(len(servers) + killed)
    for server in servers:
        told += kill(server)
    assert killed >= 1
    with commonplace.open(url, background=False) as book:
        space = book.space("user", "shared")
        appended = space.files.read("/log").split("\n")
        records = [str(record.content["text"]) for record in _records(space)]  # type: ignore[index,call-overload]
        messages = [entry.text for entry in pages(book.store, Scan(Filter(kinds=("message",))), ("user", "shared"))]
        for kind, found in (("line", appended), ("record", records), ("message", messages)):
            acknowledged = [line.partition(" ")[2] for line in told if line.startswith(f"{kind} ")]
            assert len(acknowledged) > 20, kind
            assert len(found) == len(set(found)), f"a {kind} is there twice"
            assert set(acknowledged) <= set(found), f"a {kind} is lost"
        assert book.verify() == []


def _records(space: commonplace.Space) -> list[Any]:
    found: list[Any] = []
    cursor = None
    while True:
        page = space.records.list(limit=100, cursor=cursor)
        found += page.records
        cursor = page.cursor
        if cursor is None:
            return found


@pytest.mark.promise("postgres-restart")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
def test_callers_get_unavailable_while_the_server_is_down_and_go_on_by_themselves(how: signal.Signals) -> None:
    server = PostgresServer(DURABLE)
    try:
        store = PostgresStore(server.create_database() + "?partitions=2", pool_size=4, patience_seconds=0.5)
        stop = threading.Event()
        acknowledged: list[str] = []
        errors: list[BaseException] = []
        was_refused = threading.Event()
        goes_on = threading.Event()

        def write(number: int) -> None:
            step = 0
            while not stop.is_set():
                try:
                    append(store, f"{number}-{step}")
                    acknowledged.append(f"{number}-{step}")
                    if was_refused.is_set():
                        goes_on.set()
                except Unavailable:
                    was_refused.set()
                except (commonplace.CommonplaceError, psycopg.Error) as error:
                    errors.append(error)
                    return
                step += 1

        threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        while len(acknowledged) < 20:
            time.sleep(0.01)
        server.stop(how)
        assert was_refused.wait(60), "nobody was told"
        server.start()
        assert goes_on.wait(60), "nobody went on"
        stop.set()
        for thread in threads:
            thread.join()
        assert errors == []
        found = lines(store)
        assert len(found) == len(set(found))
        assert set(acknowledged) <= set(found)
        assert store.verify() == []
        store.close()
    finally:
        server.remove()


def test_a_statement_that_takes_too_long_is_told_and_changes_nothing() -> None:
    store = PostgresStore(shared_book(), query_seconds=0.3)
    empty(shared_book())
    put(store, "k", "before")
    with psycopg.connect(shared_book().partition("?")[0]) as blocking:
        blocking.execute("SELECT 1 FROM commonplace.namespace FOR UPDATE")
        with pytest.raises(Unavailable, match="longer than the time-out"):
            put(store, "k", "after")
        assert get(store, "k").value == "before"  # type: ignore[union-attr]
        blocking.rollback()
    put(store, "k", "after")
    store.close()


@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        ("/nowhere", ConfigurationError, "create the database"),
        ("/postgres?schema=No", ConfigurationError, "lower-case"),
        ("/postgres?partitions=0", ConfigurationError, "1 to 1024"),
    ],
)
def test_an_address_that_cannot_work_names_the_next_step(query: str, error: type[Exception], message: str) -> None:
    url = shared_server().url().rpartition("/")[0]
    with pytest.raises(error, match=message):
        PostgresStore(url + query)


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with pytest.raises(Unavailable, match="cannot be reached"):
        PostgresStore(f"postgresql://nobody:secret@127.0.0.1:{port}/x")


def test_a_password_is_never_part_of_a_message() -> None:
    with pytest.raises(Unavailable) as refusal:
        PostgresStore("postgresql://nobody:secret@127.0.0.1:1/x")
    assert "secret" not in str(refusal.value)


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = PostgresStore(shared_book())
    store.close()
    store.close()
    for call in (lambda: put(store, "k"), lambda: get(store, "k"), store.stats, lambda: store.backup(tmp_path / "x")):
        with pytest.raises(Unavailable, match="closed"):
            call()


TEN = """
import sys
import commonplace
print("ready", flush=True)
sys.stdin.readline()
with commonplace.open(sys.argv[1], background=False) as book:
    book.space("user", sys.argv[2]).files.write("/hello", sys.argv[2])
"""


@pytest.mark.promise("postgres-migrates-once")
def test_ten_servers_that_start_together_migrate_once() -> None:
    url = shared_server().create_database() + "?partitions=2"
    command = [sys.executable, "-W", "ignore", "-c", TEN, url]
    servers = [
        subprocess.Popen([*command, f"u{number}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for number in range(10)
    ]
    for server in servers:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
    for server in servers:
        assert server.stdin is not None
        server.stdin.write("go\n")
        server.stdin.flush()
    for server in servers:
        server.communicate(timeout=60)
        assert server.returncode == 0
    with commonplace.open(url, background=False) as book:
        assert book.namespaces("user") == [("user", f"u{number}") for number in range(10)]
        assert book.verify() == []
