"""Mastra's memory routes at `/api/memory`, as `@mastra/client-js` calls them.

Each route parses, calls the space's threads and forms the answer. An agent is a namespace: see `Principal.agent_space`.
Networks of agents have the same routes below `/network`. An error is `{"error": message}`, with the status that it has
everywhere else.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, cast

from fastapi import APIRouter, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from commonplace.agents import AgentMemory
from commonplace.agents.agent_memory import Background
from commonplace.api.encoding import dumps
from commonplace.api.problems import kind_of
from commonplace.checks import JSON
from commonplace.entry import Entry
from commonplace.errors import CommonplaceError, InvalidInput, NotFound
from commonplace.filters import equal
from commonplace.server.http import mastra_forms
from commonplace.server.http.error_answers import problem_response
from commonplace.server.http.mastra_forms import (
    MILLISECOND,
    AgentSpace,
    MastraClone,
    MastraMessageIds,
    MastraNewMessages,
    MastraNewThread,
    MastraThreadChange,
    MastraTransfer,
    MastraWorkingUpdate,
    NamedAgentSpace,
    Observed,
    Resource,
    given,
    later,
    list_of,
    metadata_of,
    object_of,
    order_of,
    recalling_of,
    role_form,
    time_of,
    working_scope,
    working_template,
)
from commonplace.server.http.worker_threads import ThreadedRoute
from commonplace.space.conversation import MAX_PAGE, Direction, NumberedPage, Thread
from commonplace.space.messages import Message, in_time_order
from commonplace.space.space import Space
from commonplace.space.threads import Threads, ensure_thread, replace_metadata

PREFIX = "/api/memory"
NOT_OBSERVED = "Observational Memory is not enabled for this agent"
MAX_FOUND = 100
MAX_INCLUDED = 100
MAX_SHOWN_CHARACTERS = 200

Page = Annotated[int, Query(ge=0, le=10_000_000, description="Counts from 0.")]
PerPage = Annotated[int, Query(alias="perPage", ge=0, le=MAX_PAGE)]
Written = Annotated[str | None, Query(description="JSON.")]

INVALID = 422
"""The status of an invalid argument in other routes; Mastra's server answers 400."""

STATUSES = (400, 403, 404, 409, 413, 503)
_ERROR = {
    "type": "object",
    "properties": {"error": {"type": "string"}, "issues": {"type": "array", "items": {"type": "object"}}},
    "required": ["error"],
}
_PROBLEM = {"application/problem+json": {"schema": {"type": "object"}}}
DOCUMENTED: dict[int | str, dict[str, Any]] = {
    **{
        status: {
            "description": "What was wrong.",
            "content": {"application/json": {"schema": _ERROR}, **_PROBLEM},
        }
        for status in STATUSES
    },
    **{
        status: {"description": "Refused before it reached the route.", "content": _PROBLEM}
        for status in (401, 429, 500, 504)
    },
}

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


# Errors


class MastraRoute(ThreadedRoute):
    """A route whose errors have the form that Mastra's client reads, and that reads the body of a PATCH as JSON.

    client-js 0.17 sends that body as text. Only of a PATCH, because a page of another site can POST text without a
    preflight request.
    """

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()

        async def handle_or_refuse(request: Request) -> Response:
            if request.method == "PATCH":
                request = _as_json(request)
            try:
                return await handle(request)
            except RequestValidationError as error:
                return _invalid(error)
            except HTTPException as error:
                return JSONResponse({"error": str(error.detail)[:MAX_SHOWN_CHARACTERS]}, error.status_code)
            except CommonplaceError as error:
                kind = kind_of(error)
                if kind.status >= 500:
                    return problem_response(error)
                status = 400 if kind.status == INVALID else kind.status
                return Response(dumps({"error": str(error)}), status, media_type="application/json")

        return handle_or_refuse


def _as_json(request: Request) -> Request:
    headers = [(name, value) for name, value in request.scope["headers"] if name != b"content-type"]
    return Request({**request.scope, "headers": [*headers, (b"content-type", b"application/json")]}, request.receive)


