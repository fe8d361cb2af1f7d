"""Completion of paths, for faces that ask while someone types."""

from __future__ import annotations

from itertools import islice

from commonplace.errors import InvalidInput, NotADirectory, NotFound
from commonplace.space.files import Files
from commonplace.space.names import ROOT


def complete_path(files: Files, typed: str, *, limit: int = 100) -> list[str]:
    """The paths that begin with what was typed, one level further; a directory's ends with `/`."""
    above, _, start = ("/" + typed.replace("\\", "/").lstrip("/")).rpartition("/")
    try:
        listed = files.list(above or ROOT)
    except (InvalidInput, NotFound, NotADirectory):
        return []  # nothing that exists begins like this
    found = (item.path + ("/" if item.kind == "directory" else "") for item in listed if item.name.startswith(start))
    return list(islice(found, limit))
