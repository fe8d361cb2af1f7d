"""A pooler in front of PostgreSQL, as PgBouncer is: a client has a session for a transaction, or for good."""

from __future__ import annotations

import select
import socket
import struct
import threading
from contextlib import ExitStack

_REFUSED_ENCRYPTION = (80877103, 80877104)


class Pooler:
    """Answers clients with a process number of its own. The session that became free last is given away first."""

    def __init__(self, port: int, *, by_transaction: bool) -> None:
        self._target = port
        self._by_transaction = by_transaction
        self._mutex = threading.Lock()
        self._idle: dict[bytes, list[socket.socket]] = {}
        self._greetings: dict[bytes, bytes] = {}
        self._clients = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with ExitStack() as open_things:
            open_things.enter_context(client)
            hello = _packet(client)
            while struct.unpack("!i", hello[4:8])[0] in _REFUSED_ENCRYPTION:
                client.sendall(b"N")
                hello = _packet(client)
            self._give_back(hello, self._take(hello))
            with self._mutex:
                self._clients += 1
                own = struct.pack("!iii", 12, -self._clients, 0)
            client.sendall(self._greetings[hello] + b"K" + own + b"Z\0\0\0\5I")
            try:
                self._relay(client, hello)
            except OSError:
                return

    def _take(self, hello: bytes) -> socket.socket:
        with self._mutex:
            if idle := self._idle.get(hello):
                return idle.pop()
        server = socket.create_connection(("127.0.0.1", self._target))
        server.sendall(hello)
        greeting = b""
        while True:
            kind, message = _message(server)
            if kind == b"Z":
                break
            if kind != b"K":
                greeting += message
        self._greetings[hello] = greeting
        return server

    def _give_back(self, hello: bytes, server: socket.socket) -> None:
        with self._mutex:
            self._idle.setdefault(hello, []).append(server)

    def _relay(self, client: socket.socket, hello: bytes) -> None:
        server: socket.socket | None = None
        while True:
            readable = select.select([client] if server is None else [client, server], [], [])[0]
            if client in readable:
                data = client.recv(65536)
                if not data or data[:1] == b"X":
                    if server is not None:
                        server.close()
                    return
                server = server or self._take(hello)
                server.sendall(data)
            elif server is not None:
                kind, message = _message(server)
                client.sendall(message)
                if self._by_transaction and kind == b"Z" and message[-1:] == b"I":
                    self._give_back(hello, server)
                    server = None


def _exactly(source: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = source.recv(count - len(data))
        if not more:
            raise ConnectionError
        data += more
    return data


def _packet(source: socket.socket) -> bytes:
    length = _exactly(source, 4)
    return length + _exactly(source, struct.unpack("!i", length)[0] - 4)


def _message(source: socket.socket) -> tuple[bytes, bytes]:
    kind = _exactly(source, 1)
    return kind, kind + _packet(source)
