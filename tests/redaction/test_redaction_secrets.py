"""Secrets are known by their form or by what stands before them; code, hashes and images are left alone."""

from __future__ import annotations

import base64
import hashlib
import random
import string
import time
import uuid
from pathlib import Path

import pytest

import commonplace
from commonplace.redaction import Redactor

ALNUM = string.ascii_letters + string.digits


def drawn(length: int, characters: str = ALNUM) -> str:
    """A string drawn by lot, the same in every run; put together here, so that no scanner takes it for a real one."""
    lot = random.Random(length)
    return "".join(lot.choice(characters) for _ in range(length))


KNOWN = {
    "aws_key": ["AKIA" + drawn(16, string.ascii_uppercase + string.digits)],
    "github_token": ["ghp_" + drawn(36), "ghs_" + drawn(40), "github_pat_" + drawn(22) + "_" + drawn(59)],
    "gitlab_token": ["glpat-" + drawn(20), "gldt-" + drawn(25)],
    "slack_token": [
        "xoxb-" + drawn(12, string.digits) + "-" + drawn(24),
        "hooks.slack.com/services/T1/B2/" + drawn(24),
    ],
    "stripe_key": ["sk_live_" + drawn(24), "rk_test_" + drawn(30), "whsec_" + drawn(32)],
    "google_key": ["AIza" + drawn(35), "GOCSPX-" + drawn(28), "ya29." + drawn(60)],
    "model_key": ["sk-" + drawn(48), "sk-ant-api03-" + drawn(80), "sk-proj-" + drawn(60), "hf_" + drawn(34)],
    "service_token": ["npm_" + drawn(36), "SG." + drawn(22) + "." + drawn(43), "hvs." + drawn(30)],
    "commonplace_key": ["cp_" + drawn(12) + "_" + drawn(43)],
    "jwt": ["eyJhbGciOiJIUzI1NiJ9.eyJ" + drawn(60) + "." + drawn(43)],
    "private_key": [
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE" + drawn(60) + "\n" + drawn(60) + "\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: 2\n\nlQ" + drawn(60) + "\n-----END PGP PRIVATE KEY BLOCK-----",
        "-----BEGIN PRIVATE KEY-----\\nMII" + drawn(60) + "\\n-----END PRIVATE KEY-----",
    ],
}


@pytest.mark.promise("redaction-known-formats")
@pytest.mark.parametrize(("kind", "secret"), [(kind, one) for kind, many in KNOWN.items() for one in many])
def test_a_known_format_is_found_whole_wherever_it_stands(kind: str, secret: str) -> None:
    redactor = Redactor(kinds=[kind])
    for before, after in (("", ""), ("It is ", " now"), ('{"a":"', '"}'), ("see (", ")."), ("x=", "\n"), ("`", "`")):
        assert redactor.text(before + secret + after) == f"{before}[redacted:{kind}]{after}"
    assert redactor.text("a prefix alone: " + secret[:8]) == "a prefix alone: " + secret[:8]


def test_a_private_key_that_was_cut_off_is_masked_as_far_as_it_goes() -> None:
    cut = "-----BEGIN EC PRIVATE KEY-----\n" + drawn(64) + "\n" + drawn(30)
    assert Redactor().text(f"before\n{cut}, they said") == "before\n[redacted:private_key], they said"


