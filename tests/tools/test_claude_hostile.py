"""Whatever a model sends to Claude's memory tool is answered, and nothing outside of the root is read or written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import commonplace
from commonplace.errors import ConfigurationError
from commonplace.tools import ClaudeMemoryTool, FolderMemoryStore, InMemoryMemoryStore, MemoryException, ToolAnswer
from doubles import rounds

SECRET = "CANARY-7f3a"
COMMANDS = ("view", "create", "str_replace", "insert", "delete", "rename")


def calls_on(path: object) -> list[dict[str, object]]:
    """Each command, aimed at a path."""
    return [
        {"command": "view", "path": path},
        {"command": "create", "path": path, "file_text": "written"},
        {"command": "str_replace", "path": path, "old_str": SECRET, "new_str": "written"},
        {"command": "insert", "path": path, "insert_line": 0, "insert_text": "written"},
        {"command": "rename", "old_path": "/memories/mine", "new_path": path},
        {"command": "rename", "old_path": path, "new_path": "/memories/stolen"},
        {"command": "delete", "path": path},
    ]


REFUSED = [
    "",
    "/",
    "memories",
    "memories/x",
    "//memories/x",
    "/memoriesX",
    "/memoriesX/secret",
    "/memories-old/secret",
    "/Memories/x",
    "/etc/passwd",
    "/memories/..",
    "/memories/../memoriesX/secret",
    "/memories/a/../../memoriesX/secret",
    "/memories/a/../b",
    "/memories/.",
    "/memories/./x",
    "/memories/%2e%2e/x",
    "/memories/%2E%2e%2Fx",
    "/memories/%252e%252e%252fx",
    "/memories/%25252e%25252e%25252fx",
    "/memories/..%2fx",
    "/memories/..%5cx",
    "/memories/%c0%ae%c0%ae/x\0",
    "/memories/\uff0e\uff0e/x",
    "/memories/ .. /x",
    "/memories\\..\\x",
    "/memories/..\\x",
    "/memories/a\\b",
    "\\memories\\x",
    "C:\\memories\\x",
    "file:///memories/x",
    "/memories/x\0",
    "/memories/x%00",
    "/memories/a\nb",
    "/memories/a\x1bb",
    "/memories/a\x7f",
    "/memories/a\u2028b",
    "/memories/\ud800",
    "/memories/ ",
    "/memories/" + "a" * 256,
    "/memories/" + "a/" * 21,
    "/memories/" + "/".join(["a" * 200] * 6),
    "/memories/" + "a" * 1_000_000,
    "~/memories",
    "$HOME",
]


@pytest.mark.promise("claude-path-safety")
@pytest.mark.parametrize("wording", ["seed", "anthropic"])
@pytest.mark.parametrize("path", REFUSED, ids=lambda path: ascii(path)[:40])
def test_a_hostile_path_is_refused_by_every_command_and_changes_nothing(path, wording):
    with InMemoryMemoryStore() as memory:
        tool = ClaudeMemoryTool(memory, wording)
        memory.create("/memories/mine", SECRET)
        for arguments in calls_on(path):
            answer = tool.call(arguments)
            assert answer.is_error, arguments
            assert SECRET not in answer.text
            answer.text.encode()
            assert len(answer.text) < 1_000
        assert [(entry.path, entry.size) for entry in memory.list("/memories")] == [("/memories/mine", len(SECRET))]
        with pytest.raises(MemoryException):
            memory.read(path)


@pytest.mark.promise("claude-path-safety")
def test_refusals_of_paths_say_what_is_wrong():
    with InMemoryMemoryStore() as memory:
        seed, anthropic = ClaudeMemoryTool(memory), ClaudeMemoryTool(memory, "anthropic")
        for path, text in (
            ("/memoriesX", "Path must start with /memories, got: /memoriesX"),
            ("/etc/passwd", "Path must start with /memories, got: /etc/passwd"),
            ("/memories/../x", "Path /memories/../x would escape /memories directory"),
            ("/memories/%2e%2e%2fx", "Path /memories/%2e%2e%2fx would escape /memories directory"),
            ("/memories/a\\b", "Invalid path /memories/a\\b: a path has no backslashes; write /"),
            (
                "/memories/" + "a/" * 21,
                f"Invalid path /memories/{'a/' * 21}: path has 21 segments; at most 20 are allowed",
            ),
        ):
            assert anthropic.call({"command": "view", "path": path}) == ToolAnswer(text, is_error=True)
            assert seed.call({"command": "view", "path": path}) == ToolAnswer("Error: " + text, is_error=True)


@pytest.mark.promise("claude-path-safety")
@pytest.mark.parametrize(
    "path",
    ["/memories/$x", "/memories/a..b", "/memories/..a", "/memories/日本 語", "/memories/100%", "/memories/a%2fb"],
)
def test_any_other_name_is_legal(path):
    with InMemoryMemoryStore() as memory:
        tool = ClaudeMemoryTool(memory)
        assert not tool.call({"command": "create", "path": path, "content": ""}).is_error
        assert [entry.path for entry in memory.list("/memories")] == [path]


@pytest.mark.promise("claude-path-safety")
def test_two_ways_to_write_a_letter_are_one_name():
    with InMemoryMemoryStore() as memory:
        tool = ClaudeMemoryTool(memory)
        tool.call({"command": "create", "path": "/memories/cafe\u0301", "content": "x"})
        assert tool.call({"command": "view", "path": "/memories/caf\u00e9"}).text.endswith("\tx")


@pytest.mark.promise("claude-root")
def test_the_root_is_a_setting():
    with InMemoryMemoryStore("/custom/memories") as memory:
        tool = ClaudeMemoryTool(memory)
        tool.call({"command": "create", "path": "/custom/memories/x", "content": "x"})
        assert tool.call({"command": "view", "path": "/custom/memories"}).text == (
            "Here're the files and directories up to 2 levels deep in /custom/memories:\n"
            "4.0K\t/custom/memories\n1B\t/custom/memories/x"
        )
        assert tool.call({"command": "view", "path": "/memories/x"}).text == (
            "Error: Path must start with /custom/memories, got: /memories/x"
        )
        assert tool.input_schema["properties"]["path"]["description"].count("/custom/memories") == 2
        with pytest.raises(ConfigurationError, match="its store's is /custom/memories"):
            ClaudeMemoryTool(memory, root="/memories")


@pytest.mark.promise("claude-root")
def test_a_space_may_have_any_root_even_the_whole_tree(space):
    space.files.write("/a/b", "text")
    for root, path in (("/", "/a/b"), ("/notes/of/mine", "/notes/of/mine/a/b"), ("/memories/", "/memories/a/b")):
        tool = ClaudeMemoryTool(space, root=root)
        assert tool.call({"command": "view", "path": path}).text.endswith("\n     1\ttext")
        assert tool.call({"command": "view", "path": tool.root}).text.endswith(f"4B\t{path}")
        assert tool.call({"command": "delete", "path": tool.root}).is_error


@pytest.mark.parametrize("root", ["", "memories", "/..", "/a/../b", "\\memories", "/a\nb", "/\ud800"])
def test_a_root_that_is_no_path_is_refused(space, root, tmp_path):
    with pytest.raises(ConfigurationError, match="root"):
        FolderMemoryStore(tmp_path / "unused", root)
    with pytest.raises(ConfigurationError, match="root"):
        ClaudeMemoryTool(space, root=root)
    assert list(tmp_path.glob("unused")) == []


WRONG = [
    ({}, "command is required; use one of view, create, str_replace, insert, delete, rename"),
    ({"command": "append"}, "Unknown command: append; use one of view, create, str_replace, insert, delete, rename"),
    ({"command": 3}, "Unknown command: 'int'; use one of view, create, str_replace, insert, delete, rename"),
    ({"command": "view"}, "path is required for view"),
    ({"command": "view", "path": None}, "path is required for view"),
    ({"command": "view", "path": ["/memories"]}, "path must be a string, not list"),
    ({"command": "view", "path": "/memories", "depth": 2}, "view does not take depth; it takes path, view_range"),
    ({"command": "delete", "path": "/memories/f", "new_str": ""}, "delete does not take new_str; it takes path"),
    ({"command": "create", "path": "/memories/n"}, "file_text is required for create"),
    ({"command": "create", "path": "/memories/n", "content": 1}, "content must be a string, not int"),
    (
        {"command": "create", "path": "/memories/n", "content": "a", "file_text": "a"},
        "create takes file_text or content, not both",
    ),
    (
        {"command": "create", "path": "/memories/n", "content": "a\0"},
        "content contains a NUL character; remove it",
    ),
    (
        {"command": "create", "path": "/memories/n", "file_text": "\udfff"},
        "file_text contains a lone surrogate at character 0; send valid Unicode text",
    ),
    ({"command": "str_replace", "path": "/memories/f", "new_str": "x"}, "old_str is required for str_replace"),
    (
        {"command": "str_replace", "path": "/memories/f", "old_str": "f", "new_str": 5},
        "new_str must be a string, not int",
    ),
    ({"command": "insert", "path": "/memories/f", "insert_text": "x"}, "insert_line is required for insert"),
    (
        {"command": "insert", "path": "/memories/f", "insert_line": "1", "insert_text": "x"},
        "Invalid `insert_line` parameter: '1'. It should be a whole number",
    ),
    (
        {"command": "insert", "path": "/memories/f", "insert_line": True, "insert_text": "x"},
        "Invalid `insert_line` parameter: True. It should be a whole number",
    ),
    (
        {"command": "insert", "path": "/memories/f", "insert_line": 0.0, "insert_text": "x"},
        "Invalid `insert_line` parameter: 0.0. It should be a whole number",
    ),
    ({"command": "rename", "old_path": "/memories/f"}, "new_path is required for rename"),
    (
        {"command": "rename", "path": "/memories/f", "new_path": "/memories/g"},
        "rename does not take path; it takes old_path, new_path",
    ),
    *(
        (
            {"command": "view", "path": "/memories/f", "view_range": wrong},
            f"Invalid `view_range` parameter: {wrong!r}. "
            "It should be two whole numbers, the first and the last line; -1 is the end of the file",
        )
        for wrong in ([], [1], [1, 2, 3], ["1", 2], [1, 2.0], [True, 2], "12", 5, {"a": 1})
    ),
]


@pytest.mark.promise("claude-arguments-checked")
@pytest.mark.parametrize(("arguments", "text"), WRONG, ids=lambda value: ascii(value)[:60])
def test_wrong_arguments_are_refused_and_change_nothing(arguments, text):
    with InMemoryMemoryStore() as memory:
        memory.create("/memories/f", "f")
        assert ClaudeMemoryTool(memory).call(arguments) == ToolAnswer("Error: " + text, is_error=True)
        assert ClaudeMemoryTool(memory, "anthropic").call(arguments) == ToolAnswer(text, is_error=True)
        assert [(entry.path, memory.read(entry.path)) for entry in memory.list("/memories")] == [("/memories/f", "f")]


@pytest.mark.promise("claude-arguments-checked")
def test_a_field_that_is_null_was_not_given():
    with InMemoryMemoryStore() as memory:
        tool = ClaudeMemoryTool(memory)
        nothing = dict.fromkeys(("path", "view_range", "old_str", "new_str", "insert_line", "insert_text", "content"))
        created = tool.call({**nothing, "command": "create", "path": "/memories/f", "file_text": "ab"})
        assert created == ToolAnswer("File created successfully at: /memories/f")
        removed = tool.call({**nothing, "command": "str_replace", "path": "/memories/f", "old_str": "b"})
        assert removed == ToolAnswer("a")


def test_an_unknown_wording_is_refused(space):
    with pytest.raises(ConfigurationError, match="use one of seed, anthropic"):
        ClaudeMemoryTool(space, wording="java")  # type: ignore[arg-type]


# Pieces that hostile paths are made of.
PIECES = st.sampled_from(
    (
        *("/", "//", "\\", ".", "..", "...", "%2e", "%2E%2e", "%252e", "%2f", "%5c", "%00", "\0", "\n", " ", "~", "é"),
        *("a", "link", "secret", "memories", "memoriesX", "file", "sub", "x" * 300),
        *("\u202e", "\uff0e", "\u2024", "\u2215", "\ud800"),
    )
)
PATHS = st.one_of(
    st.lists(PIECES, max_size=8).map(lambda pieces: "/memories/" + "".join(pieces)),
    st.lists(PIECES, max_size=8).map("".join),
    st.lists(PIECES, max_size=5).map(lambda pieces: "/memories/" + quote("".join(pieces), safe="", errors="replace")),
    st.sampled_from(["/memories/../memoriesX/secret", "/memories/link/secret", "/memories/sub/link", "/memories/file"]),
    st.text(max_size=20),
)
CALLS = st.lists(st.tuples(PATHS, st.integers(0, 6)), min_size=1, max_size=6)


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Path]:
    """A folder of secrets around the memory's folder, which has links to it; none may be read or change."""
    for outside in ("memoriesX", "outside"):
        (tmp_path / outside).mkdir()
        (tmp_path / outside / "secret").write_text(SECRET)
    (tmp_path / "secret").write_text(SECRET)
    before = snapshot(tmp_path)
    yield tmp_path
    assert snapshot(tmp_path) == before


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    """All files outside of the memory's folder, with their time of change."""
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes() if path.is_file() else b"", path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.relative_to(folder).parts[0] != "memories"
    }


