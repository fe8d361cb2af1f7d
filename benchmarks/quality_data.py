"""The data sets, read from a folder: what is stored, the questions, and, separately, the gold labels.

Every id is replaced by an opaque one before anything is stored, because names such as `answer_17` would reveal the
answer. The gold labels are in a separate object, which only the scorer gets.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

Level = Literal["session", "turn", "document"]
DEVELOPMENT_SHARE = 171  # of 256: two questions in three
FILLER_HAYSTACKS = 8
LARGE_HAYSTACKS = 9  # of eleven or twelve questions each: 500 sessions and more


@dataclass(frozen=True, slots=True)
class Turn:
    id: str
    role: str
    text: str
    speaker: str | None = None
    caption: str | None = None


@dataclass(frozen=True, slots=True)
class Session:
    id: str
    at: datetime
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Document:
    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Question:
    id: str
    text: str
    now: datetime | None = None
    is_development: bool = False


@dataclass(frozen=True, slots=True)
class Corpus:
    """What is stored in one namespace, and its questions."""

    questions: tuple[Question, ...]
    sessions: tuple[Session, ...] = ()
    documents: tuple[Document, ...] = ()
    searched_role: str | None = None
    """The roles whose turns are ranked, if the set's definition leaves others out."""


@dataclass(frozen=True, slots=True)
class Gold:
    """The relevant ids for each level and question.

    `groups` names parts of the questions that have official figures of their own, `types` the set's question types.
    """

    relevant: Mapping[Level, Mapping[str, frozenset[str]]]
    groups: Mapping[str, frozenset[str]] = field(default_factory=dict)
    types: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Dataset:
    name: str
    corpora: Callable[[], Iterator[Corpus]]
    gold: Gold
    questions: int

    @property
    def levels(self) -> tuple[Level, ...]:
        """What is ranked."""
        return tuple(self.gold.relevant)


def by_type(typed: Iterable[tuple[str, str]]) -> dict[str, frozenset[str]]:
    """The questions of each type, from pairs of a type and a question."""
    found: dict[str, set[str]] = {}
    for type, question in typed:
        found.setdefault(type, set()).add(question)
    return {type: frozenset(found[type]) for type in sorted(found)}


def opaque(*names: object) -> str:
    return hashlib.sha256("\0".join(map(str, ("opaque", *names))).encode()).hexdigest()[:24]


def is_development(dataset: str, question: str) -> bool:
    """The split, by a hash of the set's name and the question's id, so that it is the same on every machine."""
    return hashlib.sha256(f"{dataset}:{question}".encode()).digest()[0] < DEVELOPMENT_SHARE


# Conversations


def longmemeval(folder: Path) -> Dataset:
    """LongMemEval-S: each question has its own haystack of about 50 sessions."""
    items = _longmemeval_items(folder)
    sessions: dict[str, frozenset[str]] = {}
    turns: dict[str, frozenset[str]] = {}
    for item in items:
        question = opaque("longmemeval", item["question_id"])
        wanted = set(item["answer_session_ids"])
        sessions[question] = frozenset(
            opaque(question, number) for number, id in enumerate(item["haystack_session_ids"]) if id in wanted
        )
        if marked := _evidence(question, item, roles=("user",)):
            turns[question] = marked
    answered = frozenset(
        opaque("longmemeval", item["question_id"]) for item in items if "_abs" not in item["question_id"]
    )
    gold = Gold({"session": sessions, "turn": turns}, {"without abstention": answered}, _longmemeval_types(items))
    return Dataset("LongMemEval-S", lambda: (_haystack(item, searched_role="user") for item in items), gold, len(items))


def assistant_chats(folder: Path, *, answerable: bool = True) -> Dataset:
    """LongMemEval-S with the turns of both roles ranked: what an assistant said is found with what its user said.

    Evidence is every turn marked `has_answer`, of either role. Questions without an answer are left out, or the others.
    The other sessions of a history are drawn from a few haystacks, so that a run embeds a fifth of what all haystacks
    hold.
    """
    all_items = _longmemeval_items(folder)
    filler = filler_sessions(all_items)
    items = []
    turns = {}
    for item in all_items:
        question = opaque("longmemeval", item["question_id"])
        marked = _evidence(question, item, roles=("user", "assistant"))
        is_answerable = "_abs" not in item["question_id"]
        if is_answerable == answerable and (marked or not answerable):
            items.append(_with_filler(item, filler))
            turns[question] = marked
    gold = Gold({"turn": turns}, types=_longmemeval_types(items))
    return Dataset("Assistant chats", lambda: map(_haystack, items), gold, len(items))


