"""Changes one entry of a settings file as text, so that comments, order and spacing of everything else stay.

JSON with comments, TOML and YAML. A change is accepted only if the new text, parsed, equals the old one with just that
entry changed; otherwise `CannotEdit` is raised and the file stays as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from commonplace.errors import ConfigurationError, install_command

Tree = dict[str, Any]
Path = Sequence[str]
ArrayPath = Sequence[str | int]
"""A path that may go through arrays, by the place of an item."""


class CannotEdit(ConfigurationError):
    """The file cannot be changed safely by a program; the message says why."""


def edit(text: str, format: str, path: Path, entry: Any | None, written: str = "") -> str:
    """The text with the entry at `path` set, or removed if it is None.

    `written` is the entry in the file's format with all its sections, for formats other than JSON.
    """
    before = parse(text, format)
    after = deepcopy(before)
    _set(after, path, entry)
    if after == before:
        return text
    changed = _EDITORS[format](text, path, entry, written)
    try:
        is_right = _without_empty(parse(changed, format)) == _without_empty(after)
    except CannotEdit:
        is_right = False
    if not is_right:
        raise CannotEdit(f"{'.'.join(path)} is written in a form that cannot be changed safely")
    return changed


def parse(text: str, format: str) -> Tree:
    """What a settings file says; an empty one says nothing."""
    try:
        tree = _PARSERS[format](text)
    except (ValueError, RecursionError) as error:
        raise CannotEdit(f"it is not valid {format.upper()}: {str(error)[:200]}") from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise CannotEdit("it does not hold an object with settings")
    return tree


def says_something(text: str, format: str) -> bool:
    """Whether a file has a setting or a comment."""
    return _without_empty(parse(text, format)) != {} or any(mark in text for mark in ("//", "/*", "#"))


def entry_at(tree: Any, path: ArrayPath) -> Any | None:
    for key in path:
        if isinstance(key, int):
            tree = tree[key] if isinstance(tree, list) and key < len(tree) else None
        else:
            tree = tree.get(key) if isinstance(tree, dict) else None
    return tree


def _set(tree: Tree, path: Path, entry: Any | None) -> None:
    for key in path[:-1]:
        below = tree.get(key)
        if below is None:
            if entry is None:
                return
            below = tree[key] = {}
        if not isinstance(below, dict):
            raise CannotEdit(f"{key} does not hold an object")
        tree = below
    if entry is None:
        tree.pop(path[-1], None)
    else:
        tree[path[-1]] = entry


def _without_empty(tree: Any) -> Any:
    """Without objects that hold nothing: whether an empty section is left over makes no difference."""
    if not isinstance(tree, dict):
        return tree
    kept = {key: _without_empty(value) for key, value in tree.items()}
    return {key: value for key, value in kept.items() if value not in ({}, None)}


# JSON with comments and trailing commas


@dataclass(frozen=True, slots=True)
class _Item:
    """A member of an object, or an item of an array: its key, and the places of it and of its value in the text."""

    key: str | None
    start: int
    value: int
    end: int


_BLANK = re.compile(r"(?:[\s\ufeff]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_PLAIN = re.compile(r"[^\s,\]}/]+")
_SAME_LINE = re.compile(r"(?:[ \t]*(?://[^\r\n]*|/\*[^\n]*?\*/))*")
_LINE_END = re.compile(r"[ \t]*\r?\n")


def _skip(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return at if found is None else found.end()


def _items(text: str, start: int) -> tuple[list[_Item], int]:
    """The items of the object or array that begins at `start`, and the place of its last bracket."""
    closing = "}" if text[start] == "{" else "]"
    items: list[_Item] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != closing:
        first, key = at, None
        if closing == "}":
            string = _STRING.match(text, at)
            if string is None:
                raise ValueError(f"a key is expected at character {at}")
            key = json.loads(string[0])
            at = _skip(text, string.end())
            if text[at : at + 1] != ":":
                raise ValueError(f"a colon is expected at character {at}")
            at = _skip(text, at + 1)
        end = _value_end(text, at)
        items.append(_Item(key, first, at, end))
        at = _skip(text, end)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != closing:
            raise ValueError(f"a comma or {closing} is expected at character {at}")
    return items, at


def _value_end(text: str, at: int) -> int:
    if text[at : at + 1] in ("{", "["):
        return _items(text, at)[1] + 1
    found = (_STRING if text[at : at + 1] == '"' else _PLAIN).match(text, at)
    if found is None:
        raise ValueError(f"a value is expected at character {at}")
    return found.end()


def _parse_json(text: str) -> Any:
    start = _skip(text, 0)
    if start == len(text):
        return {}
    end = _skip(text, _value_end(text, start))
    if end < len(text):
        raise ValueError(f"nothing more is expected at character {end}")
    found = _json_value(text, start)
    return [] if found is None else found  # null is a value; only YAML has it for an empty file


def _json_value(text: str, at: int) -> Any:
    if text[at] not in "{[":
        return json.loads(text[at : _value_end(text, at)])
    items, _ = _items(text, at)
    if text[at] == "[":
        return [_json_value(text, item.value) for item in items]
    keys = [item.key for item in items]
    if len(set(keys)) != len(keys):
        raise ValueError("a key stands twice in one object")
    return {str(item.key): _json_value(text, item.value) for item in items}


def _edit_json(text: str, path: Path, entry: Any | None, written: str) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    if _skip(text, 0) == len(text):
        return text + json.dumps(_nested(path, entry), indent=2, ensure_ascii=False).replace("\n", newline) + newline
    at = _skip(text, 0)
    for depth, key in enumerate(path):
        items, end = _items(text, at)
        item = next((item for item in items if item.key == key), None)
        is_last = depth == len(path) - 1
        if item is None:
            value = entry if is_last else _nested(path[depth + 1 :], entry)
            return _inserted(text, at, end, items, f"{json.dumps(key)}: ", value)
        if is_last and entry is None:
            return _removed(text, items, item)
        if is_last:
            shown = _shown(entry, _indent(text, item.start), text)
            return text[: item.value] + shown + text[item.end :]
        if text[item.value] != "{":
            raise CannotEdit(f"{key} does not hold an object")
        at = item.value
    raise AssertionError("a path has at least one key")


def append_item(text: str, path: Path, item: Any) -> str:
    """The JSON text with an item at the end of the array at `path`, which is made if it is missing."""
    before = parse(text, "jsonc")
    known = entry_at(before, path)
    if known is None:
        return edit(text, "jsonc", path, [item])
    if not isinstance(known, list):
        raise CannotEdit(f"{'.'.join(path)} does not hold a list")
    at = _array(text, path)
    items, end = _items(text, at)
    return _checked(_inserted(text, at, end, items, "", item), before, path, [*known, item])


def remove_items(text: str, path: ArrayPath, is_ours: Callable[[Any], bool]) -> str:
    """The JSON text without the items of the array at `path` that are ours.

    An array of an object at a path of keys goes too if it becomes empty.
    """
    before = parse(text, "jsonc")
    known = entry_at(before, path)
    if not isinstance(known, list) or not any(map(is_ours, known)):
        return text
    kept = [item for item in known if not is_ours(item)]
    keys = [key for key in path if isinstance(key, str)]
    if not kept and len(keys) == len(path):
        return edit(text, "jsonc", keys, None)
    changed = text
    while True:
        at = _array(changed, path)
        items, _ = _items(changed, at)
        ours = next((item for item in items if is_ours(_json_value(changed, item.value))), None)
        if ours is None:
            return _checked(changed, before, path, kept)
        changed = _removed(changed, items, ours)


def _array(text: str, path: ArrayPath) -> int:
    at = _skip(text, 0)
    for key in path:
        items, _ = _items(text, at)
        at = items[key].value if isinstance(key, int) else next(item.value for item in items if item.key == key)
    return at


def _checked(text: str, before: Tree, path: ArrayPath, value: list[Any]) -> str:
    wanted = deepcopy(before)
    known = entry_at(wanted, path)
    assert isinstance(known, list)
    known[:] = value
    if parse(text, "jsonc") != wanted:
        raise CannotEdit(f"{'.'.join(map(str, path))} is written in a form that cannot be changed safely")
    return text


def _nested(path: Path, entry: Any) -> Any:
    for key in reversed(path):
        entry = {key: entry}
    return entry


def _indent(text: str, at: int) -> str | None:
    """The white space before a place, if nothing else is before it on its line."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line if not line.strip(" \t\ufeff") else None


