"""One request to the page: who asks, which memory at which time, what the form holds, and how to answer.

Every screen gets a `Visit` and answers with `render` or, after a change, with `done`. What a screen shows is in its
address alone: `url` and `here` make addresses that keep the namespace and the time.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any, Protocol, cast
from urllib.parse import parse_qsl, quote, quote_plus, urlencode, urlsplit, urlunsplit

from fastapi import Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from commonplace.checks import microseconds, moment
from commonplace.errors import Forbidden, InvalidInput, TooLarge
from commonplace.exchange.sources import UPLOAD_BYTES
from commonplace.server.http.auth import Principal
from commonplace.server.http.origins import check_own_form
from commonplace.server.http.service import Service, service_of
from commonplace.server.http.sessions import (
    MAX_AGE_SECONDS,
    PAGE_PATH,
    cookie_name,
    cookie_of,
    session_of,
)
from commonplace.server.page.templates import render
from commonplace.space.names import DIRECTORY, FILE, ITEM, MESSAGE, RECORD, THREAD, WORKING
from commonplace.space.rules import Action
from commonplace.space.space import Space
from commonplace.space.timeline import Commit, Timeline

MAX_FIELDS = 10_000
SAMPLE_NAME = "sample"
SIGN_OUT = f"{PAGE_PATH}/sign-out"
_SCREEN_PATH = re.compile(rf"{PAGE_PATH}(?:/[a-z-]+)*")
"""The path of any screen. A browser would follow one with dots to somewhere else."""

SPARKS = 120
SPARK_HEIGHT = 24
STEPS = 1_000
"""How many places the slider has. The links to the next commits reach every moment between them."""

KEPT = ("ns", "as_of")
"""Parts of an address that every link keeps: which memory, and at which time."""

DONE = {
    "saved": "Saved",
    "deleted": "Deleted",
    "moved": "Moved",
    "created": "Created",
    "tagged": "Tagged",
    "restored": "Restored",
    "undone": "Undone",
}
"""What a toast may say. An address names one of these words, so that no link can put a text of its own on the page."""


@dataclass(frozen=True)
class NavigationRow:
    """A screen in the navigation of every page."""

    path: str
    title: str
    key: str | None = None
    """The key that opens it after `g`."""


NAVIGATION: tuple[NavigationRow, ...] = (
    NavigationRow(PAGE_PATH, "Search", "s"),
    NavigationRow(f"{PAGE_PATH}/files", "Files", "f"),
    NavigationRow(f"{PAGE_PATH}/records", "Records", "r"),
    NavigationRow(f"{PAGE_PATH}/threads", "Threads", "t"),
    NavigationRow(f"{PAGE_PATH}/history", "History", "h"),
    NavigationRow(f"{PAGE_PATH}/as-of", "As of", "a"),
    NavigationRow(f"{PAGE_PATH}/usage", "Usage", "u"),
    NavigationRow(f"{PAGE_PATH}/import", "Import", "i"),
    NavigationRow(f"{PAGE_PATH}/connect", "Connect", "c"),
)


SCREENS = {
    FILE: f"{PAGE_PATH}/files",
    DIRECTORY: f"{PAGE_PATH}/files",
    RECORD: f"{PAGE_PATH}/records",
    THREAD: f"{PAGE_PATH}/threads",
    MESSAGE: f"{PAGE_PATH}/threads",
    WORKING: f"{PAGE_PATH}/threads",
    ITEM: f"{PAGE_PATH}/history",
}
"""The screen that shows an entry of each kind."""


@dataclass(frozen=True)
class Toast:
    """What was done last, with the commit that can be undone."""

    text: str
    commit: int


@dataclass(frozen=True)
class TimeBar:
    """Where in time the page looks: the commit at that moment, those around it, and how busy it was."""

    first: Commit
    last: Commit
    shown: Commit | None
    """None before the first commit."""
    before: Commit | None
    after: Commit | None
    step: int
    outline: str
    """The sparkline as the path of an SVG, `SPARKS` wide and `SPARK_HEIGHT` high."""


def time_bar(timeline: Timeline, as_of: datetime | None) -> TimeBar | None:
    activity = timeline.activity(SPARKS)
    if activity is None:
        return None
    first, last = activity.first, activity.last
    shown = last if as_of is None else timeline.at(as_of)
    before, after = (None, first) if shown is None else timeline.neighbours(shown)
    step = max(1, -(-(last.at - first.at) // STEPS))
    return TimeBar(first, last, shown, before, after, step, outline(activity.counts))


def outline(counts: Sequence[float]) -> str:
    """A sparkline: one step for each count. Heights are roots, so that a burst does not flatten the rest."""
    most = max(counts, default=0) or 1
    heights = [SPARK_HEIGHT - round(SPARK_HEIGHT * math.sqrt(count / most), 2) for count in counts]
    return f"M0 {SPARK_HEIGHT}" + "".join(f"V{height:g}h1" for height in heights) + f"V{SPARK_HEIGHT}Z"


def written(at: int) -> str:
    """A time in an address."""
    return moment(at).isoformat().replace("+00:00", "Z")


@dataclass(frozen=True)
class Visit:
    request: Request
    principal: Principal | None
    form: Mapping[str, list[str]] = field(default_factory=dict)
    upload: UploadFile | None = None
    """The file that was chosen in the form."""

    # What was asked for

    @property
    def service(self) -> Service:
        return service_of(self.request)

    @property
    def path(self) -> str:
        return cast("str", self.request.scope["path"])

    @property
    def is_fragment(self) -> bool:
        """Whether a script asks for a part of the screen, to put it into the one that is shown."""
        return self.request.headers.get("hx-request") == "true"

    def param(self, name: str, default: str = "") -> str:
        """A parameter of the address."""
        return self.request.query_params.get(name, default)

    def field(self, name: str, default: str = "") -> str:
        """A field of the form; the last one if it was sent several times."""
        return self.form.get(name, [default])[-1]

    def fields(self, name: str) -> list[str]:
        """Every value of a field, such as of boxes that were ticked."""
        return self.form.get(name, [])

    # The memory

    @cached_property
    def _memory(self) -> tuple[Space, int | None]:
        """The memory, and the number of its last commit before anything was read: what comes after it is new."""
        assert self.principal is not None
        space = self.principal.space(self.service.book, self.param("ns") or None, interface="page")
        return space, Timeline(space).last_number() if self.is_live else None

    @property
    def space(self) -> Space:
        """The memory that the address names, with the rights of the caller."""
        return self._memory[0]

    @property
    def is_live(self) -> bool:
        """Whether the screen says what is new. The answer to a form has no address that could be loaded again."""
        return self.request.method == "GET" and self.as_of is None and not self.is_fragment

    @property
    def last_commit(self) -> int | None:
        """Where to count from what is new; None on a screen that does not say so."""
        return self._memory[1]

    @cached_property
    def timeline(self) -> Timeline:
        return Timeline(self.space)

    @cached_property
    def time_bar(self) -> TimeBar | None:
        """The slider over time; None without commits."""
        return time_bar(self.timeline, self.as_of)

    @property
    def namespace(self) -> str:
        return "/".join(self.space.namespace)

    @cached_property
    def as_of(self) -> datetime | None:
        """The time in the past that the address names."""
        at = microseconds("as_of", self.param("as_of") or None)
        return None if at is None else moment(at)

    def may(self, action: Action) -> bool:
        """Whether to offer an action: the caller is allowed to do it, and does not look at the past.

        Screens use it to show buttons. Whether a change is made, the space decides.
        """
        return self.as_of is None and self.is_allowed(action)

    def is_allowed(self, action: Action) -> bool:
        """The same for what may be done while looking at the past: taking an entry of it back."""
        return self.principal is not None and action in self.principal.rules.actions

    @cached_property
    def is_empty(self) -> bool:
        """Whether the memory holds nothing, so that a screen shows the first steps instead."""
        return self.as_of is None and not self.space.recent(1)

    @property
    def sample(self) -> str | None:
        """The namespace for the sample memory, never the caller's own; None if it reaches no other."""
        if self.principal is None or self.principal.reach == "own":
            return None
        above = () if self.principal.reach == "all" else self.principal.namespace
        return "/".join((*above, SAMPLE_NAME))

    @cached_property
    def has_sample(self) -> bool:
        """Whether something is in the namespace for the sample memory, or was and could be restored."""
        if self.sample is None or self.principal is None:
            return False
        stats = self.principal.space(self.service.book, self.sample, interface="page").stats()
        return any(stats.entries.values()) or stats.former_states > 0

    @property
    def is_sample(self) -> bool:
        return self.namespace == self.sample

    @property
    def is_signed_in(self) -> bool:
        return session_of(self.request.headers) is not None and self.principal is not None

    # Addresses

    def url(self, path: str, **params: str | int | None) -> str:
        """An address of the page. It keeps namespace and time, unless `params` say otherwise; None leaves one out."""
        if not params:
            return f"{path}?{self._kept}"[:-1]  # without the last `&`, or the `?`
        kept: dict[str, Any] = {name: self.param(name) or None for name in KEPT}
        return _address(path, {**kept, **params})

    def entry_url(self, kind: str, key: str) -> str:
        """The address of the screen that shows an entry."""
        return f"{SCREENS[kind]}?{self._kept}open={kind}%3A{quote_plus(key)}"

    @cached_property
    def _kept(self) -> str:
        """The beginning of a query that keeps namespace and time, made once for all entries of a screen."""
        kept = urlencode({name: self.param(name) for name in KEPT if self.param(name)})
        return f"{kept}&" if kept else ""

    @property
    def opened(self) -> tuple[str, str]:
        """The kind and the key of the entry in the address, from `open=file:/notes/today`; empty without one."""
        kind, _, key = self.param("open").partition(":")
        return kind, key

    @property
    def restorable(self) -> str | None:
        """The kind of the entry of the past that is shown, if the caller may take it back."""
        kind, key = self.opened
        is_shown = kind in (FILE, RECORD, MESSAGE) and self.path == SCREENS[kind] and key != ""
        return kind if self.as_of is not None and is_shown and self.is_allowed("write") else None

    def here(self, **params: str | int | None) -> str:
        """The address of this screen with some parameters changed."""
        shown: dict[str, Any] = dict(self.request.query_params)
        return _address(self.path, {**shown, "done": None, **params})

    def moment_url(self, commit: Commit) -> str:
        """The address of this screen as of a commit."""
        return at_time(self.here(), commit)

    # Answers

    @cached_property
    def _cookie(self) -> str:
        """The browser's own random id: that of its session, or a visitor's."""
        return cookie_of(self.request.headers) or f"visitor_{secrets.token_urlsafe(32)}"

    @property
    def token(self) -> str:
        """The token for forms. Only this browser's pages have it: no script and no other site sees the cookie."""
        return form_token(self._cookie)

    @property
    def toast(self) -> Toast | None:
        word, _, commit = self.param("done").partition(".")
        if word not in DONE or not (commit.isascii() and commit.isdigit() and len(commit) < 19):
            return None
        return Toast(DONE[word], int(commit))

    def render(self, template: str, status: int = 200, **values: Any) -> Response:
        """A page, or a part of one, from a template."""
        html = render(template, {"page": self, "navigation": NAVIGATION, **values})
        response = HTMLResponse(html, status)
        if cookie_of(self.request.headers) is None:
            self.set_cookie(response, self._cookie)
        return response

    def redirect(self, url: str) -> Response:
        """Send the browser to another screen, with GET. A script gets the address too, because it follows redirects."""
        if self.is_fragment:
            return Response(headers={"HX-Redirect": quote(url, safe=":/%#?=@[]!$&'()*+,;")})
        return RedirectResponse(url, 303)

    def done(self, word: str, commit: int | None, path: str, **params: str | int | None) -> Response:
        """Answer a change: show a screen, with a toast that names the commit and offers to undo it."""
        return self.redirect(with_done(self.url(path, **params), word, commit))

    def delete_cookie(self, response: Response) -> None:
        response.delete_cookie(cookie_name(self.request.headers), path=PAGE_PATH)

    def set_cookie(self, response: Response, value: str) -> None:
        public_url = self.service.settings.public_url or ""
        response.set_cookie(
            cookie_name(self.request.headers),
            value,
            max_age=MAX_AGE_SECONDS,
            path=PAGE_PATH,
            secure=self.request.url.scheme == "https" or public_url.startswith("https:"),
            httponly=True,
            samesite="strict",
        )


