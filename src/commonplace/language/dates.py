"""The times that a question names, as periods: `last Tuesday`, `mid-June`, `1/21/2024`, `between March and May 2024`.

A question is read in three steps:

1. Patterns find phrases. A weak phrase, such as a month alone, counts only with one of the words of step 2.
2. Words before and between phrases change them: `early`, `the week before`, `since`, `from … to`.
3. A phrase becomes one period, or several if it can be read in several ways.

A period is a little wider than the words say, because people report a day on the days after it, the time zone of the
question is not known, and `a month ago` is not an exact date. Without a year, the latest time that has begun is meant.
Seasons are those of the northern hemisphere. English only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache, lru_cache, partial
from itertools import product
from typing import Literal, NamedTuple, get_args

DateOrder = Literal["both", "day-first", "month-first"]
"""How `3/4/2024` is read: as 3 April, as 4 March, or as both. A date that only fits one way is read that way."""
DATE_ORDERS: tuple[DateOrder, ...] = get_args(DateOrder)

LONGEST_QUERY = 2_000  # characters that are examined; anything longer is a pasted text and not a question
MOST_PERIODS = 8

_DAY, _HOUR = timedelta(days=1), timedelta(hours=1)

# Words

_COUNTED = (
    *("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
)
_NUMBERS: dict[str, float] = {word: number for number, word in enumerate(_COUNTED, 1)}
_NUMBERS |= {"a": 1, "an": 1, "couple": 2, "few": 3, "several": 4, "half a": 0.5, "half an": 0.5}
_TENS = {"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90}
_NUMBERS |= {**_TENS, "dozen": 12, "hundred": 100}
_VAGUE = ("couple", "few", "several")
_ORDINALS = (
    *("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh"),
    *("twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth", "eighteenth", "nineteenth"),
    *("twentieth", "twenty-first", "twenty-second", "twenty-third", "twenty-fourth", "twenty-fifth", "twenty-sixth"),
    *("twenty-seventh", "twenty-eighth", "twenty-ninth", "thirtieth", "thirty-first"),
)
_UNIT_DAYS = {
    "minute": 1 / 1440,
    "hour": 1 / 24,
    "day": 1.0,
    "week": 7.0,
    "fortnight": 14.0,
    "month": 30.4,
    "quarter": 91.3,
    "year": 365.25,
    "decade": 3652.5,
}
_UNITS = {
    **dict.fromkeys(("night", "evening", "morning", "afternoon"), "day"),
    "min": "minute",
    "hr": "hour",
    "wk": "week",
    "mo": "month",
    "yr": "year",
}
_MARGIN_DAYS = {
    "minute": 1 / 48,
    "hour": 1 / 24,
    "day": 1.0,
    "week": 3.0,
    "fortnight": 4.0,
    "month": 10.0,
    "quarter": 30.0,
    "year": 90.0,
    "decade": 900.0,
}
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
_DECADES = {
    "twenties": 20,
    "thirties": 30,
    "forties": 40,
    "fifties": 50,
    "sixties": 60,
    "seventies": 70,
    "eighties": 80,
    "nineties": 90,
}
_HOLIDAYS: dict[str, tuple[int, int, int]] = {  # month, day, days; 0 for one that moves
    "christmas eve": (12, 24, 1),
    "christmas": (12, 24, 3),
    "xmas": (12, 24, 3),
    "boxing day": (12, 26, 1),
    "new year's eve": (12, 31, 1),
    "new years eve": (12, 31, 1),
    "new year's": (1, 1, 1),
    "new years": (1, 1, 1),
    "new year": (1, 1, 1),
    "valentine's": (2, 14, 1),
    "valentines": (2, 14, 1),
    "st patrick's": (3, 17, 1),
    "st. patrick's": (3, 17, 1),
    "independence day": (7, 4, 1),
    "halloween": (10, 31, 1),
    "thanksgiving": (0, 0, 1),
    "black friday": (0, 1, 1),
    "labor day": (0, 0, 1),
    "labour day": (0, 0, 1),
    "memorial day": (0, 0, 1),
    "good friday": (0, -2, 1),
    "easter": (0, 0, 2),
}
_BY_WEEKDAY = {
    "thanksgiving": ("fourth", "thursday", "nov"),
    "black friday": ("fourth", "thursday", "nov"),
    "labor day": ("first", "monday", "sep"),
    "labour day": ("first", "monday", "sep"),
    "memorial day": ("last", "monday", "may"),
}
_PARTS = {
    "early": (0.0, 0.4),
    "beginning": (0.0, 0.3),
    "start": (0.0, 0.3),
    "first half": (0.0, 0.5),
    "mid": (0.3, 0.7),
    "middle": (0.3, 0.7),
    "late": (0.6, 1.0),
    "end": (0.7, 1.0),
    "second half": (0.5, 1.0),
}

# Patterns of the question in lower case. A space stands for any white space. Of patterns that overlap, the first wins.


def _any(words: Iterable[str]) -> str:
    return "|".join(words).replace(".", r"\.")


_MONTH = (
    r"(?:january|february|march|april|may|june|july|august|september|october|november|december"
    r"|jan|feb|mar|apr|jun|jul|aug|sept|sep|oct|nov|dec)\b\.?"
)
_VERB = r"(?! (?:i|we|you|he|she|it|they|be|not|have|also|well|on|off|out|into|against|past)\b)"  # `may I`, `march on`
_YEAR = r"(?:19|20)[0-9]{2}"
_NUMBER = (
    rf"(?:[0-9]{{1,3}}(?:\.[0-9]{{1,2}})?|(?:{_any(_TENS)})[\s-](?:{_any(_COUNTED[:9])})"
    rf"|{_any(sorted(_NUMBERS, key=len, reverse=True))})"
)
_UNIT = rf"(?P<unit>{_any((*_UNIT_DAYS, *_UNITS))})"
_COUNT = rf"(?:a )?(?P<count>{_NUMBER})(?:(?: or | to |-)(?P<most>{_NUMBER}))?(?: of)? {_UNIT}s?"
_AGO = rf"(?:a )?(?P<ago>{_NUMBER})(?: of)?"
_NTH = r"(?P<day>[0-3]?[0-9])(?:st|nd|rd|th)?"
_LAST = r"(?P<last>[0-3]?[0-9])(?:st|nd|rd|th)?"
_OF_YEAR = rf"(?:(?:,| of)? (?P<year>{_YEAR})\b)?"
_WEEKDAY = rf"(?P<weekday>{_any(_WEEKDAYS)})"
_ON_DAY = rf"(?:(?:{_any(_WEEKDAYS)}),? (?:the )?)?"
_SEASON = rf"(?P<season>{_any(_SEASONS)})"
_HOLIDAY = rf"(?P<holiday>{_any(_HOLIDAYS)})(?: (?:day|weekend|week|holidays|break))?"
_WHICH = r"(?P<which>last|past|previous|this past|this|next|coming)"
_TO = r"\s*(?:-|–|—|/|&|\bto\b|\bthrough\b|\buntil\b|\btill\b|\band\b|\bor\b)\s*"
_STOP = r"(?=\s*(?:[?!.,;:)]|$)| (?:and|or|but|with|when|where|did|do|was|were|last|this)\b)"  # what follows is no noun
# Numbers in addresses, versions, paths and telephone numbers are not dates.
_OPEN = r"(?<![\w./:+@#$€£-])(?<!version\s)(?<!release\s)(?<!build\s)(?<!\bv\s)"
_CLOSE = r"(?![\w/%])(?![.,:@-]\w)"
_SHARE = r"(?! (?:of|cups?|inch(?:es)?|hours?|miles?|pounds?|lbs?|tsp|tbsp|tea|table|price|off)\b)"  # `1/2 cup`
_ONE, _TWO = r"(?P<first>[0-3]?[0-9])", r"(?P<second>[0-3]?[0-9])"

_STRONG, _LED, _PARTED = range(3)  # counts alone; needs a word such as `since` or `early`; needs one such as `early`

_PATTERNS: tuple[tuple[str, int, str], ...] = (
    (
        *("offset", _STRONG),
        rf"\b(?:(?P<count>{_NUMBER})(?: of)? )?(?:{_UNIT}s?|(?P<weekend>weekend)|{_WEEKDAY})"
        r" (?P<side>before|prior to|preceding|after|following)"
        rf" (?=(?:the )?(?:[0-3]?[0-9](?:[\s/.-]|st|nd|rd|th)|{_YEAR}-|(?:last )?(?:{_MONTH}|{_any(_HOLIDAYS)})))",
    ),
    # Numbers
    (
        *("day", _STRONG),
        rf"{_OPEN}(?P<year>{_YEAR})(?P<sep>[-/])(?P<number>[01]?[0-9])(?P=sep)(?P<day>[0-3]?[0-9])"
        rf"(?:{_CLOSE}|(?=t[0-9]{{2}}))",
    ),
    ("day", _STRONG, rf"{_OPEN}(?P<year>{_YEAR})\.(?P<number>[01][0-9])\.(?P<day>[0-3][0-9]){_CLOSE}"),
    ("day", _STRONG, rf"{_OPEN}(?P<year>{_YEAR})\. (?P<number>[01]?[0-9])\. (?P<day>[0-3]?[0-9])\.?{_CLOSE}"),
    ("day", _STRONG, rf"(?P<year>{_YEAR})[年년]\s?(?P<number>[01]?[0-9])[月월]\s?(?P<day>[0-3]?[0-9])[日일]"),
    (
        "numeric",
        _STRONG,
        rf"{_OPEN}{_ONE}(?P<sep>[./-]){_TWO}(?P=sep)(?P<year>{_YEAR})(?:{_CLOSE}|(?=[-–][0-3]?[0-9][./]))",
    ),
    ("numeric", _STRONG, rf"(?<=[0-9][-–]){_ONE}(?P<sep>[./]){_TWO}(?P=sep)(?P<year>{_YEAR}){_CLOSE}"),
    ("numeric", _STRONG, rf"{_OPEN}{_ONE}\. {_TWO}\. (?P<year>{_YEAR}){_CLOSE}"),
    ("numeric", _STRONG, rf"{_OPEN}{_ONE}/{_TWO}/(?P<short>[0-9]{{2}}){_CLOSE}"),
    ("numeric", _STRONG, rf"\bon (?!24/7\b){_ONE}/{_TWO}{_CLOSE}{_SHARE}"),
    ("numeric", _STRONG, rf"\bon {_ONE}(?P<sep>[.-]){_TWO}(?P=sep)(?P<short>[0-9]{{2}}){_CLOSE}"),
    ("numeric", _STRONG, rf"\bon {_ONE}\.{_TWO}\.(?!\w)"),
    ("numeric", _LED, rf"{_OPEN}(?!24/7\b){_ONE}/{_TWO}{_CLOSE}{_SHARE}"),
    ("numeric", _LED, rf"{_OPEN}{_ONE}\.{_TWO}\.(?:(?P<short>[0-9]{{2}}){_CLOSE}|(?!\w))"),
    ("month", _STRONG, rf"{_OPEN}(?P<year>{_YEAR})-(?P<number>0[1-9]|1[0-2]){_CLOSE}"),
    ("month", _STRONG, rf"{_OPEN}(?P<number>0?[1-9]|1[0-2])/(?P<year>{_YEAR}){_CLOSE}"),
    # Days and months by name
    (
        "day",
        _STRONG,
        rf"{_OPEN}(?P<day>[0-3]?[0-9])[-/](?P<month>{_MONTH})[-/](?:(?P<year>{_YEAR})|(?P<short>[0-9]{{2}})){_CLOSE}",
    ),
    ("day", _STRONG, rf"\b(?P<month>{_MONTH})[-/](?P<day>[0-3]?[0-9])[-/](?P<year>{_YEAR}){_CLOSE}"),
    ("day", _STRONG, rf"{_OPEN}(?P<year>{_YEAR})[-/](?P<month>{_MONTH})[-/](?P<day>[0-3]?[0-9]){_CLOSE}"),
    ("day", _STRONG, rf"\b(?P<day>[0-3]?[0-9])\. (?P<month>{_MONTH}) (?P<year>{_YEAR})\b"),
    ("day", _STRONG, rf"\b{_NTH} (?P<month>{_MONTH}) '?(?P<short>[0-9]{{2}})\b(?!:){_STOP}"),
    ("date", _STRONG, rf"\b{_WEEKDAY},? the (?P<day>[0-3]?[0-9])(?:st|nd|rd|th)\b(?! (?:of )?(?:{_MONTH}|last|this))"),
    ("day", _STRONG, rf"\b(?P<month>{_MONTH}) {_NTH}{_TO}(?:the )?{_LAST}(?:,? (?P<year>{_YEAR}))?\b(?!:)"),
    ("day", _STRONG, rf"\b{_NTH}{_TO}(?:the )?{_LAST} (?:of )?(?P<month>{_MONTH}){_OF_YEAR}"),
    ("day", _STRONG, rf"\b{_ON_DAY}(?P<month>{_MONTH}) (?:the )?{_NTH}(?:,? (?P<year>{_YEAR}))?\b(?!:)"),
    ("day", _STRONG, rf"\b{_ON_DAY}{_NTH} (?:of )?(?P<month>{_MONTH}){_OF_YEAR}"),
    ("day", _STRONG, rf"\b{_ON_DAY}(?P<ordinal>{_any(reversed(_ORDINALS))}) of (?P<month>{_MONTH}){_OF_YEAR}"),
    (
        *("nth", _STRONG),
        rf"\b(?P<nth>{_any(_ORDINALS[:5])}|last) (?:(?P<unit>weekend|week|day)|{_WEEKDAY}) (?:of|in)"
        rf" (?P<month>{_MONTH}){_OF_YEAR}",
    ),
    (
        *("nth_of", _STRONG),
        rf"\b(?P<nth>{_any(_ORDINALS[:5])}|last) (?:(?P<unit>weekend|week|day)|{_WEEKDAY}) (?:of|in)"
        r" (?P<which>the|this|last) (?P<whole>month|year)\b",
    ),
    (
        *("month", _STRONG),
        rf"\b(?:in|during|of|by|around) (?P<month>{_MONTH})(?:[/–-]|, |,? (?:and|or|to|through|until) )"
        rf"(?P<until>{_MONTH}){_OF_YEAR}",
    ),
    ("month", _STRONG, rf"\b(?P<month>{_MONTH})[-/](?P<year>{_YEAR}){_CLOSE}"),
    ("month", _STRONG, rf"\b(?P<month>{_MONTH})(?:,| of)? (?P<year>{_YEAR})\b"),
    ("month", _STRONG, rf"\b(?P<month>{_MONTH}) '(?P<short>[0-9]{{2}})\b"),
    ("month", _STRONG, rf"\b(?P<month>{_MONTH}) (?P<which>before last)\b"),
    ("month", _STRONG, rf"\b(?P<which>this) (?P<month>may|march)\b{_STOP}"),
    ("month", _STRONG, rf"\b(?P<which>last|next|this(?! (?:may|march)\b)) (?P<month>{_MONTH})"),
    ("month", _STRONG, rf"\b(?:in|during|of|by|around|throughout) (?P<month>{_MONTH})"),
    # Parts of a year
    ("quarter", _STRONG, rf"\bq(?P<quarter>[1-4])(?:,? (?:of )?|[-/])?(?P<year>{_YEAR})\b"),
    ("quarter", _STRONG, rf"\b(?P<year>{_YEAR})[\s/-]?q(?P<quarter>[1-4])\b"),
    ("quarter", _STRONG, rf"\b(?P<nth>{_any(_ORDINALS[:4])}) quarter of (?P<year>{_YEAR})\b"),
    ("quarter", _STRONG, r"\b(?:in|during|of|by|for|(?P<which>last|this|next)) q(?P<quarter>[1-4])\b"),
    ("quarter", _PARTED, r"\bq(?P<quarter>[1-4])\b"),
    ("week", _STRONG, rf"\b(?:calendar )?week (?P<week>[0-5]?[0-9])(?:,| of| in)? (?P<year>{_YEAR})\b"),
    ("week", _STRONG, rf"{_OPEN}(?P<year>{_YEAR})-?w(?P<week>[0-5][0-9]){_CLOSE}"),
    ("half", _STRONG, rf"\bh(?P<half>[12])(?: of)? (?P<year>{_YEAR})\b"),
    ("season", _STRONG, rf"\b{_SEASON}(?: of|,)? (?P<year>{_YEAR})\b"),
    ("season", _STRONG, rf"\b{_SEASON}(?: of)? '(?P<short>[0-9]{{2}})\b"),
    ("season", _STRONG, rf"\b{_SEASON} (?P<which>before last)\b"),
    ("season", _STRONG, rf"\b{_WHICH} (?P<season>spring|summer|autumn|winter)\b"),
    ("season", _STRONG, rf"(?<!\bthe\s)(?<!\bmy\s)(?<!\bher\s)(?<!\bhis\s)\b{_WHICH} (?P<season>fall)\b{_STOP}"),
    ("season", _STRONG, rf"\b(?:in|during|over|of) the {_SEASON}\b(?! of\b)"),
    ("season", _STRONG, r"\b(?:in|during|over) (?P<season>summer|autumn|winter)\b"),
    ("season", _STRONG, rf"\bin (?P<season>spring|fall)\b{_STOP}"),
    ("season", _STRONG, rf"\b{_AGO} {_SEASON}s? ago\b"),
    ("holiday", _STRONG, rf"\b{_HOLIDAY}(?:,| of| in)? (?P<year>{_YEAR})\b"),
    ("holiday", _STRONG, rf"\b(?!new year\b(?!'s)){_HOLIDAY} (?P<which>before last)\b"),
    ("holiday", _STRONG, rf"\b(?:{_WHICH}|at|on|over|for|around|during|by) {_HOLIDAY}\b"),
    ("holiday", _STRONG, rf"\b(?!new year\b(?!'s)){_HOLIDAY}\b{_STOP}"),
    (
        "holiday",
        _STRONG,
        r"\b(?P<holiday>christmas eve|boxing day|new year'?s eve|(?:christmas|new year's)(?= day\b))\b",
    ),
    ("holiday", _STRONG, rf"\b{_AGO} (?P<holiday>christmas|halloween|easter|thanksgiving)(?:e?s)? ago\b"),
    # Relative to now
    ("date", _STRONG, rf"\bthe {_NTH} of (?P<which>last|this) month\b"),
    ("near", _STRONG, r"\b(?P<near>day before yesterday|night before last|last night|tonight)\b"),
    ("near", _STRONG, r"\b(?P<near>yesterday|today|tomorrow)\b"),
    ("near", _STRONG, r"\b(?P<near>this) (?:morning|afternoon|evening)\b"),
    ("near", _STRONG, r"\bthe (?P<near>other) (?P<unit>day|night|evening|morning|week)\b"),
    ("weekend", _STRONG, r"\bweekend (?P<which>before last)\b"),
    ("weekend", _STRONG, rf"\b(?:{_WHICH}|(?:over|at|on|during) the) weekend\b"),
    ("weekend", _STRONG, rf"\b{_AGO} weekends? ago\b"),
    ("weekday", _STRONG, rf"\b{_WEEKDAY} (?P<which>before last|(?:of )?last week)\b"),
    ("weekday", _STRONG, rf"\b{_AGO} {_WEEKDAY}s? ago\b"),
    ("weekday", _STRONG, rf"\b(?:on|{_WHICH}) {_WEEKDAY}\b"),
    ("weekday", _STRONG, r"\b(?:on|(?P<which>last)) (?P<weekday>mon|tues?|wed|thur?s?|fri)\b"),
    ("recent", _STRONG, r"\b(?P<unit>week|month|quarter|year) (?P<which>before last)\b"),
    ("ago", _STRONG, rf"\b(?P<count>an?|one|two|three|four) {_UNIT}s? and (?P<half>a half) ago\b"),
    ("ago", _STRONG, rf"\b(?P<count>{_NUMBER}) and (?P<half>a half) {_UNIT}s? (?:ago|back|earlier)\b"),
    ("ago", _STRONG, rf"\ban? {_UNIT} or (?:(?P<most>two)|so) ago\b"),
    ("ago", _STRONG, rf"\b{_COUNT} (?:ago|back|earlier)\b"),
    ("recent", _STRONG, rf"\b(?:last|past|previous) {_COUNT}\b"),
    ("recent", _STRONG, r"\b(?P<which>last|past|previous|this|next) (?P<unit>week|month|quarter|year|decade)\b"),
    (
        "recent",
        _STRONG,
        rf"\b(?:in|over|within|during|for) the (?P<which>last|past) (?P<unit>hour|day|fortnight)\b{_STOP}",
    ),
    ("current", _PARTED, rf"(?<=\bof\sthe\s)(?P<unit>week|month|quarter|year)\b{_STOP}"),
    ("date", _STRONG, rf"\bon the (?P<day>[0-3]?[0-9])(?:st|nd|rd|th)\b{_STOP}"),
    ("date", _LED, rf"\bthe (?P<day>[0-3]?[0-9])(?:st|nd|rd|th)\b{_STOP}"),
    # Years
    ("decade", _STRONG, r"\b(?P<decade>1[0-9][0-9]0|20[0-9]0)'?s\b"),
    ("decade", _STRONG, r"\b(?:in|during|of|since|from|early|mid|late)(?: the)?[\s-]'?(?P<short>[3-9]0)'?s\b"),
    ("decade", _STRONG, rf"\b(?:in|during|of|since|from) the (?P<word>{_any(_DECADES)})\b"),
    ("year", _STRONG, rf"\b(?:in|during|of|throughout|from|between) (?P<year>{_YEAR}){_TO}(?P<until>{_YEAR})\b"),
    ("year", _STRONG, rf"\b(?:in|during|of|throughout) (?P<year>{_YEAR})\b"),
    ("year", _STRONG, r"\b(?:in|during|of|from|since) '(?P<short>[0-9]{2})\b(?!')"),
    # What needs a word before it
    ("month", _LED, rf"\b(?P<month>{_MONTH}){_VERB}"),
    ("year", _LED, rf"(?:(?<=mid-)|{_OPEN})(?P<year>{_YEAR}){_CLOSE}"),
    ("weekday", _LED, rf"\b{_WEEKDAY}\b"),
    ("season", _LED, r"\b(?P<season>summer|autumn|winter)\b"),
    ("season", _PARTED, r"\b(?P<season>spring|fall)\b"),
    ("holiday", _LED, rf"\b{_HOLIDAY}\b"),
)
_FRAMES = ("ago", "recent", "near", "weekend")  # a weekday may mean every week, a summer every year
_DIGITS = tuple("0123456789")
_CUES: Mapping[str, Sequence[str]] = {  # a question that has none of these has no such phrase; that saves most patterns
    "offset": ("before", "prior", "after"),
    "day": (*_DIGITS, *_MONTHS),
    "numeric": _DIGITS,
    "month": (*_MONTHS, *_DIGITS),
    "nth": ("week", "day"),
    "nth_of": ("month", "year"),
    "week": _DIGITS,
    "current": ("of",),
    "quarter": ("q",),
    "half": ("h1", "h2"),
    "season": tuple(_SEASONS),
    "holiday": tuple(_HOLIDAYS),
    "near": ("yesterday", "today", "tomorrow", "tonight", "night", "this", "other"),
    "weekend": ("weekend",),
    "weekday": tuple(name[:3] for name in _WEEKDAYS),
    "ago": ("ago", "back", "earlier"),
    "recent": ("last", "past", "previous", "this", "next"),
    "date": _DIGITS,
    "decade": (*_DIGITS, *_DECADES),
    "year": _DIGITS,
}
_KINDS_OF_CUE = {cue: [kind for kind, some in _CUES.items() if cue in some] for cues in _CUES.values() for cue in cues}
_PART = r"\b(?P<part>early|late|mid|first half|second half|beginning|start|middle|end)(?: in)?(?: of)?(?: the)?[\s-]*$"
_BOUND = (
    r"\b(?P<bound>since|before|prior to|after|until|till|up to|from|between|week of|weekend of)"
    r"(?: (?:the|on|around|about))?\s*$"
)
_LISTED = r"/|&|\band\b|\bor\b"  # between two times: a range only if a word before them or months say so
_YEAR_AFTER = r" (?:of |in )?"  # `June last year`
_ONWARDS = r"\s*(?:on|onwards?|forward|(?:and|to|until|till|up to) (?:now|today|date|the present))\b"
_JOINT = rf"{_TO}(?:the )?(?:(?P<part>early|late|mid|beginning of|middle of|end of)[\s-]+)?"
_LONGEST_LEAD = 40  # characters before a phrase that are examined


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """A pattern, compiled on first use: most questions name no time."""
    return re.compile(pattern.replace(" ", r"\s+"))


class Period(NamedTuple):
    """From one moment to another, both included."""

    start: datetime
    end: datetime


class _Phrase(NamedTuple):
    """Words that name a time: characters `start` to `end` of the question in lower case."""

    kind: str
    need: int
    start: int
    end: int
    named: Mapping[str, str]


class _Span(NamedTuple):
    """What a phrase says, and how much earlier and later a text about it may be written."""

    start: datetime
    end: datetime
    before: timedelta = _DAY
    after: timedelta = 3 * _DAY
    alone: Period | None = None  # the period of a phrase that no other word changes, if it differs


def periods(query: str, now: datetime, order: DateOrder = "both") -> list[Period]:
    """Return the periods that a question names, relative to `now`, in no particular order."""
    phrases = _phrases(_lowered(query))
    if not phrases:
        return []
    return list(dict.fromkeys(_Reader(_lowered(query), now, order).periods(phrases)))[:MOST_PERIODS]


def relative_times(query: str) -> list[tuple[int, int]]:
    """Return the start and end of each phrase that is relative to now, such as `two weeks ago`."""
    if len(_lowered(query)) != len(query[:LONGEST_QUERY]):
        return []  # lower case changed the length, so positions differ
    return [(phrase.start, phrase.end) for phrase in _phrases(_lowered(query)) if phrase.kind in _FRAMES]


def _lowered(query: str) -> str:
    return query[:LONGEST_QUERY].lower().replace("’", "'")


@lru_cache(maxsize=64)  # a search asks for the periods and for the frames of the same question
def _phrases(lowered: str) -> list[_Phrase]:
    """The phrases of a question in their order; none overlaps another."""
    found: list[_Phrase] = []
    kinds = {kind for cue in _KINDS_OF_CUE if cue in lowered for kind in _KINDS_OF_CUE[cue]}
    for kind, need, pattern in _PATTERNS:
        for match in _compiled(pattern).finditer(lowered) if kind in kinds else ():
            if any(match.start() < phrase.end and phrase.start < match.end() for phrase in found):
                continue
            named = {name: text for name, text in match.groupdict().items() if text}
            found.append(_Phrase(kind, need, match.start(), match.end(), named))
    return sorted(found, key=lambda phrase: phrase.start)


class _Reader:
    """Reads the phrases of one question."""

    def __init__(self, text: str, now: datetime, order: DateOrder) -> None:
        self._text = text
        self._now = now
        self._order = order

    def periods(self, phrases: Sequence[_Phrase]) -> Iterator[Period]:
        phrases = list(self._with_years(phrases))
        done = 0
        for phrase, following in zip(phrases, (*phrases[1:], None), strict=True):
            if phrase.start < done:
                continue
            bound, part = self._lead(done, phrase)
            done = phrase.end
            if following is not None and phrase.kind == "offset":
                if self._text[phrase.end : following.start] in ("", "the "):
                    done = following.end
                    yield from self._offset(phrase, following)
            elif following is not None and (joint := self._joint(phrase, following, bound)):
                done = following.end
                yield from self._range(phrase, part, following, joint["part"] or "")
            elif phrase.need == _STRONG or part or (phrase.need == _LED and bound not in ("", "between")):
                yield from self._alone(phrase, bound, part)

    def _with_years(self, phrases: Sequence[_Phrase]) -> Iterator[_Phrase]:
        """The phrases; `June last year` is one of them and not two."""
        skipped = False
        for phrase, following in zip(phrases, (*phrases[1:], None), strict=True):
            if skipped:
                skipped = False
                continue
            year = None if following is None else self._year_after(phrase, following)
            if following is None or year is None:
                yield phrase
                continue
            skipped = True
            named = {name: text for name, text in phrase.named.items() if name != "which"}
            yield _Phrase(phrase.kind, _STRONG, phrase.start, following.end, {**named, "year": str(year)})

    def _year_after(self, phrase: _Phrase, following: _Phrase) -> int | None:
        """The year of a phrase that one such as `last year` or `two years ago` follows directly."""
        named, between = following.named, self._text[phrase.end : following.start]
        is_verb = phrase.named.get("season") == "fall" and "of" not in between
        if not (
            _lacks_year(phrase)
            and named.get("unit") == "year"
            and _compiled(_YEAR_AFTER).fullmatch(between)
            and not is_verb
        ):
            return None
        if following.kind == "ago" and "most" not in named:
            return self._now.year - round(_count(named.get("count", "one")))
        back = {"last": 1, "past": 1, "previous": 1, "this": 0, "next": -1, "before last": 2}.get(
            named.get("which", "")
        )
        return None if following.kind != "recent" or back is None or "count" in named else self._now.year - back

    def _lead(self, done: int, phrase: _Phrase) -> tuple[str, str]:
        """The words before a phrase that change it, such as `since` and `early`."""
        before = self._text[max(done, phrase.start - _LONGEST_LEAD) : phrase.start]
        part = _compiled(_PART).search(before)
        bound = _compiled(_BOUND).search(before if part is None else before[: part.start()])
        return "" if bound is None else bound["bound"], "" if part is None else part["part"]

    def _alone(self, phrase: _Phrase, bound: str, part: str) -> Iterator[Period]:
        if bound in ("from", "between"):
            bound = "since" if _compiled(_ONWARDS).match(self._text, phrase.end) else ""
        for span in self._spans(phrase):
            yield _bounded(_part_of(span, part), bound, self._now)

    def _joint(self, phrase: _Phrase, following: _Phrase, bound: str) -> re.Match[str] | None:
        """The words between two phrases that make a range of them."""
        gap = self._text[phrase.end : following.start]
        joint = _compiled(_JOINT).fullmatch(gap) if len(gap) < _LONGEST_LEAD else None
        are_months = phrase.kind == following.kind == "month" and _lacks_year(phrase) and "until" not in phrase.named
        is_list = _compiled(_LISTED).search(gap) is not None
        is_range = bound == "between" or not is_list or (are_months and not _lacks_year(following))
        is_clear = bound in ("from", "between") or phrase.need == following.need == _STRONG or are_months
        return joint if is_range and is_clear and following.kind != "offset" else None

    def _range(self, first: _Phrase, first_part: str, last: _Phrase, last_part: str) -> Iterator[Period]:
        for one, two in self._pairs(first, last):
            start, end = _part_of(one, first_part), _part_of(two, last_part.removesuffix(" of"))
            if start.start > end.end and first.kind == last.kind == "weekday" and "which" not in first.named:
                # On a Wednesday the last Friday is before the last Monday; the last whole range is meant.
                start = start._replace(start=_shifted(start.start, -7 * _DAY))
            if start.start <= end.end:
                yield _period(start.start, end.end, start.before, end.after)

    def _pairs(self, first: _Phrase, last: _Phrase) -> Iterator[tuple[_Span, _Span]]:
        """The readings of the two ends of a range; an end without a year takes it from the other."""
        if _lacks_year(last) and not _lacks_year(first) and first.kind in _YEARLY:
            for one in self._spans(first):
                same, later = (self._spans(last, one.start.year + more) for more in (0, 1))
                yield from product([one], same if same and same[0].end > one.start else later)
        elif _lacks_year(first):
            for two in self._spans(last):
                same, earlier = (self._spans(first, two.start.year - less) for less in (0, 1))
                yield from product(same if same and same[0].start <= two.start else earlier, [two])
        else:
            firsts, lasts = self._spans(first), self._spans(last)
            yield from zip(firsts, lasts, strict=True) if len(firsts) == len(lasts) else product(firsts, lasts)

    def _offset(self, phrase: _Phrase, anchor: _Phrase) -> Iterator[Period]:
        """`two weeks before 5 May`: also the days about the anchor, because people report then."""
        for span in self._spans(anchor):
            try:
                yield _beside(phrase.named, span)
            except OverflowError:
                continue  # outside of the calendar

    def _spans(self, phrase: _Phrase, year: int | None = None) -> list[_Span]:
        """The readings of a phrase, in the given year if it names none."""
        named = phrase.named if year is None else {**phrase.named, "year": str(year)}
        try:
            if phrase.kind == "numeric":
                dates = _numeric(named, self._order)
                return [span for date in dates for span in _yearly("day", date, self._now)]
            if phrase.kind in _YEARLY:
                return list(_yearly(phrase.kind, named, self._now))
            return list(_RELATIVE[phrase.kind](named, self._now))
        except (ValueError, OverflowError):
            return []  # not a date, such as 31 February, or outside of the calendar


def _lacks_year(phrase: _Phrase) -> bool:
    return phrase.kind in (*_YEARLY, "numeric") and not phrase.named.keys() & {"year", "short", "which", "ago"}


# A span becomes a period


def _period(start: datetime, end: datetime, before: timedelta, after: timedelta) -> Period:
    return Period(_shifted(start, -before), _shifted(end, after))


def _shifted(at: datetime, by: timedelta) -> datetime:
    try:
        return at + by
    except OverflowError:
        return (datetime.max if by > timedelta() else datetime.min).replace(tzinfo=at.tzinfo)


def _part_of(span: _Span, part: str) -> _Span:
    """`early`, `mid` or `late` in a span; in one of days there is no such part."""
    length = span.end - span.start
    if not part or length < 14 * _DAY:
        return span
    first, last = _PARTS[part]
    margins = min(span.before, 10 * _DAY), min(span.after, 10 * _DAY)
    return _Span(span.start + first * length, span.start + last * length, *margins)


def _bounded(span: _Span, bound: str, now: datetime) -> Period:
    half_a_day = 12 * _HOUR
    if bound in ("week of", "weekend of") and span.end - span.start <= 2 * _DAY:
        monday = span.start - span.start.weekday() * _DAY
        first = monday if bound == "week of" else monday + 5 * _DAY
        return _period(first, max(monday, span.start - _DAY) + 7 * _DAY, _DAY, 2 * _DAY)
    if bound == "since":
        return _period(span.start, max(span.start, now), span.before, _DAY)
    if bound == "after":
        return _period(span.end, max(span.end, now), half_a_day, _DAY)
    if bound in ("before", "prior to"):
        return Period(datetime.min.replace(tzinfo=now.tzinfo), _shifted(span.start, half_a_day))
    if bound in ("until", "till", "up to"):
        return Period(datetime.min.replace(tzinfo=now.tzinfo), _shifted(span.end, span.after))
    return span.alone or _period(*span[:4])


def _beside(named: Mapping[str, str], anchor: _Span) -> Period:
    is_after = named["side"] in ("after", "following")
    if "unit" in named:
        length = _count(named.get("count", "one")) * _UNIT_DAYS[_unit(named)] * _DAY
    else:
        length = 7 * _DAY * _count(named.get("count", "one"))
    if is_after:
        return _period(anchor.end, anchor.end + length, _DAY, 3 * _DAY)
    return _period(anchor.start - length, anchor.end, _DAY, anchor.after)


# Phrases that come back each year


def _yearly(kind: str, named: Mapping[str, str], now: datetime) -> Iterator[_Span]:
    make = partial(_YEARLY[kind], named, now)
    if "year" in named or "short" in named:
        year = int(named["year"]) if "year" in named else _full_year(int(named["short"]), now)
        yield make(year)
        if named.get("season") == "winter":
            yield make(year - 1)  # of two winters that touch a year, either may be meant
        return
    ago = int(_count(named.get("ago", "one")))
    # Ten years, because 29 February is in one of eight or nine.
    known = [span for year in range(now.year - 9 - ago, now.year + 2) if (span := _if_valid(make, year))]
    yield from _choose(known, named.get("which", ""), now, ago if "ago" in named else 0)


def _if_valid(make: Callable[[int], _Span], year: int) -> _Span | None:
    try:
        return make(year)
    except (ValueError, OverflowError):
        return None


def _choose(known: Sequence[_Span], which: str, now: datetime, ago: int) -> Sequence[_Span]:
    """The one of each year's spans that is meant."""
    begun = [span for span in known if span.start <= now]
    ended = [span for span in known if span.end <= now]
    if ago:
        return ended[-ago:][:1] if len(ended) >= ago else ()
    if which in ("next", "coming"):
        return known[len(begun) :][:1]
    if which == "before last":
        return ended[-2:][:1] if len(ended) > 1 else ()
    if which == "this":  # the nearest, or the one of this year
        nearest = min(known, key=lambda span: max(span.start - now, now - span.end), default=None)
        of_year = [span for span in known if span.start.year == now.year]
        return list(dict.fromkeys([*([] if nearest is None else [nearest]), *of_year]))
    return (ended if which else begun)[-1:]


