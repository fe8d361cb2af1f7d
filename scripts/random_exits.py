"""End many programs at random moments while the real model loads, embeds or searches; each must exit cleanly.

A thread that is inside the model while Python exits crashes the process (SIGABRT, SIGSEGV). Each child leaves its
book open and ends somewhere between its first write and the end of its embedding. The moments come from a seed.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CHILD = """
import sys, threading, time
import commonplace
from commonplace.engine import indexer

indexer.LOAD_PAUSE_SECONDS = 0.0
kind, place, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
if kind == "agents":
    from commonplace.agents import AgentMemories
    memories = AgentMemories(place)
    memory = memories.get_agent_memory(memories.create_agent("Ann"))
    memory.save_messages(memory.create_thread("u").id, [{"role": "user", "content": "tea and cake " * 20}] * 20)
else:
    book = commonplace.open(":memory:" if kind == "memory" else place + "/book.db")
    space = book.space("user", "u")
    for number in range(20):
        space.files.write(f"/notes/{number}", "green tea and a cake at noon " * 20)
    if kind == "search":
        threading.Thread(target=lambda: space.search("what do they drink?"), daemon=True).start()
time.sleep(seconds)
"""
KINDS = ("memory", "file", "search", "agents")
LONGEST_SECONDS = 1.5
TIMEOUT_SECONDS = 120


def end_one(number: int, seed: int) -> str | None:
    """Run one child; returns what was wrong with its exit."""
    chosen = random.Random(f"{seed}-{number}")
    kind, seconds = KINDS[number % len(KINDS)], chosen.uniform(0, LONGEST_SECONDS)
    with tempfile.TemporaryDirectory() as folder:
        child = [sys.executable, "-c", CHILD, kind, str(Path(folder) / "agents" if kind == "agents" else folder)]
        try:
            done = subprocess.run(
                [*child, f"{seconds:.4f}"], capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return f"{number} ({kind}, {seconds:.3f} s): still running after {TIMEOUT_SECONDS} s"
    if done.returncode or done.stderr:
        return f"{number} ({kind}, {seconds:.3f} s): exit status {done.returncode}: {done.stderr.strip()[-500:]}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="24 programs instead of 200")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    count = 24 if arguments.short else 200
    begin = time.monotonic()
    with ThreadPoolExecutor(3) as pool:
        faults = [fault for fault in pool.map(lambda one: end_one(one, arguments.seed), range(count)) if fault]
    print(*faults, sep="\n", end="\n" if faults else "")
    print(f"{count} programs ended in {time.monotonic() - begin:.0f} s, {len(faults)} of them badly")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
