"""The context of a model: messages within a budget of tokens, and the working memory.

A tool call is never included without its result, nor a result without its call: the missing one is read from the
thread, and an incomplete pair is left out. Only at the end of the requested thread, if no text message follows, calls
may lack their results: either all of them are included or none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from numbers import Integral
from typing import cast

from commonplace.checks import JSON
from commonplace.entry import Entry
from commonplace.errors import InvalidInput
from commonplace.space.conversation import Context, check_count
from commonplace.space.handle import Handle
from commonplace.space.message_text import Bundle, bundles, is_encoded, ties_of
from commonplace.space.messages import Message, message_of, neighbours_of
from commonplace.space.recall import Recall
from commonplace.space.records import Record, line_of
from commonplace.space.working_memory import WorkingMemory, state_text

CountTokens = Callable[[str], int]

MAX_TOKENS = 100_000_000
REACH = 200
"""In how many messages after a tool call its result is looked for."""

_STEP = 20

TOKENS_AROUND_A_MESSAGE = 4
"""What the chat template of a model adds to each message."""

TOKENS_OF_ENCODED_DATA = 1_600
"""About the cost of an image, however long its base64 text or its URL is."""

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
"""Fields of such a part with the data, its URL or its id, or with an object that has these."""

_ATTACHMENTS = "experimental_attachments"
_WRITTEN_FIELDS = ("input", "args", "arguments")
_WRITTEN_OUTPUTS = ("json", "error-json")
_LETTERS_A_TOKEN = 5
_PIECES = re.compile(
    r"[A-Z]?[a-z][a-ilmnopr-tvy]*"  # j, k, q, u, w, x and z start a piece: words with many of them have more tokens
    r"|[A-Z]{1,2}|[0-9]{1,2}|[!-/:-@\[-`{-~](?:\r?\n)*"
    r"| (?=[0-9])| {2,}|(?:\r?\n)+|\t+|[\x00-\x1f\x7f]"
)
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]+")
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
    (re.compile(r"[\U00010000-\U0001efff]+"), 3.5),  # Gothic and other scripts of four bytes that no tokenizer knows
)
_RARE_SHARE = 2.5


@dataclass(frozen=True, slots=True)
class Budget:
    max_tokens: int | None
    count_tokens: CountTokens

    def __post_init__(self) -> None:
        if self.max_tokens is not None:
            check_count("max_tokens", self.max_tokens, 1, MAX_TOKENS)
        if not callable(self.count_tokens):
            raise InvalidInput("count_tokens must be a function that takes a text and returns its number of tokens")

    def count(self, text: str) -> int:
        """The result of the caller's function, checked: with counts below 0 everything would fit."""
        tokens = self.count_tokens(text)
        if isinstance(tokens, bool) or not isinstance(tokens, Integral) or tokens < 0:
            raise InvalidInput(f"count_tokens must return a whole number of 0 or more, not {tokens!r}")
        return int(tokens)

    def left_after(self, system: str | None) -> int:
        """How many tokens are left for messages."""
        most = MAX_TOKENS if self.max_tokens is None else self.max_tokens
        needed = 0 if system is None else self.count(system)
        if needed > most:
            raise InvalidInput(
                f"max_tokens is {most:,}, but the working memory alone has {needed:,}; "
                "allow more, shorten it, or leave it out with working=False"
            )
        return most - needed


@dataclass(frozen=True, slots=True)
class Unit:
    """Messages of one thread that are included together or not at all."""

    messages: tuple[Message, ...]
    tokens: int
    age: int | None
    """0 for the newest message of the thread or for pending calls, more for older ones; None for results of a query."""
    hit: int | None
    """The rank among the hits; None for what is not a hit."""
    waits: bool
    """Whether these are all the calls without results at the end; nothing from another place may follow them."""


@dataclass(frozen=True, slots=True)
class SystemText:
    """What a context has for the system prompt: standing instructions and preferences, and working memories."""

    standing: str | None
    working: str | None
    omitted: int = 0
    """How many standing records did not fit."""

    @property
    def text(self) -> str | None:
        return "\n\n".join(filter(None, (self.standing, self.working))) or None

    @property
    def notices(self) -> tuple[str, ...]:
        if not self.omitted:
            return ()
        some = "1 standing instruction or preference does" if self.omitted == 1 else f"{self.omitted} standing ones do"
        return (f"{some} not fit into their part of the context; shorten them, or withdraw some",)


