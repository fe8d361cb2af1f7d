"""Many threads and several processes edit one file through the tool, and no edit is lost."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import commonplace
from commonplace.tools import ClaudeMemoryTool, FolderMemoryStore, MemoryStore, SpaceMemoryStore

PATH = "/memories/shared"
ROUNDS = 6


def edit(store: MemoryStore, append: Callable[[str], object], worker: str, failures: list[str]) -> None:
    """Append, insert and replace, each text being the worker's own."""
    tool = ClaudeMemoryTool(store)
    for number in range(ROUNDS):
        append(f"appended {worker} {number}")
        for arguments in (
            {"command": "insert", "path": PATH, "insert_line": 1, "insert_text": f"inserted {worker} {number}"},
            {
                "command": "str_replace",
                "path": PATH,
                "old_str": f"count {worker} is {number};",
                "new_str": f"count {worker} is {number + 1};",
            },
        ):
            answer = tool.call(arguments)
            if answer.is_error:
                failures.append(answer.text)


def edit_in_threads(store: MemoryStore, append: Callable[[str], object], workers: list[str]) -> list[str]:
    failures: list[str] = []
    threads = [threading.Thread(target=edit, args=(store, append, worker, failures)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


def edit_in_process(kind: str, place: Path, workers: list[str], results: multiprocessing.Queue[list[str]]) -> None:
    if kind == "folder":
        folder = FolderMemoryStore(place)
        results.put(edit_in_threads(folder, folder_append(folder), workers))
    else:
        with commonplace.open(place, background=False, busy_seconds=60) as book:
            space = book.space("user", "u1")
            store = SpaceMemoryStore(space)
            results.put(edit_in_threads(store, lambda text: space.files.append("/shared", text), workers))


def folder_append(store: FolderMemoryStore) -> Callable[[str], None]:
    return lambda text: store.edit(PATH, lambda old: old + "\n" + text)


def first_text(workers: list[str]) -> str:
    return "top\n" + "\n".join(f"count {worker} is 0;" for worker in workers)


def expected_lines(workers: list[str]) -> list[str]:
    return sorted(
        [
            "top",
            *(f"count {worker} is {ROUNDS};" for worker in workers),
            *(
                f"{what} {worker} {number}"
                for what in ("appended", "inserted")
                for worker in workers
                for number in range(ROUNDS)
            ),
        ]
    )


@pytest.mark.promise("claude-no-lost-edits")
@pytest.mark.parametrize("kind", ["space", "folder"])
def test_sixteen_threads_lose_no_edit(kind, book, tmp_path):
    workers = [f"w{number}" for number in range(16)]
    store: MemoryStore
    if kind == "space":
        space = book.space("user", "u1")
        store, append = SpaceMemoryStore(space), lambda text: space.files.append("/shared", text)
    else:
        store = folder = FolderMemoryStore(tmp_path / "memories")
        append = folder_append(folder)
    store.create(PATH, first_text(workers))

    assert edit_in_threads(store, append, workers) == []

    assert sorted(store.read(PATH).split("\n")) == expected_lines(workers)


@pytest.mark.promise("claude-no-lost-edits")
@pytest.mark.parametrize("kind", ["space", "folder"])
def test_four_processes_lose_no_edit(kind, tmp_path):
    groups = [[f"p{process}t{thread}" for thread in range(2)] for process in range(4)]
    workers = [worker for group in groups for worker in group]
    place = tmp_path / ("book.db" if kind == "space" else "memories")
    if kind == "space":
        with commonplace.open(place, background=False) as book:
            SpaceMemoryStore(book.space("user", "u1")).create(PATH, first_text(workers))
    else:
        FolderMemoryStore(place).create(PATH, first_text(workers))

    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [context.Process(target=edit_in_process, args=(kind, place, group, results)) for group in groups]
    for process in processes:
        process.start()
    failures = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()

    assert failures == [[], [], [], []]
    if kind == "space":
        with commonplace.open(place, background=False) as book:
            text = book.space("user", "u1").files.read("/shared")
    else:
        text = FolderMemoryStore(place).read(PATH)
    assert sorted(text.split("\n")) == expected_lines(workers)
