"""Titles: by the local rule at once, by a model behind the turn; one that somebody chose stays."""

from __future__ import annotations

import asyncio
import threading

import pytest

from commonplace import Unavailable
from commonplace.agents.memories import TITLE_THREADS


def first_turn(memory, text="How do I prune an apple tree?", **thread):
    made = memory.create_thread("u-1", **thread)
    memory.save_messages(made.id, [{"role": "user", "content": text}, {"role": "assistant", "content": "Gently."}])
    return made.id


@pytest.fixture
def titled_by(open_anywhere):
    """The memories, and an agent in them, whose titles a function makes."""

    def with_model(model):
        memories = open_anywhere(config={"generate_title": model})
        return memories, memories.get_agent_memory(memories.create_agent("Ann"))

    return with_model


@pytest.mark.promise("conversations-title-local")
def test_a_thread_is_titled_after_its_first_user_message_by_the_local_rule(memory):
    thread = first_turn(memory, "How do I prune an 'apple' tree: now, or at 10:30? I have a saw.")
    assert memory.get_thread(thread).title == "How do I prune an apple tree now, or at 10.30?"


@pytest.mark.promise("conversations-title-local")
def test_the_first_message_with_words_gives_the_title_also_when_it_comes_later(memory):
    thread = memory.create_thread("u-1").id
    image = [{"type": "image", "source": {"type": "base64", "data": "aGVsbG8="}}]
    memory.save_messages(thread, [{"role": "assistant", "content": "Hello, how can I help?"}])
    memory.save_messages(thread, [{"role": "user", "content": image}])
    assert memory.get_thread(thread).title is None
    memory.save_messages(thread, [{"role": "user", "content": [{"type": "text", "text": "What tree is this?"}]}])
    memory.save_messages(thread, [{"role": "user", "content": "And this?"}])
    assert memory.get_thread(thread).title == "What tree is this?"


@pytest.mark.promise("conversations-title-own-stays")
def test_a_title_of_its_own_stays_and_a_placeholder_does_not(titled_by):
    memories, memory = titled_by(lambda text: "By the model")
    own, placeholder = (first_turn(memory, title=title) for title in ("Mine", "New Thread 2025-01-02T03:04:05.678Z"))
    memories.settle()
    assert memory.get_thread(own).title == "Mine"
    assert memory.get_thread(placeholder).title == "By the model"


def test_titles_can_be_switched_off(titled_by):
    _, memory = titled_by(False)
    assert memory.get_thread(first_turn(memory)).title is None


@pytest.mark.promise("conversations-title-model")
def test_a_model_titles_from_the_first_user_message_within_the_limits(titled_by):
    asked = []

    def model(text):
        asked.append(text)
        return f'<think>hm</think>"Pruning: apple trees"\n{"and more " * 50}'

    memories, memory = titled_by(model)
    thread = first_turn(memory)
    assert memories.settle()
    title = memory.get_thread(thread).title
    assert title.startswith("Pruning apple trees and more and more")
    assert len(title) <= 80
    assert not set(title) & set("\"':")
    assert asked == ["How do I prune an apple tree?"]

    memory.save_messages(thread, [{"role": "user", "content": "and a pear tree"}])
    assert memories.settle()
    assert asked == ["How do I prune an apple tree?"]


@pytest.mark.promise("conversations-title-model")
def test_a_model_may_be_awaited(titled_by):
    async def model(text):
        return "Awaited"

    memories, memory = titled_by(model)
    thread = first_turn(memory)
    assert memories.settle()
    assert memory.get_thread(thread).title == "Awaited"


@pytest.mark.promise("conversations-title-never-blocks")
def test_a_model_that_hangs_holds_up_no_turn_and_a_title_chosen_meanwhile_stays(titled_by):
    asked, may_answer = threading.Event(), threading.Event()

    def model(text):
        asked.set()
        assert may_answer.wait(30)
        return "Too late"

    memories, memory = titled_by(model)
    thread = first_turn(memory)
    assert asked.wait(30)
    assert not memories.settle(0)
    memory.save_messages(thread, [{"role": "user", "content": "another turn"}])
    assert memory.get_thread(thread).title is None
    memory.update_thread(thread, title="Chosen")
    may_answer.set()
    assert memories.settle()
    assert memory.get_thread(thread).title == "Chosen"
    assert len(memory.list_messages(thread).messages) == 3


@pytest.mark.promise("conversations-title-model-fails")
def test_models_that_are_cancelled_or_exit_stop_no_later_title(titled_by):
    answers = [asyncio.CancelledError(), SystemExit(1)] * TITLE_THREADS

    def model(text):
        if answers:
            raise answers.pop()
        return "Titled after all"

    memories, memory = titled_by(model)
    for _ in range(2 * TITLE_THREADS):
        first_turn(memory)
        assert memories.settle()
    thread = first_turn(memory)
    assert memories.settle()
    assert memory.get_thread(thread).title == "Titled after all"


@pytest.mark.promise("conversations-title-model-fails")
@pytest.mark.parametrize("broken", ["commonplace.agents.agent_memory.Background.submit", "threading.Thread.start"])
def test_a_title_that_cannot_even_be_asked_for_is_only_logged(titled_by, caplog, monkeypatch, broken):
    def fail(*args):
        raise RuntimeError("can't start new thread")

    _, memory = titled_by(lambda text: "Titled")
    thread = memory.create_thread("u-1").id
    monkeypatch.setattr(broken, fail)
    (saved,) = memory.save_messages(thread, [{"role": "user", "content": "hello"}])
    assert memory.list_messages(thread).messages == (saved,)
    assert "can't start new thread" in caplog.text


@pytest.mark.promise("conversations-title-model-fails")
@pytest.mark.parametrize(
    "answer", [RuntimeError("no credit"), Unavailable("offline"), TimeoutError(), SystemError(), "", ' "" : ', None, 5]
)
def test_a_model_that_fails_keeps_the_old_title_and_never_the_turn(titled_by, caplog, answer):
    answers = [answer, "Titled after all"]

    def model(text):
        now = answers.pop(0)
        if isinstance(now, Exception):
            raise now
        return now

    memories, memory = titled_by(model)
    thread = first_turn(memory)
    assert memories.settle()
    assert memory.get_thread(thread).title is None
    assert len(memory.list_messages(thread).messages) == 2
    assert caplog.records

    memory.save_messages(thread, [{"role": "user", "content": "again"}])
    assert memories.settle()
    assert memory.get_thread(thread).title == "Titled after all"


def test_a_thread_deleted_while_its_model_thinks_gets_no_title(titled_by):
    asked, may_answer = threading.Event(), threading.Event()

    def model(text):
        asked.set()
        assert may_answer.wait(30)
        return "Too late"

    memories, memory = titled_by(model)
    thread = first_turn(memory)
    assert asked.wait(30)
    memory.delete_thread(thread)
    may_answer.set()
    assert memories.settle()
    assert memory.list_threads().threads == ()


def test_closing_drops_titles_that_wait_and_waits_for_no_model(titled_by):
    may_answer, asked = threading.Event(), []

    def model(text):
        asked.append(text)
        assert may_answer.wait(30)
        return "Late"

    memories, memory = titled_by(model)
    for _ in range(10):
        first_turn(memory)
    memories.close()
    may_answer.set()
    assert memories.settle()
    assert len(asked) <= TITLE_THREADS
