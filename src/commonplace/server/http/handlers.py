"""The operations that do more than call one method of a space: they look at the request or at who calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastapi.responses import Response

from commonplace import __version__
from commonplace.api.forms import Caller, EditedFile, NamespacePage, Problem, ProblemKind, RevisionPage
from commonplace.api.problems import KINDS, problem
from commonplace.checks import Namespace, parse_namespace
from commonplace.entry import Entry, Hit, Revision
from commonplace.errors import Forbidden, InvalidInput
from commonplace.server.http.answers import Answer, Call, etag_of, is_known, next_page, not_modified
from commonplace.server.http.auth import Principal
from commonplace.server.http.service import principal_of, service_of
from commonplace.space.files import FilePage
from commonplace.space.names import DIRECTORY, FILE
from commonplace.store import StoreStats
from commonplace.tools.as_data import hits_as_data

MAX_OFFSET = 10_000

# The service


async def get_caller(call: Call) -> Caller:
    principal, book = principal_of(call.request), service_of(call.request).book
    return Caller(
        service="commonplace",
        version=__version__,
        name=principal.name,
        namespace=principal.namespace,
        reach=principal.reach,
        actions=tuple(sorted(principal.rules.actions)),
        limits=book.limits,
    )


async def list_problems(call: Call) -> list[ProblemKind]:
    def example(kind: Any) -> Problem:
        form: dict[str, Any] = problem(kind, kind.title)
        return Problem(**form)

    return [ProblemKind(kind.code, kind.status, kind.title, kind.extra, example(kind)) for kind in KINDS]


def list_namespaces(call: Call) -> Answer:
    principal = principal_of(call.request)
    below, after, limit = (call.arguments[name] for name in ("below", "after", "limit"))
    found = service_of(call.request).book.namespaces(
        *_prefix(principal, below), after=None if after is None else parse_namespace(after), limit=limit + 1
    )
    if principal.reach == "own":
        found = [namespace for namespace in found if namespace == principal.namespace]
    page = tuple(found[:limit])
    more = next_page(call.request, "/".join(page[-1]), "after") if len(found) > limit else None
    return Answer(NamespacePage(page), {"next": more})


def _prefix(principal: Principal, below: str | None) -> Namespace:
    """What to list: what is asked for, where that is within the caller's reach."""
    asked = () if below is None else parse_namespace(below)
    if principal.reach == "all":
        return asked
    own = principal.namespace
    if own[: len(asked)] == asked:
        return own
    if principal.reach == "below" and asked[: len(own)] == own:
        return asked
    raise Forbidden(f"this access does not reach the namespaces below {below}; leave it out, or use another key")


def get_store_stats(call: Call) -> StoreStats:
    if principal_of(call.request).reach != "all":
        raise Forbidden("this access does not reach the whole store; GET /v1/stats counts its own namespace")
    return service_of(call.request).book.stats()


# Files


def read_file(call: Call) -> Response:
    path, as_of = call.arguments["path"], call.arguments["as_of"]
    files = call.space.files
    if as_of is not None:
        return Response(files.read(path, as_of=as_of), media_type="text/plain")
    # The tag is read before the text: one that is too old is refused by If-Match, one too new would lose an update.
    info = files.stat(path)
    etag = etag_of(info.revision, info.updated_at)
    if info.kind == FILE and is_known(call.request, etag):
        return not_modified(etag)
    return Response(files.read(path), headers={"ETag": etag}, media_type="text/plain")


def edit_file(call: Call) -> EditedFile:
    edit = dict(call.arguments)
    path = edit.pop("path")
    if len(edit) != 1:
        raise InvalidInput("send one of replace, insert and text")
    ((name, change),) = edit.items()
    files = call.space.files
    if name == "replace":
        count = files.replace(path, change.old, change.new, unique=change.unique)
        return EditedFile(files.stat(path), count)
    if name == "insert":
        return EditedFile(files.insert(path, change.line, change.text), 1)
    return EditedFile(files.edit(path, lambda _: change), 1)


def list_directory(call: Call) -> FilePage:
    limit, cursor = call.arguments["limit"], call.arguments["cursor"]
    found = call.space.files.list(call.arguments["path"])
    start = 0
    if cursor is not None:
        kind, _, name = cursor.partition(":")
        start = sum((one.kind, one.name) <= (kind, name) for one in found)
    page = tuple(found[start : start + limit])
    return FilePage(page, f"{page[-1].kind}:{page[-1].name}" if start + limit < len(found) else None)


# Search and history


def search_by_query(call: Call) -> Answer:
    limit, offset = call.arguments["limit"], call.arguments["offset"]
    found, wrapped = _search(call)
    is_full = len(found) == limit and offset + limit <= MAX_OFFSET
    more = next_page(call.request, str(offset + limit) if is_full else None, "offset")
    return Answer(found, {"next": more, "wrapped": wrapped})


def search(call: Call) -> Answer:
    found, wrapped = _search(call)
    return Answer(found, {"next": None, "wrapped": wrapped})


def _search(call: Call) -> tuple[Sequence[Hit], str | None]:
    """What was found, and where it is asked for, as one text for a prompt."""
    options = dict(call.arguments)
    is_wrapped = options.pop("wrapped", False)
    if options.get("below") and principal_of(call.request).reach == "own":
        raise Forbidden("this access reaches one namespace only; search without `below`")
    found = call.space.search(**options)
    return found, hits_as_data(found) if is_wrapped else None


def list_history(call: Call) -> RevisionPage:
    return _page(call, call.space.history(*_entry(call)))


def working_history(call: Call) -> RevisionPage:
    owner = {name: call.arguments[name] for name in ("resource", "thread")}
    return _page(call, call.space.threads.working.history(**owner))


def _page(call: Call, revisions: list[Revision]) -> RevisionPage:
    """A page of a history; the cursor is the last revision of the page before."""
    limit, cursor = call.arguments["limit"], call.arguments["cursor"]
    after = int(cursor) if cursor is not None and cursor.isascii() and cursor.isdigit() and len(cursor) < 19 else 0
    rest = [one for one in revisions if one.revision > after]
    return RevisionPage(tuple(rest[:limit]), str(rest[limit - 1].revision) if len(rest) > limit else None)


def get_state(call: Call) -> Entry:
    return call.space.state(*_entry(call), call.arguments["revision"])


def _entry(call: Call) -> tuple[str, str]:
    """An entry's kind and name: a path begins with the slash that is before it in the address."""
    kind, key = call.arguments["kind"], call.arguments["key"]
    return kind, f"/{key}" if kind in (FILE, DIRECTORY) else key


def purge(call: Call) -> int:
    options = dict(call.arguments)
    is_narrowed = options.get("kind") is not None or options.get("history_before") is not None
    if not options.pop("everything", False) and not is_narrowed:
        raise InvalidInput('to erase the whole namespace, send {"everything": true}')
    return call.space.purge(**options)


HANDLERS: Mapping[str, Callable[[Call], Any]] = {
    handler.__name__: handler
    for handler in (
        get_caller,
        list_problems,
        list_namespaces,
        get_store_stats,
        read_file,
        edit_file,
        list_directory,
        search_by_query,
        search,
        list_history,
        working_history,
        get_state,
        purge,
    )
}