def form_token(cookie: str) -> str:
    return hashlib.sha256(f"form {cookie}".encode()).hexdigest()


def _address(path: str, params: Mapping[str, Any]) -> str:
    query = urlencode({name: value for name, value in params.items() if value not in (None, "")})
    return f"{path}?{query}" if query else path


def sign_in_url(request: Request) -> str:
    """The address of the sign-in page, which leads back to what was asked for."""
    is_read = request.method == "GET" and request.headers.get("hx-request") != "true"
    wanted = f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path
    return _address(f"{PAGE_PATH}/sign-in", {"next": wanted if is_read and wanted != PAGE_PATH else None})


def own_address(url: str, default: str = PAGE_PATH) -> str:
    """An address that a request names, if it is one of the page; nothing else is followed."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return default
    is_own = not parts.scheme and not parts.netloc and "\\" not in url and _SCREEN_PATH.fullmatch(parts.path)
    return urlunsplit(("", "", parts.path, parts.query, "")) if is_own else default


def with_done(url: str, word: str, commit: int | None) -> str:
    """An address with the toast of a change; None if nothing was changed."""
    assert word in DONE
    parts = urlsplit(url)
    kept = [(name, value) for name, value in parse_qsl(parts.query) if name != "done"]
    notice = [] if commit is None else [("done", f"{word}.{commit}")]
    return urlunsplit(("", "", parts.path, urlencode([*kept, *notice]), ""))


def at_time(url: str, commit: Commit | None) -> str:
    """An address at the time of a commit, or now; on its first page, because pages differ between times."""
    parts = urlsplit(url)
    kept = [(name, value) for name, value in parse_qsl(parts.query) if name not in ("as_of", "done", "page", "before")]
    times = [] if commit is None else [("as_of", written(commit.at))]
    return urlunsplit(("", "", parts.path, urlencode([*kept, *times]), ""))


async def visit_of(request: Request) -> Visit:
    """The visit of a request. A form is accepted from this browser's own pages only."""
    principal = cast("Principal | None", request.state.principal)
    if request.method != "POST":
        return Visit(request, principal)
    check_own_form(request.headers, service_of(request).settings.public_url)
    is_upload = request.headers.get("content-type", "").startswith("multipart/form-data")
    form, upload = await _upload_of(request) if is_upload else (await _form_of(request), None)
    cookie = cookie_of(request.headers) or ""
    shown = form.get("token", [""])[-1] or request.headers.get("x-form-token", "")
    if not cookie or not hmac.compare_digest(shown.encode(), form_token(cookie).encode()):
        raise Forbidden("this form has expired; go back, reload the page and send it again")
    if request.query_params.get("as_of") and request.scope["path"] != SIGN_OUT:
        raise Forbidden("nothing can be changed in the past; go back to now and send the form from there")
    return Visit(request, principal, form, upload)


