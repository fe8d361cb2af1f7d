"""What stands beside the entries: the program's own rows, operations already done, and the wait for a commit."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg

from commonplace.backends.postgres.connection import Session, translated
from commonplace.backends.postgres.reading import Spot
from commonplace.backends.states import dump
from commonplace.checks import JSON
from commonplace.store import Waker

FORGOTTEN_AT_ONCE = 20
"""Expired operations that a write takes away: more than it adds, so that they do not pile up."""

LOOK_SECONDS = 0.2
"""How often a wait looks whether it was closed."""


def rows_of(session: Session, part: str, key: str | None) -> dict[str, JSON]:
    """The rows of a part, or the one with a key."""
    where, parameters = ("part = %s", (part,)) if key is None else ("part = %s AND key = %s", (part, key))
    rows = session.rows(f"SELECT key, value FROM system WHERE {where} ORDER BY key", parameters, last=True)
    return {found: json.loads(value) for found, value in rows}


def put(session: Session, part: str, key: str, value: JSON | None, *, only_new: bool) -> bool:
    """Write a row, or remove it if the value is None; whether a row was changed."""
    if value is None:
        return bool(session.count("DELETE FROM system WHERE part = %s AND key = %s", (part, key)))
    action = "NOTHING" if only_new else "UPDATE SET value = excluded.value"
    return bool(
        session.count(
            f"INSERT INTO system (part, key, value) VALUES (%s, %s, %s) ON CONFLICT (part, key) DO {action}",
            (part, key, dump(value)),
        )
    )


def operation(session: Session, spot: Spot, key: str, now: int) -> JSON | None:
    rows = session.rows(
        "SELECT value FROM operation WHERE tenant = %s AND namespace = %s AND key = %s AND expires_at > %s",
        (spot.tenant, spot.id, key, now),
    )
    return json.loads(rows[0][0]) if rows else None


def record_operation(session: Session, spot: Spot, key: str, value: JSON, *, expires_at: int, now: int) -> None:
    session.send(
        "DELETE FROM operation WHERE tenant = %(tenant)s AND namespace = %(namespace)s AND key IN (SELECT key"
        " FROM operation WHERE tenant = %(tenant)s AND namespace = %(namespace)s AND expires_at <= %(now)s"
        f" LIMIT {FORGOTTEN_AT_ONCE})",
        {"tenant": spot.tenant, "namespace": spot.id, "now": now},
    )
    session.send(
        "INSERT INTO operation (tenant, namespace, key, value, expires_at) VALUES (%s, %s, %s, %s, %s)"
        " ON CONFLICT (namespace, key, tenant) DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at",
        (spot.tenant, spot.id, key, dump(value), expires_at),
    )


class ListeningWaker(Waker):
    """Listens on a connection of its own. One that broke counts as a commit: something may have been missed."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]], channel: str, place: str) -> None:
        self._connect = connect
        self._channel = channel
        self._closed = threading.Event()
        self._mutex = threading.Lock()
        with translated(place):
            self._connection: psycopg.Connection[Any] | None = self._listen()

    def _listen(self) -> psycopg.Connection[Any]:
        connection = self._connect()
        connection.execute(f'LISTEN "{self._channel}"'.encode())
        return connection

    def wait(self, timeout_seconds: float) -> bool:
        deadline = time.monotonic() + timeout_seconds
        while True:
            left = deadline - time.monotonic()
            with self._mutex:
                if self._closed.is_set():
                    return False
                if self._is_told(max(0.0, min(left, LOOK_SECONDS))):
                    return True
            if left <= 0:
                return False

    def _is_told(self, seconds: float) -> bool:
        try:
            if self._connection is None:
                self._connection = self._listen()
                return True
            if list(self._connection.notifies(timeout=seconds, stop_after=1)):
                list(self._connection.notifies(timeout=0))  # what came with it is told by the same answer
                return True
        except psycopg.OperationalError:
            self._connection = None
            self._closed.wait(seconds)
        return False

    def close(self) -> None:
        self._closed.set()
        with self._mutex:
            if self._connection is not None:
                self._connection.close()
