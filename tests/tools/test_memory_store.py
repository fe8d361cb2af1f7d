"""A memory store keeps what it says it keeps, whichever of ours it is; and one of the user's own works as well."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

import commonplace
from commonplace.tools import (
    ClaudeMemoryTool,
    FolderMemoryStore,
    InMemoryMemoryStore,
    MemoryEdit,
    MemoryEntry,
    MemoryException,
    MemoryStore,
    SpaceMemoryStore,
    ToolAnswer,
)
from commonplace.tools.memory_edits import insert_lines, replace_once, select_lines


@pytest.fixture(params=["space", "in memory", "folder"])
def store(request: pytest.FixtureRequest, space: commonplace.Space, tmp_path: Path) -> Iterator[MemoryStore]:
    if request.param == "space":
        yield SpaceMemoryStore(space)
    elif request.param == "folder":
        yield FolderMemoryStore(tmp_path / "memories")
    else:
        with InMemoryMemoryStore() as memory:
            yield memory


def refusal(call, *arguments: object) -> tuple[str, object]:
    with pytest.raises(MemoryException) as caught:
        call(*arguments)
    return caught.value.reason, caught.value.lines or caught.value.count


@pytest.mark.promise("claude-memory-store")
def test_files_are_created_read_edited_moved_and_deleted(store):
    store.create("/memories/a/b.txt", "one\ntwo\n")
    assert store.read("/memories/a/b.txt") == "one\ntwo\n"
    assert store.read("/memories/a/b.txt", (2, -1)) == "two\n"
    assert store.replace("/memories/a/b.txt", "two", "2") == MemoryEdit("one\n2\n", 1)
    store.insert("/memories/a/b.txt", 0, "zero")
    assert store.read("/memories/a/b.txt") == "zero\none\n2\n"
    store.rename("/memories/a", "/memories/c/d")
    assert store.exists("/memories/c/d/b.txt")
    assert not store.exists("/memories/a")
    store.delete("/memories/c/d/b.txt")
    assert store.list("/memories/c/d") == []
    store.clear()
    assert store.list("/memories") == []


@pytest.mark.promise("claude-memory-store")
def test_a_directory_is_listed_by_name_with_sizes(store):
    store.create("/memories/b", "é")
    store.create("/memories/a/x", "")

    listed = store.list("/memories")

    assert [(entry.path, entry.name, entry.is_directory, entry.size) for entry in listed] == [
        ("/memories/a", "a", True, 0),
        ("/memories/b", "b", False, 2),
    ]
    assert all(isinstance(entry.updated_at, datetime) and entry.updated_at.tzinfo for entry in listed)
    assert store.metadata("/memories/b") == listed[1]
    assert store.metadata("/memories").is_directory


@pytest.mark.promise("claude-memory-store")
def test_a_refusal_has_a_reason(store):
    store.create("/memories/f", "a\na")
    store.create("/memories/d/x", "")

    assert refusal(store.read, "/memories/gone") == ("not_found", None)
    assert refusal(store.read, "/memories/f/below") == ("not_found", None)
    assert refusal(store.read, "/memories/d") == ("is_directory", None)
    assert refusal(store.read, "/memories") == ("is_directory", None)
    assert refusal(store.list, "/memories/gone") == ("not_found", None)
    assert refusal(store.list, "/memories/f") == ("not_a_directory", None)
    assert refusal(store.list, "/memories/f/below") == ("not_found", None)
    assert refusal(store.metadata, "/memories/gone") == ("not_found", None)
    assert refusal(store.create, "/memories/f", "") == ("already_exists", None)
    assert refusal(store.create, "/memories/d", "") == ("is_directory", None)
    assert refusal(store.create, "/memories", "x" * 10_000_001) == ("already_exists", None)
    assert refusal(store.create, "/memories/f/x", "") == ("not_a_directory", None)
    assert refusal(store.create, "/memories/n", "x" * 10_000_001) == ("too_large", 10_000_000)
    assert refusal(store.create, "/memories/n", "\n" * 1_000_000) == ("too_many_lines", 999_999)
    assert refusal(store.create, "/memories/n", "\ud800") == ("other", None)
    assert refusal(store.replace, "/memories/f", "a", "b") == ("not_unique", (1, 2))
    assert refusal(store.replace, "/memories/f", "x", "b") == ("absent", None)
    assert refusal(store.replace, "/memories/f", "", "b") == ("empty_old", None)
    assert refusal(store.replace, "/memories/d", "a", "b") == ("is_directory", None)
    assert refusal(store.insert, "/memories/f", 3, "b") == ("bad_line", 2)
    assert refusal(store.insert, "/memories/f", -1, "b") == ("bad_line", 2)
    assert refusal(store.insert, "/memories", 0, "b") == ("is_directory", None)
    assert refusal(store.delete, "/memories/gone") == ("not_found", None)
    assert refusal(store.delete, "/memories") == ("root", None)
    assert refusal(store.rename, "/memories", "/memories/x") == ("root", None)
    assert refusal(store.rename, "/memories/gone", "/memories/x/y") == ("not_found", None)
    assert refusal(store.rename, "/memories/f", "/memories/d") == ("already_exists", None)
    assert refusal(store.rename, "/memories/f", "/memories/f") == ("already_exists", None)
    assert refusal(store.rename, "/memories/gone", "/memories/gone") == ("not_found", None)
    assert refusal(store.rename, "/memories/d", "/memories/d/e") == ("into_itself", None)
    assert refusal(store.rename, "/memories/gone", "/memories/gone/e") == ("not_found", None)
    assert refusal(store.rename, "/memories/d", "/memories/d/x") == ("already_exists", None)
    assert refusal(store.rename, "/memories/f", "/memories/f/e") == ("into_itself", None)
    assert refusal(store.rename, "/memories/d", "/memories/f/e") == ("not_a_directory", None)
    assert refusal(store.read, "/memories/../x") == ("escape", None)
    assert refusal(store.read, "/memoriesX") == ("outside", None)
    assert refusal(store.read, "/memories/\n") == ("invalid_path", None)
    assert [entry.name for entry in store.list("/memories")] == ["d", "f"]


@pytest.mark.promise("claude-memory-store")
@pytest.mark.parametrize(
    ("paths", "target", "message"),
    [
        (("b/note", "b.c/d/note"), "/".join("n" * 19), "path has 21 segments; at most 20 are allowed"),
        (("b/c/note",), "/".join("n" * 19), "path has 22 segments; at most 20 are allowed"),
        (("/".join(["b" * 200] * 4),), "n" * 240, "path has 1,045 bytes; at most 1,024 are allowed"),
    ],
)
def test_a_move_that_takes_something_past_the_limits_of_a_path_is_refused(store, paths, target, message):
    for path in paths:
        store.create(f"/memories/a/{path}", "keep me")

    with pytest.raises(MemoryException) as caught:
        store.rename("/memories/a", f"/memories/{target}")

    assert (caught.value.reason, str(caught.value)) == ("other", message)
    assert [entry.name for entry in store.list("/memories")] == ["a"]
    assert [store.read(f"/memories/a/{path}") for path in paths] == ["keep me"] * len(paths)


@pytest.mark.promise("claude-memory-store")
def test_a_refusal_is_one_of_the_packages_errors(store):
    with pytest.raises(commonplace.CommonplaceError):
        store.read("/memories/gone")


@pytest.mark.promise("claude-in-memory-store")
def test_many_threads_may_use_one_store_in_memory():
    with InMemoryMemoryStore() as memory:
        memory.create("/memories/log", "")

        def work(number: int) -> None:
            memory.create(f"/memories/{number}", str(number))
            memory.insert("/memories/log", 0, f"line {number}")

        threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert sorted(memory.read("/memories/log").split("\n")) == sorted(f"line {number}" for number in range(16))
        assert len(memory.list("/memories")) == 17


@pytest.mark.promise("claude-in-memory-store")
def test_stores_in_memory_share_nothing():
    with InMemoryMemoryStore() as one, InMemoryMemoryStore() as other:
        one.create("/memories/x", "")
        assert other.list("/memories") == []


@pytest.mark.promise("claude-undo")
def test_what_claude_deletes_in_a_space_can_be_brought_back(space):
    tool = ClaudeMemoryTool(space)
    tool.call({"command": "create", "path": "/memories/plans/one", "content": "one"})
    tool.call({"command": "create", "path": "/memories/plans/two", "content": "two"})
    tool.call({"command": "delete", "path": "/memories/plans"})

    space.undo(space.changes()[-1].commit)

    assert tool.call({"command": "view", "path": "/memories/plans"}).text == (
        "Here're the files and directories up to 2 levels deep in /memories/plans:\n"
        "4.0K\t/memories/plans\n3B\t/memories/plans/one\n3B\t/memories/plans/two"
    )


@pytest.mark.promise("claude-delete")
def test_a_file_that_has_expired_is_not_there_to_be_deleted(space, clock):
    space.files.write("/x", "x", ttl_seconds=1)
    clock.advance(2)

    assert ClaudeMemoryTool(space).call({"command": "delete", "path": "/memories/x"}) == ToolAnswer(
        "Error: The path /memories/x does not exist", is_error=True
    )


class DictionaryStore:
    """The smallest store of a user's own: a dictionary of texts, with directories that are only in the paths."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def list(self, path: str) -> list[MemoryEntry]:
        below = [name.removeprefix(path + "/") for name in self.texts if name.startswith(path + "/")]
        return [self.metadata(f"{path}/{name}") for name in sorted({name.split("/")[0] for name in below})]

    def read(self, path: str, view_range: tuple[int, int] | None = None) -> str:
        if path not in self.texts:
            raise MemoryException(f"{path} is nowhere", "not_found")
        return select_lines(self.texts[path], view_range)

    def create(self, path: str, content: str) -> None:
        if "password" in content:
            raise MemoryException("no passwords, please")
        if len(content) > 100:
            raise MemoryException("that is too long for me", "too_large")
        if self.exists(path):
            raise MemoryException("taken", "already_exists")
        self.texts[path] = content

    def replace(self, path: str, old_str: str, new_str: str) -> MemoryEdit:
        edit = replace_once(self.read(path), old_str, new_str)
        self.texts[path] = edit.content
        return edit

    def insert(self, path: str, line: int, text: str) -> None:
        self.texts[path] = insert_lines(self.read(path), line, text)

    def delete(self, path: str) -> None:
        gone = [name for name in self.texts if name == path or name.startswith(path + "/")]
        if not gone:
            raise MemoryException("nothing there", "not_found")
        for name in gone:
            del self.texts[name]

    def rename(self, old_path: str, new_path: str) -> None:
        if old_path not in self.texts:
            raise commonplace.NotFound(f"I have no {old_path}")
        self.texts[new_path] = self.texts.pop(old_path)

    def exists(self, path: str) -> bool:
        return any(name == path or name.startswith(path + "/") for name in self.texts)

    def metadata(self, path: str) -> MemoryEntry:
        if path in self.texts:
            return MemoryEntry(path, is_directory=False, size=len(self.texts[path].encode()))
        if path != "/memories" and not self.exists(path):
            raise MemoryException("nothing there", "not_found")
        return MemoryEntry(path, is_directory=True)

    def clear(self) -> None:
        self.texts.clear()


