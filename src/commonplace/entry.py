"""What a store holds: entries, their revisions, and the changes of a namespace.

Times are whole microseconds since 1970 (UTC), as the commits of the namespace assign them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from datetime import datetime
from typing import Any, Literal, TypeVar

from commonplace.checks import JSON, Namespace, moment
from commonplace.language.passages import Passage, passages

C = TypeVar("C")
Action = Literal["created", "updated", "restored", "moved_here", "moved_away", "deleted", "expired"]

SEPARATOR = "\x01"
"""Divides the parts of a key. It sorts below every character that a part may hold, so a directory sorts together."""

STAYS = "stays"
"""Marks a field of a dataclass that is never sent over a wire, such as one that would reveal something about others."""

WITHOUT_HISTORY = "$history"
"""An attribute. If it is false, the former states of the entry are not kept and its deletion is final.

Such an entry has never had a former state, and has no text.
"""

INDEXED_ATTRIBUTES = ("type", "tags", "resourceId")
"""Attributes that a filter finds by an index, without reading every entry."""


def quickly_made(cls: type[C]) -> type[C]:
    """Let a frozen dataclass with slots be made in a quarter of the time; a write makes six of them.

    `dataclass` sets each attribute by a call, because the class forbids to assign any. Here the instance is of a class
    with the same slots that allows it, until all are assigned. A subclass needs its own decorators.
    """
    known = {one.name: one for one in fields(cls)}  # type: ignore[arg-type]
    unfinished = type(f"Unfinished{cls.__name__}", (), {"__slots__": [*known]})
    names: dict[str, Any] = {"Made": cls, "Unfinished": unfinished, "set": object.__setattr__}
    parameters = []
    for name, one in known.items():
        names[f"of_{name}"] = one.default if one.default is not MISSING else one.default_factory
        parameters.append(f"{name}=of_{name}" if _is_optional(one) else name)
    # The default of an attribute with a factory is the factory.
    values = {
        name: name if one.default_factory is MISSING else f"of_{name}() if {name} is of_{name} else {name}"
        for name, one in known.items()
    }
    body = "".join(f"    self.{name} = {value}\n" for name, value in values.items())
    head = f"def __init__(self, {', '.join(parameters)}):\n    set(self, '__class__', Unfinished)\n"
    exec(f"{head}{body}    self.__class__ = Made\n", names)
    cls.__init__ = names["__init__"]  # type: ignore[method-assign]
    return cls


def _is_optional(one: Field[Any]) -> bool:
    return one.default is not MISSING or one.default_factory is not MISSING


@dataclass(frozen=True, slots=True)
class Prepared:
    """The passages of a text, computed before a transaction so that other writers need not wait for it."""

    text: str
    passages: tuple[Passage, ...]


@dataclass(frozen=True, slots=True)
class Screened:
    """What a screen has accepted; a draft with any other content is screened again."""

    screen: object
    value: JSON
    text: str | None
    heading: str | None


@quickly_made
@dataclass(frozen=True, slots=True)
class Draft:
    """A state to be written. `text` is what search sees; without it, that is the value if it is a string.

    The values are trusted: `space` has checked what a caller sent. The store checks only the key.
    """

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
    prepared: Prepared | None = field(default=None, compare=False, repr=False)
    screened: Screened | None = field(default=None, compare=False, repr=False)

    @property
    def searchable(self) -> str:
        if self.text is not None:
            return self.text
        return self.value if isinstance(self.value, str) else ""

    @property
    def passages(self) -> tuple[Passage, ...]:
        """The passages of the text with their terms; computed now unless they were prepared from this very text."""
        if self.prepared is not None and self.prepared.text == self.searchable:
            return self.prepared.passages
        return passages(self.searchable)

    def with_passages(self) -> Draft:
        """This draft with its passages prepared. Call it before the transaction."""
        return replace(self, prepared=Prepared(self.searchable, self.passages))

    def with_expiry(self, at: int | None) -> Draft:
        """This draft with an end; None leaves it as it is."""
        return self if at is None else replace(self, expires_at=at)

    def is_screened_by(self, screen: object) -> bool:
        """Whether this screen has accepted exactly this content."""
        seen = self.screened
        return (
            seen is not None
            and seen.screen is screen
            and seen.value is self.value
            and seen.text is self.text
            and seen.heading is self.heading
        )

    def with_screen(self, screen: object) -> Draft:
        """This draft, marked as accepted by a screen."""
        return replace(self, screened=Screened(screen, self.value, self.text, self.heading))


@quickly_made
@dataclass(frozen=True, slots=True)
class Entry:
    """One state of one entry, live or former."""

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
    """The number of the entry in the store. It counts over the whole book, so it is 0 on a wire."""


@dataclass(frozen=True, slots=True)
class Revision:
    """A line of the history of a key. A deletion is a revision without a state; every other revision has one."""

    revision: int
    action: Action
    commit: int
    at: int
    actor: str | None


@dataclass(frozen=True, slots=True)
class Change:
    """A line of the feed of a namespace."""

    commit: int
    at: int
    action: Action
    kind: str
    key: str
    revision: int
    actor: str | None


@dataclass(frozen=True, slots=True)
class Hit:
    """An entry that a search found, with the passage that matched best. `key` is its path or id."""

    kind: str
    key: str
    entry: Entry
    score: float
    parts: Mapping[str, float]
    snippet: str
    start: int
    end: int
    relevance: float | None = None
    """The probability that it is relevant, 0 to 1; None if the model has no calibration."""

    @property
    def created_at(self) -> datetime:
        """When the entry was created. `entry.created_at` is the same time in microseconds."""
        return moment(self.entry.created_at)

    @property
    def updated_at(self) -> datetime:
        return moment(self.entry.updated_at)


@dataclass(frozen=True, slots=True)
class SearchSeen:
    """A finished search, for those who count searches: how long it took and how well it matched, never its words."""

    namespace: Namespace
    seconds: float
    best: float
    """The score of the first hit; 0 if there is none."""
    relevance: float | None = None
    """The highest relevance of its hits; None without hits, or if the model has no calibration."""
