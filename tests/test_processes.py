"""Several processes on one book are normal: nothing is lost, nobody is told "locked", nobody starves."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

import commonplace
from commonplace.checks import Namespace
from doubles import rounds

PROCESSES = 8
PREAMBLE = """
import sys, time
import commonplace
from commonplace.entry import Draft
path, number = sys.argv[1], int(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
"""


class Worker:
    """A process that runs a script when told to."""

    def __init__(self, script: str, path: Path, number: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PREAMBLE + script, str(path), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_until_ready(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n", self.process.communicate()[1]

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def result(self) -> str:
        output, errors = self.process.communicate(timeout=120)
        assert (self.process.returncode, errors) == (0, "")
        return output


def run_together(script: str, path: Path, count: int = PROCESSES) -> list[str]:
    workers = [Worker(script, path, number) for number in range(count)]
    for worker in workers:
        worker.wait_until_ready()
    for worker in workers:
        worker.go()
    return [worker.result() for worker in workers]


@pytest.mark.promise("engine-many-processes")
@pytest.mark.promise("records-upsert-atomic")
def test_processes_that_write_the_same_file_and_record_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "book.db"
    run_together(
        """
with commonplace.open(path, background=False) as book:
    space = book.space("user", "shared")
    for step in range(25):
        space.files.append("/log", f"{number}-{step}")
        tags, confidence = [f"p{number}"], number / 10
        space.records.create(type="n", content={"b": 1, "a": [2]}, source="s", confidence=confidence, tags=tags)
        space.files.write(f"/own/{number}", str(step))
""",
        path,
    )
    with commonplace.open(path, background=False) as book:
        space = book.space("user", "shared")
        lines = space.files.read("/log").split("\n")
        assert sorted(lines) == sorted(f"{number}-{step}" for number in range(PROCESSES) for step in range(25))
        for number in range(PROCESSES):  # each process's own lines in its own order
            assert [line for line in lines if line.startswith(f"{number}-")] == [
                f"{number}-{step}" for step in range(25)
            ]
        (record,) = space.records.list().records
        assert set(record.tags) == {f"p{number}" for number in range(PROCESSES)}
        assert record.confidence == 0.7
        assert record.revision == PROCESSES * 25
        assert [info.path for info in space.files.list("/own")] == [f"/own/{number}" for number in range(PROCESSES)]
        commits = [change.commit for change in space.changes(limit=10_000)]
        assert sorted(set(commits)) == list(range(1, PROCESSES * 75 + 1))
        assert book.verify() == []


@pytest.mark.promise("engine-short-writers-load-nothing")
def test_many_programs_that_append_a_few_lines_each_all_succeed_and_load_no_model(tmp_path: Path) -> None:
    """Of 32 to 64 programs that appended at the same time some gave up after 10 s, since each loaded the model."""
    path = tmp_path / "book.db"
    loaded = run_together(
        """
with commonplace.open(path) as book:
    for step in range(5):
        book.space("user", "shared").files.append("/log", f"{number}-{step}")
print("onnxruntime" in sys.modules)
""",
        path,
        count=32,
    )
    assert set(loaded) == {"False\n"}
    with commonplace.open(path, background=False) as book:
        assert len(book.space("user", "shared").files.read("/log").split("\n")) == 160


def written_by_all(path: Path) -> list[Namespace]:
    """Open a book in every process at once, and write; the namespaces that it has then."""
    run_together(
        """
with commonplace.open(path, background=False) as book:
    book.space("user", f"u{number}").files.write("/hello", str(number))
""",
        path,
    )
    with commonplace.open(path, background=False) as book:
        assert book.verify() == []
        return book.namespaces("user")


def test_a_new_book_may_be_opened_by_many_processes_at_once(tmp_path: Path) -> None:
    for attempt in range(rounds(3)):
        assert written_by_all(tmp_path / f"new{attempt}.db") == [("user", f"u{number}") for number in range(PROCESSES)]


def test_a_backup_may_be_opened_by_many_processes_at_once(tmp_path: Path) -> None:
    with commonplace.open(tmp_path / "book.db", background=False) as book:
        book.space("user", "before").files.write("/hello", "text")
        for attempt in range(rounds(3)):
            book.backup(tmp_path / f"copy{attempt}.db")
    for attempt in range(rounds(3)):
        assert len(written_by_all(tmp_path / f"copy{attempt}.db")) == PROCESSES + 1


@pytest.mark.promise("engine-many-processes")
def test_a_writer_without_pause_starves_nobody(tmp_path: Path) -> None:
    path = tmp_path / "book.db"
    commonplace.open(path, background=False).close()
    busy = Worker(
        """
import threading
book = commonplace.open(path, background=False)
stop = threading.Event()
def write(name):
    while not stop.is_set():
        book.store.write(("user", name), lambda transaction: transaction.put(Draft("file", "k", "x")))
threads = [threading.Thread(target=write, args=(f"busy{n}",)) for n in range(4)]
for thread in threads: thread.start()
print("busy", flush=True)
sys.stdin.readline()
stop.set()
for thread in threads: thread.join()
book.close()
""",
        path,
        0,
    )
    busy.wait_until_ready()
    busy.go()
    assert busy.process.stdout is not None
    assert busy.process.stdout.readline() == "busy\n"
    waits = []
    with commonplace.open(path, background=False) as book:
        space = book.space("user", "other")
        for step in range(60):
            begin = time.monotonic()
            space.files.write("/note", str(step))
            waits.append(time.monotonic() - begin)
        assert space.files.read("/note") == "59"
    busy.go()
    busy.result()
    assert max(waits) < 2.0, f"waited {max(waits):.2f} s"


def test_a_reader_in_another_process_sees_every_acknowledged_write_at_once(tmp_path: Path) -> None:
    path = tmp_path / "book.db"
    with commonplace.open(path, background=False) as book:
        space = book.space("user", "u1")
        space.files.write("/n", "0")
        reader = Worker(
            """
with commonplace.open(path, background=False) as book:
    for _ in range(20):
        print(book.space("user", "u1").files.read("/n"), flush=True)
        sys.stdin.readline()
""",
            path,
            0,
        )
        reader.wait_until_ready()
        assert reader.process.stdout is not None
        for step in range(20):
            space.files.write("/n", str(step))
            reader.go()
            assert reader.process.stdout.readline() == f"{step}\n"
        reader.go()
        reader.result()
