"""LangGraph's own tests of its store, unmodified, with `CommonplaceStore` in the place of `InMemoryStore`.

They are in the source distribution of `langgraph-checkpoint`, which is fetched from the index; nothing of it is kept.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

import langgraph.store.memory
import pytest
from langgraph.store.base import IndexConfig

import commonplace
from commonplace.adapters.langgraph import CommonplaceStore

PACKAGE = "langgraph-checkpoint"


class Swapped(CommonplaceStore):
    """Made like an `InMemoryStore`, and counts the batches, so that a test of something else cannot pass for ours."""

    batches = 0

    def __init__(self, *, index: IndexConfig | None = None) -> None:
        super().__init__(commonplace.open(":memory:", background=False), index=index)
        self.index_config = index

    def batch(self, ops):
        Swapped.batches += 1
        return super().batch(ops)

    async def abatch(self, ops):
        Swapped.batches += 1
        return await super().abatch(ops)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        wanted = ["--no-deps", "--no-binary", PACKAGE, f"{PACKAGE}=={version(PACKAGE)}", "--dest", folder]
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", *wanted], check=True)
        (archive,) = Path(folder).glob("*.tar.gz")
        with tarfile.open(archive) as sources:
            sources.extractall(folder, filter="data")
        (tests,) = Path(folder).glob("*/tests/test_store.py")
        langgraph.store.memory.InMemoryStore = Swapped  # type: ignore[assignment,misc]
        quiet = ["-q", "--no-header", "-p", "no:cacheprovider", "-c", os.devnull, "-o", "asyncio_mode=auto"]
        failed = pytest.main([*quiet, "--rootdir", str(tests.parent.parent), str(tests)])
    print(f"{Swapped.batches} batches went through our store")
    return int(failed) or int(Swapped.batches < 100)


if __name__ == "__main__":
    sys.exit(main())
