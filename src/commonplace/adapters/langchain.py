"""The facts tools as LangChain tools, for LangGraph agents. The run's `configurable` selects the namespace.

An invalid call does not end the run: the tool answers with the reason, and the model can correct its call. The plain
tools in `tools.fact_tools` raise instead.

Needs `pip install 'commonplace-memory[langchain]'`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

from commonplace.errors import CommonplaceError, ConfigurationError, Corrupt, Unauthorized, install_command
from commonplace.space.names import RECORD
from commonplace.tools import fact_tools
from commonplace.tools.namespace_template import NamespaceTemplate
from commonplace.tools.tool import wire_text

try:
    # LangChain reads the annotations below at run time, and passes the configuration as RunnableConfig.
    from langchain_core.runnables import RunnableConfig
    from langchain_core.tools import BaseTool, ToolException
except ImportError as error:
    raise ConfigurationError(f"LangChain is not installed, or too old; run: {install_command('langchain')}") from error

__all__ = ["FactsTool", "create_manage_memory_tool", "create_search_memory_tool"]


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
