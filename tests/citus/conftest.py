"""`make citus-test CITUS=URL` runs these on a real Citus cluster.

The address is of a database on the coordinator, as a superuser. Each book is a schema of its own there.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "store"))

if not os.environ.get("CITUS"):
    raise pytest.UsageError("set CITUS to the address of a database on the coordinator of a Citus cluster")
