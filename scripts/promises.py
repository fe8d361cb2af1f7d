"""What the project promises, by source, and the tests that show each promise.

A promise is a `[[promise]]` of docs/internal/promises.toml; a test shows it with `@pytest.mark.promise("its-id")`. The
marks are read from the source, not collected, so this takes a fraction of a second.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "docs" / "internal" / "promises.toml"
TESTS = ROOT / "tests"


class Promise(NamedTuple):
    source: str
    id: str
    text: str


class Mark(NamedTuple):
    """A test that names a promise; `place` is its pytest node id."""

    id: str
    place: str


def read_promises(path: Path = LIST) -> list[Promise]:
    """The promises in the order of the file."""
    with path.open("rb") as stream:
        return [Promise(one["source"], one["id"], one["text"]) for one in tomllib.load(stream).get("promise", [])]


def read_marks(folder: Path = TESTS) -> list[Mark]:
    """Every promise mark on a test function, a class of tests, a parameter or a module."""
    marks: list[Mark] = []
    for path in sorted(folder.rglob("*.py")):
        place = path.relative_to(folder.parent).as_posix()
        marks += _marks_below(ast.parse(path.read_text(encoding="utf-8"), str(path)), place)
    return marks


def _marks_below(node: ast.AST, place: str) -> Iterator[Mark]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _marks_below(child, f"{place}::{child.name}")
        else:
            if isinstance(child, ast.Call) and ast.unparse(child.func) == "pytest.mark.promise":
                for argument in child.args:
                    yield Mark(str(ast.literal_eval(argument)), place)
            yield from _marks_below(child, place)


def problems(promises: list[Promise], marks: list[Mark]) -> list[str]:
    """Where the list and the tests disagree, in either direction, and where the list is out of order."""
    shown = {mark.id for mark in marks}
    known = [promise.id for promise in promises]
    return [
        *(f"{promise.id} ({promise.source}) has no test" for promise in promises if promise.id not in shown),
        *(f"{mark.place} names an unknown promise: {mark.id}" for mark in marks if mark.id not in known),
        *(f"{id} is in the list twice" for id in sorted({id for id in known if known.count(id) > 1})),
        *(f"{after.id} belongs before {before.id}" for before, after in pairwise(promises) if after < before),
        *(f"{promise.id or promise.source} lacks a field" for promise in promises if not all(map(str.strip, promise))),
    ]


def main() -> int:
    promises, marks = read_promises(), read_marks()
    for source, group in groupby(promises, key=lambda promise: promise.source):
        print(f"\n{source}")
        for promise in group:
            print(f"  {promise.id}: {promise.text}")
            for mark in marks:
                if mark.id == promise.id:
                    print(f"      {mark.place}")
    found = problems(promises, marks)
    print(f"\n{len(promises)} promises, {len(marks)} marks, {len(found)} problems")
    for problem in found:
        print(f"  {problem}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
