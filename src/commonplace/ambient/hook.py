"""What a client runs at each event: passes the event to the background process, and prints its answer.

    python -I -S hook.py CLIENT [OPTIONS] < event.json

It uses the standard library only and does not import the package, because it starts with every prompt (20 to 30 ms). If
no background process answers, it starts one for the next event, and answers this one itself, by keywords alone. It
never fails: after `SECONDS`, or after any error, it exits with 0, prints nothing, and writes a line to `hooks.log`.
"""

from __future__ import annotations

import os
import stat
import sys
import time

SECONDS = 2.0
"""How long an event may take, with everything."""

ANSWER_SECONDS = 1.0
"""How long the background process may take of that."""

HASTY_SECONDS = 0.15
"""How long it may take after it did not answer in time, until it does: prompts must not wait for it again and again."""

SAVES = ("Stop", "SessionEnd", "PreCompact", "AfterAgent", "PreCompress")
"""The events whose turns are saved. Nobody waits for them."""

PAUSE_SECONDS = 60.0
"""How long hooks do nothing after the background process could not start: the next one would fail in the same way. If
it does not answer in time, hooks use `HASTY_SECONDS` for as long."""

MAX_EVENT_BYTES = 4_000_000
MAX_ANSWER_BYTES = 1_000_000
_MAX_LOG_BYTES = 1_000_000
_MAX_SOCKET_PATH = 100
"""The system allows 104 to 108 bytes in the path of a socket."""


_STARTED = time.monotonic()


def state_folder() -> str:
    """The folder of the log and of what each session was shown."""
    base = os.environ.get("XDG_STATE_HOME") or os.environ.get("LOCALAPPDATA")
    return os.path.join(base or os.path.join(os.path.expanduser("~"), ".local", "state"), "commonplace")


def log(text: str) -> None:
    """Write a line to our log. It has no contents of prompts or memories. An error here is ignored: nobody is left
    to be told."""
    try:
        folder = state_folder()
        os.makedirs(folder, mode=0o700, exist_ok=True)
        path = os.path.join(folder, "hooks.log")
        if os.path.exists(path) and os.path.getsize(path) > _MAX_LOG_BYTES:
            os.replace(path, path + ".1")
        line = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {os.getpid()} {' '.join(text.split())[:500]}\n"
        opened = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        try:
            os.write(opened, line.encode(errors="replace"))
        finally:
            os.close(opened)
    except OSError:
        return


def digest(words: list[str]) -> str:
    """The name of a configuration: the words after the script's name."""
    from hashlib import sha256

    return sha256("\0".join(words).encode(errors="surrogateescape")).hexdigest()[:16]


def socket_path(words: list[str]) -> str | None:
    """The socket of the background process for these words, in a folder that only this user can enter; None without.

    An upgrade replaces this file, so that its events go to a process of the new version.
    """
    if not hasattr(os, "getuid"):
        return None
    version = digest([*words, str(os.stat(__file__).st_mtime_ns)])
    for base in (os.environ.get("XDG_RUNTIME_DIR"), os.environ.get("TMPDIR"), "/tmp"):
        folder = os.path.join(base, f"commonplace-{os.getuid()}") if base else ""
        path = os.path.join(folder, f"{version}.sock")
        if folder and len(os.fsencode(path)) <= _MAX_SOCKET_PATH and _is_private(folder):
            return path
    return None


