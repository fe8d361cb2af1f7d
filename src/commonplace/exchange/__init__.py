"""Export and import: a book, or some of its namespaces, as lossless JSON lines (docs/internal/export-format.md).

`foreign` imports the memory of other programs (docs/guides/import.md), and `markdown` writes a folder of Markdown. They
are not exported here, because programs that do not import should not load them.
"""

from __future__ import annotations

from commonplace.exchange.export import Exported, export_book
from commonplace.exchange.import_ import Imported, ImportedCommits, ImportReport, import_book, namespaces_of

__all__ = ["Exported", "ImportReport", "Imported", "ImportedCommits", "export_book", "import_book", "namespaces_of"]
