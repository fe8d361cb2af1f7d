"""Every answer of Claude's memory tool, as a whole string: the seed's examples, and the contract's table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import commonplace
from commonplace import ConfigurationError
from commonplace.tools import (
    ClaudeMemoryTool,
    FolderMemoryStore,
    InMemoryMemoryStore,
    MemoryStore,
    SpaceMemoryStore,
    ToolAnswer,
)

Call = Callable[..., ToolAnswer]


@pytest.fixture(params=["space", "in memory", "folder"])
def store(request: pytest.FixtureRequest, space: commonplace.Space, tmp_path: Path) -> Iterator[MemoryStore]:
    if request.param == "space":
        yield SpaceMemoryStore(space)
    elif request.param == "folder":
        yield FolderMemoryStore(tmp_path / "memories")
    else:
        with InMemoryMemoryStore() as memory:
            yield memory


@pytest.fixture
def seed(store: MemoryStore) -> Call:
    tool = ClaudeMemoryTool(store)
    return lambda command, **arguments: tool.call({"command": command, **arguments})


@pytest.fixture
def anthropic(store: MemoryStore) -> Call:
    tool = ClaudeMemoryTool(store, wording="anthropic")
    return lambda command, **arguments: tool.call({"command": command, **arguments})


def done(text: str) -> ToolAnswer:
    return ToolAnswer(text, is_error=False)


def refused(text: str) -> ToolAnswer:
    return ToolAnswer(text, is_error=True)


NOTES = "/memories/notes.txt"


@pytest.mark.promise("claude-view-directory")
def test_a_directory_is_viewed_as_in_the_seed(seed):
    seed("create", path=NOTES, content="x" * 1536)
    seed("create", path="/memories/project.xml", content="x" * 2048)

    assert seed("view", path="/memories", view_range=[1, 10]) == done(
        "Here're the files and directories up to 2 levels deep in /memories:\n"
        "4.0K\t/memories\n"
        "1.5K\t/memories/notes.txt\n"
        "2.0K\t/memories/project.xml"
    )


@pytest.mark.promise("claude-view-file")
def test_a_file_is_viewed_as_in_the_seed(seed):
    seed("create", path=NOTES, content="First line of content\nSecond line of content")

    assert seed("view", path=NOTES) == done(
        "Here's the content of /memories/notes.txt with line numbers:\n"
        "     1\tFirst line of content\n"
        "     2\tSecond line of content"
    )


@pytest.mark.promise("claude-create", "claude-str-replace")
def test_a_file_is_created_and_its_text_replaced_as_in_the_seed(seed):
    assert seed("create", path=NOTES, content="My notes here") == done(
        "File created successfully at: /memories/notes.txt"
    )
    assert seed("str_replace", path=NOTES, old_str="My notes here", new_str="Updated notes") == done("Updated notes")


@pytest.mark.promise("claude-str-replace")
def test_a_replacement_that_fails_says_why_as_in_the_seed(seed):
    seed("create", path=NOTES, content="one\ntwo\none")

    assert seed("str_replace", path="/memories/gone", old_str="a", new_str="b") == refused(
        "Error: The path /memories/gone does not exist."
    )
    assert seed("str_replace", path=NOTES, old_str="three", new_str="b") == refused(
        "No replacement was performed, old_str did not appear verbatim"
    )
    assert seed("str_replace", path=NOTES, old_str="one", new_str="b") == refused(
        "No replacement was performed. Multiple occurrences of old_str in lines: 1, 3"
    )


@pytest.mark.promise("claude-insert", "claude-delete", "claude-rename")
def test_inserting_deleting_and_renaming_answer_as_in_the_seed(seed):
    seed("create", path=NOTES, content="a\nb\nc")
    seed("create", path="/memories/old_file.txt", content="")
    seed("create", path="/memories/draft.txt", content="")

    assert seed("insert", path=NOTES, insert_line=2, insert_text="New line here\n") == done(
        "The file /memories/notes.txt has been edited."
    )
    assert seed("view", path=NOTES) == done(
        "Here's the content of /memories/notes.txt with line numbers:\n"
        "     1\ta\n     2\tb\n     3\tNew line here\n     4\tc"
    )
    assert seed("delete", path="/memories/old_file.txt") == done("Successfully deleted /memories/old_file.txt")
    assert seed("rename", old_path="/memories/draft.txt", new_path="/memories/final.txt") == done(
        "Successfully renamed /memories/draft.txt to /memories/final.txt"
    )
    assert seed("view", path="/memories") == done(
        "Here're the files and directories up to 2 levels deep in /memories:\n"
        "4.0K\t/memories\n"
        "0B\t/memories/final.txt\n"
        "19B\t/memories/notes.txt"
    )


def prepare(call: Call) -> None:
    call("create", path="/memories/a/b/deep.txt", file_text="deep")
    call("create", path="/memories/a/six", file_text="sixsix")
    call("create", path="/memories/.hidden/x", file_text="")
    call("create", path=NOTES, file_text="one\ntwo\none")


# (case, arguments, the answer in the wording seed, and in anthropic); an answer after "!" is an error result.
TABLE = [
    (
        "view of a directory",
        {"command": "view", "path": "/memories"},
        "Here're the files and directories up to 2 levels deep in /memories:\n4.0K\t/memories\n"
        "4.0K\t/memories/.hidden\n"
        "0B\t/memories/.hidden/x\n4.0K\t/memories/a\n4.0K\t/memories/a/b\n6B\t/memories/a/six\n11B\t/memories/notes.txt",
        "Here're the files and directories up to 2 levels deep in /memories, excluding hidden items:\n4K\t/memories\n"
        "4K\t/memories/a/\n4K\t/memories/a/b/\n6B\t/memories/a/six\n11B\t/memories/notes.txt",
    ),
    (
        "view of the root with a slash at its end",
        {"command": "view", "path": "/memories/a//"},
        "Here're the files and directories up to 2 levels deep in /memories/a:\n4.0K\t/memories/a\n"
        "4.0K\t/memories/a/b\n4B\t/memories/a/b/deep.txt\n6B\t/memories/a/six",
        "Here're the files and directories up to 2 levels deep in /memories/a, excluding hidden items:\n"
        "4K\t/memories/a\n"
        "4K\t/memories/a/b/\n4B\t/memories/a/b/deep.txt\n6B\t/memories/a/six",
    ),
    (
        "view of a range",
        {"command": "view", "path": NOTES, "view_range": [2, 2]},
        "Here's the content of /memories/notes.txt with line numbers:\n     2\ttwo",
        "Here's the content of /memories/notes.txt with line numbers:\n     2\ttwo",
    ),
    (
        "view of a range to the end",
        {"command": "view", "path": NOTES, "view_range": [2, -1]},
        "Here's the content of /memories/notes.txt with line numbers:\n     2\ttwo\n     3\tone",
        "Here's the content of /memories/notes.txt with line numbers:\n     2\ttwo\n     3\tone",
    ),
    (
        "view of a missing path",
        {"command": "view", "path": "/memories/gone"},
        "!The path /memories/gone does not exist. Please provide a valid path.",
        "!The path /memories/gone does not exist. Please provide a valid path.",
    ),
    (
        "create of what exists",
        {"command": "create", "path": NOTES, "file_text": "new"},
        "!Error: File /memories/notes.txt already exists",
        "!File /memories/notes.txt already exists",
    ),
    (
        "create of an existing directory",
        {"command": "create", "path": "/memories/a", "file_text": "new"},
        "!Error: File /memories/a already exists",
        "!File /memories/a already exists",
    ),
    (
        "create below a file",
        {"command": "create", "path": "/memories/notes.txt/x/y", "file_text": "new"},
        "!Error: The path /memories/notes.txt/x/y cannot be made: a part of it is a file",
        "!The path /memories/notes.txt/x/y cannot be made: a part of it is a file",
    ),
    (
        "str_replace over lines",
        {"command": "str_replace", "path": NOTES, "old_str": "one\ntwo", "new_str": "1\n2"},
        "1\n2\none",
        "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n"
        "     1\t1\n     2\t2\n     3\tone",
    ),
    (
        "str_replace without new_str deletes the text",
        {"command": "str_replace", "path": NOTES, "old_str": "two\n"},
        "one\none",
        "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n"
        "     1\tone\n     2\tone",
    ),
    (
        "str_replace, text absent",
        {"command": "str_replace", "path": NOTES, "old_str": "three", "new_str": ""},
        "!No replacement was performed, old_str did not appear verbatim",
        "!No replacement was performed, old_str `three` did not appear verbatim in /memories/notes.txt.",
    ),
    (
        "str_replace, several",
        {"command": "str_replace", "path": NOTES, "old_str": "one", "new_str": ""},
        "!No replacement was performed. Multiple occurrences of old_str in lines: 1, 3",
        "!No replacement was performed. Multiple occurrences of old_str `one` in lines: 1, 3. "
        "Please ensure it is unique",
    ),
    (
        "str_replace of an empty text",
        {"command": "str_replace", "path": NOTES, "old_str": "", "new_str": "x"},
        "!No replacement was performed, old_str must not be empty",
        "!No replacement was performed, old_str must not be empty",
    ),
    (
        "str_replace, missing file",
        {"command": "str_replace", "path": "/memories/gone", "old_str": "a", "new_str": "b"},
        "!Error: The path /memories/gone does not exist.",
        "!The path /memories/gone does not exist. Please provide a valid path.",
    ),
    (
        "str_replace in a directory",
        {"command": "str_replace", "path": "/memories/a", "old_str": "a", "new_str": "b"},
        "!Error: The path /memories/a is not a file.",
        "!The path /memories/a is not a file.",
    ),
    (
        "insert at the top",
        {"command": "insert", "path": NOTES, "insert_line": 0, "insert_text": "zero"},
        "The file /memories/notes.txt has been edited.",
        "The file /memories/notes.txt has been edited.",
    ),
    (
        "insert, bad line",
        {"command": "insert", "path": NOTES, "insert_line": 4, "insert_text": "x"},
        "!Error: Invalid `insert_line` parameter: 4. It should be within the range of lines of the file: [0, 3]",
        "!Invalid `insert_line` parameter: 4. It should be within the range [0, 3].",
    ),
    (
        "insert, missing file",
        {"command": "insert", "path": "/memories/gone", "insert_line": 0, "insert_text": "x"},
        "!Error: The path /memories/gone does not exist",
        "!The path /memories/gone does not exist. Please provide a valid path.",
    ),
    (
        "delete of a directory",
        {"command": "delete", "path": "/memories/a"},
        "Successfully deleted /memories/a",
        "Successfully deleted /memories/a",
    ),
    (
        "delete of a missing path",
        {"command": "delete", "path": "/memories/gone"},
        "!Error: The path /memories/gone does not exist",
        "!The path /memories/gone does not exist",
    ),
    (
        "delete of the root",
        {"command": "delete", "path": "/memories/"},
        "!Error: Cannot delete the /memories directory itself",
        "!Cannot delete the /memories directory itself",
    ),
    (
        "rename of a directory into a new one",
        {"command": "rename", "old_path": "/memories/a", "new_path": "/memories/new/a"},
        "Successfully renamed /memories/a to /memories/new/a",
        "Successfully renamed /memories/a to /memories/new/a",
    ),
    (
        "rename of a missing path",
        {"command": "rename", "old_path": "/memories/gone", "new_path": "/memories/new/x"},
        "!Error: The path /memories/gone does not exist",
        "!The path /memories/gone does not exist",
    ),
    (
        "rename onto an existing path",
        {"command": "rename", "old_path": NOTES, "new_path": "/memories/a/six"},
        "!Error: The destination /memories/a/six already exists",
        "!The destination /memories/a/six already exists",
    ),
    (
        "rename onto itself",
        {"command": "rename", "old_path": NOTES, "new_path": NOTES},
        "!Error: The destination /memories/notes.txt already exists",
        "!The destination /memories/notes.txt already exists",
    ),
    (
        "rename onto the root",
        {"command": "rename", "old_path": NOTES, "new_path": "/memories"},
        "!Error: The destination /memories already exists",
        "!The destination /memories already exists",
    ),
    (
        "rename into itself",
        {"command": "rename", "old_path": "/memories/a", "new_path": "/memories/a/c/d"},
        "!Error: Cannot rename /memories/a to /memories/a/c/d: it cannot be moved into itself",
        "!Cannot rename /memories/a to /memories/a/c/d: it cannot be moved into itself",
    ),
    (
        "rename below a file",
        {"command": "rename", "old_path": "/memories/a", "new_path": "/memories/notes.txt/x"},
        "!Error: The path /memories/notes.txt/x cannot be made: a part of it is a file",
        "!The path /memories/notes.txt/x cannot be made: a part of it is a file",
    ),
    (
        "rename of the root",
        {"command": "rename", "old_path": "/memories", "new_path": "/memories/x"},
        "!Error: Cannot rename the /memories directory itself",
        "!Cannot rename the /memories directory itself",
    ),
]


def contents(store: MemoryStore, path: str = "/memories") -> dict[str, str | None]:
    """Everything in a store: a file's text by its path, None for a directory."""
    found: dict[str, str | None] = {}
    for entry in store.list(path):
        found[entry.path] = None if entry.is_directory else store.read(entry.path)
        if entry.is_directory:
            found |= contents(store, entry.path)
    return found


