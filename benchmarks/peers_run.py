"""Measuring one system: its adapter is a process of its own that is asked in JSON lines, every step within a limit."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from engine_report import quantile
from peers_install import ROOT, NotThere, installed_bytes
from peers_targets import Target

GRACE_SECONDS = 60.0
"""Beyond a step's limit, which an adapter looks at between two calls."""
STARTS = 5
SINGLE_ADDS = 300
TOGETHER_ADDS = 600
CLIENTS = 8
PROCESSES = 4
ADDS_A_PROCESS = 100
TRACED_ADDS = 10
QUERIES = 100
EXTRA_TEXTS = max(SINGLE_ADDS + 2 * TRACED_ADDS, PROCESSES * ADDS_A_PROCESS)


@dataclass(frozen=True, slots=True)
class Search:
    """At one size: the times, the hits of a query, what the process holds; `seconds` is how long filling took."""

    size: int
    times: Sequence[float]
    hits: float
    resident: int
    seconds: float
    baseline: Sequence[float] = ()

    def at(self, share: float) -> float:
        return quantile(self.times, share)


@dataclass(slots=True)
class Measured:
    """A row, as far as it came; `problem` says where it ended."""

    target: Target
    installed: int = 0
    starts: list[float] = field(default_factory=list)
    single: list[float] = field(default_factory=list)
    together: list[float] = field(default_factory=list)
    together_seconds: float = 0.0
    syncs: float | None = None
    journals: tuple[str, ...] = ()
    searches: list[Search] = field(default_factory=list)
    acknowledged: int = 0
    found: int = 0
    refused: int = 0
    unreached: int = 0
    refusal: str = ""
    broken_by_clients: str = ""
    """What a search says after several clients have added at once."""
    problem: str = ""

    @property
    def adds_a_second(self) -> float:
        return len(self.together) / self.together_seconds if self.together_seconds else 0.0

    @property
    def is_durable(self) -> bool:
        return not self.target.loses_all and not self.target.unsynced and (self.syncs or 0) >= 1


