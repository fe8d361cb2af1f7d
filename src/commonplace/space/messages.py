"""A message as it comes in, as it is stored and as it goes out.

Its key is its thread, its time and a number, so that a thread's messages are one range in time order; its own id,
unique in the namespace, is the entry's identity. The value is the message as it came.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

from commonplace.checks import JSON
from commonplace.entry import SEPARATOR, Draft, Entry
from commonplace.errors import Conflict, InvalidInput, TooLarge
from commonplace.filters import Filter, equal
from commonplace.limits import Limits
from commonplace.space.conversation import check_id, check_object
from commonplace.space.keys import MESSAGE
from commonplace.space.message_text import is_item_without_role, searchable_text, without_working_memory
from commonplace.space.times import microseconds, moment
from commonplace.space.tool_calls import is_tied_by_id
from commonplace.store import Scan, Transaction

ROLES = ("user", "assistant", "tool", "function", "data")
UNSTORED_ROLES = ("system", "developer")
"""Instructions belong to the program, not to the conversation: they are accepted and left out."""

SIGNAL = "signal"
"""Mastra's role for what reaches an agent at work. One that a user sent is a user's message here."""

MAX_MESSAGES = 10_000
"""How many messages one call may bring or delete."""

MOST_AHEAD = 86_400_000_000
"""Microseconds that a client's clock may be ahead; a message dated later than that was dated on purpose."""

_TIME_DIGITS = 17
_NUMBER_DIGITS = 9
_LATEST = 10**_TIME_DIGITS
_UNSAVED_KEY = "?"
_AFTER_DIGITS = ":"
_OWN_FIELDS = ("id", "threadId", "resourceId", "createdAt")
_INSTEAD_OF_CONTENT = ("tool_calls", "function_call", "parts", "toolInvocations", "refusal", "audio")
_TEXT_FIELDS = ("content", "parts", "refusal")
_TOOL_ROLES = ("tool", "function")


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `extra` holds the fields that it came with besides those named here."""

    id: str
    thread_id: str
    resource_id: str
    role: str
    content: JSON
    created_at: datetime
    extra: Mapping[str, JSON]
    entry: Entry | None = field(default=None, compare=False, repr=False)
    """As it is stored; its value is the message as it came, without an id and times of ours."""


@dataclass(frozen=True, slots=True)
class MessagePage:
    messages: tuple[Message, ...]
    cursor: str | None
    """Where the next page begins, or None at the end."""


def message_of(entry: Entry) -> Message:
    value = cast(Mapping[str, JSON], entry.value)
    attributes = cast(Mapping[str, Any], entry.attributes)
    return Message(
        id=cast(str, entry.identity),
        thread_id=attributes["threadId"],
        resource_id=attributes["resourceId"],
        role=attributes["role"],
        content=value.get("content"),
        created_at=moment(entry.created_at),
        extra={name: field for name, field in value.items() if name not in ("role", "content")},
        entry=entry,
    )


# Keys


def thread_prefix(thread_id: str) -> str:
    """What the keys of a thread's messages begin with, and no other key does."""
    return thread_id + SEPARATOR


def thread_of_key(key: str) -> str:
    return key.partition(SEPARATOR)[0]


def in_time_order(entry: Entry) -> tuple[int, str]:
    """Sorts messages of several threads by time; within one thread this is the order of their keys."""
    return entry.created_at, entry.key


