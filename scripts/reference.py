"""Writes the pages of docs/reference/ that are made from the code: `make reference`; a test fails when one is stale.

`python scripts/reference.py` writes cli.md, rest.md, mcp.md and settings.md; `--print NAME` prints one of them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import cli_reference
from fastapi.routing import APIRoute

from commonplace.api.operations import markdown
from commonplace.api.problems import KINDS
from commonplace.server.http import memory_store_routes
from commonplace.server.mcp.profiles import PROFILES

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"
NOTE = "<!-- Made by `make reference`; a test fails when it is stale. -->"


def rest() -> Iterator[str]:
    yield f"{NOTE}\n\n# REST routes"
    yield (
        "[REST, by example](../guides/rest.md) shows how to use them. `/docs` of a service describes every parameter.\n"
        "*needs* is the action that a key must have; reading is always allowed within a key's reach."
    )
    yield "## Routes"
    yield "\n".join(markdown())
    yield "## Memory stores"
    yield (
        "The routes of `client.beta.memory_stores` of Anthropic's SDK, with its bodies, answers and errors. Deleting\n"
        "needs `delete`, erasing a version `admin`, and any other change `write`."
    )
    yield _table(("route", ""), _memory_stores())
    yield "## Problems"
    yield "Every error is an `application/problem+json`. Programs should decide by its `code`."
    yield _table(
        ("code", "status", "title", "other fields"),
        ((f"`{one.code}`", str(one.status), one.title, _codes(one.extra)) for one in KINDS),
    )


def _memory_stores() -> Iterator[tuple[str, str]]:
    for route in memory_store_routes.router.routes:
        if isinstance(route, APIRoute) and route.summary:
            for method in sorted(route.methods or ()):
                yield f"`{method} {route.path}`", route.summary[0].lower() + route.summary[1:]


def mcp() -> Iterator[str]:
    listed = {profile: _ask(profile, "tools/list")[0]["tools"] for profile in PROFILES}
    yield f"{NOTE}\n\n# MCP tools, resources and prompts"
    yield "[The MCP server](../guides/mcp.md) says how to connect a client. This page lists what it offers."
    yield "## Profiles"
    yield _table(
        ("`--profile`", "tools"),
        ((f"`{one}`", _codes(tool["name"] for tool in tools)) for one, tools in listed.items()),
    )
    yield "## Tools"
    for tool in listed["all"]:
        yield f"### `{tool['name']}`"
        yield _prose(tool["description"])
        yield _table(("argument", "type", ""), _arguments(tool["inputSchema"]))
    templates, prompts = _ask("all", "resources/templates/list", "prompts/list")
    yield "## Resources"
    yield _table(
        ("address", "type", ""),
        ((f"`{one['uriTemplate']}`", one["mimeType"], one["description"]) for one in templates["resourceTemplates"]),
    )
    yield "## Prompts"
    for prompt in prompts["prompts"]:
        yield f"### `{prompt['name']}`"
        yield _prose(prompt["description"])
        if prompt["arguments"]:
            yield _table(
                ("argument", ""),
                (
                    (f"`{one['name']}`{' (required)' if one.get('required') else ''}", _prose(one["description"]))
                    for one in prompt["arguments"]
                ),
            )


def _ask(profile: str, *methods: str) -> list[Any]:
    """What the real server answers."""
    calls: list[dict[str, Any]] = [{"method": "initialize", "params": {}}, *({"method": method} for method in methods)]
    lines = [json.dumps({"jsonrpc": "2.0", "id": number, **call}) for number, call in enumerate(calls)]
    command = [sys.executable, "-m", "commonplace", "mcp", "--db", ":memory:", "--profile", profile]
    said = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=True).stdout
    return [json.loads(line)["result"] for line in said.splitlines()][1:]


def _arguments(schema: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for name, one in schema["properties"].items():
        required = " (required)" if name in schema.get("required", ()) else ""
        yield f"`{name}`{required}", _type(one), _prose(one.get("description", ""))


def _type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(one) for one in schema["anyOf"]))
    kind = schema.get("type", "any JSON")
    kind = " or ".join(kind) if isinstance(kind, list) else str(kind)
    return f"array of {_type(schema['items'])}" if kind == "array" and "items" in schema else kind


def settings() -> Iterator[str]:
    yield f"{NOTE}\n\n# Settings"
    yield (
        "The command line, the service and the MCP server read these environment variables. An empty one counts as\n"
        "unset. The flags of [a command](cli.md) come first. In the library, pass arguments to `commonplace.open`."
    )
    yield _table(("variable", "what it sets"), cli_reference._environment())


def _prose(text: object) -> str:
    """A description outside of code: `<name>` in it is not an HTML element."""
    return str(text).replace("<", "&lt;")


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    escaped = ([cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in [heads, ["---"] * len(heads), *escaped])


def page(name: str) -> str:
    if name == "cli":
        return cli_reference.reference()
    made = {"rest": rest, "mcp": mcp, "settings": settings}[name]()
    return "\n\n".join(made) + "\n"


PAGES = ("cli", "rest", "mcp", "settings")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--print", choices=PAGES, dest="printed", help="print one page instead")
    printed = parser.parse_args().printed
    if printed:
        print(page(printed), end="")
        return 0
    for name in PAGES:
        (FOLDER / f"{name}.md").write_text(page(name), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
