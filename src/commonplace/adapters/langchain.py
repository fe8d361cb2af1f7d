"""LangChain on a book: the facts tools as LangChain tools, a chat history, and a store of bytes.

The run's `configurable` selects the namespace of the tools. An invalid call does not end the run: the tool answers with
the reason, and the model can correct its call. The plain tools in `tools.fact_tools` raise instead.

Needs `pip install 'commonplace-memory[langchain]'`.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from commonplace.adapters.thread_items import HasSpace, ThreadItems, said
from commonplace.errors import CommonplaceError, ConfigurationError, Corrupt, Unauthorized, install_command
from commonplace.space.items import PAGE, NewItem
from commonplace.space.names import RECORD, item_key_of, text_of_item_key
from commonplace.space.space import Space
from commonplace.tools import fact_tools
from commonplace.tools.namespace_template import NamespaceTemplate
from commonplace.tools.tool import wire_text

try:
    # LangChain reads the annotations below at run time, and passes the configuration as RunnableConfig.
    from langchain_core.chat_history import BaseChatMessageHistory
    from langchain_core.messages import BaseMessage, message_to_dict, messages_from_dict
    from langchain_core.runnables import RunnableConfig
    from langchain_core.stores import BaseStore
    from langchain_core.tools import BaseTool, ToolException
except ImportError as error:
    raise ConfigurationError(f"LangChain is not installed, or too old; run: {install_command('langchain')}") from error

__all__ = [
    "CommonplaceByteStore",
    "CommonplaceChatHistory",
    "FactsTool",
    "create_manage_memory_tool",
    "create_search_memory_tool",
]

_ROLES = {"human": "user", "ai": "assistant"}
_TYPES = {"user": "human", "assistant": "ai"}


_NOT_FOR_A_MODEL = (ConfigurationError, Corrupt, Unauthorized)
"""Errors that only the program or its operator can fix."""


class FactsTool(BaseTool):
    """A facts tool as LangChain calls it. With `handle_tool_error=False`, an invalid call raises."""

    tool: Any
    """The plain tool."""

    handle_tool_error: Any = True

    # `self` is positional-only, because a model may send an argument with that name.
    def _run(self, /, *, config: RunnableConfig, **arguments: Any) -> Any:
        return self._answer(arguments, config)

    async def _arun(self, /, *, config: RunnableConfig, **arguments: Any) -> Any:
        return await asyncio.to_thread(self._answer, arguments, config)

    def _answer(self, arguments: dict[str, Any], config: RunnableConfig) -> Any:
        try:
            return self.tool.call(arguments, config)
        except _NOT_FOR_A_MODEL:
            raise
        except CommonplaceError as error:
            if not self.handle_tool_error:
                raise
            raise ToolException(wire_text(str(error))) from error


def create_manage_memory_tool(
    namespace: tuple[str, ...] | str | NamespaceTemplate | None = None,
    *,
    schema: Any = str,
    actions_permitted: Sequence[fact_tools.Action] = fact_tools.ACTIONS,
    instructions: str = fact_tools.DEFAULT_INSTRUCTIONS,
    name: str = "manage_memory",
    store: fact_tools.Spaces | None = None,
) -> FactsTool:
    """A LangChain tool that creates, updates and deletes facts; the arguments are as in `tools.fact_tools`."""
    return _wrap(
        fact_tools.create_manage_memory_tool(
            namespace,
            schema=schema,
            actions_permitted=actions_permitted,
            instructions=instructions,
            name=name,
            store=store,
        )
    )


def create_search_memory_tool(
    namespace: tuple[str, ...] | str | NamespaceTemplate | None = None,
    *,
    instructions: str = "",
    response_format: Literal["content", "content_and_artifact"] = "content",
    name: str = "search_memory",
    store: fact_tools.Spaces | None = None,
    kinds: Sequence[str] = (RECORD,),
    below: bool = False,
) -> FactsTool:
    """A LangChain tool that finds facts; the arguments are as in `tools.fact_tools`."""
    return _wrap(
        fact_tools.create_search_memory_tool(
            namespace,
            instructions=instructions,
            response_format=response_format,
            name=name,
            store=store,
            kinds=kinds,
            below=below,
        ),
        response_format,
    )


def _wrap(
    tool: fact_tools.ManageMemoryTool | fact_tools.SearchMemoryTool,
    response_format: Literal["content", "content_and_artifact"] = "content",
) -> FactsTool:
    return FactsTool(
        name=tool.name,
        description=tool.description,
        args_schema=dict(tool.args_schema),
        response_format=response_format,
        tool=tool,
    )


# Chat history


class CommonplaceChatHistory(BaseChatMessageHistory):
    """One conversation in a space, for `RunnableWithMessageHistory`. Its messages are found by every search."""

    def __init__(self, memory: Space | HasSpace, session_id: str, *, resource: str | None = None) -> None:
        self._stored = ThreadItems(memory, session_id, resource=resource)

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]
        """All messages, oldest first."""
        return messages_from_dict([_from_item(item) for item in self._stored.read()])

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append messages, all or none."""
        if messages:
            self._stored.add([_to_item(message) for message in messages])

    def clear(self) -> None:
        """Delete all messages in one commit, which `Space.undo` can undo."""
        self._stored.clear()


def _to_item(message: BaseMessage) -> dict[str, Any]:
    """A message as other programs read it, with role and content, and the rest as LangChain writes it."""
    written = message_to_dict(message)
    data = {name: value for name, value in written["data"].items() if name != "content"}
    role = _ROLES.get(message.type, message.type)
    return {"role": role, "content": message.content, "langchain": {"type": written["type"], "data": data}}


def _from_item(item: Any) -> dict[str, Any]:
    written = item.get("langchain")
    if written is None:  # of another program
        role, text = said(item)
        return {"type": _TYPES.get(role, role), "data": {"content": text}}
    return {"type": written["type"], "data": {**written["data"], "content": item["content"]}}


# Bytes


class CommonplaceByteStore(BaseStore[str, bytes]):
    """Bytes by key, for caches such as `CacheBackedEmbeddings`. They are not searched and have no history."""

    def __init__(self, space: Space, *, prefix: str = "bytes/") -> None:
        self._items = space.items
        self._prefix = item_key_of(prefix) if prefix else ""

    def mget(self, keys: Sequence[str]) -> list[bytes | None]:
        wanted = [self._key(key) for key in keys]
        found = [
            item for start in range(0, len(wanted), PAGE) for item in self._items.get_all(wanted[start : start + PAGE])
        ]
        return [None if item is None else base64.b64decode(str(item.value)) for item in found]

    def mset(self, key_value_pairs: Sequence[tuple[str, bytes]]) -> None:
        puts = [
            NewItem(self._key(key), base64.b64encode(value).decode(), history=False) for key, value in key_value_pairs
        ]
        for start in range(0, len(puts), PAGE):
            self._items.write_all(puts[start : start + PAGE])

    def mdelete(self, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), PAGE):
            self._items.write_all([], [self._key(key) for key in keys[start : start + PAGE]])

    def yield_keys(self, *, prefix: str | None = None) -> Iterator[str]:
        cursor: str | None = None
        while True:
            page = self._items.list(self._prefix, limit=PAGE, cursor=cursor)
            for item in page.items:
                key = text_of_item_key(item.key[len(self._prefix) :])
                if prefix is None or key.startswith(prefix):
                    yield key
            cursor = page.cursor
            if cursor is None:
                return

    def _key(self, key: str) -> str:
        return self._prefix + item_key_of(key)
