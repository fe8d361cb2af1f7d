"""Agents: a real tool loop over a scripted model, with the memory in every call and never in the history."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from commonplace import ConfigurationError, InvalidInput
from commonplace.graph import Agent, CallModel, MemoryConnector, MemoryNode
from commonplace.tools import UnifiedMemoryTool


def say(text):
    return {"role": "assistant", "content": text}


def call(name, arguments, id="c1"):
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": id, "type": "function", "function": {"name": name, "arguments": text}}


def ask(*calls):
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


class Scripted:
    """A chat model that gives its answers in order and remembers what it was asked."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []
        self.offered = []

    def __call__(self, messages, tools):
        self.asked.append(list(messages))
        self.offered.append([tool["function"]["name"] for tool in tools])
        return self.answers.pop(0)


@pytest.fixture
def node(book):
    return MemoryNode(book, "M", ("user", "u1"))


def append(path, text):
    return {"path": path, "command": "append", "content": text}


USER = {"role": "user", "content": "Remember that I like tea."}


@pytest.mark.promise("graph-agent-loop", "graph-memory-not-in-history", "graph-call-model")
def test_an_agent_calls_its_tools_until_it_answers_and_sees_the_memory_change(node):
    calls = ask(
        call("memory", append("/likes", "tea"), "c1"), call("memory", {"path": "/likes", "command": "read"}, "c2")
    )
    model = Scripted(calls, say("Noted."))
    agent = Agent(model, system_prompt="Be kind.", tools=[UnifiedMemoryTool(node)])
    agent.set_memory_connector(MemoryConnector(node))

    run = agent.run("Remember that I like tea.")

    results = [
        {
            "role": "tool",
            "tool_call_id": id,
            "content": f'{{"command":"{command}","path":"/likes","ok":true,"result":{result}}}',
        }
        for id, command, result in (("c1", "append", '{"status":"ok"}'), ("c2", "read", '{"content":"tea"}'))
    ]
    assert (run.output, run.turns, run.is_complete) == ("Noted.", 2, True)
    assert run.messages == (USER, calls, *results, say("Noted."))
    system = {"role": "system", "content": "Be kind."}
    assert model.asked == [
        [system, {"role": "system", "content": "Memory\n/"}, USER],
        [system, {"role": "system", "content": "Memory\n/\n[F] likes"}, USER, calls, *results],
    ]
    assert model.offered == [["memory"], ["memory"]]
    assert node.get_all() == {"/likes": "tea"}


@pytest.mark.promise("graph-connector-placement")
def test_a_memory_placed_last_stands_last_in_every_call(node):
    model = Scripted(ask(call("memory", append("/a", "x"))), say("ok"))
    agent = Agent(model, tools=[UnifiedMemoryTool(node)])
    agent.set_memory_connector(MemoryConnector(node, placement="last_message"))
    agent.run("go")
    assert [asked[-1]["content"] for asked in model.asked] == ["Memory\n/", "Memory\n/\n[F] a"]
    assert [len(asked) for asked in model.asked] == [2, 4]


@pytest.mark.promise("graph-agent-bound")
def test_the_bound_of_turns_ends_a_run_with_every_call_answered(node):
    looping = [ask(call("memory", {"path": "/", "command": "list"}, f"c{n}")) for n in range(3)]
    model = Scripted(*looping)
    run = Agent(model, tools=[UnifiedMemoryTool(node)], max_turns=3).run("go")
    assert (run.turns, run.is_complete, run.output, len(model.asked)) == (3, False, "", 3)
    assert [message["role"] for message in run.messages] == ["user", *["assistant", "tool"] * 3]
    for wrong in (0, -1, True, 1.5, "3"):
        with pytest.raises(InvalidInput, match="maxTurns"):
            Agent(model, max_turns=wrong)


def test_a_conversation_goes_on_from_the_messages_of_the_last_run():
    model = Scripted(say("Hello Ana."), say("You are Ana."))
    agent = Agent(model)
    first = agent.run("I am Ana.")
    second = agent.run([*first.messages, {"role": "user", "content": "Who am I?"}])
    assert [message["content"] for message in second.messages] == [
        "I am Ana.",
        "Hello Ana.",
        "Who am I?",
        "You are Ana.",
    ]
    assert len(first.messages) == 2


@pytest.mark.promise("graph-agent-bad-calls")
def test_what_a_model_does_wrong_is_told_to_it_and_the_run_goes_on(node):
    model = Scripted(
        ask(call("notes", {}), call("memory", "{not json"), call("memory", '["list"]'), call("memory", "")),
        ask({"id": "c9", "function": {"name": "memory", "arguments": {"path": "", "command": "list"}}}),
        ask({"id": "c10", "function": {"name": ["memory"]}}, call("\ud800", {}), call("memory", [])),
        say("sorry"),
    )
    run = Agent(model, tools=[UnifiedMemoryTool(node)]).run("go")
    invalid = '{"command":"unknown","path":"/","ok":false,"error":{"message":"invalid arguments","code":"EINVAL"}}'
    assert [message["content"] for message in run.messages if message["role"] == "tool"] == [
        '{"error": "unknown tool: notes; the tools are: memory"}',
        invalid,
        invalid,
        invalid,
        '{"command":"list","path":"/","ok":true,"result":{"entries":[]}}',
        """{"error": "unknown tool: ['memory']; the tools are: memory"}""",
        '{"error": "unknown tool: \N{REPLACEMENT CHARACTER}; the tools are: memory"}',
        invalid,
    ]
    assert run.output == "sorry"


