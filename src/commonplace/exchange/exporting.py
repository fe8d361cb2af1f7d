"""Writing an export: one snapshot of the book, line by line, with one state in memory at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from commonplace.checks import Namespace
from commonplace.exchange.lines import end_line, footer_line, header_line, namespace_line, state_line
from commonplace.store import NamespaceHead, Progress, State, Store

STATES_A_STEP = 200


@dataclass(frozen=True, slots=True)
class Exported:
    """How much was written; `unreadable` names what a damaged book could not give."""

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
    """Give every line to `write`, of the whole book or of some namespaces; all of one moment.

    `salvage` skips what is damaged, and reports it at the end.
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
    """Each line, with whether it opens a namespace; None for one that closes it."""
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