@pytest.mark.promise("claude-two-wordings", "claude-errors-change-nothing", "claude-upstream-gaps")
@pytest.mark.parametrize("wording", ["seed", "anthropic"])
@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[0])
def test_each_case_is_answered_in_both_wordings(row, wording, store):
    _, arguments, in_seed, in_anthropic = row
    expected = in_seed if wording == "seed" else in_anthropic
    tool = ClaudeMemoryTool(store, wording)
    prepare(lambda command, **fields: tool.call({"command": command, **fields}))
    before = contents(store)

    answer = tool.call(arguments)

    assert answer == (refused(expected[1:]) if expected.startswith("!") else done(expected))
    if answer.is_error:
        assert contents(store) == before


@pytest.mark.promise("claude-insert")
@pytest.mark.parametrize(
    ("text", "line", "inserted", "in_seed", "in_anthropic"),
    [
        ("a\nb", 1, "x", "a\nx\nb", "a\nx\nb\n"),
        ("a\nb\n", 2, "x\n", "a\nb\nx\n", "a\nb\nx\n"),
        ("a\nb", 2, "x\n", "a\nb\nx", "a\nb\nx\n"),
        ("", 0, "x\n", "x", "x\n"),
        ("a", 0, "x\ny\n", "x\ny\na", "x\ny\na\n"),
        ("a\r\nb", 1, "x", "a\r\nx\nb", "a\r\nx\nb\n"),
    ],
)
def test_an_inserted_text_gets_lines_of_its_own(text, line, inserted, in_seed, in_anthropic, store):
    for wording, expected in (("seed", in_seed), ("anthropic", in_anthropic)):
        path = f"/memories/{wording}"
        store.create(path, text)
        tool = ClaudeMemoryTool(store, wording)
        tool.call({"command": "insert", "path": path, "insert_line": line, "insert_text": inserted})
        assert store.read(path) == expected


