"""The run: all systems do every step in turns, in several rounds, so that figures of one run are comparable.

A system that fails leaves the step, and its row says so. Steps have a time limit.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from peers_install import NotThere, installed_bytes
from peers_measured import Measured, Search
from peers_process import GRACE_SECONDS, TRACED_ADDS, Adapter, journals, syncs
from peers_targets import Target

ROUNDS = 5
SINGLE_ADDS = 60
TOGETHER_ADDS = 120
QUERIES = 30
"""Of each round."""
CLIENTS = 8
PROCESSES = 4
ADDS_A_PROCESS = 100
SMALL = 100
"""Memories in the store that start-up is measured on."""
EXTRA_TEXTS = max(ROUNDS * SINGLE_ADDS + 2 * TRACED_ADDS, PROCESSES * ADDS_A_PROCESS)
WITH_BASELINE = "commonplace with its model"
"""The row whose searches are compared with the model's own time and an exact scan, round by round."""


def queries_needed(sizes: int) -> int:
    return sizes * (ROUNDS * (QUERIES + 1) + 2)


@dataclass(slots=True)
class Lane:
    """The state of a system in the run: its process of the current step, or None if it has left the step."""

    measured: Measured
    command: Sequence[str]
    folder: Path
    adapter: Adapter | None = None
    added: int = 0
    filled: int = 0

    @property
    def name(self) -> str:
        return self.measured.target.name

    @property
    def process(self) -> Adapter:
        assert self.adapter is not None
        return self.adapter


Step = Callable[[Lane, int], None]
"""What one system does in one round."""


