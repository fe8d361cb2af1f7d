"""Work behind the turns: one key at a time, none forgotten, and nobody waits for it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from commonplace.agents.agent_memory import Background


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


@pytest.mark.parametrize("error", [asyncio.CancelledError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_job_that_would_end_its_thread_stops_no_other(error):
    work, ran = Background("test", threads=2), []

    def fail():
        raise error

    for number in range(4):
        assert work.submit(number, fail)
    assert work.submit("after", lambda: ran.append("after"))
    assert work.settle(30)
    assert ran == ["after"]


def test_a_thread_that_cannot_be_started_loses_its_job_and_nothing_else(monkeypatch, caplog):
    work, ran = Background("test", threads=2), []
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", no_more_threads)
        assert not work.submit("a", lambda: ran.append("lost"))
    assert "test: cannot start a thread" in caplog.text
    assert work.settle(0)
    assert work.submit("a", lambda: ran.append("a"))
    assert work.settle(30)

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", no_more_threads)
        assert work.submit("b", lambda: ran.append("by the thread that runs"))
    assert work.settle(30)
    assert ran == ["a", "by the thread that runs"]


def no_more_threads(thread):
    raise RuntimeError("can't start new thread")


def test_a_child_process_of_a_fork_begins_anew_whatever_was_under_way():
    code = """
import os, threading
from commonplace.agents.agent_memory import Background
work = Background("test")
may_hold, holds, go_on = threading.Event(), threading.Event(), threading.Event()
def hold():
    may_hold.wait()
    with work._changed:
        holds.set()
        go_on.wait()
work.submit("a", hold)
work.submit("waiting", lambda: print("of the parent", flush=True))
may_hold.set()
holds.wait()
child = os.fork()
if not child:
    submitted = work.submit("a", lambda: print("of the child", flush=True))
    os._exit(0 if submitted and work.settle(20) else 1)
assert os.waitpid(child, 0)[1] == 0
go_on.set()
assert work.settle(20)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (run.stdout, run.returncode) == ("of the child\nof the parent\n", 0), run.stderr


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
        "from commonplace.agents.agent_memory import Background\n"
        "Background('test').submit('key', threading.Event().wait)\n"
        "print('ended')\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert (run.stdout, run.stderr, run.returncode) == ("ended\n", "", 0)
