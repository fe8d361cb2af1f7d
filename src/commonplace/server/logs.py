"""Logs as JSON lines on standard error. Standard output belongs to the MCP protocol.

The service's logs hold no contents, queries, keys or namespaces.
"""

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
    """One JSON object per record: time, level, logger, message, extra fields, and the traceback if there is one."""

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
    """A log file that only its owner can read: at level `debug` it contains memories."""

    def _open(self) -> TextIOWrapper:
        opened = os.open(self.baseFilename, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        os.fchmod(opened, 0o600)  # an earlier version created the file readable for everybody
        return TextIOWrapper(open(opened, "ab"), encoding=self.encoding)


def configure_logging(level: str, debug_file: Path | None = None) -> None:
    """Send the records of every logger to stderr, and at level `debug` also to a file, if you name one."""
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    if debug_file is not None and level == "debug":
        handlers.append(_PrivateFile(debug_file, encoding="utf-8"))
    for handler in handlers:
        handler.setFormatter(JSONLines())
        handler.setLevel(_LEVELS[level])  # some drivers set the level of their loggers themselves
    logging.basicConfig(level=_LEVELS[level], handlers=handlers, force=True)
    logging.captureWarnings(capture=True)
    # The SDK logs each request at info; our own lines say what an operator needs.
    logging.getLogger("mcp").setLevel(max(_LEVELS[level], logging.WARNING) if level != "debug" else logging.DEBUG)


def configure_service_logging(level: str) -> None:
    """The same for the HTTP service, with uvicorn's own records."""
    configure_logging(level)
    if level != "debug":
        # uvicorn logs start and stop in many lines; the command prints what matters.
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
