"""`commonplace.connect`: the face of a local book over a service."""

from __future__ import annotations

import asyncio
import inspect
import io
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from real_server import Server

import commonplace
from commonplace.api.client import RemoteFiles, RemoteRecords, RemoteSpace, RemoteThreads, RemoteWorkingMemories
from commonplace.book import Book
from commonplace.errors import Ambiguous, ConfigurationError, Forbidden, InvalidInput, NotFound, Outdated, Unauthorized
from commonplace.redaction import Redactor
from commonplace.remote import RemoteBook
from commonplace.space.files import Files
from commonplace.space.records import Records
from commonplace.space.space import Space
from commonplace.space.threads import Threads
from commonplace.space.working_memory import WorkingMemories
from commonplace.tools import ClaudeMemoryTool, ToolAnswer

ROOT = Path(__file__).parents[2]
FACES = [
    (Book, RemoteBook),
    (Space, RemoteSpace),
    (Files, RemoteFiles),
    (Records, RemoteRecords),
    (Threads, RemoteThreads),
    (WorkingMemories, RemoteWorkingMemories),
]
WORKS_AS_IT_IS = {"walk", "clean_tags", "wanted_tags"}
"""Public methods that only call other public ones, or that need no store."""

INSIDE_A_WRITE = {"make_parents", "has_below", "settle", "prepared", "place"}
"""Take a transaction, so they are for the parts of a space and not for callers."""


@pytest.fixture
def remote(server: Server) -> Iterator[RemoteBook]:
    with commonplace.connect(server.address) as book:
        yield book  # type: ignore[misc]


def test_a_session_of_the_openai_agents_sdk_works_on_a_service(remote: RemoteBook) -> None:
    from commonplace.adapters.openai_agents import CommonplaceSession

    async def scenario() -> None:
        session = CommonplaceSession(remote.space("user", "u-1"), "chat-1")
        await session.add_items([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}])
        assert await session.get_items(limit=1) == [{"role": "user", "content": "b"}]

    asyncio.run(scenario())


@pytest.mark.promise("connect-same-interface")
@pytest.mark.parametrize(("local", "remote"), FACES, ids=lambda kind: kind.__name__)
def test_every_public_method_is_there_with_the_same_arguments(local: type, remote: type) -> None:
    names = [name for name in dir(local) if not name.startswith("_") and name not in INSIDE_A_WRITE | WORKS_AS_IT_IS]
    assert names
    for name in names:
        assert name in vars(remote), f"{remote.__name__} inherits {name}, which would look for a store"
        here, there = inspect.getattr_static(local, name), inspect.getattr_static(remote, name)
        if inspect.isfunction(here):
            ours, theirs = inspect.signature(here), inspect.signature(there)
            assert [*ours.parameters.values()] == [*theirs.parameters.values()], name


@pytest.mark.promise("connect-suite")
def test_the_suite_of_spaces_passes_over_a_service(tmp_path: Path) -> None:
    """`make remote-test` runs all of it; this runs a sample."""
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "pytest",
                "--over=http",
                "--every=8",
                "-q",
                "-p",
                "no:cacheprovider",
                "-p",
                "no:xdist",
            ),
            *(f"--basetemp={tmp_path / 'tests'}", str(ROOT / "tests" / "space")),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5_000:]
    skipped = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    assert all(line.endswith("the service makes the vectors of its own book") for line in skipped), skipped


def test_a_change_of_one_string_moves_a_program_to_a_service(server: Server, tmp_path: Path) -> None:
    def program(book: Book) -> tuple[object, ...]:
        space = book.space("user", "u-123")
        space.files.append("/notes/today", "hello")
        record = space.records.create(type="note", content={"text": "tea"}, source="s", confidence=0.9)
        thread = space.threads.create("Deploys")
        space.threads.add(thread.id, [{"role": "user", "content": "When do we deploy?"}])
        found = [(hit.kind, hit.snippet) for hit in space.search("tea", kinds=["record"])]
        return space.files.read("/notes/today"), record.content, found, [info.path for info in space.files.walk()]

    with (
        commonplace.open(tmp_path / "local.db", background=False) as local,
        commonplace.connect(server.address) as remote,
    ):
        assert program(local) == program(remote)


def test_without_labels_the_space_is_the_callers_own(server: Server, make_key: Any) -> None:
    key = make_key("ana", "team/ana")
    with commonplace.connect(server.address, key) as book:
        assert book.space().namespace == ("team", "ana")
        book.space().files.write("/f", "x")
        assert book.namespaces() == [("team", "ana")]
        with pytest.raises(Forbidden, match="do not reach the namespace"):
            book.space("team", "eve").files.read("/f")
        with pytest.raises(Forbidden, match="the action 'admin' is not permitted"):
            book.space().purge()
        assert book.space().history("file", "/f")[0].actor == "ana rest commonplace-python"
        assert book.space(actor="my agent").files.write("/g", "x").revision == 1
        assert book.space().history("file", "/g")[0].actor == "ana rest my-agent"


