"""Anthropic's memory stores at `/v1/memory_stores`, as `client.beta.memory_stores` of the `anthropic` SDK calls them.

Each route parses, calls `MemoryStores` and forms the answer. Errors have the form that the SDK reads. Stores belong to
the namespace of the caller's key, or to the one that `?namespace=` names within its reach.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict

from commonplace.api.encoding import dumps
from commonplace.api.problems import kind_of
from commonplace.errors import AlreadyExists, CommonplaceError, Outdated
from commonplace.server.http.error_answers import problem_response
from commonplace.server.http.service import client_of, principal_of, service_of
from commonplace.server.http.worker_threads import ThreadedRoute
from commonplace.space.memory_stores import (
    Memory,
    MemoryPrefix,
    MemoryStore,
    MemoryStores,
    MemoryVersion,
    VersionFilter,
    actor_name,
    sha256_of,
)

PREFIX = "/v1/memory_stores"
INTERFACE = "memory_stores"
MAX_FULL = 20
"""How many memories or versions a page has at most if it shows their content."""

_TYPES = {
    400: "invalid_request_error",
    403: "permission_error",
    404: "not_found_error",
    409: "invalid_request_error",
    413: "request_too_large",
}
_ERROR = {
    "type": "object",
    "properties": {
        "type": {"const": "error"},
        "error": {"type": "object", "properties": {"type": {"type": "string"}, "message": {"type": "string"}}},
    },
    "required": ["type", "error"],
}
_PROBLEM = {"application/problem+json": {"schema": {"type": "object"}}}
DOCUMENTED: dict[int | str, dict[str, Any]] = {
    **{
        status: {
            "description": "What was wrong.",
            "content": {"application/json": {"schema": _ERROR}, **_PROBLEM},
        }
        for status in (*_TYPES, 503)
    },
    **{
        status: {"description": "Refused before it reached the route.", "content": _PROBLEM}
        for status in (401, 429, 500, 504)
    },
}

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
View = Literal["basic", "full"]


# Errors


class MemoryStoreRoute(ThreadedRoute):
    """A route whose errors have the form that the SDK reads."""

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()

        async def handle_or_refuse(request: Request) -> Response:
            try:
                return await handle(request)
            except RequestValidationError as error:
                reasons = (f"{'.'.join(map(str, one['loc'][1:]))[:100]}: {one['msg'][:200]}" for one in error.errors())
                return _refusal(400, _TYPES[400], "; ".join(list(reasons)[:5]))
            except CommonplaceError as error:
                kind = kind_of(error)
                if kind.status >= 500:
                    return problem_response(error)
                status = {412: 409, 422: 400}.get(kind.status, kind.status)
                return _refusal(status, _type_of(error, status), str(error))

        return handle_or_refuse


def _type_of(error: CommonplaceError, status: int) -> str:
    if isinstance(error, Outdated):
        return "memory_precondition_failed_error"
    return "memory_path_conflict_error" if isinstance(error, AlreadyExists) else _TYPES.get(status, _TYPES[400])


def _refusal(status: int, type: str, message: str) -> Response:
    form = {"type": "error", "error": {"type": type, "message": message}}
    # Otherwise the SDK repeats what was refused with 409.
    return Response(dumps(form), status, {"x-should-retry": "false"}, media_type="application/json")


# Requests


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class NewStore(_Body):
    name: str
    description: str | None = None
    metadata: dict[str, str] | None = None


class StoreUpdate(_Body):
    name: str | None = None
    description: str | None = None
    metadata: dict[str, str | None] | None = None


class NewMemory(_Body):
    path: str
    content: str


class MemoryPrecondition(_Body):
    type: Literal["content_sha256"]
    content_sha256: str


class MemoryUpdate(_Body):
    path: str | None = None
    content: str | None = None
    precondition: MemoryPrecondition | None = None


Asked = Annotated[str | None, Query(description="The namespace whose stores these are; left out, the caller's own.")]
Since = Annotated[str | None, Query(alias="created_at[gte]", description="Created then or later, RFC 3339.")]
Until = Annotated[str | None, Query(alias="created_at[lte]", description="Created then or earlier, RFC 3339.")]
Limit = Annotated[int, Query(ge=1, le=100)]
PageCursor = Annotated[str | None, Query(description="The `next_page` of the answer before.")]
Shown = Annotated[View, Query(description="`full` shows the content.")]


async def stores_of(request: Request, namespace: Asked = None) -> MemoryStores:
    """The stores of the request's namespace, under the rights of its caller."""
    book, principal = service_of(request).book, principal_of(request)
    options: dict[str, Any] = {"interface": INTERFACE, "client": client_of(request)}
    owner = principal.space(book, namespace, **options)
    return MemoryStores(owner, partial(principal.store_space, book, namespace, **options))


