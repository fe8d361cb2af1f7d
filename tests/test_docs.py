"""The documents are true: examples run as written, links lead somewhere, `make` targets exist.

Python blocks of a document run in order, in one folder, as one program; its `sh` blocks run through the real program,
likewise. A `text` block right after either is what it prints. Blocks that set up a machine (`make …`) are not run here.
"""

from __future__ import annotations

import json
import os
import pkgutil
import re
import runpy
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest
from platformdirs import user_cache_path

from commonplace.language.tokenizer import index_terms, query_terms

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import report  # noqa: E402

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ON_SERVERS = ("docs/internal/postgres.md",)
"""Their commands need servers of their own: tests/store/test_postgres_backups.py runs them."""

SETS_UP = re.compile(r"^(make|git|pip|python3?|\.venv/bin/|\.ci/run)\b", re.MULTILINE)


PORT = re.compile(r"\b(?:8901|18765)\b")
"""The ports of the examples. A test takes a free one in their place: the written one may be in use."""


@dataclass(frozen=True)
class Block:
    """An example of a document, with what it prints where the document says so."""

    document: Path
    line: int
    language: str
    code: str
    printed: str | None


def blocks_of(document: Path, language: str) -> Iterator[Block]:
    text = document.read_text(encoding="utf-8")
    found = list(BLOCK.finditer(text))
    for number, block in enumerate(found):
        if block[1] != language:
            continue
        following = found[number + 1] if number + 1 < len(found) else None
        says_output = following and following[1] == "text" and not text[block.end() : following.start()].strip()
        yield Block(
            document, text.count("\n", 0, block.start()) + 1, language, block[2], following[2] if says_output else None
        )


def on_a_free_port(code: str) -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return PORT.sub(str(free.getsockname()[1]), code)


def documents_with(language: str) -> list[Path]:
    return [document for document in DOCUMENTS if any(blocks_of(document, language))]


def name(document: Path) -> str:
    return document.relative_to(ROOT).as_posix()


