"""Records through the library: the same content is the same record, whoever saves it and however it is written."""

from __future__ import annotations

import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import commonplace
from commonplace import AlreadyExists, Conflict, InvalidInput, NotFound, Space, TooLarge
from commonplace.space.records import DEFAULT_SOURCE, TAG_RULE, canonical, content_hash, text_of


def save(space: Space, content: Any = "text", **fields: Any) -> Any:
    return space.records.create(**{"type": "note", "source": "s", "confidence": 0.5, "content": content, **fields})


def test_a_text_is_remembered_and_recalled(space: Space) -> None:
    saved = space.remember("Deploys go out on Tuesdays", tags=["project:x"])
    assert (saved.type, saved.content, saved.source) == ("note", {"text": "Deploys go out on Tuesdays"}, DEFAULT_SOURCE)
    assert (saved.tags, saved.confidence) == (("project:x",), 1.0)
    assert space.remember("Deploys go out on Tuesdays").id == saved.id
    assert space.records.create(type="note", content={"text": "Deploys go out on Tuesdays"}).id == saved.id
    space.remember("Ana prefers tea")
    assert [hit.key for hit in space.recall("which day are deploys on?", limit=1)] == [saved.id]
    with pytest.raises(InvalidInput):
        space.remember("")


@pytest.mark.promise("records-upsert-merges")
def test_saving_the_same_again_merges_tags_and_keeps_the_larger_confidence(space: Space, clock: Any) -> None:
    first = save(space, {"b": [1, {"d": 2, "c": 3}], "a": "ü"}, tags=["x", "y"], confidence=0.9)
    clock.advance(60)
    second = save(space, {"a": "ü", "b": [1.0, {"c": 3, "d": 2}]}, tags=["z", "y"], confidence=0.4)
    assert second.id == first.id
    assert (second.tags, second.confidence, second.hash) == (("x", "y", "z"), 0.9, first.hash)
    assert second.created_at == first.created_at
    assert (second.updated_at - first.updated_at).total_seconds() == 60
    assert save(space, {"a": "ü", "b": [1, {"c": 3, "d": 2}]}, confidence=1).confidence == 1.0
    assert [record.id for record in space.records.list().records] == [first.id]
    assert space.records.get(first.id).content == {"a": "ü", "b": [1, {"c": 3, "d": 2}]}


@pytest.mark.promise("records-upsert-merges")
def test_equal_records_that_many_threads_of_two_programs_create_become_one(tmp_path: Path) -> None:
    books = [commonplace.open(tmp_path / "book.db", background=False) for _ in range(2)]
    spaces = [book.space("user", "u1") for book in books]
    with ThreadPoolExecutor(8) as pool:
        saved = pool.map(lambda n: save(spaces[n % 2], f"text {n // 8}", tags=[f"t{n % 8}"]).id, range(160))
        ids = set(saved)
    found = spaces[0].records.list(limit=100).records
    assert {record.id for record in found} == ids
    assert sorted(record.content for record in found) == sorted(f"text {number}" for number in range(20))
    assert all(sorted(record.tags) == [f"t{number}" for number in range(8)] for record in found)
    assert books[0].store.verify() == []
    for book in books:
        book.close()


@pytest.mark.promise("records-identity")
@pytest.mark.parametrize(
    "change",
    [{"type": "todo"}, {"source": "t"}, {"content": ["b", "a"]}, {"content": {"a": ["a", "b"]}}, {"content": "a,b"},
     {"type": "notes", "source": ""}],
)  # fmt: skip
def test_another_type_source_content_or_order_is_another_record(space: Space, change: dict[str, Any]) -> None:
    first = save(space, ["a", "b"])
    if change.get("source") == "":
        change = {"type": "note s", "source": " "}
        with pytest.raises(InvalidInput):
            save(space, ["a", "b"], **change)
        return
    assert save(space, **{"content": ["a", "b"], **change}).id != first.id


@pytest.mark.promise("records-identity")
def test_the_hash_is_sha_256_over_canonical_json(space: Space) -> None:
    record = save(space, {"z": 1.0, "a": [True, None, "ü", 1.5, -0.0, 1e3]})
    text = '{"content":{"a":[true,null,"ü",1.5,0,1000],"z":1},"source":"s","type":"note"}'
    assert record.hash == sha256(text.encode()).hexdigest()


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**60), 2**60), st.floats(allow_nan=False, allow_infinity=False),
              st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=8,
)  # fmt: skip


