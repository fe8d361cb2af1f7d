"""Drives every place where a small request could multiply a large entry; run as a program by test_hostile_sizes.py.

Prints a JSON line for each drive: its name, what it came to, its seconds, and the most memory so far in MB.
"""

from __future__ import annotations

import io
import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import commonplace
from commonplace import Book, Space
from commonplace.graph.memory_node import MemoryConnector, MemoryNode
from commonplace.redaction import Redactor, Rule
from commonplace.space.titles import clean_title, local_title
from commonplace.tools import ClaudeMemoryTool, FolderMemoryStore, UnifiedMemoryTool, import_folder
from doubles import WordEmbedder

LETTERS = "a" * 9_999_999
WORDS = "ab cd " * 1_600_000
LINES = "\n" * 999_000
KB = "b" * 1_000


def main(folder: Path) -> None:
    # What fails here must not take the machine's memory with it.
    resource.setrlimit(resource.RLIMIT_AS, (4_000_000_000, 4_000_000_000))
    with commonplace.open(folder / "book.db", embedder=WordEmbedder(), background=False, durability="normal") as book:
        space = book.space("user", "u1")
        for name, text in (("letters", LETTERS), ("words", WORDS), ("lines", LINES)):
            space.files.write(f"/{name}", text)
        # One such character, and Python keeps four bytes for each of the others.
        space.files.write("/wide", "\N{GRINNING FACE}" + LETTERS[:9_990_000])
        picture = "data:image/png;base64," + "QUJD" * 2_400_000
        space.threads.create(id="t")
        space.threads.add("t", [{"id": "m", "role": "user", "content": [{"type": "image", "image": picture}]}])
        del picture
        for name, drive in drives(book, space, folder).items():
            run(name, drive)


def run(name: str, drive: Callable[[], Any]) -> None:
    began = time.monotonic()
    try:
        came_to = repr(drive())[:300]
    except Exception as error:  # noqa: BLE001 - the test reads what it was
        came_to = f"{type(error).__name__}: {error}"[:300]
    print(json.dumps([name, came_to, round(time.monotonic() - began, 2), peak_mb()]), flush=True)


def peak_mb() -> int:
    """The most memory that this process has held. (`ru_maxrss` begins with what the parent held at the fork.)"""
    status = Path("/proc/self/status")
    if not status.exists():
        return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) // 1024


