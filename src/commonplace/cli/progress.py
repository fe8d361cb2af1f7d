"""A progress bar on stderr: on a terminal only, redrawn at most ten times a second, gone when the work is done."""

from __future__ import annotations

import shutil
import time
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from commonplace.cli.output import shown_bytes

if TYPE_CHECKING:
    from typing import Self

SECONDS_BETWEEN = 0.1
_BAR = 28


class ProgressBar:
    """Called with what is done, the total where known, and a word for it; use it in a `with` block."""

    def __init__(self, stream: TextIO, *, is_shown: bool, in_bytes: bool = False) -> None:
        self._stream = stream
        self._is_shown = is_shown and stream.isatty()
        self._in_bytes = in_bytes
        self._drawn_at = 0.0
        self._is_drawn = False

    def __call__(self, done: int, total: int | None, label: str) -> None:
        now = time.monotonic()
        if not self._is_shown or (now - self._drawn_at < SECONDS_BETWEEN and done != total):
            return
        self._drawn_at = now
        self._is_drawn = True
        width = shutil.get_terminal_size().columns
        self._stream.write("\r\x1b[K" + self._line(done, total, label)[: width - 1])
        self._stream.flush()

    def _line(self, done: int, total: int | None, label: str) -> str:
        count = shown_bytes if self._in_bytes else "{:,}".format
        if not total:
            return f"{count(done)} {label}"
        share = min(1.0, done / total)
        filled = round(share * _BAR)
        return f"{'█' * filled}{'░' * (_BAR - filled)} {share:4.0%}  {count(done)} of {count(total)} {label}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
