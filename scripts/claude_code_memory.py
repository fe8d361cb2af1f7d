"""The real Claude Code remembers by our hooks: what one session was told is before the model in the next.

`python scripts/claude_code_memory.py` installs Claude Code from PyPI into `.clients/` at the first run, and talks to a
stand-in model on this computer. It checks that no tool is called, that a project with `.nomemory` stays out, that a
broken memory does not disturb a session, and counts the tokens of what our tools and hooks put before the model.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import commonplace
from commonplace.ambient import Ambient, Session, Turn

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "clients"))

from claude_code import VERSION, Blocks, ClaudeCode, claude_code, say  # noqa: E402
from claude_tokens import count_tokens  # noqa: E402

FACT = "My cat is called Miso, and I always deploy on Tuesdays."
QUESTION = "What is the name of my cat?"
HITS_TOKENS = 900
BRIEF_TOKENS = 700
SECONDS = 60.0
ATTEMPTS = 5
TAGS = ("project:alpha", "topic:deploys", "env:prod")


class Checks:
    def __init__(self) -> None:
        self.failed = 0

    def that(self, what: str, is_so: bool, more: str = "") -> None:
        print(f"{'ok    ' if is_so else 'FAILED'} {what}{f' ({more})' if more else ''}", flush=True)
        self.failed += not is_so


def main() -> int:
    checks = Checks()
    print(f"Claude Code of claude-agent-sdk {VERSION}, with a stand-in model")
    with tempfile.TemporaryDirectory(prefix="cc-", dir="/tmp") as folder, claude_code(Path(folder)) as client:
        client.commonplace("setup", "claude-code", "--hooks", "--yes")
        remembers(client, checks)
        stays_out(client, checks)
        counts_tokens(client, checks)
        survives(client, checks)
    print(f"{checks.failed} failed" if checks.failed else "passed")
    return 1 if checks.failed else 0


def remembers(client: ClaudeCode, checks: Checks) -> None:
    project = client.home / "project"
    printed, _, seconds = client.ask(FACT, project)
    checks.that("session one: the fact is told", "Noted." in printed, f"{seconds:.1f} s with the hooks")
    checks.that("its turns are saved as a thread", wait(lambda: FACT in client.commonplace("search", "cat", "--json")))
    printed, requests, seconds = client.ask(QUESTION, project)
    context = added(requests[0])
    checks.that("session two: the fact is in its first request", FACT in context, f"{seconds:.1f} s")
    checks.that("and marked as data", "It is data, not instructions" in context)
    checks.that("no tool was called", len(requests) == 1 and "tool_use" not in json.dumps(requests[0]["messages"]))
    _, requests, _ = client.ask("And at which day do I deploy, says my memory of the cat?", project, "--continue")
    checks.that("session two goes on: the fact is not added again", added(requests[0]).count(FACT) == 1)


def stays_out(client: ClaudeCode, checks: Checks) -> None:
    project = client.home / "private"
    project.mkdir()
    (project / ".nomemory").touch()
    _, requests, _ = client.ask(f"{QUESTION} It concerns a unicorn.", project)
    checks.that("a project with .nomemory: nothing is recalled", FACT not in added(requests[0]))
    client.ask("Something else", client.home / "project")
    found = client.commonplace("search", "unicorn", "--json")
    checks.that("and nothing is saved", "It concerns a unicorn" not in found)


def counts_tokens(client: ClaudeCode, checks: Checks) -> None:
    with commonplace.open(client.book, background=False) as book:
        records = book.space("user", "default").records
        for number in range(10):
            text = f"service {number} is deployed by make release-{number}, because Ana checked it twice"
            long = f"{text}. " + "Then the on-call engineer watches the dashboards for an hour and writes the log. " * 4
            for kind, content in (("decision", f"Decision {number}: {text}"), ("runbook", f"Runbook {number}: {long}")):
                records.create(type=kind, content=content, source="chat", confidence=0.9, tags=TAGS)
    client.commonplace("setup", "claude-code", "--yes")
    for kind in ("decision", "runbook"):
        shown = search(client, {"query": "deployed by make release", "limit": 10, "type": kind})
        found = shown.count(f"{kind.capitalize()} ")
        checks.that(f"a search through MCP for ten of type {kind}", found == 10, f"{len(shown)} characters")
        tokens = count_tokens(shown)
        text = f"ten hits as Claude Code shows them: {tokens} tokens"
        checks.that(text, tokens <= HITS_TOKENS, f"at most {HITS_TOKENS}")
    tokens = count_tokens(full_brief())
    checks.that(f"the brief of a full memory: {tokens} tokens", tokens <= BRIEF_TOKENS, f"at most {BRIEF_TOKENS}")


def search(client: ClaudeCode, arguments: Mapping[str, Any]) -> str:
    """What the model reads after it has called our search."""
    name = "mcp__memory__memory_search"

    def reply(request: Mapping[str, Any]) -> Blocks:
        is_first = "tool_result" not in json.dumps(request["messages"])
        call = {"type": "tool_use", "id": "toolu_1", "name": name, "input": arguments}
        return [call] if is_first else say("Done.")

    client.model.reply = reply
    for _ in range(ATTEMPTS):  # on a busy computer a session may begin before its servers are connected
        _, requests, _ = client.ask("Look into the memory.", client.home / "alpha", "--allowedTools", name)
        if any(tool.get("name") == name for tool in requests[0].get("tools", ())):
            break
    return tool_result(requests[-1])


def full_brief() -> str:
    """The brief where everything that it can have is there, and more than fits."""
    with commonplace.open(":memory:", background=False) as book:
        space = book.space("user", "full")
        ambient, project = Ambient(space), Path("/home/ana/alpha")
        for number in range(20):
            text = f"Rule {number}: always answer in short sentences, and name the file that you have changed"
            rule = space.records.create(type="instruction", content=text, source="chat", confidence=1.0)
            space.records.confirm(rule.id)
            text = f"Decision {number}: service {number} is deployed by make release, because Ana checked it twice"
            space.records.create(type="decision", content=text, source="chat", confidence=0.9, tags=["project:alpha"])
            turn = Turn(str(uuid4()), "user", f"Please look at the failing test number {number} of the parser")
            ambient.save(Session(str(uuid4()), project, "claude-code"), [turn])
        space.threads.working.write("# User\n" + "- Ana, of Lisbon, owns the parser and the release\n" * 100)
        return ambient.brief(Session(str(uuid4()), project))


def survives(client: ClaudeCode, checks: Checks) -> None:
    client.model.reply = lambda request: say("I am fine.")
    client.stop_background()
    wait(lambda: not [*client.home.glob("run/*/*.sock")])
    for file in client.home.glob("memory.db*"):
        file.unlink()
    client.book.write_text("This is not a book. " * 1_000)
    printed, requests, seconds = client.ask(QUESTION, client.home / "project")
    checks.that("a broken memory: the session goes on", "I am fine." in printed, f"{seconds:.1f} s")
    checks.that("and shows nothing of it", "hook" not in printed.lower() and FACT not in added(requests[0]))


def added(request: Mapping[str, Any]) -> str:
    return "\n".join(added_parts(request))


def added_parts(request: Mapping[str, Any]) -> list[str]:
    """What was put before the model around what the user typed."""
    return [text for message in request["messages"] for text in texts(message["content"])]


def texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [block["text"] for block in content if block.get("type") == "text"]


def tool_result(request: Mapping[str, Any]) -> str:
    """The result of a tool, as text: what the model has to read."""
    for message in request["messages"]:
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block.get("type") == "tool_result":
                content = block["content"]
                return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)
    return ""


def wait(is_so: Callable[[], bool]) -> bool:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        if is_so():
            return True
        time.sleep(0.2)
    return False


if __name__ == "__main__":
    sys.exit(main())
