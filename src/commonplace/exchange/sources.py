"""What an import is given (a file, a folder, a zip archive), and what the readers of its formats make of it.

Files are read one at a time, and large JSON one element at a time. No link is followed, and nothing outside of the
folder or archive is opened. A reader yields items; what it cannot read it yields as a `Problem`, and goes on.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import struct
import tempfile
import uuid
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from commonplace.checks import JSON, MAX_INTEGER_BITS, invisible_in
from commonplace.errors import CommonplaceError, InvalidInput, NotFound, TooLarge

if TYPE_CHECKING:
    from commonplace.backends.sqlite.exchange import ForeignTables

# What a reader makes of a source


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that could not be read: where, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something that is not imported on purpose, such as a system message or a picture."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Chat:
    """A thread with its messages, in the order of the source. Each is an object with `role` and `content`.

    A message may have an `id` and a `createdAt` in microseconds. One without an id gets one from its place.
    """

    id: str
    messages: Sequence[Mapping[str, Any]]
    title: str | None = None
    created_at: int | None = None
    updated_at: int | None = None
    metadata: Mapping[str, JSON] = field(default_factory=dict)
    resource: str | None = None
    """Who it belongs to; the default is the last label of the namespace."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """The threads that become one commit: a chat, and the branches that were left when a prompt was edited."""

    name: str
    chats: tuple[Chat, ...]
    origin: tuple[str, ...] = ()
    """Where it belongs in its source, such as `("user", "alice")`; `--map` goes by it."""
    problems: tuple[Problem | LeftOut, ...] = ()


@dataclass(frozen=True, slots=True)
class Memory:
    """A record. `source` is `tool:id`, so that a second import finds it again."""

    id: str
    type: str
    content: JSON
    source: str
    tags: tuple[str, ...] = ()
    confidence: float = 1.0
    created_at: int | None = None
    updated_at: int | None = None
    expires_at: int | None = None
    origin: tuple[str, ...] = ()
    importance: float | None = None
    former: tuple[tuple[JSON, int | None], ...] = ()
    """Former contents with their times, the oldest first."""
    is_deleted: bool = False
    """Whether the source has deleted it. Its revisions are imported, and then it is deleted here too."""


@dataclass(frozen=True, slots=True)
class Document:
    """A file."""

    path: str
    text: str
    created_at: int | None = None
    updated_at: int | None = None
    origin: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Working:
    """A working memory, of a `resource` or of a `thread`."""

    scope: str
    id: str
    resource: str
    content: JSON
    created_at: int | None = None
    updated_at: int | None = None
    origin: tuple[str, ...] = ("working",)


Item = Conversation | Memory | Document | Working | Problem | LeftOut


@dataclass(frozen=True, slots=True)
class Format:
    """A format of another program: how a file of it is recognised, by its content, and read."""

    name: str
    title: str
    matches: Callable[[Leaf, Tree], bool]
    read: Callable[[Leaf, Tree], Iterator[Item]]
    owns: Callable[[Tree], bool] | None = None
    """Whether a folder is one of this program; then every text in it belongs to it."""


# Values of other programs

_MILLISECONDS_FROM = 100_000_000_000
"""From here on a number is in milliseconds; as seconds it would be the year 5138."""

LATEST = _MILLISECONDS_FROM * 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER = re.compile(r"-?[0-9]{9,19}(\.[0-9]{1,9})?")
_IDS = uuid.UUID("5b8a2f3e-0d57-4b0e-9a44-6c2f6a1f8a17")
_MAX_ID_BYTES = 150
_NOT_IN_TAGS = re.compile(r"[^a-z0-9:_-]+")
_NOT_IN_IDS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def time_of(value: object) -> int | None:
    """A time in microseconds, from ISO 8601 (without a time zone, UTC) or a number since 1970; else None."""
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        value = float(value)
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, (int, float)):
        if not abs(value) < 1e19:  # also false for NaN
            return None
        scale = 1 if abs(value) >= LATEST / 1_000 else 1_000 if abs(value) >= _MILLISECONDS_FROM else 1_000_000
        found = round(value * scale)
        return found if 0 <= found < LATEST else None
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value.strip())
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        found = round((aware - _EPOCH) / timedelta(microseconds=1))
    except (ValueError, OverflowError):
        return None
    return found if 0 <= found < LATEST else None


def made_id(*parts: str) -> str:
    """An id for something that has none in its source: the same parts always give the same id."""
    return str(uuid.uuid5(_IDS, "\x00".join(parts).encode("utf-8", "replace").decode()))


def kept_id(given: object, *parts: str) -> str:
    """The source's id if it can be one here, else one that is made from it."""
    is_usable = isinstance(given, str) and given.strip() and given.isprintable() and not invisible_in(given)
    if isinstance(given, str) and is_usable and len(given.encode("utf-8", "replace")) <= _MAX_ID_BYTES:
        return given
    return made_id(*parts, repr(given))


