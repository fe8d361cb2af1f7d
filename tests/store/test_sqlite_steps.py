"""A book of an older schema is brought to the present one with everything in it, wherever that is cut off.

`book_schema_N.db.gz` is a book that the program of that schema wrote with `fill` as it stands here. Before a new step
is added, make the one of the present schema: run `fill` on a new book, close it, `gzip -9n` it.
`scripts/upgrade_test.py` does the same under load, with the former programs themselves.
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import apsw
import pytest

import commonplace
from commonplace.backends.sqlite import SQLiteStore
from commonplace.backends.sqlite import store as sqlite_store
from commonplace.backends.sqlite.migrate import migrations
from commonplace.entry import Draft
from commonplace.errors import Conflict
from doubles import IS_LONG

HERE = Path(__file__).parent
FORMER = sorted(HERE.glob("book_schema_*.db.gz"))
KILLED = 9
STRIDE = 1 if IS_LONG else 7
"""An upgrade is killed after each so many statements; `make property-test` does not leave one out."""


def fill(book: commonplace.Book) -> None:
    for user in ("ana", "bob"):
        space = book.space("user", user, actor="tester")
        space.files.write("/notes/deploys", f"{user} deploys on Tuesdays")
        space.files.append("/notes/deploys", "not in the holidays ✓")
        space.files.write("/notes/gone", "rollback checklist")
        space.files.delete("/notes/gone")
        content = {"text": f"{user} drinks green tea"}
        space.records.create(type="note", content=content, source="s", confidence=0.5, tags=["tea"])
        space.threads.create(title="talk")


@pytest.fixture(params=FORMER, ids=lambda path: path.name.partition(".")[0])
def former(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "book.db"
    path.write_bytes(gzip.decompress(request.param.read_bytes()))
    return path


def assert_whole(path: Path) -> None:
    with commonplace.open(path, background=False) as book:
        assert book.verify() == []
        assert book.stats().schema == migrations()[-1][0]
        for user in ("ana", "bob"):
            space = book.space("user", user)
            assert space.files.read("/notes/deploys") == f"{user} deploys on Tuesdays\nnot in the holidays ✓"
            assert [state.revision for state in space.history("file", "/notes/deploys")] == [1, 2]
            space.restore("file", "/notes/gone", 1)
            assert space.files.read("/notes/gone") == "rollback checklist"
            (record,) = space.records.list().records
            assert record.content == {"text": f"{user} drinks green tea"}
            assert [thread.title for thread in space.threads.list().threads] == ["talk"]
            assert space.search("rollback checklist").hits[0].key == "/notes/gone"


def test_every_older_schema_is_tried() -> None:
    kept = [path.name for path in FORMER]
    assert set(kept) >= {f"book_schema_{number}.db.gz" for number, _ in migrations()[:-1]}, "see this file's docstring"


@pytest.mark.promise("engine-upgrade")
def test_a_book_of_an_older_schema_has_everything_after_the_upgrade(former: Path) -> None:
    assert_whole(former)


def test_an_identity_of_an_older_row_is_still_unique_and_found(former: Path) -> None:
    """New rows have the bytes of a hash, older ones its digits."""
    with commonplace.open(former, background=False) as book:
        space = book.space("user", "ana")
        (record,) = space.records.list().records
        again = space.records.create(type="note", content=record.content, source="s", confidence=0.9, tags=["drink"])
        assert (again.id, again.tags) == (record.id, ("tea", "drink"))
        namespace = ("user", "bob")  # whose row stays as it is
        (record,) = book.space(*namespace).records.list().records
        (entry,) = book.store.get(namespace, "record", [record.id])
        assert entry is not None
        draft = Draft("record", "another", {"n": 1}, identity=entry.identity)
        with pytest.raises(Conflict, match="has the identity"):
            book.store.write(namespace, lambda transaction: transaction.put(draft))
        assert book.verify() == []


@pytest.mark.promise("engine-upgrade")
def test_an_upgrade_that_is_killed_at_any_statement_is_finished_by_the_next_program(
    former: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut in the middle of an upgrade must leave the former book or the new one."""
    content = former.read_bytes()
    statements = 0
    while kill_upgrade(former, statements, monkeypatch):
        with commonplace.open(former, background=False) as book:
            assert book.verify() == []
        statements += STRIDE
        former.write_bytes(content)
    assert_whole(former)


def kill_upgrade(path: Path, statements: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Open the book in a process that dies after so many statements; whether it came to that."""
    child = os.fork()
    if not child:
        left = [statements]

        def count(cursor: Any, sql: str, bindings: Any) -> bool:
            if not left[0]:
                os._exit(KILLED)
            left[0] -= 1
            return True

        connect = sqlite_store.connect

        def traced(*arguments: Any, **options: Any) -> Any:
            connection: Any = connect(*arguments, **options)
            connection.exec_trace = count
            return connection

        try:
            monkeypatch.setattr(sqlite_store, "connect", traced)
            SQLiteStore(path)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == KILLED


@pytest.mark.parametrize("schema", [1, 2])
def test_a_former_program_that_has_the_book_open_is_told_to_restart_and_reads(tmp_path: Path, schema: int) -> None:
    path = tmp_path / "book.db"
    path.write_bytes(gzip.decompress((HERE / f"book_schema_{schema}.db.gz").read_bytes()))
    old = apsw.Connection(str(path))
    every_write_begins_with = "SELECT namespace, entry, chunk, vector FROM counter"
    old.execute(every_write_begins_with).fetchall()
    assert_whole(path)
    old.execute("BEGIN IMMEDIATE")
    with pytest.raises(apsw.SQLError, match="a newer commonplace has upgraded this book: restart this program with it"):
        old.execute(every_write_begins_with).fetchall()
    old.execute("ROLLBACK")
    assert old.execute("SELECT path FROM namespace ORDER BY path").fetchall() == [("user/ana",), ("user/bob",)]
    old.close()
