"""Screens drafts before they are written: secrets and personal data are masked, or the write is refused.

It examines everything that an entry stores: its value with nested values and field names, the text for search, the
heading and the attributes. Names that identify entries cannot be masked, so they are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Literal, get_args

from commonplace.checks import JSON
from commonplace.entry import SEPARATOR, Draft
from commonplace.errors import ConfigurationError, InvalidInput
from commonplace.redaction.custom_rules import Rule
from commonplace.redaction.detectors import (
    CONTEXT_DETECTORS,
    FORMAT_DETECTORS,
    PERSONAL_DETECTORS,
    Detector,
    Span,
    is_field_secret,
    is_uuid,
    kind_of_field,
    masked,
    without_overlaps,
)

Mode = Literal["mask", "reject"]

SECRETS = (*FORMAT_DETECTORS, *CONTEXT_DETECTORS)
PERSONAL = ("email", "phone", "credit_card", "iban", "us_ssn")
ADDRESSES = ("ip_address",)
KINDS = (*SECRETS, *PERSONAL, *ADDRESSES)
GROUPS: dict[str, tuple[str, ...]] = {"secrets": SECRETS, "pii": PERSONAL, "all": KINDS}

NAMES = ("type", "tags", "resourceId", "threadId")
"""Attributes by which entries are found. Masking two different names would make them equal."""

_MEASURES = ("size", "lines")
"""Attributes that are counted from a file's text; a rule for numbers must not match them."""

_DETECTORS: dict[str, Detector] = {**FORMAT_DETECTORS, **CONTEXT_DETECTORS, **PERSONAL_DETECTORS}
_SHORTEST = 6
"""The shortest text of a built-in kind."""

_MOST_LITERALS = 100
MAX_FINDS = 500_000
"""The most spans in one text; a rule that matches every letter of a long text would take gigabytes."""


class Redactor:
    """`Redactor("mask").screen(draft)` returns the draft, or a masked copy of it. Fits `Rules.screen`."""

    def __init__(self, mode: Mode = "mask", *, kinds: Iterable[str] = ("secrets",), rules: Sequence[Rule] = ()) -> None:
        if mode not in get_args(Mode):
            raise ConfigurationError(f'redaction has the modes "mask" and "reject", not {mode!r}')
        self.mode = mode
        self.kinds = _expanded(kinds)
        names = [rule.name for rule in rules]
        for name in names:
            if name in KINDS or name in GROUPS or names.count(name) > 1:
                raise ConfigurationError(f"there is more than one kind {name} of redaction; give the rule another name")
        self._own = [rule.detector for rule in rules]
        self._all = [*(_DETECTORS[kind] for kind in self.kinds), *self._own]

    def find(self, text: str) -> list[Span]:
        """Return the spans in a text, in order."""
        detectors = self._own if len(text) < _SHORTEST else self._all
        found = [*islice((span for detect in detectors for span in detect(text)), MAX_FINDS + 1)]
        if len(found) > MAX_FINDS:
            raise InvalidInput(
                f"redaction finds more than {MAX_FINDS:,} places in one text, such as {found[-1].kind}; "
                "nothing was saved; split the text, or correct the rule"
            )
        return without_overlaps(found)

    def text(self, text: str) -> str:
        """Return the masked text, in either mode."""
        spans = self.find(text)
        return masked(text, spans) if spans else text

    def screen(self, draft: Draft) -> Draft:
        """Return the same draft if nothing was found, else a masked copy; in mode "reject" raise InvalidInput."""
        self._check_names(draft)
        screening = _Screening(self)
        value = screening.value(draft.value, ["the content"])
        attributes = {
            name: item if name in NAMES or name in _MEASURES else screening.value(item, [name])
            for name, item in draft.attributes.items()
        }
        text = None if draft.text is None else screening.text(draft.text, ["the text"])
        heading = None if draft.heading is None else screening.text(draft.heading, ["the heading"])
        if not screening.has_found:
            return draft
        return replace(draft, value=value, attributes=attributes, text=text, heading=heading)

    def _check_names(self, draft: Draft) -> None:
        for place, name in _names_of(draft):
            for span in self.find(name):
                raise InvalidInput(
                    f"{place} contains what looks like a secret ({span.kind}); "
                    "a name cannot be masked, so choose another one"
                )


