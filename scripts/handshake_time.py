"""How long an MCP client waits for `initialize` over stdio, from the start of the process to the answer.

Compares ours with a bare server on the same SDK and the npm `@modelcontextprotocol/server-memory`: medians of new
processes, in turns. Ours may be at most 100 ms later than the bare one, because the store, numpy and the model load
afterwards. If it is later, the heaviest of our own imports are listed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

CLIENTS = Path(__file__).resolve().parent / "clients"
sys.path.insert(0, str(CLIENTS))

from install import node, npm  # noqa: E402

ROUNDS = 11
GOAL_MILLISECONDS = 100
LISTED = 15
SERVER_MEMORY = "2026.8.31"
OURS, BARE = "commonplace mcp", "a bare server on the same SDK"
_NOT_BEFORE_THE_HANDSHAKE = ("numpy", "onnxruntime", "apsw")
_TIMED_IMPORT = re.compile(r"import time:\s+(\d+) \|\s+(\d+) \|\s+(\S+)")
_HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "handshake-time", "version": "1"},
    },
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"processes of each server (default {ROUNDS})")
    rounds = parser.parse_args().rounds
    memory = npm("server-memory", f"@modelcontextprotocol/server-memory@{SERVER_MEMORY}")
    script = memory / "node_modules" / "@modelcontextprotocol" / "server-memory" / "dist" / "index.js"
    ours = [str(Path(sys.executable).with_name("commonplace")), "mcp"]
    servers = {
        OURS: (ours, "commonplace"),
        BARE: ([sys.executable, str(CLIENTS / "bare_server.py")], "bare"),
        f"npm server-memory {SERVER_MEMORY}": ([str(node()), str(script)], "memory-server"),
    }
    taken: dict[str, list[float]] = {name: [] for name in servers}
    with tempfile.TemporaryDirectory(prefix="commonplace-handshake-") as folder:
        # A book that exists, so that opening it early would show.
        environment = {
            **os.environ,
            "DATABASE_URL": f"{folder}/book.db",
            "MEMORY_FILE_PATH": f"{folder}/memory.jsonl",
        }
        subprocess.run([ours[0], "add", "a memory"], env=environment, check=True, stdout=subprocess.DEVNULL)
        for round in range(rounds + 1):
            for name, (command, server) in servers.items():
                milliseconds = _handshake(command, environment, server)
                if round:  # The first one of each warms the disk's cache.
                    taken[name].append(milliseconds)
        early = [name for _, name in _imports(ours, environment) if name in _NOT_BEFORE_THE_HANDSHAKE]
        medians = {name: statistics.median(times) for name, times in taken.items()}
        for name, times in taken.items():
            print(f"{medians[name]:8.1f} ms  {name}; {min(times):.1f} to {max(times):.1f} in {len(times)} processes")
        later = medians[OURS] - medians[BARE]
        is_met = later <= GOAL_MILLISECONDS and not early
        verdict = "pass" if is_met else "MISS"
        print(f"{later:+8.1f} ms  ours after the bare server; goal ≤ {GOAL_MILLISECONDS} ms: {verdict}")
        if early:
            print(f"loaded before the handshake: {', '.join(early)}")
        if not is_met:
            known = {module for _, module in _imports(servers[BARE][0], environment)}
            print("\nThe heaviest imports that the bare server does not have, with what each of them imports:")
            extra = [one for one in _imports(ours, environment) if one[1] not in known]
            for milliseconds, module in sorted(extra, reverse=True)[:LISTED]:
                print(f"{milliseconds:8.1f} ms  {module}")
    return 0 if is_met else 1


def _handshake(command: Sequence[str], environment: Mapping[str, str], server: str) -> float:
    """Milliseconds from the start of a process to its answer."""
    began = time.perf_counter()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(_HELLO).encode() + b"\n")
        process.stdin.flush()
        line = process.stdout.readline()
        ended = time.perf_counter()
        process.stdin.close()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
    answer = json.loads(line)
    if answer["result"]["serverInfo"]["name"] != server:
        sys.exit(f"{command} answered {answer}")
    return (ended - began) * 1e3


def _imports(command: Sequence[str], environment: Mapping[str, str]) -> list[tuple[float, str]]:
    """What a server imports until its input ends after the handshake, with the milliseconds of each."""
    words = command if command[0] == sys.executable else [sys.executable, *command]
    answer = subprocess.run(
        [words[0], "-X", "importtime", *words[1:]],
        input=json.dumps(_HELLO) + "\n",
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    return [(int(match[2]) / 1e3, match[3]) for match in _TIMED_IMPORT.finditer(answer.stderr)]


if __name__ == "__main__":
    sys.exit(main())
