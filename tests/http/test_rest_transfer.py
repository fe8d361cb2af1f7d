"""Export and import over REST: the library's own lines, whole or not at all, within the caller's reach."""

from __future__ import annotations

import io
import threading
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest
from real_server import Server

import commonplace
from commonplace.exchange.foreign import undo_import
from commonplace.server.http import transfer

NAMESPACE = ("user", "default")


def fill(book: commonplace.Book, *labels: str) -> None:
    space = book.space(*labels)
    space.files.write("/f", "one")
    space.files.write("/f", "two")
    space.records.create(type="note", content={"text": "tea"}, source="s", confidence=0.9)
    thread = space.threads.create("Deploys")
    space.threads.add(thread.id, [{"role": "user", "content": "hello"}])


def exported(book: commonplace.Book, *namespaces: tuple[str, ...]) -> bytes:
    lines = io.BytesIO()
    book.export(lines.write, namespaces=list(namespaces) or None)
    return lines.getvalue()


@pytest.mark.promise("rest-export-import")
def test_an_export_is_what_the_library_writes(http: httpx.Client, book: commonplace.Book) -> None:
    fill(book, *NAMESPACE)
    fill(book, "user", "u1")
    assert http.get("/v1/export").content == exported(book, NAMESPACE)
    both = http.get("/v1/export?namespace=user/default&namespace=user/u1")
    assert both.content == exported(book, NAMESPACE, ("user", "u1"))
    assert http.get("/v1/export?everything=true").content == exported(book)
    assert http.get("/v1/export?namespace=user/nobody").status_code == 404


@pytest.mark.promise("rest-export-import")
def test_an_import_takes_in_everything_and_can_be_repeated(
    http: httpx.Client, book: commonplace.Book, open_book: Any, tmp_path: Any
) -> None:
    other = open_book(tmp_path / "other.db")
    fill(other, "user", "u7")
    lines = exported(other)
    first = http.post("/v1/import", content=lines)
    assert first.json()["namespaces"] == [
        {"namespace": "user/u7", "outcome": "imported", "states": 5, "kept": 0, "differing": 0, "commit": None}
    ]
    assert exported(book, ("user", "u7")) == lines
    assert http.post("/v1/import", content=lines).json()["namespaces"][0]["outcome"] == "identical"
    book.space("user", "u7").files.write("/g", "more")
    refused = http.post("/v1/import", content=lines)
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert http.post("/v1/import?merge=true", content=lines).json()["namespaces"][0]["outcome"] == "merged"


