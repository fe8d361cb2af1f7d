"""Whatever is said and asked for, a context is one that a model accepts: compared with a model written apart."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

import commonplace
from doubles import WordEmbedder
from turns import THOUGHT, assistant, call, function_call, function_output, result, user, words


def written(shape, kind, ids, place):
    """One message in the shape of a service."""
    text = f"word{place}"
    if kind in ("user", "assistant"):
        said = {"role": kind, "content": text}
        return dict(said, type="message") if (shape, kind) == ("responses", "assistant") else said
    if kind == "thought":
        return THOUGHT
    is_call = kind == "call"
    if shape == "openai":
        return call(*ids, text=text) if is_call else result(*ids, text)
    if shape == "responses":
        return dict(function_call(*ids), arguments=text) if is_call else dict(function_output(*ids), output=text)
    if shape == "anthropic":
        uses = [{"type": "tool_use", "id": id, "name": text, "input": {}} for id in ids]
        results = [{"type": "tool_result", "tool_use_id": id, "content": text} for id in ids]
        return assistant(uses) if is_call else user(results)
    uses = [{"type": "tool-call", "toolCallId": id, "toolName": text, "input": {}} for id in ids]
    results = [{"type": "tool-result", "toolCallId": id, "output": {"type": "text", "value": text}} for id in ids]
    return assistant(uses) if is_call else {"role": "tool", "content": results}


def what_a_model_accepts(said):
    """The sets of places that belong together and lack nothing, and the places of those that wait at the end.

    `said` has a kind and ids for each place.
    """
    sets = [{place} for place in range(len(said))]
    last_call: dict[str, int] = {}
    unanswered: dict[int, set[str]] = {}
    lacking, thoughts, before = set(), set(), "user"

    def join(one, other):
        if sets[one] is not sets[other]:
            sets[one] |= sets[other]
            for place in sets[other]:
                sets[place] = sets[one]

    for place, (kind, ids) in enumerate(said):
        if kind == "call":
            lacking |= {last_call[id] for id in ids if id in unanswered.get(last_call.get(id, -1), ())}
            last_call |= dict.fromkeys(ids, place)
            unanswered[place] = set(ids)
        if kind == "result":
            for id in ids:
                if id in last_call:
                    unanswered[last_call[id]].discard(id)
                    join(last_call[id], place)
                else:
                    lacking.add(place)
        is_led = kind in ("call", "assistant") and place - 1 in thoughts
        if is_led or (kind == "thought" and before == "thought"):
            join(place - 1, place)
        elif before == "thought":
            lacking.add(place - 1)
        if is_led or kind == "thought":
            thoughts.add(place)
        before = kind

    talk = [place for place, (kind, _) in enumerate(said) if kind in ("user", "assistant")]
    waits = {place for place, ids in unanswered.items() if ids}
    if before == "thought":
        waits.add(len(said) - 1)
    complete, at_the_end = [], set()
    for members in {frozenset(members) for members in sets}:
        if members & lacking:
            continue
        if not members & waits:
            complete.append(members)
        elif max(members) > max(talk, default=-1):
            at_the_end |= members
    return complete, at_the_end


@st.composite
def threads_of_a_shape(draw):
    """A shape, and for each message a kind and ids; no call has two results."""
    shape = draw(st.sampled_from(["openai", "responses", "anthropic", "ai-sdk"]))
    kinds = ["user", "assistant", "call", "call", "result", "result"] + ["thought"] * (shape == "responses")
    said: list[tuple[str, tuple[str, ...]]] = []
    answered: set[str] = set()
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=14)):
        holds_one = shape == "responses" or (shape, kind) == ("openai", "result")
        ids = draw(st.lists(st.sampled_from("1234"), min_size=1, max_size=1 if holds_one else 2, unique=True))
        if kind == "call":
            answered -= {*ids}
        if kind == "result":
            ids = [id for id in ids if id not in answered]
            answered |= {id for id in ids if any(kind == "call" and id in called for kind, called in said)}
        if ids:
            said.append((kind, tuple(ids)))
    return shape, said or [("user", ())]


@pytest.mark.promise("context-keeps-tools-together")
@given(threads_of_a_shape(), st.data())
def test_any_context_is_one_that_a_model_accepts(drawn, data):
    shape, said = drawn
    complete, waiting = what_a_model_accepts(said)
    last, budget = data.draw(st.integers(0, 14)), data.draw(st.none() | st.integers(1, 80))
    asked = data.draw(st.sets(st.integers(0, len(said) - 1), max_size=3))
    read_at_once = patch("commonplace.space.context._STEP", data.draw(st.sampled_from([1, 3, 20])))

    with commonplace.open(":memory:", embedder=WordEmbedder(), background=False) as book, read_at_once:
        threads = book.space("user", "u1").threads
        thread = threads.create()
        messages = [written(shape, kind, ids, place) for place, (kind, ids) in enumerate(said)]
        threads.add(thread.id, [dict(message, place=place) for place, message in enumerate(messages)], verbatim=True)
        query = " ".join(f"word{place}" for place in asked)
        context = thread.context(query, last=last, top=2, neighbours=0, max_tokens=budget, count_tokens=words)

    kept = [message["place"] for message in context.messages]
    assert kept == sorted(kept)
    assert set(kept) == set().union(*(members for members in [*complete, waiting] if members & set(kept)))
    if budget is not None:
        assert context.tokens <= budget
    elif last:
        recent = {*range(len(said))[-last:]}
        assert set(kept) >= waiting.union(*(members for members in complete if members & recent))


ids = st.sampled_from(["1", "2"])
uses = st.lists(
    st.one_of(
        st.just(((), ())),
        st.lists(ids, min_size=1, max_size=2, unique=True).map(lambda called: (called, ())),
        ids.map(lambda id: ((), (id,))),
    ),
    min_size=1,
    max_size=12,
)


@pytest.mark.promise("context-keeps-tools-together")
@given(uses, st.data())
def test_any_result_stands_with_the_nearest_call_of_its_id(said, data):
    caller: dict[int, int | None] = {}
    last_call: dict[str, int] = {}
    for place, (called, answered) in enumerate(said):
        for id in answered:
            caller[place] = last_call.get(id)
        last_call |= dict.fromkeys(called, place)
    written = [
        call(*called, text=f"word{place}") if called else result(*answered, f"word{place}") if answered else user("x")
        for place, (called, answered) in enumerate(said)
    ]
    with commonplace.open(":memory:", embedder=WordEmbedder(), background=False) as book:
        threads = book.space("user", "u1").threads
        thread = threads.create()
        threads.add(thread.id, [dict(message, place=place) for place, message in enumerate(written)])
        query = " ".join(f"word{place}" for place in data.draw(st.sets(st.integers(0, len(said) - 1), max_size=3)))
        context = thread.context(query, last=data.draw(st.integers(0, 3)), top=3, neighbours=0)

    kept = [message["place"] for message in context.messages]
    assert kept == sorted(kept)
    for place in kept:
        called, answered = said[place]
        if answered:
            assert caller[place] in kept, "a result without its call"
        results = [other for other in kept if caller.get(other) == place]
        got = {id for other in results for id in said[other][1]}
        spoken_since = ((), ()) in said[max(results, default=place) :]
        assert got == set(called) or not spoken_since, "a call without its result"
