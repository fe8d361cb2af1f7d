"""Search, history, undo and erasure over REST."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from fastapi import Query, Request
from fastapi.responses import Response

from commonplace.entry import Hit
from commonplace.errors import Forbidden, InvalidInput
from commonplace.server.http.rest.answers import WRITING, answer, documented, link, next_page, part
from commonplace.server.http.rest.answers import Once as Writing
from commonplace.server.http.rest.bodies import Purge, Restoration, SearchBody, ThreadSearchBody, Undoing
from commonplace.server.http.rest.files import Cursor
from commonplace.server.http.rest.messages import Time
from commonplace.server.http.rest.models import (
    CommitModel,
    EntryModel,
    History,
    KindName,
    PurgedModel,
    SearchModel,
    ThreadSearchModel,
)
from commonplace.server.http.rest.records import filter_of
from commonplace.server.http.rest.threads import UNDO, Limit, Resource, revisions_answer
from commonplace.server.http.service import SpaceOf, principal_of
from commonplace.space.names import DIRECTORY, FILE
from commonplace.tools.as_data import hits_as_data
from commonplace.wire.forms import form_of

router = part("search and history")
Kinds = Annotated[list[str], Query(description="Only these kinds: `file`, `record`, `message` (all three by default).")]
Now = Annotated[str | None, Query(description="When `yesterday` in the query is counted from.")]
Tags = Annotated[list[str], Query(description="Only with these tags.")]


@router.get("/search", summary="Search", responses=documented(SearchModel))
def search_by_query(
    request: Request,
    space: SpaceOf,
    q: Annotated[str, Query(description="What to find, in any words.", examples=["when do we deploy?"])],
    limit: Limit = 10,
    offset: Annotated[int, Query(ge=0, le=10_000)] = 0,
    kind: Kinds = [],  # noqa: B006 - FastAPI copies it
    type: Annotated[str | None, Query(description="Only records of this type.")] = None,
    tag: Tags = [],  # noqa: B006
    match: Literal["all", "any"] = "all",
    filter: Annotated[str | None, Query(description="Fields that hold, as JSON.")] = None,
    after: Time = None,
    before: Time = None,
    as_of: Time = None,
    now: Now = None,
    below: Annotated[bool, Query(description="Look into the namespaces under this one as well.")] = False,
    wrapped: Annotated[bool, Query(description="Also one text for a prompt, marked as data.")] = False,
) -> Response:
    """Find by words and by meaning, over files, records and messages alike; the best first."""
    _check_reach(request, below)
    found = space.search(
        q,
        limit=limit,
        offset=offset,
        kinds=kind or None,
        type=type,
        tags=tag,
        match=match,
        filter=filter_of(filter),
        after=after,
        before=before,
        as_of=as_of,
        now=now,
        below=below,
    )
    is_full = len(found.hits) == limit and offset + limit <= 10_000
    more = next_page(request, str(offset + limit) if is_full else None, "offset")
    return answer({**form_of(found), "next": more, **_wrapped(found, wrapped)})


@router.post("/search", summary="Search with a body", responses=documented(SearchModel))
def search(request: Request, space: SpaceOf, asked: SearchBody) -> Response:
    """As GET, with the fields in the body: for long queries and filters. Go on with `offset`."""
    _check_reach(request, asked.below)
    options = asked.given()
    wrapped = options.pop("wrapped", False)
    found = space.search(options.pop("query"), **options)
    return answer({**form_of(found), "next": None, **_wrapped(found, wrapped)})


def _wrapped(found: Iterable[Hit], is_asked_for: bool) -> dict[str, str | None]:
    return {"wrapped": hits_as_data(found) if is_asked_for else None}


@router.get("/thread-search", summary="Search for threads", responses=documented(ThreadSearchModel))
def search_threads_by_query(
    space: SpaceOf,
    q: Annotated[str, Query(description="What they are about.", examples=["when do we deploy?"])],
    limit: Annotated[int, Query(ge=1, le=100)] = 10,
    resource: Resource = None,
    now: Now = None,
) -> Response:
    """The conversations that are about something, best first, each with what was found in it."""
    return answer(form_of(space.threads.search(q, limit=limit, resource=resource, now=now)))


@router.post("/thread-search", summary="Search for threads with a body", responses=documented(ThreadSearchModel))
def search_threads(space: SpaceOf, asked: ThreadSearchBody) -> Response:
    """As GET, with the fields in the body."""
    options = asked.given()
    return answer(form_of(space.threads.search(options.pop("query"), **options)))


def _check_reach(request: Request, below: bool) -> None:
    if below and principal_of(request).reach == "own":
        raise Forbidden("this access reaches one namespace only; search without `below`")


def _name(kind: str, key: str) -> str:
    """What people call an entry: a path begins with the slash that stands before it in the address."""
    return f"/{key}" if kind in (FILE, DIRECTORY) else key


@router.get("/history/{kind}/{key:tail}", summary="List the revisions of an entry", responses=documented(History))
def list_history(
    request: Request, space: SpaceOf, kind: KindName, key: str, limit: Limit = 100, cursor: Cursor = None
) -> Response:
    """Every revision of a file's path, or of a record's, thread's or message's id, oldest first, deletions included."""
    return revisions_answer(request, space.history(kind, _name(kind, key)), limit, cursor)


@router.get("/states/{kind}/{key:tail}", summary="Read a former state", responses=documented(EntryModel, 404))
def get_state(space: SpaceOf, kind: KindName, key: str, revision: Annotated[int, Query(ge=0, lt=2**63)]) -> Response:
    """One state of an entry as it was."""
    return answer(form_of(space.state(kind, _name(kind, key), revision)))


@router.post("/restore", summary="Restore a former state", responses=documented(CommitModel, *WRITING, links=UNDO))
def restore(space: Writing, chosen: Restoration) -> Response:
    """Make a former state the present one, as a new revision."""
    return answer({"commit": space.restore(chosen.kind, chosen.key, chosen.revision)})


@router.post(
    "/undo",
    summary="Undo a commit",
    operation_id="undo",
    responses=documented(CommitModel, *WRITING, links={"again": link("undo")}),
)
def undo_commit(space: Writing, chosen: Undoing) -> Response:
    """Take back a whole commit as a new one, or change nothing (409)."""
    return answer({"commit": space.undo(chosen.commit)})


@router.post("/purge", summary="Erase for good", responses=documented(PurgedModel, 404))
def purge(space: SpaceOf, chosen: Purge) -> Response:
    """Not to be undone, and only with the action `admin`: one entry with its history, all of a kind, or everything."""
    options = chosen.given()
    if not options.pop("everything", False) and chosen.kind is None and chosen.history_before is None:
        raise InvalidInput('to erase the whole namespace, send {"everything": true}')
    return answer({"states": space.purge(**options)})
