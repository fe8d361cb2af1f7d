"""What every screen of the page relies on: who is let in, what is refused, headers, files, errors, undo."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Callable

import pytest
from browsing import PAGE, Browser

import commonplace
from commonplace.server.http.service import Service
from commonplace.server.http.sessions import session_of
from commonplace.server.page.templates import STATIC, as_html, environment
from commonplace.server.page.visit import NAVIGATION, own_address

SQLITE_ONLY = pytest.mark.parametrize("book", ["sqlite"], indirect=True)


# Addresses


@SQLITE_ONLY
@pytest.mark.promise("page-for-browsers")
def test_a_browser_is_sent_to_the_page_and_a_program_gets_the_addresses(browser: Browser):
    assert browser.get("/").url.path == "/ui"
    listed = browser.http.get("/")
    assert listed.status_code == 200
    assert "/v1" in listed.text


@SQLITE_ONLY
def test_every_screen_of_the_navigation_answers_and_names_itself(browser: Browser):
    for row in NAVIGATION:
        page = browser.get(row.path)
        assert page.status_code == 200, row
        assert f'<a href="{row.path}"' in page.text
        assert page.text.count('aria-current="page"') == 1


def test_every_template_compiles():
    for name in environment().list_templates():
        environment().get_template(name)


@pytest.mark.parametrize(
    "url",
    [
        "https://elsewhere.example/ui",
        "//elsewhere.example/ui",
        "/v1/export",
        "/uix",
        "javascript:alert(1)",
        "/\\elsewhere.example",
        "/ui\\..\\x",
        "/ui/../v1/export",
        "/ui/%2e%2e/v1/export",
        "",
    ],
)
def test_only_addresses_of_the_page_are_followed(url: str):
    assert own_address(url) == "/ui"
    assert own_address("/ui/files?open=file:/a") == "/ui/files?open=file:/a"


# Headers and files


@SQLITE_ONLY
@pytest.mark.promise("page-confined")
def test_every_answer_is_confined_by_its_headers(browser: Browser):
    for path in ("/ui", "/ui/files", "/ui/nothing-here", "/ui/files?open=file:/missing"):
        headers = browser.get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'")
        for rule in ("frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"):
            assert rule in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


@SQLITE_ONLY
def test_static_files_are_compressed_and_kept_forever(browser: Browser):
    page = browser.get("/ui").text
    address = page.split('rel="stylesheet" href="')[1].split('"')[0]
    found = browser.http.get(address)
    assert found.headers["content-encoding"] == "gzip"
    assert "immutable" in found.headers["cache-control"]
    assert found.headers["content-type"].startswith("text/css")
    assert browser.http.get(address, headers={"Accept-Encoding": "identity"}).text == found.text
    assert browser.get(address.replace("/static/", "/static/0")).status_code == 404
    for path in ("../visit.py", "..%2fvisit.py", "vendor/../../visit.py", "vendor/vendor.toml"):
        assert browser.http.get(f"{address.rpartition('/')[0]}/{path}").status_code == 404


@SQLITE_ONLY
def test_the_first_screen_is_small_over_the_wire(browser: Browser, space: commonplace.Space):
    for number in range(30):
        about = f"record {number} about the harbour " + "and its ships " * 30
        space.records.create(type="fact", content=about, source="a test", confidence=0.5)
    total = 0
    page = browser.get("/ui?q=harbour")
    total += int(page.headers["content-length"])
    for part in page.text.split('"'):
        if part.startswith("/ui/static/"):
            total += int(browser.http.get(part).headers["content-length"])
    assert total < 100_000


def test_vendored_files_are_as_they_were_fetched():
    folder = STATIC / "vendor"
    packages = tomllib.loads((folder / "vendor.toml").read_text(encoding="utf-8"))["package"]
    listed = {file["name"]: file["sha256"] for package in packages for file in package["file"]}
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    del found["vendor.toml"]
    assert found == listed
    assert {(package["name"], package["version"]) for package in packages} == {
        ("htmx.org", "4.0.0"),
        ("uplot", "1.6.32"),
    }
    assert all(any(name.endswith("LICENSE") for name in (f["name"] for f in p["file"])) for p in packages)


# Who is let in


@pytest.mark.promise("page-sign-in")
def test_a_key_signs_in_and_the_cookie_does_not_hold_it(browser: Browser, make_key: Callable[..., str]):
    key = make_key("ada")
    page = browser.get("/ui/files?open=directory:/")
    assert page.url.path == "/ui/sign-in"
    assert "Sign in" in page.text
    refused = browser.send(page, "/ui/sign-in", key="cp_wrong")
    assert refused.status_code == 401
    assert "This key is unknown" in refused.text
    inside = browser.send(page, "/ui/sign-in", key=f" {key} ")
    assert str(inside.url).endswith("/ui/files?open=directory%3A%2F") or inside.url.path == "/ui/files"
    cookies = [header for answer in inside.history for header in answer.headers.get_list("set-cookie")]
    (cookie,) = cookies
    assert key not in cookie
    assert key.rpartition("_")[2] not in cookie
    for word in ("HttpOnly", "SameSite=strict", "Path=/ui"):
        assert word in cookie
    assert "ada" in inside.text
    out = browser.send(inside, "/ui/sign-out")
    assert out.url.path == "/ui/sign-in"
    assert browser.get("/ui").url.path == "/ui/sign-in"


@pytest.mark.promise("page-sign-in")
def test_a_session_is_known_to_every_server_and_ends_with_its_key(
    service: Service, browser: Browser, make_key: Callable[..., str], book: commonplace.Book
):
    key = make_key("ada")
    browser.sign_in(key)
    cookie = "; ".join(f"{name}={value}" for name, value in browser.http.cookies.items())
    session = session_of({"cookie": cookie, "host": browser.http.base_url.netloc.decode()})
    assert session is not None
    other = type(service.access)(type(service.access.keys)(book.store), service.access.local)
    assert other.sessions.check(session).name == "ada"
    assert session not in str(book.store.system_list("sessions"))
    service.access.keys.revoke("ada", forget=True)
    make_key("ada")
    assert browser.get("/ui").url.path == "/ui/sign-in"


@SQLITE_ONLY
def test_the_session_opens_the_page_alone(browser: Browser, make_key: Callable[..., str]):
    browser.sign_in(make_key("ada"))
    cookies = dict(browser.http.cookies)
    assert browser.http.get("/v1/me", cookies=cookies).status_code == 401


@SQLITE_ONLY
def test_signing_out_ends_the_session_on_the_server(browser: Browser, make_key: Callable[..., str]):
    inside = browser.sign_in(make_key("ada"))
    stolen = dict(browser.http.cookies)
    browser.send(inside, "/ui/sign-out")
    browser.http.cookies.update(stolen)
    assert browser.get("/ui").url.path == "/ui/sign-in"


@SQLITE_ONLY
def test_a_stale_session_does_not_lock_out_of_a_memory_without_keys(
    browser: Browser, make_key: Callable[..., str], service: Service
):
    browser.sign_in(make_key("ada"))
    service.access.keys.revoke("ada", forget=True)
    object.__setattr__(service.access, "keys", type(service.access.keys)(service.book.store))
    assert browser.get("/ui/files").url.path in ("/ui", "/ui/files")


@SQLITE_ONLY
def test_a_link_from_another_site_loads_the_page_again_with_its_cookie(browser: Browser, make_key: Callable[..., str]):
    make_key("ada")
    page = browser.get("/ui/files?open=file:/a", **{"Sec-Fetch-Site": "cross-site"})
    assert page.url.path == "/ui/files"
    assert 'http-equiv="refresh" content="0; url=/ui/files?open=file:/a"' in page.text


@pytest.mark.promise("page-rights")
def test_a_reader_sees_no_buttons_and_is_refused(
    browser: Browser, make_key: Callable[..., str], space: commonplace.Space
):
    space.files.write("/notes/a.md", "alpha")
    page = browser.sign_in(make_key("reader", actions=["read"]))
    page = browser.get("/ui/files?open=file:/notes/a.md")
    assert "alpha" in page.text
    for word in ("Edit", "Delete", "Move", "New file"):
        assert f">{word}<" not in page.text
    for path in ("/ui/files/new", "/ui/files/edit?open=file:/notes/a.md", "/ui/records/new"):
        assert ">Save<" not in browser.get(path).text
    token = page.text.split('name="token" value="')[1].split('"')[0]
    for action, fields in (
        ("save", {"path": "/notes/a.md", "text": "changed", "seen": "1.1"}),
        ("delete", {"path": "/notes/a.md"}),
        ("move", {"path": "/notes/a.md", "to": "/notes/b.md"}),
    ):
        refused = browser.http.post(f"/ui/files/{action}", data={"token": token, **fields}, headers=PAGE)
        assert refused.status_code == 403
        assert "is not permitted" in refused.text
    assert space.files.read("/notes/a.md") == "alpha"


@SQLITE_ONLY
def test_a_key_opens_no_namespace_beyond_its_reach(
    browser: Browser, make_key: Callable[..., str], book: commonplace.Book
):
    book.space("user", "bob").files.write("/secret.md", "of bob")
    browser.sign_in(make_key("ada", "user/ada"))
    refused = browser.get("/ui/files?ns=user/bob&open=file:/secret.md")
    assert refused.status_code == 403
    assert "of bob" not in refused.text
    assert "bob" not in browser.get("/ui/namespaces").text


# Forms


@SQLITE_ONLY
@pytest.mark.promise("page-forms-are-its-own")
def test_a_form_needs_the_token_of_this_browser(
    browser: Browser, new_browser: Callable[[], Browser], space: commonplace.Space
):
    space.files.write("/a.md", "alpha")
    other = new_browser().get("/ui/files?open=file:/a.md")
    browser.get("/ui")
    foreign = other.text.split('name="token" value="')[1].split('"')[0]
    for token in ("", "0" * 64, foreign, "ä"):
        refused = browser.http.post("/ui/files/delete", data={"token": token, "path": "/a.md"}, headers=PAGE)
        assert refused.status_code == 403
        assert "This form has expired" in refused.text
    assert space.files.exists("/a.md")


@SQLITE_ONLY
@pytest.mark.promise("page-forms-are-its-own")
@pytest.mark.parametrize("with_keys", [False, True])
@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site", "Origin": "https://elsewhere.example"},
        {"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:1"},
        {"Origin": "https://elsewhere.example"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "null"},
    ],
)
def test_a_form_from_another_site_is_refused_even_with_the_token(
    browser: Browser, space: commonplace.Space, make_key: Callable[..., str], headers: dict[str, str], with_keys: bool
):
    space.files.write("/a.md", "alpha")
    if with_keys:
        browser.sign_in(make_key("ada"))
    page = browser.get("/ui/files?open=file:/a.md")
    token = page.text.split('name="token" value="')[1].split('"')[0]
    answer = browser.http.post("/ui/files/delete", data={"token": token, "path": "/a.md"}, headers={**PAGE, **headers})
    assert answer.status_code == 403
    assert space.files.exists("/a.md")


@SQLITE_ONLY
@pytest.mark.promise("page-get-changes-nothing")
def test_no_address_of_the_page_changes_the_memory(browser: Browser, space: commonplace.Space):
    space.files.write("/a.md", "alpha")
    commit = space.stats().commit
    for path in (
        "/ui",
        "/ui?q=alpha",
        "/ui/files?open=file:/a.md",
        "/ui/files/edit?open=file:/a.md",
        "/ui/undo?commit=1",
    ):
        assert browser.get(path).status_code == 200
    for path in ("/ui/files/save", "/ui/files/delete?path=/a.md", "/ui/files/move?path=/a.md&to=/b", "/ui/sign-out"):
        assert browser.get(path).status_code == 405
    assert space.stats().commit == commit


@SQLITE_ONLY
def test_a_page_of_another_site_cannot_load_a_screen_without_keys(browser: Browser):
    assert browser.get("/ui", **{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "iframe"}).status_code == 403
    linked = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert browser.get("/ui", **linked).status_code == 200
    assert browser.get("/ui", Host="elsewhere.example").status_code == 421


@SQLITE_ONLY
@pytest.mark.promise("page-past")
def test_a_form_that_names_a_past_moment_changes_nothing(browser: Browser, space: commonplace.Space):
    info = space.files.write("/a.md", "alpha")
    then = info.updated_at.isoformat().replace("+00:00", "Z")
    page = browser.get(f"/ui/files/edit?open=file:/a.md&as_of={then}")
    assert ">Save<" not in page.text
    refused = browser.send(page, "/ui/files/save", text="beta")
    assert refused.status_code == 403
    assert "Nothing can be changed in the past" in refused.text
    assert space.files.read("/a.md") == "alpha"


@SQLITE_ONLY
def test_one_can_sign_out_while_looking_at_the_past(
    browser: Browser, make_key: Callable[..., str], space: commonplace.Space
):
    then = space.files.write("/a.md", "alpha").updated_at.isoformat().replace("+00:00", "Z")
    browser.sign_in(make_key("ada"))
    out = browser.send(browser.get(f"/ui/files?as_of={then}"), "/ui/sign-out")
    assert out.url.path == "/ui/sign-in"


@SQLITE_ONLY
def test_a_script_is_sent_to_any_address_of_the_page(browser: Browser):
    sent = browser.get("/ui/sign-in?next=/ui?q=日本", **{"HX-Request": "true"})
    assert sent.headers["hx-redirect"] == "/ui?q=%E6%97%A5%E6%9C%AC"


@SQLITE_ONLY
def test_a_page_with_something_typed_is_not_loaded_again_by_a_click(browser: Browser, space: commonplace.Space):
    space.files.write("/a.md", "alpha")
    assert "data-live" in browser.get("/ui/files").text
    for path in ("/ui/files/new", "/ui/records/new", "/ui/threads?open=working:resource/r", "/ui/connect/new-key"):
        assert "data-live" not in browser.get(path).text, path
    refused = browser.send(browser.get("/ui/records/new"), "/ui/records/save", content="typed", confidence="7")
    assert refused.status_code == 422
    assert "data-live" not in refused.text


# Errors


@SQLITE_ONLY
def test_errors_are_pages_in_plain_words(browser: Browser):
    for path, status, words in (
        ("/ui/nothing", 404, "There is no such page"),
        ("/ui/files?open=file:/missing", 404, "/missing does not exist"),
        ("/ui?as_of=yesterday", 422, "as_of must be a time"),
        ("/ui?ns=%20", 422, "amespace"),
        ("/ui?q=a&page=0", 422, "page must be a number"),
        ("/ui?q=a&page=00000000199", 422, "page must be a number"),
        ("/ui?q=a&page=" + "0" * 5_000, 422, "page must be a number"),
    ):
        page = browser.get(path)
        assert page.status_code == status, path
        assert page.headers["content-type"].startswith("text/html")
        assert words.lower() in page.text.lower(), path
        assert '<main id="main"' in page.text
    part = browser.get("/ui/files/folder?open=directory:/missing", **{"HX-Request": "true"})
    assert part.status_code == 404
    assert "<html" not in part.text


# Undo


@pytest.mark.promise("page-undo")
def test_a_toast_names_the_commit_and_undo_takes_it_back(browser: Browser, space: commonplace.Space):
    space.files.write("/notes/a.md", "alpha")
    deleted = browser.send(browser.get("/ui/files?open=file:/notes/a.md"), "/ui/files/delete")
    commit = space.stats().commit
    assert f"Deleted as commit {commit}." in deleted.text
    assert not space.files.exists("/notes/a.md")
    preview = browser.get(f"/ui/undo?commit={commit}&back=/ui/files")
    assert "/notes/a.md" in preview.text
    assert not space.files.exists("/notes/a.md")
    undone = browser.send(preview, "/ui/undo")
    assert undone.url.path == "/ui/files"
    assert f"Undone as commit {commit + 1}." in undone.text
    assert space.files.read("/notes/a.md") == "alpha"


@SQLITE_ONLY
def test_an_address_puts_no_text_of_its_own_into_a_toast(browser: Browser):
    for done in ("hacked.1", "saved.x", "saved.<b>", "saved", "."):
        assert "data-toast" not in browser.get(f"/ui?done={done}").text


# Markdown


@pytest.mark.promise("page-markdown-safe")
@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "[a](javascript:alert(1))",
        "[a](JaVaScRiPt:alert(1))",
        "[a](&#106;avascript:alert(1))",
        "[a](java&#10;script:alert(1))",
        "<javascript:alert(1)>",
        "[a](data:text/html;base64,PHNjcmlwdD4=)",
        "[a](vbscript:x)",
        "[a](/ui/sign-out)",
        "[a](//elsewhere.example)",
        "![a](http://elsewhere.example/pixel.png)",
        "![a](data:image/svg+xml;base64,PHN2Zz4=)",
        '[a](http://x "onmouseover=alert(1)")',
        "[a]: javascript:alert(1)\n\n[a]",
        "`<b>`",
        "```<script>\nx\n```",
        "# <svg onload=alert(1)>",
        "| <b> | b |\n|---|---|\n| <i> | x |",
    ],
)
def test_markdown_becomes_no_markup_of_the_text(text: str):
    html = str(as_html(text)).lower()
    for bad in ("<script", "<img", "<svg", "<b>", "<i>", 'href="java', 'href="data', 'href="vb', 'href="/'):
        assert bad not in html
    if "<a " in html:
        assert 'rel="noreferrer noopener nofollow"' in html


# Styles


def test_every_block_of_the_style_sheet_is_closed():
    """An open one hides all rules after it from wide screens, and no browser complains."""
    styles = re.sub(r"/\*.*?\*/", "", (STATIC / "page.css").read_text(encoding="utf-8"), flags=re.DOTALL)
    assert styles.count("{") == styles.count("}")
