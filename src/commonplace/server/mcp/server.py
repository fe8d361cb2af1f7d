"""The MCP server of one memory: the tools, resources and prompts of its profile, for every revision of the protocol."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from functools import partial
from typing import Any, Protocol, TypeVar

import anyio
import mcp_types as types
from anyio.to_thread import run_sync
from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from commonplace import __version__
from commonplace.errors import CommonplaceError
from commonplace.server.mcp.jsonrpc import HANDSHAKE, has_links
from commonplace.server.mcp.lazy_memory import CLIENT, THREAD, Memory, client_word
from commonplace.server.mcp.profiles import Profile, ToolAnswer, Toolbox
from commonplace.server.mcp.prompts import instructions, prompts_for, render
from commonplace.server.mcp.resources import RESOURCES, TEMPLATES, TEXT_TYPE, Watcher, complete, read
from commonplace.tools.tool import wire_text

FAILED = -32000
NOT_INITIALIZED = -32002
_BEFORE_INITIALIZE = ("initialize", "ping")

TEXT_CLIENTS = ("claude-code",)
"""Clients that show their model the structured content and every link instead of the text, which says the same in less
than half of the tokens. They get the text alone; decision 012 has the figures."""

Context = ServerRequestContext[Any, Any]
T = TypeVar("T")
_log = logging.getLogger(__name__)

ToolCalls = Counter[tuple[str, str, str]]
"""How often tools were called, by profile, tool, and `ok` or `refused`. Counted on the event loop only."""


class Run(Protocol):
    """Runs work in a thread; `writes` says whether it may change something."""

    def __call__(self, work: Callable[[], T], writes: bool) -> Awaitable[T]: ...


async def run_in_thread(work: Callable[[], T], writes: bool) -> T:
    return await run_sync(work)


def _one_by_one() -> Run:
    turn = anyio.Lock()

    async def run(work: Callable[[], T], writes: bool) -> T:
        async with turn:
            return await run_in_thread(work, writes)

    return run


def build_server(
    memory: Memory,
    profile: Profile = "records",
    *,
    is_stdio: bool = False,
    run: Run = run_in_thread,
    tool_calls: ToolCalls | None = None,
) -> Server[Any]:
    """A server for one namespace. On stdio it answers one call after another, and only after `initialize`.

    It counts the calls of its tools in `tool_calls`, if you pass it.
    """
    watcher = Watcher(memory)
    counted = Counter() if tool_calls is None else tool_calls
    handlers = _Handlers(memory, profile, watcher, _one_by_one() if is_stdio else run, counted)
    server: Server[Any] = Server(
        "commonplace",
        version=__version__,
        title="Commonplace memory",
        instructions=instructions(profile),
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_templates,
        on_read_resource=handlers.read_resource,
        on_list_prompts=handlers.list_prompts,
        on_get_prompt=handlers.get_prompt,
        on_completion=handlers.complete,
        on_subscribe_resource=watcher.subscribe,
        on_unsubscribe_resource=watcher.unsubscribe,
        on_subscriptions_listen=watcher.listen,
        lifespan=watcher.lifespan,
    )
    middleware: list[ServerMiddleware[Any]] = [_translated_errors, _named_client, _first_page]
    server.middleware = [*middleware, _after_initialize] if is_stdio else middleware
    return server


async def _after_initialize(ctx: Context, call_next: CallNext) -> HandlerResult:
    is_closed = ctx.session.client_params is None and ctx.protocol_version in HANDSHAKE
    if is_closed and ctx.request_id is not None and ctx.method not in _BEFORE_INITIALIZE:
        raise MCPError(NOT_INITIALIZED, "Server not initialized")
    return await call_next(ctx)


async def _named_client(ctx: Context, call_next: CallNext) -> HandlerResult:
    said = ctx.session.client_params
    named = CLIENT.set(None if said is None else client_word(said.client_info.name))
    try:
        return await call_next(ctx)
    finally:
        CLIENT.reset(named)


async def _translated_errors(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Our errors as JSON-RPC errors with their text. An unexpected error is logged."""
    try:
        return await call_next(ctx)
    except MCPError as error:
        if error.code == types.METHOD_NOT_FOUND and error.error.data == ctx.method:
            raise MCPError(types.METHOD_NOT_FOUND, f"Method not found: {ctx.method[:100]}") from error
        raise
    except ValidationError as error:
        raise MCPError(types.INVALID_PARAMS, wire_text(f"Invalid params: {_first_fault(error)}")) from error
    except CommonplaceError as error:
        raise MCPError(FAILED, wire_text(str(error))) from error
    except Exception as error:
        _log.exception("%s failed", ctx.method)
        raise MCPError(types.INTERNAL_ERROR, f"{ctx.method} failed; the server's log says why") from error


def _first_fault(error: ValidationError) -> str:
    fault = error.errors(include_input=False, include_url=False)[0]
    place = ".".join(str(part) for part in fault["loc"])
    return f"{place}: {fault['msg']}" if place else str(fault["msg"])


