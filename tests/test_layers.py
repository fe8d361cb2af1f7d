"""Imports point down only. Each row says what a part of the package may import; a part without a row fails."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import commonplace

PACKAGE = Path(commonplace.__file__).parent

FOUNDATION = {"checks", "entry", "errors", "filters", "language"}
MAY_IMPORT = {
    "errors": set(),
    "language": set(),
    "checks": {"errors"},
    "entry": {"checks", "language"},
    "filters": {"checks", "entry", "errors"},
    "redaction": FOUNDATION,
    "store": FOUNDATION,
    "endpoint": {"errors"},
    "embedding": {"endpoint", "errors"},
    "backends": FOUNDATION | {"store"},
    "engine": FOUNDATION | {"store", "embedding"},
    "space": FOUNDATION | {"store", "engine"},
    "exchange": FOUNDATION | {"store", "backends", "engine", "space"},
    "book": FOUNDATION | {"redaction", "store", "embedding", "backends", "engine", "space", "exchange"},
    "wire": FOUNDATION | {"space"},
    "remote": FOUNDATION | {"store", "embedding", "engine", "space", "exchange", "book", "wire"},
    "aio": FOUNDATION | {"store", "embedding", "engine", "space", "exchange", "book", "remote"},
    "__init__": FOUNDATION | {"space", "book", "remote", "aio"},
    "settings": FOUNDATION | {"redaction", "embedding", "book", "remote"},
    "tools": FOUNDATION | {"store", "space", "book"},
    "agents": FOUNDATION | {"redaction", "store", "embedding", "engine", "space", "book", "aio", "settings", "tools"},
    "graph": FOUNDATION | {"endpoint", "space", "book", "tools"},
    "adapters": FOUNDATION | {"space", "book", "tools"},
    "server": FOUNDATION | {"store", "space", "exchange", "book", "wire", "__init__", "settings", "tools", "agents"},
    "cli": FOUNDATION
    | {"store", "embedding", "engine", "space", "exchange", "book", "__init__", "settings", "tools", "server"},
}


def modules() -> Iterator[tuple[str, Path]]:
    """Each module with the part of the package that it belongs to."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).parts[0].removesuffix(".py"), path


def imported_names(path: Path) -> Iterator[str]:
    """The full names that a module imports, wherever in it that happens."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import, line {node.lineno}: write the full name"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def parts_imported(path: Path) -> set[str]:
    """The parts of this package that a module imports; `__init__` is what the package itself offers."""
    parts = set()
    for name in imported_names(path):
        package, *rest = name.split(".")
        if package == "commonplace":
            is_part = bool(rest) and ((PACKAGE / rest[0]).is_dir() or (PACKAGE / f"{rest[0]}.py").is_file())
            parts.add(rest[0] if is_part else "__init__")
    return parts


def test_every_part_has_its_place_in_the_order():
    assert {part for part, _ in modules()} <= MAY_IMPORT.keys()


def test_the_table_itself_points_one_way():
    below: set[str] = set()
    for part, allowed in MAY_IMPORT.items():
        assert allowed <= below, f"{part} is to import what stands after it"
        below.add(part)


@pytest.mark.promise("layers-point-down")
def test_no_import_points_up():
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {upper}"
        for part, path in modules()
        for upper in sorted(parts_imported(path) - MAY_IMPORT.get(part, set()) - {part})
    ]
    assert wrong == []


def test_only_a_backend_knows_its_driver():
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for part, path in modules()
        for name in imported_names(path)
        if name.split(".")[0] in ("apsw", "sqlite3", "psycopg", "psycopg_pool") and part != "backends"
    ]
    assert wrong == []


def test_an_import_that_points_up_would_be_seen(tmp_path):
    module = tmp_path / "module.py"
    module.write_text(
        "import commonplace\n"
        "import commonplace.space.files\n"
        "from commonplace import book, __version__\n"
        "def later():\n"
        "    from commonplace.engine.search import Searcher\n"
    )
    assert parts_imported(module) == {"__init__", "book", "engine", "space"}