@pytest.mark.promise("claude-custom-store")
def test_a_store_of_the_users_own_is_a_full_memory():
    store: MemoryStore = DictionaryStore()
    tool = ClaudeMemoryTool(store)

    def ask(command: str, **arguments: object) -> ToolAnswer:
        return tool.call({"command": command, **arguments})

    assert ask("create", path="/memories/a/b", content="one") == ToolAnswer(
        "File created successfully at: /memories/a/b"
    )
    assert ask("str_replace", path="/memories/a/b", old_str="one", new_str="1\n2") == ToolAnswer("1\n2")
    assert ask("insert", path="/memories/a/b", insert_line=1, insert_text="1½").text.endswith("has been edited.")
    assert ask("view", path="/memories") == ToolAnswer(
        "Here're the files and directories up to 2 levels deep in /memories:\n"
        "4.0K\t/memories\n4.0K\t/memories/a\n7B\t/memories/a/b"
    )
    assert ask("view", path="/memories/a/b", view_range=[2, 2]).text.endswith(":\n     2\t1½")
    assert ask("rename", old_path="/memories/a/b", new_path="/memories/c").text.startswith("Successfully renamed")
    assert ask("delete", path="/memories/c") == ToolAnswer("Successfully deleted /memories/c")


@pytest.mark.promise("claude-custom-store")
def test_a_model_reads_the_refusals_of_a_store_of_the_users_own():
    tool = ClaudeMemoryTool(DictionaryStore())
    for arguments, text in (
        ({"command": "create", "path": "/memories/x", "content": "my password"}, "Error: no passwords, please"),
        ({"command": "create", "path": "/memories/x", "content": "x" * 101}, "Error: that is too long for me"),
        (
            {"command": "view", "path": "/memories/x"},
            "The path /memories/x does not exist. Please provide a valid path.",
        ),
        (
            {"command": "rename", "old_path": "/memories/x", "new_path": "/memories/y"},
            "Error: I have no /memories/x",
        ),
    ):
        assert tool.call(arguments) == ToolAnswer(text, is_error=True)