def tag_of(name: str, value: str) -> str:
    """A tag such as `entity:ana`, in the characters that a tag may have."""
    return f"{name}:{_NOT_IN_TAGS.sub('-', value.lower()).strip('-')}"[:100].rstrip("-:") or name


def label_of(value: object, default: str) -> str:
    """A short text on one line, such as the type of a record."""
    text = " ".join(_NOT_IN_IDS.sub(" ", value).split()) if isinstance(value, str) else ""
    return text[:200] or default


def text_of_parts(content: object) -> str:
    """The text of a list of parts; of other shapes, the text itself or nothing."""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        content = [content]
    if not isinstance(content, list):
        return ""
    found = [part if isinstance(part, str) else part.get("text") for part in content if isinstance(part, (str, dict))]
    return "\n\n".join(text for text in found if isinstance(text, str) and text)


# Files, folders and archives

HEAD_BYTES = 1 << 16
MAX_ELEMENT_BYTES = 32_000_000
"""Of one element of a JSON array, or one line: a conversation, a memory."""

MAX_DOCUMENT_BYTES = 64_000_000
"""Of a JSON document that is read as a whole."""

MANIFEST = ".commonplace.json"
"""Names the files that `export --format markdown` wrote."""

KNOWN_TABLES = ("history", "store", "memories", "mastra_threads", "mastra_messages")
"""The tables by which databases of other programs are recognised."""

_SKIPPED_FOLDERS = ("node_modules", "__pycache__", "__MACOSX")
_MAX_DIRECTORY_BYTES = 64_000_000
"""Of the list of files of an archive, which is read as a whole."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much an archive may expand to."""

    expanded_bytes: int = 64_000_000_000
    ratio: int = 200
    files: int = 200_000


UPLOAD_BYTES = 4_000_000_000
UPLOAD_BOUNDS = Bounds(expanded_bytes=8_000_000_000, ratio=100, files=50_000)
"""How much a file that is sent to a service may have, and an archive may expand to."""


