"""Snippets: the few words of a text that show why it was found."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import NamedTuple

from commonplace.language.passages import Span, may_cut, place_to_cut
from commonplace.language.tokenizer import (
    LONGEST_TERM,
    SPACELESS_SCRIPTS,
    STEM,
    index_terms,
    languages_of,
    stems_of_words,
    terms_of_letters,
)

ELLIPSIS = "…"
BEGINNING = 20_000  # characters to examine if no passage is given
_LONGEST_CHARACTER = 32  # a cut moves at most this far to keep accents with their letter

_PLACE = rf"[{SPACELESS_SCRIPTS}]{{1,12}}|[^\s{SPACELESS_SCRIPTS}]+"
_PUNCTUATION = string.punctuation + ELLIPSIS + "“”‘’«»„"

# A plain ASCII word is only letters, with a capital at most first and a punctuation mark at most last. A word is not
# plain if one of these is in its shape.
_KINDS = {"a": string.ascii_lowercase, "A": string.ascii_uppercase, "0": string.digits, " ": " "}
_SHAPES = bytes(ord(next((kind for kind in _KINDS if chr(code) in _KINDS[kind]), ".")) for code in range(256))
_UNUSUAL = (b"0", b"aA", b"AA", b".a", b".A", b"..", b" .", b" a. ", b" A ", b" A.")
_compiled = cache(re.compile)  # compiled on first use
_SENTENCE_START = re.compile(r"[.!?…] (?=\S)")


class _Match(NamedTuple):
    start: int
    end: int
    terms: frozenset[str]


def snippet(text: str, terms: Mapping[str, float], limit: int = 160, span: Span | None = None) -> str:
    """Return at most `limit` characters around the query's terms, from the beginning of the text or from one passage.

    White space is collapsed, words stay whole if possible, and an ellipsis marks omitted text.
    """
    first, last = span or Span(0, BEGINNING)
    passage = " ".join(text[first:last].split())
    if len(passage) <= limit:
        return passage
    room = max(limit - 2 * len(ELLIPSIS), 0)
    shown = _window(passage, _best_match(passage, terms, room), room)
    before = ELLIPSIS if shown.start > 0 else ""
    after = ELLIPSIS if shown.end < len(passage) or (span is None and len(text) > BEGINNING) else ""
    return (before + passage[shown.start : shown.end].strip() + after)[:limit]


def matched_spans(shown: str, terms: Mapping[str, float]) -> Iterator[Span]:
    """The words of a snippet that a query asks for by its terms, in order, without the punctuation around them."""
    # Without the marks of omitted text, most snippets are ASCII, which is matched in a third of the time.
    text = shown.removeprefix(ELLIPSIS)
    before = len(shown) - len(text)
    for match in _matches(text.removesuffix(ELLIPSIS), terms):
        word = text[match.start : match.end]
        start = before + match.start + len(word) - len(word.lstrip(_PUNCTUATION))
        end = before + match.end - len(word) + len(word.rstrip(_PUNCTUATION))
        if start < end:
            yield Span(start, end)


def _best_match(passage: str, weights: Mapping[str, float], room: int) -> Span:
    """The first span of about `room` characters that contains most of the query; empty if nothing matches."""
    best, best_score = Span(0, 0), 0.0
    inside = dict.fromkeys(weights, 0)
    score = 0.0
    matches = list(_matches(passage, weights))
    left = 0
    for right, match in enumerate(matches):
        score += sum([weights[term] for term in match.terms if not inside[term]])
        for term in match.terms:
            inside[term] += 1
        while left < right and match.end - matches[left].start > room:
            for term in matches[left].terms:
                inside[term] -= 1
            score -= sum([weights[term] for term in matches[left].terms if not inside[term]])
            left += 1
        if score > best_score + 1e-9:
            best, best_score = Span(matches[left].start, match.end), score
    return best


def _matches(passage: str, weights: Mapping[str, float]) -> Iterator[_Match]:
    wanted = frozenset(weights)
    if not wanted:
        return
    stemmed = any(term.startswith(STEM) for term in wanted)
    languages = languages_of(passage, index_terms(passage).keys()).names if stemmed else ()
    for start, end, word in _likely_words(passage, wanted) if passage.isascii() else _places(passage):
        terms = _cached_terms(word) if end - start <= LONGEST_TERM else frozenset(index_terms(word))
        if stemmed:
            terms = terms.union(stems_of_words(word, languages))
        if not wanted.isdisjoint(terms):
            yield _Match(start, end, wanted & terms)


def _likely_words(passage: str, wanted: frozenset[str]) -> Iterator[tuple[int, int, str]]:
    """The words that may match: the term of a plain word begins as the word does, so others are skipped.

    Both the beginnings and the words that are not plain are found by searching the whole passage for a few characters,
    which takes a third of the time of looking at each word.
    """
    text = f" {passage} "
    shape = text.encode().translate(_SHAPES)
    starts: set[int] = set()
    for mark in _UNUSUAL:
        at = shape.find(mark)
        while at >= 0:
            starts.add(shape.rfind(b" ", 0, at + 1))
            at = shape.find(mark, at + 1)
    lowered = text.lower()
    for beginning in _beginnings(wanted):
        at = lowered.find(beginning)
        while at >= 0:
            starts.add(at)
            at = lowered.find(beginning, at + 1)
    for start in sorted(starts):
        end = text.index(" ", start + 1)
        yield start, end - 1, text[start + 1 : end]


@lru_cache(maxsize=64)
def _beginnings(wanted: frozenset[str]) -> tuple[str, ...]:
    """How a plain word that has one of these terms begins, after a space; one letter if only that is known."""
    # A term has the letters of its word, but for its last one: `hoping` is `hope`, `happy` is `happi`. One more is left
    # out, to be safe. A term of three letters has two of its word: `using` is `use`.
    plain = [term for term in wanted if not term.startswith(STEM) and len(term) > 1]
    starts = {term[: max(2 if len(term) < 4 else 3, len(term) - 2)] for term in plain}
    starts |= {f"{start[0]}y" for start in starts if start[1:] == "i"}  # the term of `lying` is `lie`
    # A stem of another language is only known to keep its first letter.
    starts |= {term.removeprefix(STEM)[0] for term in wanted if term.startswith(STEM) or len(term) == 1}
    return tuple(f" {start}" for start in starts)


def _places(passage: str) -> Iterator[tuple[int, int, str]]:
    """Words; in scripts without spaces, a few characters and the next one, because a pair may end there."""
    for place in _compiled(_PLACE).finditer(passage):
        start, end = place.span()
        yield start, end, passage[start : end + 1]


@lru_cache(maxsize=1 << 15)
def _cached_terms(word: str) -> frozenset[str]:
    # The same for both, but the first takes half as long.
    return frozenset(terms_of_letters(word) if word.isascii() and word.isalpha() else index_terms(word))


def _window(passage: str, match: Span, room: int) -> Span:
    """The match and its surroundings, from the start of a sentence or word to the end of a word."""
    start = _start(passage, match, room)
    latest = min(start + room, len(passage))
    if latest == len(passage):
        return Span(start, latest)
    space = passage.rfind(" ", max(min(match.end, latest), start + room // 2), latest + 1)
    if space > start:
        return Span(start, space)
    return Span(start, place_to_cut(passage, max(latest - _LONGEST_CHARACTER, start + 1), latest))


def _start(passage: str, match: Span, room: int) -> int:
    spare = max(room - (match.end - match.start), 0)
    last_that_fills = len(passage) - room
    sentences = _SENTENCE_START.finditer(passage, max(match.start - spare, 0), match.start + 1)
    sentence = max((found.end() for found in sentences), default=0)
    if match.start - spare <= sentence <= last_that_fills:
        return sentence
    earliest = min(match.start - spare // 2, last_that_fills)
    if earliest <= 0:
        return 0
    space = passage.find(" ", earliest - 1, match.start)
    if space >= 0:
        return space + 1
    # Moving the cut back would cut the match at its end, so it moves forward.
    latest = min(match.start, earliest + _LONGEST_CHARACTER)
    return next((place for place in range(earliest, latest + 1) if may_cut(passage, place)), earliest)
