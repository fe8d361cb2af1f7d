"""Signing in with a key, and out again. A service without keys needs neither."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from commonplace.errors import Unauthorized
from commonplace.server.http.sessions import PAGE_PATH, session_of
from commonplace.server.http.worker_threads import ThreadedRoute
from commonplace.server.page.visit import VisitOf, own_address

SIGN_IN = f"{PAGE_PATH}/sign-in"
router = APIRouter(route_class=ThreadedRoute)


@router.get(SIGN_IN, include_in_schema=False)
def sign_in_form(visit: VisitOf) -> Response:
    if visit.service.access.is_open():
        return visit.redirect(own_address(visit.param("next")))
    return visit.render("sign_in.html", refusal=None)


@router.post(SIGN_IN, include_in_schema=False)
def sign_in(visit: VisitOf) -> Response:
    access = visit.service.access
    try:
        key = access.keys.check(visit.field("key").strip())
    except Unauthorized as error:
        return visit.render("sign_in.html", 401, refusal=str(error))
    response = visit.redirect(own_address(visit.param("next")))
    visit.set_cookie(response, access.sessions.begin(key))
    return response


@router.post(f"{PAGE_PATH}/sign-out", include_in_schema=False)
def sign_out(visit: VisitOf) -> Response:
    session = session_of(visit.request.headers)
    if session is not None:
        visit.service.access.sessions.end(session)
    response = visit.redirect(SIGN_IN)
    visit.delete_cookie(response)
    return response
