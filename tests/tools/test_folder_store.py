"""A memory in a plain folder: private, whole after every write, never outside of itself; taken in and written out."""

from __future__ import annotations

import os
import re
import shutil
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from anthropic.tools import BetaLocalFilesystemMemoryTool

from commonplace.errors import ConfigurationError, NotFound, Unavailable
from commonplace.space.rules import Rules
from commonplace.tools import ClaudeMemoryTool, FolderMemoryStore, MemoryException, export_folder, import_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "memories"


@pytest.fixture
def store(folder: Path) -> FolderMemoryStore:
    return FolderMemoryStore(folder)


def with_directory_sizes(view: object) -> str:
    """Anthropic's view of a directory, with the size of directories that a memory has on every file system."""
    return re.sub(r"^[\d.]+[BKM]\t(.*/|/memories)$", r"4K\t\1", str(view), flags=re.MULTILINE)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.promise("claude-folder-private")
@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_files_and_directories_are_for_their_owner_alone_whatever_the_umask(folder, umask):
    before = os.umask(umask)
    try:
        store = FolderMemoryStore(folder)
        store.create("/memories/a/b", "one")
        store.create("/memories/c", "one")
        store.replace("/memories/c", "one", "two")
        store.rename("/memories/c", "/memories/d/e")
    finally:
        os.umask(before)

    assert [mode(path) for path in (folder.parent, folder, folder / "a", folder / "d")] == [0o700] * 4
    assert [mode(path) for path in (folder / "a" / "b", folder / "d" / "e")] == [0o600] * 2


@pytest.mark.promise("claude-folder-atomic")
def test_a_reader_sees_the_old_text_or_the_new_one(store):
    texts = ["a" * 300_000, "b" * 300_000]
    store.create("/memories/f", texts[0])
    is_done = threading.Event()
    seen: set[str] = set()

    def read() -> None:
        while not is_done.is_set():
            seen.add(store.read("/memories/f"))

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(40):
        store.edit("/memories/f", lambda _, number=number: texts[number % 2])
    is_done.set()
    reader.join()

    assert seen <= set(texts)
    assert [entry.name for entry in store.list("/memories")] == ["f"]


@pytest.mark.promise("claude-folder-atomic")
def test_a_write_that_fails_leaves_the_old_text_and_no_remains(store, folder, monkeypatch):
    store.create("/memories/f", "old")

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(Unavailable, match="No space left"):
        store.replace("/memories/f", "old", "new")
    answer = ClaudeMemoryTool(store).call({"command": "create", "path": "/memories/g", "content": ""})
    assert answer.is_error
    assert answer.text == "Error: the memory's folder cannot be used: No space left on device"

    assert store.read("/memories/f") == "old"
    assert os.listdir(folder) == ["f"]


@pytest.mark.promise("claude-folder-symlinks")
def test_links_are_neither_listed_nor_followed_nor_replaced(store, folder, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    store.create("/memories/mine", "mine")
    (folder / "to-file").symlink_to(outside / "secret")
    (folder / "to-folder").symlink_to(outside)
    (folder / "to-inside").symlink_to(folder / "mine")
    (folder / "dangling").symlink_to(outside / "new")
    tool = ClaudeMemoryTool(store)

    assert [entry.name for entry in store.list("/memories")] == ["mine"]
    for name in ("to-file", "to-folder", "to-folder/secret", "to-folder/new/x", "to-inside", "dangling"):
        path = f"/memories/{name}"
        for arguments in (
            {"command": "view", "path": path},
            {"command": "create", "path": path, "file_text": "written"},
            {"command": "str_replace", "path": path, "old_str": "secret", "new_str": "written"},
            {"command": "insert", "path": path, "insert_line": 0, "insert_text": "written"},
            {"command": "delete", "path": path},
            {"command": "rename", "old_path": path, "new_path": "/memories/stolen"},
            {"command": "rename", "old_path": "/memories/mine", "new_path": path},
        ):
            answer = tool.call(arguments)
            assert answer.is_error
            assert answer.text.endswith("would escape /memories directory via symlink"), arguments
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"secret": "secret"}
    assert store.read("/memories/mine") == "mine"


