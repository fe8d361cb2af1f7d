"""Former states made the present ones again: one, what was deleted last, or a whole commit undone by a new one."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from commonplace.entry import SEPARATOR, Draft, Entry, Revision
from commonplace.errors import Conflict, NotFound
from commonplace.language.edits import common_prefix
from commonplace.space.names import name_of_key
from commonplace.store import Reader, Transaction

MOST_NAMED = 10
"""How many conflicts an error names."""
MANY = 8
"""This many entries that a commit moved together are moved back together."""
LOADED_AT_ONCE = 1_000


def draft_of(state: Entry) -> Draft:
    """The draft that restores a former state."""
    return Draft(
        kind=state.kind,
        key=state.key,
        value=state.value,
        text=state.text,
        heading=state.heading,
        attributes=state.attributes,
        identity=state.identity,
        expires_at=state.expires_at,
        created_at=state.created_at,
    )


def put_back(transaction: Transaction, state: Entry) -> Entry:
    """Make a former state the present one. If its time to live is over, it gets none."""
    draft = draft_of(state)
    if state.expires_at is not None and state.expires_at <= transaction.time:
        draft = replace(draft, expires_at=None)
    return transaction.put(draft, is_restored=True)


def deleted_revision(name: str, past: Sequence[Revision]) -> int:
    """The revision that a memory had when it was deleted; raises Conflict if it is not deleted."""
    if not past:
        raise NotFound(f"{name} not found")
    if past[-1].action != "deleted":
        raise Conflict(f"{name} is not deleted; there is nothing to take back")
    return past[-2].revision


@contextmanager
def without_collector() -> Iterator[None]:
    """Meanwhile Python looks for no cycles. The states of 100,000 entries are some million objects, all in use: looking
    through them again and again takes a tenth of the time of an undo.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@without_collector()
def undo(transaction: Transaction, commit: int, is_needed: Callable[[Entry], bool]) -> tuple[list[Entry], list[Entry]]:
    """Undo a commit of this namespace; return the states that this removed, and those that it restored.

    What the commit created is deleted, unless something else needs it now (`is_needed`).
    """
    begun, ended = _difference(transaction, commit, transaction.time)
    if not begun and not ended:
        raise NotFound(f"there is no commit {commit} to undo here; `changes` lists the commits that can be undone")
    conflicts = _conflicts(transaction, begun, ended)
    if conflicts:
        more = f"; and {len(conflicts) - MOST_NAMED} more" if len(conflicts) > MOST_NAMED else ""
        raise Conflict(f"commit {commit} cannot be undone: {'; '.join(conflicts[:MOST_NAMED])}{more}")
    made = [state for entry_id, state in begun.items() if entry_id not in ended]
    made.sort(key=lambda state: state.key, reverse=True)  # what is in a directory comes before it
    needed = _delete_unneeded(transaction, made, is_needed)
    moved = _move_back(transaction, [(state, ended[id]) for id, state in begun.items() if id in ended])
    for entry_id, state in begun.items():
        if entry_id in ended and entry_id not in moved:
            former = ended[entry_id]
            if former.key != state.key:
                transaction.move(state.kind, state.key, former.key, former.heading)
            if not _is_only_moved(state, former):
                transaction.put(draft_of(former), is_restored=True)
    for entry_id, former in ended.items():
        if entry_id not in begun:
            transaction.put(draft_of(former), is_restored=True)
    _delete_unneeded(transaction, needed, is_needed)  # something that was moved back may have needed them
    return list(begun.values()), list(ended.values())


def _is_only_moved(state: Entry, former: Entry) -> bool:
    return former.key != state.key and _content_of(state) == _content_of(former)


def _content_of(state: Entry) -> tuple[object, ...]:
    """What a draft of the state holds, but for its key and its heading."""
    return (
        state.kind, state.value, state.text, state.attributes, state.identity, state.expires_at, state.created_at
    )  # fmt: skip


def _move_back(transaction: Transaction, pairs: Sequence[tuple[Entry, Entry]]) -> set[int]:
    """Undo the moves of whole directories, each at once; return which entries were moved back."""
    groups: dict[tuple[str, str, str], list[tuple[Entry, Entry]]] = {}
    for state, former in pairs:
        present, past = _changed_parts(state.key, former.key)
        if present != state.key and _is_only_moved(state, former):
            groups.setdefault((state.kind, present, past), []).append((state, former))
    done: set[int] = set()
    for (kind, present, past), group in groups.items():
        if len(group) < MANY:
            continue
        keys = [state.key for state, _ in group]
        first, last = min(keys), max(keys)  # what these two share at their beginning, all share
        shared = first[len(present) : common_prefix(first, last)]
        present, past = (prefix + shared[: shared.rfind(SEPARATOR) + 1] for prefix in (present, past))
        # If something else was put there since, each entry is moved by itself.
        if transaction.counts(kind, [present, past]) == [len(group), 0]:
            headings = {former.key: former.heading for _, former in group}
            transaction.move_range(kind, present, past, headings.__getitem__)
            done.update(state.id for state, _ in group)
    return done


