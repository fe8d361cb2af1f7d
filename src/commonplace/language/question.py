"""What a question asks: the times that it names, and the weight of each of its words.

Times become periods of days: `last Tuesday`, `two weeks ago`, `in May 2023`, `2023-05-07`. English only. A period is a
little wider than the words say, because people report a day on the days after it, and `a month ago` is not an exact
date. A word with another meaning (`may`, `march`) counts only in a position where a date is expected.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from functools import cache
from typing import NamedTuple

from commonplace.language.tokenizer import query_terms

LONGEST_QUERY = 2_000  # characters that are examined; anything longer is a pasted text and not a question
MOST_PERIODS = 8

_COUNTED = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_NUMBERS = {**{word: number for number, word in enumerate(_COUNTED, 1)}, "a": 1, "an": 1, "couple": 2, "few": 3}
_VAGUE = ("couple", "few")
_DAYS_IN = {"day": 1.0, "week": 7.0, "month": 30.4, "year": 365.25}
_MARGIN_DAYS = {"day": 1, "week": 3, "month": 10, "year": 90}
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")

_MONTH = (
    r"(?:january|february|march|april|may|june|july|august|september|october|november|december"
    r"|jan|feb|mar|apr|jun|jul|aug|sept|sep|oct|nov|dec)\b\.?"
)
_YEAR = r"(?:19|20)[0-9]{2}"
_COUNT = rf"(?:a )?(?P<count>[0-9]{{1,3}}|{'|'.join(_NUMBERS)})(?: of)? (?P<unit>day|week|month|year)s?"
_NTH = r"(?P<day>[0-3]?[0-9])(?:st|nd|rd|th)?"

# Of patterns that overlap, the first wins.
_PATTERNS = (
    ("day", rf"\b(?P<year>{_YEAR})-(?P<number>[01][0-9])-(?P<day>[0-3][0-9])\b"),
    ("day", rf"\b(?P<month>{_MONTH}) {_NTH}(?:,? (?P<year>{_YEAR}))?\b(?!:)"),
    ("day", rf"\b{_NTH} (?:of )?(?P<month>{_MONTH})(?:,? (?P<year>{_YEAR}))?"),
    ("month", rf"\b(?P<month>{_MONTH}),? (?P<year>{_YEAR})\b"),
    (
        "month",
        rf"\b(?:in|during|since|early|late|mid|of|by|around|last|this) (?P<month>{_MONTH})"
        rf"(?:,? (?:and|or|to|through|until) (?P<until>{_MONTH}))?",
    ),
    ("ago", rf"\b{_COUNT} (?:ago|back|earlier)\b"),
    ("recent", rf"\b(?:last|past|previous) {_COUNT}\b"),
    ("recent", r"\b(?:last|past|previous|this) (?P<unit>week|month|year)\b"),
    ("near", r"\b(?P<near>yesterday|today)\b"),
    ("weekday", rf"\b(?:last|past|this|on) (?P<weekday>{'|'.join(_WEEKDAYS)})\b"),
    ("year", rf"\b(?:in|during|since|of) (?P<year>{_YEAR})\b"),
)
_RELATIVE = ("ago", "recent", "near")  # a weekday may mean every week
_HINT = rf"[0-9]|\b(?:ago|back|earlier|last|past|previous|this|today|yesterday|{_MONTH}|{'|'.join(_WEEKDAYS)})"
_compiled = cache(re.compile)  # compiled on first use; most questions name no time


class Period(NamedTuple):
    """From one moment to another, both included."""

    start: datetime
    end: datetime


class _Phrase(NamedTuple):
    """Words that name a time: characters `start` to `end` of the question in lower case."""

    kind: str
    start: int
    end: int
    named: Mapping[str, str]


def periods(query: str, now: datetime) -> list[Period]:
    """Return the periods that a question names, relative to `now`, in no particular order."""
    found = [period for phrase in _phrases(query) for period in _periods_of(phrase.kind, phrase.named, now)]
    return found[:MOST_PERIODS]


def relative_times(query: str) -> list[tuple[int, int]]:
    """Return the start and end of each phrase that is relative to now, such as `two weeks ago`."""
    lowered = query[:LONGEST_QUERY].lower()
    if len(lowered) != len(query[:LONGEST_QUERY]):
        return []  # lower case changed the length, so positions differ
    return [(phrase.start, phrase.end) for phrase in _phrases(query) if phrase.kind in _RELATIVE]


def _phrases(query: str) -> list[_Phrase]:
    lowered = query[:LONGEST_QUERY].lower()
    found: list[_Phrase] = []
    if not _compiled(_HINT).search(lowered):
        return found
    for kind, pattern in _PATTERNS:
        for match in _compiled(pattern).finditer(lowered):
            if any(match.start() < phrase.end and phrase.start < match.end() for phrase in found):
                continue
            named = {name: text for name, text in match.groupdict().items() if text}
            found.append(_Phrase(kind, match.start(), match.end(), named))
    return found


def _periods_of(kind: str, named: Mapping[str, str], now: datetime) -> Iterator[Period]:
    try:
        yield from _READERS[kind](named, now)
    except (ValueError, OverflowError):
        return  # not a date, such as 31 February, or outside of the calendar


def _read_day(named: Mapping[str, str], now: datetime) -> Iterator[Period]:
    month = int(named["number"]) if "number" in named else _month(named["month"])
    start = _midnight(now).replace(year=int(named.get("year", now.year)), month=month, day=int(named["day"]))
    if "year" not in named and start > now:
        start = start.replace(year=start.year - 1)
    yield Period(start - timedelta(days=1), start + timedelta(days=4))


def _read_month(named: Mapping[str, str], now: datetime) -> Iterator[Period]:
    first = _month(named["month"])
    last = _month(named.get("until", named["month"]))
    year = int(named.get("year", now.year if first <= now.month else now.year - 1))
    start = _midnight(now).replace(year=year, month=first, day=1)
    yield Period(start - timedelta(days=3), start + timedelta(days=38 + 31 * ((last - first) % 12)))


def _read_ago(named: Mapping[str, str], now: datetime) -> Iterator[Period]:
    unit = named["unit"]
    margin = timedelta(days=_MARGIN_DAYS[unit] * (2 if named["count"] in _VAGUE else 1))
    meant = now - timedelta(days=_count(named) * _DAYS_IN[unit])
    yield Period(meant - margin, meant + margin)


def _read_recent(named: Mapping[str, str], now: datetime) -> Iterator[Period]:
    # `last week` may be the seven days before today or the week before this one.
    count = _count(named) if "count" in named else 2
    yield Period(now - timedelta(days=count * _DAYS_IN[named["unit"]] + 1), now + timedelta(days=1))


def _read_near(named: Mapping[str, str], now: datetime) -> Iterator[Period]:
    start = _midnight(now) - timedelta(days=1 if named["near"] == "yesterday" else 0)
    yield Period(start - timedelta(hours=12), start + timedelta(days=1, hours=12))


def _read_weekday(named: Mapping[str, str], now: datetime) -> Iterator[Period]:
    back = (now.weekday() - _WEEKDAYS.index(named["weekday"])) % 7 or 7
    start = _midnight(now) - timedelta(days=back)
    yield Period(start - timedelta(hours=12), start + timedelta(days=1, hours=12))


def _read_year(named: Mapping[str, str], now: datetime) -> Iterator[Period]:
    start = _midnight(now).replace(year=int(named["year"]), month=1, day=1)
    yield Period(start, start + timedelta(days=372))


def _count(named: Mapping[str, str]) -> int:
    word = named["count"]
    return _NUMBERS[word] if word in _NUMBERS else int(word)


def _month(name: str) -> int:
    return _MONTHS.index(name[:3]) + 1


def _midnight(now: datetime) -> datetime:
    return now.replace(hour=0, minute=0, second=0, microsecond=0)


_READERS = {
    "day": _read_day,
    "month": _read_month,
    "ago": _read_ago,
    "recent": _read_recent,
    "near": _read_near,
    "weekday": _read_weekday,
    "year": _read_year,
}


# Framing words, such as `how many weeks` or `two weeks ago`. They say what kind of answer is wanted and for when, not
# what the question is about. In a text the same words mean something else: its `last week` is another week. So they
# count half. Their share of the question is lost, so that leaving words out never raises a score. English only.

FRAME = 0.5  # the weight of a framing word

_ASKED = r"\bhow (?:many|much|long|often|old|far)\b(?: (?:time|minute|hour|day|week|month|year)s?\b)?(?: ago\b)?"


def question_terms(query: str) -> tuple[dict[str, float], float]:
    """Return the terms to look up with their weights, and the share of the question that they represent, 0..1."""
    terms = query_terms(query)
    frames = [*relative_times(query), *(match.span() for match in _compiled(_ASKED, re.IGNORECASE).finditer(query))]
    if not frames:
        return terms, 1.0
    subject = query_terms(_without(query, frames))
    if not terms.keys() & subject.keys():
        return terms, 1.0  # there are only framing words
    weighed = {term: weight if term in subject else weight * FRAME for term, weight in terms.items()}
    return weighed, _sum(weighed) / _sum(terms)


def _without(query: str, spans: list[tuple[int, int]]) -> str:
    left = list(query)
    for start, end in spans:
        left[start:end] = " " * (end - start)
    return "".join(left)


def _sum(terms: Mapping[str, float]) -> float:
    return sum(terms.values())
