"""The profiles: which tools a client gets, so that its context stays small. Listing them opens no store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from commonplace.errors import CommonplaceError, InvalidInput
from commonplace.server.mcp.lazy_memory import THREAD, Memory
from commonplace.space.space import Space
from commonplace.tools.as_data import as_data
from commonplace.tools.claude import ClaudeMemoryTool
from commonplace.tools.conversation_tools import MESSAGE_ADD, ConversationTools
from commonplace.tools.conversation_tools import TOOLS as CONVERSATION_TOOLS
from commonplace.tools.fact_tools import create_manage_memory_tool, create_search_memory_tool
from commonplace.tools.memory_store import InMemoryMemoryStore
from commonplace.tools.namespace_template import NamespaceTemplate
from commonplace.tools.record_tools import TOOLS as RECORD_TOOLS
from commonplace.tools.tool import ANSWER_CHARACTERS, ToolAnswer, ToolSpec, refusal
from commonplace.tools.unified import UnifiedMemoryTool
from commonplace.tools.working_memory_tool import TOOL_NAME as UPDATE_WORKING_MEMORY

__all__ = ["PROFILES", "Profile", "ToolAnswer", "Toolbox", "check_profile"]

Profile = Literal["records", "files", "claude", "facts", "conversations", "all"]
PROFILES: tuple[Profile, ...] = get_args(Profile)

Call = Callable[[Memory, Mapping[str, Any]], ToolAnswer]
_WRITES_THAT_QUOTE = ("memory", "claude_memory", MESSAGE_ADD.name)
"""Tools that write, and that answer with stored text."""

_REFUSALS_THAT_QUOTE = (MESSAGE_ADD.name, UPDATE_WORKING_MEMORY)
"""Tools whose errors may quote stored text: the id of another thread, a field that was not sent."""


def check_profile(name: str) -> Profile:
    for profile in PROFILES:
        if profile == name:
            return profile
    raise InvalidInput(f"unknown profile {name!r}; use one of {', '.join(PROFILES)}")


_READING_ACTIONS = frozenset(("read", "list", "view"))
"""The values of `action` or `command` that only read, in tools that also write."""


class Toolbox:
    """The tools of a profile, by name."""

    def __init__(self, memory: Memory, profile: Profile) -> None:
        self._memory = memory
        self._tools = {spec.name: (spec, call) for spec, call in _tools_of(profile)}
        self._wrapped = {
            name
            for name, (spec, _) in self._tools.items()
            if memory.wraps_results and (spec.is_read_only or name in _WRITES_THAT_QUOTE)
        }
        # A wrapped result is a text. Structured content would reach the model without its marks.
        self.specs = [
            _wire(replace(spec, output_schema={}) if name in self._wrapped else spec)
            for name, (spec, _) in self._tools.items()
        ]

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def only_reads(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Whether a call only reads, as far as its arguments show."""
        named = arguments.get("action", arguments.get("command"))
        return self._tools[name][0].is_read_only or (isinstance(named, str) and named in _READING_ACTIONS)

    def call(self, name: str, arguments: Mapping[str, Any]) -> ToolAnswer:
        """Run a tool. An error is an answer too, which a model can act on."""
        _, call = self._tools[name]
        try:
            answer = call(self._memory, arguments)
        except CommonplaceError as error:
            return refusal(str(error))
        quotes = name in (_REFUSALS_THAT_QUOTE if answer.is_error else self._wrapped)
        if not (quotes and self._memory.wraps_results):
            return answer
        return ToolAnswer(as_data("\n".join(answer.texts)), is_error=answer.is_error)


def _tools_of(profile: Profile) -> list[tuple[ToolSpec, Call]]:
    if profile == "records":
        return _record_tools()
    if profile == "files":
        return [_unified("memory")]
    if profile == "claude":
        return [_claude("memory")]
    if profile == "facts":
        return _fact_tools()
    if profile == "conversations":
        return _conversation_tools()
    files = [_unified("memory"), _claude("claude_memory")]
    facts = [(_with_hint(spec), call) for spec, call in _fact_tools()]
    return [*_record_tools(), *files, *facts, *_conversation_tools()]


def _with_hint(spec: ToolSpec) -> ToolSpec:
    if spec.name != "search_memory":
        return spec
    which = "Only facts and other records, in full; memory_search looks everywhere and gives summaries: prefer it."
    return replace(spec, description=f"{spec.description} {which}")


def _record_tools() -> list[tuple[ToolSpec, Call]]:
    def call_of(spec: ToolSpec) -> Call:
        return lambda memory, arguments: memory.records.call(spec.name, arguments)

    return [(spec, call_of(spec)) for spec in RECORD_TOOLS]


def _unified(name: str) -> tuple[ToolSpec, Call]:
    tool = UnifiedMemoryTool(name=name, max_characters=ANSWER_CHARACTERS)

    def call(memory: Memory, arguments: Mapping[str, Any]) -> ToolAnswer:
        tool = UnifiedMemoryTool(memory, name=name, max_characters=ANSWER_CHARACTERS)
        answer = tool.answer(arguments, thread_id=THREAD.get())
        return answer.as_answer()

    members = {"command": {"type": "string"}, "path": {"type": "string"}, "ok": {"type": "boolean"}}
    output = {
        "type": "object",
        "properties": {**members, "result": {"type": "object"}},
        "required": [*members, "result"],
    }
    return ToolSpec(name, "Memory files", tool.description, tool.parameters(), output, False, True, False), call


def _claude(name: str) -> tuple[ToolSpec, Call]:
    tool = ClaudeMemoryTool(InMemoryMemoryStore())

    def call(memory: Memory, arguments: Mapping[str, Any]) -> ToolAnswer:
        space = memory.files_space(THREAD.get())
        return ClaudeMemoryTool(space, memory.wording, max_characters=ANSWER_CHARACTERS).call(arguments)

    return ToolSpec(name, "Memory directory", tool.description, tool.input_schema, {}, False, True, False), call


@dataclass(frozen=True)
class _OneSpace:
    """The server's own space, whatever namespace a tool asks for."""

    memory: Memory

    def space(self, *labels: str) -> Space:
        return self.memory.space


def _fact_tools() -> list[tuple[ToolSpec, Call]]:
    place = NamespaceTemplate(("mcp",))

    def manage(memory: Memory, arguments: Mapping[str, Any]) -> ToolAnswer:
        return create_manage_memory_tool(place, store=_OneSpace(memory)).answer(arguments)

    def search(memory: Memory, arguments: Mapping[str, Any]) -> ToolAnswer:
        return create_search_memory_tool(place, store=_OneSpace(memory)).answer(arguments)

    return [(create_manage_memory_tool(place).spec, manage), (create_search_memory_tool(place).spec, search)]


def _conversation_tools() -> list[tuple[ToolSpec, Call]]:
    def call_of(spec: ToolSpec) -> Call:
        return lambda memory, arguments: ConversationTools(memory.space).call(spec.name, arguments)

    return [(spec, call_of(spec)) for spec in CONVERSATION_TOOLS]


def _wire(spec: ToolSpec) -> dict[str, Any]:
    """A tool as `tools/list` shows it. A tool that answers with plain text has no output schema."""
    hints = {"readOnlyHint": spec.is_read_only, "openWorldHint": False}
    if not spec.is_read_only:
        hints |= {"destructiveHint": spec.is_destructive, "idempotentHint": spec.is_idempotent}
    return {
        "name": spec.name,
        "title": spec.title,
        "description": spec.description,
        "inputSchema": spec.input_schema,
        **({"outputSchema": spec.output_schema} if spec.output_schema else {}),
        "annotations": hints,
    }
