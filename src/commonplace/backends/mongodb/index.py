"""Documents derived from live entries: passages with their terms, models and vectors.

The terms of a passage are an array in its document, with an index over namespace and term. `repeated` has the terms
that occur more than once, with a mark behind. Labels are an array in the entry's own document.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pymongo
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from commonplace.backends.entry_index import HEADING, BaseEntryIndex, Numbered, match_passages
from commonplace.backends.mongodb.connection import Document, Location, Session, tenant_of
from commonplace.backends.mongodb.documents import live_row, whole_documents
from commonplace.backends.mongodb.reader import NamespaceRow
from commonplace.backends.ranking import posting
from commonplace.backends.rows import entry_of
from commonplace.checks import stored_namespace
from commonplace.errors import ConfigurationError
from commonplace.language.passages import frequency_level
from commonplace.store import Pending

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

IDS_AT_ONCE = 1_000
ENTRIES_A_STEP = 200
MARKS_A_STEP = 2_000
RETIRED_A_STEP = 2_000
LONGEST_LEASE_SECONDS = 3_600
MOST_DOUBLINGS = 20  # of a lease; more would overflow a float

_LEVEL_MARKS = {2: "\x02", 3: "\x03"}  # no term contains a control character
LIVE_CHUNK: Document = {"ended": None}
WANTS_VECTOR: Document = {"number": {"$gte": 0}, "length": {"$gt": 0}}


def marked(term: str, level: int) -> str:
    return term + _LEVEL_MARKS[level]


def term_fields(terms: Mapping[str, int]) -> Document:
    """The terms of a passage as fields of its document."""
    repeated = [marked(term, frequency_level(count)) for term, count in terms.items() if count > 1]
    return {"terms": list(terms), **({"repeated": repeated} if repeated else {})}


class Identifiers:
    """Ids from the database's counter, a block at a time. None is ever used again."""

    def __init__(self, database: Database[Document]) -> None:
        self._counter = database["counter"]
        self._mutex = threading.Lock()
        self._next = self._stop = 0

    def take(self, row: NamespaceRow) -> int:
        """An id above all that the namespace has; another program may have taken a later block for it."""
        with self._mutex:
            if self._next >= self._stop or self._next <= row.last_id:
                found = self._counter.find_one_and_update(
                    {"_id": "identifier"},
                    {"$inc": {"next": IDS_AT_ONCE}},
                    upsert=True,
                    return_document=pymongo.ReturnDocument.AFTER,
                )
                assert found is not None
                self._stop = found["next"] + 1
                self._next = self._stop - IDS_AT_ONCE
            self._next += 1
            row.last_id = self._next - 1
            return row.last_id


