"""What people do with search and files: find, read, edit, meet a conflict, delete, take it back."""

from __future__ import annotations

from furnished import Memory
from person import NewPerson, Person
from playwright.sync_api import Page, expect


def toast_of(page: Page, word: str) -> str:
    """The toast, once it is there and says this word."""
    toast = page.get_by_role("status").filter(has_text=word)
    expect(toast).to_be_visible()
    return toast.inner_text()


def test_a_search_finds_and_marks_and_leads_to_the_text(person: Person, memory: Memory):
    memory.space.files.write("/notes/crane.md", "The crane on pier 4 is repaired.")
    memory.space.files.write("/notes/other.md", "Nothing of interest.")
    page = person.go("/ui")
    page.get_by_role("searchbox").fill("crane")
    page.get_by_role("searchbox").press("Enter")
    hit = page.locator(".hit").first
    expect(hit).to_contain_text("/notes/crane.md")
    expect(hit.locator("mark")).to_have_text("crane")
    assert "q=crane" in page.url
    hit.get_by_role("link").click()
    expect(page.locator(".text")).to_have_text("The crane on pier 4 is repaired.")


def test_the_address_of_a_search_can_be_kept(new_person: NewPerson, memory: Memory):
    memory.space.files.write("/notes/crane.md", "The crane on pier 4 is repaired.")
    page = new_person().go("/ui")
    page.get_by_role("searchbox").fill("crane & pier?")
    page.get_by_role("button", name="Search").click()
    expect(page.locator(".hit mark").first).to_be_visible()
    page.wait_for_url("**q=crane**")
    other = new_person().go(page.url.removeprefix(memory.address))
    expect(other.get_by_role("searchbox")).to_have_value("crane & pier?")
    expect(other.locator(".hit")).to_have_count(1)


def test_back_returns_to_the_hits_and_then_to_the_start(person: Person, memory: Memory):
    memory.space.files.write("/notes/crane.md", "The crane on pier 4 is repaired.")
    page = person.go("/ui")
    page.get_by_role("searchbox").fill("crane")
    page.get_by_role("searchbox").press("Enter")
    expect(page.locator(".hit mark")).to_have_text("crane")  # the start shows the same link
    page.locator(".hit").get_by_role("link").click()
    expect(page.get_by_role("link", name="Edit")).to_be_visible()
    page.go_back()
    expect(page.locator(".hit mark")).to_have_text("crane")
    expect(page.get_by_role("searchbox")).to_have_value("crane")
    page.go_back()
    expect(page.get_by_role("heading", name="Changed last")).to_be_visible()
    expect(page.get_by_role("searchbox")).to_have_value("")


def test_the_kind_is_chosen_without_a_button(person: Person, memory: Memory):
    memory.space.files.write("/crane.md", "The crane is red.")
    memory.space.records.create(type="fact", content="A crane is a bird", source="book", confidence=0.9)
    page = person.go("/ui?q=crane")
    expect(page.locator(".hit")).to_have_count(2)
    page.get_by_label("Kind").select_option("record")
    expect(page.locator(".hit")).to_have_count(1)
    expect(page.locator(".hit")).to_contain_text("bird")
    assert "kind=record" in page.url


def test_the_page_shows_what_a_model_would_get(person: Person, memory: Memory):
    memory.space.files.write("/crane.md", "The crane is red.")
    page = person.go("/ui?q=crane")
    summary = page.get_by_text("What would the model get?")
    summary.click()
    expect(page.locator("details.context pre")).to_contain_text("The crane is red.")


def test_a_folder_is_unfolded_where_it_is(person: Person, memory: Memory):
    memory.space.files.write("/notes/2026/ice.md", "cold")
    page = person.go("/ui/files")
    expect(page.get_by_role("link", name="2026/")).to_have_count(0)
    page.locator("summary").first.click()
    page.get_by_role("link", name="2026/").wait_for()
    assert page.url.endswith("/ui/files")
    page.locator("summary").nth(1).click()
    page.get_by_role("link", name="ice.md").click()
    expect(page.locator(".text")).to_have_text("cold")
    expect(page.locator(".tree [aria-current]")).to_have_text("ice.md")


def test_an_edit_is_saved_and_its_toast_is_shown_once(person: Person, memory: Memory):
    memory.space.files.write("/notes/plan.md", "one\n")
    page = person.go("/ui/files?open=file:/notes/plan.md")
    page.get_by_role("link", name="Edit").click()
    expect(page.get_by_label("Text")).to_be_focused()
    page.get_by_label("Text").fill("one\ntwo **bold**\n")
    page.get_by_role("button", name="Save").click()
    assert f"commit {memory.space.stats().commit}" in toast_of(page, "Saved")
    expect(page.locator(".markdown strong")).to_have_text("bold")
    assert memory.space.files.read("/notes/plan.md") == "one\ntwo **bold**\n"
    page.reload()
    expect(page.locator("[data-toast]")).to_have_count(0)


def test_a_new_file_is_written_and_found(person: Person, memory: Memory):
    page = person.go("/ui")
    page.get_by_label("Path").fill("/notes/zoë & co.md")
    page.get_by_label("Text").fill("Tea at four.")
    page.get_by_role("button", name="Save").click()
    toast_of(page, "Saved")
    page.get_by_role("link", name="Search", exact=True).click()
    page.get_by_role("searchbox").fill("tea")
    page.get_by_role("searchbox").press("Enter")
    expect(page.locator(".hit")).to_contain_text("/notes/zoë & co.md")


