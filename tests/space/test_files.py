"""Files through the library: a real tree, exact edits, clear refusals, and every change to be taken back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import commonplace
from commonplace import (
    AlreadyExists,
    Ambiguous,
    Conflict,
    InvalidInput,
    IsADirectory,
    Limits,
    NotADirectory,
    NotFound,
    Space,
    TooLarge,
    Unavailable,
)
from commonplace.redaction import Redactor
from commonplace.space import history
from doubles import OpenBook


def tree(space: Space) -> list[str]:
    return [info.path + ("/" if info.kind == "directory" else "") for info in space.files.walk()]


@pytest.mark.promise("files-append-newline")
@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (None, "one", "one"),
        ("", "one", "one"),
        ("one", "two", "one\ntwo"),
        ("one\n", "two", "one\ntwo"),
        ("one", "\ntwo", "one\ntwo"),
        ("one\n", "\ntwo", "one\n\ntwo"),
        ("one", "two\n", "one\ntwo\n"),
        ("one\r\n", "two", "one\r\ntwo"),
        (None, "", ""),
    ],
)
def test_append_puts_one_newline_between_old_and_new(space: Space, old: str | None, new: str, expected: str) -> None:
    if old is not None:
        space.files.write("/a/f", old)
    space.files.append("/a/f", new)
    assert space.files.read("/a/f") == expected


@pytest.mark.promise("files-update-counts")
def test_replace_replaces_every_occurrence_and_counts_them(space: Space) -> None:
    space.files.write("/f", "a-a-aaa\nb")
    assert space.files.replace("/f", "a", "x") == 5
    assert space.files.read("/f") == "x-x-xxx\nb"
    revision = space.files.stat("/f").revision
    assert space.files.replace("/f", "missing", "y") == 0
    assert space.files.replace("/f", "", "y") == 0
    assert space.files.stat("/f").revision == revision
    assert space.files.replace("/f", "xxx\nb", "multi\nline") == 1
    with pytest.raises(NotFound):
        space.files.replace("/missing", "a", "b")
    space.files.make_directory("/d")
    with pytest.raises(IsADirectory):
        space.files.replace("/d", "a", "b")


def test_a_replacement_that_must_be_unique_names_the_lines_where_it_is_not(space: Space) -> None:
    space.files.write("/f", "one\ntwo\none one\n")
    with pytest.raises(Ambiguous) as error:
        space.files.replace("/f", "one", "x", unique=True)
    assert error.value.lines == (1, 3, 3)
    assert space.files.read("/f") == "one\ntwo\none one\n"
    assert space.files.replace("/f", "two", "x", unique=True) == 1


@pytest.mark.promise("files-insert")
@pytest.mark.parametrize(
    ("text", "line", "added", "expected"),
    [
        ("a\nb\n", 0, "x", "x\na\nb\n"),
        ("a\nb\n", 1, "x\n", "a\nx\nb\n"),
        ("a\nb\n", 2, "x", "a\nb\nx\n"),
        ("a\nb", 2, "x", "a\nb\nx"),
        ("a\nb", 1, "x\ny", "a\nx\ny\nb"),
        ("", 0, "x", "x\n"),
    ],
)
def test_insert_puts_text_after_a_line(space: Space, text: str, line: int, added: str, expected: str) -> None:
    space.files.write("/f", text)
    space.files.insert("/f", line, added)
    assert space.files.read("/f") == expected


@pytest.mark.parametrize("line", [-1, 3, 1_000_000, True, 1.0, "1", None])
def test_insert_at_a_line_that_is_not_there_is_refused(space: Space, line: Any) -> None:
    space.files.write("/f", "a\nb\n")
    with pytest.raises(InvalidInput):
        space.files.insert("/f", line, "x")
    assert space.files.read("/f") == "a\nb\n"


@pytest.mark.promise("files-directories-real")
def test_directories_are_made_with_a_file_and_outlive_it(space: Space) -> None:
    space.files.write("/a/b/c", "x")
    assert tree(space) == ["/a/", "/a/b/", "/a/b/c"]
    space.files.delete("/a/b/c")
    assert tree(space) == ["/a/", "/a/b/"]
    assert space.files.list("/a/b") == []
    assert space.files.exists("/a/b")
    space.files.make_directory("/a/b/d/e")
    space.files.make_directory("/a/b/d")
    assert tree(space) == ["/a/", "/a/b/", "/a/b/d/", "/a/b/d/e/"]


@pytest.mark.promise("files-list-order")
def test_list_gives_the_direct_children_directories_first_then_by_name(space: Space) -> None:
    for path in ("/z", "/a", "/d/x", "/d/deep/er", "/b!", "/é", "/B", "/a.txt", "/日本/x", "/c c"):
        space.files.write(path, "x")
    assert [info.name for info in space.files.list()] == ["d", "日本", "B", "a", "a.txt", "b!", "c c", "z", "é"]
    assert [(info.name, info.kind) for info in space.files.list("/d")] == [("deep", "directory"), ("x", "file")]
    assert space.files.list("/") == space.files.list("") == space.files.list("//")
    with pytest.raises(NotFound):
        space.files.list("/missing")
    with pytest.raises(NotADirectory):
        space.files.list("/a")


@pytest.mark.promise("files-as-of")
def test_a_directory_is_listed_and_a_path_looked_up_as_they_were(space: Space) -> None:
    space.files.write("/notes/a", "one")
    then = space.files.write("/notes/deep/b", "two").updated_at
    space.files.write("/notes/a", "longer than before")
    space.files.move("/notes/deep", "/other")
    space.files.delete("/notes")
    assert [info.name for info in space.files.list(as_of=then)] == ["notes"]
    assert [(info.path, info.size) for info in space.files.list("/notes", as_of=then)] == [
        ("/notes/deep", 0),
        ("/notes/a", 3),
    ]
    page = space.files.list_page("/notes", limit=1, as_of=then.isoformat())
    assert [info.name for info in page.files] == ["deep"]
    assert [info.name for info in space.files.list_page("/notes", cursor=page.cursor, as_of=then).files] == ["a"]
    assert (space.files.stat("/notes/a", as_of=then).size, space.files.stat("/notes", as_of=then).kind) == (
        3,
        "directory",
    )
    assert [info.name for info in space.files.list()] == ["other"]
    with pytest.raises(NotFound):
        space.files.list("/other", as_of=then)
    with pytest.raises(NotFound):
        space.files.stat("/other", as_of=then)
    with pytest.raises(NotADirectory):
        space.files.list("/notes/a", as_of=then)


@pytest.mark.promise("files-list-order")
@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 1_000])
def test_a_directory_is_listed_in_pages_in_the_same_order(space: Space, limit: int) -> None:
    for path in ("/z", "/d/x", "/B", "/日本/x", "/é"):
        space.files.write(path, "x")
    found, cursor = [], None
    while True:
        page = space.files.list_page(limit=limit, cursor=cursor)
        assert len(page.files) == limit or page.cursor is None
        found += page.files
        cursor = page.cursor
        if cursor is None:
            break
    assert found == space.files.list()
    with pytest.raises(NotADirectory):
        space.files.list_page("/z")


def test_sizes_lines_and_times_are_told(space: Space, clock: Any) -> None:
    created = space.files.write("/f", "ä\nb")
    assert (created.size, created.lines, created.revision, created.kind, created.name) == (4, 2, 1, "file", "f")
    clock.advance(60)
    changed = space.files.append("/f", "c")
    assert (changed.size, changed.lines, changed.revision) == (6, 3, 2)
    assert changed.created_at == created.created_at
    assert (changed.updated_at - created.updated_at).total_seconds() == 60
    assert space.files.stat("/f") == changed == space.files.list()[0]
    assert space.files.stat("/").kind == "directory"


@pytest.mark.promise("files-delete-counts")
def test_delete_is_recursive_and_counts_files_and_directories(space: Space) -> None:
    for path in ("/notes/a", "/notes/b", "/notes/deep/c", "/notesX", "/notes!/d"):
        space.files.write(path, "x")
    removed = space.files.delete("/notes")
    assert (removed.files, removed.directories) == (3, 2)
    assert tree(space) == ["/notes!/", "/notes!/d", "/notesX"]
    removed = space.files.delete("/missing")
    assert (removed.files, removed.directories, removed.commit) == (0, 0, None)
    removed = space.files.delete("/")
    assert (removed.files, removed.directories) == (2, 1)
    assert tree(space) == []


@pytest.mark.promise("engine-undo")
def test_a_deleted_directory_comes_back_whole_with_undo(space: Space) -> None:
    for number in range(30):
        space.files.write(f"/notes/{number}/f", f"text {number}")
    before = {path: space.files.read(path) for path in tree(space) if not path.endswith("/")}
    removed = space.files.delete("/")
    assert removed.commit is not None
    assert tree(space) == []
    space.undo(removed.commit)
    assert {path: space.files.read(path) for path in tree(space) if not path.endswith("/")} == before
    assert len(space.search("text", limit=100)) == 30
    with pytest.raises(Conflict):
        space.undo(removed.commit)


@pytest.mark.promise("files-move")
def test_a_move_takes_everything_along_and_keeps_its_history(space: Space) -> None:
    space.files.write("/a/b/c", "one")
    space.files.append("/a/b/c", "two")
    space.files.make_directory("/a/empty")
    assert space.files.move("/a", "/x/y").entries == 4
    assert tree(space) == ["/x/", "/x/y/", "/x/y/b/", "/x/y/empty/", "/x/y/b/c"]
    assert space.files.read("/x/y/b/c") == "one\ntwo"
    assert space.state("file", "/a/b/c", 1).value == "one"
    assert [line.action for line in space.history("file", "/a/b/c")] == ["created", "updated", "moved_away"]
    space.files.move("/x/y/b/c", "/c")
    assert space.files.read("/c") == "one\ntwo"


def test_a_move_that_cannot_be_is_refused_and_changes_nothing(space: Space) -> None:
    space.files.write("/a/f", "x")
    space.files.write("/b", "y")
    before = tree(space)
    for old, new, error in (
        ("/a", "/a/sub", InvalidInput),
        ("/a", "/a", InvalidInput),
        ("/a", "/b", AlreadyExists),
        ("/b", "/a", AlreadyExists),
        ("/b", "/a/f", AlreadyExists),
        ("/missing", "/c", NotFound),
        ("/a", "/b/below-a-file", NotADirectory),
        ("/", "/c", IsADirectory),
        ("/a", "/", IsADirectory),
        ("/a", "/" + "x/" * 19 + "y", TooLarge),
    ):
        with pytest.raises(error):
            space.files.move(old, new)
        assert tree(space) == before
    assert space.files.move("/a", "/ab").entries == 2


@pytest.mark.promise("files-nothing-below-a-file")
def test_files_and_directories_do_not_stand_in_each_others_place(space: Space) -> None:
    space.files.write("/f", "x")
    space.files.make_directory("/d")
    for call in (
        lambda: space.files.write("/f/below", "x"),
        lambda: space.files.append("/f/a/b", "x"),
        lambda: space.files.make_directory("/f"),
        lambda: space.files.make_directory("/f/d"),
    ):
        with pytest.raises(NotADirectory):
            call()
    for call in (
        lambda: space.files.write("/d", "x"),
        lambda: space.files.append("/d", "x"),
        lambda: space.files.insert("/d", 0, "x"),
        lambda: space.files.read("/d"),
        lambda: space.files.read("/"),
        lambda: space.files.write("/", "x"),
    ):
        with pytest.raises(IsADirectory):
            call()
    assert tree(space) == ["/d/", "/f"]


def test_write_refuses_an_existing_file_only_when_asked_to(space: Space) -> None:
    space.files.write("/f", "one")
    with pytest.raises(AlreadyExists):
        space.files.write("/f", "two", overwrite=False)
    assert space.files.read("/f") == "one"
    space.files.write("/f", "two")
    assert space.files.read("/f") == "two"


@pytest.mark.promise("files-size-limit")
def test_every_edit_that_would_pass_the_limit_is_refused(open_book: Any) -> None:
    space = open_book(limits=Limits(file_bytes=10, file_lines=3)).space("user", "u1")
    space.files.write("/f", "ää\n12345")
    for call in (
        lambda: space.files.write("/g", "x" * 11),
        lambda: space.files.write("/g", "ä" * 6),
        lambda: space.files.append("/f", "x"),
        lambda: space.files.insert("/f", 0, "x"),
        lambda: space.files.replace("/f", "1", "111"),
        lambda: space.files.write("/g", "a\nb\nc\nd"),
    ):
        with pytest.raises(TooLarge):
            call()
    assert space.files.read("/f") == "ää\n12345"
    assert not space.files.exists("/g")
    assert commonplace.Limits().file_bytes == 10_000_000
    assert commonplace.Limits().file_lines == 999_999


@pytest.mark.promise("files-size-limit")
def test_the_limit_holds_for_what_a_mask_makes_of_a_text(open_book: Any) -> None:
    mail, mask = "a@b.io", "[redacted:email]"
    book = open_book(redaction=Redactor("mask", kinds=["email"]), limits=Limits(file_bytes=26))
    space = book.space("user", "u1")
    space.files.write("/f", f"{mail} x")
    for call in (
        lambda: space.files.write("/g/h", f"{mail} {mail}"),
        lambda: space.files.append("/f", mail),
        lambda: space.files.insert("/f", 0, mail),
        lambda: space.files.replace("/f", "x", mail),
    ):
        with pytest.raises(TooLarge, match="at most 26 are allowed"):
            call()
    assert space.files.read("/f") == f"{mask} x"
    assert tree(space) == ["/f"]


@pytest.mark.parametrize("text", ["a\x00b", "\ud800", b"bytes", None, 5])
def test_text_that_no_file_can_hold_is_refused(space: Space, text: Any) -> None:
    for call in (space.files.write, space.files.append):
        with pytest.raises(InvalidInput):
            call("/f", text)
    assert tree(space) == []


def test_a_file_is_read_as_it_was(space: Space, clock: Any) -> None:
    from commonplace.checks import moment

    space.files.write("/f", "one")
    first = moment(clock.now)
    clock.advance(10)
    space.files.write("/f", "two")
    second = moment(clock.now)
    clock.advance(10)
    space.files.delete("/f")
    assert space.files.read("/f", as_of=first) == "one"
    assert space.files.read("/f", as_of=second.isoformat()) == "two"
    with pytest.raises(NotFound):
        space.files.read("/f")
    with pytest.raises(InvalidInput, match="time zone"):
        space.files.read("/f", as_of="2026-01-01T00:00:00")
    space.restore("file", "/f", 1)
    assert space.files.read("/f") == "one"
    assert space.files.stat("/f").revision == 4


def test_a_file_may_end_by_itself(space: Space, clock: Any) -> None:
    space.files.write("/d/f", "fleeting", ttl_seconds=10)
    space.files.append("/d/f", "words")
    clock.advance(10)
    assert not space.files.exists("/d/f")
    assert space.files.list("/d") == []
    assert list(space.search("fleeting")) == []
    assert space.history("file", "/d/f")[-1].action == "expired"
    for wrong in (0, -1, float("nan"), float("inf"), True, "5"):
        with pytest.raises(InvalidInput):
            space.files.write("/g", "x", ttl_seconds=wrong)  # type: ignore[arg-type]


def test_a_large_tree_is_walked_in_pages_and_listed_by_its_top(space: Space) -> None:
    for number in range(40):
        space.files.write(f"/a/{number:02}/x", "x")
    assert len(tree(space)) == 81
    assert len(space.files.list("/a")) == 40
    assert [info.name for info in space.files.list()] == ["a"]


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, None, "5"])
def test_a_page_of_what_is_no_number_of_files_is_refused(space: Space, limit: Any) -> None:
    space.files.write("/a/b", "x")
    with pytest.raises(InvalidInput, match="limit"):
        space.files.page(limit=limit)
    with pytest.raises(InvalidInput, match="limit"):
        space.files.list_page(limit=limit)


# Undo and restore keep the tree a tree


def assert_is_a_tree(space: Space) -> None:
    infos = list(space.files.walk())
    paths = [info.path for info in infos]
    assert len(paths) == len(set(paths)), f"a file and a directory at one path: {tree(space)}"
    directories = {info.path for info in infos if info.kind == "directory"} | {""}
    orphans = [path for path in paths if path.rpartition("/")[0] not in directories]
    assert orphans == [], f"without a directory: {orphans}"


def test_undo_of_a_files_first_write_leaves_no_orphans(space: Space) -> None:
    space.files.write("/notes/a", "one")
    space.files.write("/notes/b", "two")
    try:
        space.undo(1)
    except Conflict:
        assert tree(space) == ["/notes/", "/notes/a", "/notes/b"]
    else:
        assert tree(space) == ["/notes/", "/notes/b"]
    assert_is_a_tree(space)


def test_undo_of_a_deletion_makes_the_directory_again_or_is_refused(space: Space) -> None:
    space.files.write("/a/b", "x")
    removed = space.files.delete("/a/b")
    space.files.delete("/a")
    assert removed.commit is not None
    try:
        space.undo(removed.commit)
    except Conflict:
        assert tree(space) == []
    else:
        assert tree(space) == ["/a/", "/a/b"]
    assert_is_a_tree(space)


def test_undo_of_a_deletion_where_a_file_stands_now_is_refused(space: Space) -> None:
    space.files.write("/a/b", "x")
    removed = space.files.delete("/a")
    space.files.write("/a", "a file now")
    assert removed.commit is not None
    with pytest.raises(Conflict):
        space.undo(removed.commit)
    assert tree(space) == ["/a"]


def test_restore_of_a_file_where_a_directory_stands_now_is_refused(space: Space) -> None:
    space.files.write("/a", "x")
    space.files.delete("/a")
    space.files.write("/a/b", "y")
    with pytest.raises(Conflict):
        space.restore("file", "/a", 1)
    assert tree(space) == ["/a/", "/a/b"]


def test_restore_of_a_directory_makes_those_above_it(space: Space) -> None:
    space.files.make_directory("/a/b")
    space.files.delete("/a")
    space.restore("directory", "/a/b", 1)
    assert tree(space) == ["/a/", "/a/b/"]


def test_restore_of_what_has_expired_brings_it_back(space: Space, clock: Any) -> None:
    space.files.write("/f", "text", ttl_seconds=5)
    clock.advance(10)
    space.restore("file", "/f", 1)
    assert space.files.read("/f") == "text"


def test_undo_of_a_directorys_move_is_refused_where_something_was_put_into_it_since(space: Space) -> None:
    space.files.write("/a/x", "1")
    moved = space.files.move("/a", "/b")
    space.files.write("/b/new", "2")
    with pytest.raises(Conflict, match="/b now contains something else"):
        space.undo(moved.commit)
    assert [info.path for info in space.files.walk()] == ["/b", "/b/new", "/b/x"]


@pytest.mark.parametrize("many", [1, 1_000_000])
def test_undo_of_the_move_of_many_files_is_the_same_at_once_and_one_by_one(
    space: Space, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    monkeypatch.setattr(history, "MANY", many)
    paths = [f"/notes/{number % 3}/n{number}" for number in range(12)] + ["/notes/top", "/notesbook"]
    for path in paths:
        space.files.write(path, f"text of {path}")
    space.files.write("/notes/0/n0", "changed")
    before = tree(space)
    moved = space.files.move("/notes", "/archive/old")
    space.files.write("/other", "written since")
    undone = space.undo(moved.commit)
    assert sorted(tree(space)) == sorted([*before, "/other"])
    assert space.files.read("/notes/0/n0") == "changed"
    assert [hit.key for hit in space.search("n7 notes").hits][:1] == ["/notes/1/n7"]
    assert not [hit for hit in space.search("archive").hits if "archive" in hit.key]
    assert [line.action for line in space.history("file", "/notes/1/n7")] == [
        "created", "moved_away", "moved_here",
    ]  # fmt: skip
    space.undo(undone)
    assert "/archive/old/1/n7" in tree(space)


def test_undo_of_the_move_of_many_files_leaves_what_was_put_to_their_old_place(space: Space) -> None:
    for number in range(12):
        space.files.write(f"/notes/n{number}", "text")
    moved = space.files.move("/notes", "/old")
    space.files.write("/notes/new", "written since")
    with pytest.raises(Conflict):
        space.undo(moved.commit)
    assert "/old/n7" in tree(space)
    space.files.delete("/notes")
    space.files.write("/old/n12", "written since")
    with pytest.raises(Conflict):
        space.undo(moved.commit)
    assert sorted(tree(space)) == sorted(["/old/", *(f"/old/n{number}" for number in range(13))])


def test_undo_of_a_move_takes_the_directories_along_that_the_move_made(space: Space) -> None:
    space.files.write("/x", "1")
    moved = space.files.move("/x", "/new/deep/x")
    undone = space.undo(moved.commit)
    assert [info.path for info in space.files.walk()] == ["/x"]
    space.undo(undone)
    assert [info.path for info in space.files.walk()] == ["/new", "/new/deep", "/new/deep/x"]


def test_a_move_takes_no_directory_beyond_the_limits_of_a_path(space: Space) -> None:
    deep = "/" + "/".join("abcdefghijklmnopqrst")
    space.files.make_directory(deep)
    with pytest.raises(TooLarge):
        space.files.move("/a", "/x/y/z/a")
    assert space.files.stat(deep).kind == "directory"


def test_a_purge_beside_a_long_read_erases_all_or_nothing_of_a_thread_or_a_directory(tmp_path: Path) -> None:
    with commonplace.open(tmp_path / "book.db", busy_seconds=0.1, background=False) as book:
        space = book.space("user", "u1")
        space.threads.create(id="t")
        space.threads.add("t", [{"role": "user", "content": "hello"}])
        space.files.write("/d/sub/a.md", "text")
        reading = book.store.export()
        next(reading)
        for place in (("thread", "t"), ("directory", "/d")):
            with pytest.raises(Unavailable, match="the purge is done, but a long read keeps old pages"):
                space.purge(*place)
        reading.close()
        assert space.stats().entries == {}


@pytest.mark.promise("engine-purge")
def test_a_purged_directory_takes_along_what_is_and_was_in_it(space: Space) -> None:
    for path in ("/n/a", "/n/deep/b", "/n/gone", "/nearby"):
        space.files.write(path, "secret")
    space.files.delete("/n/gone")

    assert space.purge("directory", "/n") == 5
    assert [info.path for info in space.files.walk()] == ["/nearby"]
    assert space.history("file", "/n/gone") == []
    assert [hit.key for hit in space.search("secret")] == ["/nearby"]
    with pytest.raises(InvalidInput, match="name one"):
        space.purge("directory")
    with pytest.raises(InvalidInput, match="unknown kind"):
        space.purge("files")


@pytest.mark.promise("limits-before-the-work")
def test_a_result_past_the_limit_is_refused_by_that_limit(open_book: OpenBook) -> None:
    """A replacement was built first, and its refusal named 100,000,000 bytes, which is the limit of nothing here."""
    space = open_book(":memory:", limits=Limits(file_bytes=1_000)).space("user", "u1")
    space.files.write("/f", "é" * 400)
    for write, size in (
        (lambda: space.files.replace("/f", "é", "xyz"), "1,200"),
        (lambda: space.files.append("/f", "é" * 100), "1,001"),
        (lambda: space.files.edit("/f", lambda text: "x" * 2_400_000), "2,400,000"),
        (lambda: space.files.insert("/f", 1, "x" * 200), "1,001"),
    ):
        with pytest.raises(TooLarge, match=f"^/f would have {size} bytes; at most 1,000 are allowed$"):
            write()
    assert space.files.replace("/f", "é", "xy") == 400
    assert space.files.read("/f") == "xy" * 400


def test_a_text_that_stands_in_many_places_is_refused_with_the_first_of_them(space: Space) -> None:
    """To count the lines took the square of the file's size, and the message named each place."""
    space.files.write("/f", "ab\n" * 20_000)
    with pytest.raises(Ambiguous, match=r"occurs 20000 times in /f, in lines 1, 2, 3, .* 99, 100, …; give") as refused:
        space.files.replace("/f", "ab", "x", unique=True)
    assert refused.value.lines == tuple(range(1, 1_001))


def test_a_page_of_files_ends_where_it_is_told_to_however_long_the_texts_are(space: Space) -> None:
    for number in range(60):
        space.files.write(f"/d{number:02}/f", "x" * (900_000 if number % 20 == 0 else 1))
    whole = [info.path for info in space.files.walk()]
    assert len(whole) == 120
    paged, cursor = [], None
    while True:
        page = space.files.page(limit=25, cursor=cursor)
        paged += [info.path for info in page.files]
        cursor = page.cursor
        if cursor is None:
            break
        assert len(page.files) == 25
    assert paged == whole


def test_changes_of_one_file_are_undone_one_after_the_other_the_last_one_first(space):
    """Undoing a change made a revision, and the commit before it counted as changed since."""
    for text in ("one", "two", "three"):
        space.files.write("/notes", text)
    made = {change.commit for change in space.changes()}
    for commit in sorted(made, reverse=True):
        space.undo(commit)
    assert not space.files.exists("/notes")
