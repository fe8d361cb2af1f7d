"""Connections: a pool with the right settings, and sessions, which are transactions under one of the two roles.

Statements are sent without waiting for the answers of those before, as far as nobody asks for them: a session of four
statements costs one or two round trips.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import psycopg
from psycopg.adapt import AdaptersMap, Buffer, Dumper, Loader
from psycopg.pq import Format
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper
from psycopg_pool import ConnectionPool

from commonplace.backends.postgres.pipeline import Link, Parameters, Pipeline, Result
from commonplace.backends.postgres.place import Place
from commonplace.errors import ConfigurationError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

IDLE_IN_TRANSACTION_SECONDS = 60
"""A server that hangs in the middle of a write must not hold a namespace's row for ever."""

_BEGIN = "SELECT set_config('role', %s, true), set_config('commonplace.tenant', %s, true)"
_CHECK = "SELECT check_program(%s)"
Pool = ConnectionPool[Link]
Durability = Literal["full", "normal"]
CONNECT_SECONDS = 5
_ARRAY_HEAD = 20
"""The bytes before the members of an array of one dimension, as PostgreSQL sends it; before each is its length."""
RECONNECT_SECONDS = 0.5
"""How long the pool tries by itself; then the next call for a connection begins anew, without its long pauses."""


class Halfvec(bytes):
    """A vector as pgvector sends it: its length, two bytes of nothing, then half-precision numbers."""

    @classmethod
    def of(cls, vector: Floats) -> Halfvec:
        return cls(len(vector).to_bytes(2, "big") + b"\0\0" + vector.astype(">f2").tobytes())


class Vector(bytes):
    """A vector of full precision, as pgvector takes it."""

    @classmethod
    def of(cls, vector: Floats) -> Vector:
        return cls(len(vector).to_bytes(2, "big") + b"\0\0" + vector.astype(">f4").tobytes())


@dataclass(frozen=True, slots=True)
class Halves:
    """A vector of full precision as two of half: what rounding leaves of it, and `SCALE` times what that took away.

    So stored halves are compared with it to nearly full precision without making each of them whole: a third of the
    time.
    """

    SCALE: ClassVar[float] = 2048.0
    coarse: Halfvec
    fine: Halfvec

    @classmethod
    def of(cls, vector: Floats) -> Halves:
        rounded = vector.astype("f2").astype(vector.dtype)
        return cls(Halfvec.of(rounded), Halfvec.of((vector - rounded) * cls.SCALE))


def array_of(numbers: Iterable[int]) -> str:
    """Numbers as PostgreSQL writes an array of them, for a parameter cast to one: psycopg looks at each by itself."""
    return "{" + ",".join(map(str, numbers)) + "}"


def texts_of(texts: Iterable[str]) -> str:
    """The same for texts."""
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return "{" + ",".join(f'"{text}"' for text in quoted) + "}"


def numbers_of(sent: bytes | None) -> NDArray[np.int64]:
    """An array of numbers as `array_send` gives it."""
    import numpy as np

    return _members(sent, ">i8").astype(np.int64)


def floats_of(sent: bytes | None) -> NDArray[np.float64]:
    import numpy as np

    return _members(sent, ">f8").astype(np.float64)


def _members(sent: bytes | None, kind: str) -> NDArray[Any]:
    import numpy as np

    if sent is None:
        return np.empty(0, dtype=kind)
    found: NDArray[Any] = np.frombuffer(sent, dtype=[("length", ">i4"), ("member", kind)], offset=_ARRAY_HEAD)
    return found["member"]


def floats(stored: Sequence[bytes]) -> Floats:
    """Stored vectors as rows of a matrix, all of the same length."""
    import numpy as np

    matrix = np.frombuffer(b"".join(stored), dtype=">f2").reshape(len(stored), -1)
    return matrix.astype(np.float32)


class _VectorDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Halfvec | Vector) -> Buffer:
        return obj


