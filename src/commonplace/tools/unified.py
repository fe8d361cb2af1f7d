"""The unified `memory` tool: read, list, append, update and delete on one tree, each answer one JSON envelope.

It only words requests and answers; `space.files` has the rules. The checks run in the order shape, command, path,
required fields, memory. A request that fails one of them changes nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from commonplace.checks import MAX_TEXT_BYTES, Limits, check_text
from commonplace.errors import (
    CommonplaceError,
    Forbidden,
    InvalidInput,
    InvalidPath,
    IsADirectory,
    NotADirectory,
    NotFound,
    TooLarge,
    Unavailable,
)
from commonplace.space.files import Files
from commonplace.space.names import ROOT, normalise
from commonplace.space.space import Space
from commonplace.tools.tool import ToolAnswer, check_count, how_many_fit

COMMANDS = ("read", "list", "append", "update", "delete")
_IN_PARTS = ("read", "list")
DEFAULT_NAME = "memory"
DEFAULT_DESCRIPTION = "Unified Memory tool: read, list, append, update, delete"

_NAME = re.compile(r"[a-z0-9_]{1,64}")
_REQUIRED = ("path", "command")
_OPTIONAL = ("content", "oldContent")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")

# The code of each error, and the message where the contract fixes one.
_ERRORS: tuple[tuple[type[CommonplaceError], str, str | None], ...] = (
    (NotFound, "ENOENT", "ENOENT: file not found"),
    (IsADirectory, "EISDIR", "EISDIR: path is a directory"),
    (NotADirectory, "ENOTDIR", None),
    (Forbidden, "EACCES", None),
    (Unavailable, "EAGAIN", None),
    (InvalidInput, "EINVAL", None),
)


class Memory(Protocol):
    """Where a tool finds its tree: one for all threads, or one per thread."""

    @property
    def needs_thread(self) -> bool: ...

    @property
    def limits(self) -> Limits: ...

    def tree(self, thread_id: str | None = None) -> Files: ...


@dataclass(frozen=True, slots=True)
class Envelope:
    """The answer to a request, with either a `result` or an `error`."""

    command: str
    path: str
    result: Mapping[str, Any] | None = None
    error: Mapping[str, str] | None = None

    @property
    def ok(self) -> bool:
        return self.error is None

    def as_dict(self) -> dict[str, Any]:
        """The keys in the order of the wire format."""
        end = {"result": self.result} if self.error is None else {"error": self.error}
        return {"command": self.command, "path": self.path, "ok": self.ok, **end}

    @property
    def text(self) -> str:
        """Compact JSON. Only lone surrogates are escaped, because UTF-8 cannot encode them."""
        text = json.dumps(self.as_dict(), ensure_ascii=False, separators=(",", ":"))
        return _LONE_SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)

    def as_answer(self) -> ToolAnswer:
        return ToolAnswer(self.text, is_error=not self.ok, structured=self.as_dict() if self.ok else {})


class _Refused(Exception):
    """A request that ends with an error envelope."""

    def __init__(self, message: str, code: str = "EINVAL") -> None:
        super().__init__(message)
        self.code = code


class UnifiedMemoryTool:
    """One tool on one memory: a space, a memory node, or nothing yet.

    `commands` permits only some of the five. The thread id comes from the caller, never from the model. With
    `max_characters`, a longer file or list is split: the tool then takes an `offset`, and a `note` in the result gives
    the offset of the next part.
    """

    def __init__(
        self,
        memory: Memory | Space | None = None,
        *,
        name: str = DEFAULT_NAME,
        description: str = DEFAULT_DESCRIPTION,
        title: str | None = None,
        commands: Collection[str] = COMMANDS,
        max_characters: int | None = None,
    ) -> None:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidInput(f"a tool's name must be 1 to 64 characters of a-z, 0-9 and _, not {name!r:.100}")
        self.name = name
        self.description = check_text("description", description)
        self.title = None if title is None else check_text("title", title)
        self.commands = _check_commands(commands)
        self.max_characters = max_characters
        self._memory = memory

    @property
    def memory(self) -> Memory | Space | None:
        return self._memory

    def connect(self, memory: Memory | Space | None) -> None:
        """Connect the tool to a memory, or disconnect it with None."""
        self._memory = memory

    def call(self, arguments: object, *, thread_id: str | None = None) -> str:
        """Run one request; the envelope as compact JSON."""
        return self.answer(arguments, thread_id=thread_id).text

    def answer(self, arguments: object, *, thread_id: str | None = None) -> Envelope:
        """Run one request. A wrong request does not raise; the envelope has the error."""
        given = arguments if isinstance(arguments, Mapping) else {}
        command, path = given.get("command"), given.get("path")
        command = command if isinstance(command, str) else "unknown"
        path = path if isinstance(path, str) else ROOT
        wrong_path: _Refused | None = None
        try:
            path = self._normal_path(path, command)
        except _Refused as refused:
            wrong_path = refused
        try:
            return Envelope(command, path, result=self._run(arguments, wrong_path or path, thread_id))
        except _Refused as refused:
            return Envelope(command, path, error={"message": str(refused), "code": refused.code})

    def _run(self, arguments: object, path: str | _Refused, thread_id: str | None) -> Mapping[str, Any]:
        arguments, offset = self._without_offset(arguments)
        request = _check_shape(arguments)
        command = request["command"]
        if command not in COMMANDS:
            raise _Refused(f"unknown command: {command}")
        if command not in self.commands:
            raise _Refused(f"command not permitted: {command}; this tool permits {', '.join(self.commands)}")
        if isinstance(path, _Refused):
            raise path
        _check_contents(request, self._limits)
        try:
            result = _RUN[command](self._tree(thread_id), path, request)
        except CommonplaceError as error:
            raise _refusal(error) from error
        return result if self.max_characters is None else _part(result, offset, self.max_characters)

    def _without_offset(self, arguments: object) -> tuple[object, int]:
        """The arguments of the contract, and the offset."""
        if self.max_characters is None or not isinstance(arguments, Mapping) or "offset" not in arguments:
            return arguments, 0
        rest = {name: value for name, value in arguments.items() if name != "offset"}
        try:
            offset = check_count("offset", arguments["offset"])
        except InvalidInput as error:
            raise _Refused(str(error)) from error
        if offset and rest.get("command") not in _IN_PARTS:
            raise _Refused(f"offset is for {' and '.join(_IN_PARTS)}")
        return rest, offset

    def _normal_path(self, path: str, command: str) -> str:
        """The path in normal form; raises with this dialect's wording if it is invalid."""
        if not path and command != "list":
            raise _Refused("path is required")
        try:
            return normalise(path, self._limits)
        except InvalidPath as error:
            if error.is_traversal:
                raise _Refused('invalid path: ".." not allowed') from error
            raise _Refused(f"invalid path segment: {error.segment}") from error
        except TooLarge as error:
            raise _Refused(f"invalid path: {error}") from error
        except InvalidInput as error:
            broken = next(segment for segment in re.split(r"[/\\]+", path) if _UNSTORABLE.search(segment))
            raise _Refused(f"invalid path segment: {broken}") from error

    @property
    def _limits(self) -> Limits:
        return getattr(self._memory, "limits", None) or Limits()

    def _tree(self, thread_id: str | None) -> Files:
        if self._memory is None:
            raise _Refused("Memory not connected", "ENOTMEM")
        if isinstance(self._memory, Space):
            return self._memory.files
        if self._memory.needs_thread and not thread_id:
            raise _Refused("threadId is required for perThread scope", "ENOTMEM")
        return self._memory.tree(thread_id)

    # What a model reads

    def parameters(self) -> dict[str, Any]:
        """The arguments as JSON Schema; only permitted commands are offered."""
        texts = {
            "path": "Path in the memory, such as /notes/today. For list, / or an empty path is the root.",
            "command": "What to do.",
            "content": "Text to append; for update, the text that takes the place of oldContent.",
            "oldContent": "For update: the exact text to replace; every occurrence is replaced.",
        }
        offered = [*_REQUIRED]
        offered += ["content"] if {"append", "update"} & set(self.commands) else []
        offered += ["oldContent"] if "update" in self.commands else []
        properties: dict[str, Any] = {key: {"type": "string", "description": texts[key]} for key in offered}
        properties["command"]["enum"] = list(self.commands)
        if self.max_characters is not None and set(_IN_PARTS) & set(self.commands):
            properties["offset"] = {
                "type": "integer",
                "description": "For read and list: where to continue, as a note says.",
            }
        return {
            "type": "object",
            "properties": properties,
            "required": list(_REQUIRED),
            "additionalProperties": False,
        }

    def openai_schema(self) -> dict[str, Any]:
        """The tool as OpenAI's chat completions take it."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters()}
        return {"type": "function", "function": function}

    def anthropic_schema(self) -> dict[str, Any]:
        """The tool as Anthropic's messages take it."""
        return {"name": self.name, "description": self.description, "input_schema": self.parameters()}

    def mcp_schema(self) -> dict[str, Any]:
        """The tool as an MCP server lists it."""
        title = {} if self.title is None else {"title": self.title}
        return {"name": self.name, **title, "description": self.description, "inputSchema": self.parameters()}


