"""The gate: from a request's headers to the principal that calls, or a refusal; every call is counted here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from commonplace.checks import Namespace
from commonplace.errors import Unauthorized
from commonplace.server.http.access.jwks import Reading
from commonplace.server.http.access.keys import PREFIX, Key, Keys
from commonplace.server.http.access.rates import Rate, Rates
from commonplace.server.http.access.tokens import Tokens
from commonplace.server.http.principal import Principal
from commonplace.space.rules import Action, Rules

CREDENTIAL_HEADERS = ("authorization", "x-api-key")
MAX_CREDENTIAL_CHARACTERS = 16_384


@dataclass(frozen=True, slots=True)
class Defaults:
    """What holds for every caller whose key does not say otherwise."""

    rate: Rate | None = None
    max_entries: int | None = None
    max_bytes: int | None = None


@dataclass(frozen=True)
class Gate:
    """`local` is who calls where there are neither keys nor tokens; None where that must never be."""

    keys: Keys
    local: Principal | None = None
    tokens: Tokens | None = None
    defaults: Defaults = field(default_factory=Defaults)
    rates: Rates = field(default_factory=Rates)
    checks_pages: bool = True
    """Whether requests that a web page of another site sends are refused while the gate is open."""

    def is_open(self) -> bool:
        """Whether a caller without credentials is let in."""
        return self.local is not None and self.tokens is None and not self.keys.any()

    def was_open(self) -> bool:
        """The same by what is known already, without reading."""
        return self.local is not None and self.tokens is None and not self.keys.had_any

    def is_quick(self, headers: Mapping[str, str]) -> bool:
        """Whether all of this is answered from memory, without reading from the store or checking a signature."""
        try:
            credential = credential_of(headers)
        except Unauthorized:
            return True
        if self.local is not None and self.tokens is None and not self.keys.is_any_known():
            return False
        if credential is None or not credential.startswith(PREFIX):
            return credential is None or self.tokens is None
        return self.keys.is_known(credential)

    def is_token(self, headers: Mapping[str, str]) -> bool:
        """Whether a caller shows a token, which is checked with the issuer's keys and not with ours."""
        try:
            credential = credential_of(headers)
        except Unauthorized:
            return False
        return self.tokens is not None and credential is not None and not credential.startswith(PREFIX)

    def pending(self, headers: Mapping[str, str]) -> Reading | None:
        """What a caller with a token has to wait for before `check`; it costs no thread to wait for it."""
        credential = credential_of(headers)
        return None if self.tokens is None or credential is None else self.tokens.pending(credential)

    def principal(self, headers: Mapping[str, str]) -> Principal:
        """Who calls; Unauthorized where that is unknown, RateLimited where it calls too often."""
        principal, rate = self.check(headers)
        if rate is not None:
            self.rates.take(principal.name, rate)
        return principal

    def check(self, headers: Mapping[str, str]) -> tuple[Principal, Rate | None]:
        """Who calls and how often it may, without counting."""
        credential = credential_of(headers)
        if credential is None:
            if self.local is None or not self.is_open():
                raise Unauthorized(
                    "this service needs a key: send it as `Authorization: Bearer cp_…`; "
                    "`commonplace keys create NAME` makes one"
                )
            return self.local, self.defaults.rate
        if credential.startswith(PREFIX):
            key = self.keys.check(credential)
            return self._of_key(key), key.rate or self.defaults.rate
        if self.tokens is not None:
            bearer = self.tokens.check(credential)
            rules = self._rules(bearer.actions, bearer.namespace)
            return Principal(bearer.name, bearer.namespace, "own", rules), self.defaults.rate
        raise Unauthorized("this is no key of commonplace, which begins with cp_; `commonplace keys create` makes one")

    def _of_key(self, key: Key) -> Principal:
        if key.reach != "all":
            rules = self._rules(key.actions, key.namespace)
            if key.max_entries is not None:
                rules = replace(rules, max_entries=key.max_entries)
            if key.max_bytes is not None:
                rules = replace(rules, max_bytes=key.max_bytes)
        elif key.max_entries is not None or key.max_bytes is not None:
            rules = Rules(key.actions, max_entries=key.max_entries, max_bytes=key.max_bytes, root=())
        else:
            rules = self._rules(key.actions, None)  # all that others hold is not this key's to answer for
        return Principal(key.name, key.namespace, key.reach, rules)

    def _rules(self, actions: frozenset[Action], root: Namespace | None) -> Rules:
        """The limits of all callers; they hold for everything below the caller's own namespace together."""
        given = self.defaults
        return Rules(actions, max_entries=given.max_entries, max_bytes=given.max_bytes, root=root)


@dataclass(frozen=True)
class OpenGate(Gate):
    """Lets every caller in as `local`, whatever it shows: for an app that runs behind another one's access control."""

    def is_open(self) -> bool:
        return True

    def was_open(self) -> bool:
        return True

    def is_quick(self, headers: Mapping[str, str]) -> bool:
        return True

    def check(self, headers: Mapping[str, str]) -> tuple[Principal, Rate | None]:
        assert self.local is not None
        return self.local, None


def credential_of(headers: Mapping[str, str]) -> str | None:
    """What a caller shows: `Authorization: Bearer …`, or `X-API-Key: …`."""
    written = headers.get("authorization")
    if written is None:
        return headers.get("x-api-key")
    scheme, _, credential = written.partition(" ")
    if scheme.lower() != "bearer" or not credential.strip() or len(credential) > MAX_CREDENTIAL_CHARACTERS:
        raise Unauthorized("the Authorization header must be `Bearer` and a key or a token")
    return credential.strip()