class Adapter:
    """A peer's process; leaving the block ends it."""

    def __init__(self, command: Sequence[str], folder: Path, data: Path) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": ""},
            start_new_session=True,
        )
        self._open = {"do": "open", "folder": str(folder), "data": str(data)}

    def open(self) -> dict[str, Any]:
        return self.ask(**self._open)

    def send(self, **request: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self, seconds: float) -> dict[str, Any]:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        if not ready:
            raise NotThere(f"no answer within {seconds:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            self._log.seek(0)
            said = [one for one in self._log.read().decode(errors="replace").splitlines() if one.strip()]
            raise NotThere(f"ended: {said[-1][:200] if said else 'without a word'}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise NotThere(answer["error"])
        return answer

    def ask(self, **request: object) -> dict[str, Any]:
        seconds = request.get("seconds", 0.0)
        assert isinstance(seconds, float)
        self.send(**request)
        return self.answer(seconds + GRACE_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.ask(do="close")
        finally:
            with suppress(ProcessLookupError):  # it has ended by itself, and its children with it
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self._log.close()


@dataclass(frozen=True, slots=True)
class Run:
    """What holds for every peer of a run."""

    environments: Path
    data: Path
    sizes: tuple[int, ...]
    limit_seconds: float
    tell: Callable[[str], None]

    def measure(self, target: Target) -> Measured:
        measured = Measured(target)
        folder = Path(tempfile.mkdtemp(prefix="commonplace-peer-"))
        try:
            self.tell(f"{target.name}: installing")
            command = target.prepare(self.environments / target.environment)
            measured.installed = installed_bytes(self.environments / target.environment)
            for step in (self._load, self._together, self._start, self._lose):
                step(measured, command, folder)
        except NotThere as error:
            measured.problem = str(error)
            self.tell(f"{target.name}: {error}")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        for name in ("problem", "refusal", "broken_by_clients"):
            setattr(measured, name, getattr(measured, name).replace(f"{folder}/", ""))
        return measured

    def _load(self, measured: Measured, command: Sequence[str], folder: Path) -> None:
        """Adds on a new store, then searches at each size that it reaches."""
        limit = self.limit_seconds
        first = self.sizes[-1]
        store = folder / "store"
        store.mkdir()
        with Adapter(command, store, self.data) as adapter:
            adapter.open()
            adapter.ask(do="add", first=first, count=TRACED_ADDS, clients=1, seconds=limit)
            first += TRACED_ADDS
            measured.syncs = _syncs(adapter, first)
            measured.journals = _journals(store)
            first += TRACED_ADDS
            self.tell(f"{measured.target.name}: adding")
            one = adapter.ask(do="add", first=first, count=SINGLE_ADDS, clients=1, seconds=limit / 4)
            measured.single = one["times"]
            measured.refused, measured.refusal = one["failed"], one["failure"]
            there = len(measured.single) + 2 * TRACED_ADDS
            filled = 0
            for number, size in enumerate(self.sizes):
                self.tell(f"{measured.target.name}: searching {size:,}")
                wanted = max(0, size - there - filled)
                answer = adapter.ask(do="fill", first=filled, count=wanted, seconds=2 * limit)
                filled += answer["added"]
                # Before the searches: what some of them are compared with takes memory as well.
                last = len(self.sizes) * (QUERIES + 1) + 2 * number
                adapter.ask(do="search", first=last, count=1, seconds=limit / 2)
                resident = adapter.ask(do="memory")["bytes"]
                found = adapter.ask(
                    do="search",
                    first=number * (QUERIES + 1),
                    count=QUERIES,
                    seconds=limit / 2,
                    beside=measured.target.name == BESIDE,
                )
                measured.searches.append(
                    Search(
                        there + filled, found["times"], found["hits"], resident, answer["seconds"], found["baseline"]
                    )
                )
                if answer["added"] < wanted:
                    break

    def _together(self, measured: Measured, command: Sequence[str], folder: Path) -> None:
        """Several clients of one process add at once, to a store of their own; then it is searched, as a check."""
        self.tell(f"{measured.target.name}: {CLIENTS} clients")
        store = folder / "together"
        store.mkdir()
        limit = self.limit_seconds / 4
        try:
            with Adapter(command, store, self.data) as adapter:
                adapter.open()
                adapter.ask(do="add", first=0, count=TRACED_ADDS, clients=1, seconds=limit)
                many = adapter.ask(do="add", first=TRACED_ADDS, count=TOGETHER_ADDS, clients=CLIENTS, seconds=limit)
                measured.together, measured.together_seconds = many["times"], many["seconds"]
                measured.refused += many["failed"]
                measured.refusal = many["failure"] or measured.refusal
                adapter.ask(do="search", first=0, count=1, seconds=limit)
        except NotThere as error:
            measured.broken_by_clients = str(error)

    def _start(self, measured: Measured, command: Sequence[str], folder: Path) -> None:
        """A server to its answer to `initialize`, a library to the first answer to a search, on 100 memories."""
        self.tell(f"{measured.target.name}: starting")
        if measured.target.server is not None:
            command = measured.target.server(self.environments / measured.target.environment)
        store = folder / "small"
        store.mkdir()
        with Adapter(command, store, self.data) as adapter:
            adapter.open()
            adapter.ask(do="fill", first=0, count=100, seconds=self.limit_seconds / 4)
        while len(measured.starts) < STARTS and sum(measured.starts) < self.limit_seconds:
            began = time.perf_counter()
            with Adapter(command, store, self.data) as adapter:
                started = adapter.open()["started"]
                if started is None:
                    adapter.ask(do="search", first=0, count=1, seconds=self.limit_seconds / 4)
                    started = time.perf_counter() - began
                measured.starts.append(started)

    def _lose(self, measured: Measured, command: Sequence[str], folder: Path) -> None:
        """Several processes add to one store at once; what a new process then finds."""
        if measured.target.loses_all:
            return
        self.tell(f"{measured.target.name}: {PROCESSES} processes")
        store = folder / "shared"
        store.mkdir()
        with Adapter(command, store, self.data) as adapter:
            adapter.open()
            adapter.ask(do="add", first=0, count=1, clients=1, seconds=self.limit_seconds)
        first, refused = self.sizes[-1], 0
        adapters = [Adapter(command, store, self.data) for _ in range(PROCESSES)]
        at_work: list[Adapter] = []
        for adapter in adapters:
            try:
                adapter.open()
                at_work.append(adapter)
            except NotThere as error:
                refused += ADDS_A_PROCESS
                measured.refusal = str(error)
        for number, adapter in enumerate(at_work):
            start = first + number * ADDS_A_PROCESS
            adapter.send(do="add", first=start, count=ADDS_A_PROCESS, clients=1, seconds=self.limit_seconds / 2)
        for adapter in at_work:
            answer = adapter.answer(self.limit_seconds + GRACE_SECONDS)
            measured.acknowledged += len(answer["times"])
            refused += answer["failed"]
            measured.refusal = answer["failure"] or measured.refusal
        measured.refused += refused
        for adapter in adapters:
            try:
                adapter.__exit__(None, None, None)
            except NotThere:
                continue  # it never opened
        with Adapter(command, store, self.data) as adapter:
            adapter.open()
            measured.unreached = PROCESSES * ADDS_A_PROCESS - measured.acknowledged - refused
            measured.found = adapter.ask(do="found", first=first, count=PROCESSES * ADDS_A_PROCESS)["found"]


BESIDE = "commonplace with its model"
"""The row whose searches take turns with the model's own time and an exact scan."""


def _syncs(adapter: Adapter, first: int) -> float | None:
    """How often one add waits for the disk, as the kernel sees it; None where strace is missing."""
    program = shutil.which("strace")
    ids = adapter.ask(do="memory")["ids"]
    if program is None:
        return None
    with tempfile.NamedTemporaryFile("r") as seen:
        attach = [word for process_id in ids for word in ("-p", str(process_id))]
        trace = ["-f", "-qq", "-e", "trace=fsync,fdatasync,msync,sync_file_range", "-e", "signal=none"]
        watching = subprocess.Popen([program, *trace, "-o", seen.name, *attach], stderr=subprocess.PIPE)
        time.sleep(1.0)  # it says nothing when it has attached to every thread
        if watching.poll() is not None:
            return None
        adapter.ask(do="add", first=first, count=TRACED_ADDS, clients=1, seconds=30.0)
        watching.send_signal(signal.SIGINT)
        watching.wait()
        calls = [line for line in seen.read().splitlines() if "sync" in line and "resumed" not in line]
    return len(calls) / TRACED_ADDS


def _journals(store: Path) -> tuple[str, ...]:
    """How the SQLite files of a store keep a commit; the format's bytes 18 and 19 are 2 with a write-ahead log."""
    found: dict[str, None] = {}
    for path in store.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                head = file.read(20)
            if head.startswith(b"SQLite format 3"):
                found["WAL" if head[18] == 2 else "rollback journal"] = None
    return tuple(found)
