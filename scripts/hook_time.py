"""How long a session waits for our hook at each prompt: new processes, as a client starts them.

`python scripts/hook_time.py [--rounds N]` fills a book, starts the hook's background process, and measures the hook
with it, the hook without it, and what of that is Python. With it, 95 of 100 prompts must be answered in 300 ms, in one
of three series: other programs may be using the computer.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import commonplace
from commonplace.ambient import hook

GOAL_MILLISECONDS = 300
SERIES = 3
ENTRIES = 2_000
SUBJECTS = ("the parser", "billing", "the release", "the staging cluster", "the login page", "the nightly export")
ENDINGS = (
    "is owned by Ana",
    "fails when the clock jumps",
    "was moved to Lisbon",
    "uses PostgreSQL",
    "needs two reviews",
)
PROMPTS = (
    "Who owns the parser, and since when?",
    "yes, go on",
    "Why does the nightly export fail when the clock jumps? Please look at the log and fix the test that covers it.",
    "Write a haiku about the sea.",
    "How many reviews does the release need? " + "This is a long prompt with a pasted log. " * 200,
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=100, help="prompts with the background process (default 100)")
    parser.add_argument("--entries", type=int, default=ENTRIES, help=f"memories in the book (default {ENTRIES:,})")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ht-", dir="/tmp") as folder:
        return measure(Path(folder), given.rounds, given.entries)


def measure(folder: Path, rounds: int, entries: int) -> int:
    book = folder / "memory.db"
    fill(book, entries)
    transcript = folder / "session.jsonl"
    transcript.write_text("".join(turn(number) for number in range(2_000)))
    environ = {**os.environ, "XDG_RUNTIME_DIR": str(folder), "XDG_STATE_HOME": str(folder / "state")}
    words = ["claude-code", "--db", str(book)]
    command = [sys.executable, "-I", "-S", hook.__file__, *words]
    show("Python alone", [timed([sys.executable, "-I", "-S", "-c", "pass"], "", environ)[0] for _ in range(rounds)])
    first = timed(command, event("SessionStart", 0, "", transcript), environ)[0]
    show("the first event of all, which starts the background process", [first])
    wait_for(folder)
    try:
        for series in range(SERIES):
            taken, recalled = [], 0
            for number in range(rounds):
                prompt = PROMPTS[number % len(PROMPTS)]
                session = 1_000 * series + number // 50
                seconds, said = timed(command, event("UserPromptSubmit", session, prompt, transcript), environ)
                taken.append(seconds)
                recalled += bool(said)
            show("a prompt with the background process", taken)
            if not recalled:
                print("FAILED: nothing was recalled")
                return 1
            if percentile(taken, 95) <= GOAL_MILLISECONDS / 1_000:
                break
    finally:
        stop(book)
    alone = [sys.executable, "-I", "-m", "commonplace.ambient.background", "--alone", *words]
    few = max(5, rounds // 10)
    given = event("UserPromptSubmit", 99, PROMPTS[0], transcript)
    show("a prompt without one, by keywords", [timed(alone, given, environ)[0] for _ in range(few)])
    worst = percentile(taken, 95)
    is_met = worst <= GOAL_MILLISECONDS / 1_000
    print(f"{'passed' if is_met else 'FAILED'}: p95 {worst * 1_000:.0f} ms, at most {GOAL_MILLISECONDS} ms")
    return 0 if is_met else 1


def fill(book: Path, entries: int) -> None:
    with commonplace.open(book, background=False, durability="normal") as opened:
        space = opened.space("user", "default")
        for number in range(entries):
            text = f"{SUBJECTS[number % len(SUBJECTS)]} {ENDINGS[number % len(ENDINGS)]} (note {number})"
            space.records.create(type="note", content=text, source="script", confidence=0.9)
        while any(notice.startswith(("1 passage", "passages")) or "wait" in notice for notice in search(space)):
            continue


def search(space: commonplace.Space) -> Sequence[str]:
    return space.search("who owns the parser", limit=1).notices


def turn(number: int) -> str:
    message = {"role": "user", "content": f"Turn {number}: " + "words of a long session " * 40}
    return json.dumps({"type": "user", "uuid": str(uuid.UUID(int=number + 1)), "message": message}) + "\n"


def event(name: str, session: int, prompt: str, transcript: Path) -> str:
    given = {"hook_event_name": name, "session_id": str(uuid.UUID(int=session + 1)), "cwd": str(transcript.parent)}
    return json.dumps({**given, "transcript_path": str(transcript), "prompt": prompt, "source": "startup"})


def timed(command: Sequence[str], given: str, environ: Mapping[str, str]) -> tuple[float, str]:
    before = time.perf_counter()
    said = subprocess.run(command, input=given, capture_output=True, text=True, env=environ, check=True).stdout
    return time.perf_counter() - before, said


def percentile(taken: Sequence[float], share: int) -> float:
    return sorted(taken)[min(len(taken) - 1, len(taken) * share // 100)]


def show(what: str, taken: Sequence[float]) -> None:
    median, worst = statistics.median(taken) * 1_000, percentile(taken, 95) * 1_000
    print(f"{what:62} median {median:5.0f} ms   p95 {worst:5.0f} ms   of {len(taken)}", flush=True)


def wait_for(folder: Path) -> None:
    for _ in range(300):
        if [*folder.glob("*/*.sock")]:
            return
        time.sleep(0.1)
    sys.exit("the background process did not start")


def stop(book: Path) -> None:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"commonplace.ambient.background" in words and os.fsencode(book) in words:
            os.kill(int(folder.name), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
