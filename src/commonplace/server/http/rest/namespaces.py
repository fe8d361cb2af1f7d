"""What the service is, who calls, which namespaces there are and what they hold."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import Response

from commonplace import __version__
from commonplace.checks import Namespace, parse_namespace
from commonplace.errors import Forbidden
from commonplace.server.http.auth import Principal
from commonplace.server.http.rest.answers import answer, documented, next_page, part
from commonplace.server.http.rest.files import Limit
from commonplace.server.http.rest.models import Caller, NamespaceModel, Namespaces, ProblemKinds, StoreModel
from commonplace.server.http.service import SpaceOf, principal_of, service_of
from commonplace.wire.forms import form_of
from commonplace.wire.problems import KINDS, problem

router = part("namespaces")


@router.get("", summary="Tell of the service and the caller", responses=documented(Caller))
async def get_caller(request: Request) -> Response:
    """Who calls, as the credentials say: the namespace, what it reaches, the actions, and the limits on sizes."""
    principal, book = principal_of(request), service_of(request).book
    return answer(
        {
            "service": "commonplace",
            "version": __version__,
            "name": principal.name,
            "namespace": "/".join(principal.namespace),
            "reach": principal.reach,
            "actions": sorted(principal.rules.actions),
            "limits": asdict(book.limits),
        }
    )


@router.get("/problems", summary="List the codes of problems", responses=documented(ProblemKinds))
async def list_problems() -> Response:
    """Every `code` that an `application/problem+json` of this service can have."""
    return answer(
        {
            "problems": [
                {
                    "code": kind.code,
                    "status": kind.status,
                    "title": kind.title,
                    "extra": list(kind.extra),
                    "example": problem(kind, kind.title),
                }
                for kind in KINDS
            ]
        }
    )


@router.get("/namespaces", summary="List namespaces", responses=documented(Namespaces))
def list_namespaces(
    request: Request,
    below: Annotated[str | None, Query(description="Only those at or below this one, such as `user`.")] = None,
    after: Annotated[str | None, Query(description="The last one of the page before.")] = None,
    limit: Limit = 1_000,
) -> Response:
    """The namespaces that the caller reaches and that hold something, in order."""
    principal = principal_of(request)
    prefix = _prefix(principal, below)
    found = service_of(request).book.namespaces(
        *prefix, after=None if after is None else parse_namespace(after), limit=limit + 1
    )
    if principal.reach == "own":
        found = [namespace for namespace in found if namespace == principal.namespace]
    names = ["/".join(namespace) for namespace in found[:limit]]
    more = next_page(request, names[-1], "after") if len(found) > limit else None
    return answer({"namespaces": names, "next": more})


def _prefix(principal: Principal, below: str | None) -> Namespace:
    """What to list: what is asked for, where that is within the caller's reach."""
    asked = () if below is None else parse_namespace(below)
    if principal.reach == "all":
        return asked
    own = principal.namespace
    if own[: len(asked)] == asked:
        return own
    if principal.reach == "below" and asked[: len(own)] == own:
        return asked
    raise Forbidden(f"this access does not reach the namespaces below {below}; leave it out, or use another key")


@router.get("/stats", summary="Count what a namespace holds", responses=documented(NamespaceModel))
def get_stats(space: SpaceOf) -> Response:
    """Live entries by kind, former states, the last commit, and passages that wait for a vector."""
    return answer(form_of(space.stats()))


@router.get("/store", summary="Count what the whole store holds", responses=documented(StoreModel))
def get_store_stats(request: Request) -> Response:
    """Only for a caller that reaches every namespace."""
    if principal_of(request).reach != "all":
        raise Forbidden("this access does not reach the whole store; GET /v1/stats counts its own namespace")
    return answer(form_of(service_of(request).book.stats()))
