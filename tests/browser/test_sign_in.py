"""A service with keys in a real browser: signing in and out, rights, and what another page may not do."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from furnished import Memory
from person import NewPerson, Person
from playwright.sync_api import expect


@pytest.mark.promise("page-sign-in")
def test_a_person_signs_in_and_out_and_the_key_is_nowhere_in_the_browser(person: Person, memory: Memory):
    memory.space.files.write("/notes/a.md", "alpha")
    key = memory.make_key("ada")
    page = person.go("/ui/files?open=file:/notes/a.md")
    page.get_by_label("Key").fill("cp_wrong_key")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("This key is unknown")
    assert person.accessibility_faults() == []
    page.get_by_label("Key").fill(key)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator(".text")).to_have_text("alpha")
    (cookie,) = person.context.cookies()
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    stored = f"{cookie['value']} {page.content()} {page.url}"
    assert key not in stored
    assert key.rpartition("_")[2] not in stored
    assert page.evaluate("document.cookie + JSON.stringify(localStorage) + JSON.stringify(sessionStorage)") == "{}{}"
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Key")).to_be_visible()
    page.go_back()
    expect(page.get_by_label("Key")).to_be_visible()
    expect(page.locator("body")).not_to_contain_text("alpha")


def test_the_sign_in_screen_is_accessible_and_fits(new_person: NewPerson, memory: Memory):
    memory.make_key("ada")
    for options in ({}, {"color_scheme": "dark"}, {"java_script_enabled": False}):
        person = new_person(**options)
        person.go("/ui/sign-in")
        if person.has_scripts:
            assert person.layout_faults(320, 390, 1280) == []
            assert person.accessibility_faults() == []
        expect(person.page.get_by_label("Key")).to_be_visible()


@pytest.mark.promise("page-rights")
def test_a_key_that_may_only_read_gets_no_buttons(person: Person, memory: Memory):
    memory.space.files.write("/notes/a.md", "alpha")
    person.sign_in(memory.make_key("reader", actions=["read"]))
    page = person.page
    for path in ("/ui", "/ui/files?open=file:/notes/a.md", "/ui/files?open=directory:/notes", "/ui/undo?commit=1"):
        person.go(path)
        assert page.get_by_role("main").get_by_role("button").all_inner_texts() in ([], ["Search"]), path
        for name in ("Edit", "New file", "Save the note", "Undo"):
            expect(page.get_by_role("link", name=name)).to_have_count(0)
    person.go("/ui/files?open=file:/notes/a.md")
    page.keyboard.press("e")
    expect(page.locator(".text")).to_have_text("alpha")


def test_a_session_that_ended_elsewhere_saves_nothing_and_asks_for_the_key(person: Person, memory: Memory):
    memory.space.files.write("/a.md", "alpha")
    person.sign_in(memory.make_key("ada"))
    person.go("/ui/files/edit?open=file:/a.md")
    other = person.go("/ui", tab=person.new_tab())
    other.get_by_role("button", name="Sign out").click()
    person.page.get_by_label("Text").fill("changed")
    person.page.get_by_role("button", name="Save").click()
    expect(person.page.get_by_label("Key")).to_be_visible()
    assert memory.space.files.read("/a.md") == "alpha"


def test_a_form_without_its_token_is_refused(person: Person, memory: Memory):
    memory.space.files.write("/a.md", "alpha")
    page = person.go("/ui/files?open=file:/a.md")
    page.evaluate("document.querySelectorAll('[name=token]').forEach((one) => { one.value = '0'.repeat(64); })")
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("alert")).to_contain_text("This form has expired")
    assert memory.space.files.exists("/a.md")


# Another site in the same browser

ATTACK = """<!doctype html><title>elsewhere</title>
<form id="f" method="post" action="{target}/ui/files/delete"><input name="path" value="/a.md"></form>
<iframe src="{target}/ui/files?open=file:/a.md"></iframe>
<script>
const attempts = [
  fetch("{target}/ui?q=alpha", {{credentials: "include"}}).then((answer) => answer.text()),
  fetch("{target}/ui/files/delete", {{method: "POST", credentials: "include", mode: "no-cors",
    body: new URLSearchParams({{path: "/a.md"}})}}).then((answer) => answer.type === "opaque" ? Promise.reject() : 0),
  fetch("{target}/ui/files/delete", {{method: "POST", credentials: "include", headers: {{"X-Form-Token": "x"}}}}),
];
Promise.allSettled(attempts).then((all) => {{
  document.title = "tried " + all.map((one) => one.status).join(" ");
}});
</script>"""


@pytest.fixture
def elsewhere(memory: Memory) -> Iterator[int]:
    """A server of another origin, whose page attacks the memory; gives its port."""

    class Attacker(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(ATTACK.format(target=memory.address).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Attacker)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


@pytest.mark.promise("page-forms-are-its-own")
@pytest.mark.parametrize("with_keys", [False, True])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_page_of_another_origin_reads_and_changes_nothing(
    new_person: NewPerson, memory: Memory, elsewhere: int, host: str, with_keys: bool
):
    """Another port of this computer is the same site, so its requests bring the cookie; another name is not."""
    memory.space.files.write("/a.md", "a secret word")
    person = new_person()
    if with_keys:
        person.sign_in(memory.make_key("ada"))
    else:
        person.go("/ui")
    commit = memory.space.stats().commit
    page = person.page
    page.goto(f"http://{host}:{elsewhere}/")
    page.wait_for_function("document.title.startsWith('tried')")
    assert page.title() == "tried rejected rejected rejected"
    assert "secret" not in "".join(frame.content() for frame in page.frames)
    page.evaluate("document.getElementById('f').submit()")
    page.wait_for_url(re.compile("/ui/(files/delete|sign-in)"))
    expect(page.get_by_role("main")).to_contain_text("another site" if page.url.endswith("delete") else "Sign in")
    assert memory.space.stats().commit == commit
    assert memory.space.files.read("/a.md") == "a secret word"
    person.watch.faults.clear()  # the attacking page is a foreign host, and its refusals are in the console
