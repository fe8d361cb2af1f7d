"""A file that is overwritten, cut or parted from its log while programs have it open stays what it was made.

A stranger restored a book with `cp copy.db book.db` while a server had it open: 200 further writes were acknowledged,
then the book was corrupt, or the restored state was silently overwritten.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

import commonplace
from commonplace import ConfigurationError, Unavailable
from commonplace.backends.sqlite import connection

PROGRAM = """
import sys
import commonplace
book = commonplace.open(sys.argv[1], background=False)
space = book.space("user", "u1")
for line in sys.stdin:
    try:
        print(eval(line), flush=True)
    except commonplace.CommonplaceError as error:
        print(type(error).__name__, error, flush=True)
book.close()
"""
WORDS = "words of a note " * 40


class Program:
    """A process that has a book open, and answers one expression at a time."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ask(self, expression: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(expression + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().rstrip("\n")

    def write(self, name: str) -> str:
        return self.ask(f"space.files.write({name!r}, {WORDS!r}) and 'done'")

    def end(self) -> None:
        _, errors = self.process.communicate(timeout=60)
        assert (self.process.returncode, errors) == (0, "")


@contextmanager
def program(path: Path) -> Iterator[Program]:
    running = Program(path)
    try:
        yield running
    finally:
        running.end()


def opened(path: Path, **options: Any) -> commonplace.Book:
    return commonplace.open(path, background=False, **options)


def fill(path: Path, names: list[str]) -> None:
    with opened(path) as book:
        for name in names:
            book.space("user", "u1").files.write(name, WORDS)


def names(path: Path) -> set[str]:
    with opened(path) as book:
        assert book.verify() == []
        files = book.space("user", "u1").files
        found = {info.path for info in files.walk() if info.kind == "file"}
        assert all(files.read(name) == WORDS for name in found)
        return found


def backup(book: Path, copy: Path) -> None:
    with opened(book) as source:
        source.backup(copy)


def plain_copy(book: Path, copy: Path) -> None:
    """Of a book that no program has open, its file is all of it."""
    shutil.copy(book, copy)


def opened_backup(book: Path, copy: Path) -> None:
    """A backup that was looked into can no longer be told from a book by its header."""
    backup(book, copy)
    opened(copy).close()


def another_book(book: Path, copy: Path) -> None:
    fill(copy, ["/old"])


def without_log(path: Path) -> None:
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").rename(f"{path}{suffix}.aside")


@pytest.mark.promise("engine-replaced-file")
@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("copied", [backup, plain_copy, opened_backup, another_book])
def test_a_copy_in_the_place_of_an_open_book_stays_exactly_the_copy(
    tmp_path: Path, copied: Callable[[Path, Path], None], checkpointed: bool
) -> None:
    path, copy = tmp_path / "book.db", tmp_path / "copy.db"
    fill(path, ["/old"])
    copied(path, copy)
    fill(path, ["/later"])
    with program(path) as writer, program(path) as other:
        assert [writer.write(f"/new/{number}") for number in range(30)] == ["done"] * 30
        assert other.write("/other") == "done"
        if checkpointed:
            assert writer.ask("book.space('user', 'u2').purge() or 'done'") == "done"
        shutil.copy(copy, path)
        for running in (writer, other, writer):
            assert running.write("/late").startswith(
                "Unavailable the book's file was replaced or cut while it was open"
            )
            assert running.ask("space.files.read('/old')").startswith("Unavailable the book's file was replaced")
            assert running.ask("book.store.maintain()").startswith("Unavailable the book's file was replaced")
        if not checkpointed:  # SQLite would read the former file's log over the copy
            with pytest.raises(ConfigurationError, match=r"move .*book.db-wal and .*book.db-shm away"):
                opened(path)
    assert path.read_bytes() == copy.read_bytes()
    if not checkpointed:
        without_log(path)
    assert names(path) == {"/old"}


def test_a_book_that_replaces_one_in_use_is_opened_as_it_is_once_the_former_log_is_gone(tmp_path: Path) -> None:
    path, copy = tmp_path / "book.db", tmp_path / "copy.db"
    fill(path, ["/old"])
    plain_copy(path, copy)
    fill(path, ["/later"])
    with program(path) as former:
        assert former.write("/new") == "done"
        shutil.copy(copy, path)
        without_log(path)
        with program(path) as restored:
            assert restored.write("/restored") == "done"
            assert former.write("/late").startswith("Unavailable")
            assert former.ask("space.files.read('/old')").startswith("Unavailable")
            assert restored.write("/again") == "done"
    assert names(path) == {"/old", "/restored", "/again"}


