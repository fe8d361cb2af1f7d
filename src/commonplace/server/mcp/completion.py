"""Completion of tags, types and paths from what the memory holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from commonplace.errors import InvalidInput, NotADirectory, NotFound
from commonplace.server.mcp.memory import Memory
from commonplace.space.files import Files
from commonplace.space.names import ROOT
from commonplace.space.records import Record

RECORDS_LOOKED_AT = 1_000
"""The newest ones: enough to know the words in use, in a time that no one notices while typing."""


def complete(memory: Memory, argument: str, typed: str, *, is_prompt: bool = False) -> list[str]:
    """The values that an argument may take, those in use most first; none for an argument that is free."""
    if argument == "path" and not is_prompt:
        return [path.lstrip("/") for path in complete_path(memory.space.files, typed)]
    if argument == "type":
        return _most_used((record.type for record in _newest(memory)), typed)
    if argument == "tags":
        given, _, started = typed.rpartition(",")
        before = f"{given}," if given else ""
        chosen = given.split(",")
        tags = _most_used((tag for record in _newest(memory) for tag in record.tags), started.strip().lower())
        return [before + tag for tag in tags if tag not in chosen]
    return []


def _newest(memory: Memory) -> Iterator[Record]:
    yield from memory.space.records.list(limit=RECORDS_LOOKED_AT).records


def _most_used(values: Iterable[str], typed: str) -> list[str]:
    counts: dict[str, int] = {}
    for value in values:
        if value.startswith(typed):
            counts[value] = counts.get(value, 0) + 1
    return sorted(counts, key=lambda value: (-counts[value], value))


def complete_path(files: Files, typed: str, *, limit: int = 100) -> list[str]:
    """The paths that begin with the text, one level deep. A directory ends with `/`."""
    above, _, start = ("/" + typed.replace("\\", "/").lstrip("/")).rpartition("/")
    try:
        listed = files.list(above or ROOT)
    except (InvalidInput, NotFound, NotADirectory):
        return []  # nothing begins with this text
    found = (item.path + ("/" if item.kind == "directory" else "") for item in listed if item.name.startswith(start))
    return list(islice(found, limit))
