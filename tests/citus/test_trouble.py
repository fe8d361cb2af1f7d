"""Nodes of a Citus cluster that crash, and shards that move, while servers write."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

import commonplace
from citus_cluster import crash, move_shards, new_book, nodes, schema_of
from commonplace.errors import Unavailable

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "scripts"))

from servers_kill import INTERFACES, Plan, run


@pytest.mark.promise("citus-crashes-lose-nothing")
def test_servers_are_killed_and_nodes_crash_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    url = new_book()
    crashed: list[tuple[str, int]] = []

    def crash_one() -> None:
        node = nodes()[len(crashed) % len(nodes())]
        crash(node)
        crashed.append(node)

    plan = Plan(seconds=20, servers=2, writers=1, least=3, seconds_between_kills=4, also=crash_one)
    tally = run(url, plan, environment={"COMMONPLACE_MODELS": str(tmp_path / "no-models")})
    assert tally.faults == []
    assert len(crashed) >= 2
    print(
        f"{tally.kills} servers killed, {len(crashed)} crashes of nodes: {tally.acknowledged}, {tally.uncertain} unsure"
    )
    assert tally.acknowledged.keys() == {interface.name for interface in INTERFACES}


class Load:
    """Threads that write one file after the other, each in its own tenant."""

    def __init__(self, url: str, writers: int = 6) -> None:
        self.book = commonplace.open(url, background=False)
        self.written: list[list[int]] = [[] for _ in range(writers)]
        self.refused = 0
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(number,)) for number in range(writers)]
        for thread in self._threads:
            thread.start()

    def _write(self, writer: int) -> None:
        space = self.book.space("user", f"load-{writer}")
        number = 0
        while not self._is_over.is_set():
            number += 1
            try:
                space.files.write(f"/{number}", f"pineapple {number}")
                self.written[writer].append(number)
            except Unavailable:
                self.refused += 1

    def stop(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive()

    def check(self) -> int:
        """Everything acknowledged is there; returns how much."""
        for writer, numbers in enumerate(self.written):
            space = self.book.space("user", f"load-{writer}")
            names = {int(child.name) for child in space.files.list("/")}
            assert set(numbers) <= names
        assert self.book.verify() == []
        self.book.close()
        return sum(map(len, self.written))


@pytest.mark.promise("citus-moves-lose-nothing")
def test_shards_are_moved_between_nodes_while_tenants_write_and_nothing_is_lost() -> None:
    url = new_book()
    load = Load(url)
    try:
        moved = move_shards(schema_of(url))
    finally:
        load.stop()
    assert moved >= 2
    assert load.check() > 0
