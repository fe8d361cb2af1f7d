"""Finds out what an import was given: each file by its content, in the order of the formats, and what is left.

A file that cannot be read does not stop the others; it is named as a problem.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from commonplace.errors import InvalidInput, NotFound, Unavailable
from commonplace.exchange import chats, folders, markdown, memory_programs
from commonplace.exchange.sources import Bounds, Format, Item, Leaf, LeftOut, Problem, Tree, open_tree

OWN = "commonplace"
MASTRA = "mastra"


def _is_own(leaf: Leaf, tree: Tree) -> bool:
    lines = leaf.first
    return isinstance(lines, tuple) and lines[0].get("line") == "header" and lines[0].get("format") == OWN


def _is_mastra(leaf: Leaf, tree: Tree) -> bool:
    return {"mastra_threads", "mastra_messages"} <= leaf.columns.keys()


def _not_here(leaf: Leaf, tree: Tree) -> Iterator[Item]:
    yield Problem(leaf.path, "import this file alone; it cannot be imported as a part of a folder")


FORMATS: tuple[Format, ...] = (
    Format(OWN, "export of commonplace", _is_own, _not_here),
    Format(MASTRA, "Mastra memory", _is_mastra, _not_here),
    *markdown.FORMATS,
    *chats.FORMATS,
    *memory_programs.FORMATS,
    *folders.FORMATS,
)
"""Every format, in the order in which they are tried."""

NAMES = tuple(one.name for one in FORMATS)


@dataclass(frozen=True, slots=True)
class Part:
    """The files of a source that have one format."""

    format: Format
    leaves: tuple[Leaf, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """A source whose formats are known; `rest` are the files that are not imported, `damaged` those not readable."""

    tree: Tree
    parts: tuple[Part, ...]
    rest: tuple[Leaf, ...]
    damaged: tuple[Leaf, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(part.format.name for part in self.parts)

    @property
    def sentences(self) -> tuple[str, ...]:
        """What was found, in words."""
        return tuple(
            f"{part.format.title}: {_shown([leaf.path for leaf in part.leaves])}, "
            f"{sum(leaf.size for leaf in part.leaves):,} bytes"
            for part in self.parts
        )

    def aside(self) -> Iterator[Problem | LeftOut]:
        """What belongs to no format: files that cannot be read, and others that are left out."""
        yield from self.tree.problems
        for leaf in self.damaged:
            yield _damage(leaf)
        for leaf in self.rest:
            yield LeftOut(leaf.path, "it is not part of the memory")

    def items(self) -> Iterator[Item]:
        yield from self.aside()
        for part in self.parts:
            for leaf in part.leaves:
                try:
                    for item in part.format.read(leaf, self.tree):
                        yield _within(leaf, item)
                except (InvalidInput, NotFound, Unavailable, OSError) as error:
                    yield Problem(leaf.path, str(error))


def _damage(leaf: Leaf) -> Problem:
    return Problem(leaf.path, leaf.damage or "it cannot be read")


def _within(leaf: Leaf, item: Item) -> Item:
    if isinstance(item, (Problem, LeftOut)) and not item.name.startswith(leaf.path):
        return replace(item, name=f"{leaf.path}: {item.name}")
    return item


def _shown(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names):,} files"


def recognise(tree: Tree, wanted: str | None = None) -> Source:
    """Find out what a source is. `wanted` names the format instead."""
    if wanted is not None and wanted not in NAMES:
        raise InvalidInput(f"there is no format {wanted!r:.100}; choose one of {', '.join(NAMES)}")
    if not tree.is_folder and not any(leaf.head or leaf.columns or leaf.damage for leaf in tree.leaves):
        raise InvalidInput("the file is empty or not an export; give one that `commonplace export` or a program wrote")
    formats = [one for one in FORMATS if wanted in (None, one.name)]
    owner = next((one for one in formats if one.owns is not None and one.owns(tree)), None)
    found: dict[str, list[Leaf]] = {one.name: [] for one in formats}
    rest: list[Leaf] = []
    damaged: list[Leaf] = []
    for leaf in tree.leaves:
        candidates = [owner] if owner is not None else [one for one in formats if one.owns is None]
        match = next((one for one in candidates if one.matches(leaf, tree)), None)
        if match is None and wanted is not None and len(tree.leaves) == 1:
            match = formats[0]  # the caller knows better; what cannot be read is reported
        if leaf.damage is not None:
            damaged.append(leaf)
        else:
            (rest if match is None else found[match.name]).append(leaf)
    parts = tuple(Part(one, tuple(found[one.name])) for one in formats if found[one.name])
    plain = [part for part in parts if part.format.name == folders.TEXT]
    if plain and len(parts) > 1:  # texts next to an export, such as its own web page, are not memories
        parts = tuple(part for part in parts if part not in plain)
        rest += [leaf for part in plain for leaf in part.leaves]
    if not parts and damaged:
        problem = _damage(damaged[0])
        raise InvalidInput(f"nothing of {tree.name} can be read; {problem.name}: {problem.reason}")
    if not parts:
        what = f"no {wanted} memory" if wanted else "nothing that can be imported"
        raise InvalidInput(
            f"{tree.name} has {what}; `commonplace import --help` lists the formats, and --from names one"
        )
    return Source(tree, parts, tuple(rest), tuple(damaged))


@contextmanager
def open_source(
    path: str | Path, wanted: str | None = None, *, name: str | None = None, bounds: Bounds | None = None
) -> Iterator[Source]:
    """Open what was given, and recognise it. A `postgresql://` address is a LangGraph store."""
    if isinstance(path, str) and path.partition("://")[0] in ("postgres", "postgresql"):
        with memory_programs.open_database(path) as tree:
            yield recognise(tree, wanted)
        return
    with open_tree(Path(path), name=name, bounds=bounds) as tree:
        yield recognise(tree, wanted)