def _invalid(error: RequestValidationError) -> Response:
    found = error.errors()
    place = "query parameters" if any(one["loc"][:1] == ("query",) for one in found) else "request body"
    issues = [
        {
            "field": ".".join(map(str, one["loc"][1:]))[:MAX_SHOWN_CHARACTERS] or "root",
            "message": str(one["msg"])[:MAX_SHOWN_CHARACTERS],
        }
        for one in found[:10]
    ]
    reasons = "; ".join(f"{issue['field']}: {issue['message']}" for issue in issues)
    body = {"error": f"Invalid {place}: {reasons}", "issues": issues}
    return Response(dumps(body), 400, media_type="application/json")


# Routes

_titling = Background("commonplace-mastra-titles")  # titles come from a local rule, so nothing is ever queued here
memory = APIRouter(route_class=MastraRoute, responses=DOCUMENTED, tags=["mastra"])
shared = APIRouter(route_class=MastraRoute, responses=DOCUMENTED, tags=["mastra"])
"""The routes that networks have too."""


def _answer(form: object) -> Response:
    return Response(dumps(form), media_type="application/json")


# Memory


@shared.get("/status", summary="Whether there is a memory")
def status(space: NamedAgentSpace) -> Response:
    return _answer({"result": True, "memoryType": "local", "observationalMemory": {"enabled": False}})


@memory.get("/config", summary="What an agent's memory does by itself")
def config(space: NamedAgentSpace) -> Response:
    return _answer(mastra_forms.config_form())


@memory.get("/observational-memory", summary="Not offered: answers 400")
def observational_memory(space: NamedAgentSpace) -> Response:
    raise InvalidInput(NOT_OBSERVED)


@memory.post("/observational-memory/buffer-status", summary="Not offered: answers 400")
def buffer_status(asked: Observed) -> Response:
    raise InvalidInput(NOT_OBSERVED)


# Threads


@shared.get("/threads", summary="List threads")
def list_threads(
    request: Request,
    space: AgentSpace,
    resource: Resource,
    page: Page = 0,
    per_page: PerPage = 100,
    metadata: Written = None,
) -> Response:
    """The threads of a resource, or all; the one used last comes first, unless you give `orderBy`."""
    field, direction = order_of(request)
    found = space.threads.page_of_threads(
        page,
        resource=resource,
        metadata=metadata_of(object_of("metadata", metadata)),
        per_page=per_page,
        order_by=field or "updatedAt",
        direction=direction or "DESC",
    )
    return _answer(mastra_forms.page_form("threads", found, [*map(mastra_forms.thread_form, found.items)]))


@shared.post("/threads", summary="Begin a thread")
def create_thread(space: NamedAgentSpace, new: MastraNewThread) -> Response:
    """A repeated call with the same id gives the same thread, so that a client can retry."""
    if new.thread is None:
        thread = space.threads.create(new.title, resource=new.resource, metadata=new.metadata)
    else:
        thread = ensure_thread(space.threads, new.thread, new.title, resource=new.resource, metadata=new.metadata or {})
    return _answer(mastra_forms.thread_form(thread))


# Before the thread itself: an id may have slashes, and Mastra's client does not escape them.
@shared.get("/threads/{thread_id:tail}/messages", summary="List a thread's messages")
def list_messages(
    request: Request,
    space: AgentSpace,
    thread_id: str,
    resource: Resource,
    page: Page = 0,
    per_page: PerPage = 40,
    filter: Written = None,
    include: Written = None,
) -> Response:
    """Without `orderBy`, page 0 has the newest messages, in order of time."""
    asked = Listing(thread_id, resource, page, per_page, order_of(request)[1], filter_of(object_of("filter", filter)))
    found = listed(space.threads, asked)
    messages = with_included(space.threads, found.items, list_of("include", include), asked)
    form = mastra_forms.page_form("messages", found, [*map(mastra_forms.message_form, messages)])
    has_more = found.has_more and sum(map(asked.has, messages)) < found.total
    return _answer({**form, "hasMore": has_more, "uiMessages": None})


@shared.get("/threads/{thread_id:tail}", summary="Read a thread")
def get_thread(space: AgentSpace, thread_id: str, resource: Resource) -> Response:
    return _answer(mastra_forms.thread_form(space.threads.get(thread_id, resource=resource)))


@shared.patch("/threads/{thread_id:tail}", summary="Change a thread")
def update_thread(space: NamedAgentSpace, thread_id: str, change: MastraThreadChange) -> Response:
    """A title or metadata that you give replaces the former one."""
    title: dict[str, Any] = {} if change.title is None else {"title": change.title}
    owner = given(change.resource)
    if change.metadata is None:
        changed = space.threads.update(thread_id, resource=owner, **title)
    else:
        changed = replace_metadata(space.threads, thread_id, change.metadata, resource=owner, **title)
    return _answer(mastra_forms.thread_form(changed))


