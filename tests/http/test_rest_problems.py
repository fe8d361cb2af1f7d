"""Whatever goes wrong is an `application/problem+json` with a stable code, and shows nothing internal."""

from __future__ import annotations

from pathlib import Path

import apsw
import httpx
import pytest
from real_server import start_server

import commonplace
from commonplace.server.http.api_keys import Keys
from commonplace.server.http.auth import Gate, Principal
from commonplace.server.http.service import Service
from commonplace.settings import Settings
from doubles import OpenBook


def problem(answer: httpx.Response) -> tuple[int, str, str]:
    assert answer.headers["content-type"] == "application/problem+json"
    form = answer.json()
    assert form["status"] == answer.status_code
    assert form["type"] == f"/v1/problems#{form['code']}"
    assert form["title"]
    return answer.status_code, form["code"], form["detail"]


RECORD = {"type": "note", "content": {"text": "tea"}, "source": "s", "confidence": 0.9}


@pytest.mark.promise("rest-problems-are-stable")
def test_errors_of_the_library_have_their_codes_and_words(http: httpx.Client) -> None:
    http.put("/v1/files/d/f", content="one\none\n")
    http.post("/v1/records", json={**RECORD, "id": "r"})
    cases = [
        (http.get("/v1/files/missing"), 404, "not_found", "/missing does not exist"),
        (http.get("/v1/files/d"), 409, "is_a_directory", "/d is a directory"),
        (http.put("/v1/files/d/f/g", content="x"), 409, "not_a_directory", "/d/f is a file"),
        (http.put("/v1/files/d/f?overwrite=false", content="x"), 409, "already_exists", "/d/f exists already"),
        (http.put("/v1/files/d/f", content=b"\xff"), 422, "invalid_input", "not UTF-8 at byte 0"),
        (http.get("/v1/files/%2e%2e%2fetc"), 422, "invalid_path", "invalid path segment"),
        (http.get("/v1/files/%ff"), 422, "invalid_input", "the URL is not valid UTF-8"),
        (http.get("/v1/stats?namespace=user/jos%e9"), 422, "invalid_input", "the URL is not valid UTF-8"),
        (http.get("/v1/export?namespace=user/jos%e9"), 422, "invalid_input", "the URL is not valid UTF-8"),
        (http.get("/v1/messages?thread=t%ff"), 422, "invalid_input", "the URL is not valid UTF-8"),
        (http.get("/api/memory/threads/%ff"), 422, "invalid_input", "the URL is not valid UTF-8"),
        (http.post("/mcp?namespace=user/jos%e9", json={}), 422, "invalid_input", "the URL is not valid UTF-8"),
        (http.put("/v1/files/big", content="x" * 10_000_001), 413, "too_large", "at most 10,000,000"),
        (http.post("/v1/records", json={**RECORD, "confidence": False}), 422, "invalid_input", "between 0 and 1"),
        (http.post("/v1/undo", json={"commit": 99}), 404, "not_found", "commit 99"),
        (http.get("/v1/stats?namespace=a//b"), 422, "invalid_input", "must not be empty"),
    ]
    for answer, status, code, words in cases:
        found = problem(answer)
        assert found[:2] == (status, code)
        assert words in found[2]


def test_what_an_error_knows_besides_its_message_comes_along(http: httpx.Client) -> None:
    http.put("/v1/files/f", content="one\ntwo\none\n")
    edit = {"replace": {"old": "one", "new": "1", "unique": True}}
    answer = http.patch("/v1/files/f", json=edit)
    assert problem(answer)[:2] == (409, "ambiguous")
    assert answer.json()["lines"] == [1, 3]
    refused = http.get("/v1/files/a%2F%252e%252e%2Fb").json()
    assert (refused["segment"], refused["is_traversal"]) == ("%2e%2e", True)


