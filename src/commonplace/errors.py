"""Every error that commonplace raises on purpose.

CommonplaceError
├── InvalidInput        the call is wrong; correct it and call again (also a ValueError)
│   ├── InvalidPath     a path that no file can have; `segment` is what was refused
│   └── TooLarge        an argument exceeds a size limit
├── NotFound            what was named does not exist (also a LookupError)
├── Conflict            the current state does not allow it; read it again, then decide
│   ├── AlreadyExists   something has that name already
│   ├── IsADirectory    a file was expected at that path
│   ├── NotADirectory   a directory was expected at that path
│   ├── Ambiguous       the text to replace occurs more than once
│   └── Outdated        an entry is not at the revision that was expected; `revision` is the current one
├── Unauthorized        the credentials are missing or invalid; send a valid key or token
├── Forbidden           the caller has no permission for it
├── ConfigurationError  a setting, a file or an install step is missing or wrong
├── Unavailable         try again later; nothing was changed
│   └── RateLimited     too many calls for this key; try again after `retry_after_seconds`
└── Corrupt             the database file is damaged; restore a backup

A message says what was wrong and what to do next.
"""

from __future__ import annotations

import shlex
import sys
from importlib.util import find_spec


class CommonplaceError(Exception):
    """Root of all errors of this package."""


class InvalidInput(CommonplaceError, ValueError):
    """An argument was refused; nothing was changed."""


class InvalidPath(InvalidInput):
    """A path was refused; `is_traversal` tells whether it contains `..`, in any encoding."""

    def __init__(self, message: str, segment: str, *, is_traversal: bool = False) -> None:
        super().__init__(message)
        self.segment = segment
        self.is_traversal = is_traversal


class TooLarge(InvalidInput):
    """An argument exceeds a size limit; nothing was changed."""


class NotFound(CommonplaceError, LookupError):
    """The named thing does not exist."""


class Conflict(CommonplaceError):
    """The current state does not allow the change; nothing was changed."""


class AlreadyExists(Conflict):
    """Something has that name already."""


class IsADirectory(Conflict):
    """A file was expected, and there is a directory."""


class NotADirectory(Conflict):
    """A directory was expected, and there is a file."""


class Ambiguous(Conflict):
    """A text that should be unique occurs more than once."""

    def __init__(self, message: str, lines: tuple[int, ...]) -> None:
        super().__init__(message)
        self.lines = lines


class Outdated(Conflict):
    """An entry was changed since the caller read it; `revision` is the current one, or 0 if it does not exist."""

    def __init__(self, message: str, revision: int) -> None:
        super().__init__(message)
        self.revision = revision


class Unauthorized(CommonplaceError):
    """The credentials of a call are missing, unknown, expired or revoked."""


class Forbidden(CommonplaceError):
    """The caller has no permission for this."""


class ConfigurationError(CommonplaceError):
    """A setting, a file or an install step is missing or wrong."""


class Unavailable(CommonplaceError):
    """The store or a model is not available now; nothing was changed."""


class RateLimited(Unavailable):
    """This caller has exceeded its rate limit; nothing was changed."""

    def __init__(self, message: str, retry_after_seconds: float) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class Corrupt(CommonplaceError):
    """The database file is damaged."""


def install_command(extra: str) -> str:
    """The command that installs an extra of this package into the running Python; `pip` need not be on the PATH."""
    what = f"commonplace-memory[{extra}]"
    if find_spec("pip") is None:  # uv makes such environments
        return shlex.join(["uv", "pip", "install", "--python", sys.executable, what])
    return shlex.join([sys.executable, "-m", "pip", "install", what])
