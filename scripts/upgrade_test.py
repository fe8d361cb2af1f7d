"""Upgrade a book of every former schema while programs of that schema use it.

The programs are those of the git history: for each step, the commit before the one that added it. A program of a former
schema makes a book and writes, reads and searches with several threads in two processes. Meanwhile the current program
upgrades it and is killed at random moments, until one upgrade completes. Then
  - every line that was acknowledged is there once, and `verify` finds nothing;
  - the programs that used it answered all the time, or reported that they must be restarted;
  - the current program writes and searches in the upgraded book;
  - a program of the former schema that is started on it refuses it, and says why.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import upgrade_worker

import commonplace

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT / "tests"))

WORKERS = 2
START_SECONDS = 120
UPGRADE = """
import sys, commonplace
print("begin", flush=True)
commonplace.open(sys.argv[1], background=False).close()
"""
OPEN = "import sys, commonplace; commonplace.open(sys.argv[1], background=False).close()"


@dataclass(frozen=True)
class Former:
    """The program of a former schema: its number, and the folder of its code."""

    schema: int
    source: Path

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(self.source), "PYTHONWARNINGS": "ignore"}


@dataclass
class Tally:
    acknowledged: int = 0
    kills: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


def git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True).stdout


def formers(backend: str, folder: Path) -> Iterator[Former]:
    """The program of each former schema of a backend, from the git history."""
    steps = f"src/commonplace/backends/{backend}/migrations"
    numbers = {int(match[1]): path for path in (ROOT / steps).iterdir() if (match := re.match(r"(\d{3})_", path.name))}
    for number in sorted(numbers)[1:]:
        added = git("log", "--diff-filter=A", "--format=%H", "-1", "--", f"{steps}/{numbers[number].name}").decode()
        before = f"{added.strip()}^" if added else "HEAD"  # a step that is not committed yet
        source = folder / f"{backend}-{number - 1}"
        with tarfile.open(fileobj=io.BytesIO(git("archive", before, "src"))) as archive:
            archive.extractall(source, filter="data")
        yield Former(number - 1, source / "src")


class Worker:
    """A process of `upgrade_worker.py` with the code of a former program."""

    def __init__(self, former: Former, url: str, name: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "upgrade_worker.py"), url, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=former.environment,
        )

    def wait_until_ready(self) -> None:
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise RuntimeError(f"a worker ended with {self._process.wait(START_SECONDS)}; its standard error says more")

    def end(self) -> tuple[dict[str, list[str]], dict[str, int]]:
        """Its acknowledged lines by file, and its errors."""
        result = json.loads(self._process.communicate(timeout=START_SECONDS)[0])
        return result["acknowledged"], result["errors"]

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def upgrade(url: str, kill_after: float | None) -> tuple[bool, str]:
    """Run the current program, and kill it after some seconds; returns whether it completed, and its last output."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", UPGRADE, url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    if kill_after is not None:
        time.sleep(kill_after)
        process.kill()
    output = process.communicate(timeout=START_SECONDS)[1]
    return process.returncode == 0, output.strip().rpartition("\n")[2]


def prove(former: Former, url: str, kills: int, chance: random.Random) -> Tally:
    tally = Tally()
    workers = [Worker(former, url, f"w{number}") for number in range(WORKERS)]
    try:
        for worker in workers:
            worker.wait_until_ready()
        while tally.kills < kills:
            is_done, _ = upgrade(url, chance.uniform(0, 0.4))
            tally.kills += 1
            if is_done:
                break
        is_done, output = upgrade(url, None)
        if not is_done:
            tally.faults.append(f"the upgrade failed: {output}")
        time.sleep(1)  # the former programs continue in the upgraded book
        ended = [worker.end() for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    acknowledged = {file: lines for files, _ in ended for file, lines in files.items()}
    tally.acknowledged = sum(map(len, acknowledged.values()))
    for _, errors in ended:
        tally.errors.update(errors)
    tally.faults += [f"a former program said: {error}" for error in tally.errors if "restart" not in error]
    tally.faults += look(url, acknowledged)
    tally.faults += refuse(former, url)
    return tally


def look(url: str, acknowledged: dict[str, list[str]]) -> Iterator[str]:
    with commonplace.open(url, embedder=upgrade_worker.Letters(), background=False) as book:
        space = book.space(*upgrade_worker.NAMESPACE)
        for file, lines in acknowledged.items():
            found = Counter(space.files.read(file).splitlines())
            if wrong := [line for line in lines if found[line] != 1]:
                yield f"{file}: {len(wrong)} of {len(lines)} acknowledged lines are lost or doubled: {wrong[0]!r} …"
        yield from (f"verify: {problem}" for problem in book.verify())
        space.files.write("/after", "xylophone quartz after the upgrade")
        if space.search("xylophone quartz").hits[0].key != "/after":
            yield "what the present program wrote is not found"


def refuse(former: Former, url: str) -> Iterator[str]:
    started = subprocess.run(
        [sys.executable, "-c", OPEN, url], env=former.environment, capture_output=True, text=True, timeout=START_SECONDS
    )
    if started.returncode == 0 or "newer commonplace" not in started.stderr:
        yield f"a former program was not refused: {started.stderr.strip() or 'it opened the book'}"


def postgres_book() -> Callable[[Path], str]:
    from postgres_server import DURABLE, PostgresServer  # type: ignore[import-not-found]

    server = PostgresServer(DURABLE)
    return lambda folder: f"{server.create_database()}?partitions=4"


def sqlite_book() -> Callable[[Path], str]:
    return lambda folder: str(folder / "book.db")


BACKENDS: dict[str, Callable[[], Callable[[Path], str]]] = {"postgres": postgres_book, "sqlite": sqlite_book}
"""For each backend a function that yields addresses of new, empty books, given a separate folder."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="once for each schema, under two minutes in all")
    parser.add_argument("--only", choices=sorted(BACKENDS), help="one backend alone")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    print(f"seed {arguments.seed}", flush=True)
    faults = 0
    for backend in [arguments.only] if arguments.only else sorted(BACKENDS):
        with tempfile.TemporaryDirectory(prefix="commonplace-upgrade-") as folder:
            new_book = BACKENDS[backend]()
            for former in formers(backend, Path(folder)):
                for turn in range(1 if arguments.short else 10):
                    place = Path(folder, f"book-{former.schema}-{turn}")
                    place.mkdir()
                    tally = prove(former, new_book(place), 3 if arguments.short else 10, chance)
                    print(
                        f"{backend} schema {former.schema}: {tally.acknowledged} lines, {tally.kills} killed upgrades, "
                        f"{sum(tally.errors.values())} calls asked to restart",
                        flush=True,
                    )
                    for fault in tally.faults:
                        print(f"  FAULT {fault}", flush=True)
                    faults += len(tally.faults)
    print(
        "nothing lost, nothing duplicated, and every program reported what to do" if not faults else f"{faults} faults"
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
