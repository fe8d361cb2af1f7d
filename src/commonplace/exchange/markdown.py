"""A namespace as a folder of Markdown that people and other programs read, and the way back.

    README.md              an index            records/ID.md     a record with frontmatter
    .commonplace.json      the manifest        threads/ID.md     a thread as a chat
    files/…                files as they are   working/….md      working memories

`MarkdownFolder.write` makes the folder, and `update` follows the feed. They change only files that the manifest names
and that nobody else has changed. The importer reads the folder back; history and revisions are not part of it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from commonplace.checks import JSON, Namespace, moment, unfinished_file
from commonplace.entry import SEPARATOR, Change, Entry
from commonplace.errors import AlreadyExists, InvalidInput, NotADirectory
from commonplace.exchange.sources import (
    MANIFEST,
    Chat,
    Conversation,
    Document,
    Format,
    Item,
    Leaf,
    Memory,
    Problem,
    Tree,
    Working,
    made_id,
    time_of,
)
from commonplace.filters import Filter
from commonplace.space.messages import messages_filter, thread_of_key
from commonplace.space.names import FILE, MESSAGE, RECORD, THREAD, WORKING, path_of
from commonplace.store import Progress, Reader, Scan, Store

NAME = "commonplace-markdown"
VERSION = 1
INDEX = "README.md"
MOST_LISTED = 2_000
"""How many entries of each kind the index names."""

_MAX_TEXT_BYTES = 120_000_000
_MARK = "<!-- message "
_MARKED = re.compile(r"<!-- message (\{.*\}) -->")
_FENCE = "```json\n"
_PAGE = 200
_KINDS = (FILE, RECORD, THREAD, WORKING)


# One entry as a text


def _time(at: int) -> str:
    return moment(at).isoformat().replace("+00:00", "Z")


def _front(fields: Mapping[str, JSON]) -> str:
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items() if value is not None]
    return "\n".join(["---", *lines, "---", "", ""])


def _body(content: JSON) -> str:
    """A content: a text as it is, anything else as JSON in a fence."""
    if isinstance(content, str):
        return content + "\n"
    return f"{_FENCE}{json.dumps(content, ensure_ascii=False, indent=2)}\n```\n"


def record_text(entry: Entry) -> str:
    attributes = entry.attributes
    fields: dict[str, JSON] = {"commonplace": RECORD, "id": entry.key}
    fields |= {name: attributes.get(name) for name in ("type", "source", "tags", "confidence", "importance")}
    fields |= {"created_at": _time(entry.created_at), "updated_at": _time(entry.updated_at)}
    fields["expires_at"] = None if entry.expires_at is None else _time(entry.expires_at)
    fields["by"] = entry.actor
    fields["content"] = "text" if isinstance(entry.value, str) else "json"
    return _front(fields) + _body(entry.value)


def thread_text(thread: Entry, messages: Iterable[Entry]) -> str:
    attributes = thread.attributes
    title = cast("str | None", attributes["title"])
    fields: dict[str, JSON] = {"commonplace": THREAD, "id": thread.key, "title": title}
    fields |= {"resource": attributes["resourceId"], "metadata": attributes["metadata"] or None}
    fields |= {"created_at": _time(thread.created_at), "updated_at": _time(thread.updated_at)}
    heading = " ".join((title or "Untitled").split())
    return "".join((_front(fields), f"# {heading}\n\n", *map(_message_text, messages)))


def _message_text(entry: Entry) -> str:
    value = cast("Mapping[str, JSON]", entry.value)
    content = value.get("content")
    mark: dict[str, JSON] = {
        "id": entry.identity,
        "at": _time(entry.created_at),
        "content": "text" if isinstance(content, str) else "json" if "content" in value else "none",
        "fields": {name: field for name, field in value.items() if name != "content"},
    }
    # `-->` would end the comment.
    written = json.dumps(mark, ensure_ascii=False).replace(">", "\\u003e")
    role = cast("str", entry.attributes["role"])
    shown = _body(content) if "content" in value else "\n"
    lines = "\n".join(f"\\{line}" if line.lstrip("\\").startswith(_MARK) else line for line in shown.split("\n"))
    return f"{_MARK}{written} -->\n**{role}** · {moment(entry.created_at):%Y-%m-%d %H:%M:%S} UTC\n\n{lines}\n"


def working_text(entry: Entry) -> str:
    scope, _, owner = entry.key.partition(SEPARATOR)
    fields: dict[str, JSON] = {"commonplace": WORKING, "scope": scope, "id": owner}
    fields["resource"] = entry.attributes.get("resourceId")
    fields |= {"created_at": _time(entry.created_at), "updated_at": _time(entry.updated_at)}
    fields["content"] = "text" if isinstance(entry.value, str) else "json"
    return _front(fields) + _body(entry.value)


def _file_name(id: str) -> str:
    """A file name for an id; the id itself is in the frontmatter."""
    name = quote(id, safe=" @+,=()[]~")
    is_good = len(name) <= 150 and name.strip(". ") == name and name.upper() not in ("CON", "NUL", "AUX", "PRN")
    return f"{name if is_good else made_id(id)}.md"


# The folder


@dataclass(frozen=True, slots=True)
class Written:
    """What was written: how many files, how many were removed, and those that somebody else has changed."""

    files: int = 0
    removed: int = 0
    commit: int = 0
    foreign: tuple[str, ...] = ()
    """Files that were left alone, because they are not in the manifest or were changed since."""


@dataclass(slots=True)
class _Noted:
    sha256: str
    created_at: int | None = None
    updated_at: int | None = None


@dataclass(slots=True)
class _Run:
    files: int = 0
    removed: int = 0
    foreign: list[str] = field(default_factory=list)


class MarkdownFolder:
    """A folder with the Markdown of one namespace."""

    def __init__(self, folder: Path, namespace: Namespace, *, force: bool = False) -> None:
        self._root = Path(os.path.realpath(folder))
        self._namespace = namespace
        self._force = force
        self._noted: dict[str, _Noted] = {}
        self.commit = 0
        self._open()

    def _open(self) -> None:
        if self._root.exists() and not self._root.is_dir():
            raise NotADirectory(f"{self._root} is a file; name a folder")
        manifest = self._root / MANIFEST
        if manifest.is_file():
            self._read_manifest(manifest)
        elif self._root.is_dir() and any(self._root.iterdir()) and not self._force:
            raise AlreadyExists(
                f"{self._root} is not empty and was not made by this command; choose another folder, or add to it with "
                "--force, which leaves the files that are there"
            )

    def _read_manifest(self, manifest: Path) -> None:
        try:
            found = json.loads(manifest.read_bytes())
            if found["format"] != NAME or found["version"] != VERSION:
                raise ValueError("another format")
            name = found["namespace"]
            self._noted = {
                path: _Noted(one["sha256"], one.get("created_at"), one.get("updated_at"))
                for path, one in found["files"].items()
            }
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InvalidInput(f"{manifest} cannot be read; choose another folder, or remove it") from error
        if name != "/".join(self._namespace):
            raise AlreadyExists(f"{self._root} has the namespace {name}; choose another folder")

    def write(self, store: Store, progress: Progress | None = None) -> Written:
        """Write everything as it is now, and remove the files of what is gone."""
        run = _Run()

        def work(reader: Reader) -> int:
            wanted: set[str] = set()
            entries = reader.stats().entries
            total = sum(entries.get(kind, 0) for kind in _KINDS)
            for count, (path, text, entry) in enumerate(_texts(reader), 1):
                wanted.add(path)
                self._put(run, path, text, entry)
                if progress is not None and count % 20 == 0:
                    progress(count, total, "files")
            self._put(run, INDEX, _index(reader, self._namespace), None)
            for path in sorted(self._noted.keys() - wanted - {INDEX}):
                self._remove(run, path)
            return reader.stats().commit

        self._root.mkdir(parents=True, exist_ok=True)
        self.commit = store.read(self._namespace, work)
        self._save()
        return Written(run.files, run.removed, self.commit, tuple(run.foreign))

    def update(self, store: Store, changes: Iterable[Change], *, upto: int) -> Written:
        """Write what the store's feed says has changed, up to a commit."""
        touched = {_place(change) for change in changes} - {None}
        run = _Run()

        def work(reader: Reader) -> None:
            for kind, key in sorted(cast("set[tuple[str, str]]", touched)):
                entry = reader.get(kind, key)
                path = _path(kind, key)
                if entry is None:
                    self._remove(run, path)
                else:
                    self._put(run, path, _text_of(reader, entry), entry)
            self._put(run, INDEX, _index(reader, self._namespace), None)

        store.read(self._namespace, work)
        self.commit = upto
        self._save()
        return Written(run.files, run.removed, self.commit, tuple(run.foreign))

    def _put(self, run: _Run, path: str, text: str, entry: Entry | None) -> None:
        raw = text.encode()
        digest = sha256(raw).hexdigest()
        noted = self._noted.get(path)
        target = self._target(path)
        present = self._present(target)
        is_others = present is not None and present not in (digest, noted.sha256 if noted else None)
        if target is None or (is_others and (noted is None or not self._force)):
            run.foreign.append(path)
            return
        if present != digest:
            target.parent.mkdir(parents=True, exist_ok=True)
            _replace(target, raw, None if entry is None else entry.updated_at)
            run.files += 1
        self._noted[path] = _Noted(digest, entry.created_at if entry else None, entry.updated_at if entry else None)

    def _remove(self, run: _Run, path: str) -> None:
        noted = self._noted.get(path)
        if noted is None:
            return
        target = self._target(path)
        if target is not None and self._present(target) == noted.sha256:
            target.unlink()
            run.removed += 1
            folder = target.parent
            while folder != self._root and not any(folder.iterdir()):
                folder.rmdir()
                folder = folder.parent
        elif target is not None and target.exists():
            run.foreign.append(path)
        del self._noted[path]

    def _target(self, path: str) -> Path | None:
        """Where a file belongs; None if a link or a file is in the way, or if a manifest names a place outside."""
        target = self._root / path
        if not target.is_relative_to(self._root):
            return None
        if Path(os.path.realpath(target.parent)) != target.parent or target.is_symlink():
            return None
        return None if target.is_dir() or any(above.is_file() for above in target.parents) else target

    def _present(self, target: Path | None) -> str | None:
        if target is None or not target.is_file():
            return None
        return sha256(target.read_bytes()).hexdigest()

    def _save(self) -> None:
        files = {
            path: {name: value for name in ("sha256", "created_at", "updated_at") if (value := getattr(noted, name))}
            for path, noted in sorted(self._noted.items())
        }
        fields = {"format": NAME, "version": VERSION, "namespace": "/".join(self._namespace)}
        whole = {**fields, "commit": self.commit, "files": files}
        _replace(self._root / MANIFEST, json.dumps(whole, ensure_ascii=False, indent=1).encode() + b"\n", None)


