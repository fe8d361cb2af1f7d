"""Searches on a read replica see what their own process wrote, and go to the primary where the replica cannot."""

from __future__ import annotations

from math import isnan

import psycopg
import pytest
from store_calls import HERE, THERE, found_keys, put, unit

from commonplace.backends.postgres import PostgresStore
from commonplace.filters import Filter
from postgres_server import FAST, PostgresServer


@pytest.mark.promise("postgres-replica")
def test_a_search_sees_the_last_write_whether_the_replica_has_it_or_not() -> None:
    primary = PostgresServer({**FAST, "synchronous_commit": "local"})
    url = primary.create_database()
    standby = primary.standby()
    try:
        name = url.rpartition("/")[2]
        store = PostgresStore(f"{url}?partitions=2", replica_url=standby.url(name))
        store.set_target_model("m", 8)
        for number in range(20):
            put(store, f"k{number}", f"word{number} shared")
            assert found_keys(store, f"word{number}")[0] == f"k{number}"
        store.index("m", [(passage.chunk_id, unit(1)) for passage in store.claim(100, 60)])
        assert len(store.search_vectors(HERE, "m", unit(1), Filter(), 50)) == 20
        with psycopg.connect(standby.url(name), autocommit=True) as watching:
            used = watching.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'commonplace'"
            ).fetchone()
            assert used is not None
            assert used[0] >= 1
            watching.execute("SELECT pg_wal_replay_pause()")  # a replica that stays behind
            other = PostgresStore(f"{url}?partitions=2")
            put(other, "new", "elsewhere", namespace=THERE)  # in a namespace that the replica does not know
            other.close()
            assert found_keys(store, "elsewhere", namespace=THERE) == ["new"]
            put(store, "late", "latest word")
            assert found_keys(store, "latest") == ["late"]
            watching.execute("SELECT pg_wal_replay_resume()")
        assert store.gauges()["replica_lag_seconds"] >= 0
        standby.stop()
        assert isnan(store.gauges()["replica_lag_seconds"])
        put(store, "after", "primary alone")
        assert found_keys(store, "alone") == ["after"]
        store.close()
    finally:
        standby.remove()
        primary.remove()
