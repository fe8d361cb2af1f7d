"""The address of every screen of the page, in a furnished memory."""

from __future__ import annotations

from urllib.parse import quote

from furnished import Furnished

SCREENS = {
    "search, nothing asked": "/ui",
    "search, found": "/ui?q=harbour+crane",
    "search, nothing found": "/ui?q=zzzzzz",
    "search, in the past": "/ui?q=crane&as_of={week_ago}",
    "files, the top": "/ui/files",
    "files, a folder": "/ui/files?open=directory:/notes",
    "files, a file": "/ui/files?open=file:/notes/plan.md",
    "files, in the past": "/ui/files?open=file:/notes/plan.md&as_of={week_ago}",
    "files, more of a folder": "/ui/files/folder?open=directory:/notes",
    "edit a file": "/ui/files/edit?open=file:/notes/plan.md",
    "a new file": "/ui/files/new?open=directory:/notes",
    "records": "/ui/records",
    "records, chosen": "/ui/records?q=grain&tag=ship",
    "records, in the past": "/ui/records?as_of={week_ago}",
    "a record": "/ui/records?open=record:{record}",
    "a new record": "/ui/records/new",
    "edit a record": "/ui/records/edit?open=record:{record}",
    "threads": "/ui/threads",
    "a thread": "/ui/threads?open=thread:{thread}",
    "a thread in the past": "/ui/threads?open=thread:{thread}&as_of={week_ago}",
    "working memory": "/ui/threads?open=working:resource/ada",
    "history": "/ui/history",
    "history of a file": "/ui/history?open=file:/notes/plan.md",
    "a commit": "/ui/history/commit?commit={commit}",
    "compare": "/ui/history/compare?from=1&to={commit}",
    "compare a file": "/ui/history/compare?from=1&to={commit}&open=file:/notes/plan.md",
    "as of": "/ui/as-of",
    "as of, in the past": "/ui/as-of?as_of={week_ago}",
    "restore": "/ui/restore?open=file:/notes/plan.md&revision=1",
    "undo": "/ui/undo?commit={commit}",
    "usage": "/ui/usage",
    "import": "/ui/import",
    "connect": "/ui/connect",
    "a new key": "/ui/connect/new-key",
    "memories": "/ui/namespaces",
}
"""Screens that answer 200 to anybody who may read."""

NOT_SCREENS = {
    "/ui/files/download": "a file to save",
    "/ui/static/{digest}/{name:path}": "styles and scripts",
    "/ui/as-of/moment": "a part of a screen",
    "/ui/live": "a stream of events",
    "/ui/authorize": "shown when a client asks for access only; see tests/http/test_oauth.py",
    "/ui/connect/revoke": "shown with keys only; see test_connect.py",
    "/ui/import/undo": "shown for the commits of an import only; see test_connect.py",
    "/ui/sample/remove": "shown with the sample only; see test_connect.py",
    "/ui/sign-in": "shown with keys only; see test_sign_in.py",
}


def addresses(furnished: Furnished) -> dict[str, str]:
    """Each screen's address, with the names of this memory."""
    values = {name: quote(str(getattr(furnished, name))) for name in furnished.__dataclass_fields__}
    return {name: path.format_map(values) for name, path in SCREENS.items()}
