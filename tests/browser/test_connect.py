"""The first minutes in a real browser: the sample memory, a client to connect, and the first key."""

from __future__ import annotations

from pathlib import Path

from furnished import Memory
from person import Person
from playwright.sync_api import expect

SAMPLES = Path(__file__).parent.parent / "exchange" / "samples"


def test_the_sample_is_loaded_looked_at_and_removed_and_the_own_memory_stays_empty(person: Person, memory: Memory):
    page = person.go("/ui")
    page.get_by_role("button", name="Load the sample memory").click()
    expect(page.get_by_role("heading", name="Changed last")).to_be_visible()
    assert "ns=sample" in page.url
    assert memory.space.stats().commit == 0
    page.get_by_role("link", name="Remove it").click()
    assert person.accessibility_faults() == []
    assert person.layout_faults(390, 1280) == []
    page.get_by_role("button", name="Remove it").click()
    expect(page.get_by_role("button", name="Load the sample memory")).to_be_visible()
    assert memory.book.space("sample").stats().entries == {}


def test_a_file_is_looked_at_imported_and_its_import_undone_after_a_preview(person: Person, memory: Memory):
    page = person.go("/ui/import")
    page.get_by_label("File").set_input_files(SAMPLES / "chatgpt" / "conversations.json")
    for button, heading in (("See what it holds", "What it holds"), ("Import it", "Imported")):
        page.get_by_role("button", name=button).click()
        expect(page.get_by_role("heading", name=heading)).to_be_visible()
        assert person.accessibility_faults() == []
        assert person.layout_faults(390, 1280) == []
    count = memory.space.stats().commit
    page.get_by_role("link", name="Undo this import…").click()
    expect(page.get_by_role("heading", name="Undo an import")).to_be_visible()
    expect(page.get_by_text("is removed", exact=True).first).to_be_visible()
    assert person.accessibility_faults() == []
    assert person.layout_faults(390, 1280) == []
    assert memory.space.stats().commit == count
    page.get_by_role("button", name="Undo this import").click()
    expect(page.get_by_text("Undid 2 commits of the import.")).to_be_visible()
    assert memory.space.stats().entries == {}


def test_the_settings_of_a_client_are_copied_by_a_button(person: Person, memory: Memory):
    person.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = person.go("/ui/connect")
    page.get_by_role("link", name="Cursor", exact=True).click()
    page.get_by_role("button", name="Copy").first.click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert f"{memory.address}/mcp" in page.evaluate("navigator.clipboard.readText()")


def test_the_first_key_is_shown_once_and_revoked(person: Person, memory: Memory):
    page = person.go("/ui/connect")
    page.get_by_role("link", name="New key").click()
    page.get_by_label("Name", exact=True).fill("laptop")
    page.get_by_label("Everyone needs a key from now on").check()
    page.get_by_role("button", name="Create the key").click()
    key = page.locator("pre").inner_text()
    assert memory.server.service.access.keys.check(key).name == "laptop"
    assert person.accessibility_faults() == []
    page.get_by_role("link", name="Connect a client").click()
    expect(page.get_by_role("row", name="laptop")).to_be_visible()
    expect(page.locator("body")).not_to_contain_text(key)
    page.get_by_role("link", name="Revoke").click()
    assert person.accessibility_faults() == []
    page.get_by_role("button", name="Revoke it").click()
    expect(page.get_by_role("button", name="Sign in")).to_be_visible()


def test_usage_has_a_table_for_every_plot(person: Person, memory: Memory):
    memory.space.files.write("/crane.md", "The crane is red.")
    person.go("/ui?q=crane")
    page = person.go("/ui/usage")
    expect(page.locator(".plot canvas").first).to_be_visible()
    assert page.locator(".plot").count() >= 3
    assert page.locator("main table:not(.u-legend)").count() == page.locator(".plot").count()
