"""What every backend must do, as one class of tests. A backend subclasses it and gives the fixture `store`."""

from __future__ import annotations

from conformance_care import CareConformance
from conformance_entries import EntriesConformance
from conformance_history import HistoryConformance
from conformance_scans import ScansConformance
from conformance_search import SearchConformance
from conformance_system import SystemConformance


class StoreConformance(
    EntriesConformance, ScansConformance, HistoryConformance, SearchConformance, CareConformance, SystemConformance
):
    """Subclasses give the fixtures `store` (with the fixture `clock`), and `open_copy` for a backup."""
