"""LangGraph's store and checkpointer on a book, with the real package."""

from __future__ import annotations

import asyncio
import math
import operator
from datetime import UTC, datetime
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointMetadata, empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, StateGraph
from langgraph.store.base import GetOp, InvalidNamespaceError, ListNamespacesOp, MatchCondition, PutOp, SearchOp
from shared_behaviour import AdapterBehaviour

import commonplace
from commonplace.adapters.langgraph import CommonplaceSaver, CommonplaceStore
from doubles import Clock


@pytest.fixture
def store(every_book: commonplace.Book) -> CommonplaceStore:
    return CommonplaceStore(every_book, prefix=("lg",))


class TestStoreBehaviour(AdapterBehaviour):
    def write(self, book: commonplace.Book, owner: str, name: str, text: str) -> None:
        CommonplaceStore(book, prefix=("lg",)).put(("users", owner.replace(".", ",")), name, {"text": text})

    def read_all(self, book: commonplace.Book, owner: str) -> dict[str, str]:
        found = CommonplaceStore(book, prefix=("lg",)).search(("users", owner.replace(".", ",")), limit=1_000)
        return {item.key: item.value["text"] for item in found}


class TestSaverBehaviour(AdapterBehaviour):
    def write(self, book: commonplace.Book, owner: str, name: str, text: str) -> None:
        saver = CommonplaceSaver(book.space("checkpoints"))
        checkpoint = {**empty_checkpoint(), "channel_values": {"text": text}, "channel_versions": {"text": name}}
        config: RunnableConfig = {"configurable": {"thread_id": owner, "checkpoint_ns": name}}
        saver.put(config, checkpoint, {"source": "input", "step": -1, "parents": {}}, {"text": name})

    def read_all(self, book: commonplace.Book, owner: str) -> dict[str, str]:
        saver = CommonplaceSaver(book.space("checkpoints"))
        return {
            one.config["configurable"]["checkpoint_ns"]: one.checkpoint["channel_values"]["text"]
            for one in saver.list({"configurable": {"thread_id": owner}})
        }


# The store


@pytest.mark.promise("langgraph-store")
def test_values_are_put_read_replaced_and_deleted(store: CommonplaceStore, clock: Clock) -> None:
    store.put(("users", "ana"), "tea", {"text": "green"})
    first = store.get(("users", "ana"), "tea")
    assert first is not None
    assert (first.namespace, first.key, first.value) == (("users", "ana"), "tea", {"text": "green"})
    assert isinstance(first.created_at, datetime)
    assert first.created_at.tzinfo == UTC
    clock.advance()
    store.put(("users", "ana"), "tea", {"text": "black"})
    second = store.get(("users", "ana"), "tea")
    assert second is not None
    assert second.value == {"text": "black"}
    assert second.created_at == first.created_at
    assert second.updated_at > first.updated_at
    store.delete(("users", "ana"), "tea")
    assert store.get(("users", "ana"), "tea") is None
    store.delete(("users", "ana"), "tea")


def test_a_batch_reads_what_was_there_before_and_the_last_put_of_a_key_wins(store: CommonplaceStore) -> None:
    store.put(("a",), "k", {"n": 0})
    results = store.batch(
        [
            PutOp(("a",), "k", {"n": 1}),
            GetOp(("a",), "k"),
            PutOp(("a",), "k", {"n": 2}),
            SearchOp(("a",)),
            ListNamespacesOp(),
            PutOp(("a",), "gone", {"n": 3}),
            PutOp(("a",), "gone", None),
            GetOp(("a",), "none"),
        ]
    )
    assert results[1].value == {"n": 0}  # type: ignore[union-attr]
    assert [item.value for item in results[3]] == [{"n": 0}]  # type: ignore[union-attr]
    assert results[4] == [("a",)]
    assert [results[place] for place in (0, 2, 5, 6, 7)] == [None] * 5
    assert store.get(("a",), "k").value == {"n": 2}  # type: ignore[union-attr]
    assert store.get(("a",), "gone") is None


def test_the_async_methods_do_the_same(store: CommonplaceStore) -> None:
    async def scenario() -> None:
        await store.aput(("a",), "k", {"n": 1})
        found = await store.aget(("a",), "k")
        assert found is not None
        assert found.value == {"n": 1}
        assert [item.key for item in await store.asearch(("a",))] == ["k"]
        assert await store.alist_namespaces() == [("a",)]
        await asyncio.gather(*(store.aput(("b",), f"k{number}", {"n": number}) for number in range(20)))
        assert len(await store.asearch(("b",), limit=100)) == 20
        await store.adelete(("a",), "k")
        assert await store.aget(("a",), "k") is None

    asyncio.run(scenario())