@dataclass(slots=True)
class Run:
    """What all peers of a run share; `rows` are filled step by step."""

    environments: Path
    data: Path
    sizes: tuple[int, ...]
    limit_seconds: float
    tell: Callable[[str], None]
    rows: list[Measured] = field(default_factory=list)
    started: list[Adapter] = field(default_factory=list)

    def measure(self, targets: Sequence[Target]) -> None:
        root = Path(tempfile.mkdtemp(prefix="commonplace-peers-"))
        lanes: list[Lane] = []
        try:
            for target in targets:
                self._prepare(target, root, lanes)
            for part in (self._add, self._search, self._add_together, self._start, self._lose):
                part(lanes)
        finally:
            for adapter in self.started:
                adapter.kill()
            shutil.rmtree(root, ignore_errors=True)

    def _prepare(self, target: Target, root: Path, lanes: list[Lane]) -> None:
        self.tell(f"{target.name}: installing")
        measured = Measured(target)
        self.rows.append(measured)
        try:
            command = target.prepare(self.environments / target.environment)
        except NotThere as error:
            measured.problems.append(str(error))
            return
        measured.installed = installed_bytes(self.environments / target.environment)
        folder = root / str(len(lanes))
        folder.mkdir()
        lanes.append(Lane(measured, command, folder))

    # Turns

    def _turns(self, what: str, lanes: Sequence[Lane], step: Step, rounds: int = 1) -> None:
        """Each round has another order and starts after a sync, because pending writes would slow the syncs of the next
        system.
        """
        for number in range(rounds):
            self.tell(f"{what}, round {number + 1} of {rounds}")
            for lane in random.Random(number).sample(lanes, len(lanes)) if rounds > 1 else lanes:
                if lane.adapter is not None:
                    os.sync()
                    self._take(what, lane, step, number)

    def _take(self, what: str, lane: Lane, step: Step, number: int) -> None:
        try:
            step(lane, number)
        except NotThere as error:
            said = str(error).replace(f"{lane.folder}/", "").rstrip(".")
            lane.measured.problems.append(f"{what}: {said}")
            self.tell(f"{lane.name}: {what}: {said}")
            if lane.adapter is not None:
                lane.adapter.kill()
                lane.adapter = None

    def _adapter(self, lane: Lane, store: str) -> Adapter:
        adapter = Adapter(lane.command, lane.folder / store, self.data)
        self.started.append(adapter)
        return adapter

    def _open(self, what: str, lanes: Sequence[Lane], store: str) -> None:
        def begin(lane: Lane, number: int) -> None:
            lane.adapter = self._adapter(lane, store)
            lane.adapter.open()

        for lane in lanes:
            self._take(what, lane, begin, 0)

    def _close(self, what: str, lanes: Sequence[Lane]) -> None:
        def end(lane: Lane, number: int) -> None:
            adapter, lane.adapter = lane.process, None
            adapter.close()

        self._turns(f"after {what}", lanes, end)

    def _settle(self, lane: Lane) -> None:
        """Let it finish its background work, which would disturb the next system."""
        lane.process.ask(do="fill", first=0, count=0, seconds=self.limit_seconds)

    # The steps

    def _add(self, lanes: Sequence[Lane]) -> None:
        """One client on a new store, which the searches then use."""
        first = self.sizes[-1]

        def look(lane: Lane, number: int) -> None:
            lane.process.ask(do="add", first=first, count=TRACED_ADDS, clients=1, seconds=self.limit_seconds)
            lane.measured.syncs = syncs(lane.process, first + TRACED_ADDS)
            lane.measured.journals = journals(lane.folder / "store")
            lane.added = 2 * TRACED_ADDS

        def add(lane: Lane, number: int) -> None:
            start = first + 2 * TRACED_ADDS + number * SINGLE_ADDS
            seconds = self.limit_seconds / 10
            answer = lane.process.ask(do="add", first=start, count=SINGLE_ADDS, clients=1, seconds=seconds)
            lane.measured.single.append(answer["times"])
            lane.measured.refuse(answer["failed"], answer["failure"])
            lane.added += len(answer["times"])
            self._settle(lane)

        self._open("add", lanes, "store")
        self._turns("add", lanes, look)
        self._turns("add", lanes, add, ROUNDS)

    def _search(self, lanes: Sequence[Lane]) -> None:
        """At each size that a system reaches within the limit; otherwise at the size that it reached."""
        for place, size in enumerate(self.sizes):
            first = place * (ROUNDS * (QUERIES + 1) + 2)

            def fill(lane: Lane, number: int, size: int = size, first: int = first) -> None:
                wanted = max(0, size - lane.added - lane.filled)
                seconds = self.limit_seconds * (4 if size == self.sizes[-1] else 2)
                answer = lane.process.ask(do="fill", first=lane.filled, count=wanted, seconds=seconds)
                lane.filled += answer["added"]
                # Before the searches, because what some of them are compared with uses memory too.
                lane.process.ask(do="search", first=first, count=1, seconds=self.limit_seconds / 2)
                resident = lane.process.ask(do="memory")["bytes"]
                search = Search(lane.added + lane.filled, resident, answer["seconds"])
                lane.measured.searches.append(search)

            def search(lane: Lane, number: int, first: int = first) -> None:
                answer = lane.process.ask(
                    do="search",
                    first=first + 2 + number * (QUERIES + 1),
                    count=QUERIES,
                    seconds=self.limit_seconds / 10,
                    with_baseline=lane.name == WITH_BASELINE,
                )
                lane.measured.searches[-1].rounds.append(answer["times"])
                if answer["baseline"]:
                    lane.measured.searches[-1].baseline.append(answer["baseline"])

            self._turns(f"fill to {size:,}", lanes, fill)
            self._turns(f"search {size:,}", lanes, search, ROUNDS)
            short = [lane for lane in lanes if lane.adapter is not None and lane.added + lane.filled < size]
            self._close(f"search {size:,}", short)
        self._close("search", lanes)

    def _add_together(self, lanes: Sequence[Lane]) -> None:
        """Several clients of one process, on a separate store, which is then searched as a check."""
        what = f"{CLIENTS} clients"

        def add(lane: Lane, number: int) -> None:
            start, seconds = number * TOGETHER_ADDS, self.limit_seconds / 10
            answer = lane.process.ask(do="add", first=start, count=TOGETHER_ADDS, clients=CLIENTS, seconds=seconds)
            lane.measured.together.append(answer["times"])
            lane.measured.rates.append(len(answer["times"]) / answer["seconds"])
            lane.measured.refuse(answer["failed"], answer["failure"])
            self._settle(lane)

        def check(lane: Lane, number: int) -> None:
            lane.process.ask(do="search", first=0, count=1, seconds=self.limit_seconds)

        self._open(what, lanes, "together")
        self._turns(what, lanes, add, ROUNDS)
        self._turns(f"a search after {what}", lanes, check)
        self._close(what, lanes)

    def _start(self, lanes: Sequence[Lane]) -> None:
        """For a server until its answer to `initialize`, for a library until the first answer to a search."""
        starters = [self._starter(lane) for lane in lanes]

        def fill(lane: Lane, number: int) -> None:
            lane.process.ask(do="fill", first=0, count=SMALL, seconds=self.limit_seconds / 4)

        def start(lane: Lane, number: int) -> None:
            began = time.perf_counter()
            lane.adapter = self._adapter(lane, "small")
            taken = lane.adapter.open()["started"]
            if taken is None:
                lane.adapter.ask(do="search", first=0, count=1, seconds=self.limit_seconds / 4)
                taken = time.perf_counter() - began
            lane.measured.starts.append(taken)
            lane.adapter.close()

        self._open("start", starters, "small")
        self._turns("start", starters, fill)
        able = [lane for lane in starters if lane.adapter is not None]
        for lane in able:
            lane.process.close()
        self._turns("start", able, start, ROUNDS)
        for lane in able:
            lane.adapter = None  # each start has closed its own

    def _starter(self, lane: Lane) -> Lane:
        target = lane.measured.target
        if target.server is None:
            return Lane(lane.measured, lane.command, lane.folder)
        return Lane(lane.measured, target.server(self.environments / target.environment), lane.folder)

    def _lose(self, lanes: Sequence[Lane]) -> None:
        """Several processes add to one store at once; what a new process then finds."""
        for lane in lanes:
            if not lane.measured.target.loses_all:
                self.tell(f"{lane.name}: {PROCESSES} processes")
                self._take(f"{PROCESSES} processes", lane, self._lose_one, 0)

    def _lose_one(self, lane: Lane, number: int) -> None:
        measured, first = lane.measured, self.sizes[-1]
        lane.adapter = self._adapter(lane, "shared")
        lane.adapter.open()
        lane.adapter.ask(do="add", first=0, count=1, clients=1, seconds=self.limit_seconds)
        lane.adapter.close()
        adapters = [self._adapter(lane, "shared") for _ in range(PROCESSES)]
        at_work: list[tuple[int, Adapter]] = []
        try:
            for place, adapter in enumerate(adapters):
                try:
                    adapter.open()
                    at_work.append((place, adapter))
                except NotThere as error:
                    measured.refuse(ADDS_A_PROCESS, str(error).replace(f"{lane.folder}/", ""))
            refused = ADDS_A_PROCESS * (PROCESSES - len(at_work))
            for place, adapter in at_work:
                start = first + place * ADDS_A_PROCESS
                adapter.send(do="add", first=start, count=ADDS_A_PROCESS, clients=1, seconds=self.limit_seconds / 2)
            for _, adapter in at_work:
                answer = adapter.answer(self.limit_seconds / 2 + GRACE_SECONDS)
                measured.acknowledged += len(answer["times"])
                measured.refuse(answer["failed"], answer["failure"])
                refused += answer["failed"]
            measured.unreached = PROCESSES * ADDS_A_PROCESS - measured.acknowledged - refused
            for _, adapter in at_work:
                adapter.ask(do="close")
        finally:
            for adapter in adapters:
                adapter.kill()
        lane.adapter = self._adapter(lane, "shared")
        lane.adapter.open()
        measured.found = lane.adapter.ask(do="found", first=first, count=PROCESSES * ADDS_A_PROCESS)["found"]
        lane.adapter.close()
        lane.adapter = None
