"""Messages over REST: added to a thread, listed, changed, recalled, and put together for a model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Literal

from fastapi import Query, Request
from fastapi.responses import Response

from commonplace.checks import JSON, moment
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
from commonplace.server.http.rest.bodies import (
    ContextBody,
    MessageChange,
    MessageIds,
    NewConversation,
    NewMessages,
    RecallBody,
)
from commonplace.server.http.rest.files import Cursor
from commonplace.server.http.rest.models import (
    CommitModel,
    ContextModel,
    MessageModel,
    MessagesModel,
    MessagesNumbered,
    MessagesPage,
    RecallModel,
)
from commonplace.server.http.rest.threads import UNDO, Limit, Resource, ThreadId
from commonplace.server.http.service import SpaceOf
from commonplace.space.messages import Message
from commonplace.space.names import MESSAGE
from commonplace.space.recall import Recall
from commonplace.wire.forms import form_of

router = part("messages")
Entries = Annotated[bool, Query(description="Also tell how each message is stored.")]
Time = Annotated[str | None, Query(description="ISO 8601, with an offset or `Z`.", examples=["2026-01-31T12:00:00Z"])]
Neighbours = Annotated[int, Query(ge=0, le=1_000)]
_FIRST = {
    "get": link("get_message", id="$response.body#/messages/0/id"),
    "around": link("list_around", id="$response.body#/messages/0/id"),
}


def message_form(message: Message, entries: bool) -> dict[str, JSON]:
    return form_of(message if entries else replace(message, entry=None))


def message_forms(messages: Iterable[Message], entries: bool) -> list[dict[str, JSON]]:
    return [message_form(message, entries) for message in messages]


@router.post(
    "/conversations",
    summary="Begin a thread with messages",
    status_code=201,
    responses=documented(MessagesModel, *WRITING, success=201, links=_FIRST),
)
def begin_thread(space: Once, begun: NewConversation, entries: Entries = False) -> Response:
    """Begin a conversation with its first messages, all in one change or nothing; each of them names its thread.

    Where all of them are in one thread of the resource already, they stay there.
    """
    return answer({"messages": message_forms(space.threads.begin(**begun.given()), entries)}, 201)


@router.post(
    "/messages",
    summary="Add messages to a thread",
    status_code=201,
    responses=documented(MessagesModel, *WRITING, success=201, links=_FIRST),
)
def add_messages(
    space: Once, thread: ThreadId, added: NewMessages, resource: Resource = None, entries: Entries = False
) -> Response:
    """Save messages, all or none, in their order; those that are there already stay as they are.

    A message is `{"role": …, "content": …}` in any of the usual forms, and keeps all its fields. Without an id it
    gets one, without `createdAt` the time of now. System messages are left out.
    """
    saved = space.threads.add(thread, added.messages, resource=resource, verbatim=added.verbatim)
    return answer({"messages": message_forms(saved, entries)}, 201)


@router.get("/messages", summary="List the messages of a thread", responses=documented(MessagesPage, 404, links=_FIRST))
def list_messages(
    request: Request,
    space: SpaceOf,
    thread: ThreadId,
    resource: Resource = None,
    last: Annotated[int | None, Query(ge=0, le=1_000, description="Only the last so many; has no cursor.")] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
    after: Time = None,
    before: Time = None,
    entries: Entries = False,
) -> Response:
    """Oldest first: a page, or the `last` so many. `after` (inclusive) and `before` narrow by time."""
    page = space.threads.messages(
        thread, resource=resource, last=last, limit=limit, cursor=cursor, after=after, before=before
    )
    form = {"messages": message_forms(page.messages, entries), "cursor": page.cursor}
    return answer({**form, "next": next_page(request, page.cursor)})


@router.get("/numbered-messages", summary="List messages by page number", responses=documented(MessagesNumbered, 404))
def list_messages_by_number(
    space: SpaceOf,
    thread: ThreadId,
    page: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
    per_page: Limit = 40,
    resource: Resource = None,
    order_by: Literal["createdAt", "updatedAt"] = "createdAt",
    direction: Literal["ASC", "DESC"] = "ASC",
    after: Time = None,
    before: Time = None,
    entries: Entries = False,
) -> Response:
    """With a total, for programs that show "page 3 of 12"; a cursor is quicker."""
    found = space.threads.page_of_messages(
        thread,
        page,
        resource=resource,
        per_page=per_page,
        order_by=order_by,
        direction=direction,
        after=after,
        before=before,
    )
    return answer(
        {
            "items": message_forms(found.items, entries),
            "total": found.total,
            "page": found.page,
            "per_page": found.per_page,
        }
    )


@router.delete("/messages", summary="Clear a thread", responses=documented(CommitModel, *WRITING, links=UNDO))
def clear_thread(space: Once, thread: ThreadId, resource: Resource = None) -> Response:
    """Delete all messages of a thread, which stays, in one commit."""
    return answer({"commit": space.threads.clear(thread, resource=resource)})


@router.get(
    "/messages/{id:tail}",
    summary="Read a message",
    responses={**documented(MessageModel, 404, etag=True), **NOT_MODIFIED},
)
def get_message(
    request: Request,
    space: SpaceOf,
    id: str,
    resource: Resource = None,
    entries: Entries = False,
    if_changed: IfChanged = None,
) -> Response:
    """A message by its own id. `ETag` is its revision and the time of that."""
    message = space.threads.get_message(id, resource=resource)
    etag = _etag(message)
    return not_modified(etag) if is_known(request, etag) else answer(message_form(message, entries), etag=etag)


@router.patch(
    "/messages/{id:tail}", summary="Change a message", responses=documented(MessageModel, *WRITING, etag=True)
)
def update_message(
    space: Once,
    id: str,
    change: MessageChange,
    resource: Resource = None,
    entries: Entries = False,
    if_match: IfMatch = None,
) -> Response:
    """Replace its content, or change fields of its metadata: null removes one. Its place stays."""
    space = under_conditions(space, MESSAGE, id, if_match)
    message = space.threads.update_message(id, **change.given(), resource=resource)
    return answer(message_form(message, entries), etag=_etag(message))


@router.post("/message-deletions", summary="Delete messages", responses=documented(CommitModel, *WRITING, links=UNDO))
def delete_messages(space: Once, chosen: MessageIds, resource: Resource = None) -> Response:
    """Delete those of these messages that there are, in one commit; null where there was none of them."""
    return answer({"commit": space.threads.delete_messages(chosen.ids, resource=resource)})


@router.get("/around/{id:tail}", summary="Read a message with its neighbours", responses=documented(MessagesModel, 404))
def list_around(
    space: SpaceOf,
    id: str,
    before: Neighbours = 1,
    after: Neighbours = 1,
    resource: Resource = None,
    entries: Entries = False,
) -> Response:
    """A message with so many of its thread before and after it, oldest first."""
    found = space.threads.around(id, before=before, after=after, resource=resource)
    return answer({"messages": message_forms(found, entries)})


@router.get("/recall", summary="Recall from a thread", responses=documented(RecallModel, 404))
def recall_by_query(
    space: SpaceOf,
    thread: ThreadId,
    resource: Resource = None,
    query: Annotated[str | None, Query(description="What to be reminded of.")] = None,
    last: Annotated[int, Query(ge=0, le=1_000)] = 10,
    top: Annotated[int, Query(ge=0, le=100)] = 4,
    neighbours: Annotated[int, Query(ge=0, le=100)] = 1,
    scope: Literal["thread", "resource"] = "thread",
    entries: Entries = False,
) -> Response:
    """The last messages, and the `top` that the query finds, each with its neighbours; each once, in time order."""
    found = space.threads.recall(
        thread, resource=resource, query=query, last=last, top=top, neighbours=neighbours, scope=scope
    )
    return answer(_recall_form(found, entries))


@router.post("/recall", summary="Recall from a thread, with a long query", responses=documented(RecallModel, 404))
def recall(space: SpaceOf, asked: RecallBody, entries: Entries = False) -> Response:
    """As GET, with the fields in the body."""
    options = asked.given()
    return answer(_recall_form(space.threads.recall(options.pop("thread"), **options), entries))


@router.post("/context", summary="Put together what a model is given", responses=documented(ContextModel, 404))
def build_context(space: SpaceOf, asked: ContextBody) -> Response:
    """What `recall` finds as messages for a model, with the working memory, within so many tokens (an estimate).

    A tool's call and its result come together or not at all.
    """
    options = asked.given()
    return answer(form_of(space.threads.context(options.pop("thread"), options.pop("query", None), **options)))


def _recall_form(found: Recall, entries: bool) -> dict[str, JSON]:
    return {
        "messages": message_forms(found.messages, entries),
        "hits": [form_of(hit) for hit in found.hits],
        "notices": list(found.notices),
    }


def _etag(message: Message) -> str:
    assert message.entry is not None
    return etag_of(message.entry.revision, moment(message.entry.updated_at))
