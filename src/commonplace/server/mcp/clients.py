"""The MCP clients that we know: where each keeps its settings, in which format, and what an entry of ours looks like.

`commonplace mcp --print-config` and the page's Connect screen both use this table. To add a client, add a row to
`CLIENTS` with the address of its documentation.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any, Literal
from urllib.parse import urlsplit

SERVER_NAME = "memory"
"""What our server is called in a client's settings."""

OTHER_NAME = "commonplace"
"""What it is called where another server has that name."""

YOUR_KEY = "YOUR_KEY"
"""Stands for a key: settings that we print have no secrets."""

Format = Literal["json", "jsonc", "toml", "yaml"]
System = Literal["macos", "linux", "windows"]


@dataclass(frozen=True, slots=True)
class StdioServer:
    """A server that the client starts itself."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HttpServer:
    """A server at an address. `key` is sent with every request; None if the service needs none."""

    url: str
    key: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.key is None else {"Authorization": f"Bearer {self.key}"}


Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Hooks:
    """Commands that a client runs at events: the JSON files with them, and the events that the memory acts at.

    Each file has an object `hooks` with a list for each event. `timeout` is in the client's own unit.
    """

    docs: str
    files: Mapping[System, str]
    project: str
    events: tuple[str, ...]
    timeout: int
    afterwards: str = "start a new session"

    def item(self, command: str) -> dict[str, Any]:
        return {"hooks": [{"type": "command", "command": command, "timeout": self.timeout}]}


@dataclass(frozen=True, slots=True)
class Client:
    """A client. `files` has the settings of a user on each system; `place` is where they are if not in a file."""

    name: str
    title: str
    docs: str
    files: Mapping[System, str]
    format: Format
    section: tuple[str, ...]
    """The keys from the top of the file down to the object that has the servers by name."""
    stdio: Callable[[StdioServer], Entry]
    http: Callable[[HttpServer], Entry] | None
    """None if the settings have no servers at an address; `commonplace mcp --remote` connects such a client."""
    command: Callable[[HttpServer], str] | None = None
    """A command that adds a server at an address, for a terminal."""
    place: str | None = None
    server_name: str = SERVER_NAME
    project: str | None = None
    """The settings of one project, below its folder."""
    hooks: Hooks | None = None
    inner_key: str | None = None
    """The key of a further object between the section and the servers, in some of the client's files."""
    other_suffix: str | None = None
    """Another suffix that the file may have."""

    def sections(self, tree: Any) -> tuple[tuple[str, ...], ...]:
        """Where the servers are in what a file says, the place for a new one first."""
        for key in self.section:
            tree = tree.get(key) if isinstance(tree, dict) else None
        inner = tree.get(self.inner_key) if isinstance(tree, dict) and self.inner_key is not None else None
        # A server may have that name too.
        if not isinstance(inner, dict) or isinstance(inner.get("type"), str) or isinstance(inner.get("enabled"), bool):
            return (self.section,)
        return (*self.section, str(self.inner_key)), self.section

    def entry(self, server: StdioServer | HttpServer) -> Entry:
        if isinstance(server, StdioServer):
            return self.stdio(server)
        assert self.http is not None, f"{self.title} has no servers at an address"
        return self.http(server)

    def settings(self, server: StdioServer | HttpServer, name: str | None = None) -> Entry:
        """The part of the settings that adds a server, under its usual name or another one."""
        found = self.entry(server)
        for key in (name or self.server_name, *reversed(self.section)):
            found = {key: found}
        return found

    def text(self, server: StdioServer | HttpServer, name: str | None = None) -> str:
        """The same as a text, in the format of the client's file."""
        return _WRITERS[self.format](self.settings(server, name))


def server_of(entry: Entry) -> StdioServer | HttpServer | None:
    """The server that an entry of any client names; None if it names none."""

    def first(*names: str) -> Any:
        return next((entry[name] for name in names if entry.get(name)), None)

    url, command = first("url", "httpUrl", "serverUrl", "uri"), first("command", "cmd")
    if isinstance(url, str):
        headers = first("headers", "http_headers")
        key = str(headers.get("Authorization", "") if isinstance(headers, dict) else "").removeprefix("Bearer ")
        return HttpServer(url, key or None)
    args, env = entry.get("args") or (), first("env", "envs", "environment")
    words = command if isinstance(command, list) else [command, *(args if isinstance(args, list) else ())]
    if not words or not all(isinstance(word, str) for word in words):
        return None
    variables = {str(name): str(value) for name, value in env.items()} if isinstance(env, dict) else {}
    return StdioServer(words[0], tuple(words[1:]), variables)


