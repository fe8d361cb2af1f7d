"""Conversations: threads, their messages, what a query recalls of them, and working memory.

A thread belongs to a resource; the default is the last label of the namespace. A call with a resource raises Forbidden
on a thread of another resource. A call without one finds the thread by its id alone.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from typing import cast

from commonplace.checks import JSON, Limits, check_visible, microseconds, moment
from commonplace.engine.search import Searcher
from commonplace.entry import SEPARATOR, Draft, Entry
from commonplace.errors import AlreadyExists, Conflict, InvalidInput, NotFound
from commonplace.filters import Filter, equal, parse_conditions
from commonplace.space.context import Budget, CountTokens, build_context, estimate_tokens, system_of
from commonplace.space.conversation import (
    MAX_PAGE,
    MAX_TITLE_BYTES,
    Context,
    Direction,
    NumberedPage,
    OrderBy,
    PageRequest,
    Thread,
    changed_fields,
    check_count,
    check_cursor,
    check_id,
    check_size,
    check_title,
    find_thread,
    numbered_page,
    thread_draft,
    thread_of,
)
from commonplace.space.handle import Handle, awaited
from commonplace.space.history import draft_of
from commonplace.space.messages import (
    MAX_MESSAGES,
    UNSET,
    Message,
    Numbering,
    ThreadMessages,
    all_messages,
    check_ids,
    message_of,
    save_messages,
    thread_of_key,
    thread_prefix,
)
from commonplace.space.names import MESSAGE, THREAD, WORKING, new_message_id
from commonplace.space.recall import (
    Recall,
    RecallRequest,
    RecallScope,
    ThreadSearchRequest,
    ThreadSearchResult,
    recall,
    search_threads,
)
from commonplace.space.records import Record, Records
from commonplace.space.titles import has_own_title
from commonplace.space.working_memory import AsyncWorkingMemories, WorkingMemories, thread_key
from commonplace.store import Scan, Transaction


@dataclass(frozen=True, slots=True)
class ThreadPage:
    threads: tuple[Thread, ...]
    cursor: str | None
    """Pass it to get the next page; None at the end."""


class Threads(ThreadMessages):
    """The conversations of one namespace."""

    def __init__(self, handle: Handle, searcher: Searcher, limits: Limits) -> None:
        super().__init__(handle, limits)
        self._searcher = searcher

    @cached_property
    def working(self) -> WorkingMemories:
        return WorkingMemories(self._handle, self._limits)

    @property
    def default_resource(self) -> str:
        return self._handle.default_resource

    # Threads

    def create(
        self,
        title: str | None = None,
        *,
        resource: str | None = None,
        metadata: Mapping[str, JSON] | None = None,
        id: str | None = None,
    ) -> Thread:
        """Create a thread; no thread may have this id yet."""
        new_id = str(uuid.uuid4()) if id is None else check_visible("thread id", check_id("thread id", id))
        owner = self.default_resource if resource is None else check_id("resource", resource)
        draft = thread_draft(new_id, owner, check_title(title), self._check_metadata(metadata or {}))

        def work(transaction: Transaction) -> Entry:
            if transaction.get(THREAD, new_id) is not None:
                raise AlreadyExists(f"a thread with id {new_id} exists already; choose another id")
            return transaction.put(draft)

        return self._thread(self._handle.write("Threads.create", work)[0])

    def begin(
        self, messages: Sequence[Mapping[str, object]], title: str | None = None, *, resource: str | None = None
    ) -> tuple[Message, ...]:
        """Create a thread with its first messages in one change; the messages have the id of the thread.

        If one thread of the resource has all of them already, nothing changes, so you can repeat the call.
        """
        owner = self.default_resource if resource is None else check_id("resource", resource)
        draft = thread_draft(str(uuid.uuid4()), owner, check_title(title), {})
        arrived = self._incoming(messages, draft.key)
        if not arrived:
            raise InvalidInput("there is nothing to save: the roles system and developer are left out")

        def work(transaction: Transaction) -> tuple[Entry, ...]:
            found = [transaction.find(MESSAGE, one.id) for one in arrived if one.is_named]
            known = [entry for entry in found if entry is not None]
            if not known:
                transaction.put(draft)
                return save_messages(transaction, draft.key, owner, arrived)
            places = sorted({thread_of_key(entry.key) for entry in known})
            is_theirs = any(entry.attributes["resourceId"] != owner for entry in known)
            if is_theirs or len(places) > 1 or len(known) < len(arrived):
                raise Conflict(
                    f"messages with these ids are in thread {', '.join(places)} already; "
                    "name that thread to add to it, or leave them out"
                )
            return save_messages(transaction, places[0], owner, arrived)

        return tuple(map(message_of, self._handle.write("Threads.begin", work)[0]))

    def get(self, id: str, *, resource: str | None = None, as_of: datetime | str | None = None) -> Thread:
        get = partial(self._handle.get, as_of=microseconds("as_of", as_of))
        return self._thread(find_thread(get, id, resource))

    def list(
        self,
        *,
        resource: str | None = None,
        limit: int = 20,
        cursor: str | None = None,
        as_of: datetime | str | None = None,
    ) -> ThreadPage:
        """The threads of a resource, or all of them; the last used comes first. With `as_of`, those of that time."""
        owner = None if resource is None else check_id("resource", resource)
        scan = Scan(
            Filter(kinds=(THREAD,), resource=owner),
            order="updated",
            descending=True,
            limit=check_count("limit", limit, 1, MAX_PAGE),
            after=check_cursor(cursor),
            as_of=microseconds("as_of", as_of),
        )
        page = self._handle.store.scan(self._handle.namespace, scan)
        return ThreadPage(tuple(map(self._thread, page.entries)), page.cursor)

    def page_of_threads(
        self,
        page: int = 0,
        *,
        resource: str | None = None,
        metadata: Mapping[str, JSON] | None = None,
        per_page: int = 100,
        order_by: OrderBy = "updatedAt",
        direction: Direction = "DESC",
    ) -> NumberedPage[Thread]:
        """A page of the threads of a resource, or of all, by its number from 0, with a total; `metadata` filters."""
        request = PageRequest(page, per_page, order_by, direction)
        owner = None if resource is None else check_id("resource", resource)
        wanted = {} if metadata is None else self._check_metadata(metadata)
        fields = parse_conditions({"metadata": wanted} if wanted else None)
        return numbered_page(
            self._handle, Filter(kinds=(THREAD,), resource=owner, conditions=fields), request, self._thread
        )

    def update(
        self,
        id: str,
        *,
        title: str | None = UNSET,
        metadata: Mapping[str, JSON] = UNSET,
        resource: str | None = None,
    ) -> Thread:
        """Change the title, or fields of the metadata: null removes a field, fields that are not named stay."""
        new_title = title if title is UNSET else check_title(title)
        fields = {} if metadata is UNSET else self._check_metadata(metadata)

        def work(transaction: Transaction) -> Entry:
            entry = find_thread(transaction.get, id, resource)
            old = thread_of(entry)
            both = changed_fields(old.metadata, fields)
            check_size("metadata", both, self._limits.metadata_bytes)
            draft = thread_draft(id, old.resource_id, old.title if new_title is UNSET else new_title, both)
            return entry if equal(draft.attributes, entry.attributes) else transaction.put(draft)

        return self._thread(self._handle.write("Threads.update", work)[0])

    def suggest_title(self, id: str, title: str, *, resource: str | None = None) -> Thread:
        """Set the title of a thread unless somebody has chosen one."""
        checked = check_title(title)

        def work(transaction: Transaction) -> Entry:
            entry = find_thread(transaction.get, id, resource)
            old = thread_of(entry)
            if has_own_title(old.title):
                return entry
            return transaction.put(thread_draft(id, old.resource_id, checked, old.metadata))

        return self._thread(self._handle.write("Threads.suggest_title", work)[0])

    def delete(self, id: str, *, resource: str | None = None) -> int:
        """Delete a thread with its messages and its working memory; return the commit, for `Space.undo`."""

        def work(transaction: Transaction) -> None:
            find_thread(transaction.get, id, resource)
            transaction.delete_range(MESSAGE, thread_prefix(id))
            transaction.delete(WORKING, thread_key(id))
            transaction.delete(THREAD, id)

        _, commit = self._handle.write("Threads.delete", work, "delete")
        assert commit is not None
        return commit

    def clone(
        self,
        id: str,
        *,
        upto_message: str | None = None,
        upto: datetime | str | None = None,
        after: datetime | str | None = None,
        only: Sequence[str] | None = None,
        last: int | None = None,
        title: str | None = None,
        metadata: Mapping[str, JSON] | None = None,
        new_id: str | None = None,
        to: str | None = None,
        resource: str | None = None,
    ) -> Thread:
        """Copy a thread with its messages, which get new ids.

        You can copy only the messages up to a message or a time (inclusive), after a time, with some ids, or the last
        ones. `to` is the resource of the copy; the default is the same resource. Only a complete copy gets the working
        memory, which may depend on messages that were left out.
        """
        new = NewThread(
            str(uuid.uuid4()) if new_id is None else check_visible("thread id", check_id("thread id", new_id)),
            check_title(title),
            None if to is None else check_id("resource", to),
            None if metadata is None else self._check_metadata(metadata),
        )
        cut = Cut(
            None if upto_message is None else check_id("message id", upto_message),
            microseconds("upto", upto),
            microseconds("after", after),
            None if only is None else frozenset(check_ids(only)),
            None if last is None else check_count("last", last, 0, MAX_MESSAGES),
        )

        def work(transaction: Transaction) -> Entry:
            source = find_thread(transaction.get, id, resource)
            if new_id is not None and transaction.get(THREAD, new.id) is not None:
                raise AlreadyExists(f"a thread with id {new.id} exists already; choose another id")
            return clone_thread(transaction, source, new, cut)

        return self._thread(self._handle.write("Threads.clone", work)[0])

    def transfer(self, id: str, to: str, *, resource: str | None = None) -> Thread:
        """Move a thread with its messages and its working memory to another resource, in one change."""
        owner = check_id("resource", to)

        def work(transaction: Transaction) -> Entry:
            source = find_thread(transaction.get, id, resource)
            if source.attributes["resourceId"] == owner:
                return source
            return transfer_thread(transaction, source, owner)

        return self._thread(self._handle.write("Threads.transfer", work)[0])

    # Recall

    def recall(
        self,
        thread_id: str,
        *,
        resource: str | None = None,
        query: str | None = None,
        last: int = 10,
        top: int = 4,
        neighbours: int = 1,
        scope: RecallScope = "thread",
        min_relevance: float | None = None,
    ) -> Recall:
        """The last messages, and the `top` hits of the query with their neighbours; each once, in time order.

        With the scope `resource` the query searches all threads of the same resource. `min_relevance` leaves out hits
        that are less likely to be relevant.
        """
        request = RecallRequest(query, last, top, neighbours, scope, min_relevance)
        thread = find_thread(self._handle.get, thread_id, resource)
        return recall(self._handle, self._searcher, thread, request, self._standing())

    def context(
        self,
        thread_id: str,
        query: str | None = None,
        *,
        max_tokens: int | None = None,
        resource: str | None = None,
        last: int = 10,
        top: int = 4,
        neighbours: int = 1,
        scope: RecallScope = "thread",
        working: bool = True,
        count_tokens: CountTokens = estimate_tokens,
        min_relevance: float | None = None,
        standing: bool = True,
    ) -> Context:
        """What `recall` finds, as messages for a model, with the working memory, in at most `max_tokens`.

        Confirmed instructions and preferences have a part of their own, which `Limits.standing_tokens` bounds.
        The call of a tool and its result are both included or both left out. `count_tokens` returns the number of
        tokens of a text; the default is an estimate that is rather too high.
        """
        request = RecallRequest(query, last, top, neighbours, scope, min_relevance)
        budget = Budget(max_tokens, count_tokens)
        thread = find_thread(self._handle.get, thread_id, resource)
        owner = cast("str", thread.attributes["resourceId"])
        memories = (self.working.read(resource=owner), self.working.read(thread=thread_id)) if working else ()
        recalled = recall(self._handle, self._searcher, thread, request)
        confirmed = self._standing() if standing else ()
        system = system_of(confirmed, memories, budget, self._limits.standing_tokens)
        return build_context(self._handle, thread_id, recalled, last, budget, system)

    def _standing(self) -> tuple[Record, ...]:
        return Records(self._handle, self._limits).standing()

    def search(
        self,
        query: str,
        *,
        limit: int = 10,
        resource: str | None = None,
        now: datetime | str | None = None,
        min_relevance: float | None = None,
    ) -> ThreadSearchResult:
        """The threads that are about a subject, best first, each with the messages that were found.

        `now` is the time that `yesterday` in the query refers to. `min_relevance` leaves out messages and titles that
        are less likely to be relevant, and threads without any other.
        """
        request = ThreadSearchRequest(query, limit, resource, microseconds("now", now), min_relevance)
        return search_threads(self._handle, self._searcher, request, self._thread)

    # Rules

    def _thread(self, entry: Entry) -> Thread:
        return thread_of(entry).bound_to(self.context)


# Copies and transfers, each inside one transaction


def ensure_thread(
    threads: Threads, id: str, title: str | None, *, resource: str, metadata: Mapping[str, JSON]
) -> Thread:
    """Begin a conversation, or return it if it exists with the same metadata and title, so that a call can be repeated.

    The title may be left out, because a thread without one gets a title later.
    """
    new_id, owner = check_visible("thread id", check_id("thread id", id)), check_id("resource", resource)
    fields = threads._check_metadata(metadata)
    draft = threads._handle.rules.screened(thread_draft(new_id, owner, check_title(title), fields))

    def work(transaction: Transaction) -> Entry:
        entry = transaction.get(THREAD, new_id)
        if entry is None:
            return transaction.put(draft)
        known = thread_of(find_thread(transaction.get, new_id, owner))
        if draft.attributes["title"] not in (None, known.title) or draft.attributes["metadata"] != known.metadata:
            raise AlreadyExists(f"a thread with id {new_id} exists already; choose another id")
        return entry

    return threads._thread(threads._handle.write("Threads.create", work)[0])


def replace_metadata(
    threads: Threads, id: str, metadata: Mapping[str, JSON], *, title: str | None = UNSET, resource: str | None = None
) -> Thread:
    """Replace all metadata of a thread, in one change, and its title if you give one."""
    new_title = title if title is UNSET else check_title(title)
    fields = changed_fields({}, threads._check_metadata(metadata))

    def work(transaction: Transaction) -> Entry:
        entry = find_thread(transaction.get, id, resource)
        old = thread_of(entry)
        draft = thread_draft(id, old.resource_id, old.title if new_title is UNSET else new_title, fields)
        return entry if equal(draft.attributes, entry.attributes) else transaction.put(draft)

    return threads._thread(threads._handle.write("Threads.update", work)[0])


@dataclass(frozen=True, slots=True)
class Cut:
    """Which messages are copied: up to a message or a time (inclusive), after a time, some ids, the last ones."""

    message: str | None = None
    time: int | None = None
    after: int | None = None
    only: frozenset[str] | None = None
    last: int | None = None

    @property
    def is_whole(self) -> bool:
        return self == Cut()


@dataclass(frozen=True, slots=True)
class NewThread:
    """The properties of a copy; title, resource and metadata default to those of the original."""

    id: str
    title: str | None
    resource: str | None = None
    metadata: Mapping[str, JSON] | None = None


def clone_thread(transaction: Transaction, thread: Entry, new: NewThread, cut: Cut) -> Entry:
    """Copy a thread and its messages, which get new ids and keep their times."""
    source = thread_of(thread)
    owner = source.resource_id if new.resource is None else new.resource
    copied: Entry | None = None
    numbering = Numbering(transaction, new.id)
    for message in _chosen(transaction, source.id, cut):
        copied = message
        key = numbering.key(message.created_at)
        transaction.put(_copied_message(message, key, new.id, owner), is_fresh=True)
    if cut.is_whole:
        _copy_working(transaction, source.id, new.id, owner)
    origin: dict[str, JSON] = {"sourceThreadId": source.id, "clonedAt": moment(transaction.time).isoformat()}
    if copied is not None:
        origin["lastMessageId"] = copied.identity
    named = new.title or (_title_of_copy(source.title) if source.title else None)
    metadata = source.metadata if new.metadata is None else new.metadata
    return transaction.put(thread_draft(new.id, owner, named, {**metadata, "clone": origin}))


def _title_of_copy(title: str) -> str:
    return f"Clone of {title}".encode()[:MAX_TITLE_BYTES].decode(errors="ignore")


def transfer_thread(transaction: Transaction, thread: Entry, resource: str) -> Entry:
    """Move a thread, its messages and its working memory to another resource; ids and times stay."""
    source = thread_of(thread)
    for message in all_messages(transaction, source.id):
        transaction.put(_given_to(message, resource))
    working = transaction.get(WORKING, thread_key(source.id))
    if working is not None:
        transaction.put(_given_to(working, resource))
    return transaction.put(thread_draft(source.id, resource, source.title, source.metadata))


def _chosen(transaction: Transaction, thread_id: str, cut: Cut) -> Iterable[Entry]:
    chosen = _between(transaction, thread_id, cut)
    return chosen if cut.last is None else deque(chosen, cut.last)


def _between(transaction: Transaction, thread_id: str, cut: Cut) -> Iterator[Entry]:
    stop = None if cut.message is None else _message_key(transaction, thread_id, cut.message)
    for message in all_messages(transaction, thread_id):
        if (stop is not None and message.key > stop) or (cut.time is not None and message.created_at > cut.time):
            return
        is_early = cut.after is not None and message.created_at < cut.after
        if not is_early and (cut.only is None or message.identity in cut.only):
            yield message


def _message_key(transaction: Transaction, thread_id: str, id: str) -> str:
    entry = transaction.find(MESSAGE, id)
    if entry is None or thread_of_key(entry.key) != thread_id:
        raise NotFound(f"No message found with id {id} in thread {thread_id}")
    return entry.key


def _copied_message(message: Entry, key: str, thread_id: str, resource: str) -> Draft:
    return Draft(
        MESSAGE,
        key,
        message.value,
        text=message.text,
        attributes={**message.attributes, "threadId": thread_id, "resourceId": resource},
        identity=new_message_id(),
        created_at=message.created_at,
    )


def _given_to(entry: Entry, resource: str) -> Draft:
    return replace(
        draft_of(entry), attributes={**entry.attributes, "resourceId": resource}, updated_at=entry.updated_at
    )


def _copy_working(transaction: Transaction, thread_id: str, new_id: str, resource: str) -> None:
    entry = transaction.get(WORKING, thread_key(thread_id))
    if entry is not None:
        attributes = {**entry.attributes, "threadId": new_id, "resourceId": resource}
        transaction.put(Draft(WORKING, thread_key(new_id), entry.value, text="", attributes=attributes))


# Every message, and the working memory of every thread, has a live thread with the same resource. Calls that write
# conversations keep it so. Restored states and imported entries are checked here.


def fits_thread(transaction: Transaction, state: Entry) -> bool:
    """Whether a state can be written: its thread, if it has one, exists and has the same resource."""
    thread_id = _thread_of(state)
    return thread_id is None or _mismatch(thread_id, _owner(transaction, thread_id), state) is None


def check_conversations(transaction: Transaction, replaced: Sequence[Entry], brought_back: Sequence[Entry]) -> None:
    """Raise Conflict if replacing and restoring these states has left a conversation inconsistent."""
    owners: dict[str, JSON] = {}
    for state in brought_back:
        thread_id = _thread_of(state)
        if thread_id is None:
            continue
        if thread_id not in owners:
            owners[thread_id] = _owner(transaction, thread_id)
        _check_owner(thread_id, owners[thread_id], state)
    former_owners = {state.key: state.attributes["resourceId"] for state in replaced if state.kind == THREAD}
    for thread_id, former_owner in former_owners.items():
        owner = _owner(transaction, thread_id)
        if owner is None:
            _check_nothing_left(transaction, thread_id)
        elif owner != former_owner:
            for state in (*all_messages(transaction, thread_id), *_working(transaction, thread_id)):
                _check_owner(thread_id, owner, state)


def _thread_of(state: Entry) -> str | None:
    """The thread of a message or a working memory."""
    if state.kind == WORKING:
        scope, _, id = state.key.partition(SEPARATOR)
        return id if scope == "thread" else None
    return thread_of_key(state.key) if state.kind == MESSAGE else None


def _owner(transaction: Transaction, thread_id: str) -> JSON:
    thread = transaction.get(THREAD, thread_id)
    return None if thread is None else thread.attributes["resourceId"]


def _working(transaction: Transaction, thread_id: str) -> Sequence[Entry]:
    found = transaction.get(WORKING, thread_key(thread_id))
    return () if found is None else (found,)


def _check_owner(thread_id: str, owner: JSON, state: Entry) -> None:
    mismatch = _mismatch(thread_id, owner, state)
    if mismatch is not None:
        raise Conflict(f"nothing was changed: {mismatch}")


def _mismatch(thread_id: str, owner: JSON, state: Entry) -> str | None:
    """Why a state does not fit into a thread of this owner, or None."""
    if owner is None:
        return f"the thread {thread_id} does not exist any more; restore it first"
    resource = state.attributes.get("resourceId")
    if resource != owner:
        return (
            f"the thread {thread_id} would hold messages of two resources; "
            f"it belongs to {owner!r}, a {state.kind} of it to {resource!r}"
        )
    return None


def _check_nothing_left(transaction: Transaction, thread_id: str) -> None:
    some = transaction.scan(Scan(Filter(kinds=(MESSAGE,), key_prefix=thread_prefix(thread_id)), limit=1)).entries
    if some or _working(transaction, thread_id):
        raise Conflict(f"nothing was changed: the thread {thread_id} was used since; delete it instead")


# The same for asyncio


class AsyncThreads:
    """`Threads`, asynchronous."""

    def __init__(self, wrapped: Threads) -> None:
        self._wrapped = wrapped

    @cached_property
    def working(self) -> AsyncWorkingMemories:
        return AsyncWorkingMemories(self._wrapped.working)

    create = awaited(Threads.create)
    begin = awaited(Threads.begin)
    get = awaited(Threads.get)
    list = awaited(Threads.list)
    update = awaited(Threads.update)
    suggest_title = awaited(Threads.suggest_title)
    delete = awaited(Threads.delete)
    clone = awaited(Threads.clone)
    transfer = awaited(Threads.transfer)
    add = awaited(Threads.add)
    messages = awaited(Threads.messages)
    items = awaited(Threads.items)
    page_of_threads = awaited(Threads.page_of_threads)
    page_of_messages = awaited(Threads.page_of_messages)
    around = awaited(Threads.around)
    count_messages = awaited(Threads.count_messages)
    get_message = awaited(Threads.get_message)
    update_message = awaited(Threads.update_message)
    clear = awaited(Threads.clear)
    delete_messages = awaited(Threads.delete_messages)
    replace_messages = awaited(Threads.replace_messages)
    recall = awaited(Threads.recall)
    context = awaited(Threads.context)
    search = awaited(Threads.search)
