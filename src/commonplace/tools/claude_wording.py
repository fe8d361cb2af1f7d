"""What Claude's memory tool says, in two wordings: the seed's own, and that of Anthropic's Python SDK, verbatim."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from commonplace.errors import ConfigurationError
from commonplace.tools.memory_edits import MemoryEdit, insert_line_and_end, insert_lines
from commonplace.tools.memory_store import MemoryEntry

WordingName = Literal["seed", "anthropic"]

DIRECTORY_BYTES = 4096
_SNIPPET_LINES = 2
_SHOWN_PLACES = 100

# What is said: in the wording `seed`, in the wording `anthropic`. A refusal is looked up as "command reason", then as
# its reason alone; `{message}` is the store's own.
_TABLE: dict[str, tuple[str, str]] = {
    "directory": (
        "Here're the files and directories up to 2 levels deep in {path}:",
        "Here're the files and directories up to 2 levels deep in {path}, excluding hidden items:",
    ),
    "file": ("Here's the content of {path} with line numbers:", "Here's the content of {path} with line numbers:"),
    "no_lines": ("(no lines in this range; lines in the file: {count:,})", ""),
    "create": ("File created successfully at: {path}", "File created successfully at: {path}"),
    "str_replace": (
        "{content}",
        "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n{snippet}",
    ),
    "insert": ("The file {path} has been edited.", "The file {path} has been edited."),
    "delete": ("Successfully deleted {path}", "Successfully deleted {path}"),
    "rename": ("Successfully renamed {old_path} to {new_path}", "Successfully renamed {old_path} to {new_path}"),
    # Refusals of every command
    "arguments": ("Error: {message}", "{message}"),
    "escape": ("Error: Path {path} would escape {root} directory", "Path {path} would escape {root} directory"),
    "invalid_path": ("Error: Invalid path {path}: {message}", "Invalid path {path}: {message}"),
    "is_directory": ("Error: The path {path} is not a file.", "The path {path} is not a file."),
    "not_a_directory": (
        "Error: The path {path} cannot be made: a part of it is a file",
        "The path {path} cannot be made: a part of it is a file",
    ),
    "not_found": ("Error: The path {path} does not exist", "The path {path} does not exist"),
    "not_text": ("Error: The path {path} is no text file", "The path {path} is no text file"),
    "other": ("Error: {message}", "{message}"),
    "outside": ("Error: Path must start with {root}, got: {path}", "Path must start with {root}, got: {path}"),
    "symlink": (
        "Error: Path {path} would escape {root} directory via symlink",
        "Path {path} would escape {root} directory via symlink",
    ),
    "too_large": (
        "Error: File {path} exceeds maximum size of {count:,} bytes.",
        "File {path} exceeds maximum size of {count:,} bytes.",
    ),
    "too_many_lines": (
        "File {path} exceeds maximum line limit of {count:,} lines.",
        "File {path} exceeds maximum line limit of {count:,} lines.",
    ),
    # Refusals of one command
    "view not_found": (
        "The path {path} does not exist. Please provide a valid path.",
        "The path {path} does not exist. Please provide a valid path.",
    ),
    "create already_exists": ("Error: File {path} already exists", "File {path} already exists"),
    "create is_directory": ("Error: File {path} already exists", "File {path} already exists"),
    "str_replace not_found": (
        "Error: The path {path} does not exist.",
        "The path {path} does not exist. Please provide a valid path.",
    ),
    "str_replace absent": (
        "No replacement was performed, old_str did not appear verbatim",
        "No replacement was performed, old_str `{old_str}` did not appear verbatim in {path}.",
    ),
    "str_replace empty_old": (
        "No replacement was performed, old_str must not be empty",
        "No replacement was performed, old_str must not be empty",
    ),
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
    "delete root": ("Error: Cannot delete the {root} directory itself", "Cannot delete the {root} directory itself"),
    "rename root": ("Error: Cannot rename the {root} directory itself", "Cannot rename the {root} directory itself"),
    "rename already_exists": ("Error: The destination {path} already exists", "The destination {path} already exists"),
    "rename into_itself": (
        "Error: Cannot rename {old_path} to {new_path}: it cannot be moved into itself",
        "Cannot rename {old_path} to {new_path}: it cannot be moved into itself",
    ),
}


@dataclass(frozen=True, slots=True)
class Wording:
    """One of the two ways to answer, with what goes with it."""

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
        """The sentence for a refusal, in the command's own words where it has them."""
        case = next((case for case in (f"{command} {reason}", reason) if case in _TABLE), "other")
        if words.get("count") is None and "{count" in self._template(case):
            case = "other"  # a store of the user's own that does not tell the limit
        return self.say(case, **words)

    def edited(self, edit: MemoryEdit) -> str:
        """What is said of a replacement."""
        return self.say("str_replace", content=edit.content, snippet=snippet(edit))

    def places(self, lines: Sequence[int]) -> str:
        """The lines in which a text stands; the SDK names a line once for each time, and so does its wording."""
        named = lines if self.is_repeating_lines else list(dict.fromkeys(lines))
        return ", ".join(map(str, named[:_SHOWN_PLACES])) + (", …" if len(named) > _SHOWN_PLACES else "")

    def row(self, entry: MemoryEntry) -> str:
        """A line of a directory's view."""
        if entry.is_directory:
            return f"{self.size(DIRECTORY_BYTES)}\t{entry.path}{self.directory_end}"
        return f"{self.size(entry.size)}\t{entry.path}"

    def visible(self, entries: Iterable[MemoryEntry]) -> list[MemoryEntry]:
        """The entries to show, by name."""
        found = [entry for entry in entries if not (self.is_hiding_dot_names and entry.name.startswith("."))]
        return sorted(found, key=lambda entry: entry.name)

    def size(self, count: int) -> str:
        """`0B`, `6B`, `1.5K`; a whole number of units as this wording writes it."""
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
    """Lines with their numbers, right-aligned to six."""
    return "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(lines, first))


def snippet(edit: MemoryEdit) -> str:
    """The changed line with those around it."""
    lines = edit.content.split("\n")
    first = max(0, edit.line - _SNIPPET_LINES)
    return numbered(lines[first : edit.line + _SNIPPET_LINES + 1], first + 1)