def is_ours(server: StdioServer | HttpServer) -> bool:
    """Whether a server is this program, or at an address such as ours."""
    if isinstance(server, HttpServer):
        try:
            return urlsplit(server.url).path.startswith("/mcp")
        except ValueError:  # an address such as http://[x
            return False
    words = (server.command, *server.args)
    return any(word == "commonplace.cli" or re.split(r"[/\\]", word)[-1] in _PROGRAMS for word in words)


_PROGRAMS = ("commonplace", "commonplace.exe")


def program() -> tuple[str, ...]:
    """The words that start this program. The path is absolute: desktop clients do not have your shell's PATH."""
    script = Path(sys.executable).with_name("commonplace")
    if script.is_file():
        return (str(script),)
    found = shutil.which("commonplace")
    return (str(Path(found).absolute()),) if found else (sys.executable, "-m", "commonplace")


# Formats


def _as_json(settings: Entry) -> str:
    return json.dumps(settings, ensure_ascii=False, indent=2) + "\n"


def _as_toml(settings: Entry, *above: str) -> str:
    """Tables with plain values first, then the tables in them. A JSON string is a TOML string."""
    plain = {key: value for key, value in settings.items() if not isinstance(value, dict)}
    text = "".join(f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in plain.items())
    if text and above:
        text = f"[{'.'.join(above)}]\n{text}"
    parts = [text] if text else []
    parts += [_as_toml(value, *above, key) for key, value in settings.items() if isinstance(value, dict)]
    return "\n".join(parts)


def _as_yaml(settings: Entry, depth: int = 0) -> str:
    """Objects as blocks; a value in JSON is also YAML."""
    lines = []
    for key, value in settings.items():
        written = "\n" + _as_yaml(value, depth + 1) if isinstance(value, dict) and value else f" {_in_json(value)}\n"
        lines.append(f"{'  ' * depth}{key}:{written}")
    return "".join(lines)


def _in_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


_WRITERS: Mapping[Format, Callable[[Entry], str]] = {
    "json": _as_json,
    "jsonc": _as_json,
    "toml": _as_toml,
    "yaml": _as_yaml,
}


# Shapes of an entry


def _with(entry: Entry, name: str, more: Mapping[str, str]) -> Entry:
    """An entry with a further object, unless that is empty."""
    return {**entry, name: dict(more)} if more else entry


def _command(server: StdioServer) -> Entry:
    return _with({"command": server.command, "args": list(server.args)}, "env", server.env)


def _typed_command(server: StdioServer) -> Entry:
    return {"type": "stdio", **_command(server)}


def _url(server: HttpServer) -> Entry:
    return _with({"url": server.url}, "headers", server.headers)


def _typed_url(server: HttpServer) -> Entry:
    return {"type": "http", **_url(server)}


def _in_goose(more: Entry) -> Entry:
    return {"name": _GOOSE_NAME, "description": "Long-term memory", "enabled": True, **more, "timeout": 300}


_GOOSE_NAME = "commonplace"
"""Goose has an extension of its own that is called memory."""


def _header_option(server: HttpServer) -> str:
    return "".join(f' --header "{name}: {value}"' for name, value in server.headers.items())


def claude_code_command(server: HttpServer) -> str:
    added = f"claude mcp add --transport http {SERVER_NAME} {quote(server.url)}"
    return f"{added} --scope user{_header_option(server)}"


def _gemini_command(server: HttpServer) -> str:
    words = f"gemini mcp add --transport http --scope user{_header_option(server)}"
    return f"{words} {SERVER_NAME} {quote(server.url)}"


def _everywhere(path: str, windows: str | None = None) -> Mapping[System, str]:
    return {
        "macos": path,
        "linux": path,
        "windows": windows or path.replace("~/", "%USERPROFILE%\\").replace("/", "\\"),
    }