def test_a_wrong_key_is_told_at_once(server: Server, make_key: Any) -> None:
    make_key("ana")
    with pytest.raises(Unauthorized):
        commonplace.connect(server.address)
    with pytest.raises(Unauthorized):
        commonplace.connect(server.address, "cp_wrong")


def test_a_key_may_come_with_the_end_of_its_line_and_a_wrong_one_is_not_shown(server: Server, make_key: Any) -> None:
    key = make_key("ana", "team/ana")
    with commonplace.connect(server.address, f"{key}\n") as book:
        assert book.space().namespace == ("team", "ana")
    for wrong in (f"{key}\nX-Other: 1", f"{key} {key}", f"{key}é", ""):
        with pytest.raises(ConfigurationError) as refused:
            commonplace.connect(server.address, wrong)
        assert key not in str(refused.value)


@pytest.mark.parametrize(
    ("address", "options"),
    [
        ("http://127.0.0.1:99999", {}),
        ("http://127.0.0.1:abc", {}),
        ("http://[::1", {}),
        ("ftp://127.0.0.1", {}),
        ("http://127.0.0.1:1", {"timeout_seconds": -1}),
        ("http://127.0.0.1:1", {"max_retries": -1}),
    ],
)
def test_what_is_no_address_or_no_limit_is_refused(address: str, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        commonplace.connect(address, **options)


@pytest.mark.promise("connect-same-errors")
def test_errors_are_those_of_the_library_with_their_attributes(remote: RemoteBook) -> None:
    space = remote.space()
    space.files.write("/f", "one\ntwo\none")
    with pytest.raises(Ambiguous, match="occurs 2 times") as ambiguous:
        space.files.replace("/f", "one", "1", unique=True)
    assert ambiguous.value.lines == (1, 3)
    with pytest.raises(NotFound, match=r"^Memory r not found$"):
        space.records.get("r")
    with pytest.raises(InvalidInput, match="content contains a set, which JSON cannot hold"):
        space.records.create(type="note", content={"a": {1}}, source="s", confidence=1)  # type: ignore[dict-item]
    with pytest.raises(InvalidInput, match="a key in content must be a string"):
        space.records.create(type="note", content={1: 2}, source="s", confidence=1)  # type: ignore[dict-item]
    with pytest.raises(Outdated) as outdated:
        space.expecting("file", "/f", 7).files.append("/f", "x")
    assert outdated.value.revision == 1


@pytest.mark.parametrize("no_id", [None, 7, b"r", " "])
def test_an_id_that_is_none_is_refused_as_by_the_library(remote: RemoteBook, no_id: Any) -> None:
    """None went into the address of a request, where it was a TypeError."""
    space = remote.space()
    for call, told in (
        (space.records.get, "id is required"),
        (space.records.delete, "id is required"),
        (lambda id: space.records.update(id, confidence=1), "id is required"),
        (space.threads.get, "thread id is required"),
        (space.threads.delete, "thread id is required"),
        (space.threads.messages, "thread id is required"),
        (space.threads.get_message, "message id is required"),
        (space.threads.around, "message id is required"),
    ):
        with pytest.raises(InvalidInput, match=f"^{told} and must be a non-empty string$"):
            call(no_id)


def test_names_of_any_kind_reach_the_service_as_they_are(remote: RemoteBook) -> None:
    space = remote.space()
    for name in ("a/b", "ü?#&=%2F%", "日本 語", "..", ".", " x", "a\\b"):
        thread = space.threads.create(id=name)
        assert space.threads.get(name) == thread
        assert space.records.create(type="t", content=name, source="s", confidence=1, id=name).id == name
        assert space.records.get(name).content == name
        space.threads.add(name, [{"id": name, "role": "user", "content": "x"}])
        assert space.threads.get_message(name).id == name
        assert [line.action for line in space.history("record", name)] == ["created"]
    for path in ("/ü?#&=%zz", "/日本 語/x.md", "/a b", "/100%/é"):
        space.files.write(path, path)
        assert space.files.read(path) == path
        assert space.state("file", path, 1).value == path


def test_a_text_is_kept_byte_for_byte(remote: RemoteBook) -> None:
    for text in ("", "\r\n", "no newline", "\ufeffé\u2028\x7f\x01", "𝄞\n" * 10):
        remote.space().files.write("/f", text)
        assert remote.space().files.read("/f") == text


def test_edits_of_many_callers_are_all_kept(remote: RemoteBook) -> None:
    files = remote.space().files
    files.write("/f", "0")

    def count() -> None:
        for _ in range(5):
            files.edit("/f", lambda text: str(int(text) + 1))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert files.read("/f") == "20"


def test_an_edit_under_a_condition_keeps_what_others_wrote_meanwhile(remote: RemoteBook) -> None:
    space = remote.space()
    space.files.write("/plan", "x")
    space.files.write("/f", "one")

    def change(text: str) -> str:
        if "theirs" not in text:
            space.files.append("/f", "theirs")
        return text + "\nmine"

    space.expecting("file", "/plan", 1).files.edit("/f", change)
    assert space.files.read("/f") == "one\ntheirs\nmine"
    with pytest.raises(Outdated, match="file /plan is at revision 1"):
        space.expecting("file", "/plan", 7).files.edit("/f", str.upper)


def test_a_working_memory_with_a_schema_under_a_condition_is_written_though_others_write_too(
    remote: RemoteBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = remote.space()
    space.files.write("/plan", "x")
    schema = {"type": "object", "properties": {"name": {"type": "string"}, "city": {"type": "string"}}}
    check = RemoteWorkingMemories._check_fit
    quicker = [{"city": "Bonn"}]

    def check_late(*arguments: Any) -> None:
        check(*arguments)
        while quicker:
            space.threads.working.write(quicker.pop())

    monkeypatch.setattr(RemoteWorkingMemories, "_check_fit", check_late)
    careful = space.expecting("file", "/plan", 1).threads.working
    assert careful.write({"name": "Ana"}, schema=schema).content == {"city": "Bonn", "name": "Ana"}
    with pytest.raises(Outdated, match="file /plan is at revision 1"):
        space.expecting("file", "/plan", 7).threads.working.write({"name": "Eve"}, schema=schema)


def test_claudes_tool_answers_with_what_a_masking_service_keeps(remote: RemoteBook, book: Book) -> None:
    book.redaction = Redactor("mask", kinds=["email"])
    space = remote.space()
    space.files.write("/f", "mail: X")
    edit = {"command": "str_replace", "path": "/memories/f", "old_str": "X", "new_str": "ana@example.org"}
    assert ClaudeMemoryTool(space).call(edit) == ToolAnswer("mail: [redacted:email]")
    assert space.files.read("/f") == "mail: [redacted:email]"


def test_an_edit_keeps_the_time_to_live(remote: RemoteBook, clock: Any) -> None:
    files = remote.space().files
    files.write("/f", "x", ttl_seconds=10)
    files.edit("/f", str.upper)
    assert files.read("/f") == "X"
    clock.advance(11)
    assert not files.exists("/f")


def test_an_export_and_an_import_go_through_a_service(remote: RemoteBook, tmp_path: Path) -> None:
    remote.space("user", "u1").files.write("/f", "x")
    lines = io.BytesIO()
    exported = remote.export(lines.write, namespaces=[("user", "u1")])
    assert (exported.namespaces, exported.states) == (1, 1)
    with commonplace.open(tmp_path / "other.db", background=False) as other:
        assert [one.outcome for one in other.import_lines(lines)] == ["imported"]
        assert other.space("user", "u1").files.read("/f") == "x"
    assert [one.outcome for one in remote.import_lines(lines)] == ["identical"]


@pytest.mark.parametrize("chosen", [[], [("user", "u1")], [("user", "u1"), ("user", "u1")], None])
def test_an_export_of_some_namespaces_is_that_of_the_library(remote: RemoteBook, book: Book, chosen: Any) -> None:
    for name in ("default", "u1"):
        book.space("user", name).files.write("/secret", "x")
    here, there = io.BytesIO(), io.BytesIO()
    exported = book.export(here.write, namespaces=chosen)
    assert remote.export(there.write, namespaces=chosen) == exported
    assert there.getvalue() == here.getvalue()
    assert exported.namespaces == (2 if chosen is None else len(set(chosen)))


@pytest.mark.parametrize(
    ("chosen", "error"),
    [([("nobody",)], NotFound), (["user/u1"], InvalidInput), ("user", InvalidInput), ([()], InvalidInput)],
)
def test_an_export_of_what_is_no_namespace_is_refused(
    remote: RemoteBook, book: Book, chosen: Any, error: type[Exception]
) -> None:
    book.space("user", "default").files.write("/secret", "x")
    for one in (book, remote):
        lines: list[bytes] = []
        with pytest.raises(error):
            one.export(lines.append, namespaces=chosen)
        assert lines == []


def test_a_large_import_that_is_refused_tells_why(server: Server, make_key: Any, tmp_path: Path) -> None:
    file = tmp_path / "large.jsonl"
    file.write_bytes(b'{"line":"header","format":"commonplace","version":1}\n' * 200_000)
    with commonplace.connect(server.address, make_key("ana")) as remote, file.open("rb") as lines:
        with pytest.raises(Forbidden, match="the action 'admin' is not permitted"):
            list(remote.import_lines(lines))
        assert remote.space().stats().entries == {}


def test_a_disk_that_is_full_is_not_taken_for_the_network(remote: RemoteBook) -> None:
    def write(piece: bytes) -> None:
        raise OSError(28, "No space left on device")

    remote.space("user", "u1").files.write("/f", "x")
    with pytest.raises(OSError, match="No space left"):
        remote.export(write, namespaces=[("user", "u1")])
    assert remote.space("user", "u1").files.read("/f") == "x"


@pytest.mark.parametrize("limit", [1, 3, 4, 5, 6, 8, 20_000])
def test_a_limit_above_the_services_own_is_asked_for_in_pages(
    remote: RemoteBook, book: Book, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commonplace.api.client.MOST_AT_ONCE", 2)
    space = book.space("user", "u1")
    for path in ("/a", "/b/c/d", "/e", "/f"):  # a commit of three between those of one
        space.files.write(path, "x")
        book.space("user", "u2", path.strip("/").replace("/", "-")).files.write("/x", "x")
    there = remote.space("user", "u1")
    for after in range(5):
        assert there.changes(after, limit) == space.changes(after, limit)
    assert remote.namespaces(limit=limit) == book.namespaces(limit=limit)
    below = {"after": ("user", "u2", "a"), "limit": limit}
    assert remote.namespaces("user", "u2", **below) == book.namespaces("user", "u2", **below)


def test_a_limit_above_the_services_own_is_not_refused(remote: RemoteBook) -> None:
    remote.space("user", "u1").files.write("/a", "x")
    assert len(remote.space("user", "u1").changes(limit=20_000)) == 1
    assert remote.namespaces(limit=20_000) == [("user", "u1")]


@pytest.mark.parametrize(
    "call",
    [
        lambda book: book.namespaces(""),
        lambda book: book.namespaces("user/u1"),
        lambda book: book.namespaces(5),
        lambda book: book.namespaces(after="user"),
        lambda book: book.namespaces(limit=0),
        lambda book: book.namespaces(limit="5"),
        lambda book: book.space("user", "u1", actor="a\n"),
        lambda book: book.space("user", "u1", actor="a" * 1_001),
        lambda book: book.space("user", "u1").records.list(limit="5"),
        lambda book: book.space("user", "u1").records.create(type="t", content="c", source="s", confidence=10**5_000),
    ],
)
def test_what_the_library_refuses_the_client_refuses(
    remote: RemoteBook, book: Book, call: Callable[[Book], object]
) -> None:
    for one in (book, remote):
        with pytest.raises(InvalidInput):
            call(one)


def test_an_argument_that_json_cannot_hold_is_told(remote: RemoteBook) -> None:
    itself: list[Any] = []
    itself.append(itself)
    for source, problem in (({1}, "a set"), (10**5_000, "too long"), (itself, "itself")):
        with pytest.raises(InvalidInput, match=f"an argument contains .*{problem}"):
            remote.space("user", "u1").records.create(type="t", content="c", source=source, confidence=1)  # type: ignore[arg-type]


def test_what_needs_the_file_says_so(remote: RemoteBook) -> None:
    calls: list[Callable[[], object]] = [remote.reindex, remote.rebuild_keywords, remote.verify]
    for needs in (*calls, lambda: remote.backup("x"), lambda: remote.store):
        with pytest.raises(ConfigurationError, match="needs the book itself, not a service"):
            needs()


def test_a_counter_of_tokens_may_be_the_callers_own(remote: RemoteBook, book: Book) -> None:
    def told(threads: Threads) -> object:
        return threads.context("t", "zebra", max_tokens=60, last=2, count_tokens=len)

    threads = remote.space("user", "u1").threads
    threads.create(id="t")
    threads.add("t", [{"role": "user", "content": f"zebra {number}"} for number in range(8)])
    threads.working.write({"name": "Ana"}, resource="u1")
    assert told(threads) == told(book.space("user", "u1").threads)


def test_the_awaited_library_connects_too(server: Server) -> None:
    async def program() -> str:
        async with await commonplace.aio.connect(server.address) as book:
            space = book.space("user", "u1")
            await space.files.append("/notes", "hello")
            return "".join([info.path async for info in space.files.walk()]) + await space.files.read("/notes")

    assert asyncio.run(program()) == "/noteshello"


def test_importing_the_package_loads_neither_the_client_nor_a_server() -> None:
    heavy = ("fastapi", "http.client", "httpx")
    code = f"import sys, commonplace; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
