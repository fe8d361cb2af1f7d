"""Tools that a model calls: each one dialect's words over one space."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from commonplace.tools.claude import ClaudeMemoryTool, ToolAnswer
    from commonplace.tools.conversations import ConversationTools
    from commonplace.tools.facts import (
        Fact,
        ManageMemoryTool,
        SearchMemoryTool,
        create_manage_memory_tool,
        create_search_memory_tool,
    )
    from commonplace.tools.folder_exchange import export_folder, import_folder
    from commonplace.tools.folder_store import FolderMemoryStore
    from commonplace.tools.memory_edits import MemoryEdit
    from commonplace.tools.memory_error import MemoryException
    from commonplace.tools.memory_store import InMemoryMemoryStore, MemoryEntry, MemoryStore, SpaceMemoryStore
    from commonplace.tools.namespace_template import NamespaceTemplate
    from commonplace.tools.protocol import memory_protocol
    from commonplace.tools.records import RecordTools
    from commonplace.tools.unified import UnifiedMemoryTool
    from commonplace.tools.working_memory import WorkingMemoryOptions, WorkingMemoryTool

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

# Imported on first use: one tool does not pay for another's dependencies.
_LAZY = {
    "ClaudeMemoryTool": "commonplace.tools.claude",
    "ConversationTools": "commonplace.tools.conversations",
    "Fact": "commonplace.tools.facts",
    "FolderMemoryStore": "commonplace.tools.folder_store",
    "InMemoryMemoryStore": "commonplace.tools.memory_store",
    "ManageMemoryTool": "commonplace.tools.facts",
    "MemoryEdit": "commonplace.tools.memory_edits",
    "MemoryEntry": "commonplace.tools.memory_store",
    "MemoryException": "commonplace.tools.memory_error",
    "MemoryStore": "commonplace.tools.memory_store",
    "NamespaceTemplate": "commonplace.tools.namespace_template",
    "RecordTools": "commonplace.tools.records",
    "SearchMemoryTool": "commonplace.tools.facts",
    "SpaceMemoryStore": "commonplace.tools.memory_store",
    "ToolAnswer": "commonplace.tools.claude",
    "UnifiedMemoryTool": "commonplace.tools.unified",
    "WorkingMemoryOptions": "commonplace.tools.working_memory",
    "WorkingMemoryTool": "commonplace.tools.working_memory",
    "create_manage_memory_tool": "commonplace.tools.facts",
    "create_search_memory_tool": "commonplace.tools.facts",
    "export_folder": "commonplace.tools.folder_exchange",
    "import_folder": "commonplace.tools.folder_exchange",
    "memory_protocol": "commonplace.tools.protocol",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'commonplace.tools' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value
