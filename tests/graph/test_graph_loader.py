"""Graphs from JSON: the seed's example wired and run, and every mistake named by its node or edge."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from commonplace import ConfigurationError, InvalidInput
from commonplace.graph import load_graph

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "graph.py"

SEED = """
{
  "nodes": [
    { "id": "M", "data": { "template": "memory", "config": { "scope": "global" } } },
    { "id": "A", "data": { "template": "agent", "config": {} } },
    { "id": "T1", "data": { "template": "memoryTool", "config": { "name": "memory_readonly", "description": "Read-only memory tool", "title": "Mem Read" } } },
    { "id": "T2", "data": { "template": "memoryTool", "config": { "name": "memory_write", "description": "Write memory tool", "title": "Mem Write" } } }
  ],
  "edges": [
    { "source": "A", "sourceHandle": "tools", "target": "T1", "targetHandle": "$self" },
    { "source": "A", "sourceHandle": "tools", "target": "T2", "targetHandle": "$self" },
    { "source": "M", "sourceHandle": "$self", "target": "T1", "targetHandle": "$memory" },
    { "source": "M", "sourceHandle": "$self", "target": "T2", "targetHandle": "$memory" }
  ]
}
"""  # noqa: E501


def say(text):
    return {"role": "assistant", "content": text}


def ask(name, arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]}


class Scripted:
    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []
        self.offered = []

    def __call__(self, messages, tools):
        self.asked.append(list(messages))
        self.offered.append(tools)
        return self.answers.pop(0)


def node(id, template, **config):
    return {"id": id, "data": {"template": template, "config": config}}


def edge(text):
    source, source_handle, target, target_handle = text.split()
    return {"source": source, "sourceHandle": source_handle, "target": target, "targetHandle": target_handle}


def graph(*nodes, edges=()):
    return {"nodes": list(nodes), "edges": [edge(text) for text in edges]}


# The seed's example


@pytest.mark.promise("graph-seed-example", "graph-two-tools", "unified-two-tools")
def test_the_seeds_graph_gives_an_agent_with_two_tools_on_one_memory(book):
    model = Scripted(
        ask("memory_write", {"path": "/notes/today", "command": "append", "content": "hello"}),
        ask("memory_readonly", {"path": "/notes/today", "command": "read"}),
        say("It says hello."),
    )

    wired = load_graph(SEED, book, namespace=("user", "u1"), model=model)
    run = wired.agents["A"].run("What is in my notes?")

    assert [tool["function"]["name"] for tool in model.offered[0]] == ["memory_readonly", "memory_write"]
    assert [tool["function"]["description"] for tool in model.offered[0]] == [
        "Read-only memory tool",
        "Write memory tool",
    ]
    assert [wired.tools[id].title for id in ("T1", "T2")] == ["Mem Read", "Mem Write"]
    assert run.output == "It says hello."
    assert run.messages[-2]["content"] == (
        '{"command":"read","path":"/notes/today","ok":true,"result":{"content":"hello"}}'
    )
    assert book.space("user", "u1", "memory", "M").files.read("/notes/today") == "hello"
    assert all(message["role"] != "system" for asked in model.asked for message in asked)


@pytest.mark.promise("graph-seed-example")
def test_the_documented_example_runs(tmp_path):
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "memory_write" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.promise("graph-seed-example")
def test_the_example_is_the_seeds_graph_with_a_connector_added():
    import runpy

    example = runpy.run_path(str(EXAMPLE))["GRAPH"]
    seed = json.loads(SEED)
    assert example["nodes"] == seed["nodes"]
    assert example["edges"] == [*seed["edges"], edge("M $self A setMemoryConnector")]


# Wiring


@pytest.mark.promise("graph-connector-edge", "graph-connector-defaults")
def test_a_memorys_self_goes_to_the_agents_connector_with_the_nodes_config(book):
    model = Scripted(say("a"), say("b"))
    wired = load_graph(
        graph(
            node("M", "memory"),
            node("N", "memory", placement="last_message", content="full", maxChars=50),
            node("A", "agent", systemPrompt="S"),
            node("B", "agent", systemPrompt="S"),
            edges=["M $self A setMemoryConnector", "N $self B setMemoryConnector"],
        ),
        book,
        model=model,
    )
    for id in "MN":
        wired.memories[id].tree().write("/a", "x")
    wired.agents["A"].run("q")
    wired.agents["B"].run("q")
    system, user = {"role": "system", "content": "S"}, {"role": "user", "content": "q"}
    assert model.asked == [
        [system, {"role": "system", "content": "Memory\n/\n[F] a"}, user],
        [system, user, {"role": "system", "content": 'Memory\n/a: "x"'}],
    ]


@pytest.mark.promise("graph-call-model")
def test_a_call_model_node_takes_the_connector_and_the_tools_for_its_agent(book):
    model = Scripted(ask("memory", {"path": "/a", "command": "append", "content": "x"}), say("done"), say("alone"))
    wired = load_graph(
        graph(
            node("M", "memory"),
            node("A", "agent", maxTurns=3),
            node("C", "callModel", model="main", systemPrompt="S"),
            node("T", "memoryTool", commands=["append"]),
            edges=["M $self C setMemoryConnector", "M $self T $memory", "C tools T $self", "A callModel C $self"],
        ),
        book,
        models={"main": model},
    )
    assert wired.agents["A"].run("q").output == "done"
    assert [message["content"] for message in model.asked[1][:2]] == ["S", "Memory\n/\n[F] a"]
    assert wired.call_models["C"]([{"role": "user", "content": "q"}]) == say("alone")
    assert wired.tools["T"].answer({"path": "/a", "command": "read"}).error["code"] == "EINVAL"


@pytest.mark.promise("graph-thread-isolation", "graph-scope")
def test_two_memories_of_one_graph_and_two_threads_of_one_memory_are_apart(book):
    wired = load_graph(graph(node("M", "memory", scope="thread"), node("N", "memory")), book, namespace=("user", "u1"))
    wired.memories["M"].tree("t1").write("/a", "x")
    wired.memories["N"].tree().write("/a", "y")
    assert wired.memories["M"].get_all(thread_id="t2") == {}
    assert wired.memories["M"].get_all(thread_id="t1") == {"/a": "x"}
    assert load_graph(graph(node("M", "memory")), book, namespace=("user", "u2")).memories["M"].get_all() == {}


@pytest.mark.promise("graph-bound-namespace")
def test_a_node_binds_a_namespace_below_the_graphs_own_unless_more_is_allowed(book):
    book.space("user", "u1").files.write("/a", "mine")
    book.space("user", "u2").files.write("/a", "theirs")

    def texts(bound, **options):
        loaded = load_graph(graph(node("M", "memory", namespace=bound)), book, namespace=("user", "u1"), **options)
        return loaded.memories["M"].get_all()

    assert texts("user/u1") == texts(["user", "u1"]) == {"/a": "mine"}
    assert texts("user/u1/shared") == {}
    assert texts("user/u2", bind_within=()) == texts("user/u2", bind_within=("user",)) == {"/a": "theirs"}
    for outside in ("user/u2", "user", "user/u11"):
        with pytest.raises(InvalidInput, match=rf"^node M: namespace {outside} is outside of user/u1; "):
            texts(outside)
    for broken in ("", "user//u1", ["user", ""], ["user", 5], [], "user/u1/" + "x" * 201):
        with pytest.raises(InvalidInput, match=r"^node M: .*namespace"):
            texts(broken)


@pytest.mark.promise("unified-not-connected")
def test_a_tool_without_a_memory_edge_loads_and_says_so_when_called(book):
    wired = load_graph(graph(node("T", "memoryTool")), book)
    assert wired.tools["T"].call({"path": "/a", "command": "read"}) == (
        '{"command":"read","path":"/a","ok":false,"error":{"message":"Memory not connected","code":"ENOTMEM"}}'
    )


def test_what_an_editor_adds_beside_the_contract_is_left_alone(book):
    drawn = json.loads(SEED)
    for number, part in enumerate(drawn["nodes"] + drawn["edges"]):
        part |= {"position": {"x": number, "y": 0}, "selected": False, "type": "custom"}
    drawn["viewport"] = {"zoom": 1}
    assert list(load_graph(drawn, book).agents) == ["A"]
    assert load_graph({}, book).agents == {}


def test_an_agent_without_a_model_loads_and_says_so_when_run(book):
    with pytest.raises(ConfigurationError, match="no chat model is set"):
        load_graph(SEED, book).agents["A"].run("q")


# Mistakes


@pytest.mark.promise("graph-errors-named")
@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([{"data": {}}], "node number 1 has no id"),
        ([node("M", "memory"), "x"], "node number 2 has no id"),
        ([node(7, "memory")], "node number 1 has no id"),
        ([node("M", "memory"), node("M", "agent")], "node M: this id is taken"),
        (
            [node("M", "memories")],
            "node M: unknown template 'memories'; use one of memory, memoryTool, agent, callModel",
        ),
        ([{"id": "M"}], "node M: unknown template None"),
        ([{"id": "M", "data": {"template": ["memory"]}}], "node M: unknown template"),
        ([{"id": "M", "data": {"template": "memory", "config": []}}], "node M: config must be an object"),
        ([node("M", "memory", scpoe="global")], "node M: config has no 'scpoe'; it has: scope, namespace"),
        ([node("M", "memory", scope="mine")], "node M: unknown scope 'mine'"),
        ([node("M", "memory", scope=None)], "node M: config.scope has the wrong type"),
        ([node("M", "memory", placement="top")], "node M: unknown placement 'top'"),
        ([node("M", "memory", content="list")], "node M: unknown content 'list'"),
        ([node("M", "memory", maxChars=20_001)], "node M: maxChars must be a whole number from 1 to 20000"),
        ([node("M", "memory", maxChars=True)], "node M: config.maxChars has the wrong type"),
        ([node("a/b", "memory")], "node a/b: a namespace label must not contain"),
        ([node(" ", "memory")], "node  : a namespace label must not be empty"),
        ([node("T", "memoryTool", name="Memory Tool")], "node T: a tool's name must be 1 to 64"),
        ([node("T", "memoryTool", commands=["read", "move"])], "node T: unknown command 'move'"),
        ([node("T", "memoryTool", commands=[])], "node T: commands must be a list of one or more"),
        ([node("T", "memoryTool", title=5)], "node T: config.title has the wrong type"),
        ([node("A", "agent", model="gpt")], "node A: config.model 'gpt' is not one of the given models: none"),
        ([node("A", "agent", maxTurns=0)], "node A: maxTurns must be"),
    ],
)
def test_a_wrong_node_is_named(book, nodes, message):
    with pytest.raises(InvalidInput) as caught:
        load_graph({"nodes": nodes}, book)
    assert str(caught.value).startswith(message)
    assert book.namespaces() == []


PARTS = (node("M", "memory"), node("N", "memory"), node("A", "agent"), node("T", "memoryTool"), node("C", "callModel"))


@pytest.mark.promise("graph-errors-named")
@pytest.mark.parametrize(
    ("edges", "message"),
    [
        (["A tools X $self"], "edge A tools → X $self: there is no node X"),
        (["X tools T $self"], "edge X tools → T $self: there is no node X"),
        (["A tool T $self"], "edge A tool → T $self: agent A has no source handle 'tool'; it has: callModel, tools"),
        (["A tools T self"], "edge A tools → T self: memoryTool T has no target handle 'self'; it has: $memory, $self"),
        (["T $self A tools"], "edge T $self → A tools: memoryTool T has no source handle '$self'; it has: none"),
        (
            ["M $self T $self"],
            "edge M $self → T $self: memory $self does not go to memoryTool $self; it goes to memoryTool $memory, "
            "agent setMemoryConnector, callModel setMemoryConnector",
        ),
        (["A tools T $self"] * 2, "edge A tools → T $self occurs twice"),
        (["M $self T $memory", "N $self T $memory"], "edge N $self → T $memory: T already has a memory"),
        (
            ["M $self A setMemoryConnector", "N $self A setMemoryConnector"],
            "edge N $self → A setMemoryConnector: A already has a memory connector",
        ),
        (
            ["M $self A setMemoryConnector", "N $self C setMemoryConnector", "A callModel C $self"],
            "edge N $self → C setMemoryConnector: C already has a memory connector",
        ),
    ],
)
def test_a_wrong_edge_is_named(book, edges, message):
    with pytest.raises(InvalidInput) as caught:
        load_graph(graph(*PARTS, edges=edges), book)
    assert str(caught.value).startswith(message)


@pytest.mark.promise("graph-errors-named")
def test_two_tools_of_one_name_or_two_call_models_on_one_agent_are_named(book):
    tools = (node("A", "agent"), node("T", "memoryTool"), node("U", "memoryTool"))
    with pytest.raises(InvalidInput, match=r"^edge A tools → U \$self: two tools are named 'memory'"):
        load_graph(graph(*tools, edges=["A tools T $self", "A tools U $self"]), book)
    models = (node("A", "agent"), node("C", "callModel"), node("D", "callModel"))
    with pytest.raises(InvalidInput, match=r"^edge A callModel → D \$self: A already has a callModel"):
        load_graph(graph(*models, edges=["A callModel C $self", "A callModel D $self"]), book)
    prompted = (node("A", "agent", systemPrompt="S"), node("C", "callModel"))
    with pytest.raises(InvalidInput, match=r"^edge A callModel → C \$self: model and systemPrompt belong in"):
        load_graph(graph(*prompted, edges=["A callModel C $self"]), book)


@pytest.mark.promise("graph-errors-named")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "the graph is not valid JSON"),
        ("[" * 100_000, "the graph is not valid JSON"),
        ("[]", "a graph is an object"),
        ('{"nodes": {}}', "a graph is an object"),
        ('{"edges": [5]}', "edge number 1 needs the strings source, sourceHandle, target, targetHandle"),
        ('{"edges": [{"source": "A", "target": "T"}]}', "edge number 1 needs the strings"),
    ],
)
def test_what_is_no_graph_is_refused(book, text, message):
    with pytest.raises(InvalidInput, match=message):
        load_graph(text, book)


def test_loading_changes_nothing_in_what_was_given(book):
    given = json.loads(SEED)
    before = copy.deepcopy(given)
    load_graph(given, book)
    assert given == before


def test_null_means_none_where_a_config_may_lack_it(book):
    """`"title": null` was refused for its type."""
    nodes = [
        {"id": "t", "data": {"template": "memoryTool", "config": {"title": None}}},
        {"id": "m", "data": {"template": "memory", "config": {"namespace": None}}},
        {"id": "a", "data": {"template": "agent", "config": {"model": None, "systemPrompt": None}}},
    ]
    graph = load_graph({"nodes": nodes, "edges": []}, book)
    assert graph.tools["t"].title is None
    assert graph.memories["m"].namespace == ("user", "default", "memory", "m")


def test_a_graph_of_thousands_of_edges_is_checked_in_no_time(book):
    """Each edge was compared with all before it."""
    nodes = [{"id": f"m{number}", "data": {"template": "memory"}} for number in range(100)]
    nodes += [{"id": f"t{number}", "data": {"template": "memoryTool"}} for number in range(200)]
    edges = [
        {"source": f"m{source}", "sourceHandle": "$self", "target": f"t{target}", "targetHandle": "$memory"}
        for source in range(100)
        for target in range(200)
    ]
    began = time.process_time()
    with pytest.raises(InvalidInput, match="occurs twice"):
        load_graph({"nodes": nodes, "edges": [*edges, edges[-1]]}, book)
    assert time.process_time() - began < 5
