"""Many agents at once: one instance each, few open files, and nothing lost when folders and files go wrong."""

from __future__ import annotations

import gc
import os
import shlex
import shutil
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import apsw
import pytest

import commonplace
from commonplace import ConfigurationError, Corrupt, Forbidden, InvalidInput, NotFound, Unavailable
from commonplace.agents import AgentMemories, BookOptions
from commonplace.agents.memories import BOOK_MARK
from commonplace.backends.sqlite.connection import APPLICATION_ID
from doubles import WordEmbedder


def say(memory, thread, *texts):
    return memory.save_messages(thread.id, [{"role": "user", "content": text} for text in texts])


def texts(messages):
    return [message.content for message in messages]


def open_files(folder):
    """The database files of agents that this process has open, where the system tells."""
    found = []
    for handle in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        try:
            found.append(os.readlink(f"/proc/self/fd/{handle}"))
        except FileNotFoundError:
            continue
    return {path for path in found if path.startswith(str(folder)) and path.endswith("memory.db")}


# One instance


@pytest.mark.promise("agents-one-instance")
def test_threads_that_ask_at_once_get_one_instance_and_all_of_them_write(memories):
    agent_id = memories.create_agent("Ann")
    ready = threading.Barrier(8)

    def use(number):
        ready.wait()
        memory = memories.get_agent_memory(agent_id)
        thread = memory.create_thread(f"u-{number}")
        say(memory, thread, "one", "two")
        return memory

    with ThreadPoolExecutor(8) as users:
        got = list(users.map(use, range(8)))

    assert {id(memory) for memory in got} == {id(got[0])}
    assert len(got[0].list_threads().threads) == 8
    assert memories.open_books == 1


@pytest.mark.promise("agents-separate")
def test_one_agents_memory_is_no_other_agents(memories):
    ann, bob = (memories.get_agent_memory(memories.create_agent(name)) for name in ("Ann", "Bob"))
    thread = ann.create_thread("u-1")
    say(ann, thread, "the kayak is red")
    ann.update_working_memory({"keyContext": ["red kayak"]}, resource="u-1")

    with pytest.raises(NotFound, match=f"No thread found with id {thread.id}"):
        bob.get_thread(thread.id)
    assert bob.list_threads().threads == ()
    assert list(bob.space.search("kayak", kinds=["message"])) == []
    assert bob.working_memory(resource="u-1") is None


def test_closed_memories_give_no_more(open_memories):
    memories = open_memories()
    agent_id = memories.create_agent("Ann")
    memories.close()
    with pytest.raises(Unavailable, match="were closed"):
        memories.get_agent_memory(agent_id)


# Bounded


@pytest.mark.promise("agents-bounded")
def test_few_files_stay_open_and_whoever_holds_an_agent_goes_on(open_memories, base):
    memories = open_memories(max_open=2)
    held = [memories.get_agent_memory(memories.create_agent(f"agent {number}")) for number in range(6)]
    threads = [memory.create_thread("u-1") for memory in held]
    parts = [memory.space.threads for memory in held]

    for turn in range(3):
        for memory, thread in zip(held, threads, strict=True):
            say(memory, thread, f"turn {turn}")
            assert memories.open_books <= 2
            assert len(open_files(base)) <= 2

    for memory, thread, part in zip(held, threads, parts, strict=True):
        assert texts(part.messages(thread.id).messages) == ["turn 0", "turn 1", "turn 2"]
        assert memories.get_agent_memory(memory.agent_id) is memory


@pytest.mark.promise("agents-bounded")
def test_instances_that_nobody_holds_are_let_go(open_memories):
    memories = open_memories(max_open=2)
    ids = [memories.create_agent("a") for _ in range(5)]
    for agent_id in ids:
        memories.get_agent_memory(agent_id)
    gc.collect()
    assert len(memories._held) == 2


@pytest.mark.promise("agents-bounded")
def test_many_threads_on_more_agents_than_may_be_open_lose_nothing(open_memories):
    memories = open_memories(max_open=2)
    ids = [memories.create_agent(f"agent {number}") for number in range(5)]
    threads = {agent_id: memories.get_agent_memory(agent_id).create_thread("u-1") for agent_id in ids}

    def talk(worker):
        for turn in range(10):
            agent_id = ids[(worker + turn) % len(ids)]
            memory = memories.get_agent_memory(agent_id)
            say(memory, threads[agent_id], f"{worker} {turn}")
            memory.recall(threads[agent_id].id, "turn")
            if turn % 4 == worker % 4:
                memories.invalidate(agent_id)

    with ThreadPoolExecutor(6) as workers:
        list(workers.map(talk, range(6)))

    said = [text for id in ids for text in texts(memories.get_agent_memory(id).list_messages(threads[id].id).messages)]
    assert sorted(said) == sorted(f"{worker} {turn}" for worker in range(6) for turn in range(10))
    assert memories.open_books <= 2


