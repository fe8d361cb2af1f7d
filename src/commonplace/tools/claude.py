"""Claude's memory tool: six commands on a tree of text files, answered in plain text.

The contract fixes what the model reads, in two wordings: the seed's, and that of Anthropic's Python SDK, verbatim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from commonplace.checks import check_text
from commonplace.errors import CommonplaceError, ConfigurationError, InvalidInput, TooLarge
from commonplace.space.space import Space
from commonplace.tools.memory_edits import (
    DEFAULT_ROOT,
    MAX_FILE_LINES,
    MemoryEdit,
    MemoryException,
    MemoryRoot,
    insert_line_and_end,
    insert_lines,
    line_count,
    lines_of,
    shown,
)
from commonplace.tools.memory_store import EditableMemoryStore, MemoryEntry, MemoryStore, SpaceMemoryStore
from commonplace.tools.tool import ToolAnswer

Command = Literal["view", "create", "str_replace", "insert", "delete", "rename"]
COMMANDS: tuple[Command, ...] = get_args(Command)
WordingName = Literal["seed", "anthropic"]

DIRECTORY_BYTES = 4096
_SNIPPET_LINES = 2
_SHOWN_PLACES = 100
_LEVELS = 2


class ClaudeMemoryTool:
    """The tool over a space or any memory store. It checks paths before the store sees them.

    `root` defaults to the store's own root, or `/memories` if it has none. Invalid calls are answered; only a failure
    of the store itself is raised. With `max_characters`, a longer view is split, also of a directory. Its last line
    says which `view_range` shows the next part.
    """

    name = "memory"

    def __init__(
        self,
        store: MemoryStore | Space,
        wording: WordingName = "seed",
        root: str | None = None,
        *,
        max_characters: int | None = None,
    ) -> None:
        self._wording = wording_named(wording)
        if store is None or isinstance(store, (str, bytes, type)):
            raise ConfigurationError(f"the tool needs a space or a memory store, not {store!r:.100}")
        self.max_characters = max_characters
        if isinstance(store, Space):
            store = SpaceMemoryStore(store, DEFAULT_ROOT if root is None else root)
        own_root: str | None = getattr(store, "root", None)
        self._root = MemoryRoot(next(one for one in (root, own_root, DEFAULT_ROOT) if one is not None))
        if own_root not in (None, self._root.path):
            raise ConfigurationError(f"the tool's root is {self._root.path}, but its store's is {own_root}")
        self.store: MemoryStore = store
        self._commands: dict[Command, Callable[[Call], str]] = {
            "view": self._view,
            "create": self._create,
            "str_replace": self._str_replace,
            "insert": self._insert,
            "delete": self._delete,
            "rename": self._rename,
        }

    @property
    def root(self) -> str:
        return self._root.path

    @property
    def description(self) -> str:
        return (
            f"Memory that lasts between conversations: text files below {self.root}. View {self.root} before you begin "
            "a task, and keep there what will be needed again: facts, decisions, progress. "
            "Commands: view (a directory or a file), create, str_replace, insert, delete, rename."
        )

    @property
    def input_schema(self) -> dict[str, Any]:
        return tool_schema(self.root)

    def call(self, arguments: Mapping[str, object]) -> ToolAnswer:
        """Run a model's call; the answer says what was done, or why nothing was."""
        try:
            call = parse_call(arguments)
        except InvalidInput as error:
            return ToolAnswer(self._wording.say("arguments", message=str(error)), is_error=True)
        for field in call.path_fields:
            path: str = getattr(call, field)
            try:
                checked: dict[str, Any] = {field: self._root.check(path)}
                call = replace(call, **checked)
            except MemoryException as error:
                return self._refusal(call, shown(path), error)
        try:
            return ToolAnswer(self._commands[call.command](call))
        except MemoryException as error:
            return self._refusal(call, self._path_at_fault(call, error), error)
        except CommonplaceError as error:
            return ToolAnswer(self._wording.say("other", message=str(error)), is_error=True)

    def _path_at_fault(self, call: Call, error: MemoryException) -> str:
        if call.command != "rename":
            return call.path
        if error.reason in ("invalid_path", "not_text", "symlink"):  # either path may have it
            return call.new_path if self._is_usable(call.old_path) else call.old_path
        return call.new_path if error.reason in ("already_exists", "not_a_directory") else call.old_path

    def _is_usable(self, path: str) -> bool:
        """Whether the store accepts a path; it need not exist."""
        try:
            self.store.exists(path)
        except MemoryException:
            return False
        return True

    def _refusal(self, call: Call, path: str, error: MemoryException) -> ToolAnswer:
        words = {field.name: getattr(call, field.name) for field in fields(call)}
        said = {
            "path": path,
            "root": self.root,
            "lines": self._wording.places(error.lines),
            "count": error.count,
            "message": str(error),
        }
        return ToolAnswer(self._wording.refuse(call.command, error.reason, **{**words, **said}), is_error=True)

    def _view(self, call: Call) -> str:
        entry = self.store.metadata(call.path)
        if entry.is_directory:
            size = self._wording.size(DIRECTORY_BYTES)
            head = [self._wording.say("directory", path=call.path), f"{size}\t{call.path}"]
            return "\n".join([*head, *self._part_of_rows(call)])
        text = self.store.read(call.path)
        if line_count(text) > MAX_FILE_LINES:
            raise MemoryException(f"{call.path} has too many lines", "too_many_lines", count=MAX_FILE_LINES)
        first = 1 if call.view_range is None else max(1, call.view_range[0])
        lines = lines_of(text, call.view_range)
        shown, note = self._fitting(lines, first, text.count("\n") + 1, "lines")
        shown_lines = numbered(shown, first) or self._wording.say("no_lines", count=line_count(text))
        return "\n".join([self._wording.say("file", path=call.path), shown_lines, *note])

    def _part_of_rows(self, call: Call) -> list[str]:
        """The rows of a directory. A range selects among them only if they do not fit into one answer."""
        rows = [*self._rows(call.path)]
        if self.max_characters is None or sum(map(len, rows)) + len(rows) <= self.max_characters:
            return rows
        first, last = call.view_range or (1, -1)
        first = max(1, first)
        shown, note = self._fitting(rows[first - 1 : None if last == -1 else last], first, len(rows), "entries")
        return [*shown, *note]

    def _fitting(self, lines: Sequence[str], first: int, total: int, what: str) -> tuple[Sequence[str], list[str]]:
        """The lines that fit into one answer, and a note about the rest."""
        if self.max_characters is None or sum(map(len, lines)) + 8 * len(lines) <= self.max_characters:
            return lines, []
        room, count = self.max_characters, 0
        while count < len(lines) and room >= len(lines[count]) + 8:
            room -= len(lines[count]) + 8
            count += 1
        if not count:  # one line alone is too long
            cut = f"[line {first} is cut after {self.max_characters:,} of {len(lines[0]):,} characters]"
            more = [f"[view_range [{first + 1}, -1] shows the next]"] if len(lines) > 1 else []
            return [lines[0][: self.max_characters]], [cut, *more]
        last = first + count - 1
        return lines[:count], [
            f"[{what} {first:,} to {last:,} of {total:,}; view_range [{last + 1}, -1] shows the next]"
        ]

    def _rows(self, path: str, level: int = 1) -> Iterator[str]:
        """A directory's entries, each subdirectory followed by its own entries."""
        try:
            entries = self._wording.visible(self.store.list(path))
        except MemoryException as error:
            if level > 1 and error.reason in ("not_found", "not_a_directory"):
                return  # deleted since its parent was listed
            raise
        for entry in entries:
            yield self._wording.row(entry)
            if entry.is_directory and level < _LEVELS:
                yield from self._rows(entry.path, level + 1)

    def _create(self, call: Call) -> str:
        if call.path == self.root:
            raise MemoryException("the root exists already", "already_exists")
        self.store.create(call.path, call.file_text)
        return self._wording.say("create", path=call.path)

    def _str_replace(self, call: Call) -> str:
        edit = self.store.replace(call.path, call.old_str, call.new_str)
        said = self._wording.edited(edit)
        if self.max_characters is None or len(said) <= self.max_characters:
            return said
        cut = f"[{self.max_characters:,} of {len(said):,} characters; view with a view_range shows the rest]"
        return f"{said[: self.max_characters]}\n{cut}"

    def _insert(self, call: Call) -> str:
        if isinstance(self.store, EditableMemoryStore):
            self.store.edit(call.path, lambda text: self._wording.insert(text, call.insert_line, call.insert_text))
        else:
            self.store.insert(call.path, call.insert_line, call.insert_text)
        return self._wording.say("insert", path=call.path)

    def _delete(self, call: Call) -> str:
        if call.path == self.root:
            raise MemoryException("the root cannot be deleted", "root")
        self.store.delete(call.path)
        return self._wording.say("delete", path=call.path)

    def _rename(self, call: Call) -> str:
        if call.old_path == self.root:
            raise MemoryException("the root cannot be renamed", "root")
        if call.new_path == self.root:
            raise MemoryException("the root exists already", "already_exists")
        self.store.rename(call.old_path, call.new_path)
        return self._wording.say("rename", old_path=call.old_path, new_path=call.new_path)


