"""`commonplace setup CLIENT --hooks`: our hooks in a client's settings, in and out again."""

from __future__ import annotations

import json
import shlex
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from commonplace.ambient import hook
from commonplace.ambient.background import settings_of
from commonplace.cli.config_edits import parse
from commonplace.cli.setup_commands import BACKUP, WITH_HOOKS
from commonplace.server.mcp.clients import CLIENTS, Hooks

from .conftest import Run

FILES = {"claude-code": ".claude/settings.json", "codex": ".codex/hooks.json", "gemini-cli": ".gemini/settings.json"}
SAMPLE = """\
{
    // my own
    "model": "opus",
    "env": {"TOKEN": "sk-live-of-another-program"},
    "hooks": {
        "Stop": [
            {"hooks": [{"type": "command", "command": "say done --key sk-live-of-another-program"}]}, // loud
        ],
        "AfterAgent": [{"hooks": []}],
        "PreToolUse": []
    }
}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("COMMONPLACE_REMOTE", raising=False)
    monkeypatch.delenv("COMMONPLACE_KEY", raising=False)
    return tmp_path


def hooks_of(name: str) -> Hooks:
    found = CLIENTS[name].hooks
    assert found is not None
    return found


def ours(tree: dict[str, Any], event: str) -> list[str]:
    commands = [one["command"] for item in tree["hooks"].get(event, ()) for one in item["hooks"]]
    return [command for command in commands if "hook.py" in command]


@pytest.mark.promise("setup-hooks")
@pytest.mark.parametrize("name", WITH_HOOKS)
def test_hooks_are_added_and_taken_out_and_everything_else_stays(home: Path, run: Run, name: str) -> None:
    file = home / FILES[name]
    file.parent.mkdir()
    file.write_text(SAMPLE)
    done = run("setup", name, "--hooks", "--yes")
    assert done.code == 0, done.err
    assert "sk-live" not in done.out + done.err
    after = file.read_text()
    tree = parse(after, "jsonc")
    for event in hooks_of(name).events:
        [command] = ours(tree, event)
        assert shlex.split(command) == [
            *(sys.executable, "-I", "-S", hook.__file__, name),
            *("--db", str(home / "book.db")),
        ]
    for line in SAMPLE.splitlines():
        assert line.strip(" ,}]") in after
    assert run("setup", "--json").json[[*CLIENTS].index(name)]["hooks"] is True
    again = run("setup", name, "--hooks", "--yes")
    assert "has the hooks already" in again.err
    assert file.read_text() == after
    # A user's later edit, a comment too, survives the undo.
    file.write_text(after.replace("// my own", "// mine").replace('"opus"', '"haiku"'))
    undone = run("setup", name, "--hooks", "--undo", "--yes")
    assert undone.code == 0, undone.err
    assert "sk-live" not in undone.out + undone.err
    left = file.read_text()
    assert "// mine" in left
    assert "hook.py" not in left
    assert parse(left, "jsonc") == {**parse(SAMPLE, "jsonc"), "model": "haiku"}
    assert not file.with_name(file.name + BACKUP).exists()
    assert "nothing to take out" in run("setup", name, "--hooks", "--undo", "--yes").err


@pytest.mark.promise("setup-hooks")
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("place", [0, 1])
def test_a_command_that_the_user_added_to_our_item_stays(home: Path, run: Run, place: int, indent: int | None) -> None:
    file = home / FILES["claude-code"]
    run("setup", "claude-code", "--hooks", "--yes")
    tree = json.loads(file.read_text())
    theirs = {"type": "command", "command": "say done"}
    tree["hooks"]["Stop"][0]["hooks"].insert(place, theirs)
    tree["hooks"]["SessionStart"][0]["matcher"] = "startup"
    file.write_text(json.dumps(tree, indent=indent))
    again = run("setup", "claude-code", "--hooks", "--yes")
    assert "has the hooks already" in again.err
    undone = run("setup", "claude-code", "--hooks", "--undo", "--yes")
    assert undone.code == 0, undone.err
    assert json.loads(file.read_text()) == {"hooks": {"Stop": [{"hooks": [theirs]}]}}


@pytest.mark.promise("setup-hooks")
@pytest.mark.parametrize("text", [None, "", "{}", '{"hooks": {}}', SAMPLE])
def test_an_undo_without_other_edits_gives_the_file_back_to_the_letter(home: Path, run: Run, text: str | None) -> None:
    file = home / FILES["claude-code"]
    if text is not None:
        file.parent.mkdir()
        file.write_text(text)
    assert run("setup", "claude-code", "--hooks", "--yes").code == 0
    assert run("setup", "claude-code", "--hooks", "--undo", "--yes").code == 0
    assert (file.read_text() if file.exists() else None) == text


def test_settings_on_one_line_are_printed_without_values_of_others(home: Path, run: Run) -> None:
    file = home / FILES["claude-code"]
    file.parent.mkdir()
    file.write_text('{"env":{"TOKEN":"sk-live-1"},"hooks":{"Stop":[{"hooks":[{"command":"say sk-live-1"}]}]}}')
    done = run("setup", "claude-code", "--hooks", "--yes")
    undone = run("setup", "claude-code", "--hooks", "--undo", "--yes")
    assert "sk-live" not in done.out + done.err + undone.out + undone.err
    assert "hook.py" in done.out


def test_hooks_of_another_installation_are_replaced(home: Path, run: Run) -> None:
    file = home / FILES["claude-code"]
    file.parent.mkdir()
    old = {"hooks": [{"type": "command", "command": "/old/python /old/commonplace/ambient/hook.py claude-code"}]}
    file.write_text(json.dumps({"hooks": {"Stop": [old, old], "SessionStart": [old]}}))
    run("setup", "claude-code", "--hooks", "--yes")
    assert "/old/" not in file.read_text()
    assert all(len(ours(json.loads(file.read_text()), event)) == 1 for event in hooks_of("claude-code").events)


@pytest.mark.parametrize(
    "text", ['{"hooks": []}', '{"hooks": {"SessionStart": 1}}', '{"hooks": {"Stop": {}}}', "{", "[]"]
)
def test_settings_of_another_form_are_refused_and_not_changed(home: Path, run: Run, text: str) -> None:
    file = home / FILES["claude-code"]
    file.parent.mkdir()
    file.write_text(text)
    refused = run("setup", "claude-code", "--hooks", "--yes")
    assert refused.code == 6
    assert "was not changed" in refused.err
    assert file.read_text() == text


@pytest.mark.promise("setup-hooks-secrets")
def test_a_key_is_in_a_file_of_its_own_and_neither_in_the_settings_nor_printed(
    home: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMMONPLACE_KEY", "cp_top_secret")
    done = run("--remote", "https://memory.example", "setup", "claude-code", "--hooks", "--yes")
    assert done.code == 0, done.err
    written = (home / FILES["claude-code"]).read_text()
    assert "cp_top_secret" not in written + done.out + done.err
    [command] = ours(json.loads(written), "Stop")
    monkeypatch.setenv("COMMONPLACE_KEY", "of another shell")
    monkeypatch.setenv("COMMONPLACE_NAMESPACE", "user/of-another-shell")
    client, settings, _ = settings_of(shlex.split(command)[4:])
    assert (client, settings.remote, settings.remote_key) == (
        "claude-code",
        "https://memory.example",
        "cp_top_secret",
    )
    assert (settings.database_url, settings.namespace) == (None, None)
    [file] = home.rglob("hooks-claude-code.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    run("--remote", "https://memory.example", "setup", "claude-code", "--hooks", "--undo", "--yes")
    assert not file.exists()


def test_a_project_has_hooks_of_its_own(home: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    project = home / "My project"
    project.mkdir()
    monkeypatch.chdir(project)
    assert run("setup", "claude-code", "--hooks", "--project", "--yes").code == 0
    [command] = ours(json.loads((project / ".claude/settings.local.json").read_text()), "Stop")
    assert shlex.split(command)[-2:] == ["--namespace", "project/My-project"]


@pytest.mark.promise("setup-hooks-secrets")
def test_projects_of_one_name_have_keys_of_their_own(home: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def command(project: Path) -> str:
        return ours(json.loads((project / ".claude/settings.local.json").read_text()), "Stop")[0]

    def key(project: Path) -> str | None:
        return settings_of(shlex.split(command(project))[4:])[1].remote_key

    projects = [home / owner / "parser" for owner in ("ana", "ben")]
    for project in projects:
        project.mkdir(parents=True)
        monkeypatch.chdir(project)
        monkeypatch.setenv("COMMONPLACE_KEY", f"cp_of_{project.parent.name}")
        run("--remote", "https://memory.example", "setup", "claude-code", "--hooks", "--project", "--yes")
    assert [key(project) for project in projects] == ["cp_of_ana", "cp_of_ben"]
    monkeypatch.delenv("COMMONPLACE_KEY")
    run("setup", "claude-code", "--hooks", "--project", "--undo", "--yes")
    assert key(projects[0]) == "cp_of_ana"
    assert len([*home.rglob("hooks-claude-code*.json")]) == 1
    # Without a key, the command names no file, and the old one goes.
    monkeypatch.chdir(projects[0])
    run("setup", "claude-code", "--hooks", "--project", "--yes")
    assert "--settings" not in command(projects[0])
    assert [*home.rglob("hooks-claude-code*.json")] == []


def test_doctor_finds_hooks_of_a_program_that_is_gone(home: Path, run: Run, book_file: Path) -> None:
    run("add", "some text")
    run("setup", "claude-code", "--hooks", "--yes")
    file = home / FILES["claude-code"]
    told = run("doctor")
    assert f"hooks of Claude Code, {file}" in told.out
    assert "does not exist" not in told.out
    file.write_text(file.read_text().replace(sys.executable, "/gone/python"))
    told = run("doctor")
    assert "/gone/python does not exist; run `commonplace setup claude-code --hooks` again" in told.out + told.err
    assert told.code != 0


def test_a_client_without_hooks_and_a_book_in_memory_are_refused(
    home: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = run("setup", "zed", "--hooks", "--yes")
    assert (refused.code, "claude-code, codex, gemini-cli" in refused.err) == (2, True)
    assert run("setup", "--hooks").code == 2
    monkeypatch.setenv("DATABASE_URL", ":memory:")
    assert "name a file with --db" in run("setup", "claude-code", "--hooks", "--yes").err
