"""A person at the page, as far as a test without a browser can be one: keeps cookies, follows links, fills forms."""

from __future__ import annotations

from dataclasses import dataclass
from html.parser import HTMLParser

import httpx

PAGE = {"Accept": "text/html,application/xhtml+xml"}


class Forms(HTMLParser):
    """The forms of a page, with their fields as a browser would send them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.forms: list[tuple[str, str, dict[str, str]]] = []
        self._area: str | None = None
        self._select = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append((given.get("method", "get"), given.get("action", ""), {}))
        elif tag == "input" and given.get("type") in ("checkbox", "radio") and "checked" not in given:
            return
        elif tag == "input" and self.forms and "name" in given:
            self.forms[-1][2][given["name"]] = given.get("value", "")
        elif tag == "select" and self.forms:
            self._select = given["name"]
        elif tag == "option" and self.forms:
            fields = self.forms[-1][2]
            if "selected" in given or self._select not in fields:
                fields[self._select] = given.get("value", "")
        elif tag == "textarea":
            self._area = given["name"]
            self.forms[-1][2][self._area] = ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            assert self._area is not None
            fields = self.forms[-1][2]
            fields[self._area] = fields[self._area].removeprefix("\n")
            self._area = None

    def handle_data(self, data: str) -> None:
        if self._area is not None:
            self.forms[-1][2][self._area] += data


@dataclass
class Browser:
    """Keeps cookies and follows redirects, and sends the headers by which a server knows its own pages."""

    http: httpx.Client

    def get(self, url: str, **headers: str) -> httpx.Response:
        sent = {**PAGE, "Sec-Fetch-Site": "same-origin", **headers}
        return self.http.get(url, headers=sent, follow_redirects=True)

    def send(self, page: httpx.Response, action: str, follow: bool = True, **fields: str | list[str]) -> httpx.Response:
        """Send the form of a page that goes to `action`, with these fields filled in."""
        found = [form for form in Forms(page.text).forms if form[0] == "post" and form[1].split("?")[0] == action]
        assert found, f"no form to {action}"
        _, address, given = found[0]
        headers = {**PAGE, "Sec-Fetch-Site": "same-origin", "Origin": str(self.http.base_url).rstrip("/")}
        return self.http.post(address, data={**given, **fields}, headers=headers, follow_redirects=follow)

    def sign_in(self, key: str) -> httpx.Response:
        return self.send(self.get("/ui/sign-in"), "/ui/sign-in", key=key)
