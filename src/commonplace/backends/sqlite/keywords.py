"""The keyword index on FTS5: our own terms, one posting list a namespace, BM25 by the namespace's own counts.

FTS5 only keeps the lists. A term carries its namespace's number in front and its frequency level behind, and a
rowid its passage's length step, so a score needs no look at any row (see docs/decisions/002).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import nlargest

from commonplace.backends.sqlite.connection import Connection
from commonplace.language import bm25
from commonplace.language.passages import (
    LENGTH_STEPS,
    LEVEL_FREQUENCY,
    STEP_LENGTH,
    length_step,
)
from commonplace.store import TermCounts

# FTS5's ascii tokenizer splits at ASCII punctuation: it goes to the private-use area, where nothing is split.
_PUNCTUATION = {code: 0xE100 + code for code in range(0x21, 0x7F) if not chr(code).isalnum()}
_AFTER_NAMESPACE = "\ue000"
_LEVEL_MARKS = {2: "\ue002"}
_MANY = "\ue003"


@dataclass(frozen=True, slots=True)
class Counts:
    """What BM25 knows of a namespace."""

    namespace_id: int
    passages: int
    total_length: int


def rowid(chunk_id: int, length: int) -> int:
    return chunk_id * LENGTH_STEPS + length_step(length)


def chunk_of(row: int) -> int:
    return row // LENGTH_STEPS


def tokens(namespace_id: int, terms: Mapping[str, int]) -> str:
    """The terms of a passage as FTS5 is given them."""
    prefix = f"{namespace_id}{_AFTER_NAMESPACE}"
    marked = [term if count == 1 else term + _LEVEL_MARKS.get(count, _MANY) for term, count in terms.items()]
    if not "".join(terms).isalnum():
        marked = [term.translate(_PUNCTUATION) for term in marked]
    return prefix + f" {prefix}".join(marked) if marked else ""


def rank(
    connection: Connection, counts: Counts, terms: Mapping[str, float], keep: int | None, known: Iterable[int] = ()
) -> tuple[list[tuple[int, float]], dict[int, float]]:
    """Chunks with their scores as a share of the ceiling, best first: the best `keep`, or all.

    Rare terms come first. Once the terms that remain cannot lift a new passage among the best `keep`, their lists only
    add to the passages already found; so a common word costs little. The rowids in `known` are scored in any case.
    """
    postings = list(_postings(connection, counts.namespace_id, terms))
    average = counts.total_length / max(1, counts.passages)
    tables = []
    for weight, levels in postings:
        containing = sum(len(rows) for _, rows in levels)
        tables.append((containing, weight * bm25.idf(counts.passages, containing), levels))
    ceiling = bm25.ceiling((1.0, idf) for _, idf, _ in tables)
    if ceiling <= 0:
        return [], {}
    scores = dict.fromkeys(known, 0.0)
    bound = ceiling
    is_open = True
    for containing, idf, levels in sorted(tables, key=lambda table: table[0]):
        if not containing:
            continue
        # No score is above what the terms so far can give: only when that is more than the rest, it needs a look.
        if is_open and keep is not None and len(scores) >= keep and ceiling - bound > bound:
            is_open = nlargest(keep, scores.values())[-1] < bound
        bound -= idf
        for frequency, rows in levels:
            steps = [bm25.contribution(idf, frequency, length, average) for length in STEP_LENGTH]
            for row in rows if is_open else scores.keys() & rows:
                scores[row] = scores.get(row, 0.0) + steps[row % LENGTH_STEPS]
    floor = nlargest(keep, scores.values())[-1] if keep is not None and len(scores) > keep else 0.0
    ranked = sorted([(score, row) for row, score in scores.items() if score and score >= floor], reverse=True)[:keep]
    shares = [(chunk_of(row), min(1.0, score / ceiling)) for score, row in ranked]
    return shares, {chunk_of(row): min(1.0, scores[row] / ceiling) for row in known if scores[row]}


def term_counts(connection: Connection, counts: Counts, terms: Iterable[str]) -> TermCounts:
    weights = dict.fromkeys(terms, 1.0)
    postings = _postings(connection, counts.namespace_id, weights)
    return TermCounts(
        counts.passages,
        counts.total_length / max(1, counts.passages),
        {term: sum(len(rows) for _, rows in levels) for term, (_, levels) in zip(weights, postings, strict=True)},
    )


def _postings(
    connection: Connection, namespace_id: int, terms: Mapping[str, float]
) -> Iterable[tuple[float, list[tuple[float, list[int]]]]]:
    phrases = [f'"{tokens(namespace_id, {term: level})}"' for term in terms for level in LEVEL_FREQUENCY]
    lists = iter(
        connection.execute(
            "SELECT (SELECT json_group_array(rowid) FROM keywords WHERE keywords MATCH phrase.value)"
            " FROM json_each(?) AS phrase ORDER BY phrase.key",
            (json.dumps(phrases),),
        )
    )
    for weight in terms.values():
        levels = []
        for frequency in LEVEL_FREQUENCY.values():
            rows = json.loads(next(lists)[0])
            if rows:
                levels.append((frequency, rows))
        yield weight, levels
