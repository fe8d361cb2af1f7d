"""Logs as JSON lines on stderr; standard output belongs to the protocol."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path

_LEVELS = {"error": logging.ERROR, "warn": logging.WARNING, "info": logging.INFO, "debug": logging.DEBUG}


class JSONLines(logging.Formatter):
    """One JSON object a record: time, level, logger, message, its fields, and the traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower().replace("warning", "warn"),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=True)


class _PrivateFile(logging.FileHandler):
    """A log that its owner alone can read: at level `debug` it holds what is remembered."""

    def _open(self) -> TextIOWrapper:
        opened = os.open(self.baseFilename, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        os.fchmod(opened, 0o600)  # one that an earlier version made could be read by everybody
        return TextIOWrapper(open(opened, "ab"), encoding=self.encoding)


def configure_logging(level: str, debug_file: Path | None = None) -> None:
    """Send every logger's records to stderr, and at level `debug` to a file as well where one is named."""
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    if debug_file is not None and level == "debug":
        handlers.append(_PrivateFile(debug_file, encoding="utf-8"))
    for handler in handlers:
        handler.setFormatter(JSONLines())
        handler.setLevel(_LEVELS[level])  # drivers give their loggers a level of their own
    logging.basicConfig(level=_LEVELS[level], handlers=handlers, force=True)
    logging.captureWarnings(capture=True)
    # The SDK tells of each request at info; ours says what matters to whoever runs the server.
    logging.getLogger("mcp").setLevel(max(_LEVELS[level], logging.WARNING) if level != "debug" else logging.DEBUG)
