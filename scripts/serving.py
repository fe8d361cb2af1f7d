"""Real processes of `commonplace serve` for the scripts that kill them: one, or several on one database.

Every process uses a free port and reports its address. A killed process is replaced by another with a new address, as
behind a load balancer.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping

START_SECONDS = 60
STOP_SECONDS = 20
STARTS = 5
NAMESPACE = ("user", "default")


class NotStarted(Exception):
    """A service ended before it answered."""


class Service:
    """A process of `commonplace serve` that has printed its address."""

    def __init__(self, book: str, environment: Mapping[str, str] | None = None) -> None:
        command = [sys.executable, "-m", "commonplace.cli", "--db", book, "--json", "serve", "--port", "0"]
        own = {"LOG_LEVEL": "error", "COMMONPLACE_NAMESPACE": "/".join(NAMESPACE)}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, env={**os.environ, **own, **(environment or {})}
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise NotStarted(f"exit code {self.process.wait(START_SECONDS)}; its standard error says more")
        self.address = str(json.loads(line)["address"])

    def end(self, number: signal.Signals) -> int:
        """Send a signal and wait; returns the exit code, or -1 if it had to be killed."""
        self.process.send_signal(number)
        assert self.process.stdout is not None
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return -1
        finally:
            self.process.stdout.close()


class Fleet:
    """Several services on one database; callers get any running one. All end with the block."""

    def __init__(
        self, url: str, size: int, chance: random.Random, environment: Mapping[str, str] | None = None
    ) -> None:
        self._url = url
        self._chance = chance
        self._size = size
        self._environment = environment
        self._mutex = threading.Lock()
        self._running: list[Service] = []
        self._starting: list[threading.Thread] = []
        self.kills = 0

    def __enter__(self) -> Fleet:
        for _ in range(self._size):
            self._start()
        self.wait_until_whole()
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self._starting:
            thread.join(START_SECONDS)
        for service in self._running:
            service.end(signal.SIGKILL)

    def address(self) -> str:
        """The address of one of the services, which may have just ended."""
        with self._mutex:
            return self._chance.choice(self._running).address

    def is_running(self, address: str) -> bool:
        with self._mutex:
            return any(service.address == address for service in self._running)

    def kill_one(self) -> None:
        """Kill one with SIGKILL and start a replacement; the last running one is not killed."""
        with self._mutex:
            if len(self._running) < 2:
                return
            chosen = self._running.pop(self._chance.randrange(len(self._running)))
        chosen.end(signal.SIGKILL)
        self.kills += 1
        self._start()

    def _start(self) -> None:
        def start() -> None:
            for _ in range(STARTS):
                try:
                    service = Service(self._url, self._environment)
                except NotStarted:  # its connection was closed during the start; a supervisor would restart it
                    continue
                with self._mutex:
                    self._running.append(service)
                return

        self._starting = [thread for thread in self._starting if thread.is_alive()]
        self._starting.append(threading.Thread(target=start))
        self._starting[-1].start()

    def wait_until_whole(self) -> None:
        for thread in self._starting:
            thread.join(START_SECONDS)
        if len(self._running) < self._size:
            raise NotStarted(f"{len(self._running)} of {self._size} services run")

    def stop(self) -> list[int]:
        """Stop all normally; returns their exit codes."""
        self.wait_until_whole()
        running, self._running = self._running, []
        return [service.end(signal.SIGTERM) for service in running]
