"""Authentication: from a request's headers to the principal that calls, with its namespace, actions and limits.

Every call is counted against the caller's rate here. Arguments of a request never widen what its credentials allow.

Credentials are API keys (see `api_keys`) or JSON Web Tokens. Of tokens, only asymmetric signatures are accepted (RS,
PS, ES, EdDSA), never `none` or a shared secret, whatever the key set says. Expiry, not-before, audience and issuer are
checked. A claim fills one whole label of the namespace template.

The issuer's public keys (a JSON Web Key Set) come from a file or an address. They are read when first needed, again
after ten minutes, and again for an unknown key id, but at most every thirty seconds, so that invented key ids cause no
traffic. If a later read fails, the former keys stay in use. There is one read at a time, in a background thread, and
all callers that need it wait for the same result. A failure is cached for a while, so that an address that hangs does
not delay each caller in turn.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec
from threading import Lock, Thread
from typing import Any
from urllib.parse import quote, urlsplit

from commonplace.book import Book
from commonplace.checks import Namespace, local_path, parse_namespace
from commonplace.errors import (
    CommonplaceError,
    ConfigurationError,
    Forbidden,
    InvalidInput,
    Unauthorized,
    Unavailable,
    install_command,
)
from commonplace.server.http.api_keys import LOCAL, PREFIX, Key, Keys, Rate, Rates, Reach
from commonplace.server.http.oauth import ACCESS_PREFIX, Grants
from commonplace.server.http.origins import is_loopback
from commonplace.server.http.sessions import SESSION_PREFIX, Sessions
from commonplace.settings import Settings
from commonplace.space.names import MEMORY_STORE
from commonplace.space.rules import ACTIONS, Action, Rules
from commonplace.space.space import Space
from commonplace.tools.namespace_template import NamespaceTemplate

AGENT = "agent"
CREDENTIAL_HEADERS = ("authorization", "x-api-key")
MAX_CREDENTIAL_CHARACTERS = 16_384
ALGORITHMS = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
LEEWAY_SECONDS = 10
DEFAULT_ACTIONS: frozenset[Action] = frozenset(("read", "write", "delete"))
_MAX_NAME_CHARACTERS = 100

TIMEOUT_SECONDS = 5.0
WAIT_SECONDS = 6.0
KEPT_SECONDS = 600.0
FLOOR_SECONDS = 30.0
FAILED_SECONDS = 5.0
"""How long a failed first read is not repeated."""

LOST_SECONDS = 60.0
"""A read that takes longer is given up: the address sends a byte now and then."""

MAX_KEY_SET_BYTES = 1_000_000
_ASYMMETRIC = ("RSA", "EC", "OKP")
_log = logging.getLogger(__name__)

Jwk = dict[str, Any]


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

    @property
    def is_operator(self) -> bool:
        """Whether it may see and change what concerns the whole service, such as its keys and metrics."""
        return self.reach == "all" and "admin" in self.rules.actions

    def resolve(self, asked: str | None) -> Namespace:
        """The namespace of a request: the caller's own, or the one it names within its reach."""
        if asked is None:
            return self.namespace
        namespace = parse_namespace(asked)
        is_below = namespace[: len(self.namespace)] == self.namespace
        if namespace == self.namespace or self.reach == "all" or (self.reach == "below" and is_below):
            return namespace
        raise Forbidden(f"these credentials do not reach the namespace {asked}; leave it out, or use another key")

    def namespaces(
        self,
        book: Book,
        below: str | None = None,
        *,
        after: Namespace | None = None,
        limit: int = 1_000,
        emptied: bool = False,
        kinds: Sequence[str] | None = None,
        history: bool = False,
    ) -> list[Namespace]:
        """The namespaces of the book within this caller's reach, in order; below a prefix, or all."""
        found = book.namespaces(
            *self._prefix(below), after=after, limit=limit, emptied=emptied, kinds=kinds, history=history
        )
        return [one for one in found if one == self.namespace] if self.reach == "own" else found

    def _prefix(self, below: str | None) -> Namespace:
        asked = () if below is None else parse_namespace(below)
        if self.reach == "all":
            return asked
        own = self.namespace
        if own[: len(asked)] == asked:
            return own
        if self.reach == "below" and asked[: len(own)] == own:
            return asked
        raise Forbidden(f"these credentials do not reach the namespaces below {below}; leave it out or use another key")

    def space(self, book: Book, asked: str | None, *, interface: str, client: str | None = None) -> Space:
        """The only way from a caller to a memory. The actor of a write is `name interface client`."""
        return self._space(book, self.resolve(asked), interface, client)

    def root(self, book: Book) -> Space:
        """The space above all namespaces, for reads of the whole book, which its rules refuse to most callers."""
        return book.root(rules=self.reaching)

    def agent_space(self, book: Book, agent: str | None, *, interface: str, client: str | None = None) -> Space:
        """The memory of an agent, `("agent", id)` below the caller's own namespace, so that no key reaches another's.

        A caller that reaches everything shares the book's own agents, which are at the top level. Without an agent it
        is the caller's own memory.
        """
        above = () if self.reach == "all" else self.namespace
        labels = self.namespace if agent is None else (*above, AGENT, agent)
        return self._space(book, labels, interface, client)

    def store_space(
        self, book: Book, asked: str | None, store: str, *, interface: str, client: str | None = None
    ) -> Space:
        """The space of a memory store, below the caller's own namespace or the one it names within its reach."""
        return self._space(book, (*self.resolve(asked), MEMORY_STORE, store), interface, client)

    def _space(self, book: Book, namespace: Namespace, interface: str, client: str | None) -> Space:
        actor = " ".join(filter(None, (self.name, interface, client)))
        return book.space(*namespace, actor=actor, rules=self.reaching)

    @property
    def reaching(self) -> Rules:
        """The rules with the namespaces that this caller may read at once."""
        return replace(self.rules, reach={"all": (), "below": self.namespace, "own": None}[self.reach])


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

    has_oauth: bool = False
    """Whether MCP clients may ask people for access."""

    @cached_property
    def grants(self) -> Grants:
        """The access that people gave to MCP clients."""
        return Grants(self.keys)

    @cached_property
    def sessions(self) -> Sessions:
        """The sessions of browsers that showed a key."""
        return Sessions(self.keys)

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
        if credential is not None and credential.startswith((SESSION_PREFIX, ACCESS_PREFIX)):
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
        is_ours = credential is None or credential.startswith((PREFIX, SESSION_PREFIX, ACCESS_PREFIX))
        return self.tokens is not None and not is_ours

    def pending(self, headers: Mapping[str, str]) -> KeySetRead | None:
        """What a caller with a token has to wait for before `check`. Waiting for it needs no thread."""
        credential = credential_of(headers)
        return None if self.tokens is None or credential is None else self.tokens.pending(credential)

    def principal(self, headers: Mapping[str, str], path: str | None = None) -> Principal:
        """The caller; Unauthorized if it is unknown at this path, RateLimited if it calls too often."""
        principal, rate = self.check(headers, path)
        if rate is not None:
            self.rates.take(principal.name, rate)
        return principal

    def check(self, headers: Mapping[str, str], path: str | None = None) -> tuple[Principal, Rate | None]:
        """The caller and its rate, without counting the call. Without a path, any path is meant."""
        credential = credential_of(headers)
        if credential is None:
            if self.local is None or not self.is_open():
                raise Unauthorized(
                    "this service needs a key: send it as `Authorization: Bearer cp_…`; "
                    "`commonplace keys create NAME` makes one"
                )
            return self.local, self.defaults.rate
        if credential.startswith((PREFIX, SESSION_PREFIX)):
            is_key = credential.startswith(PREFIX)
            key = self.keys.check(credential) if is_key else self.sessions.check(credential)
            return self._of_key(key), key.rate or self.defaults.rate
        if self.has_oauth and credential.startswith(ACCESS_PREFIX):
            access = self.grants.check(credential)
            if path is not None and not access.covers(path):
                raise Unauthorized(f"this access token is for {access.path or '/mcp'}; use a key here")
            return self._of_key(access.key), access.key.rate or self.defaults.rate
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

    def check(self, headers: Mapping[str, str], path: str | None = None) -> tuple[Principal, Rate | None]:
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
    keys = Keys(book.store)
    has_keys = keys.any()
    if settings.oauth:
        _check_oauth(settings, has_keys=has_keys, key_command=key_command)
    tokens = _tokens(settings)
    defaults = Defaults(
        rate=None if settings.rate is None else Rate.parse(settings.rate),
        max_entries=settings.max_entries,
        max_bytes=settings.max_bytes,
    )
    if is_loopback(settings.host):
        rules = Rules(max_entries=defaults.max_entries, max_bytes=defaults.max_bytes)
        return Gate(
            keys, Principal(LOCAL, settings.namespace_labels, "all", rules), tokens, defaults, has_oauth=settings.oauth
        )
    if tokens is None and not has_keys:
        raise ConfigurationError(
            f"other computers could reach {settings.host}, and the book has no keys: make one first with "
            f"`{key_command}`, or listen on 127.0.0.1"
        )
    return Gate(keys, None, tokens, defaults, has_oauth=settings.oauth)