class Numbering:
    """Hands out the keys of new messages inside a transaction: after all that have the same time, and never used."""

    def __init__(self, transaction: Transaction, thread_id: str) -> None:
        self._transaction = transaction
        self._prefix = thread_prefix(thread_id)
        self._next: dict[int, int] = {}
        self._unused: set[int] = set()

    def end(self, most_ahead: int | None = None) -> int:
        """The time of a message that comes after all that are there: the commit's, or that of one dated ahead.

        Those that are dated further ahead than `most_ahead` do not count.
        """
        now = self._transaction.time
        if self._is_end(now):
            return now
        latest = None if most_ahead is None else self._moment_prefix(min(now + most_ahead, _LATEST - 1))
        newest = self._newest(self._prefix, latest)
        return now if newest is None else max(now, newest.created_at)

    def key(self, created_at: int) -> str:
        moment_prefix = self._moment_prefix(created_at)
        number = self._next.get(created_at)
        if number is None:
            number = self._first_number(created_at, moment_prefix)
        # What is deleted keeps its key: its history is not a new message's.
        while created_at not in self._unused and self._was_used(_numbered(moment_prefix, number)):
            number += 1
        self._next[created_at] = number + 1
        return _numbered(moment_prefix, number)

    def _first_number(self, created_at: int, moment_prefix: str) -> int:
        # The commit's own time is new but for messages that came dated into the future: one look saves the scan.
        if created_at == self._transaction.time and self._is_end(created_at):
            return 0
        newest = self._newest(moment_prefix)
        return int(newest.key.rpartition(SEPARATOR)[2]) + 1 if newest is not None else 0

    def _is_end(self, created_at: int) -> bool:
        """Whether no message of this time, or of a later one, is or was in the thread."""
        if created_at not in self._unused:
            if self._transaction.was_used(MESSAGE, self._moment_prefix(created_at), self._prefix + _AFTER_DIGITS):
                return False
            self._unused.add(created_at)
        return True

    def _newest(self, prefix: str, before: str | None = None) -> Entry | None:
        scan = Scan(Filter(kinds=(MESSAGE,), key_prefix=prefix, key_before=before), descending=True, limit=1)
        return next(iter(self._transaction.scan(scan).entries), None)

    def _was_used(self, key: str) -> bool:
        return self._transaction.was_used(MESSAGE, key, key)

    def _moment_prefix(self, created_at: int) -> str:
        return f"{self._prefix}{created_at:0{_TIME_DIGITS}d}{SEPARATOR}"


def _numbered(moment_prefix: str, number: int) -> str:
    return f"{moment_prefix}{number:0{_NUMBER_DIGITS}d}"


# Coming in


@dataclass(frozen=True, slots=True)
class Incoming:
    """A checked message; `draft` lacks its key, its owner and, where none was given, its time."""

    name: str
    id: str
    is_named: bool
    """Whether the id came with it: only then can it be there already."""
    created_at: int | None
    resource: JSON
    draft: Draft

    @property
    def value(self) -> Mapping[str, JSON]:
        return cast(Mapping[str, JSON], self.draft.value)

    def placed(self, key: str, created_at: int, resource: str) -> Draft:
        """The draft, whole; only what was checked before is put in, so nothing is checked a second time."""
        draft = copy(self.draft)
        attributes = {**self.draft.attributes, "resourceId": resource}
        vars(draft).update(key=key, created_at=created_at, attributes=attributes)
        return draft

    def check_owner(self, resource: str) -> None:
        if self.resource not in (None, resource):
            raise InvalidInput(f"{self.name} has the resourceId {self.resource!r}, but is added with {resource!r}")

    def check_same(self, known: Entry, thread_id: str) -> None:
        """The message that has this id already must be this one."""
        if thread_of_key(known.key) != thread_id:
            raise Conflict(
                f"a message with id {self.id} is in thread {thread_of_key(known.key)} already; give it another id"
            )
        if not equal(known.value, self.draft.value):
            raise Conflict(
                f"a message with id {self.id} exists already with another content; give it another id, or update it"
            )


def incoming(messages: object, thread_id: str, limits: Limits, *, verbatim: bool = False) -> list[Incoming]:
    """Check messages and work out their passages; those that are not to be stored are left out."""
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise InvalidInput('messages must be a list, such as [{"role": "user", "content": "…"}]')
    if len(messages) > MAX_MESSAGES:
        raise TooLarge(f"there are {len(messages):,} messages; one call takes at most {MAX_MESSAGES:,}")
    check = _checked_item if verbatim else _checked
    checked = [check(f"message {number}", message, thread_id, limits) for number, message in enumerate(messages, 1)]
    stored = [one for one in checked if verbatim or one.draft.attributes["role"] not in UNSTORED_ROLES]
    for one in stored:
        _ = one.draft.passages
    return stored


def _checked(name: str, message: object, thread_id: str, limits: Limits) -> Incoming:
    if not isinstance(message, Mapping):
        raise InvalidInput(f"{name} must be an object with role and content, not {type(message).__name__}")
    # An id that ties is theirs too: it goes back to the model, and a copy in another thread has no other trace of it.
    ours = [field for field in _OWN_FIELDS if field != "id" or not is_tied_by_id(message)]
    value = check_object(name, {key: field for key, field in message.items() if key not in ours}, limits.message_bytes)
    if message.get("threadId") not in (None, thread_id):
        raise InvalidInput(f"{name} has the threadId {message['threadId']!r}, but is added with {thread_id!r}")
    given = message.get("id")
    id = str(uuid.uuid4()) if given is None else check_id(f"{name}: id", given)
    draft = message_draft(name, _UNSAVED_KEY, value, thread_id=thread_id, resource="", identity=id)
    created_at = _created_at(name, message.get("createdAt"))
    return Incoming(name, id, given is not None, created_at, message.get("resourceId"), draft)