@pytest.mark.promise("claude-path-safety", "claude-folder-symlinks")
@settings(max_examples=rounds(150), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(calls=CALLS)
def test_no_path_ever_leaves_the_folder(guarded: Path, calls):
    memories = guarded / "memories"
    memories.mkdir(exist_ok=True)
    for link in (memories / "link", memories / "sub" / "link"):
        link.parent.mkdir(exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(guarded / "outside", target_is_directory=True)
    if not os.path.lexists(memories / "file"):
        (memories / "file").symlink_to(guarded / "secret")
    tool = ClaudeMemoryTool(FolderMemoryStore(memories))
    for path, number in calls:
        answer = tool.call(calls_on(path)[number])
        assert SECRET not in answer.text
        answer.text.encode()
    assert snapshot(guarded)["secret"][0] == SECRET.encode()


@pytest.mark.promise("claude-path-safety")
@settings(max_examples=rounds(150), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(calls=CALLS)
def test_no_path_ever_leaves_the_tree(book: commonplace.Book, calls):
    neighbour, space = book.space("user", "u2"), book.space("user", "u1")
    neighbour.files.write("/secret", SECRET)
    tool = ClaudeMemoryTool(space)
    for path, number in calls:
        answer = tool.call(calls_on(path)[number])
        assert SECRET not in answer.text
        answer.text.encode()
    assert [(item.path, item.revision) for item in neighbour.files.list()] == [
        ("/secret", neighbour.files.stat("/secret").revision)
    ]
    assert neighbour.files.read("/secret") == SECRET
    for item in space.files.walk():
        assert ".." not in item.path.split("/")


@pytest.mark.promise("claude-path-safety")
@settings(max_examples=rounds(100))
@given(calls=CALLS)
def test_a_store_of_the_users_own_sees_checked_paths_only(calls):
    seen: list[str] = []

    class Watching(InMemoryMemoryStore):
        def metadata(self, path):
            seen.append(path)
            return super().metadata(path)

        def create(self, path, content):
            seen.append(path)
            super().create(path, content)

        def delete(self, path):
            seen.append(path)
            super().delete(path)

        def rename(self, old_path, new_path):
            seen.extend((old_path, new_path))
            super().rename(old_path, new_path)

    with Watching() as memory:
        tool = ClaudeMemoryTool(memory)
        for path, number in calls:
            tool.call(calls_on(path)[number])
    for path in seen:
        assert path == "/memories" or path.startswith("/memories/")
        assert not {"", ".", ".."} & set(path.split("/")[1:])
        assert path.isprintable() or "\u202e" in path