def test_a_book_is_not_closed_under_a_call_that_is_under_way(open_memories):
    memories = open_memories(max_open=1)
    first, second = (memories.get_agent_memory(memories.create_agent(name)) for name in ("Ann", "Bob"))
    first.space.files.write("/notes", "one")
    open_meanwhile = []

    def change(text):
        second.create_thread()
        memories.invalidate(first.agent_id)
        second.create_thread()
        open_meanwhile.append(memories.open_books)
        return f"{text}\ntwo"

    first.space.files.edit("/notes", change)
    assert open_meanwhile == [1]  # the other one; this one is closed when its call ends
    assert first.space.files.read("/notes") == "one\ntwo"
    second.create_thread()
    assert memories.open_books == 1


def test_a_held_store_opens_its_file_for_each_call_and_offers_nothing_that_outlives_one(open_memories):
    memories = open_memories()
    store = memories.get_agent_memory(memories.create_agent("Ann")).space._handle.store
    assert store.stats().namespaces == 0
    assert store.verify() == []
    for name in ("close", "export", "salvage", "waker", "no_such_method"):
        assert not hasattr(store, name)


# What goes wrong


@pytest.mark.promise("agents-lost-folder")
def test_a_folder_that_vanished_is_told_and_no_write_is_lost_in_it(open_memories, base):
    memories = open_memories()
    agent_id = memories.create_agent("Ann")
    folder = base / memories.get_agent_folder_name(agent_id)
    memory = memories.get_agent_memory(agent_id)
    thread = memory.create_thread("u-1")
    aside = base.parent / "aside"
    folder.rename(aside)

    for call in (
        lambda: say(memory, thread, "into the void"),
        lambda: memory.get_thread(thread.id),
        lambda: memories.get_agent_memory(agent_id),
    ):
        with pytest.raises(NotFound) as refused:
            call()
        assert str(refused.value) == f"Agent folder not found for agentId: {agent_id}"

    aside.rename(folder)
    say(memories.get_agent_memory(agent_id), thread, "back again")
    assert texts(memory.list_messages(thread.id).messages) == ["back again"]


@pytest.mark.promise("agents-lost-folder")
def test_a_file_that_vanished_is_not_begun_anew_unless_asked(open_memories, base):
    memories = open_memories()
    agent_id = memories.create_agent("Ann")
    memory = memories.get_agent_memory(agent_id)
    thread = memory.create_thread("u-1")
    folder = base / memories.get_agent_folder_name(agent_id)
    for file in folder.iterdir():
        file.unlink()

    with pytest.raises(NotFound, match="was deleted while it was in use"):
        say(memory, thread, "into the void")
    assert list(folder.iterdir()) == []

    memories.invalidate(agent_id)
    assert memories.get_agent_memory(agent_id).list_threads().threads == ()


def test_a_folder_that_was_renamed_is_found_under_its_new_name(open_memories, base):
    memories = open_memories()
    agent_id = memories.create_agent("Ann")
    memory = memories.get_agent_memory(agent_id)
    thread = memory.create_thread("u-1")
    (base / memories.get_agent_folder_name(agent_id)).rename(base / f"anna-{agent_id}")

    say(memory, thread, "hello")
    assert memories.get_agent_folder_name(agent_id) == f"anna-{agent_id}"
    assert texts(memories.get_agent_memory(agent_id).list_messages(thread.id).messages) == ["hello"]


def test_a_file_that_was_exchanged_for_a_backup_is_read_anew(open_memories, base):
    memories = open_memories()
    agent_id = memories.create_agent("Ann")
    memory = memories.get_agent_memory(agent_id)
    thread = memory.create_thread("u-1")
    folder = base / memories.get_agent_folder_name(agent_id)
    memory.space._handle.store.backup(folder / "backup.db")
    say(memory, thread, "after the backup")
    for suffix in ("-wal", "-shm"):
        (folder / f"memory.db{suffix}").unlink()
    os.replace(folder / "backup.db", folder / "memory.db")

    assert texts(memory.list_messages(thread.id).messages) == []


