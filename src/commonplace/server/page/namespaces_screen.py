"""The memories that the caller may open."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from commonplace.checks import parse_namespace
from commonplace.server.http.sessions import PAGE_PATH
from commonplace.server.http.worker_threads import ThreadedRoute
from commonplace.server.page.visit import VisitOf

PAGE_SIZE = 50
router = APIRouter(route_class=ThreadedRoute)


@router.get(f"{PAGE_PATH}/namespaces", include_in_schema=False)
def namespaces(visit: VisitOf) -> Response:
    assert visit.principal is not None
    after = visit.param("after")
    found = visit.principal.namespaces(
        visit.service.book, after=parse_namespace(after) if after else None, limit=PAGE_SIZE + 1
    )
    names = ["/".join(labels) for labels in found[:PAGE_SIZE]]
    return visit.render("namespaces.html", names=names, next=names[-1] if len(found) > PAGE_SIZE else None)
