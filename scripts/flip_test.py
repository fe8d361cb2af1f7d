"""Flip bytes of a book, one at a time: every flip is harmless, or it is reported as damage. Never a raw exception.

A book of a few thousand states is built once. For each flip it is copied, one byte at a seeded place is changed, and
the copy gets the same calls as the undamaged book, through the library, the command line, REST and MCP. An answer may
be the same as before, or `Corrupt`. If any answer differs, `verify` must report the damage, `backup` must refuse the
copy (unless only an index is damaged), and `export --salvage` must recover every entry that can still be read.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import os
import random
import re
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.testclient import TestClient

import commonplace
from commonplace.cli import main
from commonplace.server.http.api_keys import Keys
from commonplace.server.http.app import build_app
from commonplace.server.http.auth import Gate, Principal
from commonplace.server.http.service import Service
from commonplace.settings import Settings

INTERFACES = ("library", "cli", "rest", "mcp")
START = 1_750_000_000_000_000
CORRUPT_CODE = 7
SAMPLED = 7
"""1 in this many entries is read individually; the lists and the export read all of them."""

WORDS = re.findall(
    r"\w+",
    "amber birch copper delta ember falcon granite harbour island juniper kettle lantern meadow nutmeg orchard pebble "
    "quartz river saffron timber umber velvet willow yarrow zephyr Zürich café naïve 東京 Ωmega",
)
QUERIES = ("harbour lantern", "willow café", "東京 quartz", "copper kettle island")


class WordEmbedder:
    """Hashes words into 32 dimensions: a vector for each passage without a model to load."""

    identity, dimensions, calibration = "words@1", 32, (0.0, 1.0)

    def embed(self, texts: Sequence[str], *, purpose: str) -> NDArray[np.float32]:
        rows = np.full((len(texts), self.dimensions), 0.01, np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in re.findall(r"\w+", text.casefold()):
                row[zlib.crc32(word.encode()) % self.dimensions] += 1
            row /= np.linalg.norm(row)
        return rows


class Clock:
    def __init__(self, now: int = START) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def open_book(path: Path, clock: Callable[[], int] | None = None) -> commonplace.Book:
    return commonplace.open(
        path, embedder=WordEmbedder(), background=False, durability="normal", clock=clock or Clock(START + 10**12)
    )


def build(path: Path, entries: int) -> None:
    """A book with every kind of entry, history, labels, vectors, keys and pending marks."""
    chance, clock = random.Random(1), Clock()

    def text(words: int) -> str:
        return " ".join(chance.choice(WORDS) for _ in range(words))

    with open_book(path, clock) as book:
        for labels, share in ((("user", "default"), 3), (("user", "other"), 1)):
            space = book.space(*labels, actor="builder")
            for number in range(entries * share // 16):
                clock.now += 1_000_000
                name = f"/notes/{number % 13}/note {number}"
                space.files.write(name, text(chance.choice((5, 30, 120, 900))))
                if number % 4 == 0:
                    space.files.append(name, text(9))
                if number % 9 == 0:
                    space.files.edit(name, lambda old: old.replace("river", "stream", 1) + " end")
                if number % 31 == 0:
                    space.files.delete(name)
                space.records.create(
                    type=chance.choice(("note", "fact")),
                    content={"text": text(12), "count": number},
                    source=f"book://{number}",
                    confidence=0.5,
                    tags=[chance.choice(WORDS[:9]), "all"],
                    id=f"record-{labels[1]}-{number}",
                )
            space.files.move("/notes/5", "/moved")
            for number in range(entries * share // 160):
                thread = space.threads.create(f"talk {number}", id=f"thread-{labels[1]}-{number}")
                for turn in range(5):
                    clock.now += 1_000_000
                    role = "user" if turn % 2 == 0 else "assistant"
                    space.threads.add(thread.id, [{"role": role, "content": text(15), "id": f"{thread.id}-{turn}"}])
            space.search(QUERIES[0])
        book.reindex()
        book.space("user", "other").files.write("/last", "one passage waits for its vector")
        book.store.system_put("flip", "test", {"a": ["row"]})


Answers = dict[str, Any]


@dataclass
class Broken:
    """An answer that was an error: `Corrupt` is a report of damage, anything else is a fault."""

    is_report: bool
    text: str

    def __eq__(self, other: object) -> bool:
        return False


def asked(question: Callable[..., Any], *arguments: object) -> Any:
    try:
        return question(*arguments)
    except commonplace.Corrupt as error:
        return Broken(True, str(error))
    except Exception as error:  # noqa: BLE001 - what it is decides the caller
        return Broken(False, f"{type(error).__name__}: {error}")


def names(space: commonplace.Space) -> list[tuple[str, str]]:
    files = [("file", info.path) for info in space.files.walk() if info.kind == "file"]
    records = [("record", record.id) for record in space.records.list(limit=10_000).records]
    return [*files, *records]


def read(space: commonplace.Space, kind: str, name: str) -> Any:
    return space.files.read(name) if kind == "file" else space.records.get(name)


def ask_library(path: Path, known: Sequence[tuple[str, str]]) -> Answers:
    answers: Answers = {}

    def ask(name: str, question: Callable[..., Any], *arguments: object) -> None:
        answers[f"library {name}"] = asked(question, *arguments)

    opened = asked(lambda: open_book(path))
    if isinstance(opened, Broken):
        return {"library open": opened}
    with opened as book:
        space = book.space("user", "default")
        for kind, name in known[::SAMPLED]:
            ask(f"get {kind} {name}", read, space, kind, name)
        ask("list files", lambda: space.files.list("/notes/3"))
        ask("walk", lambda: list(space.files.walk()))
        ask("records", lambda: space.records.list(limit=1_000))
        ask("tagged", lambda: space.records.list(tags=["all"], filter={"count": {"$gt": 5}}))
        ask("threads", lambda: space.threads.list())
        ask("messages", lambda: space.threads.messages("thread-default-1"))
        ask("history", lambda: space.history("file", "/notes/0/note 0"))
        ask("state", lambda: space.state("file", "/notes/0/note 0", 1))
        ask("changes", lambda: len(space.changes(limit=100_000)))
        ask("stats", space.stats)
        for query in QUERIES:
            ask(f"search {query}", space.search, query)
        ask("search then", lambda: space.search(QUERIES[1], as_of=commonplace_time(START + 60_000_000)))
        ask("system", lambda: book.store.system_list("flip"))
        ask("namespaces", book.namespaces)
        ask("export", lambda: exported(book))
    return answers


def commonplace_time(microseconds: int) -> str:
    from commonplace.checks import moment

    return moment(microseconds).isoformat()


def exported(book: commonplace.Book) -> bytes:
    lines: list[bytes] = []
    book.export(lines.append)
    return b"".join(lines[1:])  # the header has the time of the export


def run_cli(path: Path, *words: str) -> tuple[int, str, str]:
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["--db", str(path), "--namespace", "user/default", *words])
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())
    return code, texts[0], texts[1]


def ask_cli(path: Path, known: Sequence[tuple[str, str]]) -> Answers:
    answers: Answers = {}
    chosen = [name for kind, name in known if kind == "file"][::61]
    for words in (
        *(("cat", name) for name in chosen),
        ("ls", "/notes"),
        ("search", QUERIES[2], "--limit", "5"),
        ("stats",),
        ("namespaces", "-l"),
        ("export", "-"),
    ):

        def question(words: tuple[str, ...] = words) -> Any:
            code, out, err = run_cli(path, *words)
            if code == CORRUPT_CODE:
                raise commonplace.Corrupt(err)
            if words[0] == "export":
                out = out.partition("\n")[2]
            return code, out.replace(str(path), "BOOK"), err.replace(str(path), "BOOK")

        answers[f"cli {' '.join(words)}"] = asked(question)
    return answers


MCP_HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
MCP_BEGIN = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "flip", "version": "1"}}


@contextlib.contextmanager
def served(path: Path) -> Iterator[TestClient]:
    with open_book(path) as book:
        gate = Gate(Keys(book.store), Principal("local", ("user", "default"), "all"))
        app = build_app(Service(book, gate, Settings()))
        with TestClient(app, base_url="http://127.0.0.1:8765", raise_server_exceptions=False) as client:
            yield client


def ask_rest(client: TestClient, known: Sequence[tuple[str, str]]) -> Answers:
    answers: Answers = {}
    places = [f"/v1/files{name}" if kind == "file" else f"/v1/records/{name}" for kind, name in known[::67]]
    for place in (
        *places,
        "/v1/records?limit=100",
        "/v1/threads",
        "/v1/namespaces",
        "/v1/search?query=harbour",
        "/readyz",
    ):

        def question(place: str = place) -> Any:
            answer = client.get(place)
            if answer.status_code == 500 and answer.json().get("code") == "corrupt":
                raise commonplace.Corrupt(answer.text)
            return answer.status_code, answer.text

        answers[f"rest {place}"] = asked(question)
    return answers


def ask_mcp(client: TestClient) -> Answers:
    session: dict[str, str] = {}

    def send(method: str, params: object) -> Any:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        answer = client.post("/mcp/all", content=body, headers={**MCP_HEADERS, **session})
        if "mcp-session-id" in answer.headers:
            session["Mcp-Session-Id"] = answer.headers["mcp-session-id"]
        line = next((line for line in answer.text.splitlines() if line.startswith("data:")), answer.text)
        answered = json.loads(line.removeprefix("data:"))
        if "damaged" in line and (
            "error" in answered or answered.get("code") == "corrupt" or answered["result"].get("isError")
        ):
            raise commonplace.Corrupt(line)
        if answered.get("error", {}).get("code") == -32603 or answer.status_code >= 500:
            raise RuntimeError(line)
        return answered

    answers: Answers = {"mcp initialize": asked(lambda: send("initialize", MCP_BEGIN))}
    for tool, arguments in (
        ("memory_search", {"query": QUERIES[0]}),
        ("memory_get", {"id": "record-default-8"}),
        ("memory_list", {}),
    ):
        params = {"name": tool, "arguments": arguments}
        answers[f"mcp {tool}"] = asked(send, "tools/call", params)
    return answers


def ask(path: Path, known: Sequence[tuple[str, str]], interfaces: Sequence[str]) -> Answers:
    answers: Answers = {}
    if "library" in interfaces:
        answers |= ask_library(path, known)
    if "cli" in interfaces:
        answers |= ask_cli(path, known)
    if "rest" in interfaces or "mcp" in interfaces:
        try:
            with served(path) as client:
                answers |= ask_rest(client, known) if "rest" in interfaces else {}
                answers |= ask_mcp(client) if "mcp" in interfaces else {}
        except commonplace.Corrupt as error:
            answers["served"] = Broken(True, str(error))
    return answers


@dataclass
class Outcome:
    """What one flip did."""

    faults: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    reported: int = 0


def judge(
    path: Path, before: Answers, known: Sequence[tuple[str, str]], interfaces: Sequence[str], flip: str
) -> Outcome:
    outcome = Outcome()
    for name, answer in ask(path, known, interfaces).items():
        if isinstance(answer, Broken) and answer.is_report:
            outcome.reported += 1
        elif isinstance(answer, Broken) and not re.match("(NotFound|Conflict)", answer.text):
            outcome.faults.append(f"{flip}: {name}: {answer.text[:300]}")
        elif name not in before or answer != before[name]:
            outcome.changed.append(name)
    damage = damage_found(path, outcome, flip)
    if (outcome.changed or outcome.reported) and not damage:
        outcome.faults.append(f"{flip}: {', '.join(outcome.changed)[:300]} changed, and verify finds nothing")
    if outcome.reported or damage:
        check_salvage(path, known, outcome, flip)
    return outcome


def damage_found(path: Path, outcome: Outcome, flip: str) -> list[str]:
    """What `verify` reports. A backup must agree with it, except for what can be rebuilt from the entries."""
    opened = asked(lambda: open_book(path))
    if isinstance(opened, Broken):
        if not opened.is_report:
            outcome.faults.append(f"{flip}: open: {opened.text}")
        return [opened.text]
    with opened as book:
        problems = asked(book.verify)
        if isinstance(problems, Broken):
            if not problems.is_report:
                outcome.faults.append(f"{flip}: verify: {problems.text}")
            problems = [problems.text]
        copy = path.with_name("copy.db")
        copied = asked(lambda: book.backup(copy))
        copy.unlink(missing_ok=True)
        if isinstance(copied, Broken) and not copied.is_report:
            outcome.faults.append(f"{flip}: backup: {copied.text}")
        lost = [problem for problem in problems if not problem.startswith("index:")]
        if lost and not isinstance(copied, Broken):
            outcome.faults.append(f"{flip}: verify reports {lost[0]}, and the backup succeeded")
    return list(problems)


def check_salvage(path: Path, known: Sequence[tuple[str, str]], outcome: Outcome, flip: str) -> None:
    opened = asked(lambda: open_book(path))
    if isinstance(opened, Broken):
        return
    with opened as book:
        lines: list[bytes] = []
        saved = asked(lambda: book.export(lines.append, salvage=True))
        if isinstance(saved, Broken):
            outcome.faults.append(f"{flip}: salvage: {saved.text[:300]}")
            return
        space = book.space("user", "default")
        readable = {}
        for kind, name in known:
            value = asked(read, space, kind, name)
            if not isinstance(value, Broken):
                readable[kind, name] = value if kind == "file" else value.content
    with commonplace.open(":memory:", embedder=WordEmbedder(), background=False) as fresh:
        imported = asked(lambda: list(fresh.import_lines(io.BytesIO(b"".join(lines)))))
        if isinstance(imported, Broken):
            outcome.faults.append(f"{flip}: import of what was salvaged: {imported.text[:300]}")
            return
        space = fresh.space("user", "default")
        for (kind, name), value in readable.items():
            got = asked(read, space, kind, name)
            got = got if kind == "file" or isinstance(got, Broken) else got.content
            if got != value:
                outcome.faults.append(f"{flip}: salvage lost {kind} {name}: {str(got)[:200]}")
                return


def places(size: int, page: int, flips: int, seed: int) -> Iterator[tuple[int, int]]:
    """Seeded places and masks: one in five in the first pages, where the header, the schema and small tables are."""
    chance = random.Random(seed)
    for number in range(flips):
        at = chance.randrange(min(size, 24 * page)) if number % 5 == 0 else chance.randrange(size)
        yield (chance.randrange(100) if number % 25 == 0 else at), chance.randrange(1, 256)


def run(flips: int, entries: int, seed: int, interfaces: Sequence[str], *, only: int | None = None) -> int:
    began = time.perf_counter()
    logging.disable()
    os.environ["COMMONPLACE_MODELS"] = "/nonexistent"
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "whole.db"
        build(whole, entries)
        original = whole.read_bytes()
        with open_book(whole) as book:
            known = names(book.space("user", "default"))
            assert book.verify() == [], book.verify()
            states = sum(book.stats().entries.values()) + book.stats().former_states
        before = ask(whole, known, interfaces)
        broken = {name: answer.text for name, answer in before.items() if isinstance(answer, Broken)}
        assert not broken, broken
        path = Path(folder) / "flipped.db"
        faults: list[str] = []
        harmless = reported = 0
        for number, (at, mask) in enumerate(places(len(original), 4096, flips, seed)):
            if only is not None and number != only:
                continue
            for leftover in Path(folder).glob("flipped.db*"):
                leftover.unlink()
            data = bytearray(original)
            data[at] ^= mask
            path.write_bytes(data)
            flip = f"flip {number} (byte {at}, page {at // 4096 + 1}, mask {mask:#04x})"
            outcome = judge(path, before, known, interfaces, flip)
            faults += outcome.faults
            for fault in outcome.faults:
                print(fault, file=sys.stderr, flush=True)
            is_harmless = not (outcome.reported or outcome.changed)
            harmless += is_harmless
            reported += not is_harmless
    print(
        f"{harmless + reported} flips in a book of {len(original):,} bytes and {states:,} states"
        f" ({', '.join(interfaces)}): "
        f"{harmless} harmless, {reported} reported, {len(faults)} faults ({time.perf_counter() - began:.0f} s)"
    )
    return 1 if faults else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--flips", type=int, default=500)
    parser.add_argument("--entries", type=int, default=3_000, help="of the book, about")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="the number of the one flip to try")
    parser.add_argument("--interfaces", default=",".join(INTERFACES), help="of library, cli, rest and mcp")
    parser.add_argument("--short", action="store_true", help="30 flips of a smaller book")
    chosen = parser.parse_args()
    if chosen.short:
        chosen.flips, chosen.entries = 30, 700
    sys.exit(run(chosen.flips, chosen.entries, chosen.seed, chosen.interfaces.split(","), only=chosen.only))