def _check_oauth(settings: Settings, *, has_keys: bool, key_command: str) -> None:
    if settings.jwt_jwks is not None:
        raise ConfigurationError(
            "--oauth and --jwt-jwks exclude each other: an MCP client accepts only one authorization server"
        )
    if not has_keys:
        raise ConfigurationError(f"--oauth needs a key with which people sign in; make one first with `{key_command}`")
    is_secure = (settings.public_url or "").startswith("https://")
    if not is_secure and not is_loopback(settings.host):
        raise ConfigurationError(
            "--oauth needs the https:// address of the service if other computers can reach it: give --public-url"
        )


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


# JSON Web Tokens


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """Which tokens are accepted. `namespace` is a template such as `user/{user_id}`, filled from the claims.

    `actions_claim` names the claim that lists the actions, as words or as a list. Without it, a token may read, write
    and delete. A token whose claim lists no action may read.
    """

    jwks: str
    audience: str
    issuer: str
    namespace: str = "user/{sub}"
    actions_claim: str | None = None


@dataclass(frozen=True, slots=True)
class TokenBearer:
    """The contents of a valid token."""

    name: str
    namespace: Namespace
    actions: frozenset[Action]


class Tokens:
    """Verifies the tokens of one issuer."""

    def __init__(self, settings: TokenSettings) -> None:
        if find_spec("jwt") is None or find_spec("cryptography") is None:
            raise ConfigurationError(f"tokens need the package pyjwt; run: {install_command('server')}")
        self._settings = settings
        self._template = NamespaceTemplate(tuple(settings.namespace.split("/")))
        self._keys = KeySet(settings.jwks)

    def pending(self, token: str) -> KeySetRead | None:
        """The read of the issuer's keys that `check` would wait for."""
        import jwt

        try:
            kid = jwt.get_unverified_header(token).get("kid")
        except jwt.PyJWTError:
            return None
        return self._keys.pending(kid if isinstance(kid, str) else None)

    def check(self, token: str) -> TokenBearer:
        claims = self._claims(token)
        try:
            # Under `configurable` only the claims count, so a claim of that name cannot replace them.
            namespace = self._template.resolve({"configurable": claims})
        except CommonplaceError as error:
            raise Unauthorized(f"the token opens no memory: {error}") from error
        return TokenBearer(_name(claims.get("sub"), namespace), namespace, self._actions(claims))

    def _claims(self, token: str) -> Mapping[str, Any]:
        import jwt

        try:
            header = jwt.get_unverified_header(token)
            key = self._key(header)
            claims: dict[str, Any] = jwt.decode(
                token,
                key=key,
                algorithms=[key.algorithm_name],
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "aud", "iss"], "enforce_minimum_key_length": True},
            )
        except jwt.PyJWTError as error:
            raise Unauthorized(f"the token is refused: {error}; ask its issuer for a new one") from error
        return claims

    def _key(self, header: Mapping[str, Any]) -> Any:
        """The public key for a token, with an algorithm that fits the type of the key, whatever the token asks for."""
        from jwt import PyJWK
        from jwt.exceptions import InvalidAlgorithmError, InvalidKeyError

        kid = header.get("kid")
        found: Jwk | None = self._keys.find(kid if isinstance(kid, str) else None)
        if found is None:
            raise InvalidKeyError("it was signed with a key that is not in the issuer's key set")
        asked = header.get("alg")
        if asked not in ALGORITHMS[found["kty"]] or found.get("alg", asked) != asked:
            raise InvalidAlgorithmError("its algorithm does not fit the key")
        return PyJWK(found, algorithm=asked)

    def _actions(self, claims: Mapping[str, Any]) -> frozenset[Action]:
        name = self._settings.actions_claim
        if name is None:
            return DEFAULT_ACTIONS
        listed = claims.get(name, ())
        words = listed.split() if isinstance(listed, str) else listed if isinstance(listed, (list, tuple)) else ()
        return frozenset(action for action in ACTIONS if action in words or action == "read")


