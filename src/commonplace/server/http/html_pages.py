"""Two pages without a template: `/`, which lists the addresses, and `/docs`, the OpenAPI description as one page.

`/docs` begins with a search for operations, and every GET has a form that sends it. Its only script is in the page, so
the Content-Security-Policy names the script's hash. Neither page loads anything from another address.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
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

_SCRIPT = """
"use strict";
const MOST = 100000; // characters of an answer that are shown
const find = document.getElementById("find");
const count = document.getElementById("count");
const operations = [...document.querySelectorAll("details.operation")];

function filter() {
  const words = find.value.toLowerCase().split(/\\s+/).filter(Boolean);
  let shown = 0;
  for (const one of operations) {
    one.hidden = !words.every((word) => one.dataset.words.includes(word));
    shown += !one.hidden;
  }
  for (const section of document.querySelectorAll("section")) {
    section.hidden = !section.querySelector("details.operation:not([hidden])");
  }
  count.textContent = words.length ? `${shown} of ${operations.length} operations` : "";
}

function request(form) {
  let path = form.dataset.path;
  const query = new URLSearchParams();
  const headers = {};
  for (const field of form.elements) {
    if (!field.name || field.value === "") continue;
    const values = field.localName === "textarea" ? field.value.split("\\n").filter(Boolean) : [field.value];
    for (const value of values) {
      if (field.dataset.in === "query") query.append(field.name, value);
      else if (field.dataset.in === "header") headers[field.name] = value;
      else {
        const part = encodeURIComponent(value.replace(/^\\/+/, "")).replaceAll("%2F", "/");
        path = path.replace(`{${field.name}}`, () => part);
      }
    }
  }
  const key = document.getElementById("key").value;
  if (key) headers.Authorization = `Bearer ${key}`;
  return [path + (query.size ? `?${query}` : ""), headers];
}

async function send(form) {
  const output = form.querySelector("pre");
  const stop = form.querySelector("button[type=button]");
  const [url, headers] = request(form);
  const abort = new AbortController();
  stop.onclick = () => abort.abort();
  stop.hidden = output.hidden = false;
  output.textContent = `GET ${url}\\n`;
  try {
    const answer = await fetch(url, { headers, signal: abort.signal });
    const begin = `GET ${url}\\n${answer.status} ${answer.statusText}\\n\\n`;
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (let piece; !(piece = await reader.read()).done && text.length < MOST; ) {
      text += piece.value;
      output.textContent = begin + text.slice(0, MOST);
    }
    if (text.length >= MOST) {
      abort.abort();
      output.textContent += "\\n…";
    } else if (/json$/.test((answer.headers.get("Content-Type") || "").split(";")[0])) {
      output.textContent = begin + JSON.stringify(JSON.parse(text), null, 2);
    }
  } catch (error) {
    if (error.name !== "AbortError") output.textContent += error.message;
  }
  stop.hidden = true;
}

find.addEventListener("input", filter);
document.addEventListener("submit", (event) => {
  event.preventDefault();
  if (event.target.dataset.path) send(event.target);
  else filter();
});
filter();
"""

_REFERENCE_HEADERS = HEADERS | {
    "Content-Security-Policy": HEADERS["Content-Security-Policy"]
    + f"; script-src 'sha256-{b64encode(sha256(_SCRIPT.encode()).digest()).decode()}'; connect-src 'self'; "
    "form-action 'self'"
}

_REFERENCE_PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>commonplace: operations</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem }}
h2::first-letter {{ text-transform: uppercase }}
summary {{ cursor: pointer; padding: .4rem 0 }}
summary code {{ font-weight: 600 }}
details {{ border-bottom: 1px solid #8884 }}
details > :not(summary) {{ margin-left: 1rem }}
table {{ border-collapse: collapse; margin: .5rem 0 1rem 1rem }}
th, td {{ text-align: left; vertical-align: top; padding: .2rem 1rem .2rem 0 }}
td:first-child {{ white-space: nowrap }}
h4 {{ margin-bottom: 0 }}
code, td, a {{ overflow-wrap: anywhere }}
input, select, textarea, button {{ font: inherit; padding: .3rem .5rem; max-width: 100%; box-sizing: border-box }}
input[type=search] {{ width: 100%; font-size: 1.2rem }}
td input, td select, td textarea {{ width: 13rem }}
pre {{ padding: .6rem; border: 1px solid #8888; border-radius: 4px; white-space: pre-wrap; overflow-wrap: anywhere;
  max-height: 24rem; overflow-y: auto; margin-right: 1rem }}
nav a {{ display: inline-block; padding: .15rem 0 }}
@media (max-width: 40rem) {{
  table, tbody, tr, td {{ display: block }}
  table, details > :not(summary) {{ margin-left: 0; margin-right: 0 }}
  tr {{ padding: .4rem 0; border-top: 1px solid #8884 }}
  td {{ padding-right: 0 }}
  td:first-child {{ white-space: normal }}
  td input, td select, td textarea {{ width: 100% }}
}}
:target {{ outline: 2px solid }}
:root {{ color-scheme: light dark }}
</style>
<h1>commonplace {version}</h1>
<form role="search"><p><label for="find">Find an operation</label>
<input type="search" id="find" name="q" value="{query}" placeholder="search, undo, files, threads …" autocomplete="off">
<output id="count" for="find"></output></p></form>
<p>Every operation of the service. For programs: <a href="/openapi.json">openapi.json</a>.
You can try each GET here. If the service needs a key: <label for="key">key</label>
<input type="password" id="key" autocomplete="off" size="16"> (it stays in this page).</p>
<noscript><p>Searching and trying need JavaScript.</p></noscript>
<nav><p>{contents} · <a href="#forms">forms</a></p></nav>
{operations}
<h2 id="forms">forms</h2>
{forms}
<script>{script}</script>
</html>
"""