RawSession = list[dict[str, Any]]
"""Turns as LongMemEval writes them."""


def filler_sessions(items: Iterable[dict[str, Any]]) -> list[RawSession]:
    """The sessions without evidence of a few development haystacks, each once: histories around other evidence."""
    chosen = [item for item in items if is_development("longmemeval", item["question_id"])]
    chosen.sort(key=lambda item: hashlib.sha256(opaque("longmemeval", item["question_id"]).encode()).digest())
    found: dict[str, RawSession] = {}
    for item in chosen[:FILLER_HAYSTACKS]:
        for id, session in zip(item["haystack_session_ids"], item["haystack_sessions"], strict=True):
            if id not in item["answer_session_ids"] and any(turn["content"].strip() for turn in session):
                found.setdefault(json.dumps(session), session)
    return list(found.values())


def _with_filler(item: dict[str, Any], filler: Sequence[RawSession]) -> dict[str, Any]:
    """The item with other sessions in place of those without evidence, at the same dates."""
    places = [place for place, id in enumerate(item["haystack_session_ids"]) if id not in item["answer_session_ids"]]
    drawn = random.Random(item["question_id"]).sample(filler, min(len(places), len(filler)))
    sessions = list(item["haystack_sessions"])
    for place, session in zip(places, drawn, strict=False):
        sessions[place] = session
    return {**item, "haystack_sessions": sessions}


def _longmemeval_items(folder: Path) -> list[dict[str, Any]]:
    with gzip.open(folder / "longmemeval_s_dev100.json.gz") as file:
        items: list[dict[str, Any]] = json.load(file)
    return items


def _longmemeval_types(items: Iterable[dict[str, Any]]) -> dict[str, frozenset[str]]:
    return by_type((item["question_type"], opaque("longmemeval", item["question_id"])) for item in items)


def _evidence(question: str, item: dict[str, Any], roles: tuple[str, ...]) -> frozenset[str]:
    return frozenset(
        opaque(question, number, place)
        for number, session in enumerate(item["haystack_sessions"])
        for place, turn in enumerate(session)
        if turn.get("has_answer") and turn["role"] in roles
    )


def large_longmemeval(folder: Path) -> Dataset:
    """LongMemEval-S with the haystacks of several questions in one namespace; equal sessions are stored once."""
    alone = longmemeval(folder)
    haystacks = list(alone.corpora())
    names: dict[str, str] = {}
    corpora = []
    for number in range(LARGE_HAYSTACKS):
        some = haystacks[number::LARGE_HAYSTACKS]
        kept: dict[tuple[str, ...], Session] = {}
        for session in (session for corpus in some for session in corpus.sessions):
            names[session.id] = kept.setdefault(tuple(turn.text for turn in session.turns), session).id
        questions = tuple(question for corpus in some for question in corpus.questions)
        corpora.append(Corpus(questions, tuple(kept.values()), searched_role="user"))
    wanted = {question: frozenset(names[id] for id in ids) for question, ids in alone.gold.relevant["session"].items()}
    gold = Gold({"session": wanted}, types=alone.gold.types)
    return Dataset("LongMemEval-S, 500 sessions", lambda: iter(corpora), gold, alone.questions)


def _haystack(item: dict[str, Any], searched_role: str | None = None) -> Corpus:
    question = opaque("longmemeval", item["question_id"])
    sessions = []
    for number, (date, session) in enumerate(zip(item["haystack_dates"], item["haystack_sessions"], strict=True)):
        turns = tuple(
            Turn(opaque(question, number, place), turn["role"], turn["content"]) for place, turn in enumerate(session)
        )
        sessions.append(Session(opaque(question, number), _date(date), turns))
    asked = Question(
        question, item["question"], _date(item["question_date"]), is_development("longmemeval", item["question_id"])
    )
    return Corpus((asked,), tuple(sessions), searched_role=searched_role)


def _date(text: str) -> datetime:
    return datetime.strptime(re.sub(r" \(\w+\)", "", text), "%Y/%m/%d %H:%M").replace(tzinfo=UTC)


LOCOMO_TYPES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}


