"""The page of all operations, `/docs`: as wide as a telephone, with a search and a form for every GET."""

from __future__ import annotations

from furnished import Memory
from playwright.sync_api import Browser, expect


def test_an_operation_is_found_and_tried_on_a_telephone(chromium: Browser, memory: Memory) -> None:
    memory.space.files.write("/notes/to do.md", "Call the bank.")
    page = chromium.new_page(viewport={"width": 390, "height": 844})
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(f"{memory.address}/docs")
    page.get_by_label("Find an operation").fill("read file")
    operation = page.locator("details.operation").filter(has_text="GET /v1/files/{path}")
    expect(page.locator("details.operation").filter(has_text="GET /v1/threads Lis")).to_be_hidden()
    operation.locator("summary").click()
    operation.get_by_label("path").fill("/notes/to do.md")
    operation.get_by_role("button", name="Try it").click()
    expect(operation.locator("pre")).to_have_text("GET /v1/files/notes/to%20do.md\n200 OK\n\nCall the bank.")
    page.get_by_label("Find an operation").fill("")
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.close()
    assert faults == []


def test_a_stream_is_shown_as_it_comes_and_can_be_stopped(chromium: Browser, memory: Memory) -> None:
    memory.space.files.write("/notes/today.md", "Call the bank.")
    page = chromium.new_page()
    page.goto(f"{memory.address}/docs?q=stream")
    operation = page.locator("details.operation").filter(has_text="GET /v1/changes/stream")
    operation.locator("summary").click()
    operation.get_by_label("after").fill("0")
    operation.get_by_role("button", name="Try it").click()
    expect(operation.locator("pre")).to_contain_text("/notes/today.md")
    operation.get_by_role("button", name="Stop").click()
    expect(operation.get_by_role("button", name="Stop")).to_be_hidden()
    page.close()
