"""`commonplace mcp` as a command: the settings to paste, and what it says when it cannot start."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from commonplace.cli import main
from commonplace.errors import ConfigurationError
from commonplace.server import mcp as server

from .conftest import SECONDS, server_environment


@pytest.mark.promise("mcp-print-config")
@pytest.mark.parametrize("client", ["claude-code", "claude-desktop", "cursor", "vscode"])
def test_the_printed_settings_start_a_server(client, tmp_path, capsys):
    book = tmp_path / "other.db"
    assert (
        main(["mcp", "--print-config", client, "--db", str(book), "--namespace", "user/ana", "--profile", "all"]) == 0
    )
    printed = json.loads(capsys.readouterr().out)
    (group,) = printed
    assert group == ("servers" if client == "vscode" else "mcpServers")
    started = printed[group]["memory"]
    assert Path(started["command"]).is_absolute()
    assert started.get("type") == ("stdio" if client in ("claude-code", "vscode") else None)
    asked = '{"jsonrpc":"2.0","id":1,"method":"initialize"}\n'
    asked += '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"memory_list"}}\n'
    done = subprocess.run(
        [started["command"], *started["args"]],
        input=asked,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env=server_environment(tmp_path),
        check=True,
    )
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [1, 2]
    assert book.exists()


@pytest.mark.promise("mcp-print-config")
def test_the_printed_settings_have_no_more_than_was_given(capsys):
    assert main(["mcp", "--print-config", "cursor"]) == 0
    assert json.loads(capsys.readouterr().out)["mcpServers"]["memory"]["args"][-1] == "mcp"


@pytest.mark.promise("mcp-missing-package")
def test_a_missing_package_names_the_command_that_installs_it(monkeypatch, capsys):
    monkeypatch.setattr(server, "find_spec", lambda name: None)
    assert main(["mcp"]) == 6
    assert "pip install 'commonplace[mcp]'" in capsys.readouterr().err
    with pytest.raises(ConfigurationError, match=r"pip install 'commonplace\[mcp\]'"):
        server.http_app(None, ())  # type: ignore[arg-type]


def test_an_unknown_profile_is_a_wrong_call(capsys):
    assert main(["mcp", "--profile", "none"]) == 2
    assert "--profile" in capsys.readouterr().err


@pytest.mark.promise("mcp-settings")
def test_the_variables_of_the_protocol_and_the_log_are_honoured(start, tmp_path):
    log = tmp_path / "debug.log"
    server = start(MCP_PROTOCOL_VERSION="2025-03-26", MCP_DEBUG_LOG_PATH=str(log), LOG_LEVEL="debug")
    answer = server.ask("initialize", {"clientInfo": {"name": "test", "version": "1"}})["result"]
    assert answer["protocolVersion"] == "2025-03-26"
    assert server.end() == 0
    assert log.read_text().startswith("{")
