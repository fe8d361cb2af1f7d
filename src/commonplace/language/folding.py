"""Text as the keyword index sees it: one spelling for what a reader takes as the same characters.

Compatibility forms become plain (`ﬁ`, `Ｗ`, `①`), accents go where they only decorate (`café`), invisible
characters disappear, punctuation beyond ASCII becomes a space. Marks that are letters of their script (the
vowel signs of Hindi or Thai, the dakuten of `が`) stay. Letter case stays as well: `getUserById` is still to
be taken apart by it.
"""

from __future__ import annotations

import re
import unicodedata

# Normalising takes time in the square of a run of marks (10 s for 80,000 of them), so runs go in pieces.
# ASCII needs none: what a mark does to an ASCII letter, folding undoes.
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
    "й": "й",  # a letter of its own, not a decorated и
    "Й": "Й",
    "ё": "е",
    "Ё": "Е",
}
# Soft hyphen, joiners, variation selectors, keycap, skin tones: how a character looks, not what it is.
_INVISIBLE = re.compile("[\u00ad\u200c\u200d\u2060\ufeff\ufe00-\ufe0f\u20e3\U0001f3fb-\U0001f3ff\U000e0000-\U000e0fff]")
# Diacritics of Latin, Greek and Cyrillic; the pointing that Hebrew and Arabic are usually written without.
_DECORATION = re.compile(
    "[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u0640\u064b-\u0652\u0670]"
)
_DECORATED_SCRIPTS = re.compile("[\u00c0-\u052f\u1e00-\u1fff]")
_EMOJI_PLANE = range(0x1F000, 0x1FB00)


def fold(text: str) -> str:
    """The text with its spelling variants removed; takes any string, in linear time.

    In the result every character beyond ASCII is a part of a word or a symbol with spaces around it.
    """
    if text.isascii():
        return text
    return _BEYOND_ASCII.sub(lambda run: unicodedata.normalize("NFKC", run[0]).translate(_TABLE), text)


class _Table(dict[int, str]):
    """What each character becomes, worked out when it is first met."""

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
    # A flag is two of these, and only together.
    return "\U0001f1e6" <= character <= "\U0001f1ff"


_TABLE = _Table({code: chr(code) for code in range(128)})
