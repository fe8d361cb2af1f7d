"""Memory stores: named collections of text memories, with every version of each.

A store is a namespace below its owner's: `user/ana/memory_store/memstore_…`. A memory is a file there, and a version
is a revision of that file, so every other interface reads, searches and undoes them too. The name of a store is in an
item of its owner. The id of a memory is the identity of its file: it stays when the file is moved, and when another
interface writes it.

A redacted version is erased for good. That it existed, who wrote it and who redacted it stays, in an item of the store.
"""

from __future__ import annotations

import base64
import hashlib
import re
import unicodedata
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias, cast

from commonplace.checks import JSON, check_line, check_number, check_text, microseconds, moment
from commonplace.entry import SEPARATOR, Change, Entry
from commonplace.errors import AlreadyExists, Conflict, InvalidInput, InvalidPath, NotFound, Outdated, TooLarge
from commonplace.filters import Filter, parse_conditions
from commonplace.space.items import Item, Items, NewItem, item_of
from commonplace.space.names import DIRECTORY, FILE, ITEM, key_of, path_of
from commonplace.space.space import Space
from commonplace.store import LIVE, Scan, States, Transaction

MAX_NAME = 255
MAX_DESCRIPTION = 1_024
MAX_PAIRS, MAX_PAIR_KEY, MAX_PAIR_VALUE = 16, 64, 512
MAX_CONTENT_BYTES = 102_400
MAX_PATH_BYTES, MAX_SEGMENTS = 1_024, 20
MAX_PAGE = 100

Operation: TypeAlias = Literal["created", "modified", "deleted"]
OPERATIONS: tuple[Operation, ...] = ("created", "modified", "deleted")

_STORES = "memory_store/"
_KEPT = "memory_version/"
_STORE_ID = re.compile(r"memstore_[0-9a-f]{32}")
_MEMORY_ID = re.compile(r"mem_[0-9a-f]{32}")
_VERSION_ID = re.compile(r"memver_([0-9a-f]{32})_([0-9]{1,15})")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LOSSES = ("deleted", "expired")
_COMMITS_AT_ONCE = 50
_CHANGES_AT_ONCE = 1_000
_ATTEMPTS = 5
_LAST = chr(0x10FFFF)


@dataclass(frozen=True, slots=True)
class MemoryStore:
    id: str
    name: str
    description: str
    metadata: Mapping[str, str]
    created_at: datetime
    updated_at: datetime
    archived_at: datetime | None


@dataclass(frozen=True, slots=True)
class Memory:
    id: str
    path: str
    content: str
    version: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class MemoryPrefix:
    """Stands for the memories below a path that a list does not show one by one. It ends with `/`."""

    path: str


@dataclass(frozen=True, slots=True)
class MemoryVersion:
    """A change of a memory. Of a redacted one, path and content are None; a deletion has no content."""

    id: str
    memory: str
    operation: Operation
    commit: int
    created_at: datetime
    actor: str | None
    path: str | None
    content: str | None
    redacted_at: datetime | None = None
    redacted_by: str | None = None


@dataclass(frozen=True, slots=True)
class VersionFilter:
    """Which versions to list. `actor` is the first word of the actor of a change: the name of its key."""

    memory: str | None = None
    operation: Operation | None = None
    actor: str | None = None
    since: datetime | str | None = None
    until: datetime | str | None = None


Stored: TypeAlias = Memory | MemoryPrefix


