"""Connect: what to paste into each client, the keys of the service, the memories there are, and the sample memory.

Keys are for those who operate the service. The sample is an export that comes with the package (`sample.jsonl`), some
weeks of an invented person. It is imported into a namespace of its own. Loading it needs the rights of any import, and
removing it those of any purge.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import cast, get_args
from urllib.parse import urlencode

from fastapi import APIRouter
from fastapi.responses import Response

from commonplace.checks import Namespace, moment, parse_namespace
from commonplace.errors import AlreadyExists, Forbidden, InvalidInput, NotFound
from commonplace.server.http.api_keys import Key, Reach
from commonplace.server.http.origins import base_url
from commonplace.server.http.sessions import PAGE_PATH
from commonplace.server.http.worker_threads import ThreadedRoute
from commonplace.server.mcp.clients import CLIENTS, YOUR_KEY, Client, HttpServer, StdioServer, program
from commonplace.server.page.visit import Visit, VisitOf, page_number
from commonplace.space.names import FILE
from commonplace.space.rules import ACTIONS
from commonplace.space.space import Space

CONNECT = f"{PAGE_PATH}/connect"
NAMESPACES = f"{PAGE_PATH}/namespaces"
SAMPLE = f"{PAGE_PATH}/sample"
SAMPLE_FILE = Path(__file__).parent / "sample.jsonl"
SAMPLE_MARK = ("/about-this-memory.md", "commonplace sample")
"""The first file of the sample and who wrote it. A namespace without it in its history is not the sample."""

PAGE_SIZE = 50
MOST_PAGES = 1_000
EXPIRIES = {"": "never", "30": "in 30 days", "90": "in 90 days", "365": "in a year"}
REACHES = {"own": "only this namespace", "below": "this namespace and those below it", "all": "every namespace"}
SYSTEMS = {"macos": "macOS", "linux": "Linux", "windows": "Windows"}
_DAY_MICROSECONDS = 86_400_000_000
router = APIRouter(route_class=ThreadedRoute)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one client is connected: a command, what to add to its settings, and the same without HTTP."""

    client: Client
    files: tuple[tuple[str, str], ...]
    command: str | None
    http: str | None
    stdio: str


@dataclass(frozen=True, slots=True)
class ShownKey:
    name: str
    opens: str
    state: str
    used_at: datetime | None
    is_revoked: bool


@dataclass(frozen=True, slots=True)
class KeyDraft:
    """The form for a new key, as it was filled in."""

    name: str
    namespace: str
    reach: str
    actions: frozenset[str]
    expires: str


# Clients


@router.get(CONNECT, include_in_schema=False)
def connect(visit: VisitOf) -> Response:
    name = visit.param("client", next(iter(CLIENTS)))
    if name not in CLIENTS:
        raise NotFound(f"there is no client {name} here; choose one of {', '.join(CLIENTS)}")
    is_open = visit.service.access.is_open()
    keys, has_more = _keys(visit)
    return visit.render(
        "connect.html",
        clients=CLIENTS.values(),
        recipe=_recipe(visit, CLIENTS[name], is_open=is_open),
        is_open=is_open,
        keys=keys,
        number=page_number(visit, MOST_PAGES),
        has_more=has_more,
        manages=_manages(visit),
    )


def _recipe(visit: Visit, client: Client, *, is_open: bool) -> Recipe:
    assert visit.principal is not None
    address = base_url(visit.request, visit.service.settings.public_url)
    is_own = visit.space.namespace == visit.principal.namespace
    query = "" if is_own else "?" + urlencode({"namespace": visit.namespace}, safe="/")
    http = HttpServer(f"{address}/mcp{query}", None if is_open else YOUR_KEY)
    words = ["mcp", "--remote", address, *([] if is_own else ["--namespace", visit.namespace])]
    # Without keys the client runs on this computer; otherwise on another one, where only its user knows the path.
    command, *first = program() if is_open else ("commonplace",)
    stdio = StdioServer(command, (*first, *words), {} if is_open else {"COMMONPLACE_KEY": YOUR_KEY})
    return Recipe(
        client,
        tuple((SYSTEMS[system], path) for system, path in client.files.items()),
        None if client.command is None else client.command(http),
        None if client.http is None else client.text(http),
        client.text(stdio),
    )


# Keys


def _manages(visit: Visit) -> bool:
    return visit.principal is not None and visit.principal.is_operator and visit.as_of is None


def _check_manages(visit: Visit) -> None:
    if not _manages(visit):
        raise Forbidden("keys belong to the whole service; use a key made with --everything --actions admin")


def _keys(visit: Visit) -> tuple[list[ShownKey], bool]:
    """A page of the keys, the newest first; none for those who may not see them."""
    if not _manages(visit):
        return [], False
    found = visit.service.access.keys.list()[::-1]
    start = (page_number(visit, MOST_PAGES) - 1) * PAGE_SIZE
    now = visit.service.access.keys.clock()
    shown = [_shown(key, used, now) for key, used in found[start : start + PAGE_SIZE]]
    return shown, len(found) > start + PAGE_SIZE


def _shown(key: Key, used: int | None, now: int) -> ShownKey:
    if key.revoked_at is not None:
        state = f"revoked on {moment(key.revoked_at):%Y-%m-%d}"
    elif key.expires_at is None:
        state = "good"
    else:
        state = f"{'expired on' if key.expires_at <= now else 'good until'} {moment(key.expires_at):%Y-%m-%d}"
    return ShownKey(key.name, key.opens, state, None if used is None else moment(used), key.revoked_at is not None)