@pytest.fixture
def a_users_machine(tmp_path, monkeypatch):
    """An empty folder to work in, a home and a book of its own, this machine's models, and the program on the path."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(user_cache_path()))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for variable in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "home").mkdir()
    for variable in ("EMBEDDINGS_MODEL", "EMBEDDINGS_POOLING", "EMBEDDINGS_NORMALIZE", "COMMONPLACE_NAMESPACE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("DATABASE_URL", str(tmp_path / "book.db"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.promise("documents-run-as-written")
@pytest.mark.parametrize("document", documents_with("python"), ids=name)
def test_python_examples_run_as_written(document, a_users_machine):
    program: dict[str, object] = {"__name__": "__main__"}
    for block in blocks_of(document, "python"):
        printed = StringIO()
        with redirect_stdout(printed):
            exec(compile("\n" * block.line + on_a_free_port(block.code), str(document), "exec"), program)
        if block.printed is not None:
            assert printed.getvalue() == block.printed, f"{name(document)}, line {block.line}"


@pytest.mark.promise("documents-run-as-written")
@pytest.mark.parametrize("document", [one for one in documents_with("sh") if name(one) not in ON_SERVERS], ids=name)
def test_shell_examples_run_as_written(document, a_users_machine):
    for block in blocks_of(document, "sh"):
        if SETS_UP.search(block.code):
            continue
        command = ["bash", "-euo", "pipefail", "-c", on_a_free_port(block.code)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        place = f"{name(document)}, line {block.line}"
        assert done.returncode == 0, f"{place}\n{done.stdout}{done.stderr}"
        if block.printed is not None:
            assert done.stdout.rstrip("\n") == block.printed.rstrip("\n"), place


REFERENCE = ROOT / "docs" / "reference"
GENERATED = ("cli", "rest", "mcp", "settings")
USER_DOCUMENTS = [
    document
    for document in sorted(ROOT.glob("docs/**/*.md"))
    if not document.is_relative_to(ROOT / "docs" / "internal")
    and not (document.parent == REFERENCE and document.stem in GENERATED)
]


def words(document: Path) -> int:
    """As `wc -w` counts them: code, and the lines between the cells of a table, included."""
    return len(document.read_text(encoding="utf-8").split())


def test_the_readme_is_short():
    assert words(ROOT / "README.md") <= 600
    before_the_first_example = (ROOT / "README.md").read_text(encoding="utf-8").partition("```python")[0]
    assert before_the_first_example.count("\n") <= 40


def test_the_documents_for_users_are_short():
    counted = {name(document): words(document) for document in USER_DOCUMENTS}
    assert {page: count for page, count in counted.items() if count > 1_500} == {}
    assert sum(counted.values()) < 15_000


def test_a_release_is_a_screen_of_the_changelog():
    releases = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert {one.splitlines()[0]: one.count("\n") for one in releases if one.count("\n") > 65} == {}


@pytest.mark.parametrize("page", GENERATED)
def test_the_reference_is_what_the_code_says(page):
    script = ROOT / "scripts" / "reference.py"
    made = subprocess.run([sys.executable, str(script), "--print", page], capture_output=True, text=True, check=True)
    assert (REFERENCE / f"{page}.md").read_text(encoding="utf-8") == made.stdout, "run `make reference`"


def test_the_site_leads_to_every_page():
    """The pages of docs/internal/ are reached from its index; all others are in the navigation."""
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    index = (ROOT / "docs" / "internal" / "index.md").read_text(encoding="utf-8")
    for document in ROOT.glob("docs/**/*.md"):
        path = document.relative_to(ROOT / "docs").as_posix()
        if not path.startswith("internal/report/"):
            is_in_site = re.search(rf"- (?:.+: )?{re.escape(path)}\n", site)
            assert is_in_site or f"({path.removeprefix('internal/')})" in index, path


def test_the_figures_of_the_readme_are_those_of_the_newest_report():
    """`make bench-report` writes them, from one run. `benchmarks/report.py --render` repairs a difference."""
    folder = ROOT / "docs" / "internal" / "report"
    figures = json.loads((folder / "figures.json").read_text(encoding="utf-8"))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme.partition(report.BEGIN)[2].partition(report.END)[0] == f"\n{report.readme_table(figures)}\n"
    assert (folder / "index.md").read_text(encoding="utf-8") == report.page(figures)
    for name, plot in report.plots(figures).items():
        assert (folder / name).read_text(encoding="utf-8") == plot


def code_in(text: str) -> Iterator[str]:
    """What is set as code: blocks without their comments, and spans in a line."""
    for block in BLOCK.finditer(text):
        yield re.sub(r"#.*", "", block[2])
    yield from re.findall(r"`([^`\n]+)`", BLOCK.sub("", text))


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_every_make_target_that_is_named_exists(document):
    targets = set(re.findall(r"^([a-z][a-z-]*):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        target
        for code in code_in(document.read_text(encoding="utf-8"))
        for target in re.findall(r"(?:^|[;&]\s*|\n\s*)make ([a-z][a-z-]*)", code)
    }
    assert named - targets == set()


def anchors(document: Path) -> set[str]:
    """The anchors that a renderer makes of the headings."""
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", document.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_every_link_leads_somewhere(document):
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", BLOCK.sub("", document.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
        elif document.is_relative_to(ROOT / "docs") and not target.is_relative_to(ROOT / "docs"):
            broken.append(link)  # the site does not have it
    assert broken == []


def test_every_decision_that_the_code_names_is_written():
    named = {
        number
        for module in (ROOT / "src").rglob("*.py")
        for number in re.findall(r"[Dd]ecision (\d{3})", module.read_text(encoding="utf-8"))
    }
    assert named <= {path.name[:3] for path in ROOT.glob("docs/internal/decisions/*.md")}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_module_that_a_document_names_exists(document):
    text = document.read_text(encoding="utf-8")
    names = set(re.findall(r"`(commonplace(?:\.\w+)+)", text)) - {"commonplace.toml"}
    assert {name for name in names if not resolves(name)} == set()
    files = set(re.findall(r"`([\w/]+\.py)`", text)) - YET_TO_WRITE
    assert {name for name in files if not any(present(name))} == set()
    constants = set(re.findall(r"`([a-z_]+)\.([A-Z_]+)`", text))
    assert {one for one in constants if not defines(*one)} == set()


PARTS = ("src", "tests", "scripts", "benchmarks", "examples", "training")
YET_TO_WRITE = {"tests/store/test_yours.py"}
"""What a document asks its reader to write."""


def present(name: str) -> Iterator[Path]:
    """The files of this name, which may have folders before it."""
    return (path for part in PARTS for path in ROOT.glob(f"{part}/**/*.py") if f"/{path}".endswith(f"/{name}"))


def defines(module: str, constant: str) -> bool:
    return any(re.search(rf"^{constant}\b", path.read_text("utf-8"), re.MULTILINE) for path in present(f"{module}.py"))


def resolves(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


DEMO = ROOT / "examples" / "demo.py"


@pytest.mark.promise("demo-finds-by-meaning")
def test_the_demo_runs_and_finds_by_meaning(a_users_machine):
    demo = subprocess.run([sys.executable, str(DEMO)], capture_output=True, text=True, timeout=120, check=False)
    assert (demo.returncode, demo.stderr) == (0, "")
    memories = runpy.run_path(str(DEMO))
    for question, path in memories["QUESTIONS"].items():
        text = {**memories["IN_PYTHON"], **memories["IN_THE_SHELL"]}[path]
        assert f"{question}\n     {path}: {text}" in demo.stdout
        assert not query_terms(question).keys() & index_terms(f"{path} {text}").keys()