# Checks


def _check_commands(commands: Collection[str]) -> tuple[str, ...]:
    if isinstance(commands, str) or not commands:
        raise InvalidInput(f"commands must be a list of one or more of {', '.join(COMMANDS)}")
    for command in commands:
        if command not in COMMANDS:
            raise InvalidInput(f"unknown command {command!r}; use some of {', '.join(COMMANDS)}")
    return tuple(command for command in COMMANDS if command in commands)


def _check_shape(arguments: object) -> Mapping[str, str]:
    if not isinstance(arguments, Mapping):
        raise _Refused("invalid arguments")
    is_whole = all(key in arguments for key in _REQUIRED)
    is_known = all(key in (*_REQUIRED, *_OPTIONAL) and isinstance(arguments[key], str) for key in arguments)
    if not is_whole or not is_known:
        raise _Refused("invalid arguments")
    return arguments


def _check_contents(request: Mapping[str, str], limits: Limits) -> None:
    if request["command"] == "append" and "content" not in request:
        raise _Refused("content is required for append")
    if request["command"] == "update" and not {"content", "oldContent"} <= request.keys():
        raise _Refused("oldContent and content are required for update")
    for key, most in (("content", limits.file_bytes), ("oldContent", MAX_TEXT_BYTES)):
        try:
            check_text(key, request.get(key, ""), max_bytes=most)
        except InvalidInput as error:
            raise _Refused(str(error)) from error


