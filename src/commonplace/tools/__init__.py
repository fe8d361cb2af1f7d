"""Tools that a model calls: each one dialect's words over one space."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from commonplace.tools.claude import ClaudeMemoryTool, ToolAnswer
    from commonplace.tools.folder_exchange import export_folder, import_folder
    from commonplace.tools.folder_store import FolderMemoryStore
    from commonplace.tools.memory_edits import MemoryEdit
    from commonplace.tools.memory_error import MemoryException
    from commonplace.tools.memory_store import InMemoryMemoryStore, MemoryEntry, MemoryStore, SpaceMemoryStore
    from commonplace.tools.protocol import memory_protocol
    from commonplace.tools.unified import UnifiedMemoryTool

__all__ = [
    "ClaudeMemoryTool",
    "FolderMemoryStore",
    "InMemoryMemoryStore",
    "MemoryEdit",
    "MemoryEntry",
    "MemoryException",
    "MemoryStore",
    "SpaceMemoryStore",
    "ToolAnswer",
    "UnifiedMemoryTool",
    "export_folder",
    "import_folder",
    "memory_protocol",
]

# Imported on first use: one tool does not pay for another's dependencies.
_LAZY = {
    "ClaudeMemoryTool": "commonplace.tools.claude",
    "FolderMemoryStore": "commonplace.tools.folder_store",
    "InMemoryMemoryStore": "commonplace.tools.memory_store",
    "MemoryEdit": "commonplace.tools.memory_edits",
    "MemoryEntry": "commonplace.tools.memory_store",
    "MemoryException": "commonplace.tools.memory_error",
    "MemoryStore": "commonplace.tools.memory_store",
    "SpaceMemoryStore": "commonplace.tools.memory_store",
    "ToolAnswer": "commonplace.tools.claude",
    "UnifiedMemoryTool": "commonplace.tools.unified",
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
