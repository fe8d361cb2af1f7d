"""WordPiece, the tokenizer of uncased BERT models: text to token ids, as the `tokenizers` package gives them.

The promise is equality with that package's BertNormalizer, BertPreTokenizer and WordPiece, which a
differential test checks. One thing differs on purpose: `[SEP]` written in a text is text, never a control
token (`encode_special_tokens=True` over there).
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path

from commonplace.errors import ConfigurationError

MAX_WORD_CHARACTERS = 100
MAX_CACHED_WORDS = 50_000
# A text is normalised in blocks, so that a book costs no more than the page that fits the model.
BLOCK_CHARACTERS = 8_192

_CJK_BLOCKS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),  # 0x2B920, where BERT's own code has 0x2B820: the reference is `tokenizers`
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


class _Cleaning(dict[int, str]):
    """Code point to its text after cleaning: controls vanish, white space is a space, CJK stands alone."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        category = unicodedata.category(character)
        if character in "\t\n\r" or category in ("Zs", "Zl", "Zp"):
            clean = " "
        elif code == 0xFFFD or category in ("Cc", "Cf", "Co", "Cs"):
            clean = ""
        elif any(first <= code <= last for first, last in _CJK_BLOCKS):
            clean = f" {character} "
        else:
            clean = character
        self[code] = clean
        return clean


class _Folding(dict[int, str]):
    """Decomposed code point to its text: accents vanish, letters are small, punctuation stands alone."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        category = unicodedata.category(character)
        if category == "Mn":
            folded = ""
        elif category[0] == "P" or (code < 0x80 and category[0] == "S"):
            folded = f" {character} "
        else:
            # One character at a time: str.lower on a whole word would turn a last Σ into ς.
            folded = character.lower()
        self[code] = folded
        return folded


_CLEANING = _Cleaning()
_FOLDING = _Folding()


def _words(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        # A space ends a word in every step below, so a cut there changes nothing.
        end = text.find(" ", start + BLOCK_CHARACTERS)
        end = len(text) if end < 0 else end
        cleaned = text[start:end].translate(_CLEANING)
        if not cleaned.isascii():
            cleaned = unicodedata.normalize("NFD", cleaned)
        yield from cleaned.translate(_FOLDING).split()
        start = end


class WordPiece:
    """Turns a text into the token ids of an uncased BERT model; safe to share between threads."""

    def __init__(self, vocabulary: Mapping[str, int], *, max_tokens: int) -> None:
        missing = [token for token in ("[UNK]", "[CLS]", "[SEP]") if token not in vocabulary]
        if missing:
            raise ConfigurationError(f"the vocabulary has no {', '.join(missing)}; it is not a BERT vocabulary")
        self._vocabulary = vocabulary
        self._max_tokens = max_tokens
        self._unknown = (vocabulary["[UNK]"],)
        self._first = vocabulary["[CLS]"]
        self._last = vocabulary["[SEP]"]
        self._cache: dict[str, tuple[int, ...]] = {}

    @classmethod
    def from_file(cls, path: Path, *, max_tokens: int) -> WordPiece:
        """Read `vocab.txt` (a token a line, LF or CRLF) or a `tokenizer.json` that holds a WordPiece."""
        text = path.read_text(encoding="utf-8")
        if path.suffix != ".json":
            return cls({token: number for number, token in enumerate(text.split("\n"))}, max_tokens=max_tokens)
        try:
            vocabulary = json.loads(text)["model"]["vocab"]
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(f"{path} is no tokenizer.json: {error!r}") from error
        if not isinstance(vocabulary, dict):
            raise ConfigurationError(f"{path} holds no WordPiece vocabulary")
        return cls(vocabulary, max_tokens=max_tokens)

    def encode(self, text: str) -> list[int]:
        """Give the ids of the text between [CLS] and [SEP], cut to max_tokens in all."""
        room = self._max_tokens - 2
        ids = [self._first]
        for word in _words(text):
            pieces = self._cache.get(word)
            if pieces is None:
                pieces = self._split(word)
                if len(self._cache) >= MAX_CACHED_WORDS:
                    self._cache.clear()
                self._cache[word] = pieces
            ids.extend(pieces)
            if len(ids) > room:
                del ids[room + 1 :]
                break
        ids.append(self._last)
        return ids

    def _split(self, word: str) -> tuple[int, ...]:
        """Cut the longest known pieces from the left; a word with an unknown piece is unknown whole."""
        if len(word) > MAX_WORD_CHARACTERS:
            return self._unknown
        pieces = []
        start = 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = word[start:end] if start == 0 else "##" + word[start:end]
                number = self._vocabulary.get(piece)
                if number is not None:
                    pieces.append(number)
                    start = end
                    break
            else:
                return self._unknown
        return tuple(pieces)
