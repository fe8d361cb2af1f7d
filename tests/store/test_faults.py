"""When the disk, the file or another program stands in the way: a clear error, and the data as it was."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import pytest

import commonplace
from commonplace import ConfigurationError, Corrupt, Unavailable

IS_ROOT = hasattr(os, "getuid") and os.getuid() == 0
NOBODY = 65534


def open_file(path: Path, **options: Any) -> commonplace.Book:
    return commonplace.open(path, background=False, **options)


def filled(path: Path) -> dict[str, str]:
    """Make a book with some files; what is in it."""
    with open_file(path) as book:
        space = book.space("user", "u1")
        for number in range(20):
            space.files.write(f"/n/{number}", f"words of note {number} " * 50)
        return texts(book)


def texts(book: commonplace.Book) -> dict[str, str]:
    files = book.space("user", "u1").files
    return {info.path: files.read(info.path) for info in files.walk() if info.kind == "file"}


def is_whole(path: Path, expected: dict[str, str]) -> bool:
    with open_file(path) as book:
        return book.verify() == [] and texts(book) == expected


# A full disk


@pytest.fixture
def small_disk() -> Iterator[Path]:
    if not IS_ROOT or shutil.which("mount") is None:
        pytest.skip("needs root, to mount a small disk")
    folder = Path(tempfile.mkdtemp())
    command = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        folder.rmdir()
        pytest.skip("no right to mount a small disk")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)
    folder.rmdir()


def fill(space: commonplace.Space, written: dict[str, str]) -> None:
    for number in range(200):
        text = os.urandom(20_000).hex()
        space.files.write(f"/big/{number}", text)
        written[f"/big/{number}"] = text


@pytest.mark.promise("engine-full-disk")
def test_a_full_disk_is_told_and_loses_nothing(small_disk: Path) -> None:
    path = small_disk / "book.db"
    expected = filled(path)
    with open_file(path) as book:
        space = book.space("user", "u1")
        with pytest.raises(Unavailable, match=r"no space left .* nothing was changed, free disk space"):
            fill(space, expected)
        assert texts(book) == expected
        with pytest.raises(Unavailable, match="no space left"):
            space.files.write("/too-big", "x" * 4_000_000)
        assert texts(book) == expected
        assert book.verify() == []
        subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
        space.files.write("/goes-on", "text")  # the same open book, once there is space again
        expected["/goes-on"] = "text"
    assert is_whole(path, expected)


@pytest.mark.promise("engine-full-disk")
def test_a_file_size_limit_is_told_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "book.db"
    expected = filled(path)
    script = f"""
import resource, signal, os, commonplace
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
book = commonplace.open({str(path)!r}, background=False)
space = book.space("user", "u1")
size = max(os.path.getsize({str(path)!r} + suffix) for suffix in ("", "-wal"))
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100_000, resource.RLIM_INFINITY))
try:
    space.files.write("/big", os.urandom(400_000).hex())
except commonplace.Unavailable as error:
    assert "nothing was changed" in str(error), error
else:
    raise SystemExit("it was written")
assert not space.files.exists("/big")
space.files.write("/small", "text")
os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert is_whole(path, {**expected, "/small": "text"})


# Without the right to write


