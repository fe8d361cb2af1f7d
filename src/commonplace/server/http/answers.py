"""What the routes share: writing and documenting an answer, conditions on revisions, and idempotency keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Annotated, Any
from urllib.parse import unquote, urlencode

from fastapi import Depends, Header, Request
from fastapi.responses import Response

from commonplace.api.encoding import dumps
from commonplace.api.problems import KINDS, MEDIA_TYPE
from commonplace.checks import JSON, microseconds
from commonplace.errors import InvalidInput
from commonplace.server.http.service import SpaceOf
from commonplace.space.handle import Seen
from commonplace.space.space import Space

COMMON_STATUSES = (400, 401, 403, 413, 422, 429, 500, 503, 504)
"""Statuses that any request may get."""

NOT_MODIFIED: dict[int | str, dict[str, Any]] = {
    304: {
        "description": "It still has the ETag of `If-None-Match`.",
        "headers": {"ETag": {"schema": {"type": "string"}}},
    }
}
_PROBLEM = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
_SEEN = r"\d{1,18}(?:\.-?\d{1,18})?"
_IF_REVISION = re.compile(rf"([a-z]+) (\S+) (\*|{_SEEN}(?:,{_SEEN})*)")
_BETWEEN = re.compile(r",\s*(?=[a-z])")
_TAG = re.compile(rf'"({_SEEN})"')


@dataclass(frozen=True, slots=True)
class Call:
    """A request to an operation, with the library's arguments. `options` say how the answer is written."""

    request: Request
    space: Space
    arguments: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """A result with further fields of the answer, such as `next`."""

    result: Any
    extra: Mapping[str, JSON]


# Answers


def answer(form: object, status: int = 200, **headers: str) -> Response:
    """A JSON response; `etag="…"` and `location="…"` become headers."""
    return Response(dumps(form), status, headers, media_type="application/json")


def documented(
    done: Mapping[str, Any] | None = None, *statuses: int, success: int = 200
) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route: its success, the statuses that it may fail with, and those common to all."""
    answers: dict[int | str, dict[str, Any]] = {success: {"description": "Done.", **(done or {})}}
    for status in sorted({*statuses, *COMMON_STATUSES}):
        titles = sorted({f"{kind.title} (`{kind.code}`)" for kind in KINDS if kind.status == status})
        answers[status] = {"description": ". ".join(titles) + ".", "content": _PROBLEM}
    return answers


def next_page(request: Request, cursor: str | None, name: str = "cursor") -> str | None:
    """The address of the next page: that of this one, with the cursor."""
    if cursor is None:
        return None
    kept = [(key, value) for key, value in request.query_params.multi_items() if key != name]
    return f"{request.scope['raw_path'].decode('ascii')}?{urlencode([*kept, (name, cursor)])}"


# Conditions


def etag_of(revision: int, updated_at: datetime) -> str:
    """The unique ETag of a state. If there is no entry, its revision and time are 0."""
    return f'"{revision}.{microseconds("updated_at", updated_at)}"'


def is_known(request: Request, etag: str) -> bool:
    """Whether the `If-None-Match` of the caller has the ETag of this state, weak or strong."""
    held = request.headers.get("if-none-match", "")
    return held.strip() == "*" or etag in (part.strip().removeprefix("W/") for part in held.split(","))


def not_modified(etag: str) -> Response:
    return Response(status_code=304, headers={"ETag": etag})


IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        description="Change it only if it has one of these ETags; a plain number is a revision, `*` means if it "
        "exists.",
        examples=['"3.1769860800000000"', '"3"'],
    ),
]
IfNew = Annotated[
    str | None,
    Header(alias="If-None-Match", description="`*`: only if it does not exist yet.", examples=["*"]),
]
IfChanged = Annotated[
    str | None,
    Header(
        alias="If-None-Match", description="Answer 304 if it still has this ETag.", examples=['"3.1769860800000000"']
    ),
]


def under_conditions(space: Space, kind: str, key: str, if_match: str | None, if_new: str | None = None) -> Space:
    """The space for a change under the request's conditions, which are checked inside the write."""
    if if_new is not None:
        if if_new.strip() != "*":
            raise InvalidInput("If-None-Match of a write must be `*` (only if it does not exist yet), or left out")
        space = space.expecting(kind, key, 0)
    if if_match is None:
        return space
    if if_match.strip() == "*":
        return space.expecting(kind, key)
    tags = [_TAG.fullmatch(part.strip()) for part in if_match.split(",")]
    # An unknown ETag matches nothing, because no entry has a revision below 0.
    return space.expecting(kind, key, *(-1 if tag is None else _seen(tag[1]) for tag in tags))


def _seen(written: str) -> Seen:
    revision, _, updated_at = written.partition(".")
    return (int(revision), int(updated_at)) if updated_at else int(revision)


# Once


