"""Kill a writer at many points and check the result: nothing acknowledged may be lost, nothing may be half-written.

A child writes a fixed stream of changes and acknowledges each on its standard output once it is durable. It is killed
by SIGKILL: at the K-th write, sync or truncation of a file, for many K, where strace can do that, and at random times.
Then the book is opened again and compared with the stream, its indexes are checked, and it is written to.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import commonplace

LABELS = ("user", "crash")
STEPS = 4_000
FILES = 5
PADDING = "padding " * 40
CALLS = ("pwrite64", "fdatasync", "fsync", "ftruncate", "unlink")


@dataclass
class State:
    """What the stream has created: texts by path, and the tags of the one record."""

    files: dict[str, str] = field(default_factory=dict)
    tags: set[str] = field(default_factory=set)


def apply_to_model(state: State, step: int) -> None:
    path = f"/notes/{step % FILES}"
    kind = _kind(step)
    if kind == "record":
        state.tags.add(f"t{step % 15}")
    elif kind == "delete":
        state.files.pop(path, None)
    elif kind == "move":
        if path in state.files and f"{path}-moved" not in state.files:
            state.files[f"{path}-moved"] = state.files.pop(path)
        elif path in state.files:
            state.files.pop(f"{path}-moved")
    else:
        old = state.files.get(path, "")
        gap = "" if not old or old.endswith("\n") else "\n"
        state.files[path] = f"{old}{gap}{_line(step)}"


def apply_to_book(space: commonplace.Space, step: int) -> None:
    path = f"/notes/{step % FILES}"
    kind = _kind(step)
    if kind == "record":
        space.records.create(
            type="note", content={"text": "one record"}, source="crash", confidence=0.5, tags=[f"t{step % 15}"]
        )
    elif kind == "delete":
        space.files.delete(path)
    elif kind == "move":
        if space.files.exists(path) and not space.files.exists(f"{path}-moved"):
            space.files.move(path, f"{path}-moved")
        elif space.files.exists(path):
            space.files.delete(f"{path}-moved")
    else:
        space.files.append(path, _line(step))


def _kind(step: int) -> str:
    return {3: "record", 8: "record", 17: "move", 29: "delete"}.get(step % 31, "append")


def _line(step: int) -> str:
    return f"step {step} word{step} {PADDING if step % 7 == 0 else ''}"


def read_state(space: commonplace.Space) -> State:
    files = {info.path: space.files.read(info.path) for info in space.files.walk() if info.kind == "file"}
    records = space.records.list().records
    assert len(records) <= 1, f"{len(records)} copies of one record"
    return State(files, set(records[0].tags) if records else set())


def write_stream(book_path: str, first: int, checkpoint_pages: int) -> None:
    """The child: continue the stream and acknowledge each step."""
    from commonplace.backends.sqlite import store as sqlite_store

    sqlite_store.CHECKPOINT_PAGES = checkpoint_pages  # small, so that kills also happen during checkpoints
    with commonplace.open(book_path, background=False) as book:
        space = book.space(*LABELS)
        for step in range(first, STEPS):
            apply_to_book(space, step)
            os.write(1, f"{step}\n".encode())


@dataclass
class Tally:
    kills: int = 0
    acknowledged: int = 0
    lost: list[str] = field(default_factory=list)


class Trial:
    """One book that is written, killed and checked again and again."""

    def __init__(self, folder: Path, tally: Tally) -> None:
        self.path = folder / "book.db"
        self.tally = tally
        self.state = State()
        self.next_step = 0

    def run(self, prefix: list[str], kill_after: float | None) -> None:
        command = [*prefix, sys.executable, __file__, "--child", str(self.path), str(self.next_step)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
        if kill_after is not None:
            time.sleep(kill_after)
        else:
            with suppress(subprocess.TimeoutExpired):  # a child that never gets that far is killed here
                child.wait(timeout=20)
        if child.poll() is None or kill_after is not None:
            _kill_group(child)
        output = child.communicate()[0]
        acknowledged = [int(line) for line in output.split(b"\n")[:-1]]
        self.tally.kills += 1
        self.tally.acknowledged += len(acknowledged)
        self.check(acknowledged[-1] if acknowledged else self.next_step - 1)

    def check(self, last: int) -> None:
        while self.next_step <= last:
            apply_to_model(self.state, self.next_step)
            self.next_step += 1
        with commonplace.open(self.path, background=False) as book:
            found = read_state(book.space(*LABELS))
            if found != self.state:
                apply_to_model(self.state, self.next_step)  # done, but killed before it could acknowledge
                self.next_step += 1
            if found != self.state:
                self.tally.lost.append(f"after step {last}: {_difference(found, self.state)}")
            self.tally.lost += [f"after step {last}: {problem}" for problem in book.verify()]
            space = book.space(*LABELS)
            apply_to_book(space, self.next_step)
            apply_to_model(self.state, self.next_step)
            self.next_step += 1
            if read_state(space) != self.state:
                self.tally.lost.append(f"writing does not continue after step {last}")


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(child.pid, signal.SIGKILL)  # its own group: start_new_session
    except ProcessLookupError:
        return


def _difference(found: State, expected: State) -> str:
    paths = sorted(
        path for path in found.files.keys() | expected.files.keys() if found.files.get(path) != expected.files.get(path)
    )
    return f"files {paths}, tags {sorted(found.tags ^ expected.tags)}"


def strace_works() -> bool:
    if shutil.which("strace") is None:
        return False
    probe = subprocess.run(["strace", "-f", "-e", "trace=none", "true"], capture_output=True, check=False)
    return probe.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--short", action="store_true", help="at most a minute")
    parser.add_argument("--seconds", type=float, help="stop after so long")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--child", nargs=2, metavar=("BOOK", "STEP"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        write_stream(arguments.child[0], int(arguments.child[1]), checkpoint_pages=30)
        return 0
    seconds = arguments.seconds or (45 if arguments.short else 270)
    chance = random.Random(arguments.seed)
    injects = strace_works()
    tally = Tally()
    deadline = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(Path(folder), tally)
        while time.monotonic() < deadline and not tally.lost:
            if trial.next_step > STEPS - 500:
                trial = Trial(Path(tempfile.mkdtemp(dir=folder)), tally)
            if injects and tally.kills % 4 != 3:
                call = chance.choice(CALLS)
                point = chance.randint(1, {"pwrite64": 250, "fdatasync": 60}.get(call, 4))
                moment = f"inject={call}:signal=SIGKILL:when={point}"
                prefix = ["strace", "-f", "-o", "/dev/null", "-e", f"trace={','.join(CALLS)}", "-e", moment]
                trial.run(prefix, None if call in ("pwrite64", "fdatasync") else chance.uniform(0.5, 2.0))
            else:
                trial.run([], chance.uniform(0.3, 1.0))
    how = "at file operations and at random times" if injects else "at random times"
    print(f"{tally.kills} kills {how}, {tally.acknowledged} acknowledged writes checked, {len(tally.lost)} lost")
    for problem in tally.lost:
        print(problem)
    return 1 if tally.lost or not tally.kills or not tally.acknowledged else 0


if __name__ == "__main__":
    sys.exit(main())