@pytest.mark.promise("claude-folder-symlinks")
def test_deleting_a_directory_does_not_follow_the_links_in_it(store, folder, tmp_path):
    (tmp_path / "secret").write_text("secret")
    store.create("/memories/d/x", "")
    (folder / "d" / "link").symlink_to(tmp_path)

    store.delete("/memories/d")

    assert (tmp_path / "secret").read_text() == "secret"
    assert os.listdir(folder) == []


@pytest.mark.promise("claude-folder-symlinks")
def test_clearing_removes_what_no_path_can_name_as_well_and_follows_no_link(store, folder, tmp_path):
    (tmp_path / "secret").write_text("secret")
    store.create("/memories/d/x", "")
    for name in ("cafe\u0301", "back\\slash", ".commonplace-unfinished-0", "d/line\nbreak"):
        (folder / name).write_text("mine")
    (folder / "nfd\u0301").mkdir()
    (folder / "nfd\u0301" / "link").symlink_to(tmp_path)
    (folder / "link").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")

    store.clear()

    assert os.listdir(folder) == []
    assert (tmp_path / "secret").read_text() == "secret"


@pytest.mark.promise("claude-folder-symlinks", "claude-folder-special")
def test_a_rename_that_is_refused_names_the_path_at_fault(store, folder):
    store.create("/memories/mine", "mine")
    (folder / "link").symlink_to("/etc")
    os.mkfifo(folder / "pipe")
    tool = ClaudeMemoryTool(store)

    for name, text in (
        ("link", "Error: Path /memories/link would escape /memories directory via symlink"),
        ("link/x", "Error: Path /memories/link/x would escape /memories directory via symlink"),
        ("pipe", "Error: The path /memories/pipe is not a text file"),
        (
            ".commonplace-unfinished-x",
            "Error: Invalid path /memories/.commonplace-unfinished-x: "
            "a name must not begin with .commonplace-unfinished-",
        ),
    ):
        path = f"/memories/{name}"
        for old, new in (("/memories/mine", path), ("/memories/gone", path), (path, "/memories/new")):
            assert tool.call({"command": "rename", "old_path": old, "new_path": new}).text == text


@pytest.mark.promise("claude-folder-symlinks")
def test_a_directory_that_is_swapped_for_a_link_meanwhile_leads_nowhere(store, folder, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("secret")
    store.create("/memories/d/f", "mine")
    is_done = threading.Event()

    def insist(step: Callable[[], None]) -> None:
        while True:
            try:
                return step()
            except OSError:
                shutil.rmtree(folder / "d", ignore_errors=True)  # the store made it anew

    def swap() -> None:
        while not is_done.is_set():
            os.rename(folder / "d", tmp_path / "aside")
            insist(lambda: os.symlink(outside, folder / "d"))
            os.unlink(folder / "d")
            insist(lambda: os.rename(tmp_path / "aside", folder / "d"))

    attacker = threading.Thread(target=swap)
    attacker.start()
    try:
        answers: set[str] = set()
        for number in range(400):
            for call in (lambda: store.read("/memories/d/f"), lambda: store.insert("/memories/d/f", 0, "x")):
                try:
                    answers.add(str(call())[-4:])
                except MemoryException as error:
                    answers.add(error.reason)
            try:
                store.create(f"/memories/d/{number}", "")
            except MemoryException as error:
                answers.add(error.reason)
            except Unavailable:
                continue
    finally:
        is_done.set()
        attacker.join()

    assert answers <= {"mine", "None", "not_found", "symlink", "not_a_directory"}
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"f": "secret"}


