"""What people do with records and conversations: choose several, tag, edit, read a chat, fill in working memory."""

from __future__ import annotations

from furnished import CONVERSATION, SCHEMA, Memory
from person import Person
from playwright.sync_api import expect


def test_several_records_are_tagged_and_deleted_as_one_commit_and_taken_back(person: Person, memory: Memory):
    made = [
        memory.space.records.create(type="fact", content=f"Ship {number}", source="log", confidence=0.9).id
        for number in range(4)
    ]
    page = person.go("/ui/records")
    for row in (0, 1):
        page.locator("tbody input[type=checkbox]").nth(row).check()
    page.get_by_label("Tags to add or remove").fill("harbour")
    commit = memory.space.stats().commit
    page.get_by_role("button", name="Tag chosen", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="Tagged")).to_contain_text(f"commit {commit + 1}")
    assert sum("harbour" in memory.space.records.get(id).tags for id in made) == 2
    page.get_by_label("Choose all records of this page").check()
    page.get_by_role("button", name="Delete chosen").click()
    expect(page.get_by_role("status").filter(has_text="Deleted")).to_contain_text(f"commit {commit + 2}")
    assert memory.space.records.list().records == ()
    page.get_by_role("link", name="Undo").first.click()
    page.get_by_role("button", name="Undo this commit").click()
    expect(page.locator("tbody tr")).to_have_count(4)


def test_records_are_filtered_by_a_click_on_a_tag(person: Person, memory: Memory):
    for number, tag in enumerate(("ship", "ship", "tea")):
        memory.space.records.create(
            type="fact", content=f"Fact {number}", source="log", confidence=0.9, tags=[tag, f"n:{number}"]
        )
    page = person.go("/ui/records")
    page.locator("tbody").get_by_role("link", name="ship").first.click()
    expect(page.locator("tbody tr")).to_have_count(2)
    assert "tag=ship" in page.url
    page.go_back()
    expect(page.locator("tbody tr")).to_have_count(3)


def test_a_record_is_edited_and_a_conflict_loses_nothing(person: Person, memory: Memory):
    made = memory.space.records.create(type="fact", content="Ada drinks tea", source="chat", confidence=0.7)
    page = person.go("/ui/records")
    page.get_by_role("link", name="Ada drinks tea").click()
    page.get_by_role("link", name="Edit").click()
    memory.space.records.update(made.id, content="Ada drinks coffee")
    page.get_by_label("Content").fill("Ada drinks green tea")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("was changed while you were editing")
    expect(page.get_by_label("Content")).to_have_value("Ada drinks green tea")
    expect(page.locator("pre").filter(has_text="Ada drinks coffee")).to_be_visible()
    page.get_by_role("button", name="Save mine").click()
    expect(page.get_by_role("status").filter(has_text="Saved")).to_be_visible()
    assert memory.space.records.get(made.id).content == "Ada drinks green tea"


def test_a_conversation_is_read_with_its_tool_calls_folded(person: Person, memory: Memory):
    thread = memory.space.threads.create("About the harbour", resource="ada").id
    memory.space.threads.add(thread, CONVERSATION, resource="ada")
    page = person.go("/ui/threads")
    page.get_by_role("link", name="About the harbour").click()
    expect(page.locator(".message")).to_have_count(4)
    call = page.locator("details.part").first
    expect(call.locator("pre")).not_to_be_visible()
    call.locator("summary").click()
    expect(call.locator("pre")).to_contain_text("crane")


def test_working_memory_is_a_form_of_its_schema(person: Person, memory: Memory):
    memory.space.threads.working.write({"name": "Ada", "city": "Hamburg"}, resource="ada", schema=SCHEMA)
    page = person.go("/ui/threads?open=working:resource/ada")
    expect(page.get_by_label("name")).to_have_value("Ada")
    page.get_by_label("city").fill("Kiel")
    page.get_by_role("button", name="Save working memory").click()
    expect(page.get_by_role("status").filter(has_text="Saved")).to_be_visible()
    stored = memory.space.threads.working.read(resource="ada")
    assert stored is not None
    assert stored.content["city"] == "Kiel"
