"""Compaction of a session by the OpenAI Agents SDK, with the real package and a scripted Responses API."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2 as httpx
from agents.memory import OpenAIResponsesCompactionSession
from openai import AsyncOpenAI

import commonplace
from commonplace.adapters.openai_agents import CommonplaceSession

LEFT = {"type": "compaction", "id": "cmp_1", "encrypted_content": "…"}


def scripted(asked: list[dict[str, Any]]) -> AsyncOpenAI:
    """A client whose server answers every compaction with one item."""

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/v1/responses/compact"
        asked.append(json.loads(request.content))
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        form = {
            "id": "resp_1",
            "object": "response.compaction",
            "created_at": 1,
            "output": [LEFT],
            "usage": {**usage, **details},
        }
        return httpx.Response(200, json=form)

    return AsyncOpenAI(api_key="none", http_client=httpx.AsyncClient(transport=httpx.MockTransport(answer)))


def test_run_compaction_replaces_the_items_and_history_keeps_them(book: commonplace.Book) -> None:
    space = book.space("user", "ana")
    items: list[Any] = [
        item
        for number in range(6)
        for item in (
            {"role": "user", "content": f"question {number}"},
            {"role": "assistant", "content": f"answer {number}"},
        )
    ]
    asked: list[dict[str, Any]] = []

    async def program() -> list[Any]:
        inner = CommonplaceSession(space, "chat-1")
        session = OpenAIResponsesCompactionSession(
            "chat-1", underlying_session=inner, client=scripted(asked), model="gpt-4.1", compaction_mode="input"
        )
        await session.add_items(items)
        await session.run_compaction({"force": True})
        inner.close()
        return await CommonplaceSession(space, "chat-1").get_items()

    assert asyncio.run(program()) == [LEFT]
    assert [item["content"] for item in asked[0]["input"]] == [item["content"] for item in items]
    changes = [change for change in space.changes() if change.kind == "message"]
    assert [change.action for change in changes] == ["created"] * 12 + ["deleted"] * 12 + ["created"]
    deleted = changes[12:24]
    kept = {change.key: space.state("message", change.key, change.revision - 1).value for change in deleted}
    assert [kept[change.key] for change in changes[:12]] == items
    (commit,) = {change.commit for change in changes[12:]}
    space.undo(commit)
    assert asyncio.run(CommonplaceSession(space, "chat-1").get_items()) == items
