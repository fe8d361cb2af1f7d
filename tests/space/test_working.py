"""Working memory: one per resource or thread, text replaced and data merged, never emptied by accident."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonplace import Conflict, Forbidden, InvalidInput, Limits, TooLarge
from commonplace.errors import Outdated
from commonplace.space.working_memory import EMPTIED, WorkingMemory, holds_data, merged

TEMPLATE = "# User\n- **Name**: [name]\n- **City**: [city]\n"


@pytest.fixture
def working(space):
    return space.threads.working


@pytest.mark.promise("conversations-working-scopes")
def test_working_memory_is_of_a_resource_across_its_threads_or_of_one_thread(space, working):
    thread, other = space.threads.create(), space.threads.create()
    written = working.write("# Ann")
    working.write("# Bob", resource="u2")
    working.write({"step": 1}, thread=thread.id)

    assert written == WorkingMemory("resource", "u1", "# Ann", 1, written.updated_at)
    assert working.read() == working.read(resource="u1") == written
    assert working.read(resource="u2").content == "# Bob"
    assert working.read(thread=thread.id).content == {"step": 1}
    assert working.read(thread=other.id) is None
    assert working.read(resource="u3") is None


def test_a_resource_and_a_thread_of_the_same_name_have_memories_of_their_own(space, working):
    space.threads.create(id="u1")
    working.write("of the resource")
    working.write("of the thread", thread="u1")
    assert (working.read().content, working.read(thread="u1").content) == ("of the resource", "of the thread")


# Data


@pytest.mark.promise("conversations-working-merge")
def test_data_is_merged_null_deletes_lists_are_replaced_and_what_is_omitted_stays(working):
    working.write({"prefs": {"style": "formal", "length": "concise"}, "projects": [{"name": "a"}, {"name": "b"}]})
    working.write({"prefs": {"style": "casual"}, "keyContext": ["x"]})
    now = working.write({"prefs": {"length": None}, "projects": [{"name": "c"}], "keyContext": None})

    assert now.content == {"prefs": {"style": "casual"}, "projects": [{"name": "c"}]}
    assert now.revision == 3


DATA = st.dictionaries(
    st.sampled_from("abc"),
    st.recursive(
        st.none() | st.integers(0, 3) | st.lists(st.none() | st.integers(0, 3), max_size=2),
        lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        max_leaves=6,
    ),
    max_size=3,
)


def has_null(data):
    return any(value is None or (isinstance(value, dict) and has_null(value)) for value in data.values())


@given(DATA, DATA)
def test_a_merge_keeps_no_null_changes_nothing_twice_and_leaves_its_arguments_alone(present, update):
    start = merged({}, present)
    copies = (repr(start), repr(update))
    result = merged(start, update)

    assert not has_null(result)
    assert merged(result, update) == result
    assert merged(start, {}) == start
    assert (repr(start), repr(update)) == copies
    for name in start.keys() - update.keys():
        assert result[name] == start[name]


@pytest.mark.promise("conversations-working-both-survive")
def test_updates_at_once_all_survive(working):
    def update(number: int) -> None:
        for turn in range(5):
            working.write({"notes": {f"{number} {turn}": True}})

    with ThreadPoolExecutor(8) as writers:
        list(writers.map(update, range(8)))

    assert len(working.read().content["notes"]) == 40


@pytest.mark.promise("conversations-working-both-survive")
def test_a_write_that_names_a_revision_is_made_at_that_one_only(working):
    first = working.write("# Ann", revision=0)
    for wrong in (0, 2):
        with pytest.raises(Outdated) as refused:
            working.write("# Bob", revision=wrong)
        assert refused.value.revision == 1
    assert working.read() == first
    for no_revision in (True, "1", 1.0):
        with pytest.raises(InvalidInput, match="revision"):
            working.write("# Bob", revision=no_revision)
    assert working.write("# Bob", revision=1).revision == 2


def test_an_update_that_changes_nothing_makes_no_revision(working):
    first = working.write({"a": 1})
    assert working.write({"a": 1}) == working.write({}) == first


# Text


def test_a_text_replaces_the_text_before(working):
    working.write("# Ann\n- likes tea")
    assert working.write("# Ann\n- likes coffee").content == "# Ann\n- likes coffee"


@pytest.mark.promise("conversations-working-not-emptied")
@pytest.mark.parametrize(
    "empty",
    [
        TEMPLATE,
        "  # User\n\n- **Name**:  [name]\n- **City**: [city]",
        "",
        " \n",
        "# User\n- **Name**:\n- **City**: \n",
        "# User Information\n- **First Name**: \n* Goals:\n---\nNotes:",
    ],
)
def test_replacing_data_by_the_empty_template_is_refused(working, empty):
    kept = working.write("# User\n- **Name**: Ann\n- **City**: [city]\n", template=TEMPLATE)

    with pytest.raises(Conflict) as refused:
        working.write(empty, template=TEMPLATE)

    assert str(refused.value) == (
        "Attempted to replace existing working memory with empty template. Update skipped to prevent data loss."
    )
    assert str(refused.value) == EMPTIED
    assert working.read() == kept


@pytest.mark.promise("conversations-working-not-emptied")
@pytest.mark.parametrize(
    ("first", "template", "empty"),
    [
        ("# Name: Ann\n# City: Bern\n", "# Name:\n# City:\n", "# Name:\n# City:\n"),
        ("# Name: Ann\n# City: Bern\n", None, "# Name:\n# **City**: \n"),
        ("# Ann likes tea", None, ""),
        ("# Ann likes tea", None, " \n"),
        ("# Ann likes tea", "# Likes\n", "# Likes"),
        ("# User\n- **Name**:\n", None, ""),
    ],
)
def test_what_stands_in_headings_is_not_emptied_either(working, first, template, empty):
    kept = working.write(first, template=template)
    with pytest.raises(Conflict) as refused:
        working.write(empty, template=template)
    assert str(refused.value) == EMPTIED
    assert working.read() == kept
    assert working.write("# Ann likes coffee: black", template=template).revision == 2


@pytest.mark.promise("conversations-working-not-emptied")
def test_replacing_data_by_the_empty_template_of_a_schema_is_refused(working):
    template = {"prefs": None, "projects": [], "keyContext": []}
    kept = working.write({"projects": [{"name": "a"}]}, template=template)

    with pytest.raises(Conflict) as refused:
        working.write({"keyContext": [], "projects": [], "prefs": None}, template=template)
    assert str(refused.value) == EMPTIED
    assert working.read() == kept
    assert working.write({"projects": []}, template=template).content == {"projects": []}


def test_the_empty_template_may_begin_a_memory_and_stand_in_for_itself(working):
    assert working.write(TEMPLATE, template=TEMPLATE).content == TEMPLATE
    assert working.write(TEMPLATE + "\n", template=TEMPLATE).content == TEMPLATE + "\n"
    assert working.write("", template=TEMPLATE).content == ""
    assert working.write(TEMPLATE, template=TEMPLATE).content == TEMPLATE


def test_the_empty_template_of_data_may_stand_in_for_itself(working):
    template = {"projects": [], "keyContext": []}
    first = working.write(template, template=template)
    assert working.write(template, template=template) == first


@pytest.mark.parametrize(
    "text", ["# Name: Ann", "Ann", "# User\n- **Name**: Ann", "- tea", "Likes:\n- tea", "at 12:30", "名前: 安"]
)
def test_a_text_that_says_something_holds_data(text):
    assert holds_data(text)


@pytest.mark.parametrize(("first", "then"), [("# Ann", {"name": "Ann"}), ({"name": "Ann"}, "# Ann")])
def test_a_text_does_not_become_data_nor_data_a_text(working, first, then):
    kept = working.write(first)
    with pytest.raises(Conflict, match="clear it first"):
        working.write(then)
    assert working.read() == kept
    working.clear()
    assert working.write(then).content == then


# History


@pytest.mark.promise("conversations-working-history")
def test_what_an_update_replaces_is_in_history_and_undo_brings_it_back(space, working):
    working.write("first")
    working.write("second")
    assert [line.action for line in working.history()] == ["created", "updated"]

    space.undo(working.history()[-1].commit)
    assert working.read().content == "first"

    commit = working.clear()
    assert working.read() is None
    assert working.clear() is None
    space.undo(commit)
    assert working.read().content == "first"


@pytest.mark.promise("conversations-working-history")
def test_the_history_of_a_thread_is_refused_to_another_resource_and_outlives_the_thread(space, working):
    thread = space.threads.create(resource="A")
    working.write("first", thread=thread.id)
    with pytest.raises(Forbidden, match="is for resource with id A but resource B was queried"):
        working.history(thread=thread.id, resource="B")
    for owner in (None, "A"):
        assert [line.action for line in working.history(thread=thread.id, resource=owner)] == ["created"]

    space.threads.delete(thread.id)
    assert [line.action for line in working.history(thread=thread.id)] == ["created", "deleted"]
    assert working.history(thread="none", resource="A") == []


def test_working_memory_is_not_among_search_results(space, working):
    working.write("the zebra crossing")
    assert list(space.search("zebra", kinds=["working"])) == []
    assert space.stats().pending == 0


# Refused


@pytest.mark.parametrize(
    "content",
    [5, None, ["a"], "\x00", "\ud800", {"a": float("nan")}, {1: 2}, {"a": b"x"}, "x" * 1_000_001, {"a": 10**5_000}],
    ids=range(10),
)
def test_a_content_that_cannot_be_kept_is_refused(working, content):
    with pytest.raises(InvalidInput):
        working.write(content)
    assert working.read() is None


def test_data_cannot_grow_past_the_limit_by_merging(open_book):
    working = open_book(limits=Limits(metadata_bytes=100)).space("user", "u1").threads.working
    kept = working.write({"a": "x" * 60})
    with pytest.raises(TooLarge):
        working.write({"b": "x" * 60})
    assert working.read() == kept


@pytest.mark.parametrize("name", ["", "a\x01b", 5, "x" * 201])
def test_a_wrong_resource_or_thread_name_is_refused(working, name):
    with pytest.raises(InvalidInput):
        working.write("x", resource=name)
    with pytest.raises(InvalidInput):
        working.read(thread=name)
