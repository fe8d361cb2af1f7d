"""Screens what is about to be written: secrets and personal data are masked, or the whole write is refused.

It sees everything that an entry keeps: its value with all that is nested in it, names of fields too, what search sees
of it, its heading and its attributes. Names by which entries are found cannot be masked, so they are refused.
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
from commonplace.redaction import contexts, formats, personal
from commonplace.redaction.randomness import is_uuid
from commonplace.redaction.rules import Rule
from commonplace.redaction.spans import Detector, Span, masked, without_overlaps

Mode = Literal["mask", "reject"]

SECRETS = (*formats.DETECTORS, *contexts.DETECTORS)
PERSONAL = ("email", "phone", "credit_card", "iban", "us_ssn")
ADDRESSES = ("ip_address",)
KINDS = (*SECRETS, *PERSONAL, *ADDRESSES)
GROUPS: dict[str, tuple[str, ...]] = {"secrets": SECRETS, "pii": PERSONAL, "all": KINDS}

NAMES = ("type", "tags", "resourceId", "threadId")
"""Attributes by which entries are found: two names that were masked would become one."""

_MEASURES = ("size", "lines")
"""Attributes that are counted from a file's text: a rule for numbers must not take them for one."""

_DETECTORS: dict[str, Detector] = {**formats.DETECTORS, **contexts.DETECTORS, **personal.DETECTORS}
_SHORTEST = 6
"""Nothing shorter is of a built-in kind."""

_MOST_LITERALS = 100
MAX_FINDS = 500_000
"""In one text: a rule that finds every letter of a long one would take gigabytes."""


class Redactor:
    """Fits `Rules.screen`: `Redactor("mask").screen(draft)` gives the draft, or one without what it found."""

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
        """What is in a text, in order."""
        detectors = self._own if len(text) < _SHORTEST else self._all
        found = [*islice((span for detect in detectors for span in detect(text)), MAX_FINDS + 1)]
        if len(found) > MAX_FINDS:
            raise InvalidInput(
                f"redaction finds more than {MAX_FINDS:,} places in one text, such as {found[-1].kind}; "
                "nothing was saved: split the text, or correct the rule"
            )
        return without_overlaps(found)

    def text(self, text: str) -> str:
        """A text with what was found masked, whatever the mode."""
        spans = self.find(text)
        return masked(text, spans) if spans else text

    def screen(self, draft: Draft) -> Draft:
        """The same draft where nothing was found; else one in which it is masked, or InvalidInput."""
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
                    "a name cannot be masked: choose another one"
                )


class _Screening:
    """One draft. Values that are secret by their field's name are taken out of the draft's other texts as well."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._literals: dict[str, str] = {}
        self.has_found = False

    def value(self, value: JSON, place: list[str]) -> JSON:
        """The same object where nothing was found in it."""
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
        """A text that repeats what is in the value, such as what search sees of it."""
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
        kind = contexts.kind_of_field(place[-1]) if len(place) > 1 else None
        if kind is not None and kind in self._redactor.kinds and contexts.is_field_secret(kind, written):
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
                f"{spans[0].start + 1} on; nothing was saved: leave it out"
            )
        self.has_found = True
        return masked(text, spans)

    def _without_literals(self, text: str) -> str:
        if len(self._literals) > _MOST_LITERALS:
            # So many alternatives would be tried at each character; a text that says nothing gives nothing away.
            return " ".join(sorted({f"[redacted:{kind}]" for kind in self._literals.values()}))
        longest_first = sorted(self._literals, key=len, reverse=True)
        pattern = re.compile("|".join(map(re.escape, longest_first)))
        return pattern.sub(lambda found: f"[redacted:{self._literals[found[0]]}]", text)


def _expanded(kinds: Iterable[str]) -> tuple[str, ...]:
    chosen: dict[str, None] = {}
    for kind in kinds:
        if kind not in KINDS and kind not in GROUPS:
            known = ", ".join((*GROUPS, *KINDS))
            raise ConfigurationError(f"there is no kind of redaction named {kind!r}; there are {known}")
        chosen.update(dict.fromkeys(GROUPS.get(kind, (kind,))))
    return tuple(chosen)


def _names_of(draft: Draft) -> Iterator[tuple[str, str]]:
    """What an entry is found by. Digits alone, or a UUID, were given out by a program, and tell nothing.

    A record's identity is the hash of its content, and no name that anybody chose; a message's is its id.
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