def test_an_export_that_was_cut_off_changes_nothing(http: httpx.Client, book: commonplace.Book, open_book: Any) -> None:
    fill(book, "user", "u7")
    lines = exported(book)
    book.space("user", "u7").purge()
    refused = http.post("/v1/import", content=lines[: len(lines) // 2])
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_input")
    assert book.space("user", "u7").stats().entries == {}


def test_an_import_stays_within_the_reach_of_its_key(server: Server, book: commonplace.Book, make_key: Any) -> None:
    fill(book, "user", "u1")
    fill(book, "user", "u2")
    lines = exported(book)
    book.space("user", "u1").purge()
    everything = ("read", "write", "delete", "admin")
    with (
        server.client(make_key("writer", "user/u1")) as writer,
        server.client(make_key("admin", "user/u1", actions=everything)) as admin,
    ):
        assert writer.post("/v1/import", content=lines).status_code == 403
        assert admin.post("/v1/import", content=lines).status_code == 403
        assert book.space("user", "u1").stats().entries == {}
        assert admin.post("/v1/import?namespace=user/u1", content=lines).status_code == 200
        assert admin.post("/v1/import?namespace=user/u2", content=lines).status_code == 403
        assert admin.get("/v1/export?namespace=user/u2").status_code == 403
        assert admin.get("/v1/export?everything=true").status_code == 403
        assert admin.get("/v1/export").content == exported(book, ("user", "u1"))


@pytest.mark.promise("rest-export-import")
def test_a_long_line_is_exported_in_small_pieces(book: commonplace.Book) -> None:
    book.space(*NAMESPACE).files.write("/f", "x" * 1_000_000)
    pieces = list(transfer._pieces(book, [NAMESPACE]))
    assert max(map(len, pieces)) == transfer.PIECE_BYTES
    assert b"".join(pieces) == exported(book, NAMESPACE)


@pytest.mark.promise("rest-export-import")
def test_an_export_whose_reader_stalls_ends_without_a_footer(book: commonplace.Book, monkeypatch: Any) -> None:
    monkeypatch.setattr(transfer, "STALL_SECONDS", 0.2)
    book.space(*NAMESPACE).files.write("/f", "x" * 4_000_000)
    pieces = transfer._pieces(book, [NAMESPACE])
    first = next(pieces)
    (writer,) = [thread for thread in threading.enumerate() if thread.name == "commonplace-export"]
    writer.join(20)
    assert not writer.is_alive()
    rest = []
    with pytest.raises(commonplace.Unavailable, match="was not read"):
        rest.extend(pieces)
    assert len(first) + sum(map(len, rest)) < 4_000_000


# The memory of other programs

SAMPLES = Path(__file__).parent.parent / "exchange" / "samples"


@pytest.mark.promise("rest-import-memory")
def test_the_memory_of_another_program_is_counted_imported_and_undone(
    http: httpx.Client, book: commonplace.Book
) -> None:
    raw = (SAMPLES / "chatgpt/conversations.json").read_bytes()
    dry = http.post("/v1/import-memory?dry_run=true&name=conversations.json", content=raw).json()
    assert (dry["formats"], dry["threads"], dry["messages"], dry["commits"]) == (["chatgpt"], 4, 13, [])
    assert len(dry["samples"]) == 2
    done = http.post("/v1/import-memory", content=raw).json()
    assert (done["threads"], done["messages"], done["unreadable"]) == (4, 13, 0)
    assert done["commits"] == [{"namespace": "user/default", "first": 1, "last": 2, "count": 2}]
    assert http.post("/v1/import-memory", content=raw).json()["kept"] == 17
    for commit in (2, 1):
        assert http.post("/v1/undo", json={"commit": commit}).status_code == 200
    assert book.space(*NAMESPACE).threads.list().threads == ()


@pytest.mark.promise("rest-import-memory")
def test_only_the_bytes_of_a_request_are_imported(http: httpx.Client, tmp_path: Path) -> None:
    secret = tmp_path / "secret.md"
    secret.write_text("a secret of the server")
    for body in (str(secret).encode(), b"postgresql://127.0.0.1/x", b""):
        http.post("/v1/import-memory?from=text&format=text", content=body)
        http.post(f"/v1/import-memory?name={secret}", content=body)
    assert "a secret of the server" not in http.get("/v1/export").text
    refused = http.post("/v1/import-memory", content=b"PK\x03\x04 not an archive")
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_input")
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.md", b" " * 20_000_000)
    refused = http.post("/v1/import-memory", content=bomb.getvalue())
    assert (refused.status_code, refused.json()["code"]) == (413, "too_large")


def test_an_export_of_commonplace_sent_as_another_programs_memory_says_where_to_send_it(http: httpx.Client) -> None:
    """The error named a method of the library."""
    http.put("/v1/files/content?path=/a", json={"text": "b"})
    refused = http.post("/v1/import-memory", content=http.get("/v1/export").content)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_input")
    assert "POST /v1/import" in refused.json()["detail"]
    assert "import_lines" not in refused.text


def test_the_client_sends_files_and_folders(server: Server, book: commonplace.Book) -> None:
    with commonplace.connect(server.address) as remote:
        report = remote.import_memory(SAMPLES / "obsidian", NAMESPACE)
        assert (report.formats, report.files, report.left_out) == (("obsidian",), 2, 1)
        assert remote.import_memory(SAMPLES / "mem0/history.sqlite", NAMESPACE).records == 4
        assert undo_import(remote.space(*NAMESPACE), 1, 1).commits == 1
    assert [info.path for info in book.space(*NAMESPACE).files.walk() if info.kind == "file"] == []
    assert len(book.space(*NAMESPACE).records.list().records) == 3
