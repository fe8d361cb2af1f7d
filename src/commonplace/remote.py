"""The client of a service, under its former module name. Use `commonplace.connect`."""

from __future__ import annotations

from commonplace.api.client import RemoteBook, connect

__all__ = ["RemoteBook", "connect"]