STANDING_HEADING = "Standing instructions and preferences of the user:"
STANDING_SHARE = 4
"""Standing instructions take at most one in so many of the tokens of a context."""


def system_of(
    standing: Sequence[Record], memories: Iterable[WorkingMemory | None], budget: Budget, most: int
) -> SystemText:
    """The system text. Standing records that would take more than `most` tokens are left out, each as a whole."""
    room = most if budget.max_tokens is None else min(most, budget.max_tokens // STANDING_SHARE)
    lines = [STANDING_HEADING]
    for record in standing:
        longer = [*lines, f"- {line_of(record)}"]
        if budget.count("\n".join(longer)) <= room:
            lines = longer
    written = "\n".join(lines) if len(lines) > 1 else None
    return SystemText(written, system_text(memories), len(standing) + 1 - len(lines))


def build_context(
    handle: Handle, thread_id: str, recalled: Recall, last: int, budget: Budget, system_parts: SystemText
) -> Context:
    """Choose from what was recalled; the `last` messages of it end the thread."""
    system = system_parts.text
    room = budget.left_after(system)
    chosen = _fitting(_units(handle, thread_id, recalled, last, budget), room)
    kept = _in_time_order(chosen)
    kept_ids = {message.id for message in kept}
    return Context(
        messages=tuple(as_it_came(message) for message in kept),
        system=system,
        tokens=(0 if system is None else budget.count(system)) + sum(unit.tokens for unit in chosen),
        omitted=sum(message.id not in kept_ids for message in recalled.messages),
        notices=(*recalled.notices, *system_parts.notices),
        standing=system_parts.standing,
    )


def as_it_came(message: Message) -> Mapping[str, JSON]:
    return cast("Mapping[str, JSON]", _entry(message).value)


def system_text(memories: Iterable[WorkingMemory | None]) -> str | None:
    """Working memories as text for the prompt, or None if all are empty."""
    texts = [state_text(memory.content) for memory in memories if memory is not None and memory.content]
    return "\n\n".join(texts) or None


# Choosing


def _fitting(units: Sequence[Unit], room: int) -> list[Unit]:
    """The newest, then hits in half of the rest, then the thread from its end back, then whatever fits.

    The thread is taken without gaps: a model that sees the question and the third answer makes up the rest.
    """
    recent = sorted((unit for unit in units if unit.age is not None), key=lambda unit: unit.age or 0)
    hits = sorted((unit for unit in units if unit.hit is not None), key=lambda unit: unit.hit or 0)
    room_left = _Room(room)
    for unit in recent[:1]:
        room_left.take(unit)
    half = room_left.left // 2
    for unit in hits:
        room_left.take(unit, leaving=half)
    for unit in recent:
        if not room_left.take(unit):
            break
    for unit in (*hits, *(unit for unit in units if unit.age is None)):
        room_left.take(unit)
    return room_left.taken


class _Room:
    def __init__(self, tokens: int) -> None:
        self.left = tokens
        self.taken: list[Unit] = []
        self._ids: set[str] = set()

    def take(self, unit: Unit, *, leaving: int = 0) -> bool:
        """Add a unit unless fewer than `leaving` tokens would be left; return whether it is included."""
        id = unit.messages[0].id
        if id in self._ids:
            return True
        if unit.tokens > self.left - leaving:
            return False
        self.left -= unit.tokens
        self.taken.append(unit)
        self._ids.add(id)
        return True


def _in_time_order(units: Sequence[Unit]) -> list[Message]:
    """Messages by time, but nothing comes between a call and its result, or after calls without results."""
    unit_of = {message.id: unit for unit in units for message in unit.messages}
    clusters: list[list[Message]] = []
    until = ""
    for message in sorted((message for unit in units for message in unit.messages), key=_key):
        if _key(message) > until:
            clusters.append([])
        clusters[-1].append(message)
        until = max(until, _key(unit_of[message.id].messages[-1]))
    waiting = next((unit.messages[0] for unit in units if unit.waits), None)

    def place(cluster: list[Message]) -> tuple[bool, int, str]:
        newest = cluster[-1]
        ends = waiting is not None and newest.thread_id == waiting.thread_id and _key(newest) >= _key(waiting)
        return ends, _entry(cluster[0]).created_at, _key(cluster[0])

    return [message for cluster in sorted(clusters, key=place) for message in cluster]


# Bundling


def _units(handle: Handle, thread_id: str, recalled: Recall, last: int, budget: Budget) -> list[Unit]:
    by_thread: dict[str, list[Message]] = {}
    for message in recalled.messages:
        by_thread.setdefault(message.thread_id, []).append(message)
    newest = by_thread.get(thread_id, [])[::-1][:last]
    ages = {message.id: age for age, message in enumerate(newest)}
    hits = {hit.key: place for place, hit in enumerate(recalled.hits)}
    return [
        Unit(
            members,
            sum(message_tokens(as_it_came(message), budget.count) for message in members),
            0 if waits and ages else min((ages[message.id] for message in members if message.id in ages), default=None),
            min((hits[message.id] for message in members if message.id in hits), default=None),
            waits,
        )
        for id, messages in by_thread.items()
        for members, waits in _bundled(handle, messages, newest[::-1] if id == thread_id else None)
    ]


def _bundled(
    handle: Handle, messages: Sequence[Message], newest: Sequence[Message] | None
) -> Iterator[tuple[tuple[Message, ...], bool]]:
    """The messages of one thread in bundles, completed from the thread; incomplete ones are left out.

    `newest` are the messages without gaps that end the thread; None if it is not the requested thread. Each bundle
    comes with whether it waits for results: only the first one can, at the end of the requested thread.
    """
    recalled = {message.id for message in messages}
    given: set[str] = set()
    for piece in (newest or (), *((message,) for message in messages)):
        if piece and piece[-1].id not in given:
            stretch = _Stretch(handle, piece, recalled, ends=piece is newest, may_wait=newest is not None)
            for members, waits in stretch.bundled():
                if given.isdisjoint(message.id for message in members):
                    given |= {message.id for message in members}
                    yield members, waits


class _Stretch:
    """Messages of a thread without gaps, extended in both directions until the recalled ones are complete."""

    def __init__(
        self, handle: Handle, messages: Sequence[Message], recalled: set[str], *, ends: bool, may_wait: bool
    ) -> None:
        self._handle = handle
        self._messages = [*messages]
        self._ties = [ties_of(as_it_came(message)) for message in messages]
        self._bundles = bundles(self._ties)
        self._recalled = recalled
        self._begins = False
        self._ends = ends
        self._may_wait = may_wait

    def bundled(self) -> Iterator[tuple[tuple[Message, ...], bool]]:
        while (lacks_before := self._may_lack_before()) or self._may_lack_after():
            self._read_on(-1 if lacks_before else 1)
        sound = [bundle for bundle in self._needed() if not bundle.is_uncalled]
        end = self._end()
        waiting = [place for bundle in sound if bundle.waits and bundle.places[-1] >= end for place in bundle.places]
        if waiting:
            yield self._at(sorted(waiting)), True
        for bundle in sound:
            if not bundle.waits:
                yield self._at(bundle.places), False

    def _needed(self) -> list[Bundle]:
        """Bundles with a recalled message and, if one of these is at the end, all that wait there or may wait."""
        end = self._end()
        is_end_recalled = any(map(self._is_recalled, range(end, len(self._messages))))
        return [
            bundle
            for bundle in self._bundles
            if not bundle.is_lost
            and (
                any(map(self._is_recalled, bundle.places))
                or (is_end_recalled and (bundle.waits or bundle.is_uncalled) and bundle.places[-1] >= end)
            )
        ]

    def _may_lack_before(self) -> bool:
        # Reasoning may precede what can follow it, and another pending call may precede those at the end.
        led = len([*takewhile(lambda one: one.is_reasoning or one.may_follow_reasoning, self._ties)])
        return not self._begins and (
            any(bundle.places[0] < (REACH if bundle.is_uncalled else min(led, REACH)) for bundle in self._needed())
            or (self._end() == 0 and len(self._messages) < REACH)
        )

    def _may_lack_after(self) -> bool:
        newest = len(self._messages) - 1
        return not self._ends and any(
            (bundle.waits and newest - bundle.places[-1] < REACH)
            or (bundle.places[-1] == newest and any(self._ties[place].is_reasoning for place in bundle.places))
            for bundle in self._needed()
        )

    def _read_on(self, direction: int) -> None:
        edge = self._messages[-1 if direction > 0 else 0]
        page = [*map(message_of, neighbours_of(self._handle, _entry(edge), direction * _STEP))]
        ties = [ties_of(as_it_came(message)) for message in page]
        if direction > 0:
            self._messages += page
            self._ties += ties
            self._ends = len(page) < _STEP
        else:
            self._messages[:0] = page[::-1]
            self._ties[:0] = ties[::-1]
            self._begins = len(page) < _STEP
        self._bundles = bundles(self._ties)

    def _end(self) -> int:
        """The index after the last text message, if calls may wait at the end."""
        place = len(self._ties)
        while self._may_wait and self._ends and place and not self._ties[place - 1].is_talk:
            place -= 1
        return place

    def _is_recalled(self, place: int) -> bool:
        return self._messages[place].id in self._recalled

    def _at(self, places: Sequence[int]) -> tuple[Message, ...]:
        return tuple(self._messages[place] for place in places)


def _key(message: Message) -> str:
    return _entry(message).key


def _entry(message: Message) -> Entry:
    assert message.entry is not None
    return message.entry


# Counting tokens. The estimate is rather too high than too low. Against the larger of OpenAI's cl100k and o200k it is
# 1.3 to 1.7 times the true number for English prose and most code, 1.0 to 1.5 for JSON, logs, numbers, tables and ids,
# and 0.8 to 1.9 for emoji and for texts in 113 languages. It is lower only where there are no words: 0.6 to 0.9 for
# random letters, 0.4 for a, c, g and t alone, 0.5 for the rarest Chinese characters.


def estimate_tokens(text: str) -> int:
    """An estimate of the number of tokens of a text."""
    pieces = _PIECES.findall(text)
    longer = [size for size in map(len, pieces) if size > _LETTERS_A_TOKEN]
    tokens = float(len(pieces) + sum((size - 1) // _LETTERS_A_TOKEN for size in longer))
    if not text.isascii():
        beyond = "".join(_BEYOND_ASCII.findall(text))  # often little, so that the scripts are looked for in that alone
        others = len(beyond)
        for script, share in _SHARES:
            count = sum(map(len, script.findall(beyond)))
            tokens += share * count
            others -= count
        tokens += _RARE_SHARE * others
    return int(tokens + 0.999)


def message_tokens(message: Mapping[str, JSON], count: CountTokens) -> int:
    """The tokens of a message as a model gets it: content, tool calls and results, and the chat template."""
    content = message.get("content")
    if isinstance(content, str) and message.keys() <= {"role", "content"}:
        return TOKENS_AROUND_A_MESSAGE + count(content)
    media = [0]
    said = {name: value for name, value in message.items() if name != "role"}
    if isinstance(spoken := message.get("audio"), Mapping):  # audio of a model, which may be sent back by its id alone
        said["audio"] = {"data": spoken.get("id"), **spoken, "type": "audio"}
    rest = _readable(said, media)
    written = json.dumps(rest, ensure_ascii=False, separators=(",", ":"), default=dict)
    return TOKENS_AROUND_A_MESSAGE + media[0] * TOKENS_OF_ENCODED_DATA + count(written)


def _readable(value: JSON, media: list[int], *, in_media: bool = False, in_result: bool = False) -> JSON:
    """The value without the data of images, audio and files. These are counted, and so are those given by URL.

    A text that only looks like data stays, because the model gets it as text; so does a URL in the result of a tool.
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
    # The source of a document may be text.
    is_media = kind in _MEDIA_PARTS or (in_media and kind != "text")
    # A tool result of the AI SDK is arbitrary data, unless its output says that it has parts.
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
