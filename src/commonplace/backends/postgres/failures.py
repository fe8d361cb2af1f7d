"""PostgreSQL's errors in our words, and which of them a second attempt may cure. The one place that decides this."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors
from psycopg_pool import PoolClosed, PoolTimeout

from commonplace.errors import CommonplaceError, ConfigurationError, Corrupt, InvalidInput, Unavailable

_AGAIN = (
    errors.SerializationFailure,
    errors.DeadlockDetected,
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    errors.InvalidSqlStatementName,  # the server has forgotten what it had planned for this connection
    errors.ReadOnlySqlTransaction,  # the server became a standby under us: the next connection finds the new primary
)

UPGRADED = "CP001"
"""What `check_program` raises (migrations/program.sql)."""

# An error while connecting has no code, only words.
_REFUSED_LOGIN = re.compile(
    r"authentication failed|no password supplied|role \".*\" does not exist|no pg_hba.conf entry"
)
_UNENCRYPTED = re.compile(r"no pg_hba.conf entry .*no encryption")
_REFUSED_TLS = re.compile(
    r"does not support SSL|sslmode|certificate verify failed|certificate for .* does not match"
    r"|(root certificate|certificate|private key) file \""
)
_NO_DATABASE = re.compile(r"database \".*\" does not exist")


def is_lost(error: BaseException) -> bool:
    """Whether the connection is gone, so that nobody knows what became of its last statement."""
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
    """The one place where an error of PostgreSQL gets its meaning."""
    reason = str(error).strip().partition("\n")[0]
    if isinstance(error, PoolTimeout):
        return Unavailable(f"no connection to {place} was free in time; nothing was changed, try again")
    if isinstance(error, PoolClosed):
        return Unavailable(f"the book at {place} is closed; open it again")
    if isinstance(error, (errors.QueryCanceled, errors.LockNotAvailable, errors.IdleInTransactionSessionTimeout)):
        return Unavailable(f"{place} took longer than the time-out allows; nothing was changed, try again")
    if isinstance(error, (errors.DiskFull, errors.OutOfMemory, errors.InsufficientResources)):
        return Unavailable(f"{place} has no room left ({reason}); nothing was changed, see to the server")
    if isinstance(error, (errors.DataCorrupted, errors.IndexCorrupted)):
        return Corrupt(f"{place} reports damaged data ({reason}); restore a backup")
    if isinstance(error, psycopg.Error) and error.sqlstate == UPGRADED:
        return Unavailable(f"{place} is newer than this program: {reason}; restart it with the newer version")
    if isinstance(error, (errors.DeadlockDetected, errors.SerializationFailure)):
        return Unavailable(f"{place} gave way to other calls ({reason}); nothing was changed, try again")
    if _UNENCRYPTED.search(reason):
        return ConfigurationError(
            f"{place} wants an encrypted connection ({reason}); add sslmode=require to DATABASE_URL"
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
