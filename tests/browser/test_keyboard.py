"""The page by keyboard alone: no test here touches the mouse."""

from __future__ import annotations

import pytest
from furnished import Memory
from person import Person
from playwright.sync_api import Page, expect


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


@pytest.mark.promise("page-keyboard")
def test_a_person_finds_edits_and_undoes_by_keyboard_alone(person: Person, memory: Memory):
    for name in ("one", "two", "three"):
        memory.space.files.write(f"/{name}.md", f"The crane number {name}.")
    page = person.go("/ui/namespaces")
    press(page, "/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("crane")
    press(page, "Enter")
    # The screen without a query lists the same three files, but marks nothing in them.
    expect(page.locator(".hit mark")).to_have_count(3)
    page.wait_for_load_state()
    names = page.locator(".hit .name").all_inner_texts()
    page.get_by_role("searchbox").blur()
    for key, at in (("j", 0), ("j", 1), ("j", 2), ("j", 2), ("k", 1)):
        press(page, key)
        expect(page.locator(".hit .name").nth(at)).to_be_focused()
    press(page, "Enter")
    expect(page.get_by_role("heading", level=2)).to_have_text(names[1])
    press(page, "e")
    expect(page.get_by_label("Text")).to_be_focused()
    page.keyboard.type("New: ")
    press(page, "Tab", "Enter")
    expect(page.locator("[data-toast]")).to_contain_text("Saved")
    assert memory.space.files.read(names[1]).startswith("New: ")
    press(page, "u")
    expect(page.get_by_role("button", name="Undo this commit")).to_be_focused()
    press(page, "Enter")
    expect(page.locator("[data-toast]")).to_contain_text("Undone")
    assert memory.space.files.read(names[1]).startswith("The crane")


def test_g_and_a_letter_open_every_screen_of_the_navigation(person: Person, memory: Memory):
    memory.space.files.write("/a.md", "alpha")
    page = person.go("/ui/namespaces")
    for link in page.get_by_role("navigation", name="Screens").get_by_role("link").all():
        key, path = link.get_attribute("data-go"), link.get_attribute("href")
        assert key, f"{path} has no key"
        person.go("/ui/namespaces")
        press(page, "g", key)
        page.wait_for_url(f"**{path}")


def test_letters_that_are_typed_are_not_shortcuts(person: Person, memory: Memory):
    memory.space.files.write("/a.md", "alpha")
    page = person.go("/ui/files/edit?open=file:/a.md")
    page.get_by_label("Text").fill("")
    page.keyboard.type("/ judge every unjust key, go")
    expect(page.get_by_label("Text")).to_have_value("/ judge every unjust key, go")
    assert "/ui/files/edit" in page.url


def test_the_first_stop_of_tab_skips_to_the_content(person: Person, memory: Memory):
    page = person.go("/ui/namespaces")
    press(page, "Tab")
    skip = page.get_by_role("link", name="Skip to the content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    press(page, "Enter", "Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null")


def test_what_has_the_focus_can_be_seen(person: Person, memory: Memory):
    memory.space.files.write("/notes/a.md", "alpha")
    page = person.go("/ui/files?open=file:/notes/a.md")
    unseen = page.evaluate(
        """() => [...document.querySelectorAll("a, button, input, summary, [tabindex='0']")].filter((one) => {
          if (one.type === "hidden") return false;
          one.focus({ focusVisible: true });
          const style = getComputedStyle(one);
          return document.activeElement === one && style.outlineStyle === "none";
        }).map((one) => one.outerHTML.slice(0, 100))"""
    )
    assert unseen == []