def test_a_book_that_cannot_be_used_is_told_without_its_place(open_book: OpenBook, tmp_path: Path) -> None:
    path = tmp_path / "private.db"
    book = open_book(path, busy_seconds=0.05)
    gate = Gate(Keys(book.store), Principal("local", ("user", "default"), "all"))
    server = start_server(Service(book, gate, Settings()))
    other = apsw.Connection(str(path))
    try:
        with server.client() as http:
            other.execute("BEGIN IMMEDIATE")
            locked = http.put("/v1/files/f", content="text")
            other.execute("ROLLBACK")
            book.close()
            closed = http.get("/v1/files/f")
    finally:
        other.close()
        server.stop()
    assert problem(locked) == (
        503,
        "unavailable",
        "the book is locked by another program; nothing was changed, try again",
    )
    assert problem(closed) == (503, "unavailable", "the book is closed; open it again")


@pytest.mark.promise("rest-strict-bodies")
@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "the body is not JSON"),
        (b"\xff", "the body is not JSON"),
        (b'{"query": "x"', "the body is not JSON"),
    ],
)
def test_a_body_that_is_no_json_is_told_so(http: httpx.Client, body: bytes, words: str) -> None:
    answer = http.post("/v1/search", content=body, headers={"Content-Type": "application/json"})
    status, code, detail = problem(answer)
    assert status in (400, 422)
    assert code in ("invalid_json", "invalid_input")
    assert words in detail or "body" in detail


@pytest.mark.promise("rest-strict-bodies")
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"query": "x", "limit": "5"}, "body.limit"),
        ({"query": "x", "limit": True}, "body.limit"),
        ({"query": "x", "below": 1}, "body.below"),
        ({"query": "x", "colour": "red"}, "body.colour: is unknown; leave it out"),
        ({"limit": 5}, "query is required"),
        ({"query": 5}, "query must be a string"),
        ([], "body"),
    ],
)
def test_wrong_types_and_unknown_fields_are_refused_by_name(http: httpx.Client, body: object, words: str) -> None:
    status, code, detail = problem(http.post("/v1/search", json=body))
    assert (status, code) == (422, "invalid_input")
    assert words in detail


def test_an_unknown_address_and_a_wrong_method_are_problems_too(http: httpx.Client) -> None:
    assert problem(http.get("/v1/nothing"))[:2] == (404, "no_such_route")
    for method, path, allowed in (
        ("DELETE", "/v1/search", "GET, HEAD, POST"),
        ("OPTIONS", "/v1/files/a", "GET, HEAD, PUT, POST, PATCH, DELETE"),
        ("HEAD", "/v1/undo", "POST"),
        ("PUT", "/api/memory/threads", "GET, HEAD, POST"),
        ("POST", "/healthz", "GET, HEAD"),
    ):
        wrong = http.request(method, path)
        assert (wrong.status_code, wrong.headers["allow"]) == (405, allowed), path
        assert method == "HEAD" or problem(wrong)[1] == "method_not_allowed"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/v1/files"),
        ("GET", "/v1/tree"),
        ("GET", "/v1/"),
        ("GET", "/metrics/"),
        ("GET", "/docs/"),
    ],
)
def test_a_slash_too_many_or_too_few_is_a_problem_and_sends_nobody_elsewhere(
    http: httpx.Client, method: str, path: str
) -> None:
    answer = http.request(method, path)
    assert problem(answer)[:2] == (404, "no_such_route")
    assert "location" not in answer.headers


def test_an_unexpected_error_shows_nothing_internal(http: httpx.Client, book: commonplace.Book) -> None:
    def broken(*_: object, **__: object) -> object:
        raise RuntimeError("the password is hunter2")

    book.namespaces = broken  # type: ignore[method-assign, assignment]
    answer = http.get("/v1/namespaces")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert answer.headers["content-type"] == "application/problem+json"
    assert "hunter2" not in answer.text


def test_a_refused_text_that_utf_8_cannot_hold_is_told_of(http: httpx.Client) -> None:
    body = b'{"type":"note","content":"\\ud800","source":"s","confidence":1}'
    answer = http.post("/v1/records", content=body, headers={"Content-Type": "application/json"})
    assert problem(answer)[:2] == (422, "invalid_input")
    assert "lone surrogate" in answer.json()["detail"]
