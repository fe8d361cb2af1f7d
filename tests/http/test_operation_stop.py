"""A stop finishes what was begun, and a kill loses nothing that was acknowledged."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from operated import operated

from commonplace.server.http.service import Service

SCRIPT = Path(__file__).parent.parent.parent / "scripts" / "service_kill.py"


@pytest.mark.promise("service.stop")
def test_a_request_under_way_is_answered_before_the_server_ends(service: Service) -> None:
    with (
        operated(service, timeout_graceful_shutdown=20) as (server, routes),
        server.client() as client,
        ThreadPoolExecutor(1) as other,
    ):
        waiting = other.submit(client.post, "/test/wait/late")
        assert routes.has_come.acquire(timeout=20)
        server.uvicorn.should_exit = True
        server.thread.join(1.0)
        assert server.thread.is_alive()
        routes.go_on.set()
        answer = waiting.result(20)
        assert (answer.text, answer.headers["connection"]) == ("late is done", "close")
        server.thread.join(20)
        assert not server.thread.is_alive()


@pytest.mark.promise("service.stop")
def test_an_open_stream_comes_to_a_proper_end_and_does_not_hold_up_the_stop(service: Service) -> None:
    with (
        operated(service, timeout_graceful_shutdown=600) as (server, routes),
        server.client() as client,
        client.stream("GET", "/test/stream") as stream,
    ):
        assert routes.has_come.acquire(timeout=20)
        server.uvicorn.should_exit = True
        # Reading a stream that was cut off raises.
        assert [line for line in stream.iter_lines() if line] == ["data: first"]
        server.thread.join(20)
        assert not server.thread.is_alive()


@pytest.mark.promise("service.stop")
def test_the_feed_of_changes_comes_to_a_proper_end_as_well(service: Service) -> None:
    with (
        operated(service, timeout_graceful_shutdown=600) as (server, _),
        server.client() as client,
        client.stream("GET", "/v1/changes/stream") as stream,
    ):
        service.book.space("user", "default").files.write("/notes/a", "something")
        lines = stream.iter_lines()
        assert any(line.startswith("id:") for line in lines)
        server.uvicorn.should_exit = True
        for line in lines:
            assert "error" not in line
        server.thread.join(20)
        assert not server.thread.is_alive()


@pytest.mark.promise("service.stop")
@pytest.mark.promise("service.kill")
def test_no_acknowledged_write_is_lost_and_no_request_dropped_when_a_service_under_load_is_killed_or_stopped() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--seconds", "12"], capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counts = re.match(r"(\d+) kills and (\d+) stops under load, (\d+) acknowledged writes checked, 0 f", done.stdout)
    assert counts is not None, done.stdout
    assert int(counts[1]) >= 1
    assert int(counts[2]) >= 1
    assert int(counts[3]) >= 20
