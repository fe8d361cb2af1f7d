"""What a server offers beside its life cycle: profiles, resources, completion, prompts."""

from __future__ import annotations

import json
import re
from typing import get_args

import pytest

import commonplace
from commonplace.cli import service_commands as command
from commonplace.errors import InvalidInput, NotFound
from commonplace.server.mcp import profiles, prompts, resources
from commonplace.server.mcp.lazy_memory import Memory
from commonplace.space.records import TAG_RULE
from commonplace.tools.claude import WordingName

from .conftest import NOTE

TOOLS = {
    "records": ["memory_create", "memory_search", "memory_list", "memory_get", "memory_delete"],
    "files": ["memory"],
    "claude": ["memory"],
    "facts": ["manage_memory", "search_memory"],
    "conversations": [
        "thread_list",
        "thread_read",
        "conversation_search",
        "message_add",
        "working_memory_read",
        "updateWorkingMemory",
    ],
}
TOOLS["all"] = [*TOOLS["records"], "memory", "claude_memory", *TOOLS["facts"], *TOOLS["conversations"]]


@pytest.fixture
def memory(space):
    return Memory(lambda: space)


# Profiles


@pytest.mark.promise("mcp-profiles")
@pytest.mark.parametrize("profile", profiles.PROFILES)
def test_a_profile_shows_its_tools_with_titles_schemas_and_hints(memory, profile):
    specs = profiles.Toolbox(memory, profile).specs
    assert [spec["name"] for spec in specs] == TOOLS[profile]
    for spec in specs:
        assert spec["title"]
        assert len(spec["description"]) > 40
        assert spec["inputSchema"]["type"] == "object"
        assert spec.get("outputSchema", {"type": "object"})["type"] == "object"
        assert {"readOnlyHint", "openWorldHint"} <= spec["annotations"].keys()
    assert prompts.instructions(profile)


@pytest.mark.promise("mcp-tools-list-is-small")
def test_the_default_profile_has_few_tools_in_few_bytes(opened):
    opened.send({"jsonrpc": "2.0", "id": 5, "method": "tools/list"})
    answer = opened.next()
    written = json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()
    assert len(answer["result"]["tools"]) <= 8
    assert len(written) <= 8_000


def test_the_command_line_offers_the_servers_profiles():
    assert command.PROFILES == profiles.PROFILES
    assert get_args(WordingName) == command.WORDINGS


@pytest.mark.promise("mcp-profiles")
def test_the_tools_of_every_face_share_one_memory(start):
    server = start("--profile", "all", "--namespace", "user/u-123")
    server.initialize()
    appended = server.call("memory", command="append", path="/notes", content="Ana likes ferns")
    assert appended["structuredContent"]["ok"]
    viewed = server.call("claude_memory", command="view", path="/memories/notes")["content"][0]["text"]
    assert "Ana likes ferns" in viewed
    created = server.call("manage_memory", content="Ana waters ferns on Mondays")["content"][0]["text"]
    assert created.startswith("created memory ")
    facts = server.call("search_memory", query="ferns")["structuredContent"]["items"]
    assert [fact["value"] for fact in facts] == [{"content": "Ana waters ferns on Mondays"}]
    found = server.call("memory_search", query="ferns")["structuredContent"]["items"]
    assert {item["type"] for item in found} == {"file", "fact"}


def test_what_a_tool_refuses_is_a_tool_error_in_every_profile(memory):
    box = profiles.Toolbox(memory, "all")
    for name in TOOLS["all"]:
        answer = box.call(name, {"no_such_argument": 1, "id": "x", "query": 5})
        assert answer.is_error, name
        assert answer.text
        assert answer.structured == {}


@pytest.mark.promise("record-tools-search-notices")
@pytest.mark.parametrize("tool", ["memory_search", "search_memory", "conversation_search"])
def test_every_search_says_in_its_text_what_it_could_not_look_at(memory, space, embedder, tool):
    """A notice stood in structuredContent only, and search_memory had none."""
    space.files.write("/a", "tea")
    space.search("tea")
    embedder.error = commonplace.Unavailable("the model is away")
    answer = profiles.Toolbox(memory, "all").call(tool, {"query": "coffee"})
    assert answer.structured == {"items": [], "notices": ["keywords only: the model is away"]}
    assert answer.texts == (answer.text, "Note: keywords only: the model is away.")
    wrapped = Memory(lambda: space, wraps_results=True)
    assert "Note: keywords only" in profiles.Toolbox(wrapped, "all").call(tool, {"query": "coffee"}).text


