"""Two pages without a template: `/`, which lists the addresses, and `/docs`, the OpenAPI description as one page.

Neither has a script, and neither loads anything from another address.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from commonplace import __version__
from commonplace.server.http.origins import base_url
from commonplace.server.http.service import service_of
from commonplace.server.http.sessions import PAGE_PATH
from commonplace.server.mcp.clients import YOUR_KEY, HttpServer, claude_code_command
from commonplace.server.mcp.profiles import PROFILES

router = APIRouter()
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}
_START_PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>commonplace</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 3rem auto; padding: 0 1rem }}
pre {{ padding: .8rem; overflow-x: auto; border: 1px solid; border-radius: 4px }}
dt {{ font-weight: 600 }}
:root {{ color-scheme: light dark }}
</style>
<h1>commonplace {version}</h1>
<p>Long-term memory for AI agents. {access}</p>
<dl>
<dt>REST</dt><dd><code>{base}/v1</code> · <a href="/docs">documentation</a> ·
<a href="/openapi.json">openapi.json</a></dd>
<dt>MCP</dt><dd><code>{base}/mcp</code>, with one path per profile: {profiles}</dd>
<dt>Mastra</dt><dd><code>{base}/api/memory</code></dd>
<dt>Operation</dt><dd><a href="/healthz">healthz</a> · <a href="/readyz">readyz</a> ·
<a href="/metrics">metrics</a></dd>
</dl>
<p>From a shell:</p>
<pre>{curl}</pre>
<p>From Claude Code:</p>
<pre>{claude}</pre>
</html>
"""


@router.get("/", include_in_schema=False)
def start_page(request: Request) -> Response:
    """The list of addresses, for programs and people at a terminal. A browser is sent to the page."""
    if "text/html" in request.headers.get("accept", ""):
        return RedirectResponse(PAGE_PATH, 307, {"Vary": "Accept"})
    service = service_of(request)
    base = base_url(request, service.settings.public_url)
    is_open = service.access.is_open()
    header = "" if is_open else " -H 'Authorization: Bearer YOUR_KEY'"
    filled = {
        "version": __version__,
        "base": base,
        "access": "From this computer no key is needed." if is_open else "Calls need a key or a token.",
        "curl": f"curl{header} '{base}/v1/search?q=deploys'",
        "claude": claude_code_command(HttpServer(f"{base}/mcp", None if is_open else YOUR_KEY)),
    }
    profiles = ", ".join(f"<code>/mcp/{profile}</code>" for profile in PROFILES)
    shown = {name: escape(text) for name, text in filled.items()}
    return HTMLResponse(_START_PAGE.format(**shown, profiles=profiles), headers=HEADERS)


# The reference

