"""Damage to a book's file: every read says so in our words, `verify` finds it, nothing copies it, the rest is saved."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from starlette.testclient import TestClient

import commonplace
from commonplace import Corrupt
from commonplace.backends.sqlite import SQLiteStore, damage
from commonplace.backends.sqlite import store as sqlite_store
from commonplace.backends.sqlite.migrate import migrations
from commonplace.cli import main
from commonplace.server.http.api_keys import Keys
from commonplace.server.http.app import build_app
from commonplace.server.http.auth import Gate, Principal
from commonplace.server.http.service import Service
from commonplace.settings import Settings
from doubles import Clock, WordEmbedder

SCRIPT = Path(__file__).parent.parent.parent / "scripts" / "flip_test.py"
SECRET = "the harbour is closed on Sunday"


def open_file(path: Path) -> commonplace.Book:
    return commonplace.open(path, embedder=WordEmbedder(), background=False, clock=Clock(), durability="normal")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A book with twenty files, one of which is about to be damaged, and a record."""
    path = tmp_path / "book.db"
    with open_file(path) as book:
        space = book.space("user", "default")
        for number in range(20):
            space.files.write(f"/notes/{number}", f"note {number} about lanterns")
        space.files.write("/notes/7", SECRET)
        space.files.append("/notes/7", "and on Monday")
        space.records.create(type="note", content={"text": "birch"}, source="s", confidence=0.5, id="r1")
        space.search("lanterns")
    return path


def flip(path: Path, found: bytes, mask: int) -> None:
    """Change the first byte of every place where these bytes are in the file."""
    data = path.read_bytes()
    assert found in data
    path.write_bytes(data.replace(found, bytes([found[0] ^ mask]) + found[1:]))


def not_utf8(path: Path) -> None:
    flip(path, SECRET.encode(), 0x80)


def another_text(path: Path) -> None:
    flip(path, SECRET.encode(), 0x01)


Damage = Callable[[Path], None]
DAMAGES = pytest.mark.parametrize("damage_it", [not_utf8, another_text])


@pytest.mark.promise("engine-damage-named")
@DAMAGES
def test_a_read_of_a_damaged_text_names_its_entry(path: Path, damage_it: Damage) -> None:
    """One flipped byte in a stored text ended `cat`, `search` and `export` in a UnicodeDecodeError, or was not seen."""
    damage_it(path)
    with open_file(path) as book:
        space = book.space("user", "default")
        assert space.files.read("/notes/8") == "note 8 about lanterns"
        with pytest.raises(Corrupt, match=r"file /notes/7 of namespace user/default.*backup.*export --salvage"):
            space.files.read("/notes/7")
        with pytest.raises(Corrupt, match="/notes/7"):
            space.state("file", "/notes/7", 2)
        with pytest.raises(Corrupt, match="/notes/7"):
            book.export(lambda line: None)
        with pytest.raises(Corrupt, match="/notes/7"):
            space.search("closed on Sunday")
        assert book.store.is_damaged


@pytest.mark.promise("engine-damage-named")
@DAMAGES
def test_damage_is_found_by_verify_and_never_copied(path: Path, tmp_path: Path, damage_it: Damage) -> None:
    """`doctor` ended in a traceback, `verify` took a changed text for the right one, `backup` copied it with exit 0."""
    damage_it(path)
    with open_file(path) as book:
        problems = book.verify()
        assert [problem for problem in problems if "/notes/7 of namespace user/default" in problem]
        with pytest.raises(Corrupt, match=r"/notes/7.*no copy was made"):
            book.backup(tmp_path / "copy.db")
    assert not list(tmp_path.glob("*copy.db*"))


def test_a_backup_does_not_make_all_passages_again_and_copies_a_book_with_a_damaged_index(
    path: Path, tmp_path: Path
) -> None:
    """A backup of 20,000 entries took 32 seconds in place of 0.2, and an index that can be made again forbade it."""
    connection = apsw.Connection(str(path))
    connection.execute("DELETE FROM label")
    connection.close()
    with open_file(path) as book:
        assert book.verify()[0].startswith("index: the labels do not agree with the entries")
        book.backup(tmp_path / "copy.db")
    with open_file(tmp_path / "copy.db") as copy:
        copy.rebuild_keywords()
        assert copy.verify() == []
        assert copy.space("user", "default").files.read("/notes/7").startswith(SECRET)


