"""Connections to the server: what it must offer, its errors, values on the wire, pipelines and sessions.

A session is a transaction under one of the two roles. A statement is sent without waiting for the results of earlier
ones, until a result is needed. So a session of four statements costs one or two round trips.

The pipeline works on libpq's own calls. psycopg's cursors in pipeline mode can do the same, but a search then takes a
sixth more CPU and a write nearly twice as much (see decision 006). psycopg's `Transformer` still writes and reads
the values.
"""

from __future__ import annotations

import re
import selectors
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit
from uuid import uuid4

import psycopg
from psycopg import errors
from psycopg.adapt import AdaptersMap, Buffer, Dumper, Loader, PyFormat, Transformer
from psycopg.pq import ConnStatus, Escaping, ExecStatus, Format, PipelineStatus
from psycopg.pq.abc import PGresult
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from commonplace.errors import CommonplaceError, ConfigurationError, Corrupt, InvalidInput, Unavailable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

Parameters = Sequence[Any] | Mapping[str, Any]
Durability = Literal["full", "normal"]

OLDEST_SERVER = 150_000
OLDEST_VECTOR = (0, 8)
"""Searches in large namespaces scan an index until they have found enough, which pgvector can do since 0.8."""

CONNECT_SECONDS = 5
RECONNECT_SECONDS = 0.5
"""How long the pool tries to reconnect by itself. After that, the next request for a connection tries at once."""

IDLE_IN_TRANSACTION_SECONDS = 60
"""A server that hangs in the middle of a write must not hold a namespace's row for ever."""

PREPARED = 1_000
"""How many prepared statements a connection keeps; searches have one per partition."""

UPGRADED = "CP001"
"""What `check_program` raises (migrations/program.sql)."""

ROWS_AN_INSERT = 200
_POOLER_LOOKS = 3
_ARRAY_HEAD = 20
"""The bytes before the items of a one-dimensional array, as PostgreSQL sends it. Each item has its length before it."""

_AGAIN = (
    errors.SerializationFailure,
    errors.DeadlockDetected,
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    errors.InvalidSqlStatementName,  # the server no longer has this connection's prepared statements
    errors.ReadOnlySqlTransaction,  # the server has become a standby; the next connection finds the new primary
    errors.ConnectionException,  # a node of a Citus cluster could not reach another one; the transaction was undone
    errors.ConnectionFailure,
    errors.SqlclientUnableToEstablishSqlconnection,
    errors.ConnectionDoesNotExist,
)

# An error while connecting has no code, only a message.
_REFUSED_LOGIN = re.compile(
    r"authentication failed|no password supplied|role \".*\" does not exist|no pg_hba.conf entry"
)
_UNENCRYPTED = re.compile(r"no pg_hba.conf entry .*no encryption")
_REFUSED_TLS = re.compile(
    r"does not support SSL|sslmode|certificate verify failed|certificate for .* does not match"
    r"|(root certificate|certificate|private key) file \""
)
_NO_DATABASE = re.compile(r"database \".*\" does not exist")
_BEGIN = "SELECT set_config('role', %s, true), set_config('commonplace.tenant', %s, true)"
_ROLE = "SELECT set_config('role', %s, true)"
_READS_ONLY = ("SELECT", "SET", "BEGIN", "COMMIT", "ROLLBACK")
_CHECK = "SELECT check_program(%s)"
_SYNC = object()
_DONE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK, ExecStatus.PIPELINE_SYNC)
_PLACEHOLDER = re.compile(r"%(?:s|\((\w+)\)s|%)")
_Selector: type[selectors.BaseSelector] = getattr(selectors, "PollSelector", selectors.SelectSelector)
_Key = tuple[str, tuple[int, ...] | None]


# Where a book is: the address of its database and its schema there

DEFAULT_SCHEMA = "commonplace"
PARTITIONS = 16


