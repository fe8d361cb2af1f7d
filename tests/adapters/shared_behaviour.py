"""What every adapter for a framework's store does, on a file, on PostgreSQL and over a service."""

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor

import pytest

import commonplace

THREADS, WRITES = 8, 10


class AdapterBehaviour(ABC):
    """A test class of an adapter inherits this and says how one value is written and how all are read."""

    @abstractmethod
    def write(self, book: commonplace.Book, owner: str, name: str, text: str) -> None:
        """Write a text under a name, through an adapter that is made for this call, for one owner."""

    @abstractmethod
    def read_all(self, book: commonplace.Book, owner: str) -> dict[str, str]:
        """Everything that the owner wrote, by name, through an adapter that is made for this call."""

    @pytest.mark.promise("adapters-share-a-book")
    def test_another_adapter_on_the_same_book_reads_what_was_written(self, every_book: commonplace.Book) -> None:
        self.write(every_book, "ana", "a", "green tea")
        self.write(every_book, "ana", "b", "100 % ключ 😀\n\u2028")
        assert self.read_all(every_book, "ana") == {"a": "green tea", "b": "100 % ключ 😀\n\u2028"}

    @pytest.mark.promise("adapters-keep-owners-apart")
    def test_owners_are_kept_apart(self, every_book: commonplace.Book) -> None:
        for owner in ("ana", "anabel", "bob", "an/a", "a%2Fb", "a.b"):
            self.write(every_book, owner, "shared", f"of {owner}")
        for owner in ("ana", "anabel", "bob", "an/a", "a%2Fb", "a.b"):
            assert self.read_all(every_book, owner) == {"shared": f"of {owner}"}

    @pytest.mark.promise("adapters-lose-no-write")
    def test_threads_that_write_at_once_lose_and_double_nothing(self, every_book: commonplace.Book) -> None:
        def write(thread: int) -> None:
            for number in range(WRITES):
                self.write(every_book, "ana", f"{thread}-{number}", f"text {thread} {number}")

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(write, range(THREADS)))
        assert self.read_all(every_book, "ana") == {
            f"{thread}-{number}": f"text {thread} {number}" for thread in range(THREADS) for number in range(WRITES)
        }