class EntryIndex(BaseEntryIndex):
    """Writes the derived documents of entries in one namespace, as part of a transaction."""

    def __init__(self, session: Session, place: Location, row: NamespaceRow, ids: Identifiers) -> None:
        super().__init__(row)
        self._session = session
        self._place = place
        self._row = row
        self._ids = ids

    def chunks_of(self, entry_ids: Sequence[int], *, only_headings: bool = False) -> list[tuple[int, int]]:
        which = {"tenant": self._place.tenant, **LIVE_CHUNK, **({"number": HEADING} if only_headings else {})}
        found = self._session.find_ids("chunk", entry_ids, which, ["length"], by="entry")
        return [(one["_id"], one["length"]) for one in found]

    def _text_chunks(self, entry_id: int) -> list[tuple[int, int, int, int]]:
        query = {"tenant": self._place.tenant, "entry": entry_id, "number": {"$gte": 0}, **LIVE_CHUNK}
        found = self._session.find("chunk", query, ["length", "start", "stop"], sort=[("number", 1)])
        return [(one["_id"], one["length"], one["start"], one["stop"]) for one in found]

    def _insert_chunks(self, commit: int, added: Sequence[Numbered]) -> None:
        for entry_id, number, found in added:
            chunk = self._ids.take(self._row)
            self._session.insert(
                "chunk",
                {
                    "_id": chunk,
                    **self._place.mine,
                    "entry": entry_id,
                    "number": number,
                    "start": found.start,
                    "stop": found.end,
                    "length": found.length,
                    "posting": posting(chunk, found.length),
                    "commit": commit,
                    **term_fields(found.terms),
                },
            )
            if number != HEADING and found.terms:
                self._session.insert("pending", {"_id": chunk, **self._place.mine, "ready_at": 0, "attempts": 0})

    def _end_chunk_rows(self, ended: Sequence[tuple[int, int]]) -> int:
        tenant = {"tenant": self._place.tenant}
        for start in range(0, len(ended), MARKS_A_STEP):
            chunks = {"$in": [chunk for chunk, _ in ended[start : start + MARKS_A_STEP]]}
            self._session.update_all(
                "chunk",
                {**tenant, "_id": chunks},
                {"$set": {"ended": self._row.commit_number}, "$unset": {"terms": "", "repeated": ""}},
            )
            self._session.delete_all("pending", {**tenant, "_id": chunks})
            self._session.update_all("vector", {**tenant, "chunk": chunks}, {"$set": {"former": True}})
        return len(ended)

    # Labels are written with the entry's document.

    def _insert_labels(self, entry_id: int, added: set[tuple[str, str]]) -> None: ...

    def remove_labels(self, entry_id: int, removed: set[tuple[str, str]]) -> None: ...

    def rebuild_after(self, last: int) -> tuple[int, int]:
        """Rebuild passages and terms of the next entries from their texts; keep every vector whose passage stays.

        Returns the id of the last entry and how many these were. After the last one, the passages are counted.
        """
        query = {**self._place.mine, "_id": {"$gt": last}}
        documents = self._session.find("entry", query, sort=[("_id", 1)], limit=ENTRIES_A_STEP)
        for document in whole_documents(self._session, self._place, documents):
            entry = entry_of(self._place.namespace, live_row(document))
            self._rebuild_entry(entry.id, entry.commit, entry.heading, entry.text)
            last = entry.id
        self._row.chunks_ended += 1
        if not documents:
            counts = {"_id": None, "count": {"$sum": 1}, "total": {"$sum": "$length"}}
            live = {**self._place.mine, **LIVE_CHUNK}
            found = self._session.aggregate("chunk", [{"$match": live}, {"$group": counts}])
            self._row.chunk_count, self._row.term_total = (found[0]["count"], found[0]["total"]) if found else (0, 0)
        return last, len(documents)

    def _rebuild_entry(self, entry_id: int, commit: int, heading: str | None, text: str) -> None:
        tenant = self._place.tenant
        query = {"tenant": tenant, "entry": entry_id, **LIVE_CHUNK}
        found = self._session.find("chunk", query, ["number", "start", "stop", "length"])
        self._row.chunk_count -= len(found)
        self._row.term_total -= sum(one["length"] for one in found)
        known = {(one["number"], one["start"], one["stop"]): one["_id"] for one in found}
        kept, new, gone = match_passages(text, heading, known)
        for chunk, made in kept:
            fields = {"length": made.length, "posting": posting(chunk, made.length), **term_fields(made.terms)}
            unset = {} if "repeated" in fields else {"$unset": {"repeated": ""}}
            self._session.update("chunk", {"_id": chunk, "tenant": tenant}, {"$set": fields, **unset})
            self._row.chunk_count += 1
            self._row.term_total += made.length
        if gone:
            erase_chunks(self._session, tenant, gone)
        self._add_chunks(commit, [(entry_id, *numbered) for numbered in new])


def erase_chunks(session: Session, tenant: str, chunks: Sequence[int]) -> None:
    for start in range(0, len(chunks), MARKS_A_STEP):
        some = {"$in": list(chunks[start : start + MARKS_A_STEP])}
        session.delete_all("pending", {"tenant": tenant, "_id": some})
        session.delete_all("vector", {"tenant": tenant, "chunk": some})
        session.delete_all("chunk", {"tenant": tenant, "_id": some})


