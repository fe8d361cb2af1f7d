"""A folder of Markdown: it imports back without loss of content, follows the feed, and leaves what others wrote."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commonplace import Book, Space
from commonplace.book import open_book
from commonplace.cli import main
from commonplace.errors import AlreadyExists
from commonplace.exchange.markdown import MarkdownFolder
from commonplace.exchange.memory_programs import server_memory_lines

HERE = ("user", "ana")
NASTY = '<!-- message {"id":"x"} -->\n\\<!-- message x\n---\n```json\nline\r\n\n\n'


@pytest.fixture
def book() -> Iterator[Book]:
    with open_book(":memory:", background=False) as opened:
        yield opened


@pytest.fixture
def space(book: Book) -> Space:
    return book.space(*HERE)


def contents(book: Book) -> list[dict[str, Any]]:
    """Everything live but numbers of commits and revisions."""
    lines: list[bytes] = []
    book.export(lines.append, namespaces=[HERE])
    states = [json.loads(line) for line in lines]
    kept = [
        {name: value for name, value in state.items() if name not in ("entry", "revision", "commit", "at", "actor")}
        for state in states
        if state["line"] == "state" and "ended" not in state and state["kind"] != "directory"
    ]
    for state in kept:
        state.pop("action")
        state.pop("actor", None)
    return sorted(kept, key=lambda state: json.dumps(state, sort_keys=True))


def filled(space: Space) -> None:
    space.files.write("/notes/today.md", NASTY)
    space.files.write("/.hidden/é.txt", "no newline at the end")
    space.records.create(type="note", content=NASTY, source="me", confidence=0.5, tags=["a:b"], id="odd/../id%")
    space.records.create(type="fact", content={"n": [1, 2.5, None], "text": NASTY}, source="me", confidence=1)
    space.threads.create("A title\nof two lines", id="t/1", metadata={"x": {"y": [1]}}, resource="bob")
    space.threads.add(
        "t/1",
        [
            {"id": "m1", "role": "user", "content": NASTY, "name": "Ana -->"},
            {"id": "m2", "role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": {"name": "f"}}]},
            {"id": "m3", "role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "ok"}]},
            {"id": "m4", "role": "assistant", "content": ""},
        ],
    )
    space.threads.working.write("# About Bob\n", resource="bob")


@pytest.mark.promise("export-markdown")
def test_a_folder_imports_back_without_loss_of_content(book: Book, space: Space, tmp_path: Path):
    filled(space)
    written = MarkdownFolder(tmp_path / "out", HERE).write(book.store)
    assert written.files == 7
    assert (tmp_path / "out/files/notes/today.md").read_bytes() == NASTY.encode()
    assert "A title of two lines" in (tmp_path / "out/README.md").read_text()
    with open_book(":memory:", background=False) as other:
        report = other.import_memory(tmp_path / "out", HERE)
        assert (report.formats, report.unreadable, report.reasons) == (("commonplace-markdown",), 0, ())
        assert contents(other) == contents(book)
        again = other.import_memory(tmp_path / "out", HERE)
        assert (again.added, again.updated, again.differing) == (0, 0, 0)


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=60)
MARKED = st.lists(st.sampled_from(["<!-- message ", "{}", " -->", "\n", "\\", "---", "```json", "a"]), max_size=12)


@settings(max_examples=60, deadline=None)
@given(texts=st.lists(TEXTS | MARKED.map("".join), min_size=1, max_size=4), title=TEXTS)
def test_any_text_survives_the_way_there_and_back(tmp_path_factory: Any, texts: list[str], title: str):
    folder = tmp_path_factory.mktemp("markdown")
    with open_book(":memory:", background=False) as book, open_book(":memory:", background=False) as other:
        space = book.space(*HERE)
        thread = space.threads.create("t")
        space.threads.add(thread.id, [{"role": "user", "content": text, "note": title} for text in texts])
        for number, text in enumerate(texts):
            space.files.write(f"/{number}.md", text)
            space.records.create(type="note", content=text, source=str(number), confidence=1)
        MarkdownFolder(folder, HERE).write(book.store)
        assert other.import_memory(folder, HERE).unreadable == 0
        assert contents(other) == contents(book)


def test_a_second_write_changes_only_what_is_new_and_removes_what_is_gone(book: Book, space: Space, tmp_path: Path):
    filled(space)
    folder = tmp_path / "out"
    MarkdownFolder(folder, HERE).write(book.store)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    assert MarkdownFolder(folder, HERE).write(book.store).files == 0
    space.files.delete("/.hidden")
    space.files.write("/notes/new.md", "new")
    written = MarkdownFolder(folder, HERE).write(book.store)
    assert (written.files, written.removed, written.foreign) == (2, 1, ())
    assert not (folder / "files/.hidden").exists()
    changed = {path.name for path, at in before.items() if path.exists() and path.stat().st_mtime_ns != at}
    assert changed == {"README.md", ".commonplace.json"}


@pytest.mark.promise("export-markdown-manifest")
def test_files_of_others_are_left_alone(book: Book, space: Space, tmp_path: Path):
    space.files.write("/mine.md", "one")
    space.files.write("/gone.md", "one")
    folder = tmp_path / "out"
    MarkdownFolder(folder, HERE).write(book.store)
    (folder / "files/mine.md").write_text("edited there")
    (folder / "files/gone.md").write_text("edited there")
    (folder / "theirs.md").write_text("theirs")
    (folder / "files/next.md").write_text("theirs")
    outside = tmp_path / "outside"
    outside.mkdir()
    (folder / "files/link").symlink_to(outside)
    space.files.write("/mine.md", "two")
    space.files.write("/next.md", "two")
    space.files.write("/link/x.md", "two")
    space.files.delete("/gone.md")
    written = MarkdownFolder(folder, HERE).write(book.store)
    assert sorted(written.foreign) == ["files/gone.md", "files/link/x.md", "files/mine.md", "files/next.md"]
    assert (folder / "files/mine.md").read_text() == (folder / "files/gone.md").read_text() == "edited there"
    assert (folder / "theirs.md").read_text() == (folder / "files/next.md").read_text() == "theirs"
    assert list(outside.iterdir()) == []
    with pytest.raises(AlreadyExists, match="not empty"):
        MarkdownFolder(outside.parent, HERE)
    with pytest.raises(AlreadyExists, match="has the namespace user/ana"):
        MarkdownFolder(folder, ("user", "bob"))


@pytest.mark.promise("export-markdown-manifest")
def test_a_manifest_that_names_files_outside_removes_nothing_there(book: Book, space: Space, tmp_path: Path):
    victim = tmp_path / "elsewhere" / "notes.txt"
    victim.parent.mkdir()
    victim.write_text("keep me")
    folder = tmp_path / "out"
    MarkdownFolder(folder, HERE).write(book.store)
    manifest = folder / ".commonplace.json"
    written = json.loads(manifest.read_text())
    hashed = {"sha256": hashlib.sha256(b"keep me").hexdigest()}
    written["files"] = {str(victim): hashed, "../elsewhere/notes.txt": hashed}
    manifest.write_text(json.dumps(written))
    MarkdownFolder(folder, HERE).write(book.store)
    assert victim.read_text() == "keep me"


def test_an_edited_file_comes_back_as_a_new_revision(book: Book, space: Space, tmp_path: Path):
    record = space.records.create(type="note", content="one", source="me", confidence=1)
    folder = tmp_path / "out"
    MarkdownFolder(folder, HERE).write(book.store)
    (file,) = (folder / "records").iterdir()
    file.write_text(file.read_text().replace("\none\n", "\ntwo\n"))
    later = record.updated_at.timestamp() + 60
    os.utime(file, (later, later))
    (folder / "idea.md").write_text("a new note")
    report = book.import_memory(folder, HERE)
    assert (report.updated, report.files, report.differing) == (1, 1, 0)
    assert space.records.get(record.id).content == "two"
    assert space.files.read("/idea.md") == "a new note"


@pytest.mark.promise("export-markdown-watch")
def test_watch_keeps_a_folder_current(tmp_path: Path):
    url = tmp_path / "book.db"
    with open_book(url, background=False) as book:
        space = book.space(*HERE)
        space.files.write("/a.md", "one")
        thread = space.threads.create("talk", id="t1")
        command = [sys.executable, "-m", "commonplace.cli", "--db", str(url), "--namespace", "user/ana", "export"]
        program = subprocess.Popen(
            [*command, "--format", "markdown", str(tmp_path / "out"), "--watch"], stdout=subprocess.PIPE, text=True
        )
        try:
            assert program.stdout is not None
            assert "wrote 3 files" in program.stdout.readline()
            space.threads.add(thread.id, [{"role": "user", "content": "hello there"}])
            assert "commit 3" in program.stdout.readline()
            assert "hello there" in (tmp_path / "out/threads/t1.md").read_text()
            space.files.move("/a.md", "/b.md")
            assert "removed 1" in program.stdout.readline()
            assert (tmp_path / "out/files/b.md").read_text() == "one"
            assert not (tmp_path / "out/files/a.md").exists()
        finally:
            program.send_signal(signal.SIGTERM)
            program.wait(10)
    assert json.loads((tmp_path / "out/.commonplace.json").read_text())["commit"] == 4


@pytest.mark.promise("export-server-memory")
def test_records_are_written_as_server_memory_reads_them(book: Book, space: Space, tmp_path: Path):
    samples = Path(__file__).parent / "samples"
    book.import_memory(samples / "server-memory/memory.jsonl", HERE)
    lines = [json.loads(line) for line in book.store.read(HERE, lambda reader: list(server_memory_lines(reader)))]
    given = [json.loads(line) for line in (samples / "server-memory/memory.jsonl").read_text().splitlines()]
    assert sorted(map(str, lines)) == sorted(map(str, given))
    space.records.create(type="preference", content="short answers", source="me", confidence=1)
    again = [json.loads(line) for line in book.store.read(HERE, lambda reader: list(server_memory_lines(reader)))]
    entity = {"type": "entity", "name": "preference", "entityType": "preference", "observations": ["short answers"]}
    assert [line for line in again if line not in lines] == [entity]


def test_the_command_line_exports_and_says_what_it_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    url = str(tmp_path / "book.db")
    assert main(["--db", url, "add", "--file", "/a.md", "one"]) == 0
    assert main(["--db", url, "export", "--format", "markdown", str(tmp_path / "out")]) == 0
    (tmp_path / "out/files/a.md").write_text("edited")
    assert main(["--db", url, "add", "--file", "/a.md", "two"]) == 0
    assert main(["--db", url, "export", "--format", "markdown", str(tmp_path / "out")]) == 4
    assert "left alone, because it was changed by somebody else: files/a.md" in capsys.readouterr().err
    assert main(["--db", url, "export", "--format", "markdown", str(tmp_path / "out"), "--force"]) == 0
    assert "two" in (tmp_path / "out/files/a.md").read_text()
    assert main(["--db", url, "export", "--format", "markdown"]) == 2
    assert main(["--db", url, "export", "--watch"]) == 2
