"""MCP Inspector's command line, a process for each request; `tools/list --strict` must find no error in our schemas.

It runs in the folder that the Inspector is installed in. What --strict only warns of goes to stderr, for the reader.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from install import node
from visit import address, read_task, tell

INSPECTOR = Path("node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js")
_WARNED = re.compile(r"^(Warning: .*)\n +(.*)$", re.MULTILINE)


def main() -> None:
    task = read_task()
    variables = [word for name, value in task.env.items() for word in ("-e", f"{name}={value}")]
    target = [task.url] if task.url else [task.command, *task.args, *variables]

    def ask(method: str, *words: str, may_fail: bool = False) -> Any:
        command = [
            str(node()),
            str(INSPECTOR.resolve()),
            "--cli",
            *target,
            "--method",
            method,
            *words,
            "--format",
            "json",
        ]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        if answer.returncode and not may_fail:
            sys.exit(f"{method} {' '.join(words)}: exit {answer.returncode}\n{answer.stdout}{answer.stderr}")
        if method == "tools/list":
            for what, where in _WARNED.findall(answer.stderr):
                print(what, where, file=sys.stderr)
        found = json.loads(answer.stdout)
        return found.get("result", found)

    def call(name: str, arguments: dict[str, Any], *, may_fail: bool = False) -> Any:
        return ask("tools/call", "--tool-name", name, "--tool-args-json", json.dumps(arguments), may_fail=may_fail)

    hello = ask("initialize")
    listed = ask("tools/list", "--strict")
    created = call("memory_create", task.create)
    found = call("memory_search", task.search)
    refused = call("memory_search", task.wrong_search, may_fail=True)
    resource = ask("resources/read", "--uri", address(found))
    prompts = ask("prompts/list")
    pairs = [f"{name}={value}" for name, value in task.prompt_arguments.items()]
    prompt = ask("prompts/get", "--prompt-name", task.prompt, "--prompt-args", *pairs)
    tell(
        protocol=hello.get("protocolVersion"),
        server=hello.get("serverInfo", {}).get("name"),
        tools=listed["tools"],
        created=created,
        found=found,
        refused=refused,
        resource=resource,
        prompts=prompts["prompts"],
        prompt=prompt,
    )


main()