# Models and vectors


@dataclass(frozen=True, slots=True)
class Model:
    identity: str
    number: int
    dimensions: int
    role: str


def models(documents: Iterable[Document]) -> list[Model]:
    return [Model(one["_id"], one["number"], one["dimensions"], one["role"]) for one in documents]


def begin_target(session: Session, model: str, dimensions: int) -> Model:
    """Make `model` the target, in a transaction. `is_marking` keeps it from serving before every passage is marked."""
    # Changing the same document as everybody else who changes roles lets only one of them succeed.
    turn = session.take("counter", {"_id": "models"}, {"$inc": {"next": 1}}, upsert=True)
    known = {one.identity: one for one in models(session.find("model", {}))}
    if model in known and known[model].dimensions != dimensions:
        raise ConfigurationError(
            f"model {model} gives {dimensions} dimensions, but this book holds vectors of it with "
            f"{known[model].dimensions}; give the changed model another identity"
        )
    serving = next((one for one in known.values() if one.role == "serving"), None)
    session.update_all("model", {"role": "target"}, {"$set": {"role": "retired"}})
    if serving is not None and serving.identity == model:
        session.flush()
        return serving
    assert turn is not None
    number = known[model].number if model in known else int(turn["next"])
    role = "serving" if serving is None else "target"
    fields = {"number": number, "dimensions": dimensions, "role": role, "is_marking": True}
    session.replace("model", {"_id": model}, {"_id": model, **fields}, upsert=True)
    session.flush()
    return Model(model, number, dimensions, role)


def mark_pending(database: Database[Document], model: Model) -> None:
    """Mark every live passage that has no vector of the model, and unmark those that have one.

    This takes as long as it takes, outside of a transaction. A passage that is written meanwhile marks itself.
    """
    # A vector with the wrong length would make every search of its namespace fail.
    misshapen = {"$expr": {"$ne": [{"$binarySize": "$value"}, 2 * model.dimensions]}}
    database["vector"].delete_many({"model": model.number, **misshapen})
    last = 0
    while True:
        query = {"_id": {"$gt": last}, **LIVE_CHUNK, **WANTS_VECTOR}
        found = list(database["chunk"].find(query, {"tenant": 1, "ns": 1}, sort=[("_id", 1)], limit=MARKS_A_STEP))
        if not found:
            break
        ids = [one["_id"] for one in found]
        done = {
            one["chunk"]
            for one in database["vector"].find({"chunk": {"$in": ids}, "model": model.number}, {"chunk": 1})
        }
        marks = [
            pymongo.UpdateOne(
                {"_id": one["_id"], "tenant": one["tenant"]},
                {"$setOnInsert": {"ns": one["ns"], "ready_at": 0, "attempts": 0}},
                upsert=True,
            )
            for one in found
            if one["_id"] not in done
        ]
        if marks:
            database["pending"].bulk_write(marks, ordered=False)
        if done:
            database["pending"].delete_many({"_id": {"$in": sorted(done)}})
        last = ids[-1]
    database["model"].update_one({"_id": model.identity}, {"$unset": {"is_marking": ""}})


def promote_when_done(session: Session) -> bool:
    """Let the target serve if no passage is pending; returns whether it serves now."""
    target = session.find("model", {"role": "target", "is_marking": None})
    if not target or session.find("pending", {}, ["_id"], limit=1):
        return False
    session.take("counter", {"_id": "models"}, {"$inc": {"next": 1}}, upsert=True)
    session.update_all("model", {"role": "serving"}, {"$set": {"role": "retired"}})
    session.update("model", {"_id": target[0]["_id"]}, {"$set": {"role": "serving"}})
    session.flush()
    return True