class _Handlers:
    """The request handlers. Calls of the memory run in a worker thread."""

    def __init__(self, memory: Memory, profile: Profile, watcher: Watcher, run: Run, tool_calls: ToolCalls) -> None:
        self._memory = memory
        self._watcher = watcher
        self._tools = Toolbox(memory, profile)
        self._prompts = prompts_for(self._tools, profile)
        self._profile = profile
        self._run = run
        self._tool_calls = tool_calls

    async def list_tools(self, context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        specs = self._tools.specs
        if CLIENT.get() in TEXT_CLIENTS:
            specs = [{name: value for name, value in spec.items() if name != "outputSchema"} for spec in specs]
        return types.ListToolsResult(tools=[types.Tool.model_validate(spec) for spec in specs])

    async def call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name not in self._tools:
            names = ", ".join(spec["name"] for spec in self._tools.specs)
            raise MCPError(types.METHOD_NOT_FOUND, f"Unknown tool: {params.name[:100]}; there are {names}")
        arguments = params.arguments or {}
        writes = not self._tools.only_reads(params.name, arguments)
        named = THREAD.set(_thread_of(context.meta))
        try:
            answer = await self._run(partial(self._tools.call, params.name, arguments), writes)
        finally:
            THREAD.reset(named)
        self._tool_calls[self._profile, params.name, "refused" if answer.is_error else "ok"] += 1
        self._watcher.look_now()
        return _result(answer, context.protocol_version)

    async def list_resources(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[types.Resource.model_validate(one) for one in RESOURCES])

    async def list_templates(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(
            resource_templates=[types.ResourceTemplate.model_validate(one) for one in TEMPLATES]
        )

    async def read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        found = await self._run(lambda: read(self._memory, uri), False)
        contents = [types.TextResourceContents(uri=uri, mime_type=found.mime_type, text=found.text)]
        if found.note:
            contents.append(types.TextResourceContents(uri=found.rest, mime_type=TEXT_TYPE, text=found.note))
        return types.ReadResourceResult(contents=[*contents])

    async def list_prompts(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[types.Prompt.model_validate(one) for one in self._prompts])

    async def get_prompt(self, context: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        description, text = await self._run(
            lambda: render(self._memory, params.name, params.arguments or {}, self._prompts, self._profile), False
        )
        message = types.PromptMessage(role="user", content=types.TextContent(type="text", text=text))
        return types.GetPromptResult(description=description, messages=[message])

    async def complete(self, context: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        argument, is_prompt = params.argument, isinstance(params.ref, types.PromptReference)
        self._check_completed(params.ref)
        values = await self._run(
            lambda: complete(self._memory, argument.name, argument.value, is_prompt=is_prompt), False
        )
        return types.CompleteResult(
            completion=types.Completion(values=values[:100], total=len(values), has_more=len(values) > 100)
        )

    def _check_completed(self, ref: types.PromptReference | types.ResourceTemplateReference) -> None:
        if isinstance(ref, types.PromptReference):
            what, named, offered = "prompt", ref.name, [prompt["name"] for prompt in self._prompts]
            is_offered = named in offered
        else:
            what, named, offered = "resource", ref.uri, [template["uriTemplate"] for template in TEMPLATES]
            # A template with values filled in, or with fewer variables, is still that resource.
            is_offered = any(named.startswith(template.partition("{")[0]) for template in offered)
        if not is_offered:
            raise MCPError(types.INVALID_PARAMS, f"Unknown {what}: {named[:100]}; there are {', '.join(offered)}")


async def _first_page(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Each list is a single page without a cursor, so a cursor is an error."""
    if ctx.method.endswith("/list") and (ctx.params or {}).get("cursor"):
        raise MCPError(types.INVALID_PARAMS, "Invalid params: unknown cursor; leave it out, the list is one page")
    return await call_next(ctx)


def _thread_of(meta: Any) -> str | None:
    thread = (meta or {}).get("threadId")
    return thread if isinstance(thread, str) else None


def _result(answer: ToolAnswer, version: str) -> types.CallToolResult:
    text, *notes = (types.TextContent(type="text", text=text) for text in answer.texts)
    if CLIENT.get() in TEXT_CLIENTS:
        return types.CallToolResult(content=[text, *notes], is_error=answer.is_error)
    links = [types.ResourceLink.model_validate(asdict(link)) for link in answer.links] if has_links(version) else []
    content: list[types.ContentBlock] = [text, *links, *notes]
    return types.CallToolResult(content=content, structured_content=_plain(answer.structured), is_error=answer.is_error)


def _plain(structured: dict[str, Any]) -> dict[str, Any] | None:
    """Plain dicts and lists, as the SDK's models need them; None for an error or a plain text."""
    return json.loads(json.dumps(structured, default=dict)) if structured else None
