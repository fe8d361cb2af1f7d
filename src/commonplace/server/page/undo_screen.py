"""Undoing a commit: what it changed, and a button that takes all of it back."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from commonplace.errors import InvalidInput, NotFound
from commonplace.server.http.sessions import PAGE_PATH
from commonplace.server.http.worker_threads import ThreadedRoute
from commonplace.server.page.visit import VisitOf, own_address, with_done

UNDO = f"{PAGE_PATH}/undo"
MOST_SHOWN = 100
router = APIRouter(route_class=ThreadedRoute)


@router.get(UNDO, include_in_schema=False)
def undo_form(visit: VisitOf) -> Response:
    commit = _number(visit.param("commit"))
    found = visit.space.changes(max(commit - 1, 0), MOST_SHOWN + 1)
    changes = [change for change in found if change.commit == commit]
    if not changes:
        raise NotFound(f"there is no commit {commit} to undo here")
    back = own_address(visit.param("back"))
    return visit.render("undo.html", commit=commit, changes=changes[:MOST_SHOWN], total=len(changes), back=back)


@router.post(UNDO, include_in_schema=False)
def undo(visit: VisitOf) -> Response:
    undone = visit.space.undo(_number(visit.field("commit")))
    return visit.redirect(with_done(own_address(visit.field("back")), "undone", undone))


def _number(written: str) -> int:
    if not (written.isascii() and written.isdigit() and len(written) < 19):
        raise InvalidInput("name the commit to undo by its number")
    return int(written)