def drop_retired(database: Database[Document]) -> None:
    """Remove the vectors of models that no longer serve."""
    for one in list(database["model"].find({"role": "retired"})):
        while found := list(database["vector"].find({"model": one["number"]}, {"_id": 1}, limit=RETIRED_A_STEP)):
            database["vector"].delete_many({"_id": {"$in": [vector["_id"] for vector in found]}})
        database["model"].delete_one({"_id": one["_id"], "role": "retired"})


def claim(
    database: Database[Document],
    session: ClientSession,
    limit: int,
    lease_seconds: float,
    now: int,
    *,
    even_leased: bool,
) -> dict[int, str]:
    """Lease the newest passages, because the next search most likely asks for what was written last.

    Returns them with their tenants.
    """
    ready: Document = {} if even_leased else {"ready_at": {"$lte": now}}
    # A lease that is lost with its server costs nothing, so it does not wait for the other members.
    pending = database.get_collection("pending", write_concern=WriteConcern(w=1), read_concern=ReadConcern("local"))
    newest = pending.find(ready, {"_id": 1}, sort=[("_id", -1)], limit=limit, session=session)
    chosen = [one["_id"] for one in newest]
    if not chosen:
        return {}
    holder = uuid4().hex
    doubled = {"$multiply": [lease_seconds, {"$pow": [2, {"$min": ["$attempts", MOST_DOUBLINGS]}]}]}
    seconds = {"$min": [doubled, LONGEST_LEASE_SECONDS]}
    until = {"$add": [now, {"$toLong": {"$multiply": [seconds, 1_000_000]}}]}
    pending.update_many(
        {"_id": {"$in": chosen}, **ready},
        [{"$set": {"ready_at": until, "attempts": {"$add": ["$attempts", 1]}, "holder": holder}}],
        session=session,
    )
    leased = pending.find({"_id": {"$in": chosen}, "holder": holder}, {"tenant": 1}, session=session)
    return {one["_id"]: one["tenant"] for one in leased}


def forget_marks(session: Session, chosen: Mapping[int, str]) -> tuple[list[Pending], bool]:
    """In a transaction: remove marks whose passage does not exist; returns the other passages, and whether any was.

    A mark that was made for a model may be of a passage that was ended or erased at the same moment.
    """
    found = passages_of(session, chosen)
    gone = sorted(chosen.keys() - {passage.chunk_id for passage in found})
    if gone:
        session.delete_all("pending", {"tenant": {"$in": sorted(set(chosen.values()))}, "_id": {"$in": gone}})
    return found, bool(gone)


def passages_of(session: Session, tenants: Mapping[int, str]) -> list[Pending]:
    """The texts of live passages, given with their tenants, the newest first."""
    fields = ["entry", "start", "stop", "tenant", "ns"]
    theirs = {"tenant": {"$in": sorted(set(tenants.values()))}}  # so that only their shards are asked
    found = list(session.find_ids("chunk", list(tenants), {**theirs, **LIVE_CHUNK}, fields))
    if not found:
        return []
    numbers = sorted({one["ns"] for one in found})
    spaces = session.find_ids("namespace", numbers, theirs, ["number"], by="number")
    paths = {one["number"]: one["_id"] for one in spaces}
    entries: dict[int, Document] = {}
    for one in session.find_ids("entry", sorted({one["entry"] for one in found}), theirs):
        entries[one["_id"]] = one
    passages = []
    for one in found:
        path, entry = paths.get(one["ns"]), entries.get(one["entry"])
        if path is None or entry is None:
            continue
        namespace = stored_namespace(path)
        place = Location(namespace, tenant_of(namespace), one["ns"])
        text = entry_of(namespace, live_row(next(whole_documents(session, place, [entry])))).text
        passages.append(Pending(one["_id"], namespace, text[one["start"] : one["stop"]]))
    passages.sort(key=lambda passage: -passage.chunk_id)
    return passages