def _replace(target: Path, raw: bytes, updated_at: int | None) -> None:
    unfinished = unfinished_file(target)
    try:
        unfinished.write_bytes(raw)
        if updated_at is not None:
            os.utime(unfinished, ns=(updated_at * 1_000, updated_at * 1_000))
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def _place(change: Change) -> tuple[str, str] | None:
    """The entry whose file a change touches; None for a directory."""
    if change.kind == MESSAGE:
        return THREAD, thread_of_key(change.key)
    return (change.kind, change.key) if change.kind in _KINDS else None


def _path(kind: str, key: str) -> str:
    if kind == FILE:
        return f"files{path_of(key)}"
    if kind == WORKING:
        scope, _, owner = key.partition(SEPARATOR)
        return f"working/{scope} {_file_name(owner)}"
    return f"{kind}s/{_file_name(key)}"


def _pages(reader: Reader, filter: Filter) -> Iterator[Entry]:
    cursor: str | None = None
    while True:
        page = reader.scan(Scan(filter, limit=_PAGE, after=cursor))
        yield from page.entries
        cursor = page.cursor
        if cursor is None:
            return


def _texts(reader: Reader) -> Iterator[tuple[str, str, Entry]]:
    for kind in _KINDS:
        for entry in _pages(reader, Filter(kinds=(kind,))):
            yield _path(kind, entry.key), _text_of(reader, entry), entry


