"""What a command prints: lines, tables, JSON, colours on a terminal, and on stderr notes and a progress bar."""

from __future__ import annotations

import codecs
import io
import json
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from typing import Self

    from commonplace.space.records import Record

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
SECONDS_BETWEEN = 0.1
SECONDS_TO_TELL = 3.0
SECONDS_OF_SILENCE = 2.0
_BAR = 28
# Stored text may contain escape sequences that move the cursor or change the title of a terminal.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Output:
    """Standard output and error of one command."""

    def __init__(self, *, is_json: bool, wants_color: bool) -> None:
        self.is_json = is_json
        self.stdout: TextIO = _whole_writes(sys.stdout)
        self.stderr: TextIO = sys.stderr
        self.is_terminal = self.stdout.isatty()
        # The stream's escapes for characters that it cannot encode are not valid JSON, so JSON escapes them itself.
        self._escapes_json = codecs.lookup(self.stdout.encoding or "utf-8").name != "utf-8"
        self._colors = wants_color and self.is_terminal and not is_json

    @property
    def is_held_back(self) -> bool:
        """Whether nothing is on the terminal yet, because a pager will show it."""
        return self.is_terminal and isinstance(self.stdout, io.StringIO)

    @contextmanager
    def paged(self, pager: str) -> Iterator[None]:
        """Show what is printed with a pager, if it is longer than the terminal. An empty `pager` means none."""
        import subprocess  # most commands need none

        words = pager.split()
        if not self.is_terminal or self.is_json or not words or shutil.which(words[0]) is None:
            yield
            return
        terminal, self.stdout = self.stdout, io.StringIO()
        try:
            yield
        finally:
            text, self.stdout = self.stdout.getvalue(), terminal
            if text.count("\n") < shutil.get_terminal_size().lines:
                terminal.write(text)
            else:
                environment = {"LESS": "FRX", **os.environ}  # colours, and the text stays on the screen
                subprocess.run(words, input=text.encode(errors="replace"), env=environment, check=False)

    def style(self, text: str, *styles: str) -> str:
        if not self._colors or not text:
            return text
        return f"\x1b[{';'.join(_STYLES[style] for style in styles)}m{text}\x1b[0m"

    def line(self, text: str = "") -> None:
        self.stdout.write(text + "\n")

    def text(self, text: str) -> None:
        """Write a stored text unchanged; on a terminal without control characters and with a final newline."""
        if self.is_terminal:
            text = self.clean(text)
            text += "" if text.endswith("\n") or not text else "\n"
        self.stdout.write(text)

    def clean(self, text: str) -> str:
        return _CONTROLS.sub("�", text) if self.is_terminal else text

    def time(self, at: datetime) -> str:
        """A time for people: how long ago on a terminal, elsewhere the local time to the second."""
        return ago(at, datetime.now(UTC)) if self.is_terminal else format_time(at)

    def document(self, value: Any) -> None:
        """Write one JSON document."""
        self.stdout.write(json.dumps(value, ensure_ascii=self._escapes_json, indent=2, default=_plain) + "\n")

    def json_line(self, value: Any) -> None:
        """Write one line of a stream of JSON."""
        line = json.dumps(value, ensure_ascii=self._escapes_json, separators=(",", ":"), default=_plain)
        self.stdout.write(line + "\n")

    def note(self, text: str) -> None:
        """Write information about the result to standard error."""
        self.stderr.write(f"commonplace: {text}\n")

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> None:
        """Write aligned columns; those in `right` are right-aligned."""
        cells = [[self.clean(cell) for cell in row] for row in rows]
        widths = [max(len(row[column]) for row in [header, *cells]) for column in range(len(header))]

        def aligned(row: Sequence[str]) -> str:
            parts = [
                cell.rjust(width) if column in right else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            return "  ".join(parts).rstrip()

        self.line(self.style(aligned(header), "dim"))
        for row in cells:
            self.line(aligned(row))


def _whole_writes(stream: TextIO) -> TextIO:
    """Return a buffered stream: with PYTHONUNBUFFERED a write may be partial and the rest silently lost."""
    if not isinstance(getattr(stream, "buffer", None), io.RawIOBase):
        return stream
    return open(stream.fileno(), "w", encoding=stream.encoding, errors=stream.errors, closefd=False)


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def format_time(time: datetime) -> str:
    """Return a time in the local time zone, to the second."""
    return time.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def ago(at: datetime, now: datetime) -> str:
    """How long ago a time was, such as `2 h ago`; the date if it is more than a week ago or in the future."""
    seconds = (now - at).total_seconds()
    if seconds < 0 or seconds >= 7 * 86_400:
        return at.astimezone().strftime("%Y-%m-%d %H:%M")
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit} ago"
    return "just now"


def format_bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError("unreachable")


def pluralize(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


class ProgressBar:
    """A progress bar on a terminal, redrawn at most ten times a second and removed at the end of a `with` block.

    Call it with the amount done, the total if known, and a label.
    """

    def __init__(self, stream: TextIO, *, is_shown: bool, in_bytes: bool = False) -> None:
        self._stream = stream
        self._is_shown = is_shown and stream.isatty()
        self._in_bytes = in_bytes
        self._drawn_at = 0.0
        self._is_drawn = False
        self._began: tuple[float, int] | None = None

    def __call__(self, done: int, total: int | None, label: str) -> None:
        now = time.monotonic()
        self._began = self._began or (now, done)
        if not self._is_shown or (now - self._drawn_at < SECONDS_BETWEEN and done != total):
            return
        self._drawn_at = now
        self._is_drawn = True
        width = shutil.get_terminal_size().columns
        self._stream.write("\r\x1b[K" + self._line(done, total, label)[: width - 1])
        self._stream.flush()

    def _line(self, done: int, total: int | None, label: str) -> str:
        count = format_bytes if self._in_bytes else "{:,}".format
        if not total:
            return f"{count(done)} {label}"
        share = min(1.0, done / total)
        filled = round(share * _BAR)
        bar = f"{'█' * filled}{'░' * (_BAR - filled)} {share:4.0%}  {count(done)} of {count(total)} {label}"
        return bar + self._left(done, total)

    def _left(self, done: int, total: int) -> str:
        """How long it will take, once enough is done to tell."""
        began, first = self._began or (time.monotonic(), done)
        seconds = time.monotonic() - began
        if seconds < SECONDS_TO_TELL or done <= first:
            return ""
        left = seconds * (total - done) / (done - first)
        return f", about {left / 60:.0f} min left" if left >= 90 else f", about {left:.0f} s left"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


@contextmanager
def clock(stream: TextIO, what: str, *, is_shown: bool) -> Iterator[None]:
    """Show on a terminal how long something already takes, for work whose end cannot be told; removed at the end."""
    if not is_shown or not stream.isatty():
        yield
        return
    done, is_shown = threading.Event(), False

    def show() -> None:
        nonlocal is_shown
        began = time.monotonic()
        while not done.wait(SECONDS_BETWEEN * 10):
            if (seconds := time.monotonic() - began) >= SECONDS_OF_SILENCE:
                is_shown = True
                stream.write(f"\r\x1b[K{what} … {seconds:.0f} s")
                stream.flush()

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        if is_shown:
            stream.write("\r\x1b[K")
            stream.flush()


def record_fields(record: Record) -> dict[str, Any]:
    """Return the fields of a record for `--json`."""
    return {field.name: getattr(record, field.name) for field in fields(record)}
