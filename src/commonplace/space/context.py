"""What a model is given before it answers: messages within a budget of tokens, and the working memory.

No tool call comes without its result and no result without its call: what one of them needs is read from the thread,
and what stays incomplete is left out. Only at the end of the thread that is asked for may a call wait for its result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import cast

from commonplace.checks import JSON
from commonplace.entry import Entry
from commonplace.errors import InvalidInput
from commonplace.space import timeline
from commonplace.space.conversation import check_count
from commonplace.space.handle import Handle
from commonplace.space.messages import Message, message_of
from commonplace.space.recall import Recall
from commonplace.space.tokens import CountTokens, message_tokens
from commonplace.space.tool_calls import Ties, bundles, ties_of
from commonplace.space.working import WorkingMemory, state_text

MAX_TOKENS = 100_000_000
REACH = 200
"""How far from a tool's call its result is looked for, in messages."""

_STEP = 20


@dataclass(frozen=True, slots=True)
class Context:
    """What fits: `messages` as they came, in time order, and `system`, the working memory as a text for the prompt."""

    messages: tuple[Mapping[str, JSON], ...]
    system: str | None
    tokens: int
    omitted: int
    """How many of the messages that were recalled found no room, or lack the other half of a tool's use."""
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Budget:
    max_tokens: int | None
    count_tokens: CountTokens

    def __post_init__(self) -> None:
        if self.max_tokens is not None:
            check_count("max_tokens", self.max_tokens, 1, MAX_TOKENS)
        if not callable(self.count_tokens):
            raise InvalidInput("count_tokens must be a function that takes a text and gives its number of tokens")

    def count(self, text: str) -> int:
        """What the caller's function says of a text, checked: a count below 0 would make room without end."""
        tokens = self.count_tokens(text)
        if isinstance(tokens, bool) or not isinstance(tokens, Integral) or tokens < 0:
            raise InvalidInput(f"count_tokens must give a whole number of 0 or more, not {tokens!r}")
        return int(tokens)

    def left_after(self, system: str | None) -> int:
        """How many tokens there are for messages."""
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
    """Messages of one thread that go into a prompt together or not at all."""

    messages: tuple[Message, ...]
    tokens: int
    age: int | None
    """0 for what holds the thread's newest message, growing into the past; None for what only the query brought."""
    hit: int | None
    """The place among the hits, the best first; None for what was not found itself."""
    waits: bool
    """Whether a call in it still waits for its result; then nothing comes after it."""


def build_context(
    handle: Handle, thread_id: str, recalled: Recall, last: int, budget: Budget, system: str | None
) -> Context:
    """Choose from what was recalled; `last` of it are the newest of the thread."""
    room = budget.left_after(system)
    chosen = _fitting(_units(handle, thread_id, recalled, last, budget), room)
    kept = _in_time_order(chosen)
    kept_ids = {message.id for message in kept}
    return Context(
        messages=tuple(as_it_came(message) for message in kept),
        system=system,
        tokens=(0 if system is None else budget.count(system)) + sum(unit.tokens for unit in chosen),
        omitted=sum(message.id not in kept_ids for message in recalled.messages),
        notices=recalled.notices,
    )


def as_it_came(message: Message) -> Mapping[str, JSON]:
    return cast(Mapping[str, JSON], _entry(message).value)


def system_text(memories: Iterable[WorkingMemory | None]) -> str | None:
    """Working memories as a text for the prompt, or None where there is none."""
    texts = [state_text(memory.content) for memory in memories if memory is not None and memory.content]
    return "\n\n".join(texts) or None


# Choosing


