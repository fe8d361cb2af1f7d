"""Pictures of every screen of the page with the sample memory: light and dark, wide and narrow, into `out/page`.

`python scripts/page_screenshots.py [--only TEXT] [--folder FOLDER]` serves a new book, loads the sample as a person
does, and opens each screen in Chromium. `install_browser.py` installs Chromium.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Literal

from install_browser import CHROMIUM, FLAGS
from playwright.sync_api import Browser, Page, sync_playwright
from serving import Service

ROOT = Path(__file__).resolve().parent.parent
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
SIZES = {"wide": (1280, 800), "narrow": (390, 844)}
SAMPLE = "sample"
IMPORTED = "notes"
SEARCHES = ("how do I get to the boathouse", "tide tables", "what does Wilma drink", "deploy", "zebra migration")
"""Asked before the pictures are taken, so that Usage has something to show."""

SCREENS = {
    "search": "/ui?q=rowing+club",
    "search-start": "/ui",
    "files": "/ui/files",
    "file": "/ui/files?open=file:/tideline/decisions.md",
    "edit-file": "/ui/files/edit?open=file:/tideline/decisions.md",
    "records": "/ui/records",
    "record": "/ui/records?open=record:{record}",
    "edit-record": "/ui/records/edit?open=record:{record}",
    "threads": "/ui/threads",
    "thread": "/ui/threads?open=thread:{thread}",
    "history": "/ui/history",
    "history-of-a-file": "/ui/history?open=file:/tideline/decisions.md",
    "commit": "/ui/history/commit?commit={commit}",
    "compare": "/ui/history/compare?from=10&to=40",
    "as-of": "/ui/as-of",
    "past-file": "/ui/files?open=file:/tideline/decisions.md&as_of=2026-10-10T12:00:00Z",
    "past-search": "/ui?q=colours&as_of=2026-10-10T12:00:00Z",
    "undo": "/ui/undo?commit={commit}",
    "usage": "/ui/usage",
    "import": "/ui/import",
    "undo-import": "/ui/import/undo?commits={imported}&ns=" + IMPORTED,
    "connect": "/ui/connect",
    "new-key": "/ui/connect/new-key",
    "memories": "/ui/namespaces",
}


def main() -> int:
    options = _options()
    options.folder.mkdir(parents=True, exist_ok=True)
    with serving() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        names = prepare(browser, address, options.folder)
        for (size, scheme), (name, path) in product(product(SIZES, SCHEMES), SCREENS.items()):
            if options.only is None or re.search(options.only, name):
                target = options.folder / f"{name}-{size}-{scheme}.png"
                take(browser, target, address + with_sample(path, names), options.highest)
        browser.close()
    return 0


@contextmanager
def serving() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="commonplace-pictures-") as folder:
        service = Service(str(Path(folder) / "book.db"))
        try:
            yield service.address
        finally:
            service.process.terminate()
            service.process.wait(20)


def prepare(browser: Browser, address: str, folder: Path) -> dict[str, str]:
    """Load the sample by the button of the first screen; gives the names that addresses need."""
    for size, scheme in product(SIZES, SCHEMES):
        take(browser, folder / f"empty-{size}-{scheme}.png", f"{address}/ui")
    page = browser.new_page()
    page.goto(f"{address}/ui")
    page.get_by_role("button", name="Load the sample memory").click()
    page.wait_for_url("**sample**")
    for query in SEARCHES * 2:
        page.goto(f"{address}/ui?ns={SAMPLE}&q={query}")
    time.sleep(5)  # the vectors of the sample are made behind the writes
    look_into(page, address, "Import it")
    imported = re.search(r"commits=([\d-]+)", page.content())
    assert imported is not None, "the import offers no undo"
    found = {
        "imported": imported[1],
        "record": first(page, f"{address}/ui/records?ns={SAMPLE}", "record:"),
        "thread": first(page, f"{address}/ui/threads?ns={SAMPLE}", "thread:"),
        "commit": newest_of(page, f"{address}/ui/history?ns={SAMPLE}&open=file:/tideline/decisions.md"),
    }
    page.close()
    return found


def look_into(page: Page, address: str, button: str = "See what it holds") -> None:
    """Choose an export of ChatGPT on the Import screen, and press a button."""
    page.goto(f"{address}/ui/import?ns={IMPORTED}")
    page.get_by_label("File").set_input_files(ROOT / "tests/exchange/samples/chatgpt/conversations.json")
    page.get_by_role("button", name=button).click()
    page.locator("#result").wait_for()


def first(page: Page, address: str, kind: str) -> str:
    """The name of the first entry of a kind that a screen links to, as it is in an address."""
    page.goto(address)
    found = re.search(rf"open={kind.replace(':', '%3A')}([^&\"]+)", page.content())
    assert found is not None, f"{address} links to no {kind}"
    return found[1]


def newest_of(page: Page, address: str) -> str:
    """The number of the newest commit that a screen of history names."""
    page.goto(address)
    found = re.search(r"Commit (\d+)", page.locator("main").inner_text())
    assert found is not None, f"{address} names no commit"
    return found[1]


def with_sample(path: str, names: dict[str, str]) -> str:
    place = "" if "ns=" in path else ("&" if "?" in path else "?") + f"ns={SAMPLE}"
    return path.format_map(names) + place


def take(browser: Browser, target: Path, address: str, highest: int = 2_000) -> None:
    size, scheme = target.stem.split("-")[-2:]
    width, height = SIZES[size]
    page = browser.new_page(
        viewport={"width": width, "height": height}, color_scheme="dark" if scheme == "dark" else "light"
    )
    if address.split("?")[0].endswith("/ui/import"):
        look_into(page, address.split("/ui/")[0])
    else:
        page.goto(address)
    page.wait_for_timeout(300)  # plots are drawn after the page is loaded
    whole = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size({"width": width, "height": max(height, min(whole, highest))})
    page.screenshot(path=target)
    page.close()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", help="only screens whose name has this pattern")
    parser.add_argument("--highest", type=int, default=2_000, help="longer screens are cut here")
    parser.add_argument("--folder", type=Path, default=ROOT / "out" / "page", help="where the pictures go")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
