"""A former text comes back exactly, through any chain of edits."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from commonplace.backends import deltas
from commonplace.backends.sqlite import SQLiteStore
from commonplace.entry import Draft
from commonplace.store import Transaction
from doubles import rounds

characters = st.characters(exclude_categories=["Cs"], exclude_characters="\x00")
texts = st.one_of(
    st.text(characters, max_size=60),
    st.text(st.sampled_from("ab\n"), max_size=60),
    st.integers(0, 40).flatmap(lambda count: st.just("line of text 日本 \U0001f600\n" * count)),
)


@st.composite
def histories(draw: Any) -> list[str]:
    """Texts that follow from one another as people and agents edit."""
    history = [draw(texts)]
    for _ in range(draw(st.integers(1, 50))):
        text = history[-1]
        how = draw(st.sampled_from(["append", "insert", "cut", "replace", "same", "back"]))
        start, end = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
        if how == "append":
            text += draw(texts)
        elif how == "insert":
            text = text[:start] + draw(texts) + text[start:]
        elif how == "cut":
            text = text[:start] + text[end:]
        elif how == "replace":
            text = draw(texts)
        elif how == "back":
            text = draw(st.sampled_from(history))
        history.append(text)
    return history


@settings(max_examples=rounds(150))
@given(histories(), st.booleans())
def test_every_former_text_comes_back_through_its_chain(history: list[str], is_deleted: bool) -> None:
    chain: list[deltas.Stored] = [
        deltas.encode(old, new, allow_splice=number % 7 != 6) for number, (old, new) in enumerate(pairwise(history))
    ]
    newest: str | None = history[-1]
    if is_deleted:
        chain.append(deltas.whole(history[-1]))
        newest = None
    for position in range(len(chain)):
        assert deltas.decode_last(newest, reversed(chain[position:])) == history[position]


@given(texts, texts)
def test_a_chain_begins_at_the_newest_whole_text(old: str, new: str) -> None:
    stored = deltas.whole(old)
    assert deltas.is_whole(stored)
    assert not deltas.is_splice(stored)
    assert deltas.decode_last(None, [stored]) == deltas.decode_last(new, [stored]) == old


@given(texts, texts)
def test_an_append_costs_a_number_and_a_repeat_costs_none_of_the_text(old: str, added: str) -> None:
    assert deltas.encode(old, old, allow_splice=True) == -1
    if added:
        assert deltas.encode(old, old + added, allow_splice=False) == len(old)


@given(texts, texts, texts, texts)
def test_a_delta_is_never_larger_than_the_text_itself(head: str, middle: str, other: str, tail: str) -> None:
    old, new = head + middle + tail, head + other + tail
    stored = deltas.encode(old, new, allow_splice=True)
    if not isinstance(stored, int):
        assert len(stored) <= max(len(old), len(old.encode()))


def test_a_small_edit_in_a_long_text_costs_little() -> None:
    text = "".join(f"{number}: a line that is like no other\n" for number in range(10_000))
    edited = text.replace("5000: a", "5000: the")
    stored = deltas.encode(text, edited, allow_splice=True)
    assert isinstance(stored, bytes)
    assert len(stored) < 50
    assert not isinstance(deltas.encode(text, edited, allow_splice=False), int)


@given(texts, texts)
def test_the_common_prefix_is_the_longest_one(left: str, right: str) -> None:
    length = deltas.common_prefix(left, right)
    assert left[:length] == right[:length]
    assert length == min(len(left), len(right)) or left[length] != right[length]


def test_no_chain_of_splices_is_longer_than_allowed_whatever_comes_between_them() -> None:
    """Texts that are written whole, appends, moves, and the way into another namespace."""
    store = SQLiteStore(":memory:")
    here, there = ("user", "u1"), ("user", "u2")

    def edit(transaction: Transaction, number: int) -> None:
        text = "".join(f"{n * n * 7919}\n" for n in range(200))
        transaction.put(Draft("file", "a", f"{text[:500]}{number}{text[500:]}"))
        if number == 5:
            transaction.put(Draft("file", "a", text[::-1]))
        if number % 4 == 0:
            transaction.put(Draft("file", "a", f"{text[:500]}{number}{text[500:]}more"))
        if number % 5 == 0:
            transaction.move("file", "a", "b", None)
            transaction.move("file", "b", "a", None)

    for number in range(30):
        store.write(here, lambda transaction, number=number: edit(transaction, number))  # type: ignore[misc]
    head, *states = store.export([here])
    store.adopt(replace(head, namespace=there), lambda: states)  # type: ignore[arg-type, type-var]
    for number in range(30, 3 * deltas.MAX_DELTAS):
        store.write(there, lambda transaction, number=number: edit(transaction, number))  # type: ignore[misc]
    rows = store._writing.execute("SELECT entry, value FROM history ORDER BY entry, revision").fetchall()
    store.close()
    longest = in_a_row = 0
    for _, stored in rows:
        in_a_row = 0 if deltas.is_whole(stored) else in_a_row + deltas.is_splice(stored)
        longest = max(longest, in_a_row)
    assert longest == deltas.MAX_DELTAS