def _refusal(error: CommonplaceError) -> _Refused:
    """An error in this dialect. Errors that neither the model nor its caller can fix are raised."""
    for kind, code, message in _ERRORS:
        if isinstance(error, kind):
            return _Refused(message or (str(error) if code == "EINVAL" else f"{code}: {error}"), code)
    raise error


def _part(result: Mapping[str, Any], offset: int, room: int) -> Mapping[str, Any]:
    """As much of a text or a list, from the offset on, as fits. A note says how to get the rest."""
    name = next((name for name in ("content", "entries") if name in result), None)
    if name is None:
        return result
    whole = result[name]
    what = "characters" if name == "content" else "entries"
    if offset and offset >= len(whole):
        raise _Refused(f"offset {offset} is past the end; there are {len(whole):,} {what}")
    part = whole[offset : offset + room] if name == "content" else _fitting(whole[offset:], room)
    if len(part) == len(whole):
        return result
    end = offset + len(part)
    rest = "" if end == len(whole) else f"; go on with offset {end}"
    return {name: part, "note": f"{what} {offset:,} to {end:,} of {len(whole):,}{rest}"}


def _fitting(entries: list[dict[str, str]], room: int) -> list[dict[str, str]]:
    return entries[: how_many_fit((len(json.dumps(entry, ensure_ascii=False)) + 1 for entry in entries), room)]


# The commands


def _read(files: Files, path: str, request: Mapping[str, str]) -> Mapping[str, Any]:
    return {"content": files.read(path)}


def _list(files: Files, path: str, request: Mapping[str, str]) -> Mapping[str, Any]:
    try:
        listed = files.list(path)
    except (NotFound, NotADirectory):
        listed = []
    kinds = {"file": "file", "directory": "dir"}
    return {"entries": [{"name": item.name, "kind": kinds[item.kind]} for item in listed]}


def _append(files: Files, path: str, request: Mapping[str, str]) -> Mapping[str, Any]:
    files.append(path, request["content"])
    return {"status": "ok"}


def _update(files: Files, path: str, request: Mapping[str, str]) -> Mapping[str, Any]:
    return {"replaced": files.replace(path, request["oldContent"], request["content"])}


def _delete(files: Files, path: str, request: Mapping[str, str]) -> Mapping[str, Any]:
    removed = files.delete(path)
    return {"files": removed.files, "dirs": removed.directories}


_RUN: dict[str, Callable[[Files, str, Mapping[str, str]], Mapping[str, Any]]] = {
    "read": _read,
    "list": _list,
    "append": _append,
    "update": _update,
    "delete": _delete,
}
