"""Large file trees: the same operations in a tree of 1,000 and of 100,000 files, and changes of the whole tree.

python benchmarks/files.py [--files 100000]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import commonplace
from commonplace.entry import Draft
from commonplace.space.names import key_of
from commonplace.space.space import Space
from commonplace.store import Transaction
from commonplace.tools import ClaudeMemoryTool, UnifiedMemoryTool

SMALL = 1_000
ROUNDS = 30
GOAL_RATIO = 2.0


def path_of_number(number: int) -> str:
    """A hundred files per directory, and a hundred directories per directory."""
    return f"/tree/{number // 10_000:03d}/{number // 100 % 100:02d}/{number % 100:02d}.md"


def fill(book: commonplace.Book, space: Space, files: int) -> None:
    def work(transaction: Transaction) -> None:
        for number in range(files):
            path = path_of_number(number)
            if number % 100 == 0:
                space.files.make_parents(transaction, path)
            text = f"Note {number}: the service {number % 97} is deployed on day {number % 365}."
            attributes = {"size": len(text), "lines": 1}
            transaction.put(Draft("file", key_of(path), text, heading=path.strip("/"), attributes=attributes))

    book.store.write(space.namespace, work)


def median_ms(work: Callable[[int], object]) -> float:
    times = []
    for number in range(ROUNDS):
        start = time.perf_counter()
        work(number)
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def measure(space: Space, files: int) -> dict[str, float]:
    step = max(1, files // ROUNDS)
    claude, unified = ClaudeMemoryTool(space), UnifiedMemoryTool(space)

    def directory(number: int) -> str:
        return path_of_number(number * step).rpartition("/")[0]

    return {
        "Claude's view of a directory": median_ms(
            lambda n: claude.call({"command": "view", "path": f"/memories{directory(n)}"})
        ),
        "Claude's view of a file": median_ms(
            lambda n: claude.call({"command": "view", "path": f"/memories{path_of_number(n * step)}"})
        ),
        "unified list": median_ms(lambda n: unified.call({"command": "list", "path": directory(n)})),
        "list a directory of 100": median_ms(lambda n: space.files.list(directory(n))),
        "list the top": median_ms(lambda n: space.files.list("/tree")),
        "read": median_ms(lambda n: space.files.read(path_of_number(n * step))),
        "stat": median_ms(lambda n: space.files.stat(path_of_number(n * step))),
        "append (durable)": median_ms(lambda n: space.files.append(path_of_number(n * step), "one more line")),
    }


def once(name: str, work: Callable[[], object]) -> None:
    start = time.perf_counter()
    work()
    print(f"{name:<44} {time.perf_counter() - start:8.2f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=100_000)
    files = parser.parse_args().files
    with tempfile.TemporaryDirectory() as folder, commonplace.open(Path(folder) / "b.db", background=False) as book:
        small, large = book.space("files", "small"), book.space("files", "large")
        fill(book, small, SMALL)
        once(f"fill {files:,} files in one commit", lambda: fill(book, large, files))
        print(
            f"{'median of ' + str(ROUNDS):<28} {SMALL:>12,} files {files:>12,} files    ratio (goal ≤ {GOAL_RATIO:g})"
        )
        of_small, of_large = measure(small, SMALL), measure(large, files)
        for name, few in of_small.items():
            ratio = of_large[name] / few
            verdict = "ok" if ratio <= GOAL_RATIO else "missed"
            print(f"{name:<28} {few:>15.3f} ms {of_large[name]:>15.3f} ms    {ratio:.2f} {verdict}")
        once("move the whole tree, one commit", lambda: large.files.move("/tree", "/moved"))
        moved = large.stats().commit
        once("undo the move", lambda: large.undo(moved))
        once("delete the whole tree, one commit", lambda: large.files.delete("/tree"))
        deleted = large.stats().commit
        once("undo the deletion", lambda: large.undo(deleted))
        print(f"files after both undos: {large.stats().entries['file']:,}")


if __name__ == "__main__":
    main()