@dataclass(frozen=True, slots=True)
class Place:
    """A database, our own schema in it, and the two roles that do all work there."""

    conninfo: str
    schema: str = DEFAULT_SCHEMA
    partitions: int = PARTITIONS
    """How many partitions the tables get when they are created. It cannot be changed later."""

    is_distributed: bool = False
    """Whether Citus divides the tables (migrate.py). Then they have no partitions."""

    @property
    def app_role(self) -> str:
        """Sees the rows of one tenant at a time."""
        return f"{self.schema}_app"

    @property
    def system_role(self) -> str:
        """Owns the tables: migration, indexing, listings over tenants, copies."""
        return f"{self.schema}_system"

    @property
    def shown(self) -> str:
        """The address without its password, for messages."""
        parts = urlsplit(self.conninfo)
        host = parts.netloc.rpartition("@")[2]
        return f"postgresql://{host}{parts.path} (schema {self.schema})"


def parse_url(url: str) -> Place:
    """Parse a URL. `?schema=` and `?partitions=` are ours; everything else goes to the driver."""
    parts = urlsplit(url)
    ours = {"schema": DEFAULT_SCHEMA, "partitions": str(PARTITIONS)}
    others = []
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in ours:
            ours[name] = value
        else:
            others.append((name, value))
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,49}", ours["schema"]):
        raise ConfigurationError(
            f"schema={ours['schema']!r} in the database's address: use lower-case letters, digits and _, at most 50"
        )
    if not ours["partitions"].isdecimal() or not 1 <= int(ours["partitions"]) <= 1_024:
        raise ConfigurationError(f"partitions={ours['partitions']!r} in the database's address must be 1 to 1024")
    conninfo = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(others), ""))
    return Place(conninfo, ours["schema"], int(ours["partitions"]))


# What a server must offer


def check_server(connection: psycopg.Connection[Any], place: Place) -> None:
    """Refuse a server that is too old, and a pooler that gives each transaction another session."""
    if connection.info.server_version < OLDEST_SERVER:
        raise ConfigurationError(
            f"{place.shown} is PostgreSQL {connection.info.server_version // 10_000}; 15 or newer is needed"
        )
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    if row is None or row[0] != connection.info.backend_pid:
        # If the process that answers is not the one we logged in to, there is a pooler.
        _check_pooler(connection, place)


def _check_pooler(connection: psycopg.Connection[Any], place: Place) -> None:
    """Check that a session keeps its own setting and that no other session sees it."""
    mine = uuid4().hex
    connection.execute("SELECT set_config('commonplace.session', %s, false)", (mine,))
    with psycopg.connect(place.conninfo, autocommit=True, connect_timeout=CONNECT_SECONDS) as other:
        for _ in range(_POOLER_LOOKS):
            if _session(other) == mine or _session(connection) != mine:
                raise ConfigurationError(
                    f"{place.shown} is reached through a pooler that keeps no session, such as PgBouncer with "
                    "pool_mode = transaction; set pool_mode = session there, or give the address of the database itself"
                )


def check_vector(connection: psycopg.Connection[Any], place: Place) -> None:
    """Refuse a pgvector that is too old. The migration reports one that is missing."""
    row = connection.execute(
        "SELECT e.extversion, a.default_version FROM pg_extension AS e"
        " LEFT JOIN pg_available_extensions AS a ON a.name = e.extname WHERE e.extname = 'vector'"
    ).fetchone()
    if row is None:
        return
    installed, available = row
    if _version(installed) >= OLDEST_VECTOR:
        return
    install = "" if _version(available or "") >= OLDEST_VECTOR else "install a newer pgvector on the server, then "
    raise ConfigurationError(
        f"{place.shown} has pgvector {installed}; {'.'.join(map(str, OLDEST_VECTOR))} or newer is needed: {install}"
        "let an administrator run `ALTER EXTENSION vector UPDATE` in that database"
    )