@pytest.mark.promise("agents-damaged-file")
@pytest.mark.parametrize("content", [b"no database at all " * 300, b"SQLite format 3\x00" + b"\xff" * 5_000])
def test_a_damaged_file_is_told_and_left_as_it_is(open_memories, base, content):
    memories = open_memories()
    agent_id = memories.create_agent("Ann")
    file = base / memories.get_agent_folder_name(agent_id) / "memory.db"
    file.write_bytes(content)
    memory = memories.get_agent_memory(agent_id)

    with pytest.raises(Corrupt, match="restore a backup"):
        memory.create_thread()
    assert file.read_bytes() == content
    assert memories.open_books == 0


@pytest.mark.promise("agents-foreign-mastra")
@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_a_memory_of_mastras_is_refused_with_the_command_that_imports_it(open_memories, base, journal):
    memories = open_memories()
    agent_id = memories.create_agent("Ann")
    file = base / memories.get_agent_folder_name(agent_id) / "memory.db"
    foreign = sqlite3.connect(file)
    foreign.execute(f"PRAGMA journal_mode = {journal}")
    foreign.execute("CREATE TABLE mastra_threads (id TEXT PRIMARY KEY, resourceId TEXT, title TEXT)")
    foreign.execute("INSERT INTO mastra_threads VALUES ('t1', 'u-1', 'Kept')")
    foreign.commit()

    with pytest.raises(ConfigurationError) as refused:
        memories.get_agent_memory(agent_id).list_threads()
    aside = file.with_name("mastra.db")
    assert f"commonplace import-mastra {aside} --db {file} --namespace agent/{agent_id}" in str(refused.value)
    assert foreign.execute("SELECT title FROM mastra_threads").fetchall() == [("Kept",)]
    foreign.close()


@pytest.mark.promise("agents-foreign-mastra")
def test_following_that_command_takes_mastras_memory_over(open_memories, tmp_path):
    base = tmp_path / "my agents"
    memories = open_memories(base)
    agent_id = memories.create_agent("Ann")
    file = base / memories.get_agent_folder_name(agent_id) / "memory.db"
    foreign = sqlite3.connect(file)
    foreign.executescript(
        "CREATE TABLE mastra_threads (id TEXT PRIMARY KEY, resourceId TEXT NOT NULL, title TEXT NOT NULL,"
        " metadata TEXT, createdAt TEXT NOT NULL, updatedAt TEXT NOT NULL);"
        "CREATE TABLE mastra_messages (id TEXT PRIMARY KEY, thread_id TEXT NOT NULL, content TEXT NOT NULL,"
        " role TEXT NOT NULL, type TEXT NOT NULL, createdAt TEXT NOT NULL, resourceId TEXT);"
        "CREATE TABLE mastra_resources (id TEXT PRIMARY KEY, workingMemory TEXT, metadata TEXT,"
        " createdAt TEXT NOT NULL, updatedAt TEXT NOT NULL);"
        "INSERT INTO mastra_threads VALUES ('t1', 'u-1', 'Kept', NULL, '2025-01-02T03:04:05Z', '2025-01-02T03:04:05Z');"
        "INSERT INTO mastra_messages VALUES ('m1', 't1', 'the kayak is red', 'user', 'v2', '2025-01-02T03:04:05Z',"
        " 'u-1');"
    )
    foreign.close()
    memory = memories.get_agent_memory(agent_id)
    with pytest.raises(ConfigurationError) as refused:
        memory.list_threads()
    command = shlex.split(str(refused.value).split("`")[1])
    assert command[0] == "commonplace"
    file.rename(file.with_name("mastra.db"))
    subprocess.run([sys.executable, "-m", "commonplace.cli", *command[1:]], check=True, capture_output=True)

    (thread,) = memory.list_threads("u-1").threads
    assert (thread.id, thread.title) == ("t1", "Kept")
    assert [message.id for message in memory.list_messages("t1").messages] == ["m1"]


@pytest.mark.parametrize("is_in_log", [False, True])
def test_a_book_whose_messages_mention_mastra_is_not_taken_for_mastras(open_memories, base, is_in_log):
    memories = open_memories()
    agent_id = memories.create_agent("Ann")
    memory = memories.get_agent_memory(agent_id)
    say(memory, memory.create_thread("u-1"), "How do I read the table mastra_messages?")
    file = base / memories.get_agent_folder_name(agent_id) / "memory.db"
    log = file.with_name("memory.db-wal")
    changed = apsw.Connection(str(file))
    changed.execute("CREATE TABLE newer (a); PRAGMA user_version = 99").fetchall()
    changed.close()
    as_after_a_crash = [(path, path.read_bytes()) for path in (file, log)]
    memories.close()
    for path, content in as_after_a_crash if is_in_log else ():
        path.write_bytes(content.replace(BOOK_MARK, bytes(4), 1) if path == file else content)
    assert (BOOK_MARK in file.read_bytes()[:100]) is not is_in_log

    with pytest.raises(ConfigurationError, match="was written by a newer commonplace"):
        open_memories().get_agent_memory(agent_id).list_threads()


