"""Questions and passages in ten languages: manual pages from Debian packages, and questions that were written for them.

The packages are downloaded from a Debian mirror, checked by their SHA-256 and unpacked here, so neither apt nor root is
needed. A passage is a paragraph of a page. `data/languages.jsonl` names for each of 20 facts the page, a pattern that
one paragraph of it matches in every language, and a question in each language; `data/README.md` has the rules.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import lzma
import re
import tarfile
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MIRROR = "https://deb.debian.org/debian/pool/main/"
DISTRACTORS = 2_000
QUESTIONS = Path(__file__).parent / "data" / "languages.jsonl"

_L10N = "m/manpages-l10n/manpages-"


@dataclass(frozen=True)
class Package:
    """A Debian package by its path in the pool."""

    path: str
    sha256: str


@dataclass(frozen=True)
class Language:
    """Where the pages of a language are: a folder below /usr/share/man, and the packages in their order."""

    folder: str
    packages: tuple[Package, ...]


LANGUAGES: Mapping[str, Language] = {
    "en": Language(
        "",
        (
            Package(
                "m/manpages/manpages_6.03-2_all.deb",
                "efa1ba4cd19ad7baeae959c9209a7eb74be2ebb858bcabb412597bfc9f588c91",
            ),
            Package(
                "c/coreutils/coreutils_9.1-1_amd64.deb",
                "61038f857e346e8500adf53a2a0a20859f4d3a3b51570cc876b153a2d51a3091",
            ),
        ),
    ),
    "de": Language(
        "de/",
        (
            Package(
                f"{_L10N}de_4.18.1-1_all.deb",
                "37d2e7ee51f22952aecec3af93647ff59194a3c74bb7a694560f49c7f7ab3978",
            ),
        ),
    ),
    "fr": Language(
        "fr/",
        (
            Package(
                f"{_L10N}fr_4.18.1-1_all.deb",
                "ec29759cc0e4a44dc7719c1e32869d0060667049e584f09556f0d982b969ea33",
            ),
        ),
    ),
    "es": Language(
        "es/",
        (
            Package(
                f"{_L10N}es_4.18.1-1_all.deb",
                "d21e9f85e487f149ae45b5c525b2b1a70ae7fd38d4b05b47c8753042c66f4c2b",
            ),
        ),
    ),
    "it": Language(
        "it/",
        (
            Package(
                f"{_L10N}it_4.18.1-1_all.deb",
                "4b18e87cc1b6a930d40949ddc86fb8e84b50da1a862cd17e2a504eeb8e3b4e48",
            ),
            Package(
                f"{_L10N}it-dev_4.18.1-1_all.deb",
                "a14a1aa168ad1be85d5202d1ed69b9c995413420b0a62854e391796fa6692daa",
            ),
        ),
    ),
    "pt": Language(
        "pt_BR/",
        (
            Package(
                f"{_L10N}pt-br_4.18.1-1_all.deb",
                "da971a7bc0107f7b74b4ae592d1d7cc6424fa7e77cc1808f5c110a07edaf3890",
            ),
            Package(
                f"{_L10N}pt-br-dev_4.18.1-1_all.deb",
                "b29bb07536eb0a754e75055a0ae9888e0d2a1ab76798826bcefc5c4db6f6917c",
            ),
        ),
    ),
    "pl": Language(
        "pl/",
        (
            Package(
                f"{_L10N}pl_4.18.1-1_all.deb",
                "31e518ea8331b5204d4fd0032037f96af1ba94a5afa4f0585dca1996b270cdf9",
            ),
        ),
    ),
    "ru": Language(
        "ru/",
        (
            Package(
                f"{_L10N}ru_4.18.1-1_all.deb",
                "5d5821dad5840652ba9c1c6b85bdc785c1fc52148a71c18fab6658c9659244c0",
            ),
        ),
    ),
    "ja": Language(
        "ja/",
        (
            Package(
                "m/manpages-ja/manpages-ja_0.5.0.0.20221215+dfsg-1_all.deb",
                "4d270e9a1e83be4de0c072a110892a17dc9caa4b501257324006ac28d82c5743",
            ),
        ),
    ),
    "zh": Language(
        "zh_CN/",
        (
            Package(
                "m/manpages-zh/manpages-zh_1.6.4.0-1_all.deb",
                "81bae29495f6445db290e3f329f1203eb19b651c2a7ea165b74ebdc853a32ac1",
            ),
        ),
    ),
}


@dataclass(frozen=True)
class Fact:
    """A fact that a paragraph of a page states in every language, and two questions for it in each.

    The paraphrases avoid the words of the paragraph.
    """

    id: str
    page: str
    marker: str
    questions: Mapping[str, str]
    paraphrases: Mapping[str, str]


def facts() -> list[Fact]:
    return [Fact(**json.loads(line)) for line in QUESTIONS.read_text(encoding="utf-8").splitlines()]


@dataclass(frozen=True)
class Collection:
    """The passages of a language by their names, and the name of the passage that states each fact."""

    passages: Mapping[str, str]
    targets: Mapping[str, str]


def collection(code: str, folder: Path, wanted: Sequence[Fact]) -> Collection:
    """The passages of the facts, and `DISTRACTORS` others: the paragraphs with the smallest hashes."""
    pages = dict(_pages(LANGUAGES[code], folder))
    targets: dict[str, str] = {}
    chosen: dict[str, str] = {}
    for fact in wanted:
        matching = [name for name, text in pages[fact.page].items() if re.search(fact.marker, text)]
        if len(matching) != 1 or not _is_translated(pages[fact.page][matching[0]], code):
            raise ValueError(f"{fact.id} in {code}: {len(matching)} paragraphs match, or it is not translated")
        targets[fact.id] = matching[0]
        chosen[matching[0]] = pages[fact.page][matching[0]]
    others = {
        text: name
        for paragraphs in pages.values()
        for name, text in paragraphs.items()
        if name not in chosen and _is_prose(text, code) and _is_translated(text, code)
    }
    ordered = sorted(others.items(), key=lambda item: hashlib.sha256(item[1].encode()).digest())
    if len(ordered) < DISTRACTORS:
        raise ValueError(f"{code} has only {len(ordered)} other paragraphs")
    # The other paragraphs of the pages that state the facts come first: they are the most alike.
    siblings = {fact.page for fact in wanted}
    ordered.sort(key=lambda item: item[1].partition("/")[0] not in siblings)
    return Collection({**chosen, **{name: text for text, name in ordered[:DISTRACTORS]}}, targets)


# Packages


def _pages(language: Language, folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    pattern = re.compile(rf"\./usr/share/man/{language.folder}man\d\w*/([^/]+)\.gz")
    seen: set[str] = set()
    for package in language.packages:
        with tarfile.open(fileobj=io.BytesIO(_data(_fetch(package, folder)))) as archive:
            for member in archive:
                name = pattern.fullmatch(member.name)
                content = archive.extractfile(member) if name and member.isfile() else None
                if name is None or content is None or name[1] in seen:
                    continue
                seen.add(name[1])
                source = gzip.decompress(content.read()).decode("utf-8", "replace")
                yield name[1], {f"{name[1]}/{number}": text for number, text in enumerate(paragraphs(source))}


def _fetch(package: Package, folder: Path) -> bytes:
    path = folder / package.path.rpartition("/")[2]
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with urllib.request.urlopen(MIRROR + package.path.replace("+", "%2B"), timeout=60) as response:
            path.write_bytes(response.read())
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != package.sha256:
        raise ValueError(f"{path} is not the package that the questions were written for; delete it and run again")
    return content


def _data(package: bytes) -> bytes:
    """The tar file with the files of a package, which is an `ar` archive."""
    place = 8
    while place < len(package):
        name, size = package[place : place + 16].decode().strip(), int(package[place + 48 : place + 58])
        content = package[place + 60 : place + 60 + size]
        if name.startswith("data.tar"):
            return lzma.decompress(content)
        place += 60 + size + size % 2
    raise ValueError("the package has no data.tar.xz")


# Paragraphs of a manual page

_SYMBOLS = {
    r"\-": "-",
    r"\(aq": "'",
    r"\(cq": "'",
    r"\(oq": "'",
    r"\(lq": '"',
    r"\(rq": '"',
    r"\(dq": '"',
    r"\(bu": "•",
    r"\(em": "—",
    r"\(en": "–",
    r"\[em]": "—",
    r"\[en]": "–",
    r"\[aq]": "'",
    r"\[ti]": "~",
    r"\[ha]": "^",
    r"\(ha": "^",
    r"\(ti": "~",
    r"\(Fo": "«",
    r"\(Fc": "»",
    r"\(Bq": "„",
    r"\e": "\\",
    r"\ ": " ",
    r"\~": " ",
    r"\0": " ",
}
_ESCAPE = re.compile(
    r"\\f\(..|\\f\[[^\]]*\]|\\f.|\\s[-+]?\d|\\[&/,|^%:c]|\\\*\(..|\\\*\[[^\]]*\]|\\\*.|\\\(..|\\\[[^\]]*\]"
)
_REQUEST = re.compile(r"[.']\s*([A-Za-z]+)\s*(.*)")
_BREAKS = frozenset(("SH", "SS", "Sh", "PP", "P", "LP", "TP", "IP", "Pp", "It", "TQ", "sp", "HP"))
_FONTS = frozenset(("B", "I", "BR", "IR", "RB", "BI", "IB", "RI", "SM", "SB"))


def paragraphs(source: str) -> list[str]:
    """The paragraphs of a page, with the name of an option or file before what is said of it."""
    found: list[str] = []
    words: list[str] = []
    is_hidden = False

    def end() -> None:
        text = " ".join(" ".join(words).split())
        if text:
            found.append(text)
        words.clear()

    for line in source.split("\n"):
        if line.startswith(("'\\\"", '.\\"')):
            continue
        request = _REQUEST.match(line)
        if line.startswith("..") or (request and request[1] == "TE"):
            is_hidden = False
        elif request and request[1] in ("de", "ig", "TS"):
            is_hidden = True
        elif is_hidden:
            continue
        elif not line.strip():
            end()
        elif request is None:
            words.append(_plain(line))
        elif request[1] in _BREAKS:
            end()
            if request[1] == "IP" and request[2]:
                words.append(_plain(_arguments(request[2])[0]))
        elif request[1] in _FONTS:
            joint = " " if len(request[1]) == 1 else ""
            words.append(joint.join(_arguments(_plain(request[2]))))
    end()
    return found


def _plain(text: str) -> str:
    text = re.sub(r'\\".*', "", text)
    for symbol, character in _SYMBOLS.items():
        text = text.replace(symbol, character)
    return _ESCAPE.sub("", text)


def _arguments(text: str) -> list[str]:
    return [quoted or plain for quoted, plain in re.findall(r'"([^"]*)"|(\S+)', text)] or [""]


_OWN_SCRIPT = {"ru": "[\u0400-\u04ff]", "ja": "[\u3040-\u30ff\u4e00-\u9fff]", "zh": "[\u4e00-\u9fff]"}
_ENGLISH = re.compile(r"\b(?:the|of|and|is|are|with|this|for|that|be)\b", re.IGNORECASE)


def _is_translated(text: str, code: str) -> bool:
    """Whether a paragraph is in the language: pages are often translated in part."""
    own = re.findall(_OWN_SCRIPT.get(code, r"[^\W\d_]"), text)
    return len(own) >= 0.3 * len(text) and (code == "en" or len(_ENGLISH.findall(text)) <= 0.06 * len(text.split()))


def _is_prose(text: str, code: str) -> bool:
    return (20 if code in ("ja", "zh") else 60) <= len(text) <= 1_000
