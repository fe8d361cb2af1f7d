"""What every client has to do, and the form of its report: the results of MCP as JSON.

A client gets the task as its first argument and prints one line of JSON. Standard library only: this runs in the
environments of all clients.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from dataclasses import dataclass
from typing import Any

WATCHED = "mem://recent"
"""What a client that can subscribe watches while it saves. It reports `updated`, the address in the notification."""

HEARING_SECONDS = 10
_ADDRESS = re.compile(r"mem://item/[0-9a-f-]+")


@dataclass(frozen=True)
class Task:
    """Where the server is (`url`, or `command` with `args` and `env`) and what to call it with."""

    url: str | None
    command: str
    args: list[str]
    env: dict[str, str]
    create: dict[str, Any]
    search: dict[str, Any]
    wrong_search: dict[str, Any]
    prompt: str
    prompt_arguments: dict[str, str]


def read_task() -> Task:
    return Task(**json.loads(sys.argv[1]))


def tell(**seen: Any) -> None:
    """Print what was seen; `protocol` and `server`, then one result for each request."""
    print(json.dumps({name: wire(value) for name, value in seen.items()}))


def wire(value: Any) -> Any:
    """A result as on the wire, whatever the SDK calls its fields."""
    if isinstance(value, list):
        return [wire(one) for one in value]
    return value.model_dump(mode="json", by_alias=True) if hasattr(value, "model_dump") else value


def address(found: Any) -> str:
    """The address of the first memory that a search names in its text, as a client without links would find it."""
    match = _ADDRESS.search(json.dumps(wire(found)))
    if match is None:
        sys.exit(f"no mem://item/ address in {wire(found)}")
    return match[0]


class Hearing:
    """A message handler of the Python SDKs that waits for the notification of a change."""

    def __init__(self) -> None:
        self._heard = asyncio.Event()
        self._uri: str | None = None

    async def __call__(self, message: Any) -> None:
        notification = getattr(message, "root", message)
        if getattr(notification, "method", None) == "notifications/resources/updated":
            self._uri = str(notification.params.uri)
            self._heard.set()

    async def updated(self) -> str | None:
        await asyncio.wait_for(self._heard.wait(), HEARING_SECONDS)
        return self._uri
