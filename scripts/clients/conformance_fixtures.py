"""The tools, resources and prompts that the conformance suite requires of every server, mounted on ours.

They run behind our own middleware and next to our own handlers, which get all other requests. The suite prescribes
names and answers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server

Context = ServerRequestContext[Any, Any]
Params = Any
Handler = Callable[[Context, Params], Awaitable[Any]]

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
_TEXT = {"type": "text", "text": "This is a simple text response for testing."}
_IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}
_AUDIO = {"type": "audio", "data": WAV, "mimeType": "audio/wav"}
_SCHEMA_2020 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def _embedded(uri: str, text: str) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": "text/plain", "text": text}}


TOOLS: dict[str, list[dict[str, Any]]] = {
    "test_simple_text": [_TEXT],
    "test_image_content": [_IMAGE],
    "test_audio_content": [_AUDIO],
    "test_embedded_resource": [_embedded("test://embedded-resource", "This is an embedded resource content.")],
    "test_multiple_content_types": [_TEXT, _IMAGE, _embedded("test://mixed-content-resource", '{"test": "data"}')],
    "test_error_handling": [{"type": "text", "text": "This tool intentionally returns an error for testing"}],
    "test_tool_with_progress": [{"type": "text", "text": "done"}],
    "test_logging_tool": [{"type": "text", "text": "nothing to log"}],
    "json_schema_2020_12_tool": [{"type": "text", "text": "ok"}],
}
RESOURCES: dict[str, dict[str, str]] = {
    "test://static-text": {"mimeType": "text/plain", "text": "This is the content of the static text resource."},
    "test://static-binary": {"mimeType": "image/png", "blob": PNG},
}
_TEMPLATE = re.compile(r"test://template/([^/]+)/data")
PROMPTS: dict[str, list[str]] = {
    "test_simple_prompt": [],
    "test_prompt_with_arguments": ["arg1", "arg2"],
    "test_prompt_with_embedded_resource": ["resourceUri"],
    "test_prompt_with_image": [],
}


def mount(server: Server[Any]) -> Server[Any]:
    """The same server, with the fixtures."""
    for method, wrap in (
        ("tools/list", _list_tools),
        ("tools/call", _call_tool),
        ("resources/list", _list_resources),
        ("resources/read", _read_resource),
        ("resources/subscribe", _watch),
        ("resources/unsubscribe", _watch),
        ("prompts/list", _list_prompts),
        ("prompts/get", _get_prompt),
        ("completion/complete", _complete),
    ):
        entry = server.get_request_handler(method)
        if entry is None:
            raise LookupError(f"our server does not answer {method}")
        server.add_request_handler(method, entry.params_type, wrap(entry.handler))
    return server


def _list_tools(ours: Handler) -> Handler:
    async def handle(context: Context, params: Params) -> Any:
        result = await ours(context, params)
        for name in TOOLS:
            schema = _SCHEMA_2020 if name == "json_schema_2020_12_tool" else {"type": "object"}
            result.tools.append(types.Tool(name=name, description="A fixture.", input_schema=schema))
        return result

    return handle


def _call_tool(ours: Handler) -> Handler:
    async def handle(context: Context, params: Params) -> Any:
        if params.name not in TOOLS:
            return await ours(context, params)
        if params.name == "test_tool_with_progress":
            for progress in (0, 50, 100):
                await context.session.report_progress(progress, 100)
                await anyio.sleep(0.05)
        is_error = params.name == "test_error_handling"
        return types.CallToolResult.model_validate({"content": TOOLS[params.name], "isError": is_error})

    return handle


def _list_resources(ours: Handler) -> Handler:
    async def handle(context: Context, params: Params) -> Any:
        result = await ours(context, params)
        result.resources += [types.Resource(uri=uri, name=uri) for uri in RESOURCES]
        return result

    return handle


def _read_resource(ours: Handler) -> Handler:
    async def handle(context: Context, params: Params) -> Any:
        uri = str(params.uri)
        contents = RESOURCES.get(uri)
        if match := _TEMPLATE.fullmatch(uri):
            data = {"id": match[1], "templateTest": True, "data": f"Data for ID: {match[1]}"}
            contents = {"mimeType": "application/json", "text": json.dumps(data)}
        if contents is None:
            return await ours(context, params)
        return types.ReadResourceResult.model_validate({"contents": [{"uri": uri, **contents}]})

    return handle


def _watch(ours: Handler) -> Handler:
    """The suite's own address is mapped to one of ours, so that our subscriptions answer."""

    async def handle(context: Context, params: Params) -> Any:
        if str(params.uri) == "test://watched-resource":
            params = params.model_copy(update={"uri": "mem://recent"})
        return await ours(context, params)

    return handle


def _list_prompts(ours: Handler) -> Handler:
    async def handle(context: Context, params: Params) -> Any:
        result = await ours(context, params)
        for name, words in PROMPTS.items():
            arguments = [types.PromptArgument(name=word, description="A fixture.", required=True) for word in words]
            result.prompts.append(types.Prompt(name=name, description="A fixture.", arguments=arguments))
        return result

    return handle


def _get_prompt(ours: Handler) -> Handler:
    async def handle(context: Context, params: Params) -> Any:
        if params.name not in PROMPTS:
            return await ours(context, params)
        given = [(params.arguments or {}).get(word, "") for word in PROMPTS[params.name]]
        words = "This is a simple prompt for testing."
        if params.name == "test_prompt_with_arguments":
            words = f"Prompt with arguments: arg1='{given[0]}', arg2='{given[1]}'"
        contents: list[dict[str, Any]] = [{"type": "text", "text": words}]
        if params.name == "test_prompt_with_embedded_resource":
            contents.insert(0, _embedded(given[0], "Embedded resource content for testing."))
        if params.name == "test_prompt_with_image":
            contents.insert(0, _IMAGE)
        messages = [{"role": "user", "content": content} for content in contents]
        return types.GetPromptResult.model_validate({"messages": messages})

    return handle


def _complete(ours: Handler) -> Handler:
    """The suite's own prompt is mapped to one of ours, so that our completion answers."""

    async def handle(context: Context, params: Params) -> Any:
        if getattr(params.ref, "name", None) in PROMPTS:
            params = params.model_copy(update={"ref": types.PromptReference(name="memory_recall")})
        return await ours(context, params)

    return handle