def _unit(text: str) -> str:
    found = re.search(r"^([ \t]+)\S", text, re.MULTILINE)
    return "  " if found is None else "\t" if found[1][0] == "\t" else found[1][:8]


def _shown(entry: Any, indent: str | None, text: str) -> str:
    """A value as JSON, over several lines where the file has one member a line."""
    if indent is None:
        return json.dumps(entry, ensure_ascii=False)
    newline = "\r\n" if "\r\n" in text else "\n"
    return json.dumps(entry, indent=_unit(text), ensure_ascii=False).replace("\n", newline + indent)


def _inserted(text: str, start: int, end: int, items: list[_Item], key: str, entry: Any) -> str:
    """The text with a new last item in the object or array from `start` to `end`."""
    newline = "\r\n" if "\r\n" in text else "\n"
    if items:
        last = items[-1]
        indent = _indent(text, last.start)
        at = _skip(text, last.end)
        has_comma = text[at : at + 1] == ","
        comma = at + 1 if has_comma else last.end
        tail = _SAME_LINE.match(text, comma) if indent is not None else None
        place = comma if tail is None else tail.end()
        between = " " if indent is None else newline + indent
        made = between + key + _shown(entry, indent, text) + ("," if has_comma else "")
        return text[:comma] + ("" if has_comma else ",") + text[comma:place] + made + text[place:]
    above = _leading(text, start)
    indent = above + _unit(text)
    inner = text[start + 1 : end].rstrip()
    made = newline + indent + key + _shown(entry, indent, text) + newline + above
    return text[: start + 1] + inner + made + text[end:]