Stores = Annotated[MemoryStores, Depends(stores_of)]
router = APIRouter(prefix=PREFIX, route_class=MemoryStoreRoute, responses=DOCUMENTED, tags=["memory stores"])


# Stores


@router.post("", summary="Create a memory store")
def create_memory_store(stores: Stores, new: NewStore) -> Response:
    return _answer(_store(stores.create(new.name, description=new.description, metadata=new.metadata)))


@router.get("", summary="List memory stores")
def list_memory_stores(
    stores: Stores,
    since: Since = None,
    until: Until = None,
    include_archived: bool = False,
    limit: Limit = 20,
    page: PageCursor = None,
) -> Response:
    """The newest come first."""
    found, cursor = stores.list(
        include_archived=include_archived, since=since, until=until, limit=limit, cursor=page or None
    )
    return _page([_store(store) for store in found], cursor)


@router.get("/{memory_store_id}", summary="Read a memory store")
def get_memory_store(stores: Stores, memory_store_id: str) -> Response:
    return _answer(_store(stores.get(memory_store_id)))


@router.post("/{memory_store_id}", summary="Change a memory store")
def update_memory_store(stores: Stores, memory_store_id: str, change: StoreUpdate) -> Response:
    """What you leave out stays. A metadata value of null removes its key."""
    changed = stores.update(memory_store_id, name=change.name, description=change.description, metadata=change.metadata)
    return _answer(_store(changed))


@router.delete("/{memory_store_id}", summary="Delete a memory store with its memories")
def delete_memory_store(stores: Stores, memory_store_id: str) -> Response:
    stores.delete(memory_store_id)
    return _answer({"id": memory_store_id, "type": "memory_store_deleted"})


@router.post("/{memory_store_id}/archive", summary="Archive a memory store")
def archive_memory_store(stores: Stores, memory_store_id: str) -> Response:
    """Its memories can then be read and deleted, not written."""
    return _answer(_store(stores.archive(memory_store_id)))


# Memories


@router.post("/{memory_store_id}/memories", summary="Create a memory")
def create_memory(stores: Stores, memory_store_id: str, new: NewMemory, view: Shown = "basic") -> Response:
    memories = stores.open(memory_store_id)
    return _answer(_memory(memories.create(new.path, new.content), memory_store_id, view))


@router.get("/{memory_store_id}/memories", summary="List memories")
def list_memories(
    stores: Stores,
    memory_store_id: str,
    path_prefix: str | None = None,
    depth: Annotated[int, Query(ge=0, le=100)] = 0,
    limit: Limit = 20,
    page: PageCursor = None,
    view: Shown = "basic",
) -> Response:
    """By path. With a `depth`, what is further down is one `memory_prefix` each."""
    found, cursor = stores.open(memory_store_id).list(
        path_prefix or "/", depth=depth, limit=_at_most(limit, view), cursor=page or None
    )
    return _page([_listed(one, memory_store_id, view) for one in found], cursor)


@router.get("/{memory_store_id}/memories/{memory_id}", summary="Read a memory")
def get_memory(stores: Stores, memory_store_id: str, memory_id: str, view: Shown = "full") -> Response:
    return _answer(_memory(stores.open(memory_store_id).get(memory_id), memory_store_id, view))


@router.post("/{memory_store_id}/memories/{memory_id}", summary="Change or rename a memory")
def update_memory(
    stores: Stores, memory_store_id: str, memory_id: str, change: MemoryUpdate, view: Shown = "basic"
) -> Response:
    """With a `precondition`, only if the content has this hash; otherwise 409, and nothing is changed."""
    seen = None if change.precondition is None else change.precondition.content_sha256
    changed = stores.open(memory_store_id).update(memory_id, content=change.content, path=change.path, sha256=seen)
    return _answer(_memory(changed, memory_store_id, view))


