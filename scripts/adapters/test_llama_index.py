"""LlamaIndex' chat store and memory block on a book, with the real package."""

from __future__ import annotations

import asyncio

from llama_index.core.base.llms.types import ChatMessage, ImageBlock, MessageRole, TextBlock
from llama_index.core.memory import ChatMemoryBuffer, Memory
from shared_behaviour import AdapterBehaviour

import commonplace
from commonplace.adapters.llama_index import CommonplaceChatStore, CommonplaceMemoryBlock


class TestChatStore(AdapterBehaviour):
    def write(self, book: commonplace.Book, owner: str, name: str, text: str) -> None:
        message = ChatMessage(role="user", content=text, additional_kwargs={"name": name})
        CommonplaceChatStore(space=book.space("chats")).add_message(owner, message)

    def read_all(self, book: commonplace.Book, owner: str) -> dict[str, str]:
        found = CommonplaceChatStore(space=book.space("chats")).get_messages(owner)
        assert len({message.additional_kwargs["name"] for message in found}) == len(found)
        return {message.additional_kwargs["name"]: message.content for message in found}


def said(*texts: str) -> list[ChatMessage]:
    return [ChatMessage(role=MessageRole.USER, content=text) for text in texts]


def test_the_chat_store_does_what_its_interface_says(book: commonplace.Book) -> None:
    store = CommonplaceChatStore(space=book.space("user", "ana"))
    assert store.get_messages("k") == []
    assert store.delete_last_message("k") is None
    assert store.delete_messages("k") is None
    store.set_messages("k", said("a", "b", "c", "d"))
    assert store.get_messages("k") == said("a", "b", "c", "d")
    assert store.delete_message("k", 1) == said("b")[0]
    assert store.delete_message("k", 9) is None
    assert store.delete_last_message("k") == said("d")[0]
    blocks = ChatMessage(
        role="assistant", blocks=[TextBlock(text="see"), ImageBlock(image=b"\x89PNG", image_mimetype="image/png")]
    )
    store.add_message("k", blocks)
    assert store.get_messages("k")[-1] == blocks
    store.set_messages("k", said("x"))
    store.set_messages("other/key", said("y"))
    assert sorted(store.get_keys()) == ["k", "other/key"]
    assert store.delete_messages("k") == said("x")
    assert store.get_keys() == ["other/key"]
    assert asyncio.run(store.aget_messages("other/key")) == said("y")


def test_a_memory_buffer_uses_it(book: commonplace.Book) -> None:
    store = CommonplaceChatStore(space=book.space("user", "ana"))
    buffer = ChatMemoryBuffer.from_defaults(
        chat_store=store, chat_store_key="ana", token_limit=1_000, tokenizer_fn=str.split
    )
    buffer.put(said("hello")[0])
    again = ChatMemoryBuffer.from_defaults(
        chat_store=store, chat_store_key="ana", token_limit=1_000, tokenizer_fn=str.split
    )
    assert again.get() == said("hello")


def test_a_memory_block_finds_what_left_the_short_term_memory(book: commonplace.Book) -> None:
    space = book.space("user", "ana")
    block = CommonplaceMemoryBlock(space=space)

    async def scenario() -> str:
        memory = Memory.from_defaults(
            session_id="s-1",
            token_limit=40,
            chat_history_token_ratio=0.5,
            token_flush_size=5,
            memory_blocks=[block],
            tokenizer_fn=str.split,
        )
        for number in range(12):
            await memory.aput(
                ChatMessage(role="user", content=f"number {number}: the green tea is in kitchen {number}")
            )
        return await block.aget(said("where is the green tea?"))

    assert "green tea" in asyncio.run(scenario())
    assert space.search("green tea", kinds=["message"])
