"""The parser of the whole command line: all commands in their groups, help with examples, and completion in shells."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from commonplace import __version__
from commonplace.cli import (
    maintenance_commands,
    read_commands,
    service_commands,
    setup_commands,
    transfer_commands,
    write_commands,
)
from commonplace.cli.arguments import (
    GROUPS,
    Command,
    CommandParser,
    Commands,
    HelpFormatter,
    Parser,
    add_everywhere,
    unknown_command,
)
from commonplace.cli.invocation import Context
from commonplace.errors import CommonplaceError, InvalidInput

MODULES = (write_commands, read_commands, transfer_commands, maintenance_commands, setup_commands, service_commands)
DESCRIPTION = "Long-term memory for AI agents: add, search, read and undo."
EXAMPLES = """\
  commonplace add "Deploys go out on Tuesdays" --tag project:x
  commonplace search "when do we deploy?"
  echo "call Ana" | commonplace add --file /notes/today
  commonplace history /notes/today"""
_ENDING = "Run `commonplace help COMMAND` for its options and examples. docs/reference/cli.md lists the exit codes."


def build() -> tuple[Parser, list[Command]]:
    parser = Parser(
        prog="commonplace",
        usage="commonplace [OPTIONS] COMMAND …",
        formatter_class=HelpFormatter,
        add_help=False,
        allow_abbrev=False,
    )
    add_everywhere(parser, is_root=True)
    parser.add_argument("--version", action="version", version=f"commonplace {__version__}", help="show the version")
    commands = Commands(
        parser.add_subparsers(
            prog="commonplace",
            metavar="COMMAND",
            dest="command",
            required=True,
            help=argparse.SUPPRESS,
            parser_class=CommandParser,
        )
    )
    for module in MODULES:
        module.register(commands)
    _declare_help(commands, parser)
    _declare_completion(commands, parser)
    parser.description = _overview(commands.all)
    parser.epilog = f"examples:\n{EXAMPLES}\n\n{_ENDING}"
    return parser, commands.all


def build_parser() -> Parser:
    return build()[0]


def _declare_help(commands: Commands, root: Parser) -> None:
    def show_help(context: Context) -> int:
        name = context.arguments.topic
        shown = root if name is None else commands.subparsers.choices.get(name)
        if shown is None:
            raise InvalidInput(unknown_command(name, list(commands.subparsers.choices)))
        context.out.stdout.write(shown.format_help())
        return 0

    parser = commands.add(
        "help",
        "Help",
        "Show this help, or that of one command.",
        show_help,
        examples="""\
  commonplace help
  commonplace help search""",
    )
    parser.add_argument("topic", nargs="?", metavar="COMMAND", help="the command")


def _overview(commands: list[Command]) -> str:
    blocks = [DESCRIPTION]
    width = max(len(command.name) for command in commands) + 2
    for group in GROUPS:
        lines = [f"  {command.name:<{width}}{command.summary}" for command in commands if command.group == group]
        blocks.append("\n".join([f"{group}:", *lines]))
    return "\n\n".join(blocks)


# Completion

# The scripts know nothing about commands. At each Tab they pass the words of the line to `commonplace completion
# --words`, which prints a candidate a line, with a tab and a description if there is one. A candidate that ends with
# `/` can be completed further. The line `:files` asks the shell to complete names of files.

SHELLS = ("bash", "zsh", "fish")
FILES = ":files"
MOST = 100
"""Candidates that are shown at once."""

_DESCRIPTION = 76

_BASH = r"""# commonplace completion for bash. Add to ~/.bashrc:  eval "$(commonplace completion bash)"
_commonplace() {
    local line current=${COMP_WORDS[COMP_CWORD]//\\/}
    current=${current#[\"\']}
    COMPREPLY=()
    while IFS= read -r line; do
        if [[ $line == :files ]]; then
            compopt -o bashdefault -o default
            return
        fi
        line=${line%%$'\t'*}
        [[ $line == */ ]] && compopt -o nospace
        [[ $line == /* ]] && compopt -o filenames
        COMPREPLY+=("$line")
    done < <(printf '%s\n' "${COMP_WORDS[@]:1:COMP_CWORD-1}" "$current" | commonplace completion --words 2>/dev/null)
}
complete -F _commonplace commonplace
"""

_ZSH = r"""#compdef commonplace
# commonplace completion for zsh. Add to ~/.zshrc, after compinit:  eval "$(commonplace completion zsh)"
_commonplace() {
    local line value
    local -a folders values shown
    for line in ${(f)"$(print -rl -- "${(@Q)words[2,CURRENT]}" | commonplace completion --words 2>/dev/null)"}; do
        if [[ $line == :files ]]; then
            _files
            return
        fi
        value=${line%%$'\t'*}
        if [[ $value == */ ]]; then
            folders+=("$value")
        else
            values+=("$value")
            shown+=("${line/$'\t'/  }")
        fi
    done
    (( $#folders )) && compadd -S '' -a folders
    (( $#values )) && compadd -l -d shown -a values
}
compdef _commonplace commonplace
"""

_FISH = r"""# commonplace completion for fish. Run once:
#   commonplace completion fish > ~/.config/fish/completions/commonplace.fish
function __commonplace_complete
    set -l words (commandline -opc)
    set -a words (commandline -ct | string unescape)
    set -l lines (printf '%s\n' $words[2..-1] | commonplace completion --words 2>/dev/null)
    if test "$lines[1]" = :files
        __fish_complete_path (commandline -ct)
    else
        printf '%s\n' $lines
    end
end
complete -c commonplace -f -a '(__commonplace_complete)'
"""

SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def _declare_completion(commands: Commands, root: argparse.ArgumentParser) -> None:
    def run(context: Context) -> int:
        given = context.arguments
        if given.words:
            lines = sys.stdin.read().split("\n")[:-1]
            for one in candidates(root, commands.subparsers.choices, lines, context):
                context.out.line(f"{one.text}\t{one.description}" if one.description else one.text)
        elif given.shell is None:
            raise InvalidInput(f"name your shell: {context.command('completion', 'bash')}, or zsh or fish")
        else:
            context.out.stdout.write(SCRIPTS[given.shell])
        return 0

    parser = commands.add(
        "completion",
        "Help",
        "Print a script that completes command lines in your shell.",
        run,
        about="It completes commands, options, and the paths and ids of entries; not the entries of a service.",
        examples="""\
  eval "$(commonplace completion bash)"    # in ~/.bashrc
  eval "$(commonplace completion zsh)"     # in ~/.zshrc, after compinit
  commonplace completion fish > ~/.config/fish/completions/commonplace.fish""",
    )
    parser.add_argument("shell", nargs="?", choices=(*SHELLS, None), metavar="SHELL", help=", ".join(SHELLS))
    parser.add_argument(
        "--words", action="store_true", help="complete the last of the words on standard input; the scripts use this"
    )


@dataclass(frozen=True)
class Candidate:
    text: str
    description: str = ""


Source = Callable[[Context, str], Iterator[Candidate]]
"""What completes a value that begins so."""


def candidates(
    root: argparse.ArgumentParser,
    commands: Mapping[str, argparse.ArgumentParser],
    words: Sequence[str],
    context: Context,
) -> list[Candidate]:
    """What the last word of a line may become. Nothing if the book cannot be opened: a Tab is no place for errors."""
    *before, current = words or [""]
    line = _Line(root, commands, before)
    try:
        found = list(line.candidates(current, _with_options(context, line.values)))
    except (CommonplaceError, OSError):
        return []
    fitting = {one.text: one for one in found if one.text == FILES or one.text.startswith(current)}
    return [one for one in fitting.values() if one.text.isprintable()][:MOST]


class _Line:
    """The words before the one that is completed, read as far as they go."""

    def __init__(
        self, root: argparse.ArgumentParser, commands: Mapping[str, argparse.ArgumentParser], before: Sequence[str]
    ) -> None:
        self._commands = commands
        self._parser = root
        self._command: str | None = None
        self._positionals = 0
        self._awaited: argparse.Action | None = None
        self._are_options_over = False
        self.values: dict[str, str] = {}
        for word in before:
            self._take(word)

    def _take(self, word: str) -> None:
        if self._awaited is not None:
            self.values[self._awaited.dest] = word
            self._awaited = None
        elif word == "--" and not self._are_options_over:
            self._are_options_over = True
        elif word.startswith("-") and len(word) > 1 and not self._are_options_over:
            action = self._parser._option_string_actions.get(word)
            self._awaited = action if action is not None and action.nargs != 0 else None
        elif self._command is None:
            self._command = word
            self._parser = self._commands.get(word, self._parser)
        else:
            self._positionals += 1

    def candidates(self, current: str, context: Context) -> Iterator[Candidate]:
        if self._awaited is not None:
            return self._values_of(self._awaited, current, context)
        if current.startswith("-") and not self._are_options_over:
            return self._options()
        if self._command is None:
            return self._names()
        if self._command not in self._commands:
            return iter(())
        action = self._positional()
        return iter(()) if action is None else self._values_of(action, current, context)

    def _names(self) -> Iterator[Candidate]:
        return (Candidate(name, _first_line(parser.description)) for name, parser in self._commands.items())

    def _options(self) -> Iterator[Candidate]:
        for action in self._parser._actions:
            if action.option_strings:
                yield Candidate(action.option_strings[-1], _first_line(action.help))

    def _positional(self) -> argparse.Action | None:
        left = self._positionals
        for action in self._parser._actions:
            if not action.option_strings:
                if left == 0 or action.nargs in ("*", "+"):
                    return action
                left -= 1
        return None

    def _values_of(self, action: argparse.Action, current: str, context: Context) -> Iterator[Candidate]:
        if action.choices is not None:
            return (Candidate(str(choice)) for choice in action.choices if choice is not None)
        if action.dest == "topic":
            return self._names()
        source = SOURCES.get((self._command or "", action.dest)) or SOURCES.get(("", action.dest))
        return iter(()) if source is None else source(context, current)


def _with_options(context: Context, values: Mapping[str, str]) -> Context:
    """The context of the line that is completed: with its book, service and namespace."""
    settings = context.settings
    if "db" in values:
        settings = replace(settings, database_url=values["db"], remote=None)
    if "remote" in values:
        settings = replace(settings, remote=values["remote"])
    if "namespace" in values:
        settings = replace(settings, namespace=values["namespace"])
    return replace(context, settings=settings)


def _first_line(text: str | None) -> str:
    line = " ".join((text or "").split("\n\n")[0].split()).replace("%%", "%")
    line = "".join(letter if letter.isprintable() else "�" for letter in line[: _DESCRIPTION + 1])
    return line if len(line) <= _DESCRIPTION else line[: _DESCRIPTION - 1] + "…"


# What completes a value


def _files(context: Context, current: str) -> Iterator[Candidate]:
    yield Candidate(FILES)


def _entries(context: Context, current: str) -> Iterator[Candidate]:
    """Paths below the typed directory if the word begins with /, else ids of records and threads, and the root."""
    if current.startswith("/"):
        yield from _paths(context, current)
        return
    if not current:
        yield Candidate("/", "files")
    yield from _ids(context, current)


def _paths(context: Context, current: str) -> Iterator[Candidate]:
    if context.settings.remote is not None:
        return
    with context.space() as space:
        directory = current.rpartition("/")[0] or "/"
        for info in space.files.list(directory):
            yield Candidate(info.path + ("/" if info.kind == "directory" else ""))


def _directories(context: Context, current: str) -> Iterator[Candidate]:
    return (one for one in _paths(context, current or "/") if one.text.endswith("/"))


def _ids(context: Context, current: str) -> Iterator[Candidate]:
    """The newest records and threads whose ids begin so."""
    from commonplace.filters import Filter
    from commonplace.store import Scan

    if context.settings.remote is not None:
        return
    with context.book() as book:
        namespace = context.labels(book)
        for kind in ("record", "thread"):
            chosen = Filter(kinds=(kind,), key_prefix=current or None)
            scan = Scan(chosen, limit=MOST) if current else Scan(chosen, "updated", descending=True, limit=MOST)
            for entry in book.store.scan(namespace, scan).entries:
                yield Candidate(entry.key, _first_line(entry.text or entry.heading or kind))


def _namespaces(context: Context, current: str) -> Iterator[Candidate]:
    if context.settings.remote is None:
        with context.book() as book:
            for namespace in book.namespaces(limit=1_000):
                yield Candidate("/".join(namespace))


def _kinds(context: Context, current: str) -> Iterator[Candidate]:
    from commonplace.space.names import SEARCHED_KINDS

    return (Candidate(kind) for kind in SEARCHED_KINDS)


def _models(context: Context, current: str) -> Iterator[Candidate]:
    from commonplace.embedding.catalog import MODELS

    return (Candidate(model.id) for model in MODELS)


SOURCES: Mapping[tuple[str, str], Source] = {
    ("cat", "key"): _entries,
    ("rm", "key"): _entries,
    ("history", "names"): _entries,
    ("restore", "names"): _entries,
    ("purge", "names"): _entries,
    ("confirm", "id"): _ids,
    ("mv", "old"): _paths,
    ("mv", "new"): _paths,
    ("add", "file"): _paths,
    ("ls", "path"): _directories,
    ("search", "kind"): _kinds,
    ("namespaces", "prefix"): _namespaces,
    ("vector-index", "wanted"): _namespaces,
    ("model", "name"): _models,
    ("reindex", "model"): _models,
    ("export", "file"): _files,
    ("import", "file"): _files,
    ("import-mastra", "file"): _files,
    ("backup", "target"): _files,
    ("restore-backup", "file"): _files,
    ("move", "source"): _files,
    ("move", "target"): _files,
    ("", "db"): _files,
    ("", "namespace"): _namespaces,
}
"""By command and argument; those of every command have no command."""
