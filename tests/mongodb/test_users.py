"""A server with users: a book needs readWrite on its database, and what is refused says why."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pymongo
import pytest
from store_calls import HERE, found_keys, get, put

from commonplace.backends.mongodb import MongoStore
from commonplace.errors import ConfigurationError, Unavailable
from doubles import OpenBook
from mongodb_server import ReplicaSet, need_server

BOOK = "book"
READ_WRITE = ["find", "insert", "update", "remove", "createCollection", "createIndex", "listCollections", "dbStats"]
Login = Callable[[str], str]


@pytest.fixture(scope="module")
def login() -> Iterator[Login]:
    """The address of the book for each user. The password of each is its name."""
    need_server()
    guarded = ReplicaSet(has_users=True)
    with guarded.members[0].client() as client:
        # Whoever connects from the same machine may create the first user.
        client.admin.command("createUser", "admin", pwd="admin", roles=["root"])
    with pymongo.MongoClient[dict[str, Any]](guarded.url("admin").replace("//", "//admin:admin@")) as client:
        whole = {"db": BOOK, "collection": ""}
        client[BOOK].command("createRole", "blind", privileges=[{"resource": whole, "actions": READ_WRITE}], roles=[])
        for name, roles in (("app", ["readWrite"]), ("reader", ["read"]), ("blind", ["blind"]), ("stranger", [])):
            client[BOOK].command("createUser", name, pwd=name, roles=roles)
    yield lambda user: guarded.url(BOOK).replace("//", f"//{user}:{user}@")
    guarded.remove()


@pytest.mark.promise("mongodb-rights")
@pytest.mark.parametrize("user", ["app", "blind"])
def test_a_user_with_read_write_on_one_database_can_do_everything(login: Login, open_book: OpenBook, user: str) -> None:
    book = open_book(login(user))
    space = book.space("user", user)
    waker = book.store.waker()
    assert not waker.wait(0.1)
    space.files.write("/a", "a pineapple")
    assert waker.wait(5)
    assert not waker.wait(0.1)
    assert waker._may_watch is (user == "app")  # type: ignore[attr-defined]
    waker.close()
    book.indexer.run()
    space.files.move("/a", "/b")
    assert [hit.key for hit in space.search("pineapple")] == ["/b"]
    assert book.verify() == []
    assert book.stats().namespaces >= 1
    lines: list[Any] = []
    book.export(lines.append)  # type: ignore[arg-type]
    assert lines
    space.purge()
    assert list(space.search("pineapple")) == []


KILLED = """
import sys, time
from commonplace.backends.mongodb import MongoStore
from commonplace.entry import Draft

def work(transaction):
    transaction.put(Draft("file", "b", "lost"))
    transaction.get("file", "b")
    print("is writing", flush=True)
    time.sleep(600)

MongoStore(sys.argv[1]).write(tuple(sys.argv[2].split("/")), work)
"""


@pytest.mark.promise("mongodb-killed-program")
def test_a_program_that_is_killed_during_a_write_does_not_keep_its_namespace_locked(login: Login, clock: Any) -> None:
    store = MongoStore(login("app"), clock=clock)  # it waits for 20 seconds; the server alone would take over 60
    hasty = MongoStore(login("app"), clock=clock, patience_seconds=3)
    put(store, "a", "apple")
    command = [sys.executable, "-c", KILLED, login("app"), "/".join(HERE)]
    program = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == b"is writing\n"
        with pytest.raises(Unavailable, match="busy"):  # as long as it runs, its transaction is left alone
            put(hasty, "a", "cherry")
    finally:
        program.kill()
        program.wait()
    put(store, "a", "pear")
    hasty.close()
    assert get(store, "b") is None
    assert store.verify() == []
    store.close()


def test_a_user_who_may_only_read_reads_and_is_told_why_it_cannot_write(login: Login, clock: Any) -> None:
    store = MongoStore(login("app"), clock=clock)
    put(store, "a", "pear")
    reader = MongoStore(login("reader"), clock=clock)
    assert get(reader, "a").value == "pear"  # type: ignore[union-attr]
    assert found_keys(reader, "pear") == ["a"]
    with pytest.raises(ConfigurationError, match=r"Unauthorized.*readWrite"):
        put(reader, "b", "pear")
    assert [entry.key for entry in store.read(HERE, lambda one: one.get_all("file", ["a", "b"])) if entry] == ["a"]
    for one in (store, reader):
        one.close()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("app:app@", "app:hunter2@"), "AuthenticationFailed.*password.*authSource"),
        (("app:app@", "nobody:hunter2@"), "AuthenticationFailed.*password.*authSource"),
        (("app:app@", "stranger:stranger@"), "Unauthorized.*readWrite"),
        (("app:app@", ""), "Unauthorized.*readWrite"),
        (("/book?", "/other?authSource=book&"), "Unauthorized.*readWrite"),
    ],
    ids=["wrong password", "unknown user", "no role", "no user", "another database"],
)
def test_a_user_who_is_refused_is_told_what_to_change(login: Login, change: tuple[str, str], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason) as caught:
        MongoStore(login("app").replace(*change))
    assert "hunter2" not in str(caught.value)
