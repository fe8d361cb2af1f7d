"""The stem of an English word: Porter2, so that `deploys`, `deployed` and `deploying` are one term.

A word is lower-case ASCII letters. Stems are never shown to anyone; they only have to be equal for words that
mean alike. Other languages pass through it too, at little cost: both sides of a search are cut alike.
"""

from __future__ import annotations

import re

_VOWELS = "aeiouy"
_DOUBLES = ("bb", "dd", "ff", "gg", "mm", "nn", "pp", "rr", "tt")

# Region 1 begins after the first consonant that follows a vowel; these beginnings would put it too early.
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
