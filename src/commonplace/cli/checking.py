"""`doctor`: looks at everything that can be wrong, and says for each finding what to do next."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from commonplace.cli.context import Context
from commonplace.cli.failures import NEGATIVE, OK, message
from commonplace.cli.output import counted, shown_bytes
from commonplace.errors import CommonplaceError
from commonplace.settings import open_from_settings

if TYPE_CHECKING:
    from commonplace.book import Book
    from commonplace.cli.parser import Commands
    from commonplace.store import StoreStats

LEAST_FREE_BYTES = 200_000_000


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report."""

    check: str
    is_ok: bool
    text: str


def register(commands: Commands) -> None:
    commands.add(
        "doctor",
        "Care",
        "Check the book, its indexes, the disk and the model.",
        run,
        about="Exits with 1 when something is wrong. Each problem comes with the next step.",
        examples="  commonplace doctor",
    )


def run(context: Context) -> int:
    context.refuse_a_service("doctor")
    findings = []
    for finding in _findings(context):
        findings.append(finding)
        if not context.out.is_json:
            mark, *styles = ("ok     ", "green") if finding.is_ok else ("problem", "red", "bold")
            context.out.line(f"{context.out.paint(mark, *styles)}  {finding.check:<10}  {finding.text}")
            context.out.stdout.flush()
    is_well = all(finding.is_ok for finding in findings)
    if context.out.is_json:
        context.out.document(
            {
                "ok": is_well,
                "checks": [{"check": one.check, "ok": one.is_ok, "text": one.text} for one in findings],
            }
        )
    return OK if is_well else NEGATIVE


def _findings(context: Context) -> Iterator[Finding]:
    file = context.settings.book_file
    if file is not None and not file.exists():
        yield Finding("book", True, f"there is none at {file} yet; the first `commonplace add` makes it")
    else:
        yield from _book_findings(context)
    if file is not None:
        yield _disk(file)
    yield _model(context)


def _book_findings(context: Context) -> Iterator[Finding]:
    with ExitStack() as open_things:
        try:
            book = open_things.enter_context(open_from_settings(context.settings, background=False))
            stats = book.stats()
        except CommonplaceError as error:
            yield Finding("book", False, message(error))
            return
        place = context.settings.place
        entries = counted(sum(stats.entries.values()), "entry", "entries")
        yield Finding("book", True, f"{place} opens: {shown_bytes(stats.bytes)}, {entries}")
        yield Finding("schema", True, f"version {stats.schema}")
        yield _writable(context, book)
        yield from _integrity(context, book, stats)
        yield _vectors(context, book, stats)


def _writable(context: Context, book: Book) -> Finding:
    try:
        book.store.write(context.settings.namespace_labels, lambda transaction: None)
    except CommonplaceError as error:
        return Finding("writable", False, message(error))
    return Finding("writable", True, "a write gets its turn")


def _integrity(context: Context, book: Book, stats: StoreStats) -> Iterator[Finding]:
    try:
        with context.progress() as progress:
            problems = book.verify(progress=progress)
    except CommonplaceError as error:
        yield Finding("integrity", False, message(error))
        return
    if not problems:
        sound = "the rows are complete" if context.settings.book_file is None else "the file is sound"
        waiting = (
            f"; at most {stats.unchecked:,} rows of an older program have no checksum yet" if stats.unchecked else ""
        )
        yield Finding("integrity", True, f"{sound}, and the indexes agree with the texts{waiting}")
    for problem in problems:
        step = ""
        if "commonplace" not in problem:
            salvage = context.command("export", "--salvage", "rescued.jsonl")
            step = (
                f"; restore a backup, or take what can still be read with `{salvage}` and import it into a new book"
                if problem.startswith(("file:", "entry:"))
                else f"; run `{context.command('reindex', '--keywords')}`"
            )
        yield Finding("integrity", False, problem + step)


def _vectors(context: Context, book: Book, stats: StoreStats) -> Finding:
    try:
        book.store.models()
    except CommonplaceError as error:  # the store's, about which no other model helps
        return Finding("vectors", False, message(error))
    try:
        if stats.model is not None:
            book.indexer.try_model(of_writes=True)
    except CommonplaceError as error:
        other = context.command("reindex", "--model", "NAME")
        return Finding(
            "vectors", False, f"{message(error)}; until then new texts are found by words only; `{other}` takes another"
        )
    if stats.pending:
        from commonplace.engine.search import waiting

        text = f"{waiting(stats.pending)}; run `{context.command('reindex')}` to embed now"
    else:
        text = f"{counted(stats.vectors, 'vector')} of {stats.model or 'no model yet'}"
    return Finding("vectors", True, text)


def _disk(file: Path) -> Finding:
    folder = next(parent for parent in file.parents if parent.exists())
    free = shutil.disk_usage(folder).free
    size = file.stat().st_size if file.exists() else 0
    if not os.access(folder, os.W_OK):
        return Finding("disk", False, f"{folder} is not writable; change its permissions, or move the book with --db")
    if free < max(LEAST_FREE_BYTES, size):
        return Finding("disk", False, f"only {shown_bytes(free)} are free in {folder}; make room, for backups too")
    return Finding("disk", True, f"{shown_bytes(free)} are free in {folder}")


def _model(context: Context) -> Finding:
    try:
        embedder = context.settings.embedder()
        started = time.perf_counter()
        embedder.embed(["Is the model well?"], purpose="query")
        took = time.perf_counter() - started
    except CommonplaceError as error:
        return Finding("model", False, f"{error}; until then, search works by words only")
    return Finding("model", True, f"{embedder.identity} loads and embeds ({took * 1000:.0f} ms)")
