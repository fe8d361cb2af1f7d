"""Structured memories. Records with the same type, source and content are one: saving one again merges, atomically."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from json.encoder import encode_basestring
from typing import Any, Literal, cast

from commonplace.checks import (
    JSON,
    Limits,
    Namespace,
    check_json,
    check_line,
    check_number,
    check_text,
    check_visible,
    expiry,
    microseconds,
    moment,
    optional_moment,
)
from commonplace.entry import STAYS, Draft, Entry, quickly_made
from commonplace.errors import AlreadyExists, Conflict, InvalidInput, NotFound, TooLarge
from commonplace.filters import Filter, parse_conditions
from commonplace.space.handle import Handle, awaited
from commonplace.space.history import deleted_revision, put_back
from commonplace.space.names import RECORD, new_id
from commonplace.store import Scan, Transaction

STANDING_TYPES = ("instruction", "preference")
"""The types of records that can be standing: recalled for every question, once a person has confirmed them."""

MAX_CONFIRMED = 500
_compiled = cache(re.compile)  # compiled on first use
_RULE = (
    r"(?:^|[.!?:;,\n]\s*)(?:(?:please|remember|note)[:,]?\s+)?(?:to\s+)?"
    r"(?:always|never|from now on|in (?:the )?future,|whenever (?:i|you)|every time (?:i|you)|do not ever|don['’]t ever"
    r"|(?:do not|don['’]t) (?:call|use|ask|send|write|answer|suggest|mention|address|schedule|book)"
    r"|(?:answer|reply|respond|write|speak) (?:to me )?(?:only )?in \w+|(?:call|address) me \w+)\b"
)
_LIKING = (
    r"\b(?:(?:i|we|(?:the )?user) (?:\w+ )?(?:prefers?|would rather|favou?rs?|can['’]t stand)|(?:i|we)['’]d rather"
    r"|my (?:preferred|favou?rite)|prefers? \w.{0,60} (?:to|over) \w)"
)
_SUGGESTED_CHARACTERS = 2_000
_SUGGESTING = (
    *("always", "never", "now on", "future", "whenever", "every", "do not", "don't", "call", "address"),
    *("answer", "reply", "respond", "write", "speak", "prefer", "rather", "favo", "stand"),
)
"""What a text in ASCII has at least one of if it matches a rule or a liking."""

_TAG = re.compile(r"[a-z0-9:_-]{1,100}")
TAG_RULE = "a tag has 1 to 100 of the characters a-z 0-9 : _ -, such as project:alpha"
MAX_RECORDS = 10_000
DEFAULT_SOURCE = "python"
"""The source of a record for which a Python program names none. It is part of the record's identity."""
"""How many records one call may tag or delete."""

_UNSET: Any = object()
RECORD_ATTRIBUTES: Mapping[str, tuple[type, ...]] = {
    "type": (str,),
    "source": (str,),
    "tags": (list,),
    "confidence": (int, float),
    "importance?": (int, float),
}
"""The attributes of a stored record, with their types. A name that ends in `?` may be missing."""
FRACTIONS = ("confidence", "importance")
"""The attributes whose values are from 0 to 1."""
_CANONICAL = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=dict)


@quickly_made
@dataclass(frozen=True, slots=True)
class Record:
    """A structured memory."""

    id: str
    type: str
    content: JSON
    source: str
    tags: tuple[str, ...]
    confidence: float
    hash: str
    revision: int
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    importance: float | None = None
    actor: str | None = field(default=None, compare=False, metadata={STAYS: True})
    """Who wrote this state. A client of a service has it in `Space.history`."""
    suggested_type: str | None = field(default=None, compare=False)
    """After a write: the type that its text reads like, `instruction` or `preference`, if it has another one."""


@dataclass(frozen=True, slots=True)
class RecordPage:
    records: tuple[Record, ...]
    cursor: str | None