# Arguments

# The required and the optional fields of each command.
_FIELDS: dict[Command, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "view": (("path",), ("view_range",)),
    "create": (("path", "file_text"), ()),
    "str_replace": (("path", "old_str"), ("new_str",)),
    "insert": (("path", "insert_line", "insert_text"), ()),
    "delete": (("path",), ()),
    "rename": (("old_path", "new_path"), ()),
}
# The seed's other name for a field.
_OTHER_NAMES = {"content": "file_text"}


@dataclass(frozen=True, slots=True)
class Call:
    """A call whose fields have their types. A field that the command does not take is empty."""

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
    """Read a call; raises InvalidInput if it is wrong. Null means "not given"."""
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
    # The root checks paths, and the store checks the length of the whole file.
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
    """The JSON Schema of the arguments. It is flat, because model APIs refuse a choice at the top level."""

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
            "old_str": text("str_replace: the text to replace; it must occur in the file exactly once."),
            "new_str": text("str_replace: the text to put in its place; left out, the old text is deleted."),
            "insert_line": {
                "type": "integer",
                "minimum": 0,
                "description": "insert: the line after which to insert; 0 is the top of the file.",
            },
            "insert_text": text("insert: the text to insert."),
            "old_path": text("rename: the current path."),
            "new_path": text("rename: the new path, which must not exist."),
        },
        "required": ["command"],
        "additionalProperties": False,
    }


