"""The revisions of the protocol: which one a client gets, and what each can parse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from commonplace.errors import ConfigurationError

HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Revisions that begin with `initialize`; those after them carry their envelope with every request."""

WITHOUT_A_NAME = "2024-11-05"
"""What a client gets that names no revision."""

_WITH_LINKS = "2025-06-18"
_WITH_BATCHES = "2025-03-26"


def has_links(version: str) -> bool:
    """Whether a client of this revision can parse a `resource_link`; an older one rejects the whole answer."""
    return version >= _WITH_LINKS


def has_batches(version: str | None) -> bool:
    """Whether a client may post several messages at once. Only one revision has it, which sends no version header."""
    return version in (None, _WITH_BATCHES)


def check_version(version: str) -> str:
    if version not in HANDSHAKE:
        raise ConfigurationError(f"MCP_PROTOCOL_VERSION is {version!r}; it must be one of {', '.join(HANDSHAKE)}")
    return version


def mended_initialize(params: Mapping[str, Any] | None, configured: str | None = None) -> dict[str, Any]:
    """The parameters of `initialize` with what clients leave out: capabilities, their name, the revision.

    `configured` is the revision for a client that names none or an unknown one.
    """
    mended = dict(params or {})
    if mended.get("capabilities") is None:
        mended["capabilities"] = {}
    client = mended.get("clientInfo")
    if client is None or isinstance(client, dict):
        mended["clientInfo"] = {"name": "unknown", "version": "0", **(client or {})}
    version = mended.get("protocolVersion")
    if version is None:
        mended["protocolVersion"] = configured or WITHOUT_A_NAME
    elif version not in HANDSHAKE:
        mended["protocolVersion"] = configured or HANDSHAKE[-1]
    return mended
