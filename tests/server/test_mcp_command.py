"""`commonplace mcp` as a command: the settings to paste, and what it says when it cannot start."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

import commonplace
from commonplace.cli import main
from commonplace.errors import ConfigurationError
from commonplace.server import mcp as server
from commonplace.server.mcp.clients import CLIENTS, StdioServer, program
from commonplace.server.usage import SearchCounters

from .conftest import NOTE, PROGRAM, SECONDS, SETTINGS, server_environment


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
@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_settings_are_printed_in_the_format_of_each_client(client, tmp_path, capsys):
    parse = {"toml": tomllib.loads, "yaml": yaml.safe_load}.get(client.format, json.loads)
    assert main(["mcp", "--print-config", client.name, "--db", str(tmp_path / "b.db")]) == 0
    server = StdioServer(program()[0], (*program()[1:], "mcp", "--db", str(tmp_path / "b.db")))
    assert parse(capsys.readouterr().out) == client.settings(server)


@pytest.fixture
def shell(monkeypatch):
    """The environment, without our variables."""
    for name in os.environ:
        if name.startswith(SETTINGS):
            monkeypatch.delenv(name)
    return monkeypatch


@pytest.mark.promise("mcp-print-config")
@pytest.mark.parametrize(
    ("variables", "words", "env"),
    [
        ({"DATABASE_URL": "/b.db", "COMMONPLACE_NAMESPACE": "user/ana"}, "--db /b.db --namespace user/ana", None),
        ({"COMMONPLACE_REMOTE": "http://h:1", "DATABASE_URL": "/b.db"}, "--remote http://h:1", None),
        (
            {"COMMONPLACE_REMOTE": "http://h:1", "COMMONPLACE_KEY": "cp_secret", "COMMONPLACE_WRAP_RESULTS": "true"},
            "--remote http://h:1 --wrap-results",
            {"COMMONPLACE_KEY": "YOUR_KEY"},
        ),
        (
            {"DATABASE_URL": "postgresql://ana:secret@h:5/db?sslmode=require"},
            "",
            {"DATABASE_URL": "postgresql://ana:YOUR_PASSWORD@h:5/db?sslmode=require"},
        ),
        (
            {"DATABASE_URL": "postgresql://h:5/db?user=ana&password=secret&sslmode=require"},
            "",
            {"DATABASE_URL": "postgresql://h:5/db?user=ana&password=YOUR_PASSWORD&sslmode=require"},
        ),
    ],
)
def test_the_printed_settings_have_what_the_shell_says_but_its_secrets(shell, capsys, variables, words, env):
    for name, value in variables.items():
        shell.setenv(name, value)
    assert main(["mcp", "--print-config", "cursor"]) == 0
    printed = capsys.readouterr()
    started = json.loads(printed.out)["mcpServers"]["memory"]
    assert started["args"][started["args"].index("mcp") + 1 :] == words.split()
    assert started.get("env") == env
    assert "secret" not in printed.out
    assert ("replace the values that begin with YOUR_" in printed.err) == (env is not None)


@pytest.mark.promise("mcp-print-config")
def test_nor_is_the_password_of_a_book_that_was_given_printed(shell, capsys):
    assert main(["mcp", "--print-config", "cursor", "--db", "postgresql://ana:secret@h:5/db"]) == 0
    printed = capsys.readouterr()
    started = json.loads(printed.out)["mcpServers"]["memory"]
    assert (started["args"][-1], started["env"]) == ("mcp", {"DATABASE_URL": "postgresql://ana:YOUR_PASSWORD@h:5/db"})
    assert "replace the values that begin with YOUR_" in printed.err


@pytest.mark.promise("mcp-print-config")
def test_the_printed_settings_name_the_service_that_was_given(shell, capsys):
    shell.setenv("DATABASE_URL", "/b.db")
    assert main(["mcp", "--print-config", "vscode", "--remote", "http://h:1", "--namespace", "user/default"]) == 0
    started = json.loads(capsys.readouterr().out)["servers"]["memory"]
    assert started["args"][-5:] == ["mcp", "--remote", "http://h:1", "--namespace", "user/default"]


@pytest.mark.promise("cli-remote")
def test_a_service_is_used_in_the_namespace_of_its_key(start, tmp_path):
    program, environment = [*PROGRAM[:-1], "--json"], server_environment(tmp_path)
    created = subprocess.run(
        [*program, "keys", "create", "ana", "--namespace", "user/u-123"],
        capture_output=True,
        env=environment,
        timeout=SECONDS,
        check=True,
    )
    key = json.loads(created.stdout)["key"]
    with subprocess.Popen([*program, "serve", "--port", "0"], stdout=subprocess.PIPE, env=environment) as service:
        try:
            address = json.loads(service.stdout.readline())["address"]
            client = start("--remote", address, COMMONPLACE_KEY=key)
            client.initialize()
            saved = client.call("memory_create", **NOTE)
            other = start("--remote", address, "--namespace", "user/other", COMMONPLACE_KEY=key)
            other.initialize()
            refused = other.call("memory_create", **NOTE)
            default = start("--remote", address, "--namespace", "user/default", COMMONPLACE_KEY=key)
            default.initialize()
            also_refused = default.call("memory_create", **NOTE)
        finally:
            service.terminate()
    assert not saved.get("isError"), saved
    assert "do not reach the namespace user/other" in str(refused)
    assert "do not reach the namespace user/default" in str(also_refused)
    with commonplace.open(tmp_path / "book.db", background=False) as book:
        assert len(book.space("user", "u-123").records.list().records) == 1


@pytest.mark.promise("usage-servers-add-up")
def test_searches_over_standard_input_are_counted_too(start, tmp_path):
    client = start("--namespace", "user/ana")
    client.initialize()
    client.call("memory_create", **NOTE)
    for query in ("coffee", "tea"):
        client.call("memory_search", query=query)
    assert client.end() == 0
    with commonplace.open(tmp_path / "book.db", background=False) as book:
        counters = SearchCounters(book.store)
        (day,) = counters.days(("user", "ana"), counters.today() - timedelta(days=1)).values()
        assert day.counts.searches == 2
        assert book.space("user", "ana").stats().commit == 1


@pytest.mark.promise("mcp-print-config")
def test_the_printed_settings_have_no_more_than_was_given(shell, capsys):
    assert main(["mcp", "--print-config", "cursor"]) == 0
    assert json.loads(capsys.readouterr().out)["mcpServers"]["memory"]["args"][-1] == "mcp"


@pytest.mark.promise("mcp-missing-package")
def test_a_missing_package_names_the_command_that_installs_it(monkeypatch, capsys):
    monkeypatch.setattr(server, "find_spec", lambda name: None)
    assert main(["mcp"]) == 6
    assert "pip install 'commonplace-memory[mcp]'" in capsys.readouterr().err
    with pytest.raises(ConfigurationError, match=r"pip install 'commonplace-memory\[server\]'"):
        server.http_app(None, ())  # type: ignore[arg-type]


def test_an_unknown_profile_is_a_wrong_call(capsys):
    assert main(["mcp", "--profile", "none"]) == 2
    assert "--profile" in capsys.readouterr().err


@pytest.mark.promise("mcp-settings")
def test_the_variables_of_the_protocol_and_the_log_are_honoured(start, tmp_path):
    """The debug log, with what the calls held in it, could be read by every user of the computer."""
    log = tmp_path / "debug.log"
    log.touch(0o644)  # as an earlier version made it: every user of the computer could read what it held
    server = start(MCP_PROTOCOL_VERSION="2025-03-26", MCP_DEBUG_LOG_PATH=str(log), LOG_LEVEL="debug")
    answer = server.ask("initialize", {"clientInfo": {"name": "test", "version": "1"}})["result"]
    assert answer["protocolVersion"] == "2025-03-26"
    assert server.end() == 0
    assert log.read_text().startswith("{")
    assert log.stat().st_mode & 0o777 == 0o600