# Wording


def _same(text: str) -> tuple[str, str]:
    return text, text


def _error(text: str) -> tuple[str, str]:
    return f"Error: {text}", text


# Each case in the wording `seed` and in the wording `anthropic`. A refusal is looked up as "command reason", then by
# its reason alone. `{message}` is the store's.
_TABLE: dict[str, tuple[str, str]] = {
    "directory": (
        "Here're the files and directories up to 2 levels deep in {path}:",
        "Here're the files and directories up to 2 levels deep in {path}, excluding hidden items:",
    ),
    "file": _same("Here's the content of {path} with line numbers:"),
    "no_lines": ("(no lines in this range; lines in the file: {count:,})", ""),
    "create": _same("File created successfully at: {path}"),
    "str_replace": (
        "{content}",
        "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n{snippet}",
    ),
    "insert": _same("The file {path} has been edited."),
    "delete": _same("Successfully deleted {path}"),
    "rename": _same("Successfully renamed {old_path} to {new_path}"),
    # Refusals of every command
    "arguments": _error("{message}"),
    "escape": _error("Path {path} would escape {root} directory"),
    "invalid_path": _error("Invalid path {path}: {message}"),
    "is_directory": _error("The path {path} is not a file."),
    "not_a_directory": _error("The path {path} cannot be made: a part of it is a file"),
    "not_found": _error("The path {path} does not exist"),
    "not_text": _error("The path {path} is not a text file"),
    "other": _error("{message}"),
    "outside": _error("Path must start with {root}, got: {path}"),
    "symlink": _error("Path {path} would escape {root} directory via symlink"),
    "too_large": _error("File {path} exceeds maximum size of {count:,} bytes."),
    "too_many_lines": _same("File {path} exceeds maximum line limit of {count:,} lines."),
    # Refusals of one command
    "view not_found": _same("The path {path} does not exist. Please provide a valid path."),
    "create already_exists": _error("File {path} already exists"),
    "create is_directory": _error("File {path} already exists"),
    "str_replace not_found": (
        "Error: The path {path} does not exist.",
        "The path {path} does not exist. Please provide a valid path.",
    ),
    "str_replace absent": (
        "No replacement was performed, old_str did not appear verbatim",
        "No replacement was performed, old_str `{old_str}` did not appear verbatim in {path}.",
    ),
    "str_replace empty_old": _same("No replacement was performed, old_str must not be empty"),
    "str_replace not_unique": (
        "No replacement was performed. Multiple occurrences of old_str in lines: {lines}",
        "No replacement was performed. Multiple occurrences of old_str `{old_str}` in lines: {lines}. "
        "Please ensure it is unique",
    ),
    "insert not_found": (
        "Error: The path {path} does not exist",
        "The path {path} does not exist. Please provide a valid path.",
    ),
    "insert bad_line": (
        "Error: Invalid `insert_line` parameter: {insert_line}. "
        "It should be within the range of lines of the file: [0, {count}]",
        "Invalid `insert_line` parameter: {insert_line}. It should be within the range [0, {count}].",
    ),
    "delete root": _error("Cannot delete the {root} directory itself"),
    "rename root": _error("Cannot rename the {root} directory itself"),
    "rename already_exists": _error("The destination {path} already exists"),
    "rename into_itself": _error("Cannot rename {old_path} to {new_path}: it cannot be moved into itself"),
}


