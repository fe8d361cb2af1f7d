"""Fits the calibration of relevance and measures it: `python benchmarks/relevance.py FOLDER [--cache …] [--model …]`.

Every question is put to the memory that holds its evidence and to the memory of somebody else. A positive is a hit that
is evidence, a negative any hit in the memory of the other; hits of the own memory that are not marked as evidence are
not used, because they may be relevant. Each set has as much weight in its negatives as in its positives. The weights
are fitted on the questions with one hash, and all figures are of the others. The output has the lines for the table in
`commonplace.language.relevance`.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import commonplace
from commonplace.ambient.engine import MOST_RECALLED
from commonplace.embedding import Embedder, Purpose, create_embedder
from commonplace.embedding.catalog import MODELS
from commonplace.engine.embedders import with_sentences
from commonplace.errors import Unavailable
from commonplace.language.question import content_terms
from commonplace.language.relevance import CALIBRATIONS, KEYWORDS_ONLY, Calibration, holds_every_word
from quality_cache import CachedEmbedder
from quality_data import Corpus, Dataset, assistant_chats, devbench, locomo, precisionmembench, scifact, unnamed_needs
from quality_run import store_corpus

KEYWORDS = "keywords"
SHOWN = 10
"""A sample is one of the first so many hits."""
DEPTH = 20
"""How many hits are read, so that a hit that is left out is replaced by the next one."""
POOL_SHARE = 40  # of 256: the part of the unrelated sessions that is kept, so that a run embeds less
SHORT = 4
DOCUMENTS = 400
BINS = 10
NEW_FLOOR = 0.02
"""Of a model that has none yet; then choose one by the table of floors."""
FLOORS = (0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.1, 0.2)
UNASKED_FLOORS = (0.015, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7)
SEED = 7
GOALS = {"AUROC": 0.85, "ECE": 0.05, "recall@5 lost": 0.01}
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Case:
    """Memories of one kind, each with its own questions; `wanted` is the evidence of each question."""

    name: str
    corpora: tuple[Corpus, ...]
    wanted: Mapping[str, frozenset[str]]
    unanswerable: frozenset[str] = frozenset()
    """Questions that are asked only to report what is left of their hits."""


@dataclass(frozen=True, slots=True)
class Found:
    """A hit: the parts of its score, and what is known of it."""

    place: int
    keyword: float
    meaning: float | None
    is_evidence: bool
    has_every_word: bool


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with its hits in its own memory and in that of somebody else, best first."""

    set: str
    question: str
    evidence: int
    is_answerable: bool
    own: tuple[Found, ...]
    other: tuple[Found, ...]

    @property
    def is_fitted(self) -> bool:
        return hashlib.sha256(f"relevance:{self.question}".encode()).digest()[0] < 128


# The data


def cases(folder: Path) -> Iterator[Case]:
    people = locomo(folder)
    yield Case("LoCoMo", tuple(people.corpora()), people.gold.relevant["turn"], people.gold.types["adversarial"])
    chats, unanswerable = assistant_chats(folder), assistant_chats(folder, answerable=False)
    wanted = {**chats.gold.relevant["turn"], **unanswerable.gold.relevant["turn"]}
    corpora = tuple(_smaller(corpus, wanted) for one in (chats, unanswerable) for corpus in one.corpora())
    said = {turn.id for corpus in corpora for session in corpus.sessions for turn in session.turns}
    by_user = {question: ids & said for question, ids in wanted.items()}
    yield Case("LongMemEval", corpora, by_user, frozenset(unanswerable.gold.relevant["turn"]))
    needs = unnamed_needs(folder)
    memories = needs.gold.relevant["turn"]
    yield Case("Needs not named", tuple(_smaller(corpus, memories) for corpus in needs.corpora()), memories)
    yield _halves(scifact(folder))
    small = (devbench(folder), precisionmembench(folder))
    wanted = {id: ids for one in small for id, ids in one.gold.relevant["document"].items()}
    yield Case("Small memories", tuple(corpus for one in small for corpus in one.corpora()), wanted)


def _smaller(corpus: Corpus, wanted: Mapping[str, frozenset[str]]) -> Corpus:
    """What the user said, in the sessions with evidence, in short ones and in a sixth of the others."""
    evidence = {id for question in corpus.questions for id in wanted[question.id]}
    sessions = []
    for session in corpus.sessions:
        said = tuple(turn for turn in session.turns if turn.role == "user" and turn.text.strip())
        is_drawn = bool(said) and hashlib.sha256(said[0].text.encode()).digest()[0] < POOL_SHARE
        if said and (is_drawn or len(session.turns) <= SHORT or not evidence.isdisjoint(turn.id for turn in said)):
            sessions.append(replace(session, turns=said))
    return replace(corpus, sessions=tuple(sessions))


