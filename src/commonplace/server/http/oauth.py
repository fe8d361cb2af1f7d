"""An OAuth 2.1 authorization server for MCP clients that demand one: `commonplace serve --oauth`.

A client registers itself (RFC 7591) and sends a person to the page, who signs in with a key and approves. The client
gets an access token for an hour and a refresh token, both bound to that key: they reach the key's namespace, allow at
most its actions, and end with it. PKCE with S256 is required. An address to return to is https, or on this computer.

The store holds hashes of tokens and codes, never their text. A code and a refresh token work once; when one is shown
again, somebody else may have it, so the whole grant ends.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from anyio.to_thread import run_sync
from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import JSONResponse, Response
from mcp.server.auth.handlers.authorize import AuthorizationHandler
from mcp.server.auth.handlers.register import RegistrationHandler
from mcp.server.auth.handlers.token import TokenHandler
from mcp.server.auth.middleware.client_auth import AuthenticationError, ClientAuthenticator
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    AuthorizeError,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    RegistrationError,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.settings import ClientRegistrationOptions
from mcp.shared.auth import InvalidRedirectUriError, OAuthClientInformationFull, OAuthToken
from pydantic import AnyUrl, ValidationError
from starlette.types import Message

from commonplace.checks import JSON
from commonplace.errors import InvalidInput, Unauthorized
from commonplace.server.http.api_keys import Key, Keys, Rate, Rates
from commonplace.server.http.origins import MISDIRECTED, base_url, is_loopback
from commonplace.space.rules import Action

ACCESS_PREFIX = "oauth_"
"""Begins an access token, so that it is not taken for a key, a session or a JSON Web Token."""

PATH = "/oauth"
CONSENT_PATH = "/ui/authorize"
METADATA_PATH = "/.well-known/oauth-authorization-server"
SCOPES: tuple[Action, ...] = ("read", "write", "delete")
CODE_SECONDS = 60
ACCESS_SECONDS = 3_600
REFRESH_SECONDS = 90 * 86_400
UNUSED_CLIENT_SECONDS = 86_400
"""How long a registration lasts that nobody has approved. An approved one lasts as long as its refresh token."""

MAX_CLIENTS = 1_000
MAX_GRANTS = 10_000
MAX_REDIRECTS = 10
MAX_REGISTRATION_BYTES = 16_384
REGISTRATIONS = Rate(60, 60)
"""How often clients may register, all together: a registration needs no key."""

_CLIENTS, _CODES, _GRANTS = "oauth-clients", "oauth-codes", "oauth-grants"
_REFRESH_PREFIX = "refresh_"
_TOKEN = re.compile(r"(?:[a-z]+_)?([0-9a-f]{32})_([0-9a-f]{64})")
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
_RESOURCE = re.compile(r"(/mcp(/[a-z]+)?)?/?")
_MICROSECONDS = 1_000_000

Row = dict[str, Any]


class OtherService(InvalidInput):
    """A client asks for a token for another service."""


@dataclass(frozen=True, slots=True)
class Authorization:
    """What a client asks a person for, checked against its registration."""

    client_id: str
    client_name: str
    redirect_uri: str
    is_redirect_explicit: bool
    challenge: str
    scopes: tuple[Action, ...]
    resource: str | None
    state: str | None

    @property
    def site(self) -> str:
        """Where the browser goes afterwards: the only thing about a client that it cannot invent."""
        return urlsplit(self.redirect_uri).netloc

    def answer(self, issuer: str, **result: str) -> str:
        """The address that tells the client what the person decided."""
        return construct_redirect_uri(self.redirect_uri, **result, state=self.state, iss=issuer)


@dataclass(frozen=True, slots=True)
class Access:
    """A key as an access token may use it, and the path of the resource that the token is for."""

    key: Key
    path: str | None

    def covers(self, path: str) -> bool:
        """Whether the token may be used at a path: only at MCP, and only there if it names one profile."""
        path = path.rstrip("/")
        return path == self.path if self.path else path == "/mcp" or path.startswith("/mcp/")


class Grants:
    """The clients, codes and tokens of a store. Nothing is cached: what ended on one server has ended on all."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._store = keys.store
        self._rates = Rates()

    # Clients

    def client(self, id: str) -> OAuthClientInformationFull | None:
        row = self._row(_CLIENTS, id)
        return None if row is None else OAuthClientInformationFull.model_validate(row["client"])

    def register(self, client: OAuthClientInformationFull) -> None:
        """Store a client that registered itself. When full, the oldest one that nobody has approved makes room."""
        _check_client(client)
        self._rates.take("registrations", REGISTRATIONS)
        self._sweep(_CLIENTS)
        rows = cast("dict[str, Row]", self._store.system_list(_CLIENTS))
        if len(rows) >= MAX_CLIENTS:
            unused = [id for id, row in rows.items() if not row["is_approved"]]
            if not unused:
                raise RegistrationError("invalid_client_metadata", "this service has as many clients as it can hold")
            self._store.system_delete(_CLIENTS, min(unused, key=lambda id: rows[id]["expires_at"]))
        self._put_client(client, is_approved=False)

    def _put_client(self, client: OAuthClientInformationFull, *, is_approved: bool) -> None:
        seconds = REFRESH_SECONDS if is_approved else UNUSED_CLIENT_SECONDS
        row = {"client": client.model_dump(mode="json", exclude_none=True), "is_approved": is_approved}
        self._store.system_put(_CLIENTS, client.client_id, cast("JSON", {**row, "expires_at": self._in(seconds)}))

    # What a person decides

    def read(self, params: Mapping[str, str], issuer: str) -> Authorization:
        """What the address of the consent page asks for; InvalidInput if it does not fit the client's registration."""
        client = self.client(params.get("client_id", ""))
        if client is None:
            raise InvalidInput("this client is not registered, or its registration has expired; connect it again")
        try:
            given = params.get("redirect_uri")
            redirect = client.validate_redirect_uri(None if given is None else AnyUrl(given))
        except (ValidationError, InvalidRedirectUriError) as error:
            raise InvalidInput("the client did not register the address that it wants to return to") from error
        if _CHALLENGE.fullmatch(params.get("code_challenge", "")) is None:
            raise InvalidInput("the client must use PKCE with S256; its code_challenge is missing or malformed")
        asked = (params.get("scope") or " ".join(SCOPES)).split()
        scopes = tuple(scope for scope in SCOPES if scope in asked)
        if not scopes:
            raise InvalidInput(f"the client asks for none of the scopes of this service: {', '.join(SCOPES)}")
        resource = params.get("resource") or None
        if resource is not None:
            _check_resource(resource, issuer)
        name = client.client_name or "A client without a name"
        return Authorization(
            client.client_id,
            name,
            str(redirect),
            given is not None,
            params["code_challenge"],
            scopes,
            resource,
            params.get("state"),
        )

    def approve(self, asked: Authorization, key: Key) -> str:
        """Let a client act for the holder of a key that was just checked. Returns the code for the client."""
        self._sweep(_CODES)
        self._sweep(_GRANTS)
        if len(self._store.system_list(_GRANTS)) >= MAX_GRANTS:
            raise InvalidInput("this service has as many connected clients as it can hold; revoke some first")
        client = self.client(asked.client_id)
        assert client is not None, "the client was read just now"
        self._put_client(client, is_approved=True)
        grant, secret = secrets.token_hex(16), secrets.token_hex(32)
        row = {
            "hash": _hash(secret),
            "client": asked.client_id,
            "key": key.id,
            "key_created_at": key.created_at,
            "scopes": list(asked.scopes),
            "resource": asked.resource,
            "challenge": asked.challenge,
            "redirect_uri": asked.redirect_uri,
            "is_redirect_explicit": asked.is_redirect_explicit,
            "expires_at": self._in(CODE_SECONDS),
        }
        self._store.system_put(_CODES, grant, cast("JSON", row))
        return f"{grant}_{secret}"

    # Codes and tokens

    def code(self, text: str) -> AuthorizationCode | None:
        row = self._shown(_CODES, text, "hash")
        if row is None:
            return None
        return AuthorizationCode(
            code=text,
            scopes=row["scopes"],
            expires_at=float("inf"),  # our clock has decided already
            client_id=row["client"],
            code_challenge=row["challenge"],
            redirect_uri=AnyUrl(row["redirect_uri"]),
            redirect_uri_provided_explicitly=row["is_redirect_explicit"],
            resource=row["resource"],
        )

    def exchange_code(self, text: str) -> OAuthToken:
        row = self._shown(_CODES, text, "hash")
        if row is None or not self._has_key(row):
            raise TokenError("invalid_grant", "the code or the key that approved it has ended")
        id = _id(text)
        tokens, kept = self._tokens(id, row)
        if not self._store.system_put(_GRANTS, id, cast("JSON", kept), only_new=True):
            self.end(id)  # the code was used before: one of the two is not the client
            raise TokenError("invalid_grant", "the code was used before; its tokens have ended")
        return tokens

    def refresh_token(self, text: str) -> RefreshToken | None:
        if not text.startswith(_REFRESH_PREFIX):
            return None
        row = self._shown(_GRANTS, text, "refresh")
        if row is None:
            self._end_if_former(text)
            return None
        return RefreshToken(
            token=text,
            client_id=row["client"],
            scopes=row["scopes"],
            resource=row["resource"],
        )

    def exchange_refresh_token(self, text: str, scopes: list[str]) -> OAuthToken:
        row = self._shown(_GRANTS, text, "refresh")
        if row is None or not self._has_key(row):
            raise TokenError("invalid_grant", "the refresh token or the key that approved it has ended")
        id, use = _id(text), _hash(text)[:32]
        self._sweep(_CODES)
        if not self._store.system_put(_CODES, use, self._use(), only_new=True):
            # At the same moment somebody else shows it. Whoever of the two writes last ends the grant.
            self._store.system_put(_CODES, use, self._use(is_reused=True))
            self.end(id)
            raise TokenError("invalid_grant", "the refresh token was used before; its tokens have ended")
        tokens, kept = self._tokens(id, {**row, "scopes": scopes or row["scopes"]})
        try:
            self._store.system_put(_GRANTS, id, cast("JSON", {**kept, "former": row["refresh"]}))
        except BaseException:
            self._store.system_delete(_CODES, use)  # it was not used, and the client may try again
            raise
        if (self._row(_CODES, use) or {}).get("is_reused"):
            self.end(id)
            raise TokenError("invalid_grant", "the refresh token was used twice; its tokens have ended")
        client = self.client(row["client"])
        if client is not None:
            self._put_client(client, is_approved=True)
        return tokens

    def access_token(self, text: str) -> AccessToken | None:
        row = self._shown(_GRANTS, text, "access") if text.startswith(ACCESS_PREFIX) else None
        if row is None or row["access_expires_at"] <= self._keys.clock():
            return None
        expires_at = row["access_expires_at"] // _MICROSECONDS
        return AccessToken(
            token=text, client_id=row["client"], scopes=row["scopes"], expires_at=expires_at, resource=row["resource"]
        )

    def check(self, text: str) -> Access:
        """What an access token allows; Unauthorized if it has ended, or its key."""
        row = self._shown(_GRANTS, text, "access")
        if row is None or row["access_expires_at"] <= self._keys.clock():
            raise Unauthorized("this access token is unknown or has expired; refresh it, or connect the client again")
        key = self._keys.find(row["key"])
        if key.created_at != row["key_created_at"]:  # another key of this name
            raise Unauthorized(f"the key {key.name} was replaced; connect the client again")
        path = None if row["resource"] is None else urlsplit(row["resource"]).path.rstrip("/") or None
        return Access(replace(key, actions=(key.actions & set(row["scopes"])) | {"read"}), path)

    def end(self, id: str) -> None:
        """End the tokens of a grant. The row stays until it expires, so that its code cannot be used again."""
        self._store.system_put(_GRANTS, id, {"expires_at": self._in(REFRESH_SECONDS)})

    def _tokens(self, id: str, row: Row) -> tuple[OAuthToken, Row]:
        access, refresh = secrets.token_hex(32), secrets.token_hex(32)
        kept = {
            **{name: row[name] for name in ("client", "key", "key_created_at", "scopes", "resource")},
            "access": _hash(access),
            "access_expires_at": self._in(ACCESS_SECONDS),
            "refresh": _hash(refresh),
            "expires_at": self._in(REFRESH_SECONDS),
        }
        tokens = OAuthToken(
            access_token=f"{ACCESS_PREFIX}{id}_{access}",
            expires_in=ACCESS_SECONDS,
            scope=" ".join(row["scopes"]),
            refresh_token=f"{_REFRESH_PREFIX}{id}_{refresh}",
        )
        return tokens, kept

    def _use(self, *, is_reused: bool = False) -> JSON:
        """The row that says that a refresh token is being used. It has no code."""
        return {"is_reused": is_reused, "expires_at": self._in(CODE_SECONDS)}

    def _end_if_former(self, text: str) -> None:
        """End a grant whose former refresh token is shown again."""
        if self._shown(_GRANTS, text, "former") is not None:
            self.end(_id(text))

    def _has_key(self, row: Row) -> bool:
        try:
            return bool(self._keys.find(row["key"]).created_at == row["key_created_at"])
        except Unauthorized:
            return False

    # Rows

    def _shown(self, part: str, text: str, name: str) -> Row | None:
        """The row of a code or a token, if its secret is the one that is stored under a name."""
        match = _TOKEN.fullmatch(text)
        row = None if match is None else self._row(part, match[1])
        if match is None or row is None or not hmac.compare_digest(row.get(name, ""), _hash(match[2])):
            return None
        return row

    def _row(self, part: str, key: str) -> Row | None:
        row = cast("Row | None", self._store.system_get(part, key))
        return None if row is None or row["expires_at"] <= self._keys.clock() else row

    def _sweep(self, part: str) -> None:
        now = self._keys.clock()
        for key, row in self._store.system_list(part).items():
            if cast("Row", row)["expires_at"] <= now:
                self._store.system_delete(part, key)

    def _in(self, seconds: int) -> int:
        return self._keys.clock() + seconds * _MICROSECONDS


