"""The program as a shell meets it: flags, exit codes, pipes, terminals, signals, start-up."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

import commonplace
from commonplace import errors
from commonplace.cli import main, output
from commonplace.cli.exit_codes import MEANINGS, exit_code
from commonplace.cli.output import Output, ProgressBar, ago
from commonplace.cli.parser import build

from .conftest import Run

PROGRAM = [sys.executable, "-m", "commonplace.cli"]
ROOT = Path(__file__).resolve().parents[2]


# Start-up and help


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys; from commonplace.cli import main; code = main(['--help']); "
        "heavy = {'numpy', 'onnxruntime', 'apsw', 'commonplace.book', 'platformdirs'} & set(sys.modules); "
        "sys.exit(code or ', '.join(sorted(heavy)) or 0)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_add_loads_no_model(book_file: Path) -> None:
    script = (
        "import sys; from commonplace.cli import main; main(['add', 'tea']); "
        "sys.exit(', '.join({'numpy', 'onnxruntime'} & set(sys.modules)) or 0)"
    )
    environment = {**os.environ, "DATABASE_URL": str(book_file)}
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_every_command_has_help_with_examples(run: Run) -> None:
    for command in build()[1]:
        shown = run(command.name, "--help")
        assert shown.code == 0
        assert command.summary in " ".join(shown.out.split())
        assert f"commonplace {command.name}" in shown.out.split("examples:")[1]


def test_help_is_what_the_program_says_alone_and_of_one_command(run: Run) -> None:
    whole = run("--help")
    assert whole.code == 0
    assert run() == run("help") == whole
    assert run("help", "search") == run("search", "--help")
    assert run("help", "serach").err == "commonplace: there is no command 'serach'; did you mean search?\n"
    assert run("help", "serach").code == 2


def test_the_package_is_a_program() -> None:
    ran = subprocess.run([sys.executable, "-m", "commonplace", "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("commonplace ")


def test_help_keeps_names_and_summaries_apart(run: Run) -> None:
    """A long name ran into its summary: `import-mastraTake over the threads`."""
    shown = run("--help").out.splitlines()
    for command in build()[1]:
        assert any(line.split() == [command.name, *command.summary.split()] for line in shown), command.name


def test_help_says_that_a_book_may_be_on_postgresql(run: Run) -> None:
    """The help of `--db` spoke of files alone."""
    assert "postgresql://" in run("--help").out.split("--db URL")[1].split("--remote")[0]


def test_help_fits_a_terminal_of_80_columns(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some descriptions were single lines of 400 characters. Examples are left as they are, to be copied."""
    monkeypatch.setenv("COLUMNS", "80")
    for words in ([], *([command.name] for command in build()[1])):
        shown = run(*words, "--help").out.split("examples:")[0]
        assert [line for line in shown.splitlines() if len(line) > 80] == []


def test_a_key_with_its_kind_is_asked_for_once(run: Run) -> None:
    """`history` showed `[KIND] KEY [[KIND] KEY ...]`, as if it took several entries."""
    for command, usage in (
        ("history", "[KIND] KEY\n"),
        ("restore", "[KIND] KEY revision\n"),
        ("purge", "[[KIND] KEY]\n"),
    ):
        assert usage in run(command, "--help").out


def test_every_example_in_the_help_can_be_parsed() -> None:
    import shlex

    parser, commands = build()
    for command in commands:
        for line in command.examples.splitlines():
            for part in line.split("|"):
                words = shlex.split(part.split(">")[0])
                if words[0] == "commonplace":
                    assert parser.parse_args(words[1:]).command == command.name


def test_the_written_reference_is_what_the_program_says() -> None:
    written = (ROOT / "docs" / "reference" / "cli.md").read_text()
    made = subprocess.run([sys.executable, "scripts/cli_reference.py"], cwd=ROOT, capture_output=True, check=True)
    assert written == made.stdout.decode(), "run `python scripts/cli_reference.py > docs/reference/cli.md`"


@pytest.mark.parametrize("name", ["COMMONPLACE_AGENTS", "DATABASE_URL"])
def test_a_home_folder_that_does_not_exist_is_told_and_no_traceback(
    run: Run, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "~no-such-user/x")
    ran = run("add", "tea")
    assert (ran.code, ran.out) == (6, "")
    assert "is '~no-such-user/x'; there is no such home folder" in ran.err


