"""The unified `memory` tool: each answer of seed 000 and of the contract, compared as a whole string."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import jsonschema
import pytest

from commonplace import Corrupt, Forbidden, InvalidInput, Limits, Unavailable
from commonplace.server.mcp.resources import complete_path
from commonplace.tools import UnifiedMemoryTool, memory_protocol
from commonplace.tools.unified import COMMANDS, Envelope


@pytest.fixture
def tool(space):
    return UnifiedMemoryTool(space)


def request(command, path, **contents):
    return {"path": path, "command": command, **contents}


def ok(command, path, result):
    return json.dumps(
        {"command": command, "path": path, "ok": True, "result": result}, separators=(",", ":"), ensure_ascii=False
    )


def refused(command, path, message, code="EINVAL"):
    error = {"message": message, "code": code}
    return json.dumps(
        {"command": command, "path": path, "ok": False, "error": error}, separators=(",", ":"), ensure_ascii=False
    )


def tree(space):
    return {item.path: space.files.read(item.path) if item.kind == "file" else None for item in space.files.walk()}


# The seed's examples, in its order; stray spaces of its print left out


@pytest.mark.promise("unified-read", "unified-envelope")
def test_read_gives_the_content(space, tool):
    space.files.write("/notes/today", "...")

    assert tool.call({"path": "/notes/today", "command": "read"}) == (
        '{"command":"read","path":"/notes/today","ok":true,"result":{"content":"..."}}'
    )


@pytest.mark.promise("unified-read-missing")
def test_read_of_a_missing_file_is_enoent(tool):
    assert tool.call({"path": "/missing", "command": "read"}) == (
        '{"command":"read","path":"/missing","ok":false,"error":{"message":"ENOENT: file not found","code":"ENOENT"}}'
    )


@pytest.mark.promise("unified-list", "unified-list-empty-path")
def test_list_of_the_empty_path_shows_the_root(space, tool):
    space.files.write("/notes/today", "hello")

    assert tool.call({"path": "", "command": "list"}) == (
        '{"command":"list","path":"/","ok":true,"result":{"entries":[{"name":"notes","kind":"dir"}]}}'
    )


@pytest.mark.promise("unified-append")
def test_append_creates_the_file_and_its_parents(space, tool):
    assert tool.call({"path": "/notes/today", "command": "append", "content": "hello"}) == (
        '{"command":"append","path":"/notes/today","ok":true,"result":{"status":"ok"}}'
    )
    assert tree(space) == {"/notes": None, "/notes/today": "hello"}


@pytest.mark.promise("unified-update")
def test_update_says_how_many_it_replaced(space, tool):
    space.files.write("/notes/today", "hello")

    assert tool.call({"path": "/notes/today", "command": "update", "oldContent": "hello", "content": "hi"}) == (
        '{"command":"update","path":"/notes/today","ok":true,"result":{"replaced":1}}'
    )
    assert space.files.read("/notes/today") == "hi"


@pytest.mark.promise("unified-delete")
def test_delete_counts_the_directory_itself(space, tool):
    space.files.write("/notes/today", "hello")

    assert tool.call({"path": "/notes", "command": "delete"}) == (
        '{"command":"delete","path":"/notes","ok":true,"result":{"files":1,"dirs":1}}'
    )
    assert tree(space) == {}


@pytest.mark.promise("unified-append-needs-content")
def test_append_without_content_is_refused(space, tool):
    assert tool.call({"path": "/notes/x", "command": "append"}) == (
        '{"command":"append","path":"/notes/x","ok":false,'
        '"error":{"message":"content is required for append","code":"EINVAL"}}'
    )
    assert tree(space) == {}


# Shape


@pytest.mark.promise("unified-invalid-arguments", "unified-unknown-keys", "unified-strings-only")
@pytest.mark.parametrize(
    ("arguments", "command", "path"),
    [
        (None, "unknown", "/"),
        ([], "unknown", "/"),
        ("read /a", "unknown", "/"),
        ({}, "unknown", "/"),
        ({"command": "read"}, "read", "/"),
        ({"path": "/a"}, "unknown", "/a"),
        ({"path": 7, "command": "read"}, "read", "/"),
        ({"path": "/a", "command": ["read"]}, "unknown", "/a"),
        ({"path": "/a", "command": "append", "content": None}, "append", "/a"),
        ({"path": "/a", "command": "append", "content": 5}, "append", "/a"),
        ({"path": "/a", "command": "append", "content": {"text": "x"}}, "append", "/a"),
        ({"path": "/a", "command": "update", "content": "x", "oldContent": 1}, "update", "/a"),
        ({"path": "a//b", "command": "append", "content": "x", "threadId": "t"}, "append", "/a/b"),
        ({"path": "/a", "command": "append", "content": "x", 1: "y"}, "append", "/a"),
        ({"path": "/..", "command": "read", "extra": ""}, "read", "/.."),
    ],
)
def test_arguments_of_another_shape_are_refused_and_change_nothing(space, tool, arguments, command, path):
    assert tool.call(arguments) == refused(command, path, "invalid arguments")
    assert tree(space) == {}


@pytest.mark.promise("unified-unknown-command", "unified-order-of-checks")
def test_checks_run_in_the_order_shape_command_path_fields(tool):
    assert tool.call(request("rename", "/..", extra="x")) == refused("rename", "/..", "invalid arguments")
    assert tool.call(request("rename", "/..")) == refused("rename", "/..", "unknown command: rename")
    assert tool.call(request("Read", "a/")) == refused("Read", "/a", "unknown command: Read")
    assert tool.call(request("append", "/..")) == refused("append", "/..", 'invalid path: ".." not allowed')
    assert tool.call(request("append", "/a")) == refused("append", "/a", "content is required for append")
    unwired = UnifiedMemoryTool()
    assert unwired.call(request("append", "/a")) == refused("append", "/a", "content is required for append")
    assert unwired.call(request("read", "a")) == refused("read", "/a", "Memory not connected", "ENOTMEM")


@pytest.mark.promise("unified-update-needs-both")
@pytest.mark.parametrize("contents", [{}, {"content": "x"}, {"oldContent": "x"}])
def test_update_without_both_texts_is_refused(space, tool, contents):
    space.files.write("/a", "x")
    assert tool.call(request("update", "/a", **contents)) == refused(
        "update", "/a", "oldContent and content are required for update"
    )


@pytest.mark.promise("unified-absent-is-not-empty")
def test_an_empty_text_is_a_text(space, tool):
    assert tool.call(request("append", "/a", content="")) == ok("append", "/a", {"status": "ok"})
    assert tree(space) == {"/a": ""}
    space.files.write("/a", "one two")
    assert tool.call(request("update", "/a", oldContent=" two", content="")) == ok("update", "/a", {"replaced": 1})
    assert tree(space) == {"/a": "one"}


@pytest.mark.parametrize("text", ["a\x00b", "a\ud800b"])
def test_a_text_that_cannot_be_stored_is_refused_by_its_field(space, tool, text):
    answer = tool.answer(request("append", "/a", content=text))
    assert answer.error["code"] == "EINVAL"
    assert answer.error["message"].startswith("content contains a ")
    assert tool.answer(request("update", "/a", content="", oldContent=text)).error["message"].startswith("oldContent ")
    assert tree(space) == {}


# Paths


@pytest.mark.promise("unified-path-normalised")
@pytest.mark.parametrize(
    "path", ["notes/today", "/notes/today/", "//notes///today//", "\\notes\\\\today", "\\/notes\\/today"]
)
def test_a_path_is_normalised_and_echoed_so(space, tool, path):
    space.files.write("/notes/today", "x")
    assert tool.call(request("read", path)) == ok("read", "/notes/today", {"content": "x"})


@pytest.mark.promise("unified-path-required")
@pytest.mark.parametrize("command", ["read", "append", "update", "delete"])
def test_an_empty_path_is_the_root_for_list_only(space, tool, command):
    space.files.write("/a", "x")
    contents = {"content": "x", "oldContent": "y"}
    assert tool.call(request(command, "", **contents)) == refused(command, "", "path is required")
    assert tree(space) == {"/a": "x"}


@pytest.mark.promise("unified-path-traversal")
@pytest.mark.parametrize(
    "path", ["..", "/../a", "/a/../b", "a\\..\\b", "/%2e%2e/a", "/%252E%252e/a", "/．．/a", "/.. /a"]
)
def test_climbing_out_is_refused_in_any_encoding(tool, path):
    for command in COMMANDS:
        contents = {"content": "x", "oldContent": "y"}
        assert tool.call(request(command, path, **contents)) == refused(command, path, 'invalid path: ".." not allowed')


@pytest.mark.promise("unified-path-segment")
@pytest.mark.parametrize(
    ("path", "segment"),
    [
        ("/a/./b", "."),
        ("/a/b\nc", "b\nc"),
        ("/a/\x7f", "\x7f"),
        ("/a\x00b/c", "a\x00b"),
        ("x/\ud83d/y", "\ud83d"),
        ("/a/ /b", " "),
        ("/" + "n" * 256, "n" * 256),
        ("/%2e/a", "%2e"),
    ],
)
def test_a_segment_that_the_tree_refuses_is_named(space, tool, path, segment):
    text = tool.call(request("append", path, content="x"))
    assert json.loads(text) == {
        "command": "append",
        "path": path,
        "ok": False,
        "error": {"message": f"invalid path segment: {segment}", "code": "EINVAL"},
    }
    assert text.encode()  # a lone surrogate is escaped; all else could not be sent
    assert tree(space) == {}


@pytest.mark.parametrize("path", ["/a" * 21, "/" + "/".join(["n" * 250] * 5)])
def test_a_path_that_is_too_long_is_refused(space, tool, path):
    answer = tool.answer(request("append", path, content="x"))
    assert (answer.path, answer.error["code"]) == (path, "EINVAL")
    assert answer.error["message"].startswith("invalid path: path has ")
    assert tree(space) == {}


@pytest.mark.promise("unified-reaches-every-file")
@pytest.mark.parametrize("path", ["/$set", "/a..b", "/notes.md", "/日本/メモ", "/...", "/it's 100%", "/Ünï çödé"])
def test_every_name_that_the_tree_takes_is_reached(space, tool, path):
    space.files.write(path, "x")
    assert tool.call(request("read", path)) == ok("read", path, {"content": "x"})


@pytest.mark.promise("unified-non-ascii")
def test_non_ascii_is_not_escaped(tool):
    tool.call(request("append", "/メモ", content="naïve \u2028 🙂"))
    assert tool.call(request("read", "/メモ")) == (
        '{"command":"read","path":"/メモ","ok":true,"result":{"content":"naïve \u2028 🙂"}}'
    )


# The commands


@pytest.mark.promise("unified-read-directory")
def test_read_of_a_directory_or_the_root_is_eisdir(space, tool):
    space.files.write("/notes/today", "x")
    for path in ("/notes", "/"):
        assert tool.call(request("read", path)) == refused("read", path, "EISDIR: path is a directory", "EISDIR")


@pytest.mark.promise("unified-append-newline")
@pytest.mark.parametrize(
    ("old", "new", "both"),
    [
        ("", "b", "b"),
        ("a", "b", "a\nb"),
        ("a\n", "b", "a\nb"),
        ("a", "\nb", "a\nb"),
        ("a\n", "\nb", "a\n\nb"),
        ("a", "", "a\n"),
    ],
)
def test_append_puts_one_newline_between(space, tool, old, new, both):
    space.files.write("/a", old)
    assert tool.call(request("append", "/a", content=new)) == ok("append", "/a", {"status": "ok"})
    assert space.files.read("/a") == both


@pytest.mark.promise("unified-directory-is-no-file")
def test_append_and_update_on_a_directory_are_eisdir(space, tool):
    space.files.make_directory("/d")
    for path in ("/d", "/"):
        for command in ("append", "update"):
            assert tool.call(request(command, path, content="x", oldContent="y")) == refused(
                command, path, "EISDIR: path is a directory", "EISDIR"
            )
    assert tree(space) == {"/d": None}


def test_append_below_a_file_is_enotdir(space, tool):
    space.files.write("/a", "x")
    assert tool.call(request("append", "/a/b", content="y")) == refused(
        "append", "/a/b", "ENOTDIR: /a is a file; nothing can be put below it", "ENOTDIR"
    )
    assert tree(space) == {"/a": "x"}


@pytest.mark.promise("unified-update-counts")
def test_update_replaces_every_occurrence_and_none_is_fine(space, tool):
    space.files.write("/a", "x y x z x")
    assert tool.call(request("update", "/a", oldContent="x", content="w")) == ok("update", "/a", {"replaced": 3})
    assert space.files.read("/a") == "w y w z w"
    assert tool.call(request("update", "/a", oldContent="q", content="w")) == ok("update", "/a", {"replaced": 0})
    assert tool.call(request("update", "/a", oldContent="", content="w")) == ok("update", "/a", {"replaced": 0})
    assert space.files.read("/a") == "w y w z w"
    assert tool.call(request("update", "/b", oldContent="x", content="w")) == refused(
        "update", "/b", "ENOENT: file not found", "ENOENT"
    )


@pytest.mark.promise("unified-list-order", "unified-list-missing")
def test_list_gives_immediate_children_directories_first_then_by_name(space, tool):
    for path in ("/z", "/b/x/deep", "/a", "/é"):
        space.files.write(path, "x")
    space.files.make_directory("/c")
    names = [("b", "dir"), ("c", "dir"), ("a", "file"), ("z", "file"), ("é", "file")]
    assert tool.call(request("list", "/")) == ok(
        "list", "/", {"entries": [{"name": name, "kind": kind} for name, kind in names]}
    )
    assert tool.call(request("list", "b")) == ok("list", "/b", {"entries": [{"name": "x", "kind": "dir"}]})
    for path in ("/missing", "/a", "/c", "/a/below"):
        assert tool.call(request("list", path)) == ok("list", path, {"entries": []})


@pytest.mark.promise("unified-delete-counts", "unified-delete-undone")
def test_delete_takes_all_below_and_can_be_undone(space, tool):
    for path in ("/n/a", "/n/b/c", "/n/b/d", "/keep"):
        space.files.write(path, "x")
    before = tree(space)
    assert tool.call(request("delete", "/n")) == ok("delete", "/n", {"files": 3, "dirs": 2})
    assert tree(space) == {"/keep": "x"}
    space.undo(space.changes()[-1].commit)
    assert tree(space) == before
    assert tool.call(request("delete", "/missing")) == ok("delete", "/missing", {"files": 0, "dirs": 0})
    assert tool.call(request("delete", "/keep")) == ok("delete", "/keep", {"files": 1, "dirs": 0})
    assert tool.call(request("delete", "/")) == ok("delete", "/", {"files": 3, "dirs": 2})
    assert tree(space) == {}


@pytest.mark.promise("unified-directories-are-real")
def test_a_directory_outlives_its_last_file(tool):
    tool.call(request("append", "/notes/today", content="x"))
    tool.call(request("delete", "/notes/today"))
    assert tool.call(request("list", "")) == ok("list", "/", {"entries": [{"name": "notes", "kind": "dir"}]})
    assert tool.call(request("delete", "/notes")) == ok("delete", "/notes", {"files": 0, "dirs": 1})


@pytest.mark.promise("unified-file-limit")
def test_a_file_may_not_pass_its_limit(open_book):
    space = open_book(":memory:", limits=Limits(file_bytes=10)).space("user", "u1")
    tool = UnifiedMemoryTool(space)
    space.files.write("/a", "12345678")
    for answer in (
        tool.answer(request("append", "/a", content="xy")),
        tool.answer(request("update", "/a", oldContent="1", content="1234")),
    ):
        assert answer.error == {"message": "/a would have 11 bytes; at most 10 are allowed", "code": "EINVAL"}
    assert tree(space) == {"/a": "12345678"}


# Metadata, permitted commands, schemas


@pytest.mark.promise("unified-metadata")
def test_a_tool_has_the_contracts_name_and_description_unless_told():
    tool = UnifiedMemoryTool()
    assert (tool.name, tool.description, tool.title) == (
        "memory",
        "Unified Memory tool: read, list, append, update, delete",
        None,
    )
    told = UnifiedMemoryTool(name="memory_readonly", description="Read-only memory tool", title="Mem Read")
    assert (told.name, told.description, told.title) == ("memory_readonly", "Read-only memory tool", "Mem Read")


@pytest.mark.promise("unified-metadata")
@pytest.mark.parametrize("name", ["", "Memory", "a-b", "a b", "x" * 65, "memory\n", "é", None, 5])
def test_a_name_that_model_apis_refuse_is_refused(name):
    with pytest.raises(InvalidInput, match="a tool's name must be"):
        UnifiedMemoryTool(name=name)


@pytest.mark.promise("unified-permitted-commands")
def test_a_command_that_is_not_permitted_is_really_refused(space):
    space.files.write("/a", "x")
    tool = UnifiedMemoryTool(space, name="memory_readonly", commands=["list", "read"])
    assert tool.call(request("read", "/a")) == ok("read", "/a", {"content": "x"})
    for command in ("append", "update", "delete"):
        assert tool.call(request(command, "/a", content="y", oldContent="x")) == refused(
            command, "/a", f"command not permitted: {command}; this tool permits read, list"
        )
    assert tree(space) == {"/a": "x"}
    assert list(tool.parameters()["properties"]) == ["path", "command"]
    assert tool.parameters()["properties"]["command"]["enum"] == ["read", "list"]


@pytest.mark.parametrize("commands", [[], "read", ["read", "rename"], [None]])
def test_commands_to_permit_must_be_some_of_the_five(commands):
    with pytest.raises(InvalidInput, match="command"):
        UnifiedMemoryTool(commands=commands)


@pytest.mark.promise("unified-schema")
def test_the_schema_takes_the_seeds_requests_and_refuses_what_the_tool_refuses(tool):
    schema = tool.parameters()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"]["command"]["enum"] == ["read", "list", "append", "update", "delete"]
    valid = jsonschema.Draft202012Validator(schema).is_valid
    assert valid({"path": "", "command": "list"})
    assert valid({"path": "/a", "command": "update", "oldContent": "a", "content": "b"})
    for wrong in (
        {"path": "/a"},
        request("rename", "/a"),
        request("append", "/a", content=1),
        request("read", "/", x=""),
    ):
        assert not valid(wrong)
        assert tool.answer(wrong).error["code"] == "EINVAL"


@pytest.mark.promise("unified-schema")
def test_each_model_api_gets_its_form():
    tool = UnifiedMemoryTool(name="notes", description="d", title="T", commands=["list"])
    parameters = tool.parameters()
    function = {"name": "notes", "description": "d", "parameters": parameters}
    assert tool.openai_schema() == {"type": "function", "function": function}
    assert tool.anthropic_schema() == {"name": "notes", "description": "d", "input_schema": parameters}
    assert tool.mcp_schema() == {"name": "notes", "title": "T", "description": "d", "inputSchema": parameters}
    assert "title" not in UnifiedMemoryTool().mcp_schema()


# One memory, several tools and threads


@pytest.mark.promise("unified-two-tools")
def test_two_tools_with_distinct_names_share_one_memory(space):
    reader = UnifiedMemoryTool(space, name="memory_readonly", commands=["read"])
    writer = UnifiedMemoryTool(space, name="memory_write")
    assert writer.call(request("append", "/a", content="x")) == ok("append", "/a", {"status": "ok"})
    assert reader.call(request("read", "/a")) == ok("read", "/a", {"content": "x"})


@pytest.mark.promise("unified-concurrency")
def test_threads_that_append_to_one_file_lose_nothing(open_book):
    book = open_book()
    tool = UnifiedMemoryTool(book.space("user", "u1"))

    def work(worker):
        return [tool.answer(request("append", "/log", content=f"{worker} {n}")).ok for n in range(25)]

    with ThreadPoolExecutor(8) as pool:
        assert all(all(done) for done in pool.map(work, range(8)))
    lines = book.space("user", "u1").files.read("/log").split("\n")
    assert sorted(lines) == sorted(f"{worker} {n}" for worker in range(8) for n in range(25))


@pytest.mark.promise("unified-concurrency")
def test_threads_that_update_one_file_never_replace_the_same_text_twice(space, tool):
    space.files.write("/todo", "\n".join(f"[ ] {n}" for n in range(40)))

    def work(n):
        return tool.answer(request("update", "/todo", oldContent=f"[ ] {n % 40}\n", content=f"[x] {n % 40}\n")).result

    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(work, [n for n in range(39) for _ in range(3)]))
    assert sum(result["replaced"] for result in done) == 39
    assert space.files.read("/todo") == "\n".join([f"[x] {n}" for n in range(39)] + ["[ ] 39"])


class _Failing:
    """A memory whose tree cannot be had."""

    needs_thread = False
    limits = Limits()

    def __init__(self, error):
        self.error = error

    def tree(self, thread_id=None):
        raise self.error


@pytest.mark.promise("unified-not-connected")
def test_a_memory_that_cannot_answer_is_said_in_the_envelope_and_damage_is_raised():
    tool = UnifiedMemoryTool()
    assert tool.call(request("read", "/a")) == refused("read", "/a", "Memory not connected", "ENOTMEM")
    tool.connect(_Failing(Unavailable("the store is busy; try again")))
    assert tool.call(request("read", "/a")) == refused("read", "/a", "EAGAIN: the store is busy; try again", "EAGAIN")
    tool.connect(_Failing(Forbidden("not yours")))
    assert tool.call(request("read", "/a")) == refused("read", "/a", "EACCES: not yours", "EACCES")
    tool.connect(_Failing(Corrupt("the file is damaged")))
    with pytest.raises(Corrupt):
        tool.call(request("read", "/a"))


def test_an_answer_says_whether_it_is_an_error():
    assert Envelope("read", "/a", result={"content": ""}).ok
    assert not Envelope("read", "/a", error={"message": "m", "code": "EINVAL"}).ok


# Beside the commands


@pytest.mark.promise("unified-completion")
def test_a_typed_path_is_completed_one_level_further(space):
    for path in ("/notes/today", "/notes/tomorrow", "/novel", "/x"):
        space.files.write(path, "x")
    files = space.files
    assert complete_path(files, "") == ["/notes/", "/novel", "/x"]
    assert complete_path(files, "no") == ["/notes/", "/novel"]
    assert complete_path(files, "/notes/to") == ["/notes/today", "/notes/tomorrow"]
    assert complete_path(files, "/notes/to", limit=1) == ["/notes/today"]
    for nothing in ("/missing/a", "/../a", "/x/y", "\x00/"):
        assert complete_path(files, nothing) == []


@pytest.mark.promise("unified-protocol")
def test_the_protocol_text_names_the_tool_and_only_its_own_commands():
    """The text for Claude's tool recommended paths outside of /memories, which the tool refuses."""
    unified, claude = memory_protocol(tool_name="notes"), memory_protocol("claude")
    assert "`notes`" in unified
    for word in COMMANDS:
        assert f"`{word}`" in unified
    for word in ("view", "create", "str_replace", "insert", "rename", "delete"):
        assert f"`{word}`" in claude
    assert "`append`" not in claude
    assert "such as /memories/projects/garden/plan" in claude  # any other path is refused
    assert "`view` /notes" in memory_protocol("claude", root="/notes")
    assert "/memories" not in unified
    assert "`view`" not in unified
    with pytest.raises(InvalidInput, match="unknown dialect"):
        memory_protocol("other")