def _name(subject: object, namespace: Namespace) -> str:
    """One word for the history. It has a colon, so it is never the name of a key."""
    said = subject if isinstance(subject, str) and subject else "/".join(namespace)
    word = quote(said, safe="@+:|/", errors="replace")
    if len(word) > _MAX_NAME_CHARACTERS:
        word = hashlib.sha256(word.encode()).hexdigest()
    return f"jwt:{word}"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(frozen=True, slots=True)
class KeySetRead:
    """A read in progress, shared by all callers that need it. Its result is in the key set."""

    begun_at: float
    done: Future[None] = field(default_factory=Future)

    def seconds_left(self, monotonic: Callable[[], float]) -> float:
        """How long a caller may still wait for it."""
        return max(0.0, self.begun_at + WAIT_SECONDS - monotonic())

    def wait(self, monotonic: Callable[[], float]) -> None:
        wait((self.done,), timeout=self.seconds_left(monotonic))


class KeySet:
    """Keys by their id. A file is read at once, so that you see a mistake in it when the service starts."""

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
        self._reading: KeySetRead | None = None
        if self._is_remote:
            _check_address(place)
        else:
            self._keys, self._read_at = self._read(), self._monotonic()
            self._tried_at = self._read_at

    def find(self, kid: str | None) -> Jwk | None:
        """The key with an id; without an id, the only key of the set."""
        reading = self.pending(kid)
        if reading is not None:
            reading.wait(self._monotonic)
        if self._keys is None:
            failure = self._failure or Unavailable(f"the keys at {self._place} have not arrived yet; try again soon")
            raise type(failure)(str(failure)) from failure
        return self._among(kid)

    def pending(self, kid: str | None) -> KeySetRead | None:
        """The read that must end before `find` knows an id. Starts one if it is due, and does not wait."""
        with self._mutex:
            now = self._monotonic()
            if self._keys is None:
                is_needed, is_due = True, now - self._failed_at >= FAILED_SECONDS
            elif self._among(kid) is None:
                is_needed, is_due = True, now - self._tried_at >= FLOOR_SECONDS
            else:
                # After a failed read the known keys are used, so that callers do not wait for the issuer each time.
                is_needed = self._failure is None and now - self._read_at > KEPT_SECONDS
                is_due = now - self._read_at > KEPT_SECONDS and now - self._tried_at >= FLOOR_SECONDS
            if self._reading is not None and now - self._reading.begun_at > LOST_SECONDS:
                self._reading = None
            if self._reading is None and is_due:
                self._tried_at = now
                self._reading = KeySetRead(now)
                Thread(target=self._run, args=(self._reading,), name="commonplace-jwks", daemon=True).start()
            return self._reading if is_needed else None

    def _among(self, kid: str | None) -> Jwk | None:
        keys = self._keys or []
        if kid is None:
            return keys[0] if len(keys) == 1 else None
        return next((key for key in keys if key.get("kid") == kid), None)

    def _run(self, reading: KeySetRead) -> None:
        keys: list[Jwk] | None = None
        failure: CommonplaceError | None = Unavailable(f"the keys at {self._place} cannot be read; see the log")
        try:
            keys, failure = self._read(), None
        except CommonplaceError as error:
            _log.warning("cannot read the keys for tokens: %s", error)
            failure = error
        finally:
            self._end(reading, keys, failure)

    def _end(self, reading: KeySetRead, keys: list[Jwk] | None, failure: CommonplaceError | None) -> None:
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
        raise Unavailable(f"the keys at {url} cannot be read: HTTP {error.code}") from error
    except (http.client.HTTPException, OSError) as error:
        reason = str(getattr(error, "reason", None) or error) or type(error).__name__
        raise Unavailable(f"the keys at {url} cannot be read: {reason}") from error
    if len(written) > MAX_KEY_SET_BYTES:
        raise Unavailable(f"{url} sent more than {MAX_KEY_SET_BYTES:,} bytes, too many for a key set")
    return written


def _body(url: str, response: http.client.HTTPResponse) -> bytes:
    """The body, within a time limit for all of it: the timeout of a socket is per read."""
    ends = time.monotonic() + TIMEOUT_SECONDS
    written = b""
    while len(written) <= MAX_KEY_SET_BYTES and (piece := response.read1(MAX_KEY_SET_BYTES)):
        written += piece
        if time.monotonic() > ends:
            raise Unavailable(f"the keys at {url} did not arrive within {TIMEOUT_SECONDS:g} s")
    return written


def _parsed(place: str, written: bytes) -> list[Jwk]:
    """The public keys for signatures. Shared secrets and private keys are left out."""
    try:
        keys = json.loads(written)["keys"]
        usable = [
            key for key in keys if key.get("kty") in _ASYMMETRIC and key.get("use", "sig") == "sig" and "d" not in key
        ]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ConfigurationError(
            f'{place} is not a JSON Web Key Set, such as {{"keys": [{{"kty": "RSA", …}}]}}'
        ) from error
    if not usable:
        raise ConfigurationError(f"{place} has no public key (RSA, EC or Ed25519) to verify signatures with")
    return usable
