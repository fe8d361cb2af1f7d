"""A copy of a conversation, whole or in part, and its change of hands; each inside one transaction."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from commonplace.checks import JSON
from commonplace.engine.undo import draft_of
from commonplace.entry import Draft, Entry
from commonplace.errors import NotFound
from commonplace.space import timeline
from commonplace.space.conversation import MAX_TITLE_BYTES, thread_draft, thread_of
from commonplace.space.keys import MESSAGE, WORKING
from commonplace.space.messages import Numbering, thread_of_key
from commonplace.space.times import moment
from commonplace.space.working import thread_key
from commonplace.store import Transaction


@dataclass(frozen=True, slots=True)
class Cut:
    """Which messages a copy takes: up to a message or a time (inclusive), from a time on, these, the last so many."""

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
    """What a copy is to be; without a title, a resource or metadata it has those of the thread that is copied."""

    id: str
    title: str | None
    resource: str | None = None
    metadata: Mapping[str, JSON] | None = None


def clone_thread(transaction: Transaction, thread: Entry, new: NewThread, cut: Cut) -> Entry:
    """Copy a thread and its messages, which get ids of their own and keep their times."""
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
    """Give a thread, its messages and its working memory to another resource; ids and times stay."""
    source = thread_of(thread)
    for message in timeline.all_messages(transaction, source.id):
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
    for message in timeline.all_messages(transaction, thread_id):
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
        identity=str(uuid.uuid4()),
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
