"""The modules as a reader finds them: how many, with which names, and who uses each."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

import commonplace
from commonplace import store

PACKAGE = Path(commonplace.__file__).parent
MOST_MODULES = 220
"""Without the adapters: nobody needs to know those of the frameworks that they do not use."""

MOST_USED_ONCE = 30
SAME_ROLE = {"backends.sqlite", "backends.postgres", "backends.mongodb"}
"""Packages that play the same role, so that their modules may share names."""

SAME_NAME = {
    "aio.py": "the awaited forms of the package and of `agents`; users import both by this name",
    "store.py": "the abstract store and its implementations",
}

USED_ONCE: dict[str, str] = {
    "agents.memories": "what `commonplace.agents` offers",
    "ambient.events": "what clients with hooks send, apart from the process that receives it; tested alone",
    "api.transport": "connections and retries; client.py has the methods that users call",
    "backends.keywords": "posting lists in memory, for any backend; tested alone",
    "backends.mongodb.candidates": "the queries of a search, as in the sibling packages",
    "backends.mongodb.exchange": "import and export, as in the sibling packages",
    "backends.mongodb.maintenance": "what runs rarely, as in the sibling packages",
    "backends.postgres.candidates": "the SQL of a search, as in the sibling package",
    "backends.postgres.maintenance": "what runs rarely; store.py would pass 900 lines",
    "backends.sqlite.candidates": "the SQL of a search, as in the sibling package",
    "cli.parser": "the whole command line, which docs/reference/cli.md is made from too",
    "cli.config_edits": "settings files of other programs, changed as text; tested alone",
    "exchange.foreign_entries": "what one commit of an import holds; foreign.py would pass 700 lines",
    "exchange.move": "copies a book; only the command line does",
    "graph.loader": "what `commonplace.graph` offers; needs jsonschema",
    "language.question": "reads times and weights out of a question; pure, tested alone",
    "redaction.redactor": "what `commonplace.redaction` offers",
    "server.http.auth_middleware": "authentication of a request apart from who a caller is",
    "server.http.html_pages": "for people; everything else is for programs",
    "server.http.mastra_forms": "Mastra's JSON apart from Mastra's routes",
    "server.http.mastra_routes": "another product's routes",
    "server.http.memory_store_routes": "another product's routes",
    "server.http.mcp_http": "MCP within the service",
    "server.http.rest": "the routes of /v1",
    "server.http.transfer": "bodies that are not held in memory",
    "server.mcp.prompts": "texts that a model reads",
    "server.mcp.resources": "the addresses mem://",
    "server.page.page_middleware": "what every answer of the page needs",
    "space.memory_stores": "the rules of memory stores, apart from their routes",
    "tools.memory_folder": "a memory without a book, for Claude's tool",
}
"""Modules that one other module imports, and why each is a file of its own."""

ENTRY_POINTS = (
    *(
        "adapters.*",
        "ambient.background",
        "ambient.hook",
        "backends.mongodb.store",
        "backends.postgres.store",
        "backends.sqlite.store",
        "cli.*_commands",
    ),
    *("embedding.e5", "embedding.external", "embedding.onnx", "exchange.mastra", "server.http.run", "server.mcp.stdio"),
    *("exchange.chats", "exchange.folders", "exchange.memory_programs"),
    *("server.page.*_screen", "server.page.sign_in"),
)
"""Adapters, importers, screens, and what a user's word starts: a command, an address, a model's name."""


def modules() -> dict[str, Path]:
    """Dotted names below the package, with their files. A package goes by its own name."""
    return {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def imports(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """The modules that one imports, wherever in it that happens, for type checkers too.

    A package that loads its names on first use has a table `_LAZY` of them, with the modules as texts.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Assign | ast.AnnAssign) and "_LAZY" in ast.unparse(node).partition("=")[0]:
            names = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
        else:
            continue
        for name in names:
            below = name.removeprefix("commonplace.")
            if below != name:
                yield below if below in known else below.rpartition(".")[0]


@cache
def graph() -> dict[str, set[str]]:
    known = modules()
    return {name: {one for one in imports(path, known) if one in known} - {name} for name, path in known.items()}


DESIGN = (Path(__file__).parent.parent / "docs" / "internal" / "design.md").read_text(encoding="utf-8")


def steps() -> list[tuple[str, str]]:
    """The steps of a write and of a search in docs/internal/design.md: a module's file, and what in it is called."""
    return re.findall(r"^    ([\w/]+\.py) +([\w.]+)", DESIGN, re.MULTILINE)


def test_design_names_steps():
    assert len(steps()) > 20
    assert {"space/files.py", "backends/ledger.py", "engine/search.py"} <= {path for path, _ in steps()}


@pytest.mark.parametrize(("path", "called"), steps())
def test_a_step_that_design_names_exists(path: str, called: str):
    found: object = import_module(f"commonplace.{path.removesuffix('.py').replace('/', '.')}")
    for part in called.split("."):
        found = getattr(found, part)


def test_every_module_that_design_names_exists():
    house = DESIGN[DESIGN.index("## The house") : DESIGN.index("## A write")]
    files = {path.name for path in modules().values()}
    assert set(re.findall(r"\b\w+\.py\b", house)) - {"test_layers.py", "test_modules.py"} <= files
    parts = {name.partition(".")[0] for name in modules()} - {"__init__", "__main__", "commonplace"}
    assert {part for part in parts if not re.search(rf"\b{part}\b", house)} == set()


def is_package(path: Path) -> bool:
    return path.name in ("__init__.py", "__main__.py")


def test_there_are_no_more_modules_than_a_reader_can_know():
    assert len([name for name in modules() if not name.startswith("adapters.")]) <= MOST_MODULES


def test_no_modules_import_each_other_not_even_late():
    try:
        TopologicalSorter(graph()).prepare()
    except CycleError as error:
        raise AssertionError(" -> ".join(error.args[1])) from error


def test_a_name_means_one_module():
    packages = defaultdict(set)
    for name, path in modules().items():
        if not is_package(path):
            packages[path.name].add(name.rpartition(".")[0])
    repeated = {name for name, found in packages.items() if len(found) > 1 and not found <= SAME_ROLE}
    assert repeated == SAME_NAME.keys()


def test_a_module_is_not_named_for_what_it_is_doing():
    assert [name for name in modules() if name.rpartition(".")[2].endswith("ing") and name not in NOUNS] == []


NOUNS = {"api.encoding", "backends.ranking", "embedding"}


def test_modules_that_are_used_once_have_a_reason():
    users = defaultdict(set)
    for name, imported in graph().items():
        for one in imported:
            users[one].add(name)
    once = {
        name
        for name, path in modules().items()
        if len(users[name]) == 1 and not is_package(path) and not any(fnmatch(name, entry) for entry in ENTRY_POINTS)
    }
    assert once == USED_ONCE.keys()
    assert len(once) <= MOST_USED_ONCE


def test_the_waist_stays_narrow():
    waist = (store.Reader, store.Transaction, store.Store, store.Waker)
    methods = {method for part in waist for method in abstract_methods(part)}
    assert len(methods) <= 43


def abstract_methods(part: type) -> set[str]:
    """What a part itself declares, without what it inherits."""
    return {
        f"{part.__name__}.{name}" for name, value in vars(part).items() if getattr(value, "__isabstractmethod__", False)
    }
