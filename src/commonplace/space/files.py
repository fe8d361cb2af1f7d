"""A tree of text files. Directories are entries: writing a file creates them, and they stay when their last file is
deleted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Literal, cast

from commonplace.checks import JSON, Limits, check_number, check_text, expiry, invisible_in, microseconds, moment
from commonplace.entry import Draft, Entry
from commonplace.errors import (
    AlreadyExists,
    Ambiguous,
    Conflict,
    InvalidInput,
    IsADirectory,
    NotADirectory,
    NotFound,
    TooLarge,
)
from commonplace.filters import Filter
from commonplace.space.handle import Handle, awaited
from commonplace.space.names import (
    DIRECTORY,
    FILE,
    MEMORY_STORE,
    ROOT,
    check_new_name,
    check_path_size,
    file_measures,
    key_of,
    line_count,
    name_of,
    new_id,
    normalise,
    parents,
    path_of,
    with_line,
)
from commonplace.store import Child, Scan, Transaction

_WALK_PAGE = 500
_LONG_TEXTS = 1_000_000
_FEW = 20
_PATHS_A_STEP = 1_000
"""A scan reads the texts too: if they are long, only this many files are read at a time."""

_MAX_LISTED = 1_000_000
_MAX_PLACES = 1_000
_SHOWN_PLACES = 100
_LONG = 20_000
"""Computing the passages of this many characters takes some hundredths of a second."""


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file or a directory, without its text."""

    path: str
    kind: Literal["file", "directory"]
    size: int
    lines: int
    revision: int
    created_at: datetime
    updated_at: datetime

    @property
    def name(self) -> str:
        return name_of(self.path)


@dataclass(frozen=True, slots=True)
class FilePage:
    files: tuple[FileInfo, ...]
    cursor: str | None
    """Pass it to get the next page; None at the end."""


@dataclass(frozen=True, slots=True)
class Removed:
    """How many files and directories were deleted, and the commit to pass to `Space.undo`."""

    files: int
    directories: int
    commit: int | None


@dataclass(frozen=True, slots=True)
class Moved:
    """How many files and directories were moved, and the commit to pass to `Space.undo`."""

    entries: int
    commit: int | None