def _is_private(folder: str) -> bool:
    """Whether a folder is ours and closed to others; it is made if it is missing."""
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        pass
    except OSError:
        return False
    found = os.lstat(folder)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def ask(path: str, event: bytes, seconds: float) -> bytes | None:
    """The answer of the background process; None if there is none."""
    import socket

    try:
        found = os.lstat(path)
        if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.getuid():
            return None
        ends = time.monotonic() + seconds
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(seconds)
            connection.connect(path)
            connection.sendall(event)
            connection.shutdown(socket.SHUT_WR)
            parts, size = [], 0
            while size <= MAX_ANSWER_BYTES:
                connection.settimeout(max(0.001, ends - time.monotonic()))
                part = connection.recv(65_536)
                if not part:
                    break
                parts.append(part)
                size += len(part)
        answer = b"".join(parts)
    except (FileNotFoundError, ConnectionError):
        return None
    # The first byte says that the answer is whole: an empty one is not the same as a process that died.
    return answer[1:] if answer[:1] == b"=" else None


def start_background(words: list[str], event: bytes) -> None:
    """Start the background process, which handles this event first if it is not empty. Its answer is not awaited."""
    import subprocess

    process = subprocess.Popen(
        [sys.executable, "-I", "-m", "commonplace.ambient.background", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=os.path.expanduser("~"),  # the client's folder may be removed while the process runs
        start_new_session=True,
    )
    assert process.stdin is not None
    with process.stdin as pipe:
        pipe.write(event)


def _is_save(event: bytes) -> bool:
    import json

    return json.loads(event).get("hook_event_name") in SAVES


def failure_mark(path: str) -> str:
    """The file that says that the process of a socket could not start; its reason is in the log."""
    return f"{path}.failed"


def late_mark(path: str) -> str:
    """The file that says that the process of a socket did not answer in time."""
    return f"{path}.late"


def _is_recent(mark: str) -> bool:
    try:
        return time.time() - os.stat(mark).st_mtime < PAUSE_SECONDS
    except OSError:
        return False


def _ask_in_time(path: str, event: bytes, is_late: bool) -> bytes | None:
    """The answer of the background process. If there is none in time, the next events wait less."""
    mark = late_mark(path)
    try:
        answer = ask(path, event, HASTY_SECONDS if is_late else ANSWER_SECONDS)
    except TimeoutError:
        if not is_late:  # so that it gets its full time again after a while
            os.close(os.open(mark, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600))
        raise
    if answer is not None and is_late:
        os.unlink(mark)
    return answer


def _answer(words: list[str]) -> bytes:
    event = sys.stdin.buffer.read(MAX_EVENT_BYTES + 1)
    if len(event) > MAX_EVENT_BYTES:
        log(f"an event of more than {MAX_EVENT_BYTES} bytes was left out")
        return b""
    path = socket_path(words)
    if path is None:
        return _alone(words, event)
    is_late = _is_recent(late_mark(path))
    answer = _ask_in_time(path, event, is_late)
    if answer is not None:
        return answer
    if _is_recent(failure_mark(path)):
        return b""
    is_save = _is_save(event)
    start_background(words, event if is_save else b"")
    return b"" if is_save or is_late else _alone(words, event)


def _alone(words: list[str], event: bytes) -> bytes:
    """The answer of a process that lives for this event, by keywords alone."""
    import subprocess

    try:
        return subprocess.run(
            [sys.executable, "-I", "-m", "commonplace.ambient.background", "--alone", *words],
            input=event,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=max(0.1, _STARTED + SECONDS - 0.2 - time.monotonic()),
            check=True,
        ).stdout
    except subprocess.TimeoutExpired:
        log(f"no answer within {SECONDS} s")
        return b""


def _give_up(*_: object) -> None:
    log(f"no answer within {SECONDS} s")
    os._exit(0)


def main(words: list[str]) -> int:
    import threading

    timer = threading.Timer(SECONDS, _give_up)
    timer.daemon = True
    timer.start()
    try:
        answer = _answer(words)
        if answer:
            sys.stdout.buffer.write(answer)
            sys.stdout.buffer.flush()
    except BaseException as error:  # noqa: BLE001 - whatever it is, the session of the user goes on
        log(f"{type(error).__name__}: {error}")
    os._exit(0)  # not even a thread that hangs delays the session


if __name__ == "__main__":
    main(sys.argv[1:])
