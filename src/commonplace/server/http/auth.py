"""Authentication: from a request's headers to the principal that calls, with its namespace, actions and limits.

Every call is counted against the caller's rate here. Arguments of a request never widen what its credentials allow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from commonplace.book import Book
from commonplace.checks import Namespace, parse_namespace
from commonplace.errors import ConfigurationError, Forbidden, Unauthorized
from commonplace.server.http.api_keys import LOCAL, PREFIX, Key, Keys, Rate, Rates, Reach
from commonplace.server.http.jwt_auth import KeySetRead, Tokens, TokenSettings
from commonplace.server.http.origins import is_loopback
from commonplace.settings import Settings
from commonplace.space.rules import Action, Rules
from commonplace.space.space import Space

AGENT = "agent"
CREDENTIAL_HEADERS = ("authorization", "x-api-key")
MAX_CREDENTIAL_CHARACTERS = 16_384


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller as its credentials describe it. The history names it as the actor of its writes."""

    name: str
    namespace: Namespace
    reach: Reach = "own"
    rules: Rules = field(default_factory=Rules)

    @property
    def share(self) -> str | None:
        """The name under which its share of threads and requests is counted; None may use all of them.

        A book without keys has a single caller.
        """
        return None if self.name == LOCAL else self.name

    def resolve(self, asked: str | None) -> Namespace:
        """The namespace of a request: the caller's own, or the one it names within its reach."""
        if asked is None:
            return self.namespace
        namespace = parse_namespace(asked)
        is_below = namespace[: len(self.namespace)] == self.namespace
        if namespace == self.namespace or self.reach == "all" or (self.reach == "below" and is_below):
            return namespace
        raise Forbidden(f"this access does not reach the namespace {asked}; leave it out, or use another key")

    def space(self, book: Book, asked: str | None, *, face: str, client: str | None = None) -> Space:
        """The only way from a caller to a memory. The actor of a write is `name face client`."""
        return self._space(book, self.resolve(asked), face, client)

    def agent_space(self, book: Book, agent: str | None, *, face: str, client: str | None = None) -> Space:
        """The memory of an agent, `("agent", id)` below the caller's own namespace, so that no key reaches another's.

        A caller that reaches everything shares the book's own agents, which are at the top level. Without an agent it
        is the caller's own memory.
        """
        above = () if self.reach == "all" else self.namespace
        labels = self.namespace if agent is None else (*above, AGENT, agent)
        return self._space(book, labels, face, client)

    def _space(self, book: Book, namespace: Namespace, face: str, client: str | None) -> Space:
        actor = " ".join(filter(None, (self.name, face, client)))
        return book.space(*namespace, actor=actor, rules=self.rules)


@dataclass(frozen=True, slots=True)
class Defaults:
    """Limits of every caller whose key does not set its own."""

    rate: Rate | None = None
    max_entries: int | None = None
    max_bytes: int | None = None


@dataclass(frozen=True)
class Gate:
    """Finds the principal of a request.

    `local` is the caller while there are neither keys nor tokens. It is None if every caller needs credentials.
    """

    keys: Keys
    local: Principal | None = None
    tokens: Tokens | None = None
    defaults: Defaults = field(default_factory=Defaults)
    rates: Rates = field(default_factory=Rates)
    checks_pages: bool = True
    """Whether to refuse requests that a web page of another site sends, while no credentials are needed."""

    def is_open(self) -> bool:
        """Whether a caller without credentials is admitted."""
        return self.local is not None and self.tokens is None and not self.keys.any()

    def was_open(self) -> bool:
        """The last known answer of `is_open`, without reading from the store."""
        return self.local is not None and self.tokens is None and not self.keys.had_any

    def is_quick(self, headers: Mapping[str, str]) -> bool:
        """Whether `check` answers from its caches, without reading from the store or verifying a signature."""
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
        """Whether a caller sends a token, which is verified with the issuer's keys."""
        try:
            credential = credential_of(headers)
        except Unauthorized:
            return False
        return self.tokens is not None and credential is not None and not credential.startswith(PREFIX)

    def pending(self, headers: Mapping[str, str]) -> KeySetRead | None:
        """What a caller with a token has to wait for before `check`. Waiting for it needs no thread."""
        credential = credential_of(headers)
        return None if self.tokens is None or credential is None else self.tokens.pending(credential)

    def principal(self, headers: Mapping[str, str]) -> Principal:
        """The caller; Unauthorized if it is unknown, RateLimited if it calls too often."""
        principal, rate = self.check(headers)
        if rate is not None:
            self.rates.take(principal.name, rate)
        return principal

    def check(self, headers: Mapping[str, str]) -> tuple[Principal, Rate | None]:
        """The caller and its rate, without counting the call."""
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
        raise Unauthorized(
            "this is not a key of commonplace, which begins with cp_; `commonplace keys create` makes one"
        )

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
            rules = self._rules(key.actions, None)  # what others store does not count against this key
        return Principal(key.name, key.namespace, key.reach, rules)

    def _rules(self, actions: frozenset[Action], root: Namespace | None) -> Rules:
        """The default limits. They hold for everything below the caller's own namespace together."""
        given = self.defaults
        return Rules(actions, max_entries=given.max_entries, max_bytes=given.max_bytes, root=root)


@dataclass(frozen=True)
class OpenGate(Gate):
    """Admits every caller as `local`, whatever it sends, for an app behind another access control."""

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
    """The credential of a request: `Authorization: Bearer …`, or `X-API-Key: …`."""
    written = headers.get("authorization")
    if written is None:
        return headers.get("x-api-key")
    scheme, _, credential = written.partition(" ")
    if scheme.lower() != "bearer" or not credential.strip() or len(credential) > MAX_CREDENTIAL_CHARACTERS:
        raise Unauthorized("the Authorization header must be `Bearer` and a key or a token")
    return credential.strip()


def make_gate(book: Book, settings: Settings, key_command: str = "commonplace keys create NAME") -> Gate:
    """The gate that the settings describe. It refuses a service that other computers could use without a key."""
    keys, tokens = Keys(book.store), _tokens(settings)
    defaults = Defaults(
        rate=None if settings.rate is None else Rate.parse(settings.rate),
        max_entries=settings.max_entries,
        max_bytes=settings.max_bytes,
    )
    has_keys = keys.any()
    if is_loopback(settings.host):
        rules = Rules(max_entries=defaults.max_entries, max_bytes=defaults.max_bytes)
        return Gate(keys, Principal(LOCAL, settings.namespace_labels, "all", rules), tokens, defaults)
    if tokens is None and not has_keys:
        raise ConfigurationError(
            f"other computers could reach {settings.host}, and the book has no keys: make one first with "
            f"`{key_command}`, or listen on 127.0.0.1"
        )
    return Gate(keys, None, tokens, defaults)


def _tokens(settings: Settings) -> Tokens | None:
    if settings.jwt_jwks is None:
        others = (settings.jwt_audience, settings.jwt_issuer, settings.jwt_actions_claim)
        if any(others) or settings.jwt_namespace != Settings.jwt_namespace:
            raise ConfigurationError("tokens need the issuer's keys too: give --jwt-jwks FILE or an https:// address")
        return None
    if settings.jwt_audience is None or settings.jwt_issuer is None:
        # Without them, a token for another service of the same issuer would be accepted here.
        raise ConfigurationError("--jwt-jwks needs --jwt-audience and --jwt-issuer too")
    return Tokens(
        TokenSettings(
            settings.jwt_jwks,
            settings.jwt_audience,
            settings.jwt_issuer,
            settings.jwt_namespace,
            settings.jwt_actions_claim,
        )
    )