@shared.delete("/threads/{thread_id:tail}", summary="Delete a thread with its messages")
def delete_thread(space: NamedAgentSpace, thread_id: str, resource: Resource) -> Response:
    space.threads.delete(thread_id, resource=resource)
    return _answer({"result": "Thread deleted"})


@memory.post("/threads/{thread_id:tail}/clone", summary="Copy a thread")
def clone_thread(space: NamedAgentSpace, thread_id: str, clone: MastraClone) -> Response:
    """With all its messages, the last ones, those of some days, or chosen ones."""
    made = space.threads.clone(
        thread_id,
        **clone.choice(),
        title=clone.title,
        metadata=clone.metadata,
        new_id=given(clone.new_thread),
        to=given(clone.resource),
    )
    return _answer(
        {
            "thread": mastra_forms.thread_form(made),
            "clonedMessages": [*map(mastra_forms.message_form, _all_messages(space, made))],
        }
    )


@memory.post("/threads/{thread_id:tail}/transfer", summary="Transfer a thread to another resource")
def transfer_thread(space: AgentSpace, thread_id: str, transfer: MastraTransfer) -> Response:
    return _answer(mastra_forms.thread_form(space.threads.transfer(thread_id, transfer.resource)))


def _all_messages(space: Space, thread: Thread) -> Iterator[Message]:
    cursor: str | None = None
    while True:
        page = space.threads.messages(thread.id, limit=MAX_PAGE, cursor=cursor)
        yield from page.messages
        cursor = page.cursor
        if cursor is None:
            return


# Messages


@shared.post("/save-messages", summary="Save messages")
def save_messages(space: NamedAgentSpace, new: MastraNewMessages) -> Response:
    """All messages of a thread or none; existing ones stay. A thread without a title gets one."""
    lacking = sum(not message.get("threadId") or not message.get("resourceId") for message in new.messages)
    if lacking:
        raise InvalidInput(
            f"All messages must have threadId and resourceId fields. Found {lacking} invalid message(s)."
        )
    by_thread: dict[tuple[Any, Any], list[dict[str, Any]]] = {}
    for message in new.messages:
        by_thread.setdefault((str(message["threadId"]), str(message["resourceId"])), []).append(message)
    for thread, resource in by_thread:
        space.threads.get(thread, resource=resource)
    agent = AgentMemory(space.namespace[-1], space, mastra_forms.CONFIG, _titling)
    saved = [
        message
        for (thread, resource), messages in by_thread.items()
        for message in agent.save_messages(thread, messages, resource=resource)
    ]
    return _answer({"messages": [*map(mastra_forms.message_form, saved)]})


@shared.post("/messages/delete", summary="Delete messages")
def delete_messages(space: NamedAgentSpace, named: MastraMessageIds, resource: Resource) -> Response:
    ids = named.listed()
    space.threads.delete_messages(ids, resource=resource)
    count = f"{len(ids)} message" + ("" if len(ids) == 1 else "s")
    return _answer({"success": True, "message": f"{count} deleted successfully"})


@memory.get("/search", summary="Search the messages of a resource")
def search(
    space: NamedAgentSpace,
    resource: Resource,
    query: Annotated[str, Query(alias="searchQuery")],
    thread: Annotated[str | None, Query(alias="threadId")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_FOUND)] = 20,
    memory_config: Annotated[str | None, Query(alias="memoryConfig", description="JSON.")] = None,
    min_relevance: Annotated[float | None, Query(alias="minRelevance", ge=0, le=1)] = None,
) -> Response:
    """By keyword and by meaning, the best first, each with its neighbours; in one thread if `memoryConfig` says so.

    `minRelevance`, or else `semanticRecall.threshold` of `memoryConfig`, leaves out what is less likely to be relevant.
    """
    if resource is None:
        raise InvalidInput("resourceId is required: name whose messages to search")
    recalling = recalling_of(object_of("memoryConfig", memory_config))
    owner, scope = {"resourceId": resource}, recalling.scope
    if scope == "thread":
        thread = given(thread)
        if thread is None:
            raise InvalidInput("threadId is required to search in one thread")
        owner["threadId"] = thread
    most = limit if recalling.top is None else min(limit, recalling.top)
    least = recalling.min_relevance if min_relevance is None else min_relevance
    hits = space.search(query, kinds=["message"], filter=owner, limit=most, min_relevance=least).hits if most else ()
    results = [*filter(None, (_found(space, hit.key, recalling.neighbours) for hit in hits))]
    return _answer(
        {"results": results, "count": len(results), "query": query, "searchScope": scope, "searchType": "semantic"}
    )