def drives(book: Book, space: Space, folder: Path) -> dict[str, Callable[[], Any]]:
    files, threads = space.files, space.threads
    unified, claude = UnifiedMemoryTool(space), ClaudeMemoryTool(space)
    exact = ClaudeMemoryTool(space, wording="anthropic")
    update = {"command": "update", "path": "/letters", "oldContent": "a", "content": KB}
    str_replace = {"command": "str_replace", "path": "/memories/letters", "old_str": "a", "new_str": KB}
    plain = folder / "plain"
    (plain / "sub").mkdir(parents=True)
    (plain / "letters").write_text(LETTERS)
    on_disk = ClaudeMemoryTool(FolderMemoryStore(plain))
    shown = MemoryConnector(MemoryNode(book, "m", bind=space.namespace), content="full")
    many_conditions = {f"k{number}": {"$ne": number} for number in range(49)}
    schema = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True, "items": {"$ref": "#"}}}}
    return {
        "replace": lambda: files.replace("/letters", "a", KB),
        "replace lines": lambda: files.replace("/lines", "\n", KB),
        "replace in a wide text": lambda: files.replace("/wide", "a", KB),
        "replace a unique text": lambda: files.replace("/letters", "a", KB, unique=True),
        "replace a unique line": lambda: files.replace("/lines", "\n", KB, unique=True),
        "replace what is absent": lambda: files.replace("/letters", "a" * 999 + "b", KB),
        "append": lambda: files.append("/letters", KB),
        "insert": lambda: files.insert("/lines", 500_000, "\n" * 1_000),
        "edit": lambda: files.edit("/letters", lambda text: text + KB),
        "update": lambda: unified.call(update),
        "unified read": lambda: len(unified.call({"command": "read", "path": "/lines"})),
        "str_replace": lambda: claude.call(str_replace).text,
        "str_replace in the other wording": lambda: exact.call({**str_replace, "old_str": "a" * 900}).text,
        "str_replace in a folder": lambda: on_disk.call(str_replace).text,
        "insert of Claude's tool": lambda: (
            claude.call({"command": "insert", "path": "/memories/wide", "insert_line": 1, "insert_text": KB}).text
        ),
        "view": lambda: len(claude.call({"command": "view", "path": "/memories/lines"}).text),
        "former texts": lambda: [one.revision for one in space.history("file", "/wide")],
        "undo": lambda: files.replace("/wide", "a" * 1_000_000, "b" * 1_000_000),
        "search by a path": lambda: [hit.snippet[:20] for hit in space.search("words", limit=1).hits],
        "search": lambda: [hit.snippet[:20] for hit in space.search("ab " * 300, limit=1).hits],
        "filter": lambda: len(space.search("picture", filter=many_conditions).hits),
        "walk": lambda: len([*files.walk()]),
        "title": lambda: [make(text) for text in (WORDS, "`" * 10_000_000) for make in (local_title, clean_title)],
        "title of a thread": lambda: threads.suggest_title("t", LETTERS),
        "metadata": lambda: threads.update("t", metadata={"a": LETTERS}),
        "message": lambda: len(
            threads.add("t", [{"role": "user", "content": "<working_memory>" + ">" * 9_000_000 + "</working_memory>"}])
        ),
        "message of many values": lambda: threads.add("t", [{"role": "user", "content": [{}] * 3_000_000}]),
        "context": lambda: threads.context("t", max_tokens=1_000).tokens,
        "schema": lambda: threads.working.write({"a": [{"a": []}] * 10_000}, schema=schema),
        "working memory": lambda: threads.working.write(LETTERS),
        "connector": lambda: len(str(shown.render())),
        "redaction": lambda: screened(Redactor(rules=(Rule("letter", "a"),)), LETTERS),
        "redaction of addresses": lambda: screened(Redactor(kinds=("all",)), "1.1.1.1 " * 1_200_000),
        "import of a folder": lambda: import_folder(plain, space).skipped,
        "import": lambda: imported(growing_export()),
        "replace over REST": lambda: rest_replace(book),
    }


def screened(redaction: Redactor, text: str) -> Any:
    with commonplace.open(":memory:", embedder=WordEmbedder(), background=False, redaction=redaction) as book:
        return book.space("user", "u1").files.write("/f", text)


def rest_replace(book: Book) -> Any:
    from real_server import start_server

    from commonplace.server.http.api_keys import Keys
    from commonplace.server.http.auth import Gate, Principal
    from commonplace.server.http.service import Service
    from commonplace.settings import Settings

    gate = Gate(Keys(book.store), Principal("local", ("user", "u1"), "all"))
    server = start_server(Service(book, gate, Settings()))
    try:
        with server.client() as client:
            return client.patch("/v1/files/letters", json={"replace": {"old": "a", "new": KB}}).text
    finally:
        server.stop()


def imported(lines: bytes) -> Any:
    with commonplace.open(":memory:", embedder=WordEmbedder(), background=False) as book:
        return [*book.import_lines(io.BytesIO(lines))]


def growing_export() -> bytes:
    """An entry of 9 MB with two former states, each of which says that it has all of the later one twice."""
    with commonplace.open(":memory:", embedder=WordEmbedder(), background=False) as book:
        files = book.space("user", "u2").files
        for text in ("a", "b", LETTERS[:9_000_000]):
            files.write("/f", text)
        lines: list[bytes] = []
        book.export(lines.append)
    former = [line for line in lines if b'"ended"' in line]
    return b"".join(
        line.replace(b'"value":"a"', b'"edit":[9000000,9000000,"x"]') if line in former else line for line in lines
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
