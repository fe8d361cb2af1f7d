"""What a detector finds: a stretch of a text, and what kind of thing it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeAlias


class Span(NamedTuple):
    start: int
    end: int
    kind: str


Detector: TypeAlias = Callable[[str], Iterator[Span]]
"""Finds all of its kind in a text, in time linear in its length."""


def without_overlaps(spans: Iterable[Span]) -> list[Span]:
    """Spans in order; those that overlap become one that covers both, of the kind of the one that begins first."""
    kept: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if kept and span.start < kept[-1].end:
            if span.end > kept[-1].end:
                kept[-1] = kept[-1]._replace(end=span.end)
        else:
            kept.append(span)
    return kept


def masked(text: str, spans: Iterable[Span]) -> str:
    """The text with `[redacted:kind]` in place of each span; they are in order and do not overlap."""
    parts, start = [], 0
    masks: dict[str, str] = {}
    for span in spans:
        parts += [text[start : span.start], masks.setdefault(span.kind, f"[redacted:{span.kind}]")]
        start = span.end
    return "".join((*parts, text[start:]))
