"""Tokens: only what the issuer signed, for this service, and in time; its claims fill whole labels and nothing else."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from real_server import start_server

from commonplace.errors import ConfigurationError, Unauthorized, Unavailable
from commonplace.server.http import auth
from commonplace.server.http.api_keys import Key
from commonplace.server.http.auth import (
    FAILED_SECONDS,
    FLOOR_SECONDS,
    KEPT_SECONDS,
    KeySet,
    Tokens,
    TokenSettings,
    make_gate,
)
from commonplace.server.http.service import Service
from commonplace.settings import Settings

ISSUER, AUDIENCE = "https://id.example", "memory"
RSA_KEY = rsa.generate_private_key(65537, 2048)
OTHER_RSA_KEY = rsa.generate_private_key(65537, 2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
ED_KEY = ed25519.Ed25519PrivateKey.generate()


def jwk(algorithm: Any, key: Any, kid: str, **more: str) -> dict[str, Any]:
    return {**algorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid, **more}


JWKS = {
    "keys": [
        jwk(RSAAlgorithm, RSA_KEY, "rsa"),
        jwk(RSAAlgorithm, RSA_KEY, "rsa-512-only", alg="RS512"),
        jwk(ECAlgorithm, EC_KEY, "ec", use="sig"),
        jwk(OKPAlgorithm, ED_KEY, "ed"),
        {"kty": "oct", "kid": "oct", "k": base64.urlsafe_b64encode(b"s" * 64).decode()},
        jwk(RSAAlgorithm, OTHER_RSA_KEY, "for-encryption", use="enc"),
    ]
}


def claims(**more: Any) -> dict[str, Any]:
    now = int(time.time())
    given = {"iss": ISSUER, "aud": AUDIENCE, "sub": "u-1", "iat": now, "exp": now + 300, **more}
    return {name: value for name, value in given.items() if value is not None}


def token(
    payload: dict[str, Any] | None = None, *, key: Any = RSA_KEY, alg: str = "RS256", kid: str | None = "rsa"
) -> str:
    return jwt.encode(payload or claims(), key, algorithm=alg, headers={} if kid is None else {"kid": kid})


@pytest.fixture
def jwks_file(tmp_path):
    file = tmp_path / "jwks.json"
    file.write_text(json.dumps(JWKS))
    return file


@pytest.fixture
def make_tokens(jwks_file):
    def make(**more: Any) -> Tokens:
        return Tokens(TokenSettings(**{"jwks": str(jwks_file), "audience": AUDIENCE, "issuer": ISSUER, **more}))

    return make


@pytest.mark.promise("service-tokens")
def test_a_good_token_opens_the_namespace_that_its_claims_name(book, jwks_file):
    settings = Settings(
        jwt_jwks=str(jwks_file), jwt_audience=AUDIENCE, jwt_issuer=ISSUER, jwt_namespace="org/{org}/{sub}"
    )
    book.space("org", "acme", "u-1").files.write("/mine", "mine")
    server = start_server(Service(book, make_gate(book, settings), settings))
    try:
        with server.client(token(claims(org="acme"))) as client:
            assert client.get("/v1/files/mine").text == "mine"
            assert client.get("/v1").json()["name"] == "jwt:u-1"
            assert client.get("/v1/files/mine", params={"namespace": "org/acme/u-2"}).status_code == 403
            assert client.get("/v1/files/mine", params={"namespace": "org/acme"}).status_code == 403
        with server.client() as client:
            assert client.get("/v1").status_code == 401
            metadata = client.get("/.well-known/oauth-protected-resource/mcp/files").json()
    finally:
        server.stop()
    assert metadata["resource"] == f"{server.address}/mcp/files"
    assert metadata["authorization_servers"] == [ISSUER]


@pytest.mark.promise("service-tokens")
@pytest.mark.parametrize(
    ("key", "alg", "kid"),
    [
        (RSA_KEY, "RS256", "rsa"),
        (RSA_KEY, "PS384", "rsa"),
        (RSA_KEY, "RS512", "rsa-512-only"),
        (EC_KEY, "ES256", "ec"),
        (ED_KEY, "EdDSA", "ed"),
    ],
)
def test_signatures_of_private_keys_are_taken(make_tokens, key, alg, kid):
    assert make_tokens().check(token(key=key, alg=alg, kid=kid)).namespace == ("user", "u-1")


def unsigned() -> str:
    return jwt.encode(claims(), None, algorithm="none", headers={"kid": "rsa"})


def signed_with_the_public_key() -> str:
    """The old trick: the public key as the shared secret of an HMAC."""
    public = RSA_KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def part(value: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    text = f"{part({'alg': 'HS256', 'typ': 'JWT', 'kid': 'rsa'})}.{part(claims())}"
    mac = hmac.new(public, text.encode(), hashlib.sha256).digest()
    return f"{text}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


@pytest.mark.promise("service-tokens-refused")
@pytest.mark.parametrize(
    "make",
    [
        lambda: token(claims(exp=int(time.time()) - 60)),
        lambda: token(claims(exp=None)),
        lambda: token(claims(exp="soon")),
        lambda: token(claims(nbf=int(time.time()) + 600)),
        lambda: token(claims(aud="another-service")),
        lambda: token(claims(aud=None)),
        lambda: token(claims(iss="https://evil.example")),
        lambda: token(claims(iss=None)),
        lambda: token(key=OTHER_RSA_KEY),
        lambda: token(key=OTHER_RSA_KEY, kid="for-encryption"),
        lambda: token(kid="nobody-knows"),
        lambda: token(kid=None),
        lambda: token(alg="RS256", kid="rsa-512-only"),
        lambda: token(key=EC_KEY, alg="ES256", kid="rsa"),
        lambda: token(key="s" * 64, alg="HS256", kid="oct"),
        lambda: token(key="s" * 64, alg="HS256", kid="rsa"),
        unsigned,
        signed_with_the_public_key,
        lambda: token()[:-4] + "AAAA",
        lambda: token() + ".x",
        lambda: "a.b.c",
        lambda: "é.é.é",
        lambda: "",
    ],
)
def test_any_other_token_is_refused(make_tokens, make):
    with pytest.raises(Unauthorized):
        make_tokens().check(make())


@pytest.mark.promise("service-tokens-template")
@pytest.mark.parametrize(
    "value", ["a/b", "..", "", " ", "{sub}", None, 5, True, ["u-1"], {"u": 1}, "x" * 300, "a\nb", "a\x00", "\ud800"]
)
def test_a_claim_fills_one_whole_label_or_nothing(make_tokens, value):
    tokens = make_tokens(namespace="user/{user}")
    signed = token(claims(user=value, sub="other"))
    if value in ("..", "{sub}"):
        # A label like any other: it is not a path, and no value is looked at for placeholders.
        assert tokens.check(signed).namespace == ("user", value)
        return
    with pytest.raises(Unauthorized, match="the token opens no memory"):
        tokens.check(signed)


def test_a_claim_named_configurable_is_no_way_around_the_others(make_tokens):
    signed = token(claims(configurable={"sub": "someone-else"}))
    assert make_tokens().check(signed).namespace == ("user", "u-1")


@pytest.mark.promise("service-tokens-actions")
@pytest.mark.parametrize(
    ("given", "actions"),
    [
        ("read write", {"read", "write"}),
        (["delete", "admin", "fly"], {"read", "delete", "admin"}),
        (None, {"read"}),
        ("", {"read"}),
        ("readwrite", {"read"}),
        (5, {"read"}),
    ],
)
def test_the_actions_are_those_that_the_claim_lists(make_tokens, given, actions):
    signed = token(claims(scope=given))
    assert make_tokens(actions_claim="scope").check(signed).actions == actions
    assert make_tokens().check(signed).actions == {"read", "write", "delete"}


def test_two_subjects_never_have_the_same_name(make_tokens):
    tokens = make_tokens(namespace="shared/{tenant}")
    subjects = ["a", "a b", "a%20b", "a" * 200, "a" * 201, "é"]
    assert len({tokens.check(token(claims(sub=sub, tenant="t"))).name for sub in subjects}) == len(subjects)


# The key set


class Issuer:
    """A real server with a key set, which counts how often it is asked."""

    def __init__(self) -> None:
        self.answer: tuple[int, bytes] = (200, json.dumps(JWKS).encode())
        self.asked = 0
        self.has_come = threading.Semaphore(0)
        self.go_on = threading.Event()
        self.go_on.set()
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked += 1
                issuer.has_come.release()
                issuer.go_on.wait(20)
                status, body = issuer.answer
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/jwks.json"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    issuer = Issuer()
    yield issuer
    issuer.server.shutdown()
    issuer.server.server_close()


class Stopwatch:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.promise("service-tokens-key-set")
def test_the_key_set_is_read_when_needed_and_unknown_ids_cause_no_traffic(issuer):
    watch = Stopwatch()
    keys = KeySet(issuer.url, monotonic=watch)
    assert issuer.asked == 0
    assert keys.find("rsa") is not None
    assert issuer.asked == 1
    for number in range(100):
        assert keys.find(f"invented-{number}") is None
    assert issuer.asked == 1
    issuer.answer = (200, json.dumps({"keys": [jwk(RSAAlgorithm, OTHER_RSA_KEY, "new")]}).encode())
    assert keys.find("new") is None
    watch.now += FLOOR_SECONDS
    assert keys.find("new") is not None
    assert keys.find("rsa") is None
    assert issuer.asked == 2


@pytest.mark.promise("service-tokens-key-set")
@pytest.mark.parametrize(
    "broken", [(500, b""), (302, b""), (200, b"<html>"), (200, b'{"keys": []}'), (200, b"x" * 2_000_000)]
)
def test_a_key_set_that_fails_later_leaves_the_known_keys_in_use(issuer, broken):
    watch = Stopwatch()
    keys = KeySet(issuer.url, monotonic=watch)
    keys.find("rsa")
    issuer.answer = broken
    watch.now += KEPT_SECONDS + 1
    assert keys.find("rsa") is not None
    assert issuer.asked == 2


@pytest.mark.parametrize("broken", [(500, b""), (302, b"")])
def test_a_key_set_that_never_came_is_unavailable_and_not_asked_for_by_every_call(issuer, broken):
    watch = Stopwatch()
    issuer.answer = broken
    keys = KeySet(issuer.url, monotonic=watch)
    for _ in range(5):
        with pytest.raises(Unavailable, match="cannot be read"):
            keys.find("rsa")
    assert issuer.asked == 1
    issuer.answer = (200, json.dumps(JWKS).encode())
    watch.now += FAILED_SECONDS
    assert keys.find("rsa") is not None


@pytest.fixture
def hanging() -> Iterator[tuple[str, socket.socket]]:
    """An issuer that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/jwks.json", listening


