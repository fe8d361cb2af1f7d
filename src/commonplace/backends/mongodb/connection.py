"""Connections to MongoDB: the address, the collections with their indexes, sessions, and errors in our words.

A write is a transaction with write concern majority and journal. A read sees only what a majority has, and at least
what this process has written: each session starts after the last commit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import pymongo
from pymongo import errors
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import ReadPreference
from pymongo.uri_parser import parse_uri
from pymongo.write_concern import WriteConcern

from commonplace.checks import Namespace
from commonplace.errors import CommonplaceError, ConfigurationError, TooLarge, Unavailable

Document = dict[str, Any]
Client = pymongo.MongoClient[Document]
Query = Mapping[str, Any]
Durability = Literal["full", "normal"]

DATABASE = "the database"
"""The name of the database in errors. A service shows them to its callers, who need not know the address."""

DEFAULT_DATABASE = "commonplace"
SCHEMA = 1
TRANSACTION_SECONDS = 60.0
"""How long a transaction may last unless the server says otherwise."""
OLDEST = (6, 0)
IDS_A_QUERY = 10_000
_NAME = "commonplace"
"""The name of each program at the server."""
_ABANDONED_SECONDS = 10.0
_OF_THE_SERVER = ("admin", "config", "local")
_TIMEOUTS = {"serverselectiontimeoutms": 5_000, "connecttimeoutms": 5_000, "heartbeatfrequencyms": 5_000}

_DUPLICATE_KEY = 11000
_MAY_WORK_AGAIN = ({_DUPLICATE_KEY}, {365})
"""Another program created the same document, or the server's cache is full for the moment."""
_TOO_LONG = 290
_NO_SUCH_TRANSACTION = 251
_INVALID_NAMESPACE = 73
_TRANSACTION_TOO_LARGE = (225, 311, 388, 10334)
_SNAPSHOT_GONE = (239, 246)
_UNAUTHORIZED = 13
_WRITE_CONFLICT = 112
_WRONG_LOGIN = (18, 8000)


def tenant_of(namespace: Namespace) -> str:
    """The first two labels: what a sharded cluster is divided by."""
    return "/".join(namespace[:2])


# The collections. A shard can only guarantee that something is unique among its own documents, so unique indexes begin
# with the tenant. Other ids are unique in the whole book, because they come from one counter.

_UP, _DOWN = pymongo.ASCENDING, pymongo.DESCENDING
_Index = tuple[Sequence[str], dict[str, Any]]
_INDEXES: dict[str, list[_Index]] = {
    "namespace": [(("tenant",), {}), (("number",), {})],
    "entry": [
        (("tenant", "ns", "kind", "key"), {"unique": True}),
        (
            ("tenant", "ns", "kind", "identity"),
            {"unique": True, "partialFilterExpression": {"identity": {"$exists": True}}},
        ),
        (("ns", "created_at", "_id"), {}),
        (("ns", "updated_at", "_id"), {}),
        (("ns", "commit"), {}),
        (("ns", "labels"), {}),
        (("ns", "expires_at"), {"partialFilterExpression": {"expires_at": {"$exists": True}}}),
    ],
    "history": [
        (("tenant", "entry", "revision"), {"unique": True}),
        (("tenant", "ns", "kind", "key", "revision"), {"unique": True}),
        (("ns", "identity"), {"partialFilterExpression": {"identity": {"$exists": True}}}),
        (("ns", "commit"), {}),
        (("ns", "ended_commit"), {}),
        (("ns", "valid_to"), {}),
    ],
    "part": [(("tenant", "owner"), {}), (("ns",), {})],
    "chunk": [(("tenant", "entry", "number"), {}), (("ns", "terms"), {})],
    "vector": [(("tenant", "chunk", "model"), {"unique": True}), (("ns", "model", "former", "sequence"), {})],
    "pending": [(("ns", "_id"), {}), (("ready_at",), {})],
    "operation": [(("tenant", "ns", "key"), {"unique": True}), (("ns", "expires_at"), {})],
    "sequence": [],
    "model": [],
    "system": [(("part", "key"), {"unique": True})],
    "counter": [],
    "adoption": [],
}
OF_TENANTS = ("namespace", "entry", "history", "part", "chunk", "vector", "pending", "operation", "sequence")
"""The collections whose documents have a tenant, by which a cluster divides them."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a book is. `shown` has no password."""

    url: str = field(repr=False)
    database: str
    shown: str


