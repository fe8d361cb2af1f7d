"""LangGraph's own conformance suite for checkpointers, unmodified, against ours on a book in a file."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path

from langgraph.checkpoint.conformance import checkpointer_test, validate

import commonplace
from commonplace.adapters.langgraph import CommonplaceSaver


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        number = 0

        @checkpointer_test(name="CommonplaceSaver")
        async def saver() -> AsyncGenerator[CommonplaceSaver, None]:
            nonlocal number
            number += 1
            with commonplace.open(Path(folder) / f"{number}.db", background=False) as book:
                yield CommonplaceSaver(book.space("graph"))

        report = asyncio.run(validate(saver))
    passed = failed = 0
    for name, result in report.results.items():
        passed, failed = passed + result.tests_passed, failed + result.tests_failed
        print(f"  {name}: {result.tests_passed} passed, {result.tests_failed} failed")
        for failure in result.failures or ():
            print(f"    {failure}")
    print(f"langgraph-checkpoint-conformance: {passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
