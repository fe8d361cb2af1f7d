"""The routes that `@mastra/client-js` calls. Each parses, calls the space's threads and words the answer.

An agent is a namespace: see `Principal.agent_space`. Networks of agents have the same routes below `/network`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from commonplace.agents import AgentMemory
from commonplace.agents.agent_memory import Background
from commonplace.errors import InvalidInput, NotFound
from commonplace.server.http.mastra import forms
from commonplace.server.http.mastra.listing import Listing, filter_of, listed, with_included
from commonplace.server.http.mastra.refusals import DOCUMENTED, MastraRoute
from commonplace.server.http.mastra.requests import (
    AgentSpace,
    Clone,
    MessageIds,
    NamedAgentSpace,
    NewMessages,
    NewThread,
    Observed,
    Resource,
    ThreadChange,
    Transfer,
    WorkingUpdate,
    given,
    list_of,
    metadata_of,
    object_of,
    order_of,
    recalling_of,
    working_scope,
    working_template,
)
from commonplace.space.conversation import MAX_PAGE, Thread
from commonplace.space.messages import Message
from commonplace.space.space import Space
from commonplace.space.threads import ensure_thread, replace_metadata
from commonplace.wire.forms import dumps

PREFIX = "/api/memory"
NOT_OBSERVED = "Observational Memory is not enabled for this agent"
MAX_FOUND = 100

Page = Annotated[int, Query(ge=0, le=10_000_000, description="Counts from 0.")]
PerPage = Annotated[int, Query(alias="perPage", ge=0, le=MAX_PAGE)]
Written = Annotated[str | None, Query(description="JSON.")]

_titling = Background("commonplace-mastra-titles")  # the rule is local: nothing is ever waiting here
memory = APIRouter(route_class=MastraRoute, responses=DOCUMENTED, tags=["mastra"])
shared = APIRouter(route_class=MastraRoute, responses=DOCUMENTED, tags=["mastra"])
"""What networks have too."""


def _answer(form: object) -> Response:
    return Response(dumps(form), media_type="application/json")


# Memory


@shared.get("/status", summary="Whether there is a memory")
def status(space: NamedAgentSpace) -> Response:
    return _answer({"result": True, "memoryType": "local", "observationalMemory": {"enabled": False}})


@memory.get("/config", summary="What an agent's memory does by itself")
def config(space: NamedAgentSpace) -> Response:
    return _answer(forms.config_form())


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
    """The threads of a resource, or all; the one used last comes first unless `orderBy` says otherwise."""
    field, direction = order_of(request)
    found = space.threads.page_of_threads(
        page,
        resource=resource,
        metadata=metadata_of(object_of("metadata", metadata)),
        per_page=per_page,
        order_by=field or "updatedAt",
        direction=direction or "DESC",
    )
    return _answer(forms.page_form("threads", found, [*map(forms.thread_form, found.items)]))


@shared.post("/threads", summary="Begin a thread")
def create_thread(space: NamedAgentSpace, new: NewThread) -> Response:
    """A repeated call with the same id gives the same thread, so that a client can retry."""
    if new.thread is None:
        thread = space.threads.create(new.title, resource=new.resource, metadata=new.metadata)
    else:
        thread = ensure_thread(space.threads, new.thread, new.title, resource=new.resource, metadata=new.metadata or {})
    return _answer(forms.thread_form(thread))


# Before the thread itself: an id may have slashes, and Mastra's client writes it as it is.
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
    form = forms.page_form("messages", found, [*map(forms.message_form, messages)])
    has_more = found.has_more and sum(map(asked.has, messages)) < found.total
    return _answer({**form, "hasMore": has_more, "uiMessages": None})


@shared.get("/threads/{thread_id:tail}", summary="Read a thread")
def get_thread(space: AgentSpace, thread_id: str, resource: Resource) -> Response:
    return _answer(forms.thread_form(space.threads.get(thread_id, resource=resource)))


@shared.patch("/threads/{thread_id:tail}", summary="Change a thread")
def update_thread(space: NamedAgentSpace, thread_id: str, change: ThreadChange) -> Response:
    """A title or metadata that you give replaces the former one."""
    title: dict[str, Any] = {} if change.title is None else {"title": change.title}
    owner = given(change.resource)
    if change.metadata is None:
        changed = space.threads.update(thread_id, resource=owner, **title)
    else:
        changed = replace_metadata(space.threads, thread_id, change.metadata, resource=owner, **title)
    return _answer(forms.thread_form(changed))


@shared.delete("/threads/{thread_id:tail}", summary="Delete a thread with its messages")
def delete_thread(space: NamedAgentSpace, thread_id: str, resource: Resource) -> Response:
    space.threads.delete(thread_id, resource=resource)
    return _answer({"result": "Thread deleted"})


@memory.post("/threads/{thread_id:tail}/clone", summary="Copy a thread")
def clone_thread(space: NamedAgentSpace, thread_id: str, clone: Clone) -> Response:
    """With all its messages, the last so many, those of some days, or chosen ones."""
    made = space.threads.clone(
        thread_id,
        **clone.choice(),
        title=clone.title,
        metadata=clone.metadata,
        new_id=given(clone.new_thread),
        to=given(clone.resource),
    )
    return _answer(
        {"thread": forms.thread_form(made), "clonedMessages": [*map(forms.message_form, _all_messages(space, made))]}
    )


@memory.post("/threads/{thread_id:tail}/transfer", summary="Give a thread to another resource")
def transfer_thread(space: AgentSpace, thread_id: str, transfer: Transfer) -> Response:
    return _answer(forms.thread_form(space.threads.transfer(thread_id, transfer.resource)))


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
def save_messages(space: NamedAgentSpace, new: NewMessages) -> Response:
    """All messages of a thread or none; those that are there already stay. A thread without a title gets one."""
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
    agent = AgentMemory(space.namespace[-1], space, forms.CONFIG, _titling)
    saved = [
        message
        for (thread, resource), messages in by_thread.items()
        for message in agent.save_messages(thread, messages, resource=resource)
    ]
    return _answer({"messages": [*map(forms.message_form, saved)]})


@shared.post("/messages/delete", summary="Delete messages")
def delete_messages(space: NamedAgentSpace, named: MessageIds, resource: Resource) -> Response:
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
) -> Response:
    """By words and by meaning, the best first, each with its neighbours; in one thread where `memoryConfig` says so."""
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
    hits = space.search(query, kinds=["message"], filter=owner, limit=most).hits if most else ()
    results = [*filter(None, (_found(space, hit.key, recalling.neighbours) for hit in hits))]
    return _answer(
        {"results": results, "count": len(results), "query": query, "searchScope": scope, "searchType": "semantic"}
    )


def _found(space: Space, message_id: str, neighbours: tuple[int, int]) -> forms.Form | None:
    """A hit with its neighbours; None where it was deleted since it was found."""
    try:
        beside = space.threads.around(message_id, before=neighbours[0], after=neighbours[1])
        place = next(number for number, message in enumerate(beside) if message.id == message_id)
        thread = space.threads.get(beside[place].thread_id)
    except NotFound:
        return None
    return forms.hit_form(beside[place], thread, beside[:place], beside[place + 1 :])


# Working memory


@memory.get("/threads/{thread_id:tail}/working-memory", summary="Read a working memory")
def read_working(
    space: NamedAgentSpace,
    thread_id: str,
    resource: Resource,
    memory_config: Annotated[str | None, Query(alias="memoryConfig", description="JSON.")] = None,
) -> Response:
    """That of the resource, or of the thread where `memoryConfig` says so; a thread need not exist yet."""
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
            "workingMemory": forms.working_form(found),
            "source": scope,
            "workingMemoryTemplate": {"format": "markdown", "content": template} if template else None,
            "threadExists": thread is not None,
        }
    )


@memory.post("/threads/{thread_id:tail}/working-memory", summary="Update a working memory")
def write_working(space: NamedAgentSpace, thread_id: str, update: WorkingUpdate) -> Response:
    """A text takes the place of a text; a JSON object is merged into data: null deletes, what is omitted stays.

    A schema in `memoryConfig` is not applied: a service runs nobody's but its own.
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


router = APIRouter(prefix=PREFIX)
router.include_router(memory)
router.include_router(shared)
router.include_router(shared, prefix="/network")
