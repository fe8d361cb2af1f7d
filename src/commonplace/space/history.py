"""Former states made the present ones again: one, what was deleted last, or a whole commit undone by a new one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from commonplace.entry import Draft, Entry, Revision
from commonplace.errors import Conflict, NotFound
from commonplace.space.names import name_of_key
from commonplace.store import Reader, Transaction

MOST_NAMED = 10
"""How many conflicts an error names."""


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
    for entry_id, state in begun.items():
        if entry_id in ended:
            former = ended[entry_id]
            is_moved = former.key != state.key
            if is_moved:
                transaction.move(state.kind, state.key, former.key, former.heading)
            if not is_moved or draft_of(former) != replace(draft_of(state), key=former.key, heading=former.heading):
                transaction.put(draft_of(former), is_restored=True)
    for entry_id, former in ended.items():
        if entry_id not in begun:
            transaction.put(draft_of(former), is_restored=True)
    _delete_unneeded(transaction, needed, is_needed)  # something that was moved back may have needed them
    return list(begun.values()), list(ended.values())


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
    for state in begun.values():
        present = reader.get(state.kind, state.key)
        if present is None or not _is_as_left(reader, present, state):
            found.append(f"{_name(state)} was changed since")
    for state in ended.values():
        if (state.kind, state.key) not in places and reader.get(state.kind, state.key) is not None:
            found.append(f"{_name(state)} exists again")
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