def _found(space: Space, message_id: str, neighbours: tuple[int, int]) -> mastra_forms.Form | None:
    """A hit with its neighbours; None if it was deleted since."""
    try:
        around = space.threads.around(message_id, before=neighbours[0], after=neighbours[1])
        place = next(number for number, message in enumerate(around) if message.id == message_id)
        thread = space.threads.get(around[place].thread_id)
    except NotFound:
        return None
    return mastra_forms.hit_form(around[place], thread, around[:place], around[place + 1 :])


# Working memory


@memory.get("/threads/{thread_id:tail}/working-memory", summary="Read a working memory")
def read_working(
    space: NamedAgentSpace,
    thread_id: str,
    resource: Resource,
    memory_config: Annotated[str | None, Query(alias="memoryConfig", description="JSON.")] = None,
) -> Response:
    """That of the resource, or of the thread if `memoryConfig` says so; the thread need not exist yet."""
    config = object_of("memoryConfig", memory_config)
    scope = working_scope(config)
    thread = _existing(space, thread_id, resource)
    found = None
    if scope == "thread":
        found = None if thread is None else space.threads.working.read(thread=thread_id)
    elif owner := resource or (thread.resource_id if thread is not None else None):
        found = space.threads.working.read(resource=owner)
    template = working_template(config)
    return _answer(
        {
            "workingMemory": mastra_forms.working_form(found),
            "source": scope,
            "workingMemoryTemplate": {"format": "markdown", "content": template} if template else None,
            "threadExists": thread is not None,
        }
    )


@memory.post("/threads/{thread_id:tail}/working-memory", summary="Update a working memory")
def write_working(space: NamedAgentSpace, thread_id: str, update: MastraWorkingUpdate) -> Response:
    """A text replaces a text. A JSON object is merged into data: null deletes a field, omitted fields stay.

    A schema in `memoryConfig` is not applied, because the service runs only its own schemas.
    """
    resource = given(update.resource)
    thread = space.threads.get(thread_id, resource=resource)
    is_thread = working_scope(update.config) == "thread"
    space.threads.working.write(
        _data_or_text(update.working),
        resource=None if is_thread else thread.resource_id,
        thread=thread_id if is_thread else None,
        template=working_template(update.config),
    )
    return _answer({"success": True})


def _existing(space: Space, thread_id: str, resource: str | None) -> Thread | None:
    try:
        return space.threads.get(thread_id, resource=resource)
    except NotFound:
        return None


def _data_or_text(written: str) -> str | dict[str, Any]:
    if not written.lstrip().startswith("{"):
        return written
    try:
        value = json.loads(written)
    except (ValueError, RecursionError):
        return written
    return value if isinstance(value, dict) else written


# Lists of messages


@dataclass(frozen=True, slots=True)
class MessagesFilter:
    """Which messages: from a time on, before another, with these roles and these fields of metadata."""

    after: datetime | None = None
    before: datetime | None = None
    roles: frozenset[str] | None = None
    metadata: Mapping[str, JSON] | None = None

    def takes(self, message: Message) -> bool:
        """Whether the role and the metadata match."""
        if self.roles is not None and role_form(message) not in self.roles:
            return False
        known = _metadata_of(message)
        return all(name in known and equal(known[name], value) for name, value in (self.metadata or {}).items())


def filter_of(written: Mapping[str, Any] | None) -> MessagesFilter:
    """Mastra's `filter`. Its times are in milliseconds, ours in microseconds, so an inclusive end covers one."""
    asked = written or {}
    roles, metadata, times = asked.get("roles"), asked.get("metadata", {}), asked.get("dateRange") or {}
    if not isinstance(times, Mapping) or not isinstance(metadata, dict) or not isinstance(roles or [], list):
        raise InvalidInput("filter has dateRange (an object), roles (a list) and metadata (an object)")
    start, end = (
        time_of("filter.dateRange.start", times.get("start")),
        time_of("filter.dateRange.end", times.get("end")),
    )
    if start is not None and times.get("startExclusive") is True:
        start = later(start, MILLISECOND)
    if end is not None and times.get("endExclusive") is not True:
        end = later(end, MILLISECOND)
    return MessagesFilter(start, end, None if roles is None else frozenset(map(str, roles)), metadata_of(metadata))


