"""The arguments of a record tool, read with the messages that its contract fixes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from commonplace.errors import InvalidInput
from commonplace.space.names import SEARCHED_KINDS

MAX_QUERY_CHARACTERS = 1_000
_NUMBER = re.compile(r"\s*[+-]?(\d{1,400}(\.\d{0,400})?|\.\d{1,400})([eE][+-]?\d{1,3})?\s*", re.ASCII)
Match = Literal["all", "any"]


class Arguments:
    """What a call brought. An argument that is null counts as not given; an unknown one is refused."""

    def __init__(self, tool: str, given: object, known: Sequence[str]) -> None:
        if not isinstance(given, Mapping):
            raise InvalidInput("arguments must be an object")
        for name in given:
            if name not in known:
                # To pass over a misspelt filter would answer another question than the one asked.
                raise InvalidInput(f'unknown argument "{name}"; {tool} takes {", ".join(known)}')
        self._given: Mapping[str, Any] = given

    def read_all(self, readers: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
        """What each reader gives, or one refusal with all that is wrong: a model corrects it in one call."""
        values: dict[str, Any] = {}
        faults: list[str] = []
        for name, read in readers.items():
            try:
                values[name] = read()
            except InvalidInput as error:
                faults.append(str(error))
        if faults:
            raise InvalidInput("; ".join(faults))
        return values

    def get(self, name: str) -> Any:
        return self._given.get(name)

    def has(self, name: str) -> bool:
        return self._given.get(name) is not None

    def text(self, name: str) -> str:
        value = self._given.get(name)
        if not isinstance(value, str) or not value.strip():
            raise InvalidInput(f"{name} is required and must be a non-empty string")
        return value

    def optional_text(self, name: str) -> str | None:
        if not self.has(name):
            return None
        value = self._given[name]
        if not isinstance(value, str) or not value.strip():
            raise InvalidInput(f"{name} must be a non-empty string; leave it out for any")
        return value

    def required(self, name: str) -> Any:
        """A value of any type that must be there."""
        if not self.has(name):
            raise InvalidInput(f"{name} is required")
        return self._given[name]

    def texts(self, name: str, most: int) -> tuple[str, ...]:
        """One text or a list of them, each once."""
        value = self._given.get(name)
        if not isinstance(value, list):
            return (self.text(name),)
        if not 1 <= len(value) <= most or not all(isinstance(text, str) and text.strip() for text in value):
            raise InvalidInput(f"{name} must be a non-empty string, or a list of 1 to {most} of them")
        return tuple(dict.fromkeys(value))

    def offset(self) -> int:
        """How many characters to pass over; none where it was not given."""
        return check_offset(self._given.get("offset"))

    def flag(self, name: str) -> bool:
        value = self._given.get(name)
        if not (value is None or isinstance(value, bool) or value in ("true", "false")):
            raise InvalidInput(f"{name} must be true or false")
        return value is True or value == "true"

    def time(self, name: str) -> datetime | None:
        """A day or a time in ISO 8601; without an offset it is in UTC."""
        text = self.optional_text(name)
        if text is None:
            return None
        try:
            time = datetime.fromisoformat(text.strip())
        except ValueError as error:
            raise InvalidInput(
                f"{name} must be a day or a time, such as 2026-01-31 or 2026-01-31T12:00:00Z, not {text!r:.100}"
            ) from error
        return time if time.tzinfo else time.replace(tzinfo=UTC)

    def query(self) -> str:
        query = self.text("query")
        if len(query) > MAX_QUERY_CHARACTERS:
            raise InvalidInput(f"query length cannot exceed {MAX_QUERY_CHARACTERS} characters")
        return query

    def confidence(self) -> float:
        confidence = number(self._given.get("confidence"))
        if confidence is None or not 0 <= confidence <= 1:
            raise InvalidInput("confidence is required and must be a number between 0 and 1")
        return confidence

    def tags(self) -> Sequence[str]:
        tags = self._given.get("tags")
        return () if tags is None else tags  # what they are is checked where they are cleaned

    def match(self) -> Match:
        return check_match(self._given.get("match"))

    def limit(self, default: int, most: int) -> int:
        if not self.has("limit"):
            return min(default, most)
        limit = number(self._given["limit"])
        if limit is None or limit < 1:
            raise InvalidInput("limit must be a positive number")
        return int(min(limit, most))

    def kinds(self) -> tuple[str, ...]:
        kinds = self._given.get("kinds")
        if kinds is None or kinds == []:
            return SEARCHED_KINDS
        is_list = isinstance(kinds, Sequence) and not isinstance(kinds, str)
        if not is_list or any(kind not in SEARCHED_KINDS for kind in kinds):
            raise InvalidInput(f"kinds must be a list of {', '.join(SEARCHED_KINDS)}")
        return tuple(dict.fromkeys(kinds))


def check_match(match: object) -> Match:
    if match is None or match == "all":
        return "all"
    if match == "any":
        return "any"
    raise InvalidInput('match must be "all" or "any"')


def check_offset(value: object) -> int:
    offset = 0 if value is None else number(value)
    if offset is None or offset < 0 or offset != int(offset):
        raise InvalidInput("offset must be a whole number, 0 or more")
    return int(offset)


def number(value: object) -> float | None:
    """A finite number, also one that came as a string; None for anything else."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return value if math.isfinite(value) else None
    except OverflowError:  # an integer beyond what a float can hold
        return math.copysign(1e308, value > 0 or -1)
