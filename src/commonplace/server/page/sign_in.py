"""Signing in with a key and out again, and letting an MCP client act for a key."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from commonplace.errors import NotFound, Unauthorized
from commonplace.server.http.api_keys import Key
from commonplace.server.http.oauth import CONSENT_PATH, issuer_of
from commonplace.server.http.sessions import PAGE_PATH, session_of
from commonplace.server.http.worker_threads import ThreadedRoute
from commonplace.server.page.visit import SIGN_OUT, Visit, VisitOf, own_address

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


@router.post(SIGN_OUT, include_in_schema=False)
def sign_out(visit: VisitOf) -> Response:
    session = session_of(visit.request.headers)
    if session is not None:
        visit.service.access.sessions.end(session)
    response = visit.redirect(SIGN_IN)
    visit.delete_cookie(response)
    return response


@router.get(CONSENT_PATH, include_in_schema=False)
def consent_form(visit: VisitOf) -> Response:
    """What a client asks for. `oauth.Grants.read` refuses what does not fit the client's registration."""
    key = _signed_in_key(visit)
    asked = visit.service.access.grants.read(visit.request.query_params, _issuer(visit))
    actions = [action for action in asked.scopes if action in key.actions]
    return visit.render("consent.html", asked=asked, key=key, actions=actions)


@router.post(CONSENT_PATH, include_in_schema=False)
def consent(visit: VisitOf) -> Response:
    key = _signed_in_key(visit)
    grants, issuer = visit.service.access.grants, _issuer(visit)
    asked = grants.read(visit.request.query_params, issuer)
    result = {"code": grants.approve(asked, key)} if visit.field("approve") == "yes" else {"error": "access_denied"}
    # Not a redirect: the policy of the page lets a form lead only to its own site.
    return visit.render("again.html", url=asked.answer(issuer, **result))


def _issuer(visit: Visit) -> str:
    return issuer_of(visit.request, visit.service.settings.public_url)


def _signed_in_key(visit: Visit) -> Key:
    access = visit.service.access
    if not access.has_oauth:
        raise NotFound("this service was started without --oauth, so clients cannot ask for access")
    session = session_of(visit.request.headers)
    if session is None:
        raise Unauthorized("sign in with a key to let a client use your memory")
    return access.sessions.check(session)
