"""Hostile texts as everything that the library takes, on every screen: no script runs, no foreign host is asked, and
the layout holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from urllib.parse import urlencode

import pytest
from furnished import Memory, serve
from hostile_texts import HOSTILE
from person import Person, open_person
from playwright.sync_api import Browser

import commonplace
from commonplace.checks import Namespace
from commonplace.entry import Draft
from commonplace.errors import CommonplaceError
from commonplace.store import Transaction

SHARED: Namespace = ("hostile", "all")
"""A memory with all the texts, for the screens that list."""

PARTS = 4
"""The texts are divided, so that tests can run at the same time."""

WIDTHS = (390, 1280)


@dataclass(frozen=True)
class Planted:
    """Where a text is stored: the addresses of the screens that show it, and as what it was accepted."""

    text: str
    pages: dict[str, str]
    roles: tuple[str, ...]


@dataclass
class Planter:
    """Stores a text as everything that the library takes; what it refuses gets a harmless name instead."""

    book: commonplace.Book
    number: int
    text: str
    roles: list[str] = field(default_factory=list)

    def namespace(self) -> Namespace:
        """A namespace of its own, whose labels make the text when a page joins them."""

        def work(*labels: str) -> Namespace:
            self.book.space(*labels).files.write("/begin.md", "begin")
            return labels

        return self._first("namespace", work, ("hostile", *self.text.split("/")), ("plain", str(self.number)))

    def plant(self, namespace: Namespace) -> dict[str, str]:
        """Store it in a namespace; gives the entries to open by `open=`."""
        space = self._first("actor", self._acting, (namespace, self.text), (namespace, "somebody"))
        path = self._first("path", space.files.write, (f"/paths/{self.text}", self.text), (self._plain(), self.text))
        record = self._first("record", self._record(space), (self.text,), (f"record {self.number}",))
        self._tag(namespace, record.id)
        thread = self._first("title", space.threads.create, (self.text,), (f"thread {self.number}",))
        messages = [{"role": "user", "content": self.text}, {"role": "assistant", "content": f"Said: {self.text}"}]
        self._first(
            "message", space.threads.add, (thread.id, messages), (thread.id, [{"role": "user", "content": "x"}])
        )
        return {"file": path.path, "record": record.id, "thread": thread.id}

    def _plain(self) -> str:
        return f"/contents/{self.number}.md"

    def _acting(self, namespace: Namespace, actor: str) -> commonplace.Space:
        space = self.book.space(*namespace, actor=actor)
        space.files.write(self._plain(), self.text)
        return space

    def _record(self, space: commonplace.Space):
        def make(text: str):
            return space.records.create(type=text, content={"text": text, text: [text]}, source=text, confidence=0.5)

        return make

    def _tag(self, namespace: Namespace, id: str) -> None:
        """The library refuses such tags. A store that another program filled may have them."""

        def work(transaction: Transaction) -> None:
            found = transaction.get("record", id)
            assert found is not None
            given = {name: getattr(found, name) for name in ("kind", "key", "value", "text", "heading", "identity")}
            transaction.put(replace(Draft(**given), attributes={**found.attributes, "tags": [self.text]}))

        self.book.store.write(namespace, work)
        self.roles.append("tag")

    def _first(self, role: str, work, hostile: tuple, plain: tuple):
        try:
            made = work(*hostile)
        except CommonplaceError:
            return work(*plain)
        self.roles.append(role)
        return made


def planted(book: commonplace.Book, number: int, text: str) -> Planted:
    planter = Planter(book, number, text)
    namespace = planter.namespace()
    opened = planter.plant(namespace)
    planter.plant(SHARED)
    space = book.space(*namespace)
    commit = space.stats().commit
    file = {"open": f"file:{opened['file']}"}
    record, thread = ({"open": f"{kind}:{opened[kind]}"} for kind in ("record", "thread"))
    pages: dict[str, tuple[str, dict[str, object]]] = {
        "a file": ("/ui/files", file),
        "the form of a file": ("/ui/files/edit", file),
        "a search for it": ("/ui", {"q": text[:1_000]}),
        "a record": ("/ui/records", record),
        "the form of a record": ("/ui/records/edit", record),
        "a thread": ("/ui/threads", thread),
        "the history of a record": ("/ui/history", record),
        "a commit": ("/ui/history/commit", {"commit": commit}),
        "undo": ("/ui/undo", {"commit": commit, "back": text[:1_000]}),
    }
    ns = "/".join(namespace)
    addresses = {name: f"{path}?{urlencode({**query, 'ns': ns})}" for name, (path, query) in pages.items()}
    return Planted(text, addresses, tuple(planter.roles))


LISTS = (
    "/ui?",
    "/ui/files?open=directory:/contents&",
    "/ui/files?open=directory:/paths&",
    "/ui/records?",
    "/ui/threads?",
    "/ui/history?",
    "/ui/history/compare?from=1&to=200&",
    "/ui/as-of?",
    "/ui/namespaces?",
    "/ui/connect?",
    "/ui/usage?",
)
MOST_PAGES = 4
"""How many pages of a list are opened."""


@dataclass(frozen=True)
class Garden:
    memory: Memory
    plants: tuple[Planted, ...]


@pytest.fixture(scope="module")
def garden(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Garden]:
    memory = serve(str(tmp_path_factory.mktemp("hostile") / "book.db"))
    yield Garden(memory, tuple(planted(memory.book, number, text) for number, text in enumerate(HOSTILE)))
    memory.close()


def faults_at(person: Person, path: str) -> list[str]:
    person.watch.faults.clear()
    person.go(path)
    return [*person.layout_faults(*WIDTHS), *person.faults()]


def test_the_texts_are_many_and_are_accepted_as_everything(garden: Garden):
    """Otherwise the tests below would show nothing."""
    assert len(set(HOSTILE)) >= 60
    counted = Counter(role for plant in garden.plants for role in plant.roles)
    assert {role: count // 2 for role, count in counted.items() if count // 2 < 60 and role != "namespace"} == {}
    assert counted["namespace"] >= 60


@pytest.mark.promise("page-hostile-texts")
@pytest.mark.parametrize("part", range(PARTS))
def test_a_hostile_text_is_shown_as_text_on_every_screen(chromium: Browser, garden: Garden, part: int):
    person = open_person(chromium, garden.memory.address)
    wrong = {}
    for plant in garden.plants[part::PARTS]:
        for name, path in plant.pages.items():
            if found := faults_at(person, path):
                wrong[plant.text[:60], name] = found
            if name == "a file":
                shown = person.page.locator("pre.text").text_content()
                assert shown == plant.text.replace("\r\n", "\n").replace("\r", "\n")
    person.context.close()
    assert wrong == {}


@pytest.mark.promise("page-hostile-texts")
def test_lists_of_hostile_texts_hold_their_layout(chromium: Browser, garden: Garden):
    person = open_person(chromium, garden.memory.address)
    wrong = {}
    for start in LISTS:
        path = f"{start}{urlencode({'ns': '/'.join(SHARED)})}"
        for _ in range(MOST_PAGES):
            if found := faults_at(person, path):
                wrong[path] = found
            more = person.page.locator("main a[rel=next]")
            if not more.count():
                break
            path = more.first.get_attribute("href") or ""
    person.context.close()
    assert wrong == {}