@pytest.mark.promise("service-tokens-hold-up-no-keys")
def test_an_issuer_that_hangs_holds_up_nobody_with_a_key(book, hanging, monkeypatch):
    """60 calls with tokens of nobody waited for it one after another, and callers with keys behind them, for 40 s."""
    for limit in ("TIMEOUT_SECONDS", "WAIT_SECONDS"):
        monkeypatch.setattr(auth, limit, 60.0)
    url, listening = hanging
    settings = Settings(jwt_jwks=url, jwt_audience=AUDIENCE, jwt_issuer=ISSUER)
    gate = make_gate(book, settings)
    key = gate.keys.create(Key("laptop", ("user", "u1")))[1]
    server = start_server(Service(book, gate, settings))
    try:
        with ExitStack() as waiting:
            for _ in range(60):
                line = waiting.enter_context(socket.create_connection(listening_at(server.address), timeout=20))
                head = f"GET /v1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token()}\r\n\r\n"
                line.sendall(head.encode())
            asked = waiting.enter_context(listening.accept()[0])
            with server.client(key) as client:
                assert client.get("/v1").status_code == 200
                assert client.get("/docs", headers={"Authorization": f"Bearer {token()}"}).status_code == 200
                asked.close()  # the read fails now, and everybody who waited is told so
                assert client.get("/v1", headers={"Authorization": f"Bearer {token()}"}).status_code == 503
            listening.settimeout(0.2)
            with pytest.raises(TimeoutError):
                listening.accept()  # nobody asked a second time
    finally:
        server.stop()


