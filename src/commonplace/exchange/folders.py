"""Reads folders of texts: Claude Code's memory, basic-memory, Obsidian, and any other folder.

Texts become files, byte for byte. Facts of Claude Code's memory become records, because their frontmatter says what
they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from commonplace.checks import JSON
from commonplace.exchange.sources import (
    Document,
    Format,
    Item,
    Leaf,
    Memory,
    Problem,
    Tree,
    kept_id,
    label_of,
    tag_of,
    time_of,
)

TEXT = "text"
MAX_TEXT_BYTES = 10_000_000
_ATTACHMENTS = re.compile(
    r".*\.(png|jpe?g|gif|webp|svg|bmp|ico|heic|pdf|mp[34]|m4a|wav|ogg|mov|webm|zip|gz|tar|7z|docx?|xlsx?|pptx?|odt|ods"
    r"|db|sqlite3?|canvas|base|woff2?|ttf|pyc|so|dll|exe|bin|dat|parquet|pkl|pickle|npy|onnx)",
    re.IGNORECASE,
)
_FIELD = re.compile(r"([A-Za-z_][\w .-]*?)\s*:(?:\s+(.*)|)")
_PLACES = re.compile(r"[%\\]")


def frontmatter(text: str) -> tuple[dict[str, Any], str] | None:
    """The fields of a YAML frontmatter, and the text after it; None if there is none.

    This reads what note programs write: plain and quoted texts, numbers, lists, and fields one level below another.
    """
    lines = text.removeprefix("\ufeff").split("\n")
    if lines[0].rstrip("\r") != "---":
        return None
    end = next((at for at, line in enumerate(lines[1:200], 1) if line.rstrip("\r") in ("---", "...")), None)
    if end is None:
        return None
    fields: dict[str, Any] = {}
    name = ""
    for raw in lines[1:end]:
        line = raw.rstrip("\r ")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        inner = line.strip()
        if line[0] in " \t-" and name:
            if inner.startswith("- ") or inner == "-":
                if not isinstance(fields[name], list):
                    fields[name] = []
                fields[name].append(_scalar(inner[1:].strip()))
                continue
            match = _FIELD.fullmatch(inner)
            if (match is not None and fields[name] in (None, "")) or isinstance(fields[name], dict):
                if not isinstance(fields[name], dict):
                    fields[name] = {}
                if match is not None:
                    fields[name][match[1]] = _scalar(match[2] or "")
            elif isinstance(fields[name], str):  # a folded text
                fields[name] = f"{fields[name]} {inner}".strip()
            continue
        match = _FIELD.fullmatch(line)
        if match is None:
            return None
        name = match[1]
        fields[name] = _scalar(match[2] or "")
    return fields, "\n".join(lines[end + 1 :])


def _scalar(text: str) -> Any:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        inner = text[1:-1]
        return inner.replace('\\"', '"').replace("\\\\", "\\") if text[0] == '"' else inner.replace("''", "'")
    if text.startswith("[") and text.endswith("]"):
        return [_scalar(part.strip()) for part in text[1:-1].split(",") if part.strip()]
    if text in ("", "~", "null"):
        return None
    if text in ("true", "false"):
        return text == "true"
    if text in (">", "|", ">-", "|-"):
        return ""
    return text


def _is_text(leaf: Leaf, tree: Tree) -> bool:
    return not (_ATTACHMENTS.fullmatch(leaf.name) or leaf.is_sqlite or b"\x00" in leaf.head)


def _is_plain(leaf: Leaf, tree: Tree) -> bool:
    """Whether a file of no program is a text for people; JSON that nobody recognises is a damaged export."""
    return _is_text(leaf, tree) and not leaf.name.lower().endswith((".json", ".jsonl", ".ndjson", ".af"))


def _decoded(leaf: Leaf) -> str:
    return leaf.bytes(MAX_TEXT_BYTES).decode()


def _read_text(leaf: Leaf, tree: Tree) -> Iterator[Item]:
    try:
        text = _decoded(leaf)
    except UnicodeDecodeError:
        yield Problem(leaf.path, "it is not UTF-8 text")
        return
    found = frontmatter(text) if leaf.name.lower().endswith((".md", ".markdown")) else None
    fields = {} if found is None else found[0]
    created = _time(fields, "created", "created_at", "date") or leaf.modified
    updated = _time(fields, "modified", "updated", "updated_at") or leaf.modified
    folder = f"/{tree.name}" if tree.is_folder else ""
    path = _PLACES.sub("-", f"{folder}/{leaf.path}")
    origin = tuple(part for part in (tree.name, *leaf.folder.split("/")) if part) if tree.is_folder else ("file",)
    yield Document(path, text, min(created, updated) if created and updated else created, updated, origin)


def _time(fields: Mapping[str, Any], *names: str) -> int | None:
    return next((at for name in names if (at := time_of(fields.get(name))) is not None), None)


# Obsidian and basic-memory


def _is_obsidian(tree: Tree) -> bool:
    return ".obsidian" in tree.marks


def _is_basic_memory(tree: Tree) -> bool:
    """Whether a note has the frontmatter that basic-memory writes."""
    notes = [leaf for leaf in tree.leaves if leaf.name.lower().endswith(".md")][:50]
    return tree.is_folder and any(_has_permalink(leaf) for leaf in notes)


def _has_permalink(leaf: Leaf) -> bool:
    found = frontmatter(leaf.head.decode("utf-8", "replace"))
    return found is not None and {"title", "type", "permalink"} <= found[0].keys()


# Claude Code


def _is_claude_memory(leaf: Leaf, tree: Tree) -> bool:
    if not leaf.name.endswith(".md") or not tree.is_folder:
        return False
    if leaf.name == "MEMORY.md":
        return any(
            other.folder == leaf.folder and other is not leaf and _is_fact(other) for other in tree.leaves
        ) or leaf.folder.endswith("memory")
    return _is_fact(leaf) and tree.at(f"{leaf.folder}/MEMORY.md".lstrip("/")) is not None


def _is_fact(leaf: Leaf) -> bool:
    if not leaf.name.endswith(".md"):
        return False
    found = frontmatter(leaf.head.decode("utf-8", "replace"))
    return found is not None and {"name", "description"} <= found[0].keys()


def _read_claude_memory(leaf: Leaf, tree: Tree) -> Iterator[Item]:
    parts = [part for part in leaf.folder.split("/") if part and part not in ("memory", "projects")]
    slug = parts[-1] if parts else tree.name
    try:
        text = _decoded(leaf)
    except UnicodeDecodeError:
        yield Problem(leaf.path, "it is not UTF-8 text")
        return
    found = frontmatter(text)
    if leaf.name == "MEMORY.md" or found is None:
        path = _PLACES.sub("-", f"/claude-code/{slug}/{leaf.name}")
        yield Document(path, text, leaf.modified, leaf.modified, ("claude-code", slug))
        return
    fields, body = found
    stem = leaf.name.removesuffix(".md")
    metadata = fields.get("metadata")
    inner = dict(metadata) if isinstance(metadata, Mapping) else {}
    kind = inner.pop("type", None) or fields.get("type")
    content: dict[str, JSON] = {
        "name": fields.get("name"),
        "description": fields.get("description"),
        "text": body.strip("\n"),
    }
    content |= {
        name: value for name, value in fields.items() if name not in ("name", "description", "metadata", "type")
    }
    if inner:
        content["metadata"] = inner
    yield Memory(
        kept_id(f"claude-code:{slug}/{stem}", "claude-code-memory"),
        label_of(kind, "memory"),
        {name: value for name, value in content.items() if value is not None},
        f"claude-code:{label_of(f'{slug}/{stem}', 'memory')}",
        (tag_of("project", slug),),
        created_at=leaf.modified,
        updated_at=leaf.modified,
        origin=("claude-code", slug),
    )


FORMATS = (
    Format("claude-code-memory", "Claude Code memory", _is_claude_memory, _read_claude_memory),
    Format("obsidian", "Obsidian vault", _is_text, _read_text, owns=_is_obsidian),
    Format("basic-memory", "basic-memory notes", _is_text, _read_text, owns=_is_basic_memory),
    Format(TEXT, "texts", _is_plain, _read_text),
)
