"""Several servers on one database lose and double nothing, whichever face is written through and whatever is killed.

`make servers-kill` does it with four servers for minutes; this with two for seconds.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from postgres_server import shared_server

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))

from servers_kill import INTERFACES, Plan, run


@pytest.mark.promise("servers-lose-and-double-nothing")
def test_two_servers_killed_at_random_lose_and_double_nothing_through_any_face(tmp_path: Path) -> None:
    url = shared_server().create_database() + "?partitions=2"
    plan = Plan(seconds=4, servers=2, writers=1, least=2, seconds_between_kills=3)
    tally = run(url, plan, environment={"COMMONPLACE_MODELS": str(tmp_path / "no-models")})
    assert tally.faults == []
    assert tally.kills >= 1
    assert tally.ended_connections >= 5
    assert tally.acknowledged.keys() == {interface.name for interface in INTERFACES}