@given(st.dictionaries(st.text(), st.text(), max_size=4))
def test_canonical_json_of_texts_is_that_of_the_general_encoder(content: dict[str, str]) -> None:
    general = json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    assert canonical(content) == general
    assert text_of(content) == text_of(MappingProxyType(content))


@given(json_values)
def test_canonical_json_does_not_depend_on_key_order_and_reads_back_equal(value: Any) -> None:
    """The check for spaces at the end was one that could not fail."""

    def turned(item: Any) -> Any:
        if isinstance(item, dict):
            return {key: turned(item[key]) for key in reversed(list(item))}
        return [turned(one) for one in item] if isinstance(item, list) else item

    assert canonical(value) == canonical(turned(value))
    assert json.loads(canonical(value)) == value
    assert content_hash("t", "s", value) == content_hash("t", "s", json.loads(json.dumps(value)))
    without_texts = re.sub(r'"(?:[^"\\]|\\.)*"', "", canonical(value))
    assert " " not in without_texts


@pytest.mark.promise("records-upsert-atomic")
def test_threads_that_save_the_same_record_leave_one_with_all_tags(space: Space) -> None:
    def run(number: int) -> None:
        for step in range(5):
            save(space, {"same": True}, tags=[f"t{number}", f"s{step}"], confidence=number / 10)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (record,) = space.records.list().records
    assert set(record.tags) == {f"t{number}" for number in range(8)} | {f"s{step}" for step in range(5)}
    assert (record.confidence, record.revision) == (0.7, 40)


@pytest.mark.promise("records-messages")
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"type": ""}, "type is required and must be a non-empty string"),
        ({"type": "  "}, "type is required and must be a non-empty string"),
        ({"type": None}, "type is required and must be a non-empty string"),
        ({"content": None}, "content is required"),
        ({"source": ""}, "source is required and must be a non-empty string"),
        ({"source": 5}, "source is required and must be a non-empty string"),
        ({"confidence": None}, "confidence is required and must be a number between 0 and 1"),
        ({"confidence": 1.01}, "confidence is required and must be a number between 0 and 1"),
        ({"confidence": -0.01}, "confidence is required and must be a number between 0 and 1"),
        ({"confidence": float("nan")}, "confidence is required and must be a number between 0 and 1"),
        ({"confidence": True}, "confidence is required and must be a number between 0 and 1"),
        ({"tags": [f"t{n}" for n in range(21)]}, "tags array cannot have more than 20 items"),
        ({"tags": ["a b"]}, f'invalid tag: "a b"; {TAG_RULE}'),
        ({"tags": ["ok", "Ü"]}, f'invalid tag: "Ü"; {TAG_RULE}'),
        ({"tags": [""]}, f'invalid tag: ""; {TAG_RULE}'),
        ({"tags": ["x" * 101]}, f'invalid tag: "{"x" * 101}"; {TAG_RULE}'),
        ({"tags": [5]}, f'invalid tag: "5"; {TAG_RULE}'),
        ({"content": "x" * 9_999}, "content is too large (max 10000 characters)"),
    ],
)
def test_what_is_wrong_is_told_in_the_contracts_words(space: Space, fields: dict[str, Any], message: str) -> None:
    """`invalid tag` did not tell which characters a tag may have, so a model tried again and again."""
    with pytest.raises(InvalidInput) as error:
        save(space, **fields)
    assert str(error.value) == message
    assert space.records.list().records == ()


@pytest.mark.parametrize(
    "content", [float("inf"), {1: 2}, {"a": b"x"}, {"a": object()}, "\x00", "\ud800", {"a\x00": 1}]
)
def test_content_that_json_cannot_hold_is_refused(space: Space, content: Any) -> None:
    with pytest.raises(InvalidInput):
        save(space, content)


def test_a_number_of_many_digits_is_refused_or_kept(space: Space) -> None:
    try:
        record = save(space, {"n": 10**5_000})
    except InvalidInput:
        return
    assert space.records.get(record.id).content == {"n": 10**5_000}


@pytest.mark.promise("records-tags")
def test_tags_are_trimmed_lowered_and_kept_once(space: Space) -> None:
    record = save(space, tags=[" Project:X ", "project:x", "A_b-1"])
    assert record.tags == ("project:x", "a_b-1")
    assert len(save(space, tags=[f"t{number}" for number in range(20)]).tags) == 22  # the limit bounds a call