def _halves(dataset: Dataset) -> Case:
    """Two memories, each with half of some documents; a claim whose evidence is in both is not used."""
    (corpus,) = dataset.corpora()
    wanted = dataset.gold.relevant["document"]
    evidence = {id for ids in wanted.values() for id in ids}
    others = [document for document in corpus.documents if document.id not in evidence]
    drawn = random.Random(SEED).sample(others, DOCUMENTS - len(evidence))
    documents = [*(document for document in corpus.documents if document.id in evidence), *drawn]

    def half(id: str) -> int:
        return hashlib.sha256(id.encode()).digest()[0] % 2

    corpora = tuple(
        Corpus(
            tuple(one for one in corpus.questions if {half(id) for id in wanted[one.id]} == {side}),
            documents=tuple(document for document in documents if half(document.id) == side),
        )
        for side in (0, 1)
    )
    return Case(dataset.name, corpora, wanted)


class NoVectors:
    """An embedder that is never available, so that keywords answer alone."""

    identity = "none"
    dimensions = 1
    calibration = (0.0, 1.0)

    def embed(self, texts: Sequence[str], *, purpose: Purpose) -> NDArray[np.float32]:
        raise Unavailable("this run uses keywords only")


def ask(case: Case, embedder: Embedder) -> Iterator[Asked]:
    """Every question, put to its own memory and to the next one."""
    with commonplace.open(":memory:", embedder=embedder, background=False) as book:
        spaces = [book.space("bench", str(number)) for number in range(len(case.corpora))]
        for space, corpus in zip(spaces, case.corpora, strict=True):
            store_corpus(space, corpus)
        if not isinstance(embedder, NoVectors):
            book.indexer.run()
        for number, corpus in enumerate(case.corpora):
            for question in corpus.questions:
                wanted = case.wanted.get(question.id, frozenset())
                if not wanted and question.id not in case.unanswerable:
                    continue
                words = content_terms(question.text)

                def find(place: int, wanted: frozenset[str]) -> tuple[Found, ...]:
                    hits = spaces[place % len(spaces)].search(question.text, limit=DEPTH, now=question.now)  # noqa: B023
                    return tuple(
                        Found(
                            rank,
                            hit.parts.get("keyword", 0.0),
                            hit.parts.get("meaning"),
                            hit.key.strip("/") in wanted,
                            holds_every_word(words, hit.entry.heading, hit.entry.text),  # noqa: B023
                        )
                        for rank, hit in enumerate(hits)
                    )

                yield Asked(
                    case.name,
                    question.id,
                    len(wanted),
                    question.id not in case.unanswerable,
                    find(number, wanted),
                    find(number + 1, frozenset()),
                )


# The fit


@dataclass(frozen=True, slots=True)
class Samples:
    """Hits as arrays: their evidence, whether they are relevant, and their weights."""

    evidence: Floats
    is_relevant: Floats
    weight: Floats

    @property
    def count(self) -> int:
        return int(self.is_relevant.sum())


def samples(asked: Iterable[Asked]) -> Samples:
    chosen = [
        (one.set, found)
        for one in asked
        if one.is_answerable
        for found in (*(hit for hit in one.own if hit.is_evidence), *one.other)
        if found.place < SHOWN
    ]
    counts: dict[tuple[str, bool], int] = {}
    for name, found in chosen:
        counts[name, found.is_evidence] = counts.get((name, found.is_evidence), 0) + 1
    weights = [
        1.0 if found.is_evidence else counts.get((name, True), 0) / counts[name, False] for name, found in chosen
    ]
    return Samples(
        _evidence([found for _, found in chosen]),
        np.array([float(found.is_evidence) for _, found in chosen]),
        np.array(weights),
    )


def _evidence(found: Sequence[Found]) -> Floats:
    keyword = np.array([one.keyword for one in found])
    meaning = np.array([one.meaning or 0.0 for one in found])
    return np.stack([np.ones_like(keyword), np.sqrt(keyword), meaning, keyword * meaning], axis=1)


