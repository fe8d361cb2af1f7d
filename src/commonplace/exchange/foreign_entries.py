"""What an import makes of the items of a source: drafts, compared with what the book has, as one commit each.

A conversation with its branches is one commit, and so are up to some hundred records and files. An entry that the
source has changed later gets a new revision; one that was changed or deleted here stays so.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, cast

from commonplace.checks import JSON, Limits
from commonplace.entry import SEPARATOR, Draft, Entry
from commonplace.errors import Conflict, InvalidInput
from commonplace.exchange.sources import Chat, Conversation, Document, Item, LeftOut, Memory, Problem, Working, made_id
from commonplace.filters import equal
from commonplace.space.conversation import check_id, check_object, check_title, thread_draft
from commonplace.space.files import Files
from commonplace.space.handle import Handle
from commonplace.space.messages import Incoming, Numbering, incoming, thread_of_key
from commonplace.space.names import FILE, MESSAGE, RECORD, THREAD, WORKING
from commonplace.space.records import Records
from commonplace.store import Reader, Transaction

MARK = " import:"
"""Comes before the mark of an import at the end of the actor of its commits."""

_TITLE_CHARACTERS = 500


def mark_of(actor: str | None) -> str | None:
    """The mark of the import that wrote something; None if no import did."""
    return None if actor is None or MARK not in actor else actor.rpartition(MARK)[2]


def name_of(item: Item) -> str:
    """What an item is called in a report."""
    if isinstance(item, Document):
        return item.path
    if isinstance(item, Working):
        return f"working memory of {item.scope} {item.id}"
    return item.source if isinstance(item, Memory) else item.name


class Work(Protocol):
    """What becomes one commit. `run` may be called again, so it sets its counts to 0 first."""

    counts: dict[str, int]
    problems: list[Problem | LeftOut]

    @property
    def names(self) -> Sequence[str]: ...

    def prepare(self, handle: Handle, limits: Limits) -> None: ...

    def run(self, reader: Reader) -> None: ...


@dataclass(slots=True)
class _Prepared:
    """The drafts of one record or file, the oldest revision first."""

    item: Memory | Document | Working
    drafts: list[Draft]


class Entries:
    """Records and files."""

    def __init__(self, items: Sequence[Memory | Document | Working], *, again: bool) -> None:
        self._again = again
        self._items = items
        self._files: Files | None = None
        self._prepared: list[_Prepared] = []
        self._unfit: list[Problem | LeftOut] = []
        self.counts: dict[str, int] = {}
        self.problems: list[Problem | LeftOut] = []

    @property
    def names(self) -> Sequence[str]:
        return [name_of(item) for item in self._items]

    def prepare(self, handle: Handle, limits: Limits) -> None:
        self._files = Files(handle, limits)
        records = Records(handle, limits)
        for item in self._items:
            try:
                self._prepared.append(_Prepared(item, self._drafts(records, self._files, item, limits)))
            except (InvalidInput, Conflict) as error:
                self._unfit.append(Problem(name_of(item), str(error)))

    def _drafts(self, records: Records, files: Files, item: Memory | Document | Working, limits: Limits) -> list[Draft]:
        if isinstance(item, Document):
            return [_dated(files.prepared(item.path, item.text), item.created_at, item.updated_at).with_passages()]
        if isinstance(item, Working):
            return [_dated(self._working(item, limits), item.created_at, item.updated_at)]
        if _is_long(item.content, limits) and not item.former:
            text = item.content if isinstance(item.content, str) else json.dumps(item.content, ensure_ascii=False)
            path = f"/imported/{made_id(item.source)}.{'md' if isinstance(item.content, str) else 'json'}"
            return [_dated(files.prepared(path, text), item.created_at, item.updated_at).with_passages()]
        created = item.created_at
        drafts = []
        for content, at in (*item.former, (item.content, item.updated_at)):
            draft = records.prepared(
                item.id,
                type=item.type,
                content=content,
                source=item.source,
                confidence=item.confidence,
                tags=item.tags[: limits.tags],
                importance=item.importance,
            )
            drafts.append(_dated(draft, created, at).with_passages().with_expiry(item.expires_at))
        return drafts

    def _working(self, item: Working, limits: Limits) -> Draft:
        if item.scope not in ("thread", "resource") or not isinstance(item.content, (str, Mapping)):
            raise InvalidInput("a working memory is a text or an object, of a thread or a resource")
        content = check_object("working memory", {"content": item.content}, limits.metadata_bytes)["content"]
        owner = check_id("id", item.id)
        thread: JSON = owner if item.scope == "thread" else None
        attributes: dict[str, JSON] = {"resourceId": check_id("resource", item.resource), "threadId": thread}
        return Draft(WORKING, f"{item.scope}{SEPARATOR}{owner}", content, text="", attributes=attributes)

    def run(self, reader: Reader) -> None:
        self.counts = {}
        self.problems = list(self._unfit)
        for prepared in self._prepared:
            try:
                self._one(reader, prepared)
            except (InvalidInput, Conflict) as error:
                self.problems.append(Problem(name_of(prepared.item), str(error)))

    def _one(self, reader: Reader, prepared: _Prepared) -> None:
        item, drafts = prepared.item, prepared.drafts
        last = drafts[-1]
        ends = last.expires_at
        if ends is not None and ends <= time.time_ns() // 1_000:
            self.problems.append(LeftOut(name_of(item), "it has expired"))
            return
        known = reader.get(last.kind, last.key)
        if known is None and last.kind == RECORD and last.identity is not None:
            known = reader.find(RECORD, last.identity)
        is_deleted = isinstance(item, Memory) and item.is_deleted
        if known is None:
            if not self._again and reader.was_used(last.kind, last.key, last.key):
                self._count("kept" if is_deleted else "deleted_here")
                return
            self._put(reader, drafts)
            self._count({FILE: "files", RECORD: "records"}.get(last.kind, "working_memories"))
        else:
            place = max((number for number, one in enumerate(drafts) if _is_same(one, known)), default=None)
            is_newer = last.updated_at is not None and last.updated_at > known.updated_at
            if place is not None and place < len(drafts) - 1:
                drafts = drafts[place + 1 :]
            elif place is not None:
                drafts = [last] if _says_more(last, known) else []
            elif is_newer:
                drafts = drafts[-1:]
            else:
                self._count("kept")
                self._count("differing")
                return
            if not drafts and not is_deleted:
                self._count("kept")
                return
            self._put(reader, [replace(one, created_at=known.created_at) for one in drafts])
            self._count("updated")
        if is_deleted and isinstance(reader, Transaction):
            reader.delete(last.kind, last.key)

    def _put(self, reader: Reader, drafts: Sequence[Draft]) -> None:
        for draft in drafts:
            if not isinstance(reader, Transaction):
                return
            if draft.kind == FILE:
                assert self._files is not None
                self._files.place(reader, draft)
            else:
                reader.put(draft)

    def _count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1


def _is_same(draft: Draft, known: Entry) -> bool:
    if draft.kind == FILE:
        return bool(draft.value == known.value)
    is_same_text = _said(draft.value) == _said(known.value) is not None
    return is_same_text or equal(draft.value, known.value)


def _said(content: JSON) -> str | None:
    """The text of a record, whether it has other fields or not."""
    if isinstance(content, Mapping):
        content = content.get("text")
    return content if isinstance(content, str) else None


def _says_more(draft: Draft, known: Entry) -> bool:
    """Whether another file of the same source tells more about a record that an import has written: tags, fields."""
    if draft.kind != RECORD or mark_of(known.actor) is None:
        return False
    tags = set(cast("Sequence[str]", draft.attributes["tags"])) - set(cast("Sequence[str]", known.attributes["tags"]))
    return bool(tags) or (isinstance(draft.value, Mapping) and isinstance(known.value, str))


def _is_long(content: JSON, limits: Limits) -> bool:
    most = limits.record_characters
    return len(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, default=str)) > most - 2


def _dated(draft: Draft, created_at: int | None, updated_at: int | None) -> Draft:
    created = updated_at if created_at is None else created_at
    updated = created if updated_at is None else updated_at
    return replace(draft, created_at=created, updated_at=updated)


@dataclass(slots=True)
class _Thread:
    chat: Chat
    draft: Draft
    messages: list[Incoming] = field(default_factory=list)


class Threads:
    """A conversation with its branches."""

    def __init__(self, conversation: Conversation, *, again: bool) -> None:
        self._again = again
        self._conversation = conversation
        self._threads: list[_Thread] = []
        self._unfit: list[Problem | LeftOut] = []
        self._owner = ""
        self.counts: dict[str, int] = {}
        self.problems: list[Problem | LeftOut] = []

    @property
    def names(self) -> Sequence[str]:
        return [self._conversation.name]

    def prepare(self, handle: Handle, limits: Limits) -> None:
        self._owner = handle.namespace[-1]
        screen = None if handle.rules.screen is None else handle.rules.screened
        for chat in self._conversation.chats:
            id = check_id("thread id", chat.id)
            title = self._title(chat)
            metadata = check_object("metadata", chat.metadata, limits.metadata_bytes)
            owner = self._owner if chat.resource is None else check_id("resource", chat.resource)
            draft = thread_draft(id, owner, title, metadata)
            thread = _Thread(chat, draft if screen is None else screen(draft))
            seen: set[str] = set()
            for number, message in enumerate(chat.messages, 1):
                given = {"id": made_id(id, str(number)), **message}
                at = given.pop("createdAt", None)
                try:
                    found = incoming([given], id, limits)
                    if found and found[0].id not in seen:
                        seen.add(found[0].id)
                        thread.messages.append(replace(found[0].prepared(screen), created_at=at))
                    elif not found:
                        self._unfit.append(LeftOut(f"message {number} of {id}", "system messages are not stored"))
                except InvalidInput as error:
                    self._unfit.append(Problem(f"message {number} of thread {id}", str(error)))
            self._threads.append(thread)

    def _title(self, chat: Chat) -> str | None:
        """The title; if it cannot be stored, the thread is imported without it."""
        try:
            return check_title((chat.title or "")[:_TITLE_CHARACTERS] or None)
        except InvalidInput as error:
            self._unfit.append(Problem(f"the title of thread {chat.id}", str(error)))
            return None

    def run(self, reader: Reader) -> None:
        self.counts = dict.fromkeys(("threads", "messages", "updated", "kept", "differing", "deleted_here"), 0)
        self.problems = list(self._unfit)
        ids = {thread.draft.key for thread in self._threads}
        for thread in self._threads:
            self._one(reader, thread, ids)
        self.counts = {name: count for name, count in self.counts.items() if count}

    def _one(self, reader: Reader, thread: _Thread, siblings: set[str]) -> None:
        id = thread.draft.key
        known = reader.get(THREAD, id)
        if known is None and not self._again and reader.was_used(THREAD, id, id):
            self.counts["deleted_here"] += 1
            return
        owner = cast("str", (thread.draft if known is None else known).attributes["resourceId"])
        stored = reader.get_all(MESSAGE, [message.id for message in thread.messages], by="identity")
        times = _times(thread, [None if entry is None else entry.created_at for entry in stored])
        if known is None:
            self._put_thread(reader, thread, times)
        numbering = Numbering(reader, id) if isinstance(reader, Transaction) else None
        is_any_new = False
        for message, entry, at in zip(thread.messages, stored, times, strict=True):
            new = self._new_message(reader, message, entry, id, siblings, is_thread_known=known is not None)
            if new is None:
                continue
            is_any_new = True
            self.counts["messages"] += 1
            if isinstance(reader, Transaction) and numbering is not None:
                draft = replace(new.placed(numbering.key(at), at, owner), updated_at=at)
                reader.put(draft, is_fresh=True)
        if known is not None:
            self._update_thread(reader, thread, known, times, is_any_new=is_any_new)

    def _put_thread(self, reader: Reader, thread: _Thread, times: Sequence[int]) -> None:
        self.counts["threads"] += 1
        if isinstance(reader, Transaction):
            chat = thread.chat
            created = _first(chat.created_at, *times[:1], chat.updated_at, 0)
            updated = max(_first(chat.updated_at, created), *times[-1:], created)
            reader.put(replace(thread.draft, created_at=created, updated_at=updated))

    def _update_thread(
        self, reader: Reader, thread: _Thread, known: Entry, times: Sequence[int], *, is_any_new: bool
    ) -> None:
        """A later change in the source, or a new message, gives the thread its title and time."""
        updated = max(_first(thread.chat.updated_at, 0), *(times[-1:] or [0]))
        is_same = equal(known.attributes, {**thread.draft.attributes, "resourceId": known.attributes["resourceId"]})
        is_changed = updated > known.updated_at and (is_any_new or not is_same)
        self.counts["updated" if is_changed else "kept"] += 1
        self.counts["differing"] += not is_same and not is_changed
        if is_changed and isinstance(reader, Transaction):
            attributes = {**thread.draft.attributes, "resourceId": known.attributes["resourceId"]}
            reader.put(replace(thread.draft, attributes=attributes, updated_at=updated))

    def _new_message(
        self,
        reader: Reader,
        message: Incoming,
        known: Entry | None,
        thread_id: str,
        siblings: set[str],
        *,
        is_thread_known: bool,
    ) -> Incoming | None:
        """The message to add; None if it is here already. If another thread has its id, it gets one of its own."""
        if known is not None and thread_of_key(known.key) not in siblings:
            message = replace(message, id=f"{message.id}@{made_id(thread_id)[:8]}")
            message = replace(message, draft=replace(message.draft, identity=message.id))
            known = reader.find(MESSAGE, message.id)
        if known is not None:
            self.counts["kept"] += 1
            self.counts["differing"] += not equal(known.value, message.draft.value)
            return None
        if is_thread_known and not self._again and reader.last_key(MESSAGE, message.id) is not None:
            self.counts["deleted_here"] += 1
            return None
        return message


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)


def _times(thread: _Thread, stored: Sequence[int | None]) -> list[int]:
    """The times of the messages, never going back: the order of the source counts more than its clocks."""
    chat = thread.chat
    given = [message.created_at for message in thread.messages]
    earliest = min((at for at in given if at is not None), default=None)
    last = _first(chat.created_at, earliest, chat.updated_at, 0)
    if earliest is not None:
        last = min(last, earliest)
    times = []
    for at, known in zip(given, stored, strict=True):
        last = known if known is not None and known >= last else max(last, _first(at, last))
        times.append(last)
    return times
