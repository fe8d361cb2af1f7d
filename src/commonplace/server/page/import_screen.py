"""Import: choose a file of another program, see what it holds, import it into the shown memory, undo it.

The file is sent with each step, and nothing of it is kept here between them. With scripts the form stays as it is, so
that the file is chosen once.
"""

from __future__ import annotations

import shutil
import tempfile
from itertools import islice
from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import Response

from commonplace.errors import InvalidInput
from commonplace.exchange import ImportReport
from commonplace.exchange.foreign import Undone, changes_of_import, commit_range, undo_import
from commonplace.exchange.recognition import FORMATS, OWN
from commonplace.exchange.sources import UPLOAD_BOUNDS
from commonplace.server.http.sessions import PAGE_PATH
from commonplace.server.http.worker_threads import ThreadedRoute
from commonplace.server.page.undo_screen import MOST_PREVIEWED, previewed
from commonplace.server.page.visit import Visit, VisitOf

IMPORT = f"{PAGE_PATH}/import"
router = APIRouter(route_class=ThreadedRoute)


@router.get(IMPORT, include_in_schema=False)
def import_form(visit: VisitOf) -> Response:
    return _page(visit)


@router.post(IMPORT, include_in_schema=False)
def import_file(visit: VisitOf) -> Response:
    if visit.upload is None or not visit.upload.size:
        return _page(visit, refusal="Choose a file first.")
    try:
        return _page(visit, report=_imported(visit))
    except InvalidInput as error:
        return _page(visit, refusal=str(error))


@router.get(f"{IMPORT}/undo", include_in_schema=False)
def undo_form(visit: VisitOf) -> Response:
    first, last = commit_range(visit.param("commits"))
    changes = [*islice(changes_of_import(visit.space, first, last), MOST_PREVIEWED + 1)]
    is_previewed = len(changes) <= MOST_PREVIEWED
    commits = {change.commit for change in changes} if is_previewed else set()
    return visit.render(
        "undo_import.html",
        first=first,
        last=last,
        is_previewed=is_previewed,
        commits=len(commits),
        most=MOST_PREVIEWED,
        **previewed(visit, commits),
    )


@router.post(f"{IMPORT}/undo", include_in_schema=False)
def undo(visit: VisitOf) -> Response:
    return _page(visit, undone=undo_import(visit.space, *commit_range(visit.field("commits"))))


def _imported(visit: Visit) -> ImportReport:
    assert visit.upload is not None
    assert visit.principal is not None
    visit.principal.rules.check("write")
    with tempfile.TemporaryDirectory(prefix="commonplace-upload-") as folder:
        held = Path(folder) / "upload"
        with held.open("wb") as target:
            shutil.copyfileobj(visit.upload.file, target)
        return visit.service.book.import_memory(
            held,
            visit.space.namespace,
            format=visit.field("format") or None,
            again=visit.field("again") == "yes",
            dry_run=visit.field("do") != "import",
            name=visit.upload.filename,
            bounds=UPLOAD_BOUNDS,
            actor=f"{visit.principal.name} page",
            rules=visit.principal.rules,
        )


def _page(
    visit: Visit, *, report: ImportReport | None = None, undone: Undone | None = None, refusal: str | None = None
) -> Response:
    template = "_import_result.html" if visit.is_fragment else "import.html"
    status = 200 if refusal is None or visit.is_fragment else 422
    formats = [one for one in FORMATS if one.name != OWN]
    return visit.render(template, status, formats=formats, report=report, undone=undone, refusal=refusal)
