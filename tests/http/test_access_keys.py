"""Keys: shown once, kept as a hash, and each opens only what it was made for, for as long as it is good."""

from __future__ import annotations

import hashlib
import io
from typing import Any

import pytest
from real_server import start_server

from commonplace.errors import AlreadyExists, InvalidInput, NotFound, RateLimited, Unauthorized
from commonplace.server.http.api_keys import REMEMBERED_SECONDS, Key, Keys, Rate, Rates


class Stopwatch:
    """Seconds that pass only when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


RECORD = {"type": "note", "content": "Deploys go out on Tuesdays", "source": "test", "confidence": 1.0}


def code_of(response: Any) -> tuple[int, str]:
    assert response.headers["content-type"] == "application/problem+json"
    return response.status_code, response.json()["code"]


# What is kept


@pytest.mark.promise("service-keys-are-kept-as-hashes")
def test_no_file_of_the_book_holds_the_secret_of_a_key(book, tmp_path):
    key, text = Keys(book.store).create(Key("laptop", ("user", "u1")))
    secret = text.rpartition("_")[2]
    assert text == f"cp_{key.id}_{secret}"
    assert len(bytes.fromhex(secret)) == 32
    files = [file.read_bytes() for file in tmp_path.iterdir() if file.name.startswith("book.db")]
    assert any(key.id.encode() in held for held in files)
    assert not any(secret.encode() in held or bytes.fromhex(secret) in held for held in files)


def test_two_keys_have_different_secrets_and_names_are_unique(book):
    keys = Keys(book.store)
    _, first = keys.create(Key("a", ("user", "u1")))
    _, second = keys.create(Key("b", ("user", "u1")))
    assert first.rpartition("_")[2] != second.rpartition("_")[2]
    with pytest.raises(AlreadyExists, match=r"a key a exists already.*keys revoke a --forget"):
        keys.create(Key("a", ("user", "u2")))
    keys.revoke("a")
    with pytest.raises(AlreadyExists):
        keys.create(Key("a", ("user", "u2")))
    keys.revoke("a", forget=True)
    keys.create(Key("a", ("user", "u2")))
    with pytest.raises(Unauthorized):
        keys.check(first)


def test_a_key_comes_back_as_it_was_made(book, clock):
    made = Key(
        "all",
        ("org", "acme"),
        reach="below",
        actions=frozenset(("read", "admin")),
        expires_at=clock.now + 1,
        rate=Rate(5, 60),
        max_entries=3,
        max_bytes=4,
        created_at=clock.now,
    )
    keys = Keys(book.store, clock=clock)
    assert keys.create(made)[0] == made
    assert Keys(book.store, clock=clock).list() == [(made, None)]


@pytest.mark.parametrize("name", ["", " ", "a b", "a/b", "a:b", "-a", "x" * 65, "é", "a\n", "local"])
def test_a_name_that_could_be_taken_for_another_caller_is_refused(book, name):
    with pytest.raises(InvalidInput, match="is not a valid name for a key"):
        Keys(book.store).create(Key(name, ("user", "u1")))


def test_a_key_that_would_expire_past_all_dates_is_refused(book):
    keys = Keys(book.store)
    with pytest.raises(InvalidInput, match="before the year 9999"):
        keys.create(Key("robot", ("user", "u1"), expires_at=10**18))
    assert keys.list() == []


def test_reading_is_part_of_every_key(book):
    assert Keys(book.store).create(Key("w", ("a",), actions=frozenset(("write",))))[0].actions == {"read", "write"}


def test_an_unknown_key_cannot_be_revoked(book):
    with pytest.raises(NotFound, match="there is no key ghost"):
        Keys(book.store).revoke("ghost")


@pytest.mark.promise("service-keys-last-use-is-coarse")
def test_the_last_use_is_noted_once_an_hour_and_for_the_right_secret_only(book, clock):
    keys = Keys(book.store, clock=clock)
    _, text = keys.create(Key("a", ("user", "u1")))
    with pytest.raises(Unauthorized):
        keys.check(text[:-4] + "0000")
    keys.record_uses()
    assert keys.list()[0][1] is None
    first = clock.now
    for _ in range(3):
        keys.check(text)
        keys.record_uses()
        assert keys.list()[0][1] == first
        clock.advance(60)
    clock.advance(3_600)
    keys.check(text)
    keys.record_uses()
    assert keys.list()[0][1] == clock.now


@pytest.mark.promise("service-keys-last-use-is-coarse")
def test_a_service_notes_the_last_use_at_its_end_at_the_latest(service, make_key, clock):
    key = make_key("a")
    server = start_server(service)
    with server.client(key) as client:
        assert client.get("/v1").status_code == 200
    server.stop()
    assert service.access.keys.list()[0][1] == clock.now


# Who is let in


@pytest.mark.promise("service-keys-open-their-namespace")
def test_a_key_opens_its_namespace_by_either_header(server, make_key):
    key = make_key("laptop", "user/u1")
    with server.client() as client:
        for headers in ({"Authorization": f"Bearer {key}"}, {"authorization": f"bearer  {key}"}, {"X-API-Key": key}):
            said = client.get("/v1", headers=headers).json()
            assert (said["name"], said["namespace"], said["reach"]) == ("laptop", "user/u1", "own")


@pytest.mark.promise("service-keys-refusals")
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": "Basic dTpw"},
        {"Authorization": "Bearer cp_"},
        {"Authorization": "Bearer cp_000000000000_00"},
        {"Authorization": "Bearer {key}0"},
        {"Authorization": "Bearer {key}", "X": "cut"},
        {"Authorization": "Bearer not-a-key"},
        {"Authorization": "Bearer " + "x" * 20_000},
        {"X-API-Key": ""},
        {"X-API-Key": "{key}é"},
        {"Authorization": "Bearer wrong", "X-API-Key": "{key}"},
    ],
    ids=lambda headers: ",".join(f"{name}={value[:20]}" for name, value in headers.items()) or "none",
)
def test_whoever_shows_no_good_key_is_refused(server, make_key, headers):
    key = make_key("laptop")
    if headers.pop("X", None):
        headers = {"Authorization": f"Bearer {key[:-1]}"}
    sent = {name: value.replace("{key}", key).encode() for name, value in headers.items()}
    with server.client() as client:
        answer = client.get("/v1/records", headers=sent)
    assert code_of(answer) == (401, "unauthorized")
    assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.promise("service-keys-turn-authentication-on")
def test_the_first_key_closes_a_running_service_and_the_last_revocation_leaves_it_closed(
    server, http, service, make_key
):
    assert http.get("/v1/records").status_code == 200
    key = make_key("laptop")
    assert http.get("/v1/records").status_code == 401
    service.access.keys.revoke("laptop")
    assert http.get("/v1/records").status_code == 401
    assert Keys(service.book.store).any()
    with server.client(key) as client:
        assert "was revoked" in client.get("/v1/records").json()["detail"]


@pytest.mark.promise("service-keys-revocation")
def test_a_revoked_key_is_refused_at_once_here_and_within_two_seconds_elsewhere(book):
    watch = Stopwatch()
    elsewhere, here = Keys(book.store, monotonic=watch), Keys(book.store)
    _, text = here.create(Key("laptop", ("user", "u1")))
    assert elsewhere.check(text).name == here.check(text).name == "laptop"
    here.revoke("laptop")
    with pytest.raises(Unauthorized, match="was revoked"):
        here.check(text)
    assert elsewhere.check(text).name == "laptop"
    watch.now += REMEMBERED_SECONDS + 0.01
    with pytest.raises(Unauthorized, match="was revoked"):
        elsewhere.check(text)


@pytest.mark.promise("service-keys-expiry")
def test_an_expired_key_is_refused(server, make_key, clock):
    key = make_key("short", expires_at=clock.now + 60_000_000)
    with server.client(key) as client:
        assert client.get("/v1/records").status_code == 200
        clock.advance(60)
        assert code_of(client.get("/v1/records")) == (401, "unauthorized")


@pytest.mark.promise("service-keys-revocation")
def test_an_open_stream_of_a_revoked_key_ends_and_no_other(server, make_key, service):
    revoked, kept = make_key("laptop"), make_key("other")
    with (
        server.client(revoked) as client,
        server.client(kept) as staying,
        client.stream("GET", "/v1/changes/stream") as ending,
        staying.stream("GET", "/v1/changes/stream") as going_on,
    ):
        service.access.keys.revoke("laptop")
        assert b"data:" not in ending.read()
        service.book.space("user", "u1").files.write("/after", "seen by the key that stays")
        told = next(line for line in going_on.iter_lines() if line.startswith("data:"))
    assert "/after" in told


# What it may do


@pytest.mark.promise("service-keys-actions")
def test_a_read_only_key_reads_and_changes_nothing(server, make_key, service):
    space = service.book.space("user", "u1")
    space.files.write("/a", "before")
    reader = make_key("reader", actions=("read",))
    with server.client(reader) as client:
        assert client.get("/v1/files/a").text == "before"
        assert code_of(client.put("/v1/files/a", content="after")) == (403, "forbidden")
        assert code_of(client.delete("/v1/files/a")) == (403, "forbidden")
        assert code_of(client.post("/v1/records", json=RECORD)) == (403, "forbidden")
    assert space.files.read("/a") == "before"


@pytest.mark.promise("service-keys-actions")
def test_writing_does_not_include_deleting_nor_deleting_erasing(server, make_key, service):
    writer, deleter = make_key("writer", actions=("write",)), make_key("deleter", actions=("write", "delete"))
    purge = {"kind": "file", "key": "/a"}
    with server.client(writer) as client:
        assert client.put("/v1/files/a", content="x").status_code < 300
        assert code_of(client.delete("/v1/files/a")) == (403, "forbidden")
    with server.client(deleter) as client:
        assert client.delete("/v1/files/a").status_code < 300
        assert code_of(client.post("/v1/purge", json=purge)) == (403, "forbidden")
    with server.client(make_key("admin", actions=("write", "delete", "admin"))) as client:
        assert client.post("/v1/purge", json=purge).status_code < 300


@pytest.mark.promise("service-keys-reach")
@pytest.mark.parametrize(
    ("reach", "reached"),
    [("own", ["org/acme"]), ("below", ["org/acme", "org/acme/x"]), ("all", ["org/acme", "org/acme/x", "org/acme2"])],
)
def test_a_key_reaches_its_own_namespace_those_below_or_all(server, make_key, service, reach, reached):
    names = ["org/acme", "org/acme/x", "org/acme2"]
    for name in names:
        service.book.space(*name.split("/")).files.write("/a", f"of {name}")
    with server.client(make_key("k", "org/acme", reach=reach)) as client:
        answers = {name: client.get("/v1/files/a", params={"namespace": name}) for name in names}
        listed = client.get("/v1/namespaces").json()["namespaces"]
    assert {name: answer.text for name, answer in answers.items() if answer.status_code == 200} == {
        name: f"of {name}" for name in reached
    }
    assert {code_of(answer) for answer in answers.values() if answer.status_code != 200} <= {(403, "forbidden")}
    assert listed == reached


@pytest.mark.promise("service-keys-quota")
def test_a_key_may_fill_its_namespace_up_to_its_quota(server, make_key):
    with server.client(make_key("small", max_entries=2)) as client:
        assert client.put("/v1/files/a", content="1").status_code < 300
        assert client.put("/v1/files/b", content="2").status_code < 300
        assert code_of(client.put("/v1/files/c", content="3")) == (413, "too_large")
        assert client.put("/v1/files/a", content="4").status_code < 300
    with server.client(make_key("light", "user/u2", max_bytes=1_000)) as client:
        assert code_of(client.put("/v1/files/a", content="x" * 2_000)) == (413, "too_large")


@pytest.mark.promise("service-keys-quota")
def test_a_quota_counts_history_and_every_namespace_that_the_key_writes_to(server, make_key, book):
    """A file of 1.5 kB was replaced 310 times under a limit of 2,000 bytes, and each made-up agentId had a quota of its
    own.
    """
    with server.client(make_key("light", max_bytes=5_000)) as client:
        answers = [client.put("/v1/files/a", content=hashlib.sha256(b"%d" % n).hexdigest() * 20) for n in range(20)]
        assert code_of(answers[-1]) == (413, "too_large")
        assert "user/u1 and below would hold" in answers[-1].json()["detail"]
        assert client.get("/v1/stats").json()["former_bytes"] > 1_000
        for number in range(20):
            path, agent = "/api/memory/threads", {"agentId": f"a-{number}"}
            answer = client.post(
                path, params=agent, json={"resourceId": "r", "title": "t", "metadata": {"x": "y" * 900}}
            )
            if answer.status_code == 413:
                break
        else:
            pytest.fail("each agent had a quota of its own")
        assert client.delete("/v1/files/a").status_code == 200
    usage = book.store.usage(("user", "u1"))
    assert usage.bytes + usage.former_bytes < 5_000 + 2_000  # the deletion was let through


@pytest.mark.promise("service-keys-quota")
def test_an_import_keeps_to_the_quota_of_its_key(server, make_key, book):
    """A key with a limit brought in any amount by an import."""
    book.space("user", "u1").files.write("/a", "x" * 3_000)
    export = io.BytesIO()
    book.export(export.write, namespaces=[("user", "u1")])
    key = make_key("light", max_bytes=2_000, actions=("read", "write", "delete", "admin"))
    with server.client(key) as client:
        book.space("user", "u1").purge()
        assert code_of(client.post("/v1/import", content=export.getvalue())) == (413, "too_large")
        assert client.put("/v1/files/b", content="own").status_code < 300
        merged = client.post("/v1/import", params={"merge": "true"}, content=export.getvalue())
        assert code_of(merged) == (413, "too_large")
    assert [one.path for one in book.space("user", "u1").files.list("/")] == ["/b"]


@pytest.mark.promise("service-provenance")
def test_history_tells_which_key_face_and_client_wrote(server, make_key, service):
    with server.client(make_key("laptop"), headers={"User-Agent": "my-agent/2 (x; y)"}) as client:
        client.put("/v1/files/a", content="1")
    assert service.book.space("user", "u1").history("file", "/a")[0].actor == "laptop rest my-agent/2"


# Rates


@pytest.mark.promise("service-rates")
def test_a_key_above_its_rate_is_told_when_to_come_back(server, make_key):
    with server.client(make_key("busy", rate=Rate(3, 86_400))) as client:
        assert [client.get("/v1/records").status_code for _ in range(3)] == [200] * 3
        refused = client.get("/v1/records")
    assert code_of(refused) == (429, "rate_limited")
    assert 28_000 < int(refused.headers["retry-after"]) <= 28_800
    with server.client(make_key("quiet")) as client:
        assert client.get("/v1/records").status_code == 200


@pytest.mark.promise("service-rates")
def test_a_rate_refills_evenly_and_never_above_itself():
    watch = Stopwatch()
    rates = Rates(watch)
    rate = Rate.parse("60/m")

    def taken(tries: int) -> int:
        count = 0
        for _ in range(tries):
            try:
                rates.take("a", rate)
            except RateLimited:
                continue
            count += 1
        return count

    assert taken(100) == 60
    watch.now += 10
    assert taken(100) == 10
    watch.now += 10_000
    assert taken(100) == 60
    with pytest.raises(RateLimited) as refused:
        rates.take("a", rate)
    assert refused.value.retry_after_seconds == 1
    rates.take("b", rate)


def test_a_caller_that_is_refused_does_not_wait_longer_for_asking():
    watch = Stopwatch()
    rates = Rates(watch)
    rate = Rate(1, 60)
    rates.take("a", rate)
    for _ in range(59):
        watch.now += 1
        with pytest.raises(RateLimited):
            rates.take("a", rate)
    watch.now += 1
    rates.take("a", rate)


@pytest.mark.parametrize("text", ["", "5", "0/m", "-1/m", "5/y", "5/ m", "1.5/s", "9999999999/s"])
def test_what_is_no_rate_is_refused(text):
    with pytest.raises(InvalidInput, match="is not a rate"):
        Rate.parse(text)


def test_a_rate_is_written_as_it_is_read():
    assert [str(Rate.parse(text)) for text in ("1/s", "100/m", "5/h", "7/d")] == ["1/s", "100/m", "5/h", "7/d"]
