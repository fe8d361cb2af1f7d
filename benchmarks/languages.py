"""Search in ten languages and across them: `python benchmarks/languages.py FOLDER`.

Each language is a namespace with 20 passages that state a fact and 2,000 others, paragraphs of manual pages. Each fact
is asked for in each language: among the passages of the same language, then among those of every other language. The
packages and the vectors are kept in FOLDER, so a second run takes seconds. Ends with 1 if a goal is not reached.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import commonplace
from commonplace.embedding import Embedder, create_embedder
from languages_data import LANGUAGES, Collection, Fact, collection, facts
from quality_cache import CachedEmbedder

DEPTH = 5
WITHIN = 0.9
"""The least share of the recall in English that a language must have within itself."""

ACROSS = 0.6
KEYWORDS = "keywords"


@dataclass(frozen=True)
class Line:
    """Recall@5 of one language's questions, among its own passages and among those of the other languages."""

    language: str
    within: float
    across: float


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="packages and vectors are kept there")
    parser.add_argument("--model", default="multilingual", help=f"another model, or `{KEYWORDS}` for no model")
    parser.add_argument("--only", action="append", choices=LANGUAGES, help="a language; may be given several times")
    parser.add_argument("--paraphrases", action="store_true", help="ask by paraphrases, which have no goals")
    parser.add_argument("--misses", action="store_true", help="name the facts that were not found")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    options = parser.parse_args(arguments)
    asked = facts()
    collections = {code: collection(code, options.folder, asked) for code in options.only or LANGUAGES}
    embedder = _embedder(options.model, options.folder)
    with commonplace.open(":memory:", embedder=embedder, background=False) as book:
        for code, stored in collections.items():
            _store(book, code, stored, options.model)
            _tell(f"{code}: {len(stored.passages):,} passages are stored")
        found = {
            (fact.id, question, code): hit
            for fact, question, code, hit in _ask(book, asked, collections, paraphrased=options.paraphrases)
        }
    lines = list(_lines(asked, list(collections), found))
    _print(lines)
    if options.misses:
        for (fact_id, question, code), hit in found.items():
            if not hit and question == code:
                print(f"not found within {code}: {fact_id}")
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(line) for line in lines], indent=1), encoding="utf-8")
    failed = list(_failures(lines)) if options.model == "multilingual" and not options.paraphrases else []
    print(*failed, sep="\n")
    return 1 if failed else 0


def _embedder(model: str, folder: Path) -> Embedder:
    if model == KEYWORDS:
        return create_embedder("multilingual", models_folder=folder / "no models")
    return CachedEmbedder(create_embedder(model), folder)


def _store(book: commonplace.Book, code: str, stored: Collection, model: str) -> None:
    space = book.space("languages", code)
    for number, text in enumerate(stored.passages.values()):
        # Not the page's name, because commands are called the same in all languages.
        space.files.write(f"/{number}", text)
    if model != KEYWORDS:
        book.indexer.run()


def _ask(
    book: commonplace.Book, asked: Sequence[Fact], collections: Mapping[str, Collection], *, paraphrased: bool
) -> Iterator[tuple[Fact, str, str, bool]]:
    for code, stored in collections.items():
        space = book.space("languages", code)
        numbers = {name: number for number, name in enumerate(stored.passages)}
        for fact in asked:
            target = f"/{numbers[stored.targets[fact.id]]}"
            texts = fact.paraphrases if paraphrased else fact.questions
            for question in collections:
                hits = space.search(texts[question], limit=DEPTH)
                yield fact, question, code, any(hit.key == target for hit in hits)


def _lines(asked: Sequence[Fact], codes: Sequence[str], found: Mapping[tuple[str, str, str], bool]) -> Iterator[Line]:
    for question in codes:
        own = [found[fact.id, question, question] for fact in asked]
        others = [found[fact.id, question, code] for fact in asked for code in codes if code != question]
        yield Line(question, sum(own) / len(own), sum(others) / max(1, len(others)))


def _print(lines: Sequence[Line]) -> None:
    print(f"\nrecall@{DEPTH} of the passage that states the fact, among 2,020 of a language")
    print(f"{'questions in':<14}{'within':>8}{'across':>8}")
    for line in lines:
        print(f"{line.language:<14}{line.within:>8.2f}{line.across:>8.2f}")
    print(f"{'all':<14}{_mean([line.within for line in lines]):>8.2f}{_mean([line.across for line in lines]):>8.2f}")


def _failures(lines: Sequence[Line]) -> Iterator[str]:
    english = next((line.within for line in lines if line.language == "en"), 0.0)
    for line in lines:
        if line.within < WITHIN * english:
            yield f"{line.language}: within {line.within:.2f} is below {WITHIN} of English, {english:.2f}"
    across = _mean([line.across for line in lines])
    if len(lines) > 1 and across < ACROSS:
        yield f"across: {across:.2f} is below {ACROSS}"


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
