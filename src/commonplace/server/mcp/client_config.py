"""The configuration of an MCP client that starts `commonplace mcp`, as JSON to paste."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CLIENTS = ("claude-code", "claude-desktop", "cursor", "vscode")
NAME = "memory"


def client_config(client: str, arguments: Sequence[str]) -> str:
    """The JSON for the client's file. The command is absolute: desktop clients do not have your shell's PATH."""
    command, *first = _program()
    started: dict[str, Any] = {"command": command, "args": [*first, "mcp", *arguments]}
    if client in ("claude-code", "vscode"):
        started = {"type": "stdio", **started}
    group = "servers" if client == "vscode" else "mcpServers"
    return json.dumps({group: {NAME: started}}, indent=2, ensure_ascii=False)


def _program() -> list[str]:
    beside = Path(sys.executable).with_name("commonplace")
    if beside.is_file():
        return [str(beside)]
    found = shutil.which("commonplace")
    return [str(Path(found).absolute())] if found else [sys.executable, "-m", "commonplace.cli"]
