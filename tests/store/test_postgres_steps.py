"""A database of an older schema is brought to the present one with everything in it, once however many do it.

`schema_N.sql` beside this file is a book that the program of that schema wrote, with `fill` as it stands here. Before
a new step is added, make the one of the present schema: fill a database with `?partitions=2`, then
`pg_dump --inserts --rows-per-insert=1000 --schema=commonplace --no-comments`, without what begins with a backslash.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import psycopg
import pytest
from upgrade_traffic import Traffic

import commonplace
from commonplace.backends.postgres import migrate
from commonplace.backends.postgres.migrate import migrations
from commonplace.cli import main
from commonplace.entry import Draft
from commonplace.errors import ConfigurationError, Unavailable
from commonplace.store import Transaction
from doubles import Clock, WordEmbedder
from postgres_server import shared_server

HERE = Path(__file__).parent
FORMER = sorted(HERE.glob("schema_*.sql"))
PRESENT = [(number,) for number, _ in migrations()]


@pytest.fixture(params=FORMER, ids=lambda path: path.stem)
def former(request: pytest.FixtureRequest) -> str:
    """The address of a database as the program of an older schema left it."""
    url = shared_server().create_database()
    with psycopg.connect(url, autocommit=True) as connection:
        for role in ("commonplace_system", "commonplace_app"):
            connection.execute(
                f"DO $$ BEGIN CREATE ROLE {role} NOLOGIN; "
                "EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$".encode()
            )
        connection.execute("CREATE EXTENSION vector")
        connection.execute(request.param.read_bytes())
    return url


def test_every_older_schema_is_tried() -> None:
    assert [path.stem for path in FORMER] == [f"schema_{number}" for (number,) in PRESENT[:-1]]


def fill(book: commonplace.Book, clock: Clock) -> None:
    for user in ("ana", "bob"):
        space = book.space("user", user, actor="tester")
        space.files.write("/notes/deploys", f"{user} deploys on Tuesdays")
        clock.advance(1)
        space.files.append("/notes/deploys", "not in the holidays ✓")
        clock.advance(1)
        space.files.write("/notes/gone", "rollback checklist")
        space.files.delete("/notes/gone")
        content = {"text": f"{user} drinks green tea", "n": 1e300}
        space.records.create(type="note", content=content, source="s", confidence=0.5, tags=["person:x"], id="r-1")
        space.threads.create("talk", id="t-1")
        space.threads.add("t-1", [{"id": "m-1", "role": "user", "content": f"when does {user} deploy?"}])
        space.threads.working.write({"name": user})
    book.reindex()
    book.space("user", "bob").files.write("/notes/late", "written after the last vector was made")


def test_a_book_of_the_present_schema_holds_the_same() -> None:
    url, clock = shared_server().create_database() + "?partitions=2", Clock()
    with commonplace.open(url, embedder=WordEmbedder(), clock=clock, background=False) as book:
        fill(book, clock)
    check_everything_is_there(url)


def rows(url: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(query.encode()).fetchall()


def check_everything_is_there(url: str) -> None:
    embedder = WordEmbedder()
    with commonplace.open(url, embedder=embedder, clock=Clock(), background=False) as book:
        assert book.namespaces() == [("user", "ana"), ("user", "bob")]
        assert book.verify() == []
        for user in ("ana", "bob"):
            space = book.space("user", user)
            assert space.files.read("/notes/deploys") == f"{user} deploys on Tuesdays\nnot in the holidays ✓"
            assert [one.action for one in space.history("file", "/notes/deploys")] == ["created", "updated"]
            assert [one.action for one in space.history("file", "/notes/gone")] == ["created", "deleted"]
            assert space.state("file", "/notes/deploys", 1).value == f"{user} deploys on Tuesdays"
            assert space.records.get("r-1").content == {"text": f"{user} drinks green tea", "n": 1e300}
            assert [message.content for message in space.threads.messages("t-1").messages] == [
                f"when does {user} deploy?"
            ]
            assert space.threads.working.read().content == {"name": user}
            # Nobody has counted them yet: neither the former program nor the step.
            assert (space.stats().former_states, space.stats().former_bytes > 400) == (2, True)
        ana, bob = book.space("user", "ana"), book.space("user", "bob")
        first = ana.search("green tea").hits[0]
        # By words and by the vectors of then: nothing of hers is embedded again.
        assert first.key == "r-1"
        assert min(first.parts["keyword"], first.parts["meaning"]) > 0
        assert embedder.embedded == []
        assert bob.search("written after the last vector").hits[0].key == "/notes/late"
        assert embedder.embedded == ["written after the last vector was made"]
        bob.files.append("/notes/deploys", "and it goes on")
        assert bob.search("goes on").hits[0].key == "/notes/deploys"
        assert bob.stats().former_states == 3
        assert book.verify() == []


@pytest.mark.promise("postgres-migrates-with-its-data")
def test_a_database_of_an_older_schema_is_migrated_with_everything_in_it(
    former: str, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = rows(former, "SELECT number FROM commonplace.migration ORDER BY number")
    assert steps == PRESENT[: len(steps)] != PRESENT
    assert main(["--db", former, "migrate"]) == 0
    assert "has the schema of this program" in capsys.readouterr().out
    assert rows(former, "SELECT number FROM commonplace.migration ORDER BY number") == PRESENT
    check_everything_is_there(former)


@pytest.mark.promise("postgres-migrates-once")
def test_ten_that_open_a_database_of_an_older_schema_together_migrate_it_once(former: str) -> None:
    together = Barrier(10)

    def start(number: int) -> None:
        together.wait()
        commonplace.open(former, background=False).close()

    with ThreadPoolExecutor(10) as programs:
        list(programs.map(start, range(10)))
    assert rows(former, "SELECT number FROM commonplace.migration ORDER BY number") == PRESENT
    check_everything_is_there(former)


def test_all_steps_make_what_a_new_database_has(former: str) -> None:
    """Tables, indexes, policies and rights of a migrated database and of a new one are the same."""
    new = shared_server().create_database()
    for url in (former, new + "?partitions=2"):
        commonplace.open(url, background=False).close()
    for query in (
        "SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull FROM pg_attribute AS a"
        " JOIN pg_class AS c ON c.oid = a.attrelid WHERE c.relnamespace = 'commonplace'::regnamespace"
        " AND a.attnum > 0 AND NOT a.attisdropped ORDER BY 1, a.attnum",
        "SELECT tablename, policyname, roles, cmd, qual FROM pg_policies WHERE schemaname = 'commonplace'"
        " ORDER BY tablename, policyname",
        "SELECT indexdef FROM pg_indexes WHERE schemaname = 'commonplace' ORDER BY 1",
        "SELECT c.relname, c.relrowsecurity, c.relforcerowsecurity, c.relacl::text FROM pg_class AS c"
        " WHERE c.relnamespace = 'commonplace'::regnamespace AND c.relkind IN ('r', 'p', 'S') ORDER BY 1",
    ):
        assert rows(former, query) == rows(new, query)
    functions = (
        "SELECT proname, prosrc, prosecdef, proconfig::text FROM pg_proc"
        " WHERE pronamespace = 'commonplace'::regnamespace"
    )
    # A step may leave those that servers of the version before still call.
    assert set(rows(former, functions)) >= set(rows(new, functions))


@pytest.mark.promise("postgres-upgrades-under-load")
def test_a_database_is_upgraded_while_servers_of_its_schema_write_and_read(former: str) -> None:
    """`commonplace migrate` ended in a deadlock, each time, while a server of schema 2 wrote with four threads."""
    with Traffic(former) as traffic:
        commonplace.open(former, background=False).close()
        traffic.wait_for(20)  # and they go on after it
    assert traffic.failures == []
    assert traffic.deadlocks == 0
    assert rows(former, "SELECT number FROM commonplace.migration ORDER BY number") == PRESENT
    kept = set(rows(former, "SELECT tenant, key FROM commonplace.entry WHERE key LIKE '/traffic/%'"))
    assert kept == set(traffic.written)


def test_a_migration_gives_way_to_who_holds_a_table_and_is_done_when_it_is_free(former: str) -> None:
    """A migration that waits for a long read must not make the servers' calls wait for it."""
    with psycopg.connect(former) as reading, ThreadPoolExecutor(1) as program:
        reading.execute("SELECT count(*) FROM commonplace.entry, commonplace.namespace")
        migrating = program.submit(lambda: commonplace.open(former, background=False).close())
        with Traffic(former) as traffic:
            traffic.wait_for(20)
        assert (traffic.failures, traffic.deadlocks) == ([], 0)
        reading.rollback()
        migrating.result(60)
    assert rows(former, "SELECT number FROM commonplace.migration ORDER BY number") == PRESENT