def _session(connection: psycopg.Connection[Any]) -> str | None:
    row = connection.execute("SELECT current_setting('commonplace.session', true)").fetchone()
    return None if row is None else row[0]


def _version(written: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", written)[:2]))


# Errors


def is_lost(error: BaseException) -> bool:
    """Whether the connection is gone, so that the outcome of its last statement is unknown."""
    if isinstance(error, (errors.AdminShutdown, errors.CrashShutdown, errors.IdleInTransactionSessionTimeout)):
        return True
    if isinstance(error, (PoolTimeout, PoolClosed, errors.QueryCanceled, errors.LockNotAvailable)):
        return False
    return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)) and error.sqlstate is None


def may_work_again(error: BaseException) -> bool:
    return is_lost(error) or isinstance(error, _AGAIN)


@contextmanager
def translated(place: str) -> Iterator[None]:
    """Turn PostgreSQL's errors into ours, with what to do next."""
    try:
        yield
    except (psycopg.Error, PoolTimeout, PoolClosed) as error:
        raise translate(error, place) from error


def translate(error: Exception, place: str) -> CommonplaceError:
    """All errors of PostgreSQL are translated here."""
    reason = str(error).strip().partition("\n")[0]
    if isinstance(error, PoolTimeout):
        return Unavailable(f"no connection to {place} was free in time; nothing was changed, try again")
    if isinstance(error, PoolClosed):
        return Unavailable(f"the book at {place} is closed; open it again")
    if isinstance(error, (errors.QueryCanceled, errors.LockNotAvailable, errors.IdleInTransactionSessionTimeout)):
        return Unavailable(f"{place} took longer than the time-out allows; nothing was changed, try again")
    if isinstance(error, (errors.DiskFull, errors.OutOfMemory, errors.InsufficientResources)):
        return Unavailable(f"{place} has no room left ({reason}); nothing was changed; free space on the server")
    if isinstance(error, (errors.DataCorrupted, errors.IndexCorrupted)):
        return Corrupt(f"{place} reports damaged data ({reason}); restore a backup")
    if isinstance(error, psycopg.Error) and error.sqlstate == UPGRADED:
        return Unavailable(f"{place} is newer than this program: {reason}; restart it with the newer version")
    if isinstance(error, (errors.DeadlockDetected, errors.SerializationFailure)):
        return Unavailable(f"{place} was busy with conflicting calls ({reason}); nothing was changed, try again")
    if _UNENCRYPTED.search(reason):
        return ConfigurationError(
            f"{place} requires an encrypted connection ({reason}); add sslmode=require to DATABASE_URL"
        )
    if _REFUSED_TLS.search(reason):
        return ConfigurationError(
            f"{place} cannot be reached over TLS ({reason}); "
            "correct sslmode, sslrootcert, sslcert or sslkey in DATABASE_URL"
        )
    if _REFUSED_LOGIN.search(reason):
        return ConfigurationError(f"{place} refused the login ({reason}); check the user and password in DATABASE_URL")
    if _NO_DATABASE.search(reason):
        return ConfigurationError(f"{place}: {reason}; create the database, or correct DATABASE_URL")
    if isinstance(error, errors.InsufficientPrivilege):
        return ConfigurationError(f"{place}: {reason}; grant it to the role in DATABASE_URL")
    if isinstance(error, (errors.UndefinedTable, errors.UndefinedColumn, errors.UndefinedFunction)):
        return ConfigurationError(
            f"{place} lacks a part of the schema ({reason}); restart this program, which adds what is missing. "
            "A pooler in front of the database must keep sessions (PgBouncer: pool_mode = session)"
        )
    if isinstance(error, errors.ProgramLimitExceeded):
        return InvalidInput(f"the call is too large for {place} ({reason}); ask for less at once")
    if isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
        return Unavailable(f"{place} cannot be reached ({reason}); nothing was changed, try again")
    return Unavailable(f"{place} failed: {reason}; nothing was changed")


