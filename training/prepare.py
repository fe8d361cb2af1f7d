"""Stage 1, without a GPU: `python training/prepare.py train.jsonl.gz prepared.npz`.

Reads groups of passages with their questions, tokenizes them as the library does, and looks up which passages of a
group share rare words with a question (BM25): a part of the hard negatives. README.md names the sets and licences.
Adds the groups that were written for this model, in `written/`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from commonplace.embedding.catalog import ARCTIC_S, default_models_folder, model_path
from commonplace.embedding.onnx import WordPiece
from commonplace.language.passages import split_sentences
from commonplace.language.weights import LONGEST_SENTENCES

SHARE_ALIKE = frozenset({"squad", "sgd", "xquad"})
"""Their licence (CC BY-SA) would reach what is made from them; the weights that we ship do without."""

HELD_OUT = {"spc": 96, "spcp": 96}
"""The groups of a set after this one are not trained on; `tests/embedding/test_our_model.py` asks their questions."""

WRITTEN = Path(__file__).with_name("written")
"""Conversations, notes and needs that were written for this model; README.md has the form of each."""
TOGETHER = {"talk": 6, "chat": 1, "notes": 1}
"""How many of a kind form a group. The questions of a chat say "I", so another user's texts could be answers too."""
SURROUNDED = {"talk": 0, "chat": 300, "notes": 0}
"""How many unrelated passages are added to a group of a kind."""
UNRELATED = ("topical", "qmsum", "molweni")
"""The sets whose passages are the unrelated ones: hardly any of them says what a person needs."""
UNRELATED_PASSAGES = 300
REQUESTS = 200
"""How many messages of users to an assistant a group of needs has: they look like its questions and answer none."""
OTHER_QUESTIONS = 2
"""How many questions of other topics of its domain a topic gets as passages."""

ROLE = re.compile(r"^(user|assistant): ")
LINE = re.compile(r"(\d+) (.+)")
ASKED = re.compile(r"\? (.+) = ([\d ,]+)")
PASSAGE_TOKENS, QUESTION_TOKENS, BY_WORDS = 160, 60, 20
K1, B, COMMON = 1.2, 0.75, 0.25


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("groups", type=Path, help="train.jsonl.gz: a group of passages and questions on each line")
    parser.add_argument("prepared", type=Path)
    options = parser.parse_args(arguments)
    folder = Path(os.environ.get("COMMONPLACE_MODELS") or default_models_folder())
    vocabulary = model_path(ARCTIC_S, folder) / "vocab.txt"
    words = WordPiece.from_file(vocabulary, max_tokens=PASSAGE_TOKENS + 2)
    prefix = words.encode(ARCTIC_S.query_prefix)[1:-1]

    passages: list[list[int]] = []
    sentences: list[list[int]] = []
    sentence_starts, questions, sets, positives, by_words = [0], [], [], [], []
    groups = [0]
    group_of: list[int] = []
    for group in all_groups(options.groups):
        first = len(passages)
        # A message of an unnamed speaker is stored without its role.
        texts = [ROLE.sub("", text) for text in group["p"]]
        for text in texts:
            passages.append(words.encode(text)[1:-1])
            some = split_sentences(text) if len(text) <= LONGEST_SENTENCES else []
            sentences += [words.encode(one)[1:-1] for one in some] if len(some) > 1 else []
            sentence_starts.append(len(sentences))
        asked = [words.encode(question)[1:-1][:QUESTION_TOKENS] for question, _ in group["q"]]
        found = best_by_words(asked, passages[first:])
        for row, (_, right) in enumerate(group["q"]):
            questions.append(prefix + asked[row])
            sets.append(group["ds"])
            group_of.append(len(groups) - 1)
            positives.append([first + one for one in right])
            by_words.append([first + one for one in found[row] if one not in right])
        groups.append(len(passages))
    names = sorted(set(sets))
    np.savez_compressed(
        options.prepared,
        passages=_flat(passages),
        passage_starts=_starts(passages),
        sentences=_flat(sentences),
        sentence_rows=_starts(sentences),
        sentence_starts=np.array(sentence_starts),
        questions=_flat(questions),
        question_starts=_starts(questions),
        prefix=len(prefix),
        names=np.array(names),
        sets=np.array([names.index(one) for one in sets], np.int8),
        groups=np.array(groups),
        group_of=np.array(group_of, np.int32),
        positives=_flat(positives, np.int32),
        positive_starts=_starts(positives),
        by_words=_flat(by_words, np.int32),
        by_words_starts=_starts(by_words),
    )
    print(f"{len(passages):,} passages, {len(sentences):,} sentences, {len(questions):,} questions: {Counter(sets)}")