def test_the_mark_of_a_book_is_the_one_that_books_have():
    assert APPLICATION_ID.to_bytes(4, "big") == BOOK_MARK


def test_a_database_of_another_program_is_refused(open_memories, base):
    memories = open_memories()
    agent_id = memories.create_agent("Ann")
    foreign = sqlite3.connect(base / memories.get_agent_folder_name(agent_id) / "memory.db")
    foreign.execute("CREATE TABLE something (id TEXT)")
    foreign.close()
    with pytest.raises(ConfigurationError, match="of another program"):
        memories.get_agent_memory(agent_id).list_threads()


def test_a_damaged_file_of_one_agent_stops_no_other(open_memories, base):
    memories = open_memories(max_open=1)
    well, ill = memories.create_agent("Ann"), memories.create_agent("Bob")
    thread = memories.get_agent_memory(well).create_thread()
    (base / memories.get_agent_folder_name(ill) / "memory.db").write_bytes(b"x" * 5_000)
    for _ in range(3):
        with pytest.raises(Corrupt):
            memories.get_agent_memory(ill).list_threads()
        assert memories.get_agent_memory(well).get_thread(thread.id) == thread


def test_a_child_process_of_a_fork_opens_its_own(base, tmp_path):
    code = """
import os, sys
from commonplace.agents import AgentMemories, BookOptions
memories = AgentMemories(sys.argv[1], options=BookOptions(background=False))
memory = memories.get_agent_memory(memories.create_agent("Ann"))
thread = memory.create_thread("u-1")
child = os.fork()
if not child:
    memory.save_messages(thread.id, [{"role": "user", "content": "from the child"}])
    memories.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print([message.content for message in memory.list_messages(thread.id).messages])
memories.close()
"""
    run = subprocess.run([sys.executable, "-c", code, str(base)], capture_output=True, text=True, check=False)
    assert (run.stdout, run.returncode) == ("['from the child']\n", 0), run.stderr


# Shared book


@pytest.mark.promise("agents-shared-book")
def test_agents_of_a_shared_book_are_namespaces_of_it(open_memories, open_book):
    book = open_book()
    memories = open_memories(book=book)
    agent_id = memories.create_agent("Test Agent")
    thread = memories.get_agent_memory(agent_id).create_thread("u-1")

    assert memories.get_agent_folder_name(agent_id) == f"test-agent-{agent_id}"
    assert book.namespaces("agent") == [("agent", agent_id)]
    assert book.space("agent", agent_id).threads.get(thread.id) == thread
    memories.close()
    with open_memories(book=book) as again:
        assert again.get_agent_memory(agent_id).get_thread(thread.id) == thread
    assert book.space("agent", agent_id).threads.get(thread.id) == thread


def test_records_of_the_agents_own_do_not_hide_its_folders_name(open_anywhere):
    memories = open_anywhere()
    agent_id = memories.create_agent("Test Agent")
    create = memories.get_agent_memory(agent_id).space.records.create
    create(type="agent", content={"text": "Agent Smith is the contact"}, source="chat", confidence=0.9)
    create(type="agent", content={"folder": "/home/smith"}, source="commonplace", confidence=0.9)
    create(type="agent", content="Smith", source="commonplace", confidence=0.9)
    assert memories.get_agent_folder_name(agent_id) == f"test-agent-{agent_id}"


@pytest.mark.promise("agents-not-found")
def test_an_agent_that_a_shared_book_does_not_hold_is_not_found(open_memories, open_book):
    memories = open_memories(book=open_book())
    unknown = "a1b2c3d4-e5f6-7890-abcd-ef1234567890"
    with pytest.raises(NotFound) as refused:
        memories.get_agent_memory(unknown)
    assert str(refused.value) == f"Agent folder not found for agentId: {unknown}"
    assert memories.get_agent_folder_name(unknown) is memories.get_agent_folder_name("x") is None


