"""OAuth protected-resource metadata (RFC 9728): how an MCP client learns which tokens a refused address takes."""

from __future__ import annotations

import re
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from commonplace.settings import Settings

WELL_KNOWN = "/.well-known/oauth-protected-resource"
_MCP = re.compile(r"/mcp(/[a-z]+)?")
_HOST = re.compile(r"[A-Za-z0-9.\-:\[\]]{1,300}")


def challenge(request: Request, public_url: str | None) -> str:
    """The WWW-Authenticate header of a refusal."""
    words = []
    path = request.url.path.rstrip("/")
    if _MCP.fullmatch(path):
        words.append(f'resource_metadata="{base_url(request, public_url)}{WELL_KNOWN}{path}"')
    if "authorization" in request.headers or "x-api-key" in request.headers:
        words.append('error="invalid_token"')
    return "Bearer " + ", ".join(words) if words else "Bearer"


def base_url(request: Request, public_url: str | None) -> str:
    """The service's own address: the configured one, or as the caller wrote it, where that can be one."""
    if public_url is not None:
        return public_url.rstrip("/")
    host = request.headers.get("host", "")
    return f"{request.url.scheme}://{host if _HOST.fullmatch(host) else 'localhost'}"


def metadata_router(settings: Settings) -> APIRouter:
    router = APIRouter()

    def answer(request: Request, path: str) -> Response:
        described: dict[str, Any] = {
            "resource": base_url(request, settings.public_url) + path,
            "resource_name": "commonplace",
            "bearer_methods_supported": ["header"],
        }
        if settings.jwt_issuer is not None:
            described["authorization_servers"] = [settings.jwt_issuer]
        return JSONResponse(described, headers={"Cache-Control": "max-age=300"})

    @router.get(WELL_KNOWN, include_in_schema=False)
    def of_the_service(request: Request) -> Response:
        return answer(request, "")

    @router.get(WELL_KNOWN + "/{path:path}", include_in_schema=False)
    def of_a_path(request: Request, path: str) -> Response:
        if not _MCP.fullmatch(f"/{path}"):
            raise HTTPException(404)
        return answer(request, f"/{path}")

    return router
