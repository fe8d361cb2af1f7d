"""Records over REST: create, read, change, delete, list."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import Query, Request
from fastapi.responses import Response

from commonplace.errors import InvalidInput
from commonplace.server.http.rest.answers import (
    NOT_MODIFIED,
    WRITING,
    IfChanged,
    IfMatch,
    Once,
    answer,
    documented,
    etag_of,
    is_known,
    link,
    next_page,
    not_modified,
    part,
    under_conditions,
)
from commonplace.server.http.rest.bodies import NewRecord, RecordChange
from commonplace.server.http.rest.files import Cursor, Limit
from commonplace.server.http.rest.models import CommitModel, RecordModel, RecordsPage
from commonplace.server.http.service import SpaceOf
from commonplace.space.names import RECORD
from commonplace.space.records import Record
from commonplace.wire.forms import form_of

router = part("records")
_LINKS = {
    "get": link("get_record", id="$response.body#/id"),
    "update": link("update_record", id="$response.body#/id"),
    "delete": link("delete_record", id="$response.body#/id"),
}


def filter_of(text: str | None) -> Any:
    """A filter that stands in the address as JSON."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput('filter is no JSON; write it like {"size":{"$gt":3}}') from error


@router.post(
    "/records",
    summary="Save a record",
    status_code=201,
    responses={
        **documented(RecordModel, *WRITING, success=201, links=_LINKS, etag=True),
        200: {"description": "It was there already, and got all tags and the larger confidence.", "model": RecordModel},
    },
)
def create_record(request: Request, space: Once, record: NewRecord) -> Response:
    """Save a record. The same type, source and content again is the same record: they are merged."""
    made = space.records.create(**record.given())
    location = f"{request.url.path}/{quote(made.id, safe='')}"
    # Not by its revision: that goes on where a record with this id was deleted before.
    status = 201 if made.created_at == made.updated_at else 200
    return answer(form_of(made), status, etag=etag_of(made.revision, made.updated_at), location=location)


@router.get("/records", summary="List records", responses=documented(RecordsPage))
def list_records(
    request: Request,
    space: SpaceOf,
    type: Annotated[str | None, Query(description="Only of this type.")] = None,
    tag: Annotated[list[str], Query(description="Only with these tags.")] = [],  # noqa: B006 - FastAPI copies it
    match: Annotated[Literal["all", "any"], Query(description="All of the tags, or any.")] = "all",
    filter: Annotated[
        str | None, Query(description='Fields that hold, as JSON: `{"size":{"$gt":3}}`.', examples=['{"size":3}'])
    ] = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> Response:
    """Records by type, tags and fields, the newest first."""
    page = space.records.list(type=type, tags=tag, match=match, filter=filter_of(filter), limit=limit, cursor=cursor)
    return answer({**form_of(page), "next": next_page(request, page.cursor)})


@router.get(
    "/records/{id:tail}",
    summary="Read a record",
    responses={**documented(RecordModel, 404, links=_LINKS, etag=True), **NOT_MODIFIED},
)
def get_record(
    request: Request,
    space: SpaceOf,
    id: str,
    as_of: Annotated[str | None, Query(description="As it was at this time, ISO 8601.")] = None,
    if_changed: IfChanged = None,
) -> Response:
    """A record, now or as it was. `ETag` is its revision and the time of that."""
    record = space.records.get(id, as_of=as_of)
    etag = etag_of(record.revision, record.updated_at)
    return not_modified(etag) if is_known(request, etag) else _told(record)


@router.patch("/records/{id:tail}", summary="Change a record", responses=documented(RecordModel, *WRITING, etag=True))
def update_record(space: Once, id: str, change: RecordChange, if_match: IfMatch = None) -> Response:
    """Change the fields that are sent. If that makes it equal to another record, the two become one, the older."""
    space = under_conditions(space, RECORD, id, if_match)
    return _told(space.records.update(id, **change.given()))


@router.delete(
    "/records/{id:tail}",
    summary="Delete a record",
    responses=documented(CommitModel, *WRITING, links={"undo": link("undo")}),
)
def delete_record(space: Once, id: str, if_match: IfMatch = None) -> Response:
    """Delete a record; `POST /v1/undo` with the commit brings it back."""
    return answer({"commit": under_conditions(space, RECORD, id, if_match).records.delete(id)})


def _told(record: Record) -> Response:
    return answer(form_of(record), etag=etag_of(record.revision, record.updated_at))