_REFERENCE_PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>commonplace: operations</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 3rem auto; padding: 0 1rem }}
summary {{ cursor: pointer; padding: .3rem 0 }}
summary code {{ font-weight: 600 }}
details {{ border-bottom: 1px solid #8884 }}
details > :not(summary) {{ margin-left: 1rem }}
table {{ border-collapse: collapse; margin: .5rem 0 1rem 1rem }}
th, td {{ text-align: left; vertical-align: top; padding: .15rem 1rem .15rem 0 }}
td:first-child {{ white-space: nowrap }}
h4 {{ margin-bottom: 0 }}
code, td, a {{ overflow-wrap: anywhere }}
@media (max-width: 40rem) {{
  table, tbody, tr, td {{ display: block }}
  table {{ margin-left: 0 }}
  tr {{ padding: .3rem 0; border-top: 1px solid #8884 }}
  td {{ padding-right: 0 }}
  td:first-child {{ white-space: normal }}
}}
:target {{ outline: 2px solid }}
:root {{ color-scheme: light dark }}
</style>
<h1>commonplace {version}</h1>
<p>Every operation of the service. For programs: <a href="/openapi.json">openapi.json</a>.</p>
<nav><p>{contents} · <a href="#forms">forms</a></p></nav>
{operations}
<h2 id="forms">forms</h2>
{forms}
</html>
"""


@router.get("/docs", include_in_schema=False)
def reference_page(request: Request) -> Response:
    """Every operation and form of the description."""
    return HTMLResponse(_render(request.app.openapi()), headers=HEADERS)


def _render(description: Mapping[str, Any]) -> str:
    by_subject: dict[str, list[str]] = {}
    paths = sorted(description["paths"].items(), key=lambda item: not item[0].startswith("/v1"))
    for path, methods in paths:
        for method, operation in methods.items():
            by_subject.setdefault(operation["tags"][-1], []).append(_operation(method.upper(), path, operation))
    anchors = {subject: subject.replace(" ", "-") for subject in by_subject}
    forms = {_short(name): form for name, form in description["components"]["schemas"].items()}
    return _REFERENCE_PAGE.format(
        version=escape(description["info"]["version"]),
        contents=" · ".join(f'<a href="#{anchor}">{escape(subject)}</a>' for subject, anchor in anchors.items()),
        operations="\n".join(
            f'<h2 id="{anchors[subject]}">{escape(subject)}</h2>\n' + "\n".join(sections)
            for subject, sections in by_subject.items()
        ),
        forms="\n".join(_form(name, forms[name]) for name in sorted(forms, key=str.casefold)),
    )


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    title = f"<summary><code>{method} {escape(path)}</code> {escape(operation.get('summary', ''))}</summary>"
    return f"<details>{title}\n{''.join(_operation_parts(operation))}</details>"


def _operation_parts(operation: Mapping[str, Any]) -> Iterator[str]:
    if description := operation.get("description"):
        yield f"<p>{_prose(description)}</p>"
    if parameters := operation.get("parameters"):
        rows = (
            (_name(one["name"], one.get("required")), one["in"], _kind(one["schema"]), _prose(one.get("description")))
            for one in parameters
        )
        yield f"<h4>Parameters</h4>{_table(rows)}"
    if body := operation.get("requestBody"):
        yield f"<h4>Body</h4>{_table(_contents(body['content']))}"
    answers = (
        (
            code,
            "<br>".join(kind for _, kind in _contents(response.get("content", {}))),
            _prose(response.get("description")),
        )
        for code, response in operation["responses"].items()
    )
    yield f"<h4>Answers</h4>{_table(answers)}"


def _form(name: str, form: Mapping[str, Any]) -> str:
    required = form.get("required", ())
    rows = [
        (_name(field, field in required), _kind(schema), _prose(schema.get("description")))
        for field, schema in form.get("properties", {}).items()
    ]
    inside = _table(rows) if rows else f"<p>{_kind(form)}</p>"
    description = f"<p>{_prose(form['description'])}</p>" if form.get("description") else ""
    return f'<details id="form-{name}"><summary><code>{name}</code></summary>{description}{inside}</details>'


def _contents(content: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for media_type, shape in content.items():
        yield escape(media_type), _kind(shape.get("schema", {}))


def _kind(schema: Mapping[str, Any]) -> str:
    """A short description of a schema, with links to the forms in it."""
    if "$ref" in schema:
        name = _short(schema["$ref"].rpartition("/")[2])
        return f'<a href="#form-{name}">{name}</a>'
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(_kind(one) for one in schema[several]))
    if "const" in schema or "enum" in schema:
        return ", ".join(f"<code>{escape(str(one))}</code>" for one in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    named = " or ".join(kind) if isinstance(kind, list) else str(kind)
    limits = [
        f"{words} {schema[limit]:,}"
        for limit, words in (("minimum", "from"), ("maximum", "to"), ("maxLength", "at most"))
        if limit in schema
    ]
    return " ".join([escape(named), *limits])


def _table(rows: Iterable[tuple[str, ...]]) -> str:
    lines = ("".join(f"<td>{cell}</td>" for cell in row) for row in rows)
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _name(name: str, is_required: bool | None) -> str:
    return f"<code>{escape(name)}</code>{'' if is_required else ' (optional)'}"


def _prose(text: str | None) -> str:
    """HTML of a description, whose `code` is in backquotes."""
    parts = escape(text or "").split("`")
    return "".join(f"<code>{part}</code>" if place % 2 else part for place, part in enumerate(parts))


def _short(name: str) -> str:
    """A form's name; if two packages have a form with this name, with the package's."""
    place, _, last = name.rpartition("__")
    return f"{place.split('__')[3]}.{last}" if place else last