@pytest.mark.parametrize("answer", [None, "hello", {"role": "user", "content": "x"}, {"content": "x"}])
def test_a_model_that_gives_no_assistant_message_is_an_error(answer):
    with pytest.raises(InvalidInput, match="must answer with one assistant message"):
        Agent(Scripted(answer)).run("go")


@pytest.mark.parametrize("calls", [[{}], ["x"], [{"id": "c1", "function": None}], 7])
def test_tool_calls_of_another_shape_are_an_error(calls):
    with pytest.raises(InvalidInput, match="not in OpenAI's format"):
        Agent(Scripted({"role": "assistant", "tool_calls": calls})).run("go")


def test_an_answer_in_parts_is_joined():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert Agent(Scripted({"role": "assistant", "content": parts})).run("go").output == "ab"


def test_an_agent_without_a_model_says_so():
    with pytest.raises(ConfigurationError, match="no chat model is set"):
        Agent().run("go")


@pytest.mark.promise("graph-two-tools")
def test_two_tools_need_distinct_names(node):
    agent = Agent(tools=[UnifiedMemoryTool(node)])
    agent.add_tool(UnifiedMemoryTool(node, name="memory_write"))
    with pytest.raises(InvalidInput, match="two tools are named 'memory'"):
        agent.add_tool(UnifiedMemoryTool(node))
    assert list(agent.call_model.tools) == ["memory", "memory_write"]


# Threads


@pytest.mark.promise("graph-thread-id", "graph-thread-isolation")
def test_the_thread_id_comes_with_the_run_in_either_form(book):
    node = MemoryNode(book, "M", ("user", "u1"), scope="perThread")

    def run(text, **options):
        model = Scripted(ask(call("memory", append("/said", text))), say("ok"))
        agent = Agent(model, tools=[UnifiedMemoryTool(node)])
        agent.set_memory_connector(MemoryConnector(node, content="full"))
        agent.run("go", **options)
        return [message["content"] for message in model.asked[1] if message["role"] == "system"]

    assert run("one", thread_id="t1") == ['Memory\n/said: "one"']
    assert run("two", config={"configurable": {"thread_id": "t2"}}) == ['Memory\n/said: "two"']
    assert run("2", thread_id="t2", config={"configurable": {"thread_id": "t2"}}) == ['Memory\n/said: "two\\n2"']
    assert (node.get_all(thread_id="t1"), node.get_all(thread_id="t2")) == ({"/said": "one"}, {"/said": "two\n2"})
    with pytest.raises(InvalidInput, match="two thread ids"):
        run("x", thread_id="t1", config={"configurable": {"thread_id": "t2"}})


@pytest.mark.promise("graph-thread-required")
def test_a_run_without_a_thread_id_cannot_use_a_per_thread_memory(book):
    node = MemoryNode(book, "M", ("user", "u1"), scope="perThread")
    arguments = {**append("/a", "x"), "threadId": "t1"}
    model = Scripted(ask(call("memory", append("/a", "x")), call("memory", arguments)), say("ok"))
    run = Agent(model, tools=[UnifiedMemoryTool(node)]).run("go", config={"configurable": None})
    codes = [json.loads(message["content"])["error"]["code"] for message in run.messages if message["role"] == "tool"]
    assert codes == ["ENOTMEM", "EINVAL"]
    assert book.namespaces() == []


@pytest.mark.promise("graph-thread-isolation")
def test_runs_of_many_threads_at_once_stay_apart(book):
    node = MemoryNode(book, "M", ("user", "u1"), scope="perThread")

    def model(messages, tools):
        text = messages[0]["content"]
        said = sum(message["role"] == "assistant" for message in messages)
        return ask(call("memory", append("/log", f"{text} {said}"), f"c{said}")) if said < 5 else say("done")

    agent = Agent(model, tools=[UnifiedMemoryTool(node)])
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: agent.run(f"run {n}", thread_id=f"t{n}"), range(16)))
    for n in range(16):
        assert node.get_all(thread_id=f"t{n}") == {"/log": "\n".join(f"run {n} {said}" for said in range(5))}


@pytest.mark.promise("graph-call-model")
def test_a_call_model_stands_alone_and_its_connector_can_be_taken_off(node):
    model = Scripted(say("a"), say("b"))
    call_model = CallModel(model, system_prompt="S")
    call_model.set_memory_connector(MemoryConnector(node))
    assert call_model([USER]) == say("a")
    call_model.set_memory_connector(None)
    assert call_model([USER]) == say("b")
    assert [len(asked) for asked in model.asked] == [3, 2]
