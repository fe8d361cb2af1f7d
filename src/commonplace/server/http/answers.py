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
"""Statuses that any request may be answered with."""

NOT_MODIFIED: dict[int | str, dict[str, Any]] = {
    304: {
        "description": "It is still as the `If-None-Match` says.",
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
    """The address of the next page: this one's, with the cursor."""
    if cursor is None:
        return None
    kept = [(key, value) for key, value in request.query_params.multi_items() if key != name]
    return f"{request.scope['raw_path'].decode('ascii')}?{urlencode([*kept, (name, cursor)])}"


# Conditions


def etag_of(revision: int, updated_at: datetime) -> str:
    """The tag of a state, which no other one has; that of nothing has the revision and the time 0."""
    return f'"{revision}.{microseconds("updated_at", updated_at)}"'


def is_known(request: Request, etag: str) -> bool:
    """Whether the caller has this state already, as its `If-None-Match` tells, whether weak or not."""
    held = request.headers.get("if-none-match", "")
    return held.strip() == "*" or etag in (part.strip().removeprefix("W/") for part in held.split(","))


def not_modified(etag: str) -> Response:
    return Response(status_code=304, headers={"ETag": etag})


IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        description="Change it only while it has one of these ETags, or with a number alone this revision; `*`: only "
        "while it exists.",
        examples=['"3.1769860800000000"', '"3"'],
    ),
]
IfNew = Annotated[
    str | None,
    Header(alias="If-None-Match", description="`*`: only where nothing is there yet.", examples=["*"]),
]
IfChanged = Annotated[
    str | None,
    Header(
        alias="If-None-Match", description="Answer 304 while it still has this ETag.", examples=['"3.1769860800000000"']
    ),
]


def under_conditions(space: Space, kind: str, key: str, if_match: str | None, if_new: str | None = None) -> Space:
    """The space for a change that holds to the request's conditions; they are looked at inside the write."""
    if if_new is not None:
        if if_new.strip() != "*":
            raise InvalidInput("If-None-Match of a write is `*` (only where nothing is there yet), or left out")
        space = space.expecting(kind, key, 0)
    if if_match is None:
        return space
    if if_match.strip() == "*":
        return space.expecting(kind, key)
    tags = [_TAG.fullmatch(part.strip()) for part in if_match.split(",")]
    # A tag that we never gave matches nothing, as no entry has a revision below 0.
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
            description="Any text that is new for each creation: sent again with the same request, nothing is made "
            "twice, and the first answer comes again. Remembered for a day.",
            examples=["6b1f9d1c-0c5e-4b1e-8a59-3f3c2c1d7a10"],
        ),
    ] = None,
    fingerprint: Annotated[
        str | None,
        Header(
            alias="Idempotency-Fingerprint",
            description="What tells this request from another one under the same key; left out, a hash of it.",
        ),
    ] = None,
    if_revision: Annotated[
        list[str],
        Header(
            alias="If-Revision",
            description="Make the change only while some entry, also another one, has one of these revisions: kind, "
            "its name in percent-encoding, and numbers or `*`; 0 is one that does not exist. Several such conditions, "
            "with a comma between them or in headers of their own, all have to hold.",
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
        told = f"{request.url.path}?{request.url.query}\n".encode()
        fingerprint = sha256(told + await request.body()).hexdigest()
    # With the operation in it, a key that comes to another route cannot give that one's answer.
    return space.once(key, f"{request.method} {request.scope['route'].path} {fingerprint}")


def _expecting(space: Space, written: str) -> Space:
    found = _IF_REVISION.fullmatch(written.strip())
    if found is None:
        raise InvalidInput("If-Revision is written like: file %2Fnotes%2Ftoday 3")
    revisions = () if found[3] == "*" else map(_seen, found[3].split(","))
    return space.expecting(found[1], unquote(found[2]), *revisions)


Once = Annotated[Space, Depends(made_once)]
"""The space of a request for one creation."""
