"""Memories written through the library and the command line, and found again by meaning. Run it with `make demo`."""

import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import commonplace

IN_PYTHON = {
    "/plans/summer.md": "Our flight to Lisbon leaves on Friday at 7:40 from gate B12.",
    "/people/ana.md": "Ana is severely allergic to peanuts.",
}
IN_THE_SHELL = {
    "/home/todo.md": "Call the dentist before noon on Monday.",
    "/office/rules.md": "Never deploy on Fridays; the on-call engineer is off at the weekend.",
}
QUESTIONS = {
    "When do we travel to Portugal?": "/plans/summer.md",
    "Which foods must she avoid?": "/people/ana.md",
    "My teeth hurt. What should I do?": "/home/todo.md",
    "Which day is bad for shipping software?": "/office/rules.md",
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "memory.db"
        print("A book is one file; this one is in a temporary folder and goes with the demo.")
        write_with_the_library(database)
        write_with_the_command_line(database)
        search_by_meaning(database)
        undo_a_deletion(database)
    print("\nTry next, on your own book, which stays:")
    print("  .venv/bin/commonplace add 'Something worth remembering.'")
    print("  .venv/bin/commonplace search 'what did I want to keep?'")
    print("  .venv/bin/commonplace --help")
    print("and read README.md and docs/guides/library.md.")


def write_with_the_library(database: Path) -> None:
    print("\n1. Written with the library:")
    with commonplace.open(database) as book:
        for path, text in IN_PYTHON.items():
            book.space("user", "demo").files.write(path, text)
            print(f"   {path}: {text}")


def write_with_the_command_line(database: Path) -> None:
    print("\n2. Written with the command line, into the same book:")
    for path, text in IN_THE_SHELL.items():
        words = ["add", "--file", path, text, "--namespace", "user/demo", "--db", str(database)]
        print(f"   $ commonplace {shlex.join(words[:-1])} memory.db", flush=True)
        print("    ", subprocess.check_output([sys.executable, "-m", "commonplace.cli", *words], text=True).strip())


def search_by_meaning(database: Path) -> None:
    print("\n3. Found by meaning, with a model on this machine: no question shares a word with its answer.")
    with commonplace.open(database) as book:
        for question in QUESTIONS:
            best = book.space("user", "demo").search(question)[0]
            print(f"   {question}\n     {best.key}: {best.snippet}  (score {best.score:.2f})")


def undo_a_deletion(database: Path) -> None:
    print("\n4. Deleted by mistake, and taken back whole:")
    with commonplace.open(database) as book:
        space = book.space("user", "demo")
        removed = space.files.delete("/")
        print(f"   deleted {removed.files} files, left: {[item.path for item in space.files.walk()]}")
        space.undo(removed.commit)
        print(f"   after undo: {[item.path for item in space.files.walk() if item.kind == 'file']}")


if __name__ == "__main__":
    main()
