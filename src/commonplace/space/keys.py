"""The names that people use for entries, and the keys that these are stored under."""

from __future__ import annotations

from commonplace.entry import SEPARATOR, Entry
from commonplace.space.paths import path_of

FILE = "file"
DIRECTORY = "directory"
RECORD = "record"
THREAD = "thread"
MESSAGE = "message"
WORKING = "working"
KINDS = (FILE, DIRECTORY, RECORD, THREAD, MESSAGE, WORKING)
SEARCHED_KINDS = (FILE, RECORD, MESSAGE)


def name_of_key(kind: str, key: str) -> str:
    """A file's path; any other key's parts joined by `/`."""
    return path_of(key) if kind in (FILE, DIRECTORY) else key.replace(SEPARATOR, "/")


def key_of_name(kind: str, name: str) -> str:
    """The key whose name this is; an id inside it may have a `/` of its own."""
    if kind == WORKING:
        return name.replace("/", SEPARATOR, 1)  # the scope, and whose it is
    if kind == MESSAGE:
        return SEPARATOR.join(name.rsplit("/", 2))  # the thread, its time, its number
    return name


def name_of_entry(entry: Entry) -> str:
    """A file's path, a record's or a thread's id, a message's own id."""
    if entry.kind == MESSAGE and entry.identity is not None:
        return entry.identity
    return name_of_key(entry.kind, entry.key)


def thread_of_entry(entry: Entry) -> str | None:
    """The thread that a message belongs to, or that this is."""
    if entry.kind == MESSAGE:
        return entry.key.partition(SEPARATOR)[0]
    return entry.key if entry.kind == THREAD else None
