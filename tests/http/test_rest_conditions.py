"""Conditional requests and idempotency keys: no update is lost, and nothing is made twice."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from real_server import Server

RECORD = {"type": "note", "content": {"text": "tea"}, "source": "s", "confidence": 0.9}
Make = Callable[[httpx.Client], tuple[str, dict[str, object]]]


def file(http: httpx.Client) -> tuple[str, dict[str, object]]:
    http.put("/v1/files/d/f", content="one")
    return "/v1/files/d/f", {"json": {"text": "two"}}


def record(http: httpx.Client) -> tuple[str, dict[str, object]]:
    made = http.post("/v1/records", json={**RECORD, "id": "r"})
    return made.headers["location"], {"json": {"confidence": 0.5}}


def thread(http: httpx.Client) -> tuple[str, dict[str, object]]:
    made = http.post("/v1/threads", json={"title": "first", "id": "a/b?c#d e"})
    return made.headers["location"], {"json": {"title": "second"}}


def message(http: httpx.Client) -> tuple[str, dict[str, object]]:
    http.post("/v1/threads", json={"id": "t"})
    said = {"messages": [{"id": "m", "role": "user", "content": "hello"}]}
    http.post("/v1/messages?thread=t", json=said)
    return "/v1/messages/m", {"json": {"content": "goodbye"}}


@pytest.mark.promise("rest-conditional")
@pytest.mark.parametrize("make", [file, record, thread, message])
def test_a_change_of_what_was_changed_since_is_refused(http: httpx.Client, make: Make) -> None:
    address, change = make(http)
    first = http.get(address)
    etag = first.headers["etag"]
    assert http.get(address, headers={"If-None-Match": etag}).status_code == 304
    assert http.patch(address, headers={"If-Match": etag}, **change).status_code == 200  # type: ignore[arg-type]
    second = http.get(address, headers={"If-None-Match": etag})
    assert second.status_code == 200
    assert second.headers["etag"] != etag
    late = http.patch(address, headers={"If-Match": etag}, **change)  # type: ignore[arg-type]
    assert (late.status_code, late.json()["code"], late.json()["revision"]) == (412, "precondition_failed", 2)
    if address != "/v1/messages/m":
        assert http.delete(address, headers={"If-Match": etag}).status_code == 412
        assert http.delete(address, headers={"If-Match": f"{etag}, {second.headers['etag']}"}).status_code == 200
        assert http.get(address).status_code == 404


@pytest.mark.promise("rest-conditional")
def test_a_tag_that_a_proxy_made_weak_is_still_known(http: httpx.Client) -> None:
    address, _ = record(http)
    weak = f"W/{http.get(address).headers['etag']}"
    for held, status in ((weak, 304), (f'"7", {weak}', 304), ('W/"7"', 200), ("", 200), ("*", 304)):
        assert http.get(address, headers={"If-None-Match": held}).status_code == status
    assert http.patch(address, headers={"If-Match": weak}, json={"confidence": 0.5}).status_code == 412


def test_a_record_that_was_deleted_and_comes_again_is_a_new_one(http: httpx.Client) -> None:
    for content in ("first", "second"):
        new = {**RECORD, "id": "r", "content": content}
        assert [http.post("/v1/records", json=new).status_code for _ in range(2)] == [201, 200]
        http.delete("/v1/records/r")


@pytest.mark.promise("rest-conditional")
def test_a_file_is_written_only_where_none_is_or_only_where_one_is(http: httpx.Client) -> None:
    address = "/v1/files/f"
    assert http.put(address, content="x", headers={"If-Match": "*"}).status_code == 412
    assert http.put(address, content="one", headers={"If-None-Match": "*"}).status_code == 200
    assert http.put(address, content="two", headers={"If-None-Match": "*"}).status_code == 412
    assert http.put(address, content="three", headers={"If-Match": "*"}).status_code == 200
    assert http.put(address, content="x", headers={"If-Match": '"of another service"'}).status_code == 412
    assert http.put(address, content="x", headers={"If-Match": '"0"'}).status_code == 412
    assert http.put(address, content="x", headers={"If-None-Match": '"1"'}).status_code == 422
    assert http.get(address).text == "three"


@pytest.mark.promise("rest-conditional")
def test_a_directory_is_deleted_only_while_it_has_its_tag(http: httpx.Client) -> None:
    http.put("/v1/files/d/f", content="one")
    etag = http.get("/v1/info/d").headers["etag"]
    assert http.delete("/v1/files/d", headers={"If-Match": '"7"'}).status_code == 412
    assert http.delete("/v1/files/d/", headers={"If-Match": etag}).json()["files"] == 1
    for tag in (etag, "*"):
        assert http.delete("/v1/files/d", headers={"If-Match": tag}).status_code == 412
    http.put("/v1/directories/e")
    assert http.delete("/v1/files/e", headers={"If-Match": "*"}).status_code == 200


def test_the_condition_may_be_on_another_entry(http: httpx.Client) -> None:
    http.put("/v1/files/plan", content="x")
    here = {"If-Revision": "file %2Fplan 1"}
    assert http.post("/v1/records", json=RECORD, headers=here).status_code == 201
    http.put("/v1/files/plan", content="y")
    refused = http.post("/v1/records", json={**RECORD, "type": "task"}, headers=here)
    assert (refused.status_code, refused.json()["revision"]) == (412, 2)
    assert http.post("/v1/records", json=RECORD, headers={"If-Revision": "file"}).status_code == 422
    assert http.get("/v1/stats").json()["entries"] == {"file": 1, "record": 1}


@pytest.mark.promise("rest-conditional")
@pytest.mark.parametrize("outdated", ["file %2Fplan 7", "file %2Fplan 1, record r 7", "record r 7,8, file %2Fplan 1"])
def test_every_one_of_several_conditions_has_to_hold(http: httpx.Client, outdated: str) -> None:
    http.put("/v1/files/plan", content="x")
    http.post("/v1/records", json={**RECORD, "id": "r"})
    http.put("/v1/files/f", content="one")
    for condition in ({"If-Match": '"1"'}, {"If-Match": "*"}, {}):
        headers = {**condition, "If-Revision": outdated}
        assert http.put("/v1/files/f", content="two", headers=headers).status_code == 412
        assert http.delete("/v1/files/f", headers=headers).status_code == 412
        assert http.patch("/v1/records/r", json={"confidence": 0.5}, headers=headers).status_code == 412
        assert http.delete("/v1/records/r", headers=headers).status_code == 412
    new = {"If-None-Match": "*"}
    assert http.put("/v1/files/new", content="x", headers={**new, "If-Revision": outdated}).status_code == 412
    assert http.put("/v1/files/new", content="x", headers={**new, "If-Match": '"7"'}).status_code == 412
    assert http.get("/v1/stats").json()["commit"] == 3


@pytest.mark.promise("rest-conditional")
def test_conditions_may_stand_in_one_header_or_in_several(http: httpx.Client) -> None:
    http.put("/v1/files/plan", content="x")
    http.post("/v1/records", json={**RECORD, "id": "r"})
    plan, record = ("If-Revision", "file %2Fplan 1,2"), ("If-Revision", "record r 1")
    late = ("If-Revision", "record r 7")
    assert http.put("/v1/files/f", content="x", headers=[plan, late]).status_code == 412
    assert http.put("/v1/files/f", content="x", headers=[late, plan]).status_code == 412
    assert http.put("/v1/files/f", content="x", headers=[plan, record]).status_code == 200
    assert http.put("/v1/files/f", content="y", headers=[("If-Revision", f"{plan[1]}, {record[1]}")]).status_code == 200


@pytest.mark.promise("rest-conditional")
def test_a_thread_that_was_written_to_is_not_deleted_by_its_former_tag(http: httpx.Client) -> None:
    http.post("/v1/threads", json={"id": "t"})
    etag = http.get("/v1/threads/t").headers["etag"]
    said = {"messages": [{"id": "m", "role": "user", "content": "said meanwhile"}]}
    http.post("/v1/messages?thread=t", json=said)
    assert http.patch("/v1/threads/t", json={"title": "x"}, headers={"If-Match": etag}).status_code == 412
    assert http.delete("/v1/threads/t", headers={"If-Match": etag}).status_code == 412
    assert http.get("/v1/messages/m").status_code == 200
    now = http.get("/v1/threads/t").headers["etag"]
    assert http.delete("/v1/threads/t", headers={"If-Match": now}).status_code == 200


@pytest.mark.promise("rest-conditional")
@pytest.mark.parametrize("make", [file, record, thread, message])
def test_the_tag_of_what_was_erased_is_none_of_what_came_after_it(http: httpx.Client, make: Make) -> None:
    address, change = make(http)
    etag = http.get(address).headers["etag"]
    http.post("/v1/purge", json={"everything": True})
    make(http)
    assert http.get(address, headers={"If-None-Match": etag}).status_code == 200
    assert http.patch(address, headers={"If-Match": etag}, **change).status_code == 412  # type: ignore[arg-type]


@pytest.mark.promise("rest-conditional")
def test_of_many_who_change_the_same_revision_one_wins(server: Server, http: httpx.Client) -> None:
    http.put("/v1/files/counter", content="0")

    def count(_: int) -> None:
        with server.client() as client:
            for _ in range(5):
                while True:
                    read = client.get("/v1/files/counter")
                    condition = {"If-Match": read.headers["etag"]}
                    wrote = client.put("/v1/files/counter", content=str(int(read.text) + 1), headers=condition)
                    if wrote.status_code == 200:
                        break
                    assert wrote.status_code == 412

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, range(4)))
    assert http.get("/v1/files/counter").text == "20"


def test_the_working_memory_has_a_revision_from_the_beginning(http: httpx.Client) -> None:
    address = "/v1/working-memory?resource=r"
    empty = http.get(address)
    assert empty.json() == {"working_memory": None}
    first = http.put(address, json={"content": {"name": "Ana"}}, headers={"If-None-Match": "*"})
    assert first.json()["revision"] == 1
    assert first.headers["etag"] == http.get(address).headers["etag"]
    assert http.delete(address, headers={"If-Match": empty.headers["etag"]}).status_code == 412
    late = http.put(address, json={"content": {"name": "Eve"}}, headers={"If-None-Match": "*"})
    assert late.status_code == 412
    assert http.put(address, json={"content": {"city": "Bonn"}, "revision": 1}).json()["revision"] == 2
    assert http.delete(address, headers={"If-Match": '"1"'}).status_code == 412
    assert http.get(address).json()["working_memory"]["content"] == {"name": "Ana", "city": "Bonn"}


@pytest.mark.promise("rest-conditional")
def test_the_tag_of_an_empty_working_memory_can_be_written_under(http: httpx.Client) -> None:
    address = "/v1/working-memory?resource=r"
    empty = {"If-Match": http.get(address).headers["etag"]}
    assert http.put(address, json={"content": {"name": "Ana"}}, headers=empty).status_code == 200
    assert http.put(address, json={"content": {"name": "Eve"}}, headers=empty).status_code == 412


@pytest.mark.promise("rest-conditional")
def test_an_append_and_a_new_directory_hold_to_conditions_too(http: httpx.Client) -> None:
    new = {"If-None-Match": "*"}
    assert http.post("/v1/files/log", content="one", headers=new).status_code == 200
    assert http.post("/v1/files/log", content="two", headers=new).status_code == 412
    assert http.get("/v1/files/log").text == "one"
    assert http.put("/v1/directories/d", headers={"If-Match": "*"}).status_code == 412
    made = http.put("/v1/directories/d", headers=new)
    assert made.status_code == 200
    assert http.put("/v1/directories/d", headers=new).status_code == 412
    assert http.put("/v1/directories/d", headers={"If-Match": '"7"'}).status_code == 412
    assert http.put("/v1/directories/d", headers={"If-Match": made.headers["etag"]}).status_code == 200


CREATIONS = {
    "record": ("POST", "/v1/records", {"json": RECORD}),
    "thread": ("POST", "/v1/threads", {"json": {"title": "Deploys"}}),
    "messages": ("POST", "/v1/messages?thread=t", {"json": {"messages": [{"role": "user", "content": "hello"}]}}),
    "conversation": ("POST", "/v1/conversations", {"json": {"messages": [{"role": "user", "content": "hello"}]}}),
    "append": ("POST", "/v1/files/log", {"content": "line"}),
    "clone": ("POST", "/v1/clones", {"json": {"thread": "t"}}),
    "write": ("PUT", "/v1/files/new", {"content": "text"}),
}


@pytest.mark.promise("rest-idempotent")
@pytest.mark.parametrize("name", CREATIONS)
def test_a_creation_with_a_key_is_made_once_and_answered_alike(http: httpx.Client, name: str) -> None:
    http.post("/v1/threads", json={"id": "t"})
    method, address, options = CREATIONS[name]
    key = {"Idempotency-Key": "k-1"}
    first = http.request(method, address, headers=key, **options)  # type: ignore[arg-type]
    assert first.status_code in (200, 201)
    commit = http.get("/v1/stats").json()["commit"]
    again = http.request(method, address, headers=key, **options)  # type: ignore[arg-type]
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert again.headers.get("etag") == first.headers.get("etag")
    assert http.get("/v1/stats").json()["commit"] == commit


@pytest.mark.promise("rest-idempotent")
def test_a_request_that_changed_nothing_is_not_made_later_and_keeps_its_key(http: httpx.Client) -> None:
    key = {"Idempotency-Key": "k-1"}
    http.put("/v1/files/f", content="mine")
    first = http.patch("/v1/files/f", json={"text": "mine"}, headers=key)
    http.put("/v1/files/f", content="another's")
    again = http.patch("/v1/files/f", json={"text": "mine"}, headers=key)
    assert (again.status_code, again.content) == (200, first.content)
    assert http.patch("/v1/files/f", json={"text": "other"}, headers=key).status_code == 409
    assert http.get("/v1/files/f").text == "another's"


@pytest.mark.promise("rest-idempotent")
def test_a_key_for_another_request_is_refused(http: httpx.Client) -> None:
    key = {"Idempotency-Key": "k-1"}
    assert http.post("/v1/records", json=RECORD, headers=key).status_code == 201
    other_body = http.post("/v1/records", json={**RECORD, "type": "task"}, headers=key)
    assert (other_body.status_code, other_body.json()["code"]) == (409, "conflict")
    same_fingerprint = {**key, "Idempotency-Fingerprint": "f"}
    assert http.post("/v1/threads", json={}, headers=same_fingerprint).status_code == 409
    assert http.get("/v1/stats").json()["entries"] == {"record": 1}


def test_what_cannot_be_made_once_says_so(http: httpx.Client) -> None:
    http.put("/v1/files/f", content="a a")
    key = {"Idempotency-Key": "k-1"}
    refused = http.patch("/v1/files/f", json={"replace": {"old": "a", "new": "b"}}, headers=key)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_input")
    assert http.delete("/v1/files/f", headers=key).status_code == 422
    assert http.get("/v1/files/f").text == "a a"


@pytest.mark.parametrize("path", ["/v1/files/a", "/v1/stats", "/v1/export", "/healthz", "/", "/v1/files/missing"])
def test_a_head_is_answered_as_a_get_is_without_the_body(http: httpx.Client, path: str) -> None:
    http.put("/v1/files/a", content="x" * 10_000)
    read, asked = http.get(path), http.head(path)
    assert (asked.status_code, asked.content) == (read.status_code, b"")
    for name in ("content-type", "content-length", "etag"):
        assert asked.headers.get(name) == read.headers.get(name)


def test_a_head_of_a_stream_ends_and_is_counted_as_what_it_is(http: httpx.Client) -> None:
    asked = http.head("/v1/changes/stream")
    assert (asked.status_code, asked.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert 'method="HEAD",route="/v1/changes/stream"' in http.get("/metrics").text