def fit(some: Samples, *, with_meaning: bool) -> Calibration:
    """Logistic regression by Newton's method. A weight below 0 is set to 0, and the others are fitted again."""
    used = [0, 1, 2, 3] if with_meaning else [0, 1]
    weight = some.weight / some.weight.sum()
    while True:
        evidence = some.evidence[:, used]
        fitted = np.zeros(len(used))
        for _ in range(100):
            probability = 1.0 / (1.0 + np.exp(-evidence @ fitted))
            slope = evidence.T @ (weight * (some.is_relevant - probability))
            curve = (evidence * (weight * probability * (1.0 - probability))[:, None]).T @ evidence
            step = np.linalg.solve(curve + 1e-6 * np.eye(len(used)), slope)
            fitted += step
            if np.abs(step).max() < 1e-9:
                break
        negative = [place for place, value in zip(used[1:], fitted[1:], strict=True) if value < 0]
        if not negative:
            break
        used = [place for place in used if place not in negative]
    weights = dict(zip(used, fitted, strict=True))
    return Calibration(*(round(float(weights.get(place, 0.0)), 3) for place in range(4)))


# The figures


def relevances(found: Sequence[Found], calibration: Calibration) -> Floats:
    return np.array([calibration.relevance(one.keyword, one.meaning or 0.0) for one in found])


def area(probability: Floats, some: Samples) -> float:
    """The area under the ROC curve: how often a relevant hit has the higher probability of the two."""
    order = np.argsort(probability, kind="stable")
    values, starts = np.unique(probability[order], return_index=True)
    positive = np.add.reduceat((some.weight * some.is_relevant)[order], starts)
    negative = np.add.reduceat((some.weight * (1.0 - some.is_relevant))[order], starts)
    below = np.cumsum(negative) - negative
    assert len(values) == len(starts)
    return float((positive * (below + negative / 2)).sum() / (positive.sum() * negative.sum()))


def calibration_error(probability: Floats, some: Samples) -> float:
    """Expected calibration error, in bins of equal width."""
    bins = np.minimum((probability * BINS).astype(int), BINS - 1)
    error = 0.0
    for number in range(BINS):
        inside = bins == number
        weight = some.weight[inside]
        if weight.sum():
            gap = (weight * (probability - some.is_relevant)[inside]).sum()
            error += abs(float(gap))
    return error / float(some.weight.sum())


def kept(found: Sequence[Found], calibration: Calibration, floor: float) -> list[Found]:
    """What a search with a floor keeps."""
    return [
        one
        for one, value in zip(found, relevances(found, calibration), strict=True)
        if value >= floor or one.has_every_word
    ]


def recall(found: Sequence[Found], asked: Asked, first: int = 5) -> float:
    return sum(one.is_evidence for one in found[:first]) / asked.evidence


def report(asked: Sequence[Asked], calibration: Calibration) -> dict[str, float]:
    """Print a table of the questions that nothing was fitted on; return the pooled figures."""
    measured = [one for one in asked if not one.is_fitted]
    names = list(dict.fromkeys(one.set for one in measured))
    print("| set | questions | evidence | AUROC | ECE | recall@5 | lost | other memory: empty | kept of 10 |")
    print("| --- " * 9 + "|")
    pooled: dict[str, float] = {}
    for name in (*names, "all"):
        some = [one for one in measured if one.is_answerable and name in (one.set, "all")]
        chosen = samples(some)
        probability = np.array([_probability(row, calibration) for row in chosen.evidence])
        before = float(np.mean([recall(one.own, one) for one in some]))
        after = float(np.mean([recall(kept(one.own, calibration, calibration.floor), one) for one in some]))
        empty, left = _left([one.other for one in some], calibration)
        pooled = {
            "AUROC": area(probability, chosen),
            "ECE": calibration_error(probability, chosen),
            "recall@5 lost": before - after,
        }
        print(
            f"| {name} | {len(some)} | {chosen.count} | {pooled['AUROC']:.3f} | {pooled['ECE']:.3f} | {before:.3f} | "
            f"{100 * (before - after):+.2f} points | {empty:.2f} | {left:.1f} |"
        )
    for name in names:
        own = [one.own for one in asked if not one.is_answerable and one.set == name]
        if own:
            empty, left = _left(own, calibration)
            print(f"\n{name}, {len(own)} questions without an answer: empty {empty:.2f}, kept of 10 {left:.1f}")
    return pooled


