"""Threads and working memory over REST. An id may be any text, so what belongs to a thread names it in the query."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import Query, Request
from fastapi.responses import Response

from commonplace.checks import moment
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
from commonplace.server.http.rest.bodies import (
    Clone,
    NewThread,
    ThreadChange,
    TitleSuggestion,
    Transfer,
    WorkingUpdate,
)
from commonplace.server.http.rest.files import Cursor
from commonplace.server.http.rest.models import (
    CommitModel,
    History,
    OptionalWorking,
    ThreadModel,
    ThreadsNumbered,
    ThreadsPage,
    WorkingModel,
)
from commonplace.server.http.rest.records import filter_of
from commonplace.server.http.service import SpaceOf
from commonplace.space.conversation import Thread
from commonplace.space.names import THREAD, WORKING
from commonplace.space.space import Space
from commonplace.wire.forms import form_of

router = part("threads")
Limit = Annotated[int, Query(ge=1, le=1_000, description="How many at most.")]
Resource = Annotated[
    str | None, Query(description="Whose it has to be: a thread of another resource is refused (403).")
]
ThreadId = Annotated[str, Query(description="The thread's id.", examples=["t-1"])]
LINKS = {
    "get": link("get_thread", id="$response.body#/id"),
    "messages": link("list_messages", thread="$response.body#/id"),
    "add": link("add_messages", thread="$response.body#/id"),
    "delete": link("delete_thread", id="$response.body#/id"),
}
UNDO = {"undo": link("undo")}


def thread_etag(thread: Thread) -> str:
    return etag_of(thread.revision, thread.updated_at)


@router.post(
    "/threads",
    summary="Begin a thread",
    status_code=201,
    responses=documented(ThreadModel, *WRITING, success=201, links=LINKS, etag=True),
)
def create_thread(request: Request, space: Once, thread: NewThread) -> Response:
    """Begin a conversation; its resource is the namespace's last label, or the one that is sent."""
    made = space.threads.create(**thread.given())
    location = f"{request.url.path}/{quote(made.id, safe='')}"
    return answer(form_of(made), 201, etag=thread_etag(made), location=location)


@router.get("/threads", summary="List threads", responses=documented(ThreadsPage))
def list_threads(
    request: Request, space: SpaceOf, resource: Resource = None, limit: Limit = 20, cursor: Cursor = None
) -> Response:
    """The threads of a resource, or all; the one used last comes first."""
    page = space.threads.list(resource=resource, limit=limit, cursor=cursor)
    return answer({**form_of(page), "next": next_page(request, page.cursor)})


@router.get("/numbered-threads", summary="List threads by page number", responses=documented(ThreadsNumbered))
def list_threads_by_number(
    space: SpaceOf,
    page: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
    per_page: Limit = 100,
    resource: Resource = None,
    metadata: Annotated[str | None, Query(description="Fields of the metadata that hold, as JSON.")] = None,
    order_by: Literal["createdAt", "updatedAt"] = "updatedAt",
    direction: Literal["ASC", "DESC"] = "DESC",
) -> Response:
    """With a total, for programs that show "page 3 of 12"; a cursor is quicker."""
    found = space.threads.page_of_threads(
        page,
        resource=resource,
        metadata=filter_of(metadata),
        per_page=per_page,
        order_by=order_by,
        direction=direction,
    )
    return answer(form_of(found))


@router.get(
    "/threads/{id:tail}",
    summary="Read a thread",
    responses={**documented(ThreadModel, 404, links=LINKS, etag=True), **NOT_MODIFIED},
)
def get_thread(
    request: Request, space: SpaceOf, id: str, resource: Resource = None, if_changed: IfChanged = None
) -> Response:
    """A thread without its messages. `ETag` is its revision and its last use."""
    thread = space.threads.get(id, resource=resource)
    etag = thread_etag(thread)
    return not_modified(etag) if is_known(request, etag) else answer(form_of(thread), etag=etag)


@router.patch("/threads/{id:tail}", summary="Change a thread", responses=documented(ThreadModel, *WRITING, etag=True))
def update_thread(
    space: Once, id: str, change: ThreadChange, resource: Resource = None, if_match: IfMatch = None
) -> Response:
    """Change the title, or fields of the metadata: null removes one, those not named stay."""
    space = under_conditions(space, THREAD, id, if_match)
    thread = space.threads.update(id, **change.given(), resource=resource)
    return answer(form_of(thread), etag=thread_etag(thread))


@router.delete("/threads/{id:tail}", summary="Delete a thread", responses=documented(CommitModel, *WRITING, links=UNDO))
def delete_thread(space: Once, id: str, resource: Resource = None, if_match: IfMatch = None) -> Response:
    """Delete a thread with its messages and its working memory, in one commit."""
    space = under_conditions(space, THREAD, id, if_match)
    return answer({"commit": space.threads.delete(id, resource=resource)})


