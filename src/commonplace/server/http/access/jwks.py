"""The public keys that tokens are signed with, from a file or an address (a JSON Web Key Set).

They are read when first needed, again after ten minutes, and again for a key id that nobody knows yet, but never more
often than every thirty seconds: a caller that invents key ids causes no traffic. Where a later read fails, the keys
read before stay in use. There is one read at a time, in a thread of its own; who needs it waits for its outcome, and a
failure is everybody's answer for a while: an address that hangs would otherwise hold each caller in turn.
"""

from __future__ import annotations

import http.client
import json
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from threading import Lock, Thread
from typing import Any
from urllib.parse import urlsplit

from commonplace.checks import local_path
from commonplace.errors import CommonplaceError, ConfigurationError, InvalidInput, Unavailable
from commonplace.server.http.access.hosts import is_loopback

TIMEOUT_SECONDS = 5.0
WAIT_SECONDS = 6.0
KEPT_SECONDS = 600.0
FLOOR_SECONDS = 30.0
FAILED_SECONDS = 5.0
"""How long nobody asks again where the keys never came."""

LOST_SECONDS = 60.0
"""A read that takes longer will not end: the address sends a byte now and then."""

MAX_BYTES = 1_000_000
_ASYMMETRIC = ("RSA", "EC", "OKP")
_log = logging.getLogger(__name__)

Jwk = dict[str, Any]


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Reading:
    """A read under way, which all that need it wait for together. What came of it, the key set tells."""

    begun_at: float
    done: Future[None] = field(default_factory=Future)

    def seconds_left(self, monotonic: Callable[[], float]) -> float:
        """How long it may still be waited for; nobody waits for long, however long it takes."""
        return max(0.0, self.begun_at + WAIT_SECONDS - monotonic())

    def wait(self, monotonic: Callable[[], float]) -> None:
        wait((self.done,), timeout=self.seconds_left(monotonic))


class KeySet:
    """Keys by their id. A file is read at once, so that a mistake in it shows when the service starts."""

    def __init__(self, place: str, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._place = place
        self._is_remote = "://" in place
        self._monotonic = monotonic
        self._mutex = Lock()
        self._keys: list[Jwk] | None = None
        self._read_at = float("-inf")
        self._tried_at = float("-inf")
        self._failed_at = float("-inf")
        self._failure: CommonplaceError | None = None
        self._reading: Reading | None = None
        if self._is_remote:
            _check_address(place)
        else:
            self._keys, self._read_at = self._read(), self._monotonic()
            self._tried_at = self._read_at

    def find(self, kid: str | None) -> Jwk | None:
        """The key with an id; without one, the only key there is."""
        reading = self.pending(kid)
        if reading is not None:
            reading.wait(self._monotonic)
        if self._keys is None:
            failure = self._failure or Unavailable(f"the keys at {self._place} have not come yet; try again soon")
            raise type(failure)(str(failure)) from failure
        return self._among(kid)

    def pending(self, kid: str | None) -> Reading | None:
        """What must end before `find` can tell of an id, begun here where it is due. It does not wait."""
        with self._mutex:
            now = self._monotonic()
            if self._keys is None:
                is_needed, is_due = True, now - self._failed_at >= FAILED_SECONDS
            elif self._among(kid) is None:
                is_needed, is_due = True, now - self._tried_at >= FLOOR_SECONDS
            else:
                # Known keys are good enough where the issuer has failed already: nobody waits for it each time.
                is_needed = self._failure is None and now - self._read_at > KEPT_SECONDS
                is_due = now - self._read_at > KEPT_SECONDS and now - self._tried_at >= FLOOR_SECONDS
            if self._reading is not None and now - self._reading.begun_at > LOST_SECONDS:
                self._reading = None
            if self._reading is None and is_due:
                self._tried_at = now
                self._reading = Reading(now)
                Thread(target=self._run, args=(self._reading,), name="commonplace-jwks", daemon=True).start()
            return self._reading if is_needed else None

    def _among(self, kid: str | None) -> Jwk | None:
        keys = self._keys or []
        if kid is None:
            return keys[0] if len(keys) == 1 else None
        return next((key for key in keys if key.get("kid") == kid), None)

    def _run(self, reading: Reading) -> None:
        keys: list[Jwk] | None = None
        failure: CommonplaceError | None = Unavailable(f"the keys at {self._place} could not be read; see the log")
        try:
            keys, failure = self._read(), None
        except CommonplaceError as error:
            _log.warning("the keys for tokens could not be read: %s", error)
            failure = error
        finally:
            self._end(reading, keys, failure)

    def _end(self, reading: Reading, keys: list[Jwk] | None, failure: CommonplaceError | None) -> None:
        with self._mutex:
            if self._reading is reading:
                self._reading = None
                self._failure = failure
                if keys is None:
                    self._failed_at = self._monotonic()
                else:
                    self._keys, self._read_at = keys, self._monotonic()
        reading.done.set_result(None)

    def _read(self) -> list[Jwk]:
        return _parsed(self._place, _fetched(self._place) if self._is_remote else _file(self._place))


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
            written = _body(url, response)
    except urllib.error.HTTPError as error:
        error.close()
        raise Unavailable(f"the keys at {url} could not be read: HTTP {error.code}") from error
    except (http.client.HTTPException, OSError) as error:
        reason = str(getattr(error, "reason", None) or error) or type(error).__name__
        raise Unavailable(f"the keys at {url} could not be read: {reason}") from error
    if len(written) > MAX_BYTES:
        raise Unavailable(f"{url} sent more than {MAX_BYTES:,} bytes, which is no key set")
    return written


def _body(url: str, response: http.client.HTTPResponse) -> bytes:
    """All of an answer within a time for the whole: the time-out of a socket is for each piece."""
    ends = time.monotonic() + TIMEOUT_SECONDS
    written = b""
    while len(written) <= MAX_BYTES and (piece := response.read1(MAX_BYTES)):
        written += piece
        if time.monotonic() > ends:
            raise Unavailable(f"the keys at {url} did not come within {TIMEOUT_SECONDS:g} s")
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
