"""How many tokens a text has for a model, without its tokenizer: an estimate that would rather be too high.

Measured against the larger of OpenAI's cl100k and o200k: 1.3 to 1.7 times the true number for English prose and most
code, 1.0 to 1.5 for JSON, logs, numbers, tables and ids, 0.8 to 1.9 for emoji and texts in 113 languages. Lower only
where there are no words: 0.6 to 0.9 for letters at random, 0.4 for a, c, g and t alone, 0.5 for the rarest characters
of Chinese. Whoever has the model's tokenizer gives that.
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
"""An image, about: the characters that it is sent as, or the address that it is fetched from, are not its cost."""

_MEDIA_PARTS = (
    "image",
    "image_url",
    "image_file",
    "input_image",
    "image-data",
    "image-url",
    "image-file-id",
    "image_generation_call",
    "computer_screenshot",
    "audio",
    "input_audio",
    "video",
    "media",
    "file",
    "input_file",
    "file-data",
    "file-url",
    "file-id",
    "document",
)
_MEDIA_FIELDS = (
    "url",
    "data",
    "image_url",
    "image_file",
    "file_data",
    "file_id",
    "fileId",
    "file_url",
    "image",
    "file",
    "source",
    "input_audio",
    "audio",
    "base64",
    "result",
)
"""What holds the data in such a part, its address or its id; or the object that holds it."""

_ATTACHMENTS = "experimental_attachments"
_WRITTEN_FIELDS = ("input", "args", "arguments")
_WRITTEN_OUTPUTS = ("json", "error-json")
_LETTERS_A_TOKEN = 5
_PIECES = re.compile(
    r"[A-Z]?[a-z][a-ilmnopr-tvy]*"  # j, k, q, u, w, x and z begin a piece: where words have more tokens, so have these
    r"|[A-Z]{1,2}|[0-9]{1,2}|[!-/:-@\[-`{-~](?:\r?\n)*"
    r"| (?=[0-9])| {2,}|(?:\r?\n)+|\t+|[\x00-\x1f\x7f]"
)
_SHARES = (
    (re.compile(r"[\u0400-\u045f\u0600-\u066f]+"), 0.9),  # Cyrillic, Arabic
    (
        # Latin with accents, Greek, Hebrew, Persian, Devanagari, Thai, CJK with its signs
        re.compile(
            r"[\u00a0-\u017f\u03ac-\u03ce\u0590-\u05ff\u0670-\u06ff\u0900-\u097f\u0e00-\u0e7f"
            r"\u3000-\u30ff\u4e00-\u9fff\uac00-\ud7a3\uff00-\uff20]+"
        ),
        1.25,
    ),
    (re.compile(r"[\U00010000-\U0001efff]+"), 3.5),  # Gothic and others of four bytes that no tokenizer has met
)
_RARE_SHARE = 2.5


def estimate_tokens(text: str) -> int:
    """About how many tokens a text has."""
    tokens = float(sum(1 + (len(piece) - 1) // _LETTERS_A_TOKEN for piece in _PIECES.findall(text)))
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
    media = [0]
    said = {name: value for name, value in message.items() if name != "role"}
    if isinstance(spoken := message.get("audio"), Mapping):  # a model's own, which may come back by its id alone
        said["audio"] = {"data": spoken.get("id"), **spoken, "type": "audio"}
    rest = _readable(said, media)
    written = json.dumps(rest, ensure_ascii=False, separators=(",", ":"), default=dict)
    return TOKENS_AROUND_A_MESSAGE + media[0] * TOKENS_OF_ENCODED_DATA + count(written)


def _readable(value: JSON, media: list[int], *, in_media: bool = False, in_result: bool = False) -> JSON:
    """The value without the data of images, sounds and files, which are counted, and so are those given by address.

    A text that only looks like data is written out for the model, and stays; so does an address in a tool's result.
    """
    if isinstance(value, str):
        is_data = in_media and is_encoded(value)
        media[0] += is_data or (in_media and not in_result and value != "")
        return "" if is_data else value
    if isinstance(value, (list, tuple)):
        return [_readable(item, media, in_media=in_media, in_result=in_result) for item in value]
    if isinstance(value, Mapping):
        return _readable_fields(value, media, in_media, in_result)
    return value


def _readable_fields(part: Mapping[str, JSON], media: list[int], in_media: bool, in_result: bool) -> JSON:
    kind = part.get("type")
    if kind in _WRITTEN_OUTPUTS:
        return part
    # A document's source may be a text.
    is_media = kind in _MEDIA_PARTS or (in_media and kind != "text")
    # What a tool of the AI SDK's gave back is any data, but for an output that says to be made of parts.
    in_result = kind != "content" and (in_result or "toolCallId" in part)
    return {
        name: item
        if name in _WRITTEN_FIELDS
        else _readable(
            item,
            media,
            in_media=name == _ATTACHMENTS or (is_media and name in _MEDIA_FIELDS),
            in_result=in_result,
        )
        for name, item in part.items()
    }