def parse_url(url: str) -> Place:
    try:
        parsed = parse_uri(url, validate=True)
    except (errors.PyMongoError, ValueError) as error:
        raise ConfigurationError(f"the address of the MongoDB server is not valid: {error}") from error
    database = parsed["database"] or DEFAULT_DATABASE
    if parsed["collection"] is not None:
        raise ConfigurationError(
            f"the name of a database has no dots; write _ for . in /{database}.{parsed['collection']}"
        )
    if database in _OF_THE_SERVER:
        raise ConfigurationError(
            f"the database {database} is the server's own; name another one, and if the user was created in it, add "
            f"its name: mongodb://…/agents?authSource={database}"
        )
    hosts = parsed["fqdn"] or ",".join(f"{host}:{port}" for host, port in parsed["nodelist"])
    return Place(url, database, f"mongodb://{hosts}/{database}")


def connect(place: Place, *, durability: Durability, pool_size: int, idle_seconds: float) -> Client:
    given = {name.lower() for name in parse_uri(place.url)["options"]}
    options: dict[str, Any] = {name: value for name, value in _TIMEOUTS.items() if name not in given}
    if "maxpoolsize" not in given:
        options["maxpoolsize"] = pool_size
    if "maxidletimems" not in given:
        options["maxidletimems"] = int(idle_seconds * 1_000)
    client: Client = pymongo.MongoClient(
        place.url,
        appname=_NAME,
        w="majority",
        journal=durability == "full",
        readConcernLevel="majority",
        readPreference="primary",
        retryWrites=True,
        retryReads=True,
        **options,
    )
    return client


@dataclass(frozen=True, slots=True)
class Server:
    """What is behind an address. A sharded cluster is reached through its routers."""

    is_sharded: bool
    transaction_seconds: float


def prepare(client: Client, place: Place) -> Server:
    """Check the server, and create what is missing."""
    hello = client.admin.command("hello")
    is_sharded = hello.get("msg") == "isdbgrid"
    if "setName" not in hello and not is_sharded:
        raise ConfigurationError(
            f"{place.shown} is a standalone server, which has no transactions; start it with `mongod --replSet rs0` "
            'and run `mongosh --eval "rs.initiate()"` once, which makes it a replica set of one member'
        )
    version = tuple(client.server_info()["versionArray"][:2])
    if version < OLDEST:
        raise ConfigurationError(
            f"{place.shown} runs MongoDB {'.'.join(map(str, version))}; version {'.'.join(map(str, OLDEST))} or newer "
            "is needed"
        )
    database = client[place.database]
    stored = database["meta"].find_one({"_id": "schema"})
    if stored is not None and stored["version"] > SCHEMA:
        raise ConfigurationError(
            f"{place.shown} has schema {stored['version']} and this program knows {SCHEMA}; install a newer commonplace"
        )
    if stored is None:
        for name, indexes in _INDEXES.items():
            if not indexes:
                _create(database, name)
            else:
                database[name].create_indexes(
                    [pymongo.IndexModel([(key, _UP) for key in keys], **options) for keys, options in indexes]
                )
        database["meta"].update_one({"_id": "schema"}, {"$set": {"version": SCHEMA}}, upsert=True)
    return Server(is_sharded, _transaction_seconds(client))