def _day(named: Mapping[str, str], now: datetime, year: int) -> _Span:
    month = int(named["number"]) if "number" in named else _month(named["month"])
    day = _ORDINALS.index(named["ordinal"]) + 1 if "ordinal" in named else int(named["day"])
    start = _midnight(now).replace(year=year, month=month, day=day)
    end = start.replace(day=int(named.get("last", day)))
    if end < start:
        raise ValueError("the last day is before the first")
    return _Span(start, end + _DAY)


def _month_span(named: Mapping[str, str], now: datetime, year: int) -> _Span:
    first = int(named["number"]) if "number" in named else _month(named["month"])
    last = _month(named["until"]) if "until" in named else first
    if first > last and "year" in named:
        year -= 1  # `in November and December 2023`
    return _Span(
        _month_start(now, year, first), _month_start(now, year, first + (last - first) % 12 + 1), 3 * _DAY, 7 * _DAY
    )


def _nth(named: Mapping[str, str], now: datetime, year: int) -> _Span:
    month = _month(named["month"])
    start, end = _month_start(now, year, month), _month_start(now, year, month + 1)
    number = -1 if named["nth"] == "last" else _ORDINALS.index(named["nth"])
    unit = named.get("unit", "")
    days = {"week": 7, "weekend": 2}.get(unit, 1)
    if unit in ("week", "day"):
        first = end - days * _DAY if number < 0 else start + number * days * _DAY
    else:
        weekday = 5 if unit == "weekend" else _WEEKDAYS.index(named["weekday"])
        known = [at for day in range((end - start).days) if (at := start + day * _DAY).weekday() == weekday]
        first = known[min(number, len(known) - 1)]
    return _Span(first, first + days * _DAY)


