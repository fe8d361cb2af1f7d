"""Messages: how they are checked, stored, read by page, by time or around one of them, changed and deleted.

A message's key is its thread, its time and a number, so the messages of a thread are one range of keys in time order.
Its id, which is unique in the namespace, is the entry's identity. The entry's value is the message as it came.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, cast

from commonplace.checks import INT64, JSON, Limits, microseconds, moment
from commonplace.entry import SEPARATOR, Draft, Entry, quickly_made
from commonplace.errors import Conflict, InvalidInput, NotFound, Outdated, TooLarge
from commonplace.filters import Filter, equal
from commonplace.space.conversation import (
    MAX_PAGE,
    Direction,
    NumberedPage,
    OrderBy,
    PageRequest,
    changed_fields,
    check_count,
    check_cursor,
    check_id,
    check_object,
    check_owner,
    find_thread,
    known_thread,
    numbered_page,
)
from commonplace.space.handle import Handle
from commonplace.space.history import draft_of
from commonplace.space.message_text import (
    is_item_without_role,
    is_tied_by_id,
    searchable_text,
    ties_of,
    without_working_memory,
)
from commonplace.space.names import MESSAGE, THREAD, new_message_id
from commonplace.space.rules import Screen
from commonplace.store import Page, Scan, Transaction

UNSET: Any = object()
"""Marks an argument that was left out, since None is a value."""

ROLES = ("user", "assistant", "tool", "function", "data")
UNSTORED_ROLES = ("system", "developer")
"""Instructions belong to the program, not to the conversation. They are accepted, but not stored."""

SIGNAL = "signal"
"""Mastra's role for what an agent receives while it works. A signal from a user is stored as a user message."""

_ACCEPTED_ROLES = (*ROLES, *UNSTORED_ROLES, SIGNAL)

MAX_MESSAGES = 10_000
"""How many messages one call may add or delete."""

MANY = 8
"""The passages of this many messages are made before their transaction, because all other writes wait for it."""

MAX_AHEAD = 86_400_000_000
"""How far ahead the clock of a client may be, in microseconds; later dates are intended."""

_TIME_DIGITS = 17
_NUMBER_DIGITS = 9
_LATEST = 10**_TIME_DIGITS
_UNSAVED_KEY = "?"
_AFTER_DIGITS = ":"
_OWN_FIELDS = ("id", "threadId", "resourceId", "createdAt")
_INSTEAD_OF_CONTENT = ("tool_calls", "function_call", "parts", "toolInvocations", "refusal", "audio")
_TEXT_FIELDS = ("content", "parts", "refusal")
_TOOL_ROLES = ("tool", "function")


@quickly_made
@dataclass(frozen=True, slots=True)
class Message:
    """One message. `extra` has all its other fields."""

    id: str
    thread_id: str
    resource_id: str
    role: str
    content: JSON
    created_at: datetime
    extra: Mapping[str, JSON]
    entry: Entry | None = field(default=None, compare=False, repr=False)
    """The stored entry; its value is the message as it came, without the id and the time that were added."""


@dataclass(frozen=True, slots=True)
class MessagePage:
    messages: tuple[Message, ...]
    cursor: str | None
    """Pass it to get the next page; None at the end."""