def locomo(folder: Path) -> Dataset:
    """LoCoMo: two people over months; a namespace holds one pair's sessions."""
    items: list[dict[str, Any]] = json.loads((folder / "locomo_dev5.json").read_text(encoding="utf-8"))
    sessions: dict[str, frozenset[str]] = {}
    turns: dict[str, frozenset[str]] = {}
    types = []
    for item in items:
        pair = item["sample_id"]
        known = {turn["dia_id"] for _, talk in _talks(item) for turn in talk}
        for number, asked in enumerate(item["qa"]):
            named = {id for text in asked.get("evidence", ()) for id in re.findall(r"D\d+:\d+", text)} & known
            if named:
                question = opaque(pair, "question", number)
                turns[question] = frozenset(opaque(pair, id) for id in named)
                sessions[question] = frozenset(opaque(pair, id.partition(":")[0]) for id in named)
                types.append((LOCOMO_TYPES[asked["category"]], question))
    answerable = frozenset(question for type, question in types if type != "adversarial")
    gold = Gold({"session": sessions, "turn": turns}, {"categories 1-4": answerable}, by_type(types))
    return Dataset("LoCoMo", lambda: map(_pair, items), gold, len(turns))


def _talks(item: dict[str, Any]) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    number = 1
    while talk := item["conversation"].get(f"session_{number}"):
        yield number, talk
        number += 1


