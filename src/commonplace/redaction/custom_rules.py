"""Redaction rules of the user: a name and a regular expression each, checked when they are loaded.

A pattern may only repeat a bounded number of times, and the most steps that it can take from one position are computed
and bounded too. So every rule takes linear time on any text. Python's `re` has no time limit, and it blocks the whole
program while it searches.
"""

from __future__ import annotations

import importlib
import json
import re
import tomllib
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from commonplace.errors import ConfigurationError
from commonplace.redaction.detectors import Detector, Span

MAX_FILE_BYTES = 1_000_000
MAX_RULES = 100
MAX_PATTERN_CHARACTERS = 1_000
MAX_STEPS = 2_000
"""The most steps from one position: characters compared, over all ways to match."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_MEMBERS = {"name", "pattern", "ignore_case"}


@dataclass(frozen=True)
class Rule:
    """Finds a kind of text that the user defines: `Rule("employee", r"EMP-\\d{6}")`."""

    name: str
    pattern: str
    ignore_case: bool = False

    def __post_init__(self) -> None:
        for name, value, wanted in (("name", self.name, str), ("pattern", self.pattern, str)):
            if not isinstance(value, wanted):
                raise ConfigurationError(f"a redaction rule's {name} must be a string, not {type(value).__name__}")
        if not isinstance(self.ignore_case, bool):
            raise ConfigurationError(f"the redaction rule {self.name}: ignore_case must be true or false")
        if not _NAME.fullmatch(self.name):
            raise ConfigurationError(
                f"the redaction rule {self.name!r:.60} needs a name of lower-case letters, digits and _, "
                "such as employee_id"
            )
        if not 0 < len(self.pattern) <= MAX_PATTERN_CHARACTERS:
            raise ConfigurationError(
                f"the redaction rule {self.name}: its pattern must have 1 to {MAX_PATTERN_CHARACTERS:,} characters"
            )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", FutureWarning)
                matches_nothing = self._compiled.match("") is not None
                cost = _sequence_cost(_parse(self.pattern, self._flags))
        except (re.error, RecursionError, OverflowError, FutureWarning) as error:
            raise ConfigurationError(f"the redaction rule {self.name} is not a regular expression: {error}") from error
        except _Unbounded as error:
            raise ConfigurationError(
                f"the redaction rule {self.name} has an unbounded repeat (* or + or {{n,}}); "
                "bound it, such as {1,50}, so that a search ends in time"
            ) from error
        if matches_nothing:
            raise ConfigurationError(f"the redaction rule {self.name} matches the empty text; require a character")
        if cost.steps > MAX_STEPS:
            raise ConfigurationError(
                f"the redaction rule {self.name} can match in too many ways (more than {MAX_STEPS:,} steps from one "
                f"position); use smaller numbers in {{n,m}} and fewer repeats in a row"
            )

    @property
    def _flags(self) -> int:
        return re.IGNORECASE if self.ignore_case else 0

    @property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern, self._flags)

    @property
    def detector(self) -> Detector:
        def find(text: str) -> Iterator[Span]:
            for found in self._compiled.finditer(text):
                if found.end() > found.start():
                    yield Span(*found.span(), self.name)

        return find


def load_rules(path: Path) -> tuple[Rule, ...]:
    """Read rules from a file: TOML with `[[rule]]` tables, or JSON with a list of objects under "rule"."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise ConfigurationError(
                f"{path} has more than {MAX_FILE_BYTES:,} bytes; use a file with redaction rules only"
            )
        written = data.decode()
        content = json.loads(written) if path.suffix == ".json" else tomllib.loads(written)
    except OSError as error:
        raise ConfigurationError(f"cannot read the redaction rules in {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        form = "JSON" if path.suffix == ".json" else "TOML"
        raise ConfigurationError(f"the redaction rules in {path} are not valid {form}: {error}") from error
    listed = content.get("rule") if isinstance(content, Mapping) and set(content) == {"rule"} else None
    if not isinstance(listed, list) or not all(isinstance(one, Mapping) for one in listed):
        raise ConfigurationError(f'{path} must contain [[rule]] tables, or {{"rule": [...]}}, and nothing else')
    if len(listed) > MAX_RULES:
        raise ConfigurationError(f"{path} has {len(listed):,} redaction rules; at most {MAX_RULES} are allowed")
    return tuple(_rule_of(path, number, one) for number, one in enumerate(listed, 1))


def _rule_of(path: Path, number: int, table: Mapping[str, Any]) -> Rule:
    if not {"name", "pattern"} <= set(table) <= _MEMBERS:
        raise ConfigurationError(
            f"rule {number} in {path} must have name and pattern, and may have ignore_case; it has {', '.join(table)}"
        )
    try:
        return Rule(table["name"], table["pattern"], table.get("ignore_case", False))
    except ConfigurationError as error:
        raise ConfigurationError(f"rule {number} in {path}: {error}") from error


# The cost of a pattern


class _Unbounded(Exception):
    pass


class _Cost(NamedTuple):
    """In how many ways a part can match at one position, and how many steps it takes to try them all."""

    ways: int
    steps: int


def _parse(pattern: str, flags: int) -> Any:
    # The parser of `re`. It is not a public module, but no public one knows the syntax.
    return importlib.import_module("re._parser").parse(pattern, flags)


def _sequence_cost(parts: Any) -> _Cost:
    """Each part is tried once for every way in which the preceding parts match."""
    ways, steps = 1, 1
    for code, argument in parts:
        cost = _part_cost(str(code), argument)
        steps = min(steps + ways * cost.steps, MAX_STEPS + 1)
        ways = min(ways * cost.ways, MAX_STEPS + 1)
    return _Cost(ways, steps)


def _part_cost(code: str, argument: Any) -> _Cost:
    if code in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        return _repeat_cost(*argument)
    if code == "SUBPATTERN":
        return _sequence_cost(argument[3])
    if code == "ATOMIC_GROUP":
        return _sequence_cost(argument)
    if code in ("ASSERT", "ASSERT_NOT"):
        return _sequence_cost(argument[1])
    if code == "BRANCH":
        return _either([_sequence_cost(branch) for branch in argument[1]])
    if code == "GROUPREF_EXISTS":
        return _either([_sequence_cost(branch) for branch in argument[1:] if branch])
    if code == "GROUPREF":
        return _Cost(1, MAX_STEPS // 10)  # compares as much as the group contains
    return _Cost(1, 1)


def _either(costs: list[_Cost]) -> _Cost:
    return _Cost(sum(cost.ways for cost in costs), 1 + sum(cost.steps for cost in costs))


def _repeat_cost(least: int, most: int, part: Any) -> _Cost:
    if most > MAX_STEPS:
        raise _Unbounded
    once = _sequence_cost(part)
    ways, steps, ways_so_far = int(least == 0), 1, 1
    for count in range(1, most + 1):
        steps = min(steps + ways_so_far * once.steps, MAX_STEPS + 1)
        ways_so_far = min(ways_so_far * once.ways, MAX_STEPS + 1)
        if count >= least:
            ways = min(ways + ways_so_far, MAX_STEPS + 1)
    return _Cost(ways, steps)
