"""`commonplace setup`: one entry in a client's settings, in and out again, with everything else as it was."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from commonplace.cli.config_edits import CannotEdit, append_item, edit, entry_at, parse, remove_items
from commonplace.cli.setup_commands import BACKUP, settings_file
from commonplace.server.mcp.clients import CLIENTS, HttpServer, StdioServer, server_of

from .conftest import Run, give_input

SECRET = "sk-live-of-another-server"
JSON_SAMPLE = """\
{
  "theme": "dark",
  "SECTION": {
    "github": {
      "command": "npx",
      "env": { "TOKEN": "sk-live-of-another-server" }
    }
  }
}
"""
JSONC_SAMPLE = """\
// Settings of a person who writes comments.
{
    "theme": "dark", // not light
    "SECTION": {
        /* the issue tracker */
        "github": { "command": "npx", "env": { "TOKEN": "sk-live-of-another-server" } },
    },
    "last": [1, 2,],
}
"""
TOML_SAMPLE = """\
# Settings of a person who writes comments.
model = "gpt-5"  # the large one

[mcp_servers.github]
command = "npx"

[mcp_servers.github.env]
TOKEN = "sk-live-of-another-server"

# what follows is another matter
[profiles.work]
approval = "never"
"""
YAML_SAMPLE = """\
# Settings of a person who writes comments.
GOOSE_MODEL: gpt-5  # the large one
extensions:
  github:
    type: stdio
    cmd: npx
    envs:
      TOKEN: sk-live-of-another-server

GOOSE_MODE: auto
"""
SAMPLES = {"json": JSON_SAMPLE, "jsonc": JSONC_SAMPLE, "toml": TOML_SAMPLE, "yaml": YAML_SAMPLE}
WITH_FILES = sorted(name for name, client in CLIENTS.items() if client.files)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> Path:
    """A home folder of its own. `run` has set the variables of the program before."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.delenv("COMMONPLACE_REMOTE", raising=False)
    monkeypatch.delenv("COMMONPLACE_KEY", raising=False)
    return tmp_path


def sample(name: str) -> str:
    client = CLIENTS[name]
    text = SAMPLES[client.format]
    return text.replace("SECTION", client.section[0])


def load(name: str, text: str) -> Any:
    format = CLIENTS[name].format
    return {"toml": tomllib.loads, "yaml": yaml.safe_load}.get(format, lambda text: parse(text, "jsonc"))(text)


def prepare(name: str, text: str) -> Path:
    file = settings_file(CLIENTS[name])
    assert file is not None
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.promise("setup-clients")
@pytest.mark.parametrize("name", WITH_FILES)
def test_a_client_is_set_up_and_taken_back(home: Path, run: Run, name: str):
    before = sample(name)
    file = prepare(name, before)
    file.chmod(0o640)
    done = run("setup", name, "--yes")
    assert done.code == 0, done.err
    assert SECRET not in done.out + done.err

    client, after = CLIENTS[name], file.read_text(encoding="utf-8")
    tree, former = load(name, after), load(name, before)
    section = tree
    for key in client.section:
        section = section[key]
    server = server_of(section.pop(client.server_name))
    assert isinstance(server, StdioServer)
    assert server.args[-3:] == ("mcp", "--db", str(home / "book.db"))
    assert tree == former, "everything else says what it said"
    for line in before.splitlines():
        assert line.rstrip(",") in after, "and is written as it was"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    backup = file.with_name(file.name + BACKUP)
    assert backup.read_text(encoding="utf-8") == before

    again = run("setup", name, "--yes")
    assert (again.code, file.read_text(encoding="utf-8")) == (0, after), "a second time changes nothing"

    undone = run("setup", name, "--undo", "--yes")
    assert undone.code == 0, undone.err
    assert SECRET not in undone.out + undone.err
    assert file.read_text(encoding="utf-8") == before
    assert not backup.exists()


@pytest.mark.parametrize("name", WITH_FILES)
def test_undo_keeps_what_the_user_changed_since(home: Path, run: Run, name: str):
    file = prepare(name, sample(name))
    assert run("setup", name, "--yes").code == 0
    edited = file.read_text(encoding="utf-8").replace("npx", "bunx")
    file.write_text(edited, encoding="utf-8")
    assert run("setup", name, "--undo", "--yes").code == 0
    left = file.read_text(encoding="utf-8")
    assert load(name, left) == load(name, sample(name).replace("npx", "bunx"))
    assert "commonplace" not in left


@pytest.mark.parametrize("name", WITH_FILES)
def test_a_missing_file_is_made_and_removed_again(home: Path, run: Run, name: str):
    file = settings_file(CLIENTS[name])
    assert file is not None
    assert run("setup", name, "--yes").code == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert run("setup", name, "--undo", "--yes").code == 0
    assert not file.exists()
    file.touch()
    assert run("setup", name, "--yes").code == 0
    assert run("setup", name, "--undo", "--yes").code == 0
    assert file.read_text() == "", "a file that was there stays"


