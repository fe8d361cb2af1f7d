"""A person at a real browser, watched: what a page of ours must never do is noted, and fails the test."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Request, Response

sys.path.append(str(Path(__file__).parent.parent.parent / "scripts"))
from install_browser import axe_core

SECONDS = 20
DESKTOP = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
_EXPECTED = ("Failed to load resource",)
"""Chromium logs each answer with an error status; the status is judged by the response."""

_LISTENER = """
document.addEventListener("securitypolicyviolation", (event) =>
  violated(`${event.effectiveDirective} blocked ${event.blockedURI} ${event.sample}`));
"""
_OVERFLOW = """() => {
  const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  const top = document.querySelector("header.top")?.getBoundingClientRect();
  const brand = document.querySelector(".brand")?.getBoundingClientRect();
  const isSeen = (box) =>
    box && box.height > 0 && box.left >= 0 && box.right <= innerWidth + 1 && box.top < innerHeight;
  const faults = [];
  if (wide > 0) {
    const widest = [...document.querySelectorAll("body *")].filter((one) => {
      const box = one.getBoundingClientRect();
      return box.width && box.right > document.documentElement.clientWidth + 1;
    }).slice(-3).map((one) => `${one.tagName}.${one.className}`);
    faults.push(`the page is ${wide} px too wide: ${widest.join(", ")}`);
  }
  if (!isSeen(top) || !isSeen(brand)) faults.push("the header is not visible");
  if (top && top.height > innerHeight / 2) faults.push(`the header is ${top.height} px high`);
  return faults;
}"""


@dataclass
class Watch:
    """What the pages of a browser did that they must not do."""

    address: str
    faults: list[str] = field(default_factory=list)

    def follow(self, context: BrowserContext, *, has_scripts: bool) -> None:
        context.on("request", self._request)
        context.on("response", self._response)
        context.on("console", self._console)
        context.on("dialog", self._dialog)
        context.on("weberror", lambda error: self.faults.append(f"script error: {error.error}"))
        if has_scripts:
            # `canary` is what the hostile texts of the tests call; it lives in every page, whatever its policy.
            context.expose_function("canary", lambda *words: self.faults.append(f"a stored script ran: {words}"))
            context.expose_function("violated", lambda what: self.faults.append(f"policy: {what}"))
            context.add_init_script(_LISTENER)

    def _request(self, request: Request) -> None:
        if urlsplit(request.url).scheme in ("data", "about", "blob", "chrome-error"):
            return
        if not request.url.startswith(f"{self.address}/"):
            self.faults.append(f"asked a foreign host: {request.url[:200]}")

    def _response(self, response: Response) -> None:
        is_part = not response.request.is_navigation_request()
        if response.status >= 500 or (is_part and response.status >= 400):
            self.faults.append(f"{response.status} for {response.url[:200]}")

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(_EXPECTED):
            self.faults.append(f"console: {message.text[:300]}")

    def _dialog(self, dialog: Dialog) -> None:
        self.faults.append(f"dialog: {dialog.message[:200]}")
        dialog.dismiss()


@dataclass
class Person:
    """One browser profile: its cookies, its tabs, and what was seen in them."""

    context: BrowserContext
    watch: Watch
    page: Page
    has_scripts: bool

    def go(self, path: str, *, status: int | None = 200, tab: Page | None = None) -> Page:
        """Open an address of the service, and wait until it is loaded."""
        page = tab or self.page
        response = page.goto(self.watch.address + path)
        assert response is not None
        assert status is None or response.status == status, f"{response.status} for {path}: {page.inner_text('body')}"
        return page

    def new_tab(self) -> Page:
        page = self.context.new_page()
        page.set_default_timeout(SECONDS * 1_000)
        return page

    def sign_in(self, key: str) -> None:
        page = self.go("/ui")
        page.get_by_label("Key").fill(key)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url("**/ui")

    def faults(self) -> list[str]:
        """What was noted until now; events that are under way arrive first."""
        for page in self.context.pages:
            page.title()
        return self.watch.faults

    def layout_faults(self, *widths: int) -> list[str]:
        """What is wrong with the layout at each width: wider than the window, or a header that cannot be seen."""
        found = []
        for width in widths:
            self.page.set_viewport_size({"width": width, "height": PHONE["height"]})
            found += [f"{fault} at {width} px" for fault in self.page.evaluate(_OVERFLOW)]
        return found

    def accessibility_faults(self) -> list[str]:
        """Serious and critical findings of axe-core on the page as it is."""
        if not self.page.evaluate("Boolean(window.axe)"):
            self.page.evaluate(axe_core().read_text(encoding="utf-8"))
        found = self.page.evaluate("axe.run({resultTypes: ['violations']})")
        return [
            f"{one['impact']}: {one['id']}: {one['help']}: {[node['target'] for node in one['nodes'][:3]]}"
            for one in found["violations"]
            if one["impact"] in ("serious", "critical")
        ]


NewPerson = Callable[..., Person]


def open_person(browser: Browser, address: str, **options: Any) -> Person:
    """A new profile at the page of a service; `options` are those of a browser context in Playwright."""
    has_scripts = options.get("java_script_enabled", True)
    settings: Mapping[str, Any] = {"viewport": DESKTOP, "reduced_motion": "reduce", **options}
    context = browser.new_context(**settings)
    context.set_default_timeout(SECONDS * 1_000)
    watch = Watch(address)
    watch.follow(context, has_scripts=has_scripts)
    return Person(context, watch, context.new_page(), has_scripts)
