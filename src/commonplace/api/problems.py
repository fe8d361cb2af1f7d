"""Errors between a service and its clients (RFC 9457). Both sides use one table of class, status and code.

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
    """A kind of problem. `extra` names the attributes of its error that are sent with it."""

    code: str
    status: int
    title: str
    error: type[CommonplaceError]
    extra: tuple[str, ...] = ()


KINDS = (
    Kind("invalid_path", 422, "Invalid path", InvalidPath, ("segment", "is_traversal")),
    Kind("too_large", 413, "Size limit exceeded", TooLarge),
    Kind("invalid_input", 422, "Invalid request", InvalidInput),
    Kind("invalid_json", 400, "The body is not JSON", InvalidInput),
    Kind("invalid_request", 400, "Invalid HTTP request", InvalidInput),
    Kind("not_found", 404, "It does not exist", NotFound),
    Kind("no_such_route", 404, "Unknown URL", NotFound),
    Kind("method_not_allowed", 405, "Method not allowed", InvalidInput),
    Kind("headers_too_large", 431, "Headers too large", TooLarge),
    Kind("already_exists", 409, "Something has that name already", AlreadyExists),
    Kind("is_a_directory", 409, "A directory is there, not a file", IsADirectory),
    Kind("not_a_directory", 409, "A file is there, not a directory", NotADirectory),
    Kind("ambiguous", 409, "The text occurs more than once", Ambiguous, ("lines",)),
    Kind("precondition_failed", 412, "Changed since", Outdated, ("revision",)),
    Kind("conflict", 409, "Conflict with the current state", Conflict),
    Kind("resync", 410, "The feed cannot be followed from there", Conflict),
    Kind("unauthorized", 401, "Not authenticated", Unauthorized),
    Kind("forbidden", 403, "Not permitted", Forbidden),
    Kind("rate_limited", 429, "Too many requests", RateLimited, ("retry_after_seconds",)),
    Kind("unavailable", 503, "Temporarily unavailable", Unavailable),
    Kind("overloaded", 503, "Too many operations in progress", Unavailable),
    Kind("timeout", 504, "Timed out", Unavailable),
    Kind("configuration", 500, "The service is misconfigured", ConfigurationError),
    Kind("corrupt", 500, "The store is damaged", Corrupt),
    Kind("internal", 500, "Internal error", CommonplaceError),
)
BY_CODE = {kind.code: kind for kind in KINDS}


def kind_of(error: CommonplaceError) -> Kind:
    """The first row of the error's class, or of its nearest base class."""
    for above in type(error).__mro__:
        for kind in KINDS:
            if kind.error is above:
                return kind
    return BY_CODE["internal"]


def problem_of(error: CommonplaceError, kind: Kind | None = None) -> dict[str, JSON]:
    """The problem document of an error."""
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
    """The error of a problem document. For an unknown code, the status decides."""
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
