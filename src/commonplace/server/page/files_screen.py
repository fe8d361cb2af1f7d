"""Files: a tree, a text and its preview, and edits that lose nothing if somebody else saved first."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from fastapi import APIRouter
from fastapi.responses import Response

from commonplace.errors import NotFound, Outdated
from commonplace.server.http.sessions import PAGE_PATH
from commonplace.server.http.worker_threads import ThreadedRoute
from commonplace.server.page.history_screen import changed_meanwhile
from commonplace.server.page.visit import Visit, VisitOf, parse_seen, seen_of
from commonplace.space.files import FileInfo
from commonplace.space.names import DIRECTORY, FILE, ROOT, name_of, parents

FILES = f"{PAGE_PATH}/files"
IN_A_FOLDER = 200
"""How many names of a folder are shown at once."""

SHOWN_CHARACTERS = 100_000
RENDERED_CHARACTERS = 10_000
"""How much of a file is shown, and rendered as Markdown, unless all of it is asked for: a page should come at once."""

router = APIRouter(route_class=ThreadedRoute)


@dataclass(frozen=True, slots=True)
class Shown:
    """A file as the screen shows it."""

    path: str
    text: str
    rendered: str
    is_cut: bool
    info: FileInfo
    actor: str | None

    @property
    def seen(self) -> str:
        return seen_of(self.info)


@dataclass(frozen=True, slots=True)
class Folder:
    """A part of the tree: the names in a folder, and those of the folders in it that are unfolded."""

    path: str
    files: tuple[FileInfo, ...]
    cursor: str | None
    unfolded: dict[str, Folder]


@router.get(FILES, include_in_schema=False)
def files(visit: VisitOf) -> Response:
    kind, path = visit.opened
    path = path or ROOT
    if kind == FILE:
        return _file_page(visit, path)
    return visit.render("files.html", tree=_tree(visit, path), path=path, file=None)


@router.get(f"{FILES}/folder", include_in_schema=False)
def folder(visit: VisitOf) -> Response:
    """The names in a folder, for a tree that is unfolded a step at a time."""
    _, path = visit.opened
    shown = _folder(visit, path or ROOT, visit.param("cursor") or None)
    if not visit.is_fragment:
        return visit.render("files.html", tree=shown, path=shown.path, file=None)
    return visit.render("_folder.html", tree=shown)


@router.get(f"{FILES}/download", include_in_schema=False)
def download_file(visit: VisitOf) -> Response:
    """The text of a file, to be saved and not shown."""
    _, path = visit.opened
    text = visit.space.files.read(path, as_of=visit.as_of)
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name_of(path), safe='')}"}
    return Response(text, headers=headers, media_type="text/plain")


@router.get(f"{FILES}/new", include_in_schema=False)
def new_file(visit: VisitOf) -> Response:
    _, path = visit.opened
    draft = Draft(path=path.rstrip("/") + "/", text="", seen="0")
    return visit.render("edit_file.html", draft=draft, present=None, is_conflict=False)


@router.get(f"{FILES}/edit", include_in_schema=False)
def edit_file(visit: VisitOf) -> Response:
    _, path = visit.opened
    # The revision before the text: one that is too old is refused, but one that is too new would lose an update.
    info = visit.space.files.stat(path)
    draft = Draft(info.path, visit.space.files.read(path), seen_of(info))
    return visit.render("edit_file.html", draft=draft, present=None, is_conflict=False)


@dataclass(frozen=True, slots=True)
class Draft:
    """A text that a person types, and the state that it started from; `0` if there was no file."""

    path: str
    text: str
    seen: str


@router.post(f"{FILES}/save", include_in_schema=False)
def save_file(visit: VisitOf) -> Response:
    draft = Draft(visit.field("path"), visit.field("text"), visit.field("seen"))
    revision, updated_at = parse_seen(draft.seen)
    space = visit.space.expecting(FILE, draft.path, (revision, updated_at) if revision else 0)
    try:
        if revision:
            info = space.files.edit(draft.path, lambda stored: with_line_ends_of(stored, draft.text))
        else:
            info = space.files.write(draft.path, draft.text)
    except Outdated:
        return _conflict(visit, draft)
    commit = None
    if info.revision != revision:  # else the text is as it was
        commit = visit.space.state(FILE, info.path, info.revision).commit
    return visit.done("saved", commit, FILES, open=f"file:{info.path}")


@router.post(f"{FILES}/move", include_in_schema=False)
def move_file(visit: VisitOf) -> Response:
    new = visit.field("to")
    moved = visit.space.files.move(visit.field("path"), new)
    return visit.done("moved", moved.commit, FILES, open=f"{visit.space.files.stat(new).kind}:{new}")


@router.post(f"{FILES}/delete", include_in_schema=False)
def delete_file(visit: VisitOf) -> Response:
    path, seen = visit.field("path"), visit.field("seen")
    space = visit.space.expecting(FILE, path, parse_seen(seen)) if seen else visit.space  # a folder has no state
    try:
        removed = space.files.delete(path)
    except Outdated:
        return changed_meanwhile(visit, f"{FILES}/delete", FILE, "path")
    return visit.done("deleted", removed.commit, FILES, open=f"directory:{_above(path)}")


def _file_page(visit: Visit, path: str) -> Response:
    info = visit.space.files.stat(path, as_of=visit.as_of)
    if info.kind == DIRECTORY:
        return visit.redirect(visit.url(FILES, open=f"directory:{info.path}"))
    path = info.path
    text = visit.space.files.read(path, as_of=visit.as_of)
    is_whole = visit.param("whole") == "1"
    shown = Shown(
        path,
        text if is_whole else text[:SHOWN_CHARACTERS],
        text if is_whole else beginning(text, RENDERED_CHARACTERS),
        not is_whole and len(text) > RENDERED_CHARACTERS,
        info,
        visit.space.state(FILE, path, info.revision).actor,
    )
    return visit.render("files.html", tree=_tree(visit, _above(path)), path=path, file=shown)


def beginning(text: str, most: int) -> str:
    """The first lines of a text, up to a number of characters."""
    if len(text) <= most:
        return text
    end = text.rfind("\n", 0, most)
    return text[: end + 1] or text[:most]


def _above(path: str) -> str:
    return [ROOT, *parents(path)][-1]


def _conflict(visit: Visit, draft: Draft) -> Response:
    """Both texts, with what was typed in the form. Sending the form again replaces the text that is next to it."""
    try:
        info = visit.space.files.stat(draft.path)
        present, seen = visit.space.files.read(draft.path), seen_of(info)
    except NotFound:
        present, seen = None, "0"
    typed = Draft(draft.path, draft.text, seen)
    return visit.render("edit_file.html", 409, draft=typed, present=present, is_conflict=True)


def _tree(visit: Visit, path: str) -> Folder:
    """The tree from the top, unfolded down to a folder."""
    tree = _folder(visit, path)
    for above in reversed([ROOT, *parents(path)] if path != ROOT else []):
        tree = _unfolded(_folder(visit, above), tree)
    return tree


def _unfolded(above: Folder, below: Folder) -> Folder:
    return Folder(above.path, above.files, above.cursor, {below.path: below})


def _folder(visit: Visit, path: str, cursor: str | None = None) -> Folder:
    page = visit.space.files.list_page(path, limit=IN_A_FOLDER, cursor=cursor, as_of=visit.as_of)
    return Folder(path, page.files, page.cursor, {})


def with_line_ends_of(stored: str, typed: str) -> str:
    """What was typed, with the ends of line of the stored text: a browser does not keep them."""
    has_only_crlf = "\r\n" in stored and "\n" not in stored.replace("\r\n", "")
    return typed.replace("\n", "\r\n") if has_only_crlf else typed
