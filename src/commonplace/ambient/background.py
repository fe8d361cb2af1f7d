"""The process behind the hooks: keeps the book and the model open, answers events on a socket, ends when idle.

    python -m commonplace.ambient.background CLIENT [--db FILE] [--remote URL] [--namespace NAME] [--settings FILE]

The socket has mode 0600, in a folder of mode 0700; there is no port. An event with turns to save is acknowledged
first and handled afterwards, so that nobody waits for it. The first event may come on standard input. With `--alone`
before the other words, the process answers that event on standard output, by keywords alone, and ends.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from commonplace.ambient.events import Sessions, answer
from commonplace.ambient.hook import MAX_EVENT_BYTES, SAVES, digest, failure_mark, log, socket_path, state_folder
from commonplace.errors import (
    CommonplaceError,
    ConfigurationError,
    Conflict,
    Forbidden,
    InvalidInput,
    NotFound,
    Unavailable,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from commonplace.ambient.engine import Ambient
    from commonplace.book import Book
    from commonplace.settings import Settings

IDLE_SECONDS = 900.0
_READ_SECONDS = 2.0
_MOST_AT_ONCE = 8
_OF_EVENTS = (Conflict, Forbidden, InvalidInput, NotFound)
"""Errors that an event can cause; others mean that the process itself does not work any more."""

_DECIDED = ("DATABASE_URL", "DATABASE_REPLICA_URL", "COMMONPLACE_REMOTE", "COMMONPLACE_KEY", "COMMONPLACE_NAMESPACE")
"""Variables that a project's shell may have for other purposes. `setup` decides about the memory of a hook."""


def settings_of(words: Sequence[str]) -> tuple[str, Settings, float]:
    """The client, the settings and the idle time that the words of a hook's command say."""
    from commonplace.settings import Settings

    parser = argparse.ArgumentParser(prog="commonplace-hook", add_help=False, exit_on_error=False)
    parser.add_argument("client")
    parser.add_argument("--db")
    parser.add_argument("--remote")
    parser.add_argument("--namespace")
    parser.add_argument("--settings")
    parser.add_argument("--idle-seconds", type=float, default=IDLE_SECONDS)
    try:
        given = parser.parse_args(list(words))
    except (argparse.ArgumentError, SystemExit) as error:
        raise ConfigurationError(f"the words of the hook are wrong ({error}); run `commonplace setup` again") from error
    environ = {name: value for name, value in os.environ.items() if name not in _DECIDED}
    if given.settings is not None:
        kept = json.loads(Path(given.settings).read_bytes())
        environ |= {name: str(kept[name]) for name in _DECIDED if name in kept}
    settings = Settings.from_environment(environ)
    if given.db is not None:
        settings = replace(settings, database_url=given.db)
    if given.remote is not None:
        settings = replace(settings, remote=given.remote)
    if given.namespace is not None:
        settings = replace(settings, namespace=given.namespace)
    return given.client, settings, given.idle_seconds


def _ambient(book: Book, client: str, settings: Settings) -> Ambient:
    from commonplace.ambient.engine import Ambient
    from commonplace.redaction import Redactor

    is_own = settings.remote is not None and settings.namespace is None  # that of the key
    space = book.space(*(() if is_own else settings.namespace_labels), actor=client)
    return Ambient(space, settings.redaction() or Redactor("mask"))


def _sessions(words: Sequence[str], client: str) -> Sessions:
    return Sessions(client, Path(state_folder()) / "sessions" / digest(list(words)))


def _as_event(written: bytes) -> Mapping[str, Any]:
    try:
        event = json.loads(written)
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}


def _as_bytes(answered: dict[str, Any] | None) -> bytes:
    return b"" if answered is None else json.dumps(answered).encode()


# Without a background process


class _NoModel:
    """An embedder that has no vectors, so that a search uses keywords alone and loads no model."""

    identity = "none"
    dimensions = 1
    calibration = (0.0, 1.0)
    is_loaded = False

    def embed(self, texts: Sequence[str], *, purpose: str) -> NDArray[np.float32]:
        raise Unavailable("the hook answers by keywords alone")


def _no_model(name: str) -> NoReturn:
    raise ConfigurationError(f"the hook does not load {name}")


def answer_alone(words: Sequence[str], event: bytes) -> bytes:
    """The answer to one event, in this process and by keywords alone."""
    from commonplace.book import open_book

    client, settings, _ = settings_of(words)
    if settings.remote is not None:
        from commonplace.api.client import connect

        opened = connect(settings.remote, settings.remote_key)
    else:
        if settings.book_file is not None and not settings.book_file.exists():
            return b""
        opened = open_book(
            settings.database_url,
            embedder=_NoModel(),
            make_embedder=_no_model,
            limits=settings.limits,
            busy_seconds=1.0,
            background=False,
            redaction=settings.redaction(),
        )
    with opened as book:
        return _as_bytes(answer(_ambient(book, client, settings), _sessions(words, client), _as_event(event)))


