"""The authorization server for MCP clients: the SDK's own client from end to end, and attacks on every step."""

from __future__ import annotations

import base64
import hashlib
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.to_thread
import httpx
import httpx2
import mcp
import pytest
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl
from real_server import Server, start_server

import commonplace
from commonplace.errors import ConfigurationError
from commonplace.server.http import oauth
from commonplace.server.http.api_keys import Key, Keys
from commonplace.server.http.auth import Gate, Principal, make_gate
from commonplace.server.http.service import Service
from commonplace.settings import Settings

sys.path.append(str(Path(__file__).parent.parent / "page"))
from browsing import Browser

BACK = "http://127.0.0.1:9999/back"
VERIFIER = "v" * 64
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode().rstrip("=")
ALL = frozenset(("read", "write", "delete"))


@pytest.fixture
def service(book: commonplace.Book, clock: Any) -> Service:
    keys = Keys(book.store, clock=clock)
    gate = Gate(keys, Principal("local", ("user", "default"), "all"), has_oauth=True)
    return Service(book, gate, Settings(oauth=True))


@pytest.fixture
def key(service: Service) -> str:
    """Ana's key. With it, every caller needs credentials."""
    return service.access.keys.create(Key("ana", ("user", "ana"), actions=ALL))[1]


@pytest.fixture
def server(service: Service, key: str) -> Iterator[Server]:
    server = start_server(service)
    yield server
    server.stop()


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture
def person(server: Server, key: str) -> Iterator[Browser]:
    """A browser in which Ana has signed in."""
    with server.client() as client:
        browser = Browser(client)
        browser.sign_in(key)
        yield browser


def register(http: httpx.Client, **metadata: Any) -> httpx.Response:
    asked = {"redirect_uris": [BACK], "client_name": "A client", "token_endpoint_auth_method": "none", **metadata}
    return http.post("/oauth/register", json=asked)


@pytest.fixture
def client_id(http: httpx.Client) -> str:
    answer = register(http)
    assert answer.status_code == 201, answer.text
    return answer.json()["client_id"]


def asking(client_id: str, **changed: str | None) -> dict[str, str]:
    asked = {
        "client_id": client_id,
        "redirect_uri": BACK,
        "response_type": "code",
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
        "state": "xyz",
        **changed,
    }
    return {name: value for name, value in asked.items() if value is not None}


def decide(person: Browser, consent: str, approve: str = "yes") -> dict[str, str]:
    """Open the consent page and press a button; what the client's address is told."""
    answer = person.send(person.get(consent), "/ui/authorize", approve=approve)
    assert answer.status_code == 200, answer.text
    found = re.search(r'content="0; url=([^"]+)"', answer.text)
    assert found is not None
    return {name: values[0] for name, values in parse_qs(urlsplit(unescape(found[1])).query).items()}


Ask = Callable[..., str]


@pytest.fixture
def approved(http: httpx.Client, person: Browser, client_id: str) -> Ask:
    """Gives a code that Ana approved."""

    def ask(**changed: str | None) -> str:
        answer = http.get("/oauth/authorize", params=asking(client_id, **changed))
        assert answer.status_code == 302, answer.text
        return decide(person, answer.headers["location"])["code"]

    return ask


def exchange(http: httpx.Client, client_id: str, code: str, **changed: str) -> httpx.Response:
    form = {
        "grant_type": "authorization_code",
        "client_id": client_id,
        "code": code,
        "redirect_uri": BACK,
        "code_verifier": VERIFIER,
    }
    return http.post("/oauth/token", data={**form, **changed})


def refresh(http: httpx.Client, client_id: str, token: str, **changed: str) -> httpx.Response:
    form = {"grant_type": "refresh_token", "client_id": client_id, "refresh_token": token}
    return http.post("/oauth/token", data={**form, **changed})


def call(http: httpx.Client, token: str, path: str = "/mcp") -> httpx.Response:
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
    }
    accept = {"Accept": "application/json, text/event-stream", "Authorization": f"Bearer {token}"}
    return http.post(path, json=body, headers=accept)


