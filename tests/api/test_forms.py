"""What goes over the wire comes back equal: every dataclass that the library gives, and every error that it raises."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import commonplace
from commonplace.api import forms
from commonplace.api.encoding import dumps
from commonplace.api.forms import Form
from commonplace.api.problems import BY_CODE, KINDS, error_of, kind_of, problem_of
from commonplace.engine.search import SearchResult
from commonplace.entry import Change, Entry, Hit, Revision
from commonplace.errors import (
    Ambiguous,
    CommonplaceError,
    InvalidInput,
    InvalidPath,
    NotFound,
    Outdated,
    RateLimited,
    Unauthorized,
    Unavailable,
)
from commonplace.exchange import Imported
from commonplace.space.context import Context
from commonplace.space.conversation import NumberedPage, Thread
from commonplace.space.files import FileInfo, FilePage, Moved, Removed
from commonplace.space.messages import Message, MessagePage
from commonplace.space.recall import Recall
from commonplace.space.records import Record, RecordPage
from commonplace.space.threads import ThreadPage
from commonplace.space.working_memory import WorkingMemory
from commonplace.store import NamespaceStats, StoreStats

microseconds = st.integers(0, 10**17 - 1)
moments = microseconds.map(lambda time: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
optional = st.none() | texts
counts = st.integers(0, 2**62)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(texts, below, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(texts, values, max_size=3)
labels = texts.map(lambda text: text.replace("/", "-") or "x")
namespaces = st.lists(labels, min_size=1, max_size=3).map(tuple)
actions = st.sampled_from(["created", "updated", "restored", "moved_here", "moved_away", "deleted", "expired"])
entries = st.builds(
    Entry,
    namespace=namespaces,
    kind=st.sampled_from(["file", "record"]),
    key=texts.map(lambda text: f"a\x01{text}"),
    value=values,
    text=texts,
    heading=optional,
    attributes=objects,
    identity=optional,
    revision=counts,
    commit=counts,
    created_at=microseconds,
    updated_at=microseconds,
    expires_at=st.none() | microseconds,
    actor=optional,
)
names = texts.map(lambda text: text.replace("\x01", "").replace("/", "") or "x")
found_keys = (
    st.tuples(st.just("file"), names.map(lambda name: f"a\x01{name}"))
    | st.tuples(st.just("record"), names)
    | st.tuples(st.just("message"), names.map(lambda name: f"t/{name}\x0101750000000000000\x01000000001"))
)
found_entries = st.builds(lambda entry, place: replace(entry, kind=place[0], key=place[1]), entries, found_keys)
hits = st.builds(
    Hit,
    kind=texts,
    key=names,
    entry=found_entries,
    score=st.floats(0, 1),
    parts=st.dictionaries(texts, st.floats(0, 1), max_size=2),
    snippet=texts,
    start=counts,
    end=counts,
)
files = st.builds(
    FileInfo,
    path=texts,
    kind=st.sampled_from(["file", "directory"]),
    size=counts,
    lines=counts,
    revision=counts,
    created_at=moments,
    updated_at=moments,
)
records = st.builds(
    Record,
    id=texts,
    type=texts,
    content=values,
    source=texts,
    tags=st.lists(texts, max_size=2).map(tuple),
    confidence=st.floats(0, 1),
    hash=texts,
    revision=counts,
    created_at=moments,
    updated_at=moments,
    expires_at=st.none() | moments,
)
threads = st.builds(
    Thread,
    id=texts,
    resource_id=texts,
    title=optional,
    metadata=objects,
    created_at=moments,
    updated_at=moments,
    revision=counts,
    _context=st.none(),
)
messages = st.builds(
    Message,
    id=texts,
    thread_id=texts,
    resource_id=texts,
    role=texts,
    content=values,
    created_at=moments,
    extra=objects,
    entry=st.none() | entries,
)
notices = st.lists(texts, max_size=2).map(tuple)
tally = st.dictionaries(texts, counts, max_size=2)


def several(things: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(things, max_size=2).map(tuple)


THINGS: list[tuple[Form[Any], st.SearchStrategy[Any]]] = [
    (forms.ENTRY, entries),
    (forms.FULL_HIT, hits),
    (forms.FULL_SEARCH, st.builds(SearchResult, several(hits), notices)),
    (forms.REVISION, st.builds(Revision, counts, actions, counts, microseconds, optional)),
    (forms.CHANGE, st.builds(Change, counts, microseconds, actions, texts, texts, counts, optional)),
    (forms.NAMESPACE_STATS, st.builds(NamespaceStats, namespaces, tally, counts, microseconds, counts, counts, counts)),
    (forms.STORE_STATS, st.builds(StoreStats, counts, counts, tally, counts, counts, counts, counts, optional, counts)),
    (forms.FILE_FORM, files),
    (forms.FILES_PAGE, st.builds(FilePage, several(files), optional)),
    (forms.REMOVED, st.builds(Removed, counts, counts, st.none() | counts)),
    (forms.MOVED, st.builds(Moved, counts, st.none() | counts)),
    (forms.RECORD_FORM, records),
    (forms.RECORDS_PAGE, st.builds(RecordPage, several(records), optional)),
    (forms.THREAD_FORM, threads),
    (forms.THREADS_PAGE, st.builds(ThreadPage, several(threads), optional)),
    (forms.MESSAGE_FORM, messages),
    (forms.MESSAGES_PAGE, st.builds(MessagePage, several(messages), optional)),
    (forms.FULL_RECALL, st.builds(Recall, several(messages), several(hits), notices)),
    (forms.CONTEXT, st.builds(Context, several(objects), optional, counts, counts, notices)),
    (
        forms.WORKING_FORM,
        st.builds(WorkingMemory, st.sampled_from(["resource", "thread"]), texts, texts | objects, counts, moments),
    ),
    (
        forms.IMPORTED_NAMESPACES,
        several(
            st.builds(
                Imported,
                namespaces,
                st.sampled_from(["imported", "merged"]),
                counts,
                counts,
                counts,
                st.none() | counts,
            )
        ).map(tuple),
    ),
]


@pytest.mark.promise("wire-round-trip")
@pytest.mark.parametrize(("form", "things"), THINGS, ids=lambda one: one.name if isinstance(one, Form) else "")
@given(data=st.data())
def test_everything_comes_back_equal_and_with_the_same_bytes(
    form: Form[Any], things: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    thing = data.draw(things)
    written = dumps(form.write(thing))
    back = form.read(json.loads(written))
    assert back == thing
    assert dumps(form.write(back)) == written
    if isinstance(thing, Message):
        assert back.entry == thing.entry  # which is left out of comparisons


@given(items=several(messages), total=counts)
def test_numbered_pages_come_back_equal(items: tuple[Message, ...], total: int) -> None:
    page = NumberedPage(items, total, 3, 10)
    form = forms.MESSAGES_NUMBERED
    assert form.read(json.loads(dumps(form.write(page)))) == page


@given(hit=hits)
def test_no_hit_tells_how_keys_are_stored(hit: Hit) -> None:
    """A hit over REST once held the storage row: the store's own number, and keys with U+0001."""
    for form in (forms.FULL_HIT.write(hit), forms.LIGHT_HIT.write(forms.light(hit))):
        entry = form.get("entry", form)
        assert isinstance(entry, dict)
        assert "\x01" not in entry["key"]
        assert "id" not in entry


