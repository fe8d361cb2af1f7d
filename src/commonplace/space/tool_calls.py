"""Which messages belong together: a tool's call and its result, a thought and what it led to. Pure functions.

A model refuses a call without its result and a result without its call, so whoever leaves messages out has to leave
out all that belong together. Known are the shapes of `message_text`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from commonplace.checks import JSON
from commonplace.space.message_text import is_item_without_role, parts_beside_content

_CALLING_PARTS = ("tool_use", "server_tool_use", "mcp_tool_use")
_RESULT_PARTS = ("tool-result", "tool-error")
_APPROVAL_PARTS = ("tool-approval-request", "tool-approval-response")
_CALLS_OF_OTHER_NAMES = ("program", "mcp_approval_request")
_TIED_BY_ID = ("mcp_approval_request", "local_shell_call_output")


@dataclass(frozen=True, slots=True)
class Ties:
    """What ties a message to others: the ids of the calls that it makes, and of those that it answers."""

    calls: frozenset[str]
    results: frozenset[str]
    is_thought: bool
    """Reasoning of the Responses API, which is refused without the item after it."""
    may_follow_thought: bool
    is_talk: bool
    """Whether somebody speaks: no call, result or thought."""


def is_tied_by_id(message: Mapping[str, JSON]) -> bool:
    """Whether an item's own `id` is what ties it to another one."""
    return is_item_without_role(message) and message["type"] in _TIED_BY_ID


def ties_of(message: Mapping[str, JSON]) -> Ties:
    found = [*_ties(message)]
    kind = message.get("type")
    is_item = is_item_without_role(message)
    return Ties(
        calls=frozenset(id for id, is_call in found if is_call),
        results=frozenset(id for id, is_call in found if not is_call),
        is_thought=is_item and kind == "reasoning",
        may_follow_thought=(is_item and (str(kind).endswith("_call") or kind in _CALLS_OF_OTHER_NAMES))
        or (kind == "message" and message.get("role") == "assistant"),
        is_talk=not found and not is_item,
    )


def _ties(message: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Each id with whether it is a call's."""
    role = message.get("role")
    if is_item_without_role(message):
        yield from _item_ties(message)
    for call in _mappings(message.get("tool_calls")):
        yield from _tie(call.get("id"), is_call=True)
    if isinstance(message.get("function_call"), Mapping):  # the form before tool calls had ids: told by its name
        yield from _tie(message["function_call"].get("name"), is_call=True)
    if role == "tool":
        yield from _tie(message.get("tool_call_id"), is_call=False)
    if role == "function":
        yield from _tie(message.get("name"), is_call=False)
    content = message.get("content")
    parts = content.get("parts", [content]) if isinstance(content, Mapping) else content
    for part in (*_mappings(parts), *_mappings(parts_beside_content(message))):
        yield from _part_ties(part)


def _item_ties(item: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    kind = item["type"]
    id = item.get("call_id")
    if id is None and is_tied_by_id(item):
        id = item.get("id")
    elif id is None and kind.startswith("tool_search_"):
        id = "tool_search"  # one that the service made itself has no id: its result is the next one
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
        # The answer needs the request, which needs no answer: its call is in the same message, and has a result or not.
        id = f"approval {part['approvalId']}"
        yield id, False
        if kind == "tool-approval-request":
            yield id, True
    elif kind.startswith("tool-") or kind == "dynamic-tool":
        # The AI SDK's own: one part that is a call first, and becomes its result.
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
    return [cast(Mapping[str, Any], item) for item in value if isinstance(item, Mapping)]


@dataclass(frozen=True, slots=True)
class Bundle:
    """Messages, by their places in a stretch of a thread, that go together or not at all."""

    places: tuple[int, ...]
    waits: bool
    """Whether the result of a call in it, or what a thought leads to, could only come after the stretch."""
    is_uncalled: bool
    """Whether the call of a result in it could only come before the stretch."""
    is_lost: bool
    """Whether nothing completes it: a later call took the id of one without a result, or a thought led to nothing."""


def bundles(ties: Sequence[Ties]) -> list[Bundle]:
    """Bundle the messages of a stretch without a gap; a result belongs to the last call before it.

    All that a model says and calls right after a thought belongs to the thought.
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
        follows_thought = place > 0 and ties[place - 1].is_thought
        is_led = one.may_follow_thought and (is_led or follows_thought)
        if is_led or (follows_thought and one.is_thought):
            _join(leader, place - 1, place)
        elif follows_thought:
            lost.add(place - 1)
    lost |= {place for place, id in unanswered if last_call[id] != place}
    waiting = {place for place, _ in unanswered}
    if ties and ties[-1].is_thought:
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
