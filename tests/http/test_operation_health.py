"""`/healthz` tells that the process lives, `/readyz` whether to send requests to it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import httpx
import psycopg
import pytest
from operated import operated

import commonplace
from commonplace.errors import Unavailable
from commonplace.server.http import observability
from commonplace.server.http.api_keys import Key, Keys
from commonplace.server.http.auth import Gate
from commonplace.server.http.service import Service
from commonplace.settings import Settings
from postgres_server import shared_server

READY = {"status": "ready", "store": "ok", "model": "ok", "reasons": []}


class HeldEmbedder:
    """Loads until it is let go."""

    identity, dimensions, calibration = "held@1", 4, (0.0, 1.0)

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.calls = 0

    def embed(self, texts: Sequence[str], *, purpose: str) -> Any:
        import numpy as np

        self.calls += 1
        assert self.let_go.wait(30)
        return np.ones((len(texts), 4), np.float32) / 2


@pytest.mark.promise("service.health")
def test_a_service_lives_and_is_ready(http: httpx.Client) -> None:
    live = http.get("/healthz")
    assert (live.status_code, live.json()) == (200, {"status": "ok"})
    ready = http.get("/readyz")
    assert (ready.status_code, ready.json()) == (200, READY)


@pytest.mark.promise("service.health")
def test_health_needs_no_key_where_everything_else_does(http: httpx.Client, make_key: Any) -> None:
    make_key("someone")
    assert [http.get(path).status_code for path in ("/healthz", "/readyz", "/metrics")] == [200, 200, 401]


@pytest.mark.promise("service.ready")
def test_passages_that_wait_for_vectors_do_not_make_a_service_unready(
    http: httpx.Client, book: commonplace.Book
) -> None:
    book.space("user", "u1").files.write("/notes/a", "a text that waits for its vector")
    answer = http.get("/readyz")
    assert (answer.status_code, answer.json()) == (200, READY)


@pytest.mark.promise("service.ready")
def test_a_model_that_fails_makes_a_service_unready_and_its_message_is_not_shown(
    http: httpx.Client, embedder: Any
) -> None:
    embedder.error = Unavailable("no model in /home/someone/models")
    answer = http.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {
        **READY,
        "status": "not ready",
        "model": "failing",
        "reasons": ["the embedding model cannot be used; `commonplace doctor` says why"],
    }
    assert http.get("/healthz").status_code == 200


@pytest.mark.promise("service.ready")
def test_a_model_that_is_being_loaded_holds_up_nobody_and_is_loaded_once(
    open_book: Any, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observability, "WAIT_SECONDS", 0.05)
    held = HeldEmbedder()
    book = open_book(embedder=held)
    with operated(Service(book, service.access, service.settings)) as (server, _), server.client() as client:
        waiting = {
            **READY,
            "status": "not ready",
            "model": "loading",
            "reasons": ["the embedding model is still being loaded"],
        }
        for _ in range(3):
            answer = client.get("/readyz")
            assert (answer.status_code, answer.json()) == (503, waiting)
        held.let_go.set()
        monkeypatch.setattr(observability, "WAIT_SECONDS", 20.0)
        assert client.get("/readyz").json() == READY
        assert held.calls == 1


@pytest.mark.promise("service.ready")
def test_a_store_that_fails_makes_a_service_unready(http: httpx.Client, book: commonplace.Book) -> None:
    """While PostgreSQL was away, it said that the embedding model could not be used, and to run doctor."""
    book.store.close()
    answer = http.get("/readyz")
    assert answer.status_code == 503
    assert (answer.json()["store"], answer.json()["model"]) == ("failing", "unknown")
    assert answer.json()["reasons"] == ["the store fails; the server's log says how"]
    assert http.get("/healthz").status_code == 200


@pytest.mark.promise("service.ready")
def test_a_server_whose_database_was_upgraded_says_to_restart_it(
    open_book: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A newer program had upgraded the database: a running server went on with statements of the schema before."""
    url = shared_server().create_database() + "?partitions=2"
    book = open_book(url, clock=None)
    keys = Keys(book.store)
    key = keys.create(Key("alice", ("user", "alice")))[1]
    with operated(Service(book, Gate(keys), Settings())) as (server, _), server.client(key) as client:
        assert client.put("/v1/files/notes", content="deploys").status_code == 200
        with psycopg.connect(url.partition("?")[0]) as connection:
            connection.execute("INSERT INTO commonplace.migration SELECT max(number) + 1 FROM commonplace.migration")
        for answer in (client.get("/v1/files/notes"), client.put("/v1/files/notes", content="x")):
            assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
            assert answer.json()["detail"].startswith("the database is newer than this program: a newer commonplace")
            assert answer.json()["detail"].endswith("; restart it with the newer version")
        ready = client.get("/readyz")
        assert (ready.status_code, ready.json()["store"]) == (503, "failing")
        assert ready.json()["reasons"] == ["the store fails; the server's log says how"]
        assert "not ready: the database is newer than this program" in caplog.text
        assert client.get("/healthz").status_code == 200


@pytest.mark.promise("service.ready")
def test_a_service_that_is_stopping_is_not_ready_and_ends_its_connections(service: Service) -> None:
    with operated(service) as (server, _), server.client() as client:
        before = client.get("/readyz")
        server.uvicorn.config.app.state.work.stop()
        after = client.get("/readyz")
        assert (before.status_code, after.status_code) == (200, 503)
        assert after.json()["reasons"] == ["the server is stopping"]
        assert ("connection" in before.headers, after.headers["connection"]) == (False, "close")


def test_operation_is_part_of_the_described_interface(http: httpx.Client) -> None:
    paths = http.get("/openapi.json").json()["paths"]
    assert sorted(paths["/healthz"]["get"]["responses"]) == ["200"]
    assert sorted(paths["/readyz"]["get"]["responses"]) == ["200", "503"]
    assert {"200", "401", "403"} <= paths["/metrics"]["get"]["responses"].keys()