def test_a_form_of_another_version_is_refused() -> None:
    with pytest.raises(Unavailable, match="did not answer with a Record; does it have the same version"):
        forms.RECORD_FORM.read({"id": "r"})


ERRORS: list[CommonplaceError] = [
    InvalidPath("invalid path segment: '..'", "..", is_traversal=True),
    Ambiguous("the text occurs 2 times", (1, 7)),
    Outdated("file /a is at revision 3", 3),
    RateLimited("too many calls", 2.5),
    *(
        kind("what was wrong, and the next step")
        for kind in vars(commonplace.errors).values()
        if isinstance(kind, type) and kind not in (InvalidPath, Ambiguous, Outdated, RateLimited)
    ),
]


@pytest.mark.promise("rest-problems-are-stable")
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_every_error_comes_back_as_itself(error: CommonplaceError) -> None:
    form = json.loads(json.dumps(problem_of(error)))
    back = error_of(form, form["status"])
    assert (type(back), str(back), vars(back)) == (type(error), str(error), vars(error))


def test_the_codes_and_their_statuses_are_these() -> None:
    """Programs rely on them: a change here is a change of the interface."""
    assert {kind.code: kind.status for kind in KINDS} == {
        "invalid_path": 422,
        "too_large": 413,
        "invalid_input": 422,
        "invalid_json": 400,
        "invalid_request": 400,
        "not_found": 404,
        "no_such_route": 404,
        "method_not_allowed": 405,
        "already_exists": 409,
        "is_a_directory": 409,
        "not_a_directory": 409,
        "ambiguous": 409,
        "precondition_failed": 412,
        "conflict": 409,
        "resync": 410,
        "unauthorized": 401,
        "forbidden": 403,
        "rate_limited": 429,
        "unavailable": 503,
        "overloaded": 503,
        "timeout": 504,
        "headers_too_large": 431,
        "configuration": 500,
        "corrupt": 500,
        "internal": 500,
    }


def test_a_class_below_a_known_one_has_the_code_of_that_one() -> None:
    class Special(NotFound):
        pass

    assert kind_of(Special("x")) == BY_CODE["not_found"]


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, Unauthorized), (404, NotFound), (418, InvalidInput), (429, Unavailable), (502, Unavailable)],
)
def test_an_unknown_code_is_judged_by_its_status(status: int, kind: type[CommonplaceError]) -> None:
    error = error_of({"code": "new in a later version", "detail": "what was wrong"}, status)
    assert (type(error), str(error)) == (kind, "what was wrong")