@pytest.mark.promise("claude-folder-special")
def test_what_is_no_text_file_is_refused_and_nobody_waits_for_a_pipe(store, folder):
    os.mkfifo(folder / "pipe")
    (folder / "binary").write_bytes(b"\xff\xfe")
    (folder / "huge").write_bytes(b"x" * 10_000_001)
    tool = ClaudeMemoryTool(store)

    for name, text in (
        ("pipe", "Error: The path /memories/pipe is not a text file"),
        ("binary", "Error: The path /memories/binary is not a text file"),
        ("huge", "Error: File /memories/huge exceeds maximum size of 10,000,000 bytes."),
    ):
        assert tool.call({"command": "view", "path": f"/memories/{name}"}).text == text
    assert [entry.name for entry in store.list("/memories")] == ["binary", "huge"]
    assert list(store.left_out("/memories")) == ["pipe"]


@pytest.mark.promise("claude-folder-special")
def test_names_that_no_path_can_have_are_left_out(store, folder):
    for name in (b"back\\slash", b"line\nbreak", b"\xff", b"cafe\xcc\x81", b"fine"):
        (Path(os.fsdecode(os.fsencode(folder) + b"/" + name))).write_text("x")

    assert [entry.name for entry in store.list("/memories")] == ["fine"]
    assert len(store.left_out("/memories")) == 4
    with pytest.raises(MemoryException, match="must not begin"):
        store.create("/memories/.commonplace-unfinished-x", "")


@pytest.mark.promise("claude-folder-special", "claude-folder-exchange")
def test_what_lies_too_deep_for_a_path_is_left_out_and_the_rest_is_taken(store, folder, space):
    deepest = "/".join("d" * 20)
    (folder / deepest / "too" / "deep").mkdir(parents=True)
    (folder / deepest / "too" / "deep" / "f").write_text("x")
    (folder / deepest / "f").write_text("x")
    (folder / "z").write_text("z")

    path = f"/memories/{deepest}"
    assert ClaudeMemoryTool(store).call({"command": "view", "path": path}).text == (
        f"Here're the files and directories up to 2 levels deep in {path}:\n4.0K\t{path}"
    )
    taken = import_folder(folder, space)

    assert (taken.files, taken.directories) == (1, 20)
    assert taken.skipped == tuple(
        f"/{deepest}/{name}: it is not a text file with a usable name" for name in ("f", "too")
    )
    assert space.files.read("/z") == "z"


def test_a_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="is a file"):
        FolderMemoryStore(tmp_path / "file")
    with pytest.raises(ConfigurationError, match="cannot be created"):
        FolderMemoryStore(tmp_path / "file" / "below")


def test_a_folder_that_went_away_is_unavailable(store, folder):
    folder.rmdir()
    with pytest.raises(Unavailable, match="cannot be opened"):
        store.list("/memories")


@pytest.mark.promise("claude-folder-exchange")
def test_a_claude_memory_directory_is_taken_into_a_space_and_written_out_again(space, tmp_path):
    theirs = BetaLocalFilesystemMemoryTool(str(tmp_path))
    for path, text in (("/memories/a/b.md", "one\n"), ("/memories/ü", "zwei"), ("/memories/.hidden/x", "")):
        theirs.call({"command": "create", "path": path, "file_text": text})
    (tmp_path / "memories" / "empty").mkdir()
    (tmp_path / "memories" / "link").symlink_to("/etc")
    (tmp_path / "memories" / "binary").write_bytes(b"\xff")

    taken = import_folder(tmp_path / "memories", space)

    assert (taken.files, taken.directories) == (3, 3)
    assert taken.skipped == (
        "/link: it is not a text file with a usable name",
        "/binary: binary is not UTF-8 text",
    )
    os.unlink(tmp_path / "memories" / "binary")
    os.unlink(tmp_path / "memories" / "link")
    view = {"command": "view", "path": "/memories"}
    assert ClaudeMemoryTool(space, wording="anthropic").call(view).text == with_directory_sizes(theirs.call(view))

    written = export_folder(space, tmp_path / "copy" / "memories")

    assert (written.files, written.directories, written.skipped) == (3, 3, ())
    again = BetaLocalFilesystemMemoryTool(str(tmp_path / "copy"))
    assert again.call(view) == theirs.call(view)
    assert mode(tmp_path / "copy" / "memories" / "a" / "b.md") == 0o600


