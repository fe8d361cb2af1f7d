"""Claude's memory tool: six commands on a tree of text files, answered in plain text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from commonplace.errors import CommonplaceError, ConfigurationError, InvalidInput
from commonplace.space.space import Space
from commonplace.tools.claude_arguments import Call, Command, parse_call, tool_schema
from commonplace.tools.claude_wording import DIRECTORY_BYTES, WordingName, numbered, wording_named
from commonplace.tools.memory_edits import MAX_FILE_LINES, line_count, lines_of
from commonplace.tools.memory_error import MemoryException
from commonplace.tools.memory_paths import DEFAULT_ROOT, MemoryRoot, shown
from commonplace.tools.memory_store import EditableMemoryStore, MemoryStore, SpaceMemoryStore

_LEVELS = 2


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What the model reads; `is_error` says that nothing was done."""

    text: str
    is_error: bool = False


class ClaudeMemoryTool:
    """The tool over a space or any memory store. Paths are checked here, before a store sees them.

    `root` left out is the store's own root, and `/memories` where it has none. Whatever a caller sends is answered;
    only a failure of the store itself is raised. With `max_characters`, a longer view is given in parts: its last line
    says which `view_range` shows the next, of a directory too.
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
        """Do what a model asks, and say what was done or why nothing was."""
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
        if error.reason in ("invalid_path", "not_text", "symlink"):  # of either path
            return call.new_path if self._is_usable(call.old_path) else call.old_path
        return call.new_path if error.reason in ("already_exists", "not_a_directory") else call.old_path

    def _is_usable(self, path: str) -> bool:
        """Whether the store takes a path at all; something need not be there."""
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
        """The rows of a directory; only where they do not fit into one answer does a range choose among them."""
        rows = [*self._rows(call.path)]
        if self.max_characters is None or sum(map(len, rows)) + len(rows) <= self.max_characters:
            return rows
        first, last = call.view_range or (1, -1)
        first = max(1, first)
        shown, note = self._fitting(rows[first - 1 : None if last == -1 else last], first, len(rows), "entries")
        return [*shown, *note]

    def _fitting(self, lines: Sequence[str], first: int, total: int, what: str) -> tuple[Sequence[str], list[str]]:
        """The lines that fit into one answer, and what to say of the rest."""
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
        """What lies in a directory and, below each of its directories, in that one."""
        try:
            entries = self._wording.visible(self.store.list(path))
        except MemoryException as error:
            if level > 1 and error.reason in ("not_found", "not_a_directory"):
                return  # it went while its parent was read
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