@pytest.mark.promise("langgraph-store-search")
def test_a_search_filters_pages_and_reaches_below_a_prefix(store: CommonplaceStore, clock: Clock) -> None:
    for number, namespace in enumerate([("docs", "a"), ("docs", "a", "deep"), ("docs", "b"), ("other",)]):
        clock.advance()
        store.put(namespace, "k", {"n": number, "meta": {"tags": ["x"], "by": f"u{number % 2}"}})
    assert [item.value["n"] for item in store.search(("docs",))] == [2, 1, 0]
    assert [item.value["n"] for item in store.search(())] == [3, 2, 1, 0]
    assert [item.value["n"] for item in store.search(("docs",), limit=1, offset=1)] == [1]
    assert [item.value["n"] for item in store.search(("docs",), filter={"n": {"$gte": 1}})] == [2, 1]
    assert [item.value["n"] for item in store.search((), filter={"meta": {"by": "u1"}})] == [3, 1]
    assert [item.value["n"] for item in store.search((), filter={"meta.by": "u1", "n": {"$ne": 3}})] == [1]
    assert [item.value["n"] for item in store.search((), filter={"meta": {"tags": ["x"]}, "n": 0})] == [0]
    assert store.search(("doc",)) == []
    assert store.search((), filter={"none": 1}) == []


@pytest.mark.promise("langgraph-store-search")
def test_without_an_index_a_query_uses_the_search_of_the_book(store: CommonplaceStore) -> None:
    store.put(("a",), "tea", {"text": "green tea from Japan"})
    store.put(("a",), "car", {"text": "the red car"})
    store.put(("a",), "hidden", {"text": "green tea, hidden"}, index=False)
    store.put(("a",), "part", {"text": "coffee", "note": "green tea"}, index=["text"])
    found = store.search(("a",), query="green tea")
    assert found[0].key == "tea"
    assert found[0].score is not None
    assert "hidden" not in [item.key for item in found]