@pytest.mark.promise("records-content-limit")
def test_the_content_limit_counts_characters_of_canonical_json(space: Space) -> None:
    assert save(space, "ü" * 9_998).content == "ü" * 9_998
    with pytest.raises(TooLarge):
        save(space, "ü" * 9_999)


@pytest.mark.promise("records-list")
def test_a_list_is_the_newest_first_by_type_and_all_or_any_tags(space: Space, clock: Any) -> None:
    ids = []
    for number, (kind, tags) in enumerate(
        [("note", ["a"]), ("todo", ["a", "b"]), ("note", ["b"]), ("note", ["a", "b"])]
    ):
        clock.advance()
        ids.append(save(space, number, type=kind, tags=tags).id)

    def listed(**options: Any) -> list[int]:
        return [ids.index(record.id) for record in space.records.list(**options).records]

    assert listed() == [3, 2, 1, 0]
    assert listed(type="note") == [3, 2, 0]
    assert listed(tags=["a", "b"]) == [3, 1]
    assert listed(tags=["A ", "b"], match="any") == [3, 2, 1, 0]
    assert listed(type="note", tags=["a"], filter={"confidence": {"$gte": 0.5}}) == [3, 0]
    assert listed(type="none") == []
    page = space.records.list(limit=3)
    assert [ids.index(record.id) for record in page.records] == [3, 2, 1]
    assert listed(cursor=page.cursor) == [0]


@pytest.mark.promise("records-edit-in-place")
def test_an_update_edits_in_place_what_is_given(space: Space, clock: Any) -> None:
    record = save(space, {"a": 1}, tags=["x"], confidence=0.3)
    clock.advance()
    changed = space.records.update(record.id, content={"a": 2})
    assert (changed.id, changed.content, changed.tags, changed.confidence) == (record.id, {"a": 2}, ("x",), 0.3)
    assert (changed.created_at, changed.revision) == (record.created_at, 2)
    assert changed.hash != record.hash
    assert space.records.update(record.id, tags=[], confidence=0.1, type="todo").tags == ()
    assert save(space, {"a": 1}).id != record.id
    with pytest.raises(NotFound, match=r"^Memory missing not found$"):
        space.records.update("missing", content=1)
    with pytest.raises(InvalidInput):
        space.records.update(record.id, confidence=2)
    assert space.records.get(record.id).confidence == 0.1


@pytest.mark.promise("records-edit-joins")
@pytest.mark.parametrize("edited", ["older", "newer"])
def test_an_update_that_makes_two_records_equal_joins_them_under_the_older_id(
    space: Space, clock: Any, edited: str
) -> None:
    older = save(space, "one", tags=["x"], confidence=0.9)
    clock.advance()
    newer = save(space, "two", tags=["y"], confidence=0.2)
    clock.advance()
    joined = space.records.update(*(older.id,) if edited == "older" else (newer.id,),
                                  content="two" if edited == "older" else "one")  # fmt: skip
    assert joined.id == older.id
    assert (set(joined.tags), joined.confidence, joined.created_at) == ({"x", "y"}, 0.9, older.created_at)
    assert joined.content == ("two" if edited == "older" else "one")
    assert [record.id for record in space.records.list().records] == [older.id]
    with pytest.raises(NotFound):
        space.records.get(newer.id)
    assert space.stats().entries == {"record": 1}
    space.undo(3)
    assert {record.id: record.content for record in space.records.list().records} == {older.id: "one", newer.id: "two"}


def test_a_deleted_record_comes_back_with_restore(space: Space) -> None:
    record = save(space, "text", tags=["x"])
    assert space.records.delete(record.id) == 2  # the commit, to be undone
    with pytest.raises(NotFound, match=f"Memory {record.id} not found"):
        space.records.get(record.id)
    with pytest.raises(NotFound):
        space.records.delete(record.id)
    space.restore("record", record.id, 1)
    back = space.records.get(record.id)
    assert (back.id, back.content, back.tags, back.revision) == (record.id, "text", ("x",), 3)
    assert save(space, "text").id == record.id