@pytest.mark.promise("claude-str-replace")
def test_the_snippet_shows_two_lines_around_the_change(anthropic):
    anthropic("create", path=NOTES, file_text="\n".join("abcdefgh"))

    assert anthropic("str_replace", path=NOTES, old_str="e", new_str="E") == done(
        "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n"
        "     3\tc\n     4\td\n     5\tE\n     6\tf\n     7\tg"
    )


@pytest.mark.promise("claude-str-replace")
def test_a_text_that_stands_in_very_many_places_is_answered_in_short(seed, anthropic):
    seed("create", path=NOTES, file_text="a\n" * 5_000)

    for call in (seed, anthropic):
        answer = call("str_replace", path=NOTES, old_str="a")
        assert answer.is_error
        assert "1, 2, 3" in answer.text
        assert "100, …" in answer.text
        assert len(answer.text) < 600


@pytest.mark.promise("claude-sizes")
@pytest.mark.parametrize(
    ("size", "in_seed", "in_anthropic"),
    [
        (0, "0B", "0B"),
        (1, "1B", "1B"),
        (1023, "1023B", "1023B"),
        (1024, "1.0K", "1K"),
        (1536, "1.5K", "1.5K"),
        (4096, "4.0K", "4K"),
        (1_048_576, "1.0M", "1M"),
        (9_999_999, "9.5M", "9.5M"),
    ],
)
def test_sizes_are_short(size, in_seed, in_anthropic):
    with InMemoryMemoryStore() as memory:
        memory.create("/memories/x", "x" * size)
        for wording, expected in (("seed", in_seed), ("anthropic", in_anthropic)):
            answer = ClaudeMemoryTool(memory, wording).call({"command": "view", "path": "/memories"})
            assert answer.text.splitlines()[-1] == f"{expected}\t/memories/x"


