"""The static files of the page: read once, compressed once, and served under addresses that change with them."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from commonplace.server.http.sessions import PAGE_PATH

STATIC = Path(__file__).parent / "static"
FOREVER = "public, max-age=31536000, immutable"
_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".LICENSE": "text/plain; charset=utf-8",
}
router = APIRouter()


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
