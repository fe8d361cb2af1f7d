"""The public keys that tokens are signed with, from a file or an address (a JSON Web Key Set).

They are read when first needed, again after ten minutes, and again for a key id that nobody knows yet, but never more
often than every thirty seconds: a caller that invents key ids causes no traffic. Where a later read fails, the keys
read before stay in use.
"""

from __future__ import annotations

import http.client
import json
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

from commonplace.checks import local_path
from commonplace.errors import ConfigurationError, InvalidInput, Unavailable
from commonplace.server.http.access.hosts import is_loopback

TIMEOUT_SECONDS = 5.0
KEPT_SECONDS = 600.0
FLOOR_SECONDS = 30.0
MAX_BYTES = 1_000_000
_ASYMMETRIC = ("RSA", "EC", "OKP")
_log = logging.getLogger(__name__)

Jwk = dict[str, Any]


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class KeySet:
    """Keys by their id. A file is read at once, so that a mistake in it shows when the service starts."""

    def __init__(self, place: str, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._place = place
        self._is_remote = "://" in place
        self._monotonic = monotonic
        self._turn = Lock()
        self._keys: list[Jwk] | None = None
        self._read_at = float("-inf")
        self._tried_at = float("-inf")
        if self._is_remote:
            _check_address(place)
        else:
            self._read()

    def find(self, kid: str | None) -> Jwk | None:
        """The key with an id; without one, the only key there is."""
        self._freshen()
        found = self._among(kid)
        if found is None and self._read_again(after=FLOOR_SECONDS):
            found = self._among(kid)
        return found

    def _among(self, kid: str | None) -> Jwk | None:
        keys = self._keys or []
        if kid is None:
            return keys[0] if len(keys) == 1 else None
        return next((key for key in keys if key.get("kid") == kid), None)

    def _freshen(self) -> None:
        if self._keys is None:
            with self._turn:
                if self._keys is None:
                    self._read()
        elif self._monotonic() - self._read_at > KEPT_SECONDS:
            self._read_again(after=FLOOR_SECONDS)

    def _read_again(self, *, after: float) -> bool:
        """Read once more, unless someone just did or is doing so; whether it was read."""
        if self._monotonic() - self._tried_at < after or not self._turn.acquire(blocking=False):
            return False
        try:
            self._read()
        except (Unavailable, ConfigurationError) as error:
            _log.warning("the keys for tokens could not be read again: %s", error)
            return False
        finally:
            self._turn.release()
        return True

    def _read(self) -> None:
        if self._keys is None and self._monotonic() - self._tried_at < 1:
            raise Unavailable(f"the keys at {self._place} could not be read; try again in a moment")
        self._tried_at = self._monotonic()
        written = _fetched(self._place) if self._is_remote else _file(self._place)
        self._keys = _parsed(self._place, written)
        self._read_at = self._monotonic()


def _check_address(url: str) -> None:
    parts = urlsplit(url)
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
    if not is_safe or not parts.hostname or parts.username or parts.password:
        raise ConfigurationError(
            f"the keys for tokens must come from a file or from an https:// address without credentials, not {url!r}"
        )


def _file(path: str) -> bytes:
    try:
        return local_path("the file of keys for tokens", path).read_bytes()
    except InvalidInput as error:
        raise ConfigurationError(str(error)) from error
    except OSError as error:
        raise ConfigurationError(f"the keys for tokens cannot be read from {path}: {error.strerror}") from error


def _fetched(url: str) -> bytes:
    opener = urllib.request.build_opener(_NoRedirect)
    try:
        with opener.open(url, timeout=TIMEOUT_SECONDS) as response:
            written: bytes = response.read(MAX_BYTES + 1)
    except urllib.error.HTTPError as error:
        error.close()
        raise Unavailable(f"the keys at {url} could not be read: HTTP {error.code}") from error
    except (http.client.HTTPException, OSError) as error:
        reason = str(getattr(error, "reason", None) or error) or type(error).__name__
        raise Unavailable(f"the keys at {url} could not be read: {reason}") from error
    if len(written) > MAX_BYTES:
        raise Unavailable(f"{url} sent more than {MAX_BYTES:,} bytes, which is no key set")
    return written


def _parsed(place: str, written: bytes) -> list[Jwk]:
    """The keys that can check a signature and make none: a shared secret in a public set would be everybody's."""
    try:
        keys = json.loads(written)["keys"]
        usable = [
            key for key in keys if key.get("kty") in _ASYMMETRIC and key.get("use", "sig") == "sig" and "d" not in key
        ]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ConfigurationError(
            f'{place} is no JSON Web Key Set, such as {{"keys": [{{"kty": "RSA", …}}]}}'
        ) from error
    if not usable:
        raise ConfigurationError(f"{place} has no public key (RSA, EC or Ed25519) to check signatures with")
    return usable