class _Screening:
    """One draft. Values that are secret by the name of their field are masked in the draft's other texts too."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._literals: dict[str, str] = {}
        self.has_found = False

    def value(self, value: JSON, place: list[str]) -> JSON:
        """Return the same object if nothing was found in it."""
        if isinstance(value, str):
            return self._leaf(value, value, place)
        if isinstance(value, int) and not isinstance(value, bool):
            return self._leaf(value, str(value), place)
        if isinstance(value, Mapping):
            return self._mapping(value, place)
        if isinstance(value, (list, tuple)):
            items = [self.value(item, [*place, str(number)]) for number, item in enumerate(value)]
            return value if _same(items, value) else items
        return value

    def text(self, text: str, place: list[str]) -> str:
        """Mask a text that repeats parts of the value, such as the text for search."""
        if self._literals:
            text = self._without_literals(text)
        return self._masked(text, self._redactor.find(text), place)

    def _mapping(self, value: Mapping[str, JSON], place: list[str]) -> JSON:
        result: dict[str, JSON] = {}
        for name, item in value.items():
            spans = self._redactor.find(name)
            shown = masked(name, spans)
            inside = [*place, shown]
            new = self._masked(name, spans, inside)
            number = 2
            while new is not name and (new in result or new in value):
                new = f"{shown}#{number}"
                number += 1
            result[new] = self.value(item, inside)
        return value if all(value.get(name) is item for name, item in result.items()) else result

    def _leaf(self, value: JSON, written: str, place: list[str]) -> JSON:
        kind = kind_of_field(place[-1]) if len(place) > 1 else None
        if kind is not None and kind in self._redactor.kinds and is_field_secret(kind, written):
            self._literals[written] = kind
            return self._masked(written, [Span(0, len(written), kind)], place)
        new = self._masked(written, self._redactor.find(written), place)
        return value if new is written else new

    def _masked(self, text: str, spans: Sequence[Span], place: list[str]) -> str:
        if not spans:
            return text
        if self._redactor.mode == "reject":
            where = ".".join(place[1:]) if len(place) > 1 else place[0]
            raise InvalidInput(
                f"{where} contains what looks like a secret or personal data ({spans[0].kind}), from character "
                f"{spans[0].start + 1} on; nothing was saved; leave it out"
            )
        self.has_found = True
        return masked(text, spans)

    def _without_literals(self, text: str) -> str:
        if len(self._literals) > _MOST_LITERALS:
            # A pattern with so many alternatives is slow, so the whole text is replaced.
            return " ".join(sorted({f"[redacted:{kind}]" for kind in self._literals.values()}))
        longest_first = sorted(self._literals, key=len, reverse=True)
        pattern = re.compile("|".join(map(re.escape, longest_first)))
        return pattern.sub(lambda found: f"[redacted:{self._literals[found[0]]}]", text)


def _expanded(kinds: Iterable[str]) -> tuple[str, ...]:
    chosen: dict[str, None] = {}
    for kind in kinds:
        if kind not in KINDS and kind not in GROUPS:
            known = ", ".join((*GROUPS, *KINDS))
            raise ConfigurationError(f"unknown kind of redaction {kind!r}; known are {known}")
        chosen.update(dict.fromkeys(GROUPS.get(kind, (kind,))))
    return tuple(chosen)


def _names_of(draft: Draft) -> Iterator[tuple[str, str]]:
    """The names by which an entry is found. Numbers and UUIDs are generated and reveal nothing.

    A record's identity is the hash of its content and not a name; a message's identity is its id.
    """
    place = "the path" if draft.kind in ("file", "directory") else "the id"
    for part in draft.key.split(SEPARATOR):
        if not _is_number(part):
            yield place, part
    if draft.identity is not None and draft.kind != "record" and not _is_number(draft.identity):
        yield "the id", draft.identity
    for name in NAMES:
        item = draft.attributes.get(name)
        for one in item if isinstance(item, (list, tuple)) else [item]:
            if isinstance(one, str) and not _is_number(one):
                yield f"the {name}", one


def _is_number(name: str) -> bool:
    return name.isdigit() or is_uuid(name)


def _same(items: Sequence[JSON], others: Sequence[JSON]) -> bool:
    return all(item is other for item, other in zip(items, others, strict=True))