def listening_at(address: str) -> tuple[str, int]:
    return "127.0.0.1", int(address.rpartition(":")[2])


@pytest.mark.parametrize("status", [200, 500])
def test_who_needs_the_keys_waits_for_one_read_and_shares_what_came_of_it(issuer, status):
    issuer.answer = (status, issuer.answer[1])
    issuer.go_on.clear()
    keys = KeySet(issuer.url, monotonic=Stopwatch())
    with ThreadPoolExecutor(10) as waiting:
        found = [waiting.submit(keys.find, "rsa") for _ in range(10)]
        assert issuer.has_come.acquire(timeout=20)
        issuer.go_on.set()
        failures = [one.exception() for one in found]
    assert issuer.asked == 1
    assert all(failure is None for failure in failures) == (status == 200)
    assert all(isinstance(failure, Unavailable) for failure in failures) == (status == 500)


def test_known_keys_stay_in_use_without_a_wait_once_the_issuer_has_failed(issuer):
    watch = Stopwatch()
    keys = KeySet(issuer.url, monotonic=watch)
    keys.find("rsa")
    issuer.answer = (500, b"")
    watch.now += KEPT_SECONDS + 1
    assert keys.find("rsa") is not None
    watch.now += FLOOR_SECONDS + 1
    issuer.go_on.clear()
    assert keys.pending("rsa") is None
    assert keys.find("rsa") is not None
    issuer.go_on.set()


@pytest.mark.promise("service-tokens-key-set")
@pytest.mark.parametrize(
    "place", ["http://id.example/jwks", "ftp://x/y", "https://u:p@id.example/", "https://", "/no/such/file.json"]
)
def test_keys_come_from_a_file_or_over_tls(place):
    with pytest.raises(ConfigurationError):
        KeySet(place)


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", '{"keys": 5}', '{"keys": [5]}', '{"keys": [{"kty": "oct", "k": "x"}]}']
)
def test_a_file_that_is_no_key_set_stops_the_start(tmp_path, content):
    file = tmp_path / "jwks.json"
    file.write_text(content)
    with pytest.raises(ConfigurationError):
        KeySet(str(file))


@pytest.mark.parametrize(
    "given",
    [
        {"jwt_audience": "a"},
        {"jwt_issuer": "i"},
        {"jwt_namespace": "org/{org}"},
        {"jwt_actions_claim": "scope"},
        {"jwt_jwks": "FILE"},
        {"jwt_jwks": "FILE", "jwt_audience": "a"},
        {"jwt_jwks": "FILE", "jwt_issuer": "i"},
        {"jwt_jwks": "FILE", "jwt_audience": "a", "jwt_issuer": "i", "jwt_namespace": "user/u-{sub}"},
    ],
)
def test_half_a_configuration_is_refused(book, jwks_file, given):
    words = {name: str(jwks_file) if value == "FILE" else value for name, value in given.items()}
    with pytest.raises(ConfigurationError):
        make_gate(book, Settings(**words))