@DAMAGES
def test_the_program_tells_of_damage_with_its_exit_code(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], damage_it: Damage
) -> None:
    damage_it(path)
    monkeypatch.setenv("COMMONPLACE_MODELS", str(path.parent / "no-models"))
    for words, code in (
        (["cat", "/notes/7"], 7),
        (["export", str(path.with_name("all.jsonl"))], 7),
        (["backup", str(path.with_name("copy.db"))], 7),
        (["search", "closed on Sunday"], 7),
        (["doctor"], 1),
        (["cat", "/notes/8"], 0),
        (["ls", "/notes"], 0),
    ):
        assert main(["--db", str(path), *words]) == code, words
        told = capsys.readouterr()
        assert ("/notes/7" in told.out + told.err) is (code != 0), words


@pytest.mark.promise("engine-damage-salvage")
@DAMAGES
def test_salvage_writes_all_that_can_be_read_and_lists_what_cannot(
    path: Path, capsys: pytest.CaptureFixture[str], damage_it: Damage
) -> None:
    """`export` stopped at the first damaged page though 144 of 150 files could be read."""
    damage_it(path)
    rescued = path.with_name("rescued.jsonl")
    assert main(["--db", str(path), "export", "--salvage", str(rescued)]) == 7
    told = capsys.readouterr()
    assert "not readable: file /notes/7 of namespace user/default" in told.err
    with commonplace.open(":memory:", embedder=WordEmbedder(), background=False) as fresh:
        with rescued.open("rb") as stream:
            (outcome,) = fresh.import_lines(stream)
        assert outcome.outcome == "imported"
        files = fresh.space("user", "default").files
        names = [info.path for info in files.walk() if info.kind == "file"]
        assert sorted(names) == sorted(f"/notes/{number}" for number in range(20) if number != 7)
        assert files.read("/notes/8") == "note 8 about lanterns"
        assert fresh.space("user", "default").records.get("r1").content == {"text": "birch"}
        assert fresh.verify() == []


def test_salvage_takes_a_damaged_key_from_the_index_as_a_read_does(path: Path) -> None:
    data = path.read_bytes()
    at = data.index(b"\x01notes\x0113\x0f")  # in the row: its attributes follow
    path.write_bytes(data[: at + 1] + b"\xee" + data[at + 2 :])
    with open_file(path) as book:
        assert "otes/13 of namespace user/default" in " ".join(book.verify())
        assert book.space("user", "default").files.read("/notes/13") == "note 13 about lanterns"
        lines: list[bytes] = []
        book.export(lines.append, salvage=True)
        assert any(b'"/notes/13"' in line for line in lines)


def test_salvage_of_a_whole_book_is_its_export(path: Path) -> None:
    with open_file(path) as book:
        plain, salvaged = io.BytesIO(), io.BytesIO()
        done = book.export(plain.write)
        assert book.export(salvaged.write, salvage=True) == done
        assert salvaged.getvalue().splitlines()[1:] == plain.getvalue().splitlines()[1:]


@pytest.mark.promise("engine-damage-named")
def test_only_the_owner_of_a_damaged_entry_is_told_its_name(path: Path) -> None:
    not_utf8(path)
    with open_file(path) as book:
        assert isinstance(book.store, SQLiteStore)
        for owner, is_told in (("default", True), ("other", False)):
            with pytest.raises(Corrupt) as caught, book.store._reading(("user", owner)):
                raise apsw.CorruptError("a torn page")
            assert ("/notes/7" in str(caught.value)) is is_told
            assert is_told or "/notes/7" in " ".join(caught.value.__notes__)  # for the operator's log
        with pytest.raises(ZeroDivisionError), book.store._reading(("user", "other")):
            raise ZeroDivisionError


def test_a_mistake_of_the_program_is_not_taken_for_damage(path: Path) -> None:
    with open_file(path) as book:
        assert isinstance(book.store, SQLiteStore)
        with pytest.raises(TypeError, match="a mistake"), book.store._reading(("user", "default")):
            raise TypeError("a mistake")
        assert not book.store.is_damaged