_FIRST = "search and history"
"""The subject that the page begins with."""


@router.get("/docs", include_in_schema=False)
def reference_page(request: Request) -> Response:
    """Every operation and form of the description. `?q=` is what the search for operations begins with."""
    query = request.query_params.get("q", "")
    return HTMLResponse(_render(request.app.openapi(), query), headers=_REFERENCE_HEADERS)


def _render(description: Mapping[str, Any], query: str) -> str:
    by_subject: dict[str, list[str]] = {_FIRST: []}
    paths = sorted(description["paths"].items(), key=lambda item: not item[0].startswith("/v1"))
    for path, methods in paths:
        for method, operation in methods.items():
            by_subject.setdefault(operation["tags"][-1], []).append(_operation(method.upper(), path, operation))
    anchors = {subject: subject.replace(" ", "-") for subject in by_subject}
    forms = {_short(name): form for name, form in description["components"]["schemas"].items()}
    return _REFERENCE_PAGE.format(
        version=escape(description["info"]["version"]),
        query=escape(query),
        script=_SCRIPT,
        contents=" · ".join(f'<a href="#{anchor}">{escape(subject)}</a>' for subject, anchor in anchors.items()),
        operations="\n".join(
            f'<section><h2 id="{anchors[subject]}">{escape(subject)}</h2>\n' + "\n".join(sections) + "</section>"
            for subject, sections in by_subject.items()
        ),
        forms="\n".join(_form(name, forms[name]) for name in sorted(forms, key=str.casefold)),
    )


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    summary, description = operation.get("summary", ""), operation.get("description", "")
    title = f"<summary><code>{method} {escape(path)}</code> {escape(summary)}</summary>"
    words = escape(" ".join((method, path, summary, description, *operation["tags"])).lower())
    parts = "".join(_operation_parts(method, path, operation))
    return f'<details class="operation" data-words="{words}">{title}\n{parts}</details>'


def _operation_parts(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    if description := operation.get("description"):
        yield f"<p>{_prose(description)}</p>"
    parameters = operation.get("parameters", ())
    if method == "GET":
        yield _attempt(path, operation["operationId"], parameters)
    elif parameters:
        yield f"<h4>Parameters</h4>{_table(map(_parameter, parameters))}"
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


def _parameter(one: Mapping[str, Any]) -> tuple[str, ...]:
    about = (
        f"{_prose(one['description'])} <small>({one['in']}: {_kind(one['schema']).removesuffix(' or null')})</small>"
    )
    return _name(one["name"], one.get("required")), about


def _attempt(path: str, operation: str, parameters: Iterable[Mapping[str, Any]]) -> str:
    """A form with a field for each parameter, which sends the request and shows the answer."""
    rows = [(*_parameter(one), _field(f"{operation}-{one['name']}", one)) for one in parameters]
    table = f"<h4>Parameters</h4>{_table(rows)}" if rows else ""
    return (
        f'<form data-path="{escape(path)}">{table}<p><button>Try it</button> '
        '<button type="button" hidden>Stop</button></p><pre hidden tabindex="0" aria-live="polite"></pre></form>'
    )


def _field(id: str, parameter: Mapping[str, Any]) -> str:
    schema = parameter["schema"]
    several = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    shape = several[0] if several else schema
    hint = next(iter(schema.get("examples", ())), schema.get("default"))
    hint = "" if hint is None or isinstance(hint, list) else str(hint)
    common = (
        f'id="{escape(id)}" name="{escape(parameter["name"])}" data-in="{parameter["in"]}" '
        f'aria-label="{escape(parameter["name"])}"' + (" required" if parameter.get("required") else "")
    )
    choices = ("true", "false") if shape.get("type") == "boolean" else shape.get("enum", ())
    if choices:
        options = "".join(f"<option>{escape(str(one))}</option>" for one in choices)
        return f"<select {common}><option></option>{options}</select>"
    if shape.get("type") == "array":
        return f'<textarea {common} rows="2" placeholder="one on each line"></textarea>'
    kind = "number" if shape.get("type") == "integer" else "text"
    return f'<input type="{kind}" {common} placeholder="{escape(hint)}" autocomplete="off">'


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