def test_a_client_with_all_tools_is_told_which_search_to_use(memory):
    """Profile all had memory_search and search_memory without a word on which is for what."""
    [spec] = [spec for spec in profiles.Toolbox(memory, "all").specs if spec["name"] == "search_memory"]
    assert "memory_search looks everywhere" in spec["description"]
    assert "Search with memory_search" in prompts.instructions("all")
    [alone] = [spec for spec in profiles.Toolbox(memory, "facts").specs if spec["name"] == "search_memory"]
    assert "memory_search" not in alone["description"]


@pytest.mark.promise("mcp-search-cost")
def test_ten_hits_name_each_memory_no_more_often_than_the_contract_asks(opened):
    """Ten hits cost a model 2,194 tokens where their text has 640: each id stood there five times."""
    ids = [opened.call("memory_create", **{**NOTE, "content": f"deploy {n}"}) for n in range(10)]
    answer = opened.call("memory_search", query="deploy")
    text, *links, _ = answer["content"]  # the last says that there is no model here
    shown = json.dumps([links, answer["structuredContent"]])
    for saved in ids:
        id = saved["structuredContent"]["items"][0]["id"]
        assert (text["text"].count(id), shown.count(id)) == (1, 4)
    assert {tuple(sorted(link)) for link in links} == {("mimeType", "name", "type", "uri")}


@pytest.mark.promise("mcp-profiles")
def test_the_files_profile_has_the_description_of_the_contract(memory):
    """The tool had a description of its own there, and the contract's everywhere else."""
    [spec] = profiles.Toolbox(memory, "files").specs
    assert spec["description"] == "Unified Memory tool: read, list, append, update, delete"


@pytest.mark.promise("mcp-prompts")
@pytest.mark.parametrize("profile", profiles.PROFILES)
def test_profiles_have_a_prompt_that_tells_how_to_use_the_memory(memory, profile):
    """A server with enable_memory has this prompt, and `commonplace mcp` had not."""
    offered = prompts.prompts_for(profiles.Toolbox(memory, profile), profile)
    assert ("memory_protocol" in [prompt["name"] for prompt in offered]) == (profile != "records")
    if profile != "records":
        _, text = prompts.render(memory, "memory_protocol", {}, offered, profile)
        assert text == prompts.instructions(profile)


@pytest.mark.promise("mcp-profiles")
def test_the_command_takes_a_wording_and_files_for_each_thread(start):
    """Both were there for a server of your own, and not for `commonplace mcp`."""
    server = start("--profile", "all", "--wording", "anthropic", "--per-thread")
    server.initialize()

    def call(name, thread, **arguments):
        meta = {} if thread is None else {"_meta": {"threadId": thread}}
        return server.ask("tools/call", {"name": name, "arguments": arguments, **meta})["result"]

    assert not call("memory", "t-1", command="append", path="/plan", content="Call Ana.")["isError"]
    viewed = call("claude_memory", "t-1", command="view", path="/memories")["content"][0]["text"]
    assert viewed.startswith(
        "Here're the files and directories up to 2 levels deep in /memories, excluding hidden items"
    )
    assert "/memories/plan" in viewed
    assert "ENOENT" in call("memory", "t-2", command="read", path="/plan")["content"][0]["text"]
    assert "/memories/plan" not in call("claude_memory", "t-2", command="view", path="/memories")["content"][0]["text"]
    for name, thread in (("memory", None), ("claude_memory", None), ("memory", "a/b")):
        refused = call(name, thread, command="view" if name == "claude_memory" else "list", path="/memories")
        assert refused["isError"]
    assert (
        "threadId is required for perThread scope"
        in call("memory", None, command="list", path="")["content"][0]["text"]
    )