OPENCODE = '"github": { "type": "local", "command": ["npx"] }'


@pytest.mark.parametrize(
    ("text", "section"),
    [
        ("", ("mcp",)),
        ('{ "mcp": {} }', ("mcp",)),
        (f'{{ "mcp": {{ {OPENCODE} }} }}', ("mcp",)),
        ('{ "mcp": { "servers": { "type": "local", "command": ["a-server-of-this-name"] } } }', ("mcp",)),
        ('{ "mcp": { "servers": { "enabled": false } } }', ("mcp",)),
        ('{ "mcp": { "servers": {} } }', ("mcp", "servers")),
        (f'{{ "mcp": {{ "timeout": {{ "startup": 5 }}, "servers": {{ {OPENCODE} }} }} }}', ("mcp", "servers")),
    ],
)
def test_both_versions_of_opencode_are_set_up(home: Path, run: Run, text: str, section: tuple[str, ...]):
    file = prepare("opencode", text)
    done = run("setup", "opencode", "--yes")
    assert done.code == 0, done.err
    after = file.read_text()
    entry = entry_at(json.loads(after), (*section, "memory"))
    assert entry["type"] == "local"
    assert "mcp" in entry["command"]
    assert {row["client"]: row["set_up"] for row in run("setup", "--json").json}["opencode"] is True
    assert run("setup", "opencode", "--yes").code == 0
    assert file.read_text() == after
    assert run("setup", "opencode", "--undo", "--yes").code == 0
    assert file.read_text() == text


def test_a_file_of_opencode_with_its_other_suffix_is_found(home: Path, run: Run):
    file = prepare("opencode", "").rename(home / ".config/opencode/opencode.jsonc")
    file.write_text('{ "mcp": {} } // mine\n')
    assert run("setup", "opencode", "--yes").code == 0
    assert "commonplace" in file.read_text()
    assert not file.with_suffix(".json").exists()


def test_nothing_is_written_without_consent(home: Path, run: Run, monkeypatch: pytest.MonkeyPatch):
    file = prepare("cursor", JSON_SAMPLE)
    give_input(monkeypatch, b"y\n")  # not a terminal
    refused = run("setup", "cursor")
    assert (refused.code, file.read_text()) == (2, JSON_SAMPLE)
    assert "--yes" in refused.err
    assert '+    "memory": {' in refused.out or '"memory"' in refused.out


def test_another_server_of_our_name_stays(home: Path, run: Run):
    other = {"mcpServers": {"memory": {"command": "npx", "args": ["@modelcontextprotocol/server-memory"]}}}
    file = prepare("cursor", json.dumps(other))
    assert run("setup", "cursor", "--yes").code == 0
    servers = json.loads(file.read_text())["mcpServers"]
    assert servers["memory"] == other["mcpServers"]["memory"]
    assert "mcp" in servers["commonplace"]["args"]
    assert run("setup", "cursor", "--undo", "--yes").code == 0
    assert json.loads(file.read_text()) == other


@pytest.mark.parametrize(
    "text",
    [
        '{"a": ',
        "[1]",
        '{"mcpServers": []}',
        '{"mcpServers": 1}',
        '{"a": 1, "a": 2}',
        "\xff",
        "null",
        "{} }",
        "{} /* ",
        "{}\0",
    ],
)
def test_a_file_that_cannot_be_read_is_left_alone(home: Path, run: Run, text: str):
    file = prepare("cursor", "")
    file.write_bytes(text.encode("latin-1"))
    refused = run("setup", "cursor", "--yes")
    assert (refused.code, file.read_bytes()) == (6, text.encode("latin-1"))
    assert "--print-config cursor" in refused.err or "UTF-8" in refused.err


@pytest.mark.parametrize(
    "entry",
    [
        {"url": "http://x/sse", "headers": ["Authorization"]},
        {"url": "http://[x/mcp"},
        {"url": {}, "command": ["x", 1], "args": {"y": 1}, "env": 5},
        {"command": "x", "args": "--flag", "env": ["A"]},
        "x",
    ],
    ids=str,
)
def test_an_odd_entry_of_our_name_is_another_server(home: Path, run: Run, entry: object):
    before = {"mcpServers": {"memory": entry}}
    file = prepare("cursor", json.dumps(before))
    assert run("setup", "cursor", "--yes").code == 0
    assert json.loads(file.read_text())["mcpServers"]["memory"] == entry
    assert run("setup", "--json").code == 0
    assert run("setup", "cursor", "--undo", "--yes").code == 0
    assert json.loads(file.read_text()) == before


