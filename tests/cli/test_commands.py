"""What each command does, through the program's own entry point."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import commonplace
from commonplace.cli import main

from .conftest import Run, give_input

# add


def test_add_makes_a_record_that_cat_prints(run: Run) -> None:
    added = run("add", "Ana prefers tea", "--tag", "Person:Ana", "--type", "taste", "--confidence", "0.5", "--json")
    assert added.code == 0
    shown = run("cat", added.json["id"])
    assert shown.json == added.json
    expected = {"type": "taste", "content": {"text": "Ana prefers tea"}, "source": "cli", "tags": ["person:ana"]}
    assert {name: added.json[name] for name in expected} == expected


def test_adding_the_same_again_merges_its_tags(run: Run) -> None:
    first = run("add", "tea", "--tag", "a", "--json").json
    second = run("add", "tea", "--tag", "b")
    assert second.out == f"merged into record {first['id']}\n"
    assert run("cat", first["id"]).json["tags"] == ["a", "b"]


def test_add_reads_a_pipe(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    give_input(monkeypatch, "grüße\n".encode())
    assert run("add", "--json").json["content"] == {"text": "grüße"}
    give_input(monkeypatch, b"second\n")
    run("add", "-", "--file", "/a")
    assert run("cat", "/a").out == "second\n"


@pytest.mark.parametrize(("data", "complaint"), [(b" \n", "the text is empty"), (b"\xff\xfe", "not UTF-8")])
def test_add_refuses_input_that_is_no_text(
    run: Run, monkeypatch: pytest.MonkeyPatch, data: bytes, complaint: str
) -> None:
    give_input(monkeypatch, data)
    refused = run("add")
    assert refused.code == 2
    assert complaint in refused.err


@pytest.mark.parametrize("words", [[""], ["   "], ["", " "], ["--file", "/a", ""]])
def test_add_refuses_a_blank_argument_like_blank_input(run: Run, book_file: Path, words: list[str]) -> None:
    refused = run("add", *words)
    assert (refused.code, "the text is empty" in refused.err) == (2, True)
    assert not book_file.exists()


def test_add_appends_to_a_file(run: Run) -> None:
    run("add", "--file", "/notes/today", "one")
    assert run("add", "--file", "/notes/today", "two").out == "appended to /notes/today (revision 2, 2 lines)\n"
    assert run("cat", "/notes/today").out == "one\ntwo"


def test_add_keeps_json_as_the_content(run: Run) -> None:
    assert run("add", "--as-json", '{"a": [1, null]}', "--json").json["content"] == {"a": [1, None]}
    assert run("add", "--as-json", "{").code == 2


def test_json_that_is_nested_too_deeply_is_refused(run: Run) -> None:
    run("add", "tea")
    deep = "[" * 50_000
    added, found = run("add", "--as-json", deep), run("search", "tea", "--filter", deep)
    assert (added.code, "is not valid JSON" in added.err) == (2, True)
    assert (found.code, "is not valid JSON" in found.err) == (2, True)


def test_add_with_a_time_to_live_expires(run: Run) -> None:
    record = run("add", "door code", "--ttl", "2h", "--json").json
    assert record["expires_at"] is not None
    run("add", "--file", "/tmp", "x", "--ttl", "1h")
    again = run("add", "--file", "/tmp", "x", "--ttl", "1h")
    assert (again.code, "exists already" in again.err) == (4, True)


def test_options_of_a_record_are_refused_for_a_file(run: Run) -> None:
    refused = run("add", "--file", "/x", "text", "--tag", "a")
    assert refused.code == 2
    assert "--tag is for records" in refused.err


# search


def test_search_shows_kind_key_score_and_snippet(run: Run) -> None:
    run("add", "--file", "/notes/deploy", "blue green checklist")
    found = run("search", "checklist")
    assert found.code == 0
    score, kind, key = found.out.splitlines()[0].split()
    assert (kind, key) == ("file", "/notes/deploy")
    assert 0 <= float(score) <= 1
    assert found.out.splitlines()[1].strip() == "blue green checklist"
    assert "keywords only" in found.err


def test_search_without_a_hit_exits_with_one(run: Run) -> None:
    run("add", "tea")
    assert run("search", "zebra").code == 1
    empty = run("search", "zebra", "--json")
    assert (empty.code, empty.json["hits"]) == (1, [])


def test_search_narrows_by_kind_type_tags_filter_and_time(run: Run) -> None:
    run("add", "--file", "/tea", "tea tea")
    run("add", "tea one", "--tag", "a", "--tag", "b", "--type", "note")
    run("add", "tea two", "--tag", "a", "--type", "taste", "--confidence", "0.2", "--importance", "0.7")

    def kinds(*options: str) -> list[str]:
        return sorted(hit["snippet"] for hit in run("search", "tea", "--json", *options).json["hits"])

    assert kinds() == ["tea one", "tea tea", "tea two"]
    assert kinds("--kind", "file") == ["tea tea"]
    assert kinds("--type", "taste") == ["tea two"]
    assert kinds("--tag", "a", "--tag", "b") == ["tea one"]
    assert kinds("--tag", "a", "--tag", "b", "--match", "any") == ["tea one", "tea two"]
    assert kinds("--tag", "a", "--tag", "b", "--any-tag") == ["tea one", "tea two"]
    assert kinds("--filter", '{"confidence": {"$lt": 0.5}}') == ["tea two"]
    assert kinds("--filter", '{"importance": 0.7}') == ["tea two"]
    assert kinds("--before", "2020-01-01") == []
    assert kinds("--after", "1h") == ["tea one", "tea tea", "tea two"]
    assert kinds("--as-of", "2020-01-01T00:00:00Z") == []
    assert len(kinds("--limit", "2")) == 2
    assert len(kinds("--offset", "2")) == 1


@pytest.mark.parametrize("choice", ["all", "any"])
def test_search_takes_one_word_on_how_tags_match(run: Run, choice: str) -> None:
    refused = run("search", "tea", "--tag", "a", "--match", choice, "--any-tag")
    assert (refused.code, "--any-tag: not allowed with argument --match" in refused.err) == (2, True)


def test_search_below_looks_into_the_namespaces_under_it(run: Run) -> None:
    run("add", "tea", "--namespace", "org/acme/a")
    run("add", "tea", "--namespace", "org/acme")
    found = run("--namespace", "org/acme", "search", "tea", "--below", "--json").json["hits"]
    assert sorted(hit["namespace"] for hit in found) == ["org/acme", "org/acme/a"]


def test_a_limit_above_the_cap_is_lowered_with_a_note(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCH_MAX_LIMIT", "10")
    run("add", "tea")
    assert "lowered to 10" in run("search", "tea", "--limit", "50").err


# ls, cat, history, changes


def test_ls_lists_directories_then_files(run: Run) -> None:
    run("add", "--file", "/b", "x")
    run("add", "--file", "/a/deep/er", "x")
    assert run("ls").out == "a/\nb\n"
    assert run("ls", "-R").out == "/a/\n/a/deep/\n/a/deep/er\n/b\n"
    assert [one["path"] for one in run("ls", "/a", "--json").json] == ["/a/deep"]
    assert run("ls", "-l").out.splitlines()[0].split() == ["revision", "size", "updated", "name"]
    assert (run("ls", "/nowhere").code, run("ls", "/b").code) == (3, 4)


def test_ls_lists_records_and_threads(run: Run, book_file: Path) -> None:
    run("add", "a long text " * 20, "--tag", "x")
    run("add", "short")
    lines = run("ls", "--records").out.splitlines()
    assert lines[1].split("note")[1].strip() == "short"
    assert lines[2].endswith("…")
    assert len(run("ls", "--records", "--tag", "x", "--json").json) == 1
    with commonplace.open(book_file, background=False) as book:
        thread = book.space("user", "default").threads.create(title="Budget")
        book.space("user", "default").threads.add(thread.id, [{"role": "user", "content": "how much?"}])
    assert run("ls", "--threads").out.splitlines()[1].split()[::3] == [thread.id, "Budget"]
    assert run("cat", thread.id).out.splitlines()[1].endswith("user: how much?")
    assert [one["role"] for one in run("cat", thread.id, "--json").json["messages"]] == ["user"]
    deleted = run("rm", thread.id, "--json").json
    assert run("cat", thread.id).code == 3
    run("undo", str(deleted["commit"]))
    assert run("cat", thread.id).out.splitlines()[1].endswith("user: how much?")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--type note", "add --records"),
        ("--tag x", "add --records"),
        ("--threads --tag x", "add --records"),
        ("--limit 1", "add --records or --threads"),
        ("--records /notes", "remove the path"),
        ("--records -R", "remove the path and -R"),
        ("--threads /", "remove the path"),
    ],
)
def test_ls_refuses_what_would_do_nothing(run: Run, words: str, told: str) -> None:
    run("add", "tea")
    refused = run("ls", *words.split())
    assert (refused.code, refused.out, told in refused.err) == (2, "", True)


def test_ls_takes_a_limit_for_records_and_threads(run: Run) -> None:
    run("add", "one")
    run("add", "two")
    limited = run("ls", "--records", "--limit", "1")
    assert len(limited.out.splitlines()) == 2
    assert limited.err == "commonplace: there are more than 1; --limit shows more of them\n"
    assert (run("ls", "--threads", "--limit", "1").code, run("ls", "--threads", "--limit", "0").code) == (0, 2)


def test_cat_reads_former_revisions_and_times(run: Run) -> None:
    run("add", "--file", "/a", "one")
    between = run("history", "/a", "--json").json["revisions"][0]["at"]
    run("add", "--file", "/a", "two")
    assert run("cat", "/a", "--revision", "1").out == "one"
    assert run("cat", "/a", "--as-of", between).out == "one"
    assert run("cat", "/a", "--json").json == {"path": "/a", "text": "one\ntwo"}
    assert run("cat", "/a", "--revision", "9").code == 3


def test_cat_of_a_deleted_record_names_its_history(run: Run) -> None:
    id = run("add", "tea", "--json").json["id"]
    run("rm", id)
    gone = run("cat", id)
    assert gone.code == 3
    assert f"commonplace history {id}" in gone.err
    assert run("cat", id, "--revision", "1").json["content"] == {"text": "tea"}


def test_an_id_means_what_is_alive_before_what_was_deleted(run: Run, book_file: Path) -> None:
    with commonplace.open(book_file, background=False) as book:
        space = book.space("user", "default")
        space.records.create(id="x-1", type="note", content={"text": "gone"}, source="test", confidence=1)
        space.records.delete("x-1")
        space.threads.create(id="x-1", title="Alive")
        space.threads.add("x-1", [{"role": "user", "content": "hi"}])
    assert run("cat", "x-1").out.splitlines()[1].endswith("user: hi")
    assert run("history", "x-1", "--json").json["kind"] == "thread"
    assert run("cat", "x-1", "--revision", "1").json["content"] == {"text": "gone"}
    assert run("rm", "x-1").out.startswith("deleted the thread x-1")
    gone = run("cat", "x-1")
    assert (gone.code, "record x-1 was deleted" in gone.err) == (3, True)
    assert run("history", "x-1", "--json").json["kind"] == "record"


def test_a_path_means_the_file_and_the_directory_has_to_be_said(run: Run) -> None:
    run("add", "--file", "/d", "secret")
    run("rm", "/d")
    run("add", "--file", "/d/a", "one")
    assert run("history", "/d", "--json").json["kind"] == "file"
    assert run("purge", "/d", "--yes").code == 0
    assert run("cat", "/d/a").out == "one"
    assert run("history", "/d", "--json").json["kind"] == "directory"


def test_history_tells_every_revision_and_who_made_it(run: Run) -> None:
    run("add", "--file", "/a", "one")
    run("rm", "/a")
    told = run("history", "file", "/a", "--json").json
    assert [(line["revision"], line["action"], line["actor"]) for line in told["revisions"]] == [
        (1, "created", "cli"),
        (2, "deleted", "cli"),
    ]
    assert run("history", "/a").out.splitlines()[1].split()[:3] == ["1", "created", "1"]
    assert run("history", "/never").code == 3
    assert run("history", "fiel", "/a").code == 2


def test_changes_are_json_lines_in_commit_order(run: Run) -> None:
    run("add", "--file", "/a", "one")
    run("add", "--file", "/b", "two")
    lines = [json.loads(line) for line in run("changes", "--json").out.splitlines()]
    assert [(line["commit"], line["key"]) for line in lines] == [(1, "/a"), (2, "/b")]
    assert [json.loads(line)["commit"] for line in run("changes", "--json", "--after", "1").out.splitlines()] == [2]


def test_changes_go_on_after_a_purge_from_what_is_kept(run: Run) -> None:
    run("add", "--file", "/a", "one")
    run("add", "--file", "/a", "two")
    run("purge", "/a", "--yes")
    run("add", "--file", "/b", "three")
    told = run("changes")
    assert told.code == 0
    assert "older changes were purged" in told.err
    assert told.out.splitlines()[-1].endswith("/b")


# rm, mv, restore, undo, purge


@pytest.mark.promise("cli-undo")
def test_rm_prints_the_command_that_takes_it_back(run: Run) -> None:
    run("add", "--file", "/notes/a", "one", "--namespace", "user/ana")
    deleted = run("--namespace", "user/ana", "rm", "-r", "/notes")
    assert deleted.out.startswith("deleted 1 file and 1 directory; to undo: commonplace --namespace user/ana undo ")
    assert run("cat", "/notes/a", "--namespace", "user/ana").code == 3
    assert run(*deleted.out.split("commonplace ")[1].split()).code == 0
    assert run("cat", "/notes/a", "--namespace", "user/ana").out == "one"


def test_rm_of_a_directory_needs_to_be_told_so(run: Run) -> None:
    run("add", "--file", "/notes/a", "one")
    assert run("rm", "/notes").code == 2
    assert run("rm", "/").code == 2
    assert run("rm", "/nowhere").code == 3
    assert run("rm", "no-such-id").code == 3


def test_mv_takes_the_history_along_and_can_be_undone(run: Run) -> None:
    run("add", "--file", "/a", "one")
    moved = run("mv", "/a", "/b/c", "--json").json
    assert run("cat", "/b/c").out == "one"
    run("undo", str(moved["commit"]))
    assert run("cat", "/a").out == "one"
    run("add", "--file", "/b", "in the way")
    assert run("mv", "/a", "/b").code == 4


def test_restore_makes_a_former_revision_the_present_one(run: Run) -> None:
    run("add", "--file", "/a", "one")
    run("add", "--file", "/a", "two")
    assert run("restore", "/a", "1").code == 0
    assert run("cat", "/a").out == "one"
    assert run("restore", "file", "/a", "2").code == 0
    assert run("cat", "/a").out == "one\ntwo"
    assert run("restore", "/a", "77").code == 3


def test_history_and_changes_show_what_was_restored(run: Run) -> None:
    """A restored revision was listed as `updated`, or as `created` where the file had been deleted."""
    run("add", "--file", "/a", "one")
    run("add", "--file", "/a", "two")
    run("restore", "/a", "1")
    deleted = run("rm", "/a", "--json").json
    run("undo", str(deleted["commit"]))
    listed = [line["action"] for line in run("history", "/a", "--json").json["revisions"]]
    assert listed == ["created", "updated", "restored", "deleted", "restored"]
    assert [line.split()[3] for line in run("changes").out.splitlines() if line.endswith("/a")] == listed


def test_cat_ends_the_line_on_a_terminal_and_gives_the_bytes_to_a_pipe(run: Run, book_file: Path) -> None:
    """On a terminal, the prompt of the shell came right after the last word of a file."""
    pty = pytest.importorskip("pty")
    run("add", "--file", "/a", "hello")
    assert run("cat", "/a").out == "hello"
    terminal, end = pty.openpty()
    command = [sys.executable, "-m", "commonplace.cli", "cat", "/a"]
    subprocess.run(command, stdout=end, env={**os.environ, "DATABASE_URL": str(book_file)}, check=True)
    os.close(end)
    assert os.read(terminal, 100) == b"hello\r\n"
    os.close(terminal)


def test_undo_of_what_was_changed_since_is_a_conflict(run: Run) -> None:
    run("add", "--file", "/a", "one")
    run("add", "--file", "/a", "two")
    assert run("undo", "1").code == 4
    assert run("undo", "99").code == 3


def test_purge_asks_first_and_erases_for_good(run: Run, book_file: Path) -> None:
    run("add", "--file", "/secret", "xyzzy-plugh")
    refused = run("purge", "/secret")
    assert refused.code == 2
    assert "--yes" in refused.err
    assert run("purge", "/secret", "--yes", "--json").json == {"erased_states": 1}
    assert run("history", "/secret").code == 3
    for file in book_file.parent.glob("book.db*"):
        assert b"xyzzy" not in file.read_bytes()


def test_purge_of_everything_has_to_be_said(run: Run) -> None:
    run("add", "--file", "/a", "one")
    run("add", "--file", "/a", "two")
    assert run("purge", "--yes").code == 2
    assert run("purge", "--history-before", "2020-01-01", "--yes").out == "permanently erased 0 states\n"
    assert run("purge", "--all", "--yes").code == 0
    assert run("ls").out == ""


def test_the_entry_point_takes_the_programs_own_arguments(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["commonplace", "--version"])
    assert main() == 0


# confirm


@pytest.mark.promise("standing-recalled")
def test_confirm_makes_a_record_standing_and_withdraw_ends_it(run: Run) -> None:
    added = run("add", "--type", "instruction", "always answer in metric units")
    id = added.out.split()[-1]
    assert f"commonplace confirm {id}" in added.err
    assert "no instruction or preference is confirmed" in run("confirm").err
    assert run("confirm", id).out == f"confirmed record {id}: always answer in metric units\n"
    assert [record["id"] for record in run("confirm", "--json").json] == [id]
    assert "always answer in metric units" in run("confirm").out
    assert run("confirm", id, "--withdraw").code == 0
    assert run("confirm", id, "--withdraw").code == 3
    assert run("confirm", "--withdraw").code == 2
    assert run("confirm", "--json").json == []


@pytest.mark.promise("standing-suggested")
def test_add_suggests_a_standing_type_and_confirms_on_request(run: Run) -> None:
    suggested = run("add", "please never call before ten")
    assert "add it with --type instruction --confirm" in suggested.err
    done = run("add", "--type", "instruction", "--confirm", "please never call before ten")
    assert (done.code, done.err) == (0, "")
    assert len(run("confirm", "--json").json) == 1
    assert run("add", "--confirm", "tea").code == 2
    refused = run("add", "--confirm", "--type", "note", "tea")
    assert (refused.code, "only a record of type instruction or preference" in refused.err) == (2, True)
    assert run("add", "--confirm", "--file", "/x", "tea").code == 2


# Short ids


def test_a_short_id_means_the_one_entry_that_it_begins(run: Run, book_file: Path) -> None:
    with commonplace.open(book_file, background=False) as book:
        space = book.space("user", "default")
        for id in ("abcd-1", "abcd-2", "wxyz-1"):
            space.records.create(id=id, type="instruction", content=f"text of {id}")
        space.threads.create(id="talk-1", title="A talk")
    assert run("cat", "wxyz").json["id"] == "wxyz-1"
    assert run("cat", "talk").out == "A talk\n"
    assert run("history", "wxyz", "--json").json["key"] == "wxyz-1"
    refused = run("cat", "abcd")
    assert (refused.code, refused.err) == (2, "commonplace: the short id abcd is ambiguous; it may be abcd-1, abcd-2\n")
    assert run("cat", "wxy").code == 3  # fewer than four characters are no short id
    assert run("confirm", "wxyz").code == 0
    assert run("rm", "wxyz").out.startswith("deleted the record wxyz-1;")


def test_a_whole_id_is_never_read_as_a_short_one(run: Run, book_file: Path) -> None:
    with commonplace.open(book_file, background=False) as book:
        records = book.space("user", "default").records
        records.create(id="abcd", type="note", content="gone")
        records.create(id="abcdef", type="note", content="here")
        records.delete("abcd")
    assert run("rm", "abcd").code == 3
    assert run("history", "abcd", "--json").json["key"] == "abcd"


def test_purge_needs_the_whole_id(run: Run, book_file: Path) -> None:
    with commonplace.open(book_file, background=False) as book:
        book.space("user", "default").records.create(id="wxyz-1", type="note", content="text")
    refused = run("purge", "wxyz", "--yes")
    assert (refused.code, refused.err) == (
        2,
        "commonplace: a purge cannot be undone, so it needs the whole id: wxyz-1\n",
    )
    assert run("purge", "wxyz-1", "--yes").code == 0


def test_a_deleted_entry_needs_its_whole_id(run: Run) -> None:
    id = run("add", "tea").out.split()[-1]
    run("rm", id)
    refused = run("history", id[:8])
    assert (refused.code, refused.err) == (
        3,
        f"commonplace: there is no record or thread {id[:8]} in user/default; a deleted one needs its whole id, which "
        "`changes` lists\n",
    )
    assert id in run("changes").out
    assert run("restore", id, "1").code == 0