async def made_once(
    request: Request,
    space: SpaceOf,
    key: Annotated[
        str | None,
        Header(
            alias="Idempotency-Key",
            description="Any text that is new for each creation. If you repeat a request with the same key, nothing "
            "is created twice, and you get the first answer again. Keys are remembered for a day.",
            examples=["6b1f9d1c-0c5e-4b1e-8a59-3f3c2c1d7a10"],
        ),
    ] = None,
    fingerprint: Annotated[
        str | None,
        Header(
            alias="Idempotency-Fingerprint",
            description="What distinguishes this request from another one with the same key; by default, a hash of it.",
        ),
    ] = None,
    if_revision: Annotated[
        list[str],
        Header(
            alias="If-Revision",
            description="Make the change only if an entry, which may be another one, has one of these revisions: its "
            "kind, its name in percent-encoding, and numbers or `*`; 0 means that it does not exist. Several "
            "conditions, separated by commas or in separate headers, must all hold.",
            examples=[["file %2Fnotes%2Ftoday 3", "record r-1 1,2"]],
        ),
    ] = [],  # noqa: B006 - FastAPI copies it
) -> Space:
    for header in if_revision:
        for condition in _BETWEEN.split(header):
            space = _expecting(space, condition)
    if key is None:
        return space
    if fingerprint is None:
        target = f"{request.url.path}?{request.url.query}\n".encode()
        fingerprint = sha256(target + await request.body()).hexdigest()
    # The fingerprint includes the operation, so that a key used at another route cannot return the answer of this one.
    return space.once(key, f"{request.method} {request.scope['route'].path} {fingerprint}")


def _expecting(space: Space, written: str) -> Space:
    found = _IF_REVISION.fullmatch(written.strip())
    if found is None:
        raise InvalidInput("If-Revision is written like: file %2Fnotes%2Ftoday 3")
    revisions = () if found[3] == "*" else map(_seen, found[3].split(","))
    return space.expecting(found[1], unquote(found[2]), *revisions)


Once = Annotated[Space, Depends(made_once)]
"""The space of a request that creates something, with its idempotency key."""


PARAMETERS = {
    "id": "The id.",
    "thread_id": "The id of the thread.",
    "kind": "File, directory, record, thread, message, working or item.",
    "key": "The path of a file or directory, without the first slash; of anything else its id.",
    "path": "The path, without the first slash; it may contain slashes.",
    "item": "The key of the item; it may contain slashes.",
    "revision": "The number of the revision, as the history lists it.",
    "limit": "At most this many.",
    "offset": "Skip this many.",
    "page": "The number of the page.",
    "perPage": "How many on a page.",
    "order": "What to sort by.",
    "order_by": "What to sort by.",
    "descending": "Whether the last comes first.",
    "direction": "ASC for the first ones first, or DESC for the last ones.",
    "match": "Whether an entry needs all of the tags or any.",
    "before": "How many messages before it.",
    "after": "How many messages after it.",
    "last": "How many of the last messages of the thread.",
    "top": "How many messages that fit the query.",
    "neighbours": "How many messages around each message that fits the query.",
    "scope": "Whether to search this thread or all threads of the resource.",
    "threadId": "The id of the thread.",
    "searchQuery": "What to search for.",
    "minRelevance": "Leave out messages whose probability of being relevant is lower.",
    "include_archived": "Whether archived stores are listed too.",
    "memory_store_id": "The id of the memory store.",
    "memory_id": "The id of the memory.",
    "memory_version_id": "The id of the version.",
    "path_prefix": "Only memories whose paths begin with this.",
    "depth": "How many levels of directories to list.",
    "operation": "Only versions that this operation made.",
    "expected_content_sha256": "The SHA-256 of the content that is to be deleted; another content is a conflict.",
}
"""What a parameter means where its route does not say more."""

