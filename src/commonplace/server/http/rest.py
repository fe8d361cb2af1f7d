"""The routes of `/v1`, made from the table of operations: parameters, bodies, answers and their description.

An operation with a `call` runs that method of the caller's space. One that needs the request or the caller has a
handler of the same name, here or in `transfer`. Answers are written as JSON directly; the models only
describe them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import attrgetter, or_
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Body, Depends, Header, Query, Request
from fastapi.responses import Response
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StrictBool,
    StrictInt,
    StrictStr,
    WithJsonSchema,
    create_model,
)

from commonplace import __version__
from commonplace.api import operations
from commonplace.api.forms import (
    AnyJson,
    Caller,
    ChangePage,
    EditedFile,
    Form,
    ListOf,
    NamespacePage,
    Nullable,
    Problem,
    ProblemKind,
    RevisionPage,
)
from commonplace.api.parameters import ABSENT, REQUIRED, WRITE_STATUSES, Argument, Nested, Operation
from commonplace.api.problems import BY_CODE, KINDS, problem
from commonplace.checks import moment, parse_namespace
from commonplace.entry import Entry, Hit, Revision
from commonplace.errors import Conflict, Forbidden, InvalidInput
from commonplace.server.http import transfer
from commonplace.server.http.answers import (
    NOT_MODIFIED,
    Answer,
    Call,
    IfChanged,
    IfMatch,
    IfNew,
    Once,
    answer,
    documented,
    etag_of,
    is_known,
    next_page,
    not_modified,
    under_conditions,
)
from commonplace.server.http.error_answers import problem_response
from commonplace.server.http.feed import commit_event, start_of, stream_changes
from commonplace.server.http.service import SpaceOf, principal_of, service_of
from commonplace.server.http.worker_threads import ThreadedRoute, in_thread
from commonplace.space.conversation import NumberedPage
from commonplace.space.items import Item
from commonplace.space.messages import Message
from commonplace.space.names import DIRECTORY, FILE
from commonplace.store import StoreStats
from commonplace.tools.as_data import hits_as_data

BUSIEST_FIRST = (
    *operations.MESSAGES,
    *operations.SEARCH,
    *operations.RECORDS,
    *operations.ITEMS,
    *operations.FILES,
    *operations.THREADS,
    *operations.WORKING_MEMORY,
    *operations.SERVICE,
    *operations.FEED,
    *operations.TRANSFER,
)
MAX_OFFSET = 10_000
_STRICT = {str: StrictStr, int: StrictInt, bool: StrictBool, list[str]: list[StrictStr]}


# Requests


class BodyModel(BaseModel):
    """Unknown fields are refused, and `false` is not a number."""

    model_config = ConfigDict(extra="forbid", strict=True)


def _body_model(name: str, about: str | None, arguments: tuple[Argument, ...], extra: Any = None) -> type[BodyModel]:
    fields: dict[str, Any] = {}
    for argument in arguments:
        default: Any = ... if argument.default is REQUIRED else None if argument.default is ABSENT else argument.default
        notes: dict[str, Any] = {"examples": list(argument.examples)} if argument.examples else {}
        fields[argument.wire] = (_in_body(argument), Field(default, **notes))
    model: type[BodyModel] = create_model(name, __base__=BodyModel, __module__=__name__, __doc__=about, **fields)
    if extra is not None:
        model.model_config["json_schema_extra"] = extra
        model.model_rebuild(force=True)
    return model


def _in_body(argument: Argument) -> Any:
    kind = argument.kind
    if kind.schema is not None:
        return Annotated[Any, WithJsonSchema(dict(kind.schema))]
    if isinstance(kind.type, Nested):
        return _body_model(kind.type.name, kind.type.about, kind.type.arguments)
    strict: Any = _STRICT.get(kind.type, kind.type)
    if kind.bounds:
        bounds: dict[str, Any] = dict(kind.bounds)
        strict = Annotated[strict, Field(**bounds)]
    return strict | None if argument.default is None else strict


def _in_address(argument: Argument) -> inspect.Parameter:
    kind = argument.kind
    annotation = kind.type | None if argument.default is None else kind.type
    default: Any = inspect.Parameter.empty if argument.default is REQUIRED else argument.default
    name = argument.wire
    if argument.place != "path":
        notes: dict[str, Any] = {"description": argument.about, **kind.bounds}
        if argument.examples:
            notes["examples"] = list(argument.examples)
        if argument.place == "header":
            name = argument.name
            annotation = Annotated[annotation, Header(alias=argument.wire, **notes)]
        else:
            annotation = Annotated[annotation, Query(**notes)]
            default = list(default) if default == () else default
    return _parameter(name, annotation, default)


def _parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


async def text_of(request: Request) -> str:
    """The body as text. Bytes that are not UTF-8 are refused rather than changed."""
    try:
        return (await request.body()).decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the body is not UTF-8 at byte {error.start}; send text in UTF-8") from error


def _parameters(operation: Operation) -> Iterator[inspect.Parameter]:
    yield _parameter("request", Request)
    if operation.in_namespace:
        yield _parameter("space", Once if operation.is_once else SpaceOf)
    for argument in operation.arguments:
        if argument.place in ("path", "query", "header"):
            yield _in_address(argument)
        elif argument.place == "text":
            yield _parameter(argument.name, Annotated[str, Depends(text_of)])
    if operation.body is not None:
        in_body = operation.arguments_in("body")
        model = _body_model(operation.body, operation.body_about, in_body, operation.body_extra)
        yield _parameter("body", Annotated[model, Body()])
    if operation.if_match is not None:
        yield _parameter("if_match", IfMatch, None)
    if operation.if_new:
        yield _parameter("if_new", IfNew, None)
    if operation.etag and operation.is_read:
        yield _parameter("if_changed", IfChanged, None)


def _call(operation: Operation, given: Mapping[str, Any]) -> Call:
    """The request as the library's arguments; fields that are left out have the library's defaults."""
    arguments: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for argument in operation.arguments:
        if argument.place == "body":
            body = given["body"]
            if argument.wire not in body.model_fields_set:
                continue
            value = getattr(body, argument.wire)
        else:
            value = given[argument.name if argument.place == "header" else argument.wire]
            value = argument.kind.receive(value)
        (arguments if argument.sent is None else options)[argument.name] = value
    space: Any = given.get("space")
    if operation.if_match is not None and (given["if_match"] is not None or given.get("if_new") is not None):
        kind, name = operation.if_match(space, arguments)
        space = under_conditions(space, kind, name, given["if_match"], given.get("if_new"))
    return Call(given["request"], space, arguments, options)


# Answers


def _run(operation: Operation, call: Call) -> Any:
    assert operation.call is not None
    return attrgetter(operation.call)(call.space)(**call.arguments)


def _answer(operation: Operation, call: Call, result: Any) -> Response:
    if isinstance(result, Response):
        return result
    extra: dict[str, Any] = {}
    if isinstance(result, Answer):
        result, extra = result.result, dict(result.extra)
    headers: dict[str, str] = {}
    if operation.etag:
        headers["etag"] = _etag(result)
        if operation.is_read and is_known(call.request, headers["etag"]):
            return not_modified(headers["etag"])
    if operation.location:
        headers["location"] = f"{call.request.url.path}/{quote(result.id, safe='')}"
    # By the times, not by the revision, which continues if a record with this id was deleted before.
    is_again = operation.again is not None and result.created_at != result.updated_at
    if call.options.get("entries") is False:
        result = _without_entries(result)
    form = operation.result if operation.light is None or call.options.get("full") else operation.light
    assert form is not None
    if "next" in form.extra and "next" not in extra:
        extra["next"] = next_page(call.request, result.cursor)
    return answer({**form.write(result), **extra}, 200 if is_again else operation.status, **headers)


def _etag(result: Any) -> str:
    if result is None:
        return etag_of(0, moment(0))
    if isinstance(result, Message):
        assert result.entry is not None
        return etag_of(result.entry.revision, moment(result.entry.updated_at))
    return etag_of(result.revision, result.updated_at)


def _without_entries(result: Any) -> Any:
    if isinstance(result, Message):
        return replace(result, entry=None)
    if isinstance(result, tuple):
        return tuple(map(_without_entries, result))
    field = "items" if isinstance(result, NumberedPage) else "messages"
    return replace(result, **{field: _without_entries(getattr(result, field))})


# Descriptions


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_serialization_defaults_required=True)


class OpenModel(BaseModel):
    model_config = ConfigDict(extra="allow", json_schema_serialization_defaults_required=True)


_models: dict[str, type[BaseModel]] = {}


def model_of(form: Form[Any]) -> type[BaseModel]:
    """The model that describes a form; each is made once."""
    if form.name not in _models:
        _models[form.name] = _make_model(form)
    return _models[form.name]


def _make_model(form: Form[Any]) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for name, converter in {**form.converters, **form.extra}.items():
        is_taken = hasattr(BaseModel, name)  # such as `schema`
        notes = {**converter.notes, **({"alias": name} if is_taken else {})}
        fields[f"{name}_" if is_taken else name] = (_annotation(converter.type), Field(**notes))
    base = OpenModel if form.is_open else Model
    model: type[BaseModel] = create_model(
        form.name, __base__=base, __module__=__name__, __doc__=_about(form.of), **fields
    )
    if form.example is not None:
        model.model_config["json_schema_extra"] = {"examples": [dict(form.example)]}
        model.model_rebuild(force=True)
    return model


def _about(of: type[Any]) -> str | None:
    """The docstring of a dataclass, unless it is the signature that `dataclass` generates."""
    text = None if of is object else of.__doc__
    return None if text is None or text.startswith(f"{of.__name__}(") else inspect.cleandoc(text)


def _annotation(type: Any) -> Any:
    if isinstance(type, Form):
        return model_of(type)
    if isinstance(type, ListOf):
        return list[_annotation(type.item)]  # type: ignore[misc]
    if isinstance(type, Nullable):
        return _annotation(type.item) | None
    if type is AnyJson:
        return JsonValue
    if type == dict[str, AnyJson]:
        return dict[str, JsonValue]
    parts = getattr(type, "__args__", ())
    return reduce(or_, map(_annotation, parts)) if dict[str, AnyJson] in parts else type


def _responses(operation: Operation) -> dict[int | str, dict[str, Any]]:
    done: dict[str, Any] = {"description": operation.done}
    if operation.result is not None:
        done["model"] = model_of(operation.result)
        if operation.light is not None:
            done["model"] = model_of(operation.light) | done["model"]
    else:
        done["content"] = _text(operation)
    if operation.links:
        done["links"] = {
            name: {"operationId": link.operation, "parameters": dict(link.parameters)}
            for name, link in operation.links.items()
        }
    if operation.etag:
        done["headers"] = {"ETag": {"description": "The revision and its time.", "schema": {"type": "string"}}}
    statuses = (*operation.statuses, *(WRITE_STATUSES if operation.is_once else ()))
    responses = documented(done, *statuses, success=operation.status)
    if operation.etag and operation.is_read:
        responses |= NOT_MODIFIED
    if operation.again is not None:
        responses[200] = {"description": operation.again, "model": done["model"]}
    return responses


def _text(operation: Operation) -> dict[str, Any]:
    assert operation.text is not None
    example = {} if operation.example is None else {"example": operation.example}
    return {operation.text: {"schema": {"type": "string"}, **example}}


def _request_body(operation: Operation) -> dict[str, Any] | None:
    if operation.text is None or operation.result is None:
        return None
    binary: dict[str, Any] = {"application/octet-stream": {}} if operation.text == transfer.MEDIA_TYPE else {}
    return {"requestBody": {"required": True, "content": {**_text(operation), **binary}}}


# Handlers: the service


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
    below, after, limit = (call.arguments[name] for name in ("below", "after", "limit"))
    found = principal_of(call.request).namespaces(
        service_of(call.request).book,
        below,
        after=None if after is None else parse_namespace(after),
        limit=limit + 1,
        emptied=call.arguments["emptied"],
        kinds=call.arguments["kinds"],
        history=call.arguments["history"],
    )
    page = tuple(found[:limit])
    more = next_page(call.request, "/".join(page[-1]), "after") if len(found) > limit else None
    return Answer(NamespacePage(page), {"next": more})


def get_store_stats(call: Call) -> StoreStats:
    if principal_of(call.request).reach != "all":
        raise Forbidden("these credentials do not reach the whole store; GET /v1/stats counts its own namespace")
    return service_of(call.request).book.stats()


# Handlers: files


def read_file(call: Call) -> Response:
    path, as_of = call.arguments["path"], call.arguments["as_of"]
    files = call.space.files
    if as_of is not None:
        return Response(files.read(path, as_of=as_of), media_type="text/plain")
    # Read the ETag before the text: If-Match refuses one that is too old, but one that is too new would lose an update.
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


# Handlers: search and history


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
    """The hits, and on request one text for a prompt."""
    options = dict(call.arguments)
    is_wrapped = options.pop("wrapped", False)
    if options.pop("everywhere", False):
        found = principal_of(call.request).root(service_of(call.request).book).search(**{**options, "below": True})
    else:
        found = call.space.search(**options)
    return found, hits_as_data(found) if is_wrapped else None


def list_items_below(call: Call) -> tuple[Item, ...]:
    options = dict(call.arguments)
    is_everywhere = options.pop("everywhere", False)
    space = principal_of(call.request).root(service_of(call.request).book) if is_everywhere else call.space
    return space.items.list_below(**options)


def list_history(call: Call) -> RevisionPage:
    return _page(call, call.space.history(*_entry(call)))


def working_history(call: Call) -> RevisionPage:
    owner = {name: call.arguments[name] for name in ("resource", "thread")}
    return _page(call, call.space.threads.working.history(**owner))


def _page(call: Call, revisions: list[Revision]) -> RevisionPage:
    """A page of a history; the cursor is the last revision of the previous page."""
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


# The routes

# Handlers: the feed


def list_changes(call: Call) -> Response | Answer:
    after, limit = call.arguments["after"], call.arguments["limit"]
    try:
        found = call.space.changes(after, limit)
    except Conflict as error:
        return problem_response(error, BY_CODE["resync"])
    last = found[-1].commit if found else after
    # A page that is not full may still end before a commit that did not fit.
    more = next_page(call.request, str(last), "after") if found and call.space.changes(last, 1) else None
    return Answer(ChangePage(tuple(found), last), {"next": more})


async def follow_changes(call: Call) -> Response:
    start = await in_thread(start_of, call.space, call.arguments["after"], call.arguments["last_event_id"])
    try:
        return await stream_changes(call.request, call.space, start, commit_event)
    except Conflict as error:
        return problem_response(error, BY_CODE["resync"])


HANDLERS: Mapping[str, Callable[[Call], Any]] = {
    **{
        handler.__name__: handler
        for handler in (
            get_caller,
            list_problems,
            list_namespaces,
            get_store_stats,
            read_file,
            edit_file,
            search_by_query,
            search,
            list_items_below,
            list_history,
            working_history,
            get_state,
            purge,
            list_changes,
            follow_changes,
        )
    },
    **transfer.HANDLERS,
}


def _endpoint(operation: Operation) -> Any:
    handler = HANDLERS.get(operation.name)

    async def awaited(**given: Any) -> Response:
        assert handler is not None
        call = _call(operation, given)
        return _answer(operation, call, await handler(call))

    def called(**given: Any) -> Response:
        call = _call(operation, given)
        return _answer(operation, call, _run(operation, call) if handler is None else handler(call))

    endpoint: Any = awaited if inspect.iscoroutinefunction(handler) else called
    endpoint.__name__ = operation.name
    endpoint.__signature__ = inspect.Signature([*_parameters(operation)])
    return endpoint


def make_router() -> APIRouter:
    """All of `/v1` in one flat list, because nested routers match every route twice."""
    router = APIRouter(generate_unique_id_function=lambda route: route.name, route_class=ThreadedRoute)
    for operation in BUSIEST_FIRST:
        options: dict[str, Any] = {"response_class": Response} if operation.result is None else {}
        router.add_api_route(
            re.sub(r"\{(\w+)\}$", r"{\1:tail}", operation.address),
            _endpoint(operation),
            methods=[operation.method],
            name=operation.name,
            operation_id=operation.name,
            summary=operation.summary,
            description=operation.about,
            tags=[operation.group],
            status_code=operation.status,
            response_model=None,
            responses=_responses(operation),
            openapi_extra=_request_body(operation),
            **options,
        )
    return router


router = make_router()
