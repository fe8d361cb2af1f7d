"""Stores a data set through the library, runs its questions, and ranks by our search and by the baselines.

Nothing here sees the gold labels. Our rankings come from `space.threads.search` and `space.search` alone. The baselines
rank the same stored passages: one index alone, reciprocal ranks of the two, and counting words as grep would.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

import commonplace
from commonplace.embedding import Embedder
from commonplace.entry import Entry
from commonplace.filters import Filter, parse_conditions
from commonplace.language.tokenizer import query_terms
from commonplace.space.names import FILE, MESSAGE, name_of_entry, thread_of_entry
from commonplace.space.space import Space
from commonplace.store import Candidate
from quality_data import Corpus, Dataset, Level, Question

OURS = "commonplace"
KEYWORDS, VECTORS = "BM25", "vectors"
RRF = "RRF"
RIVALS = (KEYWORDS, VECTORS, RRF)
"""Our two indexes, each alone, and the plain fusion of both."""
SYSTEMS = ("grep", *RIVALS, OURS)
DEPTH = 10
BASELINE_DEPTH = 500  # of turns, so that ten sessions are among them
RRF_K = 60
LABELS = ("bench", "quality")


@dataclass(frozen=True, slots=True)
class Ranking:
    """The ids that one system returns for one question at one level, best first."""

    question: Question
    level: Level
    system: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Text:
    """A stored text with its id and, for a turn, its session's."""

    id: str
    session: str
    text: str
    is_ranked: bool


def rank_all(dataset: Dataset, embedder: Embedder, tell: Callable[[str], None]) -> Iterator[Ranking]:
    """Every ranking of every question, one corpus after the other."""
    for number, corpus in enumerate(dataset.corpora(), 1):
        start = time.perf_counter()
        with commonplace.open(":memory:", embedder=embedder, background=False) as book:
            space = book.space(*LABELS)
            store_corpus(space, corpus)
            book.indexer.run()
            stored = time.perf_counter() - start
            yield from _Ranker(book, space, corpus, embedder, dataset.levels).rankings()
        tell(f"{dataset.name}: corpus {number}, stored in {stored:.1f} s, {len(corpus.questions)} questions asked")


# Storing


def store_corpus(space: Space, corpus: Corpus) -> None:
    for session in corpus.sessions:
        thread = space.threads.create(id=session.id)
        messages: list[dict[str, object]] = []
        for number, turn in enumerate(session.turns):
            content: object = turn.text
            if turn.caption:
                content = [{"type": "text", "text": turn.text}, {"type": "image", "caption": turn.caption}]
            at = session.at + timedelta(seconds=number)
            message = {"id": turn.id, "role": turn.role, "content": content, "createdAt": at}
            messages.append({**message, "name": turn.speaker} if turn.speaker else message)
        space.threads.add(thread.id, [message for message in messages if _has_words(message["content"])])
    for document in corpus.documents:
        space.files.write(f"/{document.id}", document.text)


def _has_words(content: object) -> bool:
    return not isinstance(content, str) or bool(content.strip())


# Ranking


@dataclass(frozen=True, slots=True)
class _Ranker:
    """Runs the questions of one stored corpus."""

    book: commonplace.Book
    space: Space
    corpus: Corpus
    embedder: Embedder
    levels: tuple[Level, ...]

    def rankings(self) -> Iterator[Ranking]:
        texts = list(_texts(self.corpus))
        for question in self.corpus.questions:
            for level in self.levels:
                filter = self._filter(level)
                yield Ranking(question, level, OURS, self._ours(question, level))
                yield from self._baselines(question, level, filter)
                found = _grep(question.text, texts, level)
                ids = _first(one.session if level == "session" else one.id for one in found)
                yield Ranking(question, level, "grep", ids)

    def _ours(self, question: Question, level: Level) -> tuple[str, ...]:
        if level == "session":
            threads = self.space.threads.search(question.text, limit=DEPTH, now=question.now)
            return tuple(hit.thread.id for hit in threads)
        if level == "turn":
            hits = self.space.search(
                question.text, limit=DEPTH, kinds=[MESSAGE], filter=self._role_filter(), now=question.now
            )
            return tuple(hit.key for hit in hits)
        hits = self.space.search(question.text, limit=DEPTH, now=question.now)
        return tuple(hit.key.strip("/") for hit in hits)

    def _filter(self, level: Level) -> Filter:
        if level == "turn":
            return Filter(kinds=(MESSAGE,), conditions=parse_conditions(self._role_filter()))
        return Filter(kinds=(FILE,) if level == "document" else (MESSAGE,))

    def _role_filter(self) -> dict[str, object] | None:
        return {"role": self.corpus.searched_role} if self.corpus.searched_role else None

    def _baselines(self, question: Question, level: Level, filter: Filter) -> Iterator[Ranking]:
        store, namespace = self.book.store, self.space.namespace
        by_words = _ids(store.search_text(namespace, query_terms(question.text), filter, BASELINE_DEPTH))
        vector = self.embedder.embed([question.text], purpose="query")[0]
        serving, _ = store.models()
        assert serving is not None, "what is stored has been embedded"
        by_meaning = _ids(store.search_vectors(namespace, serving, vector, filter, BASELINE_DEPTH))
        entries = store.load(namespace, list(dict.fromkeys([*by_words, *by_meaning])))
        lists = {KEYWORDS: by_words, VECTORS: by_meaning, RRF: _reciprocal_ranks(by_words, by_meaning)}
        for system, ranked in lists.items():
            yield Ranking(question, level, system, _first(_id(entries[id], level) for id in ranked))


def _ids(candidates: Sequence[Candidate]) -> list[int]:
    return [candidate.entry_id for candidate in candidates]


def _reciprocal_ranks(*lists: Sequence[int]) -> list[int]:
    scores: dict[int, float] = {}
    for ranked in lists:
        for place, id in enumerate(ranked, 1):
            scores[id] = scores.get(id, 0.0) + 1.0 / (RRF_K + place)
    return sorted(scores, key=lambda id: -scores[id])


def _grep(query: str, texts: Iterable[Text], level: Level) -> list[Text]:
    """The texts by how many of the question's longer words they contain, the newest first among equals."""
    words = {word for word in re.findall(r"\w+", query.lower()) if len(word) > 3}
    ranked = [one for one in texts if level != "turn" or one.is_ranked]
    counted = [(sum(word in one.text for word in words), place) for place, one in enumerate(ranked)]
    return [ranked[place] for count, place in sorted(counted, reverse=True) if count]


def _texts(corpus: Corpus) -> Iterator[Text]:
    for session in sorted(corpus.sessions, key=lambda session: session.at):
        for turn in session.turns:
            spoken = f"{turn.speaker or ''} {turn.text} {turn.caption or ''}".lower()
            yield Text(turn.id, session.id, spoken, corpus.searched_role in (None, turn.role))
    for document in corpus.documents:
        yield Text(document.id, "", document.text.lower(), True)


def _first(ids: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(ids))[:DEPTH]


def _id(entry: Entry, level: Level) -> str:
    if level == "session":
        return thread_of_entry(entry) or ""
    return name_of_entry(entry).strip("/")
