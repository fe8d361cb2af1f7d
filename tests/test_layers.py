"""Imports point down only. Each row says what a part of the package may import; a part without a row fails."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
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
    "api": FOUNDATION | {"store", "embedding", "engine", "space", "exchange", "book"},
    "remote": {"api"},
    "aio": FOUNDATION | {"store", "embedding", "engine", "space", "exchange", "book", "api"},
    "__init__": FOUNDATION | {"space", "book", "api", "aio"},
    "settings": FOUNDATION | {"redaction", "embedding", "book", "api"},
    "tools": FOUNDATION | {"store", "space", "book"},
    "agents": FOUNDATION | {"redaction", "store", "embedding", "engine", "space", "book", "aio", "settings", "tools"},
    "graph": FOUNDATION | {"endpoint", "space", "book", "tools"},
    "adapters": FOUNDATION | {"space", "book", "api", "tools"},
    "ambient": FOUNDATION | {"redaction", "embedding", "space", "book", "api", "settings", "tools"},
    "server": FOUNDATION
    | {"store", "space", "exchange", "book", "api", "__init__", "settings", "tools", "agents", "ambient"},
    "cli": FOUNDATION
    | {
        "store",
        "embedding",
        "engine",
        "space",
        "exchange",
        "book",
        "__init__",
        "settings",
        "tools",
        "ambient",
        "server",
    },
    "__main__": {"cli"},
}


SERVER_MAY_IMPORT = {
    "logs": set(),
    "usage": set(),
    "mcp": {"logs", "usage"},
    "access": {"mcp", "usage"},
    "requests": {"mcp", "access"},
    "rest": {"mcp", "access", "requests"},
    "mastra": {"access", "requests"},
    "page": {"mcp", "access", "requests", "usage"},
    "app": {"logs", "mcp", "access", "requests", "rest", "mastra", "page"},
    "public": {"mcp", "access", "app"},
}
"""The same inside of `server`, which is not one part: who calls is below how a request is answered, and so on."""

SERVER_PARTS = {
    "logs": ("logs",),
    "usage": ("usage",),
    "mcp": ("mcp",),
    "access": ("http.api_keys", "http.auth", "http.oauth", "http.origins", "http.service", "http.sessions"),
    "requests": (
        "http.auth_middleware",
        "http.error_answers",
        "http.feed",
        "http.observability",
        "http.request_limits",
        "http.worker_threads",
    ),
    "rest": (
        "http.answers",
        "http.html_pages",
        "http.rest",
        "http.transfer",
    ),
    "mastra": ("http.mastra_forms", "http.mastra_routes", "http.memory_store_routes"),
    "page": ("page",),
    "app": ("http.app", "http.mcp_http", "http.run"),
    "public": ("__init__", "http.__init__", "mcp.__init__"),
}


def modules() -> Iterator[tuple[str, Path]]:
    """Each module with the part of the package that it belongs to."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).parts[0].removesuffix(".py"), path


@cache
def imported_names(path: Path) -> tuple[str, ...]:
    """The full names that a module imports, wherever in it that happens."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import, line {node.lineno}: write the full name"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return tuple(found)


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


def server_modules() -> dict[str, Path]:
    """The modules below `server` by name, such as `http.auth`; a package is its `__init__`."""
    server = PACKAGE / "server"
    return {".".join(path.relative_to(server).with_suffix("").parts): path for path in sorted(server.rglob("*.py"))}


def server_part(module: str) -> str | None:
    """The part inside of `server` that a module belongs to, by the longest name that is it or contains it."""
    found = [
        (len(name), part)
        for part, names in SERVER_PARTS.items()
        for name in names
        if module == name or module.startswith(f"{name}.")
    ]
    return max(found)[1] if found else None


def server_imports(path: Path) -> set[str]:
    """The modules below `server` that a module imports."""
    known, imported = server_modules(), set()
    for name in imported_names(path):
        words = name.removeprefix("commonplace.server.").split(".") if name.startswith("commonplace.server.") else []
        for length in range(len(words), 0, -1):
            module = ".".join(words[:length])
            if module in known or f"{module}.__init__" in known:
                imported.add(module if module in known else f"{module}.__init__")
                break
    return imported


@pytest.mark.promise("layers-point-down")
def test_no_import_inside_of_the_server_points_up():
    below: set[str] = set()
    for part, allowed in SERVER_MAY_IMPORT.items():
        assert allowed <= below, f"{part} may import what comes after it"
        below.add(part)
    assert [module for module in server_modules() if server_part(module) is None] == []
    named = {name for names in SERVER_PARTS.values() for name in names}
    assert named <= {*server_modules(), "mcp", "page"}
    wrong = [
        f"server {module} ({part}) imports {other} ({server_part(other)})"
        for module, path in server_modules().items()
        for part in [server_part(module)]
        for other in sorted(server_imports(path))
        if part is None or server_part(other) not in {*SERVER_MAY_IMPORT[part], part}
    ]
    assert wrong == []


def test_no_modules_of_the_server_import_each_other_in_a_cycle():
    TopologicalSorter({module: server_imports(path) for module, path in server_modules().items()}).prepare()


def test_only_a_backend_knows_its_driver():
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for part, path in modules()
        for name in imported_names(path)
        if name.split(".")[0] in ("apsw", "sqlite3", "psycopg", "psycopg_pool", "pymongo", "bson")
        and part != "backends"
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
