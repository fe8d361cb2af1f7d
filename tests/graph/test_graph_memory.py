"""Memory nodes: which namespace holds a tree, and whose it is; what a connector shows of it, character by character."""

from __future__ import annotations

import json

import pytest

from commonplace import InvalidInput, NotFound
from commonplace.graph import MemoryConnector, MemoryNode
from commonplace.tools import UnifiedMemoryTool

NAMESPACE = ("user", "u1")


@pytest.fixture
def node(book):
    return MemoryNode(book, "M", NAMESPACE)


@pytest.fixture
def thread_node(book):
    return MemoryNode(book, "M", NAMESPACE, scope="perThread")


def write(files, *paths):
    for path in paths:
        files.write(path, "x")


# The node


@pytest.mark.promise("graph-namespaces")
def test_a_node_keeps_its_tree_below_the_graphs_namespace(book, node, thread_node):
    node.tree().write("/a", "for all")
    thread_node.tree("t1").write("/a", "for t1")

    assert book.space("user", "u1", "memory", "M").files.read("/a") == "for all"
    assert book.space("user", "u1", "memory", "M", "thread", "t1").files.read("/a") == "for t1"
    assert book.namespaces() == [("user", "u1", "memory", "M"), ("user", "u1", "memory", "M", "thread", "t1")]


@pytest.mark.promise("graph-bound-namespace")
def test_a_bound_namespace_holds_the_tree_itself(book):
    book.space("user", "u1").files.write("/a", "of another face")
    assert MemoryNode(book, "M", NAMESPACE, bind=("user", "u1")).tree().read("/a") == "of another face"
    bound = MemoryNode(book, "M", NAMESPACE, bind=("user", "u1"), scope="perThread")
    bound.tree("t1").write("/b", "x")
    assert book.space("user", "u1", "thread", "t1").files.read("/b") == "x"


@pytest.mark.promise("graph-scope")
def test_a_scope_is_global_or_per_thread_and_thread_is_the_same(book):
    assert MemoryNode(book, "M").scope == "global"
    assert MemoryNode(book, "M", scope="thread").scope == "perThread"
    for wrong in ("Global", "", "per_thread"):
        with pytest.raises(InvalidInput, match="unknown scope"):
            MemoryNode(book, "M", scope=wrong)


@pytest.mark.promise("graph-thread-isolation")
def test_a_threads_data_is_not_seen_by_another_nor_by_the_global_memory(node, thread_node):
    thread_node.tree("t1").write("/a", "one")
    assert thread_node.get_all(thread_id="t2") == {}
    assert node.get_all() == {}
    with pytest.raises(NotFound):
        thread_node.tree("t2").read("/a")


@pytest.mark.promise("graph-thread-required")
@pytest.mark.parametrize("thread_id", [None, ""])
def test_a_per_thread_memory_needs_a_thread_id(thread_node, thread_id):
    with pytest.raises(InvalidInput, match=r"^threadId is required for perThread scope$"):
        thread_node.tree(thread_id)
    assert UnifiedMemoryTool(thread_node).call({"path": "/a", "command": "read"}, thread_id=thread_id) == (
        '{"command":"read","path":"/a","ok":false,'
        '"error":{"message":"threadId is required for perThread scope","code":"ENOTMEM"}}'
    )


@pytest.mark.promise("graph-thread-isolation")
@pytest.mark.parametrize("thread_id", ["a/b", "../t1", " ", "a\x00", "a\nb", "\ud800", "x" * 201, 7, ("t1",)])
def test_a_thread_id_that_no_namespace_can_hold_is_refused(book, thread_node, thread_id):
    with pytest.raises(InvalidInput, match=r"^thread id .* cannot be used: "):
        thread_node.tree(thread_id)
    answer = UnifiedMemoryTool(thread_node).answer(
        {"path": "/a", "command": "append", "content": "x"}, thread_id=thread_id
    )
    assert answer.error["code"] == "EINVAL"
    assert answer.error["message"].startswith("thread id ")
    assert book.namespaces() == []