@pytest.mark.promise("mcp-namespace")
def test_a_server_serves_one_namespace_and_no_other(start):
    first, second = start("--namespace", "user/one"), start("--namespace", "user/two")
    for server in (first, second):
        server.initialize()
    id = first.call("memory_create", **NOTE)["structuredContent"]["items"][0]["id"]
    assert second.call("memory_list")["structuredContent"]["items"] == []
    assert second.call("memory_get", id=id)["isError"]
    assert second.ask("resources/read", {"uri": f"mem://item/{id}"})["error"]["code"] == -32000
    assert second.ask("resources/read", {"uri": "mem://recent"})["result"]["contents"][0]["text"] == "[]"
    ref = {"type": "ref/resource", "uri": "mem://by-type/{type}{?limit}"}
    completed = second.ask("completion/complete", {"ref": ref, "argument": {"name": "type", "value": ""}})
    assert completed["result"]["completion"]["values"] == []


# Resources


def read(memory, uri):
    contents = resources.read(memory, uri)
    return json.loads(contents.text) if contents.mime_type == resources.JSON_TYPE else contents.text


@pytest.mark.promise("mcp-resources")
def test_every_resource_reads_what_it_names(memory, space, clock):
    saved = []
    for number, tags in enumerate((["project:a"], ["project:a", "topic:x"], ["topic:x"])):
        clock.advance()
        kind = "note" if number < 2 else "decision"
        saved.append(space.records.create(**{**NOTE, "type": kind, "content": {"n": number}, "tags": tags}).id)
    space.files.write("/notes/grüße heute", "hello")

    def ids(uri):
        return [record["id"] for record in read(memory, uri)]

    assert ids("mem://recent") == saved[::-1]
    assert ids("mem://recent?limit=2") == saved[:0:-1]
    assert ids("mem://recent?limit=0") == saved[2:]
    assert ids("mem://recent?limit=1000") == saved[::-1]
    assert ids("mem://by-tags/project:a,topic:x") == [saved[1]]
    assert ids("mem://by-tags/project%3Aa%2Ctopic%3Ax?match=any&limit=5") == saved[::-1]
    assert ids("mem://by-type/note?limit=100") == saved[1::-1]
    record = read(memory, f"mem://item/{saved[0]}")
    assert (record["content"], record["tags"], record["confidence"]) == ({"n": 0}, ["project:a"], 0.9)
    assert read(memory, "mem://file/notes/gr%C3%BC%C3%9Fe%20heute") == "hello"