@pytest.mark.promise("redaction-assignments")
@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("password=swordfish", "password=[redacted:password]"),
        ("DB_PASSWORD=Tr0ub4dor&3", "DB_PASSWORD=[redacted:password]&3"),
        ("password: hunter2!", "password: [redacted:password]"),
        ('"passwd": "correct-horse-7"', '"passwd": "[redacted:password]"'),
        ("Server=db;Pwd=s3cr3tpw;", "Server=db;Pwd=[redacted:password];"),
        (f"api_key = '{drawn(32)}'", "api_key = '[redacted:secret]'"),
        (f"client_secret: {drawn(24)}", "client_secret: [redacted:secret]"),
        (f"AWS_SECRET_ACCESS_KEY={drawn(40)}", "AWS_SECRET_ACCESS_KEY=[redacted:secret]"),
        (f'"api-key": "{hashlib.md5(b"x").hexdigest()}"', '"api-key": "[redacted:secret]"'),
        (f"Authorization: Bearer {drawn(30)}", "Authorization: Bearer [redacted:authorization]"),
        ("authorization: basic dXNlcjpwYXNzMTIz", "authorization: basic [redacted:authorization]"),
        ("postgres://app:s3cr3t@db:5432/x", "postgres://app:[redacted:url_password]@db:5432/x"),
        ("redis://:p4ss@cache", "redis://:[redacted:url_password]@cache"),
        (f"my API key is {drawn(32)}, keep it", "my API key is [redacted:high_entropy], keep it"),
    ],
)
def test_what_stands_before_it_gives_a_secret_away(text: str, masked: str) -> None:
    assert Redactor().text(text) == masked


@pytest.mark.promise("redaction-leaves-code-alone")
@pytest.mark.parametrize(
    "text",
    [
        "password = getpass.getpass()",
        "def login(user, password: str, token: str | None = None): ...",
        "client = connect(password=password, token=settings.token)",
        'password = os.environ["DB_PASSWORD"]',
        "PASSWORD=${DB_PASSWORD} TOKEN=$TOKEN SECRET=<your-secret>",
        "Password: must have at least 8 characters",
        '{"password": "string", "token": "required"}',
        "max_tokens=4096, token_count: 512, tokenizer='cl100k_base'",
        "https://user:password@example.org and postgres://user:<password>@host",
        "the commit 3a33a0b5a1f4c7e8d9b0123456789abcdef01234 has the key change",
        f"key {uuid.UUID(int=2**100)} and the token's id {uuid.UUID(int=2**90)}",
        f"sha256 of the key: {hashlib.sha256(b'a').hexdigest()}",
        "the key class SyncX509WorkloadIdentityAuth in auth/providers/oauth2_client_credentials.py",
        "scikit-learn, task-oriented-dialogue-systems-2024, sk-learn-contrib-projects-everywhere",
        "a key of the map: src/commonplace/server/http/access/principal.py",
        "ghp_" + "x" * 36,
    ],
)
def test_code_prose_and_placeholders_stay_as_they_are(text: str) -> None:
    assert Redactor().text(text) == text


def test_an_image_in_a_text_about_keys_stays_as_it_is() -> None:
    image = base64.b64encode(random.Random(1).randbytes(3_000)).decode()
    text = f"a picture of the key: data:image/png;base64,{image} and its token"
    assert Redactor().text(text) == text


def test_the_source_code_of_this_package_holds_no_secret() -> None:
    redactor = Redactor()
    sources = sorted(Path(commonplace.__file__).parent.rglob("*.py"))
    assert len(sources) > 100
    assert [(path.name, found) for path in sources if (found := redactor.find(path.read_text(encoding="utf-8")))] == []


HOSTILE = [
    *(
        "a",
        "@",
        "a@",
        "eyJ",
        "sk-",
        "password=",
        "password=a1",
        "token: ",
        "://a:",
        "1",
        "1-",
        "+1 2",
        "::",
        "a:",
        "bearer ",
    ),
    *(
        "-----BEGIN PRIVATE KEY-----",
        "4111 ",
        "DE89 ",
        "1.1.",
        "tel (",
        "cp_a_",
        "A1 ",
        "key a1B2c3D4e5F6g7H8i9J0 ",
        "İ",
    ),
]


@pytest.mark.promise("redaction-linear-time")
@pytest.mark.parametrize("unit", HOSTILE)
def test_the_time_is_linear_whatever_the_text_is(unit: str) -> None:
    redactor = Redactor(kinds=["all"])

    def seconds(length: int) -> float:
        text = (unit * (length // len(unit) + 1))[:length]
        start = time.process_time()
        redactor.find(text)
        return time.process_time() - start

    # Twenty-five times as long: quadratic time would be 625 times as much, and more than a minute at this size.
    assert seconds(500_000) < max(80 * seconds(20_000), 2.0)
