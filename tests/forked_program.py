"""The program `commonplace` in a process of its own, without the second that its imports take.

A helper process imports what the program needs, once for all tests of a worker. For each program it forks: the child
gets the pipes and the environment of the test, and runs `commonplace.cli.main` to its end as `commonplace` would. Tests
of what is loaded, and of how long a start takes, start Python themselves.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any

PRELOADED = ("commonplace.cli.parser", "commonplace.server.mcp.stdio", "commonplace.server.http.app", "uvicorn")
_MAX_REQUEST = 1 << 17


class ForkedProgram:
    """A running program; what tests use of `subprocess.Popen`, with pipes of bytes or of text."""

    def __init__(self, words: Sequence[str], environment: dict[str, str], *, is_text: bool = False) -> None:
        theirs, ours = [], []
        for number in range(3):
            read, write = os.pipe()
            theirs.append(read if number == 0 else write)
            ours.append(write if number == 0 else read)
        self._status, status = os.pipe()
        request = json.dumps([[*words], environment, str(Path.cwd())]).encode()
        assert len(request) < _MAX_REQUEST
        socket.send_fds(_helper(), [request], [*theirs, status])
        for descriptor in (*theirs, status):
            os.close(descriptor)
        self.args = ["commonplace", *words]
        self.stdin: IO[Any] = os.fdopen(ours[0], "w" if is_text else "wb")
        self.stdout: IO[Any] = os.fdopen(ours[1], "r" if is_text else "rb")
        self.stderr: IO[Any] = os.fdopen(ours[2], "r" if is_text else "rb")
        self.pid = int(os.read(self._status, 20))
        self.returncode: int | None = None
        self._ended = threading.Lock()

    def poll(self) -> int | None:
        return self._look(0.0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code

    def _look(self, seconds: float | None) -> int | None:
        with self._ended:
            if self.returncode is None and select.select([self._status], [], [], seconds)[0]:
                told = os.read(self._status, 20)
                assert told, "the helper process has ended"
                self.returncode = int(told)
                os.close(self._status)
            return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[Any, Any]:
        """Close the input and read both outputs to their end."""
        found: list[Any] = [None, None]

        def read(number: int, pipe: IO[Any]) -> None:
            found[number] = pipe.read()

        self.stdin.close()
        readers = [threading.Thread(target=read, args=one) for one in enumerate((self.stdout, self.stderr))]
        for reader in readers:
            reader.start()
        self.wait(timeout)
        for reader in readers:
            reader.join(timeout)
        return found[0], found[1]

    def close(self) -> None:
        self.kill()
        self.wait(20)
        for pipe in (self.stdin, self.stdout, self.stderr):
            with contextlib.suppress(BrokenPipeError):  # the program did not read what was written last
                pipe.close()


@cache
def _helper() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for side in (ours, theirs):
        side.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * _MAX_REQUEST)
    process = subprocess.Popen(
        [sys.executable, __file__, str(theirs.fileno())], stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
    )
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


# The helper process


def serve(requests: socket.socket) -> int:
    """Fork for each request until there are no more. In a child it returns the exit code of the program."""
    for name in PRELOADED:
        __import__(name)
    running: dict[int, int] = {}
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C at the tests is theirs
    while True:
        ready, _, _ = select.select([requests, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
        while running and (ended := os.waitpid(-1, os.WNOHANG))[0]:
            status = running.pop(ended[0])
            with contextlib.suppress(BrokenPipeError):  # the test does not wait for it
                os.write(status, str(os.waitstatus_to_exitcode(ended[1])).encode())
            os.close(status)
        if requests not in ready:
            continue
        request, descriptors, _, _ = socket.recv_fds(requests, _MAX_REQUEST, 4)
        if not request:
            return 0
        child = os.fork()
        if not child:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for descriptor in (woken, wake, *running.values(), requests.detach()):
                os.close(descriptor)
            return run_program(request, descriptors)
        os.write(descriptors[3], str(child).encode())
        running[child] = descriptors.pop()
        for descriptor in descriptors:
            os.close(descriptor)


def run_program(request: bytes, descriptors: list[int]) -> int:
    from commonplace.cli import main

    words, environment, folder = json.loads(request)
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
    for descriptor in descriptors:
        os.close(descriptor)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - these are open until the program exits
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["commonplace", *words]
    return main(words)


if __name__ == "__main__":
    sys.exit(serve(socket.socket(fileno=int(sys.argv[1]))))
