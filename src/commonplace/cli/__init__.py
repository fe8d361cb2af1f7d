"""The command-line program `commonplace COMMAND …`. A command loads what it needs when it runs."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

from commonplace.cli.exit_codes import INTERRUPTED, PIPE_CLOSED, exit_code, message
from commonplace.errors import CommonplaceError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code. Our own errors are one line on stderr, never a traceback."""
    try:
        try:
            _repair_streams()
            return _run(argv)
        except KeyboardInterrupt:
            print("commonplace: interrupted", file=sys.stderr)
            return INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return PIPE_CLOSED


def _repair_streams() -> None:
    """Replace closed streams with empty ones; write characters that the output cannot encode as escapes."""
    # In this order each gets its own descriptor. Otherwise a book that is opened later could be standard output.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - open until the program exits
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _run(argv: Sequence[str] | None) -> int:
    from commonplace.cli.invocation import Context
    from commonplace.cli.parser import build_parser

    words = sys.argv[1:] if argv is None else argv
    try:
        arguments = build_parser().parse_args(words or ["help"])
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 0
    try:
        context = Context.create(arguments)
        with context.out.paged(context.settings.pager if context.is_paged else ""):
            code: int = context.arguments.run(context)
        context.out.stdout.flush()
        return code
    except BrokenPipeError:
        raise
    except (CommonplaceError, OSError) as error:
        print(f"commonplace: {message(error)}", file=sys.stderr)
        return exit_code(error)


def _discard_output() -> None:
    """Discard buffered output, because the reader is gone and Python would report an error at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            os.dup2(nowhere, stream.fileno())
        except (OSError, ValueError):
            continue