def test_a_migration_that_finds_no_gap_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    url = shared_server().create_database()
    commonplace.open(url + "?partitions=1", background=False).close()
    monkeypatch.setattr(migrate, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(migrate, "LOCK_SECONDS", 0.01)
    monkeypatch.setattr(
        migrate, "migrations", lambda: (*migrations(), (999, "ALTER TABLE entry ADD COLUMN more integer"))
    )
    with psycopg.connect(url) as reading:
        reading.execute("SELECT count(*) FROM commonplace.entry")
        with pytest.raises(
            Unavailable, match=r"could not be upgraded: for 0 seconds other programs, such as an export"
        ):
            commonplace.open(url, background=False)
    commonplace.open(url, background=False).close()
    assert rows(url, "SELECT max(number) FROM commonplace.migration") == [(999,)]


@pytest.mark.promise("postgres-migration-killed")
def test_a_migration_that_is_killed_at_any_statement_is_finished_by_the_next_program(
    former: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute = psycopg.Connection.execute
    left = 0

    def killed(connection: psycopg.Connection[Any], *arguments: Any, **options: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            connection.close()
        return execute(connection, *arguments, **options)

    monkeypatch.setattr(psycopg.Connection, "execute", killed)
    for statements in range(1_000):  # the first program ends before its first statement, the next before its second …
        left = statements
        try:
            commonplace.open(former, background=False).close()
            break
        except Unavailable:
            continue
    assert statements > 10
    monkeypatch.undo()
    assert rows(former, "SELECT number FROM commonplace.migration ORDER BY number") == PRESENT
    check_everything_is_there(former)


@pytest.mark.promise("postgres-upgraded-under-a-server")
def test_a_server_whose_database_was_upgraded_says_that_it_must_be_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    """It used to go on with statements for another schema, and told whatever PostgreSQL said of them."""
    present, newer = (migrate.newest() + 1, "SELECT 1"), (migrate.newest() + 2, "SELECT 1")
    known = migrations()
    url = shared_server().create_database() + "?partitions=2"
    monkeypatch.setattr(migrate, "migrations", lambda: (*known, present))
    with commonplace.open(url, background=False, embedder=WordEmbedder()) as book:
        space = book.space("user", "ana")
        space.files.write("/before", "text")
        monkeypatch.setattr(migrate, "migrations", lambda: (*known, present, newer))
        with commonplace.open(url, background=False) as upgraded:
            for call in (
                lambda: space.files.read("/before"),
                lambda: space.files.write("/after", "text"),
                lambda: space.search("text"),
                lambda: book.reindex(),
                lambda: book.verify(),
                lambda: book.export(lambda data: None),
            ):
                with pytest.raises(
                    Unavailable,
                    match=rf"upgraded it to schema {newer[0]}, and this program knows up to {present[0]}; restart it",
                ):
                    call()
            assert [entry.path for entry in upgraded.space("user", "ana").files.list("/")] == ["/before"]
    monkeypatch.setattr(migrate, "migrations", lambda: (*known, present))
    with pytest.raises(ConfigurationError, match=r"written by a newer commonplace .* upgrade commonplace to open it"):
        commonplace.open(url, background=False)


@pytest.mark.promise("postgres-upgraded-under-a-server")
def test_a_step_waits_for_transactions_at_work_and_those_that_come_meanwhile_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever a step changes, no transaction of the program of before runs on both sides of it."""
    known = migrations()
    present = (migrate.newest() + 1, "SELECT 1")
    newer = (migrate.newest() + 2, "ALTER TABLE attempt ADD COLUMN a integer; ALTER TABLE entry ADD COLUMN b integer")
    url = shared_server().create_database() + "?partitions=2"
    monkeypatch.setattr(migrate, "migrations", lambda: (*known, present))
    with commonplace.open(url, background=False) as book, ThreadPoolExecutor(2) as others:
        reached, go_on = Event(), Event()

        def work(transaction: Transaction) -> None:
            transaction.put(Draft("file", "/first", "text"))
            reached.set()
            go_on.wait(60)

        first = others.submit(book.store.write, ("user", "ana"), work)
        reached.wait(60)
        monkeypatch.setattr(migrate, "migrations", lambda: (*known, present, newer))
        upgrading = others.submit(lambda: commonplace.open(url, background=False).close())
        with psycopg.connect(url.partition("?")[0], autocommit=True) as looking:
            while not looking.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone():
                assert not upgrading.done()
        go_on.set()
        first.result(60)
        upgrading.result(60)
        with pytest.raises(Unavailable, match="restart it"):
            book.space("user", "ana").files.read("/first")
    assert rows(url.partition("?")[0], "SELECT key FROM commonplace.entry WHERE kind = 'file'") == [("/first",)]
