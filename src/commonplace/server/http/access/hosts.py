"""Web pages of other sites: while no key is needed they may send no request, and no answer is ever loaded into one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException

from commonplace.errors import Forbidden

MISDIRECTED = 421

GUARDS = {"X-Content-Type-Options": "nosniff", "Cross-Origin-Resource-Policy": "same-origin"}
"""Headers of every answer: a browser does not load it as a script, an image or a frame of another site.

A page whose origin CORS allows reads answers all the same: these hold for what is loaded without CORS.
"""

_OWN = ("same-origin", "none")
"""What Sec-Fetch-Site says of our own pages, and of an address that a person typed."""


def is_loopback(host: str) -> bool:
    """Whether an address to bind to is reached from this computer alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_own_page(headers: Mapping[str, str], origins: Collection[str], *, may_be_linked: bool) -> None:
    """Refuse what a page of another site sends to this computer: its Origin, its site or a rebound Host tells.

    Scripts, images and links send no Origin; Sec-Fetch-Site is all that tells of the page. Programs that are no
    browser send neither. `may_be_linked`: a person may follow a link of another site to here.
    """
    host = headers.get("host", "")
    if not is_loopback(_hostname(f"//{host}")):
        raise HTTPException(
            MISDIRECTED,
            f"this service answers to localhost only, not to {host[:100]!r}; call it by that name, or make a key",
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
        raise Forbidden("a page of another site may not call this service; open the address yourself, or make a key")


def _hostname(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