def _checked_item(name: str, item: object, thread_id: str, limits: Limits) -> Incoming:
    """An item that is kept to the letter: ids and times in it are its own, and no concern of ours."""
    value = check_object(name, item, limits.message_bytes)
    id = str(uuid.uuid4())
    role = value.get("role")
    attributes: dict[str, JSON] = {
        "role": role if isinstance(role, str) and role else role_of_item(value) or "assistant",
        "resourceId": "",
        "threadId": thread_id,
    }
    draft = Draft(MESSAGE, _UNSAVED_KEY, value, text=searchable_text(value), attributes=attributes, identity=id)
    return Incoming(name, id, False, None, None, draft)


def role_of_item(value: Mapping[str, JSON]) -> str | None:
    """Whose an item of OpenAI's Responses API is that has no role: what a tool said is a tool's, a call the agent's."""
    if "role" in value or not is_item_without_role(value):
        return None
    kind = str(value["type"])
    return "tool" if kind.endswith("_output") else "user" if kind.endswith("_response") else "assistant"


def message_draft(
    name: str, key: str, value: Mapping[str, JSON], *, thread_id: str, resource: str, identity: str
) -> Draft:
    """Check role and content, and give what is to be stored of a message."""
    role = role_of_item(value)
    if role is None:
        role = cast(str, value.get("role"))
        if role not in (*ROLES, *UNSTORED_ROLES, SIGNAL):
            raise InvalidInput(f"{name}: role is required and must be one of {', '.join(ROLES + UNSTORED_ROLES)}")
        if role == SIGNAL and is_signal_of_user(value.get("content")):
            role = "user"
            value = {**value, "role": role}
        _check_content(name, value)
    cut = () if role in _TOOL_ROLES else _TEXT_FIELDS
    kept = {field: without_working_memory(part) if field in cut else part for field, part in value.items()}
    attributes: dict[str, JSON] = {"role": role, "resourceId": resource, "threadId": thread_id}
    return Draft(MESSAGE, key, kept, text=searchable_text(kept), attributes=attributes, identity=identity)


def is_signal_of_user(content: JSON) -> bool:
    """Whether a content is Mastra's of what a user sent to an agent at work."""
    metadata = content.get("metadata") if isinstance(content, Mapping) else None
    signal = metadata.get("signal") if isinstance(metadata, Mapping) else None
    return isinstance(signal, Mapping) and signal.get("type") in ("user", "user-message")


def _check_content(name: str, value: Mapping[str, JSON]) -> None:
    content = value.get("content")
    if content is None:
        if not any(value.get(field) for field in _INSTEAD_OF_CONTENT):
            raise InvalidInput(f"{name}: content is required; give a text, a list of parts, or an object")
    elif isinstance(content, list):
        for number, part in enumerate(content, 1):
            if not isinstance(part, (str, Mapping)):
                raise InvalidInput(
                    f"{name}: part {number} of content must be a text or an object, not {type(part).__name__}"
                )
    elif not isinstance(content, (str, Mapping)):
        raise InvalidInput(
            f"{name}: content must be a text, a list of parts or an object, not {type(content).__name__}"
        )


def _created_at(name: str, time: datetime | str | None) -> int | None:
    found = microseconds(f"{name}: createdAt", time)
    if found is not None and not 0 <= found < _LATEST:
        raise InvalidInput(f"{name}: createdAt must be between the years 1970 and 5138, not {time!s}")
    return found


def check_ids(ids: Sequence[str]) -> dict[str, None]:
    """Message ids, each once and in order."""
    if isinstance(ids, (str, bytes)) or not isinstance(ids, Sequence):
        raise InvalidInput("ids must be a list of message ids")
    if len(ids) > MAX_MESSAGES:
        raise TooLarge(f"there are {len(ids):,} ids; one call takes at most {MAX_MESSAGES:,}")
    return dict.fromkeys(check_id("message id", id) for id in ids)