@DAMAGES
def test_a_service_answers_with_a_problem_and_says_that_its_store_is_damaged(path: Path, damage_it: Damage) -> None:
    """REST answered 500 with a traceback in the log, while /readyz said that all was well."""
    damage_it(path)
    with open_file(path) as book:
        gate = Gate(Keys(book.store), Principal("local", ("user", "default"), "all"))
        with TestClient(build_app(Service(book, gate, Settings())), base_url="http://127.0.0.1:8765") as client:
            assert client.get("/readyz").json()["store"] == "ok"
            answer = client.get("/v1/files/notes/7")
            assert (answer.status_code, answer.json()["code"]) == (500, "corrupt")
            assert "/notes/7 of namespace user/default" in answer.json()["detail"]
            assert client.get("/v1/files/notes/8").status_code == 200
            ready = client.get("/readyz")
            assert (ready.status_code, ready.json()["status"], ready.json()["store"]) == (200, "ready", "damaged")


def test_damage_to_a_vector_is_reported_and_mended_by_reindex(path: Path) -> None:
    connection = apsw.Connection(str(path))
    (value,) = connection.execute("SELECT value FROM vector LIMIT 1").fetchall()[0]
    connection.close()
    data = path.read_bytes()
    at = data.index(value)
    path.write_bytes(data[: at + 5] + bytes([data[at + 5] ^ 0x10]) + data[at + 6 :])
    with open_file(path) as book:
        space = book.space("user", "default")
        assert "vector" in book.verify()[0]
        with pytest.raises(Corrupt, match=r"vector.*commonplace reindex"):
            space.search("lanterns")
        book.reindex()
        assert book.verify() == []
        assert space.search("lanterns")


KILLED = """
import os, sys, commonplace
book = commonplace.open(sys.argv[1], background=False)
for number in range(20):
    book.space("user", "default").files.write(f"/late/{number}", f"late note {number}")
os.kill(os.getpid(), 9)
"""


def open_now(path: Path) -> commonplace.Book:
    return commonplace.open(path, embedder=WordEmbedder(), background=False)


@pytest.mark.promise("engine-damage-told")
@pytest.mark.parametrize("place", ["header", "salt", "page", "commit"])
def test_commits_behind_a_flipped_byte_of_a_killed_programs_log_are_missed_by_verify(path: Path, place: str) -> None:
    """One flipped byte in the log lost all later commits without a word; `doctor` said that all was well."""
    subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False, capture_output=True)
    log = path.with_name("book.db-wal")
    data = bytearray(log.read_bytes())
    frame = 24 + int.from_bytes(data[8:12], "big")
    commits = [at for at in range(32, len(data), frame) if any(data[at + 4 : at + 8])]
    middle = commits[len(commits) // 2]
    data[{"header": 25, "salt": middle + frame + 9, "page": middle + frame + 500, "commit": middle + 100}[place]] ^= 4
    log.write_bytes(data)
    with open_now(path) as book:
        assert book.store.is_damaged
        (problem,) = book.verify()
        assert "the log was damaged, and commits in it are lost" in problem
        book.space("user", "default").files.write("/later", "on")
    with open_now(path) as book:
        (problem,) = book.verify()
        (kept,) = path.parent.glob("book.db-wal.damaged-*")
        assert str(kept) in problem
        assert kept.read_bytes() == data
        kept.unlink()
        assert book.verify() == []
        assert book.space("user", "default").files.read("/later") == "on"


@pytest.mark.parametrize("is_long", [True, False])
def test_a_last_commit_that_a_power_cut_tore_is_not_taken_for_damage(path: Path, is_long: bool) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False, capture_output=True)
    log = path.with_name("book.db-wal")
    data = bytearray(log.read_bytes())
    frame = 24 + int.from_bytes(data[8:12], "big")
    before = [at for at in range(32, len(data), frame) if any(data[at + 4 : at + 8])][-2]
    data[before + frame + 500] ^= 4
    log.write_bytes(data if is_long else data[:-100])
    with open_now(path) as book:
        assert book.verify() == []
        assert book.space("user", "default").files.read("/late/17") == "late note 17"


