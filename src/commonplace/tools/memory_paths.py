"""The paths of a memory: each lies under one root, at a segment boundary, in one form, or is refused."""

from __future__ import annotations

import unicodedata

from commonplace.checks import Limits, check_text
from commonplace.errors import ConfigurationError, InvalidInput, InvalidPath
from commonplace.space.names import ROOT, normalise
from commonplace.tools.memory_error import MemoryException

DEFAULT_ROOT = "/memories"
_SHOWN_CHARACTERS = 200


class MemoryRoot:
    """The directory that a memory's paths begin with; a tree below it begins anew with `/`."""

    def __init__(self, root: str = DEFAULT_ROOT, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        try:
            self.path = normalise(root, self._limits)
        except InvalidInput as error:
            raise ConfigurationError(f"the memory's root is no usable path: {error}") from error
        if "\\" in root or not root.startswith("/"):
            raise ConfigurationError(f"the memory's root must be a path like {DEFAULT_ROOT}, not {root!r}")
        self._prefix = "" if self.path == ROOT else self.path

    def check(self, path: str) -> str:
        """Return the path in its one form, root included, or refuse it."""
        return self.outer(self.inner(path))

    def inner(self, path: str) -> str:
        """Return the path below the root, `/` being the root itself, or refuse it."""
        try:
            check_text("path", path, max_bytes=4 * self._limits.path_bytes)
            text = unicodedata.normalize("NFC", path)
            below = text.removeprefix(self._prefix)
            if not text.startswith(self._prefix + "/") and text != self._prefix:
                raise MemoryException(f"{shown(path)} does not begin with {self.path}", "outside")
            inner = normalise(below, self._limits)
        except InvalidPath as error:
            raise MemoryException(str(error), "escape" if error.is_traversal else "invalid_path") from error
        except InvalidInput as error:
            raise MemoryException(str(error), "invalid_path") from error
        if "\\" in text:
            raise MemoryException("a path has no backslashes; write /", "invalid_path")
        return inner

    def outer(self, inner: str) -> str:
        """The path with the root before it."""
        return self.path if inner == ROOT else self._prefix + inner


def shown(path: str) -> str:
    """A refused path as it may be printed: short, and without what could not be sent or would hide a part of it."""
    cut = path[:_SHOWN_CHARACTERS]
    safe = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in cut)
    return safe + ("…" if len(path) > len(cut) else "")
