"""JSON Web Tokens: from a signed token to whose memory it opens and what may be done there.

Only signatures of a private key count (RS, PS, ES, EdDSA): `none` and shared secrets are refused whatever the key set
says. Expiry, not-before, audience and issuer are all checked. A claim fills one whole label of the template.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any
from urllib.parse import quote

from commonplace.checks import Namespace
from commonplace.errors import CommonplaceError, ConfigurationError, Unauthorized, install_command
from commonplace.server.http.access.jwks import Jwk, KeySet, Reading
from commonplace.space.rules import ACTIONS, Action
from commonplace.tools.namespace_template import NamespaceTemplate

ALGORITHMS = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
LEEWAY_SECONDS = 10
DEFAULT_ACTIONS: frozenset[Action] = frozenset(("read", "write", "delete"))
_MAX_NAME_CHARACTERS = 100


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """Which tokens are taken. `namespace` is a template such as `user/{user_id}`, filled from the claims.

    `actions_claim` names the claim that lists the actions, as words or as a list; without one a token may read, write
    and delete. A token whose claim lists none may read.
    """

    jwks: str
    audience: str
    issuer: str
    namespace: str = "user/{sub}"
    actions_claim: str | None = None


@dataclass(frozen=True, slots=True)
class TokenBearer:
    """What a good token says."""

    name: str
    namespace: Namespace
    actions: frozenset[Action]


class Tokens:
    """Checks tokens against one issuer's keys."""

    def __init__(self, settings: TokenSettings) -> None:
        if find_spec("jwt") is None or find_spec("cryptography") is None:
            raise ConfigurationError(f"tokens need the package pyjwt; run: {install_command('server')}")
        self._settings = settings
        self._template = NamespaceTemplate(tuple(settings.namespace.split("/")))
        self._keys = KeySet(settings.jwks)

    def pending(self, token: str) -> Reading | None:
        """What `check` would wait for: the read of the issuer's keys that this token needs."""
        import jwt

        try:
            kid = jwt.get_unverified_header(token).get("kid")
        except jwt.PyJWTError:
            return None
        return self._keys.pending(kid if isinstance(kid, str) else None)

    def check(self, token: str) -> TokenBearer:
        claims = self._claims(token)
        try:
            # Under `configurable` the claims alone count: a claim of that name is then no way around them.
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
        """The public key for a token, bound to an algorithm of the key's own kind, whatever the token asks for."""
        from jwt import PyJWK
        from jwt.exceptions import InvalidAlgorithmError, InvalidKeyError

        kid = header.get("kid")
        found: Jwk | None = self._keys.find(kid if isinstance(kid, str) else None)
        if found is None:
            raise InvalidKeyError("it was signed with a key that the issuer's key set does not have")
        asked = header.get("alg")
        if asked not in ALGORITHMS[found["kty"]] or found.get("alg", asked) != asked:
            raise InvalidAlgorithmError("its algorithm is not that of the key")
        return PyJWK(found, algorithm=asked)

    def _actions(self, claims: Mapping[str, Any]) -> frozenset[Action]:
        name = self._settings.actions_claim
        if name is None:
            return DEFAULT_ACTIONS
        listed = claims.get(name, ())
        words = listed.split() if isinstance(listed, str) else listed if isinstance(listed, (list, tuple)) else ()
        return frozenset(action for action in ACTIONS if action in words or action == "read")


def _name(subject: object, namespace: Namespace) -> str:
    """One word for the history, never that of a key: those have no colon."""
    said = subject if isinstance(subject, str) and subject else "/".join(namespace)
    word = quote(said, safe="@+:|/", errors="replace")
    if len(word) > _MAX_NAME_CHARACTERS:
        word = hashlib.sha256(word.encode()).hexdigest()
    return f"jwt:{word}"