def test_two_tabs_that_edit_one_file_lose_nothing(person: Person, memory: Memory):
    memory.space.files.write("/plan.md", "the beginning")
    mine, theirs = person.page, person.new_tab()
    for tab in (mine, theirs):
        person.go("/ui/files/edit?open=file:/plan.md", tab=tab)
    theirs.get_by_label("Text").fill("what they typed")
    theirs.get_by_role("button", name="Save").click()
    toast_of(theirs, "Saved")
    mine.get_by_label("Text").fill("what I typed")
    mine.get_by_role("button", name="Save").click()
    expect(mine.get_by_role("alert")).to_contain_text("was changed while you were editing")
    expect(mine.get_by_label("Your text")).to_have_value("what I typed")
    expect(mine.locator("pre")).to_have_text("what they typed")
    assert memory.space.files.read("/plan.md") == "what they typed"
    mine.get_by_label("Your text").fill("what they typed and what I typed")
    mine.get_by_role("button", name="Save mine").click()
    toast_of(mine, "Saved")
    assert memory.space.files.read("/plan.md") == "what they typed and what I typed"


def test_a_deletion_is_taken_back(person: Person, memory: Memory):
    memory.space.files.write("/notes/a.md", "alpha")
    page = person.go("/ui/files?open=file:/notes/a.md")
    page.get_by_role("button", name="Delete").click()
    toast_of(page, "Deleted")
    assert not memory.space.files.exists("/notes/a.md")
    page.get_by_role("link", name="Undo").click()
    expect(page.get_by_role("main")).to_contain_text("/notes/a.md")
    assert not memory.space.files.exists("/notes/a.md")
    page.get_by_role("button", name="Undo this commit").click()
    toast_of(page, "Undone")
    assert memory.space.files.read("/notes/a.md") == "alpha"


def test_the_back_button_after_a_deletion_deletes_nothing_again(person: Person, memory: Memory):
    memory.space.files.write("/notes/a.md", "alpha")
    page = person.go("/ui/files?open=file:/notes/a.md")
    page.get_by_role("button", name="Delete").click()
    toast_of(page, "Deleted")
    commit = memory.space.stats().commit
    page.go_back()
    expect(page.get_by_role("main")).to_contain_text("does not exist")
    page.go_forward()
    page.reload()
    assert memory.space.stats().commit == commit


def test_a_folder_is_moved_with_what_is_in_it(person: Person, memory: Memory):
    memory.space.files.write("/notes/a.md", "alpha")
    page = person.go("/ui/files?open=directory:/notes")
    page.get_by_label("Move to").fill("/archive/notes")
    page.get_by_role("button", name="Move").click()
    toast_of(page, "Moved")
    assert memory.space.files.read("/archive/notes/a.md") == "alpha"
    expect(page.get_by_role("link", name="a.md")).to_be_visible()


def test_a_long_file_comes_in_part_and_whole_when_asked(person: Person, memory: Memory):
    memory.space.files.write("/long.md", "a line of text\n" * 2_000 + "the end")
    page = person.go("/ui/files?open=file:/long.md")
    expect(page.locator(".markdown")).not_to_contain_text("the end")
    page.get_by_role("link", name="Show all of it").click()
    expect(page.locator(".markdown")).to_contain_text("the end")


def test_a_file_is_downloaded_as_it_is(person: Person, memory: Memory):
    memory.space.files.write("/notes/a b.html", "<script>canary('downloaded')</script>")
    page = person.go("/ui/files?open=file:/notes/a b.html")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert download.value.suggested_filename == "a b.html"
    assert download.value.path().read_text() == "<script>canary('downloaded')</script>"


def test_another_memory_is_opened_and_every_link_stays_in_it(person: Person, memory: Memory):
    memory.space.files.write("/mine.md", "of mine")
    memory.book.space("user", "grace").files.write("/hers.md", "of grace")
    page = person.go("/ui")
    page.get_by_title("Open another memory").click()
    page.get_by_role("link", name="user/grace").click()
    expect(page.get_by_title("Open another memory")).to_have_text("user/grace")
    page.get_by_role("link", name="/hers.md").click()
    expect(page.locator(".text")).to_have_text("of grace")
    page.get_by_role("link", name="Files", exact=True).click()
    expect(page.locator(".tree")).to_contain_text("hers.md")
    expect(page.locator(".tree")).not_to_contain_text("mine.md")


def test_the_past_is_shown_and_cannot_be_changed(person: Person, memory: Memory):
    before = memory.space.files.write("/a.md", "as it was").updated_at
    memory.space.files.write("/a.md", "as it is")
    page = person.go(f"/ui/files?open=file:/a.md&as_of={before.isoformat().replace('+', '%2B')}")
    expect(page.locator(".text")).to_have_text("as it was")
    for name in ("Edit", "New file"):
        expect(page.get_by_role("link", name=name)).to_have_count(0)
    for name in ("Delete", "Move"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    page.get_by_role("link", name="Back to now").click()
    expect(page.locator(".text")).to_have_text("as it is")


def test_the_whole_round_works_without_scripts(new_person: NewPerson, memory: Memory):
    page = new_person(java_script_enabled=False).go("/ui")
    page.get_by_label("Path").fill("/notes/a.md")
    page.get_by_label("Text").fill("The crane is red.")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("link", name="Search", exact=True).click()
    page.get_by_role("searchbox").fill("crane")
    page.get_by_role("button", name="Search").click()
    page.locator(".hit").get_by_role("link").click()
    page.get_by_role("link", name="Edit").click()
    page.get_by_label("Text").fill("The crane is blue.")
    page.get_by_role("button", name="Save").click()
    assert "Saved" in toast_of(page, "Saved")
    page.get_by_role("link", name="Close").click()
    expect(page.locator("[data-toast]")).to_have_count(0)
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("link", name="Undo").click()
    page.get_by_role("button", name="Undo this commit").click()
    assert memory.space.files.read("/notes/a.md") == "The crane is blue."
