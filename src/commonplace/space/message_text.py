"""The formats of messages: their searchable text, their working memory tags, and which messages belong together.

Known shapes: plain text; lists of parts (OpenAI's `text`, `input_text`, `output_text`; Anthropic's `tool_use` and
`tool_result`; the AI SDK's `tool-call`, `tool-result` and `tool-NAME`); OpenAI's `tool_calls`, `refusal` and `audio`;
the AI SDK's `toolInvocations`; Mastra's format 2, `{"format": 2, "parts": […]}`; the Responses API's items without a
role, such as `function_call`. Of an unknown part the `text` is searched, if it has one. Reasoning, images and encoded
data are not searched.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from commonplace.checks import JSON

OPENING = "<working_memory>"
CLOSING = "</working_memory>"
LONGEST_SPEAKER = 64
"""Characters of a `name` that is put before the text; longer ones are not names of speakers."""

_REASONING = ("reasoning", "thinking", "redacted_thinking", "redacted-reasoning")
_CALL_FIELDS = ("name", "toolName", "title", "input", "args", "arguments", "rawInput", "action", "queries", "code")
_RESULT_FIELDS = ("content", "output", "result", "results", "errorText")
_TOOL_BEGINNINGS = ("tool", "function", "dynamic-tool", "server_tool", "mcp_", "program")
_CALL_ENDINGS = ("_call", "_call_output")
_ITEMS_WITHOUT_ROLE = (
    "reasoning",
    "compaction",
    "item_reference",
    "mcp_list_tools",
    "mcp_approval_request",
    "mcp_approval_response",
    "tool_search_output",
    "program",
    "program_output",
)
_NAME_FIELDS = ("filename", "name", "title", "alt", "caption")
_TEXT_FIELDS = ("text", "value", "refusal", "content", "parts")
_TAG_END = OPENING[1:]
_TAG_ENDS = frozenset(CLOSING[start:] for start in range(1, len(CLOSING)))
"""What can remain of a tag after a cut."""
_ENCODED = re.compile(r"[A-Za-z0-9+/=_-]{200,}")
_DATA_ADDRESS = re.compile(
    r"data:(?:(?:application|audio|font|image|model|text|video)/[\w.+-]+(?:;[^\s;,]*)*|;base64),", re.IGNORECASE
)
"""Such as `data:image/png;base64,`. Lines of an event stream start with `data:` too, but are text."""
_EMBEDDED = re.compile(
    r"data:[\w.+-]{1,100}/[\w.+-]{1,100}(?:;[^\s;,]{1,100}){0,5};base64,[A-Za-z0-9+/=_%-]{200,}", re.IGNORECASE
)
"""An image in a text, as in Markdown."""
LONGEST_WORD = 10_000
_LONG_WORD = re.compile(rf"(?<![A-Za-z0-9+/=_-])[A-Za-z0-9+/=_-]{{{LONGEST_WORD + 1},}}")
"""Such a long word of base64 characters is data, also inside a text such as the JSON result of a tool."""

_CALLING_PARTS = ("tool_use", "server_tool_use", "mcp_tool_use")
_RESULT_PARTS = ("tool-result", "tool-error")
_APPROVAL_PARTS = ("tool-approval-request", "tool-approval-response")
_CALLS_OF_OTHER_NAMES = ("program", "mcp_approval_request")
_ONLY_TEXT = {"role", "content"}
_TIED_BY_ID = ("mcp_approval_request", "local_shell_call_output")


def searchable_text(message: Mapping[str, JSON]) -> str:
    """The searchable text of a message: speaker, text, names, arguments and results of tools, names of files."""
    content = message.get("content")
    if message.keys() == _ONLY_TEXT and isinstance(content, str):  # most messages
        text = _without_data(content)
        return text if text.strip() else ""
    if is_item_without_role(message):
        found = [*_part_texts(message)]
    else:
        found = [*_texts(content), *_texts(parts_of_message(message))]
        found += [*_texts(message.get("refusal")), *_texts(_items([message.get("audio")]))]
    for call in _items(message.get("tool_calls")) + _items([message.get("function_call")]):
        function = call.get("function") or call.get("custom")
        found += _leaves_of(function if isinstance(function, Mapping) else call, _CALL_FIELDS)
    text = "\n".join(text for text in map(_without_data, found) if text.strip())
    speaker = message.get("name")
    # With several speakers the name matters: without it a third of the answers is not found.
    return f"{speaker}: {text}" if text and _is_speaker(speaker) else text


def parts_of_message(message: Mapping[str, JSON]) -> JSON:
    """The parts of a message of the AI SDK; if it has none, its `toolInvocations`, as in version 4."""
    return message.get("parts") or [
        {"type": "tool-invocation", "toolInvocation": use} for use in _items(message.get("toolInvocations"))
    ]


def _without_data(text: str) -> str:
    """A text without the encoded images in it."""
    if len(text) <= LONGEST_WORD and ";base64," not in text:
        return text
    return _LONG_WORD.sub("", _EMBEDDED.sub("", text) if ";base64," in text else text)


def _is_speaker(name: JSON) -> bool:
    return isinstance(name, str) and 0 < len(name.strip()) <= LONGEST_SPEAKER and "\n" not in name


def is_item_without_role(message: Mapping[str, JSON]) -> bool:
    """Whether this is an item of the OpenAI Responses API without a role: a tool call or result, or reasoning."""
    kind = message.get("type")
    return (
        isinstance(kind, str)
        and "role" not in message
        and (kind.endswith(_CALL_ENDINGS) or kind in _ITEMS_WITHOUT_ROLE)
    )


def is_encoded(text: str) -> bool:
    """Whether a text is encoded data, such as an image."""
    return _DATA_ADDRESS.match(text) is not None or _ENCODED.fullmatch(text) is not None


def without_working_memory(content: JSON) -> JSON:
    """A content without `<working_memory>…</working_memory>` in its texts; results of tools are not changed."""
    if isinstance(content, str):
        return strip_tags(content)
    if isinstance(content, (list, tuple)):
        return [without_working_memory(part) for part in content]
    if isinstance(content, Mapping):
        kind = str(content.get("type", ""))
        if kind.startswith(_TOOL_BEGINNINGS) or kind.endswith("_tool_result"):
            return content
        return {
            name: without_working_memory(value) if name in _TEXT_FIELDS else value for name, value in content.items()
        }
    return content


def strip_tags(text: str) -> str:
    """Remove the tags and what is between them; a tag without its partner stays.

    A section within a section goes with it, and so does one that a cut brings about, as in `<working_<…></…>memory>`.
    """
    first = text.find(OPENING)
    if first < 0 or text.find(CLOSING, first) < 0:
        return text
    # One pass: searching again after each cut would take quadratic time on deep nesting.
    kept = io.StringIO()
    depth, outermost, place = 0, 0, 0
    since_cut: int | None = None  # the position of the first opening tag after the last cut
    has_cut = False
    while place < len(text):
        bracket = text.find(">", place, place + len(CLOSING)) + 1
        if has_cut and text[place:bracket] in _TAG_ENDS:
            stop = bracket
        else:
            found = text.find(_TAG_END, place)
            stop = len(text) if found < 0 else found + len(_TAG_END)
        kept.write(text[place:stop])
        place, has_cut = stop, False
        end = kept.tell()
        kept.seek(max(0, end - len(CLOSING)))
        tail = kept.read()
        if tail.endswith(OPENING):
            start = end - len(OPENING)
            outermost = min(outermost, start) if depth else start
            since_cut = start if since_cut is None else since_cut
            depth += 1
        elif tail == CLOSING and depth:
            kept.seek(outermost if since_cut is None else since_cut)
            kept.truncate()
            since_cut = None
            depth -= 1
            has_cut = True
    return kept.getvalue().strip()


def _texts(content: JSON) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, (list, tuple)):
        for part in content:
            yield from _texts(part)
    elif isinstance(content, Mapping):
        yield from _part_texts(content)


def _part_texts(part: Mapping[str, Any]) -> Iterator[str]:
    kind = part.get("type")
    kind = kind if isinstance(kind, str) else ""
    if kind in _REASONING:
        return
    if kind == "tool-invocation" and isinstance(part.get("toolInvocation"), Mapping):
        part = part["toolInvocation"]
    if kind in ("tool_result", "function_call_output"):
        yield from _results(part)
    elif kind.startswith(_TOOL_BEGINNINGS) or kind.endswith(_CALL_ENDINGS):
        if kind.startswith("tool-") and "toolName" not in part:
            yield kind.removeprefix("tool-")
        yield from _leaves_of(part, _CALL_FIELDS)
        yield from _results(part)
    elif isinstance(part.get("parts"), (list, tuple)) and part["parts"]:
        yield from _texts(part["parts"])  # format 2 repeats these in its `content`
    elif kind in ("image", "image_url", "input_image", "file", "input_file", "document", "source-document"):
        yield from _leaves_of(part, _NAME_FIELDS)
        source = part.get("source")
        if isinstance(source, Mapping) and source.get("type") in ("text", "content"):
            yield from _texts(source.get("data") or source.get("content"))
    else:
        yield from _plain_text(part)


def _plain_text(part: Mapping[str, Any]) -> Iterator[str]:
    text = part.get("text", part.get("refusal", part.get("transcript")))
    if isinstance(text, Mapping):
        text = text.get("value")
    if isinstance(text, str):
        yield text
    else:
        yield from _texts(part.get("content"))


def _results(part: Mapping[str, Any]) -> Iterator[str]:
    for name in _RESULT_FIELDS:
        result = part.get(name)
        if isinstance(result, Mapping) and "value" in result:
            result = result["value"]  # {"type": "text" or "json", "value": …} in the AI SDK
        if _is_parts(result):
            yield from _texts(result)
        else:
            yield from _leaves(result)


def _is_parts(value: JSON) -> bool:
    items = _items(value)
    return bool(items) and all(isinstance(item.get("type"), str) for item in items)


def _items(value: JSON) -> list[Mapping[str, Any]]:
    if not isinstance(value, (list, tuple)):
        return []
    return [cast("Mapping[str, Any]", item) for item in value if isinstance(item, Mapping)]


def _leaves_of(part: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        yield from _leaves(part.get(name))


def _leaves(value: JSON) -> Iterator[str]:
    """The strings and numbers of any JSON, without encoded data."""
    if isinstance(value, str):
        if not is_encoded(value):
            yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield str(value)


# A message for people: what was said, and what tools were asked and answered


@dataclass(frozen=True, slots=True)
class MessagePart:
    """A part of a message. `text` is what was said, or JSON; `name` is that of a tool or a file."""

    kind: Literal["text", "call", "result", "reasoning", "other"]
    text: str
    name: str | None = None


def message_parts(message: Mapping[str, JSON]) -> Iterator[MessagePart]:
    """The parts of a message in any of the known shapes, in order."""
    if is_item_without_role(message):
        yield from _shown_part(message)
        return
    content = message.get("content")
    if message.get("role") in ("tool", "function") and isinstance(content, str):
        yield MessagePart("result", content, _name_of(message))
    else:
        yield from _shown(content)
    if not (isinstance(content, Mapping) and content.get("parts")):
        yield from _shown(parts_of_message(message))
    yield from _shown(message.get("refusal"))
    yield from _shown(_items([message.get("audio")]))
    for call in _items(message.get("tool_calls")) + _items([message.get("function_call")]):
        function = call.get("function") or call.get("custom")
        yield _call(function if isinstance(function, Mapping) else call)


def _shown(content: JSON) -> Iterator[MessagePart]:
    if isinstance(content, str):
        if content:
            yield MessagePart("text", content)
    elif isinstance(content, (list, tuple)):
        for part in content:
            yield from _shown(part)
    elif isinstance(content, Mapping):
        yield from _shown_part(content)


def _shown_part(part: Mapping[str, Any]) -> Iterator[MessagePart]:
    kind = part.get("type")
    kind = kind if isinstance(kind, str) else ""
    inner = part.get("toolInvocation")
    if kind in _REASONING:
        said = "\n".join(_leaves_of(part, ("text", "reasoning", "thinking", "summary", "content")))
        yield MessagePart("reasoning", said)
    elif isinstance(inner, Mapping):
        yield from _call_and_result(inner)
    elif kind in (*_RESULT_PARTS, "tool_result") or kind.endswith(("_output", "_tool_result")):
        yield _result(part)
    elif kind.startswith(_TOOL_BEGINNINGS) or kind.endswith(_CALL_ENDINGS):
        yield from _call_and_result(part)
    elif isinstance(part.get("parts"), (list, tuple)) and part["parts"]:
        yield from _shown(part["parts"])
    elif said := "\n".join(_plain_text(part)):
        yield MessagePart("text", said)
    elif kind != "step-start":
        yield MessagePart("other", _written(part), kind or _name_of(part))


def _call_and_result(part: Mapping[str, Any]) -> Iterator[MessagePart]:
    yield _call(part)
    if any(part.get(name) is not None for name in ("output", "result", "errorText")):
        yield _result(part)


def _call(part: Mapping[str, Any]) -> MessagePart:
    names = ("input", "args", "arguments", "rawInput", "action", "queries", "code")
    return MessagePart("call", _first_written(part, names), _name_of(part))


def _result(part: Mapping[str, Any]) -> MessagePart:
    name = _name_of(part) if "tool_use_id" not in part else None
    return MessagePart("result", _first_written(part, ("output", "result", "results", "content", "errorText")), name)


def _first_written(part: Mapping[str, Any], names: Sequence[str]) -> str:
    """The first of these fields that the part has; all of the part if it has none of them."""
    found = next((part[name] for name in names if part.get(name) is not None), part)
    if isinstance(found, Mapping) and set(found) == {"type", "value"}:
        found = found["value"]
    if _is_parts(found):
        said = [one.text for one in _shown(found)]
        return "\n".join(said)
    return _written(found)


def _name_of(part: Mapping[str, Any]) -> str | None:
    for name in ("name", "toolName", "title", "filename"):
        if isinstance(part.get(name), str) and part[name]:
            return cast("str", part[name])
    kind = part.get("type")
    return kind.removeprefix("tool-") if isinstance(kind, str) and kind.startswith("tool-") else None


def _written(value: JSON) -> str:
    """A value as a text that people can read: JSON with indents, also where it is written in a string."""
    if isinstance(value, str):
        if value[:1] not in ("{", "["):
            return value
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return cast("str", value)
    return json.dumps(value, ensure_ascii=False, indent=2, default=dict)


# Which messages belong together: the call of a tool and its result, reasoning and what it led to. A model refuses a
# call without its result and a result without its call, so leave out all of a group or nothing of it.


@dataclass(frozen=True, slots=True)
class Ties:
    """What links a message to others: the ids of the calls that it makes, and of those whose results it has."""

    calls: frozenset[str]
    results: frozenset[str]
    is_reasoning: bool
    """Reasoning of the Responses API, which the API refuses without the item after it."""
    may_follow_reasoning: bool
    is_talk: bool
    """Whether it is neither a call, nor a result, nor reasoning."""


def is_tied_by_id(message: Mapping[str, JSON]) -> bool:
    """Whether the `id` of an item links it to another one."""
    return is_item_without_role(message) and message["type"] in _TIED_BY_ID


def ties_of(message: Mapping[str, JSON]) -> Ties:
    found = [*_ties(message)]
    kind = message.get("type")
    is_item = is_item_without_role(message)
    return Ties(
        calls=frozenset(id for id, is_call in found if is_call),
        results=frozenset(id for id, is_call in found if not is_call),
        is_reasoning=is_item and kind == "reasoning",
        may_follow_reasoning=(is_item and (str(kind).endswith("_call") or kind in _CALLS_OF_OTHER_NAMES))
        or (kind == "message" and message.get("role") == "assistant"),
        is_talk=not found and not is_item,
    )


def _ties(message: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Each id, with whether it is that of a call."""
    role = message.get("role")
    if is_item_without_role(message):
        yield from _item_ties(message)
    for call in _mappings(message.get("tool_calls")):
        yield from _tie(call.get("id"), is_call=True)
    if isinstance(message.get("function_call"), Mapping):  # the older form, without ids: linked by name
        yield from _tie(message["function_call"].get("name"), is_call=True)
    if role == "tool":
        yield from _tie(message.get("tool_call_id"), is_call=False)
    if role == "function":
        yield from _tie(message.get("name"), is_call=False)
    content = message.get("content")
    parts = content.get("parts", [content]) if isinstance(content, Mapping) else content
    for part in (*_mappings(parts), *_mappings(parts_of_message(message))):
        yield from _part_ties(part)


