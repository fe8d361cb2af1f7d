"""Titles of conversations: how one is made by rule, what every title looks like, and when a thread needs one.

A title has at most 80 characters, is one line, and has neither quotes nor colons.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from commonplace.checks import JSON
from commonplace.space.conversation import Thread
from commonplace.space.message_text import searchable_text
from commonplace.space.messages import Message, MessagePage

MAX_CHARACTERS = 80
MAX_SOURCE_CHARACTERS = 2_000
"""A first message may be a pasted log. Its start is enough, for the rule and for a model."""

FIRST_MESSAGES = 20
"""In how many messages from the start of a thread the first user message is looked for."""

_AT_ONCE = 2
"""How many messages are read at a time; few, because each may contain an image."""

_CODE_BLOCK = re.compile(r"```[^`]*```")
_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://(?:www\.)?", re.IGNORECASE)
_MARKUP = re.compile(r"^[\s#>*+=|_~-]+|[*_~|=#]{2,}", re.MULTILINE)
_APOSTROPHE = re.compile(r"(?<=\w)['’](?=\w)")
_KEPT_APOSTROPHE = "\N{MODIFIER LETTER APOSTROPHE}"
_QUOTES = re.compile(
    "[\"'`´«»‘-‟‹›❛-❠❮❯⹂「-』〝-〟﹁-﹄＂＇｢｣\U0001f676-\U0001f678]"
    r"|(?<!\w)[\u05f3\u05f4]|[\u05f3\u05f4](?!\w)"  # inside a word it marks a Hebrew abbreviation
)
_COLON_IN_NUMBER = re.compile(r"(?<=\d)[:：](?=\d)")
_COLON = re.compile("[:：︰﹕]")
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u115f\u1160\u200b\u200e\u200f\u202a-\u202e\u2028\u2029\u2060-\u2069\u3164\ufeff\uffa0"
    "\ud800-\udfff]"
)
_FIRST_SENTENCE = re.compile(r"(.{12,}?[.!?。！？])(?:\s|(?<=[。！？]))", re.DOTALL)
_REASONING = re.compile(r"<think(?:ing)?\b.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
"""Reasoning without a closing tag extends to the end of the text."""

_PLACEHOLDER = re.compile(r"New Thread \d{4}-\d\d-\d\dT[0-9:.]+Z?")
"""The title that Mastra gives a thread without one."""


def has_own_title(title: str | None) -> bool:
    """Whether someone chose the title; a placeholder does not count."""
    return title is not None and bool(title.strip()) and _PLACEHOLDER.fullmatch(title.strip()) is None


def local_title(text: str) -> str | None:
    """A title by rule: the first sentence, without markup; None if the text has no words."""
    said = _REASONING.sub(" ", text[:MAX_SOURCE_CHARACTERS])
    start = _CODE_BLOCK.sub(" ", said).strip() or said
    plain = _MARKUP.sub(" ", _ADDRESS.sub("", start)).strip()
    sentence = _FIRST_SENTENCE.match(plain + " ")
    return clean_title(sentence[1] if sentence else plain)


def clean_title(text: str) -> str | None:
    """A text made into a title; None if nothing readable is left."""
    line = _UNSEEN.sub(" ", text[: 10 * MAX_SOURCE_CHARACTERS])
    line = _QUOTES.sub("", _APOSTROPHE.sub(_KEPT_APOSTROPHE, line))
    line = _REASONING.sub(" ", line)[:MAX_SOURCE_CHARACTERS]
    line = " ".join(_COLON.sub(" ", _COLON_IN_NUMBER.sub(".", line)).split())
    line = _shortened(line).strip(" .,;。，、-–—")
    return line if any(character.isalnum() for character in line) else None


def _shortened(line: str) -> str:
    if len(line) <= MAX_CHARACTERS:
        return line
    cut = line[: MAX_CHARACTERS - 1]
    # Scripts without spaces, and long words, are cut anywhere.
    words = cut.rpartition(" ")[0]
    return (words if len(words) >= MAX_CHARACTERS // 2 else cut).rstrip(" .,;-–—\u05f3\u05f4") + "…"


def untitled_text(read: Callable[..., MessagePage], thread: Thread) -> str | None:
    """The text to title a thread by: that of its first user message. None if the thread has a title, or no words."""
    return None if has_own_title(thread.title) else first_user_text(read, thread.id)


def first_user_text(read: Callable[..., MessagePage], thread_id: str) -> str | None:
    """The text of the first user message that has any; `read` is `Threads.messages`."""
    cursor: str | None = None
    for _ in range(0, FIRST_MESSAGES, _AT_ONCE):
        page = read(thread_id, limit=_AT_ONCE, cursor=cursor)
        for message in page.messages:
            if message.role == "user" and (text := searchable_text(_without_speaker(message)).strip()):
                return text[:MAX_SOURCE_CHARACTERS]
        cursor = page.cursor
        if cursor is None:
            break
    return None


def _without_speaker(message: Message) -> dict[str, JSON]:
    return {**message.extra, "name": None, "content": message.content}