class Files:
    """The files of one namespace."""

    def __init__(self, handle: Handle, limits: Limits) -> None:
        self._handle = handle
        self._limits = limits

    # Reading

    def read(self, path: str, *, as_of: datetime | str | None = None) -> str:
        """The text of a file, now or at a time in the past."""
        path = normalise(path, self._limits)
        at = microseconds("as_of", as_of)
        entry = self._handle.get(FILE, key_of(path), as_of=at)
        if entry is not None:
            return cast("str", entry.value)
        if path == ROOT or self._handle.get(DIRECTORY, key_of(path), as_of=at) is not None:
            raise IsADirectory(f"{path} is a directory; list it, or read a file in it")
        raise NotFound(f"{path} does not exist; list its directory to see what does")

    def exists(self, path: str) -> bool:
        path = normalise(path, self._limits)
        return path == ROOT or any(self._handle.get(kind, key_of(path)) for kind in (FILE, DIRECTORY))

    def stat(self, path: str, *, as_of: datetime | str | None = None) -> FileInfo:
        """What a path is, now or at a time in the past."""
        path = normalise(path, self._limits)
        at = microseconds("as_of", as_of)
        if path == ROOT:
            return FileInfo(ROOT, "directory", 0, 0, 0, moment(0), moment(0))
        for kind in (FILE, DIRECTORY):
            entry = self._handle.get(kind, key_of(path), as_of=at)
            if entry is not None:
                return _info(entry)
        raise NotFound(f"{path} does not exist; list its directory to see what does")

    def list(self, path: str = ROOT, *, as_of: datetime | str | None = None) -> list[FileInfo]:
        """The directories, then the files, that are directly in a directory, or were at a time; each by name."""
        path, at = normalise(path, self._limits), microseconds("as_of", as_of)
        found = [info for kind in (DIRECTORY, FILE) for info in self._children(path, kind, at)]
        if not found:
            self._check_directory(path, at)
        return found

    def _children(
        self, path: str, kind: str, at: int | None, after: str = "", limit: int | None = None
    ) -> Iterator[FileInfo]:
        children = self._handle.store.children(
            self._handle.namespace, kind, key_of(path.rstrip("/") + "/"), as_of=at, after=after, limit=limit
        )
        return (_child_info(path, kind, child) for child in children)

    def _check_directory(self, path: str, at: int | None) -> None:
        """Raise if a path is not, or was not, a directory."""
        if path == ROOT:
            return
        if self._handle.get(FILE, key_of(path), as_of=at) is not None:
            raise NotADirectory(f"{path} is a file; read it")
        if self._handle.get(DIRECTORY, key_of(path), as_of=at) is None:
            raise NotFound(f"{path} does not exist; list the directory above to see what does")

    def list_page(
        self,
        path: str = ROOT,
        *,
        limit: int = 1_000,
        cursor: str | None = None,
        as_of: datetime | str | None = None,
    ) -> FilePage:
        """The same as `list`, a page at a time."""
        if check_number("limit", limit) < 1:
            raise InvalidInput(f"limit must be 1 or more, not {limit}")
        limit = min(limit, _MAX_LISTED)
        path, at = normalise(path, self._limits), microseconds("as_of", as_of)
        first, _, name = ("" if cursor is None else check_text("cursor", cursor)).partition(":")
        found: list[FileInfo] = []
        for kind in (DIRECTORY, FILE):  # in the order of their names, too
            if kind >= first and len(found) <= limit:
                found += self._children(path, kind, at, name if kind == first else "", limit + 1 - len(found))
        if not found:
            self._check_directory(path, at)
        page = tuple(found[:limit])
        return FilePage(page, f"{page[-1].kind}:{page[-1].name}" if len(found) > limit else None)

    def walk(self, path: str = ROOT) -> Iterator[FileInfo]:
        """Everything below a directory: its directories in order, then its files in order."""
        cursor: str | None = None
        while True:
            page = self.page(path, limit=_WALK_PAGE, cursor=cursor)
            yield from page.files
            cursor = page.cursor
            if cursor is None:
                return

    def page(self, path: str = ROOT, *, limit: int = _WALK_PAGE, cursor: str | None = None) -> FilePage:
        """The same as `walk`, a page at a time."""
        check_number("limit", limit)
        below = _below(normalise(path, self._limits))
        kind, _, after = (f"{DIRECTORY}:" if cursor is None else check_text("cursor", cursor)).partition(":")
        if kind not in (DIRECTORY, FILE):
            raise InvalidInput("the cursor does not belong to this listing; leave it out to start again")
        found: list[FileInfo] = []
        at_once = _FEW
        while True:
            step = min(at_once, limit - len(found))
            scan = Scan(Filter(kinds=(kind,), key_prefix=below), limit=step, after=after or None)
            page = self._handle.store.scan(self._handle.namespace, scan)
            infos = [*map(_info, page.entries)]
            found += infos
            at_once = _FEW if sum(info.size for info in infos) > _LONG_TEXTS else at_once * 4
            if page.cursor is not None:
                after = page.cursor
            elif kind == FILE:
                return FilePage(tuple(found), None)
            else:
                kind, after = FILE, ""
            if len(found) >= limit:
                return FilePage(tuple(found), f"{kind}:{after}")

    # Writing

    def write(self, path: str, text: str, *, overwrite: bool = True, ttl_seconds: float | None = None) -> FileInfo:
        """Write a file and create its directories; `overwrite=False` refuses an existing file."""
        path = self._file_path(path)
        draft = self._draft(path, text)
        if len(text) > _LONG:
            draft = draft.with_passages()

        def work(transaction: Transaction) -> Entry:
            if not overwrite and transaction.get(FILE, key_of(path)) is not None:
                raise AlreadyExists(f"{path} exists already; edit it, or choose another name")
            return self._put(transaction, path, draft.with_expiry(expiry(transaction.time, ttl_seconds)))

        return _info(self._handle.write("Files.write", work)[0])

    def write_all(self, texts: Mapping[str, str | None], *, overwrite: bool = False) -> dict[str, str]:
        """Write many files, and directories (None), as one change; return what was left out, with the reasons.

        An existing file with the same text stays as it is; one with a different text is left out, unless `overwrite`.
        """
        if self._handle.once is not None:
            raise InvalidInput("an idempotency key cannot be used to write many files; leave it out")
        unfit: dict[str, str] = {}
        drafts: dict[str, Draft | None] = {}
        for path, text in texts.items():
            try:
                drafts[path] = None if text is None else self._draft(self._file_path(path), text)
            except (InvalidInput, IsADirectory) as error:
                unfit[path] = str(error)

        def work(transaction: Transaction) -> dict[str, str]:
            refused = dict(unfit)
            for path, draft in drafts.items():
                try:
                    self._put_unless_there(transaction, self._file_path(path), draft, overwrite)
                except (InvalidInput, Conflict) as error:
                    refused[path] = str(error)
            return refused

        return self._handle.write("Files.write_all", work)[0]

    def append(self, path: str, text: str) -> FileInfo:
        """Add text to the end of a file, on a new line; create the file if it does not exist."""
        path = self._file_path(path)
        self._check_size(path, text)
        added = len(text.encode())

        def work(transaction: Transaction) -> Entry:
            entry = transaction.get(FILE, key_of(path))
            old = "" if entry is None else cast("str", entry.value)
            gap = "" if not old or old.endswith("\n") or text.startswith("\n") else "\n"
            self._check_bytes(path, len(old.encode()) + len(gap) + added)
            draft = self._draft(path, old + gap + text, entry.expires_at if entry else None)
            return self._put(transaction, path, draft) if entry is None else self._put_again(transaction, draft)

        return _info(self._handle.write("Files.append", work)[0])

    def edit(self, path: str, change: Callable[[str], str]) -> FileInfo:
        """Replace the text of a file by what `change` returns for it, atomically. `change` may be called twice."""
        path = self._file_path(path)

        def work(transaction: Transaction) -> Entry:
            entry = self._existing_file(transaction, path)
            new = change(cast(str, entry.value))
            if new == entry.value:
                return entry
            return self._put_again(transaction, self._draft(path, new, entry.expires_at))

        return _info(self._handle.write("Files.edit", work)[0])

    def replace(self, path: str, old: str, new: str, *, unique: bool = False) -> int:
        """Replace every occurrence of a text; return how many there were. `unique` refuses more than one."""
        check_text("old", old)
        check_text("new", new, max_bytes=self._limits.file_bytes)
        grows = len(new.encode()) - len(old.encode())
        if self._handle.once is not None:  # a repeated call could not return the count
            raise InvalidInput("an idempotency key cannot be used for a replacement; leave it out")
        count = 0

        def change(text: str) -> str:
            nonlocal count
            count = text.count(old) if old else 0
            if unique and count > 1:
                lines = _lines_of(text, old)
                shown = ", ".join(map(str, lines[:_SHOWN_PLACES])) + (", …" if count > _SHOWN_PLACES else "")
                raise Ambiguous(
                    f"the text to replace occurs {count} times in {path}, in lines {shown}; "
                    "give more of it, so that it is unique",
                    lines,
                )
            if not count:
                return text
            # Check the size first: replacing each letter of a file with 1 kB makes gigabytes.
            self._check_bytes(path, len(text.encode()) + count * grows)
            return text.replace(old, new)

        self.edit(path, change)
        return count

    def insert(self, path: str, line: int, text: str) -> FileInfo:
        """Insert text after a line; 0 is the top. A newline at the end of the file is neither added nor removed."""
        check_text("text", text, max_bytes=self._limits.file_bytes)
        if isinstance(line, bool) or not isinstance(line, int):
            raise InvalidInput(f"line must be a whole number, not {line!r}")

        def change(old: str) -> str:
            count = line_count(old)
            if not 0 <= line <= count:
                raise InvalidInput(f"line {line} is not in {path}; it has the lines 0 (the top) to {count}")
            return with_line(old, line, text.removesuffix("\n"))

        return self.edit(path, change)

    def make_directory(self, path: str) -> FileInfo:
        """Create a directory and its parents; it may exist already."""
        path = self._file_path(path)

        def work(transaction: Transaction) -> Entry:
            self._make_directories(transaction, [*parents(path), path])
            entry = transaction.get(DIRECTORY, key_of(path))
            assert entry is not None
            return entry

        return _info(self._handle.write("Files.make_directory", work)[0])

    def delete(self, path: str) -> Removed:
        """Delete a file, or a directory with everything in it; `/` deletes all. `Space.undo` restores it."""
        path = normalise(path, self._limits)

        def work(transaction: Transaction) -> tuple[int, int]:
            counts = {FILE: 0, DIRECTORY: 0}
            for kind in (FILE, DIRECTORY):
                counts[kind] += transaction.delete_range(kind, _below(path))
                if path != ROOT and transaction.delete(kind, key_of(path)) is not None:
                    counts[kind] += 1
            return counts[FILE], counts[DIRECTORY]

        (files, directories), commit = self._handle.write("Files.delete", work, "delete")
        return Removed(files, directories, commit)

    def move(self, old: str, new: str) -> Moved:
        """Move a file, or a directory with everything in it. `Space.undo` moves them all back."""
        old, new = self._file_path(old), self._file_path(new)
        if (new + "/").startswith(old + "/"):
            raise InvalidInput(f"{old} cannot be moved into itself ({new})")
        self._handle.rules.screened(
            Draft(DIRECTORY, key_of(new), {})
        )  # a move writes no draft, so nothing else screens the name

        def work(transaction: Transaction) -> int:
            if any(transaction.get(kind, key_of(new)) for kind in (FILE, DIRECTORY)):
                raise AlreadyExists(f"{new} exists already; choose another name")
            found = [kind for kind in (FILE, DIRECTORY) if transaction.get(kind, key_of(old)) is not None]
            if not found:
                raise NotFound(f"{old} does not exist; list its directory to see what does")
            if name_of(new) != name_of(old):
                check_new_name(name_of(new))
            self._make_directories(transaction, parents(new))
            for kind in found:
                transaction.move(kind, key_of(old), key_of(new), _heading(kind, new))
            moved = len(found)
            for kind in (FILE, DIRECTORY):
                heading_of = partial(self._new_heading, kind)
                moved += transaction.move_range(kind, _below(old), _below(new), heading_of)
            return moved

        return Moved(*self._handle.write("Files.move", work))

    # Rules

    def prepared(self, path: str, text: str) -> Draft:
        """What is stored of a file, checked and screened. An import puts it with `place`."""
        return self._draft(self._file_path(path), text)

    def place(self, transaction: Transaction, draft: Draft) -> Entry:
        """Inside a transaction: put a prepared file, and create the directories above it."""
        return self._put(transaction, path_of(draft.key), draft)

    def make_parents(self, transaction: Transaction, path: str) -> None:
        """Inside a transaction: create the directories above a path, or refuse if one of them is a file."""
        self._make_directories(transaction, parents(normalise(path, self._limits)), are_new=False)

    def has_below(self, transaction: Transaction, path: str) -> bool:
        """Inside a transaction: whether a directory has anything in it."""
        filter = Filter(kinds=(FILE, DIRECTORY), key_prefix=_below(path))
        return bool(transaction.scan(Scan(filter, limit=1)).entries)

    def settle(self, transaction: Transaction, kind: str, paths: Sequence[str]) -> None:
        """Inside a transaction: create the parents of restored entries, or refuse if something else has their paths."""
        for path in {path.rpartition("/")[0]: path for path in paths}.values():
            self.make_parents(transaction, path)
        other = DIRECTORY if kind == FILE else FILE
        for start in range(0, len(paths), _PATHS_A_STEP):
            some = [check_path_size(path, self._limits) for path in paths[start : start + _PATHS_A_STEP]]
            for path, present in zip(some, transaction.get_all(other, list(map(key_of, some))), strict=True):
                if present is not None:
                    raise AlreadyExists(f"{path} is now a {other}; move or delete it first")
            if kind == FILE:
                self._check_nothing_below(transaction, some)

    def _check_nothing_below(self, transaction: Transaction, paths: Sequence[str]) -> None:
        below = list(map(_below, paths))
        for kind in (FILE, DIRECTORY):
            for path, prefix, key in zip(paths, below, transaction.next_keys(kind, below), strict=True):
                if key is not None and key.startswith(prefix):
                    raise AlreadyExists(f"{path} is now a directory; move or delete it first")

    def _file_path(self, path: str) -> str:
        path = normalise(path, self._limits)
        if path == ROOT:
            raise IsADirectory("the root is a directory; name a file or a directory in it")
        return path

    def _check_size(self, path: str, text: str) -> dict[str, JSON]:
        """Check a text; return its measures."""
        if isinstance(text, str) and len(text) > self._limits.file_bytes:
            self._check_bytes(path, len(text))  # before it is copied
        check_text("text", text)
        measures = file_measures(text)
        self._check_bytes(path, cast("int", measures["size"]))
        if cast("int", measures["lines"]) > self._limits.file_lines:
            raise TooLarge(f"{path} would have more than {self._limits.file_lines:,} lines; split it")
        return measures

    def _check_bytes(self, path: str, size: int) -> None:
        if size > self._limits.file_bytes:
            raise TooLarge(f"{path} would have {size:,} bytes; at most {self._limits.file_bytes:,} are allowed")

    def _draft(self, path: str, text: str, expires_at: int | None = None) -> Draft:
        draft = Draft(
            FILE,
            key_of(path),
            text,
            heading=_heading(FILE, path),
            attributes=self._check_size(path, text),
            expires_at=expires_at,
        )
        screened = self._handle.rules.screened(draft)
        if screened.value is not text:  # a mask may be longer than the text it replaces
            self._check_size(path, cast("str", screened.value))
        return screened

    def _put(self, transaction: Transaction, path: str, draft: Draft) -> Entry:
        if transaction.get(DIRECTORY, key_of(path)) is not None:
            raise IsADirectory(f"{path} is a directory; name a file in it")
        if invisible_in(path) and transaction.get(FILE, key_of(path)) is None:
            check_new_name(name_of(path))
        self._make_directories(transaction, parents(path))
        return transaction.put(self._identified(transaction, draft))

    def _put_again(self, transaction: Transaction, draft: Draft) -> Entry:
        """Replace a file that exists. So its name is not a directory's, and its directories exist."""
        return transaction.put(self._identified(transaction, draft))

    def _identified(self, transaction: Transaction, draft: Draft) -> Draft:
        """The draft with the id of a memory, if this namespace is a memory store: whoever writes it, the id stays."""
        if self._handle.namespace[-2:-1] != (MEMORY_STORE,):
            return draft
        known = transaction.get(FILE, draft.key)
        return replace(draft, identity=(known and known.identity) or f"mem_{new_id().replace('-', '')}")

    def _put_unless_there(self, transaction: Transaction, path: str, draft: Draft | None, overwrite: bool) -> None:
        if draft is None:
            self._make_directories(transaction, [*parents(path), path])
            return
        entry = transaction.get(FILE, key_of(path))
        if entry is None:
            self._put(transaction, path, draft)
        elif entry.value != draft.value:
            if not overwrite:
                raise AlreadyExists("it exists already, with a different text")
            self._put_again(transaction, replace(draft, expires_at=entry.expires_at))

    def _new_heading(self, kind: str, key: str) -> str | None:
        """The heading of an entry that is moved to this key. Raises if the new path is too long or too deep."""
        return _heading(kind, check_path_size(path_of(key), self._limits))

    def _make_directories(self, transaction: Transaction, paths: Sequence[str], *, are_new: bool = True) -> None:
        missing: list[str] = []
        for path in reversed(paths):
            if transaction.get(DIRECTORY, key_of(path)) is not None:
                break
            if transaction.get(FILE, key_of(path)) is not None:
                raise NotADirectory(f"{path} is a file; nothing can be put below it")
            if are_new:
                check_new_name(name_of(path))
            missing.append(path)
        for path in missing:
            transaction.put(Draft(DIRECTORY, key_of(path), {}))

    def _existing_file(self, transaction: Transaction, path: str) -> Entry:
        entry = transaction.get(FILE, key_of(path))
        if entry is not None:
            return entry
        if transaction.get(DIRECTORY, key_of(path)) is not None:
            raise IsADirectory(f"{path} is a directory; name a file in it")
        raise NotFound(f"{path} does not exist; list its directory to see what does")