def _metadata_of(message: Message) -> Mapping[str, JSON]:
    content = message.content
    inside = content.get("metadata") if isinstance(content, Mapping) else None
    found = inside if inside is not None else message.extra.get("metadata")
    return found if isinstance(found, Mapping) else {}


@dataclass(frozen=True, slots=True)
class Listing:
    thread: str
    resource: str | None
    page: int
    per_page: int
    direction: Direction | None
    filter: MessagesFilter

    def has(self, message: Message) -> bool:
        """Whether a message is on one of the pages."""
        after, before = self.filter.after, self.filter.before
        is_in_time = (after is None or message.created_at >= after) and (before is None or message.created_at < before)
        return message.thread_id == self.thread and is_in_time and self.filter.takes(message)


def listed(threads: Threads, asked: Listing) -> NumberedPage[Message]:
    """A page in the given order. Without an order, pages count from the newest, and each is in time order."""
    order: Direction = asked.direction or "DESC"
    if not asked.per_page:  # only `include`: nothing needs to be counted
        threads.get(asked.thread, resource=asked.resource)
        return NumberedPage((), 0, asked.page, 0)
    if asked.filter.roles is None and not asked.filter.metadata:
        found = threads.page_of_messages(
            asked.thread,
            asked.page,
            resource=asked.resource,
            per_page=asked.per_page,
            direction=order,
            after=asked.filter.after,
            before=asked.filter.before,
        )
    else:
        found = _filtered(threads, asked, order)
    if asked.direction is None:
        return NumberedPage(found.items[::-1], found.total, found.page, found.per_page)
    return found


def _filtered(threads: Threads, asked: Listing, order: Direction) -> NumberedPage[Message]:
    threads.page_of_messages(asked.thread, asked.page, resource=asked.resource, per_page=asked.per_page)  # the checks
    first, end = asked.page * asked.per_page, (asked.page + 1) * asked.per_page
    kept: deque[Message] = deque(maxlen=end if order == "DESC" else None)
    total = 0
    for message in _all(threads, asked):
        if asked.filter.takes(message):
            if order == "DESC" or first <= total < end:
                kept.append(message)
            total += 1
    items = tuple(kept) if order == "ASC" else tuple(kept)[::-1][first:end]
    return NumberedPage(items, total, asked.page, asked.per_page)


def _all(threads: Threads, asked: Listing) -> Iterator[Message]:
    cursor: str | None = None
    while True:
        found = threads.messages(
            asked.thread,
            resource=asked.resource,
            limit=MAX_PAGE,
            cursor=cursor,
            after=asked.filter.after,
            before=asked.filter.before,
        )
        yield from found.messages
        cursor = found.cursor
        if cursor is None:
            return


def with_included(
    threads: Threads, items: Sequence[Message], include: Sequence[Any], asked: Listing
) -> tuple[Message, ...]:
    """The messages of a page and the included ones with their neighbours, each once, in time order.

    Messages that do not exist are skipped.
    """
    if not include:
        return tuple(items)
    if len(include) > MAX_INCLUDED:
        raise InvalidInput(f"include names {len(include):,} messages; at most {MAX_INCLUDED} are allowed")
    both = {message.id: message for message in items}
    for one in include:
        if not isinstance(one, Mapping) or not isinstance(one.get("id"), str):
            raise InvalidInput("include is a list of objects with the id of a message")
        before, after = one.get("withPreviousMessages", 0), one.get("withNextMessages", 0)
        with suppress(NotFound):
            for message in threads.around(one["id"], before=before, after=after, resource=asked.resource):
                both[message.id] = message
    return tuple(
        sorted(
            both.values(), key=lambda one: in_time_order(cast("Entry", one.entry)), reverse=asked.direction == "DESC"
        )
    )


router = APIRouter(prefix=PREFIX)
router.include_router(memory)
router.include_router(shared)
router.include_router(shared, prefix="/network")