@pytest.mark.promise("claude-limits")
def test_a_file_of_too_many_bytes_is_refused_and_every_edit_that_would_make_one(store):
    tool = ClaudeMemoryTool(store)
    over = "Error: File /memories/big exceeds maximum size of 10,000,000 bytes."
    assert tool.call({"command": "create", "path": "/memories/big", "content": "é" * 5_000_001}) == refused(over)
    assert not store.exists("/memories/big")
    store.create("/memories/big", "x" + "é" * 4_999_999)

    for edit in (
        {"command": "str_replace", "path": "/memories/big", "old_str": "x", "new_str": "xxx"},
        {"command": "insert", "path": "/memories/big", "insert_line": 0, "insert_text": "x"},
    ):
        assert tool.call(edit) == refused(over)
    assert store.metadata("/memories/big").size == 9_999_999


@pytest.mark.promise("claude-limits")
def test_a_file_of_too_many_lines_is_refused_and_every_edit_that_would_make_one(store):
    tool = ClaudeMemoryTool(store)
    over = "File /memories/long exceeds maximum line limit of 999,999 lines."
    assert tool.call({"command": "create", "path": "/memories/long", "content": "\n" * 1_000_000}) == refused(over)
    store.create("/memories/long", "\n" * 999_998 + "end")

    assert tool.call({"command": "view", "path": "/memories/long", "view_range": [999_998, -1]}) == done(
        "Here's the content of /memories/long with line numbers:\n999998\t\n999999\tend"
    )
    edit = {"command": "insert", "path": "/memories/long", "insert_line": 0, "insert_text": "x"}
    assert tool.call(edit) == refused(over)