def all_groups(path: Path) -> Iterator[dict[str, Any]]:
    """The groups of the file, then those that were written for this model."""
    unrelated: list[str] = []
    seen: Counter[str] = Counter()
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            group = json.loads(line)
            seen[group["ds"]] += 1
            if seen[group["ds"]] <= HELD_OUT.get(group["ds"], seen[group["ds"]]):
                yield group
            if group["ds"] in UNRELATED:
                unrelated += [ROLE.sub("", text) for text in group["p"]]
    yield from written(WRITTEN, unrelated)
    yield from needs(WRITTEN / "needs.txt", unrelated, said_to_assistant(WRITTEN / "chats.txt"))


def written(folder: Path, unrelated: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The groups of `talks.txt`, `chats.txt` and `notes.txt`: numbered texts, and questions with their numbers."""
    chance = random.Random(6)
    for path in (folder / "talks.txt", folder / "chats.txt", folder / "notes.txt"):
        blocks = ["# " + block for block in path.read_text(encoding="utf-8").split("# ")[1:]]
        kind = blocks[0].split()[1]
        for first in range(0, len(blocks), TOGETHER[kind]):
            passages: list[str] = []
            asked: list[list[Any]] = []
            for block in blocks[first : first + TOGETHER[kind]]:
                places: dict[str, int] = {}
                for line in block.splitlines():
                    if text := LINE.fullmatch(line):
                        places[text[1]] = len(passages)
                        passages.append(text[2])
                    elif question := ASKED.fullmatch(line):
                        asked.append([question[1], [places[one] for one in re.findall(r"\d+", question[2])]])
            passages += chance.sample(unrelated, SURROUNDED[kind])
            yield {"ds": kind, "p": passages, "q": asked}


def needs(path: Path, unrelated: Sequence[str], requests: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Groups with one topic of each domain, so that no fact of another topic bears on a question.

    Each fact stands alone and, a second time, as people say things in passing: next to a passage about something else,
    or next to a request of another domain. A question looks more like another request than like the fact that bears on
    it, so requests are among the passages: alone, and next to a fact that does not bear on them.
    """
    chance = random.Random(5)
    by_domain: dict[str, list[tuple[list[str], list[str]]]] = {}
    for block in path.read_text(encoding="utf-8").split("\n\n"):
        domain, *lines = block.strip().splitlines()
        facts = [line[2:] for line in lines if line.startswith("- ")]
        questions = [line[2:] for line in lines if line.startswith("? ")]
        by_domain.setdefault(domain, []).append((facts, questions))
    for number in range(max(map(len, by_domain.values()))):
        others = {
            domain: [one for place, (_, some) in enumerate(topics) if place != number for one in some]
            for domain, topics in by_domain.items()
        }
        passages = [*chance.sample(unrelated, UNRELATED_PASSAGES), *chance.sample(requests, REQUESTS)]
        asked = []
        for domain, topics in by_domain.items():
            if number >= len(topics):
                continue
            facts, questions = topics[number]
            elsewhere = [some for name, some in others.items() if some and name != domain]
            first = len(passages)
            for fact in facts:
                if chance.random() < 0.35:
                    other = chance.choice(unrelated)
                else:
                    other = chance.choice(chance.choice(elsewhere))
                passages += [fact, f"{fact} {other}" if chance.random() < 0.5 else f"{other} {fact}"]
            asked += [[question, list(range(first, len(passages)))] for question in questions]
            passages += chance.sample(others[domain], min(OTHER_QUESTIONS, len(others[domain])))
        yield {"ds": "needs", "p": passages, "q": asked}


def said_to_assistant(path: Path) -> list[str]:
    """The messages of the users in `chats.txt`."""
    lines = map(LINE.fullmatch, path.read_text(encoding="utf-8").splitlines())
    return [text[2].removeprefix("user: ") for text in lines if text and text[2].startswith("user: ")]


def best_by_words(questions: Sequence[Sequence[int]], passages: Sequence[Sequence[int]]) -> list[list[int]]:
    """The passages with the best BM25 scores for each question, over token ids."""
    lengths = np.array([len(one) + 1 for one in passages])
    norms = K1 * (1 - B + B * lengths / lengths.mean())
    places: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for row, passage in enumerate(passages):
        for token, times in Counter(passage).items():
            places[token].append((row, times))
    found = []
    for question in questions:
        scores = np.zeros(len(passages))
        for token in set(question):
            some = places.get(token, ())
            if 0 < len(some) < max(2, COMMON * len(passages)):
                rows, times = np.array(some).T
                rarity = math.log(1 + (len(passages) - len(some) + 0.5) / (len(some) + 0.5))
                scores[rows] += rarity * times * (K1 + 1) / (times + norms[rows])
        best = np.argsort(-scores, kind="stable")[:BY_WORDS]
        found.append([int(row) for row in best if scores[row] > 0])
    return found


def _flat(rows: Iterable[Sequence[int]], kind: type = np.uint16) -> np.ndarray:
    return np.array([one for row in rows for one in row], kind)


def _starts(rows: Iterable[Sequence[int]]) -> np.ndarray:
    return np.cumsum([0, *(len(row) for row in rows)])


if __name__ == "__main__":
    main()
