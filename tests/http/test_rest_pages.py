"""Every listing comes in pages, and its `next` links lead through all of it, each once."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

import commonplace

COUNT = 7


@pytest.fixture
def filled(book: commonplace.Book) -> commonplace.Book:
    space = book.space("user", "default")
    for number in range(COUNT):
        space.files.write(f"/d{number}/f", f"zebra {number}")
        space.records.create(type="note", content={"n": number}, source="s", confidence=0.5, tags=["a"])
        space.threads.create(f"thread {number}", id=f"t{number}")
        book.space("user", f"u{number}").files.write("/f", "x")
    space.threads.add("t0", [{"role": "user", "content": f"message {number}"} for number in range(COUNT)])
    for number in range(COUNT):
        space.threads.working.write({"n": number})
        space.files.write("/changed", str(number))
    return book


LISTINGS = {
    "/v1/records?tag=a": ("records", COUNT),
    "/v1/threads": ("threads", COUNT),
    "/v1/messages?thread=t0": ("messages", COUNT),
    "/v1/directories/": ("files", COUNT + 1),
    "/v1/tree/": ("files", 2 * COUNT + 1),
    "/v1/history/file/changed": ("revisions", COUNT),
    "/v1/working-memory/history": ("revisions", COUNT),
    "/v1/namespaces?below=user": ("namespaces", COUNT + 1),
    "/v1/search?q=zebra&kind=file": ("hits", COUNT + 1),
}


@pytest.mark.promise("rest-pages")
@pytest.mark.parametrize("limit", [1, 3, COUNT])
@pytest.mark.parametrize("address", LISTINGS)
def test_the_links_lead_through_a_whole_listing(
    filled: commonplace.Book, http: httpx.Client, address: str, limit: int
) -> None:
    name, count = LISTINGS[address]
    sign = "&" if "?" in address else "?"
    whole = http.get(f"{address}{sign}limit=1000").json()
    assert (len(whole[name]), whole["next"]) == (count, None)
    found: list[Any] = []
    following: str | None = f"{address}{sign}limit={limit}"
    while following is not None:
        page = http.get(following).json()
        assert len(page[name]) <= limit
        found += page[name]
        following = page["next"]
    assert found == whole[name]


@pytest.mark.promise("rest-pages")
def test_the_feed_comes_in_whole_commits(filled: commonplace.Book, http: httpx.Client) -> None:
    whole = http.get("/v1/changes").json()
    found: list[Any] = []
    following: str | None = "/v1/changes?limit=2"
    while following is not None:
        page = http.get(following).json()
        found += page["changes"]
        following = page["next"]
    assert found == whole["changes"]
    assert whole["cursor"] == found[-1]["commit"]
    with_directory = [change for change in found if change["commit"] == found[0]["commit"]]
    assert sorted(change["kind"] for change in with_directory) == ["directory", "file"]


@pytest.mark.parametrize("address", ["/v1/records", "/v1/threads", "/v1/messages?thread=t0", "/v1/tree/"])
def test_a_cursor_of_nowhere_is_refused(filled: commonplace.Book, http: httpx.Client, address: str) -> None:
    sign = "&" if "?" in address else "?"
    refused = http.get(f"{address}{sign}cursor=nonsense")
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_input")
    assert "cursor" in refused.json()["detail"]
