"""Generates docs/reference/cli.md from the parser: `python scripts/cli_reference.py > docs/reference/cli.md`.

It does not use the layout of argparse, which differs between versions of Python.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from commonplace import settings
from commonplace.cli.arguments import GROUPS, Command, Parser
from commonplace.cli.exit_codes import MEANINGS
from commonplace.cli.parser import DESCRIPTION, EXAMPLES, build

_FIRST = """\
<!-- Made by `python scripts/cli_reference.py > docs/reference/cli.md`; a test fails when it is stale. -->

# The command line"""

_RULES = """\
Results go to standard output; notices, questions, progress and errors go to standard error. With `--json`, a command
prints one JSON document; `changes` and `export` print one JSON object per line. Times in JSON are ISO 8601 in UTC. You
can write the options of every command before or after it. Colours and progress bars appear only on a terminal.

A time is ISO 8601 (by default in the local time zone), or how long ago: `30m`, `2h`, `7d`, `2w`. A key that begins with
`/` is the path of a file; any other is the id of a record or a thread. If both had the id, the live one is meant."""


_TERMINAL = """\
## In a terminal

Times are relative, and long lists open in a pager (`$PAGER`, else `less`). An id may be cut to its first
four characters or more, if no other id begins with them. `purge` cannot be undone, so it needs the whole id.

```console
$ commonplace search "when do we ship?"
0.20  record  6c01029e-656e-4682-8c48-d2504b507f14
      Deploys go out on Tuesdays
$ commonplace history 6c01
revision  action   commit  when     by
       1  created       2  2 h ago  cli
$ commonplace purge 6c01
commonplace: a purge cannot be undone, so it needs the whole id: 6c01029e-656e-4682-8c48-d2504b507f14
$ commonplace reindex
██░░░░░░░░░░░░░░░░░░░░░░░░░░   7%  104 of 1,500 passages, about 68 s left
$ commonplace serach ships
commonplace: there is no command 'serach'; did you mean search?
```

Your shell completes commands, options, paths and ids once you have run [completion](#completion). `NO_COLOR=1` turns
colours off."""


def reference() -> str:
    parser, commands = build()
    blocks = [_FIRST, DESCRIPTION, _fenced(EXAMPLES), _RULES, _TERMINAL]
    blocks += ["## Options of every command", _table(_everywhere(parser))]
    for group in GROUPS:
        blocks.append(f"## {group}")
        for command in commands:
            if command.group == group:
                blocks += _command(command)
    blocks += ["## Exit codes", _table((str(code), meaning) for code, meaning in MEANINGS.items())]
    blocks.append("An error is one line on standard error: `commonplace: what is wrong; what to do next`.")
    blocks += ["## Environment", _table(_environment())]
    return "\n\n".join(blocks) + "\n"


def _command(command: Command) -> Iterator[str]:
    own = [action for action in command.parser._actions if not _is_everywhere(command.parser, action)]
    yield f"### `{command.name}`"
    yield str(command.parser.description).replace("%%", "%")
    yield _fenced(" ".join(["commonplace", command.name, *map(_usage, own)]))
    if own:
        yield _table((_name(action), action.help or "") for action in own)
    yield _fenced(command.examples)


def _is_everywhere(parser: argparse.ArgumentParser, action: argparse.Action) -> bool:
    groups = [group for group in parser._action_groups if group.title == "options of every command"]
    return any(action in group._group_actions for group in groups)


def _everywhere(parser: Parser) -> Iterator[tuple[str, str]]:
    for action in parser._actions:
        if action.option_strings:
            yield _name(action), action.help or ""


def _metavar(action: argparse.Action) -> str:
    if action.choices is not None and action.metavar is None:
        return "|".join(map(str, action.choices))
    return str(action.metavar or action.dest.upper())


def _name(action: argparse.Action) -> str:
    if not action.option_strings:
        return f"`{_metavar(action)}`"
    value = "" if action.nargs == 0 else f" {_metavar(action)}"
    return f"`{', '.join(action.option_strings)}{value}`"


def _usage(action: argparse.Action) -> str:
    if action.option_strings:
        return f"[{action.option_strings[-1]}{'' if action.nargs == 0 else ' ' + _metavar(action)}]"
    name = _metavar(action)
    return f"[{name}]" if action.nargs in ("?", "*") else name


def _environment() -> Iterator[tuple[str, str]]:
    text = re.sub(r"\n {5,}", " ", settings.__doc__ or "")  # a line that is indented more continues the one before
    for line in text.splitlines():
        if line.startswith("    "):
            name, _, meaning = line.strip().partition(" ")
            yield f"`{name}`", meaning.strip()


def _table(rows: Iterator[tuple[str, str]]) -> str:
    lines = [
        f"| {name.replace('|', chr(92) + '|')} | {meaning.replace('|', chr(92) + '|')} |" for name, meaning in rows
    ]
    return "\n".join(["| | |", "| --- | --- |", *lines])


def _fenced(text: str) -> str:
    lines = [line.removeprefix("  ") for line in text.splitlines()]
    return "\n".join(["```console", *lines, "```"])


if __name__ == "__main__":
    print(reference(), end="")
