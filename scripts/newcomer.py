"""Follows the README as a newcomer does and times each step: `python scripts/newcomer.py [--with-tests] [--json FILE]`.

The checkout is copied into a temporary folder, with an empty home folder, empty caches and no variable of the caller
but those that name the package registry. Every command and example of README.md then runs there, in the order of the
page.
`make serve` is stopped once the service answers; `make test` takes minutes, so it only runs with `--with-tests`.
A step that fails, an example that prints something else, or a set-up that takes too much space ends the script
with 1.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import pty
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KEPT = re.compile(r"^(PIP|UV|NPM)_(?!CACHE)|_PROXY$|_CA_BUNDLE$|_CERT(_FILE|_DIR|S)?$|^PYENV_ROOT$", re.IGNORECASE)
"""The variables that say where packages come from. Everything else of the caller is left out."""

BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$|^[^`\n]*`(commonplace setup [\w-]+)`", re.MULTILINE | re.DOTALL)
SET_UP_MEGABYTES = 250
ABOUT = 1.05
"""The goal says `about`."""

SET_UP_SECONDS = 60
LIMIT_SECONDS = 1_800
SERVICE_SECONDS = 600
TAIL = 25


@dataclass(frozen=True)
class Step:
    """One thing that the README tells a newcomer to do, and what it should print if the page says so."""

    text: str
    language: str = "sh"
    printed: str | None = None


@dataclass(frozen=True)
class Done:
    step: str
    seconds: float
    is_right: bool
    note: str = ""


def steps_of(readme: str) -> Iterator[Step]:
    """The commands and examples in the order of the page."""
    found = list(BLOCK.finditer(readme))
    for number, block in enumerate(found):
        following = found[number + 1] if number + 1 < len(found) else None
        printed = following[2] if following is not None and following[1] == "text" else None
        if block[3]:
            yield Step(block[3])
        elif block[1] == "python":
            yield Step(block[2], "python", printed)
        elif block[1] == "sh":
            for line in block[2].splitlines():
                if command := re.sub(r"\s+#.*", "", line).strip():
                    yield Step(command)


class Newcomer:
    """A machine that has Python, make and nothing of ours."""

    def __init__(self, folder: Path) -> None:
        self._home, self._checkout = folder / "home", folder / "commonplace"
        self._home.mkdir()
        _copy_checkout(self._checkout)
        # The newcomer's own environment: pip refuses to install into the Python of many systems.
        self._python = folder / "environment"
        subprocess.run([_python(), "-m", "venv", str(self._python)], check=True)
        self._environment = {name: value for name, value in os.environ.items() if KEPT.search(name)}
        own = {str(Path(sys.prefix) / "bin"), str(self._home)}
        path = [place for place in os.environ["PATH"].split(os.pathsep) if place not in own]
        self._environment |= {
            "HOME": str(self._home),
            "PATH": os.pathsep.join([str(self._python / "bin"), *path]),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
        }

    def take(self, step: Step) -> Done:
        label = step.text if step.language == "sh" else "the example in Python"
        began = time.monotonic()
        if step.text == "make serve":
            is_right, note = self._serve()
        elif step.language == "python":
            is_right, note = self._run([str(self._python / "bin" / "python"), "-c", step.text], step.printed)
        else:
            is_right, note = self._run(["bash", "-c", step.text], step.printed)
        return Done(label, time.monotonic() - began, is_right, note)

    def _run(self, command: Sequence[str], printed: str | None) -> tuple[bool, str]:
        """Run it with a terminal as its input, on which the newcomer answers yes."""
        ours, theirs = pty.openpty()
        try:
            os.write(ours, b"y\n")
            done = subprocess.run(
                command,
                cwd=self._checkout,
                env=self._environment,
                stdin=theirs,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=LIMIT_SECONDS,
                check=False,
            )
        finally:
            os.close(ours)
            os.close(theirs)
        if done.returncode:
            return False, _tail(done.stdout)
        if printed is not None and done.stdout != printed:
            return False, f"it printed:\n{_tail(done.stdout)}"
        return True, _last(done.stdout)

    def _serve(self) -> tuple[bool, str]:
        """Start `make serve` on a machine without caches until the page answers, and stop it as Ctrl-C does."""
        shutil.rmtree(self._home / ".cache", ignore_errors=True)  # pip's and the model's, from the steps before
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        address = f"http://127.0.0.1:{port}/ui"
        with tempfile.TemporaryFile("w+") as log:
            process = subprocess.Popen(
                ["make", "serve"],
                cwd=self._checkout,
                env={**self._environment, "COMMONPLACE_PORT": str(port)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                answered = _answers(address, process)
            finally:
                _interrupt(process)
            log.seek(0)
            return answered, "the page answers" if answered else _tail(log.read())

    def sizes(self) -> dict[str, float]:
        """Megabytes of what was set up: what the program needs, without pip and the caches of pip."""
        models = sum(_megabytes(place) for place in self._home.glob(".cache/commonplace"))
        return {
            "by pip": _megabytes(self._python / "lib") - _pip_megabytes(self._python),
            "model": models,
            "by make": _megabytes(self._checkout / ".venv/lib") - _pip_megabytes(self._checkout / ".venv"),
        }


def main() -> int:
    options = _options()
    results: list[Done] = []
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}", flush=True)
    print(f"load average {os.getloadavg()[0]:.1f}; an empty home folder, empty caches\n", flush=True)
    with tempfile.TemporaryDirectory(prefix="commonplace-newcomer-", ignore_cleanup_errors=True) as folder:
        newcomer = Newcomer(Path(folder))
        for step in steps_of((ROOT / "README.md").read_text(encoding="utf-8")):
            if step.text == "make test" and not options.with_tests:
                print(f"{'–':>9}  make test  (left out; --with-tests runs it)", flush=True)
                continue
            done = newcomer.take(step)
            results.append(done)
            wrong = "" if done.is_right else "  FAILED"
            print(f"{done.seconds:7.1f} s  {done.step}{wrong}", flush=True)
            if done.note:
                print("\n".join(f"{'':11}{line}" for line in done.note.splitlines()), flush=True)
        sizes = newcomer.sizes()
    return _verdict(results, sizes, options.json)


def _verdict(results: Sequence[Done], sizes: dict[str, float], file: Path | None) -> int:
    print(f"\n{sum(done.seconds for done in results):7.1f} s  in all")
    for name, size in sizes.items():
        print(f"{size:7.1f} MB {name}")
    needed = sizes["by make"] + sizes["model"]
    is_light = needed <= ABOUT * SET_UP_MEGABYTES
    passed = "pass" if is_light else "MISS"
    print(f"{needed:7.1f} MB by make, with the model; goal: about {SET_UP_MEGABYTES} MB: {passed}")
    for done in results:
        if done.step == "make serve":
            passed = "pass" if done.seconds <= SET_UP_SECONDS else "MISS (the load of the machine is in it)"
            print(f"{done.seconds:7.1f} s  until `make serve` answers; goal ≤ {SET_UP_SECONDS} s: {passed}")
    if file is not None:
        file.write_text(json.dumps({"steps": [asdict(done) for done in results], "megabytes": sizes}, indent=1))
    return 0 if is_light and all(done.is_right for done in results) else 1


def _python() -> str:
    """The Python of this machine, not that of a virtual environment."""
    return str(Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}")


def _copy_checkout(target: Path) -> None:
    """What git has, and what is new here; nothing that git ignores."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def _answers(address: str, process: subprocess.Popen[bytes]) -> bool:
    until = time.monotonic() + SERVICE_SECONDS
    while time.monotonic() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    return False


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGINT, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, number)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                continue


def _megabytes(folder: Path) -> float:
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6


def _pip_megabytes(environment: Path) -> float:
    sites = environment.glob("lib/python*/site-packages")
    return sum(
        _megabytes(part) for site in sites for part in site.iterdir() if part.name.startswith(("pip", "setuptools"))
    )


def _tail(text: str) -> str:
    return "\n".join(text.splitlines()[-TAIL:])


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:100] if lines else ""


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--with-tests", action="store_true", help="also run `make test`")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
