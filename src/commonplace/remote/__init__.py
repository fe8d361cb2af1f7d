"""The library over a service: `commonplace.connect("http://…")` gives a book with the face of a local one.

    book = commonplace.connect("http://127.0.0.1:8765", key="cp_…")
    book.space("user", "u-123").files.append("/notes/today", "hello")

The same methods, arguments, dataclasses and errors; what needs the file itself raises ConfigurationError.
"""

from __future__ import annotations

from commonplace.remote.book import RemoteBook, connect

__all__ = ["RemoteBook", "connect"]
