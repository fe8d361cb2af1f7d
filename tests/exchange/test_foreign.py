"""Memories of other programs: everything comes in with its ids, times and order, once, and can be undone."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from commonplace import Book, InvalidInput, NotFound, Space
from commonplace.ambient.turns import Transcript
from commonplace.book import open_book
from commonplace.checks import moment
from commonplace.errors import TooLarge
from commonplace.exchange.foreign import ImportReport, undo_import
from commonplace.exchange.recognition import NAMES, open_source
from commonplace.exchange.sources import Bounds, time_of
from commonplace.redaction import Redactor
from postgres_server import shared_server

SAMPLES = Path(__file__).parent / "samples"
HERE = ("user", "ana")
TEA = "11111111-aaaa-4bbb-8ccc-000000000001"
UNTITLED = "11111111-aaaa-4bbb-8ccc-000000000002"


@pytest.fixture
def book() -> Iterator[Book]:
    with open_book(":memory:", background=False) as opened:
        yield opened


@pytest.fixture
def space(book: Book) -> Space:
    return book.space(*HERE)


def take(book: Book, name: str | Path, **options: Any) -> ImportReport:
    return book.import_memory(SAMPLES / name, HERE, **options)


def texts(space: Space, thread: str) -> list[tuple[str, Any]]:
    return [(message.role, message.content) for message in space.threads.messages(thread).messages]


def everything(book: Book) -> list[bytes]:
    lines: list[bytes] = []
    book.export(lines.append)
    return [line for line in lines if b'"line":"state"' in line]


EXPECTED = {
    "chatgpt": (("chatgpt", "chatgpt-memory"), 4, 13, 1, 0),
    "claude": (("claude", "claude-projects"), 1, 2, 0, 2),
    "claude-code": (("claude-code", "claude-code-memory"), 2, 6, 2, 1),
    "codex": (("codex",), 1, 2, 0, 0),
    "gemini": (("gemini",), 1, 2, 0, 0),
    "letta/ana.af": (("letta",), 1, 3, 0, 2),
    "messages": (("messages",), 3, 8, 0, 0),
    "mem0/mem0.json": (("mem0",), 0, 0, 3, 0),
    "mem0/history.sqlite": (("mem0-history",), 0, 0, 4, 0),
    "langgraph/store.sqlite": (("langgraph",), 0, 0, 3, 0),
    "mcp-memory-service/export.json": (("mcp-memory-service",), 0, 0, 2, 0),
    "mcp-memory-service/sqlite_vec.zip": (("mcp-memory-service",), 0, 0, 2, 0),
    "server-memory/memory.jsonl": (("server-memory",), 0, 0, 6, 0),
    "basic-memory": (("basic-memory",), 0, 0, 0, 2),
    "obsidian": (("obsidian",), 0, 0, 0, 2),
    "obsidian/travel": (("text",), 0, 0, 0, 1),
}


@pytest.mark.promise("import-recognises")
@pytest.mark.parametrize("name", EXPECTED)
def test_a_sample_is_recognised_counted_imported_and_not_imported_twice(book: Book, name: str):
    formats, threads, messages, records, files = EXPECTED[name]
    dry = take(book, name, dry_run=True)
    assert (dry.formats, dry.unreadable, dry.commits) == (formats, 0, ())
    assert (dry.threads, dry.messages, dry.records, dry.files) == (threads, messages, records, files)
    assert len(dry.samples) == min(3, len(dry.samples)) > 0
    assert everything(book) == []
    first = take(book, name)
    assert (first.threads, first.messages, first.records, first.files) == (threads, messages, records, files)
    assert first.unreadable == 0
    before = everything(book)
    again = take(book, name)
    assert (again.added, again.updated, again.differing, again.commits) == (0, 0, 0, ())
    assert everything(book) == before


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.promise("import-undo")
def test_an_import_is_undone_as_a_whole_and_stays_undone_until_asked_for(book: Book, space: Space, name: str):
    kept = space.records.create(type="note", content="mine", source="me", confidence=1)
    report = take(book, name)
    (commits,) = report.commits
    told: list[tuple[int, int | None]] = []
    undone = undo_import(space, commits.first, commits.last, lambda done, total, label: told.append((done, total)))
    assert (undone.commits, undone.conflicts) == (commits.count, ())
    assert told == [(done, commits.count) for done in range(1, commits.count + 1)]
    assert {kind: count for kind, count in space.stats().entries.items() if count} == {"record": 1}
    assert space.records.get(kept.id).content == "mine"
    again = take(book, name)
    assert (again.added, again.commits) == (0, ())
    assert again.deleted_here + again.kept > 0
    brought_back = take(book, name, again=True)
    assert brought_back.added == report.added


@pytest.mark.promise("import-keeps")
def test_a_conversation_keeps_its_ids_times_order_and_branches(book: Book, space: Space):
    take(book, "chatgpt/conversations.json")
    thread = space.threads.get(TEA)
    assert (thread.title, thread.metadata["source"]) == ("Tea in Porto", f"chatgpt:{TEA}")
    assert (thread.created_at, thread.updated_at) == (moment(1730000000_000000), moment(1730000050_000000))
    messages = space.threads.messages(TEA).messages
    assert [message.id for message in messages] == ["u1", "a1", "u2", "t2", "a2", "u3", "a3", "a4"]
    assert [message.created_at for message in messages[:4]] == [
        moment(at) for at in (1730000000_500000, 1730000010_250000, 1730000030_000000, 1730000030_000000)
    ]
    assert (messages[3].role, messages[3].extra["name"], messages[3].content) == ("tool", "browser", "3 shops found")
    assert messages[5].content[1] == {"type": "text", "text": "Is this the shop?"}  # type: ignore[index,call-overload]
    assert messages[7].content[0]["type"] == "tether_quote"  # type: ignore[index,call-overload]
    branches = [one for one in space.threads.list(limit=10).threads if "branch" in one.metadata]
    assert {one.metadata["branch"]["after"]: texts(space, one.id) for one in branches} == {  # type: ignore[index,call-overload]
        "u1": [("assistant", "Black tea.")],
        "a1": [("user", "Where in Lisbon?"), ("assistant", "In Alfama there is a shop.")],
    }


def test_each_conversation_is_one_commit(book: Book, space: Space):
    report = take(book, "chatgpt/conversations.json")
    (commits,) = report.commits
    assert (commits.count, commits.last - commits.first) == (2, 1)
    space.undo(commits.first)
    with pytest.raises(NotFound):
        space.threads.get(TEA)
    assert space.threads.get(UNTITLED).title is None
    assert len(space.threads.list().threads) == 1


@pytest.mark.promise("import-newer")
def test_a_newer_export_adds_only_what_is_new(book: Book, space: Space, tmp_path: Path):
    take(book, "chatgpt/conversations.json")
    newer = json.loads((SAMPLES / "chatgpt/conversations.json").read_text())
    mapping = newer[1]["mapping"]
    mapping["z"] = json.loads(json.dumps(mapping["y"]).replace('"y"', '"z"').replace("Understood", "And more"))
    mapping["z"].update(parent="y")
    mapping["z"]["message"]["create_time"] = 1730200000.0
    newer[1].update(current_node="z", update_time=1730200000.0, title="Named since")
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps(newer))
    report = book.import_memory(path, HERE)
    assert (report.threads, report.messages, report.updated) == (0, 1, 1)
    assert [content for _, content in texts(space, UNTITLED)][1:] == ["Understood.", "And more."]
    thread = space.threads.get(UNTITLED)
    assert (thread.title, thread.updated_at) == ("Named since", moment(1730200000_000000))


def test_an_import_and_a_newer_one_are_both_undone_the_last_one_first(book: Book, space: Space, tmp_path: Path):
    """The first import had a conflict: undoing the second one had given a thread a new revision."""
    first = take(book, "chatgpt/conversations.json")
    newer = json.loads((SAMPLES / "chatgpt/conversations.json").read_text())
    newer[1].update(update_time=1730200000.0, title="Named since")
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps(newer))
    second = book.import_memory(path, HERE)
    assert second.updated == 1
    for report in (second, first):
        (commits,) = report.commits
        undone = undo_import(space, commits.first, commits.last)
        assert (undone.commits, undone.conflicts) == (commits.count, ())
    assert not any(space.stats().entries.values())


def test_missing_times_fall_back_to_what_no_later_export_changes(book: Book, space: Space):
    take(book, "chatgpt/conversations.json")
    first, second = space.threads.messages(UNTITLED).messages
    assert first.created_at == second.created_at == moment(1730099999_000000)
    assert space.threads.get(UNTITLED).created_at == moment(1730099999_000000)


def test_what_was_changed_here_stays(book: Book, space: Space):
    take(book, "mem0/mem0.json")
    id = next(one.id for one in space.records.list().records if "tea" in str(one.content))
    space.records.update(id, content="Ana prefers black tea")
    report = take(book, "mem0/mem0.json")
    assert (report.updated, report.kept, report.differing) == (0, 3, 1)
    assert space.records.get(id).content == "Ana prefers black tea"


@pytest.mark.promise("import-revisions")
def test_the_history_of_mem0_becomes_revisions_in_order(book: Book, space: Space):
    take(book, "mem0/history.sqlite")
    record = next(one for one in space.records.list().records if "river" in str(one.content))
    revisions = space.history("record", record.id)
    assert [space.state("record", record.id, one.revision).value for one in revisions] == [
        "Ana lives in Lisbon",
        "Ana lives in Porto",
        "Ana lives in Porto, near the river",
    ]
    assert record.created_at < record.updated_at
    gone = [one for one in everything(book) if b"allergic" in one]
    assert len(gone) == 1
    assert b'"ended":{"action":"deleted"' in gone[0]
    assert all("allergic" not in str(one.content) for one in space.records.list().records)


def test_memories_and_history_of_mem0_are_the_same_records(book: Book, space: Space):
    take(book, "mem0")
    records = space.records.list().records
    assert len(records) == 3
    ana = next(one for one in records if "tea" in str(one.content))
    assert "user:ana" in ana.tags
    assert ana.content == {"text": "Ana prefers green tea", "metadata": {"category": "drinks"}}


def test_a_rule_says_where_things_go(book: Book):
    report = take(book, "mem0/mem0.json", mapping=["user/ana=people/a", "user/*=others/*"])
    assert [(one.namespace, one.count) for one in report.commits] == [(("others", "boris"), 1), (("people", "a"), 1)]
    assert len(book.space("people", "a").records.list().records) == 2
    for wrong in ("user", "=a", "a=*", "a="):
        with pytest.raises(InvalidInput):
            take(book, "mem0/mem0.json", mapping=[wrong])


def test_a_graph_becomes_records_with_both_names(book: Book, space: Space):
    take(book, "server-memory/memory.jsonl")
    records = space.records.list().records
    relation = next(one for one in records if one.type == "relation")
    assert relation.content == {"from": "Ana", "to": "Acme", "relationType": "works_at"}
    assert set(relation.tags) == {"entity:ana", "entity:acme"}
    assert {one.content for one in records if one.type == "person"} == {
        "prefers green tea",
        "lives in Lisbon",
        "plays the cello",
    }
    assert {one.source for one in records if one.type == "person"} == {"server-memory:Ana"}


def test_a_broken_last_line_is_named_and_the_rest_is_imported(book: Book, tmp_path: Path):
    whole = (SAMPLES / "server-memory/memory.jsonl").read_bytes()
    path = tmp_path / "memory.jsonl"
    path.write_bytes(whole[:-20])
    report = book.import_memory(path, HERE)
    assert (report.records, report.unreadable) == (5, 1)
    assert report.reasons == ("memory.jsonl: line 4: it is not valid JSON",)


def test_transcripts_leave_out_what_the_program_told_itself(book: Book, space: Space):
    take(book, "claude-code")
    session = "5e551011-0000-4000-8000-000000000001"
    assert space.threads.get(session).title == "Fix the till"
    roles = [role for role, _ in texts(space, session)]
    assert roles == ["user", "assistant", "tool", "assistant"]
    assert texts(space, session)[0][1] == "Why does the till test fail?"
    fact = next(one for one in space.records.list().records if one.type == "project")
    assert fact.content == {
        "name": "till-rounding",
        "description": "How the till rounds",
        "text": "The till rounds half cents up.",
        "originSessionId": "5e55",
        "metadata": {"node_type": "memory"},
    }


@pytest.mark.parametrize("name", ["codex", "gemini"])
def test_what_was_saved_while_a_session_went_on_is_not_imported_again(book: Book, space: Space, name: str):
    """Codex and Gemini CLI sessions were there twice: the hooks and the import made different ids."""
    (path,) = (SAMPLES / name).rglob("*.jsonl")
    take(book, name)
    threads = [thread.id for thread in space.threads.list().threads if "branch" not in thread.metadata]
    (session,) = threads
    turns = Transcript(session).read(str(path))
    imported = {message.id: message.content for message in space.threads.messages(session).messages}
    assert len(turns) >= 2
    assert [imported.get(turn.id) for turn in turns if turn.role == "user"] == [
        turn.text for turn in turns if turn.role == "user"
    ]
    assert {turn.id for turn in turns} <= imported.keys()


def test_equal_messages_of_a_session_without_times_are_all_imported(book: Book, space: Space, tmp_path: Path):
    path = tmp_path / "rollout.jsonl"
    said = {"type": "event_msg", "payload": {"type": "user_message", "message": "go on"}}
    lines = [{"type": "session_meta", "payload": {"id": "5e551011-0000-4000-8000-000000000009"}}, said, said]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = book.import_memory(path, HERE)
    assert (report.formats, report.messages, report.unreadable) == (("codex",), 2, 0)


def test_notes_are_imported_byte_for_byte_and_settings_are_not(book: Book, space: Space):
    take(book, "obsidian")
    assert [one.path for one in space.files.walk() if one.kind == "file"] == [
        "/obsidian/Tea.md",
        "/obsidian/travel/Porto.md",
    ]
    assert space.files.read("/obsidian/Tea.md").encode() == (SAMPLES / "obsidian/Tea.md").read_bytes()
    assert space.files.stat("/obsidian/Tea.md").created_at.isoformat() == "2025-05-01T00:00:00+00:00"


def test_an_agent_file_may_be_json_in_json_and_its_code_is_never_run(book: Book, space: Space, tmp_path: Path):
    path = tmp_path / "agent.af"
    path.write_text(json.dumps((SAMPLES / "letta/ana.af").read_text()))
    report = book.import_memory(path, HERE)
    assert (report.formats, report.messages, report.files) == (("letta",), 3, 2)
    assert space.files.read("/letta/Ana's helper/human.md") == "Ana lives in Porto."
    assert not any(b"os.system" in line for line in everything(book))


@pytest.mark.promise("import-redacts")
def test_an_import_is_screened_as_any_write(tmp_path: Path):
    secret = "AKIAIOSFODNN7EXAMPLE"
    graph = tmp_path / "memory.jsonl"
    entity = {"type": "entity", "name": "Key", "entityType": "secret", "observations": [f"the key is {secret}"]}
    graph.write_text(json.dumps(entity) + "\n")
    chat = tmp_path / "chat.jsonl"
    chat.write_text(json.dumps({"messages": [{"role": "user", "content": f"use {secret}"}]}) + "\n")
    with open_book(":memory:", background=False, redaction=Redactor()) as book:
        for path in (graph, chat):
            assert book.import_memory(path, HERE).added > 0
            again = book.import_memory(path, HERE)
            assert (again.added, again.differing) == (0, 0)
        assert not any(secret.encode() in line for line in everything(book))


# Archives, links, and files that are not a memory


def zipped(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


@pytest.mark.promise("import-confined")
def test_nothing_outside_of_an_archive_or_a_folder_is_read(book: Book, space: Space, tmp_path: Path):
    secret = tmp_path / "secret.md"
    secret.write_text("outside")
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "mine.md").write_text("inside")
    (folder / "link.md").symlink_to(secret)
    (folder / "up").symlink_to(tmp_path)
    report = book.import_memory(folder, HERE)
    assert (report.files, report.left_out, report.unreadable) == (1, 2, 0)
    archive = tmp_path / "notes.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("../evil.md", "x")
        opened.writestr("/abs.md", "x")
        link = zipfile.ZipInfo("link.md")
        link.external_attr = 0o120777 << 16
        opened.writestr(link, "../secret.md")
        opened.writestr("good.md", "good")
    report = book.import_memory(archive, HERE)
    assert (report.files, report.left_out, report.unreadable) == (1, 1, 2)
    assert not any(b"outside" in line for line in everything(book))


@pytest.mark.promise("import-bounded-archives")
def test_an_archive_that_expands_too_far_is_refused_before_it_is_read(book: Book, tmp_path: Path):
    bomb = zipped(tmp_path / "bomb.zip", {"conversations.json": b"[" + b" " * 30_000_000 + b"]"})
    with pytest.raises(TooLarge, match="expand"):
        book.import_memory(bomb, HERE)
    many = zipped(tmp_path / "many.zip", {f"{number}.md": b"x" for number in range(50)})
    with pytest.raises(TooLarge, match="at most 20"):
        book.import_memory(many, HERE, bounds=Bounds(files=20))
    large = zipped(tmp_path / "large.zip", {"a.md": os.urandom(2_000).hex().encode()})
    with pytest.raises(TooLarge):
        book.import_memory(large, HERE, bounds=Bounds(expanded_bytes=1_000))


def test_a_zip_of_an_export_is_the_same_as_its_folder(book: Book, tmp_path: Path):
    archive = zipped(
        tmp_path / "export.zip",
        {f"export/{path.name}": path.read_bytes() for path in (SAMPLES / "chatgpt").iterdir()},
    )
    report = book.import_memory(archive, HERE)
    assert (report.threads, report.messages, report.records) == (4, 13, 1)
    assert take(book, "chatgpt").added == 0


def test_a_file_damaged_in_an_archive_is_named_and_the_others_are_imported(book: Book, tmp_path: Path):
    """Damage in the first 64 kB, by which a file is recognised, stopped the whole archive."""
    note = os.urandom(300).hex().encode()
    archive = zipped(
        tmp_path / "export.zip",
        {"conversations.json": (SAMPLES / "chatgpt/conversations.json").read_bytes(), "memory.json": note},
    )
    raw = archive.read_bytes()
    at = raw.index(b"memory.json") + 40
    archive.write_bytes(raw[:at] + b"\xff" * 60 + raw[at + 60 :])
    report = book.import_memory(archive, HERE)
    assert (report.threads, report.messages, report.unreadable) == (4, 13, 1)
    assert report.reasons[0].startswith("memory.json: it is damaged in the archive")
    alone = zipped(tmp_path / "alone.zip", {"memory.json": note})
    raw = alone.read_bytes()
    alone.write_bytes(raw[: raw.index(b"memory.json") + 40] + b"\xff" * 60 + raw[raw.index(b"memory.json") + 100 :])
    with pytest.raises(InvalidInput, match=r"nothing of alone can be read; memory\.json: it is damaged"):
        book.import_memory(alone, HERE)


def test_what_is_left_out_is_named_with_its_reason_and_only_the_first(book: Book, tmp_path: Path):
    report = take(book, "chatgpt")
    assert report.left_out == len(report.left_out_reasons) > 0
    assert "chat.html: it is not part of the memory" in report.left_out_reasons
    assert any(one.startswith("conversation ") and "it is hidden" in one for one in report.left_out_reasons)
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "note.md").write_text("a note")
    for number in range(25):
        (folder / f"{number:02}.png").write_bytes(b"\x89PNG")
    many = book.import_memory(folder, HERE)
    assert (many.left_out, len(many.left_out_reasons)) == (25, 20)
    assert many.left_out_reasons[0] == "00.png: it is not part of the memory"


def test_an_export_of_commonplace_is_refused_in_words_that_say_what_to_do(book: Book, space: Space, tmp_path: Path):
    space.files.write("/a", "b")
    path = tmp_path / "memory.jsonl"
    with path.open("wb") as stream:
        book.export(stream.write)
    with pytest.raises(InvalidInput, match=r"import it with `commonplace import FILE` or POST /v1/import"):
        book.import_memory(path, HERE)
    (tmp_path / "note.md").write_text("a note")
    (tmp_path / "graph.jsonl").write_bytes((SAMPLES / "server-memory/memory.jsonl").read_bytes())
    report = book.import_memory(tmp_path, HERE)
    assert (report.records, report.unreadable) == (6, 1)
    assert report.reasons == ("memory.jsonl: import this file alone; it cannot be imported as a part of a folder",)


def test_what_is_no_memory_is_refused(book: Book, tmp_path: Path):
    picture = tmp_path / "cup.png"
    shutil.copy(SAMPLES / "obsidian/cup.png", picture)
    with pytest.raises(InvalidInput, match="nothing that can be imported"):
        book.import_memory(picture, HERE)
    with pytest.raises(NotFound):
        book.import_memory(tmp_path / "missing", HERE)
    with pytest.raises(InvalidInput, match="no format"):
        take(book, "mem0", format="nonsense")
    with pytest.raises(InvalidInput, match="has no claude memory"):
        take(book, "mem0", format="claude")


def test_every_format_can_be_named(book: Book):
    for name, (formats, *_) in EXPECTED.items():
        with open_source(SAMPLES / name, formats[0]) as source:
            assert source.names == formats[:1]
    assert set(NAMES) >= {one for formats, *_ in EXPECTED.values() for one in formats}


@pytest.mark.parametrize(
    ("written", "at"),
    [
        (1730000000.5, 1730000000_500000),
        (1730000000500, 1730000000_500000),
        ("1730000000", 1730000000_000000),
        ("2024-10-27T03:33:20Z", 1730000000_000000),
        ("2024-10-27 03:33:20", 1730000000_000000),
        ("2024-10-27T05:33:20+02:00", 1730000000_000000),
        (-5, None),
        (float("nan"), None),
        (True, None),
        ("soon", None),
        (None, None),
        ([], None),
        (1e300, None),
    ],
)
def test_times_of_other_programs(written: object, at: int | None):
    assert time_of(written) == at


def test_a_langgraph_store_on_postgresql_is_the_same_as_one_on_sqlite(book: Book, space: Space):
    url = shared_server().create_database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE store (prefix text NOT NULL, key text NOT NULL, value jsonb NOT NULL,"
            " created_at timestamptz DEFAULT now(), updated_at timestamptz DEFAULT now(), expires_at timestamptz,"
            " ttl_minutes int, PRIMARY KEY (prefix, key))"
        )
        connection.execute(
            "INSERT INTO store VALUES ('users.ana', 'tea', '{\"text\": \"green\"}', '2025-01-02T03:04:05Z',"
            " '2025-01-03T00:00:00Z', NULL), ('users.ana', 'old', '{}', now(), now(), '2020-01-01')"
        )
    report = book.import_memory(url, HERE)
    assert (report.formats, report.records, report.left_out) == (("langgraph",), 1, 1)
    (record,) = space.records.list().records
    assert (record.content, record.type) == ({"text": "green"}, "ana")
    assert record.created_at.isoformat() == "2025-01-02T03:04:05+00:00"
    assert book.import_memory(url, HERE).added == 0
    with pytest.raises(InvalidInput, match="has no table store"):
        book.import_memory(shared_server().create_database(), HERE)