def _text_of(reader: Reader, entry: Entry) -> str:
    if entry.kind == FILE:
        return cast("str", entry.value)
    if entry.kind == RECORD:
        return record_text(entry)
    if entry.kind == WORKING:
        return working_text(entry)
    return thread_text(entry, _pages(reader, messages_filter(entry.key)))


def _index(reader: Reader, namespace: Namespace) -> str:
    """What there is, with links."""
    lines = [f"# {'/'.join(namespace)}", ""]
    for kind, title in ((THREAD, "Threads"), (RECORD, "Records"), (FILE, "Files"), (WORKING, "Working memory")):
        total = reader.stats().entries.get(kind, 0)
        if not total:
            continue
        lines += [f"## {title}", ""]
        order = "updated" if kind == THREAD else "key"
        scan = Scan(Filter(kinds=(kind,)), order=order, descending=kind == THREAD, limit=MOST_LISTED)  # type: ignore[arg-type]
        lines += [f"- [{_label(entry)}](<{_path(kind, entry.key)}>)" for entry in reader.scan(scan).entries]
        if total > MOST_LISTED:
            lines.append(f"- and {total - MOST_LISTED:,} more")
        lines.append("")
    return "\n".join(lines)


def _label(entry: Entry) -> str:
    attributes = cast("Mapping[str, Any]", entry.attributes)
    if entry.kind == THREAD:
        text = attributes["title"] or entry.key
    elif entry.kind == RECORD:
        text = f"{attributes['type']}: {entry.text}"
    else:
        text = path_of(entry.key)
    line = re.sub(r"[\[\]<>`\\]", " ", " ".join(text.split()))
    return line if len(line) <= 80 else line[:79] + "…"


