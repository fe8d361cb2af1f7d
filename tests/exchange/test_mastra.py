"""Taking over a Mastra memory: everything comes in with its ids and times, once, and damage stops nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import pytest

from commonplace import InvalidInput, NotFound
from commonplace.cli import main
from commonplace.exchange.mastra import MastraImport, import_mastra
from commonplace.redaction import Redactor
from commonplace.space.messages import Message

# As @mastra/libsql 1.23 makes them; 0.16 differs in the type of the resources' metadata (JSONB) only.
SCHEMA = """
CREATE TABLE mastra_threads (
  "id" TEXT NOT NULL PRIMARY KEY, "resourceId" TEXT NOT NULL, "title" TEXT NOT NULL, "metadata" TEXT,
  "createdAt" TEXT NOT NULL, "updatedAt" TEXT NOT NULL
);
CREATE TABLE mastra_messages (
  "id" TEXT NOT NULL PRIMARY KEY, "thread_id" TEXT NOT NULL, "content" TEXT NOT NULL, "role" TEXT NOT NULL,
  "type" TEXT NOT NULL, "createdAt" TEXT NOT NULL, "resourceId" TEXT
);
CREATE TABLE mastra_resources (
  "id" TEXT NOT NULL PRIMARY KEY, "workingMemory" TEXT, "metadata" TEXT, "createdAt" TEXT NOT NULL,
  "updatedAt" TEXT NOT NULL
);
"""
AT = "2026-11-15T12:23:18.766Z"
TIME = datetime(2026, 11, 15, 12, 23, 18, 766_000, UTC)
LATER = "2026-11-15T12:24:00.000Z"
SECRET = "AKIAIOSFODNN7EXAMPLE"
TOOL = {
    "type": "tool-invocation",
    "toolInvocation": {"state": "result", "toolCallId": "c1", "toolName": "runbook", "args": {}, "result": "blue"},
}
ASKED = {"format": 2, "parts": [{"type": "text", "text": "How do we deploy?"}], "content": "How do we deploy?"}
ANSWERED = {"format": 2, "parts": [{"type": "step-start"}, TOOL, {"type": "text", "text": "Blue/green."}]}


class MemoryFile:
    """A Mastra memory, written as its LibSQLStore writes it."""

    def __init__(self, path: Path, schema: str = SCHEMA) -> None:
        self.path = path
        self.connection = apsw.Connection(str(path))
        self.connection.execute(f"PRAGMA journal_mode = WAL; {schema}").fetchall()
        self.connection.execute("BEGIN")

    def thread(self, id: Any, resource: Any = "user-1", title: Any = "", metadata: Any = None, at: Any = AT) -> None:
        # Since 1.0 metadata is SQLite's binary JSON.
        self.connection.execute(
            "INSERT INTO mastra_threads VALUES (?, ?, ?, jsonb(?), ?, ?)",
            (id, resource, title, None if metadata is None else json.dumps(metadata), at, LATER),
        )

    def message(self, id: Any, thread: Any, content: Any, role: Any = "user", kind: Any = "v2", at: Any = AT) -> None:
        written = json.dumps(content, ensure_ascii=False) if isinstance(content, (dict, list)) else content
        self.connection.execute(
            "INSERT INTO mastra_messages VALUES (?, ?, ?, ?, ?, ?, ?)", (id, thread, written, role, kind, at, "user-1")
        )

    def resource(self, id: Any, working: Any) -> None:
        self.connection.execute("INSERT INTO mastra_resources VALUES (?, ?, jsonb('{}'), ?, ?)", (id, working, AT, AT))

    def saved(self) -> Path:
        self.connection.execute("COMMIT; BEGIN")
        return self.path


@pytest.fixture
def memory(tmp_path: Path) -> MemoryFile:
    return MemoryFile(tmp_path / "mastra.db")


@pytest.fixture
def take(book, space) -> Callable[..., MastraImport]:
    return lambda path, **options: import_mastra(book.store, space.namespace, path, **options)


def fill(memory: MemoryFile) -> Path:
    memory.thread("t1", title="Deploys", metadata={"a": 1, "gone": None})
    memory.thread("t2", resource="user-2")
    memory.message("m1", "t1", ASKED)
    memory.message("m2", "t1", ANSWERED, role="assistant")
    memory.message("m3", "t1", {"format": 2, "parts": [{"type": "text", "text": "Thanks"}]}, at=LATER)
    memory.message("m4", "t2", "plain text")
    memory.resource("user-1", "# Facts\n- **Name**: Ann\n")
    memory.resource("user-2", json.dumps({"keyContext": ["prefers tea"]}))
    memory.resource("user-3", None)
    return memory.saved()


@pytest.mark.promise("mastra-import-keeps-everything")
def test_threads_messages_and_working_memories_come_with_their_ids_and_times(memory, take, space):
    assert take(fill(memory)) == MastraImport(threads=2, messages=4, working_memories=2)

    thread = space.threads.get("t1", resource="user-1")
    assert (thread.title, thread.metadata, thread.created_at) == ("Deploys", {"a": 1}, TIME)
    assert thread.updated_at == datetime.fromisoformat(LATER)
    assert space.threads.get("t2").title is None
    messages = space.threads.messages("t1").messages
    assert messages[:2] == (
        Message("m1", "t1", "user-1", "user", ASKED, TIME, {}),
        Message("m2", "t1", "user-1", "assistant", ANSWERED, TIME, {}),
    )
    assert [message.id for message in messages] == ["m1", "m2", "m3"]
    assert space.threads.get_message("m4").content == "plain text"
    assert space.threads.working.read(resource="user-1").content == "# Facts\n- **Name**: Ann\n"
    assert space.threads.working.read(resource="user-2").content == {"keyContext": ["prefers tea"]}
    assert space.threads.working.read(resource="user-3") is None
    assert [hit.key for hit in space.search("blue/green", limit=1)] == ["m2"]


@pytest.mark.promise("mastra-import-twice")
def test_a_second_import_changes_nothing_and_takes_only_what_is_new(memory, take, space):
    take(fill(memory))
    before = space.stats()

    assert take(memory.saved()) == MastraImport(kept=8)
    assert space.stats() == before

    memory.message("m5", "t2", "new")
    assert take(memory.saved()) == MastraImport(messages=1, kept=8)


@pytest.mark.promise("mastra-import-twice")
def test_what_was_changed_here_stays_and_is_counted(memory, take, space):
    take(fill(memory))
    space.threads.update("t1", title="Ours")
    space.threads.update_message("m4", content="ours")
    space.threads.working.write("# Facts\n- **Name**: Bea", resource="user-1")

    assert take(memory.saved()) == MastraImport(kept=8, differing=3)
    assert space.threads.get("t1").title == "Ours"
    assert space.threads.get_message("m4").content == "ours"


@pytest.mark.promise("mastra-import-twice")
def test_an_import_that_was_cut_off_has_whole_conversations_and_goes_on(memory, take, space):
    fill(memory)
    seen: list[int] = []

    def stop(done: int, total: int | None, label: str) -> None:
        seen.append(done)
        if done >= 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        take(memory.path, progress=stop)
    assert (seen, space.stats().entries) == ([4], {"thread": 1, "message": 3})

    steps: list[tuple[int, int | None, str]] = []
    assert take(memory.path, progress=lambda *step: steps.append(step)).messages == 1
    assert steps[-1] == (9, 9, "rows")
    assert [message.id for message in space.threads.messages("t1").messages] == ["m1", "m2", "m3"]


def test_each_conversation_is_one_commit_and_the_import_is_undone(memory, book, space):
    """A commit had up to 500 rows of many threads, so no conversation could be undone alone."""
    fill(memory)
    memory.thread("t3", metadata={"workingMemory": "# Notes"})
    memory.message("m0", "t3", "interleaved")
    memory.message("m6", "t1", "the last")
    path = memory.saved()
    dry = book.import_memory(path, space.namespace, dry_run=True)
    assert (dry.threads, dry.messages, dry.working_memories, dry.commits) == (3, 6, 3, ())
    assert dry.samples == (
        "thread 'Deploys' with 4 messages",
        "thread 't2' with 1 messages",
        "thread 't3' with 1 messages",
    )
    report = book.import_memory(path, space.namespace)
    (commits,) = report.commits
    assert (report.threads, report.messages, report.working_memories, commits.count) == (3, 6, 3, 4)
    for number in range(commits.first, commits.first + 3):
        changed = [change for change in space.changes(number - 1, 1) if change.commit == number]
        assert sum(change.kind == "thread" for change in changed) == 1
    space.undo(commits.first)
    assert sorted(thread.id for thread in space.threads.list().threads) == ["t2", "t3"]
    again = book.import_memory(path, space.namespace)
    assert (again.added, again.deleted_here) == (0, 1)
    assert book.import_memory(path, space.namespace, again=True).messages == 4
    later = book.import_memory(path, space.namespace, dry_run=True)
    assert (later.added, later.kept) == (0, 12)


def test_what_was_deleted_here_since_comes_in_again(memory, take, space):
    take(fill(memory))
    space.threads.delete_messages(["m1"])
    space.threads.delete("t2")
    assert take(memory.path) == MastraImport(threads=1, messages=2, kept=5)
    assert {message.id for message in space.threads.messages("t1").messages} == {"m1", "m2", "m3"}


def test_messages_of_the_same_moment_stay_in_the_order_in_which_they_were_saved(memory, take, space):
    memory.thread("t1")
    for number in range(30):
        memory.message(f"m{29 - number}", "t1", str(number))
    take(memory.saved())
    assert [message.content for message in space.threads.messages("t1").messages] == [str(n) for n in range(30)]


@pytest.mark.promise("mastra-import-damage")
def test_damaged_rows_are_told_of_and_stop_nothing(memory, take, space):
    """A thread whose metadata could not be read was left out, and all of its messages with it."""
    memory.thread("t1")
    memory.thread("bad-time", at="yesterday")
    memory.connection.execute("INSERT INTO mastra_threads VALUES ('bad-json', 'r', '', '{not', ?, ?)", (AT, AT))
    memory.thread("bad-metadata", metadata=[1])
    memory.message("m1", "t1", "kept")
    memory.message("orphan", "nowhere", "x")
    memory.message("no-role", "t1", "x", role="")
    memory.message("surrogate", "t1", '{"format": 2, "parts": [{"type": "text", "text": "\\ud800"}]}')
    memory.message("", "t1", "x")
    memory.message("bytes", "t1", "x")
    memory.connection.execute("UPDATE mastra_messages SET content = CAST(x'fffe41' AS TEXT) WHERE id = 'bytes'")
    memory.message("system", "t1", "You are helpful.", role="system")
    memory.resource("user-1", b"\xff\x00")

    found = take(memory.saved())

    assert (found.threads, found.messages, found.left_out, found.damaged) == (3, 1, 1, 9)
    told = "\n".join(found.reasons)
    for part in (
        "mastra_threads bad-time: 'yesterday' is not a time",
        "the metadata of mastra_threads bad-json: metadata is not JSON",
        "the metadata of mastra_threads bad-metadata: metadata must be an object",
        "mastra_messages orphan: its thread nowhere does not exist",
        "mastra_messages no-role: message 1: role is required",
        "mastra_messages surrogate: message 1 contains a lone surrogate",
        "mastra_messages : id is required",
        "mastra_messages bytes: 'utf-8' codec",
        "mastra_resources user-1",
    ):
        assert part in told
    assert [message.content for message in space.threads.messages("t1").messages] == ["kept"]
    assert [space.threads.get(id).metadata for id in ("bad-json", "bad-metadata")] == [{}, {}]


@pytest.mark.promise("mastra-import-keeps-everything")
def test_signals_come_in_and_a_users_is_a_users_message(memory, take, space):
    memory.thread("t1")
    kinds = {"m1": "user", "m2": "user-message", "m3": "reactive"}
    contents = {
        id: {"format": 2, "parts": [{"type": "text", "text": "zebra"}], "metadata": {"signal": {"type": kind}}}
        for id, kind in kinds.items()
    }
    for id, kind in kinds.items():
        memory.message(id, "t1", contents[id], role="signal", kind=kind)

    assert take(memory.saved()) == MastraImport(threads=1, messages=3)
    assert take(memory.path) == MastraImport(kept=4)

    assert space.threads.messages("t1").messages == (
        Message("m1", "t1", "user-1", "user", contents["m1"], TIME, {"type": "user"}),
        Message("m2", "t1", "user-1", "user", contents["m2"], TIME, {"type": "user-message"}),
        Message("m3", "t1", "user-1", "signal", contents["m3"], TIME, {"type": "reactive"}),
    )
    assert {hit.key for hit in space.search("zebra")} == {*kinds}
    assert [message["role"] for message in space.threads.context("t1").messages] == ["user", "user", "signal"]


def test_only_the_first_reasons_are_kept(memory, take):
    memory.thread("t1")
    for number in range(50):
        memory.message(f"m{number}", "nowhere", "x")
    found = take(memory.saved())
    assert (found.damaged, len(found.reasons)) == (50, 10)


@pytest.mark.promise("mastra-import-damage")
@pytest.mark.parametrize("title", ["x" * 2_001, "a\x00b"])
def test_a_thread_whose_title_cannot_be_kept_comes_without_it(memory, take, space, title):
    memory.thread("t1", title=title)
    memory.message("m1", "t1", "kept")
    found = take(memory.saved())
    assert (found.threads, found.messages, found.damaged) == (1, 1, 1)
    assert found.reasons[0].startswith("the title of mastra_threads t1: title ")
    assert space.threads.get("t1").title is None
    assert take(memory.path).differing == 0


def test_older_shapes_are_read_snake_case_numbers_and_texts(tmp_path, take, space):
    memory = MemoryFile(
        tmp_path / "old.db",
        "CREATE TABLE mastra_threads (id TEXT, resource_id TEXT, title TEXT, metadata TEXT, created_at, updated_at);"
        "CREATE TABLE mastra_messages (id TEXT, thread_id TEXT, content TEXT, role TEXT, type TEXT, created_at);",
    )
    execute = memory.connection.execute
    working = json.dumps({"workingMemory": "# Facts\n- tea", "b": 2})
    execute("INSERT INTO mastra_threads VALUES ('t', 'r', NULL, ?, 1700000000000, NULL)", (working,))
    rows = [
        ("m1", '"quoted"', "text", 1_700_000_000_000),
        ("m2", "[1, 2", "text", "2023-11-14 22:13:20"),
        ("m3", "42", "v2", "2023-11-14T22:13:20.5+00:00"),
        ("m4", '[{"type": "text", "text": "part"}]', "tool-call", 1_700_000_001),
    ]
    for id, content, kind, at in rows:
        execute("INSERT INTO mastra_messages VALUES (?, 't', ?, 'user', ?, ?)", (id, content, kind, at))

    assert take(memory.saved()) == MastraImport(threads=1, messages=4, working_memories=1)

    messages = space.threads.messages("t").messages
    assert [(message.content, message.extra) for message in messages] == [
        ("quoted", {"type": "text"}),
        ("[1, 2", {"type": "text"}),
        ("42", {}),
        ([{"type": "text", "text": "part"}], {"type": "tool-call"}),
    ]
    assert [message.created_at.timestamp() - 1_700_000_000 for message in messages] == [0, 0, 0.5, 1]
    thread = space.threads.get("t")
    assert (thread.metadata, thread.created_at) == ({"b": 2}, messages[0].created_at)
    assert thread.updated_at == thread.created_at
    assert space.threads.working.read(thread="t").content == "# Facts\n- tea"


@pytest.mark.promise("mastra-import-keeps-everything")
def test_a_number_in_a_column_of_texts_is_a_time(memory, take, space):
    times = ["1700000000000", "1700000000000.0", "1700000000", "1711111111111", "20231114"]
    for number, at in enumerate(times):
        memory.thread(f"t{number}", at=at)
        memory.message(f"m{number}", f"t{number}", "x", at=at)
    assert take(memory.saved()) == MastraImport(threads=5, messages=5)
    found = [space.threads.get(f"t{number}").created_at for number in range(5)]
    assert [int(time.timestamp()) for time in found] == [1_700_000_000] * 3 + [1_711_111_111, 1_699_920_000]
    assert [space.threads.get_message(f"m{number}").created_at for number in range(5)] == found


@pytest.mark.promise("mastra-import-keeps-everything")
@pytest.mark.parametrize("text", ["[1,2,3]", "[[1]]", '["a", null]'])
def test_a_text_that_is_json_but_no_message_stays_a_text(memory, take, space, text):
    memory.thread("t1", metadata={"workingMemory": text})
    memory.message("m1", "t1", text)
    memory.resource("user-1", text)
    assert take(memory.saved()) == MastraImport(threads=1, messages=1, working_memories=2)
    assert space.threads.get_message("m1").content == text
    assert space.threads.working.read(thread="t1").content == text
    assert space.threads.working.read(resource="user-1").content == text


@pytest.mark.promise("mastra-import-damage")
@pytest.mark.parametrize("working", [5, [1], {"a": "\ud800"}, "x" * 2_000_000])
def test_a_damaged_working_memory_loses_neither_its_thread_nor_the_messages(memory, take, space, working):
    memory.thread("t1", metadata={"workingMemory": working, "a": 1})
    memory.message("m1", "t1", "kept")
    found = take(memory.saved())
    assert (found.threads, found.messages, found.working_memories, found.damaged) == (1, 1, 0, 1)
    assert found.reasons[0].startswith("the working memory of mastra_threads t1: workingMemory")
    assert space.threads.get("t1").metadata == {"a": 1}


@pytest.mark.promise("mastra-import-damage")
@pytest.mark.parametrize("at", ["9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+14:00", "1969-12-31T23:59:59Z"])
def test_a_time_that_no_thread_can_have_is_damage_and_the_others_are_listed(memory, take, space, at):
    memory.thread("bad", at=at)
    memory.thread("good")
    found = take(memory.saved())
    assert (found.threads, found.damaged) == (1, 1)
    assert [thread.id for thread in space.threads.list().threads] == ["good"]


def test_a_file_in_use_is_read_with_what_its_log_holds_and_is_not_changed(memory, take, space):
    path = fill(memory)  # the connection is still open, and all is in the -wal
    before = path.read_bytes()
    assert take(path).messages == 4
    assert path.read_bytes() == before


def test_a_file_in_a_folder_that_is_read_only_is_read():
    code = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import commonplace
from commonplace.exchange.mastra import import_mastra
from test_mastra import MemoryFile, fill
folder = Path(sys.argv[1]) / "with a space, 100%?#"
folder.mkdir()
memory = MemoryFile(folder / "mastra.db")
fill(memory)
memory.connection.close()
book = commonplace.open(":memory:", background=False)
folder.chmod(0o555)
before = sorted(folder.iterdir())
assert before == [folder / "mastra.db"], before
if os.getuid() == 0:  # who may write anywhere
    os.setuid(65534)
print(import_mastra(book.store, ("agent", "a1"), folder / "mastra.db").messages)
assert sorted(folder.iterdir()) == before
"""
    with tempfile.TemporaryDirectory() as place:  # pytest's own folders are closed to others
        os.chmod(place, 0o755)
        here = str(Path(__file__).parent)
        run = subprocess.run([sys.executable, "-c", code, place, here], capture_output=True, text=True, check=False)
    assert (run.stdout, run.returncode) == ("4\n", 0), run.stderr


