"""Runs the commands of docs/internal/postgres.md on real servers, and looks whether the book is what it was."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import commonplace
from doubles import WordEmbedder
from postgres_server import DURABLE, NOBODY, PostgresServer, _binaries, _free_port, _identity

CHAPTER = (Path(__file__).parents[2] / "docs/internal/postgres.md").read_text(encoding="utf-8")
COMMANDS = dict(re.findall(r"^```sh ([\w-]+)\n(.*?)^```", CHAPTER, re.MULTILINE | re.DOTALL))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of the user that the servers run as."""
    made = Path(tempfile.mkdtemp(prefix="commonplace-care-"))
    if os.getuid() == 0:
        os.chown(made, NOBODY, NOBODY)
    yield made
    shutil.rmtree(made, ignore_errors=True)


def run(name: str, folder: Path, *, as_server: bool = False, **variables: object) -> str:
    """Run one block of the chapter, as the administrator of the server would."""
    program = folder / "commonplace"
    if not program.exists():
        program.write_text(
            f'#!/bin/sh\nPYTHONPATH={Path(commonplace.__file__).parents[1]} exec {sys.executable} -m commonplace "$@"\n'
        )
        program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{_binaries()}:{os.environ['PATH']}"}
    environment.update({key: str(value) for key, value in variables.items()})
    script = COMMANDS[name]
    if as_server:
        script, _, rest = script.partition("commonplace ")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=300,
        **(_identity() if as_server else {}),  # type: ignore[call-overload]
    )  # fmt: skip
    logs = [log.read_text() for log in folder.glob("*.log")]
    assert done.returncode == 0, (done.stderr, *logs)
    if as_server and rest:
        COMMANDS[f"{name}, after it"] = f"commonplace {rest}"
        return run(f"{name}, after it", folder, **variables)
    return str(done.stdout)


def fill(url: str) -> None:
    with commonplace.open(url, embedder=WordEmbedder(), background=False) as book:
        for user in ("ana", "bob"):
            space = book.space("user", user)
            space.files.write("/notes", f"{user} drinks green tea")
            space.files.append("/notes", "and coffee")
            space.records.create(type="note", content={"n": 1}, id="r-1")
        book.reindex()


def content(url: str) -> bytes:
    """All of a book with its history; checked."""
    lines: list[bytes] = []
    with commonplace.open(url, embedder=WordEmbedder(), background=False) as book:
        assert book.verify() == []
        book.export(lines.append)
        assert book.stats().vectors == book.stats().namespaces * 2
        assert book.space("user", "ana").search("green tea").hits[0].key == "/notes"
    # The first line has the time of the export.
    return b"".join(lines).partition(b"\n")[2]


def test_every_block_of_commands_is_run() -> None:
    assert set(COMMANDS) == {"dump", "restore-dump", "base-backup", "point-in-time", "upgrade"}


@pytest.mark.promise("postgres-tools")
def test_a_dump_is_restored_on_another_server(folder: Path) -> None:
    one, other = PostgresServer({"fsync": "off"}), PostgresServer({"fsync": "off"})
    url = one.create_database()
    fill(url + "?partitions=2")
    run("dump", folder, DATABASE_URL=url)
    run("upgrade", folder, DATABASE_URL=url)
    new = other.url().rpartition("/")[0]
    assert "namespaces     2" in run("restore-dump", folder, NEW_SERVER=new)
    assert content(f"{new}/book") == content(url)
    fill(f"{new}/book")
    one.remove()
    other.remove()


@pytest.mark.promise("postgres-tools")
def test_a_book_goes_back_to_a_point_in_time(folder: Path) -> None:
    archive = folder / "archive"
    archive.mkdir()
    if os.getuid() == 0:
        os.chown(archive, NOBODY, NOBODY)
    command = re.search(r"archive_command = '(.*)'", CHAPTER)
    assert command is not None
    server = PostgresServer(
        {**DURABLE, "archive_mode": "on", "archive_command": command[1].replace("/archive", str(archive))}
    )
    url = server.create_database()
    fill(url + "?partitions=2")
    run("base-backup", folder, as_server=True, BASE=folder / "base", SERVER=server.url().rpartition("/")[0])
    with commonplace.open(url, embedder=WordEmbedder(), background=False) as book:
        book.space("user", "ana").files.write("/later", "written after the base backup")
        book.reindex()
    with psycopg.connect(url, autocommit=True) as connection:
        when = connection.execute("SELECT now()::text").fetchall()[0][0]
        time.sleep(0.01)
        with commonplace.open(url, embedder=WordEmbedder(), background=False) as book:
            lines: list[bytes] = []
            book.export(lines.append)
            kept = b"".join(lines).partition(b"\n")[2]
            book.space("user", "bob").purge()  # the mistake
        segment = connection.execute("SELECT pg_walfile_name(pg_switch_wal())").fetchall()[0][0]
    deadline = time.monotonic() + 60
    while not (archive / segment).exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    port, restored = _free_port(), folder / "restored"
    told = run(
        "point-in-time", folder, as_server=True, BASE=folder / "base", RESTORED=restored, ARCHIVE=archive, WHEN=when,
        PORT=port, DATABASE=url.rpartition("/")[2],
        OPTIONS="-c listen_addresses=127.0.0.1 -c unix_socket_directories= -c max_connections=200",
    )  # fmt: skip
    try:
        assert "namespaces     2" in told
        lines = []
        with commonplace.open(
            url.replace(str(server.port), str(port)), embedder=WordEmbedder(), background=False
        ) as book:
            book.export(lines.append)
            assert book.verify() == []
            book.space("user", "bob").files.append("/notes", "it goes on")
        assert b"".join(lines).partition(b"\n")[2] == kept
    finally:
        subprocess.run(
            [str(_binaries() / "pg_ctl"), "-D", str(restored), "-m", "immediate", "stop"],
            check=True, capture_output=True, **_identity(),  # type: ignore[call-overload]
        )  # fmt: skip
        server.remove()