@pytest.fixture
def open_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def attempt(path: Path, action: str) -> str:
    """Run a script as somebody whom permissions bind, since root is bound by none; what it was told."""
    script = f"""
import os, commonplace
with commonplace.open(":memory:", background=False) as book:  # loads what that person may not read
    book.space("user", "u1").files.write("/n", "x")
if {IS_ROOT}:
    os.setegid({NOBODY})
    os.seteuid({NOBODY})
try:
    with commonplace.open({str(path)!r}, background=False) as book:
        {action}
except commonplace.CommonplaceError as error:
    print(type(error).__name__, error)
else:
    print("no error")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.promise("engine-read-only")
def test_a_file_that_may_not_be_written_is_read_and_a_write_is_told(open_folder: Path) -> None:
    """A book on a read-only file system, such as a mounted backup, could not even be read."""
    path = open_folder / "book.db"
    expected = filled(path)
    files = sorted(file.name for file in open_folder.iterdir())
    for file in open_folder.iterdir():
        file.chmod(0o444)
    open_folder.chmod(0o555)
    told = attempt(path, "book.space('user', 'u1').files.write('/n', 'x')")
    assert told.startswith(
        "ConfigurationError the book is read-only; nothing was changed, make its file and its folder"
    )
    read = "print(book.space('user', 'u1').files.read('/n/3') == 'words of note 3 ' * 50, book.verify())"
    assert attempt(path, read) == "True []\nno error\n"
    found = "print(book.space('user', 'u1').search('words of note 7').hits[0].key[:3])"
    assert attempt(path, found) == "/n/\nno error\n"
    open_folder.chmod(0o755)
    assert sorted(file.name for file in open_folder.iterdir()) == files
    for file in open_folder.iterdir():
        file.chmod(0o644)
    assert is_whole(path, expected)


@pytest.mark.promise("engine-read-only")
def test_a_read_only_file_system_is_read(small_disk: Path, tmp_path: Path) -> None:
    path = small_disk / "book.db"
    expected = filled(path)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with open_file(path) as book:
        assert texts(book) == expected
        assert book.verify() == []
        book.backup(tmp_path / "copy.db")
        with pytest.raises(ConfigurationError, match="the book is read-only"):
            book.space("user", "u1").files.write("/n", "x")
    assert is_whole(tmp_path / "copy.db", expected)


def test_a_folder_that_may_not_be_written_is_told(open_folder: Path) -> None:
    open_folder.chmod(0o555)
    told = attempt(open_folder / "new.db", "pass")
    assert told.startswith("ConfigurationError")
    assert str(open_folder / "new.db") in told
    assert list(open_folder.iterdir()) == []


def test_a_missing_folder_and_a_folder_in_place_of_a_file_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="folder does not exist"):
        open_file(tmp_path / "missing" / "book.db")
    with pytest.raises(ConfigurationError, match=r"cannot|access"):
        open_file(tmp_path)
    assert list(tmp_path.iterdir()) == [] or all("book" not in file.name for file in tmp_path.iterdir())


# Not a book, or a damaged one


def test_a_file_that_is_no_database_is_told_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    text = "These are my notes and no database at all.\n" * 100
    path.write_text(text)
    with pytest.raises(Corrupt, match=r"not a database.*backup"):
        open_file(path)
    assert path.read_text() == text


def test_another_programs_database_is_told_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE mine (a); INSERT INTO mine VALUES (1)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match=r"another program.*choose another file"):
        open_file(path)
    assert path.read_bytes() == before


def test_a_book_of_a_newer_program_is_told_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "book.db"
    filled(path)
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE newer (a); PRAGMA user_version = 99")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match=r"newer commonplace.*schema 99.*upgrade"):
        open_file(path)
    assert path.read_bytes() == before


def test_an_empty_file_becomes_a_book(tmp_path: Path) -> None:
    path = tmp_path / "book.db"
    path.touch()
    assert is_whole(path, {})


@pytest.mark.promise("engine-damage-told")
@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.9])
def test_damage_is_found_and_told_never_answered_over(tmp_path: Path, share: float) -> None:
    path = tmp_path / "book.db"
    expected = filled(path)
    data = bytearray(path.read_bytes())
    start = int(len(data) * share) // 4096 * 4096
    data[start : start + 8192] = b"\xa5" * min(8192, len(data) - start)
    path.write_bytes(bytes(data))
    told: list[str] = []
    try:
        with open_file(path) as book:
            told = book.verify()
            assert texts(book) == expected
    except Corrupt as error:
        told.append(str(error))
        is_helpful = "backup" in told[-1] and any(
            str(path) in said for said in [*told, *getattr(error, "__notes__", ())]
        )
    else:
        is_helpful = True
    assert told
    assert is_helpful


def test_a_damaged_keyword_index_is_found_and_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "book.db"
    expected = filled(path)
    with open_file(path) as book:
        book.store.maintain()  # no entry waits for its keywords any more
    connection = apsw.Connection(str(path))
    connection.execute("INSERT INTO keywords (keywords) VALUES ('delete-all')")
    connection.close()
    with open_file(path) as book:
        (problem,) = book.verify()
        assert "keyword index" in problem
        assert "reindex" in problem
        book.rebuild_keywords()
        assert book.verify() == []
    assert is_whole(path, expected)


# Others in the way


def test_a_database_locked_beyond_the_wait_is_told_and_readable(tmp_path: Path) -> None:
    path = tmp_path / "book.db"
    expected = filled(path)
    other = apsw.Connection(str(path))
    with open_file(path, busy_seconds=0.2) as book:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match=r"locked by another program; nothing was changed, try again"):
            book.space("user", "u1").files.write("/new", "x")
        assert texts(book) == expected
        other.execute("ROLLBACK")
        book.space("user", "u1").files.write("/new", "x")
    other.close()
    assert is_whole(path, {**expected, "/new": "x"})


@pytest.mark.parametrize("suffix", ["-turn", "-lock"])
def test_a_queue_that_does_not_move_is_told(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "book.db"
    expected = filled(path)
    with open_file(path, busy_seconds=0.2) as book, Path(f"{path}{suffix}").open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(Unavailable, match=r"another process .* nothing was changed, try again"):
            book.space("user", "u1").files.write("/new", "x")
        assert texts(book) == expected
        fcntl.flock(held, fcntl.LOCK_UN)
        book.space("user", "u1").files.write("/new", "x")


def test_threads_that_wait_behind_a_lock_are_all_told_and_wait_no_longer_than_was_said(tmp_path: Path) -> None:
    path = tmp_path / "book.db"
    filled(path)
    waits: list[float] = []
    with open_file(path, busy_seconds=1) as book, Path(f"{path}-lock").open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)

        def write(number: int) -> None:
            begin = time.monotonic()
            with pytest.raises(Unavailable, match="more than 1 s"):
                book.space("user", "u1").files.write(f"/t{number}", "x")
            waits.append(time.monotonic() - begin)

        threads = [threading.Thread(target=write, args=(number,)) for number in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=30)
        assert len(waits) == 5
        assert max(waits) < 2.5, waits
        fcntl.flock(held, fcntl.LOCK_UN)
        book.space("user", "u1").files.write("/t9", "x")


# Another file in its place


def kill_writer(path: Path, copy: Path) -> dict[str, str]:
    """Back a book up, write on and die, so that its log stays; what is in the backup."""
    expected = filled(path)
    script = f"""
