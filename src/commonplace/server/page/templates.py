"""How a page is made: Jinja templates with automatic escaping, the filters that screens use, Markdown, static files.

Stored text is not trusted. Templates escape it. Markdown becomes HTML that is safe to show: no raw HTML, no images, and
only links to the web and to mail. The parser makes elements of its own only, so nothing of the text becomes markup.

Static files are read once, compressed once, and served under addresses that change with them.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Request
from fastapi.responses import Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup, escape
from starlette.exceptions import HTTPException

from commonplace import __version__
from commonplace.checks import moment
from commonplace.server.http.sessions import PAGE_PATH

TEMPLATES = Path(__file__).parent / "templates"
STATIC = Path(__file__).parent / "static"
FOREVER = "public, max-age=31536000, immutable"
_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".LICENSE": "text/plain; charset=utf-8",
}

LONGEST = 100_000
"""Longer texts are shown as they are: rendering takes a few milliseconds for each thousand characters."""

_SCHEMES = ("http", "https", "mailto")
_HEADINGS = {f"h{level}": f"h{min(level + 2, 6)}" for level in range(1, 7)}
"""A text is part of a page that has headings of its own, so those of the text are two levels below."""

router = APIRouter()
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
    made.globals.update(asset=asset_url, by=by, version=__version__)
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


@lru_cache(maxsize=1_000)
def by(actor: str | None) -> Markup:
    """Who made a change, and through what. Few actors make most changes, so it is made once for each of them."""
    author = author_of(actor)
    parts = []
    if author.who:
        parts.append(Markup("by <bdi>{}</bdi>").format(author.who))
    if author.through:
        parts.append(Markup("through {}").format(author.through))
    if author.client:
        parts.append(Markup("(<bdi>{}</bdi>)").format(author.client))
    return Markup(" ").join(parts)


def as_moment(time: datetime | int) -> datetime:
    return moment(time) if isinstance(time, int) else time


def time_element(time: datetime | int) -> Markup:
    """A time as an element: its age in words, and the exact time as its title."""
    at = as_moment(time).astimezone(UTC)
    written = at.isoformat()
    # Nothing of a text is in it. `Markup.format` would take most of the time of a list.
    return Markup(f'<time datetime="{written}" title="{written[:10]} {written[11:19]} UTC">{age(at)}</time>')


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


# Markdown


def as_html(text: str) -> Markup:
    """The text rendered; a text that is too long, as it is."""
    if len(text) > LONGEST:
        return Markup('<pre class="text">{}</pre>').format(text)
    return Markup(_parser().render(text))  # the parser escapes all of the text


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "linkify": False}).enable(["table", "strikethrough"])
    parser.validateLink = _is_safe  # type: ignore[method-assign]
    parser.add_render_rule("image", _image)
    parser.add_render_rule("link_open", _link_open)
    parser.add_render_rule("heading_open", _heading)
    parser.add_render_rule("heading_close", _heading)
    return parser


def _is_safe(url: str) -> bool:
    try:
        return urlsplit(url.strip()).scheme.lower() in _SCHEMES
    except ValueError:
        return False


def _link_open(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: MutableMapping[str, Any]
) -> str:
    token = tokens[index]
    token.attrSet("rel", "noreferrer noopener nofollow")
    return renderer.renderToken(tokens, index, options, env)


def _image(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: MutableMapping[str, Any]
) -> str:
    """A link in place of an image: loading it would tell its server who reads this text, and when."""
    token = tokens[index]
    link = Markup('<a class="image" rel="noreferrer noopener nofollow" href="{}">image: {}</a>')
    return link.format(token.attrGet("src") or "", token.content or "without a name")


def _heading(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: MutableMapping[str, Any]
) -> str:
    token = tokens[index]
    tag = escape(_HEADINGS[token.tag])
    return f"<{tag}>" if token.nesting == 1 else f"</{tag}>\n"


# Static files


@dataclass(frozen=True, slots=True)
class Asset:
    """A static file, as it is and compressed."""

    media_type: str
    content: bytes
    compressed: bytes
    digest: str


@cache
def asset(name: str) -> Asset | None:
    """A file below `static` by its name, such as `vendor/htmx.min.js`; None if there is none."""
    path = (STATIC / name).resolve()
    if not path.is_relative_to(STATIC) or path.suffix not in _MEDIA_TYPES or not path.is_file():
        return None
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:16]
    return Asset(_MEDIA_TYPES[path.suffix], content, gzip.compress(content, 9, mtime=0), digest)


def asset_url(name: str) -> str:
    """The address of a static file. It changes when the file does, so browsers may keep it forever."""
    found = asset(name)
    assert found is not None, f"static/{name} does not exist"
    return f"{PAGE_PATH}/static/{found.digest}/{name}"


@router.get(PAGE_PATH + "/static/{digest}/{name:path}", include_in_schema=False)
async def static_file(request: Request, digest: str, name: str) -> Response:
    found = _known().get(name)
    if found is None or found.digest != digest:
        raise HTTPException(404)
    headers = {"Cache-Control": FOREVER, "Vary": "Accept-Encoding"}
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(found.content, headers=headers, media_type=found.media_type)
    return Response(found.compressed, headers={**headers, "Content-Encoding": "gzip"}, media_type=found.media_type)


@cache
def _known() -> dict[str, Asset]:
    """Every static file by name: what a request names is looked up here and never used as a path."""
    names = [path.relative_to(STATIC).as_posix() for path in sorted(STATIC.rglob("*"))]
    return {name: found for name in names if (found := asset(name)) is not None}
