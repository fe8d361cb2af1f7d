"""How large a text is, in the units that people count files in."""

from __future__ import annotations

from commonplace.checks import JSON


def file_measures(text: str) -> dict[str, JSON]:
    """What a file's entry says of its text, so that listing a directory need not read it."""
    return {"size": len(text.encode()), "lines": line_count(text)}


def line_count(text: str) -> int:
    return text.count("\n") + (0 if text.endswith("\n") or not text else 1)