class Records:
    """The records of one namespace."""

    def __init__(self, handle: Handle, limits: Limits) -> None:
        self._handle = handle
        self._limits = limits

    def create(
        self,
        *,
        type: str,
        content: JSON,
        source: str = DEFAULT_SOURCE,
        confidence: float = 1.0,
        tags: Sequence[str] = (),
        ttl_seconds: float | None = None,
        id: str | None = None,
        importance: float | None = None,
    ) -> Record:
        """Save a record. One with the same type, source and content gets all tags and the larger confidence.

        You can filter by `importance`, from 0 to 1; search does not rank by it, and of two the larger stays.
        A new record gets a UUID as its id, or the given `id`, which no other record may have.
        """
        checked = self._screened(self._check(type, content, source, confidence, importance))
        clean_tags = self.clean_tags(tags)
        identity = checked.hash
        key = new_id() if id is None else check_visible("id", _check_id(id))
        draft = self._handle.prepared(self._draft(key, checked, clean_tags))

        def work(transaction: Transaction) -> Entry:
            ends = expiry(transaction.time, ttl_seconds)
            new = draft.with_expiry(ends)
            if id is None:  # most records are new: looking for an equal one first would cost each of them a statement
                with suppress(Conflict):
                    return transaction.put(new, is_fresh=True)
            known = transaction.find(RECORD, identity)
            if known is not None:
                return transaction.put(self._merged(known, clean_tags, checked, ends))
            if id is not None and transaction.get(RECORD, draft.key) is not None:
                raise AlreadyExists(f"a record has the id {id} already; update it, or leave the id out")
            return transaction.put(new, is_fresh=id is None)

        return _written(self._handle.write("Records.create", work)[0])

    def prepared(
        self,
        id: str,
        *,
        type: str,
        content: JSON,
        source: str,
        confidence: float,
        tags: Sequence[str] = (),
        importance: float | None = None,
    ) -> Draft:
        """What is stored of a record with this id, checked and screened. An import puts it in its own transaction."""
        checked = self._screened(self._check(type, content, source, confidence, importance))
        return self._draft(check_visible("id", _check_id(id)), checked, self.clean_tags(tags))

    def get(self, id: str, *, as_of: datetime | str | None = None) -> Record:
        entry = self._handle.get(RECORD, _check_id(id), as_of=microseconds("as_of", as_of))
        if entry is None:
            raise NotFound(f"Memory {id} not found")
        return record_of(entry)

    def update(
        self,
        id: str,
        *,
        type: str = _UNSET,
        content: JSON = _UNSET,
        source: str = _UNSET,
        confidence: float = _UNSET,
        tags: Sequence[str] = _UNSET,
        ttl_seconds: float | None = _UNSET,
        importance: float | None = _UNSET,
    ) -> Record:
        """Change the given fields. If that makes the record equal to another one, the two are merged into the older."""
        key = _check_id(id)

        def work(transaction: Transaction) -> Entry:
            entry = transaction.get(RECORD, key)
            if entry is None:
                raise NotFound(f"Memory {id} not found")
            old = record_of(entry)
            fields = self._screened(
                self._fields(
                    old.type if type is _UNSET else _check_label("type", type),
                    old.content if content is _UNSET else _check_content(content),
                    old.source if source is _UNSET else _check_label("source", source),
                    old.confidence if confidence is _UNSET else _check_confidence(confidence),
                    old.importance if importance is _UNSET else _check_importance(importance),
                )
            )
            new_tags = old.tags if tags is _UNSET else self.clean_tags(tags)
            ends = entry.expires_at if ttl_seconds is _UNSET else expiry(transaction.time, ttl_seconds)
            other = transaction.find(RECORD, fields.hash)
            if other is not None and other.key != key:
                older, newer = sorted((other, entry), key=lambda one: (one.created_at, one.id))
                transaction.delete(RECORD, newer.key)
                key_kept = older.key
                new_tags = tuple(dict.fromkeys((*record_of(other).tags, *new_tags)))
                fields = fields.joined(record_of(other))
                if ttl_seconds is _UNSET:
                    ends = _later(other.expires_at, ends)
            else:
                key_kept = key
            return transaction.put(self._draft(key_kept, fields, new_tags).with_expiry(ends))

        saved = self._handle.write("Records.update", work)[0]
        forget_ended(self._handle)
        return _written(saved)

    def delete(self, id: str) -> int:
        """Delete a record; return the commit, which you can pass to `Space.undo`. A confirmation of it ends."""

        def work(transaction: Transaction) -> None:
            if transaction.delete(RECORD, _check_id(id)) is None:
                raise NotFound(f"Memory {id} not found")

        _, commit = self._handle.write("Records.delete", work, "delete")
        assert commit is not None
        self._handle.store.system_delete(self._confirmations, id)
        return commit

    def delete_all(self, ids: Sequence[str]) -> int | None:
        """Delete records in one commit; ids that do not exist are ignored. Return the commit, or None if none did."""
        wanted = _check_ids(ids)

        def work(transaction: Transaction) -> None:
            for id in wanted:
                transaction.delete(RECORD, id)

        commit = self._handle.write("Records.delete_all", work, "delete")[1]
        for id in wanted:
            self._handle.store.system_delete(self._confirmations, id)
        return commit

    def tag_all(self, ids: Sequence[str], *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> int | None:
        """Add and remove tags of records in one commit; ids that do not exist are ignored.

        Return the commit, or None if no record was changed. A tag that you add and remove is added.
        """
        wanted, added, removed = _check_ids(ids), self.clean_tags(add), self.clean_tags(remove)

        def work(transaction: Transaction) -> None:
            for id in wanted:
                entry = transaction.get(RECORD, id)
                if entry is not None:
                    self._put_tags(transaction, entry, added, removed)

        return self._handle.write("Records.tag_all", work)[1]

    def _put_tags(
        self, transaction: Transaction, entry: Entry, added: tuple[str, ...], removed: tuple[str, ...]
    ) -> None:
        record = record_of(entry)
        kept = [tag for tag in record.tags if tag not in removed]
        tags = self.clean_tags(tuple(dict.fromkeys((*kept, *added))))
        if tags != record.tags:
            fields = _Fields(
                record.type, record.content, record.source, record.confidence, record.importance, record.hash
            )
            transaction.put(self._draft(entry.key, fields, tags).with_expiry(entry.expires_at))

    def undelete(self, id: str) -> int:
        """Take back the deletion of a record, which gets the state that it had then; return the commit."""
        key = _check_id(id)

        def work(transaction: Transaction) -> None:
            revision = deleted_revision(f"Memory {id}", transaction.history(RECORD, key))
            state = transaction.state(RECORD, key, revision)
            assert state is not None
            put_back(transaction, state)

        _, commit = self._handle.write("Records.undelete", work)
        assert commit is not None
        return commit

    def list(
        self,
        *,
        type: str | None = None,
        tags: Sequence[str] = (),
        match: Literal["all", "any"] = "all",
        filter: Mapping[str, object] | None = None,
        limit: int = 20,
        cursor: str | None = None,
        as_of: datetime | str | None = None,
    ) -> RecordPage:
        """Records by type and tags, the newest first; with `as_of`, those of that time."""
        all_tags, any_tags = self.wanted_tags(tags, match)
        narrowed = Filter(
            kinds=(RECORD,),
            types=() if type is None else (check_text("type", type),),
            all_tags=all_tags,
            any_tags=any_tags,
            conditions=parse_conditions(filter),
        )
        scan = Scan(
            narrowed,
            order="created",
            descending=True,
            limit=check_number("limit", limit),
            after=cursor,
            as_of=microseconds("as_of", as_of),
        )
        page = self._handle.store.scan(self._handle.namespace, scan)
        return RecordPage(tuple(map(record_of, page.entries)), page.cursor)

    # Standing instructions and preferences. A confirmation is the hash of what a person confirmed. It is stored apart
    # from the entries, so that no write, import, undo or restore of an entry can make one.

    def confirm(self, id: str) -> Record:
        """Confirm, as a person, an instruction or a preference: it is recalled for every question from now on.

        You confirm what the record says now: a change of its type, source or content ends the confirmation. This needs
        the action `admin`. No tool of a model calls it.
        """
        self._handle.rules.check("admin")
        record = self.get(id)
        if record.type not in STANDING_TYPES:
            raise InvalidInput(
                f"only a record of type {' or '.join(STANDING_TYPES)} can be confirmed, not {record.type!r:.100}; "
                "change its type first"
            )
        known = self._handle.store.system_list(self._confirmations)
        if id not in known and len(known) >= MAX_CONFIRMED:
            raise TooLarge(f"{MAX_CONFIRMED} records are confirmed already; withdraw some first")
        self._handle.store.system_put(self._confirmations, id, _hash_of(record))
        return record

    def withdraw(self, id: str) -> bool:
        """Withdraw a confirmation; return whether there was one. The record stays."""
        self._handle.rules.check("admin")
        return self._handle.store.system_delete(self._confirmations, _check_id(id))

    def standing(self) -> tuple[Record, ...]:
        """The confirmed records as they are recalled: instructions first, then by importance, then the newest."""
        confirmed = self._handle.store.system_list(self._confirmations)
        if not confirmed:
            return ()
        entries = self._handle.store.get(self._handle.namespace, RECORD, list(confirmed))
        records = [record_of(entry) for entry in entries if entry is not None]
        # The hash is computed again: what an import says of a record need not be true.
        found = [one for one in records if one.type in STANDING_TYPES and _hash_of(one) == confirmed[one.id]]
        return tuple(
            sorted(
                found,
                key=lambda one: (STANDING_TYPES.index(one.type), -(one.importance or 0.0), -one.updated_at.timestamp()),
            )
        )

    @property
    def _confirmations(self) -> str:
        return confirmations_of(self._handle.namespace)

    # Rules

    def clean_tags(self, tags: Sequence[str]) -> tuple[str, ...]:
        """Tags without surrounding space, in lower case, each once; an invalid one is refused."""
        return clean_tags(tags, self._limits)

    def wanted_tags(self, tags: Sequence[str], match: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The tags that an entry must all have, and those of which it must have at least one."""
        if match not in ("all", "any"):
            raise InvalidInput(f'match must be "all" or "any", not {match!r:.100}')
        clean = self.clean_tags(tags)
        return (clean, ()) if match == "all" else ((), clean)

    def _check(self, type: object, content: object, source: object, confidence: object, importance: object) -> _Fields:
        type, source = _check_label("type", type), _check_label("source", source)
        content, confidence = _check_content(content), _check_confidence(confidence)
        return self._fields(type, content, source, confidence, _check_importance(importance))

    def _fields(self, type: str, content: JSON, source: str, confidence: float, importance: float | None) -> _Fields:
        limit = self._limits.record_characters
        written = canonical(content)
        if len(written) > limit:
            raise TooLarge(f"content is too large (max {limit} characters)")
        return _Fields(type, content, source, confidence, importance, _hash(type, source, written))

    def _screened(self, fields: _Fields) -> _Fields:
        """The fields after the screen: the hash of a record must not depend on a masked secret."""
        if self._handle.rules.screen is None:
            return fields
        draft = self._draft("?", fields, ())
        kept = self._handle.rules.screened(draft)
        if kept.value is draft.value and kept.attributes is draft.attributes:
            return fields
        type, source = kept.attributes["type"], kept.attributes["source"]
        return self._check(type, kept.value, source, fields.confidence, fields.importance)

    def _draft(self, id: str, fields: _Fields, tags: tuple[str, ...]) -> Draft:
        attributes: dict[str, JSON] = {
            "type": fields.type,
            "source": fields.source,
            "tags": list(tags),
            "confidence": fields.confidence,
        }
        if fields.importance is not None:
            attributes["importance"] = fields.importance
        return Draft(
            RECORD,
            id,
            fields.content,
            text=text_of(fields.content),
            heading=" ".join((fields.type, *tags)),
            attributes=attributes,
            identity=fields.hash,
        )

    def _merged(self, known: Entry, tags: tuple[str, ...], new: _Fields, ends: int | None) -> Draft:
        old = record_of(known)
        union = tuple(dict.fromkeys((*old.tags, *tags)))
        fields = replace(new.joined(old), content=old.content)
        return self._draft(known.key, fields, union).with_expiry(ends or known.expires_at)


@dataclass(frozen=True, slots=True)
class _Fields:
    type: str
    content: JSON
    source: str
    confidence: float
    importance: float | None
    hash: str

    def joined(self, other: Record) -> _Fields:
        """These fields with the larger confidence and importance of the two."""
        known = [value for value in (self.importance, other.importance) if value is not None]
        return replace(self, confidence=max(self.confidence, other.confidence), importance=max(known, default=None))


def confirmations_of(namespace: Namespace) -> str:
    """The part of the store's own rows that has the confirmations of a namespace."""
    return f"confirmations/{'/'.join(namespace)}"


def forget_ended(handle: Handle) -> None:
    """Remove the confirmations of records that do not exist any more, or that say something else.

    Otherwise whoever writes the former content again would bring back what a person has changed.
    """
    confirmations = confirmations_of(handle.namespace)
    confirmed = handle.store.system_list(confirmations)
    entries = handle.store.get(handle.namespace, RECORD, list(confirmed)) if confirmed else []
    for (id, hash), entry in zip(confirmed.items(), entries, strict=True):
        if entry is None or _hash_of(record_of(entry)) != hash:
            handle.store.system_delete(confirmations, id)


def line_of(record: Record) -> str:
    """What a record says, on one line. Of a structured content it is JSON: `metric` alone does not say of what."""
    content = record.content
    if isinstance(content, Mapping) and content.keys() == {"text"}:
        content = content["text"]
    written = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, default=dict)
    return " ".join(written.split())


def suggested_type(content: JSON) -> str | None:
    """The type of a standing record that a content reads like. A cheap rule, for English; it only suggests."""
    text = " ".join(_leaves(content))[:_SUGGESTED_CHARACTERS]
    if text.isascii() and not any(map(text.lower().__contains__, _SUGGESTING)):
        return None  # as for most texts, in a fifth of the time
    if _compiled(_RULE, re.IGNORECASE).search(text):
        return "instruction"
    return "preference" if _compiled(_LIKING, re.IGNORECASE).search(text) else None


def _written(entry: Entry) -> Record:
    """A record that was just written, with a suggestion."""
    record = record_of(entry)
    suggested = None if record.type in STANDING_TYPES else suggested_type(record.content)
    return record if suggested is None else replace(record, suggested_type=suggested)


def _hash_of(record: Record) -> str:
    return content_hash(record.type, record.source, record.content)


def canonical(content: JSON) -> str:
    """JSON with sorted keys, without spaces, with non-ASCII unescaped and whole numbers without a fraction."""
    if type(content) is dict and _types_in(content.values()) == _types_in(content) == _ONLY_TEXT:  # the most usual
        return (
            "{"
            + ",".join([f"{encode_basestring(name)}:{encode_basestring(content[name])}" for name in sorted(content)])
            + "}"
        )
    return _CANONICAL.encode(_whole_numbers(content))


_ONLY_TEXT = {str}


def _types_in(values: Iterable[object]) -> set[type]:
    return set(map(type, values))


def content_hash(type: str, source: str, content: JSON) -> str:
    """The identity of a record: SHA-256 of the canonical JSON of its type, source and content."""
    return _hash(type, source, canonical(content))


def _hash(type: str, source: str, canonical_content: str) -> str:
    written = f'{{"content":{canonical_content},"source":{encode_basestring(source)},"type":{encode_basestring(type)}}}'
    digest: str = _sha256()(written.encode()).hexdigest()
    return digest


@cache
def _sha256() -> Callable[[bytes], Any]:
    from hashlib import sha256  # loads OpenSSL, which files and messages do not need

    return sha256


def _whole_numbers(value: JSON) -> JSON:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _whole_numbers(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_whole_numbers(item) for item in value]
    return value


def text_of(content: JSON) -> str:
    """What search sees: the strings and numbers of a content, in order."""
    return "\n".join(_leaves(content))


def _leaves(content: JSON) -> Iterable[str]:
    if type(content) is dict and _types_in(content.values()) == _ONLY_TEXT:  # the most usual
        return cast("Iterable[str]", content.values())
    return _nested_leaves(content)


def _nested_leaves(content: JSON) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, Mapping):
        for item in content.values():
            yield from _nested_leaves(item)
    elif isinstance(content, (list, tuple)):
        for item in content:
            yield from _nested_leaves(item)
    elif isinstance(content, (int, float)) and not isinstance(content, bool):
        yield str(content)