def pending_chunks(session: Session, place: Location, limit: int, among: Sequence[tuple[int, int]] | None) -> list[int]:
    """The newest waiting passages of a namespace, leased or not, or the first of those named by entry and start."""
    if among is None:
        found = session.find("pending", place.mine, ["_id"], sort=[("_id", -1)], limit=limit)
        return [one["_id"] for one in found]
    order = {wanted: number for number, wanted in enumerate(among)}
    query = {**place.mine, **LIVE_CHUNK, "number": {"$gte": 0}}
    entries = sorted({entry for entry, _ in among})
    chunks = {
        one["_id"]: order[one["entry"], one["start"]]
        for one in session.find_ids("chunk", entries, query, ["entry", "start"], by="entry")
        if (one["entry"], one["start"]) in order
    }
    waiting = [one["_id"] for one in session.find_ids("pending", sorted(chunks), {"tenant": place.tenant}, ["_id"])]
    return sorted(waiting, key=chunks.__getitem__)[:limit]


def store_vectors(session: Session, model: str, vectors: Sequence[tuple[int, NDArray[float32]]]) -> bool:
    """Store vectors of the target model, in a transaction. Those of ended passages and of other models are dropped.

    Returns whether the target serves now, so that vectors of the previous model can be removed.
    """
    from commonplace.backends.vectors import pack

    roles = {one.role: one for one in models(session.find("model", {}))}
    wanted = roles.get("target") or roles.get("serving")
    if wanted is None or wanted.identity != model:
        return False
    given = dict(vectors)
    waiting = {one["_id"]: one for one in session.find_ids("pending", sorted(given), {})}
    live = {one["_id"] for one in session.find_ids("chunk", sorted(waiting), LIVE_CHUNK, ["_id"])}
    by_place: dict[tuple[str, int], list[int]] = {}
    for chunk in sorted(live):
        by_place.setdefault((waiting[chunk]["tenant"], waiting[chunk]["ns"]), []).append(chunk)
    for (tenant, number), chunks in by_place.items():
        # One transaction at a time stores vectors of a namespace, so their numbers are in the order of commits.
        taken = session.take(
            "sequence", {"_id": number, "tenant": tenant}, {"$inc": {"next": len(chunks)}}, upsert=True
        )
        assert taken is not None
        first = taken["next"] - len(chunks) + 1
        session.delete_all("vector", {"tenant": tenant, "chunk": {"$in": chunks}, "model": wanted.number})
        for sequence, chunk in enumerate(chunks, first):
            document: dict[str, Any] = {"tenant": tenant, "ns": number, "model": wanted.number, "chunk": chunk}
            document |= {"sequence": sequence, "former": False, "value": pack(given[chunk])}
            session.insert("vector", document)
        session.delete_all("pending", {"tenant": tenant, "_id": {"$in": chunks}})
    gone = sorted(waiting.keys() - live)
    if gone:
        session.delete_all("pending", {"_id": {"$in": gone}})
    session.flush()
    return "target" in roles and promote_when_done(session)


def passage_vectors(
    session: Session, place: Location, model: Model, states: Sequence[tuple[int, int]]
) -> list[tuple[int, int, int, NDArray[float32]]]:
    """A state's passages are those that had begun with its commit or before and ended after it."""
    from commonplace.backends.vectors import unpack

    commits: dict[int, list[int]] = {}
    for entry_id, commit in states:
        commits.setdefault(entry_id, []).append(commit)
    chunks: dict[int, Document] = {}
    fields = ["entry", "start", "stop", "commit", "ended"]
    for one in session.find_ids("chunk", sorted(commits), place.mine, fields, by="entry"):
        ended = one.get("ended")
        if any(one["commit"] <= at and (ended is None or ended > at) for at in commits[one["entry"]]):
            chunks[one["_id"]] = one
    query = {"tenant": place.tenant, "model": model.number}
    found = list(session.find_ids("vector", sorted(chunks), query, ["chunk", "value"], by="chunk"))
    if not found:
        return []
    matrix = unpack([bytes(one["value"]) for one in found], model.dimensions)
    placed = [chunks[one["chunk"]] for one in found]
    return [(one["entry"], one["start"], one["stop"], vector) for one, vector in zip(placed, matrix, strict=True)]
