"""The terms by which a text is found: one tokenizer for what is stored and for what is asked.

A word gives its stem; an identifier, number, date, address or path gives itself whole and its parts; a script
without spaces gives its characters and their pairs; an emoji is a word. A term is at most 64 characters and
never contains white space, NUL or another control character. Any text is taken, in linear time, and is found
by its own words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import pairwise
from typing import NamedTuple

from commonplace.language.folding import fold
from commonplace.language.stems import stem

LONGEST_TERM = 64
PART_WEIGHT = 0.5  # of a compound's part in a query, beside the compound itself

# After folding, what lies beyond ASCII is a part of a word or stands alone.
_LETTER = r"[^\x00-/:-@\[-`{-\x7f]"  # the letters and digits of ASCII; written so, it compiles 30 times as fast
_WORD = re.compile(
    r"[0-9]{1,3}(?:,[0-9]{3})++(?![0-9,])"  # 1,250,000
    rf"|(?:[#@](?![0-9]))?{_LETTER}++(?:(?:_++|:[:/\\]{{1,2}}|[-./:@&'\\]){_LETTER}++)*+(?:\+\+|\#(?!{_LETTER}))?"
)
_JOINT = re.compile(r"[-_]+")
_SEGMENT = re.compile(r"[^/:@\\]+")
_PIECE = re.compile(rf"{_LETTER}+")
_PART = re.compile(r"[A-Z]{2,}s(?![a-z])|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\x00-\x7f]+")
_CONTRACTION = re.compile(r"'(?:s|ll|re|ve|m|d)$", re.IGNORECASE)

# Scripts written without spaces: Thai and Lao, Burmese, Khmer, kana, bopomofo, Han, Hangul.
SPACELESS_SCRIPTS = (
    "\u0e00-\u0eff\u1000-\u109f\uaa60-\uaa7f\u1780-\u17ff\u3005-\u3007\u3031-\u3035\u3040-\u30ff\u3105-\u312f"
    "\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\u1100-\u11ff"
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
# Their signs that belong to the character before.
_SIGN = (
    "\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece\u102b-\u103e\u1056-\u1060\u1062-\u1064"
    "\u1067-\u106d\u1071-\u1074\u1082-\u108d\u109a-\u109d\u17b4-\u17d3\u17dd\u3099\u309a"
)
_FLAG_LETTERS = "\U0001f1e6-\U0001f1ff"
_SPACELESS = rf"[{SPACELESS_SCRIPTS}{_FLAG_LETTERS}]"
_RUN = (
    rf"(?P<spaceless>[{SPACELESS_SCRIPTS}]+)|(?P<flag>[{_FLAG_LETTERS}]{{1,2}})"
    rf"|[^{SPACELESS_SCRIPTS}{_FLAG_LETTERS}]+"
)
_CHARACTER = rf".[{_SIGN}]{{0,7}}"
_compiled = cache(re.compile)  # when first needed: programs that meet only ASCII start without these

_STOP_WORDS = (
    "a about after again all also am an and any are as at be because been before being but by can could "
    "did do does doing during each few for from further had has have having he her here hers him his "
    "how i if im in into is it its just let me more most my no nor not now of off on once only or other "
    "our ours out over own per same she should so some such than that the their theirs them then there "
    "these they this those through to too under until up us very was we were what when where which "
    "while who whom whose why will with would you your yours arent cant couldnt didnt doesnt dont hadnt "
    "hasnt havent isnt shouldnt wasnt werent wont wouldnt aren couldn didn doesn don hadn hasn haven "
    "isn shouldn wasn weren wouldn"
)
_STOPS = frozenset(stem(word) for word in _STOP_WORDS.split())


class Terms(NamedTuple):
    """What one word is stored under, and what it asks for with which weight."""

    stored: tuple[str, ...]
    asked: tuple[tuple[str, float], ...]


def index_terms(text: str) -> dict[str, int]:
    """Each term of a stored text with how often it occurs."""
    frequencies: dict[str, int] = {}
    for word, count in Counter(_WORD.findall(fold(text))).items():
        # The inside of _terms: this loop is most of what a write costs.
        for term in (_remembered_terms(word) if len(word) <= LONGEST_TERM else _work_out_terms(word)).stored:
            frequencies[term] = frequencies.get(term, 0) + count
    return frequencies


def query_terms(query: str) -> dict[str, float]:
    """Each term to look up with its weight; stop words only if there is nothing else.

    All of them are in index_terms(query).
    """
    weights: dict[str, float] = {}
    for word in dict.fromkeys(_WORD.findall(fold(query))):
        for term, weight in _terms(word).asked:
            weights[term] = max(weight, weights.get(term, 0.0))
    return {term: weight for term, weight in weights.items() if term not in _STOPS} or weights


def _terms(word: str) -> Terms:
    # Only short words are remembered: a cache of megabyte-long ones would hold a hostile text's memory.
    return _remembered_terms(word) if len(word) <= LONGEST_TERM else _work_out_terms(word)


def _work_out_terms(word: str) -> Terms:
    if not word.isascii() and _compiled(_SPACELESS).search(word):
        return _terms_of_mixed_scripts(word)
    word = _CONTRACTION.sub("", word)
    if "," in word:
        return _one(word.replace(",", ""))
    if _is_plain(word):
        return _one(word)
    whole = _term(word.replace("'", ""))
    parts = [part for part in _parts(word) if part != whole]
    return Terms((whole, *parts), ((whole, 1.0), *((part, PART_WEIGHT) for part in parts)))


_remembered_terms = lru_cache(maxsize=1 << 16)(_work_out_terms)


def _one(word: str) -> Terms:
    term = _term(word)
    return Terms((term,), ((term, 1.0),))


def _term(word: str) -> str:
    folded = word.casefold()
    if len(folded) <= LONGEST_TERM and folded.isascii() and folded.isalpha():
        return stem(folded)
    return folded[:LONGEST_TERM]


def _is_plain(word: str) -> bool:
    """Whether there is nothing to take apart: `word`, `Word`, `WORD`, `APIs`, a word of another script."""
    if not word.isalpha():
        return False
    return word.islower() or word.isupper() or word[1:].islower() or word[:-1].isupper() or not word.isascii()


def _parts(word: str) -> Iterator[str]:
    """The words inside a compound, and what lies between: the file name of a path, the host of an address."""
    joined = _JOINT.sub("", word)
    if joined.isalnum() and joined != word:
        yield _term(joined)  # `wi-fi` is `wifi`, `get_user` is `getUser`
    segments = _SEGMENT.findall(word)
    for segment in segments:
        pieces = _PIECE.findall(segment)
        shortest = 3 if "'" in segment else 1  # `don't` has no part t, `l'homme` no part l
        if len(segments) > 1 and len(pieces) > 1:
            yield _term(segment.replace("'", ""))
        for piece in pieces:
            if len(piece) < shortest:
                continue
            yield _term(piece)
            if len(piece) <= LONGEST_TERM and not _is_plain(piece):
                parts = _PART.findall(piece)
                if len(parts) > 1:
                    yield from map(_term, parts)


def _terms_of_mixed_scripts(word: str) -> Terms:
    stored: list[str] = []
    asked: list[tuple[str, float]] = []
    for run in _compiled(_RUN).finditer(word):
        if run["spaceless"]:
            characters = _compiled(_CHARACTER).findall(run[0])
            pairs = [first + second for first, second in pairwise(characters)]
            stored += characters + pairs
            asked += [(term, 1.0) for term in pairs or characters]
        elif run["flag"]:
            stored.append(run[0])
            asked.append((run[0], 1.0))
        else:
            for terms in map(_terms, _WORD.findall(run[0])):
                stored += terms.stored
                asked += terms.asked
    return Terms(tuple(stored), tuple(asked))