def test_a_copy_of_the_very_bytes_that_the_file_has_changes_nothing(tmp_path: Path) -> None:
    """What was written since is in the log, which is still the file's: nothing acknowledged may be lost with it."""
    path, copy = tmp_path / "book.db", tmp_path / "copy.db"
    fill(path, ["/old"])
    with program(path) as writer:
        plain_copy(path, copy)
        assert writer.write("/new") == "done"
        shutil.copy(copy, path)
        assert writer.write("/late") == "done"
        assert names(path) == {"/old", "/new", "/late"}
    assert names(path) == {"/old", "/new", "/late"}


def test_a_program_that_only_closes_leaves_a_copy_in_its_books_place_alone(tmp_path: Path) -> None:
    path, copy = tmp_path / "book.db", tmp_path / "copy.db"
    fill(path, ["/old"])
    backup(path, copy)
    with program(path) as writer:
        assert writer.write("/new") == "done"
        shutil.copy(copy, path)
    assert path.read_bytes() == copy.read_bytes()
    without_log(path)
    assert names(path) == {"/old"}


@pytest.mark.promise("engine-replaced-file")
@pytest.mark.parametrize("removed", [("-wal",), ("-shm",), ("-wal", "-shm")])
def test_a_book_whose_log_is_removed_takes_no_more_writes_and_loses_none(
    tmp_path: Path, removed: tuple[str, ...]
) -> None:
    """`rm book.db-wal book.db-shm` while a program had the book open lost what it had acknowledged before and after."""
    path = tmp_path / "book.db"
    fill(path, ["/old"])
    with program(path) as writer:
        assert writer.write("/new") == "done"
        for suffix in removed:
            Path(f"{path}{suffix}").unlink()
        assert writer.write("/late").startswith("Unavailable the log of the book (its -wal and -shm files) was removed")
        assert writer.write("/late").startswith("Unavailable the log of the book")
    assert names(path) == {"/old", "/new"}


@pytest.mark.parametrize("is_refused", [False, True])
def test_the_identity_of_a_log_is_the_one_that_stat_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    if is_refused:  # by a sandbox
        monkeypatch.setattr(connection, "_statx", lambda *_: -1)
    log, other = tmp_path / "a log", tmp_path / "other"
    assert connection.identity_of_log(str(log)) is None
    log.touch()
    other.touch()
    assert connection.identity_of_log(str(log)) == connection.identity(str(log)) is not None
    assert connection.identity_of_log(str(log)) != connection.identity_of_log(str(other))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has times that are exact once they were read")
def test_a_commit_does_not_ask_for_the_times_of_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    with commonplace.open(tmp_path / "book.db", background=False) as book:
        files = book.space("user", "u1").files
        files.write("/a", "one")
        real = os.stat
        monkeypatch.setattr(os, "stat", lambda path, **rest: (asked.append(str(path)), real(path, **rest))[1])
        connection.identity_of_log(str(tmp_path))
        if asked:
            pytest.skip("this machine does not have statx, or refuses it")
        files.write("/a", "two")
        monkeypatch.undo()
    assert asked
    assert not [path for path in asked if path.endswith("-wal")]


def test_a_program_that_only_closes_saves_what_was_in_a_removed_log(tmp_path: Path) -> None:
    path = tmp_path / "book.db"
    with program(path) as writer:
        assert writer.write("/new") == "done"
        without_log(path)
    assert names(path) == {"/new"}


def test_a_book_opened_by_others_after_its_log_was_removed_is_left_to_them(tmp_path: Path) -> None:
    path = tmp_path / "book.db"
    fill(path, ["/old"])
    with program(path) as first:
        assert first.write("/new") == "done"
        without_log(path)
        with program(path) as second:
            assert second.write("/second") == "done"
            assert first.write("/late").startswith("Unavailable the log of the book")
            assert second.write("/third") == "done"
    assert names(path) == {"/old", "/second", "/third"}


@pytest.mark.parametrize("size", [0, 4096, 40_960])
def test_a_book_that_is_cut_while_it_is_open_takes_no_more_writes(tmp_path: Path, size: int) -> None:
    path = tmp_path / "book.db"
    fill(path, [f"/old/{number}" for number in range(50)])
    with program(path) as writer:
        assert writer.write("/new") == "done"
        os.truncate(path, size)
        before = path.read_bytes()
        assert writer.write("/late").startswith("Unavailable the book's file was replaced or cut")
    assert path.read_bytes() == before
    with pytest.raises(ConfigurationError, match=r"move .*book.db-wal and .*book.db-shm away"):
        opened(path)


