"""What the package offers by name, and what it costs to import it."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

import commonplace

ROOT = Path(__file__).parent.parent


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


def test_type_checkers_are_told_that_types_are_inline():
    assert files("commonplace").joinpath("py.typed").is_file()
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "py.typed" in settings["tool"]["setuptools"]["package-data"]["commonplace"]


def test_the_version_is_stated_once_more_and_the_same():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert commonplace.__version__ == settings["project"]["version"]
