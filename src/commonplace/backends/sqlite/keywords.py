"""The keyword index on FTS5: our own terms, one posting list a namespace, BM25 by the namespace's own counts.

FTS5 only keeps the lists. A term carries its namespace's number in front and its frequency level behind, and a
rowid its passage's length step, so a score needs no look at any row (see docs/decisions/002).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from commonplace.backends.ranking import Counts, Postings, score
from commonplace.backends.sqlite.connection import Connection
from commonplace.errors import Corrupt
from commonplace.language.passages import LEVEL_FREQUENCY
from commonplace.store import TermCounts

# FTS5's ascii tokenizer splits at ASCII punctuation: it goes to the private-use area, where nothing is split.
_PUNCTUATION = {code: 0xE100 + code for code in range(0x21, 0x7F) if not chr(code).isalnum()}
_AFTER_NAMESPACE = "\ue000"
_LEVEL_MARKS = {2: "\ue002"}
_MANY = "\ue003"


def tokens(namespace_id: int, terms: Mapping[str, int]) -> str:
    """The terms of a passage as FTS5 is given them."""
    prefix = f"{namespace_id}{_AFTER_NAMESPACE}"
    marked = [term if count == 1 else term + _LEVEL_MARKS.get(count, _MANY) for term, count in terms.items()]
    if not "".join(terms).isalnum():
        marked = [term.translate(_PUNCTUATION) for term in marked]
    return prefix + f" {prefix}".join(marked) if marked else ""


def rank(
    connection: Connection, counts: Counts, terms: Mapping[str, float], keep: int | None, known: Sequence[int] = ()
) -> tuple[list[tuple[int, float]], dict[int, float]]:
    """Chunks with their scores, best first, and those of the rowids in `known`."""
    return score(counts, _postings(connection, counts, terms), keep, known)


def term_counts(connection: Connection, counts: Counts, terms: Iterable[str]) -> TermCounts:
    weights = dict.fromkeys(terms, 1.0)
    postings = _postings(connection, counts, weights)
    return TermCounts(
        counts.passages,
        counts.average_length,
        {term: sum(len(rows) for _, rows in found.levels) for term, found in zip(weights, postings, strict=True)},
    )


def _postings(connection: Connection, counts: Counts, terms: Mapping[str, float]) -> Iterable[Postings]:
    namespace_id, passages = counts.namespace_id, counts.passages
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
        if sum(len(rows) for _, rows in levels) > passages:  # BM25 has no number for this
            raise Corrupt("the keyword index is damaged; run `commonplace reindex --keywords`")
        yield Postings(weight, levels)
