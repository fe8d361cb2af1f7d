"""The list of promises and the tests agree, in both directions."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

script = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent.parent / "scripts" / "promises.py")))


def test_every_promise_has_a_test_and_every_mark_names_a_promise():
    assert script.problems(script.read_promises(), script.read_marks()) == []


def test_each_kind_of_disagreement_is_found(tmp_path):
    (tmp_path / "test_some.py").write_text(
        "import pytest\n"
        "pytestmark = pytest.mark.promise('of-a-module')\n"
        "@pytest.mark.promise('of-a-class')\n"
        "class TestSome:\n"
        "    @pytest.mark.parametrize('x', [pytest.param(1, marks=pytest.mark.promise('of-a-parameter'))])\n"
        "    def test_one(self, x): ...\n"
    )
    (tmp_path / "list.toml").write_text(
        "".join(
            f"[[promise]]\nid = '{id}'\nsource = '{source}'\ntext = '{text}'\n"
            for source, id, text in (
                ("design", "of-a-module", "yes"),
                ("design", "of-a-class", " "),
                ("design", "untested", "no"),
                ("seed", "untested", "no"),
            )
        )
    )

    assert script.problems(script.read_promises(tmp_path / "list.toml"), script.read_marks(tmp_path)) == [
        "untested (design) has no test",
        "untested (seed) has no test",
        f"{tmp_path.name}/test_some.py::TestSome::test_one names an unknown promise: of-a-parameter",
        "untested is in the list twice",
        "of-a-class belongs before of-a-module",
        "of-a-class lacks a field",
    ]


def test_a_mark_says_how_to_run_its_test(tmp_path):
    (tmp_path / "test_some.py").write_text(
        "import pytest\n@pytest.mark.promise('a', 'b')\nasync def test_one(): ...\n",
    )

    place = f"{tmp_path.name}/test_some.py::test_one"
    assert script.read_marks(tmp_path) == [("a", place), ("b", place)]
