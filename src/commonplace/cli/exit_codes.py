"""The exit codes and the message for each error."""

from __future__ import annotations

from commonplace.errors import (
    CommonplaceError,
    ConfigurationError,
    Conflict,
    Corrupt,
    Forbidden,
    InvalidInput,
    NotFound,
    Unauthorized,
    Unavailable,
)

OK = 0
NEGATIVE = 1
DAMAGED = 7
INTERRUPTED = 130
PIPE_CLOSED = 141

_CODES: tuple[tuple[type[CommonplaceError], int], ...] = (
    (InvalidInput, 2),
    (NotFound, 3),
    (Conflict, 4),
    (Unavailable, 5),
    (ConfigurationError, 6),
    (Corrupt, DAMAGED),
    (Forbidden, 8),
    (Unauthorized, 8),
)

MEANINGS = {
    OK: "done",
    NEGATIVE: "`search` found nothing relevant, `doctor` found a problem, an import could not read everything, or a "
    "file could not be read or written",
    2: "wrong usage: an unknown option, a missing argument, invalid input",
    3: "the named entry, book or file does not exist",
    4: "a conflict: it exists already, or it was changed since",
    5: "not available now (locked, no space, model not pulled); nothing was changed, try again later",
    6: "a setting, a file or an install step is missing or wrong",
    DAMAGED: "the book's file is damaged; `export --salvage` has written what can be read",
    8: "not permitted",
    INTERRUPTED: "interrupted with Ctrl-C",
    PIPE_CLOSED: "the program that reads the output has exited (`| head`)",
}


def exit_code(error: Exception) -> int:
    return next((code for kind, code in _CODES if isinstance(error, kind)), NEGATIVE)


def message(error: Exception) -> str:
    if isinstance(error, OSError) and not isinstance(error, CommonplaceError):
        reason = error.strerror or str(error)
        return f"{error.filename}: {reason}" if error.filename else reason
    text = f"{error}; set COMMONPLACE_KEY to a key of the service" if isinstance(error, Unauthorized) else str(error)
    notes = "; ".join(getattr(error, "__notes__", ()))
    return f"{text} ({notes})" if notes else text
