"""Nothing that was acknowledged is lost or doubled when a server is killed, steps down or loses its network.

Threads of two programs write to a set of three members. Each write adds an entry and one to a counter. At the end every
acknowledged entry must exist, in one revision, and the counter must be the number of entries.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern
from store_calls import put, unit

from commonplace.backends.mongodb import MongoStore
from commonplace.entry import Draft
from commonplace.errors import Unavailable
from commonplace.filters import Filter
from commonplace.store import Scan, Transaction
from mongodb_server import ReplicaSet, need_server

IS_LONG = os.environ.get("COMMONPLACE_TESTS") == "long"
ROUNDS = 8 if IS_LONG else 1
SPACES = [("user", "u1"), ("user", "u2")]


class Load:
    """Writers that go on until they are stopped, and what they were told."""

    def __init__(self, url: str) -> None:
        self._stores = [MongoStore(url) for _ in range(2)]
        self._stopped = threading.Event()
        self.acknowledged: list[set[str]] = [set() for _ in range(4)]
        self.refused = 0
        self._threads = [threading.Thread(target=self._write, args=(number,)) for number in range(4)]
        for thread in self._threads:
            thread.start()

    def _write(self, number: int) -> None:
        store, namespace = self._stores[number % 2], SPACES[number // 2]
        count = 0
        while not self._stopped.is_set():
            count += 1
            key = f"k{number}-{count}"

            def work(transaction: Transaction, key: str = key) -> None:
                known = transaction.get("counter", "all")
                total = 0 if known is None else known.value
                assert isinstance(total, int)
                transaction.put(Draft("counter", "all", total + 1))
                transaction.put(Draft("file", key, "a note"))

            try:
                store.write(namespace, work)
            except Unavailable:
                self.refused += 1
                continue
            self.acknowledged[number].add(key)

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged))

    def wait_for(self, more: int) -> None:
        """Until so many more writes were acknowledged."""
        wanted, deadline = self.count + more, time.monotonic() + 120
        while self.count < wanted:
            assert time.monotonic() < deadline, "the writers do not get on"
            assert all(thread.is_alive() for thread in self._threads), "a writer has failed"
            time.sleep(0.02)

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive()

    def check(self) -> None:
        store = self._stores[0]
        for number, namespace in enumerate(SPACES):
            keys: list[str] = []
            cursor = None
            while True:
                page = store.scan(namespace, Scan(Filter(kinds=("file",)), after=cursor))
                assert all(entry.revision == 1 for entry in page.entries)
                keys += [entry.key for entry in page.entries]
                cursor = page.cursor
                if cursor is None:
                    break
            told = self.acknowledged[2 * number] | self.acknowledged[2 * number + 1]
            assert told <= set(keys)
            [counter] = store.get(namespace, "counter", ["all"])
            assert counter is not None
            assert counter.value == len(keys) == len(set(keys)) == counter.revision
        assert store.verify() == []
        for one in self._stores:
            one.close()


@pytest.fixture(scope="module")
def members() -> Iterator[ReplicaSet]:
    need_server()
    members = ReplicaSet(3, has_proxies=True)
    yield members
    members.remove()


def kill(members: ReplicaSet, load: Load) -> None:
    member = members.primary()
    member.stop(signal.SIGKILL)
    load.wait_for(20)
    member.start()


def step_down(members: ReplicaSet, load: Load) -> None:
    with members.primary().client() as client:
        try:
            client.admin.command("replSetStepDown", 5, secondaryCatchUpPeriodSecs=5)
        except PyMongoError:
            return  # it closes the connection


def cut(members: ReplicaSet, load: Load) -> None:
    proxy = members.proxies[members.members.index(members.primary())]
    proxy.cut()
    load.wait_for(20)
    proxy.mend()


@pytest.mark.promise("mongodb-loses-nothing")
@pytest.mark.parametrize("trouble", [kill, step_down, cut], ids=["killed", "stepped down", "cut off"])
def test_nothing_acknowledged_is_lost_or_doubled(
    members: ReplicaSet, trouble: Callable[[ReplicaSet, Load], None]
) -> None:
    load = Load(members.create_database())
    try:
        for _ in range(ROUNDS):
            load.wait_for(20)
            trouble(members, load)
            load.wait_for(20)
    finally:
        load.stop()
    load.check()
    print(f"{trouble.__name__}: {load.count} acknowledged, {load.refused} refused")


@pytest.mark.promise("mongodb-marks-stay")
def test_a_passage_that_is_claimed_before_a_majority_has_it_keeps_its_mark(members: ReplicaSet) -> None:
    url = members.create_database()
    store, indexing = MongoStore(url), MongoStore(url)
    indexing.set_target_model("m", 8)
    put(store, "before", text="a text")
    others = [member for member in members.members if member is not members.primary()]
    with ThreadPoolExecutor(2) as threads:
        for member in others:
            member.pause()
        try:
            writing = threads.submit(put, store, "during", text="a pear")
            marks = indexing._client[indexing.place.database]["pending"].with_options(read_concern=ReadConcern("local"))
            while marks.count_documents({}) < 2:
                time.sleep(0.01)
            claiming = threads.submit(indexing.claim, 10, 0.01)
            time.sleep(0.2)  # it does not wait for the majority before it reads
        finally:
            for member in others:
                member.resume()
        writing.result(30)
        claimed = claiming.result(30)
    indexing.index("m", [(passage.chunk_id, unit(1)) for passage in claimed])
    assert {passage.text for passage in claimed} == {"a text", "a pear"}
    assert store.indexing().pending == 0
    assert store.verify() == []
    for one in (store, indexing):
        one.close()