def test_a_data_folder_that_cannot_be_made_is_told_with_the_next_step(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.delenv("DATABASE_URL")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    ran = run("add", "tea")
    folder = tmp_path / "file" / "commonplace"
    assert (ran.code, ran.out) == (6, "")
    assert ran.err == (
        f"commonplace: cannot make the folder {folder} for the book: Not a directory; name a file elsewhere, "
        "with --db, DATABASE_URL or the path to open\n"
    )


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("--db {} stats", 6),
        ("export {}", 2),
        ("import {}", 2),
        ("import-mastra {}", 2),
        ("backup {}", 2),
        ("model pull --from {}", 2),
    ],
)
def test_so_is_one_in_an_argument(run: Run, command: str, code: int) -> None:
    run("add", "tea")
    ran = run(*command.format("~no-such-user/x").split())
    assert (ran.code, ran.out) == (code, "")
    assert "is '~no-such-user/x'; there is no such home folder" in ran.err


def test_version_is_printed(run: Run) -> None:
    from commonplace import __version__

    assert run("--version").out == f"commonplace {__version__}\n"


# Flags and errors


@pytest.mark.promise("cli-default-namespace")
def test_flags_of_every_command_stand_before_or_after_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("--db", "x.db", "--namespace", "user/ana", "add", "--file", "/a", "x")
    assert run("ls", "--db", "x.db", "--namespace", "user/ana", "--json").json[0]["path"] == "/a"
    assert run("--json", "--db", "x.db", "ls").json == []
    monkeypatch.setenv("COMMONPLACE_NAMESPACE", "user/ana")
    assert run("--db", "x.db", "ls").out == "a\n"
    monkeypatch.setenv("DATABASE_URL", "x.db")
    assert run("ls").out == "a\n"
    assert run("namespaces").out == "user/ana\n"


def test_flags_stand_between_arguments_and_end_where_two_dashes_say_so(run: Run) -> None:
    assert run("keys", "create", "--db", "x.db", "ada").code == 0
    assert run("keys", "list", "--db", "x.db", "--json").json[0]["name"] == "ada"
    run("add", "green", "--db", "y.db", "tea", "--file", "/a")
    run("add", "--db", "y.db", "--file", "/b", "--", "--json")
    assert run("--db", "y.db", "cat", "/a").out == "green tea"
    assert run("--db", "y.db", "cat", "/b").out == "--json"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["serach"], "commonplace: there is no command 'serach'; did you mean search?\nTry `commonplace --help`.\n"),
        (["search"], "commonplace: the following arguments are required: query\nTry `commonplace search --help`.\n"),
        (["--json"], "commonplace: the following arguments are required: COMMAND\nTry `commonplace --help`.\n"),
        (
            ["ls", "--namespace", "a//b"],
            "commonplace: argument --namespace: a namespace label must not be empty or blank; write it like "
            "user/u-123\nTry `commonplace ls --help`.\n",
        ),
        (
            ["search", "x", "--as-of", "yesterday"],
            "commonplace: argument --as-of: 'yesterday' is not a time; write 2026-01-31, 2026-01-31T12:00, "
            "2026-01-31T12:00:00Z, or 2h for two hours ago\nTry `commonplace search --help`.\n",
        ),
        (
            ["add", "x", "--ttl", "soon"],
            "commonplace: argument --ttl: 'soon' is not a duration; write 90s, 30m, 12h, 7d or 2w\n"
            "Try `commonplace add --help`.\n",
        ),
        (
            ["add", "x", "--ttl", "99999999999w"],
            "commonplace: argument --ttl: '99999999999w' is too long; write a shorter one, such as 90d\n"
            "Try `commonplace add --help`.\n",
        ),
    ],
)
def test_a_wrong_call_is_told_in_a_line_and_exits_with_two(run: Run, words: list[str], said: str) -> None:
    refused = run(*words)
    assert (refused.code, refused.out, refused.err) == (2, "", said)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "--public-url memory.example",
            "'memory.example' is not a URL; write it like https://memory.example\n",
        ),
        ("--public-url ftp://memory.example", "'ftp://memory.example' is not a URL"),
        (
            "--cors-origin app.example",
            "'app.example' is not an origin; write only scheme, host and port, like https://",
        ),
        ("--cors-origin https://app.example/", "'https://app.example/' is not an origin"),
    ],
)
def test_serve_refuses_what_is_no_address(capsys: pytest.CaptureFixture[str], words: str, said: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        build()[0].parse_args(["serve", *words.split()])
    assert said in capsys.readouterr().err


def test_serve_takes_the_origins_that_pages_have() -> None:
    origins = ["https://app.example", "http://127.0.0.1:3000", "app://obsidian.md", "*"]
    words = [word for origin in origins for word in ("--cors-origin", origin)]
    given = build()[0].parse_args(["serve", "--public-url", "https://memory.example/commonplace", *words])
    assert (given.public_url, given.cors_origins) == ("https://memory.example/commonplace", origins)


def test_a_book_that_does_not_exist_is_not_made_by_reading(run: Run, book_file: Path) -> None:
    missing = run("ls")
    assert missing.code == 3
    assert missing.err.startswith(f"commonplace: there is no book at {book_file} yet; `commonplace add 'some text'`")
    assert not book_file.exists()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["add", "x", "--confidence", "7"], 2),
        (["add", "x", "--importance", "7"], 2),
        (["add", "x", "--tag", "x" * 10_000], 2),
        (["add", "--as-json", "{bad"], 2),
        (["add", "x", "--file", "/a/../b"], 2),
        (["add", "x", "--ttl", "40000d"], 2),
        (["import", "garbage.jsonl"], 2),
        (["import", "empty.jsonl"], 2),
        (["import", "cut.jsonl"], 2),
        (["keys", "create", "bad name", "--namespace", "user/ana"], 2),
        (["serve", "--rate", "fast"], 2),
        (["serve", "--host", "0.0.0.0"], 6),
        (["serve", "--jwt-issuer", "https://id.example"], 6),
    ],
)
def test_a_command_that_is_refused_leaves_no_new_book_behind(
    run: Run, tmp_path: Path, words: list[str], code: int
) -> None:
    run("--db", "full.db", "add", "tea")
    lines = run("--db", "full.db", "export").out.splitlines(keepends=True)
    (tmp_path / "cut.jsonl").write_text("".join(lines[:3]))
    (tmp_path / "garbage.jsonl").write_text("hello\n")
    (tmp_path / "empty.jsonl").touch()
    assert run("--db", "typo.db", *words).code == code
    assert [path.name for path in tmp_path.glob("typo.db*")] == []


