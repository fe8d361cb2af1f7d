"""Tools that a model calls: each one dialect's words over one space."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from commonplace.tools.protocol import memory_protocol
    from commonplace.tools.unified import UnifiedMemoryTool

__all__ = ["UnifiedMemoryTool", "memory_protocol"]

# Imported on first use: one tool does not pay for another's dependencies.
_LAZY = {
    "UnifiedMemoryTool": "commonplace.tools.unified",
    "memory_protocol": "commonplace.tools.protocol",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'commonplace.tools' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value