class Leaf:
    """One file of a source. `path` is relative, with `/`; `modified` is in microseconds."""

    def __init__(
        self, path: str, size: int, modified: int | None, open_: Callable[[], BinaryIO], on_disk: Path | None = None
    ) -> None:
        self.path = path
        self.size = size
        self.modified = modified
        self._open = open_
        self._on_disk = on_disk
        self._wrap: Callable[[BinaryIO], BinaryIO] | None = None
        self.damage: str | None = None
        """Why its beginning could not be read, if somebody has tried to."""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]

    def open(self) -> BinaryIO:
        stream = self._open()
        return stream if self._wrap is None else self._wrap(stream)

    def counted(self, wrap: Callable[[BinaryIO], BinaryIO]) -> None:
        """Pass what is opened from now on through `wrap`, which counts what is read."""
        self._wrap = wrap

    @cached_property
    def head(self) -> bytes:
        """The first bytes; none if the file cannot be read. One such file must not stop an import of many."""
        try:
            with self._open() as stream:
                return stream.read(HEAD_BYTES)
        except (InvalidInput, OSError) as error:
            self._note_damage(error)
            return b""

    def _note_damage(self, error: Exception) -> None:
        self.damage = (error.strerror if isinstance(error, OSError) else None) or str(error)

    @property
    def is_sqlite(self) -> bool:
        return self.head.startswith(b"SQLite format 3\x00")

    @contextmanager
    def tables(self) -> Iterator[ForeignTables]:
        """The tables of a database."""
        from commonplace.backends.sqlite.exchange import open_foreign

        with self.on_disk() as path, open_foreign(path) as tables:
            yield tables

    @cached_property
    def columns(self) -> Mapping[str, frozenset[str]]:
        """The tables of a database that readers know, with the names of their columns; none if it is not one."""
        if not self.is_sqlite:
            return {}
        try:
            with self.tables() as tables:
                return {name: found for name in KNOWN_TABLES if (found := frozenset(tables.columns(name)))}
        except (CommonplaceError, OSError) as error:
            self._note_damage(error)
            return {}

    @cached_property
    def first(self) -> Any:
        """What tells JSON formats apart: the first element of an array, the whole of a small object, or None.

        An array gives a list of its first element. JSON lines give a tuple of the first ones.
        """
        try:
            return self._beginning()
        except (InvalidInput, OSError) as error:
            self._note_damage(error)
            return None

    def _beginning(self) -> Any:
        start = self.head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
        if start == b"[":
            with self._open() as stream:
                return next(([one] for one in json_array(stream) if not isinstance(one, Problem)), [])
        if start == b'"':  # JSON in JSON
            return self._document() if self.size <= MAX_DOCUMENT_BYTES else None
        if start != b"{":
            return None
        lines = []
        with self._open() as stream:
            for line in json_lines(stream):
                if isinstance(line[1], dict):
                    lines.append(line[1])
                if len(lines) == 20 or line[0] == 40:
                    break
        if lines and (len(lines) > 1 or b"\n" not in self.head.strip() or self.size > len(self.head)):
            # One line may also be a whole object.
            return tuple(lines)
        return self._document() if self.size <= MAX_DOCUMENT_BYTES else None

    def _document(self) -> Any:
        found = self._parsed()
        return None if isinstance(found, Problem) else found

    def document(self) -> Any:
        """The whole file as JSON."""
        found = self._parsed()
        if isinstance(found, Problem):
            raise InvalidInput(found.reason)
        return found

    def _parsed(self) -> Any:
        return _parsed(self.bytes(MAX_DOCUMENT_BYTES).removeprefix(b"\xef\xbb\xbf"))

    def bytes(self, most: int) -> bytes:
        with self.open() as stream:
            raw = stream.read(most + 1)
        if len(raw) > most:
            raise TooLarge(f"it has more than {most:,} bytes, the most that is read at once")
        return raw

    @contextmanager
    def on_disk(self) -> Iterator[Path]:
        """The path of the file, or of a copy."""
        if self._on_disk is not None:
            yield self._on_disk
            return
        with tempfile.TemporaryDirectory(prefix="commonplace-import-") as folder:
            copy = Path(folder) / "copy"
            with self.open() as stream, copy.open("wb") as target:
                shutil.copyfileobj(stream, target)
            yield copy


@dataclass(frozen=True, slots=True)
class Tree:
    """What an import was given."""

    name: str
    leaves: tuple[Leaf, ...]
    problems: tuple[Problem | LeftOut, ...] = ()
    marks: frozenset[str] = frozenset()
    """Names of hidden folders, which are not read but tell whose folder it is."""
    is_folder: bool = False

    def at(self, path: str) -> Leaf | None:
        return next((leaf for leaf in self.leaves if leaf.path == path), None)