def _later(one: int | None, other: int | None) -> int | None:
    """The later of two expiry times; None is never."""
    return None if one is None or other is None else max(one, other)


def _check_label(name: str, text: object) -> str:
    if not isinstance(text, str) or not text.strip():
        raise InvalidInput(f"{name} is required and must be a non-empty string")
    return check_line(name, text, max_bytes=1_000)


def _check_content(content: object) -> JSON:
    if content is None:
        raise InvalidInput("content is required")
    return check_json("content", content)


def _check_confidence(confidence: object) -> float:
    return _check_fraction("confidence is required and", confidence)


def _check_importance(importance: object) -> float | None:
    return None if importance is None else _check_fraction("importance", importance)


def _check_fraction(subject: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise InvalidInput(f"{subject} must be a number between 0 and 1")
    return float(value)


def _check_id(id: object) -> str:
    if not isinstance(id, str) or not id.strip():
        raise InvalidInput("id is required and must be a non-empty string")
    return check_line("id", id, max_bytes=200)


def _check_ids(ids: Sequence[str]) -> tuple[str, ...]:
    """Ids of records, each once and in order."""
    if isinstance(ids, (str, bytes)) or not isinstance(ids, Sequence):
        raise InvalidInput("ids must be a list of record ids")
    if len(ids) > MAX_RECORDS:
        raise TooLarge(f"there are {len(ids):,} ids; one call takes at most {MAX_RECORDS:,}")
    return tuple(dict.fromkeys(map(_check_id, ids)))


def clean_tags(tags: Sequence[str], limits: Limits) -> tuple[str, ...]:
    """Tags without surrounding space, in lower case, each once; an invalid one is refused."""
    if isinstance(tags, str) or not isinstance(tags, Sequence):
        raise InvalidInput("tags must be a list of strings")
    if len(tags) > limits.tags:
        raise InvalidInput(f"tags array cannot have more than {limits.tags} items")
    clean: dict[str, None] = {}
    for tag in tags:
        normal = tag.strip().lower() if isinstance(tag, str) else ""
        if not _TAG.fullmatch(normal):
            raise InvalidInput(f'invalid tag: "{tag!s:.200}"; {TAG_RULE}')
        clean[normal] = None
    return tuple(clean)


def record_of(entry: Entry) -> Record:
    attributes = cast("Mapping[str, Any]", entry.attributes)
    return Record(
        id=entry.key,
        type=attributes["type"],
        content=entry.value,
        source=attributes["source"],
        tags=tuple(attributes["tags"]),
        confidence=attributes["confidence"],
        hash=entry.identity or "",
        revision=entry.revision,
        created_at=moment(entry.created_at),
        updated_at=moment(entry.updated_at),
        expires_at=optional_moment(entry.expires_at),
        importance=attributes.get("importance"),
        actor=entry.actor,
    )


# The same for asyncio


class AsyncRecords:
    """`Records`, asynchronous."""

    def __init__(self, wrapped: Records) -> None:
        self._wrapped = wrapped

    create = awaited(Records.create)
    get = awaited(Records.get)
    update = awaited(Records.update)
    delete = awaited(Records.delete)
    undelete = awaited(Records.undelete)
    delete_all = awaited(Records.delete_all)
    tag_all = awaited(Records.tag_all)
    confirm = awaited(Records.confirm)
    withdraw = awaited(Records.withdraw)
    standing = awaited(Records.standing)
    list = awaited(Records.list)