# Values


class Halfvec(bytes):
    """A vector as pgvector sends it: its length, two unused bytes, then half-precision numbers."""

    @classmethod
    def of(cls, vector: Floats) -> Halfvec:
        return cls(len(vector).to_bytes(2, "big") + b"\0\0" + vector.astype(">f2").tobytes())


class Vector(bytes):
    """A vector of full precision, as pgvector takes it."""

    @classmethod
    def of(cls, vector: Floats) -> Vector:
        return cls(len(vector).to_bytes(2, "big") + b"\0\0" + vector.astype(">f4").tobytes())


def array_of(numbers: Iterable[int]) -> str:
    """Numbers in the text form of a PostgreSQL array. This is faster than psycopg, which inspects each number."""
    return "{" + ",".join(map(str, numbers)) + "}"


def texts_of(texts: Iterable[str]) -> str:
    """The same for texts."""
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return "{" + ",".join(f'"{text}"' for text in quoted) + "}"


def numbers_of(sent: bytes | None) -> NDArray[np.int64]:
    """An array of numbers as `array_send` gives it."""
    import numpy as np

    return _members(sent, ">i8").astype(np.int64)


def _members(sent: bytes | None, kind: str) -> NDArray[Any]:
    import numpy as np

    if sent is None:
        return np.empty(0, dtype=kind)
    found: NDArray[Any] = np.frombuffer(sent, dtype=[("length", ">i4"), ("member", kind)], offset=_ARRAY_HEAD)
    return found["member"]


def vectors_of(sent: bytes | None, dimensions: int) -> NDArray[np.float16]:
    """Vectors as `halfvec_send` gives them, one after the other, as the rows of a matrix."""
    import numpy as np

    if not sent:
        return np.empty((0, dimensions), np.float16)
    rows = np.frombuffer(sent, ">i2").reshape(-1, dimensions + 2)[:, 2:]
    return rows.astype(np.int16).view(np.float16)


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
    """How values are sent, and the schema that contains pgvector. Both differ from database to database."""
    row = connection.execute(
        "SELECT half.oid, whole.oid, n.nspname FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace"
        " JOIN pg_type AS half ON half.typnamespace = n.oid AND half.typname = 'halfvec'"
        " JOIN pg_type AS whole ON whole.typnamespace = n.oid AND whole.typname = 'vector' WHERE e.extname = 'vector'"
    ).fetchone()
    if row is None:
        raise ConfigurationError(
            "this database has no pgvector; let an administrator run `CREATE EXTENSION vector` in it"
        )
    half, whole, schema = row
    found = AdaptersMap(psycopg.adapters)
    # A number's type must not depend on its size, because each type would need another prepared statement.
    found.register_dumper(int, Int8Dumper)
    found.register_dumper(int, Int8BinaryDumper)
    found.register_dumper(Halfvec, type("HalfvecDumper", (_VectorDumper,), {"oid": half}))
    found.register_dumper(Vector, type("VectorDumper", (_VectorDumper,), {"oid": whole}))
    found.register_loader(half, _HalfvecLoader)
    return found, schema


# Statements


class Result(Protocol):
    """The result of a statement. Reading it waits. psycopg's cursors satisfy this protocol, too."""

    @property
    def rowcount(self) -> int: ...

    def fetchall(self) -> list[tuple[Any, ...]]: ...


class Link(psycopg.Connection[Any]):
    """A connection of the pool with its prepared statements."""

    answer_seconds: float | None = None
    """How long it may send nothing while an answer is expected; None for ever. It is closed then."""

    _statements: _Statements | None = None

    @property
    def statements(self) -> _Statements:
        if self._statements is None:
            self._statements = _Statements(self)
        return self._statements


