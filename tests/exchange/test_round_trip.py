"""Export and import: nothing is lost, nothing is doubled, and a broken file changes nothing."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import commonplace
from commonplace import Book, CommonplaceError, Conflict, InvalidInput, Space
from commonplace.exchange import Imported, export_book
from commonplace.language.edits import apply_edit, edit_between
from commonplace.store import NamespaceHead, State
from doubles import rounds


class Clock:
    """A clock that moves by a millisecond with every look, and further when told."""

    def __init__(self) -> None:
        self.now = 1_800_000_000_000_000

    def __call__(self) -> int:
        self.now += 1_000
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def open_book(clock: Clock) -> Iterator[Callable[..., Book]]:
    opened: list[Book] = []

    def open(path: str | Path = ":memory:") -> Book:
        opened.append(commonplace.open(path, background=False, clock=clock))
        return opened[-1]

    yield open
    for book in opened:
        book.close()


def fill(book: Book, clock: Clock) -> Space:
    """A namespace in which everything has happened."""
    space = book.space("user", "u-1", actor="ana")
    space.files.write("/notes/today", "hello\nworld")
    space.files.append("/notes/today", "ünïcode 漢字 🎉 \u2028 line separator")
    for round in range(70):  # more edits in a row than deltas may follow each other
        space.files.replace("/notes/today", f"world{round or ''}", f"world{round + 1}")
    space.files.move("/notes", "/archive")
    removed = space.files.delete("/archive")
    assert removed.commit is not None
    space.undo(removed.commit)
    space.files.write("/gone", "for ever")
    space.files.delete("/gone")
    space.files.write("/gone", "and back")
    space.restore("file", "/gone", 1)
    space.files.write("/short", "lived", ttl_seconds=0.5)
    space.files.make_directory("/empty")
    first = space.records.create(type="note", content={"n": 1.0, "s": "tea"}, source="s", confidence=0.5, tags=["a"])
    space.records.create(type="note", content={"n": 1, "s": "tea"}, source="s", confidence=0.9, tags=["b"])
    second = space.records.create(type="note", content={"s": "coffee"}, source="s", confidence=1, importance=0.5)
    space.records.update(second.id, content={"n": 1, "s": "tea"})  # the two become one
    space.records.update(first.id, tags=["c"], ttl_seconds=3600)
    thread = space.threads.create(title="Hello")
    space.threads.add(thread.id, [{"role": "user", "content": "what about the budget?"}])
    clock.now += 10_000_000
    space.records.create(type="note", content="after /short has expired", source="s", confidence=1)
    other = book.space("org", "acme", "alpha")
    other.files.write("/x", "y")
    other.purge()
    book.space("org", "zeta").files.write("/still", "here")
    return space


def exported(book: Book) -> bytes:
    stream = io.BytesIO()
    export_book(book.store, stream.write)
    return stream.getvalue()


def imported(book: Book, lines: bytes, **options: Any) -> list[Imported]:
    return list(book.import_lines(io.BytesIO(lines), **options))


def lines_of(lines: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines.split(b"\n")[:-1]]


@pytest.mark.promise("cli-export-lossless")
@pytest.mark.parametrize("where", ["a file", "memory"])
def test_export_then_import_then_export_gives_the_same_bytes(
    open_book: Callable[..., Book], clock: Clock, tmp_path: Path, where: str
) -> None:
    first = open_book(tmp_path / "first.db" if where == "a file" else ":memory:")
    fill(first, clock)
    lines = exported(first)
    second = open_book(tmp_path / "second.db" if where == "a file" else ":memory:")
    assert {one.outcome for one in imported(second, lines)} == {"imported"}
    assert exported(second) == lines
    assert first.verify() == second.verify() == []


def test_an_imported_namespace_answers_as_the_original_did(open_book: Callable[..., Book], clock: Clock) -> None:
    original = fill(open_book(), clock)
    target = open_book()
    imported(target, exported_of(original))
    copy = target.space("user", "u-1")
    for kind, key in (("file", "/archive/today"), ("file", "/gone"), ("file", "/short"), ("directory", "/notes")):
        history = original.history(kind, key)
        assert copy.history(kind, key) == history
        for line in history:
            if line.action not in ("deleted", "expired", "moved_away"):
                was, now = original.state(kind, key, line.revision), copy.state(kind, key, line.revision)
                assert (now.value, now.attributes, now.actor) == (was.value, was.attributes, was.actor)
    assert copy.changes() == original.changes()
    assert copy.records.list() == original.records.list()
    assert list(copy.files.walk()) == list(original.files.walk())


def exported_of(space: Space) -> bytes:
    stream = io.BytesIO()
    export_book(space._handle.store, stream.write)
    return stream.getvalue()


def test_an_imported_namespace_goes_on_where_the_original_stopped(open_book: Callable[..., Book], clock: Clock) -> None:
    original = fill(open_book(), clock)
    target = open_book()
    imported(target, exported_of(original))
    copy = target.space("user", "u-1", actor="ana")
    last = copy.changes()[-1].commit
    for space in (original, copy):
        for round in range(40):
            space.files.append("/gone", f"line {round}")
        space.files.replace("/gone", "line 7", "LINE 7")
    assert copy.changes(last)[0].commit == last + 1
    lines = copy.history("file", "/gone")
    assert [line.revision for line in lines] == [line.revision for line in original.history("file", "/gone")]
    for line in lines[-45:]:
        if line.action == "updated":
            before = original.state("file", "/gone", line.revision).value
            assert copy.state("file", "/gone", line.revision).value == before
    undone = copy.undo(last + 41)
    assert copy.files.read("/gone").count("line 7") == 1
    assert undone == last + 42
    assert target.verify() == []


def test_what_was_imported_is_found_by_its_words(open_book: Callable[..., Book], clock: Clock) -> None:
    target = open_book()
    imported(target, exported_of(fill(open_book(), clock)))
    store = target.store
    from commonplace.filters import Filter

    assert store.search_text(("user", "u-1"), {"tea": 1.0}, Filter(types=("note",)), 5)


@pytest.mark.promise("cli-import-twice")
def test_importing_twice_changes_nothing(open_book: Callable[..., Book], clock: Clock) -> None:
    lines = exported_of(fill(open_book(), clock))
    target = open_book()
    imported(target, lines)
    before = exported(target)
    # A namespace that holds nothing but its counters is empty, so it is taken again.
    assert {(one.namespace, one.outcome) for one in imported(target, lines)} == {
        (("org", "acme", "alpha"), "imported"),
        (("org", "zeta"), "identical"),
        (("user", "u-1"), "identical"),
    }
    assert [line for line in lines_of(exported(target)) if line["line"] == "state"] == [
        line for line in lines_of(before) if line["line"] == "state"
    ]


def test_a_namespace_with_other_entries_is_refused_and_stays_as_it_was(open_book: Callable[..., Book]) -> None:
    source, target = open_book(), open_book()
    source.space("user", "a").files.write("/x", "theirs")
    target.space("user", "a").files.write("/y", "mine")
    before = exported(target)
    with pytest.raises(Conflict, match="user/a has other entries"):
        imported(target, exported(source))
    assert exported(target) == before


def test_merge_adds_what_is_missing_as_one_commit_and_keeps_what_is_there(open_book: Callable[..., Book]) -> None:
    source, target = open_book(), open_book()
    theirs, mine = source.space("user", "a"), target.space("user", "a")
    theirs.files.write("/both", "theirs")
    theirs.files.write("/only/theirs", "new")
    theirs.files.write("/in/the/way", "not wanted")
    theirs.files.write("/gone", "x")
    theirs.files.delete("/gone")
    theirs.records.create(type="note", content="same", source="s", confidence=1, tags=["their"])
    old = theirs.files.stat("/only/theirs")
    mine.files.write("/both", "mine")
    mine.files.write("/in", "a file, not a directory")
    mine.records.create(type="note", content="same", source="s", confidence=1, tags=["my"])
    lines = exported(source)
    (outcome,) = imported(target, lines, merge=True, actor="cli")
    assert outcome == Imported(("user", "a"), "merged", 2, kept=5, differing=5, commit=4)
    assert mine.files.read("/both") == "mine"
    assert mine.files.read("/only/theirs") == "new"
    assert mine.files.stat("/only/theirs").created_at == old.created_at
    assert not mine.files.exists("/gone")
    assert [record.tags for record in mine.records.list().records] == [("my",)]
    assert imported(target, lines, merge=True)[0].commit is None
    assert target.verify() == []
    mine.undo(4)
    assert not mine.files.exists("/only/theirs")


def talk(space: Space, resource: str, thread: str, *said: str) -> None:
    """Begin a thread, with a working memory of its own."""
    space.threads.create(id=thread, resource=resource)
    space.threads.add(thread, [{"id": text, "role": "user", "content": text} for text in said])
    space.threads.working.write({"of": resource}, thread=thread)


def said(space: Space, thread: str) -> list[str]:
    return [message.id for message in space.threads.messages(thread).messages]


def test_merge_puts_nothing_of_one_resource_into_a_thread_of_another(open_book: Callable[..., Book]) -> None:
    source, target = open_book(), open_book()
    theirs, mine = source.space("user", "a"), target.space("user", "a")
    talk(theirs, "ana", "t", "ana's secret")
    talk(theirs, "bob", "u", "one", "two")
    mine.threads.create(id="t", resource="bob")
    talk(mine, "bob", "u", "one")
    (outcome,) = imported(target, exported(source), merge=True)
    assert outcome == Imported(("user", "a"), "merged", 1, kept=6, differing=3, commit=5)
    assert said(mine, "t") == []
    assert mine.threads.working.read(thread="t") is None
    assert sorted(said(mine, "u")) == ["one", "two"]
    assert target.verify() == []


def test_merge_takes_a_thread_with_all_that_is_its_even_where_it_stands_behind_it(
    open_book: Callable[..., Book],
) -> None:
    source, target = open_book(), open_book()
    theirs, mine = source.space("user", "a"), target.space("user", "a")
    talk(theirs, "ana", "t", "one", "two")
    theirs.threads.clone("t", new_id="u", to="bob")
    mine.files.write("/mine", "text")
    (outcome,) = imported(target, exported(source), merge=True)
    assert (outcome.states, outcome.kept) == (8, 0)
    for thread in ("t", "u"):
        assert said(mine, thread) == said(theirs, thread)
        assert mine.threads.get(thread).resource_id == theirs.threads.get(thread).resource_id
        assert mine.threads.working.read(thread=thread).content == {"of": "ana"}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("break_it", "complaint"),
    [
        (lambda lines: lines[: len(lines) // 2], "cut off"),
        (lambda lines: lines.rsplit(b"\n", 2)[0] + b"\n", "cut off"),
        (lambda lines: lines.replace(b'"states":2}', b'"states":3}'), "says that namespace"),
        (lambda lines: lines.replace(b'"version":1', b'"version":2'), "version 2"),
        (lambda lines: lines.replace(b'"kind":"file"', b'"kind":"fiel"'), "unknown kind 'fiel'"),
        (lambda lines: lines.replace(b'"value":"the second"', b'"value":"the\\u0000second"'), "NUL"),
        (lambda lines: lines.replace(b'"revision":1', b'"revision":2'), "not given newest first"),
        (lambda lines: lines.replace(b'"edit":[4,', b'"edit":[900,'), "does not fit"),
        (lambda lines: b"\x00\x01binary\n" + lines, "not JSON"),
        (lambda lines: b"{}\n", "not an export"),
        (lambda lines: b"", "empty"),
    ],
)
def test_a_broken_file_is_refused_and_nothing_of_it_is_imported(
    open_book: Callable[..., Book], break_it: Callable[[bytes], bytes], complaint: str
) -> None:
    source, target = open_book(), open_book()
    source.space("user", "a").files.write("/x", "the first")
    source.space("user", "a").files.write("/x", "the second")
    broken = break_it(exported(source))
    assert broken != exported(source)
    with pytest.raises(InvalidInput, match=complaint):
        imported(target, broken)
    states = [line for line in lines_of(exported(target)) if line["line"] == "state"]
    # Only a file that misses nothing but its footer is known to be cut off after its namespaces are in.
    assert states == [] or b'"line":"end"' in broken
    assert target.verify() == []


def _line_of(kind: str, **fields: Any) -> Callable[[list[dict[str, Any]]], None]:
    """Changes the first line of a kind of entry, or the line of the namespace."""

    def change(lines: list[dict[str, Any]]) -> None:
        next(line for line in lines if kind in (line["line"], line.get("kind"))).update(fields)

    return change


def _ended_with(**fields: Any) -> Callable[[list[dict[str, Any]]], None]:
    def change(lines: list[dict[str, Any]]) -> None:
        next(line["ended"] for line in lines if "ended" in line).update(fields)

    return change


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (_line_of("namespace", commit=2**63 - 1), 'line 2 .*"commit"'),
        (_line_of("namespace", commit=10**30), 'line 2 .*"commit"'),
        (_line_of("namespace", commit_at=2**63 - 1), 'line 2 .*"commit_at"'),
        (_line_of("namespace", commit_at=253_402_300_799_999_999), 'line 2 .*"commit_at"'),
        (_line_of("namespace", commit_at=-62_135_596_800_000_001), 'line 2 .*"commit_at"'),
        (_line_of("namespace", namespace="user/\ud800"), "line 2 .*surrogate"),
        (_line_of("file", revision=10**30), 'line 4 .*"revision"'),
        (_line_of("file", commit=10**30), 'line 4 .*"commit"'),
        (_line_of("file", commit=-5), 'line 4 .*"commit"'),
        (_line_of("file", entry=10**30), 'line 4 .*"entry"'),
        (_line_of("file", created_at=2**62), 'line 4 .*"created_at"'),
        (_line_of("file", updated_at=-(2**62)), 'line 4 .*"updated_at"'),
        (_line_of("file", expires_at=10**30), 'line 4 .*"expires_at"'),
        (_line_of("file", at=2**62), 'line 4 .*"at"'),
        (_line_of("file", path="/../../etc/x"), "line 4 .*not allowed"),
        (_line_of("file", path="rel"), "line 4 .*'rel'"),
        (_line_of("file", path="/"), "line 4 .*'/'"),
        (_line_of("file", path="/notes//x"), "line 4 .*'/notes//x'"),
        (_line_of("file", path="/notes/e\u0301"), "line 4 .*normal form"),
        (_line_of("directory", path="/notes/"), "line 3 .*'/notes/'"),
        (_line_of("file", value={"a": 1}, text="a"), "line 4 .*text"),
        (_line_of("record", attributes={}), 'line 6 .*"type"'),
        (_line_of("record", attributes={"type": "t", "source": "s", "tags": [], "confidence": True}), "confidence"),
        (_line_of("record", attributes={"type": "t", "source": "s", "tags": [1], "confidence": 1}), "line 6 .*tags"),
        (
            _line_of("record", attributes={"type": "t", "source": "s", "tags": [], "confidence": 1, "importance": "x"}),
            "importance",
        ),
        (
            _line_of("record", attributes={"type": "t", "source": "s", "tags": [], "confidence": 5}),
            "confidence.*0 to 1",
        ),
        (
            _line_of("record", attributes={"type": "t", "source": "s", "tags": [], "confidence": 1, "importance": -1}),
            "importance.*0 to 1",
        ),
        (_line_of("thread", attributes={"resourceId": "r", "metadata": {}}), 'line 7 .*"title"'),
        (_line_of("message", attributes={"role": "user", "threadId": "t"}), 'line 8 .*"resourceId"'),
        (_line_of("message", value="text"), "line 8 .*object"),
        (_line_of("working", value=[1]), "line 9 .*working memory"),
        (_line_of("working", value=1), "line 9 .*working memory"),
        (_line_of("working", value=True), "line 9 .*working memory"),
        (_line_of("working", value=None), "line 9 .*working memory"),
        (_ended_with(actor="\ud800"), "line 5 .*surrogate"),
        (_ended_with(commit=10**30), 'line 5 .*"commit"'),
        (_ended_with(at=2**62), 'line 5 .*"at"'),
    ],
)
def test_what_nothing_else_may_write_is_not_imported_either(
    open_book: Callable[..., Book], change: Callable[[list[dict[str, Any]]], None], complaint: str
) -> None:
    source, target = open_book(), open_book()
    space = source.space("user", "a")
    space.files.write("/notes/x", "the first")
    space.files.write("/notes/x", "the second")
    space.records.create(type="t", content={"a": 1}, source="s", confidence=0.5, tags=["q"])
    space.threads.add(space.threads.create(id="t").id, [{"role": "user", "content": "hello"}])
    space.threads.working.write({"name": "Ada"})
    lines = lines_of(exported(source))
    change(lines)
    with pytest.raises(InvalidInput, match=complaint):
        imported(target, b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    assert target.namespaces() == []
    assert target.verify() == []


def test_a_line_that_is_nested_without_end_is_refused(open_book: Callable[..., Book]) -> None:
    nested = b'{"line":"header","deep":' + b"[" * 200_000 + b"]" * 200_000 + b"}\n"
    with pytest.raises(InvalidInput, match="line 1 is nested too deep"):
        imported(open_book(), nested)


def test_one_namespace_of_a_file_can_be_imported_alone(open_book: Callable[..., Book]) -> None:
    source, target = open_book(), open_book()
    source.space("user", "a").files.write("/x", "a")
    source.space("user", "b").files.write("/x", "b")
    assert [one.namespace for one in imported(target, exported(source), only=("user", "b"))] == [("user", "b")]
    assert target.namespaces() == [("user", "b")]
    with pytest.raises(InvalidInput, match="no namespace user/c"):
        imported(target, exported(source), only=("user", "c"))


def test_an_import_into_a_purged_namespace_never_takes_commit_numbers_back(open_book: Callable[..., Book]) -> None:
    source, target = open_book(), open_book()
    source.space("user", "a").files.write("/x", "a")
    used = target.space("user", "a")
    for number in range(9):
        used.files.write("/y", str(number))
    used.purge()
    before = used.stats().commit
    imported(target, exported(source))
    assert used.files.read("/x") == "a"
    used.files.write("/x", "b")
    assert used.stats().commit == before + 2
    with pytest.raises(Conflict, match="no longer reaches back"):
        used.changes(before)
    assert [change.key for change in used.changes(before + 1)] == ["/x"]


def test_many_appends_make_a_small_export(open_book: Callable[..., Book]) -> None:
    source = open_book()
    space = source.space("user", "a")
    for number in range(300):
        space.files.append("/log", f"{number:06} something happened in the world today")
    lines = exported(source)
    assert len(lines) < 300 * 500
    target = open_book()
    imported(target, lines)
    assert exported(target) == lines


@given(st.text(alphabet="ab\n漢", max_size=30), st.text(alphabet="ab\n漢", max_size=30))
@settings(max_examples=rounds(300))
def test_an_edit_always_gives_the_older_text_back(newer: str, older: str) -> None:
    edit = edit_between(newer, older)
    assert (older if edit is None else apply_edit(newer, edit)) == older


def test_an_export_is_one_moment_even_when_the_book_is_written_to_meanwhile(
    open_book: Callable[..., Book], tmp_path: Path
) -> None:
    book = open_book(tmp_path / "busy.db")
    space = book.space("user", "a")
    for number in range(5):
        space.files.write(f"/{number}", "before")
    before = exported(book)
    parts: list[bytes] = []

    def write(line: bytes) -> None:
        parts.append(line)
        if len(parts) > 1:  # the moment is that of the first line after the header
            space.files.write(f"/{len(parts)}", "meanwhile")

    export_book(book.store, write)
    assert b"".join(parts) == before


def test_a_write_that_has_to_be_repeated_imports_everything_all_the_same(
    open_book: Callable[..., Book], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = open_book(), open_book()
    fill(source, clock)
    adopt = target.store.adopt

    def adopt_twice(head: NamespaceHead, read: Callable[[], Iterable[State]], check: Any) -> int:
        next(iter(read()), None)  # a first run that was taken back half-way
        return adopt(head, read, check)

    monkeypatch.setattr(target.store, "adopt", adopt_twice)
    imported(target, exported(source))
    assert exported(target) == exported(source)


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_import_that_is_interrupted_leaves_its_namespace_as_it_was(
    open_book: Callable[..., Book], clock: Clock, tmp_path: Path, error: type[BaseException]
) -> None:
    source, target = open_book(), open_book(tmp_path / "target.db")
    fill(source, clock)
    lines = exported(source)

    class Interrupted(io.BytesIO):
        def readline(self, size: int | None = -1) -> bytes:
            if self.tell() > len(lines) // 2:
                raise error
            return super().readline(size)

    with pytest.raises(error):
        list(target.import_lines(Interrupted(lines)))
    assert ("user", "u-1") not in target.namespaces()
    assert target.verify() == []
    assert {one.outcome for one in imported(target, lines)} == {"imported", "identical"}
    assert exported(target) == lines


PATHS = st.sampled_from(["/a", "/b", "/d/a", "/d/e/f", "/ü"])
TEXTS = st.text(alphabet="ab \n漢é🎉\x01", max_size=40)
OPERATIONS = st.one_of(
    st.tuples(st.just("write"), PATHS, TEXTS, st.sampled_from([None, 0.002, 60.0])),
    st.tuples(st.just("append"), PATHS, TEXTS),
    st.tuples(st.just("replace"), PATHS, st.sampled_from(["a", " ", "漢"]), TEXTS),
    st.tuples(st.just("move"), PATHS | st.just("/d"), PATHS | st.just("/m")),
    st.tuples(st.just("delete"), PATHS | st.sampled_from(["/d", "/"])),
    st.tuples(st.just("record"), st.sampled_from(["x", "y", "z"]), st.sampled_from(["p", "q"])),
    st.tuples(st.just("edit"), st.integers(0, 5), st.sampled_from(["x", "y", "z"])),
    st.tuples(st.just("undo"), st.integers(1, 30)),
    st.tuples(st.just("restore"), PATHS, st.integers(1, 6)),
)


def apply(space: Space, operation: tuple[Any, ...]) -> None:
    name, *arguments = operation
    if name == "write":
        space.files.write(arguments[0], arguments[1], ttl_seconds=arguments[2])
    elif name in ("append", "replace", "move", "delete"):
        getattr(space.files, name)(*arguments)
    elif name == "record":
        space.records.create(type="n", content=arguments[0], source="s", confidence=1, tags=[arguments[1]])
    elif name == "edit":
        known = space.records.list().records
        if known:
            space.records.update(known[arguments[0] % len(known)].id, content=arguments[1])
    elif name == "undo":
        space.undo(arguments[0])
    else:
        space.restore("file", arguments[0], arguments[1])


@given(st.lists(OPERATIONS, min_size=20, max_size=40))
@settings(max_examples=rounds(60), deadline=None)
def test_whatever_happened_in_a_namespace_comes_back_the_same(operations: list[tuple[Any, ...]]) -> None:
    clock = Clock()
    with (
        commonplace.open(":memory:", background=False, clock=clock) as source,
        commonplace.open(":memory:", background=False, clock=clock) as target,
    ):
        for operation in operations:
            with contextlib.suppress(CommonplaceError):
                apply(source.space("user", "a"), operation)
        lines = exported(source)
        imported(target, lines)
        assert exported(target) == lines
        assert target.verify() == []