def test_a_database_server_that_is_not_there_is_told_without_its_password(run: Run) -> None:
    refused = run("--db", "postgresql://me:secret@127.0.0.1:1/x", "ls")
    assert (refused.code, "cannot be reached" in refused.err, "secret" in refused.err) == (5, True, False)


def test_every_error_class_has_an_exit_code_and_every_code_a_meaning() -> None:
    made = [
        kind.__new__(kind)
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.CommonplaceError) and kind is not errors.CommonplaceError
    ]
    codes = {exit_code(error) for error in made}
    assert codes == set(MEANINGS) - {0, 1, 130, 141}


def test_a_bad_setting_names_its_variable(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCH_DEFAULT_LIMIT", "many")
    refused = run("ls")
    assert refused.code == 6
    assert refused.err.startswith("commonplace: SEARCH_DEFAULT_LIMIT is 'many'; it must be a whole number")


# Pipes, signals, terminals


@pytest.mark.parametrize(
    ("command", "closed", "code", "said"),
    [
        ("add", "<&-", 2, "commonplace: the text is empty; give a text to store\n"),
        ("import -", "<&-", 2, "the file is empty or not an export"),
        ("purge --all", "<&-", 2, "add --yes to confirm"),
        ("search tea", ">&-", 0, "keywords only"),
        ("export", ">&-", 0, ""),
        ("--help", ">&-", 0, ""),
        ("mcp", "<&- >&-", 0, ""),
        ("nonsense", "2>&-", 2, ""),
        ("stats", "<&- >&- 2>&-", 0, ""),
    ],
)
def test_a_closed_stream_is_an_empty_one(run: Run, command: str, closed: str, code: int, said: str) -> None:
    run("add", "tea")
    before = run("export").out
    words = [*PROGRAM, *command.split()]
    ran = subprocess.run(["sh", "-c", f'"$@" {closed}', "sh", *words], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (code, "")
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr
    assert run("export").out == before


def test_what_the_encoding_lacks_is_escaped(run: Run) -> None:
    run("add", "caf\xe9 \u2603 \U0001f600")
    latin = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    shown = subprocess.run([*PROGRAM, "ls", "--records"], capture_output=True, env=latin, check=True).stdout
    assert shown.endswith(b"caf\xe9 \\u2603 \\U0001f600\n")
    for words in (["ls", "--records", "--json"], ["changes", "--json"]):
        printed = subprocess.run([*PROGRAM, *words], capture_output=True, env=latin, check=True).stdout
        assert json.loads(printed) == run(*words).json


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["cat /big", "export", "ls -R"])
def test_a_closed_pipe_is_quiet(run: Run, book_file: Path, command: str, unbuffered: str) -> None:
    for number in range(3):
        run("add", "--file", "/big", str(number) * 200_000)
    if command == "ls -R":
        with commonplace.open(book_file, background=False) as book:
            files = book.space("user", "default").files
            for number in range(400):
                files.write(f"/{'long' * 60}/{number}", "x")
    environment = {**os.environ, "DATABASE_URL": str(book_file), "PYTHONUNBUFFERED": unbuffered}
    with subprocess.Popen(
        [*PROGRAM, *command.split()], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_control_c_exits_with_130_and_changes_nothing(run: Run, book_file: Path) -> None:
    run("add", "one")
    environment = {**os.environ, "DATABASE_URL": str(book_file)}
    # A shell's background job ignores Ctrl-C, and all that it starts would as well.
    own_signals = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(
        [*PROGRAM, "import", "-"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
        preexec_fn=own_signals,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        # The program reads its input only once it is up, so a full pipe shows that it is past its start.
        written = 0
        while written < 1_000_000:
            written += process.stdin.write("x" * 50_000 + "\n")
        process.stdin.flush()
        for _ in range(3):
            # Python drops an interrupt that arrives inside a finalizer; people press Ctrl-C again.
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
                break
        assert process.stderr.read() == "commonplace: interrupted\n"
    assert process.returncode == 130
    assert run("ls", "--records", "--json").json[0]["content"] == {"text": "one"}


@pytest.mark.parametrize("step", ["parser.build_parser", "invocation.Context.create"])
def test_control_c_exits_with_130_from_the_start(run: Run, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"commonplace.cli.{step}", interrupted)
    ran = run("stats")
    assert (ran.code, ran.out, ran.err) == (130, "", "commonplace: interrupted\n")


def on_a_terminal(book_file: Path, *words: str, **variables: str) -> str:
    """What a command writes to a terminal, standard output and error together."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "DATABASE_URL": str(book_file), "TERM": "xterm", "COLUMNS": "80", **variables}
    process = subprocess.Popen([*PROGRAM, *words], stdout=follower, stderr=follower, stdin=follower, env=environment)
    os.close(follower)
    written = b""
    while True:
        try:
            part = os.read(leader, 65_536)
        except OSError:  # how Linux tells that the last writer has closed it
            break
        if not part:
            break
        written += part
    process.wait()
    os.close(leader)
    # On a slow machine the clock is drawn, and erased again.
    return re.sub(r"(\r\x1b\[K[^\r\n]* … \d+ s)+\r\x1b\[K", "", written.decode().replace("\r\n", "\n"))


def test_a_terminal_gets_colours_and_a_pipe_does_not(run: Run, book_file: Path) -> None:
    run("add", "tea")
    assert "\x1b[" in on_a_terminal(book_file, "ls", "--records")
    assert "\x1b[" not in on_a_terminal(book_file, "ls", "--records", "--no-color")
    assert "\x1b[" not in on_a_terminal(book_file, "ls", "--records", NO_COLOR="1")
    assert "\x1b[" not in on_a_terminal(book_file, "ls", "--records", "--json")
    assert "\x1b[" not in run("ls", "--records").out


def test_a_long_list_on_a_terminal_goes_through_the_pager(run: Run, book_file: Path) -> None:
    run("add", "--file", "/short", "one")
    pager = "sed s/^/paged:/"
    assert on_a_terminal(book_file, "ls", PAGER=pager) == "short\n"
    with commonplace.open(book_file, background=False) as book:
        for number in range(60):
            book.space("user", "default").files.write(f"/many/{number:02}", "text")
    plain = run("ls", "/many").out
    assert plain.splitlines() == [f"{number:02}" for number in range(60)]
    assert on_a_terminal(book_file, "ls", "/many", PAGER=pager) == "".join(f"paged:{n:02}\n" for n in range(60))
    assert on_a_terminal(book_file, "ls", "/many", "--no-pager", PAGER=pager) == plain
    assert on_a_terminal(book_file, "ls", "/many", PAGER="no-such-program") == plain
    assert "paged:" not in on_a_terminal(book_file, "ls", "/many", "--json", PAGER=pager)


def test_a_terminal_gets_how_long_ago_and_a_pipe_the_time(run: Run, book_file: Path) -> None:
    run("add", "--file", "/a", "one")
    assert "just now" in on_a_terminal(book_file, "ls", "-l")
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", run("ls", "-l").out)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "just now"),
        (59, "just now"),
        (60, "1 min ago"),
        (7_300, "2 h ago"),
        (86_400, "1 d ago"),
        (604_799, "6 d ago"),
    ],
)
def test_how_long_ago_is_said_in_the_largest_unit(seconds: int, said: str) -> None:
    now = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert ago(now - timedelta(seconds=seconds), now) == said


def test_what_is_long_past_or_to_come_is_said_as_a_date() -> None:
    now = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert ago(now - timedelta(days=7), now).startswith("2026-01-24 ")
    assert ago(now + timedelta(days=1), now).startswith("2026-02-01 ")


def test_mcp_on_a_terminal_says_what_it_waits_for(book_file: Path) -> None:
    leader, follower = pty.openpty()
    os.write(leader, b"\x04")  # the end of the input
    environment = {**os.environ, "DATABASE_URL": str(book_file)}
    ran = subprocess.run([*PROGRAM, "mcp"], stdin=follower, capture_output=True, text=True, env=environment, check=True)
    os.close(leader)
    os.close(follower)
    assert "commonplace: waiting for an MCP client on standard input" in ran.stderr
    piped = subprocess.run([*PROGRAM, "mcp"], input="", capture_output=True, text=True, env=environment, check=True)
    assert "waiting for an MCP client" not in piped.stderr


def test_stored_escape_sequences_never_reach_a_terminal(run: Run, book_file: Path) -> None:
    run("add", "--file", "/a", "safe \x1b]0;owned\x07 text")
    assert on_a_terminal(book_file, "cat", "/a") == "safe �]0;owned� text\n"
    assert run("cat", "/a").out == "safe \x1b]0;owned\x07 text"


def test_progress_shows_on_a_terminal_only(run: Run, book_file: Path) -> None:
    run("add", "tea")
    target = str(book_file.parent / "copy.jsonl")
    shown = on_a_terminal(book_file, "export", target)
    assert "100%" in shown
    assert shown.endswith(f"exported 1 state of 1 namespace to {target}\n")
    assert run("export", target, "--force").err == ""


def test_a_progress_bar_is_gone_when_the_work_is_done() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    with ProgressBar(stream, is_shown=True) as progress:
        progress(5, 10, "passages")
        progress(6, 10, "passages")  # too soon after the other to be drawn
        progress(10, 10, "passages")
    lines = stream.getvalue().split("\r\x1b[K")
    assert [line[-21:].strip() for line in lines] == ["", "50%  5 of 10 passages", "0%  10 of 10 passages", ""]


def test_long_work_without_an_estimate_shows_how_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> int:
            if text.startswith("\r\x1b[Kerasing"):
                drawn.set()
            return super().write(text)

    drawn = threading.Event()
    monkeypatch.setattr(output, "SECONDS_OF_SILENCE", 0.0)
    monkeypatch.setattr(output, "SECONDS_BETWEEN", 0.001)
    stream = Terminal()
    with output.clock(stream, "erasing", is_shown=True):
        assert drawn.wait(30)
    assert stream.getvalue().startswith("\r\x1b[Kerasing … 0 s")
    assert stream.getvalue().endswith("\r\x1b[K")
    pipe = io.StringIO()
    with output.clock(pipe, "erasing", is_shown=True):
        assert pipe.getvalue() == ""


def test_short_work_leaves_the_terminal_alone() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    with output.clock(stream, "erasing", is_shown=True):
        pass
    assert stream.getvalue() == ""


def test_tables_align_and_json_has_stable_times(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output(is_json=False, wants_color=True)
    out.table(("n", "name"), [["1", "a"], ["10", "bb"]], right=(0,))
    out.json_line({"at": datetime(2026, 1, 31, 12, tzinfo=UTC)})
    assert capsys.readouterr().out == ' n  name\n 1  a\n10  bb\n{"at":"2026-01-31T12:00:00.000000Z"}\n'


def test_purge_on_a_terminal_wants_a_yes(run: Run, book_file: Path) -> None:
    run("add", "--file", "/a", "one")
    leader, follower = pty.openpty()
    environment = {**os.environ, "DATABASE_URL": str(book_file)}
    for answer, code in ((b"no\n", 2), (b"yes\n", 0)):
        os.write(leader, answer)
        ran = subprocess.run(
            [*PROGRAM, "purge", "/a"], stdin=follower, capture_output=True, text=True, env=environment, check=False
        )
        assert ran.returncode == code
        assert "Type yes to continue" in ran.stderr
    os.close(leader)
    os.close(follower)


def test_main_returns_and_never_exits() -> None:
    assert main(["--help"]) == 0
    assert main(["nonsense"]) == 2