async def _upload_of(request: Request) -> tuple[dict[str, list[str]], UploadFile | None]:
    """The fields of a form with a file. A long file is held on disk."""
    size = request.headers.get("content-length", "")
    if not size.isdigit() or int(size) > UPLOAD_BYTES:
        raise TooLarge(f"a file has at most {UPLOAD_BYTES:,} bytes; import a larger one with the command line")
    try:
        sent = await request.form(max_files=1, max_fields=20)
    except HTTPException as error:
        raise InvalidInput("this is not a form of the page; open the page and send it from there") from error
    found: dict[str, list[str]] = {}
    upload: UploadFile | None = None
    for name, value in sent.multi_items():
        if isinstance(value, str):
            found.setdefault(name, []).append(value)
        else:
            upload = value
    return found, upload


async def _form_of(request: Request) -> dict[str, list[str]]:
    """The fields of a form. Browsers send every end of line as CRLF; here it is LF."""
    try:
        body = (await request.body()).decode("ascii")
        pairs = parse_qsl(body, keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    except ValueError as error:
        raise InvalidInput("this is not a form of the page; open the page and send it from there") from error
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value.replace("\r\n", "\n"))
    return found


VisitOf = Annotated[Visit, Depends(visit_of)]


class Stored(Protocol):
    """A state of an entry, as a screen reads it."""

    @property
    def revision(self) -> int: ...

    @property
    def updated_at(self) -> datetime: ...


def seen_of(state: Stored) -> str:
    """A state in a form: its revision and its time, because after a purge revisions begin again."""
    return f"{state.revision}.{microseconds('updated_at', state.updated_at)}"


def parse_seen(written: str) -> tuple[int, int]:
    revision, _, at = written.partition(".")
    if not all(part.isascii() and part.isdigit() and len(part) < 19 for part in (revision, at or "0")):
        raise InvalidInput("this form names no state of an entry; open the entry again and edit it there")
    return int(revision), int(at or "0")


def page_number(visit: Visit, most: int) -> int:
    """The number of the page that the address names, from 1."""
    written = visit.param("page", "1")
    if not (written.isascii() and written.isdigit() and len(written) < 10 and 1 <= int(written) <= most):
        raise InvalidInput(f"page must be a number from 1 to {most}")
    return int(written)