def test_a_log_that_cannot_be_read_is_not_passed_over_for_a_file_reached_by_a_link():
    code = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import commonplace
from commonplace.errors import ConfigurationError
from commonplace.exchange.mastra import import_mastra
from test_mastra import MemoryFile, fill
place, folder = Path(sys.argv[1]), Path(sys.argv[1]) / "folder"
folder.mkdir()
memory = MemoryFile(place / "mastra.db")
memory.saved()
memory.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
fill(memory)
for name in ("mastra.db", "mastra.db-wal"):
    (folder / name).write_bytes((place / name).read_bytes())
(place / "link.db").symlink_to("folder/mastra.db")
book = commonplace.open(":memory:", background=False)
folder.chmod(0o555)
if os.getuid() == 0:  # who may write anywhere
    os.setuid(65534)
try:
    print(import_mastra(book.store, ("agent", "a1"), place / "link.db").messages)
except ConfigurationError as error:
    print(error)
"""
    with tempfile.TemporaryDirectory() as place:  # pytest's own folders are closed to others
        os.chmod(place, 0o755)
        here = str(Path(__file__).parent)
        run = subprocess.run([sys.executable, "-c", code, place, here], capture_output=True, text=True, check=False)
    assert "cannot be opened" in run.stdout, (run.stdout, run.stderr)


# Screened


def fill_with_secrets(memory: MemoryFile) -> Path:
    memory.thread("t1", title=f"mine is {SECRET}", metadata={"key": SECRET, "workingMemory": f"it is {SECRET}"})
    memory.message("m1", "t1", f"mine is {SECRET}")
    memory.message("m2", "t1", {"format": 2, "parts": [{"type": "text", "text": f"mine is {SECRET}"}]})
    memory.resource("user-1", f"it is {SECRET}")
    return memory.saved()


@pytest.mark.promise("redaction-every-write")
def test_what_is_imported_is_screened_and_a_second_import_doubles_nothing(memory, open_book, tmp_path):
    path = fill_with_secrets(memory)
    book = open_book(tmp_path / "masked.db", redaction=Redactor("mask"))
    take = lambda: import_mastra(book.store, ("agent", "a1"), path, screen=book.redaction.screen)  # noqa: E731

    assert take() == MastraImport(threads=1, messages=2, working_memories=2)
    assert take() == MastraImport(kept=5)

    threads = book.space("agent", "a1").threads
    assert threads.get("t1").title == "mine is [redacted:aws_key]"
    assert threads.get("t1").metadata == {"key": "[redacted:aws_key]"}
    assert threads.get_message("m1").content == "mine is [redacted:aws_key]"
    assert threads.working.read(thread="t1").content == "it is [redacted:aws_key]"
    assert threads.working.read(resource="user-1").content == "it is [redacted:aws_key]"
    book.close()
    assert all(SECRET.encode() not in file.read_bytes() for file in tmp_path.glob("masked.db*"))


def test_what_redaction_refuses_is_left_out_and_told_of_without_the_secret(memory, take, space):
    fill_with_secrets(memory)
    memory.thread("t2", metadata={"workingMemory": SECRET})
    memory.message("m3", "t2", "kept")
    found = take(memory.saved(), screen=Redactor("reject").screen)
    assert (found.threads, found.messages, found.working_memories, found.damaged) == (1, 1, 0, 5)
    assert "mastra_resources user-1: the content contains what looks like a secret" in "\n".join(found.reasons)
    assert SECRET not in "\n".join(found.reasons)
    assert [thread.id for thread in space.threads.list().threads] == ["t2"]


# Refused


@pytest.mark.promise("mastra-import-other-files")
def test_what_is_no_mastra_memory_is_told_and_changes_nothing(tmp_path, take, space, book):
    text = tmp_path / "notes.txt"
    text.write_text("no database at all " * 100)
    other = MemoryFile(tmp_path / "other.db", "CREATE TABLE things (id TEXT);").saved()
    strange = MemoryFile(
        tmp_path / "strange.db", "CREATE TABLE mastra_threads (id TEXT); CREATE TABLE mastra_messages (id TEXT);"
    ).saved()
    cases: list[tuple[Path, type[Exception], str]] = [
        (text, InvalidInput, "is not a SQLite database"),
        (other, InvalidInput, "has no tables mastra_threads and mastra_messages"),
        (strange, InvalidInput, "the table mastra_threads has no column resourceId"),
        (tmp_path / "book.db", InvalidInput, "is a commonplace book"),
        (tmp_path / "missing.db", NotFound, "there is no file"),
    ]
    for path, error, reason in cases:
        with pytest.raises(error, match=reason):
            take(path)
    assert space.stats().entries == {}
    assert not (tmp_path / "missing.db").exists()


# The command


def test_the_command_imports_and_says_what_came(memory, tmp_path, capsys):
    """The exit code was 0 though rows had been left out, so a script took the import for complete."""
    fill(memory)
    memory.message("orphan", "nowhere", "x")
    memory.message("system", "t1", "You are helpful.", role="system")
    call = ["import-mastra", str(memory.saved()), "--db", str(tmp_path / "b.db"), "--namespace", "agent/a1"]

    assert main(call) == 1  # something was left out, and a script has to hear of it
    said = capsys.readouterr()
    assert "imported 2 threads, 4 messages, 2 working memories; 1 left out; 1 not readable" in said.out
    assert "not readable: mastra_messages orphan: its thread nowhere does not exist" in said.err
    assert "left out: mastra_messages system: system messages are not stored" in said.err
    assert "import --undo 1-3" in said.err

    assert main(call) == 1
    assert "nothing new was imported; 8 there already" in capsys.readouterr().out

    assert main([*call, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["kept"] == 8

    memory.connection.execute("DELETE FROM mastra_messages WHERE id = 'orphan'")
    memory.saved()
    assert main(call) == 0


def test_the_command_makes_no_book_for_a_file_that_is_not_there(tmp_path, capsys):
    assert main(["import-mastra", str(tmp_path / "no.db"), "--db", str(tmp_path / "b.db")]) != 0
    assert "there is no file" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.promise("mastra-import-other-files")
def test_the_command_makes_no_book_for_a_file_that_is_refused(tmp_path, open_book, capsys):
    (tmp_path / "text.db").write_text("no database at all " * 100)
    (tmp_path / "empty.db").touch()
    open_book(tmp_path / "own.db")
    MemoryFile(tmp_path / "strange.db", "CREATE TABLE mastra_threads (id); CREATE TABLE mastra_messages (id);").saved()
    for name in ("text.db", "empty.db", "own.db", "strange.db"):
        assert main(["import-mastra", str(tmp_path / name), "--db", str(tmp_path / "new.db")]) == 2
    assert list(tmp_path.glob("new.db*")) == []


@pytest.mark.promise("redaction-every-write")
def test_the_command_screens_what_it_imports(memory, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COMMONPLACE_REDACT", "mask")
    call = ["import-mastra", str(fill_with_secrets(memory)), "--db", str(tmp_path / "new.db")]
    assert main(call) == 0
    assert "imported 1 thread, 2 messages, 2 working memories" in capsys.readouterr().out
    assert all(SECRET.encode() not in file.read_bytes() for file in tmp_path.glob("new.db*"))
