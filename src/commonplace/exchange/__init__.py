"""Export and import: a book, or some of its namespaces, as JSON lines that lose nothing (docs/export-format.md).

`mastra` takes over another program's memory; it is imported from there, since it needs SQLite whatever the book is on.
"""

from __future__ import annotations

from commonplace.exchange.exporting import Exported, export_book
from commonplace.exchange.importing import Imported, import_book, namespaces_of

__all__ = ["Exported", "Imported", "export_book", "import_book", "namespaces_of"]
