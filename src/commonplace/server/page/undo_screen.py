"""Taking back: a commit undone, or one entry as it was, each with what would change before anything does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from commonplace.checks import moment
from commonplace.entry import Entry
from commonplace.errors import Conflict, InvalidInput, NotFound, Outdated
from commonplace.language.edits import Effort
from commonplace.server.http.sessions import PAGE_PATH
from commonplace.server.http.worker_threads import ThreadedRoute
from commonplace.server.page.history_screen import FieldDiff, commit_number, differences_of
from commonplace.server.page.visit import SCREENS, Visit, VisitOf, own_address, with_done
from commonplace.space.history import UndoStep
from commonplace.space.names import DIRECTORY

UNDO = f"{PAGE_PATH}/undo"
RESTORE = f"{PAGE_PATH}/restore"
MOST_PREVIEWED = 200
"""More changes are undone without a preview of each."""

MOST_SHOWN = 50
router = APIRouter(route_class=ThreadedRoute)


@dataclass(frozen=True, slots=True)
class ShownStep:
    """What undoing does to one entry, in words and as differences."""

    kind: str
    key: str
    effect: str
    fields: tuple[FieldDiff, ...]


# Undo


@router.get(UNDO, include_in_schema=False)
def undo_form(visit: VisitOf) -> Response:
    return _undo_page(visit, commit_number(visit, "commit"), own_address(visit.param("back")))


@router.post(UNDO, include_in_schema=False)
def undo(visit: VisitOf) -> Response:
    commit, back = commit_number(visit, "commit"), own_address(visit.field("back"))
    try:
        undone = visit.space.undo(commit)
    except Conflict as error:
        return _undo_page(visit, commit, back, refusal=str(error))
    return visit.redirect(with_done(back, "undone", undone))


def _undo_page(visit: Visit, number: int, back: str, refusal: str | None = None) -> Response:
    commit = visit.timeline.commit(number, limit=MOST_PREVIEWED + 1)
    is_previewed = commit.count <= MOST_PREVIEWED
    return visit.render(
        "undo.html",
        409 if refusal else 200,
        commit=commit,
        refusal=refusal,
        back=back,
        is_previewed=is_previewed,
        **previewed(visit, [number] if is_previewed else []),
    )


def previewed(visit: Visit, commits: Iterable[int]) -> dict[str, Any]:
    """What undoing commits would change, for `_undo_steps.html`."""
    preview = visit.timeline.preview_undo(*commits)
    effort = Effort()
    steps = [_shown_step(step, effort) for step in preview.steps[:MOST_SHOWN]]
    return {
        "steps": steps,
        "labels": visit.timeline.labels((step.kind, step.key) for step in steps),
        "more": len(preview.steps) - MOST_SHOWN,
        "conflicts": preview.conflicts,
    }


def _shown_step(step: UndoStep, effort: Effort) -> ShownStep:
    state = step.restored or step.removed
    assert state is not None
    return ShownStep(step.kind, state.key, _effect(step), differences_of(step.removed, step.restored, effort))


def _effect(step: UndoStep) -> str:
    if step.restored is None:
        return "is removed, if nothing else is in it" if step.kind == DIRECTORY else "is removed"
    if step.removed is None:
        return "comes back"
    if step.removed.key != step.restored.key:
        return f"moves back from {step.removed.key}"
    return "goes back to what it was"


# One entry


@router.get(RESTORE, include_in_schema=False)
def restore_form(visit: VisitOf) -> Response:
    kind, key = visit.opened
    wanted = _wanted(visit, kind, key)
    if visit.as_of is not None:  # nothing can be changed there
        return visit.redirect(visit.url(RESTORE, open=f"{kind}:{key}", revision=wanted.revision, as_of=None))
    return _restore_page(visit, kind, key, wanted)


@router.post(RESTORE, include_in_schema=False)
def restore(visit: VisitOf) -> Response:
    kind, key, revision = visit.field("kind"), visit.field("key"), _revision(visit.field("revision"))
    seen, _, at = visit.field("seen").partition(".")
    expected = (_revision(seen), _revision(at)) if at else 0
    try:
        commit = visit.space.expecting(kind, key, expected).restore(kind, key, revision)
    except (Outdated, Conflict) as error:
        return _restore_page(visit, kind, key, visit.space.state(kind, key, revision), refusal=str(error))
    return visit.done("restored", commit, SCREENS[kind], open=f"{kind}:{key}", as_of=None)


def _wanted(visit: Visit, kind: str, key: str) -> Entry:
    """The state that the address names: by its revision, or that of the time that it looks at."""
    if visit.param("revision"):
        return visit.space.state(kind, key, _revision(visit.param("revision")))
    found = visit.timeline.state_at(kind, key, visit.as_of) if visit.as_of is not None else None
    if found is None:
        raise NotFound(f"there was no {kind} {key} at that time; its history lists the states that it had")
    return found


def _restore_page(visit: Visit, kind: str, key: str, wanted: Entry, refusal: str | None = None) -> Response:
    present = visit.timeline.state_at(kind, key, None)
    return visit.render(
        "restore.html",
        409 if refusal else 200,
        kind=kind,
        key=key,
        wanted=wanted,
        at=moment(wanted.updated_at),
        present=present,
        seen="0" if present is None else f"{present.revision}.{present.updated_at}",
        fields=differences_of(present, wanted, Effort()),
        refusal=refusal,
    )


def _revision(written: str) -> int:
    if not (written.isascii() and written.isdigit() and len(written) < 19):
        raise InvalidInput("name the revision to restore by its number; the history lists them")
    return int(written)