def letters(texts: list[str]) -> list[list[float]]:
    return [[float(text.count(letter)) + 0.001 for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts]


async def aletters(texts: list[str]) -> list[list[float]]:
    return letters(texts)


@pytest.mark.promise("langgraph-store-search")
@pytest.mark.parametrize("embed", [letters, aletters])
def test_with_an_index_a_query_uses_the_callers_function(every_book: commonplace.Book, embed: Any) -> None:
    store = CommonplaceStore(
        every_book, prefix=("lg",), index={"dims": 26, "embed": embed, "fields": ["key0", "sub.key1"]}
    )

    async def scenario() -> None:
        await store.aput(("t",), "one", {"key0": "aaa", "sub": {"key1": "bbb"}})
        await store.aput(("t",), "two", {"key0": "ccc", "key1": "aaa"})
        await store.aput(("t",), "three", {"key0": "aaa", "other": "zzz"}, index=["other"])
        await store.aput(("t",), "none", {"key0": "aaa"}, index=False)
        found = await store.asearch(("t",), query="aaa")
        assert found[0].key == "one"
        assert found[0].score == pytest.approx(1, abs=0.01)
        assert found[-1].key == "none"
        assert found[-1].score is None
        assert (await store.asearch(("t",), query="bbb", limit=1))[0].key == "one"
        assert (await store.asearch(("t",), query="zz", limit=1))[0].key == "three"
        assert [i.key for i in await store.asearch(("t",), query="aaa", filter={"key1": "aaa"})] == ["two"]

    asyncio.run(scenario())
    if embed is letters:
        store.put(("t",), "sync", {"key0": "qqq"})
        assert store.search(("t",), query="qq", limit=1)[0].key == "sync"


def test_paths_of_an_index_are_understood(every_book: commonplace.Book) -> None:
    store = CommonplaceStore(
        every_book, index={"dims": 26, "embed": letters, "fields": ["parts[*].{title,text}", "top"]}
    )
    store.put(
        ("t",), "k", {"parts": [{"title": "okapi", "text": "ibis"}, {"text": "yak"}], "top": "emu", "not": "quagga"}
    )
    (item,) = every_book.space("t").items.get_all(["k"])
    assert item is not None
    assert item.fields == ("parts[*].title", "parts[*].text", "top")
    for word, is_found in (("okapi", True), ("yak", True), ("emu", True), ("quagga", False)):
        hits = every_book.space("t").search(word)
        assert any(hit.parts.get("keyword") for hit in hits) is is_found


@pytest.mark.promise("langgraph-store-namespaces")
def test_namespaces_are_listed_by_prefix_suffix_wildcard_and_depth(store: CommonplaceStore) -> None:
    for namespace in (("a", "b", "c"), ("a", "b", "d"), ("a", "x", "c"), ("z",), ("a/b", "c%")):
        store.put(namespace, "k", {"n": 1})
    store.put(("gone",), "k", {"n": 1})
    store.delete(("gone",), "k")
    every = [("a", "b", "c"), ("a", "b", "d"), ("a", "x", "c"), ("a/b", "c%"), ("z",)]
    assert store.list_namespaces() == every
    assert store.list_namespaces(prefix=("a",)) == every[:3]
    assert store.list_namespaces(prefix=("a", "*", "c")) == [every[0], every[2]]
    assert store.list_namespaces(suffix=("c",)) == [every[0], every[2]]
    assert store.list_namespaces(prefix=("a",), max_depth=2) == [("a", "b"), ("a", "x")]
    assert store.list_namespaces(limit=2, offset=1) == every[1:3]
    assert store.list_namespaces(prefix=("a", "b", "c", "d")) == []
    both = (MatchCondition("prefix", ("a",)), MatchCondition("suffix", ("d",)))
    assert store.batch([ListNamespacesOp(match_conditions=both)]) == [[every[1]]]


def test_other_things_in_a_namespace_are_not_in_the_store(every_book: commonplace.Book) -> None:
    store = CommonplaceStore(every_book)
    every_book.space("user", "ana").files.write("/notes", "green tea")
    assert store.list_namespaces() == []
    assert store.search((), query="green tea") == []


@pytest.mark.promise("langgraph-checkpoints-are-not-memories")
def test_checkpoints_and_caches_of_the_same_book_are_not_in_the_store(every_book: commonplace.Book) -> None:
    saver = CommonplaceSaver(every_book.space("graph", "demo"))
    saver.put(
        {"configurable": {"thread_id": "t", "checkpoint_ns": ""}},
        {**empty_checkpoint(), "channel_values": {"x": "secret"}, "channel_versions": {"x": 1}},
        {"source": "input", "step": -1, "parents": {}},
        {"x": 1},
    )
    every_book.space("graph", "demo").items.put("token", {"secret": "s"}, history=False)
    for store in (CommonplaceStore(every_book), CommonplaceStore(every_book, index={"dims": 5, "embed": letters})):
        store.put(("user", "ana"), "tea", {"text": "secret"}, index=False)
        assert store.list_namespaces() == [("user", "ana")]
        for query in (None, "secret"):
            assert [item.key for item in store.search((), query=query)] == (
                ["tea"] if store._embeddings or query is None else []
            )


def letters(texts: list[str]) -> list[list[float]]:
    return [[text.count(letter) + 0.1 for letter in "abcde"] for text in texts]


def test_pages_of_a_search_hold_each_item_once_with_or_without_a_vector(every_book: commonplace.Book) -> None:
    store = CommonplaceStore(every_book, prefix=("lg",), index={"dims": 5, "embed": letters})
    keys = [f"k-{number}" for number in range(7)]
    for number, key in enumerate(keys):
        store.put(("a",), key, {"text": "abc"[: number % 3]}, index=None if number < 4 else False)
    for size in (1, 2, 3, 5, 8):
        found = [
            item for start in range(0, 16, size) for item in store.search(("a",), query="b", limit=size, offset=start)
        ]
        assert sorted(item.key for item in found) == keys
        assert [item.score is None for item in found] == [False] * 4 + [True] * 3


@pytest.mark.promise("langgraph-store-ttl")
def test_an_item_expires_and_reading_renews_it(every_book: commonplace.Book, clock: Clock) -> None:
    store = CommonplaceStore(every_book, prefix=("lg",), ttl={"default_ttl": 1, "refresh_on_read": True})
    store.put(("a",), "k", {"n": 1})
    store.put(("a",), "for ever", {"n": 2}, ttl=None)
    clock.advance(50)
    assert store.get(("a",), "k") is not None
    clock.advance(50)
    assert len(store.search(("a",))) == 2
    clock.advance(50)
    assert store.get(("a",), "k", refresh_ttl=False) is not None
    clock.advance(15)
    assert store.get(("a",), "k") is None
    assert [item.key for item in store.search(("a",))] == ["for ever"]


@pytest.mark.parametrize("namespace", [(), ("",), ("a.b",), ("a\x00",), ("langgraph",), (5,)])
def test_namespaces_that_langgraph_refuses_are_refused(store: CommonplaceStore, namespace: Any) -> None:
    with pytest.raises((InvalidNamespaceError, commonplace.InvalidInput)):
        store.put(namespace, "k", {"n": 1})


@pytest.mark.parametrize("key", ["", " ", "a/b", "%", "a%2Fb", "\n", "a\u200bb", "x" * 500, "😀"])
def test_any_key_comes_back(store: CommonplaceStore, key: str) -> None:
    store.put(("a",), key, {"n": 1})
    assert store.get(("a",), key).key == key  # type: ignore[union-attr]
    assert [item.key for item in store.search(("a",))] == [key]


def test_history_and_undo_are_those_of_the_book(every_book: commonplace.Book) -> None:
    store = CommonplaceStore(every_book)
    store.put(("user", "ana"), "k", {"n": 1})
    store.put(("user", "ana"), "k", {"n": 2})
    space = every_book.space("user", "ana")
    space.undo(space.stats().commit)
    assert store.get(("user", "ana"), "k").value == {"n": 1}  # type: ignore[union-attr]


# Checkpoints


class State(TypedDict):
    said: Annotated[list[str], operator.add]
    count: int


def graph(saver: CommonplaceSaver, store: CommonplaceStore | None = None) -> Any:
    def node(state: State) -> dict[str, Any]:
        return {"said": [f"answer {state['count']}"], "count": state["count"] + 1}

    builder = StateGraph(State)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    return builder.compile(checkpointer=saver, store=store)


@pytest.fixture
def saver(every_book: commonplace.Book) -> CommonplaceSaver:
    return CommonplaceSaver(every_book.space("agent", "a-1"))


@pytest.mark.promise("langgraph-checkpoints")
def test_a_graph_continues_where_it_stopped(every_book: commonplace.Book, saver: CommonplaceSaver) -> None:
    config: RunnableConfig = {"configurable": {"thread_id": "t/1"}}
    assert graph(saver).invoke({"said": ["hello"], "count": 0}, config)["count"] == 1
    again = CommonplaceSaver(every_book.space("agent", "a-1"))
    assert graph(again).invoke({"said": ["more"]}, config) == {
        "said": ["hello", "answer 0", "more", "answer 1"],
        "count": 2,
    }
    states = list(graph(again).get_state_history(config))
    assert [state.values.get("count") for state in states] == [2, 1, 1, 1, 0, None]
    fork = graph(again).invoke(None, states[3].config)
    assert fork["said"] == ["hello", "answer 0"]
    asyncio.run(graph(again).ainvoke({"said": ["async"]}, config))
    assert graph(again).get_state(config).values["said"][-2] == "async"


@pytest.mark.promise("langgraph-checkpoints-are-not-memories")
def test_checkpoints_are_not_searched_and_leave_no_former_states(
    every_book: commonplace.Book, saver: CommonplaceSaver
) -> None:
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    graph(saver).invoke({"said": ["green tea"], "count": 0}, config)
    space = every_book.space("agent", "a-1")
    assert space.search("green tea").hits == ()
    assert space.stats().former_states == 0
    assert space.stats().entries["item"] > 3
    saver.delete_thread("t")
    assert space.stats().former_states == 0
    assert space.stats().entries == {}
    assert every_book.namespaces() == []


def test_items_of_other_programs_in_the_space_of_a_checkpointer_are_left_alone(every_book: commonplace.Book) -> None:
    space = every_book.space("user", "ana")
    saver = CommonplaceSaver(space)
    others = ["theme", "t/c", "t/c//1", "langgraph"]
    for key in others:
        space.items.put(key, {"color": "dark"})
    config: RunnableConfig = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    saver.put(config, empty_checkpoint(), {"source": "input", "step": -1, "parents": {}, "run_id": "r"}, {})
    assert len(list(saver.list(None))) == len(list(saver.list(config))) == 1
    saver.copy_thread("t", "t-2")
    saver.delete_for_runs(["r"])
    assert list(saver.list(None)) == []
    saver.delete_thread("t")
    saver.prune(["t", "theme"])
    assert [item.key for item in space.items.list().items] == sorted(others)


@pytest.mark.promise("langgraph-checkpoints-prune")
def test_pruning_keeps_the_latest_checkpoint_and_what_it_needs(
    every_book: commonplace.Book, saver: CommonplaceSaver
) -> None:
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    for number in range(3):
        graph(saver).invoke({"said": [str(number)], "count": number}, config)
    before = graph(saver).get_state(config).values
    many = every_book.space("agent", "a-1").stats().entries["item"]
    saver.prune(["t", "none"])
    assert len(list(saver.list(config))) == 1
    assert graph(saver).get_state(config).values == before
    assert every_book.space("agent", "a-1").stats().entries["item"] < many / 3
    assert graph(saver).invoke({"said": ["on"]}, config)["said"][-2] == "on"
    saver.prune(["t"], strategy="delete")
    assert list(saver.list(config)) == []
    with pytest.raises(commonplace.InvalidInput, match="strategy"):
        saver.prune(["t"], strategy="some")


def test_pruning_keeps_what_a_delta_channel_is_rebuilt_from(saver: CommonplaceSaver) -> None:
    config: RunnableConfig = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    for number in range(6):
        has_value = number in (0, 2)
        checkpoint = {
            **empty_checkpoint(),
            "id": f"{number:04}",
            "channel_values": {"delta": [number]} if has_value else {},
            "channel_versions": {"delta": str(number)},
        }
        metadata: CheckpointMetadata = {
            "source": "loop",
            "step": number,
            "counters_since_delta_snapshot": {"delta": [1, 1]},
        }  # type: ignore[typeddict-unknown-key]
        config = saver.put(config, checkpoint, metadata, {"delta": str(number)})  # type: ignore[arg-type]
        saver.put_writes(config, [("delta", number)], "task")
    latest: RunnableConfig = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    before = saver.get_delta_channel_history(config=latest, channels=["delta"])
    assert before["delta"]["seed"] == [2]
    saver.prune(["t"])
    assert [one.config["configurable"]["checkpoint_id"] for one in saver.list(latest)] == [
        "0005",
        "0004",
        "0003",
        "0002",
    ]
    assert saver.get_delta_channel_history(config=latest, channels=["delta"]) == before


def test_a_pickle_is_never_loaded(every_book: commonplace.Book) -> None:
    with pytest.raises(commonplace.InvalidInput, match="pickle_fallback"):
        CommonplaceSaver(every_book.space("a"), serde=JsonPlusSerializer(pickle_fallback=True))
    saver = CommonplaceSaver(every_book.space("a"))
    graph(saver).invoke({"said": ["x"], "count": 0}, {"configurable": {"thread_id": "t"}})
    items = every_book.space("a").items
    stored = items.list("langgraph/t/c/").items[-1]
    forged = {**stored.value, "metadata": ["pickle", "gASVCAAAAAAAAACMBGV4aXSULg=="]}  # type: ignore[dict-item]
    items.put(stored.key, forged, history=False)  # type: ignore[arg-type]
    with pytest.raises(commonplace.InvalidInput, match="never loaded"):
        saver.get_tuple({"configurable": {"thread_id": "t"}})


def test_a_filter_with_a_value_that_no_json_holds_matches_what_it_says(store: CommonplaceStore) -> None:
    store.put(("items",), "a", {"price": 10, "name": "tea"})
    store.put(("items",), "b", {"price": -3.5, "name": "coffee"})

    def keys(**filter: Any) -> list[str]:
        return sorted(item.key for item in store.search(("items",), filter=filter))

    assert keys(price={"$lt": math.inf}) == keys(price={"$gt": -math.inf}) == ["a", "b"]
    assert keys(price={"$lt": 10**100}) == ["a", "b"]
    assert keys(price={"$gt": math.inf}) == keys(price={"$eq": math.nan}) == keys(price=math.nan) == []
    assert keys(name="tea\x00' OR '1'='1") == keys(name="tea\ud800") == []


def test_the_score_of_an_own_embedding_function_is_the_cosine_and_may_be_negative(book: commonplace.Book) -> None:
    vectors = {"east": [1.0, 0.0], "west": [-0.8, 0.6]}
    store = CommonplaceStore(book, index={"dims": 2, "embed": lambda texts: [vectors[text] for text in texts]})
    store.put(("a",), "k", {"text": "east"}, index=["text"])
    assert [item.score for item in store.search(("a",), query="west")] == [pytest.approx(-0.8, abs=1e-3)]