def test_a_table_in_another_form_is_left_alone(home: Path, run: Run):
    text = '[mcp_servers]\ngithub = { command = "npx" }\nmemory = { command = "/bin/commonplace", args = ["mcp"] }\n'
    file = prepare("codex", text)
    assert (run("setup", "codex", "--yes").code, file.read_text()) == (6, text)


def test_a_link_stays_a_link(home: Path, run: Run):
    real = home / "dotfiles" / "mcp.json"
    real.parent.mkdir()
    real.write_text(JSON_SAMPLE)
    file = settings_file(CLIENTS["cursor"])
    assert file is not None
    file.parent.mkdir()
    file.symlink_to(real)
    assert run("setup", "cursor", "--yes").code == 0
    assert file.is_symlink()
    assert "commonplace" in real.read_text()


def test_a_key_is_entered_and_never_printed(home: Path, run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COMMONPLACE_KEY", "cp_top_secret")
    for name in ("cursor", "claude-desktop", "codex", "goose"):
        done = run("--remote", "https://memory.example", "setup", name, "--yes")
        assert done.code == 0, done.err
        file = settings_file(CLIENTS[name])
        assert file is not None
        assert "cp_top_secret" in file.read_text()
        undone = run("setup", name, "--undo", "--yes")
        assert "cp_top_secret" not in done.out + done.err + undone.out + undone.err
    entry = CLIENTS["cursor"].http
    assert entry is not None
    assert server_of(entry(HttpServer("https://x/mcp", "k"))) == HttpServer("https://x/mcp", "k")


def test_a_project_has_a_memory_of_its_own(home: Path, run: Run, monkeypatch: pytest.MonkeyPatch):
    project = home / "My project!"
    project.mkdir()
    monkeypatch.chdir(project)
    assert run("setup", "claude-code", "--project", "--yes").code == 0
    entry = json.loads((project / ".mcp.json").read_text())["mcpServers"]["memory"]
    assert entry["args"][-2:] == ["--namespace", "project/My-project"]
    refused = run("setup", "windsurf", "--project", "--yes")
    assert refused.code == 2
    assert "leave --project out" in refused.err


def test_without_a_client_those_on_this_computer_are_listed(home: Path, run: Run):
    prepare("cursor", "{}")
    run("setup", "cursor", "--yes")
    prepare("zed", JSONC_SAMPLE.replace("SECTION", "context_servers"))
    rows = {row["client"]: row for row in run("setup", "--json").json}
    assert rows.keys() == CLIENTS.keys()
    assert (rows["cursor"]["installed"], rows["cursor"]["set_up"]) == (True, True)
    assert (rows["zed"]["installed"], rows["zed"]["set_up"]) == (True, False)
    assert rows["windsurf"]["installed"] is False
    assert "cursor" in run("setup").out


def test_a_client_without_a_file_is_told_where_to_paste(home: Path, run: Run):
    told = run("setup", "jetbrains")
    assert told.code == 0
    assert "mcpServers" in json.loads(told.out)
    assert "AI Assistant" in told.err


@pytest.mark.promise("doctor-connections")
def test_doctor_tries_each_connection_by_a_handshake(home: Path, run: Run):
    run("add", "hello")
    prepare("cursor", "{}")
    assert run("setup", "cursor", "--yes").code == 0
    broken = {"mcpServers": {"memory": {"command": "/nowhere/commonplace", "args": ["mcp"]}}}
    prepare("windsurf", json.dumps(broken))
    lines = [line for line in run("doctor").out.splitlines() if " client " in line]
    assert [(line.split()[0], "Cursor" in line) for line in lines] == [("ok", True), ("problem", False)]
    assert "/nowhere/commonplace" in lines[1]


def test_a_server_that_says_nothing_is_a_problem(home: Path, run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("commonplace.cli.setup_commands.HANDSHAKE_SECONDS", 0.5)
    silent = home / "commonplace"
    silent.write_text(f"#!{sys.executable}\nimport time\ntime.sleep(60)\n")
    silent.chmod(0o700)
    prepare("cursor", json.dumps({"mcpServers": {"memory": {"command": str(silent), "args": ["mcp"]}}}))
    assert "gave no answer" in run("doctor").out


# The text


def values(depth: int = 3) -> st.SearchStrategy[Any]:
    plain = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8))
    return st.recursive(
        plain,
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)),
    )