def _transaction_seconds(client: Client) -> float:
    name = "transactionLifetimeLimitSeconds"
    try:
        return float(client.admin.command({"getParameter": 1, name: 1})[name])
    except errors.OperationFailure:  # a user may not be allowed to ask, and a router does not know
        return TRANSACTION_SECONDS


def distribute(client: Client, place: Place) -> None:
    """Divide the collections by tenant over the shards of a cluster. This may be done again."""
    database = client[place.database]
    for name in OF_TENANTS:
        try:
            database[name].create_index([("tenant", pymongo.HASHED)])
            client.admin.command("shardCollection", f"{place.database}.{name}", key={"tenant": "hashed"})
        except errors.OperationFailure as error:
            if error.code != _UNAUTHORIZED:
                raise
            raise ConfigurationError(
                f"this user may not divide the collections of {place.shown}; it needs the right enableSharding on "
                f"them, which the role clusterManager has"
            ) from error


def _create(database: Database[Document], name: str) -> None:
    try:
        database.create_collection(name)
    except errors.CollectionInvalid:
        return  # another program was faster
    except errors.OperationFailure as error:
        if error.code != 48:
            raise


# Sessions


def transaction_options(durability: Durability) -> dict[str, Any]:
    return {
        "read_concern": ReadConcern("snapshot"),
        "write_concern": WriteConcern("majority", j=durability == "full", wtimeout=30_000),
        "read_preference": ReadPreference.PRIMARY,
    }


@dataclass(frozen=True, slots=True)
class Location:
    """A namespace and its number. `mine` begins every query in it."""

    namespace: Namespace
    tenant: str
    number: int

    @property
    def mine(self) -> Document:
        return {"tenant": self.tenant, "ns": self.number}


class Renumbered(Exception):
    """The namespace has another number than was known. `expect` says when that can be."""


