"""The memory provider of Hermes on a book, with the real package. It carries no suite for providers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from agent.memory_manager import MemoryManager
from shared_behaviour import AdapterBehaviour

import commonplace
from commonplace.adapters.hermes import CommonplaceMemoryProvider
from commonplace.space.names import label_of

PLUGIN = """
from commonplace.adapters.hermes import CommonplaceMemoryProvider

def register(ctx):
    ctx.register_memory_provider(CommonplaceMemoryProvider())
"""


class TestProvider(AdapterBehaviour):
    def write(self, book: commonplace.Book, owner: str, name: str, text: str) -> None:
        provider = CommonplaceMemoryProvider(book.space("hermes", label_of(owner)))
        provider.initialize(name)
        provider.sync_turn(text, "")
        provider.shutdown()

    def read_all(self, book: commonplace.Book, owner: str) -> dict[str, str]:
        threads = book.space("hermes", label_of(owner)).threads
        listed = threads.list(limit=1_000).threads
        return {one.id: threads.messages(one.id).messages[0].content for one in listed}


def test_turns_are_saved_and_found_in_a_later_session(book: commonplace.Book) -> None:
    space = book.space("user", "ana")
    first = CommonplaceMemoryProvider(space)
    first.initialize("s-1", platform="cli", agent_context="primary")
    first.sync_turn("Ana likes green tea", "I will remember that")
    first.on_session_switch("s-2")
    first.sync_turn("Deploys run on Tuesdays", "")
    first.on_session_end([])
    assert sorted(one.id for one in space.threads.list().threads) == ["s-1", "s-2"]
    second = CommonplaceMemoryProvider(space)
    second.initialize("s-3")
    assert "Ana likes green tea" in second.prefetch("green tea")
    assert second.prefetch("  ") == ""
    first.shutdown()
    second.shutdown()


def test_subagents_and_timed_jobs_save_nothing(book: commonplace.Book) -> None:
    space = book.space("user", "ana")
    for context in ("subagent", "cron", "flush"):
        provider = CommonplaceMemoryProvider(space)
        provider.initialize("s", agent_context=context)
        provider.sync_turn("secret", "secret")
        provider.on_memory_write("add", "memory", "secret")
        provider.shutdown()
    assert space.stats().entries == {}


def test_the_tools_search_remember_and_forget(book: commonplace.Book) -> None:
    provider = CommonplaceMemoryProvider(book.space("user", "ana"))
    provider.initialize("s-1")
    manager = MemoryManager()
    manager.add_provider(provider)
    assert {tool["name"] for tool in provider.get_tool_schemas()} == {
        "commonplace_search",
        "commonplace_remember",
        "commonplace_forget",
    }

    def call(name: str, **args: object) -> dict:
        return json.loads(manager.handle_tool_call(name, args))

    saved = call("commonplace_remember", fact="Ana likes green tea")
    assert call("commonplace_remember", fact="Ana likes green tea") == saved
    found = call("commonplace_search", query="green tea")
    assert found["ids"] == [saved["id"]]
    assert "Ana likes green tea" in found["result"]
    assert call("commonplace_forget", id=saved["id"]) == {"result": "deleted"}
    assert call("commonplace_search", query="green tea")["ids"] == []
    assert "required" in call("commonplace_search")["error"]
    assert "error" in call("commonplace_forget", id="nothing")
    provider.on_memory_write("add", "user", "Ana speaks French")
    provider.shutdown()
    assert [record.content["text"] for record in book.space("user", "ana").records.list().records] == [
        "Ana speaks French"
    ]


def test_hermes_loads_the_plugin_and_keeps_profiles_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = tmp_path / "plugins" / "commonplace"
    plugin.mkdir(parents=True)
    (plugin / "__init__.py").write_text(PLUGIN)
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    from plugins.memory import list_memory_provider_names, load_memory_provider

    assert "commonplace" in list_memory_provider_names()
    for profile, text in (("coder", "green tea"), ("writer", "black coffee")):
        provider = load_memory_provider("commonplace")
        assert provider is not None
        assert provider.is_available()
        provider.save_config({"book": str(tmp_path / "own.db"), "other": "x"}, str(tmp_path))
        provider.initialize("s-1", hermes_home=str(tmp_path), platform="cli", agent_identity=profile)
        provider.sync_turn(f"I like {text}", "Noted")
        assert provider.backup_paths() == [str(tmp_path / "own.db")]
        provider.shutdown()
    with commonplace.open(tmp_path / "own.db", background=False) as book:
        found = {"/".join(one): len(book.space(*one).threads.messages("s-1").messages) for one in book.namespaces()}
        assert found == {"hermes/coder/default": 2, "hermes/writer/default": 2}
