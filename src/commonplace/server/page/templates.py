"""The templates of the page: Jinja with automatic escaping, and the few filters that every screen uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from commonplace import __version__
from commonplace.checks import moment
from commonplace.server.page.assets import asset_url
from commonplace.server.page.markdown import as_html

TEMPLATES = Path(__file__).parent / "templates"
_AGES = ((60, "second"), (60, "minute"), (24, "hour"), (30, "day"), (12, "month"), (1 << 60, "year"))

THROUGH = {
    "page": "the page",
    "rest": "REST",
    "mcp": "MCP",
    "mastra": "Mastra",
    "cli": "the command line",
}
"""The interfaces that an actor can name, after who it is."""


def render(template: str, values: Mapping[str, Any]) -> str:
    """The HTML of a template. A name that the template uses and `values` lacks is an error."""
    return environment().get_template(template).render(values)


@cache
def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.globals.update(asset=asset_url, version=__version__)
    made.filters.update(age=age, author=author_of, time=time_element, markdown=as_html, number="{:,}".format, size=size)
    return made


@dataclass(frozen=True, slots=True)
class Author:
    """Who made a change, through which interface, with which client; each may be unknown."""

    who: str | None
    through: str | None
    client: str | None


def author_of(actor: str | None) -> Author:
    """An actor is `name interface client`, or the interface alone, or any text that a program chose."""
    words = (actor or "").split(" ")
    at = next((place for place, word in enumerate(words) if word in THROUGH), None)
    if at is None:
        return Author(actor or None, None, None)
    return Author(" ".join(words[:at]) or None, THROUGH[words[at]], " ".join(words[at + 1 :]) or None)


def as_moment(time: datetime | int) -> datetime:
    return moment(time) if isinstance(time, int) else time


def time_element(time: datetime | int) -> Markup:
    """A time as an element: its age in words, and the exact time as its title."""
    at = as_moment(time).astimezone(UTC)
    shown = at.strftime("%Y-%m-%d %H:%M:%S UTC")
    # Nothing of a text is in it. `Markup.format` would take most of the time of a list.
    return Markup(f'<time datetime="{at.isoformat()}" title="{shown}">{age(at)}</time>')


def age(time: datetime | int, now: datetime | None = None) -> str:
    """How long ago a time was, in its largest unit, such as `3 days ago`."""
    seconds = ((now or datetime.now(UTC)) - as_moment(time)).total_seconds()
    if seconds < 0:
        return "in the future"
    if seconds < 5:
        return "just now"
    count = seconds
    for most, unit in _AGES:
        if count < most:
            return f"{int(count)} {unit}{'' if int(count) == 1 else 's'} ago"
        count /= most
    raise AssertionError("the last unit has no end")


def size(count: int) -> str:
    """A number of bytes for people."""
    if count < 1_000:
        return f"{count} B"
    return f"{count / 1_000:.1f} kB" if count < 1_000_000 else f"{count / 1_000_000:.1f} MB"


def pieces(text: str, spans: Iterator[tuple[int, int]]) -> Iterator[tuple[str, bool]]:
    """A text cut at spans: each piece, and whether it is one of them. Templates mark those."""
    at = 0
    for start, end in spans:
        if start > at:
            yield text[at:start], False
        yield text[start:end], True
        at = end
    if at < len(text):
        yield text[at:], False
