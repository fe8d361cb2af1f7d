"""The tokenizer: the terms by which a text is found, the same for stored texts and for queries.

A text is folded to one spelling first. A word then gives its stem; an identifier, number, date, address or path gives
itself and its parts; a script without spaces gives its characters and their pairs; an emoji is a word. A term has at
most 64 characters and never contains white space or control characters. Any text is accepted and takes linear time.

Words of other languages than English give their stem in that language too, as a term with a mark. So the terms of an
English text are the same as without these languages, and a text that was stored before them is found by its words.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache, lru_cache
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from commonplace.language.weights import PART

# Folding: one spelling for characters that a reader takes for the same. Compatibility forms become plain (`ﬁ`, `Ｗ`,
# `①`), accents that only decorate are removed (`café`), invisible characters disappear, punctuation beyond ASCII
# becomes a space. Marks that are letters of their script stay (the vowel signs of Hindi or Thai, the dakuten of `が`).
# Letter case stays too, because `getUserById` is split by it later.

_compiled = cache(re.compile)  # compiled on first use; most programs only see ASCII

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
_INVISIBLE = "[\u00ad\u200c\u200d\u2060\ufeff\ufe00-\ufe0f\u20e3\U0001f3fb-\U0001f3ff\U000e0000-\U000e0fff]"
# Diacritics of Latin, Greek and Cyrillic; the pointing that Hebrew and Arabic are usually written without.
_DECORATION = (
    "[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u0640\u064b-\u0652\u0670]"
)
_DECORATED_SCRIPTS = "[\u00c0-\u052f\u1e00-\u1fff]"
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
    if _compiled(_INVISIBLE).match(character) or _compiled(_DECORATION).match(character):
        return ""
    if _compiled(_DECORATED_SCRIPTS).match(character):
        character = _compiled(_DECORATION).sub("", unicodedata.normalize("NFD", character))
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
# because stored texts and queries are stemmed alike; the stems of their own languages are further below.

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
    words = _WORD.findall(fold(text))
    if max(map(len, words), default=0) > LONGEST_TERM:
        return dict(Counter(term for word in words for term in _terms(word).stored))
    # Without a loop in Python, because this is a large part of the cost of a write.
    return dict(Counter(chain.from_iterable(map(_stored_terms.__getitem__, words))))


def terms_of_letters(word: str) -> tuple[str, ...]:
    """The terms of a short word that is only ASCII letters, as `index_terms` has them."""
    return _stored_terms[word]


def query_terms(query: str) -> dict[str, float]:
    """Return the terms to look up with their weights; stop words only if there are no other words.

    All of them are in index_terms(query), but for the stems of other languages, which come last.
    """
    weights: dict[str, float] = {}
    for word in dict.fromkeys(_WORD.findall(fold(query))):
        for term, weight in _terms(word).asked:
            weights[term] = max(weight, weights.get(term, 0.0))
    telling = {term: weight for term, weight in weights.items() if term not in _STOPS} or weights
    return _with_stems(query, languages_of(query, weights.keys()), telling)


def _terms(word: str) -> Terms:
    # Only short words are cached; a hostile text could fill the cache with words of megabytes.
    return _cached_terms(word) if len(word) <= LONGEST_TERM else _compute_terms(word)


def _compute_terms(word: str) -> Terms:
    if word.isdigit() and word.isascii():  # the words that are most often new
        return _one(word)
    if not word.isascii() and _compiled(_SPACELESS).search(word):
        return _terms_of_mixed_scripts(word)
    word = _CONTRACTION.sub("", word)
    if "," in word:
        return _one(word.replace(",", ""))
    if _is_plain(word):
        return _one(word)
    whole = _term(word.replace("'", ""))
    parts = [part for part in _parts(word) if part != whole]
    return Terms((whole, *parts), ((whole, 1.0), *((part, PART) for part in parts)))


_cached_terms = lru_cache(maxsize=1 << 16)(_compute_terms)


class _StoredTerms(dict[str, tuple[str, ...]]):
    """The stored terms of words up to LONGEST_TERM. A lookup costs half of that in an `lru_cache`, which moves the word
    to its front.
    """

    def __missing__(self, word: str) -> tuple[str, ...]:
        if len(self) >= 1 << 16:
            self.clear()
        found = self[word] = _compute_terms(word).stored
        return found


_stored_terms = _StoredTerms()


def _one(word: str) -> Terms:
    term = _term(word)
    return Terms((term,), ((term, 1.0),))


_cached_stem = lru_cache(maxsize=1 << 14)(stem)  # a path has the same words as its neighbours


def _term(word: str) -> str:
    folded = word.casefold()
    if len(folded) <= LONGEST_TERM and folded.isascii() and folded.isalpha():
        return _cached_stem(folded)
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
    is_path = len(segments) > 1
    for segment in segments:
        # The folders of a path are those of its neighbours. Long ones are not kept, as in `_terms`.
        is_kept = is_path and len(segment) <= LONGEST_TERM
        yield from (_cached_parts_of_segment if is_kept else _parts_of_segment)(segment, is_path)


def _parts_of_segment(segment: str, is_path: bool) -> tuple[str, ...]:
    found: list[str] = []
    pieces = _PIECE.findall(segment)
    shortest = 3 if "'" in segment else 1  # `don't` has no part t, `l'homme` no part l
    if is_path and len(pieces) > 1:
        found.append(_term(segment.replace("'", "")))
    for piece in pieces:
        if len(piece) < shortest:
            continue
        found.append(_term(piece))
        if len(piece) <= LONGEST_TERM and not _is_plain(piece):
            parts = _PART.findall(piece)
            if len(parts) > 1:
                found += map(_term, parts)
    return tuple(found)


_cached_parts_of_segment = lru_cache(maxsize=1 << 14)(_parts_of_segment)


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


# Stems of other languages, by Snowball's algorithms. The script tells the language, or for Latin letters the function
# words and the special letters of the text: `der`, `und`, `ß`. English wins a tie. A stem is a term with a mark, which
# no other term has, and does not count for the length of a text. A query that may be in several languages is looked up
# by the stems of all of them.

STEM = "\ue010"  # folding makes a space of this character, so no other term contains it
STEMMED_WEIGHT = 0.5  # of a word in a query, next to its stem; the stem finds the word and all its forms
UNCERTAIN_WEIGHT = 0.5  # of a stem in a query of an uncertain language

_ENGLISH = "english"
_MARKS = "\u0300-\u036f\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0963\u0b80-\u0bff"
_RUN_OF_LETTERS = re.compile(rf"(?:[^\W\d_]|[{_MARKS}])+")
_NON_LATIN = {
    "russian": "\u0400-\u052f",
    "greek": "\u0370-\u03ff\u1f00-\u1fff",
    "armenian": "\u0530-\u058f",
    "arabic": "\u0600-\u06ff",
    "hindi": "\u0900-\u097f",
    "tamil": "\u0b80-\u0bff",
}
_PERSIAN = "[\u067e\u0686\u0698\u06a9\u06af\u06cc]"  # letters that Arabic does not have
_NON_LATIN_RUN = f"[{_MARKS}{''.join(_NON_LATIN.values())}]{{3,{LONGEST_TERM}}}"
_SPECIAL_LETTERS = {
    "german": "äöüß",
    "spanish": "ñ¿¡óíáú",
    "portuguese": "ãõçáóêâ",
    "french": "éèêàùçœâîôû",
    "italian": "èàìòù",
    "catalan": "çòàŀ",
    "polish": "ąćęłńśźżó",
    "czech": "řěůščžý",
    "serbian": "čćšžđ",
    "lithuanian": "ėįųūšž",
    "hungarian": "őűáéöü",
    "romanian": "ășțâî",
    "turkish": "ğışçöü",
    "swedish": "åäö",
    "finnish": "äö",
    "estonian": "õäöü",
    "danish": "æøå",
    "norwegian": "æøå",
    "esperanto": "ĉĝĥĵŝŭ",
    "irish": "áéíóú",
}
# Function words of other languages that English texts have too, as words or in names. They count half, and so do the
# English ones that another language has.
_HALF = (
    "die den der des dem man war hat bin per son sin men set hans mot dig ten pod pro main mine sur par pour van von "
    "le la les los las el del san da de du di na et al es un en se te ne ja mi si tu ti vi ni su kan var ham il lo non "
    "con che ma sa mes ton ta plus comment pol ca pre"
)
_CERTAIN = 1.5  # votes


class _FunctionWords(NamedTuple):
    english: frozenset[str]
    """The terms that only English has, and then those that others have."""

    other: frozenset[str]
    terms: Mapping[str, frozenset[str]]


class _Votes(NamedTuple):
    votes: Mapping[str, tuple[str, ...]]
    """The languages that a term indicates."""

    half: frozenset[str]
    letters: Mapping[str, tuple[str, ...]]


@cache
def listed_function_words() -> Mapping[str, Mapping[str, str]]:
    """The function words of each language, as they are written, and the term of each."""
    text = Path(__file__).with_name("function_words.txt").read_text(encoding="utf-8")
    lines = (line.partition(":") for line in text.splitlines() if not line.startswith("#"))
    listed: dict[str, dict[str, str]] = {}
    for name, _, words in lines:
        pairs = (word.partition("/") for word in words.split())
        listed[name] = {word: term or word for word, _, term in pairs}
    return listed


@cache
def _spellings(name: str) -> frozenset[str]:
    """The function words of a language as they are written, and without accents."""
    words = listed_function_words().get(name, ())
    return frozenset((*words, *map(fold, words)))


@cache
def _function_words() -> _FunctionWords:
    # A program's first change computes this while others wait for its lock, so the terms are read, not computed.
    terms = {name: frozenset(words.values()) for name, words in listed_function_words().items()}
    other = frozenset().union(*terms.values())
    return _FunctionWords(_STOPS - other, other - _STOPS, terms)


@cache
def _votes() -> _Votes:
    """How the terms and letters of a text vote; a text with English words alone needs no votes."""
    known = _function_words()
    votes = {
        name: {term for term in found - _STOPS if len(term) > 1}
        for name, found in known.terms.items()
        if name not in _NON_LATIN
    }
    votes[_ENGLISH] = set(_STOPS)
    half = frozenset(map(stem, _HALF.split())) - _STOPS
    return _Votes(_turned_around(votes), half | _STOPS - known.english, _turned_around(_SPECIAL_LETTERS))


def _turned_around(table: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    turned: dict[str, tuple[str, ...]] = {}
    for name, values in table.items():
        for value in values:
            turned[value] = (*turned.get(value, ()), name)
    return turned


class Languages(NamedTuple):
    """The languages other than English that the Latin letters of a text may be in; none for an English text."""

    names: tuple[str, ...]
    is_certain: bool


def languages_of(text: str, terms: Collection[str]) -> Languages:
    """Tell the languages of a text from its terms and its special letters."""
    known = _function_words()
    # Most texts are English, and their words cost a tenth of this.
    if text.isascii() and len(known.english.intersection(terms)) > len(known.other.intersection(terms)):
        return Languages((), is_certain=True)
    voting = _votes()
    votes: dict[str, float] = {}
    for term in voting.votes.keys() & terms:
        for name in voting.votes[term]:
            votes[name] = votes.get(name, 0.0) + (0.5 if term in voting.half else 1.0)
    if not text.isascii():
        for letter in voting.letters.keys() & set(text.lower()):
            for name in voting.letters[letter]:
                votes[name] = votes.get(name, 0.0) + 1.0
    english = votes.pop(_ENGLISH, 0.0)
    most = max(votes.values(), default=0.0)
    if most == 0:
        return Languages((), is_certain=english > 0)
    if most <= english:
        return Languages((), is_certain=True)
    return Languages(tuple(name for name, count in sorted(votes.items()) if count == most), is_certain=most >= _CERTAIN)


def present_weight(term: str, weight: float, containing: int) -> float:
    """The weight of a query's term that so many passages contain.

    A stem that no passage has says nothing: the texts may be in another language, or older than these stems.
    """
    return 0.0 if containing == 0 and term.startswith(STEM) else weight


def stem_terms(text: str, terms: Collection[str]) -> dict[str, int]:
    """Return the stems of a stored text in other languages than English with their frequencies.

    `terms` are its other terms.
    """
    names = languages_of(text, terms).names[:2]
    if not names and text.isascii():
        return {}
    frequencies: dict[str, int] = {}
    for word, count in Counter(_letters(text) if names else _compiled(_NON_LATIN_RUN).findall(_composed(text))).items():
        for term in word_stems(word, names):
            frequencies[term] = frequencies.get(term, 0) + count
    return frequencies


def _with_stems(query: str, languages: Languages, weights: dict[str, float]) -> dict[str, float]:
    names, is_certain = languages
    if not names and query.isascii():
        return weights
    silent = frozenset().union(*(_function_words().terms[name] for name in _silenced(languages, query)))
    weights = {term: weight for term, weight in weights.items() if term not in silent} or weights
    stems: dict[str, float] = {}
    for word in dict.fromkeys(_letters(query)):
        found = word_stems(word, names)
        is_latin = _script_of(word) is None
        if found and (is_certain or not is_latin):
            whole = _term(fold(word))
            if whole in weights:
                weights[whole] = min(weights[whole], STEMMED_WEIGHT)
        for term in found:
            stems[term] = UNCERTAIN_WEIGHT if is_latin and not is_certain else 1.0
    return weights | stems


def _silenced(languages: Languages, query: str) -> Iterator[str]:
    """The languages whose function words are not looked up."""
    if languages.is_certain:
        yield from languages.names[:1]
    if not query.isascii():
        yield from _NON_LATIN.keys() & _function_words().terms.keys()


def _composed(text: str) -> str:
    """Lower-case, with accents as part of their letters."""
    return _BEYOND_ASCII.sub(lambda run: unicodedata.normalize("NFC", run[0]), text).lower()


def _letters(text: str) -> list[str]:
    """The words of a text as the stemmers expect them."""
    composed = _composed(text)
    return [word for word in _RUN_OF_LETTERS.findall(composed) if 2 < len(word) <= LONGEST_TERM]


def stems_of_words(text: str, names: tuple[str, ...]) -> Iterator[str]:
    """The stems of a few words, in these languages if they are in Latin letters."""
    for word in _letters(text):
        yield from word_stems(word, names)


@lru_cache(maxsize=1 << 16)
def word_stems(word: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """The stems of a word of lower-case letters: by its script, or in these languages; none of a function word."""
    script = _script_of(word)
    found = (
        STEM + fold(_stemmer(name).stemWord(word)).casefold()[: LONGEST_TERM - 1]
        for name in (names if script is None else (script,) if script else ())
        if word not in _spellings(name)
    )
    return tuple(dict.fromkeys(term for term in found if len(term) > 1 and " " not in term))


def _script_of(word: str) -> str | None:
    """The language of a word that is not in Latin letters; empty for a script without stems and for a mixture."""
    if word.isascii() or "LATIN" in unicodedata.name(word[0], ""):
        return None
    name = next((name for name, letters in _NON_LATIN.items() if _compiled(f"[{letters}]+").fullmatch(word)), "")
    return "persian" if name == "arabic" and _compiled(_PERSIAN).search(word) else name


_stemmers = threading.local()  # a stemmer is not safe to share between threads


def _stemmer(name: str) -> Any:
    found = getattr(_stemmers, name, None)
    if found is None:
        from Stemmer import Stemmer

        found = Stemmer(name, 0)
        setattr(_stemmers, name, found)
    return found