def _fitting(units: Sequence[Unit], room: int) -> list[Unit]:
    """The newest, then the hits in half of what is left, then the thread back into its past, then whatever fits.

    The past is taken without a gap: a model that sees the question and the third answer makes up the rest.
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
        """Whether a unit is in, now or already; not where it would not leave so many tokens."""
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
    """Every message at its time; but nothing comes between a call and its result, or after a call that waits."""
    unit_of = {message.id: unit for unit in units for message in unit.messages}
    clusters: list[list[Message]] = []
    until = ""
    for message in sorted((message for unit in units for message in unit.messages), key=_key):
        if _key(message) > until:
            clusters.append([])
        clusters[-1].append(message)
        until = max(until, _key(unit_of[message.id].messages[-1]))

    def place(cluster: list[Message]) -> tuple[bool, int, str]:
        waits = any(unit_of[message.id].waits for message in cluster)
        return waits, _entry(cluster[0]).created_at, _key(cluster[0])

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
            min((ages[message.id] for message in members if message.id in ages), default=None),
            min((hits[message.id] for message in members if message.id in hits), default=None),
            waits,
        )
        for id, messages in by_thread.items()
        for members, waits in _bundled(handle, messages, newest[::-1] if id == thread_id else None)
    ]


def _bundled(
    handle: Handle, messages: Sequence[Message], newest: Sequence[Message] | None
) -> Iterator[tuple[tuple[Message, ...], bool]]:
    """The messages of one thread in bundles, with what these lack; those that nothing completes are left out.

    `newest` are those of them that end the thread, without a gap; None where it is not the thread that is asked for.
    Each bundle comes with whether it waits for a result, as the end of that thread may.
    """
    known = {_key(message): (message, ties_of(as_it_came(message))) for message in messages}
    complete = _complete([(_key(message), known[_key(message)][1]) for message in newest or ()])
    waiting = [*known]
    while waiting:
        key = waiting.pop()
        message, ties = known[key]
        for partner in _partners(handle, message, ties, is_complete=key in complete):
            if _key(partner) not in known:
                known[_key(partner)] = partner, ties_of(as_it_came(partner))
                waiting.append(_key(partner))
    ordered = [known[key] for key in sorted(known)]
    for bundle in bundles([ties for _, ties in ordered]):
        members = tuple(ordered[place][0] for place in bundle.places)
        waits = bool(bundle.unanswered) or ordered[bundle.places[-1]][1].is_thought
        may_wait = newest is not None and waits and not timeline.beside(handle, _entry(members[-1]), 1)
        if not bundle.uncalled and (may_wait or not waits):
            yield members, waits


def _complete(run: Sequence[tuple[str, Ties]]) -> set[str]:
    """The keys of the messages of a run without a gap whose calls and results are all in it: nothing is to be read."""
    return {
        run[place][0]
        for bundle in bundles([ties for _, ties in run])
        if not bundle.unanswered and not bundle.uncalled
        for place in bundle.places
    }


def _partners(handle: Handle, message: Message, ties: Ties, *, is_complete: bool) -> Iterator[Message]:
    """Messages of the thread without which this one is refused by a model."""
    if not is_complete:
        # What is known says nothing here: between two messages that were recalled, the same id may be used again.
        yield from _looked_for(handle, message, set(ties.open_calls), 1)
        yield from _looked_for(handle, message, set(ties.foreign_results), -1)
    if ties.is_thought:
        yield from map(message_of, timeline.beside(handle, _entry(message), 1))
    if ties.may_follow_thought:
        for before in map(message_of, timeline.beside(handle, _entry(message), -1)):
            if ties_of(as_it_came(before)).is_thought:
                yield before


def _looked_for(handle: Handle, message: Message, ids: set[str], direction: int) -> Iterator[Message]:
    """The messages after this one that answer its calls, or those before it that made them, the nearest first."""
    entry, read = _entry(message), 0
    while ids and read < REACH:
        page = timeline.beside(handle, entry, direction * _STEP)
        for other in map(message_of, page):
            ties = ties_of(as_it_came(other))
            partners = ties.foreign_results if direction > 0 else ties.calls
            if ids & partners:
                yield other
            # Where an id is called again, what comes after answers that call.
            ids -= partners | ties.calls
        if len(page) < _STEP:
            return
        entry, read = page[-1], read + len(page)


def _key(message: Message) -> str:
    return _entry(message).key


def _entry(message: Message) -> Entry:
    assert message.entry is not None
    return message.entry
