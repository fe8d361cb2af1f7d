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