def _changed_parts(key: str, former: str) -> tuple[str, str]:
    """Two keys without the last parts that they share."""
    while key and former:
        (start, _, part), (former_start, _, former_part) = key.rpartition(SEPARATOR), former.rpartition(SEPARATOR)
        if part != former_part:
            break
        key, former = start, former_start
    return key, former


def _delete_unneeded(
    transaction: Transaction, made: Sequence[Entry], is_needed: Callable[[Entry], bool]
) -> list[Entry]:
    """Delete what nothing needs; return the rest."""
    needed = []
    for state in made:
        if is_needed(state):
            needed.append(state)
        else:
            transaction.delete(state.kind, state.key)
    return needed


def _difference(reader: Reader, commit: int, now: int) -> tuple[dict[int, Entry], dict[int, Entry]]:
    """The states that the commit began, and those that it ended, by entry; without those that it began and ended."""
    begun, ended = reader.states_begun(commit), reader.states_ended(commit)
    passing = {(state.id, state.revision) for state in begun} & {(state.id, state.revision) for state in ended}
    return (
        {state.id: state for state in begun if (state.id, state.revision) not in passing},
        {
            state.id: state
            for state in ended
            if (state.id, state.revision) not in passing and (state.expires_at is None or state.expires_at > now)
        },
    )


def _conflicts(reader: Reader, begun: dict[int, Entry], ended: dict[int, Entry]) -> list[str]:
    """What was changed since the commit, in words."""
    places = {(state.kind, state.key) for state in begun.values()}
    found = []
    ids = list(begun)
    for start in range(0, len(ids), LOADED_AT_ONCE):
        some = ids[start : start + LOADED_AT_ONCE]
        loaded = reader.load(some)
        for state in (begun[id] for id in some):
            known = loaded.get(state.id)
            if known is not None and (known.key, known.revision) == (state.key, state.revision):
                continue
            other = reader.get(state.kind, state.key)
            if other is None or not _is_as_left(reader, other, state):
                found.append(f"{_name(state)} was changed since")
    left = [state for state in ended.values() if (state.kind, state.key) not in places]
    for kind in dict.fromkeys(state.kind for state in left):
        of_kind = [state for state in left if state.kind == kind]
        for start in range(0, len(of_kind), LOADED_AT_ONCE):
            lost = of_kind[start : start + LOADED_AT_ONCE]
            present = reader.get_all(kind, [state.key for state in lost])
            found += [
                f"{_name(state)} exists again" for state, one in zip(lost, present, strict=True) if one is not None
            ]
    return found


def _is_as_left(reader: Reader, present: Entry, state: Entry) -> bool:
    """Whether an entry is as the commit left it; if a later change was undone, it is so in a new revision."""
    if (present.id, present.revision) == (state.id, state.revision):
        return True
    past = reader.history(state.kind, state.key)
    return past[-1].action == "restored" and draft_of(present) == draft_of(state)


def _name(state: Entry) -> str:
    return f"{state.kind} {name_of_key(state.kind, state.key)}"


@dataclass(frozen=True, slots=True)
class UndoStep:
    """What undoing a commit does to one entry: the state that it removes, and the one that it brings back."""

    kind: str
    removed: Entry | None
    restored: Entry | None


@dataclass(frozen=True, slots=True)
class UndoPreview:
    """What undoing commits would change, and what was changed since, which makes it impossible."""

    steps: tuple[UndoStep, ...]
    conflicts: tuple[str, ...]


def preview_undo(reader: Reader, commits: Iterable[int], now: int) -> UndoPreview:
    """What `undo` of some commits, the last one first, would do.

    It can still be refused: a path may be taken, or a thread changed.
    """
    begun: dict[int, Entry] = {}
    ended: dict[int, Entry] = {}
    conflicts: dict[str, None] = {}
    for commit in sorted(commits):
        made, lost = _difference(reader, commit, now)
        for id, state in lost.items():
            own = begun.pop(id, None)
            if own is None:
                ended.setdefault(id, state)
            elif own.revision != state.revision:  # somebody else changed it between two of the commits
                ended[id] = state
                conflicts[f"{_name(state)} was changed since"] = None
        begun |= made
    conflicts |= dict.fromkeys(_conflicts(reader, begun, ended))
    states = [(begun.get(id), ended.get(id)) for id in dict.fromkeys((*begun, *ended))]
    steps = [
        UndoStep(one.kind, _named(removed), _named(restored))
        for removed, restored in states
        if (one := removed or restored) is not None
    ]
    return UndoPreview(tuple(steps), tuple(conflicts))


def _named(state: Entry | None) -> Entry | None:
    return state and replace(state, key=name_of_key(state.kind, state.key))
