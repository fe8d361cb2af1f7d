"""Protection against web pages of other sites: Host, Origin and Sec-Fetch-Site, and headers of every answer."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request

from commonplace.errors import Forbidden

MISDIRECTED = 421

SECURITY_HEADERS = {"X-Content-Type-Options": "nosniff", "Cross-Origin-Resource-Policy": "same-origin"}
"""Headers of every answer: a browser does not load it as a script, an image or a frame of another site.

They apply to loads without CORS, so a page whose origin CORS allows can still read answers.
"""

_HOST = re.compile(r"[A-Za-z0-9.\-:\[\]]{1,300}")
_OWN = ("same-origin", "none")
"""Sec-Fetch-Site of our own pages, and of an address that a person typed."""


def is_loopback(host: str) -> bool:
    """Whether only this computer can reach an address that a server binds to."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def base_url(request: Request, public_url: str | None) -> str:
    """The service's own address: the configured one, or the Host of the request if it is a valid host name."""
    if public_url is not None:
        return public_url.rstrip("/")
    host = request.headers.get("host", "")
    return f"{request.url.scheme}://{host if _HOST.fullmatch(host) else 'localhost'}"


def check_own_page(headers: Mapping[str, str], origins: Collection[str], *, may_be_linked: bool) -> None:
    """Refuse a request that a page of another site sends: by its Origin, its Sec-Fetch-Site or a rebound Host.

    Scripts, images and links send no Origin, only Sec-Fetch-Site. Programs that are not browsers send neither.
    `may_be_linked` allows navigation from a link on another site.
    """
    host = headers.get("host", "")
    if not is_loopback(_hostname(f"//{host}")):
        raise HTTPException(
            MISDIRECTED,
            f"this service answers only to localhost, not to {host[:100]!r}; use that name, or create a key",
        )
    origin = headers.get("origin")
    if origin is not None:
        if origin not in origins and not is_loopback(_hostname(origin)):
            raise Forbidden(
                f"pages of {origin[:100]!r} may not call this service; start it with --cors-origin to let them"
            )
        return
    is_own = headers.get("sec-fetch-site", "none") in _OWN
    is_link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    if not is_own and not (may_be_linked and is_link):
        raise Forbidden("a page of another site may not call this service; open the address yourself, or create a key")


def check_own_form(headers: Mapping[str, str], public_url: str | None) -> None:
    """Refuse a form that was not sent from this very address, whether or not callers need a key.

    Stricter than `check_own_page`: another program's page on this computer is another site too.
    """
    site = headers.get("sec-fetch-site")
    origin = headers.get("origin")
    if site is not None:
        is_own = site in _OWN
    elif origin is not None:
        own = {headers.get("host", "").lower(), _authority(public_url or "")} - {""}
        is_own = _authority(origin) in own
    else:
        is_own = True  # a program; it needs the token of the form, as everybody does
    if not is_own:
        raise Forbidden("this form was sent from another site; open the page yourself and send it from there")


def _authority(url: str) -> str:
    """Host and port of a URL, as they are in a Host header."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2].lower()
    except ValueError:
        return ""


def _hostname(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
