"""The end of a program waits for the batch in hand and no longer: no thread is inside a model when Python ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PREAMBLE = """
import os, sys, threading, time
import numpy as np
import commonplace
from commonplace.agents import AgentMemories, BookOptions
from commonplace.engine import indexer

class Slow:
    identity, dimensions, calibration = "slow@1", 2, (0.0, 1.0)
    has_begun, may_end = threading.Event(), threading.Event()
    def embed(self, texts, *, purpose):
        if purpose == "passage":
            self.has_begun.set()
            self.may_end.wait()
            print("embedded", len(texts), flush=True)
        return np.ones((len(texts), 2), np.float32)

model = Slow()
# The batch in hand is done when the end of the program has begun to wait for it.
wait_for_the_end = threading.Thread(target=lambda: indexer._ending.wait() and model.may_end.set(), daemon=True)
"""
A_BOOK = """
book = commonplace.open(sys.argv[1] + "/book.db", embedder=model)
threads = book.space("user", "u").threads
threads.add(threads.create().id, [{"role": "user", "content": "tea"}] * 20)
"""
SOME_AGENTS = """
memories = AgentMemories(sys.argv[1] + "/agents", options=BookOptions(embedder=model))
for name in ("Ann", "Bob"):
    memory = memories.get_agent_memory(memories.create_agent(name))
    memory.save_messages(memory.create_thread("u").id, [{"role": "user", "content": "tea"}] * 20)
"""
left_open = pytest.mark.parametrize("opened", [A_BOOK, SOME_AGENTS], ids=["a book", "agents"])


def run(code: str, folder: Path) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.promise("engine-ends-cleanly")
@left_open
def test_what_is_left_open_finishes_its_batch_and_begins_no_other(tmp_path: Path, opened: str) -> None:
    code = f"{PREAMBLE}{opened}\nassert model.has_begun.wait(30)\nwait_for_the_end.start()\n"
    assert run(code, tmp_path) == (0, "embedded 8\n", "")


@left_open
def test_a_model_that_hangs_holds_up_the_end_for_a_bounded_time(tmp_path: Path, opened: str) -> None:
    code = f"{PREAMBLE}{opened}\nassert model.has_begun.wait(30)\nindexer.CLOSE_SECONDS = 0.1\n"
    assert run(code, tmp_path) == (0, "", "")


@left_open
def test_a_child_process_of_a_fork_does_not_wait_for_the_threads_of_its_parent(tmp_path: Path, opened: str) -> None:
    code = f"""{PREAMBLE}{opened}
assert model.has_begun.wait(30)
assert indexer._busy
child = os.fork()
if not child:
    print("waits for", len(indexer._busy), flush=True)
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
wait_for_the_end.start()
"""
    assert run(code, tmp_path) == (0, "waits for 0\nembedded 8\n", "")


@pytest.mark.promise("engine-ends-cleanly")
@pytest.mark.parametrize("moment", ["the model loads", "the model runs"])
def test_a_program_that_ends_inside_the_real_model_ends_well_however_slow_the_machine(
    tmp_path: Path, moment: str
) -> None:
    """A program that left its book open died by SIGABRT inside onnxruntime: on a busy machine it waited too briefly."""
    until = '"onnxruntime" in sys.modules' if moment == "the model loads" else "book.indexer.target().is_loaded"
    code = f"""
import sys, time, commonplace
from commonplace.engine import indexer
indexer.CLOSE_SECONDS = indexer.LOAD_PAUSE_SECONDS = 0.0
book = commonplace.open(":memory:")
for number in range(40):
    book.space("user", "u").files.write(f"/{{number}}", "green tea and cake " * 50)
while not ({until}):
    time.sleep(0.001)
"""
    assert run(code, tmp_path) == (0, "", "")


@pytest.mark.parametrize("texts", [1, 20])
def test_a_handler_of_the_end_can_still_write_and_search(tmp_path: Path, texts: int) -> None:
    """Once a program is ending, Python refuses new work to the thread that stores the vectors of a search."""
    code = f"""{PREAMBLE}
import atexit
model.may_end.set()
model.embed = lambda texts, purpose: np.ones((len(texts), 2), np.float32)
book = commonplace.open(sys.argv[1] + "/book.db", embedder=model)
space = book.space("user", "u")

def end():
    for number in range({texts}):
        space.files.write(f"/{{number}}", "green tea")
    print(len(space.search("tea", limit=50)))

atexit.register(end)
"""
    assert run(code, tmp_path) == (0, f"{texts}\n", "")
