"""Files and directories over REST. The path is the tail of the address; the text is the body, byte for byte."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Query, Request
from fastapi.responses import Response

from commonplace.errors import InvalidInput, NotFound
from commonplace.server.http.rest.answers import (
    NOT_MODIFIED,
    WRITING,
    IfChanged,
    IfMatch,
    IfNew,
    Once,
    answer,
    documented,
    etag_of,
    forms,
    is_known,
    link,
    next_page,
    not_modified,
    part,
    under_conditions,
)
from commonplace.server.http.rest.bodies import FileEdit, Move
from commonplace.server.http.rest.models import EditedFile, FileModel, FilesPage, MovedModel, RemovedModel
from commonplace.server.http.service import SpaceOf
from commonplace.space.files import FileInfo
from commonplace.space.names import DIRECTORY, FILE
from commonplace.space.space import Space
from commonplace.wire.forms import form_of

router = part("files")
MAX_PAGE = 10_000
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="How many at most.")]
Cursor = Annotated[str | None, Query(description="Where the page begins, as the page before says.")]
_TEXT_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"text/plain": {"schema": {"type": "string"}, "example": "Deploys go out on Tuesdays\n"}},
    }
}
_TEXT_ANSWER: dict[str, Any] = {"text/plain": {"schema": {"type": "string"}, "example": "Deploys go out on Tuesdays\n"}}
_FILE_LINKS = {
    "read": link("read_file", path="$response.body#/path"),
    "stat": link("stat_path", path="$response.body#/path"),
    "delete": link("delete_path", path="$response.body#/path"),
}


async def text_of(request: Request) -> str:
    """The body as text. Bytes that are no UTF-8 are refused rather than changed."""
    try:
        return (await request.body()).decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the body is no UTF-8 at byte {error.start}; send text in UTF-8") from error


TextBody = Annotated[str, Depends(text_of)]


@router.get(
    "/files/{path:tail}",
    summary="Read a file",
    response_class=Response,
    responses={
        **documented(None, 404, 409, etag=True, about="The text."),
        **NOT_MODIFIED,
        200: {"description": "The text.", "content": _TEXT_ANSWER, "headers": {"ETag": {"schema": {"type": "string"}}}},
    },
)
def read_file(
    request: Request,
    space: SpaceOf,
    path: str,
    as_of: Annotated[str | None, Query(description="As it was at this time, ISO 8601.")] = None,
    if_changed: IfChanged = None,
) -> Response:
    """The text of a file, now or as it was, byte for byte. `ETag` is its revision and the time of that."""
    path = "/" + path
    if as_of is not None:
        return Response(space.files.read(path, as_of=as_of), media_type="text/plain")
    # The tag is read before the text: one that is too old is refused by If-Match, one too new would lose an update.
    info = space.files.stat(path)
    etag = etag_of(info.revision, info.updated_at)
    if info.kind == FILE and is_known(request, etag):
        return not_modified(etag)
    return Response(space.files.read(path), headers={"ETag": etag}, media_type="text/plain")


@router.put(
    "/files/{path:tail}",
    summary="Write a file",
    responses=documented(FileModel, *WRITING, links=_FILE_LINKS, etag=True),
    openapi_extra=_TEXT_BODY,
)
def write_file(
    space: Once,
    path: str,
    text: TextBody,
    overwrite: Annotated[bool, Query(description="`false` refuses a file that exists (409).")] = True,
    ttl_seconds: Annotated[float | None, Query(description="How long the file lives.")] = None,
    if_match: IfMatch = None,
    if_new: IfNew = None,
) -> Response:
    """Put the body at a path, with the directories above it."""
    space = under_conditions(space, FILE, "/" + path, if_match, if_new)
    return _told(space.files.write("/" + path, text, overwrite=overwrite, ttl_seconds=ttl_seconds))


@router.post(
    "/files/{path:tail}",
    summary="Append to a file",
    responses=documented(FileModel, *WRITING, links=_FILE_LINKS, etag=True),
    openapi_extra=_TEXT_BODY,
)
def append_to_file(space: Once, path: str, text: TextBody, if_match: IfMatch = None, if_new: IfNew = None) -> Response:
    """Add the body to the end of a file, on a new line; makes the file where there is none."""
    space = under_conditions(space, FILE, "/" + path, if_match, if_new)
    return _told(space.files.append("/" + path, text))


@router.patch(
    "/files/{path:tail}",
    summary="Edit a file",
    responses=documented(EditedFile, *WRITING),
)
def edit_file(space: Once, path: str, edit: FileEdit, if_match: IfMatch = None) -> Response:
    """Replace a text in a file, insert after a line, or replace the whole text; the file must exist."""
    path = "/" + path
    space = under_conditions(space, FILE, path, if_match)
    if len(edit.model_fields_set) != 1:
        raise InvalidInput("send one of replace, insert and text")
    info, count = _edited(space, path, edit)
    return answer({"file": form_of(info), "count": count})


def _edited(space: Space, path: str, edit: FileEdit) -> tuple[FileInfo, int]:
    if edit.replace is not None:
        count = space.files.replace(path, edit.replace.old, edit.replace.new, unique=edit.replace.unique)
        return space.files.stat(path), count
    if edit.insert is not None:
        return space.files.insert(path, edit.insert.line, edit.insert.text), 1
    if edit.text is None:
        raise InvalidInput("send one of replace, insert and text, and not null")
    return space.files.edit(path, lambda _: edit.text), 1


@router.delete(
    "/files/{path:tail}",
    summary="Delete a file or a directory",
    responses=documented(RemovedModel, *WRITING, links={"undo": link("undo")}),
)
def delete_path(space: Once, path: str, if_match: IfMatch = None) -> Response:
    """Delete a file, or a directory with everything in it, in one commit; the empty path clears all.

    What does not exist is no error: nothing was removed.
    """
    if if_match is not None:
        space = under_conditions(space, _kind_at(space, "/" + path), "/" + path, if_match)
    return answer(form_of(space.files.delete("/" + path)))


def _kind_at(space: Space, path: str) -> str:
    """What a condition on a path is about: a file, unless a directory stands there."""
    try:
        return space.files.stat(path).kind
    except NotFound:
        return FILE


@router.get(
    "/info/{path:tail}",
    summary="Tell of a file or a directory",
    responses={**documented(FileModel, 404, 409, links=_FILE_LINKS, etag=True), **NOT_MODIFIED},
)
def stat_path(request: Request, space: SpaceOf, path: str, if_changed: IfChanged = None) -> Response:
    """Size, lines, revision and times, without the text."""
    info = space.files.stat("/" + path)
    etag = etag_of(info.revision, info.updated_at)
    return not_modified(etag) if is_known(request, etag) else answer(form_of(info), etag=etag)


@router.get("/directories/{path:tail}", summary="List a directory", responses=documented(FilesPage, 404, 409))
def list_directory(
    request: Request, space: SpaceOf, path: str, limit: Limit = 1_000, cursor: Cursor = None
) -> Response:
    """What lies directly in it: directories first, then files, each by name. The empty path is the root."""
    found = space.files.list("/" + path)
    start = 0
    if cursor is not None:
        kind, _, name = cursor.partition(":")
        start = sum((one.kind, one.name) <= (kind, name) for one in found)
    page = found[start : start + limit]
    more = f"{page[-1].kind}:{page[-1].name}" if start + limit < len(found) else None
    return answer({"files": forms(page, form_of), "cursor": more, "next": next_page(request, more)})


@router.put(
    "/directories/{path:tail}", summary="Make a directory", responses=documented(FileModel, *WRITING, etag=True)
)
def make_directory(space: Once, path: str, if_match: IfMatch = None, if_new: IfNew = None) -> Response:
    """Make a directory and those above it; one that exists is fine."""
    space = under_conditions(space, DIRECTORY, "/" + path, if_match, if_new)
    return _told(space.files.make_directory("/" + path))


@router.get("/tree/{path:tail}", summary="List all below a directory", responses=documented(FilesPage))
def walk_tree(request: Request, space: SpaceOf, path: str, limit: Limit = 500, cursor: Cursor = None) -> Response:
    """Everything below a directory: its directories in order, then its files in order."""
    page = space.files.page("/" + path, limit=limit, cursor=cursor)
    return answer({**form_of(page), "next": next_page(request, page.cursor)})


@router.post(
    "/move",
    summary="Move a file or a directory",
    responses=documented(MovedModel, *WRITING, links={"undo": link("undo")}),
)
def move_path(space: Once, move: Move) -> Response:
    """Give a file, or a directory with everything in it, another path; one commit, to be undone whole."""
    return answer(form_of(space.files.move(move.source, move.target)))


def _told(info: FileInfo) -> Response:
    return answer(form_of(info), etag=etag_of(info.revision, info.updated_at))