def _heading(kind: str, path: str) -> str | None:
    """The words of its path, which search also finds."""
    return path.strip("/") if kind == FILE else None


def _below(path: str) -> str:
    return key_of(path.rstrip("/") + "/")


def _lines_of(text: str, wanted: str) -> tuple[int, ...]:
    """The line of each occurrence, up to a limit."""
    lines: list[int] = []
    line, counted, start = 1, 0, text.find(wanted)
    while start >= 0 and len(lines) < _MAX_PLACES:
        line += text.count("\n", counted, start)
        counted = start
        lines.append(line)
        start = text.find(wanted, start + len(wanted))
    return tuple(lines)


def _info(entry: Entry) -> FileInfo:
    return FileInfo(
        path=path_of(entry.key),
        kind=cast("Literal['file', 'directory']", entry.kind),
        size=cast("int", entry.attributes.get("size", 0)),
        lines=cast("int", entry.attributes.get("lines", 0)),
        revision=entry.revision,
        created_at=moment(entry.created_at),
        updated_at=moment(entry.updated_at),
    )


def _child_info(directory: str, kind: str, child: Child) -> FileInfo:
    return FileInfo(
        path=f"{directory.rstrip('/')}/{child.name}",
        kind=cast("Literal['file', 'directory']", kind),
        size=cast("int", child.attributes.get("size", 0)),
        lines=cast("int", child.attributes.get("lines", 0)),
        revision=child.revision,
        created_at=moment(child.created_at),
        updated_at=moment(child.updated_at),
    )


# The same for asyncio


class AsyncFiles:
    """`Files`, asynchronous."""

    def __init__(self, wrapped: Files) -> None:
        self._wrapped = wrapped

    read = awaited(Files.read)
    exists = awaited(Files.exists)
    stat = awaited(Files.stat)
    list = awaited(Files.list)
    list_page = awaited(Files.list_page)
    page = awaited(Files.page)
    write = awaited(Files.write)
    write_all = awaited(Files.write_all)
    append = awaited(Files.append)
    edit = awaited(Files.edit)
    replace = awaited(Files.replace)
    insert = awaited(Files.insert)
    make_directory = awaited(Files.make_directory)
    delete = awaited(Files.delete)
    move = awaited(Files.move)

    async def walk(self, path: str = "/") -> AsyncIterator[FileInfo]:
        """Everything below a directory, read a page at a time."""
        import asyncio

        found = iter(self._wrapped.walk(path))
        while (info := await asyncio.to_thread(next, found, None)) is not None:
            yield info