class Storage:
    """What an MCP client keeps between its runs."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Flow:
    """The SDK's client, whose browser is Ana's."""

    def __init__(self, server: Server, person: Browser) -> None:
        self.address = f"{server.address}/mcp"
        self.storage = Storage()
        self.asked = 0
        about = OAuthClientMetadata(redirect_uris=[AnyUrl(BACK)], client_name="The SDK's client")
        self.auth = OAuthClientProvider(self.address, about, self.storage, self._redirect, self._callback)
        self._person = person
        self._told: dict[str, str] = {}

    async def _redirect(self, url: str) -> None:
        self.asked += 1
        self._told = await anyio.to_thread.run_sync(self._consent, url)

    def _consent(self, url: str) -> dict[str, str]:
        answer = self._person.http.get(url)
        return decide(self._person, answer.headers["location"])

    async def _callback(self) -> AuthorizationCodeResult:
        return AuthorizationCodeResult(**self._told)

    async def search(self, query: str) -> str:
        transport = streamable_http_client(self.address, http_client=httpx2.AsyncClient(auth=self.auth))
        async with mcp.Client(transport) as client:
            answer = await client.call_tool("memory_search", {"query": query})
            return str(answer.content)


@pytest.mark.promise("service.oauth")
def test_the_sdks_client_connects_by_oauth_and_stays_connected(
    server: Server, person: Browser, book: commonplace.Book, clock: Any
):
    book.space("user", "ana").files.write("/tea", "Ana drinks green tea")
    book.space("user", "bo").files.write("/coffee", "Bo drinks coffee")
    flow = Flow(server, person)
    found = anyio.run(flow.search, "what does she drink?")
    assert "green tea" in found
    assert "coffee" not in found
    assert "green tea" in anyio.run(flow.search, "tea")
    assert flow.asked == 1

    first = flow.storage.tokens
    clock.advance(oauth.ACCESS_SECONDS + 1)
    flow.auth.context.token_expiry_time = 1.0  # the client has a clock of its own
    assert "green tea" in anyio.run(flow.search, "tea")
    assert flow.asked == 1, "the refresh token is used, and nobody is asked again"
    assert flow.storage.tokens != first


def test_a_refused_client_learns_where_to_ask(http: httpx.Client, server: Server):
    refused = http.post("/mcp", json={})
    assert refused.status_code == 401
    found = re.search(r'resource_metadata="([^"]+)"', refused.headers["www-authenticate"])
    assert found is not None
    resource = http.get(found[1]).json()
    assert resource["authorization_servers"] == [server.address]
    described = http.get("/.well-known/oauth-authorization-server").json()
    assert described["issuer"] == server.address
    assert described["code_challenge_methods_supported"] == ["S256"]
    for name in ("authorization_endpoint", "token_endpoint", "registration_endpoint", "revocation_endpoint"):
        assert described[name].startswith(f"{server.address}/oauth/")


def test_the_consent_page_needs_a_key_and_shows_who_asks(http: httpx.Client, server: Server, key: str):
    hostile = "<script>alert(1)</script>"
    client_id = register(http, client_name=hostile).json()["client_id"]
    consent = http.get("/oauth/authorize", params=asking(client_id)).headers["location"]
    with server.client() as stranger:
        page = Browser(stranger).get(consent)
        assert "This memory needs a key" in page.text
        shown = Browser(stranger).send(page, "/ui/sign-in", key=key)
    assert shown.status_code == 200
    assert hostile not in shown.text
    assert "&lt;script&gt;" in shown.text
    assert "127.0.0.1:9999" in shown.text
    assert "user/ana" in shown.text
    assert shown.headers["x-frame-options"] == "DENY"
    assert "frame-ancestors 'none'" in shown.headers["content-security-policy"]


def test_a_person_may_deny(http: httpx.Client, person: Browser, client_id: str, server: Server):
    consent = http.get("/oauth/authorize", params=asking(client_id)).headers["location"]
    told = decide(person, consent, approve="no")
    assert told == {"error": "access_denied", "state": "xyz", "iss": server.address}


def test_a_foreign_page_cannot_approve(person: Browser, http: httpx.Client, client_id: str):
    consent = http.get("/oauth/authorize", params=asking(client_id)).headers["location"]
    answer = person.http.post(consent, data={"approve": "yes"}, headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status_code == 403
    assert person.http.post(consent, data={"approve": "yes", "token": "guess"}).status_code == 403


def test_a_code_works_once_and_a_replay_ends_its_tokens(http: httpx.Client, approved: Ask, client_id: str):
    code = approved()
    tokens = exchange(http, client_id, code).json()
    assert call(http, tokens["access_token"]).status_code == 200
    replay = exchange(http, client_id, code)
    assert (replay.status_code, replay.json()["error"]) == (400, "invalid_grant")
    assert call(http, tokens["access_token"]).status_code == 401
    assert refresh(http, client_id, tokens["refresh_token"]).json()["error"] == "invalid_grant"
    assert exchange(http, client_id, code).json()["error"] == "invalid_grant"


def test_a_code_expires(http: httpx.Client, approved: Ask, client_id: str, clock: Any):
    code = approved()
    clock.advance(oauth.CODE_SECONDS + 1)
    assert exchange(http, client_id, code).json()["error"] == "invalid_grant"


@pytest.mark.parametrize("verifier", ["w" * 64, "", CHALLENGE])
def test_a_stolen_code_is_useless_without_its_verifier(
    http: httpx.Client, approved: Ask, client_id: str, verifier: str
):
    assert exchange(http, client_id, approved(), code_verifier=verifier).status_code == 400


@pytest.mark.parametrize(
    "changed",
    [
        {"code_challenge_method": "plain"},
        {"code_challenge": None},
        {"code_challenge": "short"},
        {"response_type": "token"},
        {"scope": "everything"},
    ],
)
def test_pkce_cannot_be_downgraded(http: httpx.Client, client_id: str, changed: dict[str, str | None]):
    answer = http.get("/oauth/authorize", params=asking(client_id, **changed))
    assert answer.status_code == 302
    location = answer.headers["location"]
    assert location.startswith(BACK), "the client is told, and no consent page is shown"
    assert "error=" in location


@pytest.mark.parametrize("redirect", ["http://127.0.0.1:9999/other", "https://evil.example/back", BACK + "/../x"])
def test_a_redirect_that_was_not_registered_is_refused_without_a_redirect(
    http: httpx.Client, person: Browser, client_id: str, redirect: str
):
    answer = http.get("/oauth/authorize", params=asking(client_id, redirect_uri=redirect))
    assert answer.status_code == 400
    consent = http.get("/oauth/authorize", params=asking(client_id)).headers["location"]
    forged = httpx.URL(consent).copy_set_param("redirect_uri", redirect)
    assert person.get(str(forged)).status_code == 422


def test_the_redirect_of_an_exchange_must_be_the_one_that_was_asked_for(
    http: httpx.Client, approved: Ask, client_id: str
):
    answer = exchange(http, client_id, approved(), redirect_uri="http://127.0.0.1:9999/other")
    assert answer.status_code == 400


@pytest.mark.parametrize(
    "redirect",
    [
        "http://evil.example/back",
        "javascript:alert(1)",
        "myapp://back",
        "https://good.example/back#part",
        "https://user:pass@good.example/",
    ],
)
def test_a_client_returns_to_https_or_this_computer(http: httpx.Client, redirect: str):
    answer = register(http, redirect_uris=[redirect])
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_redirect_uri")


def test_a_token_for_another_service_is_not_issued(http: httpx.Client, client_id: str, server: Server):
    for resource in ("https://other.example/mcp", f"{server.address}.evil.example/mcp", f"{server.address}/v1"):
        location = http.get("/oauth/authorize", params=asking(client_id, resource=resource)).headers["location"]
        assert location.startswith(BACK)
        assert "error=invalid_target" in location


def test_a_token_is_for_the_resource_that_it_names(
    http: httpx.Client, approved: Ask, client_id: str, server: Server, book: commonplace.Book
):
    book.space("user", "ana").files.write("/note", "hello")
    token = exchange(http, client_id, approved(resource=f"{server.address}/mcp/files")).json()["access_token"]
    assert call(http, token, "/mcp/files").status_code == 200
    assert call(http, token, "/mcp").status_code == 401
    plain = exchange(http, client_id, approved()).json()["access_token"]
    assert call(http, plain, "/mcp/files").status_code == 200
    for path in ("/v1/files/note", "/v1/search?query=hello", "/ui", "/api/memory/threads"):
        answer = http.get(path, headers={"Authorization": f"Bearer {plain}"}, follow_redirects=False)
        assert answer.status_code in (401, 303), path


def test_a_token_ends_with_its_key(http: httpx.Client, approved: Ask, client_id: str, service: Service, clock: Any):
    tokens = exchange(http, client_id, approved()).json()
    assert call(http, tokens["access_token"]).status_code == 200
    service.access.keys.revoke("ana", forget=True)
    clock.advance(1)
    service.access.keys.create(Key("ana", ("user", "bo"), actions=ALL))
    assert call(http, tokens["access_token"]).status_code == 401
    assert refresh(http, client_id, tokens["refresh_token"]).json()["error"] == "invalid_grant"


def test_a_token_has_at_most_the_actions_of_its_key_and_scope(
    http: httpx.Client, approved: Ask, client_id: str, service: Service
):
    token = exchange(http, client_id, approved(scope="read")).json()["access_token"]
    access = service.access.grants.check(token)
    assert access.key.actions == {"read"}
    assert access.key.namespace == ("user", "ana")


def test_a_refresh_token_works_once_and_reuse_ends_the_grant(http: httpx.Client, approved: Ask, client_id: str):
    first = exchange(http, client_id, approved()).json()
    second = refresh(http, client_id, first["refresh_token"]).json()
    assert call(http, first["access_token"]).status_code == 401
    assert call(http, second["access_token"]).status_code == 200
    assert refresh(http, client_id, first["refresh_token"]).json()["error"] == "invalid_grant"
    assert call(http, second["access_token"]).status_code == 401
    assert refresh(http, client_id, second["refresh_token"]).json()["error"] == "invalid_grant"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_refresh_token_that_two_show_at_the_same_moment_ends_the_grant(
    http: httpx.Client, approved: Ask, client_id: str, service: Service, monkeypatch: pytest.MonkeyPatch, when: str
):
    """The second request comes while the first is between its check and its write."""
    first = exchange(http, client_id, approved()).json()
    grants = service.access.grants
    tokens = grants._tokens
    answers: list[dict[str, str]] = []

    def interrupted(id: str, row: dict[str, Any]) -> Any:
        made = tokens(id, row) if when == "after" else None
        if not answers:
            answers.append({})
            answers[0] = refresh(http, client_id, first["refresh_token"]).json()
        return made or tokens(id, row)

    monkeypatch.setattr(grants, "_tokens", interrupted)
    outer = refresh(http, client_id, first["refresh_token"]).json()
    assert [answer["error"] for answer in (*answers, outer)] == ["invalid_grant", "invalid_grant"]
    assert call(http, first["access_token"]).status_code == 401


def test_a_refresh_that_fails_may_be_tried_again(
    http: httpx.Client, approved: Ask, client_id: str, service: Service, monkeypatch: pytest.MonkeyPatch
):
    first = exchange(http, client_id, approved()).json()
    grants = service.access.grants
    with monkeypatch.context() as broken:
        put = grants._store.system_put

        def fail(part: str, *rest: Any, **options: Any) -> Any:
            if part == "oauth-grants":
                raise commonplace.Unavailable("the disk is full")
            return put(part, *rest, **options)

        broken.setattr(grants._store, "system_put", fail)
        with pytest.raises(commonplace.Unavailable):
            grants.exchange_refresh_token(first["refresh_token"], [])
    assert "access_token" in refresh(http, client_id, first["refresh_token"]).json()


def test_a_refresh_cannot_widen_its_scope(http: httpx.Client, approved: Ask, client_id: str):
    tokens = exchange(http, client_id, approved(scope="read")).json()
    answer = refresh(http, client_id, tokens["refresh_token"], scope="read write")
    assert answer.json()["error"] == "invalid_scope"


def test_tokens_of_one_client_are_useless_to_another(http: httpx.Client, approved: Ask, client_id: str):
    other = register(http).json()["client_id"]
    assert exchange(http, other, approved()).json()["error"] == "invalid_grant"
    tokens = exchange(http, client_id, approved()).json()
    assert refresh(http, other, tokens["refresh_token"]).json()["error"] == "invalid_grant"
    assert call(http, tokens["refresh_token"]).status_code == 401, "a refresh token is not an access token"
    assert refresh(http, client_id, tokens["access_token"]).json()["error"] == "invalid_grant"


@pytest.mark.parametrize("name", ["access_token", "refresh_token"])
def test_a_client_may_revoke_its_tokens(http: httpx.Client, approved: Ask, client_id: str, name: str):
    tokens = exchange(http, client_id, approved()).json()
    form = {"token": tokens[name], "client_id": client_id, "token_type_hint": "something"}
    assert http.post("/oauth/revoke", data={**form, "token": "unknown"}).status_code == 200
    assert http.post("/oauth/revoke", data={**form, "client_id": "unknown"}).status_code == 401
    assert http.post("/oauth/revoke", data={"client_id": client_id}).status_code == 400
    other = register(http).json()["client_id"]
    assert http.post("/oauth/revoke", data={**form, "client_id": other}).status_code == 200
    assert call(http, tokens["access_token"]).status_code == 200, "another client cannot revoke it"
    assert http.post("/oauth/revoke", data=form).status_code == 200
    assert call(http, tokens["access_token"]).status_code == 401
    assert refresh(http, client_id, tokens["refresh_token"]).json()["error"] == "invalid_grant"


def test_a_client_with_a_secret_must_show_it(http: httpx.Client, person: Browser):
    made = register(http, token_endpoint_auth_method="client_secret_post").json()
    consent = http.get("/oauth/authorize", params=asking(made["client_id"])).headers["location"]
    code = decide(person, consent)["code"]
    assert exchange(http, made["client_id"], code).status_code == 401
    assert exchange(http, made["client_id"], code, client_secret="guess").status_code == 401
    assert exchange(http, made["client_id"], code, client_secret=made["client_secret"]).status_code == 200


def test_a_client_with_basic_authentication_need_not_repeat_its_id(http: httpx.Client, person: Browser):
    made = register(http, token_endpoint_auth_method="client_secret_basic").json()
    id, secret = made["client_id"], made["client_secret"]
    consent = http.get("/oauth/authorize", params=asking(id)).headers["location"]
    form = {"grant_type": "authorization_code", "code": decide(person, consent)["code"]}
    form |= {"code_verifier": VERIFIER, "redirect_uri": BACK}
    for wrong in ((id, "guess"), ("unknown", secret)):
        assert http.post("/oauth/token", data=form, auth=wrong).status_code == 401
    assert http.post("/oauth/token", data=form, headers={"Authorization": "Basic é".encode()}).status_code == 401
    tokens = http.post("/oauth/token", data=form, auth=(id, secret)).json()
    assert call(http, tokens["access_token"]).status_code == 200
    revoked = http.post("/oauth/revoke", data={"token": tokens["refresh_token"]}, auth=(id, secret))
    assert revoked.status_code == 200
    assert call(http, tokens["access_token"]).status_code == 401


def test_a_foreign_name_of_this_computer_is_not_an_issuer(http: httpx.Client, client_id: str, person: Browser):
    foreign = {"Host": "rebound.example"}
    for path in ("/.well-known/oauth-authorization-server", f"/oauth/authorize?client_id={client_id}"):
        assert http.get(path, headers=foreign).status_code == 421
    for path in ("/oauth/token", "/oauth/revoke", "/oauth/register"):
        assert http.post(path, headers=foreign, data={"client_id": client_id}).status_code == 421


def test_registrations_are_bounded_and_expire(
    http: httpx.Client, approved: Ask, client_id: str, clock: Any, monkeypatch: pytest.MonkeyPatch, service: Service
):
    approved()
    monkeypatch.setattr(oauth, "MAX_CLIENTS", 3)
    made = []
    for _ in range(4):
        clock.advance(1)
        made.append(register(http).json()["client_id"])
    grants = service.access.grants
    assert [grants.client(id) is not None for id in (client_id, *made)] == [True, False, False, True, True]
    clock.advance(oauth.UNUSED_CLIENT_SECONDS + 1)
    assert [grants.client(id) is not None for id in (client_id, *made)] == [True, False, False, False, False]
    assert http.post("/oauth/register", content=b"{" + b" " * 20_000 + b"}").status_code == 400
    for _ in range(oauth.REGISTRATIONS.calls):
        answer = register(http)
    assert answer.status_code == 429


def test_the_store_holds_no_token(http: httpx.Client, approved: Ask, client_id: str, book: commonplace.Book):
    code = approved()
    tokens = exchange(http, client_id, code).json()
    kept = str([book.store.system_list(part) for part in ("oauth-codes", "oauth-grants", "oauth-clients")])
    for secret in (code, tokens["access_token"], tokens["refresh_token"]):
        assert secret.rpartition("_")[2] not in kept


def test_without_the_option_there_is_no_authorization_server(book: commonplace.Book, service: Service):
    service = replace(service, access=replace(service.access, has_oauth=False), settings=Settings())
    server = start_server(service)
    try:
        with server.client() as client:
            for path in ("/.well-known/oauth-authorization-server", "/oauth/authorize"):
                assert client.get(path).status_code == 404
            assert client.post("/oauth/register", json={}).status_code == 404
    finally:
        server.stop()


def test_the_options_of_a_service_must_fit(book: commonplace.Book):
    with pytest.raises(ConfigurationError, match="needs a key"):
        make_gate(book, Settings(oauth=True))
    Keys(book.store).create(Key("ana", ("user", "ana")))
    assert make_gate(book, Settings(oauth=True)).has_oauth
    with pytest.raises(ConfigurationError, match="--public-url"):
        make_gate(book, Settings(oauth=True, host="0.0.0.0"))
    assert make_gate(book, Settings(oauth=True, host="0.0.0.0", public_url="https://memory.example")).has_oauth
    tokens = {"jwt_jwks": "keys.json", "jwt_issuer": "https://id.example", "jwt_audience": "memory"}
    with pytest.raises(ConfigurationError, match="exclude each other"):
        make_gate(book, Settings(oauth=True, **tokens))
