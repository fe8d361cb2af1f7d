"""Our tool in the wording `anthropic` answers as Anthropic's own filesystem tool does, over random sequences of calls.

The deliberate differences are listed in docs/guides/claude-tool.md; `Pair` evens each of them out where it says so.
"""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path

import pytest
from anthropic.tools import BetaLocalFilesystemMemoryTool, ToolError
from hypothesis import given, settings
from hypothesis import strategies as st

from commonplace.tools import ClaudeMemoryTool, FolderMemoryStore, InMemoryMemoryStore, ToolAnswer
from doubles import rounds

Arguments = dict[str, object]

NAMES = ["a", "b", "c.md", ".hidden", "d e", "ü", "Z"]
LINES = ["", "one", "two", "x", "xx", "tab\there", "ünï", "\r", "`{braces}` %s"]
CRASHED = "the SDK raises something else than its ToolError"


def tidy(path: object) -> str:
    return re.sub("/+", "/", str(path)).rstrip("/")


class Pair:
    """The SDK's tool on a folder and ours beside it; `call` gives the answers of both, made comparable."""

    def __init__(self, folder: Path, ours: ClaudeMemoryTool) -> None:
        self.sdk = BetaLocalFilesystemMemoryTool(str(folder))
        self.ours = ours
        self.root = self.sdk.memory_root

    def call(self, arguments: Arguments) -> tuple[ToolAnswer, ToolAnswer]:
        ours = self.ours.call(arguments)
        directories = self._directories()
        theirs = self._ask_sdk(arguments)
        if theirs.is_error:
            # Difference: a refused call changes nothing; the SDK leaves the directories that it made for it.
            for made in sorted(self._directories() - directories, reverse=True):
                made.rmdir()
        if theirs.text == CRASHED:
            # Difference: what the SDK lets escape as another exception is an answer here.
            assert ours.is_error, f"the SDK crashes on {arguments}, and this is said: {ours.text}"
            theirs = ours
        return ours, theirs

    def _ask_sdk(self, arguments: Arguments) -> ToolAnswer:
        # Difference: paths are answered in their one form, without slashes doubled or at the end.
        tidied = {name: tidy(value) if name.endswith("path") else value for name, value in arguments.items()}
        try:
            return ToolAnswer(self._comparable(str(self.sdk.call(tidied))))
        except ToolError as error:
            return ToolAnswer(str(error), is_error=True)
        except OSError:
            return ToolAnswer(CRASHED, is_error=True)

    def _comparable(self, text: str) -> str:
        if text.startswith("Here're the files"):
            # Difference: a directory counts 4096 bytes, whatever the file system says.
            text = re.sub(r"^[\d.]+[BKMG]\t(\S.*/)$", r"4K\t\1", text, flags=re.MULTILINE)
            text = re.sub(r"(:\n)[\d.]+[BKMG]\t", r"\g<1>4K\t", text, count=1)
        return text

    def _directories(self) -> set[Path]:
        return {path for path in self.root.rglob("*") if path.is_dir()}

    def tree(self) -> dict[str, str | None]:
        """What the SDK's folder holds, as our store would say it."""
        return {
            f"/memories/{path.relative_to(self.root).as_posix()}": None if path.is_dir() else path.read_bytes().decode()
            for path in self.root.rglob("*")
        }

    def our_tree(self, path: str = "/memories") -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        for entry in self.ours.store.list(path):
            found[entry.path] = None if entry.is_directory else self.ours.store.read(entry.path)
            if entry.is_directory:
                found |= self.our_tree(entry.path)
        return found


def any_path(choice: random.Random) -> str:
    depth = choice.choices([0, 1, 2, 3, 4], [1, 6, 6, 3, 1])[0]
    slash = choice.choices(["/", "//"], [20, 1])[0]
    end = choice.choices(["", "/"], [20, 1])[0]
    return "/memories" + "".join(slash + choice.choice(NAMES) for _ in range(depth)) + end


def any_text(choice: random.Random) -> str:
    lines = [choice.choice(LINES) for _ in range(choice.randrange(6))]
    return "\n".join(lines) + choice.choice(["", "\n", "\n\n"])


def any_call(choice: random.Random, known: dict[str, str | None]) -> Arguments:
    command = choice.choices(["view", "create", "str_replace", "insert", "delete", "rename"], [5, 5, 6, 6, 1, 3])[0]
    files = sorted(path for path, text in known.items() if text is not None)
    likely = files if command in ("str_replace", "insert") and choice.random() < 0.8 else sorted(known)
    path = choice.choice(likely) if likely and choice.random() < 0.9 else any_path(choice)
    if command == "view":
        view_range = choice.choice([None, None, [choice.randrange(-1, 9), choice.choice([-3, -1, 0, 1, 2, 3, 9])]])
        return {"command": command, "path": path} | ({"view_range": view_range} if view_range else {})
    if command == "create":
        return {"command": command, "path": any_path(choice), "file_text": any_text(choice)}
    if command == "str_replace":
        text = known.get(path) or any_text(choice)
        start = choice.randrange(len(text) + 1)
        old = text[start : start + choice.randrange(1, 9)]
        # Difference: an empty text to replace is refused in words of our own.
        return {"command": command, "path": path, "old_str": old or "absent", "new_str": any_text(choice)}
    if command == "insert":
        return {
            "command": command,
            "path": path,
            "insert_line": choice.randrange(-1, 8),
            "insert_text": any_text(choice),
        }
    if command == "delete":
        return {"command": command, "path": path}
    return {"command": command, "old_path": path, "new_path": any_path(choice)}