def _item_ties(item: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    kind = item["type"]
    id = item.get("call_id")
    if id is None and is_tied_by_id(item):
        id = item.get("id")
    elif id is None and kind.startswith("tool_search_"):
        id = "tool_search"  # a search by the service itself has no id; its result is the next item
    elif kind == "mcp_approval_response":
        id = item.get("approval_request_id")
    yield from _tie(id, is_call=not kind.endswith(("_output", "_response")))


def _part_ties(part: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    kind = part.get("type")
    kind = kind if isinstance(kind, str) else ""
    if kind in _CALLING_PARTS:
        yield from _tie(part.get("id"), is_call=True)
    elif "tool_use_id" in part:
        yield from _tie(part["tool_use_id"], is_call=False)
    elif kind in _RESULT_PARTS:
        yield from _tie(part.get("toolCallId"), is_call=False)
    elif kind in _APPROVAL_PARTS and isinstance(part.get("approvalId"), str):
        # A response needs its request, but not the reverse: the call of the request is in the same message.
        id = f"approval {part['approvalId']}"
        yield id, False
        if kind == "tool-approval-request":
            yield id, True
    elif kind.startswith("tool-") or kind == "dynamic-tool":
        # In the AI SDK one part is first a call and then its result.
        inner = part.get("toolInvocation")
        one = inner if isinstance(inner, Mapping) else part
        yield from _tie(one.get("toolCallId"), is_call=True)
        if str(one.get("state", "")).startswith(("result", "output-")):
            yield from _tie(one.get("toolCallId"), is_call=False)


def _tie(id: object, *, is_call: bool) -> Iterator[tuple[str, bool]]:
    if isinstance(id, str):
        yield id, is_call


def _mappings(value: object) -> list[Mapping[str, Any]]:
    if not isinstance(value, (list, tuple)):
        return []
    return [cast("Mapping[str, Any]", item) for item in value if isinstance(item, Mapping)]


@dataclass(frozen=True, slots=True)
class Bundle:
    """Messages, by their indexes in a stretch of a thread, that are included together or not at all."""

    places: tuple[int, ...]
    waits: bool
    """Whether the result of a call in it, or what follows its reasoning, can only come after the stretch."""
    is_uncalled: bool
    """Whether the call of a result in it can only come before the stretch."""
    is_lost: bool
    """Whether nothing can complete it: a later call reused the id of one without a result, or reasoning ends it."""


def bundles(ties: Sequence[Ties]) -> list[Bundle]:
    """Bundle the messages of a stretch without gaps; a result belongs to the last call before it.

    What a model says and calls right after reasoning belongs to the reasoning.
    """
    leader = [*range(len(ties))]
    unanswered: set[tuple[int, str]] = set()
    last_call: dict[str, int] = {}
    uncalled: set[int] = set()
    lost: set[int] = set()
    is_led = False
    for place, one in enumerate(ties):
        for id in one.results - one.calls:
            if id in last_call:
                unanswered.discard((last_call[id], id))
                _join(leader, last_call[id], place)
            else:
                uncalled.add(place)
        last_call |= dict.fromkeys(one.calls, place)
        unanswered |= {(place, id) for id in one.calls - one.results}
        follows_thought = place > 0 and ties[place - 1].is_reasoning
        is_led = one.may_follow_reasoning and (is_led or follows_thought)
        if is_led or (follows_thought and one.is_reasoning):
            _join(leader, place - 1, place)
        elif follows_thought:
            lost.add(place - 1)
    lost |= {place for place, id in unanswered if last_call[id] != place}
    waiting = {place for place, _ in unanswered}
    if ties and ties[-1].is_reasoning:
        waiting.add(len(ties) - 1)
    members: dict[int, list[int]] = {}
    for place in range(len(ties)):
        members.setdefault(_find(leader, place), []).append(place)
    return [
        Bundle(
            tuple(places),
            waits=not waiting.isdisjoint(places),
            is_uncalled=not uncalled.isdisjoint(places),
            is_lost=not lost.isdisjoint(places),
        )
        for places in members.values()
    ]


def _find(leader: list[int], place: int) -> int:
    while leader[place] != place:
        place = leader[place]
    return place


def _join(leader: list[int], one: int, other: int) -> None:
    first, second = sorted((_find(leader, one), _find(leader, other)))
    leader[second] = first
