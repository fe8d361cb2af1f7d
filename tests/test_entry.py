"""Frozen values that are made quickly behave as `dataclass` alone would make them."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace

import pytest

from commonplace.entry import Entry, quickly_made


@dataclass(frozen=True, slots=True)
class Slow:
    a: int
    b: str = "b"
    c: dict[str, int] = field(default_factory=dict)
    d: object = field(default=None, compare=False, repr=False)


@quickly_made
@dataclass(frozen=True, slots=True)
class Quick:
    a: int
    b: str = "b"
    c: dict[str, int] = field(default_factory=dict)
    d: object = field(default=None, compare=False, repr=False)


def values(one: Slow | Quick) -> list[object]:
    return [getattr(one, part.name) for part in fields(one)]


@pytest.mark.parametrize(
    ("given", "named"), [((1,), {}), ((1, "x"), {"d": 2}), ((1, "x", {"y": 2}, 3), {}), ((), {"c": {"z": 1}, "a": 5})]
)
def test_a_quick_value_equals_one_that_dataclass_makes(given, named):
    quick, slow = Quick(*given, **named), Slow(*given, **named)
    assert type(quick) is Quick
    assert values(quick) == values(slow)
    assert repr(quick) == repr(slow).replace("Slow", "Quick")
    assert quick == Quick(*given, **named) == replace(quick, d="not compared")
    assert quick != replace(quick, b="other")
    assert pickle.loads(pickle.dumps(quick)) == copy.deepcopy(quick) == quick


def test_each_quick_value_has_a_default_of_its_own():
    assert Quick(1).c is not Quick(1).c


def test_a_quick_value_stays_frozen():
    quick, entry = Quick(1), Entry(("n",), "file", "k", "v", "v", None, {}, None, 1, 1, 0, 0, None, None)
    with pytest.raises(FrozenInstanceError):
        quick.a = 2
    with pytest.raises(FrozenInstanceError):
        entry.id = 2
    with pytest.raises(FrozenInstanceError):
        del entry.id
    with pytest.raises(TypeError):
        hash(Quick(1, c={}))


@pytest.mark.parametrize(("given", "named"), [((), {}), ((1, 2, 3, 4, 5), {}), ((1,), {"e": 2}), ((1,), {"a": 2})])
def test_a_quick_value_refuses_other_arguments(given, named):
    with pytest.raises(TypeError, match=r"__init__\(\)"):
        Quick(*given, **named)