@router.post(
    "/clones",
    summary="Copy a thread",
    status_code=201,
    responses=documented(ThreadModel, *WRITING, success=201, links=LINKS, etag=True),
)
def clone_thread(space: Once, clone: Clone, resource: Resource = None) -> Response:
    """Copy a thread with its messages, which get new ids: all, or those up to a message or a time (inclusive), from a
    time on, with these ids, the last so many. `to` is the copy's resource, left out the same."""
    options = clone.given()
    made = space.threads.clone(options.pop("thread"), **options, resource=resource)
    return answer(form_of(made), 201, etag=thread_etag(made))


@router.post(
    "/transfers",
    summary="Give a thread to another resource",
    responses=documented(ThreadModel, *WRITING, links=LINKS, etag=True),
)
def transfer_thread(space: Once, transfer: Transfer, resource: Resource = None) -> Response:
    """Give a thread with its messages and its own working memory to another resource; ids and times stay."""
    thread = space.threads.transfer(transfer.thread, transfer.to, resource=resource)
    return answer(form_of(thread), etag=thread_etag(thread))


@router.post(
    "/title-suggestions", summary="Suggest a title", responses=documented(ThreadModel, *WRITING, links=LINKS, etag=True)
)
def suggest_title(space: Once, suggestion: TitleSuggestion, resource: Resource = None) -> Response:
    """Give a thread a title while it has none of its own; one that somebody chose stays."""
    thread = space.threads.suggest_title(suggestion.thread, suggestion.title, resource=resource)
    return answer(form_of(thread), etag=thread_etag(thread))


# Working memory

Thread_ = Annotated[str | None, Query(alias="thread", description="Of this thread; left out, of the resource.")]


@router.get(
    "/working-memory",
    summary="Read a working memory",
    tags=["working memory"],
    responses={**documented(OptionalWorking, 404, etag=True), **NOT_MODIFIED},
)
def read_working(
    request: Request, space: SpaceOf, resource: Resource = None, thread: Thread_ = None, if_changed: IfChanged = None
) -> Response:
    """What an agent keeps in mind of a resource, or of one thread; null where there is nothing yet."""
    memory = space.threads.working.read(resource=resource, thread=thread)
    etag = etag_of(0, moment(0)) if memory is None else etag_of(memory.revision, memory.updated_at)
    if is_known(request, etag):
        return not_modified(etag)
    return answer({"working_memory": None if memory is None else form_of(memory)}, etag=etag)


@router.put(
    "/working-memory",
    summary="Update a working memory",
    tags=["working memory"],
    responses=documented(WorkingModel, *WRITING, etag=True),
)
def write_working(
    space: Once,
    update: WorkingUpdate,
    resource: Resource = None,
    thread: Thread_ = None,
    if_match: IfMatch = None,
    if_new: IfNew = None,
) -> Response:
    """A text replaces the text; an object is merged into the object. An empty template replaces nothing (409)."""
    space = under_conditions(space, WORKING, working_name(space, resource, thread), if_match, if_new)
    memory = space.threads.working.write(**update.given(), resource=resource, thread=thread)
    return answer(form_of(memory), etag=etag_of(memory.revision, memory.updated_at))


@router.delete(
    "/working-memory",
    summary="Clear a working memory",
    tags=["working memory"],
    responses=documented(CommitModel, *WRITING, links=UNDO),
)
def clear_working(space: Once, resource: Resource = None, thread: Thread_ = None, if_match: IfMatch = None) -> Response:
    """Forget on purpose; history keeps it."""
    space = under_conditions(space, WORKING, working_name(space, resource, thread), if_match)
    return answer({"commit": space.threads.working.clear(resource=resource, thread=thread)})


@router.get(
    "/working-memory/history",
    summary="List the revisions of a working memory",
    tags=["working memory"],
    responses=documented(History),
)
def working_history(
    request: Request,
    space: SpaceOf,
    resource: Resource = None,
    thread: Thread_ = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """Every revision, oldest first, deletions included."""
    return revisions_answer(request, space.threads.working.history(resource=resource, thread=thread), limit, cursor)


def revisions_answer(request: Request, revisions: list[Any], limit: int, cursor: str | None) -> Response:
    """A page of a history; the cursor is the last revision of the page before."""
    after = int(cursor) if cursor is not None and cursor.isascii() and cursor.isdigit() and len(cursor) < 19 else 0
    rest = [one for one in revisions if one.revision > after]
    more = str(rest[limit - 1].revision) if len(rest) > limit else None
    return answer({"revisions": forms(rest[:limit], form_of), "cursor": more, "next": next_page(request, more)})


def working_name(space: Space, resource: str | None, thread: str | None) -> str:
    """What people call a working memory, as `history` takes it."""
    return f"thread/{thread}" if thread is not None else f"resource/{resource or space.threads.default_resource}"