def sweep(asked: Sequence[Asked], calibration: Calibration) -> None:
    """Print what other floors would cost and do, on the questions that nothing was fitted on."""
    measured = [one for one in asked if not one.is_fitted and one.is_answerable]
    names = list(dict.fromkeys(one.set for one in measured))
    print(f"\n| floor | recall@5 lost in points: all | {' | '.join(names)} | other memory: empty | kept of 10 |")
    print("| --- " * (len(names) + 4) + "|")
    for floor in FLOORS:
        lost = []
        for name in ("all", *names):
            some = [one for one in measured if name in (one.set, "all")]
            lost.append(
                np.mean([recall(one.own, one) - recall(kept(one.own, calibration, floor), one) for one in some])
            )
        empty, left = _left([one.other for one in measured], calibration, floor)
        print(f"| {floor} | {' | '.join(f'{100 * one:+.2f}' for one in lost)} | {empty:.2f} | {left:.1f} |")


def unasked(asked: Sequence[Asked], calibration: Calibration) -> None:
    """Print what floors do for what is recalled without being asked for (`commonplace.ambient`): few hits, or none."""
    measured = [one for one in asked if not one.is_fitted and one.is_answerable]
    names = list(dict.fromkeys(one.set for one in measured))
    print(
        f"\n| floor | evidence among {MOST_RECALLED}: {' | '.join(names)} | other memory: silent: {' | '.join(names)} |"
    )
    print("| --- " * (2 * len(names) + 1) + "|")
    for floor in UNASKED_FLOORS:
        found: list[float] = []
        silent: list[float] = []
        for name in names:
            some = [one for one in measured if one.set == name]
            own = [_recalled(one.own, calibration, floor) for one in some]
            found.append(float(np.mean([any(hit.is_evidence for hit in hits) for hits in own])))
            silent.append(float(np.mean([not _recalled(one.other, calibration, floor) for one in some])))
        print(f"| {floor} | {' | '.join(f'{one:.2f}' for one in (*found, *silent))} |")


def _recalled(found: Sequence[Found], calibration: Calibration, floor: float) -> list[Found]:
    values = relevances(found, calibration)
    return [one for one, value in zip(found, values, strict=True) if value >= floor][:MOST_RECALLED]


def _probability(row: Floats, calibration: Calibration) -> float:
    return calibration.relevance(float(row[1]) ** 2, float(row[2]))


def _left(
    lists: Sequence[Sequence[Found]], calibration: Calibration, floor: float | None = None
) -> tuple[float, float]:
    """How many of these searches find nothing relevant, and how many of the first ten hits are kept."""
    counts = [len(kept(found[:SHOWN], calibration, calibration.floor if floor is None else floor)) for found in lists]
    return float(np.mean([count == 0 for count in counts])), float(np.mean(counts))


def misses(figures: Mapping[str, float]) -> list[str]:
    is_met = {name: figures[name] >= goal if name == "AUROC" else figures[name] <= goal for name, goal in GOALS.items()}
    return [f"{name} is {figures[name]:.3f}, the goal is {goal}" for name, goal in GOALS.items() if not is_met[name]]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="the folder of the data sets, which are not part of this repository")
    known = [KEYWORDS, *(model.id for model in MODELS)]
    parser.add_argument("--model", action="append", help=f"may be given several times; by default {', '.join(known)}")
    parser.add_argument("--cache", type=Path, metavar="FOLDER", help="cache vectors there")
    options = parser.parse_args(arguments)
    missed: list[str] = []
    for name in options.model or known:
        embedder: Embedder = NoVectors() if name == KEYWORDS else create_embedder(name)
        if options.cache is not None and name != KEYWORDS:
            embedder = CachedEmbedder(embedder, options.cache)
        asked: list[Asked] = []
        for case in cases(options.folder):
            asked += ask(case, embedder)
            print(f"{name}: {case.name}", file=sys.stderr, flush=True)
        known_one = KEYWORDS_ONLY if name == KEYWORDS else CALIBRATIONS.get(with_sentences(embedder).identity)
        fitted = fit(samples([one for one in asked if one.is_fitted]), with_meaning=name != KEYWORDS)
        fitted = replace(fitted, floor=NEW_FLOOR if known_one is None else known_one.floor)
        print(f"\n## {name}\n\nidentity {with_sentences(embedder).identity}\n{fitted}\n")
        faults = misses(report(asked, fitted))
        sweep(asked, fitted)
        unasked(asked, fitted)
        print(f"\n{'; '.join(faults) or 'every goal is reached'}", flush=True)
        missed += faults
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