class MemoryStores:
    """The memory stores of a namespace. `open_store` gives the space of a store, under the rights of its caller."""

    def __init__(self, owner: Space, open_store: Callable[[str], Space]) -> None:
        self._owner = owner
        self._open = open_store

    # Stores

    def create(
        self, name: str, *, description: str | None = None, metadata: Mapping[str, str] | None = None
    ) -> MemoryStore:
        value: dict[str, JSON] = {
            "name": _check_name(name),
            "description": _check_description(description),
            "metadata": cast("JSON", _check_metadata(metadata or {})),
            "archived": False,
            "archived_at": None,
        }
        return _store_of(
            self._owner.items.put(_store_key(f"memstore_{uuid.uuid4().hex}"), value, fields=(), revision=0)
        )

    def get(self, id: str) -> MemoryStore:
        return _store_of(self._item(id))

    def update(
        self,
        id: str,
        *,
        name: str | None = None,
        description: str | None = None,
        metadata: Mapping[str, str | None] | None = None,
    ) -> MemoryStore:
        """Change what is given. A metadata value of None removes its key; keys that you leave out stay."""

        def changed(value: dict[str, Any]) -> dict[str, Any]:
            if value["archived"]:
                raise InvalidInput("the memory store is archived; it cannot be changed")
            pairs = {**value["metadata"], **(metadata or {})}
            return {
                **value,
                "name": value["name"] if name is None else _check_name(name),
                "description": value["description"] if description is None else _check_description(description),
                "metadata": _check_metadata({key: one for key, one in pairs.items() if one is not None}),
            }

        return self._change(id, changed)

    def archive(self, id: str) -> MemoryStore:
        """From now on its memories can be read and deleted, not written. This cannot be undone."""

        def changed(value: dict[str, Any]) -> dict[str, Any]:
            now = datetime.now(UTC).isoformat()
            return value if value["archived"] else {**value, "archived": True, "archived_at": now}

        return self._change(id, changed)

    def delete(self, id: str) -> None:
        """Delete a store with its memories. History keeps them until a purge."""
        item = self._item(id)
        space = self._open(id)
        space.files.delete("/")
        space.items.clear()
        self._owner.items.delete(item.key)

    def list(
        self,
        *,
        include_archived: bool = False,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        limit: int = 20,
        cursor: str | None = None,
    ) -> tuple[list[MemoryStore], str | None]:
        """Stores, the newest first, and the cursor of the next page. `since` and `until` include their times."""
        last = microseconds("until", until)
        narrowed = Filter(
            kinds=(ITEM,),
            key_prefix=_STORES,
            created_after=microseconds("since", since),
            created_before=None if last is None else last + 1,
            conditions=parse_conditions(None if include_archived else {"archived": False}),
        )
        scan = Scan(narrowed, order="created", descending=True, limit=_check_limit(limit), after=cursor)
        page = self._owner._handle.store.scan(self._owner.namespace, scan)
        return [_store_of(item) for item in map(item_of, page.entries) if _is_store(item)], page.cursor

    def open(self, id: str) -> Memories:
        """The memories of a store."""
        store = self.get(id)
        return Memories(store, self._open(id))

    def _item(self, id: str) -> Item:
        (found,) = self._owner.items.get_all([_store_key(id)]) if _STORE_ID.fullmatch(id) else (None,)
        if found is None or not _is_store(found):
            raise NotFound(f"there is no memory store {id!r:.100}; list the stores to see which exist")
        return found

    def _change(self, id: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> MemoryStore:
        for _ in range(_ATTEMPTS):
            item = self._item(id)
            value = cast("dict[str, Any]", item.value)
            new = change(dict(value))
            if new == value:
                self._owner._handle.rules.check("write")
                return _store_of(item)
            try:
                return _store_of(self._owner.items.put(item.key, new, fields=(), revision=item.revision))
            except Outdated:
                continue
        raise Conflict("the memory store is being changed by others; try again")


class Memories:
    """The memories of one store and their versions."""

    def __init__(self, store: MemoryStore, space: Space) -> None:
        self.store = store
        self._space = space
        self._handle = space._handle

    def create(self, path: str, content: str) -> Memory:
        """Write a new memory. A path that is taken raises AlreadyExists."""
        self._check_writable()
        path = _check_path(path)
        _check_content(content)
        self._space.files.write(path, content, overwrite=False)
        (entry,) = self._handle.store.get(self._space.namespace, FILE, [key_of(path)])
        if entry is None:  # another caller has deleted or moved it
            raise Conflict(f"{path} was written, and changed since; list the memories to find it")
        return _memory_of(entry)

    def get(self, id: str) -> Memory:
        return _memory_of(self._live(id))

    def update(
        self, id: str, *, content: str | None = None, path: str | None = None, sha256: str | None = None
    ) -> Memory:
        """Change the content, the path, or both. `sha256` is the hash of the content that you have seen.

        Another content raises Outdated, and nothing is changed.
        """
        self._check_writable()
        self._live(id)
        target = None if path is None else _check_path(path)
        if content is not None:
            _check_content(content)
        if target is not None:  # a move writes no draft, so nothing else screens the name
            self._space.files.prepared(target, "")
        seen = None if sha256 is None else _check_sha256(sha256)
        files = self._space.files

        def work(transaction: Transaction) -> Entry:
            entry = _found(transaction.find(FILE, id), id)
            _check_seen(entry, seen)
            if target is not None and target != path_of(entry.key):
                if any(transaction.get(kind, key_of(target)) for kind in (FILE, DIRECTORY)):
                    raise AlreadyExists(f"{target} exists already; choose another path")
                files.make_parents(transaction, target)
                entry = transaction.move(FILE, entry.key, key_of(target), files._new_heading(FILE, key_of(target)))
            if content is not None and content != entry.value:
                entry = transaction.put(
                    replace(files.prepared(path_of(entry.key), content), identity=id, expires_at=entry.expires_at)
                )
            return entry

        return _memory_of(self._handle.write("MemoryStores.update_memory", work)[0])

    def delete(self, id: str, *, sha256: str | None = None) -> None:
        """Delete a memory; its versions stay. Another content than the one with this hash raises Outdated."""
        seen = None if sha256 is None else _check_sha256(sha256)
        self._live(id)

        def work(transaction: Transaction) -> Entry:
            entry = _found(transaction.find(FILE, id), id)
            _check_seen(entry, seen)
            transaction.delete(FILE, entry.key)
            return entry

        self._handle.write("MemoryStores.delete_memory", work, "delete")

    def list(
        self, prefix: str = "/", *, depth: int = 0, limit: int = 20, cursor: str | None = None
    ) -> tuple[list[Stored], str | None]:
        """Memories below a prefix, by path. With a `depth`, those further down are one MemoryPrefix each."""
        above = "/" if prefix == "/" else _check_prefix(prefix)
        if check_number("depth", depth) < 0:
            raise InvalidInput(f"depth must be 0 or more, not {depth}")
        wanted = _check_limit(limit)
        found: list[Stored] = []
        after = None if cursor is None else _decoded(cursor)
        for entry in self._files(key_of(above), after):
            path = path_of(entry.key)
            below = path[len(above) :].split("/")
            if depth and len(below) > depth:
                rolled = MemoryPrefix(above + "/".join(below[:depth]) + "/")
                if found and found[-1] == rolled:
                    continue
                found.append(rolled)
            else:
                found.append(_memory_of(entry))
            if len(found) > wanted:
                last = found[wanted - 1]
                return found[:wanted], _encoded(key_of(last.path) + (_LAST if isinstance(last, MemoryPrefix) else ""))
        return found, None

    def _files(self, prefix: str, after: str | None) -> Iterator[Entry]:
        narrowed = Filter(kinds=(FILE,), key_prefix=prefix, key_after=after)
        cursor: str | None = None
        while True:
            page = self._handle.store.scan(self._space.namespace, Scan(narrowed, limit=MAX_PAGE, after=cursor))
            yield from page.entries
            cursor = page.cursor
            if cursor is None:
                return

    # Versions

    def version(self, id: str) -> MemoryVersion:
        kept = self._kept(id)
        if kept is not None:
            return kept
        parts = _VERSION_ID.fullmatch(id)
        found = next((one for one in self._versions_of(f"mem_{parts[1]}") if one.id == id), None) if parts else None
        if found is None:
            raise NotFound(f"there is no memory version {id!r:.100}; list the versions to see which exist")
        return found

    def versions(
        self, which: VersionFilter, *, limit: int = 20, cursor: str | None = None
    ) -> tuple[Sequence[MemoryVersion], str | None]:
        """Versions, the newest first. Deleted memories have theirs too."""
        if which.operation is not None and which.operation not in OPERATIONS:
            raise InvalidInput(f"operation must be one of {', '.join(OPERATIONS)}, not {which.operation!r:.100}")
        wanted = _check_limit(limit)
        since, until = microseconds("since", which.since), microseconds("until", which.until)
        start = None if cursor is None else _position(_decoded(cursor))
        if which.memory is not None:
            known = sorted(self._versions_of(which.memory), key=_place, reverse=True)
            source: Iterator[MemoryVersion] = iter(known)
        else:
            source = self._all_versions(LIVE if start is None else start[0])
        found: list[MemoryVersion] = []
        for one in source:
            at = microseconds("created_at", one.created_at) or 0
            if since is not None and at < since:
                break
            if (
                (start is not None and _place(one) >= start)
                or (until is not None and at > until)
                or (which.operation is not None and one.operation != which.operation)
                or (which.actor is not None and actor_name(one.actor) != which.actor)
            ):
                continue
            found.append(one)
            if len(found) > wanted:
                break
        if len(found) <= wanted:
            return found, None
        last = found[wanted - 1]
        return found[:wanted], _encoded(f"{last.commit}:{last.id}")

    def redact(self, id: str) -> MemoryVersion:
        """Erase the content and the path of a version for good. The current version of a memory is refused.

        It needs the right `admin`, as every erasure does.
        """
        self._handle.rules.check("admin")
        version = self.version(id)
        if version.operation == "deleted":
            return version if version.redacted_at else self._keep(_redacted(version, self._handle.actor))
        revision = int(id.rpartition("_")[2])
        states = self._states(version.memory)
        state = next((one for one in states if one.revision == revision), None)
        if state is None:
            return version
        live = self._handle.store.find(self._space.namespace, FILE, version.memory)
        if live is not None and live.revision == revision:
            raise InvalidInput("this version is the current content; update or delete the memory first")
        # First the trace, then the erasure: after a failure between them, the call can be repeated.
        loss = next((one for one in self._versions_of(version.memory) if one.operation == "deleted"), None)
        if loss is not None and loss.id == _version_id(version.memory, revision + 1) and self._kept(loss.id) is None:
            self._keep(loss)
        kept = version if version.redacted_at else self._keep(_redacted(version, self._handle.actor))
        self._space.purge(FILE, path_of(state.key), revision=revision)
        return kept

    def _keep(self, version: MemoryVersion) -> MemoryVersion:
        value: dict[str, JSON] = {
            "memory": version.memory,
            "operation": version.operation,
            "commit": version.commit,
            "created_at": version.created_at.isoformat(),
            "actor": version.actor,
            "path": version.path,
            "redacted_at": None if version.redacted_at is None else version.redacted_at.isoformat(),
            "redacted_by": version.redacted_by,
        }
        self._space.items.write_all([NewItem(_KEPT + version.id, value, history=False)])
        return version

    def _kept(self, id: str) -> MemoryVersion | None:
        (found,) = self._space.items.get_all([_KEPT + id]) if _VERSION_ID.fullmatch(id) else (None,)
        return None if found is None else _kept_version(found)

    def _all_kept(self, memory: str | None = None) -> Sequence[MemoryVersion]:
        found = (_kept_version(item) for item in _all_items(self._space.items, _KEPT))
        return [one for one in found if one is not None and memory in (None, one.memory)]

    def _states(self, memory: str) -> Sequence[Entry]:
        if not _MEMORY_ID.fullmatch(memory):
            return []
        which = States(kind=FILE, identity=memory)
        return self._handle.store.read(self._space.namespace, lambda reader: reader.states(which))

    def _versions_of(self, memory: str) -> Sequence[MemoryVersion]:
        """Every version of a memory, in no order."""
        states = {(state.key, state.revision): state for state in self._states(memory)}
        found = {one.id: one for one in self._all_kept(memory)}
        for key in {key for key, _ in states}:
            for line in self._handle.store.history(self._space.namespace, FILE, key):
                change = Change(line.commit, line.at, line.action, FILE, key, line.revision, line.actor)
                one = _version_of(change, lambda revision, key=key: states.get((key, revision)))  # type: ignore[misc]
                if one is not None:
                    found.setdefault(one.id, one)
        return [*found.values()]

    def _all_versions(self, first: int) -> Iterator[MemoryVersion]:
        """The versions of all memories, the newest first, from a commit down."""
        kept = sorted(self._all_kept(), key=_place)
        known = {one.id for one in kept}
        for commit, changes in self._commits(first):
            while kept and kept[-1].commit > commit:
                yield kept.pop()
            here = [kept.pop() for one in kept[::-1] if one.commit == commit]
            made = (_version_of(change, self._state_reader(change.key)) for change in changes)
            here += [one for one in made if one is not None and one.id not in known]
            yield from sorted(here, key=_place, reverse=True)
        yield from reversed(kept)

    def _state_reader(self, key: str) -> Callable[[int], Entry | None]:
        return lambda revision: self._handle.store.state(self._space.namespace, FILE, key, revision)

    def _commits(self, first: int) -> Iterator[tuple[int, Sequence[Change]]]:
        store, namespace = self._handle.store, self._space.namespace
        [(number, _)] = store.commits(namespace, [first], 1)
        while number:
            numbers = range(number, max(number - _COMMITS_AT_ONCE, 0), -1)
            pages = {
                commit: changes for commit, changes in store.commits(namespace, numbers, _CHANGES_AT_ONCE) if commit
            }
            for commit, changes in pages.items():
                seen = len(changes)
                while seen and not seen % _CHANGES_AT_ONCE:
                    [(_, more)] = store.commits(namespace, [commit], _CHANGES_AT_ONCE, skip=seen)
                    changes += more
                    seen = len(changes) if more else 0
                yield commit, [change for change in changes if change.kind == FILE]
            lowest = min((*numbers, *pages))  # a purge leaves gaps, so it may be below all numbers
            [(number, _)] = store.commits(namespace, [lowest - 1], 1) if lowest > 1 else [(0, [])]

    def _live(self, id: str) -> Entry:
        found = self._handle.store.find(self._space.namespace, FILE, id) if _MEMORY_ID.fullmatch(id) else None
        return _found(found, id)

    def _check_writable(self) -> None:
        if self.store.archived_at is not None:
            raise InvalidInput("the memory store is archived; its memories can be read and deleted only")


def sha256_of(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


def actor_name(actor: str | None) -> str | None:
    """The name of the key that a change was made with."""
    return None if actor is None else actor.partition(" ")[0]


# Forms


def _store_key(id: str) -> str:
    return _STORES + id


def _is_store(item: Item) -> bool:
    # The owner can write items of any form.
    value = item.value
    if not isinstance(value, Mapping) or not isinstance(value.get("metadata"), Mapping):
        return False
    try:
        _optional_time(value.get("archived_at"))
    except ValueError:
        return False
    return {"name", "description", "archived", "archived_at"} <= value.keys()


def _optional_time(text: object) -> datetime | None:
    """A time that was stored as a text; ValueError if it is none."""
    found = None if text is None else datetime.fromisoformat(str(text))
    if found is not None and found.tzinfo is None:
        raise ValueError("a time without a zone")
    return found


def _store_of(item: Item) -> MemoryStore:
    value = cast("Mapping[str, Any]", item.value)
    return MemoryStore(
        item.key.removeprefix(_STORES),
        str(value["name"]),
        str(value["description"]),
        {str(key): str(one) for key, one in dict(value["metadata"]).items()},
        item.created_at,
        item.updated_at,
        _optional_time(value["archived_at"]),
    )


def _memory_of(entry: Entry) -> Memory:
    memory = cast("str", entry.identity)
    return Memory(
        memory,
        path_of(entry.key),
        cast("str", entry.value),
        _version_id(memory, entry.revision),
        moment(entry.created_at),
        moment(entry.updated_at),
    )


def _version_id(memory: str, revision: int) -> str:
    return f"memver_{memory.removeprefix('mem_')}_{revision}"


def _version_of(change: Change, state_of: Callable[[int], Entry | None]) -> MemoryVersion | None:
    """The version that a change made; None for the first half of a move, and for what is not a memory."""
    if change.action == "moved_away":
        return None
    is_loss = change.action in _LOSSES
    state = state_of(change.revision - 1 if is_loss else change.revision)
    if state is None or state.identity is None or not _MEMORY_ID.fullmatch(state.identity):
        return None
    operation: Operation = "deleted" if is_loss else "created" if change.action == "created" else "modified"
    return MemoryVersion(
        _version_id(state.identity, change.revision),
        state.identity,
        operation,
        change.commit,
        moment(change.at),
        change.actor,
        path_of(change.key),
        None if is_loss else cast("str", state.value),
    )


def _redacted(version: MemoryVersion, actor: str | None) -> MemoryVersion:
    return replace(version, path=None, content=None, redacted_at=datetime.now(UTC), redacted_by=actor or "local")


def _kept_version(item: Item) -> MemoryVersion | None:
    value = cast("Mapping[str, Any]", item.value)
    try:
        return MemoryVersion(
            item.key.removeprefix(_KEPT),
            str(value["memory"]),
            value["operation"],
            int(value["commit"]),
            cast("datetime", _optional_time(str(value["created_at"]))),
            value["actor"],
            value["path"],
            None,
            _optional_time(value["redacted_at"]),
            value["redacted_by"],
        )
    except (KeyError, TypeError, ValueError):  # the owner can write items of any form
        return None


def _all_items(items: Items, prefix: str) -> Iterator[Item]:
    cursor: str | None = None
    while True:
        page = items.list(prefix, limit=1_000, cursor=cursor)
        yield from page.items
        cursor = page.cursor
        if cursor is None:
            return


def _place(version: MemoryVersion) -> tuple[int, str]:
    return version.commit, version.id


def _position(text: str) -> tuple[int, str]:
    parts = re.fullmatch("([0-9]{1,18}):(.+)", text)
    if parts is None:
        raise InvalidInput("page is not the next_page of an earlier answer; leave it out to begin again")
    return int(parts[1]), parts[2]


def _encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _decoded(cursor: str) -> str:
    try:
        return base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except (ValueError, UnicodeError):
        raise InvalidInput("page is not the next_page of an earlier answer; leave it out to begin again") from None


# Checks


def _found(entry: Entry | None, id: str) -> Entry:
    if entry is None:
        raise NotFound(f"there is no memory {id!r:.100}; list the memories to see which exist")
    return entry


def _check_seen(entry: Entry, seen: str | None) -> None:
    if seen is not None and sha256_of(cast("str", entry.value)) != seen:
        raise Outdated("the memory has another content than the one with this hash; read it again", entry.revision)


def _check_sha256(text: str) -> str:
    if not isinstance(text, str) or not _SHA256.fullmatch(text):
        raise InvalidInput("content_sha256 has 64 lowercase hexadecimal characters")
    return text


def _check_limit(limit: int) -> int:
    if not 1 <= check_number("limit", limit) <= MAX_PAGE:
        raise InvalidInput(f"limit must be between 1 and {MAX_PAGE}, not {limit}")
    return limit


def _check_name(name: object) -> str:
    text = check_line("name", name, max_bytes=4 * MAX_NAME)
    if not 1 <= len(text) <= MAX_NAME:
        raise InvalidInput(f"name has 1 to {MAX_NAME} characters, not {len(text)}")
    return text


def _check_description(description: object) -> str:
    text = "" if description is None else check_text("description", description, max_bytes=4 * MAX_DESCRIPTION)
    if len(text) > MAX_DESCRIPTION:
        raise InvalidInput(f"description has at most {MAX_DESCRIPTION:,} characters, not {len(text):,}")
    return text


def _check_metadata(pairs: Mapping[str, object]) -> dict[str, str]:
    if len(pairs) > MAX_PAIRS:
        raise InvalidInput(f"metadata has at most {MAX_PAIRS} pairs, not {len(pairs)}")
    for key, value in pairs.items():
        if not 1 <= len(key) <= MAX_PAIR_KEY:
            raise InvalidInput(f"a key of metadata has 1 to {MAX_PAIR_KEY} characters")
        if not isinstance(value, str) or len(value) > MAX_PAIR_VALUE:
            raise InvalidInput(f"a value of metadata is a text of at most {MAX_PAIR_VALUE} characters")
        check_text("metadata", key)
        check_text("metadata", value)
    return cast("dict[str, str]", dict(pairs))


def _check_content(content: object) -> str:
    text = check_text("content", content)
    if (size := len(text.encode())) > MAX_CONTENT_BYTES:
        raise TooLarge(f"content has {size:,} bytes; at most {MAX_CONTENT_BYTES:,} are allowed")
    return text


def _check_path(path: object) -> str:
    """A path as it is sent: it must be in normal form already, because a memory is found under exactly that path."""
    text = check_text("path", path, max_bytes=MAX_PATH_BYTES)
    segments = text.split("/")[1:]
    if not text.startswith("/") or not all(segments) or not 1 <= len(segments) <= MAX_SEGMENTS:
        raise InvalidPath(f"path begins with / and has 1 to {MAX_SEGMENTS} names that are not empty", text[:100])
    if unicodedata.normalize("NFC", text) != text:
        raise InvalidPath("path must be in Unicode Normalization Form C", text[:100])
    if "\\" in text or SEPARATOR in text:
        raise InvalidPath("path must not contain a backslash or a control character", text[:100])
    if bad := next((one for one in text if unicodedata.category(one) in ("Cc", "Cf", "Zl", "Zp")), None):
        raise InvalidPath(f"path must not contain the character U+{ord(bad):04X}", text[:100])
    return text


def _check_prefix(prefix: object) -> str:
    text = check_text("path_prefix", prefix, max_bytes=MAX_PATH_BYTES)
    if not text.endswith("/") or not text.startswith("/"):
        raise InvalidPath("path_prefix begins and ends with /", text[:100])
    return _check_path(text[:-1]) + "/"