@dataclass(frozen=True, slots=True)
class Wording:
    """One of the two wordings, with the details of formatting that belong to it."""

    name: WordingName
    is_hiding_dot_names: bool
    is_repeating_lines: bool
    directory_end: str
    whole_size: str
    insert: Callable[[str, int, str], str]

    def say(self, case: str, /, **words: object) -> str:
        """The sentence for a case."""
        return self._template(case).format_map(words)

    def _template(self, case: str) -> str:
        return _TABLE[case][_COLUMNS.index(self.name)]

    def refuse(self, command: str, reason: str, /, **words: object) -> str:
        """The sentence for a refusal, specific to the command if the table has one."""
        case = next((case for case in (f"{command} {reason}", reason) if case in _TABLE), "other")
        if words.get("count") is None and "{count" in self._template(case):
            case = "other"  # the user's own store did not give the limit
        return self.say(case, **words)

    def edited(self, edit: MemoryEdit) -> str:
        """The answer to a replacement."""
        return self.say("str_replace", content=edit.content, snippet=snippet(edit))

    def places(self, lines: Sequence[int]) -> str:
        """The lines that contain a text. The SDK repeats a line for each occurrence, and so does its wording."""
        named = lines if self.is_repeating_lines else list(dict.fromkeys(lines))
        return ", ".join(map(str, named[:_SHOWN_PLACES])) + (", …" if len(named) > _SHOWN_PLACES else "")

    def row(self, entry: MemoryEntry) -> str:
        """A line in the view of a directory."""
        if entry.is_directory:
            return f"{self.size(DIRECTORY_BYTES)}\t{entry.path}{self.directory_end}"
        return f"{self.size(entry.size)}\t{entry.path}"

    def visible(self, entries: Iterable[MemoryEntry]) -> list[MemoryEntry]:
        """The entries to show, by name."""
        found = [entry for entry in entries if not (self.is_hiding_dot_names and entry.name.startswith("."))]
        return sorted(found, key=lambda entry: entry.name)

    def size(self, count: int) -> str:
        """A size such as `0B`, `6B` or `1.5K`; the wordings differ for a whole number of units."""
        power = min(max(0, count.bit_length() - 1) // 10, 3)
        size = count / 1024**power
        form = "d" if not power else self.whole_size if size == int(size) else ".1f"
        return f"{int(size) if form == 'd' else size:{form}}{'BKMG'[power]}"


_COLUMNS: tuple[WordingName, WordingName] = ("seed", "anthropic")
_WORDINGS: dict[str, Wording] = {
    "seed": Wording(
        "seed",
        is_hiding_dot_names=False,
        is_repeating_lines=False,
        directory_end="",
        whole_size=".1f",
        insert=insert_lines,
    ),
    "anthropic": Wording(
        "anthropic",
        is_hiding_dot_names=True,
        is_repeating_lines=True,
        directory_end="/",
        whole_size="d",
        insert=insert_line_and_end,
    ),
}


def wording_named(name: str) -> Wording:
    """The wording with a name."""
    if name not in _WORDINGS:
        raise ConfigurationError(f"unknown wording {name!r}; use one of {', '.join(_WORDINGS)}")
    return _WORDINGS[name]


def numbered(lines: Sequence[str], first: int = 1) -> str:
    """Lines with their numbers, right-aligned in six columns."""
    return "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(lines, first))


def snippet(edit: MemoryEdit) -> str:
    """The changed line with its neighbours."""
    lines = edit.content.split("\n")
    first = max(0, edit.line - _SNIPPET_LINES)
    return numbered(lines[first : edit.line + _SNIPPET_LINES + 1], first + 1)
