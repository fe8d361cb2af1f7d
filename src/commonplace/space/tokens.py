"""How many tokens a text has for a model, without its tokenizer: an estimate that would rather be too high.

Measured against the larger of OpenAI's cl100k and o200k: 1.35 to 1.5 times the true number for English prose and code,
1.0 to 1.8 for German, Russian, Arabic, Hindi, Thai, Chinese, Japanese and Korean, 1.05 to 1.5 for JSON, logs, numbers
and ids, and never below 0.8, for rare scripts, emoji and random letters. Whoever has the model's tokenizer gives that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

from commonplace.checks import JSON
from commonplace.space.message_text import is_encoded

CountTokens = Callable[[str], int]

TOKENS_AROUND_A_MESSAGE = 4
"""What a model's template adds to each message."""

TOKENS_OF_ENCODED_DATA = 1_600
"""An image, about: the characters that it is sent as are not what it costs."""

_LETTERS_A_TOKEN = 5
_PIECES = re.compile(r"[A-Z]?[a-z]+|[A-Z]{1,2}|[0-9]{1,2}|[!-~]|\s{2,}|[^\x00-\x7f]")
_USUAL_SCRIPTS = re.compile(r"[\u0080-\u06ff]+")  # Latin with accents, Greek, Cyrillic, Hebrew, Arabic
_DENSE_SCRIPTS = re.compile(r"[\u0900-\u097f\u0e00-\u0e7f\u3000-\ud7ff\uff00-\uffef]+")  # Devanagari, Thai, CJK
_SHARES = ((_USUAL_SCRIPTS, 0.9), (_DENSE_SCRIPTS, 1.25))
_RARE_SHARE = 2.5


def estimate_tokens(text: str) -> int:
    """About how many tokens a text has."""
    tokens = 0.0
    for piece in _PIECES.findall(text):
        tokens += 1 + (len(piece) - 1) // _LETTERS_A_TOKEN if piece.isascii() else 0
    if not text.isascii():
        others = sum(not character.isascii() for character in text)
        for script, share in _SHARES:
            count = sum(map(len, script.findall(text)))
            tokens += share * count
            others -= count
        tokens += _RARE_SHARE * others
    return int(tokens + 0.999)


def message_tokens(message: Mapping[str, JSON], count: CountTokens) -> int:
    """The tokens of a message as a model gets it: its content, its tools' calls and results, and what is around it."""
    content = message.get("content")
    if isinstance(content, str) and message.keys() <= {"role", "content"}:
        return TOKENS_AROUND_A_MESSAGE + count(content)
    encoded = [0]
    rest = {name: _readable(value, encoded) for name, value in message.items() if name != "role"}
    written = json.dumps(rest, ensure_ascii=False, separators=(",", ":"))
    return TOKENS_AROUND_A_MESSAGE + encoded[0] * TOKENS_OF_ENCODED_DATA + count(written)


def _readable(value: JSON, encoded: list[int]) -> JSON:
    """The value without encoded data, which is counted."""
    if isinstance(value, str):
        if not is_encoded(value):
            return value
        encoded[0] += 1
        return ""
    if isinstance(value, Mapping):
        return {name: _readable(item, encoded) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_readable(item, encoded) for item in value]
    return value
