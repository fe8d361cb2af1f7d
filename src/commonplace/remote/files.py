"""The files of a namespace of a service."""

from __future__ import annotations

from builtins import list as list_of
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from commonplace.checks import check_number, check_text, expiry
from commonplace.errors import AlreadyExists, Conflict, InvalidInput, NotFound, Outdated
from commonplace.remote.caller import Caller, tail, time_argument
from commonplace.space.files import FileInfo, FilePage, Files, Moved, Removed
from commonplace.space.names import ROOT, normalise
from commonplace.wire.forms import thing_of

MAX_EDITS = 100
"""How often an edit is made anew because somebody else was quicker."""

LIST_PAGE = 10_000


class RemoteFiles(Files):
    """`Files` of a service."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._limits = caller.limits

    def read(self, path: str, *, as_of: datetime | str | None = None) -> str:
        query = {"as_of": time_argument("as_of", as_of)}
        return self._caller.answer(self._at("files", path), query).body.decode()

    def exists(self, path: str) -> bool:
        try:
            self.stat(path)
        except NotFound:
            return False
        return True

    def stat(self, path: str) -> FileInfo:
        return _info(self._caller.read(self._at("info", path)))

    def list(self, path: str = ROOT) -> list_of[FileInfo]:
        found: list_of[FileInfo] = []
        cursor: str | None = None
        while True:
            page = self._caller.read(self._at("directories", path), {"limit": LIST_PAGE, "cursor": cursor})
            found += map(_info, page["files"])
            cursor = page["cursor"]
            if cursor is None:
                return found

    def page(self, path: str = ROOT, *, limit: int = 500, cursor: str | None = None) -> FilePage:
        query = {"limit": check_number("limit", limit), "cursor": cursor}
        return thing_of(FilePage, self._caller.read(self._at("tree", path), query))

    def write(self, path: str, text: str, *, overwrite: bool = True, ttl_seconds: float | None = None) -> FileInfo:
        expiry(0, ttl_seconds)
        query = {"overwrite": bool(overwrite), "ttl_seconds": ttl_seconds}
        return _info(self._caller.make("PUT", self._at("files", path), query, _text("text", text)))

    def write_all(self, texts: Mapping[str, str | None], *, overwrite: bool = False) -> dict[str, str]:
        refused: dict[str, str] = {}
        for path, text in texts.items():
            try:
                if text is None:
                    self.make_directory(path)
                elif not self._has(path, text):
                    self.write(path, text, overwrite=overwrite)
            except AlreadyExists:
                refused[path] = "it exists already, with another text"
            except (InvalidInput, Conflict) as error:
                refused[path] = str(error)
        return refused

    def _has(self, path: str, text: str) -> bool:
        try:
            return self.read(path) == text
        except NotFound:
            return False

    def append(self, path: str, text: str) -> FileInfo:
        return _info(self._caller.make("POST", self._at("files", path), None, _text("text", text)))

    def edit(self, path: str, change: Callable[[str], str]) -> FileInfo:
        """As `Files.edit`: made on the text that is read, and anew where somebody else was quicker."""
        address = self._at("files", path)
        for _ in range(MAX_EDITS):
            answer = self._caller.answer(address)
            etag = answer.header("ETag")
            body = {"text": check_text("text", change(answer.body.decode()))}
            try:
                return _info(self._caller.make("PATCH", address, None, body, if_match=etag)["file"])
            except Outdated:
                # While the file is as it was, it is another entry that is not as expected.
                if self._caller.expected and self._caller.answer(self._at("info", path)).header("ETag") == etag:
                    raise
        raise Conflict(f"{path} was changed by others {MAX_EDITS} times while it was edited; try again later")

    def replace(self, path: str, old: str, new: str, *, unique: bool = False) -> int:
        check_text("old", old)
        check_text("new", new)
        body = {"replace": {"old": old, "new": new, "unique": bool(unique)}}
        return int(self._caller.change("PATCH", self._at("files", path), None, body)["count"])

    def insert(self, path: str, line: int, text: str) -> FileInfo:
        check_text("text", text)
        body = {"insert": {"line": line, "text": text}}
        return _info(self._caller.make("PATCH", self._at("files", path), None, body)["file"])

    def make_directory(self, path: str) -> FileInfo:
        return _info(self._caller.make("PUT", self._at("directories", path)))

    def delete(self, path: str) -> Removed:
        return thing_of(Removed, self._caller.change("DELETE", self._at("files", path)))

    def move(self, old: str, new: str) -> Moved:
        body = {"source": normalise(old, self._limits), "target": normalise(new, self._limits)}
        return thing_of(Moved, self._caller.change("POST", "/move", None, body))

    def _at(self, part: str, path: str) -> str:
        """The address of a path; one that no file can have is refused here, before a proxy makes another one of it."""
        return f"/{part}{tail(normalise(path, self._limits))}"


def _text(name: str, text: object) -> bytes:
    return check_text(name, text).encode()


def _info(form: Any) -> FileInfo:
    return thing_of(FileInfo, form)
