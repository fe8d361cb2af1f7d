"""The client of a service under the name that programs import; `commonplace.connect` is the documented way."""

from __future__ import annotations

from commonplace.api.client import RemoteBook, connect

__all__ = ["RemoteBook", "connect"]
