"""The one kind of thing that is stored: an entry; and what is told of it: its revisions and changes.

Times are whole microseconds since 1970 (UTC), as the namespace's commits give them out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Literal

from commonplace.checks import JSON, Namespace, check_json, check_key, check_line, check_text
from commonplace.language.passages import Passage, passages

Action = Literal["created", "updated", "restored", "moved_here", "moved_away", "deleted", "expired"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

SEPARATOR = "\x01"
"""Divides the parts of a key. It sorts below every character that a part may hold, so a directory sorts together."""

STAYS = "stays"
"""Marks a field of a dataclass that is not sent over a wire, because it would tell of others."""

INDEXED_ATTRIBUTES = ("type", "tags", "resourceId")
"""Attributes that a filter finds by an index rather than by a look at every entry."""


@dataclass(frozen=True)
class Draft:
    """A state to be written. `text` is what search sees; left out, it is the value when that is a string."""

    kind: str
    key: str
    value: JSON
    text: str | None = None
    heading: str | None = None
    attributes: Mapping[str, JSON] = field(default_factory=dict)
    identity: str | None = None
    expires_at: int | None = None
    created_at: int | None = None
    updated_at: int | None = None

    def __post_init__(self) -> None:
        check_key(self.key)
        check_json("value", self.value)
        check_json("attributes", self.attributes)
        for name, text in (("text", self.text), ("heading", self.heading)):
            if text is not None:
                check_text(name, text)
        if self.identity is not None:
            check_line("identity", self.identity, max_bytes=512)

    @property
    def searchable(self) -> str:
        if self.text is not None:
            return self.text
        return self.value if isinstance(self.value, str) else ""

    @cached_property
    def passages(self) -> tuple[Passage, ...]:
        """The passages of the text with their terms; asked for before a transaction, they cost it nothing."""
        return passages(self.searchable)


@dataclass(frozen=True, slots=True)
class Entry:
    """One state of one entry, as it is or as it was."""

    namespace: Namespace
    kind: str
    key: str
    value: JSON
    text: str
    heading: str | None
    attributes: Mapping[str, JSON]
    identity: str | None
    revision: int
    commit: int
    created_at: int
    updated_at: int
    expires_at: int | None
    actor: str | None
    id: int = field(default=0, metadata={STAYS: True})
    """The store's own number. It counts over the whole book, so it is not sent over a wire: there it is 0."""


@dataclass(frozen=True, slots=True)
class Revision:
    """A line of a key's history. A deletion has a revision of its own; every other one has a state to read."""

    revision: int
    action: Action
    commit: int
    at: int
    actor: str | None


@dataclass(frozen=True, slots=True)
class Change:
    """A line of a namespace's feed."""

    commit: int
    at: int
    action: Action
    kind: str
    key: str
    revision: int
    actor: str | None


@dataclass(frozen=True, slots=True)
class Hit:
    """An entry that a search found, with the passage that matched best. `key` is the name that people use for it."""

    kind: str
    key: str
    entry: Entry
    score: float
    parts: Mapping[str, float]
    snippet: str
    start: int
    end: int

    @property
    def created_at(self) -> datetime:
        """When the entry was made, as a file, a record or a message tells it; `entry` has the stored microseconds."""
        return _EPOCH + timedelta(microseconds=self.entry.created_at)

    @property
    def updated_at(self) -> datetime:
        return _EPOCH + timedelta(microseconds=self.entry.updated_at)