def message_of(entry: Entry) -> Message:
    # Without `cast`, which is a call each time.
    id: Any = entry.identity
    value: Any = entry.value
    attributes: Mapping[str, Any] = entry.attributes
    return Message(
        id=id,
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
    """The prefix of the keys of all messages of a thread, and of no other key."""
    return thread_id + SEPARATOR


def thread_of_key(key: str) -> str:
    return key.partition(SEPARATOR)[0]


def in_time_order(entry: Entry) -> tuple[int, str]:
    """A sort key for messages of several threads by time; within one thread it gives the order of their keys."""
    return entry.created_at, entry.key


class Numbering:
    """Assigns the keys of new messages inside a transaction: unused ones, after all messages with the same time."""

    def __init__(self, transaction: Transaction, thread_id: str) -> None:
        self._transaction = transaction
        self._prefix = thread_prefix(thread_id)
        self._next: dict[int, int] = {}
        self._unused: set[int] = set()

    def end(self, most_ahead: int | None = None) -> int:
        """The time of a message at the end of the thread: that of the commit, or of a message dated ahead.

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
        # A deleted message keeps its key: a new message must not continue its history.
        while created_at not in self._unused and self._was_used(_numbered(moment_prefix, number)):
            number += 1
        self._next[created_at] = number + 1
        return _numbered(moment_prefix, number)

    def _first_number(self, created_at: int, moment_prefix: str) -> int:
        # The time of the commit is new unless a message was dated into the future; one lookup saves the scan.
        if created_at == self._transaction.time and self._is_end(created_at):
            return 0
        newest = self._newest(moment_prefix)
        return int(newest.key.rpartition(SEPARATOR)[2]) + 1 if newest is not None else 0

    def _is_end(self, created_at: int) -> bool:
        """Whether the thread never had a message of this time or a later one."""
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


# Reading a thread in time order


def messages_filter(thread_id: str, *, after: int | None = None, before: int | None = None) -> Filter:
    """The messages of a thread from `after` (inclusive) to `before`."""
    prefix = thread_prefix(thread_id)
    return Filter(kinds=(MESSAGE,), key_prefix=prefix, created_after=after, created_before=before)


def last_messages(handle: Handle, filter: Filter, count: int, as_of: int | None = None) -> tuple[Entry, ...]:
    """The newest `count` messages, oldest first."""
    if not count:
        return ()
    newest = handle.store.scan(handle.namespace, Scan(filter, descending=True, limit=count, as_of=as_of))
    return newest.entries[::-1]


def last_values(handle: Handle, filter: Filter, count: int) -> list[JSON]:
    """The values of the newest `count` messages, oldest first."""
    return handle.store.values(handle.namespace, Scan(filter, descending=True, limit=count))[::-1] if count else []


def messages_around(
    handle: Handle, entry: Entry, before: int, after: int, as_of: int | None = None
) -> tuple[Entry, ...]:
    """A message with its neighbours in the thread, oldest first."""
    former = neighbours_of(handle, entry, -before, as_of)
    return (*former[::-1], entry, *neighbours_of(handle, entry, after, as_of))


def neighbours_of(handle: Handle, entry: Entry, count: int, as_of: int | None = None) -> tuple[Entry, ...]:
    """The next `count` messages, or the previous ones if `count` is negative; the nearest first."""
    if not count:
        return ()
    filter = messages_filter(thread_of_key(entry.key))
    filter = replace(filter, key_before=entry.key) if count < 0 else replace(filter, key_after=entry.key)
    scan = Scan(filter, descending=count < 0, limit=abs(count), as_of=as_of)
    return handle.store.scan(handle.namespace, scan).entries


def all_messages(transaction: Transaction, thread_id: str) -> Iterator[Entry]:
    """Every message of a thread inside a transaction, in time order."""
    cursor: str | None = None
    while True:
        found = transaction.scan(Scan(messages_filter(thread_id), limit=MAX_PAGE, after=cursor))
        yield from found.entries
        cursor = found.cursor
        if cursor is None:
            return


# Checking what callers send


@quickly_made
@dataclass(frozen=True, slots=True)
class Incoming:
    """A checked message; `draft` has no key and no owner yet, and no time if the caller sent none."""

    name: str
    id: str
    is_named: bool
    """Whether the caller sent the id; only then can the message be stored already."""
    created_at: int | None
    resource: JSON
    draft: Draft

    @property
    def value(self) -> Mapping[str, JSON]:
        return cast("Mapping[str, JSON]", self.draft.value)

    def prepared(self, screen: Screen | None) -> Incoming:
        """This message after the screen, with its passages. Everything here needs no transaction."""
        screened = self.screened(screen)
        return replace(screened, draft=screened.draft.with_passages())

    def screened(self, screen: Screen | None) -> Incoming:
        return self if screen is None else replace(self, draft=screen(self.draft))

    def placed(self, key: str, created_at: int, resource: str) -> Draft:
        """The complete draft."""
        attributes = {**self.draft.attributes, "resourceId": resource}
        draft = self.draft  # `dataclasses.replace` takes four times as long
        return Draft(
            draft.kind,
            key,
            draft.value,
            draft.text,
            draft.heading,
            attributes,
            draft.identity,
            draft.expires_at,
            created_at,
            draft.updated_at,
            draft.prepared,
            draft.screened,
        )

    def check_owner(self, resource: str) -> None:
        if self.resource not in (None, resource):
            raise InvalidInput(f"{self.name} has the resourceId {self.resource!r}, but is added with {resource!r}")

    def check_same(self, known: Entry, thread_id: str) -> None:
        """Raise Conflict unless the stored message with this id is the same."""
        if thread_of_key(known.key) != thread_id:
            raise Conflict(
                f"a message with id {self.id} is in thread {thread_of_key(known.key)} already; give it another id"
            )
        if not equal(known.value, self.draft.value):
            raise Conflict(
                f"a message with id {self.id} exists already with a different content; give it another id, or update it"
            )


def incoming(messages: object, thread_id: str, limits: Limits, *, verbatim: bool = False) -> list[Incoming]:
    """Check messages; those that are not stored are left out."""
    if type(messages) is not list and (
        isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence)
    ):
        raise InvalidInput('messages must be a list, such as [{"role": "user", "content": "…"}]')
    if len(messages) > MAX_MESSAGES:
        raise TooLarge(f"there are {len(messages):,} messages; one call takes at most {MAX_MESSAGES:,}")
    check = _checked_item if verbatim else _checked
    checked = [check(f"message {number}", message, thread_id, limits) for number, message in enumerate(messages, 1)]
    return [one for one in checked if verbatim or one.draft.attributes["role"] not in UNSTORED_ROLES]


def _checked(name: str, message: object, thread_id: str, limits: Limits) -> Incoming:
    if not isinstance(message, Mapping):
        raise InvalidInput(f"{name} must be an object with role and content, not {type(message).__name__}")
    own = {} if message.keys().isdisjoint(_OWN_FIELDS) else {key: message.get(key) for key in _OWN_FIELDS}
    if own:
        # An id that links items belongs to the message too: the model needs it, and copies in other threads keep it.
        ours = [field for field in _OWN_FIELDS if field != "id" or not is_tied_by_id(message)]
        message = {key: field for key, field in message.items() if key not in ours}
    value = check_object(name, message, limits.message_bytes)
    if own.get("threadId") not in (None, thread_id):
        raise InvalidInput(f"{name} has the threadId {own['threadId']!r}, but is added with {thread_id!r}")
    given = own.get("id")
    id = new_message_id() if given is None else check_id(f"{name}: id", given)
    draft = message_draft(name, _UNSAVED_KEY, value, thread_id=thread_id, resource="", identity=id)
    created_at = _created_at(name, own.get("createdAt"))
    return Incoming(name, id, given is not None, created_at, own.get("resourceId"), draft)


def _checked_item(name: str, item: object, thread_id: str, limits: Limits) -> Incoming:
    """Check an item that is stored verbatim; ids and times in it have no meaning here."""
    value = check_object(name, item, limits.message_bytes)
    id = new_message_id()
    role = value.get("role")
    attributes: dict[str, JSON] = {
        "role": role if isinstance(role, str) and role else role_of_item(value) or "assistant",
        "resourceId": "",
        "threadId": thread_id,
    }
    draft = Draft(MESSAGE, _UNSAVED_KEY, value, text=searchable_text(value), attributes=attributes, identity=id)
    return Incoming(name, id, False, None, None, draft)


def role_of_item(value: Mapping[str, JSON]) -> str | None:
    """The role of an item of the OpenAI Responses API that has none: `tool` for results, `assistant` for calls."""
    if "role" in value or not is_item_without_role(value):
        return None
    kind = str(value["type"])
    return "tool" if kind.endswith("_output") else "user" if kind.endswith("_response") else "assistant"


def message_draft(
    name: str, key: str, value: Mapping[str, JSON], *, thread_id: str, resource: str, identity: str
) -> Draft:
    """Check role and content, and return what is stored of a message."""
    role = role_of_item(value)
    if role is None:
        role = cast("str", value.get("role"))
        if role not in _ACCEPTED_ROLES:
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
    """Whether a content is a Mastra signal that a user sent."""
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


def check_ids(ids: Sequence[str], of: str = "message") -> dict[str, None]:
    """Ids of messages or threads, each once and in order."""
    if isinstance(ids, (str, bytes)) or not isinstance(ids, Sequence):
        raise InvalidInput(f"ids must be a list of {of} ids")
    if len(ids) > MAX_MESSAGES:
        raise TooLarge(f"there are {len(ids):,} ids; one call takes at most {MAX_MESSAGES:,}")
    return dict.fromkeys(check_id(f"{of} id", id) for id in ids)


# Reading and writing


class ThreadMessages:
    """The messages of all threads of one namespace."""

    def __init__(self, handle: Handle, limits: Limits) -> None:
        self._handle = handle
        self._limits = limits

    @property
    def reads_at_once(self) -> bool:
        """Whether reading a few messages is so fast that an event loop needs no worker thread for it."""
        return self._handle.store.reads_at_once

    def add(
        self,
        thread_id: str,
        messages: Sequence[Mapping[str, object]],
        *,
        resource: str | None = None,
        verbatim: bool = False,
    ) -> tuple[Message, ...]:
        """Save messages, all or none, in their order. Messages that are stored already are not changed.

        A message without an id gets one. A message without `createdAt` gets a time that keeps the order: that of the
        commit, or one between those of its neighbours. System messages are not stored.
        With `verbatim` you can save any objects. Each becomes a new message at the end of the thread, and ids and times
        in it have no meaning here.
        """
        arrived = self._incoming(messages, check_id("thread id", thread_id), verbatim=verbatim)

        def work(transaction: Transaction) -> tuple[Entry, ...]:
            owner = known_thread(transaction.get, thread_id, resource).attributes["resourceId"]
            return save_messages(transaction, thread_id, cast("str", owner), arrived, at_end=verbatim)

        return tuple(map(message_of, self._handle.write("ThreadMessages.add", work)[0]))

    def _incoming(self, messages: object, thread_id: str, *, verbatim: bool = False) -> list[Incoming]:
        # Screened before they are compared with stored messages.
        screen = None if self._handle.rules.screen is None else self._handle.rules.screened
        arrived = incoming(messages, thread_id, self._limits, verbatim=verbatim)
        if self._handle.store.indexes_later and len(arrived) < MANY:
            return [one.screened(screen) for one in arrived]
        return [one.prepared(screen) for one in arrived]

    def messages(
        self,
        thread_id: str,
        *,
        resource: str | None = None,
        last: int | None = None,
        limit: int = 100,
        cursor: str | None = None,
        after: datetime | str | None = None,
        before: datetime | str | None = None,
        as_of: datetime | str | None = None,
    ) -> MessagePage:
        """A page of the messages of a thread, or the `last` ones; oldest first.

        `after` (inclusive) and `before` narrow by time. `as_of` gives the messages that the thread had at a time.
        """
        at = microseconds("as_of", as_of)
        narrowed = messages_filter(
            check_id("thread id", thread_id), after=microseconds("after", after), before=microseconds("before", before)
        )
        if last is None:
            size = check_count("limit", limit, 1, MAX_PAGE)
            page = self._handle.store.scan(
                self._handle.namespace, Scan(narrowed, limit=size, after=check_cursor(cursor), as_of=at)
            )
        elif cursor is None:
            count = check_count("last", last, 0, MAX_PAGE)
            page = Page(last_messages(self._handle, narrowed, count, at), None)
        else:
            raise InvalidInput("the last messages have no cursor; give `last`, or `limit` and `cursor`")
        if page.entries:  # a message has the owner, so the thread need not be read
            check_owner(thread_id, cast("str", page.entries[0].attributes["resourceId"]), resource)
        else:
            find_thread(partial(self._handle.get, as_of=at), thread_id, resource)
        return MessagePage(tuple(map(message_of, page.entries)), page.cursor)

    def items(self, thread_id: str, *, last: int, resource: str | None = None) -> tuple[JSON, ...]:
        """The `last` messages as they came, oldest first, without the id, the time and the owner that were added."""
        count = check_count("last", last, 0, MAX_PAGE)
        found = last_values(self._handle, messages_filter(check_id("thread id", thread_id)), count)
        if resource is not None or not found:
            find_thread(self._handle.get, thread_id, resource)
        return tuple(found)

    def page_of_messages(
        self,
        thread_id: str,
        page: int = 0,
        *,
        resource: str | None = None,
        per_page: int = 40,
        order_by: OrderBy = "createdAt",
        direction: Direction = "ASC",
        after: datetime | str | None = None,
        before: datetime | str | None = None,
    ) -> NumberedPage[Message]:
        """A page of the messages of a thread by its number from 0, with a total. `after` is inclusive."""
        request = PageRequest(page, per_page, order_by, direction)
        find_thread(self._handle.get, thread_id, resource)
        narrowed = messages_filter(thread_id, after=microseconds("after", after), before=microseconds("before", before))
        # The order of keys is that of time, and also orders messages of the same time.
        return numbered_page(self._handle, narrowed, request, message_of, created="key")

    def around(
        self,
        message_id: str,
        *,
        before: int = 1,
        after: int = 1,
        resource: str | None = None,
        as_of: datetime | str | None = None,
    ) -> tuple[Message, ...]:
        """A message with its neighbours in the thread, oldest first; with `as_of`, as they were at that time."""
        check_count("before", before, 0, MAX_PAGE)
        check_count("after", after, 0, MAX_PAGE)
        at = microseconds("as_of", as_of)
        entry = self._message(message_id, resource, at)
        return tuple(map(message_of, messages_around(self._handle, entry, before, after, at)))

    def count_messages(self, ids: Sequence[str]) -> dict[str, int]:
        """How many messages each of these threads has; 0 for one that does not exist."""
        wanted = list(check_ids(ids, "thread"))
        prefixes = [thread_prefix(id) for id in wanted]
        found = self._handle.store.read(self._handle.namespace, lambda reader: reader.counts(MESSAGE, prefixes))
        return dict(zip(wanted, found, strict=True))

    def get_message(self, id: str, *, resource: str | None = None) -> Message:
        return message_of(self._message(id, resource))

    def update_message(
        self,
        id: str,
        *,
        content: JSON = UNSET,
        metadata: Mapping[str, JSON] = UNSET,
        resource: str | None = None,
    ) -> Message:
        """Replace the content of a message, or change fields of its metadata; null removes a field."""
        fields = {} if metadata is UNSET else self._check_metadata(metadata)

        def work(transaction: Transaction) -> Entry:
            entry = _found(transaction.find(MESSAGE, check_id("message id", id)), id, resource)
            old = message_of(entry)
            value = dict(cast("Mapping[str, JSON]", entry.value))
            if content is not UNSET:
                value["content"] = content
            if fields:
                present = value.get("metadata")
                value["metadata"] = changed_fields(present if isinstance(present, Mapping) else {}, fields)
            checked = check_object("message", value, self._limits.message_bytes)
            if content is UNSET:  # a verbatim item need not be a valid message
                draft = replace(draft_of(entry), value=checked)
            else:
                draft = message_draft(
                    "message",
                    entry.key,
                    checked,
                    thread_id=old.thread_id,
                    resource=old.resource_id,
                    identity=id,
                )
            if equal(draft.value, entry.value):
                return entry
            transaction.touch(THREAD, old.thread_id)
            return transaction.put(draft)

        return message_of(self._handle.write("ThreadMessages.update_message", work)[0])

    def clear(self, id: str, *, resource: str | None = None) -> int | None:
        """Delete all messages of a thread, but not the thread; return the commit, or None if there were no messages."""

        def work(transaction: Transaction) -> None:
            find_thread(transaction.get, id, resource)
            if transaction.delete_range(MESSAGE, thread_prefix(id)):
                transaction.touch(THREAD, id)

        return self._handle.write("ThreadMessages.clear", work, "delete")[1]

    def delete_messages(self, ids: Sequence[str], *, resource: str | None = None) -> int | None:
        """Delete messages; ids that do not exist are ignored. Return the commit, or None if none of them existed."""
        wanted = check_ids(ids)

        def work(transaction: Transaction) -> None:
            for id in wanted:
                entry = transaction.find(MESSAGE, id)
                if entry is not None:
                    _found(entry, id, resource)
                    transaction.delete(MESSAGE, entry.key)
                    transaction.touch(THREAD, message_of(entry).thread_id)

        return self._handle.write("ThreadMessages.delete_messages", work, "delete")[1]

    def replace_messages(
        self,
        thread_id: str,
        messages: Sequence[Mapping[str, object]],
        *,
        seen: Mapping[str, int] | None = None,
        resource: str | None = None,
        verbatim: bool = False,
    ) -> tuple[Message, ...]:
        """Delete messages of a thread and add others at its end, in one commit: all of them, or those in `seen`.

        `seen` has the ids with the revisions that you have read. If one of these messages has changed or is gone, or if
        the thread has a newer one, this raises Outdated and changes nothing.
        """
        arrived = self._incoming(messages, check_id("thread id", thread_id), verbatim=verbatim)
        wanted = None if seen is None else _check_seen(seen)

        def work(transaction: Transaction) -> tuple[Entry, ...]:
            owner = known_thread(transaction.get, thread_id, resource).attributes["resourceId"]
            if wanted is None:
                is_changed = bool(transaction.delete_range(MESSAGE, thread_prefix(thread_id)))
            else:
                is_changed = bool(wanted)
                for entry in _seen_messages(transaction, thread_id, wanted):
                    transaction.delete(MESSAGE, entry.key)
            if is_changed:
                transaction.touch(THREAD, thread_id)
            return save_messages(transaction, thread_id, cast("str", owner), arrived, at_end=verbatim)

        written = self._handle.write("ThreadMessages.replace_messages", work, "write", "delete")
        return tuple(map(message_of, written[0]))

    def _message(self, id: str, resource: str | None, as_of: int | None = None) -> Entry:
        store, namespace = self._handle.store, self._handle.namespace
        if as_of is None:
            return _found(store.find(namespace, MESSAGE, check_id("message id", id)), id, resource)
        key = store.last_key(namespace, MESSAGE, check_id("message id", id))
        return _found(None if key is None else self._handle.get(MESSAGE, key, as_of=as_of), id, resource)

    def _check_metadata(self, metadata: Mapping[str, JSON]) -> dict[str, JSON]:
        return check_object("metadata", metadata, self._limits.metadata_bytes)


def save_messages(
    transaction: Transaction, thread_id: str, owner: str, arrived: Sequence[Incoming], *, at_end: bool = False
) -> tuple[Entry, ...]:
    """Add messages to an existing thread. Messages that it has already are not changed.

    A message without a time goes to the end of the thread, and between its neighbours in the call.
    """
    numbering = Numbering(transaction, thread_id)
    is_any_undated = any(message.created_at is None for message in arrived)
    now = numbering.end(None if at_end else MAX_AHEAD) if is_any_undated else transaction.time
    before: int | None = None  # the time of the previous message
    next_times = _next_times(arrived)
    entries: dict[str, Entry] = {}
    is_new = False
    for message, next_time in zip(arrived, next_times, strict=True):
        message.check_owner(owner)
        known = transaction.find(MESSAGE, message.id) if message.is_named else None
        if known is not None:
            message.check_same(known, thread_id)
            before = entries.setdefault(message.id, known).created_at
            continue
        at = message.created_at
        if at is None:
            at = now if next_time is None else min(now, next_time)
            # If the times around it are in no order, a result stays after its call.
            if before is not None and (next_time is None or before <= next_time or ties_of(message.value).results):
                at = max(at, before)
        before = at
        draft = message.placed(numbering.key(at), at, owner)
        entries[message.id] = transaction.put(draft, is_fresh=True)
        is_new = True
    if is_new:
        transaction.touch(THREAD, thread_id)
    return tuple(entries.values())


def _check_seen(seen: object) -> dict[str, int]:
    if not isinstance(seen, Mapping):
        raise InvalidInput('seen must be an object of ids with revisions, such as {"m-1": 1}')
    if len(seen) > MAX_MESSAGES:
        raise TooLarge(f"there are {len(seen):,} ids; one call takes at most {MAX_MESSAGES:,}")
    return {check_id("message id", id): check_count("a revision", number, 1, INT64[-1]) for id, number in seen.items()}


def _seen_messages(transaction: Transaction, thread_id: str, seen: Mapping[str, int]) -> list[Entry]:
    """The messages that a caller has seen, if they still are as they were and no newer one has come."""
    found: list[Entry] = []
    for id, revision in seen.items():
        entry = transaction.find(MESSAGE, id)
        present = 0 if entry is None or thread_of_key(entry.key) != thread_id else entry.revision
        if entry is None or present != revision:
            raise Outdated(
                f"the message {id} of the thread {thread_id} has changed or is gone; read the messages again", present
            )
        found.append(entry)
    newest = Scan(messages_filter(thread_id), descending=True, limit=1)
    for entry in transaction.scan(newest).entries if found else ():
        if entry.identity not in seen:
            raise Outdated(
                f"the thread {thread_id} has a newer message, {entry.identity}; read the messages again", entry.revision
            )
    return found


def _next_times(arrived: Sequence[Incoming]) -> list[int | None]:
    """For each message the time of the first dated message after it."""
    times: list[int | None] = [None]
    for message in reversed(arrived[1:]):
        times.append(times[-1] if message.created_at is None else message.created_at)
    return times[::-1][: len(arrived)]


def _found(entry: Entry | None, id: str, resource: str | None) -> Entry:
    if entry is None:
        raise NotFound(f"No message found with id {id}")
    message = message_of(entry)
    check_owner(message.thread_id, message.resource_id, resource)
    return entry