def run_sequence(seed: int, pair: Pair, calls: int) -> None:
    choice = random.Random(seed)
    for number in range(calls):
        arguments = any_call(choice, pair.our_tree())
        ours, theirs = pair.call(arguments)
        assert ours == theirs, f"seed {seed}, call {number}: {arguments}"
    assert pair.our_tree() == pair.tree(), f"seed {seed}"


@pytest.mark.promise("claude-like-the-sdk")
def test_thousands_of_random_calls_are_answered_as_by_anthropics_own_tool(tmp_path):
    for seed in range(rounds(60)):
        with InMemoryMemoryStore() as memory:
            pair = Pair(tmp_path / "sdk", ClaudeMemoryTool(memory, wording="anthropic"))
            run_sequence(seed, pair, calls=50)
        shutil.rmtree(tmp_path / "sdk")


@pytest.mark.promise("claude-like-the-sdk")
def test_a_folder_answers_as_anthropics_own_tool_does_and_both_may_share_it(tmp_path):
    for seed in range(1_000, 1_000 + rounds(15)):
        pair = Pair(
            tmp_path / f"sdk-{seed}",
            ClaudeMemoryTool(FolderMemoryStore(tmp_path / f"ours-{seed}"), wording="anthropic"),
        )
        run_sequence(seed, pair, calls=40)
        shared = ClaudeMemoryTool(FolderMemoryStore(pair.root), wording="anthropic")
        assert Pair(tmp_path / f"sdk-{seed}", shared).our_tree() == pair.tree()


@pytest.mark.promise("claude-like-the-sdk")
@settings(max_examples=rounds(300))
@given(
    text=st.text(alphabet="ab\n\r é", max_size=30),
    old=st.text(alphabet="ab\n", min_size=1, max_size=4),
    new=st.text(alphabet="ab\n{}", max_size=6),
    line=st.integers(-2, 12),
)
def test_edits_of_any_text_are_those_of_anthropics_own_tool(tmp_path_factory, text, old, new, line):
    folder = tmp_path_factory.mktemp("edits")
    with InMemoryMemoryStore() as memory:
        pair = Pair(folder, ClaudeMemoryTool(memory, wording="anthropic"))
        for arguments in (
            {"command": "create", "path": "/memories/f", "file_text": text},
            {"command": "str_replace", "path": "/memories/f", "old_str": old, "new_str": new},
            {"command": "insert", "path": "/memories/f", "insert_line": line, "insert_text": new},
            {"command": "view", "path": "/memories/f"},
        ):
            ours, theirs = pair.call(arguments)
            assert ours == theirs
        assert pair.our_tree() == pair.tree()
    shutil.rmtree(folder)


# What each side says where they are meant to differ: the list in docs/guides/claude-tool.md.
DIFFERENCES = [
    ("a sibling of the root", {"command": "create", "path": "/memoriesX", "file_text": ""}, "Path must start with"),
    ("a traversal that stays inside", {"command": "view", "path": "/memories/a/../a"}, "would escape"),
    ("a dot segment", {"command": "view", "path": "/memories/./a"}, "Invalid path"),
    ("a backslash", {"command": "create", "path": "/memories/a\\b", "file_text": ""}, "Invalid path"),
    ("a control character", {"command": "create", "path": "/memories/a\nb", "file_text": ""}, "Invalid path"),
    ("a blank name", {"command": "create", "path": "/memories/ /x", "file_text": ""}, "Invalid path"),
    ("a NUL in the text", {"command": "create", "path": "/memories/n", "file_text": "\0"}, "NUL"),
    (
        "an empty text to replace",
        {"command": "str_replace", "path": "/memories/e", "old_str": "", "new_str": ""},
        "empty",
    ),
    ("a range of three", {"command": "view", "path": "/memories/e", "view_range": [1, 2, 3]}, "view_range"),
    ("an unknown field", {"command": "view", "path": "/memories/e", "depth": 3}, "does not take"),
]


@pytest.mark.promise("claude-listed-differences")
@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda difference: difference[0])
def test_each_difference_is_meant(difference, tmp_path):
    _, arguments, words = difference
    with InMemoryMemoryStore() as memory:
        pair = Pair(tmp_path, ClaudeMemoryTool(memory, wording="anthropic"))
        pair.call({"command": "create", "path": "/memories/a/x", "file_text": "text"})
        pair.call({"command": "create", "path": "/memories/e", "file_text": ""})

        ours = pair.ours.call(arguments)

        assert ours.is_error
        assert words in ours.text
        assert str(pair.sdk.call(arguments)) != ours.text
