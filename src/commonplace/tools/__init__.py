"""Tools that a model calls. Each is one dialect over one space."""

from __future__ import annotations

import sys
import warnings
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from commonplace.tools.claude import ClaudeMemoryTool
    from commonplace.tools.conversation_tools import ConversationTools
    from commonplace.tools.fact_tools import (
        Fact,
        ManageMemoryTool,
        SearchMemoryTool,
        create_manage_memory_tool,
        create_search_memory_tool,
    )
    from commonplace.tools.memory_edits import MemoryEdit, MemoryException
    from commonplace.tools.memory_folder import FolderMemoryStore, export_folder, import_folder
    from commonplace.tools.memory_store import InMemoryMemoryStore, MemoryEntry, MemoryStore, SpaceMemoryStore
    from commonplace.tools.namespace_template import NamespaceTemplate
    from commonplace.tools.record_tools import RecordTools
    from commonplace.tools.tool import ToolAnswer, memory_protocol
    from commonplace.tools.unified import UnifiedMemoryTool
    from commonplace.tools.working_memory_tool import WorkingMemoryOptions, WorkingMemoryTool

__all__ = [
    "ClaudeMemoryTool",
    "ConversationTools",
    "Fact",
    "FolderMemoryStore",
    "InMemoryMemoryStore",
    "ManageMemoryTool",
    "MemoryEdit",
    "MemoryEntry",
    "MemoryException",
    "MemoryStore",
    "NamespaceTemplate",
    "RecordTools",
    "SearchMemoryTool",
    "SpaceMemoryStore",
    "ToolAnswer",
    "UnifiedMemoryTool",
    "WorkingMemoryOptions",
    "WorkingMemoryTool",
    "create_manage_memory_tool",
    "create_search_memory_tool",
    "export_folder",
    "import_folder",
    "memory_protocol",
]

# Imported on first use, so that one tool does not load the dependencies of another.
_LAZY = {
    "ClaudeMemoryTool": "commonplace.tools.claude",
    "ConversationTools": "commonplace.tools.conversation_tools",
    "Fact": "commonplace.tools.fact_tools",
    "FolderMemoryStore": "commonplace.tools.memory_folder",
    "InMemoryMemoryStore": "commonplace.tools.memory_store",
    "ManageMemoryTool": "commonplace.tools.fact_tools",
    "MemoryEdit": "commonplace.tools.memory_edits",
    "MemoryEntry": "commonplace.tools.memory_store",
    "MemoryException": "commonplace.tools.memory_edits",
    "MemoryStore": "commonplace.tools.memory_store",
    "NamespaceTemplate": "commonplace.tools.namespace_template",
    "RecordTools": "commonplace.tools.record_tools",
    "SearchMemoryTool": "commonplace.tools.fact_tools",
    "SpaceMemoryStore": "commonplace.tools.memory_store",
    "ToolAnswer": "commonplace.tools.tool",
    "UnifiedMemoryTool": "commonplace.tools.unified",
    "WorkingMemoryOptions": "commonplace.tools.working_memory_tool",
    "WorkingMemoryTool": "commonplace.tools.working_memory_tool",
    "create_manage_memory_tool": "commonplace.tools.fact_tools",
    "create_search_memory_tool": "commonplace.tools.fact_tools",
    "export_folder": "commonplace.tools.memory_folder",
    "import_folder": "commonplace.tools.memory_folder",
    "memory_protocol": "commonplace.tools.tool",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _LAZY:
        raise AttributeError(f"module 'commonplace.tools' has no attribute {name!r}")
    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


class _FormerModule(ModuleType):
    """`record_tools` under the name that the documentation used before."""

    def __getattr__(self, name: str) -> Any:
        from importlib import import_module

        if name.startswith("__"):  # import statements and debuggers look for these in every module
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        found = getattr(import_module("commonplace.tools.record_tools"), name)
        warnings.warn(f"{self.__name__} is now commonplace.tools.record_tools", DeprecationWarning, stacklevel=2)
        return found


records = _FormerModule(f"{__name__}.records")
sys.modules[records.__name__] = records
