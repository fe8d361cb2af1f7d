"""`commonplace.connect` on a network that fails: what is lost is asked for again, and nothing is made twice."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from real_server import Server

import commonplace
from commonplace.api.transport import Connections, Request
from commonplace.book import Book
from commonplace.errors import (
    ConfigurationError,
    NotFound,
    Unavailable,
)


def test_nobody_there_is_unavailable_and_names_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(Unavailable, match=f"the service at {address} cannot be reached .*commonplace serve"):
        commonplace.connect(address, max_retries=0)


@pytest.mark.parametrize("address", ["127.0.0.1:8765", "ftp://x", "http://", "postgresql://x"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigurationError, match="is not the address of a service"):
        commonplace.connect(address)


class FlakyProxy:
    """Stands between, and loses requests: before the service has them, or after, with their answer."""

    def __init__(self, server: Server) -> None:
        host, _, port = server.address.removeprefix("http://").partition(":")
        self._target = (host, int(port))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.lose: Callable[[bytes], str | None] = lambda head: None
        self.seen: list[str] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._target) as service, client.makefile("rb") as asked:
            while head := self._head(asked):
                self.seen.append(head.split(b"\r\n")[0].decode().rpartition(" ")[0].partition("?")[0])
                how = self.lose(head)
                if how == "before":
                    return
                service.sendall(head + asked.read(self._length(head)))
                with service.makefile("rb") as answered:
                    answer = self._head(answered)
                    answer += answered.read(self._length(answer))
                if how == "after":
                    return
                client.sendall(answer)

    @staticmethod
    def _head(stream: Any) -> bytes:
        lines = []
        while (line := stream.readline()) not in (b"", b"\r\n"):
            lines.append(line)
        return b"".join([*lines, b"\r\n"]) if lines else b""

    @staticmethod
    def _length(head: bytes) -> int:
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                return int(line.partition(b":")[2])
        return 0

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def proxy(server: Server) -> Iterator[FlakyProxy]:
    with closing(FlakyProxy(server)) as proxy:
        yield proxy


def once(method: bytes, how: str) -> Callable[[bytes], str | None]:
    """Loses the first request with a method."""
    left = [True]

    def lose(head: bytes) -> str | None:
        if head.startswith(method) and left[0]:
            left[0] = False
            return how
        return None

    return lose


@pytest.mark.promise("connect-retries")
@pytest.mark.parametrize("how", ["before", "after"])
def test_a_creation_whose_answer_is_lost_is_made_once(proxy: FlakyProxy, book: Book, how: str) -> None:
    with commonplace.connect(proxy.address) as remote:
        space = remote.space("user", "u1")
        thread = space.threads.create(id="t")
        for make in (
            lambda: space.records.create(type="note", content={"text": "tea"}, source="s", confidence=0.9),
            lambda: space.threads.add(thread.id, [{"role": "user", "content": "hello"}]),
            lambda: space.files.append("/log", "line"),
        ):
            commit = book.space("user", "u1").stats().commit
            proxy.lose = once(b"POST", how)
            make()
            assert book.space("user", "u1").stats().commit == commit + 1
        assert space.files.read("/log") == "line"
        assert proxy.seen.count("POST /v1/records") == 2


@pytest.mark.promise("connect-retries")
def test_reading_is_tried_again(proxy: FlakyProxy, book: Book) -> None:
    book.space("user", "u1").files.write("/f", "x")
    with commonplace.connect(proxy.address) as remote:
        proxy.lose = once(b"GET", "before")
        assert remote.space("user", "u1").files.read("/f") == "x"
    assert proxy.seen == ["GET /v1", "GET /v1/files/f", "GET /v1/files/f"]


@pytest.mark.promise("connect-retries")
def test_a_deletion_whose_answer_is_lost_is_not_repeated(proxy: FlakyProxy, book: Book) -> None:
    space = book.space("user", "u1")
    space.files.write("/f", "x")
    with commonplace.connect(proxy.address) as remote:
        proxy.lose = once(b"DELETE", "after")
        with pytest.raises(Unavailable, match="the change may have been made, so check before you repeat it"):
            remote.space("user", "u1").files.delete("/f")
    assert not space.files.exists("/f")
    assert proxy.seen.count("DELETE /v1/files/f") == 1


@pytest.mark.promise("connect-retries")
def test_retries_are_bounded_and_wait_longer_each_time(server: Server) -> None:
    waits: list[float] = []
    with closing(FlakyProxy(server)) as proxy:
        proxy.lose = lambda head: "before"
        connections = Connections(proxy.address, key=None, timeout_seconds=5, max_retries=3, sleep=waits.append)
        with pytest.raises(Unavailable, match="cannot be reached"):
            connections.ask(Request("GET", "/v1", is_repeatable=True))
        assert proxy.seen == ["GET /v1"] * 4
    assert len(waits) == 3
    assert all(0.5 * most <= wait <= most for wait, most in zip(waits, (0.05, 0.1, 0.2), strict=True))


def test_a_service_that_was_started_anew_is_found_again(server: Server, service: Any) -> None:
    from real_server import start_server

    with closing(FlakyProxy(server)) as proxy, commonplace.connect(proxy.address) as remote:
        remote.space().files.write("/f", "x")
        second = start_server(service)
        try:
            host, _, port = second.address.removeprefix("http://").partition(":")
            proxy._target = (host, int(port))
            proxy.lose = once(b"GET", "before")  # what an end of the first one looks like
            assert remote.space().files.read("/f") == "x"
        finally:
            second.stop()


def test_a_service_that_says_nothing_is_unavailable_after_the_time_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(Unavailable, match="timed out"):
            commonplace.connect(address, timeout_seconds=0.05, max_retries=0)


def test_something_else_than_a_service_is_told_so(server: Server) -> None:
    with pytest.raises((Unavailable, NotFound), match=r"commonplace|nothing at this URL"):
        commonplace.connect(f"{server.address}/other")


def test_connections_are_kept_one_a_thread_and_closed_with_the_book(proxy: FlakyProxy) -> None:
    opened: list[int] = []
    carry = proxy._carry
    proxy._carry = lambda client: (opened.append(1), carry(client))[1]  # type: ignore[method-assign, func-returns-value]
    remote = commonplace.connect(proxy.address)
    for number in range(5):
        remote.space().files.write(f"/f{number}", "x")
    assert len(opened) == 1
    worker = threading.Thread(target=remote.space().files.read, args=("/f0",))
    worker.start()
    worker.join()
    assert len(opened) == 2
    remote.close()
    with pytest.raises(Unavailable, match="closed"):
        remote.space().stats()
