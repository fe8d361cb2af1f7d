"""`setup`: connects a client on this computer to the memory, by one entry in the client's own settings."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import commonplace
from commonplace.cli.arguments import Commands
from commonplace.cli.config_edits import CannotEdit, append_item, edit, entry_at, parse, remove_items, says_something
from commonplace.cli.exit_codes import NEGATIVE, OK
from commonplace.cli.invocation import Context
from commonplace.cli.service_commands import PROFILES
from commonplace.errors import ConfigurationError, Conflict, InvalidInput, NotFound
from commonplace.server.mcp.clients import CLIENTS, OTHER_NAME, HttpServer, StdioServer, is_ours, program, server_of

if TYPE_CHECKING:
    from commonplace.server.mcp.clients import Client, Hooks, System

BACKUP = ".commonplace-backup"
"""Ends the name of the copy of a file as it was before our entry."""

WITH_HOOKS = tuple(name for name, client in CLIENTS.items() if client.hooks is not None)
_HOOK = Path(commonplace.__file__).parent / "ambient" / "hook.py"
_MAX_FILE_BYTES = 50_000_000
_HIDDEN = "…"
_KEY = re.compile(r"\s*(?:- )?[\w.-]+(?:\s*=\s|:(?=\s|$))")
"""A key of TOML or YAML at the start of a line. A secret such as `c2VjcmV0==` is none."""

_VALUE = re.compile(r"""("(?:[^"\\]|\\.)*"?|'[^']*'?)(\s*:)?|[^\s"'\[\]{},]+""")


