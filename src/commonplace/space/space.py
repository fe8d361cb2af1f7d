"""A space: files, records, items, threads, search, history and feed of one namespace.

It cannot write to any other namespace. A search or a list reads the namespaces below it if the caller asks for that and
may.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, cast

from commonplace.checks import (
    JSON,
    MAX_KEY_BYTES,
    Limits,
    Namespace,
    check_json,
    check_number,
    check_text,
    microseconds,
    moment,
)
from commonplace.engine.search import Searcher, SearchRequest, SearchResult, uncalibrated
from commonplace.entry import SEPARATOR, Change, Entry, Revision
from commonplace.errors import Conflict, InvalidInput, NotFound
from commonplace.filters import Filter, parse_conditions
from commonplace.language.relevance import DEFAULT_FLOOR, Floor
from commonplace.language.snippets import snippet
from commonplace.language.weights import FIRST_WINDOW, MESSAGES_WINDOW
from commonplace.space.files import AsyncFiles, Files
from commonplace.space.handle import Expected, Handle, Once, Seen, awaited
from commonplace.space.history import put_back, undo
from commonplace.space.items import (
    AsyncItems,
    Item,
    Items,
    VectorSearch,
    check_fields,
    check_model,
    check_vector,
    light,
    nearest,
    texts_at,
)
from commonplace.space.names import (
    DIRECTORY,
    FILE,
    ITEM,
    KINDS,
    MESSAGE,
    SEARCHED_KINDS,
    THREAD,
    WORKING,
    has_speaker,
    is_by_assistant,
    key_of,
    key_of_name,
    name_of_entry,
    name_of_key,
    normalise,
    path_of,
    thread_of_entry,
)
from commonplace.space.records import AsyncRecords, Record, Records, forget_ended
from commonplace.store import NamespaceStats, Part, Scan, Transaction

if TYPE_CHECKING:
    from commonplace.space.threads import AsyncThreads, Threads

MAX_CHANGES = 2**32
"""The largest limit. A store reads one row more than asked for, and must not overflow."""


@dataclass(frozen=True, slots=True)
class Recent:
    """An entry in the list of what changed last. `key` is its path or id; `snippet` is how its text begins."""

    kind: str
    key: str
    snippet: str
    type: str | None
    tags: tuple[str, ...]
    thread: str | None
    role: str | None
    revision: int
    created_at: datetime
    updated_at: datetime


class Space(ABC):  # noqa: B024 - so that the client's class can be registered as one
    """The files, records and threads of one namespace, with search, history and feed."""

    def __init__(self, handle: Handle, searcher: Searcher, limits: Limits) -> None:
        self._handle = handle
        self._searcher = searcher
        self._limits = limits

    @property
    def namespace(self) -> Namespace:
        return self._handle.namespace

    @property
    def limits(self) -> Limits:
        return self._limits

    @cached_property
    def files(self) -> Files:
        return Files(self._handle, self._limits)

    @cached_property
    def records(self) -> Records:
        return Records(self._handle, self._limits)

    @cached_property
    def items(self) -> Items:
        return Items(self._handle, self._limits)

    @cached_property
    def threads(self) -> Threads:
        from commonplace.space.threads import Threads

        return Threads(self._handle, self._searcher, self._limits)

    def once(self, key: str, fingerprint: str) -> Space:
        """This space with an idempotency key for one change: the first call makes it, later ones return its result.

        A key that was used with another fingerprint, or for another method, raises Conflict. Keys are remembered for a
        day.
        """
        return Space(replace(self._handle, once=Once(key, fingerprint)), self._searcher, self._limits)

    def expecting(self, kind: str, key: str, *revisions: Seen) -> Space:
        """This space with a precondition: a change raises Outdated unless the entry has one of these revisions.

        0 means that it does not exist. Without revisions the entry must exist. If you call it again, both conditions
        must hold. A pair of revision and `updated_at` in microseconds is stricter: a new message updates its thread
        without a new revision.
        """
        expected = Expected(*self._stored_key(kind, key), key, revisions)
        handle = replace(self._handle, expected=(*self._handle.expected, expected))
        return Space(handle, self._searcher, self._limits)

    def remember(self, text: str, *, type: str = "note", tags: Sequence[str] = ()) -> Record:
        """Save a text as a record; `records.create` has more options. The same text again is the same record."""
        if not check_text("text", text).strip():
            raise InvalidInput("the text is empty; give a text to remember")
        return self.records.create(type=type, content={"text": text}, tags=tags)

    def recall(self, question: str, *, limit: int = 10) -> SearchResult:
        """What is relevant to a question, the best first; `search` has more options."""
        return self.search(question, limit=limit, min_relevance=DEFAULT_FLOOR)

    def search(
        self,
        query: str = "",
        *,
        limit: int = 10,
        offset: int = 0,
        kinds: Sequence[str] | None = None,
        type: str | None = None,
        tags: Sequence[str] = (),
        match: Literal["all", "any"] = "all",
        filter: Mapping[str, object] | None = None,
        after: datetime | str | None = None,
        before: datetime | str | None = None,
        as_of: datetime | str | None = None,
        now: datetime | str | None = None,
        below: bool = False,
        min_relevance: Floor = None,
        vector: Sequence[float] | None = None,
        model: str | None = None,
    ) -> SearchResult:
        """Search files, records, messages and items by keywords and by meaning; the best hits come first.

        `kinds`, `type`, `tags`, `filter`, and `after` and `before` (of the last update) narrow it. `as_of` searches the
        state at a time. `now` is the time that `yesterday` in the query refers to. `below` includes the namespaces
        below this one. `min_relevance` leaves out hits that are less likely to be relevant, from 0 to 1; `default` is
        the floor of the model. `vector` searches by a vector in place of a query: of the book's own model, or of the
        `model` whose vectors you gave to items; vectors of different models are never compared.
        """
        if vector is None and model is not None:
            raise InvalidInput("model names the model of a vector; give the vector too")
        if vector is not None and query:
            raise InvalidInput("search by a query or by a vector, not by both")
        all_tags, any_tags = self.records.wanted_tags(tags, match)
        narrowed = Filter(
            kinds=check_kinds(kinds),
            types=() if type is None else (check_text("type", type),),
            all_tags=all_tags,
            any_tags=any_tags,
            updated_after=microseconds("after", after),
            updated_before=microseconds("before", before),
            conditions=parse_conditions(filter),
        )
        request = SearchRequest(
            query,
            narrowed,
            check_number("limit", limit),
            check_number("offset", offset),
            microseconds("as_of", as_of),
            name_of_entry,
            conversation=thread_of_entry,
            has_speaker=has_speaker,
            by_assistant=is_by_assistant,
            now=microseconds("now", now),
            min_relevance=min_relevance,
            window=MESSAGES_WINDOW if narrowed.kinds == (MESSAGE,) else FIRST_WINDOW,
            vector=None if vector is None else check_vector(vector),
        )
        # Emptied namespaces are searched only in the past.
        holding = None if request.as_of is not None else narrowed.kinds
        namespaces = self._handle.namespaces_below(holding) if below else [self.namespace]
        if request.vector is not None and model is not None and not self._searcher.is_serving(check_model(model)):
            if ITEM not in narrowed.kinds:
                return SearchResult(())
            own = VectorSearch(model, request.vector, narrowed, request.limit, request.offset, request.as_of)
            notices = (uncalibrated(model),) if request.min_relevance else ()
            return replace(nearest(self._handle, namespaces, own), notices=notices)
        found = self._searcher.search(namespaces, request)
        if all(hit.entry is light(hit.entry) for hit in found.hits):
            return found
        return replace(found, hits=tuple(replace(hit, entry=light(hit.entry)) for hit in found.hits))

    def recent(self, limit: int = 20, kinds: Sequence[str] | None = None) -> tuple[Recent, ...]:
        """The files, records, messages and items that changed last, or the entries of other kinds; the newest first."""
        filter = Filter(kinds=check_kinds(kinds))
        scan = Scan(filter, order="updated", descending=True, limit=check_number("limit", limit))
        return tuple(map(_recent, self._handle.store.scan(self.namespace, scan).entries))

    def history(self, kind: str, key: str) -> list[Revision]:
        """Every revision of a file, record, thread or message, by its path or id; oldest first, with deletions."""
        return self._handle.store.history(self.namespace, *self._stored_key(kind, key))

    def state(self, kind: str, key: str, revision: int) -> Entry:
        """The state of an entry at a revision."""
        check_number("revision", revision)
        found = self._handle.store.state(self.namespace, *self._stored_key(kind, key), revision)
        if found is None:
            raise NotFound(f"{kind} {key} has no state with revision {revision}; its history lists those it has")
        return replace(found, key=key)

    def restore(self, kind: str, key: str, revision: int) -> int:
        """Restore a former state as a new revision; return the commit."""
        check_number("revision", revision)
        stored = self._stored_key(kind, key)

        def work(transaction: Transaction) -> None:
            state = transaction.state(*stored, revision)
            if state is None:
                raise NotFound(f"{kind} {key} has no state with revision {revision}; its history lists those it has")
            present = transaction.get(*stored)
            put_back(transaction, state)
            self._check_restored(transaction, [] if present is None else [present], [state])

        _, commit = self._handle.write("Space.restore", work)
        assert commit is not None
        forget_ended(self._handle)
        return commit

    def undo(self, commit: int) -> int:
        """Undo a whole commit in a new one, or raise Conflict and change nothing; return the new commit.

        A directory that the commit created stays if something else was put into it since.
        """
        check_number("commit", commit)

        def work(transaction: Transaction) -> None:
            def is_needed(state: Entry) -> bool:
                return state.kind == DIRECTORY and self.files.has_below(transaction, path_of(state.key))

            self._check_restored(transaction, *undo(transaction, commit, is_needed))

        _, undone = self._handle.write("Space.undo", work, "write", "delete")
        if undone is None:
            raise Conflict(f"commit {commit} cannot be undone: everything that it created is in use now")
        forget_ended(self._handle)
        return undone

    def _check_restored(
        self, transaction: Transaction, replaced: Sequence[Entry], brought_back: Sequence[Entry]
    ) -> None:
        """Create the directories above restored files; raise Conflict if a path is taken or a thread is broken."""
        for kind in (DIRECTORY, FILE):
            self.files.settle(transaction, kind, [path_of(state.key) for state in brought_back if state.kind == kind])
        for state in replaced:
            is_gone = state.kind == DIRECTORY and transaction.get(DIRECTORY, state.key) is None
            if is_gone and self.files.has_below(transaction, path_of(state.key)):
                raise Conflict(f"nothing was changed: {path_of(state.key)} now contains something else")
        if any(state.kind in (THREAD, MESSAGE, WORKING) for state in (*replaced, *brought_back)):
            from commonplace.space.threads import check_conversations

            check_conversations(transaction, replaced, brought_back)

    def changes(self, after: int = 0, limit: int = 1_000) -> list[Change]:
        """The changes after a commit, in order. Pass the last commit that you have seen to continue."""
        count = min(check_number("limit", limit), MAX_CHANGES)
        feed = self._handle.store.changes(self.namespace, check_number("after", after), count)
        return [replace(change, key=name_of_key(change.kind, change.key)) for change in feed]

    def stats(self) -> NamespaceStats:
        return self._handle.store.namespace_stats(self.namespace)

    def purge(
        self,
        kind: str | None = None,
        key: str | None = None,
        *,
        history_before: datetime | str | None = None,
        revision: int | None = None,
    ) -> int:
        """Erase permanently: one entry with its history, all entries of a kind, or this whole namespace.

        A directory is erased with what is in it, a thread with its messages and working memory. With `history_before`,
        only former states that ended before that time are erased; with `revision`, only that former state of one entry.
        Return how many states were erased. You cannot undo it.
        """
        if key is not None and kind is None:
            raise InvalidInput("purge of one entry needs its kind as well, such as purge('file', '/notes/today')")
        self._handle.rules.check("admin")
        before = microseconds("history_before", history_before)
        if kind is not None:
            kind, key = (*check_kinds([kind]), None) if key is None else self._stored_key(kind, key)
        if revision is not None:
            self._check_former(kind, key, check_number("revision", revision), before)
        parts = () if before is not None or revision is not None else self._parts_of(kind, key)
        erased = self._handle.store.purge(
            self.namespace, kind=kind, key=key, history_before=before, revision=revision, parts=parts
        )
        forget_ended(self._handle)
        return erased

    def _check_former(self, kind: str | None, key: str | None, revision: int, before: int | None) -> None:
        if kind is None or key is None or before is not None:
            raise InvalidInput("one revision is erased of one entry; give its kind and key, and no time")
        live = self._handle.get(kind, key)
        if live is not None and live.revision == revision:
            raise Conflict(f"revision {revision} is the current state; change or delete the entry first")

    def _parts_of(self, kind: str | None, key: str | None) -> Sequence[Part]:
        """What is erased together with an entry, or with all entries of a kind."""
        if kind == DIRECTORY:
            if key is None:
                raise InvalidInput("a directory is erased with everything in it; name one")
            within = key.rstrip(SEPARATOR) + SEPARATOR
            return (FILE, None, within), (DIRECTORY, None, within)
        if kind == THREAD and key is None:
            return (MESSAGE, None, None), (WORKING, None, f"thread{SEPARATOR}")
        if kind == THREAD:
            return (MESSAGE, None, f"{key}{SEPARATOR}"), (WORKING, f"thread{SEPARATOR}{key}", None)
        return ()

    def _stored_key(self, kind: str, key: str) -> tuple[str, str]:
        """The kind and the stored key of an entry that a caller names."""
        check_kinds([kind])
        if kind in (FILE, DIRECTORY):
            return kind, key_of(normalise(key, self._limits))
        check_text("key", key, max_bytes=MAX_KEY_BYTES)
        if kind == MESSAGE and (known := self._handle.store.last_key(self.namespace, MESSAGE, key)) is not None:
            return kind, known
        return kind, key_of_name(kind, key)


def _recent(entry: Entry) -> Recent:
    attributes = cast("Mapping[str, Any]", entry.attributes)
    return Recent(
        kind=entry.kind,
        key=name_of_entry(entry),
        snippet=snippet(entry.text, {}),
        type=attributes.get("type"),
        tags=tuple(attributes.get("tags", ())),
        thread=attributes.get("threadId"),
        role=attributes.get("role"),
        revision=entry.revision,
        created_at=moment(entry.created_at),
        updated_at=moment(entry.updated_at),
    )


def check_kinds(kinds: Sequence[str] | None) -> tuple[str, ...]:
    """The kinds that a caller names; by default those that a search finds."""
    if kinds is None:
        return SEARCHED_KINDS
    if isinstance(kinds, str):
        raise InvalidInput('kinds must be a list, such as ["file", "record"]')
    if not isinstance(kinds, Sequence) or not kinds:
        raise InvalidInput(f"kinds must name one or more of {', '.join(KINDS)}; leave it out to search all kinds")
    for kind in kinds:
        if kind not in KINDS:
            raise InvalidInput(f"unknown kind {kind!r}; use one of {', '.join(KINDS)}")
    return tuple(kinds)


Embed = Callable[[Sequence[str]], Sequence[Sequence[float]]]
"""Makes vectors of texts, one for each."""


class EmbeddedItems:
    """The items of a space with vectors of your own: `embed` makes them, on your side, and `model` is their name.

    The space may be local or of a service.
    """

    def __init__(self, space: Space, model: str, embed: Embed) -> None:
        self._space = space
        self.model = check_model(model)
        self._embed = embed

    def put(self, key: str, value: JSON, *, fields: Sequence[str] | None = None, **options: Any) -> Item:
        """As `Items.put`, with a vector for each text of the fields."""
        paths = None if fields is None else check_fields(fields)
        texts = [] if paths == () else [text for text in texts_at(check_json("value", value), paths) if text]
        own: dict[str, Any] = {"model": self.model, "vectors": self.vectors(texts)} if texts else {}
        return self._space.items.put(key, value, fields=paths, **own, **options)

    def search(self, query: str, **options: Any) -> SearchResult:
        """The items that are nearest to the query, by this model alone."""
        return self._space.search(vector=self.vectors([query])[0], model=self.model, **options)

    def vectors(self, texts: Sequence[str]) -> list[list[float]]:
        rows = [[float(number) for number in row] for row in self._embed(list(texts))]
        if len(rows) != len(texts):
            raise InvalidInput(f"the function made {len(rows)} vectors of {len(texts)} texts; it must make one of each")
        return rows


# The same for asyncio


class AsyncSpace:
    """`Space`, asynchronous."""

    def __init__(self, wrapped: Space) -> None:
        self._wrapped = wrapped

    @property
    def namespace(self) -> Namespace:
        return self._wrapped.namespace

    @property
    def limits(self) -> Limits:
        return self._wrapped.limits

    @cached_property
    def files(self) -> AsyncFiles:
        return AsyncFiles(self._wrapped.files)

    @cached_property
    def records(self) -> AsyncRecords:
        return AsyncRecords(self._wrapped.records)

    @cached_property
    def items(self) -> AsyncItems:
        return AsyncItems(self._wrapped.items)

    @cached_property
    def threads(self) -> AsyncThreads:
        from commonplace.space.threads import AsyncThreads

        return AsyncThreads(self._wrapped.threads)

    def once(self, key: str, fingerprint: str) -> AsyncSpace:
        return AsyncSpace(self._wrapped.once(key, fingerprint))

    def expecting(self, kind: str, key: str, *revisions: Seen) -> AsyncSpace:
        return AsyncSpace(self._wrapped.expecting(kind, key, *revisions))

    remember = awaited(Space.remember)
    recall = awaited(Space.recall)
    search = awaited(Space.search)
    history = awaited(Space.history)
    state = awaited(Space.state)
    restore = awaited(Space.restore)
    undo = awaited(Space.undo)
    recent = awaited(Space.recent)
    changes = awaited(Space.changes)
    stats = awaited(Space.stats)
    purge = awaited(Space.purge)