def _quarter(named: Mapping[str, str], now: datetime, year: int) -> _Span:
    number = int(named["quarter"]) - 1 if "quarter" in named else _ORDINALS.index(named["nth"])
    return _Span(_month_start(now, year, 3 * number + 1), _month_start(now, year, 3 * number + 4), 3 * _DAY, 7 * _DAY)


def _half(named: Mapping[str, str], now: datetime, year: int) -> _Span:
    first = 1 if named["half"] == "1" else 7
    return _Span(_month_start(now, year, first), _month_start(now, year, first + 6), 3 * _DAY, 7 * _DAY)


def _season(named: Mapping[str, str], now: datetime, year: int) -> _Span:
    # From the first of a month, as in weather records; by the sun, seasons begin and end three weeks later.
    first = _SEASONS[named["season"]]
    return _Span(_month_start(now, year, first), _month_start(now, year, first + 3), 7 * _DAY, 21 * _DAY)


def _holiday(named: Mapping[str, str], now: datetime, year: int) -> _Span:
    name = named["holiday"]
    month, day, days = _HOLIDAYS[name]
    if name in _BY_WEEKDAY:
        nth, weekday, month_name = _BY_WEEKDAY[name]
        known = _nth({"nth": nth, "weekday": weekday, "month": month_name}, now, year)
        return known._replace(start=known.start + day * _DAY, end=known.end + day * _DAY)
    if month:
        start = _midnight(now).replace(year=year, month=month, day=day)
    else:
        start = _easter(now, year) + day * _DAY
    return _Span(start, start + days * _DAY)


