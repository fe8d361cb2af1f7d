"""The Session of the OpenAI Agents SDK: what was put in comes back, in order, and an agent remembers."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from agents.memory import SessionSettings, SQLiteSession
from agents.memory.session import Session
from agents.models.interface import Model
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

import commonplace
from agents import Agent, ModelResponse, RunConfig, Runner, Usage, function_tool
from commonplace import Forbidden, InvalidInput
from commonplace.adapters.openai_agents import READ_AT_ONCE, CommonplaceSession
from commonplace.agents import AgentMemories, BookOptions
from commonplace.entry import Draft
from commonplace.store import Transaction
from doubles import WordEmbedder

ITEMS: list[Any] = [
    {"role": "user", "content": "Which day do we deploy?"},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "look it up"}]},
    {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "runbook", "arguments": '{"of":"deploys"}'},
    {"type": "function_call_output", "call_id": "call_1", "output": "deploys go out on Tuesdays"},
    {"id": "__fake_id__", "type": "message", "role": "assistant", "status": "completed", "content": []},
    {"id": "__fake_id__", "role": "system", "content": "<working_memory>kept to the letter</working_memory>"},
    {"type": "a_type_of_next_year", "createdAt": "never", "threadId": 7},
]


@pytest.fixture
def session(space):
    return CommonplaceSession(space, "chat-1")


@pytest.mark.promise("openai-agents-items-as-they-came")
def test_items_come_back_as_they_were_put_in_and_in_their_order(session):
    async def scenario() -> None:
        await session.add_items(ITEMS[:3])
        await session.add_items(ITEMS[3:])
        assert await session.get_items() == ITEMS
        assert await session.get_items(limit=2) == ITEMS[-2:]
        assert await session.get_items(limit=0) == []

    asyncio.run(scenario())


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=9),
    lambda below: (
        st.lists(below, max_size=3) | st.dictionaries(st.sampled_from(["id", "role", "text"]), below, max_size=3)
    ),
    max_leaves=6,
)
names = st.sampled_from(["role", "content", "type", "id", "createdAt", "call_id", "name"])
batches = st.lists(st.lists(st.dictionaries(names, json_values, max_size=4), max_size=4), max_size=5)


@given(batches, st.integers(0, 6), st.integers(0, 8))
def test_it_answers_as_the_session_of_the_sdk_does(calls, pops, limit):
    async def run(one: Any) -> list[Any]:
        seen = []
        for items in calls:
            await one.add_items(items)
            seen.append(await one.get_items(limit=limit))
        seen += [await one.pop_item() for _ in range(pops)]
        seen.append(await one.get_items())
        await one.clear_session()
        seen += [await one.get_items(), await one.pop_item()]
        return seen

    with commonplace.open(":memory:", embedder=WordEmbedder(), background=False) as book:
        ours = asyncio.run(run(CommonplaceSession(book.space("user", "u1"), "s")))
    theirs = SQLiteSession("s")
    assert ours == asyncio.run(run(theirs))
    theirs.close()


def test_an_agents_memory_holds_sessions_too_and_a_book_is_told_apart(book, space):
    class Agent:
        def __init__(self, space: commonplace.Space) -> None:
            self.space = space

    asyncio.run(CommonplaceSession(Agent(space), "s").add_items(ITEMS))
    assert asyncio.run(CommonplaceSession(space, "s").get_items()) == ITEMS
    with pytest.raises(InvalidInput, match=r"a session needs a space, such as book\.space\(.*not Book"):
        CommonplaceSession(book, "s")


def test_it_is_a_session_by_the_protocol_of_the_sdk(session):
    assert isinstance(session, Session)


@pytest.mark.promise("openai-agents-pop-and-clear")
def test_the_newest_item_is_popped_and_a_cleared_session_is_empty_until_undo(session, space):
    async def scenario() -> None:
        await session.add_items(ITEMS)
        assert await session.pop_item() == ITEMS[-1]
        assert await session.get_items() == ITEMS[:-1]
        await session.clear_session()
        assert (await session.get_items(), await session.pop_item()) == ([], None)
        space.undo(space.stats().commit)
        assert await session.get_items() == ITEMS[:-1]

    asyncio.run(scenario())


@pytest.mark.promise("openai-agents-pop-and-clear")
def test_new_items_come_after_a_message_that_is_dated_ahead(session, space, clock):
    ahead = datetime.fromtimestamp(clock() / 1_000_000, UTC) + timedelta(hours=1)
    space.threads.create(id="chat-1")
    space.threads.add("chat-1", [{"role": "user", "content": "ahead", "createdAt": ahead}])

    async def scenario() -> None:
        await session.add_items(ITEMS[:2])
        await session.add_items(ITEMS[2:])
        assert (await session.get_items())[1:] == ITEMS
        assert await session.pop_item() == ITEMS[-1]
        assert (await session.get_items())[1:] == ITEMS[:-1]

    asyncio.run(scenario())


@pytest.mark.promise("openai-agents-compaction-in-one-commit")
def test_a_compaction_replaces_what_the_model_saw_in_one_commit(session, space):
    summary: Any = {"type": "compaction", "id": "cmp_1", "encrypted_content": "kept short"}

    async def scenario() -> None:
        await session.add_items(ITEMS)
        seen = await session._get_compaction_snapshot(4)
        assert (seen.items, seen.complete) == (ITEMS[-4:], False)
        every = await session._get_compaction_snapshot(len(ITEMS))
        assert (every.items, every.complete) == (ITEMS, True)
        assert await seen.replace_suffix(1, [summary])
        assert await session.get_items() == [*ITEMS[:-3], summary]
        assert not await seen.replace_suffix(1, [])  # these items are gone
        space.undo(space.stats().commit)
        assert await session.get_items() == ITEMS
        late = await session._get_compaction_snapshot(4)
        await session.add_items(ITEMS[:1])
        assert not await late.replace_suffix(0, [summary])
        assert await session.get_items() == [*ITEMS, ITEMS[0]]
        pruning = await session._get_compaction_snapshot(2, prune_prefix=lambda item: item in ITEMS[:3])
        assert await pruning.replace_suffix(0, [summary])  # the newest item is like a pruned one, but after others
        assert await session.get_items() == [*ITEMS[3:-1], summary]
        before = space.stats().commit
        assert await session._atomic_replace_items([summary])
        assert (await session.get_items(), space.stats().commit) == ([summary], before + 1)

    asyncio.run(scenario())


def test_a_session_that_changes_its_items_is_not_compacted_behind_its_back(space):
    class Shouting(CommonplaceSession):
        async def add_items(self, items: list[Any]) -> None:
            await super().add_items([{**item, "content": item["content"].upper()} for item in items])

    async def scenario() -> None:
        session = Shouting(space, "chat-1")
        await session.add_items(ITEMS[:1])
        assert await session._get_compaction_snapshot(5) is None
        assert not await session._atomic_replace_items([])
        assert await session.get_items() == [{**ITEMS[0], "content": "WHICH DAY DO WE DEPLOY?"}]

    asyncio.run(scenario())


def test_every_item_is_popped_once_by_many_at_the_same_time(session):
    async def scenario() -> None:
        await session.add_items([{"role": "user", "content": str(number)} for number in range(40)])
        popped = await asyncio.gather(*(session.pop_item() for _ in range(45)))
        assert sorted(int(item["content"]) for item in popped if item is not None) == list(range(40))

    asyncio.run(scenario())


def test_sessions_keep_apart_and_their_first_items_may_come_at_once(space):
    async def scenario() -> None:
        sessions = [CommonplaceSession(space, f"chat-{number % 2}") for number in range(8)]
        await asyncio.gather(
            *(one.add_items([{"role": "user", "content": str(number)}]) for number, one in enumerate(sessions))
        )
        for parity in (0, 1):
            items = await sessions[parity].get_items()
            assert sorted(int(item["content"]) % 2 for item in items) == [parity] * 4

    asyncio.run(scenario())


@pytest.mark.parametrize("settings", [SessionSettings(limit=2), {"limit": 2}])
def test_a_limit_of_the_settings_holds_where_none_is_given(space, settings):
    async def scenario() -> None:
        session = CommonplaceSession(space, "s", session_settings=settings)
        await session.add_items(ITEMS)
        assert await session.get_items() == ITEMS[-2:]
        assert await session.get_items(limit=3) == ITEMS[-3:]

    asyncio.run(scenario())


def test_more_items_than_a_page_holds_come_back(session):
    async def scenario() -> None:
        many = [{"role": "user", "content": str(number)} for number in range(2_300)]
        await session.add_items(many)
        assert await session.get_items() == many
        assert await session.get_items(limit=1_500) == many[-1_500:]

    asyncio.run(scenario())


def test_items_are_messages_that_search_finds(session, space):
    asyncio.run(session.add_items(ITEMS))
    assert space.threads.get("chat-1").id == "chat-1"
    assert [message.role for message in space.threads.messages("chat-1").messages][:4] == [
        "user",
        "assistant",
        "assistant",
        "tool",
    ]
    assert [hit.entry.value for hit in space.search("tuesdays", limit=1)] == [ITEMS[3]]


def test_a_session_of_another_resource_is_refused(space):
    asyncio.run(CommonplaceSession(space, "s", resource="ann").add_items(ITEMS[:1]))
    other = CommonplaceSession(space, "s", resource="bob")
    for call in (other.get_items, other.pop_item, other.clear_session, lambda: other.add_items(ITEMS[:1])):
        with pytest.raises(Forbidden):
            asyncio.run(call())


def test_a_cancelled_addition_is_whole_before_the_caller_goes_on(session):
    async def scenario() -> None:
        task = asyncio.ensure_future(session.add_items(ITEMS))
        await asyncio.sleep(0)  # it has begun
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await session.get_items() == ITEMS

    asyncio.run(scenario())


def test_an_addition_that_is_cancelled_again_and_again_is_still_waited_for(tmp_path):
    with commonplace.open(tmp_path / "book.db", background=False) as book:
        session = CommonplaceSession(book.space("user", "u-1"), "chat-1")
        asyncio.run(session.add_items(ITEMS[:1]))
        is_writing, may_commit = threading.Event(), threading.Event()

        def write_slowly(transaction: Transaction) -> None:
            is_writing.set()
            assert may_commit.wait(30)

        async def scenario() -> None:
            task = asyncio.ensure_future(session.add_items(ITEMS[1:]))
            for _ in range(3):
                await asyncio.sleep(0.01)
                assert not task.done()
                task.cancel()
            may_commit.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await session.get_items() == ITEMS

        with ThreadPoolExecutor(1) as pool:
            written = pool.submit(book.store.write, ("user", "u-1"), write_slowly)
            assert is_writing.wait(30)
            asyncio.run(scenario())
            written.result()


def test_few_items_are_read_in_the_event_loop_while_another_thread_writes(tmp_path, monkeypatch):
    with commonplace.open(tmp_path / "book.db", background=False) as book:
        space = book.space("user", "u-1")
        session = CommonplaceSession(space, "chat-1")
        asyncio.run(session.add_items(ITEMS * 10))
        reading: list[bool] = []
        items = space.threads.items

        def recorded_items(*args: Any, **kwargs: Any) -> Any:
            reading.append(threading.current_thread() is threading.main_thread())
            return items(*args, **kwargs)

        monkeypatch.setattr(space.threads, "items", recorded_items)
        is_writing, may_commit = threading.Event(), threading.Event()

        def write_slowly(transaction: Transaction) -> None:
            transaction.put(Draft("file", "k", "text"))
            is_writing.set()
            assert may_commit.wait(30)

        with ThreadPoolExecutor(1) as pool:
            written = pool.submit(book.store.write, ("user", "u-1"), write_slowly)
            assert is_writing.wait(30)
            assert asyncio.run(session.get_items(limit=len(ITEMS))) == ITEMS
            assert asyncio.run(session.get_items(limit=READ_AT_ONCE + 1)) == (ITEMS * 10)[-READ_AT_ONCE - 1 :]
            may_commit.set()
            assert written.result()[1] is not None
        assert reading == [True, False]


def test_items_of_a_book_in_memory_are_read_in_a_thread_for_a_writer_may_hold_it():
    with commonplace.open(":memory:", background=False) as book:
        space = book.space("user", "u-1")
        assert not space.threads.reads_at_once
        assert asyncio.run(CommonplaceSession(space, "chat-1").get_items(limit=1)) == []


# With the SDK


class ScriptedModel(Model):
    """Answers with what a script makes of the input, and keeps what it was shown."""

    def __init__(self, *script: Callable[[list[Any]], Any]) -> None:
        self.script = list(script)
        self.shown: list[list[Any]] = []

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> ModelResponse:
        items = [{"role": "user", "content": input}] if isinstance(input, str) else list(input)
        self.shown.append(items)
        return ModelResponse(output=[self.script.pop(0)(items)], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


def says(text: str) -> ResponseOutputMessage:
    part = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(id="__fake_id__", type="message", role="assistant", status="completed", content=[part])


@pytest.mark.promise("openai-agents-remembers")
def test_an_agent_remembers_the_first_turn_in_the_second_even_in_a_new_process(open_book):
    @function_tool
    def runbook(of: str) -> str:
        return f"{of} go out on Tuesdays"

    def call(items: list[Any]) -> ResponseFunctionToolCall:
        return ResponseFunctionToolCall(
            type="function_call", call_id="c1", name="runbook", arguments='{"of":"deploys"}'
        )

    def answer_from_memory(items: list[Any]) -> ResponseOutputMessage:
        outputs = [item["output"] for item in items if item.get("type") == "function_call_output"]
        return says(f"As I said: {outputs[0]}.")

    model = ScriptedModel(call, lambda items: says("On Tuesdays."), answer_from_memory)
    agent = Agent(name="A", model=model, tools=[runbook])
    quiet = RunConfig(tracing_disabled=True)

    def turn(text: str) -> str:
        book = open_book()
        session = CommonplaceSession(book.space("user", "u1"), "chat")
        result = asyncio.run(Runner.run(agent, text, session=session, run_config=quiet))
        book.close()
        return str(result.final_output)

    assert turn("When do we deploy?") == "On Tuesdays."
    assert turn("What was that?") == "As I said: deploys go out on Tuesdays."
    first, *between, last = model.shown[-1]
    assert (first["content"], last["content"]) == ("When do we deploy?", "What was that?")
    assert [item.get("type") for item in between] == ["function_call", "function_call_output", "message"]


@pytest.mark.promise("openai-agents-no-run-ends")
@pytest.mark.parametrize("character", ["\x00", "\ud800"], ids=["NUL", "surrogate"])
def test_a_character_that_no_book_can_hold_does_not_end_the_run(session, space, character):
    """A model that wrote a NUL, or a tool that answered with one, ended the run when its items were saved."""
    words = f"deploys{character}go out"

    @function_tool
    def runbook(of: str) -> str:
        return words

    def call(items: list[Any]) -> ResponseFunctionToolCall:
        return ResponseFunctionToolCall(type="function_call", call_id="c1", name="runbook", arguments='{"of":"x"}')

    agent = Agent(name="A", model=ScriptedModel(call, lambda items: says(words)), tools=[runbook])
    quiet = RunConfig(tracing_disabled=True)
    assert asyncio.run(Runner.run(agent, words, session=session, run_config=quiet)).final_output == words
    first, _, output, last = asyncio.run(session.get_items())
    kept = "deploys\N{REPLACEMENT CHARACTER}go out"
    assert (first["content"], output["output"], last["content"][0]["text"]) == (kept, kept, kept)
    asyncio.run(session.add_items([{"role": "user", "content": "x", f"a{character}": [words]}]))
    assert asyncio.run(session.get_items(limit=1)) == [
        {"role": "user", "content": "x", "a\N{REPLACEMENT CHARACTER}": [kept]}
    ]
    with pytest.raises(InvalidInput, match="JSON cannot hold"):  # a caller's own mistake
        asyncio.run(session.add_items([{"role": "user", "content": float("nan")}]))


def test_a_session_of_an_agents_memory_titles_its_thread_as_the_memory_does(tmp_path, embedder):
    """The thread of such a session had no title, though one that `save_messages` filled has."""
    books = BookOptions(embedder=embedder, background=False)
    with AgentMemories(tmp_path, options=books) as memories:
        memory = memories.get_agent_memory(memories.create_agent("Helper"))
        session = CommonplaceSession(memory, "chat-1", resource="ann")
        asyncio.run(session.add_items(ITEMS))
        assert asyncio.run(session.get_items()) == ITEMS
        assert memory.get_thread("chat-1", resource="ann").title == "Which day do we deploy?"


def test_a_closed_session_is_refused_and_the_book_stays_open(session, space):
    """A closed session went on working; the SDK's own sessions refuse it, also to add nothing."""
    asyncio.run(session.add_items(ITEMS))
    session.close()
    for call in (session.get_items, session.pop_item, session.clear_session, lambda: session.add_items([])):
        with pytest.raises(RuntimeError, match="CommonplaceSession is closed"):
            asyncio.run(call())
    assert asyncio.run(CommonplaceSession(space, "chat-1").get_items()) == ITEMS


def test_without_the_sdk_the_error_names_the_extra():
    code = (
        "import sys; sys.modules['agents'] = None\n"
        "import commonplace\n"
        "try:\n    import commonplace.adapters.openai_agents\n"
        "except commonplace.ConfigurationError as error:\n    print(error)"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert "pip install 'commonplace-memory[openai-agents]'" in said
