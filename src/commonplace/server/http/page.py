"""The page at `/`: where everything is, for a person who opened the address in a browser."""

from __future__ import annotations

from html import escape

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response

from commonplace import __version__
from commonplace.server.http.auth_middleware import base_url
from commonplace.server.http.service import service_of
from commonplace.server.mcp.profiles import PROFILES

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}
_PAGE = """\
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
<p>One memory for AI agents. {access}</p>
<dl>
<dt>REST</dt><dd><code>{base}/v1</code> · <a href="/docs">documentation</a> ·
<a href="/openapi.json">openapi.json</a></dd>
<dt>MCP</dt><dd><code>{base}/mcp</code>, and one profile a path: {profiles}</dd>
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

router = APIRouter()


@router.get("/", include_in_schema=False)
def page(request: Request) -> Response:
    service = service_of(request)
    base = base_url(request, service.settings.public_url)
    is_open = service.access.is_open()
    header = "" if is_open else " -H 'Authorization: Bearer YOUR_KEY'"
    claude = f"claude mcp add --transport http memory {base}/mcp"
    if not is_open:
        claude += " --header 'Authorization: Bearer YOUR_KEY'"
    filled = {
        "version": __version__,
        "base": base,
        "access": "From this computer no key is needed." if is_open else "Calls need a key or a token.",
        "curl": f"curl{header} '{base}/v1/search?q=deploys'",
        "claude": claude,
    }
    profiles = ", ".join(f"<code>/mcp/{profile}</code>" for profile in PROFILES)
    shown = {name: escape(text) for name, text in filled.items()}
    return HTMLResponse(_PAGE.format(**shown, profiles=profiles), headers=HEADERS)
