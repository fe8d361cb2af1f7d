"""Sessions of the page: a browser shows its key once and then sends a cookie with a random id.

A session is a row of the store, so every server of a book knows it, and it survives a restart. The row has a hash of
the id and names the key; neither the cookie nor the row has the key's secret. A session ends with its key, after a
week, or when the person signs out.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any, cast
from urllib.parse import urlsplit

from commonplace.errors import Unauthorized
from commonplace.server.http.api_keys import Key, Keys

SESSION_PREFIX = "session_"
"""Begins the id of a session, so that it is not taken for a key or a token."""

PAGE_PATH = "/ui"
MAX_AGE_SECONDS = 7 * 24 * 60 * 60
_PART = "sessions"


def is_page(path: str) -> bool:
    """Whether a path belongs to the page."""
    return path == PAGE_PATH or path.startswith(f"{PAGE_PATH}/")


def cookie_name(headers: Mapping[str, str]) -> str:
    """The name of the cookie. Servers on several ports of one host share cookies, so the name has the port."""
    try:
        port = urlsplit(f"//{headers.get('host', '')}").port
    except ValueError:
        port = None
    return "commonplace" if port is None else f"commonplace_{port}"


def cookie_of(headers: Mapping[str, str]) -> str | None:
    """What the browser sends in the cookie of this server: a session's id, or a visitor's."""
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(cookie_name(headers))
    except CookieError:
        return None
    return None if found is None or not found.value else found.value


def session_of(headers: Mapping[str, str]) -> str | None:
    """The id of the browser's session."""
    cookie = cookie_of(headers)
    return cookie if cookie is not None and cookie.startswith(SESSION_PREFIX) else None


class Sessions:
    """The sessions of a store. Nothing is cached: a session that ended on one server has ended on all."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._store = keys.store
        self._clock = keys.clock

    def begin(self, key: Key) -> str:
        """Begin a session with a key that was just checked; return the session's id. Remove expired sessions."""
        now = self._clock()
        for hashed, row in self._store.system_list(_PART).items():
            if cast("Mapping[str, Any]", row)["expires_at"] <= now:
                self._store.system_delete(_PART, hashed)
        id = SESSION_PREFIX + secrets.token_urlsafe(32)
        expires_at = now + MAX_AGE_SECONDS * 1_000_000
        row = {"key": key.id, "key_created_at": key.created_at, "expires_at": expires_at}
        self._store.system_put(_PART, _hash(id), row)
        return id

    def check(self, id: str) -> Key:
        """The key of a session; Unauthorized if the session has ended, or its key."""
        row = cast("Mapping[str, Any] | None", self._store.system_get(_PART, _hash(id)))
        if row is None or row["expires_at"] <= self._clock():
            raise Unauthorized("you are signed out; sign in again with your key")
        key = self._keys.find(row["key"])
        if key.created_at != row["key_created_at"]:  # another key of this name
            raise Unauthorized(f"the key {key.name} was replaced; sign in again with the new one")
        return key

    def end(self, id: str) -> None:
        self._store.system_delete(_PART, _hash(id))


def _hash(id: str) -> str:
    return hashlib.sha256(id.encode()).hexdigest()
