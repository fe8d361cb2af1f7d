"""Damaged and hostile samples: an import never ends in a traceback, and never leaves half of a conversation."""

from __future__ import annotations

import json
import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commonplace import Book
from commonplace.book import open_book
from commonplace.errors import CommonplaceError
from commonplace.exchange.foreign import ImportReport

SAMPLES = Path(__file__).parent / "samples"
HERE = ("user", "ana")
JSON_FILES = sorted(
    path for path in SAMPLES.rglob("*") if path.suffix in (".json", ".jsonl", ".af") and ".obsidian" not in path.parts
)
ALL_FILES = sorted(
    path
    for path in SAMPLES.rglob("*")
    if path.is_file() and path.suffix in (".json", ".jsonl", ".af", ".sqlite", ".zip", ".md")
)
ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    1e308,
    10**400,
    "",
    "\x00",
    "\ud800",
    "a" * 3_000,
    "../..",
    [],
    {},
    [[[]]],
    {"": ""},
]
NAMES = {path: str(path.relative_to(SAMPLES)) for path in ALL_FILES}


def imported(book: Book, path: Path, **options: Any) -> ImportReport | None:
    """The report of an import; None if it was refused with an error of ours. Anything else fails the test."""
    try:
        return book.import_memory(path, HERE, **options)
    except CommonplaceError:
        return None


def check_whole(book: Book, report: ImportReport | None) -> None:
    """Every message belongs to a thread that is there, and the counts are those of the book."""
    space = book.space(*HERE)
    entries = space.stats().entries
    if report is None:
        assert not any(entries.values())
        return
    assert entries.get("thread", 0) == report.threads
    assert entries.get("message", 0) == report.messages
    threads = [thread.id for thread in space.threads.list(limit=1_000).threads]
    assert sum(space.threads.count_messages(threads).values()) == report.messages
    assert book.verify() == []


def changed(value: Any, chance: random.Random) -> Any:
    """A JSON value with one place made odd, left out, or doubled."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        name = chance.choice(list(value))
        if chance.random() < 0.15:
            return {key: item for key, item in value.items() if key != name}
        return {**value, name: changed(value[name], chance)}
    if isinstance(value, list) and value and chance.random() < 0.9:
        at = chance.randrange(len(value))
        if chance.random() < 0.15:
            return [*value, value[at]]
        return [*value[:at], changed(value[at], chance), *value[at + 1 :]]
    return chance.choice(ODD)


def written(value: Any) -> str:
    import sys

    sys.set_int_max_str_digits(0)
    try:
        return json.dumps(value)
    finally:
        sys.set_int_max_str_digits(4_300)


@pytest.mark.promise("import-damage")
@pytest.mark.parametrize("path", JSON_FILES, ids=NAMES.get)
def test_json_with_odd_values_gives_a_report_or_an_error_of_ours(path: Path, tmp_path: Path):
    chance = random.Random(NAMES[path])
    text = path.read_text()
    is_lines = path.suffix == ".jsonl"
    for number in range(12):
        copy = tmp_path / f"{number}{path.suffix}"
        if is_lines:
            lines = text.splitlines()
            at = chance.randrange(len(lines))
            lines[at] = written(changed(json.loads(lines[at]), chance))
            copy.write_text("\n".join(lines) + "\n")
        else:
            copy.write_text(written(changed(json.loads(text), chance)))
        with open_book(":memory:", background=False) as book:
            dry = imported(book, copy, dry_run=True)
            report = imported(book, copy)
            assert (dry is None) == (report is None)
            check_whole(book, report)
            if report is not None:
                again = imported(book, copy)
                assert again is not None
                assert again.commits == ()


@pytest.mark.promise("import-damage")
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from(ALL_FILES),
    cuts=st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=6)), max_size=3),
    end=st.floats(0.3, 1),
)
def test_damaged_bytes_give_a_report_or_an_error_of_ours(
    tmp_path_factory: pytest.TempPathFactory, path: Path, cuts: list[tuple[float, bytes]], end: float
):
    raw = bytearray(path.read_bytes())
    for place, new in cuts:
        at = int(place * len(raw))
        raw[at : at + len(new)] = new
    copy = tmp_path_factory.mktemp("damage") / path.name
    copy.write_bytes(bytes(raw[: int(end * len(raw)) + 1]))
    with open_book(":memory:", background=False) as book:
        check_whole(book, imported(book, copy))


def test_a_view_in_a_database_is_not_run(tmp_path: Path):
    """A view may compute for ever."""
    path = tmp_path / "store.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute(
            "CREATE VIEW store AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n)"
            " SELECT x AS prefix, x AS key, x AS value FROM n"
        )
    with open_book(":memory:", background=False) as book:
        assert imported(book, path) is None


def test_a_cycle_and_a_missing_parent_lose_no_message(tmp_path: Path):
    def node(id: str, parent: str | None) -> dict[str, Any]:
        content = {"content_type": "text", "parts": [f"says {id}"]}
        return {"id": id, "parent": parent, "message": {"id": id, "author": {"role": "user"}, "content": content}}

    nodes = [node("a", "b"), node("b", "a"), node("c", "nobody"), node("d", None)]
    found = {"conversation_id": "c1", "current_node": "missing", "mapping": {one["id"]: one for one in nodes}}
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([found]))
    with open_book(":memory:", background=False) as book:
        report = book.import_memory(path, HERE)
        assert (report.messages, report.unreadable) == (4, 0)


def test_deep_nesting_is_an_error_of_ours(tmp_path: Path):
    for text in (
        "[" * 100_000,
        '{"a":' * 100_000,
        "[" + "[" * 50_000 + "]" * 50_000 + "]",
        '[{"mapping":' + "[" * 9_999,
    ):
        path = tmp_path / "deep.json"
        path.write_text(text)
        with open_book(":memory:", background=False) as book:
            check_whole(book, imported(book, path))
