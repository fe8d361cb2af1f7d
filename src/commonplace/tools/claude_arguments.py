"""The arguments of Claude's memory tool: what a model may send, and how a call is read or refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from commonplace.checks import check_text
from commonplace.errors import InvalidInput, TooLarge
from commonplace.tools.memory_paths import shown

Command = Literal["view", "create", "str_replace", "insert", "delete", "rename"]
COMMANDS: tuple[Command, ...] = get_args(Command)

# The fields of each command: those that it needs, and those that it may have.
_FIELDS: dict[Command, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "view": (("path",), ("view_range",)),
    "create": (("path", "file_text"), ()),
    "str_replace": (("path", "old_str"), ("new_str",)),
    "insert": (("path", "insert_line", "insert_text"), ()),
    "delete": (("path",), ()),
    "rename": (("old_path", "new_path"), ()),
}
# The seed's name for a field, and the name that it has here.
_OTHER_NAMES = {"content": "file_text"}


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the tool whose fields all have their types; a field that its command lacks is empty."""

    command: Command
    path: str = ""
    file_text: str = ""
    old_str: str = ""
    new_str: str = ""
    insert_line: int = 0
    insert_text: str = ""
    old_path: str = ""
    new_path: str = ""
    view_range: tuple[int, int] | None = None

    @property
    def path_fields(self) -> tuple[str, ...]:
        return ("old_path", "new_path") if self.command == "rename" else ("path",)


def parse_call(arguments: Mapping[str, object]) -> Call:
    """Read a call, or refuse it with what is wrong. A field that is null is a field that was not given."""
    if not isinstance(arguments, Mapping):
        raise InvalidInput(f"the arguments must be an object, not {type(arguments).__name__}")
    given = {name: value for name, value in arguments.items() if value is not None}
    command = given.pop("command", None)
    if command is None:
        raise InvalidInput(f"command is required; use one of {', '.join(COMMANDS)}")
    if not isinstance(command, str) or command not in COMMANDS:
        named = shown(command) if isinstance(command, str) else repr(type(command).__name__)
        raise InvalidInput(f"Unknown command: {named}; use one of {', '.join(COMMANDS)}")
    return Call(command, **_fields(command, given))


def _fields(command: Command, given: Mapping[str, object]) -> dict[str, Any]:
    required, optional = _FIELDS[command]
    fields: dict[str, Any] = {}
    for name, value in given.items():
        field = _OTHER_NAMES.get(name, name)
        if field not in required + optional:
            takes = ", ".join([*required, *optional])
            raise InvalidInput(f"{command} does not take {shown(str(name))}; it takes {takes}")
        if field in fields:
            raise InvalidInput(f"{command} takes file_text or content, not both")
        fields[field] = _check(str(name), field, value)
    missing = [field for field in required if field not in fields]
    if missing:
        raise InvalidInput("; ".join(f"{field} is required for {command}" for field in missing))
    return fields


def _check(name: str, field: str, value: object) -> object:
    if field == "view_range":
        return _check_range(value)
    if field == "insert_line":
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidInput(f"Invalid `insert_line` parameter: {_named(value)}. It should be a whole number")
        return value
    if not isinstance(value, str):
        raise InvalidInput(f"{name} must be a string, not {type(value).__name__}")
    # A path is checked with the root, and a text's length with its file's.
    return value if field.endswith("path") else _check_text(name, value)


def _check_text(name: str, value: str) -> str:
    try:
        return check_text(name, value)
    except TooLarge:
        return value


def _check_range(value: object) -> tuple[int, int]:
    if (
        not isinstance(value, (list, tuple))
        or len(value) != 2
        or any(isinstance(line, bool) or not isinstance(line, int) for line in value)
    ):
        raise InvalidInput(
            f"Invalid `view_range` parameter: {_named(value)}. "
            "It should be two whole numbers, the first and the last line; -1 is the end of the file"
        )
    return value[0], value[1]


def _named(value: object) -> str:
    return shown(repr(value))


def tool_schema(root: str) -> dict[str, Any]:
    """The JSON schema of the arguments, for a model's API. Flat, since such APIs take no choice at the top."""

    def text(description: str) -> dict[str, Any]:
        return {"type": "string", "description": description}

    return {
        "type": "object",
        "properties": {
            "command": {"type": "string", "enum": list(COMMANDS), "description": "What to do."},
            "path": text(
                f"view, create, str_replace, insert, delete: a path below {root}, such as {root.rstrip('/')}/notes.md."
            ),
            "view_range": {
                "type": "array",
                "items": {"type": "integer"},
                "minItems": 2,
                "maxItems": 2,
                "description": "view of a file: the first and the last line, counted from 1; -1 is the end.",
            },
            "file_text": text("create: the text of the new file."),
            "content": text("create: another name for file_text."),
            "old_str": text("str_replace: the text to replace; it must stand in the file exactly once."),
            "new_str": text("str_replace: the text to put in its place; left out, the old text is deleted."),
            "insert_line": {
                "type": "integer",
                "minimum": 0,
                "description": "insert: the line after which to insert; 0 is the top of the file.",
            },
            "insert_text": text("insert: the text to insert."),
            "old_path": text("rename: the path that is."),
            "new_path": text("rename: the path that shall be; nothing may be there."),
        },
        "required": ["command"],
        "additionalProperties": False,
    }