@pytest.mark.promise("claude-limits")
def test_a_store_of_the_users_own_may_hold_too_many_lines_but_they_are_not_shown():
    class Endless(InMemoryMemoryStore):
        def read(self, path: str, view_range: tuple[int, int] | None = None) -> str:
            return "\n" * 1_000_000

    with Endless() as memory:
        memory.create("/memories/long", "")
        assert ClaudeMemoryTool(memory).call({"command": "view", "path": "/memories/long"}) == refused(
            "File /memories/long exceeds maximum line limit of 999,999 lines."
        )


@pytest.mark.promise("claude-limits")
def test_the_size_limit_is_a_setting():
    with InMemoryMemoryStore("/custom/memories", 50_000_000) as memory:
        tool = ClaudeMemoryTool(memory)
        created = tool.call({"command": "create", "path": "/custom/memories/big", "content": "x" * 10_000_001})
        assert created == done("File created successfully at: /custom/memories/big")


@pytest.mark.promise("claude-view-file")
def test_a_last_newline_shows_as_an_empty_line_as_in_the_sdk(seed):
    seed("create", path=NOTES, content="one\n")
    seed("create", path="/memories/empty", content="")

    assert seed("view", path=NOTES).text.endswith(":\n     1\tone\n     2\t")
    assert seed("view", path="/memories/empty").text.endswith(":\n     1\t")


@pytest.mark.promise("claude-same-tree")
def test_a_note_of_one_dialect_is_read_by_the_other(space):
    tool = ClaudeMemoryTool(space)
    space.files.append("/notes/today", "hello")
    tool.call({"command": "create", "path": "/memories/notes/$a..b 日本", "content": "from Claude"})

    assert tool.call({"command": "view", "path": "/memories/notes/today"}).text.endswith("\n     1\thello")
    assert space.files.read("/notes/$a..b 日本") == "from Claude"
    assert [hit.key for hit in space.search("Claude")][:1] == ["/notes/$a..b 日本"]


def test_a_range_past_the_end_says_so():
    """The answer was a heading and nothing else, as if the file were empty there."""
    with InMemoryMemoryStore() as store:
        store.create("/memories/f", "one\ntwo")
        tool = ClaudeMemoryTool(store)
        for view_range in ([3, 9], [9, -1], [2, 1]):
            answer = tool.call({"command": "view", "path": "/memories/f", "view_range": view_range})
            assert answer.text.splitlines()[1:] == ["(no lines in this range; lines in the file: 2)"]
            assert not answer.is_error


@pytest.mark.parametrize("wrong", [None, "", "/memories", InMemoryMemoryStore])
def test_the_tool_refuses_what_is_no_store(wrong):
    """`ClaudeMemoryTool(None)` was made, and failed in its first call."""
    with pytest.raises(ConfigurationError, match="the tool needs a space or a memory store"):
        ClaudeMemoryTool(wrong)
    with InMemoryMemoryStore() as store, pytest.raises(ConfigurationError):
        ClaudeMemoryTool(store, root="")
