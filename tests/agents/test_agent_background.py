"""Work behind the turns: one key at a time, none forgotten, and nobody waits for it."""

from __future__ import annotations

import subprocess
import sys
import threading

from commonplace.agents.background import Background


def test_a_key_that_comes_again_while_it_runs_is_run_once_more_and_never_twice_at_once():
    work = Background("test", threads=4)
    started, go_on, ran, at_once = threading.Event(), threading.Event(), [], []

    def job(name):
        def run():
            at_once.append(name)
            started.set()
            assert go_on.wait(30)
            assert at_once == [name]
            ran.append(name)
            at_once.remove(name)

        return run

    work.submit("key", job("first"))
    assert started.wait(30)
    for name in ("second", "third"):
        assert work.submit("key", job(name))
    go_on.set()
    assert work.settle(30)
    assert ran == ["first", "third"]


def test_a_job_that_fails_stops_no_other_and_is_logged(caplog):
    work, ran = Background("test"), []
    work.submit("a", lambda: 1 / 0)
    work.submit("b", lambda: ran.append("b"))
    assert work.settle(30)
    assert ran == ["b"]
    assert "test: a job failed" in caplog.text


def test_more_than_may_wait_is_turned_away():
    work, go_on, started = Background("test", max_waiting=1), threading.Event(), threading.Event()

    def hang():
        started.set()
        go_on.wait(30)

    assert work.submit("running", hang)
    assert started.wait(30)
    assert work.submit("waiting", lambda: None)
    assert not work.submit("too many", lambda: None)
    go_on.set()
    assert work.settle(30)
    work.close()
    assert not work.submit("closed", lambda: None)


def test_a_job_that_hangs_does_not_keep_a_program_from_ending():
    code = (
        "import threading\n"
        "from commonplace.agents.background import Background\n"
        "Background('test').submit('key', threading.Event().wait)\n"
        "print('ended')\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert (run.stdout, run.stderr, run.returncode) == ("ended\n", "", 0)