def register(commands: Commands) -> None:
    parser = commands.add(
        "setup",
        "Serve",
        "Connect a client such as Claude Code or Cursor.",
        run_setup,
        about=(
            "Shows the change to the client's settings and asks before writing it. A copy of the former file is kept "
            f"next to it, with {BACKUP} at the end of its name. Nothing else in the file is changed. Without a "
            "client, lists the clients on this computer. Restart the client afterwards; `commonplace doctor` tries the "
            "connection."
        ),
        examples="""\
  commonplace setup
  commonplace setup claude-code
  commonplace setup cursor --project
  commonplace setup claude-code --undo
  commonplace setup claude-code --hooks
  commonplace --remote https://memory.example setup vscode""",
    )
    parser.add_argument(
        "client", metavar="CLIENT", nargs="?", choices=(*CLIENTS, None), help=f"the client: {', '.join(CLIENTS)}"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--undo", action="store_true", help="remove our entry again")
    parser.add_argument(
        "--hooks",
        action="store_true",
        help=f"recall and save without tool calls, through hooks of the client ({', '.join(WITH_HOOKS)})",
    )
    parser.add_argument(
        "--project",
        action="store_true",
        help="only for the project in this folder, with a memory of its own (default namespace: project/FOLDER)",
    )
    parser.add_argument(
        "--profile",
        metavar="NAME",
        choices=PROFILES,
        default="records",
        help=f"the tools that the client gets: {', '.join(PROFILES)} (default: records)",
    )


def run_setup(context: Context) -> int:
    given = context.arguments
    if given.client is None:
        return _list_clients(context)
    client = CLIENTS[given.client]
    if given.hooks:
        return _set_up_hooks(context, client)
    file = settings_file(client, Path.cwd() if given.project else None)
    if file is None:
        return _explain(context, client)
    return _take_out(context, client, file) if given.undo else _put_in(context, client, file)


# Where a client keeps its settings


def settings_file(client: Client, project: Path | None = None) -> Path | None:
    """The file with a client's settings, whether or not it exists; None if the client has no such file."""
    if project is not None and client.project is None:
        raise InvalidInput(f"{client.title} has no settings for one project; leave --project out")
    file = _of_user(client.files) if project is None else project / str(client.project)
    if file is not None and client.other_suffix is not None and not file.exists():
        other = file.with_suffix(client.other_suffix)
        return other if other.exists() else file
    return file


def _of_user(files: Mapping[System, str]) -> Path | None:
    system = {"darwin": "macos", "win32": "windows"}.get(sys.platform, "linux")
    written = {str(key): value for key, value in files.items()}.get(system)
    return None if written is None else Path(os.path.expandvars(_percent(written))).expanduser()


def _percent(path: str) -> str:
    """Windows' %APPDATA% on every system, for tests."""
    return re.sub(r"%(\w+)%", lambda found: os.environ.get(found[1], found[0]), path)


def is_found(client: Client, file: Path) -> bool:
    """Whether a client seems to be installed: it has settings, a folder for them, or a command."""
    is_own_folder = file.parent != Path.home() and file.parent.is_dir()
    return file.exists() or is_own_folder or shutil.which(client.name.split("-")[0]) is not None


@dataclass(frozen=True, slots=True)
class _Place:
    """Where our entry is in a client's settings, or would be: not under a name that another server has."""

    path: tuple[str, ...]
    server: StdioServer | HttpServer | None


def _place(client: Client, text: str) -> _Place:
    tree = parse(text, client.format)
    free = None
    for section in client.sections(tree):
        for name in dict.fromkeys((client.server_name, OTHER_NAME)):
            path = (*section, name)
            entry = entry_at(tree, path)
            server = server_of(entry) if isinstance(entry, dict) else None
            if server is not None and is_ours(server):
                return _Place(path, server)
            if entry is None and free is None:
                free = path
    if free is None:
        raise CannotEdit(f"it has other servers named {client.server_name} and {OTHER_NAME}; rename one of them")
    return _Place(free, None)


def our_server(client: Client, file: Path) -> StdioServer | HttpServer | None:
    """The server in our entry of a client's settings; None without an entry."""
    return _place(client, _read(file) or "").server


def _read(file: Path) -> str | None:
    """The text of a file; None if there is none."""
    try:
        found = file.stat()
        if not stat.S_ISREG(found.st_mode):  # a pipe would not end, and nothing may replace /dev/null
            raise CannotEdit(f"{file} is not a regular file")
        if found.st_size > _MAX_FILE_BYTES:
            raise CannotEdit(f"{file} is larger than {_MAX_FILE_BYTES:,} bytes")
        with file.open(encoding="utf-8", newline="") as stream:
            return stream.read()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise CannotEdit(f"{file} is not UTF-8") from error


# What is changed


@dataclass(frozen=True, slots=True)
class _Change:
    """A file before and after; None is a file that does not exist."""

    file: Path
    before: str | None
    after: str | None
    ours: frozenset[str] = frozenset()
    """The names and values of our entry, which are shown."""
    secrets: tuple[str, ...] = ()

    def diff(self) -> list[str]:
        """What changes. Values that are not in our entry are hidden, since they may be keys of other programs."""
        import difflib

        before, after = (self.before or "").splitlines(), (self.after or "").splitlines()
        lines = [*difflib.unified_diff(before, after, str(self.file), str(self.file), n=2, lineterm="")]
        return [*lines[:2], *(line if line.startswith("@@") else self._shown(line) for line in lines[2:])]

    def _shown(self, line: str) -> str:
        text = line[:1] + _without_values(line[1:], self.ours)
        for secret in self.secrets:
            text = text.replace(secret, _HIDDEN)
        return text


def _without_values(line: str, ours: frozenset[str]) -> str:
    """A line of settings with its keys, and of its values only ours, whatever the format is."""

    def hide(found: re.Match[str]) -> str:
        written = found[1]
        if written is None:
            return found[0] if found[0] in ours or ours.issuperset(found[0].split(".")) else _HIDDEN
        return found[0] if found[2] or _unquoted(written) in ours else f'"{_HIDDEN}"'

    key = _KEY.match(line)
    start = 0 if key is None else key.end()
    return re.sub(rf"{_HIDDEN}(?:\s+{_HIDDEN})+", _HIDDEN, line[:start] + _VALUE.sub(hide, line[start:]))


def _unquoted(written: str) -> str:
    try:
        return str(json.loads(written))
    except ValueError:
        return written[1:-1]


def _leaves(entry: object) -> Iterator[str]:
    """The names and values of an entry, as they are written without quotes."""
    if isinstance(entry, dict):
        for name, value in entry.items():
            yield str(name)
            yield from _leaves(value)
    elif isinstance(entry, list | tuple):
        for value in entry:
            yield from _leaves(value)
    else:
        yield entry if isinstance(entry, str) else json.dumps(entry)


def _put_in(context: Context, client: Client, file: Path) -> int:
    server, secrets = _server(context, client)
    before = _read(file)
    try:
        path = _place(client, before or "").path
        after = edit(before or "", client.format, path, client.entry(server), client.text(server, path[-1]))
    except CannotEdit as error:
        raise _by_hand(client, file, error) from error
    if after == before:
        context.out.note(f"{client.title} is set up already, in {file}")
        return OK
    ours = frozenset((*path, *_leaves(client.entry(server))))
    _apply(context, _Change(file, before, after, ours, secrets))
    context.out.note(f"{client.title} is set up; restart it, then `{context.command('doctor')}` tries the connection")
    return OK


def _take_out(context: Context, client: Client, file: Path) -> int:
    current = _read(file)
    place = _place(client, current or "")
    if current is None or place.server is None:
        context.out.note(f"{client.title} has no entry of ours in {file}; nothing to take out")
        return OK
    try:
        restored = _restored(client, file, current, place)
        after = restored if restored is not None else edit(current, client.format, place.path, None)
    except CannotEdit as error:
        raise _by_hand(client, file, error) from error
    server = place.server
    secrets = _secrets(server.key) if isinstance(server, HttpServer) else _secrets(*server.env.values())
    ours = frozenset((*place.path, *_leaves(client.entry(server))))
    backup = file.with_name(file.name + BACKUP)
    is_left = backup.exists() or says_something(after, client.format)
    _apply(context, _Change(file, current, after if is_left else None, ours, secrets), is_undo=True)
    backup.unlink(missing_ok=True)
    context.out.note(f"our entry was taken out of {file}")
    return OK


def _restored(client: Client, file: Path, current: str, place: _Place) -> str | None:
    """The text before our entry to the letter, if nothing else has changed since."""
    backup = _read(file.with_name(file.name + BACKUP))
    if backup is None or place.server is None:
        return None
    entry = entry_at(parse(current, client.format), place.path)
    again = edit(backup, client.format, place.path, entry, client.text(place.server, place.path[-1]))
    return backup if again == current else None


def _apply(context: Context, change: _Change, *, is_undo: bool = False) -> None:
    for line in change.diff():
        styles = {"+": ("green",), "-": ("red",), "@": ("cyan",)}.get(line[:1], ())
        context.out.line(context.out.style(context.out.clean(line), *styles))
    context.out.stdout.flush()
    if not context.arguments.yes:
        if not sys.stdin.isatty():
            raise InvalidInput("nothing was changed; add --yes to write it")
        context.out.stderr.write("Write this change? [y/N] ")
        context.out.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise InvalidInput("nothing was changed")
    if _read(change.file) != change.before:
        raise Conflict(f"{change.file} was changed by another program meanwhile; run the command again")
    target = change.file.resolve()  # settings are often links into a folder of dotfiles
    if change.after is None:
        target.unlink()
        return
    if change.before is not None and not is_undo:
        _write(change.file.with_name(change.file.name + BACKUP), change.before, like=target)
    _write(target, change.after, like=target)


def _write(file: Path, text: str, *, like: Path) -> None:
    """Replace a file in one step. It gets the permissions of another one, or only its owner may read it."""
    import tempfile

    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with open(descriptor, "w", encoding="utf-8", newline="") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        if like.exists():
            shutil.copymode(like, name)
        os.replace(name, file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _server(context: Context, client: Client) -> tuple[StdioServer | HttpServer, tuple[str, ...]]:
    """The server to enter, and the secrets in it."""
    given, settings = context.arguments, context.settings
    namespace = settings.namespace or (_project_namespace() if given.project else None)
    if settings.remote is not None and client.http is not None:
        address = settings.remote.rstrip("/") + "/mcp" + ("" if given.profile == "records" else f"/{given.profile}")
        key = settings.remote_key
        return HttpServer(address + (f"?namespace={namespace}" if namespace else ""), key), _secrets(key)
    words, variables = [], {}
    if settings.remote is not None:
        words += ["--remote", settings.remote]
        variables = {} if settings.remote_key is None else {"COMMONPLACE_KEY": settings.remote_key}
    elif settings.book_file is None:
        variables = {"DATABASE_URL": settings.database_url or ""}
    elif settings.database_url is not None:
        words += ["--db", str(settings.book_file)]
    if namespace is not None:
        words += ["--namespace", namespace]
    if given.profile != "records":
        words += ["--profile", given.profile]
    command, *first = program()
    return StdioServer(command, (*first, "mcp", *words), variables), _secrets(*variables.values())


def _secrets(*values: str | None) -> tuple[str, ...]:
    return tuple(value for value in values if value)


def _project_namespace() -> str:
    name = re.sub(r"[^\w.-]+", "-", Path.cwd().name).strip("-.") or "project"
    return f"project/{name}"


# Hooks


def _set_up_hooks(context: Context, client: Client) -> int:
    hooks = client.hooks
    if hooks is None:
        raise InvalidInput(f"{client.title} has no hooks for a memory; these have: {', '.join(WITH_HOOKS)}")
    file = Path.cwd() / hooks.project if context.arguments.project else _of_user(hooks.files)
    assert file is not None
    before = _read(file)
    try:
        if context.arguments.undo:
            return _take_out_hooks(context, client, hooks, file, before)
        command = _hook_command(context, client)
        after = _with_hooks(before or "", hooks, command)
    except CannotEdit as error:
        raise ConfigurationError(f"{file} was not changed: {error}; see {hooks.docs}") from error
    if after == before:
        context.out.note(f"{client.title} has the hooks already, in {file}")
        return OK
    _apply(context, _Change(file, before, after, frozenset(_leaves(hooks.item(command)))))
    _write_secrets(context, client, _known_command(before or "", hooks))
    context.out.note(f"{client.title} has the hooks; {hooks.afterwards}. A file .nomemory turns them off in a project")
    return OK


def _take_out_hooks(context: Context, client: Client, hooks: Hooks, file: Path, current: str | None) -> int:
    after = None if current is None else _without_hooks(current, hooks)
    if current is None or after == current:
        context.out.note(f"{client.title} has no hooks of ours in {file}; nothing to take out")
        return OK
    assert after is not None
    command = _known_command(current, hooks)
    backup = file.with_name(file.name + BACKUP)
    former = _read(backup)
    if former is not None and _with_hooks(former, hooks, command) == current:
        after = former  # to the letter, since nothing else has changed
    is_left = former is not None or says_something(after, "jsonc")
    ours = frozenset(_leaves(hooks.item(command)))
    _apply(context, _Change(file, current, after if is_left else None, ours), is_undo=True)
    backup.unlink(missing_ok=True)
    if (secrets := _named_secrets(command)) is not None:
        secrets.unlink(missing_ok=True)
    context.out.note(f"our hooks were taken out of {file}")
    return OK


def _with_hooks(text: str, hooks: Hooks, command: str) -> str:
    """The settings with one command of ours for each event."""
    item = hooks.item(command)
    tree = parse(text, "jsonc")
    for event in hooks.events:
        if _our_commands(tree, event) != item["hooks"]:
            text = append_item(_without_commands(text, event), ("hooks", event), item)
    return text


def _without_hooks(text: str, hooks: Hooks) -> str:
    before = text
    for event in hooks.events:
        text = _without_commands(text, event)
    if text != before and entry_at(parse(text, "jsonc"), ("hooks",)) == {}:
        text = edit(text, "jsonc", ("hooks",), None)
    return text


def _without_commands(text: str, event: str) -> str:
    """The settings without our commands for an event. An item of the list goes too, unless it has other commands."""
    items = entry_at(parse(text, "jsonc"), ("hooks", event))
    for place, item in enumerate(items if isinstance(items, list) else ()):
        if not _is_only_ours(item):
            text = remove_items(text, ("hooks", event, place, "hooks"), _is_our_command)
    return remove_items(text, ("hooks", event), _is_only_ours)


def _known_command(text: str, hooks: Hooks) -> str:
    """The command of our hooks in the settings."""
    tree = parse(text, "jsonc")
    found = [one for event in hooks.events for one in _our_commands(tree, event)]
    return str(found[0]["command"]) if found else ""


def _our_commands(tree: object, event: str) -> list[dict[str, Any]]:
    items = entry_at(tree, ("hooks", event))
    return [
        one for item in (items if isinstance(items, list) else ()) for one in _commands(item) if _is_our_command(one)
    ]


def _commands(item: object) -> list[Any]:
    found = item.get("hooks") if isinstance(item, dict) else None
    return found if isinstance(found, list) else []


def _is_only_ours(item: object) -> bool:
    return bool(_commands(item)) and all(map(_is_our_command, _commands(item)))


def _is_our_command(one: object) -> bool:
    """Whether a command is ours, of this or another installation."""
    command = one.get("command") if isinstance(one, dict) else None
    return isinstance(command, str) and re.search(r"commonplace[/\\]+ambient[/\\]+hook\.py\b", command) is not None


def _hook_command(context: Context, client: Client) -> str:
    """The command for a shell. It names the book, because a project's shell may have a DATABASE_URL of its own."""
    settings = context.settings
    words = [sys.executable, "-I", "-S", str(_HOOK), client.name]
    if settings.remote is not None:
        words += ["--remote", settings.remote]
    elif settings.book_file is not None:
        words += ["--db", str(settings.book_file)]
    elif settings.database_url == ":memory:":
        raise InvalidInput("a book in memory ends with its process; name a file with --db")
    namespace = settings.namespace or (_project_namespace() if context.arguments.project else None)
    if namespace is not None:
        words += ["--namespace", namespace]
    if _hook_secrets(context):
        words += ["--settings", str(_secrets_file(context, client))]
    if sys.platform == "win32":
        import subprocess

        return subprocess.list2cmdline(words)
    return shlex.join(words)


def _hook_secrets(context: Context) -> dict[str, str]:
    """What must not stand in a command, which other users of this computer can see."""
    settings = context.settings
    if settings.remote is not None:
        return {} if settings.remote_key is None else {"COMMONPLACE_KEY": settings.remote_key}
    return {} if settings.book_file is not None else {"DATABASE_URL": settings.database_url or ""}


def _secrets_file(context: Context, client: Client) -> Path:
    """The file with the key of this project's hooks, or of the user's. Projects of one name have different ones."""
    from hashlib import sha256

    place = ""
    if context.arguments.project:
        place = f"-{_project_namespace().partition('/')[2]}-{sha256(os.fsencode(Path.cwd())).hexdigest()[:12]}"
    return _secrets_folder() / f"hooks-{client.name}{place}.json"


def _secrets_folder() -> Path:
    from platformdirs import user_config_path

    return user_config_path("commonplace", appauthor=False)


def _write_secrets(context: Context, client: Client, former: str) -> None:
    file, secrets = _secrets_file(context, client), _hook_secrets(context)
    if secrets:
        _write(file, json.dumps(secrets) + "\n", like=file)
        file.chmod(0o600)
    if (known := _named_secrets(former)) is not None and (known != file or not secrets):
        known.unlink(missing_ok=True)


def _named_secrets(command: str) -> Path | None:
    """The file with the key that a command of ours names, if it is in our folder."""
    try:
        words = shlex.split(command, posix=sys.platform != "win32")
    except ValueError:
        return None
    named = [Path(after.strip('"')) for word, after in pairwise(words) if word == "--settings"]
    return next((file for file in named if file.parent == _secrets_folder()), None)


def _by_hand(client: Client, file: Path, error: CannotEdit) -> ConfigurationError:
    return ConfigurationError(
        f"{file} was not changed: {error}; add what `commonplace mcp --print-config {client.name}` prints yourself, "
        f"see {client.docs}"
    )


# Without a file, and without a client


def _explain(context: Context, client: Client) -> int:
    """For a client that keeps its settings where no program can write them."""
    server, secrets = _server(context, client)
    text = client.text(server)
    for secret in secrets:
        text = text.replace(secret, "YOUR_KEY")
    if context.arguments.undo:
        raise NotFound(f"{client.title} has no settings file; remove the server in: {client.place}")
    context.out.note(f"{client.title} has no settings file; paste this in: {client.place}")
    context.out.stdout.write(text)
    return OK


def _list_clients(context: Context) -> int:
    if context.arguments.undo or context.arguments.yes or context.arguments.hooks:
        raise InvalidInput("name the client to change, such as: commonplace setup claude-code")
    rows = [_state(client) for client in CLIENTS.values()]
    if context.out.is_json:
        keys = ("client", "installed", "set_up", "hooks", "file")
        context.out.document([dict(zip(keys, row, strict=True)) for row in rows])
        return OK
    told = {True: "yes", False: "no", None: "?"}
    shown = [(row[0], *(told[value] for value in row[1:3]), _TOLD_HOOKS[row[3]], row[4] or "") for row in rows]
    context.out.table(("CLIENT", "INSTALLED", "SET UP", "HOOKS", "SETTINGS"), shown)
    return OK if any(row[1] for row in rows) else NEGATIVE


_TOLD_HOOKS = {True: "yes", False: "no", None: "-"}


def _state(client: Client) -> tuple[str, bool | None, bool | None, bool | None, str | None]:
    """Name, whether it is installed, whether it has our entry and our hooks (None: unknown), and its settings' file."""
    file = settings_file(client)
    if file is None:
        return client.name, None, None, None, None
    try:
        is_set_up: bool | None = our_server(client, file) is not None
    except (ConfigurationError, OSError):
        is_set_up = None
    return client.name, is_found(client, file), is_set_up, _has_hooks(client), str(file)


def _has_hooks(client: Client) -> bool | None:
    """Whether a client has our hooks; None if it has none at all, or they cannot be read."""
    file = None if client.hooks is None else _of_user(client.hooks.files)
    if file is None or client.hooks is None:
        return None
    try:
        text = _read(file) or ""
        return _without_hooks(text, client.hooks) != text
    except (ConfigurationError, OSError):
        return None


# Trying a connection


HANDSHAKE_SECONDS = 20.0
_INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "commonplace-doctor", "version": "1"},
    },
}


