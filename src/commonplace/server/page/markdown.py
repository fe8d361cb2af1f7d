"""Stored Markdown as HTML that is safe to show: no raw HTML, no images, and only links to the web and to mail.

Whoever wrote the text is not trusted. The parser makes elements of its own only, so nothing of the text becomes markup.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup, escape

LONGEST = 100_000
"""Longer texts are shown as they are: rendering takes a few milliseconds for each thousand characters."""

_SCHEMES = ("http", "https", "mailto")
_HEADINGS = {f"h{level}": f"h{min(level + 2, 6)}" for level in range(1, 7)}
"""A text is part of a page that has headings of its own, so those of the text are two levels below."""


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