@contextmanager
def open_tree(path: Path, *, name: str | None = None, bounds: Bounds | None = None) -> Iterator[Tree]:
    """Open a file, a folder or a zip archive. `name` is what an uploaded file was called."""
    limits = bounds or Bounds()
    if path.is_dir():
        yield _folder(path, limits)
    elif not path.exists():
        raise NotFound(f"there is no file or folder {path} to import")
    elif not path.is_file():
        raise InvalidInput(f"{path} is neither a file nor a folder; copy it to a file first")
    else:
        known = _safe_name(name or path.name)
        with path.open("rb") as stream:
            is_archive = stream.read(4) in (b"PK\x03\x04", b"PK\x05\x06")
        if is_archive:
            with _archive(path, known, limits) as tree:
                yield tree
        else:
            yield Tree(known, (_local_leaf(path, known, path.parent),))


def _safe_name(name: str) -> str:
    last = re.split(r"[/\\]", name)[-1]
    return _NOT_IN_IDS.sub("", last).strip(". ")[:200] or "import"


def _local_leaf(path: Path, name: str, root: Path) -> Leaf:
    found = path.stat()
    is_link = path.is_symlink()

    def opened() -> BinaryIO:
        # The path that the caller gave may be a link; one inside of a folder is not followed.
        flags = os.O_RDONLY | (0 if is_link else getattr(os, "O_NOFOLLOW", 0)) | getattr(os, "O_NONBLOCK", 0)
        descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0))
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise InvalidInput(f"{path} is not a file any more")
        return os.fdopen(descriptor, "rb")

    return Leaf(name, found.st_size, found.st_mtime_ns // 1_000, opened, path)


def _folder(root: Path, bounds: Bounds) -> Tree:
    leaves: list[Leaf] = []
    problems: list[Problem | LeftOut] = []
    marks: set[str] = set()

    def failed(error: OSError) -> None:
        problems.append(Problem(str(error.filename), error.strerror or "it cannot be read"))

    is_ours = (root / MANIFEST).is_file()  # then hidden files are part of the memory

    def is_hidden(name: str) -> bool:
        return name.startswith(".") and name != MANIFEST and not is_ours

    for folder, folders, files in os.walk(root, onerror=failed):
        above = Path(folder)
        marks.update(name for name in folders if name.startswith("."))
        for name in (*folders, *files):
            if (above / name).is_symlink():
                problems.append(LeftOut(str((above / name).relative_to(root)), "links are not followed"))
        folders[:] = sorted(
            name
            for name in folders
            if not is_hidden(name) and (is_ours or name not in _SKIPPED_FOLDERS) and not (above / name).is_symlink()
        )
        for name in sorted(files):
            path = above / name
            if path.is_symlink() or not path.is_file() or is_hidden(name):
                continue
            relative = path.relative_to(root).as_posix()
            try:
                relative.encode()
                leaves.append(_local_leaf(path, relative, root))
            except UnicodeEncodeError:
                problems.append(Problem(ascii(relative), "its name is not UTF-8"))
            except OSError as error:
                problems.append(Problem(relative, error.strerror or "it cannot be read"))
            if len(leaves) > bounds.files:
                raise TooLarge(f"{root} has more than {bounds.files:,} files; import a part of it at a time")
    return Tree(_safe_name(root.resolve().name), tuple(leaves), tuple(problems), frozenset(marks), is_folder=True)


@contextmanager
def _archive(path: Path, name: str, bounds: Bounds) -> Iterator[Tree]:
    size = path.stat().st_size
    _check_directory(path, name, size, bounds)
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, ValueError, struct.error, OSError, NotImplementedError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{name} is a damaged zip archive ({error}); download or make it again") from error
    with archive:
        infos = archive.infolist()
        expanded = sum(info.file_size for info in infos)
        if len(infos) > bounds.files or expanded > bounds.expanded_bytes or expanded > bounds.ratio * size + 1_000_000:
            raise TooLarge(
                f"{name} would expand to {len(infos):,} files with {expanded:,} bytes, from {size:,}; at most "
                f"{bounds.files:,} files, {bounds.expanded_bytes:,} bytes and {bounds.ratio} times its size are allowed"
            )
        yield _archived(archive, name, infos)


def _check_directory(path: Path, name: str, size: int, bounds: Bounds) -> None:
    """Refuse an archive whose list of files is too large to be read, before it is read."""
    with path.open("rb") as stream:
        stream.seek(max(0, size - 66_000))
        end = stream.read()
    place = end.rfind(b"PK\x05\x06")
    if place < 0 or len(end) < place + 22:
        raise InvalidInput(f"{name} is a zip archive without its end, so it was cut off; get it again")
    count, listed = struct.unpack_from("<HI", end, place + 10)
    large = end.rfind(b"PK\x06\x06")
    if large >= 0 and len(end) >= large + 56:
        count, listed = struct.unpack_from("<QQ", end, large + 32)
    if count > bounds.files or listed > _MAX_DIRECTORY_BYTES:
        raise TooLarge(f"{name} lists {count:,} files; at most {bounds.files:,} are allowed")


def _archived(archive: zipfile.ZipFile, name: str, infos: Sequence[zipfile.ZipInfo]) -> Tree:
    leaves: dict[str, Leaf] = {}
    problems: list[Problem | LeftOut] = []
    marks: set[str] = set()
    is_ours = any(info.filename.rpartition("/")[2] == MANIFEST for info in infos)
    for info in infos:
        path = info.filename.replace("\\", "/")
        parts = path.rstrip("/").split("/")
        if path.startswith("/") or ".." in parts or re.match(r"[A-Za-z]:", path) or "\x00" in path:
            problems.append(Problem(ascii(info.filename), "its name leads out of the archive"))
            continue
        marks.update(part for part in parts[:-1] if part.startswith("."))
        is_hidden = not is_ours and any(part.startswith(".") or part in _SKIPPED_FOLDERS for part in parts)
        if info.is_dir() or is_hidden:
            continue
        if stat.S_ISLNK(info.external_attr >> 16):
            problems.append(LeftOut(path, "links are not followed"))
        elif info.flag_bits & 1:
            problems.append(Problem(path, "it is encrypted"))
        elif path in leaves:
            problems.append(Problem(path, "the archive has two files of this name"))
        else:
            leaves[path] = Leaf(path, info.file_size, _zip_time(info), _opener(archive, info))
    tops = {path.partition("/")[0] for path in leaves}
    if len(tops) == 1 and all("/" in path for path in leaves):  # an archive of one folder is that folder
        top = f"{tops.pop()}/"
        for leaf in leaves.values():
            leaf.path = leaf.path.removeprefix(top)
        name = top.rstrip("/").rpartition("/")[2]
    shown = tuple(sorted(leaves.values(), key=lambda leaf: leaf.path))
    return Tree(_safe_name(name.removesuffix(".zip")), shown, tuple(problems), frozenset(marks), is_folder=True)


def _opener(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Callable[[], BinaryIO]:
    def opened() -> BinaryIO:
        try:
            return cast("BinaryIO", _Unzipped(archive.open(info)))
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, OSError) as error:
            raise InvalidInput(f"it is damaged in the archive ({error})") from error

    return opened


class _Unzipped:
    """A file of an archive; damage is an error of ours."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def _read(self, method: str, size: int) -> bytes:
        import zlib

        try:
            return cast("bytes", getattr(self._stream, method)(size))
        except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, OSError, NotImplementedError) as error:
            raise InvalidInput(f"it is damaged in the archive ({error})") from error

    def read(self, size: int = -1) -> bytes:
        return self._read("read", size)

    def readline(self, size: int = -1) -> bytes:
        return self._read("readline", size)

    def close(self) -> None:
        self._stream.close()

    def __enter__(self) -> _Unzipped:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _zip_time(info: zipfile.ZipInfo) -> int | None:
    try:
        return time_of(datetime(*info.date_time, tzinfo=UTC).isoformat())
    except ValueError:
        return None


class CountedStream:
    """A stream that tells how much was read from it."""

    def __init__(self, stream: BinaryIO, count: Callable[[int], None]) -> None:
        self._stream = stream
        self._count = count

    def read(self, size: int = -1) -> bytes:
        raw = self._stream.read(size)
        self._count(len(raw))
        return raw

    def readline(self, size: int = -1) -> bytes:
        raw = self._stream.readline(size)
        self._count(len(raw))
        return raw

    def close(self) -> None:
        self._stream.close()

    def __enter__(self) -> CountedStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# JSON, one element at a time

_PIECE_BYTES = 1 << 18
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|"|[\[\]{}]', re.DOTALL)
_MAX_PIECE_BYTES = 1 << 22
_BETWEEN = b" \t\r\n,"
_NO_OBJECT = "it is neither an object nor a list"
_TOO_LONG = f"it has more than {MAX_ELEMENT_BYTES:,} bytes"


def json_array(stream: BinaryIO) -> Iterator[Any]:
    """Each element of a JSON array, or a Problem for one that cannot be read; one element is in memory at a time.

    Strings and brackets are enough to find where an element ends. Only then is it parsed.
    """
    raw = b""
    at = start = depth = number = 0  # `start` is where the element begins, or what lies between two of them
    is_skipping = False
    while True:
        piece = stream.read(min(max(_PIECE_BYTES, len(raw)), _MAX_PIECE_BYTES))
        if is_skipping:
            start = at
        raw, at, start = raw[start:] + piece, at - start, 0
        for token in _TOKEN.finditer(raw, at):
            kind = token[0]
            if kind == b'"':  # a string that is not complete yet
                break
            at = token.end()
            if len(kind) > 1:
                continue
            if kind in b"{[":
                if depth == 1:
                    if raw[start : token.start()].strip(_BETWEEN):
                        number += 1
                        yield Problem(f"element {number}", _NO_OBJECT)
                    start = token.start()
                depth += 1
                start = at if depth == 1 else start
                continue
            depth -= 1
            if depth == 0:
                if raw[start : token.start()].strip(_BETWEEN):
                    yield Problem(f"element {number + 1}", _NO_OBJECT)
                return
            if depth == 1:
                number += 1
                found = Problem("", _TOO_LONG) if is_skipping else _parsed(raw[start:at])
                is_skipping = False
                yield Problem(f"element {number}", found.reason) if isinstance(found, Problem) else found
                start = at
        else:
            at = len(raw)
        if not piece:
            yield Problem("the end", "the array is not closed, so the file was cut off; get it again")
            return
        if len(raw) - start > MAX_ELEMENT_BYTES:
            is_skipping = depth > 1
            if not is_skipping or len(raw) - at > MAX_ELEMENT_BYTES:
                yield Problem(f"element {number + 1}", f"{_TOO_LONG}; nothing after it is read")
                return


def json_lines(stream: BinaryIO) -> Iterator[tuple[int, Any]]:
    """Each line that is not empty as JSON, with its number from 1; a Problem for one that cannot be read."""
    number = 0
    while line := stream.readline(MAX_ELEMENT_BYTES):
        number += 1
        if len(line) == MAX_ELEMENT_BYTES and not line.endswith(b"\n"):
            while (rest := stream.readline(MAX_ELEMENT_BYTES)) and not rest.endswith(b"\n"):
                continue
            yield number, Problem(f"line {number}", f"it has more than {MAX_ELEMENT_BYTES:,} bytes")
            continue
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if line.strip():
            found = _parsed(line)
            yield number, Problem(f"line {number}", found.reason) if isinstance(found, Problem) else found


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw.decode(), parse_int=_integer)
    except UnicodeDecodeError:
        return Problem("", "it is not UTF-8")
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else "it is not valid JSON"
        return Problem("", reason)


def _integer(digits: str) -> int | str:
    """A number that is too long to be stored stays a text."""
    return int(digits) if len(digits) < MAX_INTEGER_BITS // 4 else digits
