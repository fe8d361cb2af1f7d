"""The real Claude Code, from the package `claude-agent-sdk`, in a home folder of its own, against a stand-in model.

The stand-in answers on 127.0.0.1 in place of Anthropic's API (`ANTHROPIC_BASE_URL`) and keeps every request, so nothing
leaves this computer, and what Claude Code puts before a model can be read.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from install import python

VERSION = "0.2.183"
SECONDS = 60
Blocks = Sequence[Mapping[str, Any]]
Reply = Callable[[Mapping[str, Any]], Blocks]


def program() -> Path:
    """The program that the package bundles; it is installed at the first call."""
    interpreter = python("claude-code", f"claude-agent-sdk=={VERSION}")
    [found] = interpreter.parent.parent.glob("lib/python*/site-packages/claude_agent_sdk/_bundled/claude")
    return found


def say(text: str) -> Blocks:
    return [{"type": "text", "text": text}]


class StandIn(ThreadingHTTPServer):
    """A model that says what `reply` makes of a request. `requests` has what it was sent."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[dict[str, Any]] = []
        self.reply: Reply = lambda request: say("Noted.")

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: StandIn

    def log_message(self, format: str, *args: object) -> None:
        return

    def do_HEAD(self) -> None:
        self._send(200, b"")

    def do_GET(self) -> None:
        self._send(404, b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if not self.path.startswith("/v1/messages") or "count_tokens" in self.path:
            self._send(200, b'{"input_tokens": 10}')
            return
        request = json.loads(body)
        self.server.requests.append(request)
        blocks = self.server.reply(request)
        reason = "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"
        message = {
            "id": f"msg_{len(self.server.requests)}",
            "type": "message",
            "role": "assistant",
            "model": request.get("model"),
            "content": [*blocks],
            "stop_reason": reason,
            "stop_sequence": None,
            "usage": {"input_tokens": 10, "output_tokens": 2},
        }
        if request.get("stream"):
            written = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in _events(message))
            self._send(200, written.encode(), "text/event-stream")
        else:
            self._send(200, json.dumps(message).encode())

    def _send(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _events(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    for index, block in enumerate(message["content"]):
        is_text = block["type"] == "text"
        empty = {**block, "text": ""} if is_text else {**block, "input": {}}
        delta = (
            {"type": "text_delta", "text": block["text"]}
            if is_text
            else {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        )
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    ended = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 2}}
    yield {"type": "message_stop"}


class ClaudeCode:
    """Claude Code in a home folder, with our program set up there."""

    def __init__(self, home: Path, model: StandIn) -> None:
        self.home = home
        self.model = model
        self._program = program()
        self.book = home / "memory.db"
        run_folder = home / "run"
        for one in (home, run_folder):
            one.mkdir(mode=0o700, exist_ok=True)
        cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "XDG_CACHE_HOME": cache,  # has the embedding model
            "XDG_RUNTIME_DIR": str(run_folder),
            "ANTHROPIC_BASE_URL": model.address,
            "ANTHROPIC_API_KEY": "sk-stand-in",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "ENABLE_TOOL_SEARCH": "false",
        }

    def commonplace(self, *words: str) -> str:
        command = [str(Path(sys.executable).with_name("commonplace")), "--db", str(self.book), *words]
        ended = subprocess.run(
            command, env=self.environ, cwd=self.home, capture_output=True, text=True, check=False, timeout=SECONDS
        )
        if ended.returncode not in (0, 1):  # 1: nothing was found
            sys.exit(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stderr}")
        return ended.stdout

    def ask(self, prompt: str, project: Path, *words: str) -> tuple[str, list[dict[str, Any]], float]:
        """One session with one prompt: what Claude Code printed, what it sent to the model, and its seconds."""
        project.mkdir(exist_ok=True)
        self.model.requests.clear()
        before = time.monotonic()
        ended = subprocess.run(
            [str(self._program), "-p", prompt, *words],
            env=self.environ,
            cwd=project,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        if ended.returncode:
            sys.exit(f"Claude Code ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}")
        return ended.stdout + ended.stderr, [*self.model.requests], time.monotonic() - before

    def stop_background(self) -> None:
        """End the background processes of the hooks in this home folder."""
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"commonplace.ambient.background" in words and os.fsencode(self.book) in words:
                os.kill(int(folder.name), 15)


@contextmanager
def claude_code(home: Path) -> Iterator[ClaudeCode]:
    model = StandIn()
    thread = threading.Thread(target=model.serve_forever, daemon=True)
    thread.start()
    running = ClaudeCode(home, model)
    try:
        yield running
    finally:
        running.stop_background()
        model.shutdown()
        model.server_close()
