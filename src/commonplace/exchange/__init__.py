"""Export and import: a book, or some of its namespaces, as lossless JSON lines (docs/export-format.md).

`mastra` imports the memory of a Mastra agent. It is not exported here, because it needs SQLite on every backend.
"""

from __future__ import annotations

from commonplace.exchange.export import Exported, export_book
from commonplace.exchange.import_ import Imported, import_book, namespaces_of

__all__ = ["Exported", "Imported", "export_book", "import_book", "namespaces_of"]
