"""Moving a book and caring for it: export, import, backup, stats, namespaces, reindex, doctor, model."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import zipfile
from datetime import datetime
from pathlib import Path

import pytest

import commonplace
from commonplace.embedding.catalog import ARCTIC_S, EMBED_S, Digest, Model, ModelFile
from doubles import WordEmbedder

from .conftest import Run, give_input


@pytest.mark.promise("cli-export-lossless")
def test_an_export_comes_back_the_same(run: Run, tmp_path: Path) -> None:
    run("add", "--file", "/a", "one")
    run("add", "--file", "/a", "two", "--namespace", "user/ana")
    run("rm", "/a")
    assert run("export", "all.jsonl").code == 0
    assert run("--db", "copy.db", "import", "all.jsonl", "--json").code == 0
    assert run("--db", "copy.db", "export").out == (tmp_path / "all.jsonl").read_text()
    assert "the same is there already" in run("import", "all.jsonl").out
    one = run("export", "--namespace", "user/ana").out.splitlines()
    assert [json.loads(line)["line"] for line in one] == ["header", "namespace", "state", "end", "footer"]


def test_export_replaces_no_file_unless_told(run: Run, tmp_path: Path) -> None:
    run("add", "one")
    (tmp_path / "old.jsonl").write_text("old")
    assert run("export", "old.jsonl").code == 4
    assert (tmp_path / "old.jsonl").read_text() == "old"
    assert run("export", "old.jsonl", "--force").code == 0
    assert run("export", "--namespace", "user/nobody").code == 3
    missing = run("export", "no/such/folder/x.jsonl")
    folder = tmp_path / "no" / "such" / "folder"
    assert (missing.code, missing.err) == (2, f"commonplace: the folder {folder} does not exist; create it first\n")
    assert run("export", ".", "--force").err == f"commonplace: {tmp_path} is a directory; name a file in it\n"
    assert [path.name for path in tmp_path.iterdir() if "unfinished" in path.name] == []


@pytest.mark.parametrize("name", ["book.db", "./book.db", "link.db", "book.db-wal", "book.db-shm", "book.db-lock"])
def test_export_never_replaces_the_book_itself(run: Run, tmp_path: Path, name: str) -> None:
    run("add", "--file", "/a", "one")
    (tmp_path / "link.db").symlink_to("book.db")
    for book in ("book.db", "link.db"):
        refused = run("--db", book, "export", name, "--force")
        assert (refused.code, "is a file of the book; choose another name" in refused.err) == (4, True)
    assert run("cat", "/a").out == "one"


def test_move_knows_the_same_book_by_another_name(run: Run, tmp_path: Path) -> None:
    run("add", "one")
    (tmp_path / "link.db").symlink_to("book.db")
    for name in ("book.db", "./book.db", str(tmp_path / "book.db"), "link.db", "sqlite:///book.db"):
        refused = run("move", "book.db", name)
        assert (refused.code, "are the same book" in refused.err) == (2, True)


def test_an_export_is_for_its_owner_alone(run: Run, tmp_path: Path) -> None:
    run("add", "one")
    (tmp_path / "old.jsonl").touch(0o644)
    assert (run("export", "new.jsonl").code, run("export", "old.jsonl", "--force").code) == (0, 0)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("new.jsonl", "old.jsonl")] == [0o600, 0o600]


def test_export_writes_where_a_link_leads(run: Run, tmp_path: Path) -> None:
    run("add", "one")
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    assert (run("export", "link").code, (tmp_path / "real").read_text()) == (4, "old")
    assert run("export", "link", "--force").code == 0
    assert (tmp_path / "link").readlink() == Path("real")
    assert (tmp_path / "real").read_text() == run("export").out


@pytest.mark.parametrize("words", [[], ["--force"]])
def test_export_writes_into_a_fifo_and_leaves_it_one(run: Run, tmp_path: Path, words: list[str]) -> None:
    run("add", "one")
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    ran = run("export", "pipe", *words)
    read = os.read(reader, 65_536)
    os.close(reader)
    assert (ran.code, read.decode()) == (0, run("export").out)
    assert (tmp_path / "pipe").is_fifo()


def test_import_says_what_is_wrong_with_a_file(run: Run, tmp_path: Path) -> None:
    assert run("import", "missing.jsonl").code == 3
    (tmp_path / "bad.jsonl").write_text("hello\n")
    refused = run("import", "bad.jsonl")
    assert (refused.code, "nothing that can be imported" in refused.err) == (2, True)
    refused = run("import", "bad.jsonl", "--from", "commonplace")
    assert (refused.code, "not JSON" in refused.err) == (2, True)
    assert not (tmp_path / "memory.db").exists()


def test_import_reads_standard_input_and_merges(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("add", "--file", "/a", "theirs")
    lines = run("export").out
    run("--db", "mine.db", "add", "--file", "/b", "mine")
    give_input(monkeypatch, lines.encode())
    assert run("--db", "mine.db", "import", "-").code == 4
    give_input(monkeypatch, lines.encode())
    merged = run("--db", "mine.db", "import", "-", "--merge", "--json").json
    assert [(one["outcome"], one["states"]) for one in merged] == [("merged", 1)]
    assert run("--db", "mine.db", "ls").out == "a\nb\n"


def test_import_reads_a_pipe_by_its_name(run: Run, tmp_path: Path) -> None:
    run("add", "--file", "/a", "one")
    lines = run("export").out
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=[lines])
    writer.start()
    imported = run("--db", "copy.db", "import", "pipe")
    writer.join()
    assert imported.code == 0
    assert run("--db", "copy.db", "export").out == lines


def test_backup_is_a_book(run: Run) -> None:
    run("add", "--file", "/a", "one")
    assert run("backup", "copy.db").code == 0
    assert run("--db", "copy.db", "cat", "/a").out == "one"
    assert run("backup", "copy.db").code == 4


def test_stats_and_namespaces_count(run: Run) -> None:
    run("add", "one", "--namespace", "user/ana")
    run("add", "--file", "/n/a", "two")
    stats = run("stats", "--json").json
    assert stats["book"]["entries"] == {"directory": 1, "file": 1, "record": 1}
    assert stats["namespace"]["entries"] == {"directory": 1, "file": 1}
    assert "1 directory, 1 file" in run("stats").out
    assert run("namespaces").out == "user/ana\nuser/default\n"
    assert run("namespaces", "user/ana", "--json").json == ["user/ana"]
    header, ana, _ = run("namespaces", "-l").out.splitlines()
    assert header.split("  ")[-1] == "last change"
    assert ana.split()[:4] == ["user/ana", "1", "0", "1"]
    assert datetime.fromisoformat(" ".join(ana.split()[4:])).year >= 2026
    assert run("namespaces", "-l", "--json").json[1] == stats["namespace"]


def test_reindex_rebuilds_the_keywords(run: Run) -> None:
    run("add", "--file", "/a", "zebra")
    assert run("reindex", "--keywords").out == "rebuilt the keyword index\n"
    assert run("search", "zebra").code == 0


@pytest.mark.promise("cli-reindex-keeps-the-model")
def test_reindex_stays_with_the_books_model_until_another_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(name: str | None, **options: object) -> WordEmbedder:
        return WordEmbedder(f"{(name or 'default').removesuffix('@1')}@1")

    monkeypatch.setattr("commonplace.embedding.create_embedder", make)
    run("add", "tea")
    assert run("reindex").out == "everything is embedded with default@1\n"
    run("reindex", "--model", "other")
    run("add", "coffee")
    assert "run `commonplace reindex` to embed now" in run("doctor").out
    assert run("reindex").out == "everything is embedded with other@1\n"
    monkeypatch.setenv("EMBEDDINGS_MODEL", "third")
    assert run("reindex").out == "everything is embedded with third@1\n"


@pytest.mark.promise("cli-better-model")
def test_a_book_of_the_former_model_is_told_what_the_default_one_takes(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    former = WordEmbedder(f"{ARCTIC_S.identity};sentences=1")
    monkeypatch.setattr("commonplace.embedding.create_embedder", lambda name, **options: former)
    run("add", "tea")
    run("reindex")
    advice = (
        f"{EMBED_S.identity} finds more in conversations; `commonplace reindex --model commonplace-embed-s` embeds "
        "1 passage again, about 1 minute on two cores, and searches work meanwhile"
    )
    assert advice in run("stats").out
    report = run("doctor")
    assert advice in report.out
    assert f"ok       model       {former.identity} loads" in report.out
    former.identity = "commonplace-embed-s@0badc0de;sentences=1"
    run("reindex", "--model", "the same with other weights")
    advice = advice.replace("in conversations", "of what a question does not name")
    assert advice in run("stats").out
    monkeypatch.setenv("EMBEDDINGS_MODEL", EMBED_S.id)
    assert advice in run("stats").out
    monkeypatch.setenv("EMBEDDINGS_MODEL", ARCTIC_S.id)
    assert advice not in run("stats").out


def test_a_book_whose_model_cannot_be_made_is_told_how_to_take_another(run: Run, book_file: Path) -> None:
    with commonplace.open(book_file, embedder=WordEmbedder("of a program@1"), background=False) as book:
        book.space("user", "default").files.write("/a", "tea")
        book.reindex()
    refused = run("reindex")
    assert (refused.code, "this book's vectors are of the model of a program@1" in refused.err) == (6, True)
    assert "`commonplace reindex --model NAME`" in refused.err


def test_a_book_of_former_weights_is_told_to_embed_again(
    run: Run, book_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with commonplace.open(book_file, embedder=WordEmbedder(f"{EMBED_S.id}@0badc0de"), background=False) as book:
        book.space("user", "default").files.write("/a", "tea")
        book.reindex()
    monkeypatch.delenv("EMBEDDINGS_MODEL", raising=False)
    said = f"of former weights of {EMBED_S.id}, which this version does not have; `commonplace reindex --model"
    refused = run("reindex")
    assert (refused.code, said in refused.err) == (6, True)
    found = run("search", "tea")
    assert ("/a" in found.out, "keywords only" in found.err) == (True, True)
    told = "problem  vectors     searches find by words only, since this book's vectors are "
    assert told + said in run("doctor").out


def test_reindex_without_its_model_says_how_to_get_it(run: Run) -> None:
    run("add", "tea")
    refused = run("reindex")
    assert refused.code in (5, 6)
    assert "commonplace model pull" in refused.err


def test_doctor_finds_the_missing_model_and_nothing_else(run: Run) -> None:
    run("add", "tea")
    report = run("doctor", "--json")
    assert report.code == 1
    assert [check["check"] for check in report.json["checks"] if not check["ok"]] == ["model"]


def test_doctor_reports_a_damaged_book_with_the_next_step(run: Run, book_file: Path) -> None:
    book_file.write_bytes(b"this is no database at all, but long enough to look like one" * 100)
    report = run("doctor")
    assert report.code == 1
    assert report.out.startswith("problem  book ")
    assert "restore a backup" in report.out
    assert "commonplace doctor" not in report.out
    assert run("ls").code == 7


def test_doctor_says_what_to_do_with_a_book_that_is_damaged_inside(run: Run, book_file: Path) -> None:
    import apsw

    run("add", "tea")
    connection = apsw.Connection(str(book_file))
    (page,) = next(connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'chunk'"))
    connection.close()
    with book_file.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)
    report = run("doctor")
    found = [line for line in report.out.splitlines() if line.startswith("problem  integrity")]
    assert found
    for line in found:
        assert "restore a backup, or take what can still be read with `commonplace export --salvage" in line
    assert "commonplace doctor" not in report.out
    assert "reindex --keywords" not in report.out


def test_doctor_finds_an_index_that_disagrees(run: Run, book_file: Path) -> None:
    import apsw

    run("add", "--file", "/a", "zebra")
    run("reindex", "--keywords")  # writes the keywords of a new file, which may come later
    connection = apsw.Connection(str(book_file))
    connection.execute("INSERT INTO keywords (keywords) VALUES ('delete-all')")
    connection.close()
    report = run("doctor")
    assert "problem  integrity" in report.out
    run("reindex", "--keywords")
    assert "problem  integrity" not in run("doctor").out


def test_model_list_shows_what_is_installed_and_the_default(run: Run) -> None:
    listed = run("model", "list", "--json").json
    assert [model["name"] for model in listed["models"] if model["default"]] == ["commonplace-embed-s"]
    assert not any(model["installed"] for model in listed["models"])
    assert run("model", "list", "x").code == 2
    assert run("model", "pull", "x").code == 6
    assert run("model", "pull", "--from", "nowhere").code == 3


def test_model_pull_tells_that_it_mended_a_damaged_model(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "model.onnx").write_bytes(b"weights")
    file = ModelFile("model.onnx", (Digest(hashlib.sha256(b"weights").hexdigest(), 7),))
    tiny = Model("tiny", (), "MIT", 4, "cls", "", 16, (0.0, 1.0), (file,), ())
    monkeypatch.setattr("commonplace.embedding.catalog.model_named", lambda name: tiny)

    def pulled() -> str:
        return run("model", "pull", "tiny", "--from", "source").out

    place = tmp_path / "no-models" / "tiny"
    assert pulled() == f"tiny was installed in {place}\n"
    assert pulled() == f"tiny is installed already in {place}\n"
    (place / "model.onnx").write_bytes(b"WEIGHTS")
    assert pulled() == f"tiny was installed in {place}\n"


@pytest.mark.promise("cli-semantic-search")
def test_search_finds_by_meaning_with_the_real_model(
    run: Run, book_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COMMONPLACE_MODELS")
    run("add", "The release train leaves every Tuesday")
    run("add", "Ana is allergic to peanuts")
    with commonplace.open(book_file, background=False) as book:
        assert len(book.store.claim(8, lease_seconds=60)) == 2  # as a run does that is then stopped
    embedded = run("reindex")
    assert embedded.out.startswith("everything is embedded with commonplace-embed-s")
    found = run("search", "which foods must she avoid?", "--json").json
    assert found["hits"][0]["snippet"] == "Ana is allergic to peanuts"
    assert found["notices"] == []
    assert run("doctor").code == 0


@pytest.mark.promise("relevance-cli")
def test_search_for_something_else_finds_nothing_relevant_and_exits_with_one(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It showed hits at 0.00 and exited with 0."""
    monkeypatch.delenv("COMMONPLACE_MODELS")
    run("add", "Ana likes tea")
    nothing = run("search", "quantum chromodynamics lattice")
    assert (nothing.code, nothing.out) == (1, "")
    assert "nothing relevant was found; 1 less relevant hit was left out, --min 0 shows them" in nothing.err
    assert run("search", "quantum chromodynamics lattice", "--json").json == {"hits": [], "notices": [], "left_out": 1}
    everything = run("search", "quantum chromodynamics lattice", "--min", "0", "--json")
    assert (everything.code, [hit["snippet"] for hit in everything.json["hits"]]) == (0, ["Ana likes tea"])
    assert everything.json["hits"][0]["relevance"] < 0.01
    asked = run("search", "what should I offer Ana to drink?", "--json").json["hits"]
    assert [hit["snippet"] for hit in asked] == ["Ana likes tea"]
    refused = run("search", "tea", "--min", "7")
    assert (refused.code, "min_relevance must be a number from 0 to 1" in refused.err) == (2, True)


def test_the_help_of_import_lists_every_format(run: Run) -> None:
    from commonplace.exchange.recognition import NAMES

    written = run("import", "--help").out.replace(",", " ").split()
    assert [name for name in NAMES if name not in written] == []


def test_an_export_is_imported_from_an_archive_and_from_a_folder(run: Run, tmp_path: Path) -> None:
    """The archive was recognised, and then read as if it were the lines."""
    (tmp_path / "folder").mkdir()
    assert run("add", "--file", "/notes", "tea").code == 0
    run("export", str(tmp_path / "folder" / "all.jsonl"))
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.write(tmp_path / "folder" / "all.jsonl", "all.jsonl")
    for number, name in enumerate(("folder", "all.zip")):
        imported = run("--db", f"copy{number}.db", "import", str(tmp_path / name))
        assert (imported.code, imported.out.strip()) == (0, "user/default: imported 1 state, with history")


def test_the_command_names_what_an_import_leaves_out(run: Run, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "tea.md").write_text("green")
    (tmp_path / "notes" / "cup.png").write_bytes(b"\x89PNG")
    imported = run("import", str(tmp_path / "notes"))
    assert imported.code == 0
    assert "left out: cup.png: it is not part of the memory" in imported.err