CLIENTS: Mapping[str, Client] = {
    client.name: client
    for client in (
        Client(
            "claude-code",
            "Claude Code",
            "https://code.claude.com/docs/en/mcp",
            _everywhere("~/.claude.json"),
            "json",
            ("mcpServers",),
            _typed_command,
            _typed_url,
            project=".mcp.json",
            command=claude_code_command,
            hooks=Hooks(
                "https://code.claude.com/docs/en/hooks",
                _everywhere("~/.claude/settings.json"),
                # Not committed: it has a path of this computer.
                ".claude/settings.local.json",
                ("SessionStart", "UserPromptSubmit", "PreCompact", "Stop", "SessionEnd"),
                5,
            ),
        ),
        Client(
            "claude-desktop",
            "Claude Desktop",
            "https://modelcontextprotocol.io/docs/develop/connect-local-servers",
            {
                "macos": "~/Library/Application Support/Claude/claude_desktop_config.json",
                "linux": "~/.config/Claude/claude_desktop_config.json",
                "windows": "%APPDATA%\\Claude\\claude_desktop_config.json",
            },
            "json",
            ("mcpServers",),
            _command,
            None,
        ),
        Client(
            "cursor",
            "Cursor",
            "https://cursor.com/docs/mcp",
            _everywhere("~/.cursor/mcp.json"),
            "json",
            ("mcpServers",),
            _command,
            _url,
            project=".cursor/mcp.json",
        ),
        Client(
            "vscode",
            "VS Code",
            "https://code.visualstudio.com/docs/copilot/reference/mcp-configuration",
            {
                "macos": "~/Library/Application Support/Code/User/mcp.json",
                "linux": "~/.config/Code/User/mcp.json",
                "windows": "%APPDATA%\\Code\\User\\mcp.json",
            },
            "jsonc",
            ("servers",),
            _typed_command,
            _typed_url,
            project=".vscode/mcp.json",
        ),
        Client(
            "codex",
            "Codex CLI",
            "https://developers.openai.com/codex/mcp",
            _everywhere("~/.codex/config.toml"),
            "toml",
            ("mcp_servers",),
            _command,
            # Codex ignores `headers`.
            lambda server: _with({"url": server.url}, "http_headers", server.headers),
            project=".codex/config.toml",  # read in a project that you trust
            hooks=Hooks(
                "https://developers.openai.com/codex/hooks",
                _everywhere("~/.codex/hooks.json"),
                ".codex/hooks.json",
                ("SessionStart", "UserPromptSubmit", "PreCompact", "Stop"),
                5,
                "start a new session; Codex runs them once you trust them in /hooks",
            ),
        ),
        Client(
            "gemini-cli",
            "Gemini CLI",
            "https://geminicli.com/docs/tools/mcp-server/",
            _everywhere("~/.gemini/settings.json"),
            "json",
            ("mcpServers",),
            _command,
            # Gemini takes `url` for a server of the older protocol over SSE.
            lambda server: _with({"httpUrl": server.url}, "headers", server.headers),
            project=".gemini/settings.json",
            command=_gemini_command,
            hooks=Hooks(
                "https://geminicli.com/docs/hooks/reference",
                _everywhere("~/.gemini/settings.json"),
                ".gemini/settings.json",
                ("SessionStart", "BeforeAgent", "PreCompress", "AfterAgent", "SessionEnd"),
                5_000,  # milliseconds
            ),
        ),
        Client(
            "windsurf",
            "Windsurf",
            "https://docs.windsurf.com/windsurf/cascade/mcp",
            _everywhere("~/.codeium/windsurf/mcp_config.json"),
            "json",
            ("mcpServers",),
            _command,
            lambda server: _with({"serverUrl": server.url}, "headers", server.headers),
        ),
        Client(
            "zed",
            "Zed",
            "https://zed.dev/docs/ai/mcp",
            _everywhere("~/.config/zed/settings.json", "%APPDATA%\\Zed\\settings.json"),
            "jsonc",
            ("context_servers",),
            _command,
            _url,
            project=".zed/settings.json",
        ),
        Client(
            "cline",
            "Cline",
            "https://docs.cline.bot/mcp/adding-and-configuring-servers",
            _everywhere("~/.cline/data/settings/cline_mcp_settings.json"),
            "json",
            ("mcpServers",),
            _command,
            lambda server: {"type": "streamableHttp", **_url(server)},
            place="MCP Servers, Configure, Configure MCP Servers",
        ),
        Client(
            "opencode",
            "opencode",
            "https://opencode.ai/docs/mcp-servers/",
            _everywhere("~/.config/opencode/opencode.json"),
            "jsonc",
            # Version 1, which version 2 reads too: https://opencode.ai/docs/migrate-v1/. Where a file has `servers`
            # in `mcp`, as version 2 writes it, the entry goes there.
            ("mcp",),
            lambda server: _with(
                {"type": "local", "command": [server.command, *server.args]}, "environment", server.env
            ),
            lambda server: {"type": "remote", **_url(server)},
            project="opencode.json",
            inner_key="servers",
            other_suffix=".jsonc",
        ),
        Client(
            "goose",
            "Goose",
            "https://block.github.io/goose/docs/guides/config-files",
            _everywhere("~/.config/goose/config.yaml", "%APPDATA%\\Block\\goose\\config\\config.yaml"),
            "yaml",
            ("extensions",),
            lambda server: _in_goose(
                {"type": "stdio", "cmd": server.command, "args": list(server.args), "envs": dict(server.env)}
            ),
            lambda server: _in_goose({"type": "streamable_http", "uri": server.url, "headers": server.headers}),
            server_name=_GOOSE_NAME,
        ),
        Client(
            "jetbrains",
            "JetBrains AI Assistant",
            "https://www.jetbrains.com/help/ai-assistant/mcp.html",
            {},
            "json",
            ("mcpServers",),
            _command,
            _url,
            place="Settings, Tools, AI Assistant, Model Context Protocol (MCP), Add, As JSON",
        ),
    )
}
"""The known clients by name."""
