"""The program for people: `commonplace COMMAND …`. Loads what a command needs only when that command runs."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

from commonplace.cli.exit_codes import INTERRUPTED, PIPE_CLOSED, exit_code, message
from commonplace.errors import CommonplaceError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code. Our own errors become one line on stderr, never a traceback."""
    try:
        try:
            _mend_streams()
            return _run(argv)
        except KeyboardInterrupt:
            print("commonplace: interrupted", file=sys.stderr)
            return INTERRUPTED
    except BrokenPipeError:
        _forget_output()
        return PIPE_CLOSED


def _mend_streams() -> None:
    """A closed stream becomes an empty one; what the output's encoding lacks is written as an escape."""
    # In this order each gets its own number, the lowest free one: a book opened later must not be standard output.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - as long as the program
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _run(argv: Sequence[str] | None) -> int:
    from commonplace.cli.invocation import Context
    from commonplace.cli.parser import build_parser

    try:
        arguments = build_parser().parse_args(argv)
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 0
    try:
        context = Context.create(arguments)
        code: int = context.arguments.run(context)
        context.out.stdout.flush()
        return code
    except BrokenPipeError:
        raise
    except (CommonplaceError, OSError) as error:
        print(f"commonplace: {message(error)}", file=sys.stderr)
        return exit_code(error)


def _forget_output() -> None:
    """The reader is gone: what is still buffered goes nowhere, so that Python does not complain on its way out."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            os.dup2(nowhere, stream.fileno())
        except (OSError, ValueError):
            continue