def _pair(item: dict[str, Any]) -> Corpus:
    pair, conversation = item["sample_id"], item["conversation"]
    sessions = []
    for number, talk in _talks(item):
        at = datetime.strptime(conversation[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
        turns = tuple(
            Turn(
                opaque(pair, turn["dia_id"]),
                "user" if turn["speaker"] == conversation["speaker_a"] else "assistant",
                turn["text"],
                turn["speaker"],
                turn.get("blip_caption"),
            )
            for turn in talk
        )
        sessions.append(Session(opaque(pair, f"D{number}"), at, turns))
    last = max(session.at for session in sessions) + timedelta(days=1)
    questions = tuple(
        Question(
            opaque(pair, "question", number), asked["question"], last, is_development("locomo", f"{pair}:{number}")
        )
        for number, asked in enumerate(item["qa"])
    )
    return Corpus(questions, tuple(sessions))


# Needs that are not named

PAIRS = Path(__file__).parent / "data" / "unnamed_needs.jsonl"
HISTORY_SESSIONS = 45
HISTORY_START = datetime(2023, 1, 2, 8, tzinfo=UTC)
HELD_BACK_SHARE = 128  # of 256: one pair in two


def unnamed_needs(folder: Path, *, held_back: bool = False) -> Dataset:
    """Something said in passing in a short session, and a question that it bears on without sharing its words.

    The pairs of `data/unnamed_needs.jsonl` and the preference questions of LongMemEval-S, each in a history of its own.
    Half of them are held back, and are neither stored nor asked without `held_back`.
    """
    items = _longmemeval_items(folder)
    filler = filler_sessions(items)
    corpora: list[Corpus] = []
    wanted: dict[str, frozenset[str]] = {}
    types: list[tuple[str, str]] = []
    for pair in _lines(PAIRS):
        corpora.append(_history(pair, filler))
        question = corpora[-1].questions[0]
        wanted[question.id] = frozenset([opaque(question.id, "memory", pair["evidence"])])
        types.append(("with decoys" if pair["decoys"] else "without decoys", question.id))
    for item in (item for item in items if item["question_type"] == "single-session-preference"):
        corpora.append(_haystack(_with_filler(item, filler)))
        question = corpora[-1].questions[0]
        wanted[question.id] = _evidence(question.id, item, roles=("user",))
        types.append(("preference", question.id))
    corpora = [corpus for corpus in corpora if held_back or corpus.questions[0].is_development]
    asked = {corpus.questions[0].id for corpus in corpora}
    gold = Gold(
        {"turn": {question: ids for question, ids in wanted.items() if question in asked}},
        types=by_type((type, question) for type, question in types if question in asked),
    )
    return Dataset("Needs not named", lambda: iter(corpora), gold, len(corpora))


def _history(pair: dict[str, Any], filler: Sequence[RawSession]) -> Corpus:
    """The pair's sessions among others that have nothing to do with them, in an order and at times fixed by its id."""
    question = opaque("unnamed-needs", pair["id"])
    chance = random.Random(question)
    drawn = chance.sample(filler, min(HISTORY_SESSIONS, len(filler)))
    named_sessions = [
        ("memory", pair["session"]),
        *((f"decoy {number}", decoy) for number, decoy in enumerate(pair["decoys"])),
    ]
    named = [*named_sessions, *((f"filler {number}", session) for number, session in enumerate(drawn))]
    chance.shuffle(named)
    at = HISTORY_START
    sessions = []
    for name, session in named:
        turns = tuple(
            Turn(opaque(question, name, place), turn["role"], turn["content"]) for place, turn in enumerate(session)
        )
        sessions.append(Session(opaque(question, name), at, turns))
        at += timedelta(minutes=chance.randrange(600, 6_000))
    is_shown = hashlib.sha256(f"unnamed-needs:{pair['id']}".encode()).digest()[0] >= HELD_BACK_SHARE
    return Corpus((Question(question, pair["question"], at, is_shown),), tuple(sessions))


# Documents and memories


def scifact(folder: Path) -> Dataset:
    """BEIR SciFact: the query is a claim, and relevant abstracts are wanted; the judged test queries."""
    base = folder / "scifact"
    relevant: dict[str, set[str]] = {}
    with (base / "qrels" / "test.tsv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            if int(row["score"]) > 0:
                relevant.setdefault(row["query-id"], set()).add(opaque("scifact", row["corpus-id"]))
    texts = {row["_id"]: row["text"] for row in _lines(base / "queries.jsonl")}
    documents = tuple(
        Document(opaque("scifact", row["_id"]), f"{row['title']}\n\n{row['text']}")
        for row in _lines(base / "corpus.jsonl")
    )
    questions = tuple(
        Question(opaque("claim", id), texts[id], is_development=is_development("scifact", id)) for id in relevant
    )
    gold = Gold({"document": {opaque("claim", id): frozenset(found) for id, found in relevant.items()}})
    return Dataset("SciFact", lambda: iter([Corpus(questions, documents=documents)]), gold, len(questions))


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def devbench(folder: Path) -> Dataset:
    """DevBench: 30 memories of developers, 20 questions; a smoke test."""
    data: dict[str, Any] = json.loads((folder / "devbench" / "devbench_dataset.json").read_text(encoding="utf-8"))
    documents = tuple(Document(opaque("devbench", memory["id"]), memory["content"]) for memory in data["memories"])
    by_tag: dict[str, set[str]] = {}
    for memory in data["memories"]:
        for tag in memory["tags"]:
            by_tag.setdefault(tag, set()).add(opaque("devbench", memory["id"]))
    relevant = {
        opaque("devbench", "query", query["id"]): frozenset(
            id for tag in query["expected_tags"] for id in by_tag.get(tag, ())
        )
        for query in data["queries"]
    }
    relevant = {question: wanted for question, wanted in relevant.items() if wanted}  # some should find nothing
    questions = tuple(
        Question(id, query["question"], is_development=is_development("devbench", query["id"]))
        for query in data["queries"]
        if (id := opaque("devbench", "query", query["id"])) in relevant
    )
    types = by_type((query["category"], opaque("devbench", "query", query["id"])) for query in data["queries"])
    corpus = Corpus(questions, documents=documents)
    return Dataset("DevBench", lambda: iter([corpus]), Gold({"document": relevant}, types=types), len(questions))


def precisionmembench(folder: Path) -> Dataset:
    """PrecisionMemBench: beliefs that hold, and the queries that name which of them are relevant."""
    base = folder / "precisionmembench"
    beliefs: list[dict[str, Any]] = json.loads((base / "beliefs.seed.json").read_text(encoding="utf-8"))
    cases: list[dict[str, Any]] = json.loads((base / "retrieval.cases.json").read_text(encoding="utf-8"))
    held = [one for one in beliefs if one["user_id"] == "test-user" and not one["superseded_by"]]
    documents = tuple(
        Document(
            opaque("belief", one["_id"]),
            f"{one['canonical_name']} ({', '.join(one['aliases'])}): {one['content']}",
        )
        for one in held
    )
    known = {document.id for document in documents}
    relevant: dict[str, frozenset[str]] = {}
    questions = []
    for case in cases:
        named = case["expect"].get("relevantBeliefs", {}).get("shouldOnlyInclude", ())
        wanted = frozenset(opaque("belief", id) for id in named) & known
        if wanted:
            question = opaque("case", case["caseId"])
            relevant[question] = wanted
            chosen = is_development("precisionmembench", case["caseId"])
            questions.append(Question(question, case["query"], is_development=chosen))
    types = by_type((case["category"], opaque("case", case["caseId"])) for case in cases)
    corpus = Corpus(tuple(questions), documents=documents)
    gold = Gold({"document": relevant}, types=types)
    return Dataset("PrecisionMemBench", lambda: iter([corpus]), gold, len(questions))


DATASETS: Mapping[str, Callable[[Path], Dataset]] = {
    "longmemeval": longmemeval,
    "longmemeval-500": large_longmemeval,
    "assistant-chats": assistant_chats,
    "unnamed-needs": unnamed_needs,
    "locomo": locomo,
    "scifact": scifact,
    "devbench": devbench,
    "precisionmembench": precisionmembench,
}