import os, commonplace
book = commonplace.open({str(path)!r}, background=False)
book.backup({str(copy)!r})
for number in range(40):
    book.space("user", "u1").files.write(f"/later/{{number}}", "words " * 200)
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    return expected


def test_a_backup_beside_the_log_of_another_file_is_told_and_left_alone(tmp_path: Path) -> None:
    path, log = tmp_path / "book.db", tmp_path / "book.db-wal"
    expected = kill_writer(path, tmp_path / "copy.db")
    shutil.copy(tmp_path / "copy.db", path)
    before = path.read_bytes(), log.read_bytes()
    with pytest.raises(ConfigurationError, match=r"Nothing was changed; move .*book.db-wal and .*book.db-shm away"):
        open_file(path)
    assert (path.read_bytes(), log.read_bytes()) == before
    log.unlink()
    (tmp_path / "book.db-shm").unlink()
    assert is_whole(path, expected)


def test_the_log_of_a_book_whose_program_died_is_its_own(tmp_path: Path) -> None:
    path = tmp_path / "book.db"
    expected = kill_writer(path, tmp_path / "copy.db")
    assert is_whole(path, {**expected, **{f"/later/{number}": "words " * 200 for number in range(40)}})


@pytest.mark.promise("engine-lost-file")
@pytest.mark.parametrize("happened", ["deleted", "moved", "replaced"])
def test_a_book_whose_file_is_gone_takes_no_more_writes(tmp_path: Path, happened: str) -> None:
    path, copy, aside = tmp_path / "book.db", tmp_path / "copy.db", tmp_path / "aside.db"
    expected = filled(path)
    with open_file(path) as book:
        book.backup(copy)
        if happened == "deleted":
            path.unlink()
        elif happened == "moved":
            path.rename(aside)
        else:
            copy.replace(path)
        files = sorted(tmp_path.iterdir())
        with pytest.raises(
            Unavailable, match=r"moved, replaced or deleted .* nothing was changed, open it again"
        ) as told:
            book.space("user", "u1").files.write("/lost", "x")
        assert told.value.__notes__ == [f"the book is {path}"]
        with ThreadPoolExecutor(1) as pool, pytest.raises(Unavailable, match="moved, replaced or deleted"):
            pool.submit(texts, book).result(30)
        assert sorted(tmp_path.iterdir()) == files
        if happened == "moved":
            aside.rename(path)
            book.space("user", "u1").files.write("/back", "x")
            expected["/back"] = "x"
    if happened == "deleted":
        copy.rename(path)
    assert is_whole(path, expected)


def test_a_book_stays_the_same_when_the_program_changes_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with open_file(Path("book.db")) as book, ThreadPoolExecutor(1) as pool:
        monkeypatch.chdir(tmp_path / "elsewhere")
        book.space("user", "u1").files.write("/n", "x")
        assert pool.submit(texts, book).result(30) == {"/n": "x"}
    assert list((tmp_path / "elsewhere").iterdir()) == []


# After the end


@pytest.mark.parametrize("url", ["file", ":memory:"])
def test_a_closed_book_says_so(tmp_path: Path, url: str) -> None:
    book = open_file(tmp_path / "book.db" if url == "file" else Path(url))
    space = book.space("user", "u1")
    space.files.write("/n", "x")
    book.close()
    book.close()
    for call in (
        lambda: space.files.read("/n"),
        lambda: space.files.write("/n", "y"),
        lambda: space.search("x"),
        lambda: space.history("file", "/n"),
        book.stats,
        book.verify,
    ):
        with pytest.raises(Unavailable, match="closed; open it again"):
            call()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_book_opened_before_a_fork_says_so_and_the_parent_goes_on(tmp_path: Path) -> None:
    script = f"""
import os, commonplace
book = commonplace.open({str(tmp_path / "book.db")!r}, background=False)
space = book.space("user", "u1")
space.files.write("/n", "before")
child = os.fork()
if not child:
    for call in (lambda: space.files.read("/n"), lambda: space.files.write("/n", "child")):
        try:
            call()
        except commonplace.Unavailable as error:
            assert "fork; open it again" in str(error), error
        else:
            os._exit(1)
    book.close()
    own = commonplace.open({str(tmp_path / "book.db")!r}, background=False)
    own.space("user", "u1").files.write("/child", "x")
    own.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
space.files.append("/n", "after")
assert space.files.read("/n") == "before\\nafter"
assert space.files.read("/child") == "x"
assert book.verify() == []
book.close()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
