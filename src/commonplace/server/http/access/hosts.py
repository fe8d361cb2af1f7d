"""While no key is needed: a request must be meant for this computer, and must not come from a foreign web page."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException

MISDIRECTED, FORBIDDEN = 421, 403


def is_loopback(host: str) -> bool:
    """Whether an address to bind to is reached from this computer alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_own_page(headers: Mapping[str, str], origins: Collection[str]) -> None:
    """A web page may send requests to this computer's own address; its Origin, or a rebound Host, gives it away."""
    host = headers.get("host", "")
    if not is_loopback(_hostname(f"//{host}")):
        raise HTTPException(
            MISDIRECTED,
            f"this service answers to localhost only, not to {host[:100]!r}; call it by that name, or make a key",
        )
    origin = headers.get("origin")
    if origin is not None and origin not in origins and not is_loopback(_hostname(origin)):
        raise HTTPException(
            FORBIDDEN,
            f"pages of {origin[:100]!r} may not call this service; start it with --cors-origin to let them",
        )


def _hostname(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