@given(
    tree=st.dictionaries(st.sampled_from(["a", "b", "s", "x//y", '"q"']), values(), max_size=4),
    indent=st.sampled_from([None, 2, 4, "\t"]),
    is_crlf=st.booleans(),
)
def test_any_json_keeps_what_it_says(tree: dict[str, Any], indent: Any, is_crlf: bool):
    text = json.dumps(tree, indent=indent, ensure_ascii=False)
    text = text.replace("\n", "\r\n") if is_crlf else text
    entry = {"command": "c", "args": ["mcp"]}
    try:
        added = edit(text, "json", ("s", "memory"), entry)
    except CannotEdit:
        assert not isinstance(tree.get("s", {}), dict)
        return
    assert json.loads(added)["s"]["memory"] == entry
    removed = json.loads(edit(added, "json", ("s", "memory"), None))
    assert {**removed, "s": removed.get("s") or {}} == {**tree, "s": _without(tree.get("s"))}


def _without(section: Any) -> Any:
    return {key: value for key, value in (section or {}).items() if key != "memory"}


def test_items_of_a_list_come_and_go_alone():
    text = '{\n  "hooks": {\n    "Stop": [\n      {"x": 1} // mine\n    ]\n  }\n}\n'
    ours = {"hooks": [{"type": "command", "command": "commonplace hook"}]}
    added = append_item(text, ("hooks", "Stop"), ours)
    assert parse(added, "jsonc")["hooks"]["Stop"] == [{"x": 1}, ours]
    assert "// mine" in added
    assert remove_items(added, ("hooks", "Stop"), lambda item: "hooks" in item) == text
    assert parse(remove_items(text, ("hooks", "Stop"), lambda item: True), "jsonc") == {"hooks": {}}
    with pytest.raises(CannotEdit):
        append_item('{"hooks": 1}', ("hooks",), 1)


def test_the_entry_that_is_written_starts_the_server(home: Path, run: Run):
    prepare("cursor", "{}")
    run("setup", "cursor", "--yes")
    entry = json.loads((home / ".cursor" / "mcp.json").read_text())["mcpServers"]["memory"]
    shown = subprocess.run([entry["command"], "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("commonplace ")


TIGHT_SAMPLES = {
    "json": [
        '{"k":"SECRET","SECTION":{"o":{"command":"x","args":["--token","SECRET"],"env":{"K":"SECRET"}}}}',
        '{"SECTION":{"o":{"env":{"K":\n"SECRET"}}}}',
        '\ufeff{"SECTION": {"o": {"url":"https://u:SECRET@h/x"}}}',
        '{"SECTION": {"memory": {"command": "npx", "args": ["server-memory", "--key=SECRET"]}}}',
    ],
    "toml": [
        "[SECTION.o]\nargs = [\n  'SECRET',\n]\n",
        '[SECTION.o]\nK = """\nSECRET\nSECRET==\n"""\n',
        "[SECTION.o]\nK = 1 # SECRET\n# SECRET\n",
    ],
    "yaml": [
        "SECTION:\n  o: |\n    SECRET\n    more\n",
        "SECTION:\n  o:\n    args: [\n      SECRET\n    ]\n",
        "SECTION:\n  o:\n    uri: https://u:SECRET@h:443/x\n",
        "SECTION:\n  o:\n    args:\n    - SECRET\n    - SECRET== # SECRET\n",
    ],
}


@pytest.mark.promise("setup-clients")
@pytest.mark.parametrize("name", WITH_FILES)
def test_no_key_of_another_server_is_printed_however_the_file_is_written(home: Path, run: Run, name: str):
    client = CLIENTS[name]
    for tight in TIGHT_SAMPLES["json" if client.format == "jsonc" else client.format]:
        before = tight.replace("SECTION", client.section[0]).replace("SECRET", SECRET)
        file = prepare(name, before)
        done = run("setup", name, "--yes")
        assert done.code == 0, done.err
        assert str(home / "book.db") in done.out, "our own entry is shown"
        undone = run("setup", name, "--undo", "--yes")
        assert SECRET not in done.out + done.err + undone.out + undone.err, tight
        assert file.read_text(encoding="utf-8") == before


def test_the_error_of_a_file_that_cannot_be_read_does_not_quote_it(home: Path, run: Run):
    for name in WITH_FILES:
        for text in (f"{{{SECRET}", f"a: [{SECRET}\n  b: }}{SECRET}", f'"{SECRET}', f"K = {SECRET}\n= {SECRET}\n"):
            file = prepare(name, text)
            refused = run("setup", name, "--yes")
            assert refused.code == 6, (name, text, refused.out)
            assert SECRET not in refused.out + refused.err
            assert file.read_text(encoding="utf-8") == text


def test_comments_after_our_entry_survive_the_undo(home: Path, run: Run):
    for name in ("goose", "codex", "zed"):
        file = prepare(name, "")
        run("setup", name, "--yes")
        tail = "\n// mine\n" if name == "zed" else "\n# mine\n"
        file.write_text(file.read_text() + tail)
        assert run("setup", name, "--undo", "--yes").code == 0
        assert "mine" in file.read_text()
        assert "book.db" not in file.read_text()
