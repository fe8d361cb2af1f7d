"""Errors between a service and its clients (RFC 9457): one table of class, status and code, used by both sides.

A client raises the same class, with the same message and attributes, as the library on the service.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from commonplace.checks import JSON
from commonplace.errors import (
    AlreadyExists,
    Ambiguous,
    CommonplaceError,
    ConfigurationError,
    Conflict,
    Corrupt,
    Forbidden,
    InvalidInput,
    InvalidPath,
    IsADirectory,
    NotADirectory,
    NotFound,
    Outdated,
    RateLimited,
    TooLarge,
    Unauthorized,
    Unavailable,
)

MEDIA_TYPE = "application/problem+json"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of problem. `extra` names the attributes of its error that travel with it."""

    code: str
    status: int
    title: str
    error: type[CommonplaceError]
    extra: tuple[str, ...] = ()


KINDS = (
    Kind("invalid_path", 422, "A path that no file can have", InvalidPath, ("segment", "is_traversal")),
    Kind("too_large", 413, "Past a size limit", TooLarge),
    Kind("invalid_input", 422, "The request is wrong", InvalidInput),
    Kind("invalid_json", 400, "The body is no JSON", InvalidInput),
    Kind("invalid_request", 400, "The request breaks the rules of HTTP", InvalidInput),
    Kind("not_found", 404, "It does not exist", NotFound),
    Kind("no_such_route", 404, "There is nothing at this address", NotFound),
    Kind("method_not_allowed", 405, "Not with this method", InvalidInput),
    Kind("headers_too_large", 431, "Headers past a size limit", TooLarge),
    Kind("already_exists", 409, "Something has that name already", AlreadyExists),
    Kind("is_a_directory", 409, "A directory is there, not a file", IsADirectory),
    Kind("not_a_directory", 409, "A file is there, not a directory", NotADirectory),
    Kind("ambiguous", 409, "The text stands in several places", Ambiguous, ("lines",)),
    Kind("precondition_failed", 412, "It was changed since", Outdated, ("revision",)),
    Kind("conflict", 409, "The present state forbids it", Conflict),
    Kind("resync", 410, "The feed cannot be followed from there", Conflict),
    Kind("unauthorized", 401, "Who calls is not known", Unauthorized),
    Kind("forbidden", 403, "Not permitted", Forbidden),
    Kind("rate_limited", 429, "Too many requests", RateLimited, ("retry_after_seconds",)),
    Kind("unavailable", 503, "Not available now", Unavailable),
    Kind("overloaded", 503, "Too much is under way", Unavailable),
    Kind("timeout", 504, "It took too long", Unavailable),
    Kind("configuration", 500, "The service is set up wrongly", ConfigurationError),
    Kind("corrupt", 500, "The store is damaged", Corrupt),
    Kind("internal", 500, "An error inside the service", CommonplaceError),
)
BY_CODE = {kind.code: kind for kind in KINDS}


def kind_of(error: CommonplaceError) -> Kind:
    """The first row of the error's own class, or of the nearest above it."""
    for above in type(error).__mro__:
        for kind in KINDS:
            if kind.error is above:
                return kind
    return BY_CODE["internal"]


def problem_of(error: CommonplaceError, kind: Kind | None = None) -> dict[str, JSON]:
    """The form of an error."""
    chosen = kind or kind_of(error)
    return problem(chosen, str(error), {name: getattr(error, name) for name in chosen.extra})


def problem(kind: Kind, detail: str, extra: Mapping[str, Any] | None = None) -> dict[str, JSON]:
    return {
        "type": f"/v1/problems#{kind.code}",
        "title": kind.title,
        "status": kind.status,
        "detail": detail,
        "code": kind.code,
        **(extra or {}),
    }


def error_of(form: Mapping[str, Any], status: int) -> CommonplaceError:
    """The error of a problem document; for a code that this program does not know, the status decides."""
    detail = str(form.get("detail") or form.get("title") or f"the service answered with status {status}")
    kind = BY_CODE.get(str(form.get("code")))
    if kind is None:
        return _by_status(status)(detail)
    if kind.error is InvalidPath:
        return InvalidPath(detail, str(form.get("segment", "")), is_traversal=form.get("is_traversal") is True)
    if kind.error is Ambiguous:
        return Ambiguous(detail, tuple(form.get("lines") or ()))
    if kind.error is Outdated:
        return Outdated(detail, int(form.get("revision") or 0))
    if kind.error is RateLimited:
        return RateLimited(detail, float(form.get("retry_after_seconds") or 0))
    return kind.error(detail)


def _by_status(status: int) -> type[CommonplaceError]:
    if status in (401, 403, 404, 409):
        return {401: Unauthorized, 403: Forbidden, 404: NotFound, 409: Conflict}[status]
    return InvalidInput if 400 <= status < 500 and status not in (408, 429) else Unavailable
