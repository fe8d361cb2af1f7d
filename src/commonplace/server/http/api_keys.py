"""API keys and rates. A key is shown once and stored as a hash; a revoked key is refused within two seconds."""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from threading import Lock
from typing import Any, Literal, cast

from commonplace.checks import JSON, Namespace, check_namespace
from commonplace.errors import AlreadyExists, InvalidInput, NotFound, RateLimited, Unauthorized
from commonplace.space.rules import ACTIONS, Action
from commonplace.store import Store

PREFIX = "cp_"
LOCAL = "local"
"""The name of a caller without a key. No key may have it, so that the history can tell them apart."""

REMEMBERED_SECONDS = 2.0
MAX_REMEMBERED = 10_000
USED_EVERY_MICROSECONDS = 3_600_000_000
"""The resolution of `last_used_at`: a key in use costs one write per hour."""

LATEST_EXPIRY = round(datetime(9999, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
"""A later time cannot be shown as a date in every time zone."""

MAX_CALLERS = 10_000
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_WRITTEN = re.compile(r"([1-9]\d{0,8})/([smhd])")

_PART, _USED_PART = "keys", "keys-used"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SECRET_BYTES = 32
_TEXT = re.compile(rf"{PREFIX}([0-9a-f]{{12}})_([0-9a-f]{{{2 * _SECRET_BYTES}}})")


Reach = Literal["own", "below", "all"]
"""The namespaces that a caller may name: only its own, those below it too, or all of the book."""


def system_time() -> int:
    return time.time_ns() // 1_000


@dataclass(frozen=True, slots=True)
class Rate:
    """How many calls in how many seconds; a caller that was idle may make all of them at once."""

    calls: int
    seconds: int

    @classmethod
    def parse(cls, text: str) -> Rate:
        match = _WRITTEN.fullmatch(text.strip().lower())
        if match is None:
            raise InvalidInput(f"{text!r} is not a rate; write calls per second, minute, hour or day, such as 100/m")
        return cls(int(match[1]), _SECONDS[match[2]])

    def __str__(self) -> str:
        return f"{self.calls}/{next(unit for unit, seconds in _SECONDS.items() if seconds == self.seconds)}"


class Rates:
    """One token bucket per caller, in this process. When there are too many, the one idle longest is dropped."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str, rate: Rate) -> None:
        """Count one call, or raise RateLimited with the seconds until the next call is allowed."""
        now = self._clock()
        with self._lock:
            held, at = self._buckets.pop(caller, (float(rate.calls), now))
            held = min(rate.calls, held + (now - at) * rate.calls / rate.seconds)
            is_taken = held >= 1
            self._buckets[caller] = (held - 1 if is_taken else held, now)
            if len(self._buckets) > MAX_CALLERS:
                self._buckets.popitem(last=False)
        if not is_taken:
            wait = math.ceil((1 - held) * rate.seconds / rate.calls)
            raise RateLimited(f"the rate limit is {rate} calls; try again in {wait} s", wait)


@dataclass(frozen=True, slots=True)
class Key:
    """What a key allows; times are in microseconds since 1970. The secret is not here, the store has its hash."""

    name: str
    namespace: Namespace
    reach: Reach = "own"
    actions: frozenset[Action] = frozenset(("read", "write", "delete"))
    expires_at: int | None = None
    rate: Rate | None = None
    max_entries: int | None = None
    max_bytes: int | None = None
    created_at: int = 0
    revoked_at: int | None = None

    @property
    def id(self) -> str:
        """The part of the key's text before its secret. It is a hash of the name, so it is unique."""
        return hashlib.sha256(self.name.encode()).hexdigest()[:12]

    @property
    def opens(self) -> str:
        """Which namespaces it opens and what it may do there, in words."""
        place = "/".join(self.namespace)
        reached = {"own": place, "below": f"{place} and below", "all": f"everything (its own: {place})"}[self.reach]
        return f"{reached}: {', '.join(action for action in ACTIONS if action in self.actions)}"


class Keys:
    """The keys of a store. A lookup is cached for two seconds, also that of a revoked or unknown key."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], int] = system_time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store = store
        self.clock = clock
        self._monotonic = monotonic
        self._lock = Lock()
        self._known: OrderedDict[str, tuple[float, Key | None, bytes]] = OrderedDict()
        self._forgotten = 0
        self._used: dict[str, int] = {}
        self._any: tuple[float, bool] = (float("-inf"), False)

    def create(self, key: Key) -> tuple[Key, str]:
        """Store a new key. Returns the key and its text, which cannot be shown again."""
        if _NAME.fullmatch(key.name) is None or key.name == LOCAL:
            raise InvalidInput(
                f"{key.name!r} is not a valid name for a key; use letters, digits, dots, dashes and underscores, "
                f"at most 64, and not {LOCAL!r}"
            )
        check_namespace(key.namespace)
        if key.expires_at is not None and key.expires_at > LATEST_EXPIRY:
            raise InvalidInput("a key must expire before the year 9999; leave the expiry out to let it never expire")
        secret = secrets.token_hex(_SECRET_BYTES)
        made = replace(key, created_at=self.clock(), revoked_at=None, actions=key.actions | {"read"})
        row = {**_row(made), "hash": _hash(secret).hex()}
        if not self.store.system_put(_PART, made.id, row, only_new=True):
            raise AlreadyExists(
                f"a key {key.name} exists already, in use or revoked; choose another name, "
                f"or remove that key: commonplace keys revoke {key.name} --forget"
            )
        self._forget(made.id)
        return made, f"{PREFIX}{made.id}_{secret}"

    def list(self) -> list[tuple[Key, int | None]]:
        """Every key with the time of its last use, to the hour; the oldest key first."""
        used = self.store.system_list(_USED_PART)
        found = [(_key(row), cast("int | None", used.get(id))) for id, row in self.store.system_list(_PART).items()]
        return sorted(found, key=lambda one: (one[0].created_at, one[0].name))

    def revoke(self, name: str, *, forget: bool = False) -> Key:
        """Refuse a key from now on. Its row stays, so that authentication stays on, unless you `forget` it."""
        id = Key(name, ()).id
        row = self.store.system_get(_PART, id)
        if row is None:
            raise NotFound(f"there is no key {name}; `commonplace keys list` shows all keys")
        key = _key(row)
        if forget:
            self.store.system_delete(_PART, id)
            self.store.system_delete(_USED_PART, id)
        elif key.revoked_at is None:
            key = replace(key, revoked_at=self.clock())
            self.store.system_put(_PART, id, {**cast("dict[str, JSON]", row), "revoked_at": key.revoked_at})
        self._forget(id)
        return key

    def any(self) -> bool:
        """Whether the book has keys, in use or revoked. Once this was true, it stays true for this object."""
        if not self.is_any_known():
            self._any = (self._monotonic(), bool(self.store.system_list(_PART)))
        return self._any[1]

    def is_any_known(self) -> bool:
        """Whether `any` would answer from its cache."""
        at, is_any = self._any
        return is_any or self._monotonic() - at <= REMEMBERED_SECONDS

    @property
    def had_any(self) -> bool:
        """The last result of `any`; False before its first call."""
        return self._any[1]

    def is_known(self, text: str) -> bool:
        """Whether `check` would answer from its cache."""
        parts = _split(text)
        return parts is None or self._remembered(parts[0]) is not None

    def check(self, text: str) -> Key:
        """The key with this text; Unauthorized if it is unknown, revoked or expired."""
        parts = _split(text)
        key, hashed = (None, b"") if parts is None else self._remembered(parts[0]) or self._read(parts[0])
        if parts is None or key is None or not hmac.compare_digest(_hash(parts[1]), hashed):
            raise Unauthorized("this key is unknown; `commonplace keys list` shows the keys of the book")
        return self._in_use(key)

    def find(self, id: str) -> Key:
        """The key with this id, whose text was checked before; Unauthorized if it is unknown, revoked or expired."""
        key, _ = self._remembered(id) or self._read(id)
        if key is None:
            raise Unauthorized("this key is unknown; `commonplace keys list` shows the keys of the book")
        return self._in_use(key)

    def _in_use(self, key: Key) -> Key:
        if key.revoked_at is not None:
            raise Unauthorized(f"the key {key.name} was revoked; create another: commonplace keys create")
        if key.expires_at is not None and key.expires_at <= self.clock():
            raise Unauthorized(f"the key {key.name} has expired; create another: commonplace keys create")
        self._used[key.id] = self.clock()
        return key

    def record_uses(self) -> None:
        """Store when keys were last used, to the hour. A background task calls it, so that no request waits for it."""
        for id, at in [*self._used.items()]:
            known = cast("int | None", self.store.system_get(_USED_PART, id))
            if known is None or at - known >= USED_EVERY_MICROSECONDS:
                self.store.system_put(_USED_PART, id, at)
            if self._used.get(id) == at:
                del self._used[id]

    def _remembered(self, id: str) -> tuple[Key | None, bytes] | None:
        with self._lock:
            at, key, hashed = self._known.get(id, (float("-inf"), None, b""))
        return (key, hashed) if self._monotonic() - at <= REMEMBERED_SECONDS else None

    def _read(self, id: str) -> tuple[Key | None, bytes]:
        now, forgotten = self._monotonic(), self._forgotten
        row = cast("Mapping[str, Any] | None", self.store.system_get(_PART, id))
        key = None if row is None else _key(row)
        hashed = b"" if row is None else bytes.fromhex(row["hash"])
        with self._lock:
            if forgotten == self._forgotten:  # otherwise it may have been revoked since it was read
                self._known[id] = (now, key, hashed)
                self._known.move_to_end(id)
            if len(self._known) > MAX_REMEMBERED:
                self._known.popitem(last=False)
        return key, hashed

    def _forget(self, id: str) -> None:
        with self._lock:
            self._forgotten += 1
            self._known.pop(id, None)
        if not self._any[1]:
            self._any = (float("-inf"), False)


def _split(text: str) -> tuple[str, str] | None:
    """The id and the secret in a key's text; None if the text does not have the form of a key."""
    match = _TEXT.fullmatch(text)
    return None if match is None else (match[1], match[2])


def _hash(secret: str) -> bytes:
    # The secret has 256 random bits, so a slow hash for guessable passwords would add nothing.
    return hashlib.sha256(secret.encode()).digest()


def _row(key: Key) -> dict[str, JSON]:
    return {
        "name": key.name,
        "namespace": list(key.namespace),
        "reach": key.reach,
        "actions": sorted(key.actions),
        "expires_at": key.expires_at,
        "rate": None if key.rate is None else [key.rate.calls, key.rate.seconds],
        "max_entries": key.max_entries,
        "max_bytes": key.max_bytes,
        "created_at": key.created_at,
        "revoked_at": key.revoked_at,
    }


def _key(value: JSON) -> Key:
    row = dict(cast("Mapping[str, Any]", value))
    row.pop("hash")
    rate, expires_at = row.pop("rate"), row.pop("expires_at")
    return Key(
        **{
            **row,
            "namespace": tuple(row["namespace"]),
            "actions": frozenset(row["actions"]),
            "rate": None if rate is None else Rate(*rate),
            "expires_at": None if expires_at is None else min(expires_at, LATEST_EXPIRY),  # earlier versions took any
        }
    )
