"""Chromium once for all tests of a process, and for each test a memory of its own and people who open its page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from furnished import Memory, serve
from person import NewPerson, Person, open_person
from playwright.sync_api import Browser, sync_playwright

from install_browser import CHROMIUM, FLAGS  # isort: skip


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        pytest.fail(f"{CHROMIUM} is missing; scripts/install_browser.py installs it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    """An empty memory, and a service on it that needs no key."""
    served = serve(str(tmp_path / "book.db"))
    yield served
    served.close()


@pytest.fixture
def new_person(chromium: Browser, memory: Memory) -> Iterator[NewPerson]:
    """Opens browser profiles at the memory. A fault of any of their pages fails the test."""
    opened: list[Person] = []

    def make(**options: object) -> Person:
        opened.append(open_person(chromium, memory.address, **options))
        return opened[-1]

    yield make
    faults = [fault for person in opened for fault in person.faults()]
    for person in opened:
        person.context.close()
    assert faults == []


@pytest.fixture
def person(new_person: NewPerson) -> Person:
    return new_person()