# The way back


def _owns(tree: Tree) -> bool:
    leaf = tree.at(MANIFEST)
    return leaf is not None and b'"' + NAME.encode() + b'"' in leaf.head


def _matches(leaf: Leaf, tree: Tree) -> bool:
    return leaf.path == INDEX or leaf.path == MANIFEST or leaf.path.endswith(".md") or leaf.path.startswith("files/")


def _read(leaf: Leaf, tree: Tree) -> Iterator[Item]:
    """A file of the folder. One that was changed since is as new as the file; a new note is a file."""
    if leaf.path in (INDEX, MANIFEST):
        return
    try:
        raw = leaf.bytes(_MAX_TEXT_BYTES)
        text = raw.decode()
    except UnicodeDecodeError:
        yield Problem(leaf.path, "it is not UTF-8 text")
        return
    noted = _noted(tree).get(leaf.path) or {}
    is_changed = noted.get("sha256") != sha256(raw).hexdigest()
    found = None if leaf.path.startswith("files/") else _fields(text)
    if found is None:
        path = f"/{leaf.path.removeprefix('files/')}"
        times = (time_of(noted.get("created_at")), time_of(noted.get("updated_at")))
        created, updated = (times[0] or leaf.modified, leaf.modified) if is_changed else times
        yield Document(path, text, created, updated, tuple(leaf.folder.split("/")[1:]) or ("files",))
        return
    fields, body = found
    updated = leaf.modified if is_changed else None
    try:
        yield _item(fields, body, updated)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        yield Problem(leaf.path, f"its frontmatter or its content cannot be read ({error})")