def _easter(now: datetime, year: int) -> datetime:
    """Easter Sunday in the Gregorian calendar."""
    century, golden = year // 100, year % 19
    moon = (century - century // 4 - (8 * century + 13) // 25 + 19 * golden + 15) % 30
    moon -= (moon // 28) * (1 - (29 // (moon + 1)) * ((21 - golden) // 11))
    weekday = (year + year // 4 + moon + 2 - century + century // 4) % 7
    return _midnight(now).replace(year=year, month=3, day=1) + (27 + moon - weekday) * _DAY


_YEARLY: Mapping[str, Callable[[Mapping[str, str], datetime, int], _Span]] = {
    "day": _day,
    "month": _month_span,
    "nth": _nth,
    "quarter": _quarter,
    "half": _half,
    "season": _season,
    "holiday": _holiday,
}


def _numeric(named: Mapping[str, str], order: DateOrder) -> list[Mapping[str, str]]:
    """The dates that two numbers can mean. Where the order of the setting gives no date, the other is taken."""
    one, two = named["first"], named["second"]
    ways = {"day-first": (one, two), "month-first": (two, one)}
    valid = {way: {**named, "day": day, "number": month} for way, (day, month) in ways.items() if 1 <= int(month) <= 12}
    if order in valid or one == two:
        return [valid.get(order) or next(iter(valid.values()))] if valid else []
    return list(valid.values())


# Phrases that are relative to now, and years


def _ago(named: Mapping[str, str], now: datetime) -> Iterator[_Span]:
    unit, counted = _unit(named), named.get("count", "one")
    count = _count(counted) + (0.5 if "half" in named else 0)
    most = max(count, _count(named.get("most", counted)))
    margin = _MARGIN_DAYS[unit] * (2 if counted in _VAGUE else 1) * _DAY
    yield _Span(now - most * _UNIT_DAYS[unit] * _DAY, now - count * _UNIT_DAYS[unit] * _DAY, margin, margin)


def _recent(named: Mapping[str, str], now: datetime) -> Iterator[_Span]:
    unit = _unit(named)
    if "count" in named or unit in ("hour", "day", "fortnight"):
        count = _count(named.get("most", named.get("count", "one")))
        yield _Span(now - count * _UNIT_DAYS[unit] * _DAY, now, _DAY, _DAY)
        return
    back = {"this": 0, "next": -1, "before last": 2}.get(named["which"], 1)
    start, end = _calendar(unit, now, back), _calendar(unit, now, back - 1)
    # `last week` may be the seven days before today or the week before this one.
    wide = Period(now - 2 * _UNIT_DAYS[unit] * _DAY - _DAY, now + _DAY) if back in (0, 1) else None
    yield _Span(start, end, alone=wide)


def _calendar(unit: str, now: datetime, back: int) -> datetime:
    """The start of this week, month, quarter, year or decade, or of an earlier one."""
    if unit == "week":
        return _midnight(now) - (now.weekday() + 7 * back) * _DAY
    months = {"month": 1, "quarter": 3, "year": 12, "decade": 120}[unit]
    number = now.year * 12 + now.month - 1
    return _month_start(now, 0, number - number % months - months * back + 1)


def _near(named: Mapping[str, str], now: datetime) -> Iterator[_Span]:
    near, today = named["near"], _midnight(now)
    if near == "other":
        yield _Span(today - (28 if named["unit"] == "week" else 7) * _DAY, now, _DAY, timedelta())
        return
    if near in ("last night", "night before last"):
        start = today - (_DAY if near == "night before last" else timedelta()) - 6 * _HOUR
        yield _Span(start, start + 12 * _HOUR, 12 * _HOUR, 12 * _HOUR)
        return
    days = {"yesterday": -1, "day before yesterday": -2, "tomorrow": 1}.get(near, 0)
    yield _Span(today + days * _DAY, today + (days + 1) * _DAY, 12 * _HOUR, 12 * _HOUR)


def _weekend(named: Mapping[str, str], now: datetime) -> Iterator[_Span]:
    which = named.get("which", "")
    latest = _midnight(now) - (now.weekday() - 5) % 7 * _DAY
    ended = latest if now.weekday() < 5 else latest - 7 * _DAY
    if "ago" in named:
        starts = [ended - 7 * (_count(named["ago"]) - 1) * _DAY]
    elif which == "this" and now.weekday() < 5:
        starts = [latest, latest + 7 * _DAY]  # the one that was or the one to come
    else:
        known = {"": latest, "this": latest, "next": latest + 7 * _DAY, "coming": latest + 7 * _DAY}
        starts = [known.get(which, ended - 7 * _DAY if which == "before last" else ended)]
    for start in starts:
        yield _Span(start, start + 2 * _DAY, 12 * _HOUR, 2 * _DAY)


def _weekday(named: Mapping[str, str], now: datetime) -> Iterator[_Span]:
    which = named.get("which", "")
    number = [name[:3] for name in _WEEKDAYS].index(named["weekday"][:3])
    back = (now.weekday() - number) % 7 or 7
    if which in ("next", "coming"):
        back = -((number - now.weekday()) % 7 or 7)
    elif which.endswith("last week"):
        back = now.weekday() + 7 - number
    elif which == "before last":
        back += 7
    start = _midnight(now) - (back + 7 * (_count(named.get("ago", "one")) - 1)) * _DAY
    yield _Span(start, start + _DAY, 12 * _HOUR, 12 * _HOUR)


def _date(named: Mapping[str, str], now: datetime) -> Iterator[_Span]:
    """`on the 15th`: of this month, or of an earlier one if that is still to come or has no such day."""
    day, weekday = int(named["day"]), named.get("weekday")
    for back in {"last": (1,), "this": (0,)}.get(named.get("which", ""), range(3 if weekday is None else 24)):
        first = _calendar("month", now, back)
        start = first + (day - 1) * _DAY
        is_meant = weekday is None or start.weekday() == _WEEKDAYS.index(weekday)
        if start.month == first.month and is_meant and ("which" in named or start <= now):
            yield _Span(start, start + _DAY)
            return


def _decade(named: Mapping[str, str], now: datetime) -> Iterator[_Span]:
    if "decade" in named:
        first = int(named["decade"])
    else:
        first = 1900 + (int(named["short"]) if "short" in named else _DECADES[named["word"]])
    firsts = [first, 2020] if first == 1920 and "word" in named else [first]
    for year in firsts:
        yield _Span(_month_start(now, year, 1), _month_start(now, year + 10, 1), timedelta(), timedelta())


def _year(named: Mapping[str, str], now: datetime) -> Iterator[_Span]:
    first = int(named["year"]) if "year" in named else _full_year(int(named["short"]), now)
    last = int(named.get("until", first))
    if first <= last:
        yield _Span(_month_start(now, first, 1), _month_start(now, last + 1, 1), timedelta(), 7 * _DAY)


def _current(named: Mapping[str, str], now: datetime) -> Iterator[_Span]:
    """`at the end of the month`: of this one, or of the one before."""
    for back in (0, 1):
        yield _Span(_calendar(named["unit"], now, back), _calendar(named["unit"], now, back - 1))


def _nth_of(named: Mapping[str, str], now: datetime) -> Iterator[_Span]:
    """`the first week of last month`; of a year, its first or last month is looked at."""
    for back in {"this": (0,), "last": (1,)}.get(named["which"], (0, 1)):
        if named["whole"] == "month":
            month = _calendar("month", now, back)
            yield _nth({**named, "month": _MONTHS[month.month - 1]}, now, month.year)
        else:
            month_name = "dec" if named["nth"] == "last" else "jan"
            yield _nth({**named, "month": month_name}, now, now.year - back)


def _week(named: Mapping[str, str], now: datetime) -> Iterator[_Span]:
    monday = datetime.fromisocalendar(int(named["year"]), int(named["week"]), 1)
    start = _midnight(now).replace(year=monday.year, month=monday.month, day=monday.day)
    yield _Span(start, start + 7 * _DAY)


_RELATIVE: Mapping[str, Callable[[Mapping[str, str], datetime], Iterator[_Span]]] = {
    "ago": _ago,
    "recent": _recent,
    "current": _current,
    "nth_of": _nth_of,
    "week": _week,
    "near": _near,
    "weekend": _weekend,
    "weekday": _weekday,
    "date": _date,
    "decade": _decade,
    "year": _year,
}


def _count(word: str) -> float:
    if word in _NUMBERS or word[0].isdigit():
        return _NUMBERS.get(word) or float(word)
    tens, ones = re.split(r"[\s-]+", word)  # `twenty-five`
    return _NUMBERS[tens] + _NUMBERS[ones]


def _unit(named: Mapping[str, str]) -> str:
    return _UNITS.get(named["unit"], named["unit"])


def _month(name: str) -> int:
    return _MONTHS.index(name[:3]) + 1


def _month_start(now: datetime, year: int, month: int) -> datetime:
    """The first of a month; months above 12 are those of later years."""
    return _midnight(now).replace(year=year + (month - 1) // 12, month=(month - 1) % 12 + 1, day=1)


def _full_year(short: int, now: datetime) -> int:
    """`24` is 2024, and `85` is 1985: never more than ten years ahead."""
    return short + (2000 if 2000 + short <= now.year + 10 else 1900)


def _midnight(now: datetime) -> datetime:
    return now.replace(hour=0, minute=0, second=0, microsecond=0)