@pytest.mark.promise("mcp-resources")
def test_a_message_is_read_with_all_that_it_came_with(memory, space):
    thread = space.threads.create()
    [said] = space.threads.add(thread.id, [{"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]}])
    full = read(memory, f"mem://message/{said.id}")
    assert (full["role"], full["content"], full["tool_calls"]) == ("assistant", None, [{"id": "c"}])


@pytest.mark.promise("mcp-resources")
@pytest.mark.parametrize(
    "uri",
    [
        "mem://item/no-such-id",
        "mem://item/",
        "mem://item",
        "mem://nothing/x",
        "mem://",
        "http://recent",
        "recent",
        "",
        "mem://recent/more",
        "mem://recent?limit=many",
        "mem://recent?limit=1&limit=2",
        "mem://recent?unknown=1",
        "mem://by-tags/A%20B",
        "mem://by-tags/x?match=none",
        "mem://file/no/such/file",
        "mem://file/../../etc/passwd",
        "mem://file/%2e%2e/x",
        "mem://file/%00",
        "mem://file/%ff",
        "mem://item/%ff",
        "mem://message/none",
    ],
)
def test_what_is_not_there_is_an_error_and_never_empty(memory, uri):
    with pytest.raises((NotFound, InvalidInput)) as refused:
        resources.read(memory, uri)
    assert str(refused.value).encode()


# Completion


@pytest.mark.promise("mcp-completion")
def test_tags_types_and_paths_are_completed_from_what_is_there(memory, space):
    for number, tags in enumerate((["project:a", "topic:x"], ["project:a"], ["project:b"])):
        space.records.create(**{**NOTE, "type": f"type{number}", "content": number, "tags": tags})
    space.files.write("/notes/today", "x")
    space.files.write("/novel", "x")
    assert resources.complete(memory, "tags", "pro") == ["project:a", "project:b"]
    assert resources.complete(memory, "tags", "project:a,") == ["project:a,project:b", "project:a,topic:x"]
    assert resources.complete(memory, "type", "type") == ["type0", "type1", "type2"]
    assert resources.complete(memory, "path", "no") == ["notes/", "novel"]
    assert resources.complete(memory, "path", "notes/") == ["notes/today"]
    assert resources.complete(memory, "path", "no", is_prompt=True) == []
    assert resources.complete(memory, "query", "x") == []


def test_completion_answers_over_the_wire(opened):
    opened.call("memory_create", **{**NOTE, "tags": ["project:a"]})
    for ref in (
        {"type": "ref/prompt", "name": "memory_recall"},
        {"type": "ref/resource", "uri": "mem://by-tags/{+tags}"},
    ):
        answer = opened.ask("completion/complete", {"ref": ref, "argument": {"name": "tags", "value": "pr"}})
        assert answer["result"]["completion"] == {"values": ["project:a"], "total": 1, "hasMore": False}


# Prompts


@pytest.mark.promise("mcp-prompts")
def test_memory_recall_puts_the_hits_before_the_model(memory, space):
    saved = space.records.create(**{**NOTE, "tags": ["project:a"]})
    _, text = prompts.render(memory, "memory_recall", {"query": "deploys", "tags": "project:a", "limit": "3"})
    assert f"mem://item/{saved.id}" in text
    assert "Deploys go out on Tuesdays" in text
    _, nothing = prompts.render(memory, "memory_recall", {"query": "deploys", "tags": "project:b"})
    assert "holds nothing on: deploys" in nothing


@pytest.mark.promise("mcp-prompts")
def test_the_digest_is_bounded_whatever_the_memory_holds(memory, space):
    for number in range(40):
        space.records.create(**{**NOTE, "content": {"n": number, "text": "deploys " * 1_000}})
    _, text = prompts.render(memory, "memory_recall", {"query": "deploys", "limit": "100"})
    assert len(text) < prompts.DIGEST_CHARACTERS + 500
    assert "more were found" in text


@pytest.mark.promise("mcp-prompts")
def test_memory_save_tells_what_to_save_and_how(memory):
    given = {"type": "decision", "source": "chat://x", "confidence": "0.9", "tags": "Project:A, topic:x"}
    _, text = prompts.render(memory, "memory_save", given)
    fields = {"type": "decision", "source": "chat://x", "confidence": 0.9, "tags": ["project:a", "topic:x"]}
    assert f"Arguments to use: {json.dumps(fields)}" in text
    assert "secret" in text


@pytest.mark.promise("mcp-prompts")
@pytest.mark.parametrize("profile", profiles.PROFILES)
def test_a_prompt_names_no_tool_that_its_profile_lacks(start, tmp_path, profile):
    with commonplace.open(tmp_path / "book.db", background=False) as book:
        for number in range(10):
            content = {"n": number, "text": "deploys " * 200}
            book.space("user", "default").records.create(**{**NOTE, "content": content})
    server = start("--profile", profile)
    server.initialize()

    def named(prompt, **arguments):
        answer = server.ask("prompts/get", {"name": prompt, "arguments": arguments})["result"]
        return {*re.findall(r"\w+_\w+", answer["messages"][0]["content"]["text"])} & {*TOOLS["all"]}

    is_records = "memory_create" in TOOLS[profile]
    listed = [prompt["name"] for prompt in server.ask("prompts/list")["result"]["prompts"]]
    protocol = [] if profile == "records" else ["memory_protocol", "memory_brief"]
    assert listed == ["memory_recall", *(["memory_save"] if is_records else []), *protocol]
    for query in ({"query": "deploys"}, {"query": "deploys", "tags": "none"}):
        assert named("memory_recall", **query) <= {*TOOLS[profile]}
    if is_records:
        assert named("memory_save", type="note", source="chat", confidence="0.9") == {"memory_create", "memory_search"}
    else:
        refused = server.ask("prompts/get", {"name": "memory_save", "arguments": {}})["error"]
        message = "Unknown prompt: memory_save; there are memory_recall, memory_protocol, memory_brief"
        assert refused == {"code": -32000, "message": message}


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("none", {}, "Unknown prompt: none; there are memory_recall, memory_save"),
        ("memory_recall", {}, "query is required and must be a non-empty string"),
        ("memory_recall", {"query": "x", "typ": "y"}, 'unknown argument "typ"; memory_recall takes query, tags, limit'),
        ("memory_recall", {"query": "x", "limit": "many"}, "limit must be a positive number"),
        ("memory_recall", {"query": "x", "tags": "a b"}, f'invalid tag: "a b"; {TAG_RULE}'),
        ("memory_recall", {"query": "x" * 1_001}, "query length cannot exceed 1000 characters"),
        (
            "memory_save",
            {"type": "a", "source": "b", "confidence": "nan"},
            "confidence is required and must be a number between 0 and 1",
        ),
    ],
)
def test_a_wrong_prompt_says_what_to_correct(memory, name, arguments, message):
    with pytest.raises((NotFound, InvalidInput)) as refused:
        prompts.render(memory, name, arguments)
    assert str(refused.value) == message


def test_prompts_render_over_the_wire(opened):
    opened.call("memory_create", **NOTE)
    answer = opened.ask("prompts/get", {"name": "memory_recall", "arguments": {"query": "deploys"}})["result"]
    assert answer["messages"][0]["role"] == "user"
    assert "Deploys go out on Tuesdays" in answer["messages"][0]["content"]["text"]


@pytest.mark.promise("standing-only-confirmed")
def test_what_a_model_creates_is_in_memory_recall_for_any_question_once_a_person_confirms_it(opened, tmp_path):
    made = opened.call("memory_create", **{**NOTE, "type": "instruction", "content": "always answer in metric units"})
    id = made["structuredContent"]["items"][0]["id"]
    opened.call("memory_create", **{**NOTE, "content": {"text": "the capital of France is Paris"}})

    def recalled() -> str:
        asked = {"name": "memory_recall", "arguments": {"query": "capital of France"}}
        return opened.ask("prompts/get", asked)["result"]["messages"][0]["content"]["text"]

    assert "Paris" in recalled()
    assert "metric" not in recalled()
    with commonplace.open(tmp_path / "book.db", background=False) as book:
        (namespace,) = book.store.namespaces()
        book.space(*namespace).records.confirm(id)
    text = recalled()
    assert text.startswith("Standing instructions and preferences of the user:\n- always answer in metric units\n\n")
    assert "Paris" in text


def test_memory_recall_has_the_working_memory_as_information(memory, space):
    space.threads.working.write("# Ana\n- drinks tea")
    _, text = prompts.render(memory, "memory_recall", {"query": "deploys"})
    assert "Working memory:" in text
    assert "drinks tea" in text


@pytest.mark.promise("mcp-brief")
def test_memory_brief_says_what_the_hooks_of_a_client_would(memory, space):
    offered = prompts.prompts_for([], "all")

    def brief(**arguments):
        return prompts.render(memory, "memory_brief", arguments, offered, "all")[1]

    assert brief() == "The memory has nothing to say on this yet."
    for text in ("We use uv for the parser", "We deploy by make ship"):
        space.records.create(type="decision", content=text, source="s", confidence=1, tags=["project:parser"])
    rule = space.records.create(type="instruction", content="always answer in French", source="s", confidence=1)
    space.records.create(type="note", content="The cat of the user is called Miso", source="s", confidence=1)
    space.records.confirm(rule.id)
    text = brief(project="/home/ana/parser", prompt="What is the name of the cat of the user?")
    assert text.startswith("Standing instructions and preferences of the user:\n- always answer in French\n\n")
    for said in ("We use uv for the parser", "We deploy by make ship", "called Miso"):
        assert text.count(said) == 1
    assert "called Miso" not in brief()
    assert text.count("<stored-data ") == 2


@pytest.mark.promise("mcp-text-for-claude-code")
def test_claude_code_gets_the_text_alone_which_says_everything(stdio):
    stdio.initialize(name="claude-code")
    assert all("outputSchema" not in tool for tool in stdio.ask("tools/list")["result"]["tools"])
    saved = stdio.call("memory_create", **NOTE)
    assert saved.keys() <= {"content", "isError", "resultType"}
    [text] = saved["content"]
    id = re.search(r"ID: (\S+)", text["text"])[1]
    for tool, arguments in (("memory_search", {"query": "deploys"}), ("memory_list", {}), ("memory_get", {"id": id})):
        answer = stdio.call(tool, **arguments)
        assert answer.get("structuredContent") is None
        assert {part["type"] for part in answer["content"]} == {"text"}
        said = answer["content"][0]["text"]
        assert id in said
        assert "Tuesdays" in said