def test_a_namespace_without_room_for_threads_is_refused_when_the_node_is_made(book):
    long = tuple("abcdefgh")
    MemoryNode(book, "M", long)
    with pytest.raises(InvalidInput, match="1 to 10 labels"):
        MemoryNode(book, "M", long, scope="perThread")


@pytest.mark.promise("graph-memory-superset")
def test_a_node_has_stat_ensure_dir_get_all_and_dump(node, thread_node):
    assert node.ensure_dir("/empty/deep").path == "/empty/deep"
    assert node.ensure_dir("/empty/deep/").kind == "directory"
    assert node.ensure_dir("/").path == "/"
    node.tree().write("/notes/b", "two")
    node.tree().write("/notes/a", "öne")
    info = node.stat("notes/a")
    assert (info.kind, info.size, info.lines) == ("file", 4, 1)
    assert node.stat("/notes").kind == "directory"
    with pytest.raises(NotFound):
        node.stat("/missing")
    assert list(node.get_all().items()) == [("/notes/a", "öne"), ("/notes/b", "two")]
    assert node.dump() == {
        "nodeId": "M",
        "scope": "global",
        "data": {"/notes/a": "öne", "/notes/b": "two"},
        "dirs": ["/empty", "/empty/deep", "/notes"],
    }
    thread_node.tree("t1").write("/x", "y")
    assert thread_node.dump(thread_id="t1") == {
        "nodeId": "M",
        "scope": "perThread",
        "threadId": "t1",
        "data": {"/x": "y"},
        "dirs": [],
    }


def test_writes_note_the_node_as_their_actor(node):
    node.tree().write("/a", "x")
    assert [revision.actor for revision in node.space().history("file", "/a")] == ["memory node M"]


# The connector's text


@pytest.mark.promise("graph-connector-defaults")
def test_a_connector_has_the_seeds_defaults(node):
    connector = MemoryConnector(node)
    assert (connector.placement, connector.content, connector.max_chars) == ("after_system", "tree", 4000)


@pytest.mark.promise("graph-connector-config")
@pytest.mark.parametrize(
    "wrong",
    [{"placement": "first"}, {"content": "all"}, *({"max_chars": n} for n in (0, -1, 20_001, True, 10.0, "10", None))],
)
def test_a_wrong_setting_is_refused(node, wrong):
    with pytest.raises(InvalidInput, match=r"placement|content|maxChars must be a whole number from 1 to 20000"):
        MemoryConnector(node, **wrong)


@pytest.mark.promise("graph-connector-tree")
def test_a_tree_shows_every_level_directories_first(node):
    write(node.tree(), "/z", "/notes/today", "/notes/old/a b", "/b")
    node.ensure_dir("/empty")
    assert MemoryConnector(node).render() == (
        "Memory\n/\n[D] empty\n[D] notes\n  [D] old\n    [F] a b\n  [F] today\n[F] b\n[F] z"
    )


@pytest.mark.promise("graph-connector-tree")
def test_an_empty_memory_is_its_root_alone(node):
    assert MemoryConnector(node).render() == "Memory\n/"


@pytest.mark.promise("graph-connector-cut")
def test_a_tree_shows_the_levels_that_fit_and_counts_the_rest(node):
    write(node.tree(), "/a/one", "/a/two", "/b/c/deep", "/f")
    levels = [
        "Memory\n/\n[D] a\n[D] b\n[F] f\n… 4 more entries",
        "Memory\n/\n[D] a\n  [F] one\n  [F] two\n[D] b\n  [D] c\n[F] f\n… 1 more entry",
        "Memory\n/\n[D] a\n  [F] one\n  [F] two\n[D] b\n  [D] c\n    [F] deep\n[F] f",
    ]
    for max_chars in range(len(levels[0]), 200):
        whole = [text for text in levels if len(text) <= max_chars]
        assert MemoryConnector(node, max_chars=max_chars).render() == whole[-1]


