"""Hostile requests to the unified tool: nothing outside of its namespace is ever read or written."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import commonplace
from commonplace.graph import MemoryNode
from commonplace.tools.unified import COMMANDS, UnifiedMemoryTool
from doubles import rounds

SECRET = "c0ffee-secret"
OWN = ("user", "u1")
OTHERS = (("user", "u2"), ("user",), ("user", "u1", "thread", "t2"), ("user", "u", "1"), ("memory", "M"))

WORDS = "user u1 u2 secret thread t2 memory M a b $ é ~ .. . / // %2e %2E%2e %2f %5c %00 \\ \u2024 ． ／ \u202e e\u0301"
pieces = st.sampled_from([*WORDS.split(" "), " ", "\x00", "\x01", "\n", "\ud800"])
paths = st.one_of(st.lists(pieces, max_size=8).map("".join), st.lists(pieces, max_size=8).map("/".join), st.text())
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
texts = st.one_of(st.text(max_size=20), st.sampled_from(["", "\n", SECRET, "a" * 2_000, "\x00", "\udfff"]))
requests = st.fixed_dictionaries(
    {"path": paths, "command": st.sampled_from(COMMANDS)}, optional={"content": texts, "oldContent": texts}
)
wild = st.one_of(
    requests,
    anything,
    st.fixed_dictionaries(
        {}, optional={"path": paths | anything, "command": st.text() | anything, "content": anything, "extra": anything}
    ),
)
ODD_IDS = "/ .. . t1 T1 t1/ t1/thread/t2 ../t2 %2e%2e thread t\u0301 ｔ1 t1\u200b"
UNUSABLE_IDS = ["", " ", "\x00", "\n", "t1\x01", "\ud800", "x" * 201, "é" * 101, "x" * 10_000]
thread_ids = st.sampled_from([*ODD_IDS.split(" "), "t1 ", *UNUSABLE_IDS]) | st.text(max_size=12)


def dump(book, namespace):
    space = book.space(*namespace)
    files = {item.path: space.files.read(item.path) if item.kind == "file" else None for item in space.files.walk()}
    return files, space.stats().commit


@pytest.fixture(scope="module")
def world():
    """A book with secrets all around the one namespace that the tool may touch."""
    with commonplace.open(":memory:", background=False, embedder=_NoEmbedder()) as book:
        for namespace in OTHERS:
            book.space(*namespace).files.write("/secret", f"{SECRET} of {'/'.join(namespace)}")
            book.space(*namespace).files.write("/a/b", f"{SECRET} of {'/'.join(namespace)}")
        yield book, {namespace: dump(book, namespace) for namespace in OTHERS}


class _NoEmbedder:
    identity = "none@1"
    dimensions = 2
    calibration = (0.0, 1.0)

    def embed(self, texts, *, purpose):
        raise AssertionError("nothing here searches")


@pytest.mark.promise("unified-isolation", "unified-always-an-envelope")
@given(arguments=wild)
@settings(max_examples=rounds(400))
def test_no_request_reads_or_writes_outside_of_the_tools_namespace(world, arguments):
    book, before = world
    text = UnifiedMemoryTool(book.space(*OWN)).call(arguments)

    envelope = json.loads(text)
    assert text.encode()
    assert list(envelope) == ["command", "path", "ok", "result" if envelope["ok"] else "error"]
    assert isinstance(envelope["command"], str)
    assert isinstance(envelope["path"], str)
    if not envelope["ok"]:
        assert list(envelope["error"]) == ["message", "code"]
        assert envelope["error"]["code"] in ("EINVAL", "ENOENT", "EISDIR", "ENOTDIR")
    assert f"{SECRET} of" not in text
    assert {namespace: dump(book, namespace) for namespace in OTHERS} == before


@pytest.mark.promise("unified-path-normalised", "unified-isolation")
@given(path=paths)
def test_an_echoed_path_that_was_taken_is_in_its_one_form(world, path):
    answer = UnifiedMemoryTool(world[0].space(*OWN)).answer({"path": path, "command": "list"})
    if answer.ok:
        again = UnifiedMemoryTool(world[0].space(*OWN)).answer({"path": answer.path, "command": "list"})
        assert again == answer
        assert answer.path.startswith("/")
        assert not {"", ".", ".."} & set(answer.path[1:].split("/")) or answer.path == "/"
    else:
        assert answer.path == path


@pytest.mark.promise("graph-thread-isolation")
@given(one=thread_ids, other=thread_ids)
@settings(max_examples=rounds(150))
def test_no_thread_id_reaches_the_memory_of_another_thread(one, other):
    with commonplace.open(":memory:", background=False, embedder=_NoEmbedder()) as book:
        shared = MemoryNode(book, "M", OWN)
        shared.tree().write("/secret", SECRET)
        tool = UnifiedMemoryTool(MemoryNode(book, "M", OWN, scope="perThread"))
        wrote = tool.answer({"path": "/mine", "command": "append", "content": "x"}, thread_id=one)
        read = tool.answer({"path": "/mine", "command": "read"}, thread_id=other)
        root = tool.answer({"path": "/", "command": "list"}, thread_id=other)
        if not wrote.ok:
            assert wrote.error["code"] == ("EINVAL" if one else "ENOTMEM")
        assert read.ok == (wrote.ok and one == other)
        if root.ok and one != other:
            assert root.result == {"entries": []}
        assert shared.get_all() == {"/secret": SECRET}
