"""Connections to MongoDB: the address, the collections with their indexes, sessions, and errors in our words.

A write is a transaction with write concern majority and journal. A read sees only what a majority has, and at least
what this process has written: each session starts after the last commit.
"""

from __future__ import annotations

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
_TIMEOUTS = {"serverselectiontimeoutms": 5_000, "connecttimeoutms": 5_000, "heartbeatfrequencyms": 5_000}

_DUPLICATE_KEY = 11000
_MAY_WORK_AGAIN = ({_DUPLICATE_KEY}, {365})
"""Another program created the same document, or the server's cache is full for the moment."""
_TOO_LONG = 290
_NO_SUCH_TRANSACTION = 251
_TRANSACTION_TOO_LARGE = (225, 311, 388, 10334)
_SNAPSHOT_GONE = (239, 246)
_DENIED = (13, 18, 8000)


def tenant_of(namespace: Namespace) -> str:
    """The first two labels: what a sharded cluster is divided by."""
    return "/".join(namespace[:2])


# The collections. Only unique indexes begin with the tenant, as a sharded collection demands; the number of a namespace
# is unique in the whole book.

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
    "pending": [(("tenant",), {}), (("ns", "_id"), {}), (("ready_at",), {})],
    "operation": [(("tenant", "ns", "key"), {"unique": True}), (("ns", "expires_at"), {})],
    "sequence": [(("tenant",), {})],
    "model": [],
    "system": [(("part", "key"), {"unique": True})],
    "counter": [],
    "adoption": [],
}
OF_TENANTS = ("namespace", "entry", "history", "part", "chunk", "vector", "pending", "operation", "sequence")
"""The collections whose documents have a tenant, by which a cluster could divide them."""


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
        appname="commonplace",
        w="majority",
        journal=durability == "full",
        readConcernLevel="majority",
        readPreference="primary",
        retryWrites=True,
        retryReads=True,
        **options,
    )
    return client


def prepare(client: Client, place: Place) -> float:
    """Check the server, and create what is missing; returns how many seconds a transaction may last."""
    hello = client.admin.command("hello")
    if hello.get("msg") == "isdbgrid":
        raise ConfigurationError(f"{place.shown} is a sharded cluster, which is not supported yet; use a replica set")
    if "setName" not in hello:
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
    return _transaction_seconds(client)


def _transaction_seconds(client: Client) -> float:
    name = "transactionLifetimeLimitSeconds"
    try:
        return float(client.admin.command({"getParameter": 1, name: 1})[name])
    except errors.OperationFailure:  # a user may not be allowed to ask
        return TRANSACTION_SECONDS


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


class Session:
    """Reads and writes with one session of the driver. Writes are collected, and sent before the next read of the same
    collection or by `flush`.
    """

    def __init__(self, database: Database[Document], session: ClientSession, *, is_snapshot: bool) -> None:
        self.database = database
        self.is_snapshot = is_snapshot
        self._session = session
        self._collected: dict[str, list[Any]] = {}

    def find(
        self,
        name: str,
        query: Query,
        fields: Sequence[str] | None = None,
        *,
        sort: Sequence[tuple[str, int]] | None = None,
        limit: int = 0,
        skip: int = 0,
    ) -> list[Document]:
        return list(self.iterate(name, query, fields, sort=sort, limit=limit, skip=skip))

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
            yield from cursor

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
            return list(cursor)

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
    if isinstance(error, errors.ConfigurationError):
        return ConfigurationError(f"{shown}: {error}")
    if codes & set(_DENIED):
        return ConfigurationError(f"{shown} refuses this user: {_reason(error)}; check its name, password and roles")
    if isinstance(error, (errors.ConnectionFailure, errors.ExecutionTimeout, errors.WaitQueueTimeoutError)):
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
