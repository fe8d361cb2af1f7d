"""A text in the units that people count files in: how large it is, and where its lines are."""

from __future__ import annotations

from commonplace.checks import JSON


def file_measures(text: str) -> dict[str, JSON]:
    """What a file's entry says of its text, so that listing a directory need not read it."""
    return {"size": len(text.encode()), "lines": line_count(text)}


def line_count(text: str) -> int:
    return text.count("\n") + (0 if text.endswith("\n") or not text else 1)


def with_line(text: str, line: int, new: str) -> str:
    """A text with another line after one of its lines, 0 being the top; without taking all of them apart."""
    place = 0
    for _ in range(line):
        place = text.find("\n", place) + 1
        if not place:
            return f"{text}\n{new}"
    return f"{text[:place]}{new}\n{text[place:]}"
