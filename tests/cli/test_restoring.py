"""`restore-backup`: what `backup` wrote comes back, on every backend, also while programs have the book open."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from operator import attrgetter
from pathlib import Path
from zipfile import ZipFile

import pytest

import commonplace
from cli.conftest import Run
from postgres_server import shared_server

HOLDER = """
import sys, commonplace
book = commonplace.open(sys.argv[1], background=False)
files = book.space("user", "default").files
for line in sys.stdin:
    try:
        print(eval(line), flush=True)
    except commonplace.CommonplaceError as error:
        print(type(error).__name__, error, flush=True)
book.close()
"""


def exported(run: Run, *words: str) -> list[str]:
    ran = run(*words, "export")
    assert ran.code == 0, ran.err
    return ran.out.splitlines()[1:]  # the first line has the moment of the export


def filled(run: Run, *words: str) -> list[str]:
    for number in range(20):
        assert run(*words, "add", "--file", f"/n/{number}", f"note {number}").code == 0
    assert run(*words, "add", "--file", "/n/3", "changed").code == 0
    assert run(*words, "rm", "/n/4").code == 0
    return exported(run, *words)


@pytest.fixture
def databases() -> list[str]:
    return [shared_server().create_database() for _ in range(2)]


@pytest.mark.promise("cli-restore-backup")
def test_a_restored_backup_exports_as_the_book_did(run: Run, book_file: Path) -> None:
    before = filled(run)
    assert run("backup", "copy.db").code == 0
    assert run("add", "--file", "/later", "not in it").code == 0
    later = exported(run)
    restored = run("restore-backup", "copy.db", "--json")
    assert restored.code == 0, restored.err
    assert exported(run) == before
    former = restored.json["former"]
    assert exported(run, "--db", former) == later
    assert run("doctor").out.count("damaged") == 0
    assert run("restore-backup", "copy.db", "--discard").code == 0
    assert exported(run) == before
    assert sorted(file.name for file in book_file.parent.glob("*.db")) == sorted(
        ["book.db", "copy.db", Path(former).name]
    )
    assert [file.name for file in book_file.parent.iterdir() if "unfinished" in file.name] == []


@pytest.mark.promise("cli-restore-backup")
def test_a_backup_of_postgresql_is_restored_into_an_empty_database(run: Run, databases: list[str]) -> None:
    """A stranger was told "copied the book"; the file was a zip that no command could read back."""
    source, target = databases
    before = filled(run, "--db", source)
    told = run("--db", source, "backup", "pg.backup")
    assert (told.code, "restore-backup" in told.out, "copied the book" in told.out) == (0, True, False)
    assert run("--db", target, "restore-backup", "pg.backup").code == 0
    assert exported(run, "--db", target) == before
    again = run("--db", target, "restore-backup", "pg.backup")
    assert again.code != 0
    assert "not empty" in again.err
    data = bytearray(Path("pg.backup").read_bytes())
    with ZipFile("pg.backup") as archive:
        largest = max(archive.infolist(), key=attrgetter("compress_size"))
    data[largest.header_offset + 30 + len(largest.filename) + largest.compress_size // 2] ^= 255
    Path("damaged.backup").write_bytes(data)
    empty = shared_server().create_database()
    assert run("--db", empty, "restore-backup", "damaged.backup").code != 0
    assert run("--db", empty, "restore-backup", "pg.backup").code == 0
    other = run("restore-backup", "pg.backup")
    assert "is a backup of a book on PostgreSQL" in other.err
    assert run("--db", target, "move", target, "moved.db").code == 0
    assert exported(run, "--db", "moved.db") == before
    assert run("--db", "moved.db", "backup", "file.backup").code == 0
    assert "is not a backup of a book on PostgreSQL" in run("--db", target, "restore-backup", "file.backup").err


@pytest.mark.promise("engine-replaced-file")
def test_a_backup_is_restored_while_a_program_writes(run: Run, book_file: Path) -> None:
    before = filled(run)
    assert run("backup", "copy.db").code == 0
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(book_file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )

    def ask(line: str) -> str:
        assert holder.stdin is not None
        assert holder.stdout is not None
        print(line, file=holder.stdin, flush=True)
        return holder.stdout.readline()

    assert ask("files.write('/open', 'x') and 'done'") == "done\n"
    former = run("restore-backup", "copy.db", "--json").json["former"]
    assert ask("files.write('/late', 'x')").startswith("Unavailable the book was moved, replaced or deleted")
    assert exported(run) == before
    assert ask("files.read('/open')").startswith("Unavailable")
    holder.communicate()
    assert exported(run) == before
    with commonplace.open(former, background=False) as book:
        assert book.verify() == []
        assert book.space("user", "default").files.read("/open") == "x"


@pytest.mark.parametrize("point", ["link", "replace", "unlink"])
def test_a_restoration_that_is_killed_leaves_a_book_and_can_be_repeated(run: Run, book_file: Path, point: str) -> None:
    before = filled(run)
    assert run("backup", "copy.db").code == 0
    subprocess.run(
        [
            sys.executable,
            "-c",
            f"""
import os, sys, pathlib, commonplace
book = commonplace.open({str(book_file)!r}, background=False)
book.space("user", "default").files.write("/open", "x")
from commonplace.book import restore_backup
end = lambda *a, **k: os._exit(0)
if {point!r} == "unlink":
    real = os.replace
    os.replace = lambda *a: (real(*a), end())
else:
    setattr(os, {point!r}, end)
restore_backup("copy.db", {str(book_file)!r})
""",
        ],
        check=True,
        cwd=book_file.parent,
    )
    first = run("cat", "/open")
    if point == "unlink":  # the former log still stands there
        assert "move" in first.err
    else:
        assert first.out == "x"
    assert run("restore-backup", "copy.db").code == 0
    assert exported(run) == before


def test_what_is_not_a_backup_is_refused_and_the_book_stays(run: Run, book_file: Path, tmp_path: Path) -> None:
    before = filled(run)
    (tmp_path / "text").write_text("no backup " * 1000)
    (tmp_path / "empty").touch()
    assert run("backup", "damaged").code == 0
    damaged = bytearray((tmp_path / "damaged").read_bytes())
    damaged[8192:12288] = b"\xa5" * 4096
    (tmp_path / "damaged").write_bytes(damaged)
    for name, words in [
        ("missing", "there is no backup"),
        ("text", "not a database"),
        ("empty", "is empty"),
        ("damaged", "damaged"),
        ("book.db", "is the book itself"),
    ]:
        refused = run("restore-backup", name)
        assert refused.code != 0
        assert words in refused.err, name
        assert exported(run) == before


@pytest.mark.parametrize("words", [("backup", "copy.db"), ("export", "lines.jsonl")])
def test_what_a_killed_backup_left_is_removed_by_the_next(run: Run, tmp_path: Path, words: tuple[str, str]) -> None:
    """A backup that was killed left an unfinished copy of the book in its folder for good."""
    filled(run)
    ended = subprocess.Popen([sys.executable, "-c", "pass"])
    ended.wait()
    old = [tmp_path / f".memory-1.db.unfinished-{ended.pid}{suffix}" for suffix in ("", "-journal")]
    kept = [
        tmp_path / f".young.db.unfinished-{ended.pid}",
        tmp_path / f".running.db.unfinished-{os.getpid()}",
        tmp_path / ".mine.unfinished-notes",
    ]
    for file in (*old, *kept):
        file.touch()
        if file != kept[0]:
            os.utime(file, (time.time() - 7200,) * 2)
    assert run(*words).code == 0
    assert [file.exists() for file in (*old, *kept)] == [False, False, True, True, True]
