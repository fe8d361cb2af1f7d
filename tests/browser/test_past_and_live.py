"""What people do with time: look at last week, restore, compare, undo, and see what another program writes."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest
from furnished import Furnished, Memory, furnish, serve
from person import NewPerson, Person
from playwright.sync_api import expect


@pytest.fixture
def furnished(tmp_path: Path) -> Furnished:
    """What is in the memory: three weeks of entries."""
    return furnish(str(tmp_path / "book.db"))


@pytest.fixture
def memory(furnished: Furnished, tmp_path: Path):
    served = serve(str(tmp_path / "book.db"))
    yield served
    served.close()


def test_the_slider_goes_to_last_week_and_an_entry_is_restored_from_there(
    person: Person, memory: Memory, furnished: Furnished
):
    week_ago = int(datetime.fromisoformat(furnished.week_ago).timestamp() * 1e6)
    page = person.go("/ui/as-of")
    slider = page.get_by_role("slider")
    first, step = (int(slider.get_attribute(name) or 0) for name in ("min", "step"))
    slider.fill(str(first + (week_ago - first) // step * step))
    expect(page.get_by_role("status").filter(has_text="You are looking at the past")).to_be_visible()
    page.get_by_role("navigation", name="Screens").get_by_role("link", name="Files").click()
    page.get_by_role("link", name="notes/").click()
    page.get_by_role("link", name="plan.md").click()
    expect(page.locator("pre.text")).to_contain_text("in May")
    page.get_by_role("link", name="Restore this").first.click()
    expect(page.locator(".diff ins")).to_contain_text("May")
    assert "June" in memory.space.files.read("/notes/plan.md")
    page.get_by_role("button", name="Restore this").click()
    expect(page.get_by_role("status").filter(has_text="Restored")).to_be_visible()
    assert "May" in memory.space.files.read("/notes/plan.md")


def test_the_slider_previews_a_moment_before_it_is_let_go(person: Person, memory: Memory):
    page = person.go("/ui/as-of")
    page.evaluate(
        """() => {
          const slider = document.querySelector("input[type=range]");
          slider.value = slider.min;
          slider.dispatchEvent(new Event("input", { bubbles: true }));
        }"""
    )
    expect(page.locator("#moment")).to_contain_text("Commit 1,")
    assert "as_of" not in page.url


def test_every_screen_keeps_the_moment_until_back_to_now(person: Person, memory: Memory, furnished: Furnished):
    when = furnished.week_ago.replace("+", "%2B")
    page = person.go(f"/ui/records?as_of={when}")
    expect(page.locator("tbody")).to_contain_text("green tea")
    page.get_by_role("navigation", name="Screens").get_by_role("link", name="Files").click()
    assert "as_of=" in page.url
    page.get_by_role("navigation", name="Screens").get_by_role("link", name="Records").click()
    page.get_by_role("link", name="Back to now").click()
    expect(page.locator("tbody")).not_to_contain_text("green tea")


def test_a_commit_of_the_history_is_undone_after_a_preview(person: Person, memory: Memory, furnished: Furnished):
    page = person.go("/ui/history")
    page.get_by_role("link", name=f"Commit {furnished.commit}", exact=True).click()
    expect(page.locator("del")).to_contain_text("May")
    expect(page.locator("ins")).to_contain_text("June")
    page.keyboard.press("u")
    expect(page.locator("ins")).to_contain_text("May")
    assert "June" in memory.space.files.read("/notes/plan.md")
    page.get_by_role("button", name="Undo this commit").click()
    expect(page.get_by_role("status").filter(has_text="Undone")).to_be_visible()
    assert "May" in memory.space.files.read("/notes/plan.md")


def test_two_moments_are_compared(person: Person, memory: Memory, furnished: Furnished):
    page = person.go("/ui/history")
    page.get_by_role("link", name="Compare two moments").click()
    page.get_by_label("From commit").fill("1")
    page.get_by_label("to commit").fill(str(furnished.commit))
    page.get_by_role("button", name="Compare").click()
    page.get_by_role("link", name="/notes/plan.md").click()
    expect(page.locator("del")).to_contain_text("May")


def test_what_another_program_writes_appears_as_a_pill_and_moves_nothing(
    person: Person, memory: Memory, tmp_path: Path
):
    page = person.go("/ui")
    before = page.locator("main").inner_text()
    place = page.locator(".hit").first.bounding_box()
    command = [
        sys.executable,
        "-m",
        "commonplace.cli",
        "--db",
        str(tmp_path / "book.db"),
        "--namespace",
        "user/default",
    ]
    subprocess.run([*command, "add", "new", "--file", "/n.md"], check=True, capture_output=True)
    pill = page.locator("[data-live]")
    expect(pill).to_be_visible()
    expect(pill).to_contain_text("1 new")
    assert page.locator("main").inner_text() == before
    assert page.locator(".hit").first.bounding_box() == place
    pill.click()
    expect(page.locator(".hit").first).to_contain_text("/n.md")


def test_the_past_works_without_scripts(new_person: NewPerson, memory: Memory):
    page = new_person(java_script_enabled=False).go("/ui/as-of")
    page.get_by_role("button", name="Go").click()
    assert "as_of=" in page.url
    page.get_by_role("link", name="Earlier").first.click()
    page.get_by_role("link", name="Later").first.click()
    page.get_by_role("link", name="Back to now").click()
    assert "as_of=" not in page.url
