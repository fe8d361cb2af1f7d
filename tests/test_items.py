"""Items on a file, on PostgreSQL and over a service: values by key, TTL, versions, history, vectors of one's own."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

import commonplace
from commonplace import Conflict, Forbidden, InvalidInput, NotFound, Outdated, TooLarge
from commonplace.space.items import Item, NewItem
from commonplace.space.names import label_of, text_of_label
from commonplace.space.rules import Rules
from commonplace.space.space import EmbeddedItems
from doubles import Clock, WordEmbedder

HERE = ("user", "ana")


@pytest.fixture
def here(every_book: commonplace.Book) -> commonplace.Space:
    return every_book.space(*HERE)


def keys(items: Any) -> list[str]:
    return [item.key for item in items]


@pytest.mark.promise("items-put-get-delete")
def test_an_item_is_put_read_replaced_and_deleted(here: commonplace.Space, clock: Clock) -> None:
    first = here.items.put("theme", {"color": "dark"})
    assert (first.key, first.value, first.revision, first.namespace) == ("theme", {"color": "dark"}, 1, HERE)
    clock.advance(5)
    second = here.items.put("theme", {"color": "light"})
    assert (second.revision, second.created_at) == (2, first.created_at)
    assert here.items.get("theme") == second
    assert here.items.get("theme", as_of=first.updated_at) == first
    assert here.items.get_all(["none", "theme"]) == (None, second)
    commit = here.items.delete("theme")
    assert here.items.delete("theme") is None
    with pytest.raises(NotFound, match="there is no item 'theme'"):
        here.items.get("theme")
    assert commit is not None
    here.undo(commit)
    assert here.items.get("theme").value == {"color": "light"}
    assert [line.action for line in here.history("item", "theme")] == ["created", "updated", "deleted", "restored"]


@pytest.mark.parametrize("value", ["text", 5, 1.5, True, False, [], [1, {"a": None}], {}, {"é": "\u2028"}])
def test_any_json_comes_back_as_it_was(here: commonplace.Space, value: Any) -> None:
    assert here.items.put("k", value).value == value
    assert here.items.get("k").value == value


def test_a_key_may_hold_slashes_and_any_script(here: commonplace.Space) -> None:
    for key in ("a/b", "/a//b/", "ключ %2F?#", "a.b", "..", "emoji 😀"):
        here.items.put(key, {"of": key})
        assert here.items.get(key).value == {"of": key}
        assert here.items.delete(key) is not None


@pytest.mark.promise("items-conditional-writes")
def test_a_write_with_another_revision_changes_nothing(here: commonplace.Space) -> None:
    here.items.put("k", 1, revision=0)
    with pytest.raises(Outdated, match="is at revision 1"):
        here.items.put("k", 2, revision=0)
    here.items.put("k", 2, revision=1)
    with pytest.raises(Outdated):
        here.items.put("k", 3, revision=1)
    with pytest.raises(Outdated):
        here.items.delete("k", revision=1)
    with pytest.raises(Outdated, match="does not exist"):
        here.items.put("new", 1, revision=4)
    with pytest.raises(Outdated):
        here.items.write_all([NewItem("other", 1), NewItem("k", 3, revision=1)], deletes=["k"])
    assert here.items.get_all(["k", "other"])[1] is None
    assert here.items.get("k").value == 2
    assert here.items.delete("k", revision=2) is not None


def test_many_items_are_one_commit(here: commonplace.Space) -> None:
    here.items.put("old", 1)
    before = here.stats().commit
    written = here.items.write_all([NewItem(f"k{number}", number) for number in range(5)], deletes=["old", "none"])
    assert keys(written) == ["k0", "k1", "k2", "k3", "k4"]
    assert here.stats().commit == before + 1
    here.undo(before + 1)
    assert keys(here.items.list().items) == ["old"]


def test_a_repeated_write_with_one_idempotency_key_is_made_once(here: commonplace.Space) -> None:
    once = here.once("op-1", "f")
    assert once.items.put("k", 1) == here.once("op-1", "f").items.put("k", 1)
    assert here.items.get("k").revision == 1


@pytest.mark.promise("items-expire")
def test_an_item_expires_unless_it_is_refreshed(here: commonplace.Space, clock: Clock) -> None:
    written = here.items.put("session", {"user": "ana"}, ttl_seconds=10)
    assert written.expires_at is not None
    assert written.ttl_seconds == 10
    clock.advance(8)
    (renewed,) = here.items.refresh(["session"])
    assert renewed is not None
    assert renewed.expires_at is not None
    assert (renewed.expires_at - written.expires_at).total_seconds() >= 8
    assert (renewed.revision, renewed.updated_at) == (1, written.updated_at)
    clock.advance(8)
    assert here.items.get("session").value == {"user": "ana"}
    assert here.items.refresh(["none"]) == (None,)
    clock.advance(3)
    assert here.items.get_all(["session"]) == (None,)
    assert here.items.refresh(["session"]) == (None,)
    assert here.items.put("session", 1, revision=0).revision > 1


@pytest.mark.promise("items-searched-by-all")
def test_items_are_found_by_the_search_of_every_kind(here: commonplace.Space) -> None:
    here.items.put("tea", {"text": "Ana drinks green tea", "meta": {"by": "bob"}})
    here.items.put("secret", {"text": "the green tea is hidden"}, fields=())
    here.items.put(
        "chosen",
        {"title": "green tea", "body": "quagga", "parts": [{"t": "ibis"}, {"t": "okapi"}]},
        fields=["title", "parts[-1].t"],
    )
    found = here.search("green tea", kinds=["item"])
    assert {hit.key for hit in found} == {"tea", "chosen"}
    assert {hit.kind for hit in here.search("green tea")} == {"item"}
    assert [hit.key for hit in here.search("okapi") if hit.parts.get("keyword")] == ["chosen"]
    for word in ("quagga", "ibis", "hidden"):
        assert [hit.key for hit in here.search(word) if hit.parts.get("keyword")] == []
    assert [hit.key for hit in here.search("tea", filter={"meta.by": "bob"})] == ["tea"]


def test_items_are_listed_by_key_by_time_by_prefix_and_by_fields(here: commonplace.Space, clock: Clock) -> None:
    for number, key in enumerate(("b/1", "a/2", "a/1", "c")):
        clock.advance()
        here.items.put(key, {"n": number, "in": {"deep": number % 2}})
    clock.advance()
    here.items.put("a/2", {"n": 9, "in": {"deep": 1}})
    assert keys(here.items.list().items) == ["a/1", "a/2", "b/1", "c"]
    assert keys(here.items.list("a/").items) == ["a/1", "a/2"]
    assert keys(here.items.list(order="updated", descending=True).items) == ["a/2", "c", "a/1", "b/1"]
    assert keys(here.items.list(order="created").items) == ["b/1", "a/2", "a/1", "c"]
    assert keys(here.items.list(filter={"in.deep": 1}).items) == ["a/2", "c"]
    assert keys(here.items.list(filter={"in.deep": {"$ne": 1}, "n": {"$gte": 2}}).items) == ["a/1"]
    page = here.items.list(order="updated", descending=True, limit=3)
    rest = here.items.list(order="updated", descending=True, limit=3, cursor=page.cursor)
    assert keys(page.items) + keys(rest.items) == ["a/2", "c", "a/1", "b/1"]
    assert here.items.clear("a/") == 2
    assert keys(here.items.list().items) == ["b/1", "c"]


def test_a_dot_in_a_name_is_written_with_a_backslash(here: commonplace.Space) -> None:
    here.items.put("flat", {"a.b": 1})
    here.items.put("deep", {"a": {"b": 1}})
    assert keys(here.items.list(filter={"a.b": 1}).items) == ["deep"]
    assert keys(here.items.list(filter={"a\\.b": 1}).items) == ["flat"]
    here.items.put("dots", {"a..b": 1, ".": 2})
    assert keys(here.items.list(filter={"a..b": 1, ".": 2}).items) == ["dots"]
    with pytest.raises(InvalidInput, match="levels deep"):
        here.items.list(filter={".".join("a" * 30): 1})


# Without history


@pytest.mark.promise("items-without-history")
def test_an_item_without_history_leaves_nothing_behind(every_book: commonplace.Book, clock: Clock) -> None:
    here = every_book.space(*HERE)
    here.items.put("other", 1)
    for number in range(3):
        here.items.put("token", {"secret": f"quagga {number}"}, history=False)
    assert here.items.get("token").value == {"secret": "quagga 2"}
    assert here.stats().former_states == 0
    assert here.search("quagga", kinds=["item"]).hits == () or not here.search("quagga")[0].parts.get("keyword")
    here.items.delete("token")
    here.items.put("short", {"secret": "okapi"}, history=False, ttl_seconds=1)
    clock.advance(2)
    here.items.put("other", 2)
    assert here.stats().former_states == 1
    lines: list[bytes] = []
    every_book.export(lines.append, namespaces=[HERE])
    assert b"quagga" not in b"".join(lines)
    assert b"okapi" not in b"".join(lines)
    assert here.items.put("token", 1, history=False, revision=0).revision == 1


def test_an_item_does_not_change_whether_it_has_history(here: commonplace.Space) -> None:
    here.items.put("with", 1)
    here.items.put("without", 1, history=False)
    with pytest.raises(Conflict, match="was written with history"):
        here.items.put("with", 2, history=False)
    with pytest.raises(Conflict, match="was written without history"):
        here.items.put("without", 2)
    here.items.delete("without")
    here.items.put("without", 2)
    with pytest.raises(InvalidInput, match="is not searched"):
        here.items.put("x", {"a": "b"}, history=False, fields=["a"])


def test_items_without_history_survive_verify_undo_and_a_round_trip(tmp_path: Any, embedder: WordEmbedder) -> None:
    with commonplace.open(tmp_path / "a.db", embedder=embedder, background=False) as book:
        here = book.space(*HERE)
        for number in range(3):
            here.items.write_all([NewItem("k", {"n": number}, history=False), NewItem("h", {"n": number})])
        here.undo(here.stats().commit)
        assert here.items.get_all(["h"])[0].value == {"n": 1}  # type: ignore[union-attr]
        assert here.items.get_all(["k"]) == (None,)  # what the commit wrote is gone, and there was no former state
        here.items.put("k", {"n": 5}, history=False)
        assert book.verify() == []
        lines: list[bytes] = []
        book.export(lines.append)
        with commonplace.open(tmp_path / "b.db", embedder=embedder, background=False) as copy:
            (tmp_path / "lines").write_bytes(b"".join(lines))
            with (tmp_path / "lines").open("rb") as stream:
                list(copy.import_lines(stream))
            assert copy.space(*HERE).items.get("k") == here.items.get("k")
            assert copy.verify() == []
            forged = b"".join(lines).replace(b'"kind":"item","key":"h"', b'"kind":"item","key":"g"')
            forged = forged.replace(b'"attributes":{}', b'"attributes":{"$history":false}')
            (tmp_path / "forged").write_bytes(forged)
            with (tmp_path / "forged").open("rb") as stream, pytest.raises(InvalidInput, match="without history"):
                list(copy.import_lines(stream, merge=True))


# Several namespaces


def fill(book: commonplace.Book, clock: Clock) -> None:
    for labels in (("user", "ana"), ("user", "ana", "work"), ("user", "bob"), ("team",)):
        clock.advance()
        book.space(*labels).items.put("note", {"text": f"green tea of {'/'.join(labels)}", "n": len(labels)})


@pytest.mark.promise("items-of-several-namespaces")
def test_a_search_and_a_list_reach_below_a_prefix_and_from_the_root(every_book: commonplace.Book, clock: Clock) -> None:
    fill(every_book, clock)
    order = [("team",), ("user", "bob"), ("user", "ana", "work"), ("user", "ana")]
    assert [item.namespace for item in every_book.list_items(below=())] == order
    assert [item.namespace for item in every_book.list_items(below=("user",))] == order[1:]
    assert [item.namespace for item in every_book.list_items(below=("user", "ana"), descending=False)] == order[:1:-1]
    assert [item.namespace for item in every_book.list_items(below=(), limit=2, offset=1)] == order[1:3]
    assert [item.namespace for item in every_book.list_items(below=(), filter={"n": 2}, limit=1)] == [order[1]]
    assert [item.namespace for item in every_book.list_items(below=(), order="key", descending=False)] == order[
        :1
    ] + order[:0:-1][:1] + order[2:3] + order[1:2]
    assert {hit.entry.namespace for hit in every_book.search("tea", below=())} == set(order)
    assert {hit.entry.namespace for hit in every_book.search("tea", below=("user", "ana"))} == set(order[2:])
    assert {hit.entry.namespace for hit in every_book.space("user", "ana").search("tea")} == {("user", "ana")}
    assert {hit.entry.namespace for hit in every_book.space("user").search("tea", below=True)} == set(order[1:])
    with pytest.raises(TypeError):
        every_book.search("tea")  # type: ignore[call-arg]


@pytest.mark.promise("emptied-namespaces-are-not-listed")
def test_emptied_namespaces_are_listed_only_if_asked_for(every_book: commonplace.Book, clock: Clock) -> None:
    fill(every_book, clock)
    every_book.space("user", "bob").items.delete("note")
    every_book.space("user", "soon").items.put("k", 1, ttl_seconds=1)
    assert ("user", "soon") in every_book.namespaces("user")
    clock.advance(2)
    assert every_book.namespaces("user") == [("user", "ana"), ("user", "ana", "work")]
    assert every_book.namespaces("user", emptied=True) == [
        *(("user", "ana"), ("user", "ana", "work"), ("user", "bob"), ("user", "soon")),
    ]
    before = [hit.entry.namespace for hit in every_book.search("tea bob", below=("user", "bob"))]
    assert before == []


@pytest.mark.promise("items-without-history")
def test_items_without_history_are_left_out_of_lists_of_several_namespaces_on_request(
    every_book: commonplace.Book,
) -> None:
    team = every_book.space("team")
    for number in range(30):
        team.items.put(f"token-{number:02}", number, history=False)
    every_book.space("team", "a").items.put("theme", {"text": '"$history":false'})
    every_book.space("team", "b").files.write("/note", '{"$history":false}')
    assert len(every_book.list_items(below=())) == 31
    assert [item.key for item in every_book.list_items(below=("team",), history=True)] == ["theme"]
    assert every_book.namespaces(kinds=["item"]) == [("team",), ("team", "a")]
    assert every_book.namespaces(kinds=["item"], history=True) == [("team", "a")]
    assert every_book.namespaces(history=True, limit=1) == [("team", "a")]
    assert every_book.namespaces("team", history=True) == [("team", "a"), ("team", "b")]
    with pytest.raises(commonplace.InvalidInput):
        every_book.namespaces(emptied=True, history=True)
    team.items.put("known", 1)
    assert every_book.namespaces(history=True)[0] == ("team",)


def test_nothing_is_written_above_all_namespaces(tmp_path: Any) -> None:
    with commonplace.open(tmp_path / "a.db", background=False) as book:
        with pytest.raises(InvalidInput, match="above all namespaces"):
            book.root().items.put("k", 1)
        with pytest.raises(InvalidInput, match="above all namespaces"):
            book.root().files.write("/a", "b")
        with pytest.raises(InvalidInput, match="above all namespaces"):
            book.root().threads.create()


@pytest.mark.promise("several-namespaces-need-the-right")
@pytest.mark.parametrize(
    ("reach", "below", "is_allowed"),
    [
        (None, ("user", "ana"), False),
        (("user", "ana"), ("user", "ana"), True),
        (("user", "ana"), ("user", "ana", "work"), True),
        (("user", "ana"), ("user",), False),
        (("user", "ana"), ("user", "anabel"), False),
        (("user", "ana"), (), False),
        ((), (), True),
    ],
)
def test_rules_decide_which_namespaces_are_read_at_once(
    book: commonplace.Book, reach: Any, below: tuple[str, ...], is_allowed: bool
) -> None:
    rules = Rules(reach=reach)
    space = book.space(*below, rules=rules) if below else book.root(rules=rules)
    for ask in (lambda: space.search("tea", below=True), space.items.list_below):
        if is_allowed:
            ask()
        else:
            with pytest.raises(Forbidden):
                ask()


# Vectors


def own(texts: Any) -> list[list[float]]:
    words = ("tea", "coffee", "work")
    return [[text.count(word) + 0.01 for word in words] for text in texts]


@pytest.mark.promise("items-own-vectors")
def test_items_are_found_by_vectors_of_the_callers_own_model_and_by_no_other(every_book: commonplace.Book) -> None:
    here = every_book.space(*HERE)
    mine = EmbeddedItems(here, "mine@1", own)
    mine.put("one", {"text": "tea tea", "other": "work"}, fields=["text"])
    mine.put("two", {"text": "coffee"})
    mine.put("both", {"a": "work", "b": "tea"}, fields=["a", "b"])
    mine.put("none", {"text": "tea"}, fields=())
    here.items.put("given", {"text": "tea"}, model="other@1", vectors=[[1.0, 0.0, 0.0]])
    EmbeddedItems(every_book.space("user", "bob"), "mine@1", own).put("far", {"text": "tea"})
    found = mine.search("tea")
    assert [hit.key for hit in found] == ["both", "one", "two"]
    assert found[0].score == pytest.approx(1, abs=0.01)
    assert [hit.key for hit in mine.search("tea", limit=1, offset=1)] == ["one"]
    assert [hit.key for hit in mine.search("tea", filter={"other": "work"})] == ["one"]
    assert {hit.key for hit in mine.search("tea", below=True)} == {"one", "two", "both"}
    assert {hit.key for hit in every_book.search(vector=own(["tea"])[0], model="mine@1", below=())} == {
        "one",
        "two",
        "both",
        "far",
    }
    assert [hit.key for hit in here.search(vector=[1, 0, 0], model="other@1")] == ["given"]
    assert here.search(vector=[1, 0, 0], model="unknown").hits == ()
    assert here.search(vector=[1, 0, 0], model="other@1", kinds=["file", "record"]).hits == ()
    floored = here.search(vector=[1, 0, 0], model="other@1", kinds=["item"], min_relevance=0.9)
    assert [hit.key for hit in floored] == ["given"]
    assert "no calibration for the model other@1" in floored.notices[0]
    assert here.items.get("one").model == "mine@1"
    with pytest.raises(InvalidInput, match="have 3 numbers, and the query has 2"):
        here.search(vector=[1, 0], model="mine@1")
    # The book's own model sees their texts too, and a hit does not carry the vectors.
    hit = next(hit for hit in here.search("coffee") if hit.key == "two")
    assert base64.b64encode(np.zeros(1, "<f2").tobytes()).decode()[:2] not in str(hit.entry.attributes)


@pytest.mark.promise("search-by-a-vector")
def test_a_vector_of_the_books_model_searches_everything(here: commonplace.Space, embedder: WordEmbedder) -> None:
    here.files.write("/tea.md", "green tea")
    here.items.put("coffee", {"text": "black coffee"})
    here.search("tea")  # embeds
    vector = embedder.embed(["green tea"], purpose="query")[0].tolist()
    assert here.search(vector=vector)[0].key == "/tea.md"
    assert here.search(vector=vector, model=embedder.identity)[0].key == "/tea.md"
    with pytest.raises(InvalidInput, match="64 numbers, and the query has 2"):
        here.search(vector=[1, 2])
    with pytest.raises(InvalidInput, match="not by both"):
        here.search("tea", vector=vector)
    with pytest.raises(InvalidInput, match="give the vector too"):
        here.search("tea", model="m")
    with pytest.raises(InvalidInput):
        here.search("")


# Input


@pytest.mark.parametrize(
    "wrong",
    [
        {"key": ""},
        {"key": 5},
        {"key": "a\x01b"},
        {"key": "a\nb"},
        {"key": "k" * 3_000},
        {"key": "a\u200bb"},
        {"value": None},
        {"value": float("nan")},
        {"value": {1: 2}},
        {"value": {"a": b"bytes"}},
        {"fields": "title"},
        {"fields": [""]},
        {"fields": [5]},
        {"fields": ["a"] * 60},
        {"ttl_seconds": 0},
        {"ttl_seconds": -1},
        {"ttl_seconds": "5"},
        {"revision": -1},
        {"revision": "1"},
        {"revision": True},
        {"history": 0},
        {"vectors": [[1.0]]},
        {"model": "m"},
        {"model": "m", "vectors": [[]]},
        {"model": "m", "vectors": [[0.0, 0.0]]},
        {"model": "m", "vectors": [["a"]]},
        {"model": "m", "vectors": [[1.0], [1.0, 2.0]]},
        {"model": "", "vectors": [[1.0]]},
        {"model": "m\n", "vectors": [[1.0]]},
        {"model": "m", "vectors": [[1.0]] * 101},
        {"model": "m", "vectors": "abc"},
    ],
)
def test_wrong_input_is_refused_and_writes_nothing(here: commonplace.Space, wrong: dict[str, Any]) -> None:
    given = {"key": "k", "value": {"a": 1}, **wrong}
    with pytest.raises(InvalidInput):
        here.items.put(**given)
    assert here.items.list().items == ()


def test_a_value_that_is_too_large_is_refused(tmp_path: Any) -> None:
    limits = commonplace.Limits(item_bytes=100)
    with commonplace.open(tmp_path / "a.db", limits=limits, background=False) as book:
        with pytest.raises(TooLarge, match="at most 100 are allowed"):
            book.space(*HERE).items.put("k", "x" * 100)
        with pytest.raises(TooLarge, match="at most 10,000"):
            book.space(*HERE).items.get_all(["k"] * 10_001)


def test_what_a_service_gets_as_puts_is_checked(here: commonplace.Space) -> None:
    for wrong in ([{"key": "k"}], [{"value": 1}], [{"key": "k", "value": 1, "x": 1}], ["k"], "k", {"key": "k"}):
        with pytest.raises(InvalidInput):
            here.items.write_all(wrong)  # type: ignore[arg-type]
    assert here.items.write_all([{"key": "k", "value": 1}])[0].value == 1


@pytest.mark.parametrize("text", ["a/b", "100%", "%2F", "a\nb", " ", "\u2028", "ключ", "a", "..", "😀/😀"])
def test_any_text_is_a_label_and_comes_back(text: str) -> None:
    label = label_of(text)
    assert text_of_label(label) == text
    with commonplace.open(":memory:", background=False) as book:
        book.space("x", label).items.put("k", 1)
        assert book.namespaces() == [("x", label)]


def test_an_item_is_a_frozen_value(here: commonplace.Space) -> None:
    item: Item = here.items.put("k", 1)
    with pytest.raises(AttributeError):
        item.value = 2  # type: ignore[misc]
