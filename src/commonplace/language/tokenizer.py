"""The tokenizer: the terms by which a text is found, the same for stored texts and for queries.

A text is folded to one spelling first. A word then gives its stem; an identifier, number, date, address or path gives
itself and its parts; a script without spaces gives its characters and their pairs; an emoji is a word. A term has at
most 64 characters and never contains white space or control characters. Any text is accepted and takes linear time.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import pairwise
from typing import NamedTuple

# Folding: one spelling for characters that a reader takes for the same. Compatibility forms become plain (`ﬁ`, `Ｗ`,
# `①`), accents that only decorate are removed (`café`), invisible characters disappear, punctuation beyond ASCII
# becomes a space. Marks that are letters of their script stay (the vowel signs of Hindi or Thai, the dakuten of `が`).
# Letter case stays too, because `getUserById` is split by it later.

# Normalization is quadratic in a run of marks (10 s for 80,000 of them), so runs are split.
# ASCII is left out: folding removes again what a mark does to an ASCII letter.
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]{1,256}")

# Letters with a stroke or a ligature that Unicode does not decompose.
_PLAIN = {
    "’": "'",
    "ʼ": "'",
    "‐": "-",
    "‑": "-",
    "−": "-",
    "æ": "ae",
    "Æ": "AE",
    "œ": "oe",
    "Œ": "OE",
    "ø": "o",
    "Ø": "O",
    "đ": "d",
    "Đ": "D",
    "ð": "d",
    "Ð": "D",
    "ħ": "h",
    "Ħ": "H",
    "ł": "l",
    "Ł": "L",
    "þ": "th",
    "Þ": "Th",
    "ŧ": "t",
    "Ŧ": "T",
    "ı": "i",
    "й": "й",  # a letter in its own right, not a decorated и
    "Й": "Й",
    "ё": "е",
    "Ё": "Е",
}
# Soft hyphen, joiners, variation selectors, keycap, skin tones: these change how a character looks, not what it is.
_INVISIBLE = re.compile("[\u00ad\u200c\u200d\u2060\ufeff\ufe00-\ufe0f\u20e3\U0001f3fb-\U0001f3ff\U000e0000-\U000e0fff]")
# Diacritics of Latin, Greek and Cyrillic; the pointing that Hebrew and Arabic are usually written without.
_DECORATION = re.compile(
    "[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u0640\u064b-\u0652\u0670]"
)
_DECORATED_SCRIPTS = re.compile("[\u00c0-\u052f\u1e00-\u1fff]")
_EMOJI_PLANE = range(0x1F000, 0x1FB00)


def fold(text: str) -> str:
    """Return the text with its spelling variants removed, in linear time.

    In the result every character beyond ASCII is part of a word, or a symbol with spaces around it.
    """
    if text.isascii():
        return text
    return _BEYOND_ASCII.sub(lambda run: unicodedata.normalize("NFKC", run[0]).translate(_TABLE), text)


class _Table(dict[int, str]):
    """What each character becomes; computed when the character first occurs."""

    def __missing__(self, code: int) -> str:
        folded = _fold_character(chr(code))
        if len(self) < 50_000:  # all of Unicode would be a hundred megabytes
            self[code] = folded
        return folded


def _fold_character(character: str) -> str:
    if character in _PLAIN:
        return _PLAIN[character]
    if _INVISIBLE.match(character) or _DECORATION.match(character):
        return ""
    if _DECORATED_SCRIPTS.match(character):
        character = _DECORATION.sub("", unicodedata.normalize("NFD", character))
    category = unicodedata.category(character[:1] or " ")
    if category[0] in "LMN" or character == "_":
        return character
    if category == "So" or (category == "Cn" and ord(character) in _EMOJI_PLANE):
        return character if _is_flag_letter(character) else f" {character} "
    return character if character.isascii() else " "


def _is_flag_letter(character: str) -> bool:
    # Two of these make a flag.
    return "\U0001f1e6" <= character <= "\U0001f1ff"


_TABLE = _Table({code: chr(code) for code in range(128)})


# Stems of English words, by Porter2: `deploys`, `deployed` and `deploying` are one term. Stems are never shown; they
# only have to be equal for words of the same meaning. Words of other languages are stemmed too, which does little harm
# because stored texts and queries are stemmed alike.

_VOWELS = "aeiouy"
_DOUBLES = ("bb", "dd", "ff", "gg", "mm", "nn", "pp", "rr", "tt")

# Region 1 begins after the first consonant that follows a vowel. For these prefixes that would be too early.
_EARLY = ("gener", "commun", "arsen", "past", "univers", "later", "emerg", "organ", "inter")
_REGION = re.compile("[aeiouy][^aeiouy]")
_HAS_VOWEL = re.compile("[aeiouy]")
_SHORT_ENDING = re.compile("(?:^|.*[^aeiouy])[aeiouy][^aeiouywxY]$|^[aeiouy][^aeiouy]$|^past$")

_IRREGULAR = {
    "skis": "ski",
    "skies": "sky",
    "idly": "idl",
    "gently": "gentl",
    "ugly": "ugli",
    "early": "earli",
    "only": "onli",
    "singly": "singl",
    "does": "does",
}
_NO_SUFFIX = (
    "sky news howe atlas cosmos bias andes inning outing canning herring earring evening proceed exceed succeed"
)
_INVARIANT = frozenset(_NO_SUFFIX.split())
_STEP_2 = {
    "tional": "tion",
    "enci": "ence",
    "anci": "ance",
    "abli": "able",
    "entli": "ent",
    "izer": "ize",
    "ization": "ize",
    "ational": "ate",
    "ation": "ate",
    "ator": "ate",
    "alism": "al",
    "aliti": "al",
    "alli": "al",
    "fulness": "ful",
    "ousli": "ous",
    "ousness": "ous",
    "iveness": "ive",
    "iviti": "ive",
    "biliti": "ble",
    "bli": "ble",
    "ogist": "og",
    "fulli": "ful",
    "lessli": "less",
}
_STEP_3 = {
    "tional": "tion",
    "ational": "ate",
    "alize": "al",
    "icate": "ic",
    "iciti": "ic",
    "ical": "ic",
    "ful": "",
    "ness": "",
}
_STEP_4 = re.compile("(?:ement|ance|ence|able|ible|ment|ant|ent|ism|ate|iti|ous|ive|ize|al|er|ic)$")


def stem(word: str) -> str:
    """The Porter2 stem of a word of lower-case ASCII letters."""
    if len(word) < 3:
        return word
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if word in _INVARIANT:
        return word
    word = _mark_consonant_y(word)
    first, second = _regions(word)
    word = _without_plural(word)
    if word not in _INVARIANT:
        word = _without_past(word, first)
        if len(word) > 2 and word[-1] in "yY" and word[-2] not in _VOWELS:
            word = word[:-1] + "i"
        word = _without_derivation(word, first, second)
    return word.lower()


def _mark_consonant_y(word: str) -> str:
    # A capital Y is a consonant: at the start, or after a vowel (`boy`, but not `by`).
    if "y" not in word:
        return word
    letters = list(word)
    for index, letter in enumerate(letters):
        if letter == "y" and (index == 0 or letters[index - 1] in _VOWELS):
            letters[index] = "Y"
    return "".join(letters)


def _regions(word: str) -> tuple[int, int]:
    first = 0
    if word.startswith(_EARLY):
        first = next(len(start) for start in _EARLY if word.startswith(start))
    else:
        found = _REGION.search(word)
        first = found.end() if found else len(word)
    found = _REGION.search(word, first)
    return first, found.end() if found else len(word)


def _without_plural(word: str) -> str:
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith(("ied", "ies")):
        return word[:-2] if len(word) > 4 else word[:-1]
    if word.endswith(("us", "ss")) or not word.endswith("s"):
        return word
    return word[:-1] if _HAS_VOWEL.search(word, 0, len(word) - 2) else word


def _without_past(word: str, first: int) -> str:
    for ending in ("eedly", "eed"):
        if word.endswith(ending):
            return word[: -len(ending)] + "ee" if len(word) - len(ending) >= first else word
    for ending in ("ingly", "edly", "ing", "ed"):
        if word.endswith(ending):
            break
    else:
        return word
    rest = word[: -len(ending)]
    if ending == "ing" and len(rest) == 2 and rest[1] == "y":
        return rest[0] + "ie"
    if not _HAS_VOWEL.search(rest):
        return word
    if rest.endswith(("at", "bl", "iz")):
        return rest + "e"
    if rest.endswith(_DOUBLES):
        return rest if len(rest) == 3 and rest[0] in "aeo" else rest[:-1]
    return rest + "e" if len(rest) <= first and _SHORT_ENDING.match(rest) else rest


def _without_derivation(word: str, first: int, second: int) -> str:
    word = _step_2(word, first)
    word = _step_3(word, first, second)
    word = _step_4(word, second)
    rest = word[:-1]
    if word.endswith("e"):
        if len(rest) >= second or (len(rest) >= first and not _SHORT_ENDING.match(rest)):
            return rest
    elif word.endswith("ll") and len(rest) >= second:
        return rest
    return word


def _longest_ending(word: str, endings: dict[str, str]) -> str:
    for length in range(min(len(word), 7), 1, -1):
        if word[-length:] in endings:
            return word[-length:]
    return ""


def _step_2(word: str, first: int) -> str:
    ending = _longest_ending(word, _STEP_2)
    if ending:
        rest = word[: -len(ending)]
        return rest + _STEP_2[ending] if len(rest) >= first else word
    if word.endswith("ogi"):
        return word[:-1] if len(word) - 3 >= first and word[-4:-3] == "l" else word
    if word.endswith("li") and len(word) - 2 >= first and word[-3] in "cdeghkmnrt":
        return word[:-2]
    return word


def _step_3(word: str, first: int, second: int) -> str:
    ending = _longest_ending(word, _STEP_3)
    if ending:
        rest = word[: -len(ending)]
        return rest + _STEP_3[ending] if len(rest) >= first else word
    return word[:-5] if word.endswith("ative") and len(word) - 5 >= second else word


def _step_4(word: str, second: int) -> str:
    if word.endswith("ion"):
        return word[:-3] if len(word) - 3 >= second and word[-4:-3] in ("s", "t") else word
    ending = _STEP_4.search(word)  # the leftmost match is the longest ending
    return word[: ending.start()] if ending and ending.start() >= second else word


# Terms

LONGEST_TERM = 64
PART_WEIGHT = 0.5  # the weight of a compound's part in a query; the compound itself weighs 1

# After folding, a character beyond ASCII is part of a word or a word by itself.
_LETTER = r"[^\x00-/:-@\[-`{-\x7f]"  # ASCII letters and digits; this spelling compiles 30 times as fast
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
# Signs of these scripts that belong to the preceding character.
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
_compiled = cache(re.compile)  # compiled on first use; most programs only see ASCII

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
    """The terms that one word is stored under, and the terms to look up for it, with weights."""

    stored: tuple[str, ...]
    asked: tuple[tuple[str, float], ...]


def index_terms(text: str) -> dict[str, int]:
    """Return the terms of a stored text with their frequencies."""
    frequencies: dict[str, int] = {}
    for word, count in Counter(_WORD.findall(fold(text))).items():
        # This repeats _terms inline, because the loop is most of the cost of a write.
        for term in (_cached_terms(word) if len(word) <= LONGEST_TERM else _compute_terms(word)).stored:
            frequencies[term] = frequencies.get(term, 0) + count
    return frequencies


def query_terms(query: str) -> dict[str, float]:
    """Return the terms to look up with their weights; stop words only if there are no other words.

    All of them are in index_terms(query).
    """
    weights: dict[str, float] = {}
    for word in dict.fromkeys(_WORD.findall(fold(query))):
        for term, weight in _terms(word).asked:
            weights[term] = max(weight, weights.get(term, 0.0))
    return {term: weight for term, weight in weights.items() if term not in _STOPS} or weights


def _terms(word: str) -> Terms:
    # Only short words are cached; a hostile text could fill the cache with words of megabytes.
    return _cached_terms(word) if len(word) <= LONGEST_TERM else _compute_terms(word)


def _compute_terms(word: str) -> Terms:
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


_cached_terms = lru_cache(maxsize=1 << 16)(_compute_terms)


def _one(word: str) -> Terms:
    term = _term(word)
    return Terms((term,), ((term, 1.0),))


def _term(word: str) -> str:
    folded = word.casefold()
    if len(folded) <= LONGEST_TERM and folded.isascii() and folded.isalpha():
        return stem(folded)
    return folded[:LONGEST_TERM]


def _is_plain(word: str) -> bool:
    """Whether the word has no parts: `word`, `Word`, `WORD`, `APIs`, a word of another script."""
    if not word.isalpha():
        return False
    return word.islower() or word.isupper() or word[1:].islower() or word[:-1].isupper() or not word.isascii()


def _parts(word: str) -> Iterator[str]:
    """The words inside a compound, and its segments, such as the file name of a path or the host of an address."""
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