class Session:
    """Reads and writes with one session of the driver. Writes are collected, and sent before the next read of the same
    collection or by `flush`.
    """

    def __init__(self, database: Database[Document], session: ClientSession, *, is_snapshot: bool) -> None:
        self.database = database
        self.is_snapshot = is_snapshot
        self._session = session
        self._collected: dict[str, list[Any]] = {}
        self._expected: Location | None = None

    def expect(self, place: Location) -> None:
        """Read with a number that was read earlier; raise Renumbered if it is no longer the namespace's.

        An import into a namespace that was purged gives it another number, perhaps from another program. Then nothing
        is left under the old one, so the number is read again when nothing is found.
        """
        self._expected = place

    def _check_number(self, name: str, *, is_found: bool) -> None:
        place = self._expected
        if place is None or name == "namespace":
            return
        self._expected = None
        if not is_found:
            query = {"_id": "/".join(place.namespace), "tenant": place.tenant, "number": place.number}
            if not self.find("namespace", query, ["_id"]):
                raise Renumbered

    def find(self, name: str, query: Query, fields: Sequence[str] | None = None, **options: Any) -> list[Document]:
        return list(self.iterate(name, query, fields, **options))

    def iterate(
        self,
        name: str,
        query: Query,
        fields: Sequence[str] | None = None,
        *,
        sort: Sequence[tuple[str, int]] | None = None,
        limit: int = 0,
        skip: int = 0,
    ) -> Iterator[Document]:
        self.flush(name)
        projection = None if fields is None else dict.fromkeys(fields, 1)
        cursor = self.database[name].find(
            query, projection, sort=sort, limit=limit, skip=skip, session=self._session, allow_disk_use=True
        )
        with cursor:
            for document in cursor:
                self._check_number(name, is_found=True)
                yield document
        self._check_number(name, is_found=False)

    def find_ids(
        self,
        name: str,
        ids: Sequence[Any],
        query: Query,
        fields: Sequence[str] | None = None,
        *,
        by: str = "_id",
        sort: Sequence[tuple[str, int]] | None = None,
    ) -> Iterator[Document]:
        """Documents whose field is one of the given values, however many these are."""
        for start in range(0, len(ids), IDS_A_QUERY):
            some = list(ids[start : start + IDS_A_QUERY])
            yield from self.iterate(name, {**query, by: {"$in": some}}, fields, sort=sort)

    def aggregate(self, name: str, steps: Sequence[Query]) -> list[Document]:
        self.flush(name)
        with self.database[name].aggregate(list(steps), session=self._session, allowDiskUse=True) as cursor:
            found = list(cursor)
        self._check_number(name, is_found=bool(found))
        return found

    def count(self, name: str, query: Query, limit: int = 0) -> int:
        self.flush(name)
        steps: list[Query] = [{"$match": query}, *([{"$limit": limit}] if limit else []), {"$count": "count"}]
        found = self.aggregate(name, steps)
        return int(found[0]["count"]) if found else 0

    def take(self, name: str, query: Query, change: Query, *, upsert: bool = False) -> Document | None:
        """Change one document at once and return it; others that change it wait or are refused."""
        self.flush(name)
        found: Document | None = self.database[name].find_one_and_update(
            query, change, upsert=upsert, return_document=pymongo.ReturnDocument.AFTER, session=self._session
        )
        return found

    def insert(self, name: str, document: Document) -> None:
        self._collect(name, pymongo.InsertOne(document))

    def replace(self, name: str, query: Query, document: Document, *, upsert: bool = False) -> None:
        self._collect(name, pymongo.ReplaceOne(query, document, upsert=upsert))

    def update(self, name: str, query: Query, change: Query | Sequence[Query]) -> None:
        self._collect(name, pymongo.UpdateOne(query, change))

    def update_all(self, name: str, query: Query, change: Query) -> None:
        self._collect(name, pymongo.UpdateMany(query, change))

    def delete(self, name: str, query: Query) -> None:
        self._collect(name, pymongo.DeleteOne(query))

    def delete_all(self, name: str, query: Query) -> None:
        self._collect(name, pymongo.DeleteMany(query))

    def _collect(self, name: str, operation: Any) -> None:
        collected = self._collected.setdefault(name, [])
        collected.append(operation)
        if len(collected) >= 1_000:
            self.flush(name)

    def flush(self, name: str | None = None) -> None:
        """Send the collected writes of one collection, or of all."""
        for one in list(self._collected) if name is None else [name]:
            operations = self._collected.pop(one, None)
            if operations:
                self.database[one].bulk_write(operations, ordered=True, session=self._session)


# Errors


def is_transient(error: BaseException) -> bool:
    """Whether the whole transaction may be tried again: it had no effect."""
    if not isinstance(error, errors.PyMongoError):
        return False
    return error.has_error_label("TransientTransactionError") or codes_of(error) in _MAY_WORK_AGAIN


def codes_of(error: BaseException) -> set[int]:
    if isinstance(error, errors.BulkWriteError):
        return {int(one.get("code", 0)) for one in error.details.get("writeErrors", ())}
    code = getattr(error, "code", None)
    return {code} if isinstance(code, int) else set()


def is_locked(error: BaseException) -> bool:
    """Whether another transaction has changed a document of this one and is not over."""
    return _WRITE_CONFLICT in codes_of(error)


class IdleTransactions:
    """The transactions in which nothing happens while a call waits for its namespace.

    The server keeps the transaction of a program that was killed for over a minute, with all that it locks. A program
    that runs and is only slow has to do its own again. A user sees the transactions of its own user.
    """

    def __init__(self) -> None:
        self._since: dict[tuple[Any, ...], float] = {}

    def end_abandoned(self, client: Client) -> None:
        """End those in which nothing has happened for long; call this every second."""
        admin = client.get_database("admin", read_concern=ReadConcern("local"))
        now = time.monotonic()
        try:
            working = set()
            idle: dict[Any, tuple[int, int]] = {}
            of_programs = {"appName": _NAME, "transaction": {"$exists": True}}
            for one in admin.aggregate([{"$currentOp": {"idleSessions": True}}, {"$match": of_programs}]):
                session, transaction = one["lsid"]["id"], one["transaction"]
                if one["type"] != "idleSession":
                    working.add(session)
                    continue
                active = transaction["timeActiveMicros"] + idle.get(session, (0, 0))[1]  # on all shards
                idle[session] = (transaction["parameters"]["txnNumber"], active)
            since = {
                (session, *state): self._since.get((session, *state), now)
                for session, state in idle.items()
                if session not in working
            }
            self._since = since
            abandoned = {known[0] for known, began in since.items() if now - began > _ABANDONED_SECONDS}
            if abandoned:
                admin.command("killSessions", [{"id": session} for session in abandoned])
        except errors.PyMongoError:
            return  # a user that may not ask waits until the server ends them; of a lost server the next try tells