def sqlite_checkpoint(path: Path) -> None:
    """As a person with SQLite's own program does."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()


def foreign_write(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE IF NOT EXISTS theirs (a); INSERT INTO theirs VALUES (1)").fetchall()
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    connection.close()


def purge_elsewhere(path: Path) -> None:
    """A purge moves the log into the file and cuts it."""
    with opened(path) as book:
        book.space("user", "u2").files.write("/gone", "x")
        book.space("user", "u2").purge()


def killed_checkpoint(path: Path) -> None:
    """A program that is killed after its checkpoint leaves no word of it."""
    script = (
        "import sys, os, commonplace, commonplace.backends.sqlite.guard as guard\n"
        "book = commonplace.open(sys.argv[1], background=False)\n"
        "guard.Guard.finish = lambda self, **options: os._exit(0)\n"
        "book.store._writing.execute('PRAGMA wal_autocheckpoint = 1')\n"
        "book.space('user', 'u2').files.write('/killed', 'x')\n"
    )
    subprocess.run([sys.executable, "-c", script, str(path)], check=True)


@pytest.mark.promise("engine-replaced-file")
@pytest.mark.parametrize(
    "change",
    [sqlite_checkpoint, foreign_write, purge_elsewhere, killed_checkpoint, Path.touch],
)
def test_a_file_that_others_change_as_they_may_is_still_the_book(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    path = tmp_path / "book.db"
    with program(path) as first, program(path) as second:
        for round in range(4):
            assert first.write(f"/first/{round}") == "done"
            change(path)
            assert second.ask(f"len(space.files.read('/first/{round}'))") == str(len(WORDS))
            assert second.write(f"/second/{round}") == "done"
            if round % 2:
                change(path)
            assert names(path) == {f"/{who}/{n}" for who in ("first", "second") for n in range(round + 1)}
    assert not path.with_name("book.db-wal").exists()
    assert names(path) == {f"/{who}/{n}" for who in ("first", "second") for n in range(4)}


def test_processes_that_checkpoint_at_every_commit_never_take_each_other_for_a_replaced_file(tmp_path: Path) -> None:
    path = tmp_path / "book.db"
    with program(path) as first, program(path) as second:
        for running in (first, second):
            assert running.ask("book.store._writing.execute('PRAGMA wal_autocheckpoint = 1') and 'done'") == "done"
        many = "[space.files.write('/{0}/%d' % n, 'x') for n in range(150)] and len(list(space.files.walk())) >= 150"
        for running, name in ((first, "first"), (second, "second")):
            assert running.process.stdin is not None
            running.process.stdin.write(many.format(name) + "\n")
            running.process.stdin.flush()
        for running in (first, second):
            assert running.process.stdout is not None
            assert running.process.stdout.readline() == "True\n"


def test_a_killed_programs_book_can_be_copied_elsewhere_with_its_log(tmp_path: Path) -> None:
    path, there = tmp_path / "book.db", tmp_path / "there"
    fill(path, ["/old"])
    writer = Program(path)
    assert writer.write("/new") == "done"
    writer.process.kill()
    writer.process.communicate()
    there.mkdir()
    for name in ("book.db", "book.db-wal"):
        shutil.copy(tmp_path / name, there / name)
    assert names(there / "book.db") == {"/old", "/new"}
    for file in list(tmp_path.glob("book.db*")):
        shutil.copy(file, there / file.name)
    assert names(there / "book.db") == {"/old", "/new"}


def test_a_new_book_does_not_take_the_log_of_one_that_was_moved_away(tmp_path: Path) -> None:
    path, aside = tmp_path / "book.db", tmp_path / "aside.db"
    with program(path) as writer:
        assert writer.write("/new") == "done"
        path.rename(aside)
        assert writer.write("/late").startswith("Unavailable the book was moved")
    with pytest.raises(ConfigurationError, match=r"empty or new.*move .*book.db-wal"):
        opened(path)
    assert not path.exists()
    Path(f"{path}-wal").rename(f"{aside}-wal")
    assert names(aside) == {"/new"}


def test_a_write_in_a_program_whose_book_was_upgraded_says_to_restart(tmp_path: Path) -> None:
    path = tmp_path / "book.db"
    with program(path) as old:
        assert old.write("/old") == "done"
        connection = apsw.Connection(str(path))
        (version,) = connection.execute("PRAGMA user_version").fetchall()[0]
        connection.execute(f"PRAGMA user_version = {version + 1}")
        told = old.write("/late")
        assert told.startswith("Unavailable another commonplace has changed the book's schema")
        assert "restart this program" in told
        assert old.ask("len(space.files.read('/old'))") == str(len(WORDS))
        connection.execute(f"PRAGMA user_version = {version}")
        connection.close()
    assert names(path) == {"/old"}


def test_a_book_in_this_process_sees_its_file_replaced_too(tmp_path: Path) -> None:
    path, copy = tmp_path / "book.db", tmp_path / "copy.db"
    fill(path, ["/old"])
    backup(path, copy)
    with opened(path) as book:
        book.space("user", "u1").files.write("/new", "x")
        shutil.copy(copy, path)
        with pytest.raises(Unavailable, match="replaced or cut"):
            book.space("user", "u1").files.write("/late", "x")
