"""Conversations against a model of plain lists: any operations in any order, and every reading agrees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import commonplace
from commonplace import Conflict, Forbidden, InvalidInput, NotFound
from doubles import START, Clock, WordEmbedder, rounds

RESOURCES = ("u1", "ann", "bob")
THREADS = ("t1", "t2", "t10")
IDS = tuple(f"m{number}" for number in range(12))
WORDS = ("alpha", "bravo", "kilo", "zebra")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

CALL = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c", "output": "found"}


def moment(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)


@dataclass(frozen=True)
class Said:
    id: str
    value: dict[str, Any]
    at: int


@dataclass
class Talk:
    """A thread: its messages in the order of time, those of one time in the order in which they came."""

    resource: str
    title: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    updated: int = 0
    said: list[Said] = field(default_factory=list)

    def insert(self, one: Said) -> None:
        place = sum(other.at <= one.at for other in self.said)
        self.said.insert(place, one)


@dataclass
class Model:
    talks: dict[str, Talk] = field(default_factory=dict)

    def place(self, id: str) -> tuple[str, int] | None:
        for name, talk in self.talks.items():
            for number, one in enumerate(talk.said):
                if one.id == id:
                    return name, number
        return None

    def copy(self) -> Model:
        return Model({name: replace(talk, said=list(talk.said)) for name, talk in self.talks.items()})


values = st.one_of(
    st.builds(
        lambda role, text: {"role": role, "content": text},
        st.sampled_from(["user", "assistant"]),
        st.sampled_from(WORDS),
    ),
    st.sampled_from([CALL, RESULT, {"role": "system", "content": "be nice"}]),
)
incoming = st.tuples(values, st.none() | st.sampled_from(IDS), st.none() | st.integers(-3, 3))
threads = st.sampled_from(THREADS)
resources = st.none() | st.none() | st.sampled_from(RESOURCES)


class ThreadMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.book = commonplace.open(":memory:", embedder=WordEmbedder(), background=False, clock=self.clock)
        self.space = self.book.space("user", "u1")
        self.model = Model()
        self.undoable: tuple[int, Model] | None = None

    def teardown(self) -> None:
        try:
            assert self.book.verify() == []
        finally:
            self.book.close()

    # What must be refused, and what happens otherwise

    def change(
        self, thread: str | None, resource: str | None, call: Callable[[], Any], effect: Callable[[], None]
    ) -> Any:
        """Make a change here and in the model, or see it refused as it must be."""
        self.clock.advance(1)
        if thread is not None:
            if thread not in self.model.talks:
                with pytest.raises(NotFound, match=f"No thread found with id {thread}$"):
                    call()
                return None
            owner = self.model.talks[thread].resource
            if resource not in (None, owner):
                with pytest.raises(
                    Forbidden, match=f"is for resource with id {owner} but resource {resource} was queried"
                ):
                    call()
                return None
        before, commit = self.model.copy(), self.space.stats().commit
        result = call()
        effect()
        after = self.space.stats().commit
        assert after in (commit, commit + 1)
        self.undoable = (after, before) if after > commit else None
        return result

    # Changes

    @initialize()
    def begin(self) -> None:
        self.create("t1", None, None)
        self.create("t10", "ann", "Deploys")

    @rule(thread=threads, resource=resources, title=st.none() | st.sampled_from(WORDS))
    def create(self, thread: str, resource: str | None, title: str | None) -> None:
        if thread in self.model.talks:
            with pytest.raises(Conflict, match="exists already"):
                self.space.threads.create(title, id=thread, resource=resource)
            return

        def effect() -> None:
            self.model.talks[thread] = Talk(resource or "u1", title, updated=self.clock())

        self.change(None, None, lambda: self.space.threads.create(title, id=thread, resource=resource), effect)

    @rule(thread=threads, resource=resources, title=st.sampled_from(WORDS), note=st.none() | st.integers(0, 2))
    def update(self, thread: str, resource: str | None, title: str, note: int | None) -> None:
        def effect() -> None:
            talk = self.model.talks[thread]
            metadata = {} if note is None else {"note": note}
            if (talk.title, talk.metadata) != (title, metadata):
                talk.title, talk.metadata, talk.updated = title, metadata, self.clock()

        self.change(
            thread,
            resource,
            lambda: self.space.threads.update(thread, title=title, metadata={"note": note}, resource=resource),
            effect,
        )

    @rule(thread=threads, resource=resources)
    def delete(self, thread: str, resource: str | None) -> None:
        self.change(
            thread,
            resource,
            lambda: self.space.threads.delete(thread, resource=resource),
            lambda: self.model.talks.__delitem__(thread),
        )

    @rule(thread=threads, resource=resources)
    def clear(self, thread: str, resource: str | None) -> None:
        def effect() -> None:
            talk = self.model.talks[thread]
            if talk.said:
                talk.said, talk.updated = [], self.clock()

        self.change(thread, resource, lambda: self.space.threads.clear(thread, resource=resource), effect)

    @rule(thread=threads, resource=resources, batch=st.lists(incoming, max_size=4), verbatim=st.booleans())
    def add(self, thread: str, resource: str | None, batch: list[Any], verbatim: bool) -> None:
        messages = []
        for value, id, second in batch:
            named = {} if id is None else {"id": id}
            dated = {} if second is None else {"createdAt": moment(START + second * 1_000_000).isoformat()}
            messages.append({**value, **named, **dated})

        def call() -> Any:
            return self.space.threads.add(thread, messages, resource=resource, verbatim=verbatim)

        if verbatim:

            def effect() -> None:
                talk = self.model.talks[thread]
                for message, saved in zip(messages, results[-1], strict=True):
                    assert saved.entry.value == message
                    talk.insert(Said(saved.id, message, self.clock()))
                if messages:
                    talk.updated = self.clock()

            results: list[Any] = []
            self.change(thread, resource, lambda: results.append(call()), effect)
            return
        if thread in self.model.talks and resource in (None, self.model.talks[thread].resource):
            expected = self.merged(thread, batch)
            if expected is None:
                commit = self.space.stats().commit
                with pytest.raises(Conflict, match="give it another id"):
                    call()
                assert self.space.stats().commit == commit
                return

        def add_in_model() -> None:
            talk, fresh = self.model.talks[thread], False
            ids = iter([message.id for message in found[-1]])
            now = max([self.clock(), *(one.at for one in talk.said)])
            stored = [one for one in batch if one[0].get("role") != "system"]
            before: int | None = None
            for number, (value, given, second) in enumerate(stored):
                if given is not None and self.model.place(given) is not None:
                    if given not in seen:
                        assert next(ids) == given
                    seen.add(given)
                    name, place = self.model.place(given)
                    before = self.model.talks[name].said[place].at
                    continue
                id = next(ids)
                assert given in (None, id)
                seen.add(id)
                if second is None:
                    later = [START + other * 1_000_000 for *_, other in stored[number + 1 :] if other is not None]
                    before = self.place_in_time(value, before, now, later)
                else:
                    before = START + second * 1_000_000
                talk.insert(Said(id, value, before))
                fresh = True
            assert next(ids, None) is None
            if fresh:
                talk.updated = self.clock()

        found: list[Any] = []
        seen: set[str] = set()
        self.change(thread, resource, lambda: found.append(call()), add_in_model)

    @staticmethod
    def place_in_time(value: dict[str, Any], before: int | None, now: int, later: list[int]) -> int:
        """The time of an undated message: now, but between the times that its neighbours came with."""
        at = min([now, *later[:1]])
        if before is not None and (not later or before <= later[0] or value == RESULT):
            return max(at, before)
        return at

    def merged(self, thread: str, batch: list[Any]) -> bool | None:
        """None where a message has the id of another one."""
        known = {one.id: (name, one.value) for name, talk in self.model.talks.items() for one in talk.said}
        for value, id, _ in batch:
            if id is None or value.get("role") == "system":
                continue
            if known.setdefault(id, (thread, value)) != (thread, value):
                return None
        return True

    @rule(id=st.sampled_from(IDS), text=st.sampled_from(WORDS))
    def update_message(self, id: str, text: str) -> None:
        place = self.model.place(id)
        if place is None:
            with pytest.raises(NotFound, match=f"No message found with id {id}"):
                self.space.threads.update_message(id, content=text)
            return
        name, number = place
        talk = self.model.talks[name]
        changed = {**talk.said[number].value, "content": text}

        def effect() -> None:
            if changed != talk.said[number].value:
                talk.said[number] = replace(talk.said[number], value=changed)
                talk.updated = self.clock()

        self.change(None, None, lambda: self.space.threads.update_message(id, content=text), effect)

    @rule(ids=st.lists(st.sampled_from(IDS), max_size=4))
    def delete_messages(self, ids: list[str]) -> None:
        def effect() -> None:
            for id in dict.fromkeys(ids):
                if place := self.model.place(id):
                    talk = self.model.talks[place[0]]
                    del talk.said[place[1]]
                    talk.updated = self.clock()

        self.change(None, None, lambda: self.space.threads.delete_messages(ids), effect)

    @rule(data=st.data(), thread=threads, resource=resources)
    def clone(self, data: Any, thread: str, resource: str | None) -> None:
        talk = self.model.talks.get(thread)
        last = data.draw(st.none() | st.sampled_from(talk.said)) if talk and talk.said else None

        def effect() -> None:
            assert talk is not None
            clone = made[-1]
            kept = talk.said if last is None else talk.said[: talk.said.index(last) + 1]
            copied = self.everything(clone.id)
            assert [(one.value, one.at) for one in copied] == [(one.value, one.at) for one in kept]
            # A copy is a thread like any other, but for a name that the machine does not know.
            self.space.threads.delete(clone.id)

        made: list[Any] = []
        if talk is None or resource not in (None, talk.resource):
            self.change(thread, resource, lambda: self.space.threads.clone(thread, resource=resource), lambda: None)
            return
        made.append(self.space.threads.clone(thread, upto_message=None if last is None else last.id))
        effect()
        self.undoable = None

    @precondition(lambda self: self.undoable is not None)
    @rule()
    def undo(self) -> None:
        assert self.undoable is not None
        commit, before = self.undoable
        self.clock.advance(1)
        self.space.undo(commit)
        for name, talk in before.talks.items():
            # Undo takes back what was said; when a thread was last used is no part of that.
            talk.updated = self.microseconds(self.space.threads.get(name).updated_at)
        self.model, self.undoable = before, None

    # Every reading

    @staticmethod
    def microseconds(time: datetime) -> int:
        return (time - EPOCH) // timedelta(microseconds=1)

    def read(self, messages: Any) -> list[Said]:
        return [Said(one.id, one.entry.value, self.microseconds(one.created_at)) for one in messages]

    def everything(self, thread: str) -> list[Said]:
        found, cursor = [], None
        while True:
            page = self.space.threads.messages(thread, limit=2, cursor=cursor)
            found += page.messages
            cursor = page.cursor
            if cursor is None:
                return self.read(found)

    @invariant()
    def every_thread_is_as_in_the_model(self) -> None:
        listed = self.space.threads.list(limit=100).threads
        assert {thread.id for thread in listed} == self.model.talks.keys()
        for thread in listed:
            talk = self.model.talks[thread.id]
            assert (thread.resource_id, thread.title, dict(thread.metadata), self.microseconds(thread.updated_at)) == (
                talk.resource,
                talk.title,
                talk.metadata,
                talk.updated,
            )
        assert [thread.updated_at for thread in listed] == sorted((t.updated_at for t in listed), reverse=True)

    @invariant()
    def every_message_is_there_once_in_its_order(self) -> None:
        for name, talk in self.model.talks.items():
            assert self.everything(name) == talk.said
        assert self.space.stats().entries.get("message", 0) == sum(len(talk.said) for talk in self.model.talks.values())

    @rule(thread=threads, last=st.integers(0, 5), page=st.integers(0, 3), per_page=st.integers(1, 3))
    def look(self, thread: str, last: int, page: int, per_page: int) -> None:
        talk = self.model.talks.get(thread)
        if talk is None:
            for call in (self.space.threads.messages, self.space.threads.page_of_messages, self.space.threads.recall):
                with pytest.raises(NotFound):
                    call(thread)
            return
        assert (
            self.read(self.space.threads.messages(thread, last=last).messages)
            == talk.said[len(talk.said) - min(last, len(talk.said)) :]
        )
        newest_first = talk.said[::-1]
        found = self.space.threads.page_of_messages(thread, page, per_page=per_page, direction="DESC")
        first = page * per_page
        assert self.read(found.items) == newest_first[first : first + per_page]
        assert (found.total, found.has_more) == (len(talk.said), first + per_page < len(talk.said))
        for place, one in enumerate(talk.said):
            near = self.space.threads.around(one.id, before=2, after=1)
            assert self.read(near) == talk.said[max(0, place - 2) : place + 2]
        if talk.said:
            middle = talk.said[len(talk.said) // 2].at
            later = self.space.threads.messages(thread, after=moment(middle)).messages
            assert self.read(later) == [one for one in talk.said if one.at >= middle]

    @rule(word=st.sampled_from(WORDS))
    def search(self, word: str) -> None:
        said = [one for talk in self.model.talks.values() for one in talk.said]
        # A call that was given a content holds its tool's name besides.
        holding = {one.id for one in said if one.value.get("content") == word and "type" not in one.value}
        found = {hit.key for hit in self.space.search(word, limit=100, kinds=["message"]) if hit.entry.text == word}
        assert found == holding

    @rule(
        value=st.sampled_from(
            [{"content": "x"}, {"role": "robot", "content": "x"}, {"type": "message", "content": "x"}, 5]
        )
    )
    def refuse_what_is_no_message(self, value: Any) -> None:
        for thread in self.model.talks:
            with pytest.raises(InvalidInput):
                self.space.threads.add(thread, [{"role": "user", "content": "lost?"}, value])


TestThreads = pytest.mark.promise("conversations-machine")(ThreadMachine.TestCase)
TestThreads.settings = settings(max_examples=rounds(150), stateful_step_count=30)
