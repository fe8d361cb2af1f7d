"""A measured system: a process that is called with JSON lines, and what its files and the kernel show about it."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from peers_install import ROOT, NotThere

GRACE_SECONDS = 60.0
"""Time beyond a step's limit, which an adapter checks only between two calls."""
TRACED_ADDS = 10


class Adapter:
    """A peer's process, from its start until `close` or `kill`."""

    def __init__(self, command: Sequence[str], folder: Path, data: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": ""},
            start_new_session=True,
        )
        self._is_over = False
        self._open = {"do": "open", "folder": str(folder), "data": str(data)}

    def open(self) -> dict[str, Any]:
        return self.ask(**self._open)

    def send(self, **request: object) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended; the answer says so
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()

    def answer(self, seconds: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        if not ready:
            raise NotThere(f"no answer within {seconds:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            said = [one for one in self._log.read().decode(errors="replace").splitlines() if one.strip()]
            raise NotThere(f"ended: {said[-1][:200] if said else 'without a word'}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise NotThere(answer["error"])
        return answer

    def ask(self, **request: object) -> dict[str, Any]:
        seconds = request.get("seconds", 0.0)
        assert isinstance(seconds, float)
        self.send(**request)
        return self.answer(seconds + GRACE_SECONDS)

    def close(self) -> None:
        """End it normally."""
        try:
            self.ask(do="close")
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill it and all its child processes; a second call does nothing."""
        if self._is_over:
            return
        self._is_over = True
        with suppress(ProcessLookupError):  # it has already ended, with its children
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()


def syncs(adapter: Adapter, first: int) -> float | None:
    """How often one add waits for the disk, as the kernel sees it; None if strace is missing."""
    program = shutil.which("strace")
    ids = adapter.ask(do="memory")["ids"]
    if program is None:
        return None
    with tempfile.NamedTemporaryFile("r") as seen:
        attach = [word for process_id in ids for word in ("-p", str(process_id))]
        trace = ["-f", "-qq", "-e", "trace=fsync,fdatasync,msync,sync_file_range", "-e", "signal=none"]
        watching = subprocess.Popen([program, *trace, "-o", seen.name, *attach], stderr=subprocess.PIPE)
        time.sleep(1.0)  # it prints nothing when it has attached to every thread
        if watching.poll() is not None:
            return None
        adapter.ask(do="add", first=first, count=TRACED_ADDS, clients=1, seconds=30.0)
        watching.send_signal(signal.SIGINT)
        watching.wait()
        calls = [line for line in seen.read().splitlines() if "sync" in line and "resumed" not in line]
    return len(calls) / TRACED_ADDS


def journals(store: Path) -> tuple[str, ...]:
    """The journal modes of the SQLite files of a store; the format's bytes 18 and 19 are 2 with a write-ahead log."""
    found: dict[str, None] = {}
    for path in store.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                head = file.read(20)
            if head.startswith(b"SQLite format 3"):
                found["WAL" if head[18] == 2 else "rollback journal"] = None
    return tuple(found)
