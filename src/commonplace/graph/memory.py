"""A memory node: one tree of files for all threads, or one for each, in a namespace that nothing else shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from commonplace.book import Book
from commonplace.checks import Limits, Namespace, check_namespace
from commonplace.errors import InvalidInput, NotFound
from commonplace.space.files import FileInfo, Files
from commonplace.space.names import ROOT, normalise
from commonplace.space.space import Space

Scope = Literal["global", "perThread"]
_SCOPES: dict[str, Scope] = {"global": "global", "perThread": "perThread", "thread": "perThread"}


class MemoryNode:
    """A graph's memory.

    Its tree is in namespace + ("memory", node id), a thread's in that + ("thread", thread id). `bind` names the
    namespace of the tree itself instead, such as the one that another face already uses.
    """

    def __init__(
        self,
        book: Book,
        node_id: str,
        namespace: Sequence[str] = ("user", "default"),
        *,
        scope: str = "global",
        bind: Sequence[str] | None = None,
    ) -> None:
        if scope not in _SCOPES:
            raise InvalidInput(f"unknown scope {scope!r}; use global or perThread")
        self._book = book
        self.node_id = node_id
        self.scope: Scope = _SCOPES[scope]
        self.namespace: Namespace = check_namespace((*namespace, "memory", node_id) if bind is None else tuple(bind))
        if self.needs_thread:
            check_namespace((*self.namespace, "thread", "id"))  # too many labels are found now, not in a run

    @property
    def needs_thread(self) -> bool:
        return self.scope == "perThread"

    @property
    def limits(self) -> Limits:
        return self._book.limits

    def space(self, thread_id: str | None = None) -> Space:
        """The space that holds the tree; of a perThread memory, the thread's own."""
        if not self.needs_thread:
            return self.shared_space()
        if not thread_id:
            raise InvalidInput("threadId is required for perThread scope")
        return self._book.space(*thread_namespace(self.namespace, thread_id), actor=self._actor)

    def shared_space(self) -> Space:
        """The space for all threads; of a perThread memory, what its connector shows while a thread has nothing."""
        return self._book.space(*self.namespace, actor=self._actor)

    @property
    def _actor(self) -> str:
        return f"memory node {self.node_id}"

    def tree(self, thread_id: str | None = None) -> Files:
        """The files: read, write, list, walk and the rest."""
        return self.space(thread_id).files

    def stat(self, path: str, *, thread_id: str | None = None) -> FileInfo:
        """A file or a directory, without its text; NotFound where there is none."""
        return self.tree(thread_id).stat(path)

    def ensure_dir(self, path: str, *, thread_id: str | None = None) -> FileInfo:
        """Make a directory and those above it; one that exists is fine, the root always does."""
        files = self.tree(thread_id)
        return files.stat(ROOT) if normalise(path, self.limits) == ROOT else files.make_directory(path)

    def get_all(self, *, thread_id: str | None = None) -> dict[str, str]:
        """Every file's text by its path, in order."""
        files = self.tree(thread_id)
        texts = {}
        for item in files.walk():
            if item.kind == "file":
                try:
                    texts[item.path] = files.read(item.path)
                except NotFound:
                    continue  # deleted since it was listed
        return dict(sorted(texts.items()))

    def dump(self, *, thread_id: str | None = None) -> dict[str, Any]:
        """The whole tree as plain data: whose it is, its files with their texts, its directories."""
        directories = [item.path for item in self.tree(thread_id).walk() if item.kind == "directory"]
        thread = {"threadId": thread_id} if self.needs_thread else {}
        data = self.get_all(thread_id=thread_id)
        return {"nodeId": self.node_id, "scope": self.scope, **thread, "data": data, "dirs": sorted(directories)}


def thread_namespace(namespace: Namespace, thread_id: object) -> Namespace:
    """The namespace of a thread: its id as it is, or an error; an id is never rewritten into another one."""
    try:
        return check_namespace((*namespace, "thread", thread_id))
    except InvalidInput as error:
        raise InvalidInput(f"thread id {str(thread_id)[:40]!r} cannot be used: {error}") from error