def test_a_deletion_is_taken_back_once(space: Space, clock: Any) -> None:
    with pytest.raises(NotFound, match="Memory x not found"):
        space.records.undelete("x")
    record = save(space, "text", tags=["x"], ttl_seconds=10)
    with pytest.raises(Conflict, match=f"Memory {record.id} is not deleted; there is nothing to take back"):
        space.records.undelete(record.id)
    space.records.update(record.id, confidence=0.9)
    space.records.delete(record.id)
    clock.advance(10)
    assert space.records.undelete(record.id) == 4
    back = space.records.get(record.id)
    assert (back.tags, back.confidence, back.revision, back.expires_at) == (("x",), 0.9, 4, None)
    assert [one.action for one in space.history("record", record.id)][-2:] == ["deleted", "restored"]


def test_of_many_who_take_a_deletion_back_one_does(space: Space) -> None:
    record = save(space)
    space.records.delete(record.id)
    done: list[int] = []

    def run() -> None:
        with suppress(Conflict):
            done.append(space.records.undelete(record.id))

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == [3]
    assert space.records.get(record.id).revision == 3


def test_a_record_may_end_by_itself_and_be_saved_anew(space: Space, clock: Any) -> None:
    record = save(space, "fleeting", ttl_seconds=10)
    save(space, "fleeting", tags=["t"])
    assert space.records.get(record.id).expires_at == record.expires_at
    clock.advance(10)
    with pytest.raises(NotFound):
        space.records.get(record.id)
    assert save(space, "fleeting").id != record.id


def test_undo_of_a_save_that_changed_only_the_end_takes_it_back(space: Space, clock: Any) -> None:
    record = save(space, "text")
    save(space, "text", ttl_seconds=10)
    space.undo(2)
    assert space.records.get(record.id).expires_at is None
    save(space, "text")
    space.undo(4)
    clock.advance(100)
    assert space.records.get(record.id).content == "text"


def test_a_record_may_be_given_its_id_once(space: Space) -> None:
    made = space.records.create(type="note", content="a", source="s", confidence=1, id="my-id")
    assert space.records.get("my-id") == made
    with pytest.raises(AlreadyExists):
        space.records.create(type="note", content="b", source="s", confidence=1, id="my-id")
    assert space.records.create(type="note", content="a", source="s", confidence=1, id="other").id == "my-id"


def test_a_record_that_becomes_equal_to_a_lasting_one_lasts(space: Space, clock: Any) -> None:
    lasting = save(space, "text")
    fleeting = save(space, "other", ttl_seconds=10)
    one = space.records.update(fleeting.id, content="text")
    assert (one.id, one.expires_at) == (lasting.id, None)
    longer, shorter = save(space, "a", ttl_seconds=20), save(space, "b", ttl_seconds=10)
    assert space.records.update(shorter.id, content="a").expires_at == longer.expires_at


@pytest.mark.parametrize("match", ["ALL", "or", "", None])
def test_a_misspelt_match_is_refused_rather_than_passed_over(space: Space, match: Any) -> None:
    save(space, "text", tags=["t"])
    with pytest.raises(InvalidInput):
        space.records.list(tags=["t"], match=match)
    with pytest.raises(InvalidInput):
        space.search("text", tags=["t"], match=match)


@pytest.mark.parametrize(
    "wrong", [{"type": "\ud800"}, {"type": ["a"]}, {"limit": "3"}, {"offset": None}, {"kinds": []}]
)
def test_a_search_for_what_cannot_be_is_refused(space: Space, wrong: Any) -> None:
    with pytest.raises(InvalidInput):
        space.search("text", **wrong)
    with pytest.raises(InvalidInput):
        space.records.list(limit=2.5)  # type: ignore[arg-type]


@pytest.mark.promise("records-importance")
def test_importance_is_stored_and_filtered_and_is_not_part_of_the_identity(space: Space) -> None:
    plain = save(space, "tea")
    assert plain.importance is None
    weighed = save(space, "tea", importance=0.4)
    assert (weighed.id, weighed.hash, weighed.importance) == (plain.id, plain.hash, 0.4)
    assert save(space, "tea").importance == 0.4
    assert save(space, "tea", importance=0.9).importance == 0.9
    assert save(space, "tea", importance=0.1).importance == 0.9
    low = save(space, "coffee", importance=0)
    save(space, "milk")

    def where(condition: Any) -> list[str]:
        return [record.id for record in space.records.list(filter={"importance": condition}).records]

    assert where({"$gte": 0.5}) == [plain.id]
    assert where(0) == [low.id]
    assert [hit.key for hit in space.search("coffee", filter={"importance": {"$lt": 0.5}})] == [low.id]
    assert space.records.update(plain.id, tags=["x"]).importance == 0.9
    assert space.records.update(plain.id, importance=0.2).importance == 0.2
    assert space.records.update(plain.id, importance=None).importance is None
    assert space.records.get(plain.id).importance is None
    assert space.records.update(plain.id, content="coffee").importance == 0.0