class _Statements:
    """A connection's prepared statements, and the converters of its values."""

    def __init__(self, link: Link) -> None:
        self.transformer = Transformer(link)
        self.readable = _Selector()
        self.readable.register(link.pgconn.socket, selectors.EVENT_READ)
        self.names: dict[_Key, bytes] = {}
        self.seen: set[_Key] = set()
        self._made = 0

    def next_name(self) -> bytes:
        """A name that was never used before, so that it does not matter whether an earlier PREPARE succeeded."""
        self._made += 1
        return b"cp%d" % self._made


class _PipelineResult:
    """The result of one statement in a pipeline."""

    __slots__ = ("_pipeline", "result")

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self.result: PGresult | None = None

    @property
    def rowcount(self) -> int:
        return self._pipeline.result_of(self).command_tuples or 0

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._pipeline.rows_of(self)


class Pipeline:
    """A connection in pipeline mode, until `close` or `abandon`."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._pgconn = link.pgconn
        self._statements = link.statements
        self._coming: deque[Any] = deque()
        """For each expected result: a `_PipelineResult`, the key of a statement to be prepared, or `_SYNC`."""
        self._preparing: dict[_Key, bytes] = {}
        self._pgconn.enter_pipeline_mode()

    def send(
        self, sql: str, parameters: Parameters = (), *, binary: bool = False, prepare: bool | None = None
    ) -> _PipelineResult:
        """Send a statement. It is prepared the second time it is sent; `prepare` prepares it at once (True) or never
        (False).
        """
        statements, pgconn = self._statements, self._pgconn
        numbered, names = _numbered(sql)
        values: Sequence[Any] = [parameters[name] for name in names] if isinstance(parameters, Mapping) else parameters
        transformer = statements.transformer
        dumped = transformer.dump_sequence(values, [PyFormat.AUTO] * len(values)) if values else ()
        types, formats = (transformer.types, transformer.formats) if values else (None, None)
        key = (sql, types)
        name = statements.names.get(key) or self._preparing.get(key)
        if name is None and (prepare or (prepare is None and key in statements.seen)):
            name = self._prepare(key, numbered)
        given = _PipelineResult(self)
        if name is None:
            if len(statements.seen) >= PREPARED:
                statements.seen.clear()
            statements.seen.add(key)
            pgconn.send_query_params(numbered, dumped, types, formats, int(binary))
        else:
            pgconn.send_query_prepared(name, dumped, formats, int(binary))
        self._coming.append(given)
        return given

    def _prepare(self, key: _Key, numbered: bytes) -> bytes:
        statements = self._statements
        if len(statements.names) + len(self._preparing) >= PREPARED:
            self._pgconn.send_query_params(b"DEALLOCATE ALL", None)
            self._coming.append(_PipelineResult(self))
            statements.names.clear()
            self._preparing.clear()
        name = self._preparing[key] = statements.next_name()
        self._pgconn.send_prepare(name, numbered, key[1])
        self._coming.append(key)
        return name

    def result_of(self, given: _PipelineResult) -> PGresult:
        if given.result is None:
            self._pgconn.send_flush_request()
            while given.result is None:
                self._receive()
        return given.result

    def rows_of(self, given: _PipelineResult) -> list[tuple[Any, ...]]:
        result = self.result_of(given)
        transformer = self._statements.transformer
        transformer.set_pgresult(result)
        return transformer.load_rows(0, result.ntuples, tuple)

    def close(self) -> None:
        """Finish all statements and leave pipeline mode; raises what went wrong."""
        self._pgconn.pipeline_sync()
        self._coming.append(_SYNC)
        while self._coming:
            self._receive()
        self._pgconn.exit_pipeline_mode()

    def abandon(self, error: BaseException) -> None:
        """Leave pipeline mode after an error. The caller raises that error, so later ones are dropped."""
        if isinstance(error, errors.InvalidSqlStatementName):
            self._statements.names.clear()  # something made the server drop all of them
        if self._pgconn.pipeline_status == PipelineStatus.OFF or self._link.closed:
            return
        if not isinstance(error, Exception):
            self._link.close()  # interrupted: do not wait for the last statement
            return
        try:
            self._pgconn.pipeline_sync()
            self._coming.append(_SYNC)
            while self._coming:
                self._receive(is_abandoned=True)
            self._pgconn.exit_pipeline_mode()
        except psycopg.Error:
            self._link.close()

    def _receive(self, *, is_abandoned: bool = False) -> None:
        """Take the next result, of whichever statement; raises its error."""
        pgconn = self._pgconn
        while pgconn.flush():
            self._wait(selectors.EVENT_READ | selectors.EVENT_WRITE)
        while pgconn.is_busy():
            self._wait(selectors.EVENT_READ)
        result = pgconn.get_result()
        if result is None:  # the end of a statement's answer
            if pgconn.status == ConnStatus.BAD:
                raise psycopg.OperationalError("the connection is lost")
            return
        status = result.status
        coming = self._coming.popleft()
        if status in _DONE:
            if isinstance(coming, _PipelineResult):
                coming.result = result
            elif coming is not _SYNC and coming in self._preparing:
                self._statements.names[coming] = self._preparing.pop(coming)
        elif not is_abandoned:
            raise errors.error_from_result(result)

    def _wait(self, events: int) -> None:
        if events == selectors.EVENT_READ:
            if not self._statements.readable.select(self._link.answer_seconds):
                self._link.close()
                raise psycopg.OperationalError(f"no answer within {self._link.answer_seconds:g} seconds")
            self._pgconn.consume_input()
            return
        with _Selector() as selector:
            selector.register(self._pgconn.socket, events)
            if any(ready & selectors.EVENT_READ for _, ready in selector.select()):
                self._pgconn.consume_input()


@lru_cache(maxsize=4 * PREPARED)
def _numbered(sql: str) -> tuple[bytes, tuple[str, ...]]:
    """A statement with `$1` for `%s` or `%(name)s`, and the names in the order of their numbers."""
    numbers: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        return f"${numbers.setdefault(found[1] or str(len(numbers)), len(numbers) + 1)}"

    return _PLACEHOLDER.sub(number, sql).encode(), tuple(numbers)


# The pool and its sessions


Pool = ConnectionPool[Link]


def create_pool(
    conninfo: str,
    place: Place,
    context: tuple[AdaptersMap, str],
    *,
    size: int,
    idle_seconds: float,
    query_seconds: float,
    durability: Durability,
    answer_seconds: float | None = None,
) -> Pool:
    known, vector_schema = context
    settings = {
        "search_path": f"{place.schema}, {vector_schema}, pg_temp",
        "statement_timeout": f"{int(query_seconds * 1_000)}ms",
        "lock_timeout": f"{int(query_seconds * 1_000)}ms",
        "idle_in_transaction_session_timeout": f"{IDLE_IN_TRANSACTION_SECONDS}s",
        "jit": "off",  # starting it costs more than any of our statements
        # Every statement names its namespace and has an index for it. Planning each call made them half as slow again.
        "plan_cache_mode": "force_generic_plan",
        "application_name": "commonplace",
    }

    if place.is_distributed:
        # Which shard a statement is for is known when it is planned with its parameters. `SET LOCAL` goes to the nodes.
        settings |= {"plan_cache_mode": "force_custom_plan", "citus.propagate_set_commands": "local"}
    if durability == "normal":
        settings["synchronous_commit"] = "off"

    def configure(connection: Link) -> None:
        connection.answer_seconds = answer_seconds
        calls = ", ".join(["set_config(%s, %s, false)"] * len(settings))
        connection.execute(f"SELECT {calls}".encode(), [part for pair in settings.items() for part in pair])
        if durability == "full":
            # A stricter setting, such as remote_apply, stays.
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

    Without a BEGIN it is the implicit transaction of all statements up to the next synchronisation. That is enough for
    reads, and saves two statements. `known` is the newest schema that this program knows; a newer one fails the
    session.

    On Citus there is always a BEGIN: the nodes get the tenant with the first statement that they run in it.
    """

    def __init__(self, connection: psycopg.Connection[Any], known: int, *, is_distributed: bool = False) -> None:
        self._connection = connection
        self._known = known
        self.is_distributed = is_distributed
        self.has_changed = False
        """Whether a statement was sent that may change rows."""
        self._start: tuple[str | None, str, str] | None = None
        self._pipeline: Pipeline | None = None
        self._copies = False
        self._is_open = False

    def begin(self, mode: str | None, role: str, tenant: str | None, *, copies: bool = False) -> None:
        """Start without waiting. An error here is raised by the first rows that are fetched."""
        self._start = (mode, role, tenant or "")
        self._copies = copies
        self._open()

    def _open(self) -> None:
        assert self._start is not None, "call begin first"
        mode, role, tenant = self._start
        if self.is_distributed:
            mode = mode or "BEGIN"
        if isinstance(self._connection, Link) and not self._copies:
            self._pipeline = Pipeline(self._connection)
        self._is_open = True
        if mode is not None:
            self._do(mode, prepare=False)
        if self.is_distributed:
            self._do(_ROLE, (role,), prepare=True)
            self.set_local("commonplace.tenant", tenant)
        else:
            self._do(_BEGIN, (role, tenant), prepare=True)
        self._do(_CHECK, (self._known,), prepare=True)

    def set_local(self, name: str, value: str) -> None:
        """Change a setting until the end of the transaction, on the nodes of a Citus cluster, too."""
        if self.is_distributed:
            literal = Escaping(self._connection.pgconn).escape_literal(value.encode()).decode()
            self.ask(f"SET LOCAL {name} TO {literal.replace('%', '%%')}", prepare=False)
        else:
            self.ask("SELECT set_config(%s, %s, true)", (name, value))

    def _do(
        self, sql: str, parameters: Parameters = (), *, binary: bool = False, prepare: bool | None = None
    ) -> Result:
        if not sql.lstrip().startswith(_READS_ONLY):
            self.has_changed = True
        if self._pipeline is not None:
            return self._pipeline.send(sql, parameters, binary=binary, prepare=prepare)
        return self._connection.execute(sql.encode(), parameters, binary=binary)

    def ask(
        self, sql: str, parameters: Parameters = (), *, binary: bool = False, prepare: bool | None = None
    ) -> Result:
        """Send a statement.

        Fetching its rows waits. After `end` this starts a new transaction. `prepare` prepares it at its first use, not
        only at its second.
        """
        if not self._is_open:
            self._open()
        return self._do(sql, parameters, binary=binary, prepare=prepare)

    def send(self, sql: str, parameters: Parameters = ()) -> None:
        """Send a statement whose result is not needed. A later statement raises its error."""
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

    def insert(self, table: str, columns: str, rows: Sequence[Sequence[Any]], otherwise: str = "") -> None:
        """Insert some rows with one statement. Use it where INSERT ... SELECT is not possible."""
        for start in range(0, len(rows), ROWS_AN_INSERT):
            some = rows[start : start + ROWS_AN_INSERT]
            marks = ", ".join(["(" + ", ".join(["%s"] * len(some[0])) + ")"] * len(some))
            values = [value for row in some for value in row]
            self.send(f"INSERT INTO {table} ({columns}) VALUES {marks} {otherwise}", values)

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
        assert self._start is not None
        if self._start[0] is not None or self.is_distributed:
            self._do(statement, prepare=False)
        if self._pipeline is not None:
            self._pipeline.close()
        self._is_open = False
        self._pipeline = None

    def abandon(self, error: BaseException) -> None:
        """Leave pipeline mode after an error. The caller raises that error, so later ones are dropped."""
        self._is_open = False
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None:
            pipeline.abandon(error)