@router.delete("/{memory_store_id}/memories/{memory_id}", summary="Delete a memory")
def delete_memory(
    stores: Stores, memory_store_id: str, memory_id: str, expected_content_sha256: str | None = None
) -> Response:
    """Its versions stay."""
    stores.open(memory_store_id).delete(memory_id, sha256=expected_content_sha256)
    return _answer({"id": memory_id, "type": "memory_deleted"})


# Versions


@router.get("/{memory_store_id}/memory_versions", summary="List versions of memories")
def list_memory_versions(
    stores: Stores,
    memory_store_id: str,
    memory_id: str | None = None,
    operation: Literal["created", "modified", "deleted"] | None = None,
    api_key_id: Annotated[str | None, Query(description="Written with the key of this name.")] = None,
    session_id: Annotated[str | None, Query(description="No version here is written by a session.")] = None,
    service_account_id: Annotated[str | None, Query(description="Nor by a service account.")] = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 20,
    page: PageCursor = None,
    view: Shown = "basic",
) -> Response:
    """The newest come first."""
    memories = stores.open(memory_store_id)
    if session_id is not None or service_account_id is not None:
        return _page([], None)
    which = VersionFilter(memory_id, operation, api_key_id, since, until)
    found, cursor = memories.versions(which, limit=_at_most(limit, view), cursor=page or None)
    return _page([_version(one, memory_store_id, view) for one in found], cursor)


@router.get("/{memory_store_id}/memory_versions/{memory_version_id}", summary="Read a version of a memory")
def get_memory_version(stores: Stores, memory_store_id: str, memory_version_id: str, view: Shown = "full") -> Response:
    return _answer(_version(stores.open(memory_store_id).version(memory_version_id), memory_store_id, view))


@router.post("/{memory_store_id}/memory_versions/{memory_version_id}/redact", summary="Erase a version of a memory")
def redact_memory_version(stores: Stores, memory_store_id: str, memory_version_id: str) -> Response:
    """Its content and path are erased for good. Needs `admin`."""
    return _answer(_version(stores.open(memory_store_id).redact(memory_version_id), memory_store_id, "full"))


# Answers


def _answer(form: object) -> Response:
    return Response(dumps(form), media_type="application/json")


def _page(forms: Sequence[object], cursor: str | None) -> Response:
    return _answer({"data": forms, "next_page": cursor})


def _at_most(limit: int, view: View) -> int:
    return min(limit, MAX_FULL) if view == "full" else limit


def _time(time: datetime | None) -> str | None:
    return None if time is None else time.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _store(store: MemoryStore) -> dict[str, Any]:
    return {
        "id": store.id,
        "type": "memory_store",
        "name": store.name,
        "description": store.description,
        "metadata": dict(store.metadata),
        "created_at": _time(store.created_at),
        "updated_at": _time(store.updated_at),
        "archived_at": _time(store.archived_at),
    }


def _listed(one: Memory | MemoryPrefix, store: str, view: View) -> dict[str, Any]:
    return {"type": "memory_prefix", "path": one.path} if isinstance(one, MemoryPrefix) else _memory(one, store, view)


def _content(content: str | None, view: View) -> dict[str, Any]:
    return {
        "content": content if view == "full" else None,
        "content_sha256": None if content is None else sha256_of(content),
        "content_size_bytes": None if content is None else len(content.encode()),
    }


def _memory(memory: Memory, store: str, view: View) -> dict[str, Any]:
    return {
        "id": memory.id,
        "type": "memory",
        "memory_store_id": store,
        "memory_version_id": memory.version,
        "path": memory.path,
        "created_at": _time(memory.created_at),
        "updated_at": _time(memory.updated_at),
        **_content(memory.content, view),
    }


def _version(version: MemoryVersion, store: str, view: View) -> dict[str, Any]:
    return {
        "id": version.id,
        "type": "memory_version",
        "memory_id": version.memory,
        "memory_store_id": store,
        "operation": version.operation,
        "path": version.path,
        "created_at": _time(version.created_at),
        "created_by": _actor(version.actor),
        "redacted_at": _time(version.redacted_at),
        "redacted_by": _actor(version.redacted_by),
        **_content(version.content, view),
    }


def _actor(actor: str | None) -> dict[str, str] | None:
    name = actor_name(actor)
    return None if name is None else {"type": "api_actor", "api_key_id": name}