@pytest.mark.promise("claude-folder-exchange")
def test_what_is_there_already_is_overwritten_only_when_asked(space, folder):
    space.files.write("/a", "old")
    space.files.write("/same", "same")
    FolderMemoryStore(folder, "/").create("/a", "new")
    FolderMemoryStore(folder, "/").create("/same", "same")

    assert import_folder(folder, space).skipped == ("/a: it exists already, with a different text",)
    assert space.files.read("/a") == "old"
    assert export_folder(space, folder).skipped == ("/a: it exists already, with a different text",)
    assert (folder / "a").read_text() == "new"
    assert export_folder(space, folder, overwrite=True).skipped == ()
    assert (folder / "a").read_text() == "old"
    space.files.replace("/a", "old", "newer")
    assert import_folder(folder, space, overwrite=True).skipped == ()
    assert space.files.read("/a") == "old"


def test_a_folder_that_is_not_there_is_not_imported(space, tmp_path):
    with pytest.raises(NotFound, match="is not a folder"):
        import_folder(tmp_path / "gone", space)
    assert not (tmp_path / "gone").exists()


@pytest.mark.parametrize("wrong", ["", "  ", None, 5, b"x", "/", "~"])
def test_a_memory_is_a_folder_of_its_own(tmp_path, monkeypatch, wrong):
    """An empty path meant the current directory, and `clear` deleted what was there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").write_text("kept")
    with pytest.raises(ConfigurationError):
        FolderMemoryStore(wrong)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_folder_takes_no_new_name_with_an_invisible_character(folder, store):
    store.create("/memories/a", "one")
    for write in (
        lambda: store.create("/memories/a\u200b", "two"),
        lambda: store.create("/memories/d\u202e/a", "two"),
        lambda: store.make_directory("/memories/d\u00ad"),
        lambda: store.rename("/memories/a", "/memories/\ufeffa"),
    ):
        with pytest.raises(MemoryException, match=r"invisible character U\+"):
            write()
    (folder / "old\u200b").write_text("was here before")
    store.replace("/memories/old\u200b", "before", "long before")
    assert store.read("/memories/old\u200b") == "was here long before"


def test_a_folder_of_many_files_is_taken_in_with_few_commits(tmp_path, space):
    """Each file was a commit of its own: a thousand files took a thousand of them."""
    for number in range(450):
        place = tmp_path / "memories" / f"d{number % 7}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"f{number}").write_text(f"note {number}")
    (tmp_path / "memories" / "d0" / "f0").write_bytes(b"\xff")
    (tmp_path / "memories" / "d3\u200b").mkdir()
    (tmp_path / "memories" / "d3\u200b" / "f").write_text("x")
    space.files.write("/d5/f5", "another text")
    space.files.write("/d6", "a file where the folder has a directory")

    taken = import_folder(tmp_path / "memories", space)

    assert space.stats().commit <= 2 + 3
    others = [f"/d6/f{number}" for number in range(6, 450, 7)]
    assert (taken.files, taken.directories) == (450 - 2 - len(others), 6)
    assert {line.partition(": ")[0] for line in taken.skipped} == {
        "/d0/f0", "/d5/f5", "/d6", "/d3\u200b", "/d3\u200b/f", *others
    }  # fmt: skip
    assert not space.files.exists("/d3\u200b")
    assert space.files.read("/d1/f449") == "note 449"
    assert import_folder(tmp_path / "memories", space).files == taken.files
    space.undo(space.stats().commit)


def test_a_folder_that_does_not_fit_is_taken_in_as_far_as_it_does(tmp_path, book):
    folder = tmp_path / "memories"
    folder.mkdir()
    for number in range(10):
        (folder / f"f{number}").write_text("x" * 100)
    space = book.space("user", "u1", rules=Rules(max_entries=4))
    taken = import_folder(folder, space)
    assert (taken.files, len(taken.skipped)) == (4, 6)
    assert "the namespace would hold 5 entries; at most 4 are allowed" in taken.skipped[0]
