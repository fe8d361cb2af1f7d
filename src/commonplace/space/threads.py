"""Conversations: threads, their messages in time order, what they recall, and working memory.

A thread belongs to a resource, by default the namespace's last label. A call that names a resource is refused on a
thread of another one; a call that names none takes the thread by its id alone.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import cast

from commonplace.checks import JSON, check_visible
from commonplace.engine.search import Searcher
from commonplace.entry import Entry
from commonplace.errors import AlreadyExists, Conflict, InvalidInput
from commonplace.filters import Filter, equal, parse_conditions
from commonplace.limits import Limits
from commonplace.space import timeline
from commonplace.space.cloning import Cut, NewThread, clone_thread, transfer_thread
from commonplace.space.context import Budget, Context, build_context, system_text
from commonplace.space.conversation import (
    Thread,
    changed_fields,
    check_count,
    check_id,
    check_size,
    check_title,
    find_thread,
    thread_draft,
    thread_of,
)
from commonplace.space.handle import Handle
from commonplace.space.keys import MESSAGE, THREAD, WORKING
from commonplace.space.messages import MAX_MESSAGES, Message, check_ids, message_of, thread_of_key, thread_prefix
from commonplace.space.numbered import Direction, NumberedPage, OrderBy, PageRequest, numbered_page
from commonplace.space.recall import Recall, RecallRequest, RecallScope, recall
from commonplace.space.thread_messages import UNSET, ThreadMessages, saved
from commonplace.space.thread_search import ThreadSearchRequest, ThreadSearchResult, search_threads
from commonplace.space.times import microseconds
from commonplace.space.titles import has_own_title
from commonplace.space.tokens import CountTokens, estimate_tokens
from commonplace.space.working import WorkingMemories, thread_key
from commonplace.store import Scan, Transaction


@dataclass(frozen=True, slots=True)
class ThreadPage:
    threads: tuple[Thread, ...]
    cursor: str | None
    """Where the next page begins, or None at the end."""


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
        return self._handle.namespace[-1]

    # Threads

    def create(
        self,
        title: str | None = None,
        *,
        resource: str | None = None,
        metadata: Mapping[str, JSON] | None = None,
        id: str | None = None,
    ) -> Thread:
        """Begin a conversation; one with this id must not exist yet."""
        new_id = str(uuid.uuid4()) if id is None else check_visible("thread id", check_id("thread id", id))
        owner = self.default_resource if resource is None else check_id("resource", resource)
        draft = thread_draft(new_id, owner, check_title(title), self._check_metadata(metadata or {}))

        def work(transaction: Transaction) -> Entry:
            if transaction.get(THREAD, new_id) is not None:
                raise AlreadyExists(f"a thread with id {new_id} exists already; choose another id")
            return transaction.put(draft)

        return self._thread(self._handle.write(work)[0])

    def begin(
        self, messages: Sequence[Mapping[str, object]], title: str | None = None, *, resource: str | None = None
    ) -> tuple[Message, ...]:
        """Begin a conversation with its first messages, all in one change or nothing; the messages name the thread.

        Where all of them are in one thread of the resource already, they stay there: the same call may come again.
        """
        owner = self.default_resource if resource is None else check_id("resource", resource)
        draft = thread_draft(str(uuid.uuid4()), owner, check_title(title), {})
        arrived = self._arrived(messages, draft.key)
        if not arrived:
            raise InvalidInput("there is nothing to save: the roles system and developer are left out")

        def work(transaction: Transaction) -> tuple[Entry, ...]:
            found = [transaction.find(MESSAGE, one.id) for one in arrived if one.is_named]
            known = [entry for entry in found if entry is not None]
            if not known:
                transaction.put(draft)
                return saved(transaction, draft.key, owner, arrived)
            places = sorted({thread_of_key(entry.key) for entry in known})
            is_theirs = any(entry.attributes["resourceId"] != owner for entry in known)
            if is_theirs or len(places) > 1 or len(known) < len(arrived):
                raise Conflict(
                    f"messages with these ids are in thread {', '.join(places)} already; "
                    "name that thread to add to it, or leave them out"
                )
            return saved(transaction, places[0], owner, arrived)

        return tuple(map(message_of, self._handle.write(work)[0]))

    def get(self, id: str, *, resource: str | None = None) -> Thread:
        return self._thread(find_thread(self._handle.get, id, resource))

    def list(self, *, resource: str | None = None, limit: int = 20, cursor: str | None = None) -> ThreadPage:
        """The threads of a resource, or all; the one used last comes first."""
        owner = None if resource is None else check_id("resource", resource)
        scan = Scan(
            Filter(kinds=(THREAD,), resource=owner),
            order="updated",
            descending=True,
            limit=check_count("limit", limit, 1, timeline.MAX_PAGE),
            after=timeline.check_cursor(cursor),
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
        """The threads of a resource, or all, by page number from 0 and with a total; `metadata` is what they have."""
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
        """Change the title, or fields of the metadata: null removes one, those not named stay."""
        new_title = title if title is UNSET else check_title(title)
        fields = {} if metadata is UNSET else self._check_metadata(metadata)

        def work(transaction: Transaction) -> Entry:
            entry = find_thread(transaction.get, id, resource)
            old = thread_of(entry)
            both = changed_fields(old.metadata, fields)
            check_size("metadata", both, self._limits.metadata_bytes)
            draft = thread_draft(id, old.resource_id, old.title if new_title is UNSET else new_title, both)
            return entry if equal(draft.attributes, entry.attributes) else transaction.put(draft)

        return self._thread(self._handle.write(work)[0])

    def suggest_title(self, id: str, title: str, *, resource: str | None = None) -> Thread:
        """Give a thread a title while it has none of its own; one that somebody chose meanwhile stays."""
        checked = check_title(title)

        def work(transaction: Transaction) -> Entry:
            entry = find_thread(transaction.get, id, resource)
            old = thread_of(entry)
            if has_own_title(old.title):
                return entry
            return transaction.put(thread_draft(id, old.resource_id, checked, old.metadata))

        return self._thread(self._handle.write(work)[0])

    def delete(self, id: str, *, resource: str | None = None) -> int:
        """Delete a thread with its messages and its working memory; the one commit that `Space.undo` takes back."""

        def work(transaction: Transaction) -> None:
            find_thread(transaction.get, id, resource)
            transaction.delete_range(MESSAGE, thread_prefix(id))
            transaction.delete(WORKING, thread_key(id))
            transaction.delete(THREAD, id)

        _, commit = self._handle.write(work, "delete")
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
        """Copy a thread with its messages, which get new ids: all, or those up to a message or a time (inclusive),
        from a time on, with these ids, the last so many.

        `to` is the copy's resource, left out the same. Its working memory goes along with a whole copy only: it may
        know of what comes after.
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

        return self._thread(self._handle.write(work)[0])

    def transfer(self, id: str, to: str, *, resource: str | None = None) -> Thread:
        """Give a thread with its messages and its own working memory to another resource; one change, to be undone."""
        owner = check_id("resource", to)

        def work(transaction: Transaction) -> Entry:
            source = find_thread(transaction.get, id, resource)
            if source.attributes["resourceId"] == owner:
                return source
            return transfer_thread(transaction, source, owner)

        return self._thread(self._handle.write(work)[0])

    # What is remembered of them

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
    ) -> Recall:
        """The last messages, and the `top` that the query finds, each with its neighbours; each once, in time order.

        With the scope `resource` it looks into all threads of the thread's resource.
        """
        request = RecallRequest(query, last, top, neighbours, scope)
        thread = find_thread(self._handle.get, thread_id, resource)
        return recall(self._handle, self._searcher, thread, request)

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
    ) -> Context:
        """What `recall` finds as messages for a model, with the working memory, within so many tokens.

        A tool's call and its result come together or not at all. `count_tokens` gives the number of tokens of a text;
        left out, it is an estimate that is rather too high.
        """
        request, budget = RecallRequest(query, last, top, neighbours, scope), Budget(max_tokens, count_tokens)
        thread = find_thread(self._handle.get, thread_id, resource)
        owner = cast(str, thread.attributes["resourceId"])
        memories = (self.working.read(resource=owner), self.working.read(thread=thread_id)) if working else ()
        recalled = recall(self._handle, self._searcher, thread, request)
        return build_context(self._handle, thread_id, recalled, last, budget, system_text(memories))

    def search(
        self, query: str, *, limit: int = 10, resource: str | None = None, now: datetime | str | None = None
    ) -> ThreadSearchResult:
        """The conversations that are about something, best first, each with the messages found in it.

        `now` is when `yesterday` in the query is counted from.
        """
        request = ThreadSearchRequest(query, limit, resource, microseconds("now", now))
        return search_threads(self._handle, self._searcher, request, self._thread)

    # Rules

    def _thread(self, entry: Entry) -> Thread:
        return thread_of(entry).bound_to(self.context)