@pytest.mark.promise("records-importance")
def test_importance_does_not_change_a_score(space: Space) -> None:
    record = save(space, "the lamp of the lighthouse")
    save(space, "the lamp of the garage")
    before = [(hit.key, hit.score, hit.parts) for hit in space.search("lighthouse lamp")]
    space.records.update(record.id, importance=1)
    assert [(hit.key, hit.score, hit.parts) for hit in space.search("lighthouse lamp")] == before


@pytest.mark.parametrize("wrong", [-0.1, 1.1, "0.5", True, float("nan"), [1]])
def test_an_importance_outside_of_0_to_1_is_refused(space: Space, wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="importance must be a number between 0 and 1"):
        save(space, "tea", importance=wrong)
    record = save(space, "tea")
    with pytest.raises(InvalidInput, match="importance must be a number between 0 and 1"):
        space.records.update(record.id, importance=wrong)
    assert space.records.get(record.id).revision == 1


# Several at once, and the past


@pytest.mark.promise("records-several-at-once")
def test_several_records_are_tagged_and_deleted_in_one_commit(space: Space) -> None:
    one, two = save(space, "one", tags=["a"], ttl_seconds=60), save(space, "two", importance=0.5)
    first = space.stats().commit
    tagged = space.records.tag_all([one.id, two.id, "missing", one.id], add=["B", "c"], remove=["a", "b"])
    assert tagged == space.stats().commit == first + 1
    assert space.records.get(one.id).tags == space.records.get(two.id).tags == ("b", "c")
    kept = space.records.get(one.id), space.records.get(two.id)
    assert (kept[0].expires_at, kept[0].hash) == (one.expires_at, one.hash)
    assert (kept[1].content, kept[1].importance, kept[1].confidence) == ("two", 0.5, 0.5)
    assert {record.id for record in space.records.list(tags=["c"]).records} == {one.id, two.id}
    assert space.records.tag_all([one.id], add=["c"]) is None
    deleted = space.records.delete_all([one.id, "missing", two.id])
    assert deleted == first + 2
    assert space.records.list().records == ()
    assert space.records.delete_all([one.id, two.id]) is None
    space.undo(deleted)
    assert {record.id for record in space.records.list().records} == {one.id, two.id}


@pytest.mark.promise("records-several-at-once")
def test_what_cannot_be_done_to_one_of_several_is_done_to_none(space: Space) -> None:
    full = save(space, "full", tags=[f"t{number}" for number in range(space.limits.tags)])
    other = save(space, "other")
    for ids, tags in (([other.id, full.id], ["one-more"]), ([other.id], ["no tag"]), ([other.id, " "], ["x"])):
        with pytest.raises(InvalidInput):
            space.records.tag_all(ids, add=tags)
    with pytest.raises(InvalidInput, match="ids must be a list of"):
        space.records.delete_all(other.id)
    with pytest.raises(TooLarge):
        space.records.delete_all([f"{number}" for number in range(10_001)])
    assert space.records.get(other.id) == other
    assert space.records.get(full.id) == full


@pytest.mark.promise("records-as-of")
def test_records_are_listed_as_they_were(space: Space, clock: Any) -> None:
    clock.advance()
    kept, gone = save(space, "kept", tags=["t"]), save(space, "gone", tags=["t"])
    before = space.records.list().records
    then = max(record.updated_at for record in before)
    clock.advance()
    space.records.update(kept.id, content="changed", tags=["u"], type="other")
    space.records.delete(gone.id)
    save(space, "new", tags=["t"])
    assert space.records.list(as_of=then).records == before
    assert space.records.list(as_of=then, tags=["t"], type="note").records == before
    assert space.records.list(as_of=then, tags=["u"]).records == ()
    first = space.records.list(as_of=then, limit=1)
    rest = space.records.list(as_of=then, limit=1, cursor=first.cursor)
    assert first.records + rest.records == before
    assert [record.content for record in space.records.list().records] == ["new", "changed"]
