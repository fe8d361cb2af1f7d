"""How much memory and time the import of a large ChatGPT export takes.

    .venv/bin/python benchmarks/import_chatgpt.py --megabytes 500

It generates an export of that size, imports it with the command line into a new book, and prints the size of the book,
the time, and the peak memory of the process that imported it.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

SYLLABLES = [
    first + second for first in ("k", "l", "m", "r", "t", "v", "sh", "gr") for second in ("a", "el", "in", "o")
]


def vocabulary() -> tuple[list[str], list[float]]:
    """Some thousand words, of which a few are most of a text, as in any language."""
    chance = random.Random(0)
    found = {"".join(chance.choices(SYLLABLES, k=chance.randint(1, 4))) for _ in range(10_000)}
    return sorted(found), list(accumulate(1 / rank for rank in range(1, len(found) + 1)))


WORDS, WEIGHTS = vocabulary()


def words(chance: random.Random, count: int) -> str:
    return " ".join(chance.choices(WORDS, cum_weights=WEIGHTS, k=count))


def conversation(chance: random.Random, number: int) -> dict[str, object]:
    """A conversation of about 25 kB, now and then one of some megabytes, as exports have them."""
    turns = chance.randint(10, 40) if number % 2_000 else 3_000
    start = 1_600_000_000 + number * 1_000
    mapping: dict[str, object] = {"root": {"id": "root", "message": None, "parent": None, "children": []}}
    parent = "root"
    for turn in range(turns):
        id = str(uuid.UUID(int=chance.getrandbits(128), version=4))
        role = "assistant" if turn % 2 else "user"
        text = words(chance, chance.randint(80, 240) if turn % 2 else chance.randint(5, 60))
        message = {
            "id": id,
            "author": {"role": role, "name": None, "metadata": {}},
            "create_time": start + turn * 10.5,
            "content": {"content_type": "text", "parts": [text]},
            "status": "finished_successfully",
            "weight": 1.0,
            "metadata": {"model_slug": "gpt-4o", "timestamp_": "absolute"},
            "recipient": "all",
        }
        mapping[id] = {"id": id, "message": message, "parent": parent, "children": []}
        parent = id
    id = str(uuid.UUID(int=chance.getrandbits(128), version=4))
    head = {
        "title": words(chance, 4),
        "create_time": start,
        "update_time": start + turns * 10.5,
        "current_node": parent,
    }
    return {**head, "mapping": mapping, "conversation_id": id, "id": id}


def pieces(size: int) -> Iterator[bytes]:
    chance = random.Random(1)
    written = number = 0
    while written < size:
        number += 1
        piece = (b"[" if number == 1 else b",\n") + json.dumps(conversation(chance, number)).encode()
        written += len(piece)
        yield piece
    yield b"]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--most-megabytes", type=int, default=300, help="fail if the peak memory is above this")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        export, book = Path(folder) / "conversations.json", Path(folder) / "book.db"
        with export.open("wb") as stream:
            for piece in pieces(arguments.megabytes * 1_000_000):
                stream.write(piece)
        size = export.stat().st_size
        began = time.monotonic()
        command = [sys.executable, "-m", "commonplace.cli", "--db", str(book), "import", str(export), "--json"]
        report = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        seconds = time.monotonic() - began
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1_000
        counts = f"{report['threads']:,} threads, {report['messages']:,} messages"
        print(f"{size / 1e6:,.0f} MB: {counts} in {seconds:,.0f} s ({size / 1e6 / seconds:.1f} MB/s)")
        print(f"peak memory {peak:,.0f} MB; the book has {book.stat().st_size / 1e6:,.0f} MB")
        if peak > arguments.most_megabytes or report["unreadable"]:
            sys.exit(f"more than {arguments.most_megabytes} MB of memory, or something was not readable")


if __name__ == "__main__":
    main()
