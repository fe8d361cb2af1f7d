"""Runs the tests in a package's source distribution, unmodified, and gives the reason for each failure.

The distribution is fetched from the index; nothing of it is kept. A suite names the tests that cannot pass, each with
its reason. It fails if another test fails, and also if one of those passes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import pytest


class Made:
    """How many objects of the swapped class were made, so that a test of something else does not count as ours."""

    count = 0


class _Account:
    """What became of each test, as a plugin of pytest."""

    def __init__(self) -> None:
        self.passed: dict[str, bool] = {}
        self.ours: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        made = Made.count
        result = yield
        if Made.count > made:
            self.ours.add(_name(item.nodeid))
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.skipped:
            name = _name(report.nodeid)
            self.passed[name] = self.passed.get(name, True) and report.passed


def run(package: str, tests: Sequence[str], swap: Callable[[], object], reasons: Mapping[str, Sequence[str]]) -> bool:
    """Run files or folders of a source distribution; `reasons` has the tests that fail, by the reason why."""
    account = _Account()
    with tempfile.TemporaryDirectory() as folder:
        root = _fetched(package, Path(folder))
        swap()
        quiet = ["-q", "--no-header", "--tb", os.environ.get("TRACEBACKS", "no")]
        options = [
            "-p",
            "no:cacheprovider",
            "-o",
            "addopts=",
            "--rootdir",
            str(root),
            "-c",
            str(root / "pyproject.toml"),
        ]
        code = pytest.main([*quiet, *options, *(str(root / one) for one in tests)], plugins=[account])
    return _report(f"{package} {version(package)}", account, reasons) and code in (
        pytest.ExitCode.OK,
        pytest.ExitCode.TESTS_FAILED,
    )


def _fetched(package: str, folder: Path) -> Path:
    wanted = ["--no-deps", "--no-binary", package, f"{package}=={version(package)}", "--dest", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", *wanted], check=True)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as sources:
        sources.extractall(folder, filter="data")
    (root,) = (path for path in folder.iterdir() if path.is_dir())
    return root


def _report(title: str, account: _Account, reasons: Mapping[str, Sequence[str]]) -> bool:
    why = {test: reason for reason, tests in reasons.items() for test in tests}
    failed = sorted(name for name, passed in account.passed.items() if not passed)
    print(
        f"{title}: {len(account.passed)} tests, {len(account.passed) - len(failed)} passed, {len(failed)} failed; "
        f"{len(account.ours)} of them use our class, {len(account.ours.difference(failed))} of these passed"
    )
    for name in failed:
        print(f"   failed: {name}: {_reason(why, name) or 'NO REASON IS LISTED'}")
    known = [name for name in account.passed if _reason(why, name)]
    faults = [
        *(f"fails, and no reason is listed: {name}" for name in failed if name not in known),
        *(f"is listed as failing, but passes: {name}" for name in known if name not in failed),
        *(
            f"is listed as failing, but does not exist: {test}"
            for test in why
            if not any(_stands_for(test, name) for name in known)
        ),
    ]
    if not account.ours:
        faults.append("no test used our class")
    for fault in faults:
        print(f"   FAULT: {fault}")
    return not faults


def _name(nodeid: str) -> str:
    return nodeid.rpartition("/")[2]


def _reason(why: Mapping[str, str], name: str) -> str | None:
    return next((reason for test, reason in why.items() if _stands_for(test, name)), None)


def _stands_for(test: str, name: str) -> bool:
    """A function stands for all its cases, and the beginning of a case, such as `test_a[sqlite`, for those with it."""
    return name == test or name.startswith(test if "[" in test else f"{test}[")
