"""What the package offers by name, and what it costs to import it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

import commonplace
from commonplace.errors import install_command

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SOMEBODY_ELSES = re.compile(
    r"""
      \b(?:pip[0-9.]*|pipx|uv|poetry|pdm|conda)\ (?:install|add|download|run|tool|pip|uninstall)\b
          [^`;&|\n]*?[\ \t"']commonplace(?![\w-])
    | \buvx\b[^`;&|\n]*?[\ \t"']commonplace(?![\w-])
    | (?<![\w-])commonplace\\?\[(?:EXTRAS)\b
    | ^[\s"'-]*commonplace\s*(?:[=~!]=|[<>])
    """.replace("EXTRAS", "|".join(PROJECT["optional-dependencies"])),
    re.MULTILINE | re.VERBOSE,
)
"""A line that installs `commonplace`: on the index this is another program, which would run with our settings."""


def run_python(code: str) -> str:
    """What a fresh interpreter prints."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_all_names_are_sorted_and_resolve():
    assert list(commonplace.__all__) == sorted(set(commonplace.__all__))
    for name in commonplace.__all__:
        assert getattr(commonplace, name) is not None


def test_a_star_import_gives_exactly_the_public_names():
    given = run_python(
        "known = {}; exec('from commonplace import *', known);"
        "print(sorted(name for name in known if not name.startswith('_')))"
    )
    assert ast.literal_eval(given) == sorted(commonplace.__all__)


@pytest.mark.promise("errors-have-one-root")
def test_every_error_is_public_and_has_one_root():
    errors = [value for value in vars(commonplace.errors).values() if isinstance(value, type)]
    assert {error.__name__ for error in errors} <= set(commonplace.__all__)
    assert all(issubclass(error, commonplace.CommonplaceError) for error in errors)


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(commonplace, "no_such_name")


@pytest.mark.promise("import-is-light")
def test_importing_the_package_loads_no_heavy_dependency():
    heavy = ("numpy", "onnxruntime", "apsw", "platformdirs", "asyncio")
    loaded = run_python(f"import sys, commonplace; print([name for name in {heavy} if name in sys.modules])")
    assert ast.literal_eval(loaded) == []


def test_a_program_that_only_writes_a_file_loads_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    """Each of 64 programs that appended a few lines spent more time on imports than on its writes."""
    heavy = ("numpy", "onnxruntime", "platformdirs", "tempfile", "zipfile", "hashlib", "secrets", "uuid")
    loaded = run_python(
        f"""
import sys
before = set(sys.modules)
import commonplace
with commonplace.open({str(tmp_path / "book.db")!r}, background=False) as book:
    book.space("user", "ana").files.append("/log", "a line")
print([name for name in {heavy} if name in sys.modules.keys() - before])
"""
    )
    assert ast.literal_eval(loaded) == []


def test_type_checkers_are_told_that_types_are_inline():
    assert files("commonplace").joinpath("py.typed").is_file()
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "py.typed" in settings["tool"]["setuptools"]["package-data"]["commonplace"]


def test_the_version_is_stated_once_more_and_the_same():
    assert commonplace.__version__ == PROJECT["version"]


@pytest.mark.parametrize(
    "line",
    [
        "pip install commonplace",
        "python -m pip install --quiet 'commonplace[mcp]' && commonplace model pull",
        "uvx --from commonplace commonplace mcp",
        "pipx install commonplace",
        "uv tool install commonplace",
        'match=r"commonplace\\[server\\]"',
        "commonplace>=0.1",
    ],
)
def test_a_line_that_installs_the_other_program_is_recognized(line):
    assert SOMEBODY_ELSES.search(line)


def test_no_file_tells_anyone_to_install_the_other_program_of_our_name():
    """The docs, the manifests and the error texts said `pip install 'commonplace[…]'`, which on the index is a
    notes program of somebody else: it would have been installed, and run with the database's address."""
    assert PROJECT["name"] == "commonplace-memory"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    tracked = [ROOT / name for name in listed.split("\0") if name]
    texts = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8", errors="replace")
        for path in tracked
        if path.is_file() and path != Path(__file__)
    }
    assert {name: match[0] for name, text in texts.items() if (match := SOMEBODY_ELSES.search(text))} == {}


def test_a_missing_extra_names_a_command_that_works_for_the_python_that_runs(monkeypatch):
    """`pip install …` of an error text installed into another Python, or found no `pip` at all."""
    monkeypatch.setattr(sys, "executable", "/opt/my tools/bin/python")
    assert install_command("mcp") == "'/opt/my tools/bin/python' -m pip install 'commonplace-memory[mcp]'"
    monkeypatch.setattr("commonplace.errors.find_spec", lambda name: None)
    assert install_command("mcp") == "uv pip install --python '/opt/my tools/bin/python' 'commonplace-memory[mcp]'"