class _HalfvecLoader(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> bytes:
        return bytes(data)[4:]


def adapters(connection: psycopg.Connection[Any]) -> tuple[AdaptersMap, str]:
    """How values travel, and the schema that pgvector lies in; both differ from database to database."""
    row = connection.execute(
        "SELECT half.oid, whole.oid, n.nspname FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace"
        " JOIN pg_type AS half ON half.typnamespace = n.oid AND half.typname = 'halfvec'"
        " JOIN pg_type AS whole ON whole.typnamespace = n.oid AND whole.typname = 'vector' WHERE e.extname = 'vector'"
    ).fetchone()
    if row is None:
        raise ConfigurationError(
            "this database has no pgvector; let an administrator run `CREATE EXTENSION vector` in it"
        )
    found = AdaptersMap(psycopg.adapters)
    # A number's type must not depend on its size: each type would be a statement of its own to prepare.
    found.register_dumper(int, Int8Dumper)
    found.register_dumper(int, Int8BinaryDumper)
    found.register_dumper(Halfvec, type("HalfvecDumper", (_VectorDumper,), {"oid": row[0]}))
    found.register_dumper(Vector, type("VectorDumper", (_VectorDumper,), {"oid": row[1]}))
    found.register_loader(row[0], _HalfvecLoader)
    return found, row[2]


def create_pool(
    conninfo: str,
    place: Place,
    context: tuple[AdaptersMap, str],
    *,
    size: int,
    idle_seconds: float,
    query_seconds: float,
    durability: Durability,
) -> Pool:
    known, vector_schema = context
    settings = {
        "search_path": f"{place.schema}, {vector_schema}, pg_temp",
        "statement_timeout": f"{int(query_seconds * 1_000)}ms",
        "lock_timeout": f"{int(query_seconds * 1_000)}ms",
        "idle_in_transaction_session_timeout": f"{IDLE_IN_TRANSACTION_SECONDS}s",
        "jit": "off",  # its start-up costs more than any of our statements
        # Every statement names its namespace and has an index for it; planning each call anew took half as long again.
        "plan_cache_mode": "force_generic_plan",
        "application_name": "commonplace",
    }

    if durability == "normal":
        settings["synchronous_commit"] = "off"

    def configure(connection: psycopg.Connection[Any]) -> None:
        calls = ", ".join(["set_config(%s, %s, false)"] * len(settings))
        connection.execute(f"SELECT {calls}".encode(), [part for pair in settings.items() for part in pair])
        if durability == "full":
            # One that the server waits longer for, such as remote_apply, stays.
            connection.execute(
                "SELECT set_config('synchronous_commit', 'on', false)"
                " WHERE current_setting('synchronous_commit') = 'off'"
            )

    return ConnectionPool(
        conninfo,
        connection_class=Link,
        min_size=1,
        max_size=size,
        max_idle=idle_seconds,
        timeout=query_seconds,
        reconnect_timeout=RECONNECT_SECONDS,
        configure=configure,
        kwargs={
            "autocommit": True,
            "context": known,
            "connect_timeout": CONNECT_SECONDS,
            "keepalives_idle": 30,
            "tcp_user_timeout": int(query_seconds * 1_000) + 5_000,
        },
        open=False,
        name="commonplace",
    )


class Session:
    """A transaction on a connection, from `begin` to `end`; in pipeline mode unless it copies rows in.

    Without a BEGIN it is the one that PostgreSQL makes of all statements up to the next synchronisation: enough to read
    by, and two statements less. `known` is the newest schema that this program knows: a newer one fails the session.
    """

    def __init__(self, connection: psycopg.Connection[Any], known: int) -> None:
        self._connection = connection
        self._known = known
        self._begun: tuple[str | None, str, str] | None = None
        self._pipeline: Pipeline | None = None
        self._copies = False
        self._is_open = False

    def begin(self, mode: str | None, role: str, tenant: str | None, *, copies: bool = False) -> None:
        """Nothing is waited for: what goes wrong here is told by the first rows that are asked for."""
        self._begun = (mode, role, tenant or "")
        self._copies = copies
        self._open()

    def _open(self) -> None:
        assert self._begun is not None, "a session is begun first"
        mode, role, tenant = self._begun
        if isinstance(self._connection, Link) and not self._copies:
            self._pipeline = Pipeline(self._connection)
        self._is_open = True
        if mode is not None:
            self._do(mode, prepare=False)
        self._do(_BEGIN, (role, tenant), prepare=True)
        self._do(_CHECK, (self._known,), prepare=True)

    def _do(
        self, sql: str, parameters: Parameters = (), *, binary: bool = False, prepare: bool | None = None
    ) -> Result:
        if self._pipeline is not None:
            return self._pipeline.send(sql, parameters, binary=binary, prepare=prepare)
        return self._connection.execute(sql.encode(), parameters, binary=binary)

    def ask(
        self, sql: str, parameters: Parameters = (), *, binary: bool = False, prepare: bool | None = None
    ) -> Result:
        """Send a statement; its rows are waited for when they are fetched. After `end` a new transaction is begun.

        `prepare` has it planned for good at its first use, not only when it comes again.
        """
        if not self._is_open:
            self._open()
        return self._do(sql, parameters, binary=binary, prepare=prepare)

    def send(self, sql: str, parameters: Parameters = ()) -> None:
        """Have a statement done whose result nobody needs; its error is told by a later one."""
        self.ask(sql, parameters)

    def rows(
        self,
        sql: str,
        parameters: Parameters = (),
        *,
        last: bool = False,
        binary: bool = False,
        prepare: bool | None = None,
    ) -> list[tuple[Any, ...]]:
        """A statement's rows. `last` ends the transaction in the same round trip."""
        answer = self.ask(sql, parameters, binary=binary, prepare=prepare)
        if last:
            self.end()
        return answer.fetchall()

    def count(self, sql: str, parameters: Parameters = ()) -> int:
        """How many rows a statement changed."""
        return self.ask(sql, parameters).rowcount

    def copy_in(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Write many rows at once; not in pipeline mode."""
        with self._connection.cursor() as cursor, cursor.copy(sql.encode()) as copy:
            for row in rows:
                copy.write_row(row)

    def insert_all(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """A statement for each of some rows; not in pipeline mode."""
        with self._connection.cursor() as cursor:
            cursor.executemany(sql.encode(), rows)

    def end(self, statement: str = "COMMIT") -> None:
        """Commit, and wait until everything is done; raises what went wrong."""
        if not self._is_open:
            return
        assert self._begun is not None
        if self._begun[0] is not None:
            self._do(statement, prepare=False)
        if self._pipeline is not None:
            self._pipeline.close()
        self._is_open = False
        self._pipeline = None

    def abandon(self, error: BaseException) -> None:
        """Leave pipeline mode after an error, which is the one to tell of."""
        self._is_open = False
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None:
            pipeline.abandon(error)
