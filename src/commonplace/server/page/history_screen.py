"""History: who changed what and through which interface, as word diffs; any two moments compared; the slider over time,
and the stream that says what is new.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response, StreamingResponse

from commonplace.checks import moment
from commonplace.entry import Change, Entry, Revision
from commonplace.errors import Conflict, InvalidInput, NotFound
from commonplace.language.edits import Effort, Piece, word_diff
from commonplace.server.http.feed import stream_changes
from commonplace.server.http.sessions import PAGE_PATH
from commonplace.server.http.worker_threads import ThreadedRoute, in_thread
from commonplace.server.page.visit import Visit, VisitOf, at_time, own_address, page_number, parse_seen, written
from commonplace.space.names import MESSAGE
from commonplace.space.timeline import Commit

HISTORY = f"{PAGE_PATH}/history"
AS_OF = f"{PAGE_PATH}/as-of"
LIVE = f"{PAGE_PATH}/live"
IN_A_PAGE = 20
"""How many changes of a commit, or revisions of an entry, are shown at once with their differences."""

MOST_PAGES = 500
COMMITS = 25
NAMED = 3
MOST_NEW = 99
"""More than this is not counted: the page says so, and its stream ends."""

_MEASURES = frozenset(("size", "lines", "threadId"))
"""Attributes that follow from others."""

router = APIRouter(route_class=ThreadedRoute)


# What a change looks like


@dataclass(frozen=True, slots=True)
class FieldDiff:
    """How one field of an entry changed. The text of an entry is a field without a name."""

    name: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class ShownChange:
    """An entry with what happened to it, in words and as differences."""

    kind: str
    key: str
    action: str
    fields: tuple[FieldDiff, ...]


@dataclass(frozen=True, slots=True)
class ShownRevision:
    """A line of the history of an entry. `fields` is how it differs from the state before."""

    line: Revision
    fields: tuple[FieldDiff, ...]
    has_state: bool
    is_present: bool
    as_of: str


def differences_of(old: Entry | None, new: Entry | None, effort: Effort) -> tuple[FieldDiff, ...]:
    """How two states of an entry differ, field by field, without fields that are the same."""
    before, after = _fields(old, new), _fields(new, old)
    names = [*dict.fromkeys((*before, *after))]
    if old is None or new is None:
        names = names[:1]  # of what is new or gone, its text says enough
    found = (FieldDiff(name, tuple(word_diff(before.get(name, ""), after.get(name, ""), effort))) for name in names)
    return tuple(diff for diff in found if diff.pieces)


def _fields(state: Entry | None, other: Entry | None) -> dict[str, str]:
    if state is None:
        return {}
    attributes = {name: _text(value) for name, value in state.attributes.items() if name not in _MEASURES}
    is_text_same = other is not None and state.text == other.text
    content = state.text if state.kind == MESSAGE and not is_text_same else _text(state.value or "")
    return {"": content, **attributes}


def _text(value: object) -> str:
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ", ".join(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True)


def changed_meanwhile(visit: Visit, action: str, kind: str, name: str) -> Response:
    """Answer a deletion of an entry that has changed since it was shown: what changed, and the form with its state.

    The form has the key in the field `name`, and the state that was shown in the field `seen`.
    """
    key, (revision, _) = visit.field(name), parse_seen(visit.field("seen"))
    present = visit.timeline.state_at(kind, key, None)
    if present is None:
        raise NotFound(f"there is no {kind} {key} any more; its history says who deleted it")
    try:
        shown = visit.space.state(kind, key, revision)
    except NotFound:  # it was erased
        shown = None
    return visit.render(
        "delete_changed.html",
        409,
        action=action,
        kind=kind,
        key=key,
        fields={name: key, "seen": f"{present.revision}.{present.updated_at}"},
        labels=visit.timeline.labels([(kind, key)]),
        changes=differences_of(shown, present, Effort()),
    )


# Commits


@router.get(HISTORY, include_in_schema=False)
def history(visit: VisitOf) -> Response:
    if visit.param("open"):
        return _entry_history(visit, *visit.opened)
    before = commit_number(visit, "before") if visit.param("before") else None
    if before is None and visit.as_of is not None:
        shown = visit.timeline.at(visit.as_of)
        before = shown.number if shown is not None else 0
    page = visit.timeline.page(before, COMMITS)
    return visit.render("history.html", older=page.older, **_rows(visit, page.commits))


def _rows(visit: Visit, commits: Sequence[Commit]) -> dict[str, Any]:
    """What the list of commits shows: of each, its first changes, with how a text begins that has no name."""
    shown = [change for commit in commits for change in commit.changes[:NAMED]]
    labels = visit.timeline.labels((change.kind, change.key) for change in shown)
    return {"commits": commits, "labels": labels, "named": NAMED}


@router.get(f"{HISTORY}/commit", include_in_schema=False)
def commit(visit: VisitOf) -> Response:
    number = page_number(visit, MOST_PAGES)
    found = visit.timeline.commit(commit_number(visit, "commit"), limit=IN_A_PAGE + 1, skip=(number - 1) * IN_A_PAGE)
    before, after = visit.timeline.neighbours(found)
    return visit.render(
        "commit.html",
        commit=found,
        changes=_shown_changes(visit, found.changes[:IN_A_PAGE]),
        labels=visit.timeline.labels((change.kind, change.key) for change in found.changes[:IN_A_PAGE]),
        number=number,
        has_more=len(found.changes) > IN_A_PAGE and number < MOST_PAGES,
        before=before,
        after=after,
    )


def _shown_changes(visit: Visit, changes: Sequence[Change]) -> list[ShownChange]:
    actions: dict[tuple[str, str], list[str]] = {}
    for change in changes:
        actions.setdefault((change.kind, change.key), []).append(change.action.replace("_", " "))
    effort = Effort()
    return [
        ShownChange(
            one.kind,
            one.key,
            ", ".join(actions[one.kind, one.key]),
            differences_of(one.before, one.after, effort),
        )
        for one in visit.timeline.around(changes)
    ]


# One entry


def _entry_history(visit: Visit, kind: str, key: str) -> Response:
    number = page_number(visit, MOST_PAGES)
    lines = [line for line in visit.space.history(kind, key) if visit.as_of is None or moment(line.at) <= visit.as_of]
    lines.reverse()
    if not lines:
        raise NotFound(f"nothing is known of a {kind} {key}; it may have been erased")
    start = (number - 1) * IN_A_PAGE
    shown = _shown_revisions(visit, kind, key, lines[start : start + IN_A_PAGE + 1])
    return visit.render(
        "entry_history.html",
        kind=kind,
        key=key,
        revisions=shown[:IN_A_PAGE],
        total=len(lines),
        number=number,
        has_more=len(lines) > start + IN_A_PAGE and number < MOST_PAGES,
    )


def _shown_revisions(visit: Visit, kind: str, key: str, lines: Sequence[Revision]) -> list[ShownRevision]:
    """The lines, the newest first, each with its difference from the next one."""
    states = [_state(visit, kind, key, line) for line in lines]
    present = visit.timeline.state_at(kind, key, None)
    effort = Effort()
    return [
        ShownRevision(
            line,
            differences_of(states[place + 1] if place + 1 < len(states) else None, states[place], effort),
            states[place] is not None,
            present is not None and line.revision == present.revision,
            written(line.at),
        )
        for place, line in enumerate(lines)
    ]


def _state(visit: Visit, kind: str, key: str, line: Revision) -> Entry | None:
    try:
        return visit.space.state(kind, key, line.revision)
    except NotFound:  # a deletion has no state
        return None


# Two moments


@router.get(f"{HISTORY}/compare", include_in_schema=False)
def compare(visit: VisitOf) -> Response:
    latest = visit.timeline.latest()
    last = 0 if latest is None else latest.number
    first = commit_number(visit, "from") if visit.param("from") else max(last - 1, 0)
    until = commit_number(visit, "to") if visit.param("to") else last
    first, until = sorted((first, until))
    if visit.param("open"):
        return _compare_entry(visit, first, until, *visit.opened)
    page = visit.timeline.differences(first, until, _cursor(visit)) if until else None
    return visit.render(
        "compare.html",
        first=first,
        until=until,
        last=last,
        differences=page.differences if page else (),
        labels=visit.timeline.labels((one.kind, one.key) for one in (page.differences if page else ())),
        cursor=f"{page.cursor[0]}.{page.cursor[1]}" if page and page.cursor else None,
    )


def _compare_entry(visit: Visit, first: int, until: int, kind: str, key: str) -> Response:
    old, new = visit.timeline.state(kind, key, first), visit.timeline.state(kind, key, until)
    return visit.render(
        "compare_entry.html",
        kind=kind,
        key=key,
        first=first,
        until=until,
        old=old,
        new=new,
        fields=differences_of(old, new, Effort()),
    )


def _cursor(visit: Visit) -> tuple[int, int] | None:
    if not visit.param("cursor"):
        return None
    commit, _, skip = visit.param("cursor").partition(".")
    return _number(commit, "cursor"), _number(skip, "cursor")


def commit_number(visit: Visit, name: str) -> int:
    return _number(visit.param(name) or visit.field(name), name)


def _number(written: str, name: str) -> int:
    if not (written.isascii() and written.isdigit() and len(written) < 19):
        raise InvalidInput(f"{name} must be the number of a commit; the history lists them")
    return int(written)


# As of


@router.get(AS_OF, include_in_schema=False)
def as_of(visit: VisitOf) -> Response:
    """The slider, or, with a place on it, the screen that it was moved on, at that moment."""
    if visit.param("at"):
        return visit.redirect(at_time(own_address(visit.param("back"), AS_OF), _moment(visit)))
    bar = visit.time_bar
    shown = None if bar is None else bar.shown
    page = None if shown is None else visit.timeline.page(shown.number, COMMITS)
    return visit.render("as_of.html", older=page.older if page else None, **_rows(visit, page.commits if page else ()))


@router.get(f"{AS_OF}/moment", include_in_schema=False)
def preview(visit: VisitOf) -> Response:
    """What the slider would show at a place."""
    return visit.render("_moment.html", shown=_moment(visit))


def _moment(visit: Visit) -> Commit | None:
    """The commit at a place of the slider, which is a time in microseconds."""
    place = _number(visit.param("at"), "at")
    try:
        return visit.timeline.at(moment(place))
    except OverflowError:
        return visit.timeline.latest()


# Live


@router.get(LIVE, include_in_schema=False)
async def live(visit: VisitOf) -> Response:
    """A stream that says how many changes there were since a commit, which the page names that is open."""
    after = _number(visit.param("after"), "after")
    count = 0

    def written_count(commit: int, changes: list[Change]) -> bytes:
        nonlocal count
        count += len(changes)
        return b"id: %d\ndata: %s\n\n" % (commit, b"%d" % count if count <= MOST_NEW else b"%d+" % MOST_NEW)

    space = await in_thread(lambda: visit.space)
    try:
        return await stream_changes(visit.request, space, after, written_count)
    except Conflict:  # history was erased since, or the book was restored from a backup
        return StreamingResponse(iter((b"data: %d+\n\n" % MOST_NEW,)), media_type="text/event-stream")