def _hash(secret: str) -> str:
    # The secret has 256 random bits, so a slow hash for guessable passwords would add nothing.
    return hashlib.sha256(secret.encode()).hexdigest()


def _id(text: str) -> str:
    match = _TOKEN.fullmatch(text)
    assert match is not None, "its row was found by this id"
    return match[1]


def _check_client(client: OAuthClientInformationFull) -> None:
    redirects = client.redirect_uris or []
    if not 1 <= len(redirects) <= MAX_REDIRECTS:
        raise RegistrationError("invalid_redirect_uri", f"give 1 to {MAX_REDIRECTS} redirect_uris")
    for uri in redirects:
        is_local = uri.scheme == "http" and is_loopback(uri.host or "")
        if not (uri.scheme == "https" or is_local) or uri.fragment is not None or uri.username or uri.password:
            raise RegistrationError(
                "invalid_redirect_uri", "a redirect URI must be https, or http on this computer, without a fragment"
            )


def _check_resource(resource: str, issuer: str) -> None:
    if not resource.startswith(issuer) or _RESOURCE.fullmatch(resource[len(issuer) :]) is None:
        raise OtherService(f"the client wants a token for another service; this one is {issuer}/mcp")


class Provider(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """What the handlers of the MCP SDK call, for one request. `issuer` is the service's own address."""

    def __init__(self, grants: Grants, issuer: str) -> None:
        self._grants = grants
        self._issuer = issuer

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return await run_sync(self._grants.client, client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        await run_sync(self._grants.register, client_info)

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        """The address of the consent page. It has all parameters, so nothing is stored before a person decides."""
        asked = {
            "client_id": client.client_id,
            "redirect_uri": str(params.redirect_uri) if params.redirect_uri_provided_explicitly else None,
            "code_challenge": params.code_challenge,
            "scope": " ".join(params.scopes) if params.scopes else None,
            "resource": params.resource,
            "state": params.state,
        }
        query = {name: value for name, value in asked.items() if value is not None}
        try:
            await run_sync(self._grants.read, query, self._issuer)
        except InvalidInput as error:
            is_other = isinstance(error, OtherService)
            raise AuthorizeError("invalid_target" if is_other else "invalid_request", str(error)) from error
        return f"{self._issuer}{CONSENT_PATH}?{urlencode(query)}"

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return await run_sync(self._grants.code, authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        return await run_sync(self._grants.exchange_code, authorization_code.code)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        return await run_sync(self._grants.refresh_token, refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        return await run_sync(self._grants.exchange_refresh_token, refresh_token.token, scopes)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return await run_sync(self._grants.access_token, token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        await run_sync(self._grants.end, _id(token.token))


def issuer_of(request: Request, public_url: str | None) -> str:
    """The service's own address. Without a configured one, only this computer reaches the service.

    A page of another site, whose name leads here, must not become the issuer or the audience of a token.
    """
    issuer = base_url(request, public_url)
    if public_url is None and not is_loopback(urlsplit(issuer).hostname or ""):
        raise HTTPException(MISDIRECTED, "this service answers only to localhost; give it a --public-url")
    return issuer


async def _named(request: Request) -> Request:
    """The request with the client's id in its form. With Basic authentication it is in the header only (RFC 6749)."""
    body = await request.body()
    kind, _, written = request.headers.get("authorization", "").partition(" ")
    if kind.lower() == "basic" and "client_id" not in parse_qs(body.decode(errors="replace")):
        try:
            name = unquote(b64decode(written).decode().partition(":")[0])
        except ValueError:
            name = ""
        body += b"&" + urlencode({"client_id": name}).encode()

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return Request(request.scope, receive)


def oauth_router(grants: Grants, public_url: str | None) -> APIRouter:
    """The routes of the authorization server, except the consent page."""
    router = APIRouter(include_in_schema=False)

    def provider(request: Request) -> Provider:
        return Provider(grants, issuer_of(request, public_url))

    @router.get(METADATA_PATH)
    def metadata(request: Request) -> Response:
        issuer = issuer_of(request, public_url)
        methods = ["none", "client_secret_post", "client_secret_basic"]
        described = {
            "issuer": issuer,
            "authorization_endpoint": f"{issuer}{PATH}/authorize",
            "token_endpoint": f"{issuer}{PATH}/token",
            "registration_endpoint": f"{issuer}{PATH}/register",
            "revocation_endpoint": f"{issuer}{PATH}/revoke",
            "scopes_supported": SCOPES,
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "token_endpoint_auth_methods_supported": methods,
            "revocation_endpoint_auth_methods_supported": methods,
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        }
        return JSONResponse(described, headers={"Cache-Control": "max-age=300"})

    @router.get(f"{PATH}/authorize")
    async def authorize(request: Request) -> Response:
        return await AuthorizationHandler(provider(request)).handle(request)

    @router.post(f"{PATH}/token")
    async def token(request: Request) -> Response:
        made = provider(request)
        answer: Response = await TokenHandler(made, ClientAuthenticator(made)).handle(await _named(request))
        return answer

    @router.post(f"{PATH}/register")
    async def register(request: Request) -> Response:
        if len(await request.body()) > MAX_REGISTRATION_BYTES:
            detail = f"a registration has at most {MAX_REGISTRATION_BYTES:,} bytes"
            return JSONResponse({"error": "invalid_client_metadata", "error_description": detail}, 400)
        options = ClientRegistrationOptions(enabled=True, default_scopes=list(SCOPES))
        return await RegistrationHandler(provider(request), options).handle(request)

    @router.post(f"{PATH}/revoke")
    async def revoke(request: Request) -> Response:
        # Not the SDK's handler: it refuses clients without a secret, and unknown hints.
        made = provider(request)
        named = await _named(request)
        try:
            client = await ClientAuthenticator(made).authenticate_request(named)
        except AuthenticationError as error:
            return JSONResponse({"error": "invalid_client", "error_description": error.message}, 401)
        text = (await named.form()).get("token")
        if not isinstance(text, str) or not text:
            return JSONResponse({"error": "invalid_request", "error_description": "token is missing"}, 400)
        found = await made.load_access_token(text) or await made.load_refresh_token(client, text)
        if found is not None and found.client_id == client.client_id:
            await made.revoke_token(found)
        return Response(headers={"Cache-Control": "no-store"})  # of an unknown token too, as RFC 7009 has it

    return router