@pytest.mark.parametrize("pragma", ["application_id = 5", "user_version = 77", "user_version = 1"])
def test_a_damaged_header_is_told_as_damage_and_nothing_is_changed(path: Path, pragma: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(f"PRAGMA {pragma}").fetchall()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(Corrupt, match=r"header on page 1.*restore a backup"):
        open_file(path)
    assert path.read_bytes() == before


# Books from before there were checksums


SAID_ONCE = ("valid_from", "updated_at", "heading", "identity", "attributes", "begun_by")
"""Columns that are computed now, each before those that it is computed from."""


def without_checksums(path: Path) -> None:
    """Take a book back to the schema before checksums."""
    with open_file(path) as book:
        book.store.maintain()  # no entry waits for its keywords any more
    connection = apsw.Connection(str(path))
    (view,) = connection.execute("SELECT sql FROM sqlite_schema WHERE name = 'counter'").fetchall()[0]
    connection.execute("DROP TABLE unchecked; DROP VIEW counter; DROP INDEX namespace_waiting")
    for column in ("waiting_commit", "waiting_entry", "waiting_count"):
        connection.execute(f"ALTER TABLE namespace DROP COLUMN {column}")
    for trigger in (
        "usage_delete",
        "usage_update",
        *(f"former_usage_{name}" for name in ("insert", "delete", "update")),
    ):
        connection.execute(f"DROP TRIGGER {trigger}")
    for index in ("entry_identity", "entry_created", "entry_updated"):
        connection.execute(f"DROP INDEX {index}")
    for column in ("identity_key", "kind_code"):
        connection.execute(f"ALTER TABLE entry DROP COLUMN {column}")
    for table, own in (("entry", ("text", *SAID_ONCE)), ("history", ("ended_by", *SAID_ONCE))):
        connection.execute(f"UPDATE {table} SET {', '.join(f'own_{name} = {name}' for name in own)}")
        for name in own:
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {name}")
            connection.execute(f"ALTER TABLE {table} RENAME COLUMN own_{name} TO {name}")
    connection.execute("ALTER TABLE entry DROP COLUMN text_place")
    for index in re.findall(r"CREATE (?:UNIQUE )?INDEX entry_(?:identity|created|updated) .*?;", migrations()[0][1]):
        connection.execute(index)
    for change in ("insert", "delete", "update"):
        (trigger,) = re.findall(rf"CREATE TRIGGER usage_{change}.*?END;", migrations()[1][1], re.DOTALL)
        connection.execute(trigger)
    for table in ("namespace", "entry", "history", "vector", "operation", "system"):
        connection.execute(f"ALTER TABLE {table} DROP COLUMN checksum")
    for column in ("former_states", "former_bytes"):
        connection.execute(f"ALTER TABLE usage DROP COLUMN {column}")
    connection.execute(f"{view}; PRAGMA user_version = 3").fetchall()
    connection.close()


def missing(path: Path) -> int:
    connection = apsw.Connection(str(path))
    tables = ("namespace", "entry", "history", "vector", "system")
    counts = [connection.execute(f"SELECT count(*) FROM {table} WHERE checksum IS NULL").fetchall() for table in tables]
    connection.close()
    return sum(rows[0][0] for rows in counts)


def test_an_older_book_gets_its_checksums_when_it_is_opened(path: Path) -> None:
    without_checksums(path)
    with open_file(path) as book:
        assert book.verify() == []
        assert book.stats().unchecked == 0
    assert missing(path) == 0


def test_checksums_are_added_in_steps_that_a_kill_cannot_undo(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_checksums(path)
    monkeypatch.setattr(damage, "ROWS_A_STEP", 5)
    monkeypatch.setattr(sqlite_store, "FILL_SECONDS", -1.0)
    left = []
    for _ in range(60):
        with open_file(path) as book:
            left.append(book.stats().unchecked)
            assert book.verify() == []
            assert book.space("user", "default").files.read("/notes/8") == "note 8 about lanterns"
        if not left[-1]:
            break
    assert left == sorted(left, reverse=True)
    assert left[0] > 0
    assert left[-1] == 0
    assert missing(path) == 0


def test_damage_in_an_older_book_gets_no_checksum_that_would_hide_it(path: Path) -> None:
    without_checksums(path)
    not_utf8(path)
    with open_file(path) as book:
        assert "/notes/7" in " ".join(book.verify())
        with pytest.raises(Corrupt, match="/notes/7"):
            book.space("user", "default").files.read("/notes/7")


@pytest.mark.promise("engine-flips")
def test_a_flipped_byte_is_harmless_or_reported() -> None:
    """`make flip-test` flips 500 bytes and asks through every interface; this flips a few and asks the library."""
    words = ["--flips", "12", "--entries", "300", "--interfaces", "library", "--seed", "7"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *words], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counts: Any = re.match(r"12 flips .*: (\d+) harmless, (\d+) reported, 0 faults", done.stdout)
    assert counts is not None, done.stdout
    assert int(counts[2]) >= 1