FIELDS = {
    "add": "Tags to add.",
    "agentId": "The id of the agent.",
    "below": "Search the namespaces below this one too.",
    "commit": "The number of the commit to undo.",
    "confidence": "How certain it is, 0 to 1.",
    "content": "The text.",
    "content_sha256": "The SHA-256 of the content that you have read; another content is a conflict.",
    "deletes": "Keys of items to delete.",
    "endDate": "Only messages of this time or before.",
    "everything": "Erase the whole namespace.",
    "everywhere": "Search all namespaces that the caller reaches.",
    "fields": "What a search covers, as paths; left out, all texts and numbers of the value.",
    "filter": 'Only entries with these fields, such as `{"size": {"$gt": 3}}`.',
    "history": "Whether former values are kept.",
    "id": "The id; left out, a new one.",
    "ids": "Their ids.",
    "importance": "How much it matters, 0 to 1; for filters of your own.",
    "insert": "Insert a text.",
    "key": "The path of a file or directory; of anything else its id.",
    "keys": "Their keys.",
    "kind": "File, directory, record, thread, message, working or item.",
    "kinds": "Only entries of these kinds: file, record, message, item.",
    "last": "How many of the last messages of the thread.",
    "limit": "At most this many.",
    "line": "The line after which the text is inserted; 0 is the top.",
    "match": "Whether an entry needs all of the tags or any.",
    "max_tokens": "At most this many tokens; left out, no limit.",
    "memoryConfig": "The options of the working memory.",
    "messageFilter": "Which messages are copied.",
    "messageIds": "The ids of the messages.",
    "messageLimit": "How many of the last messages are copied.",
    "messages": "The messages, in the format of OpenAI, Anthropic, the AI SDK or Mastra.",
    "metadata": "JSON of your own.",
    "min_relevance": "Leave out hits whose probability of being relevant is lower, 0 to 1.",
    "model": "The name of the model that made the vectors; left out, the model of the book.",
    "name": "The name of the memory store.",
    "neighbours": "How many messages around each message that fits the query.",
    "new": "The text to put in its place.",
    "newThreadId": "The id of the copy; left out, a new one.",
    "new_id": "The id of the copy; left out, a new one.",
    "offset": "Skip this many.",
    "old": "The text to replace.",
    "only": "The ids of the messages to copy; left out, all.",
    "options": "Which messages are copied.",
    "path": "The path, which begins with a slash.",
    "precondition": "Change it only if this holds.",
    "prefix": "What their keys begin with.",
    "puts": "Items to write: `key` and `value`, and the other fields of a single write.",
    "query": "What to search for.",
    "remove": "Tags to remove.",
    "replace": "Replace a text.",
    "resource": "The resource, usually a user, whose conversations they are; left out, that of the namespace.",
    "resourceId": "The resource, usually a user, whose conversations they are.",
    "revision": "The number of a revision, as the history lists it.",
    "scope": "Whether to search this thread or all threads of the resource.",
    "seen": "The ids and revisions of the messages that you have read; without it, all messages are replaced.",
    "source": "Where it comes from.",
    "standing": "Whether to include confirmed instructions and preferences.",
    "startDate": "Only messages of this time or later.",
    "tags": "Tags, such as `project:x`, of `a-z 0-9 : _ -`.",
    "target": "The new path.",
    "template": "The form of the working memory: a text, or a JSON schema.",
    "text": "The text.",
    "thread": "The id of the thread.",
    "threadId": "The id of the thread; left out, a new one.",
    "title": "The title.",
    "to": "The resource that it then belongs to.",
    "top": "How many messages that fit the query.",
    "type": "The type of the record, such as `note`.",
    "unique": "Refuse it if the text occurs more than once.",
    "upto_message": "The id of the last message to copy.",
    "vector": "Search by this vector in place of a query.",
    "vectors": "Vectors of your own model.",
    "verbatim": "Store any JSON objects as they are.",
    "working": "Whether to include the working memory.",
    "workingMemory": "The working memory, as text or as JSON.",
    "wrapped": "Include the hits as one text for a prompt, marked as data.",
    "ItemBody.revision": "The revision that you have read; 0 means that the key must be new. Else a conflict.",
    "MemoryPrecondition.type": "Always `content_sha256`.",
    "Move.source": "The path as it is.",
    "Named.id": "The id of the message.",
    "NewStore.description": "What the memory store is for.",
    "Purge.kind": "Only entries of this kind.",
    "Purge.revision": "Only this revision.",
    "StoreUpdate.description": "What the memory store is for.",
    "WorkingUpdate.content": "A text, which replaces the working memory, or an object, which is merged into it.",
    "WorkingUpdate.revision": "The revision that you have read; another one is a conflict.",
}
"""What a field of a body means where its operation does not say more; after the name of a form, in that form."""

BODIES = {"text/plain": "The text.", "application/jsonl": "An export.", "application/octet-stream": "The file."}
"""What a body without fields is."""


def describe_parameters(description: dict[str, Any]) -> dict[str, Any]:
    """An OpenAPI description in which every parameter and every field of a body has a description."""
    forms = description["components"]["schemas"]
    for methods in description["paths"].values():
        for operation in methods.values():
            for parameter in operation.get("parameters", ()):
                if not parameter.get("description"):
                    parameter["description"] = PARAMETERS[parameter["name"]]
            body = operation.get("requestBody", {})
            for media_type, content in body.get("content", {}).items():
                if media_type in BODIES:
                    body.setdefault("description", BODIES[media_type])
                for name in _forms_in(content, forms):
                    for part, schema in forms[name].get("properties", {}).items():
                        if not schema.get("description"):
                            schema["description"] = FIELDS.get(f"{name}.{part}") or FIELDS[part]
    return description


def _forms_in(schema: Any, forms: Mapping[str, Any], found: frozenset[str] = frozenset()) -> frozenset[str]:
    """The names of the forms that a schema refers to, and those that they refer to."""
    if isinstance(schema, dict):
        if (name := str(schema.get("$ref", "")).rpartition("/")[2]) and name not in found:
            found = _forms_in(forms[name], forms, found | {name})
        for part in schema.values():
            found = _forms_in(part, forms, found)
    elif isinstance(schema, list):
        for part in schema:
            found = _forms_in(part, forms, found)
    return found