def connections() -> Iterator[tuple[str, str | None]]:
    """Each client that has our entry, for this user or in this folder, with the reason why it cannot connect."""
    for client in CLIENTS.values():
        here = None if client.project is None else Path.cwd() / client.project
        for file in dict.fromkeys(file for file in (settings_file(client), here) if file is not None):
            try:
                server = our_server(client, file)
            except (ConfigurationError, OSError) as error:
                if is_found(client, file):
                    yield f"{client.title}, {file}", str(error)
                continue
            if server is not None:
                yield f"{client.title}, {file}", _refusal(server)
        yield from _hook_connections(client)


def _hook_connections(client: Client) -> Iterator[tuple[str, str | None]]:
    """The files with our hooks of a client, with the reason why they cannot run: a hook itself never says so."""
    hooks = client.hooks
    if hooks is None:
        return
    for file in filter(None, (_of_user(hooks.files), Path.cwd() / hooks.project)):
        try:
            words = shlex.split(_known_command(_read(file) or "", hooks), posix=sys.platform != "win32")
        except (ConfigurationError, OSError, ValueError):
            continue
        if not words:
            continue
        missing = [word for word in (words[0], *words[3:4]) if not Path(word.strip('"')).is_file()]
        reason = (
            f"{missing[0]} does not exist; run `commonplace setup {client.name} --hooks` again" if missing else None
        )
        yield f"hooks of {client.title}, {file}", reason