def is_too_long(error: BaseException, took_seconds: float, limit_seconds: float) -> bool:
    """Whether the server ended a transaction because it lasted too long: it no longer knows it."""
    codes = codes_of(error)
    return _TOO_LONG in codes or (_NO_SUCH_TRANSACTION in codes and took_seconds >= limit_seconds)


def translate(error: errors.PyMongoError, shown: str = DATABASE) -> CommonplaceError:
    codes = codes_of(error)
    if codes & set(_TRANSACTION_TOO_LARGE) or isinstance(error, errors.DocumentTooLarge):
        return TooLarge(
            "the change is larger than MongoDB takes in one transaction; nothing was changed: make it in smaller "
            "parts, or give the server a larger cache (--wiredTigerCacheSizeGB)"
        )
    if codes & set(_SNAPSHOT_GONE):
        return Unavailable(
            f"{shown} no longer has the state that was being read; read again, or raise "
            "minSnapshotHistoryWindowInSeconds on the server"
        )
    if _INVALID_NAMESPACE in codes:
        return ConfigurationError(f"{shown}: MongoDB does not take this name of a database; choose a shorter one")
    if isinstance(error, errors.ConfigurationError):
        return ConfigurationError(f"{shown}: {error}")
    if codes & set(_WRONG_LOGIN):
        return ConfigurationError(
            f"{shown} refuses this user: {_reason(error)}; check the name, the password and, if the user was "
            "created in another database, ?authSource=NAME in the address"
        )
    if _UNAUTHORIZED in codes:
        return ConfigurationError(
            f"{shown} refuses this user: {_reason(error)}; it needs the role readWrite on the book's database"
        )
    if isinstance(error, (errors.ConnectionFailure, errors.ExecutionTimeout, errors.WaitQueueTimeoutError)):
        if shown != DATABASE:  # a caller of a service is not told the servers' names
            reason = str(error).partition(" (configured timeouts")[0].partition(", Timeout:")[0]
            return Unavailable(f"{shown} cannot be reached: {reason}")
        return Unavailable(f"{shown} cannot be reached; nothing was changed, try again")
    if error.has_error_label("TransientTransactionError"):
        return Unavailable(f"{shown} is busy with other changes of the same namespace; nothing was changed, try again")
    return Unavailable(f"{shown} failed: {_reason(error)}; nothing was changed")


def too_long() -> TooLarge:
    return TooLarge(
        "the change took longer than MongoDB lets a transaction run (transactionLifetimeLimitSeconds, 60 seconds "
        "unless the server sets another); nothing was changed: make it in smaller parts, or raise that limit"
    )


def _reason(error: errors.PyMongoError) -> str:
    details = getattr(error, "details", None) or {}
    return str(details.get("codeName") or type(error).__name__)


def cause_of(error: errors.PyMongoError) -> BaseException | None:
    """The error to name as the cause. That of many writes at once contains the documents."""
    return None if isinstance(error, errors.BulkWriteError) else error


@contextmanager
def translated(shown: str = DATABASE) -> Iterator[None]:
    try:
        yield
    except errors.PyMongoError as error:
        raise translate(error, shown) from cause_of(error)