@pytest.mark.promise("graph-connector-cut")
def test_a_first_level_that_does_not_fit_is_cut_and_the_rest_is_counted(node):
    write(node.tree(), *(f"/file{n:03}" for n in range(300)))
    text = MemoryConnector(node, max_chars=100).render()
    assert text == "Memory\n/\n" + "".join(f"[F] file{n:03}\n" for n in range(6)) + "… 294 more entries"
    assert len(text) <= 100


@pytest.mark.promise("graph-connector-cut")
def test_no_text_is_ever_longer_than_max_chars(node):
    write(node.tree(), *(f"/d{n}/some file {n}" for n in range(9)), "/x" * 15)
    for max_chars in range(1, 400):
        for content in ("tree", "full"):
            assert 1 <= len(MemoryConnector(node, content=content, max_chars=max_chars).render()) <= max_chars
    # Too short even for the number: never half of one.
    assert MemoryConnector(node, max_chars=12).render() == "Memory\n/\n…"
    assert MemoryConnector(node, max_chars=3).render() == "Mem"


@pytest.mark.promise("graph-connector-full")
def test_full_gives_one_line_a_file_with_its_text(node):
    node.tree().write("/notes/today", 'say "hi"\nnaïve')
    node.tree().write("/a", "")
    node.ensure_dir("/empty")
    text = 'Memory\n/a: ""\n/notes/today: "say \\"hi\\"\\nnaïve"'
    assert MemoryConnector(node, content="full").render() == text
    assert MemoryConnector(node, content="full", max_chars=len(text)).render() == text


@pytest.mark.promise("graph-connector-full")
def test_full_falls_back_to_the_tree_when_it_is_longer_than_max_chars(node):
    node.tree().write("/notes/today", "é" * 60)
    text = "Memory\n/notes/today: " + json.dumps("é" * 60, ensure_ascii=False)
    tree = "Memory\n/\n[D] notes\n  [F] today"
    for max_chars in range(len(tree), len(text)):
        assert MemoryConnector(node, content="full", max_chars=max_chars).render() == tree
    assert MemoryConnector(node, content="full", max_chars=len(text)).render() == text


@pytest.mark.promise("graph-connector-full")
def test_full_of_a_memory_without_files_is_no_message(node):
    node.ensure_dir("/empty")
    assert MemoryConnector(node, content="full").render() is None


@pytest.mark.promise("graph-connector-fallback")
@pytest.mark.parametrize(
    ("content", "shared", "own"), [("tree", "/\n[F] s", "/\n[F] o"), ("full", '/s: "x"', '/o: "x"')]
)
def test_an_empty_thread_scope_shows_the_global_memory_and_tools_do_not(thread_node, content, shared, own):
    write(thread_node.shared_space().files, "/s")
    write(thread_node.tree("t2"), "/o")
    connector = MemoryConnector(thread_node, content=content)
    assert connector.render("t1") == f"Memory\n{shared}"
    assert connector.render(None) == f"Memory\n{shared}"
    assert connector.render("t2") == f"Memory\n{own}"
    read = UnifiedMemoryTool(thread_node).answer({"path": "/s", "command": "read"}, thread_id="t1")
    assert read.error["code"] == "ENOENT"


# Its place among the messages


SYSTEM, USER = {"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}
MEMORY = {"role": "system", "content": "Memory\n/\n[F] a"}


@pytest.mark.promise("graph-connector-placement")
@pytest.mark.parametrize(
    ("placement", "messages", "placed"),
    [
        ("after_system", [SYSTEM, USER], [SYSTEM, MEMORY, USER]),
        ("after_system", [USER], [MEMORY, USER]),
        ("after_system", [], [MEMORY]),
        ("last_message", [SYSTEM, USER], [SYSTEM, USER, MEMORY]),
        ("last_message", [], [MEMORY]),
    ],
)
def test_the_memory_is_placed_after_the_system_message_or_last(node, placement, messages, placed):
    write(node.tree(), "/a")
    before = list(messages)
    assert MemoryConnector(node, placement=placement).place(messages) == placed
    assert messages == before
