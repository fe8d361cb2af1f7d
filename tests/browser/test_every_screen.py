"""Every screen in a real browser: in light and dark, wide and narrow, with and without scripts, on both backends."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from every_screen import NOT_SCREENS, SCREENS, addresses
from furnished import Furnished, Memory, furnish, serve
from person import PHONE, Person, open_person
from playwright.sync_api import Browser, Page

from commonplace.server.page import routes
from postgres_server import shared_server

Place = tuple[Memory, Furnished]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One furnished memory for all tests of this module: they only look."""
    url = str(tmp_path_factory.mktemp("furnished") / "book.db")
    found = furnish(url)
    memory = serve(url)
    yield memory, found
    memory.close()


def opened(chromium: Browser, place: Place, **options: object) -> Person:
    return open_person(chromium, place[0].address, **options)


def faults_of(person: Person, place: Place, *widths: int, has_axe: bool = False) -> dict[str, list[str]]:
    """What is wrong with each screen, by its name."""
    wrong = {}
    for name, path in addresses(place[1]).items():
        person.watch.faults.clear()
        person.go(path)
        found = [*person.faults(), *person.layout_faults(*widths)]
        if has_axe:
            found += person.accessibility_faults() + person.faults()
        if found:
            wrong[name] = found
    person.context.close()
    return wrong


BY_SCRIPTS = "[data-copy], [data-all], .plot, .slide, .time-bar button, .moment"
"""What only scripts show, or show otherwise."""


def says(page: Page) -> str:
    """The text of a screen, without what scripts add and the numbers that change from one moment to the next."""
    text = page.evaluate(
        """(selector) => {
          document.querySelectorAll(selector).forEach((one) => one.remove());
          return document.querySelector("main").innerText;
        }""",
        BY_SCRIPTS,
    )
    changing = r"\d+ (seconds?|minutes?) ago|just now|About [\d,]+ tokens|[\d.]+ ms"
    return re.sub(r"\s+", " ", re.sub(changing, "…", text))


def test_every_address_of_the_page_is_among_the_screens():
    """So that no screen is left out below."""
    known = {path.split("?")[0] for path in SCREENS.values()} | NOT_SCREENS.keys()
    shown = {route.path for route in routes() if "GET" in getattr(route, "methods", ())}
    assert shown == known


@pytest.mark.promise("page-accessible", "page-confined", "page-narrow")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_screen_is_accessible_and_fits_and_keeps_to_its_policy(chromium: Browser, place: Place, scheme: str):
    person = opened(chromium, place, color_scheme=scheme)
    assert faults_of(person, place, 320, PHONE["width"], 1280, has_axe=True) == {}


def test_every_screen_is_accessible_on_a_phone(chromium: Browser, place: Place):
    person = opened(chromium, place, viewport=PHONE, has_touch=True, is_mobile=True)
    assert faults_of(person, place, PHONE["width"], has_axe=True) == {}


@pytest.mark.promise("page-without-scripts")
def test_every_screen_says_the_same_without_scripts(chromium: Browser, place: Place):
    with_scripts, without = opened(chromium, place), opened(chromium, place, java_script_enabled=False)
    for name, path in addresses(place[1]).items():
        shown = [says(person.go(path)) for person in (with_scripts, without)]
        assert shown[0] == shown[1], name
        assert without.page.locator("main h1").is_visible()
    for person in (with_scripts, without):
        assert person.faults() == []
        person.context.close()


def test_every_screen_has_the_landmarks_and_one_heading(chromium: Browser, place: Place):
    person = opened(chromium, place)
    for name, path in addresses(place[1]).items():
        page = person.go(path)
        assert page.get_by_role("banner").count() == 1, name
        assert page.get_by_role("main").count() == 1, name
        assert page.get_by_role("navigation", name="Screens").is_visible(), name
        assert page.get_by_role("heading", level=1).count() == 1, name
        assert page.title().endswith(" · commonplace"), name
    person.context.close()


def test_dark_is_dark_and_light_is_light(chromium: Browser, place: Place):
    brightness = {}
    for scheme in ("light", "dark"):
        person = opened(chromium, place, color_scheme=scheme)
        colour = person.go("/ui").evaluate("getComputedStyle(document.body).backgroundColor")
        brightness[scheme] = sum(int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(","))
        person.context.close()
    assert brightness["dark"] < 150
    assert brightness["light"] > 600


def test_every_screen_opens_on_postgres(chromium: Browser):
    url = shared_server().create_database() + "?partitions=2"
    found = furnish(url)
    memory = serve(url)
    try:
        person = opened(chromium, (memory, found))
        assert faults_of(person, (memory, found), 1280) == {}
    finally:
        memory.close()