def test_agents_need_one_place(book, base):
    for wrong in (
        {},
        {"base_folder": base, "book": book},
        {"base_folder": base, "max_open": 0},
        {"base_folder": "a\0b"},
        {"base_folder": "~no-such-user/x"},
    ):
        with pytest.raises(InvalidInput):
            AgentMemories(**wrong)


# Vectors


@pytest.mark.promise("agents-embed-in-background")
def test_what_is_saved_gets_its_vectors_behind_the_writes_also_where_files_are_closed(base, clock, embedder):
    options = BookOptions(embedder=embedder, clock=clock, durability="normal")
    with AgentMemories(base, options=options, max_open=1) as memories:
        held = [memories.get_agent_memory(memories.create_agent(f"agent {number}")) for number in range(3)]
        for number, memory in enumerate(held):
            say(memory, memory.create_thread("u-1"), f"the kayak number {number}")
        assert memories.settle()
        assert set(embedder.embedded) == {f"the kayak number {number}" for number in range(3)}
        assert [memory.space.stats().pending for memory in held] == [0, 0, 0]


class Slow(WordEmbedder):
    """Takes its time over passages: until it is told to go on."""

    def __init__(self):
        super().__init__()
        self.has_begun, self.may_end = threading.Event(), threading.Event()

    def embed(self, texts, *, purpose):
        if purpose == "passage":
            self.has_begun.set()
            assert self.may_end.wait(30)
        return super().embed(texts, purpose=purpose)


def test_closing_waits_for_the_vectors_in_hand(base, clock):
    slow = Slow()
    memories = AgentMemories(base, options=BookOptions(embedder=slow, clock=clock))
    memory = memories.get_agent_memory(memories.create_agent("Ann"))
    say(memory, memory.create_thread("u-1"), *(f"kayak {number}" for number in range(20)))
    assert slow.has_begun.wait(30)

    threading.Timer(0.1, slow.may_end.set).start()
    memories.close()

    assert slow.embedded
    assert memories.settle(0)


@pytest.mark.promise("agents-embed-in-background")
def test_settling_waits_for_the_vectors_of_a_shared_book(tmp_path, clock):
    slow = Slow()
    with commonplace.open(tmp_path / "book.db", embedder=slow, clock=clock) as book:
        memories = AgentMemories(book=book)
        memory = memories.get_agent_memory(memories.create_agent("Ann"))
        say(memory, memory.create_thread("u-1"), "the kayak is red")
        assert not memories.settle(0.01)
        slow.may_end.set()
        assert memories.settle(30)
        assert memory.space.stats().pending == 0
        assert "the kayak is red" in slow.embedded


def test_settling_does_not_wait_for_a_book_that_embeds_for_searches_only(open_memories, open_book):
    memories = open_memories(book=open_book())
    memory = memories.get_agent_memory(memories.create_agent("Ann"))
    say(memory, memory.create_thread("u-1"), "the kayak is red")
    assert memories.settle(0)
    assert memory.space.stats().pending


def test_a_model_that_fails_stops_no_write(base, clock, embedder, caplog):
    embedder.error = Unavailable("no model")
    with AgentMemories(base, options=BookOptions(embedder=embedder, clock=clock)) as memories:
        memory = memories.get_agent_memory(memories.create_agent("Ann"))
        thread = memory.create_thread("u-1")
        say(memory, thread, "hello")
        assert memories.settle()
        assert texts(memory.recall(thread.id, "hello")) == ["hello"]
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_a_folder_deleted_while_its_vectors_are_made_stops_nothing(open_memories, base):
    memories = open_memories()
    agent_id = memories.create_agent("Ann")
    memory = memories.get_agent_memory(agent_id)
    memory.create_thread()
    shutil.rmtree(base / memories.get_agent_folder_name(agent_id))
    with pytest.raises(NotFound):
        memory.list_threads()
    assert memories.open_books == 0


def test_the_thread_of_another_resource_is_refused(memory):
    thread = memory.create_thread("A")
    for call in (
        lambda: memory.get_thread(thread.id, resource="B"),
        lambda: memory.recall(thread.id, resource="B"),
        lambda: memory.save_messages(thread.id, [{"role": "user", "content": "x"}], resource="B"),
        lambda: memory.working_memory(thread.id, "B"),
        lambda: memory.system_message(thread.id, "B"),
        lambda: memory.update_working_memory({"keyContext": []}, thread.id, "B"),
        lambda: memory.delete_thread(thread.id, resource="B"),
    ):
        with pytest.raises(Forbidden) as refused:
            call()
        assert str(refused.value) == (
            f"Thread with id {thread.id} is for resource with id A but resource B was queried."
        )
