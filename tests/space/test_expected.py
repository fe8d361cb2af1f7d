"""A change that is made only while an entry is as the caller saw it; looked at inside the write."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from commonplace import Outdated, Space
from commonplace.errors import InvalidInput

NOTE = {"type": "note", "content": {"text": "tea"}, "source": "s", "confidence": 0.9}


def fill(space: Space) -> None:
    space.files.write("/f", "one")
    space.records.create(**NOTE, id="r")  # type: ignore[arg-type]
    space.threads.create("first", id="t")
    space.threads.add("t", [{"id": "m", "role": "user", "content": "hello"}])
    space.threads.working.write({"name": "Ana"}, resource="u")


CHANGES: dict[tuple[str, str], Callable[[Space], object]] = {
    ("file", "/f"): lambda space: space.files.write("/f", "two"),
    ("record", "r"): lambda space: space.records.update("r", confidence=0.5),
    ("thread", "t"): lambda space: space.threads.update("t", title="second"),
    ("message", "m"): lambda space: space.threads.update_message("m", content="bye"),
    ("working", "resource/u"): lambda space: space.threads.working.write({"city": "Bonn"}, resource="u"),
}


@pytest.mark.promise("expected-revision")
@pytest.mark.parametrize(("kind", "key"), CHANGES)
def test_a_change_is_made_at_the_expected_revision_and_refused_at_another(space: Space, kind: str, key: str) -> None:
    fill(space)
    change = CHANGES[kind, key]
    change(space.expecting(kind, key, 1))
    commit = space.stats().commit
    with pytest.raises(Outdated, match=f"{kind} {key} is at revision 2; read it again") as refused:
        change(space.expecting(kind, key, 1))
    assert refused.value.revision == 2
    assert space.stats().commit == commit
    change(space.expecting(kind, key, 1, 2))


@pytest.mark.promise("expected-revision")
def test_nothing_and_anything_can_be_expected_too(space: Space) -> None:
    with pytest.raises(Outdated, match="file /f does not exist") as refused:
        space.expecting("file", "/f").files.append("/f", "x")
    assert refused.value.revision == 0
    assert space.expecting("file", "/f", 0).files.append("/f", "one").revision == 1
    with pytest.raises(Outdated, match="file /f is at revision 1"):
        space.expecting("file", "/f", 0).files.append("/f", "x")
    assert space.expecting("file", "/f").files.append("/f", "two").revision == 2
    assert space.files.read("/f") == "one\ntwo"


def test_the_condition_may_be_on_another_entry_than_the_change(space: Space) -> None:
    space.files.write("/plan", "x")
    careful = space.expecting("file", "/plan", 1)
    assert careful.records.create(**NOTE).revision == 1  # type: ignore[arg-type]
    assert careful.files.delete("/nothing").commit is None
    space.files.write("/plan", "y")
    for change in (
        lambda: careful.records.create(**NOTE),  # type: ignore[arg-type]
        lambda: careful.files.delete("/plan"),
        lambda: careful.threads.create(),
        lambda: careful.undo(1),
    ):
        with pytest.raises(Outdated):
            change()
    assert space.stats().entries == {"file": 1, "record": 1}


@pytest.mark.promise("expected-revision")
def test_every_one_of_several_conditions_has_to_hold(space: Space) -> None:
    space.files.write("/plan", "x")
    space.files.write("/other", "x")
    for plan, other in ((7, 1), (1, 7), (7, 7)):
        with pytest.raises(Outdated):
            space.expecting("file", "/plan", plan).expecting("file", "/other", other).files.write("/f", "y")
    assert not space.files.exists("/f")
    assert space.expecting("file", "/plan", 1).expecting("file", "/other", 1).files.write("/f", "y").revision == 1


@pytest.mark.promise("expected-revision")
def test_a_condition_holds_for_an_edit_that_changes_nothing(space: Space) -> None:
    space.files.write("/plan", "x")
    space.files.write("/f", "one")
    with pytest.raises(Outdated, match="file /plan is at revision 1"):
        space.expecting("file", "/plan", 7).files.edit("/f", lambda text: text)
    assert space.expecting("file", "/plan", 1).files.edit("/f", lambda text: text).revision == 1


@pytest.mark.promise("expected-revision")
def test_the_time_of_the_last_use_may_be_expected_too(space: Space) -> None:
    space.threads.create("first", id="t")
    seen = (1, space.state("thread", "t", 1).updated_at)
    space.expecting("thread", "t", seen).files.write("/f", "one")
    space.threads.add("t", [{"id": "m", "role": "user", "content": "hello"}])
    with pytest.raises(Outdated, match="thread t is at revision 1, but has changed since it was read; read it again"):
        space.expecting("thread", "t", seen).threads.delete("t")
    space.expecting("thread", "t", 7, (1, space.state("thread", "t", 1).updated_at)).threads.delete("t")


def test_a_repeated_creation_is_answered_though_its_condition_has_passed(space: Space) -> None:
    careful = space.expecting("file", "/f", 0).once("k", "f")
    first = careful.files.write("/f", "one")
    assert careful.files.write("/f", "one") == first


@pytest.mark.parametrize(("kind", "key"), [("file", "../x"), ("message", "\ud800"), ("record", "\x00")])
def test_a_name_that_nothing_can_have_is_refused_at_once(space: Space, kind: str, key: str) -> None:
    with pytest.raises(InvalidInput):
        space.expecting(kind, key, 1)


def test_an_unknown_kind_is_refused(space: Space) -> None:
    with pytest.raises(InvalidInput, match="unknown kind 'page'"):
        space.expecting("page", "x", 1)