def _refusal(server: StdioServer | HttpServer) -> str | None:
    """Why a handshake with a server fails; None if it answers as an MCP server does."""
    try:
        answer = _ask_address(server) if isinstance(server, HttpServer) else _ask_program(server)
        told = json.loads(answer)
    except (OSError, ValueError) as error:
        return f"{error}; set it up again with `commonplace setup`"
    if "result" in told:
        return None
    return f"the server refused: {str(told.get('error', told))[:200]}"


def _ask_program(server: StdioServer) -> str:
    """Start the program as the client does, and greet it."""
    import subprocess
    import threading

    words = [server.command, *server.args]
    with subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
        env={**os.environ, **server.env},
    ) as process:
        timer = threading.Timer(HANDSHAKE_SECONDS, process.kill)
        timer.start()
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(_INITIALIZE) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        finally:
            timer.cancel()
            process.kill()
    if not line:
        raise OSError(f"`{shlex.join(words)}` gave no answer within {HANDSHAKE_SECONDS:.0f} s")
    return line


def _ask_address(server: HttpServer) -> str:
    import urllib.request

    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **server.headers}
    asked = urllib.request.Request(server.url, json.dumps(_INITIALIZE).encode(), headers)
    with urllib.request.urlopen(asked, timeout=HANDSHAKE_SECONDS) as response:
        for line in response:
            text = line.decode().strip().removeprefix("data:").strip()
            if text.startswith("{"):
                return str(text)
    raise OSError(f"{server.url} gave no answer")
