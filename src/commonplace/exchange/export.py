"""Writes an export: one snapshot of the book as JSON lines, with one state in memory at a time.

docs/internal/export-format.md describes the lines. The same states always give the same bytes; no field depends on
when or where an export was made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from commonplace.checks import JSON, Namespace
from commonplace.language.edits import edit_between
from commonplace.space.names import DIRECTORY, FILE, path_of
from commonplace.store import NamespaceHead, Progress, State, Store

VERSION = 1
STATES_A_STEP = 200
_PATHS = (FILE, DIRECTORY)


@dataclass(frozen=True, slots=True)
class Exported:
    """How much was written; `unreadable` lists what could not be read from a damaged book."""

    namespaces: int
    states: int
    unreadable: tuple[str, ...] = ()


def export_book(
    store: Store,
    write: Callable[[bytes], object],
    *,
    namespaces: Sequence[Namespace] | None = None,
    progress: Progress | None = None,
    salvage: bool = False,
) -> Exported:
    """Pass every line of the whole book, or of some namespaces, to `write`; all from one snapshot.

    `salvage` skips what is damaged and reports it at the end.
    """
    namespace_count = state_count = 0
    unreadable: list[str] = []
    total = _count(store, namespaces) if progress is not None and not salvage else None
    write(header_line())
    items = store.salvage(unreadable.append, namespaces) if salvage else store.export(namespaces)
    for line, is_head in _lines(items):
        write(line)
        if is_head is None:
            continue
        namespace_count += is_head
        state_count += not is_head
        if progress is not None and state_count % STATES_A_STEP == 0:
            progress(state_count, total, "states")
    write(footer_line(namespace_count, state_count))
    if progress is not None:
        progress(state_count, state_count, "states")
    return Exported(namespace_count, state_count, tuple(unreadable))


def _lines(items: Iterable[NamespaceHead | State]) -> Iterator[tuple[bytes, bool | None]]:
    """Yield each line and whether it opens a namespace; None for the line that closes it."""
    head: NamespaceHead | None = None
    newer: State | None = None
    number = count = 0
    for item in items:
        if isinstance(item, NamespaceHead):
            if head is not None:
                yield end_line(head.namespace, count), None
            head, newer, number, count = item, None, 0, 0
            yield namespace_line(item), True
            continue
        if newer is None or newer.entry.id != item.entry.id:
            newer, number = None, number + 1
        yield state_line(item, number, newer), False
        newer, count = item, count + 1
    if head is not None:
        yield end_line(head.namespace, count), None


def _count(store: Store, namespaces: Sequence[Namespace] | None) -> int:
    if namespaces is None:
        book = store.stats()
        return sum(book.entries.values()) + book.former_states
    found = [store.namespace_stats(namespace) for namespace in namespaces]
    return sum(sum(one.entries.values()) + one.former_states for one in found)


# Lines


def write_line(fields: Mapping[str, JSON]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def header_line() -> bytes:
    return write_line({"line": "header", "format": "commonplace", "version": VERSION})


def namespace_line(head: NamespaceHead) -> bytes:
    return write_line(
        {
            "line": "namespace",
            "namespace": "/".join(head.namespace),
            "commit": head.commit,
            "commit_at": head.commit_time,
            "history_floor": head.history_floor,
        }
    )


def end_line(namespace: Namespace, states: int) -> bytes:
    return write_line({"line": "end", "namespace": "/".join(namespace), "states": states})


def footer_line(namespaces: int, states: int) -> bytes:
    return write_line({"line": "footer", "namespaces": namespaces, "states": states})


def state_line(state: State, number: int, newer: State | None) -> bytes:
    """Return the line of a state. A former text is written as the edit from the newer state's text."""
    entry, ended = state.entry, state.ended
    fields: dict[str, JSON] = {"line": "state", "entry": number, "kind": entry.kind}
    if entry.kind in _PATHS and "/" not in entry.key:
        fields["path"] = path_of(entry.key)
    else:
        fields["key"] = entry.key
    fields |= {"revision": entry.revision, "action": state.begun_by, "commit": entry.commit, "at": state.valid_from}
    fields |= {"created_at": entry.created_at, "updated_at": entry.updated_at}
    for name, optional in (
        ("expires_at", entry.expires_at),
        ("actor", entry.actor),
        ("identity", entry.identity),
        ("heading", entry.heading),
    ):
        if optional is not None:
            fields[name] = optional
    fields["attributes"] = entry.attributes
    edit = None
    if newer is not None and isinstance(entry.value, str) and isinstance(newer.entry.value, str):
        edit = edit_between(newer.entry.value, entry.value)
    if edit is None:
        fields["value"] = entry.value
    else:
        fields["edit"] = edit
    if not isinstance(entry.value, str) or entry.text != entry.value:
        fields["text"] = entry.text
    if ended is not None:
        ending: dict[str, JSON] = {"action": ended.action, "commit": ended.commit, "at": ended.at}
        if ended.actor is not None:
            ending["actor"] = ended.actor
        fields["ended"] = ending
    return write_line(fields)