# The process


class _Background:
    """Answers events until none has come for a while."""

    def __init__(self, ambient: Ambient, sessions: Sessions, idle_seconds: float) -> None:
        self._ambient = ambient
        self._sessions = sessions
        self._idle_seconds = idle_seconds
        self._last = time.monotonic()
        self._later: queue.Queue[Mapping[str, Any] | None] = queue.Queue()
        self._room = threading.BoundedSemaphore(_MOST_AT_ONCE)
        self._is_ending = threading.Event()

    def stop(self, *_: object) -> None:
        self._is_ending.set()

    def do_later(self, event: Mapping[str, Any]) -> None:
        self._last = time.monotonic()
        self._later.put(event)

    def serve(self, listening: socket.socket) -> None:
        saver = threading.Thread(target=self._save, name="save")
        saver.start()
        listening.settimeout(min(0.5, self._idle_seconds))
        while not self._is_ending.is_set():
            try:
                connection, _ = listening.accept()
            except TimeoutError:
                if time.monotonic() - self._last > self._idle_seconds and self._later.empty():
                    break
                continue
            self._last = time.monotonic()
            if not self._room.acquire(blocking=False):
                connection.close()
                continue
            threading.Thread(target=self._visit, args=(connection,), daemon=True).start()
        self._later.put(None)
        saver.join()

    def _visit(self, connection: socket.socket) -> None:
        try:
            with connection:
                connection.settimeout(_READ_SECONDS)
                event = _as_event(_received(connection))
                if event.get("hook_event_name") in SAVES:
                    self.do_later(event)
                    connection.sendall(b"=")
                else:
                    connection.sendall(b"=" + self._answer(event))
        except OSError as error:
            log(f"background: {error}")
        finally:
            self._room.release()

    def _answer(self, event: Mapping[str, Any]) -> bytes:
        try:
            return _as_bytes(answer(self._ambient, self._sessions, event))
        except Exception as error:  # noqa: BLE001 - a session must not notice; the log has it
            log(f"{event.get('hook_event_name')}: {type(error).__name__}: {error}")
            if not isinstance(error, _OF_EVENTS):
                self.stop()  # the book was replaced, or worse; the next event starts a new process
            return b""

    def _save(self) -> None:
        while (event := self._later.get()) is not None:
            self._answer(event)
            self._last = time.monotonic()


def _received(connection: socket.socket) -> bytes:
    parts, size = [], 0
    while part := connection.recv(65_536):
        size += len(part)
        if size > MAX_EVENT_BYTES:
            return b""
        parts.append(part)
    return b"".join(parts)


def main(words: list[str]) -> int:
    import fcntl  # not on Windows, where this process does not run

    first = sys.stdin.buffer.read(MAX_EVENT_BYTES)
    if words[:1] == ["--alone"]:
        sys.stdout.buffer.write(answer_alone(words[1:], first))
        return 0
    path = socket_path(words)
    if path is None:
        return 1
    lock = os.open(f"{path}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _hand_over(path, first)
    client, settings, idle_seconds = settings_of(words)
    from commonplace.settings import open_from_settings

    with open_from_settings(settings, background=True) as book:
        ambient, sessions = _ambient(book, client, settings), _sessions(words, client)
        background = _Background(ambient, sessions, idle_seconds)
        signal.signal(signal.SIGTERM, background.stop)
        signal.signal(signal.SIGINT, background.stop)
        Path(path).unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
            before = os.umask(0o177)
            try:
                listening.bind(path)
            finally:
                os.umask(before)
            listening.listen(32)
            Path(failure_mark(path)).unlink(missing_ok=True)
            try:
                if first:
                    background.do_later(_as_event(first))
                threading.Thread(target=_warm_up, args=(ambient,), daemon=True).start()
                sessions.sweep()
                background.serve(listening)
            finally:
                Path(path).unlink(missing_ok=True)
    return 0


def _hand_over(path: str, event: bytes) -> int:
    """Another process is starting or running: give it the event."""
    from commonplace.ambient.hook import ask

    for _ in range(50):
        if not event or ask(path, event, _READ_SECONDS) is not None:
            return 0
        time.sleep(0.1)
    log("an event was left out: the background process does not answer")
    return 1


def _warm_up(ambient: Ambient) -> None:
    try:
        ambient.warm_up()
    except CommonplaceError as error:
        log(f"warm-up: {error}")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (CommonplaceError, OSError, ValueError) as error:
        log(f"background: {type(error).__name__}: {error}")
        if sys.argv[1:2] != ["--alone"] and (place := socket_path(sys.argv[1:])) is not None:
            Path(failure_mark(place)).touch(mode=0o600)
        sys.exit(1)