def _leading(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _removed(text: str, items: list[_Item], item: _Item) -> str:
    """The text without an item and the comma that belongs to it, and without its lines if nothing else is on them."""
    place = items.index(item)
    after = _skip(text, item.end)
    has_comma = text[after : after + 1] == ","
    first, last = item.start, after + 1 if has_comma else item.end
    if not has_comma and place > 0:
        comma = text.index(",", _skip(text, items[place - 1].end))
        text, first, last = text[:comma] + text[comma + 1 :], first - 1, last - 1
    first -= len(text[:first]) - len(text[:first].rstrip(" \t"))
    end = _LINE_END.match(text, last)
    is_alone = end is not None and text[first - 1 : first] == "\n"
    return text[:first] + text[end.end() if is_alone and end is not None else last :]


# TOML


_HEADER = re.compile(r"^[ \t]*\[(?!\[)([^\]\n]*)\][ \t]*(?:#[^\n]*)?\r?$", re.MULTILINE)
_NAME = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)\s*(?:\.|$)""")


def _header_path(header: str) -> tuple[str, ...]:
    names = []
    for name in _NAME.findall(header):
        names.append(json.loads(name) if name[0] == '"' else name.strip("'"))
    return tuple(names)


def _parse_toml(text: str) -> Any:
    import tomllib

    return tomllib.loads(text)


def _edit_toml(text: str, path: Path, entry: Any | None, written: str) -> str:
    kept, at = _without_tables(text, tuple(path))
    if entry is None:
        return kept
    newline = "\r\n" if "\r\n" in text else "\n"
    made = written.strip("\n").replace("\n", newline) + newline
    before, after = kept[:at], kept[at:]
    if before and not before.endswith(newline * 2):
        before = before.rstrip("\r\n") + newline * 2
    return before + made + (newline + after.lstrip("\r\n") if after.strip() else after)


def _without_tables(text: str, path: tuple[str, ...]) -> tuple[str, int]:
    """The text without the table at `path` and those in it, and the place where it was, or the end."""
    headers = [(found.start(), _header_path(found[1])) for found in _HEADER.finditer(text)]
    at = len(text)
    for place in reversed(range(len(headers))):
        start, name = headers[place]
        if name[: len(path)] == path:
            end = headers[place + 1][0] if place + 1 < len(headers) else len(text)
            text = text[:start] + _comments_at_end(text[start:end]) + text[end:]
            at = start
    return text, at


def _comments_at_end(block: str) -> str:
    """The comments right before the next table, which belong to it."""
    lines = block.splitlines(keepends=True)
    while lines and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
        lines.pop()
    return "".join(block.splitlines(keepends=True)[len(lines) :]).lstrip("\r\n")


# YAML, in the block style that programs write


def _parse_yaml(text: str) -> Any:
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError as error:
        raise ConfigurationError(f"YAML files need the package pyyaml; run: {install_command('yaml')}") from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        # The text of the error quotes the file, which may have keys in it.
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f" at line {mark.line + 1}, column {mark.column + 1}"
        raise ValueError(f"{getattr(error, 'problem', None) or 'it cannot be read'}{place}") from error


def _edit_yaml(text: str, path: Path, entry: Any | None, written: str) -> str:
    section, name = path
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    start = next((n for n, line in enumerate(lines) if re.match(rf"{re.escape(section)}:\s*(#.*)?$", line)), None)
    if start is None:
        empty = re.compile(rf"{re.escape(section)}:\s*(\{{\s*\}}|null|~)\s*$")
        return "".join(line for line in lines if not empty.match(line)) + (written if entry is not None else "")
    stop = next((n for n in range(start + 1, len(lines)) if re.match(r"[^\s#]", lines[n])), len(lines))
    while stop > start + 1 and not lines[stop - 1].strip():
        stop -= 1
    indent = next(iter(_yaml_indents(lines[start + 1 : stop])), 2)
    first = next((n for n in range(start + 1, stop) if re.match(rf" {{{indent}}}[\"']?{name}[\"']?:", lines[n])), stop)
    last = next((n for n in range(first + 1, stop) if re.match(rf" {{0,{indent}}}[^\s#]", lines[n])), stop)
    while last > first + 1 and re.match(rf" {{0,{indent}}}#|\s*$", lines[last - 1]):
        last -= 1  # comments after the entry, unless they are indented as it is
    made = [] if entry is None else written.splitlines(keepends=True)[1:]
    made = [" " * (indent - 2) + line if indent >= 2 else line[2 - indent :] for line in made]
    return "".join([*lines[:first], *made, *lines[last if first < stop else stop :]])


def _yaml_indents(lines: Sequence[str]) -> Iterator[int]:
    for line in lines:
        if line.strip() and not line.lstrip().startswith("#"):
            yield len(line) - len(line.lstrip(" "))


_PARSERS: dict[str, Callable[[str], Any]] = {
    "json": _parse_json,
    "jsonc": _parse_json,
    "toml": _parse_toml,
    "yaml": _parse_yaml,
}
_EDITORS: dict[str, Callable[[str, Path, Any | None, str], str]] = {
    "json": _edit_json,
    "jsonc": _edit_json,
    "toml": _edit_toml,
    "yaml": _edit_yaml,
}
