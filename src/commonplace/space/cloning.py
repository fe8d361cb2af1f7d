"""A copy of a conversation, whole or up to a point, made inside one transaction."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from commonplace.checks import JSON
from commonplace.entry import Draft, Entry
from commonplace.errors import NotFound
from commonplace.space import timeline
from commonplace.space.conversation import thread_draft, thread_of
from commonplace.space.keys import MESSAGE, WORKING
from commonplace.space.messages import moved_key, thread_of_key
from commonplace.space.times import moment
from commonplace.space.working import thread_key
from commonplace.store import Transaction


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a copy ends, inclusive: at a message, at a time, at whichever comes first, or nowhere."""

    message: str | None
    time: int | None

    @property
    def is_whole(self) -> bool:
        return self.message is None and self.time is None


def clone_thread(transaction: Transaction, thread: Entry, new_id: str, title: str | None, cut: Cut) -> Entry:
    """Copy a thread and its messages, which get ids of their own and keep their times."""
    source = thread_of(thread)
    stop = None if cut.message is None else _message_key(transaction, source.id, cut.message)
    copied: Entry | None = None
    for message in timeline.all_messages(transaction, source.id):
        if (stop is not None and message.key > stop) or (cut.time is not None and message.created_at > cut.time):
            break
        copied = message
        transaction.put(_copied_message(message, new_id))
    if cut.is_whole:
        _copy_working(transaction, source.id, new_id)
    origin: dict[str, JSON] = {"sourceThreadId": source.id, "clonedAt": moment(transaction.time).isoformat()}
    if copied is not None:
        origin["lastMessageId"] = copied.identity
    named = title or (f"Clone of {source.title}" if source.title else None)
    return transaction.put(thread_draft(new_id, source.resource_id, named, {**source.metadata, "clone": origin}))


def _message_key(transaction: Transaction, thread_id: str, id: str) -> str:
    entry = transaction.find(MESSAGE, id)
    if entry is None or thread_of_key(entry.key) != thread_id:
        raise NotFound(f"No message found with id {id} in thread {thread_id}")
    return entry.key


def _copied_message(message: Entry, thread_id: str) -> Draft:
    return Draft(
        MESSAGE,
        moved_key(message.key, thread_id),
        message.value,
        text=message.text,
        attributes={**message.attributes, "threadId": thread_id},
        identity=str(uuid.uuid4()),
        created_at=message.created_at,
    )


def _copy_working(transaction: Transaction, thread_id: str, new_id: str) -> None:
    entry = transaction.get(WORKING, thread_key(thread_id))
    if entry is not None:
        attributes = {**entry.attributes, "threadId": new_id}
        transaction.put(Draft(WORKING, thread_key(new_id), entry.value, text="", attributes=attributes))