@router.get(f"{CONNECT}/new-key", include_in_schema=False)
def new_key(visit: VisitOf) -> Response:
    _check_manages(visit)
    is_first = visit.service.access.is_open()
    draft = KeyDraft(
        name="",
        namespace=visit.namespace,
        reach="all" if is_first else "own",
        actions=frozenset(ACTIONS if is_first else ("read", "write", "delete")),
        expires="",
    )
    return _key_form(visit, draft)


@router.post(f"{CONNECT}/new-key", include_in_schema=False)
def create_key(visit: VisitOf) -> Response:
    """Make a key and show it, this once: in the answer, and in no address that a browser would keep."""
    _check_manages(visit)
    draft = KeyDraft(
        visit.field("name").strip(),
        visit.field("namespace").strip(),
        visit.field("reach"),
        frozenset(visit.fields("actions")),
        visit.field("expires"),
    )
    access = visit.service.access
    was_open = access.is_open()
    try:
        if was_open and visit.field("confirmed") != "yes":
            raise InvalidInput("confirm that everyone needs a key from now on, or leave the service without keys")
        key, text = access.keys.create(_key_of(draft, access.keys.clock()))
    except (InvalidInput, AlreadyExists) as error:
        return _key_form(visit, draft, str(error), 409 if isinstance(error, AlreadyExists) else 422)
    response = visit.render("key_made.html", key=key, text=text, was_open=was_open)
    if was_open:  # this browser had no session, and would be sent to the sign-in page
        visit.set_cookie(response, access.sessions.begin(key))
    return response


def _key_form(visit: Visit, draft: KeyDraft, refusal: str | None = None, status: int = 200) -> Response:
    return visit.render(
        "new_key.html",
        status,
        draft=draft,
        refusal=refusal,
        is_first=visit.service.access.is_open(),
        actions=ACTIONS,
        reaches=REACHES,
        expiries=EXPIRIES,
    )


def _key_of(draft: KeyDraft, now: int) -> Key:
    if draft.reach not in get_args(Reach) or draft.expires not in EXPIRIES or not draft.actions <= {*ACTIONS}:
        raise InvalidInput("choose what the key opens, what it may do and when it expires from the lists of the form")
    return Key(
        draft.name,
        parse_namespace(draft.namespace),
        cast("Reach", draft.reach),
        frozenset(action for action in ACTIONS if action in draft.actions),
        None if not draft.expires else now + int(draft.expires) * _DAY_MICROSECONDS,
    )


@router.get(f"{CONNECT}/revoke", include_in_schema=False)
def revoke_form(visit: VisitOf) -> Response:
    _check_manages(visit)
    name = visit.param("name")
    found = [key for key, _ in visit.service.access.keys.list() if key.name == name]
    if not found:
        raise NotFound(f"there is no key {name}; the list of keys has all of them")
    return visit.render("revoke_key.html", key=found[0])


@router.post(f"{CONNECT}/revoke", include_in_schema=False)
def revoke_key(visit: VisitOf) -> Response:
    _check_manages(visit)
    visit.service.access.keys.revoke(visit.field("name"))
    return visit.redirect(visit.url(CONNECT) + "#keys")


# The memories


@router.get(NAMESPACES, include_in_schema=False)
def namespaces(visit: VisitOf) -> Response:
    assert visit.principal is not None
    after = visit.param("after")
    found = visit.principal.namespaces(
        visit.service.book, after=parse_namespace(after) if after else None, limit=PAGE_SIZE + 1
    )
    names = ["/".join(labels) for labels in found[:PAGE_SIZE]]
    return visit.render("namespaces.html", names=names, next=names[-1] if len(found) > PAGE_SIZE else None)


# The sample


@router.post(SAMPLE, include_in_schema=False)
def load_sample(visit: VisitOf) -> Response:
    space = _sample_space(visit)
    assert visit.principal is not None
    visit.principal.rules.check("admin")
    lines = BytesIO(sample_lines(space.namespace))
    list(visit.service.book.import_lines(lines, rules=visit.principal.rules))
    return visit.redirect(visit.url(PAGE_PATH, ns="/".join(space.namespace), as_of=None))


@router.get(f"{SAMPLE}/remove", include_in_schema=False)
def remove_form(visit: VisitOf) -> Response:
    space = _loaded_sample(visit)
    name = "/".join(space.namespace)
    return visit.render("remove_sample.html", name=name, entries=sum(space.stats().entries.values()))


@router.post(f"{SAMPLE}/remove", include_in_schema=False)
def remove_sample(visit: VisitOf) -> Response:
    space = _loaded_sample(visit)
    space.purge()
    visit.service.searches.forget(space.namespace)
    return visit.redirect(visit.url(PAGE_PATH, ns=None, as_of=None))


def sample_lines(namespace: Namespace) -> bytes:
    """The export of the sample, with the namespace that it is imported into."""
    lines = [json.loads(line) for line in SAMPLE_FILE.read_bytes().splitlines()]
    named = ({**line, "namespace": "/".join(namespace)} if "namespace" in line else line for line in lines)
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in named).encode()


def _sample_space(visit: Visit) -> Space:
    if visit.sample is None or visit.principal is None:
        raise Forbidden("the sample memory needs a namespace of its own; use a key that reaches the ones below, too")
    return visit.principal.space(visit.service.book, visit.sample, interface="page")


def _loaded_sample(visit: Visit) -> Space:
    """The sample, if it is there. What somebody keeps under its name is not taken for it."""
    space = _sample_space(visit)
    path, writer = SAMPLE_MARK
    if not any(revision.actor == writer for revision in space.history(FILE, path)[:1]):
        raise NotFound(f"there is no sample memory in {visit.sample}; the first screen of an empty memory loads it")
    return space
