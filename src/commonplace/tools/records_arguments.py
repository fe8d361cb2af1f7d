"""The arguments of a record tool, read with the messages that its contract fixes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from commonplace.errors import InvalidInput
from commonplace.space.keys import SEARCHED_KINDS

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