def _noted(tree: Tree) -> Mapping[str, Any]:
    leaf = tree.at(MANIFEST)
    if leaf is None:
        return {}
    cached = leaf.__dict__.get("noted")
    if cached is None:
        found = leaf.document()
        files = found.get("files") if isinstance(found, dict) else None
        cached = files if isinstance(files, dict) else {}
        cached = {path: one for path, one in cached.items() if isinstance(one, dict)}
        leaf.__dict__["noted"] = cached
    return cast("Mapping[str, Any]", cached)


def _fields(text: str) -> tuple[dict[str, Any], str] | None:
    """The frontmatter of one of our files, whose values are JSON, and the rest; None if it is another text."""
    head, end, body = text.partition("\n---\n")
    lines = head.split("\n")
    if not end or lines[0] != "---" or len(lines) < 2 or not lines[1].startswith("commonplace: "):
        return None
    fields = {}
    for line in lines[1:]:
        name, _, written = line.partition(": ")
        try:
            fields[name] = json.loads(written)
        except (ValueError, RecursionError):
            fields[name] = written.strip()  # somebody has written it by hand
    return fields, body.removeprefix("\n")


def _item(fields: Mapping[str, Any], body: str, updated: int | None) -> Item:
    kind = fields["commonplace"]
    created = time_of(fields.get("created_at"))
    updated = updated or time_of(fields.get("updated_at"))
    if kind == RECORD:
        return Memory(
            str(fields["id"]),
            str(fields["type"]),
            _content(fields.get("content", "text"), body),
            str(fields["source"]),
            tuple(map(str, fields.get("tags") or ())),
            float(fields.get("confidence", 1)),
            created,
            updated,
            time_of(fields.get("expires_at")),
            importance=None if fields.get("importance") is None else float(fields["importance"]),
        )
    if kind == WORKING:
        content = _content(fields.get("content", "text"), body)
        return Working(str(fields["scope"]), str(fields["id"]), str(fields["resource"]), content, created, updated)
    if kind != THREAD:
        raise ValueError(f"unknown kind {kind!r:.50}")
    messages, problems = _messages(body)
    metadata = fields.get("metadata") or {}
    resource = fields.get("resource")
    chat = Chat(str(fields["id"]), messages, fields.get("title"), created, updated, dict(metadata), resource)
    return Conversation(f"thread {fields['id']}", (chat,), ("threads",), tuple(problems))


def _content(form: object, body: str) -> JSON:
    if form != "json":
        return body.removesuffix("\n")
    return cast("JSON", json.loads(body.strip().removeprefix("```json").removesuffix("```")))


def _messages(body: str) -> tuple[list[dict[str, Any]], list[Problem]]:
    messages: list[dict[str, Any]] = []
    problems: list[Problem] = []
    mark: dict[str, Any] | None = None
    held: list[str] = []

    def close() -> None:
        if mark is None:
            return
        # A line with the role, an empty one, the content, and an empty one.
        text = "\n".join(held[2:])
        try:
            message = {**mark["fields"], "id": mark["id"], "createdAt": time_of(mark["at"])}
            if mark["content"] != "none":
                message["content"] = _content(mark["content"], text)
            messages.append(message)
        except (KeyError, TypeError, ValueError, RecursionError):
            problems.append(Problem(f"message {len(messages) + len(problems) + 1}", "it cannot be read"))

    for line in body.removesuffix("\n").split("\n"):
        found = _MARKED.fullmatch(line)
        if found is None:
            held.append(line[1:] if line.startswith("\\") and line.lstrip("\\").startswith(_MARK) else line)
            continue
        close()
        held = []
        try:
            mark = json.loads(found[1])
        except (ValueError, RecursionError):
            mark = {}
    close()
    return messages, problems


FORMATS = (Format(NAME, "folder of commonplace's Markdown", _matches, _read, owns=_owns),)