@pytest.mark.promise("claude-custom-store")
def test_a_store_of_the_users_own_is_not_asked_to_put_something_in_the_roots_place():
    store = DictionaryStore()
    tool = ClaudeMemoryTool(store)
    store.create("/memories/x", "x")
    for arguments, text in (
        ({"command": "create", "path": "/memories/", "content": "x"}, "Error: File /memories already exists"),
        (
            {"command": "rename", "old_path": "/memories/x", "new_path": "/memories"},
            "Error: The destination /memories already exists",
        ),
    ):
        assert tool.call(arguments) == ToolAnswer(text, is_error=True)
    assert store.texts == {"/memories/x": "x"}


@pytest.mark.promise("claude-custom-store")
def test_a_bug_in_a_store_of_the_users_own_is_not_hidden():
    class Broken(DictionaryStore):
        def metadata(self, path: str) -> MemoryEntry:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ClaudeMemoryTool(Broken()).call({"command": "view", "path": "/memories"})


@pytest.mark.promise("claude-view-directory")
def test_a_directory_that_goes_while_it_is_viewed_is_left_out():
    class Vanishing(DictionaryStore):
        def list(self, path: str) -> list[MemoryEntry]:
            if path == "/memories/gone":
                raise MemoryException("it went", "not_found")
            return [MemoryEntry("/memories/gone", True), MemoryEntry("/memories/here", False, 1)]

    assert ClaudeMemoryTool(Vanishing()).call({"command": "view", "path": "/memories"}) == ToolAnswer(
        "Here're the files and directories up to 2 levels deep in /memories:\n"
        "4.0K\t/memories\n4.0K\t/memories/gone\n1B\t/memories/here"
    )
