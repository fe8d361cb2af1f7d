"""`make mongodb-test` runs these on real servers. What every backend must do is in tests/store."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "store"))
