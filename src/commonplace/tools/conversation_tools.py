"""The conversation tools on one space: list, read and search threads, save messages, read and update working memory.

They only word requests and answers; `space.threads` has the rules. A tool does not raise for a wrong call: its answer
says what to correct. The working memory is the one of the namespace's own resource, with the default schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from commonplace.checks import JSON, moment
from commonplace.entry import Hit
from commonplace.errors import InvalidInput
from commonplace.space.conversation import Thread
from commonplace.space.message_text import searchable_text
from commonplace.space.messages import ROLES, Message
from commonplace.space.names import MESSAGE
from commonplace.space.space import Space
from commonplace.space.titles import local_title, untitled_text
from commonplace.tools.record_tools import iso, similarity, uri_of
from commonplace.tools.tool import (
    ANSWER_CHARACTERS,
    STRING,
    STRINGS,
    Arguments,
    ToolAnswer,
    ToolSpec,
    call_tool,
    input_schema,
    list_schema,
    object_schema,
)
from commonplace.tools.working_memory_tool import TOOL_NAME, WorkingMemoryOptions, WorkingMemoryTool, tool_spec

LIST_LIMIT = 20
READ_LIMIT = 10
SEARCH_LIMIT = 10
MAX_READ = 100
MAX_FOUND = 50


# What a model reads

_COUNT = {"type": "integer", "minimum": 1}
_THREAD = {
    "id": STRING,
    "title": {"type": ["string", "null"]},
    "createdAt": STRING,
    "updatedAt": STRING,
}
_MESSAGE = {"id": STRING, "threadId": STRING, "role": STRING, "text": STRING, "createdAt": STRING, "content": {}}

THREAD_LIST = ToolSpec(
    name="thread_list",
    title="List conversations",
    description="List the conversations, the one used last first: ids, titles and times.",
    input_schema=input_schema(
        [],
        limit={**_COUNT, "description": f"How many at most (20, up to {MAX_READ})."},
        cursor={"type": "string", "description": "nextCursor of the previous page."},
    ),
    output_schema=object_schema(["items"], items=list_schema(object_schema([*_THREAD], **_THREAD)), nextCursor=STRING),
    is_read_only=True,
    is_destructive=False,
    is_idempotent=True,
)

THREAD_READ = ToolSpec(
    name="thread_read",
    title="Read a conversation",
    description=(
        "Read a conversation in time order: its last messages; with a query, also relevant ones with their "
        "neighbours; or, with around, one message and those around it."
    ),
    input_schema=input_schema(
        ["thread"],
        thread={"type": "string", "description": "The id of the conversation."},
        last={
            "type": "integer",
            "minimum": 0,
            "description": f"How many of the last messages (10, up to {MAX_READ}); with around, how many on each side.",
        },
        query={"type": "string", "minLength": 1, "description": "What to look for, in words."},
        around={"type": "string", "description": "The id of a message, such as one that conversation_search found."},
    ),
    output_schema=object_schema(
        ["thread", "items"],
        thread=object_schema([*_THREAD], **_THREAD),
        items=list_schema(object_schema(["id", "role", "content", "createdAt"], **_MESSAGE)),
        notices=STRINGS,
    ),
    is_read_only=True,
    is_destructive=False,
    is_idempotent=True,
)

CONVERSATION_SEARCH = ToolSpec(
    name="conversation_search",
    title="Search conversations",
    description=(
        "Find messages of any conversation by meaning and by words, the best first. The hits are snippets: read one in "
        "its place with thread_read and around."
    ),
    input_schema=input_schema(
        ["query"],
        query={"type": "string", "minLength": 1, "maxLength": 1000, "description": "Short and specific."},
        limit={**_COUNT, "description": f"How many at most (10, up to {MAX_FOUND})."},
    ),
    output_schema=object_schema(
        ["items"],
        items=list_schema(
            object_schema(
                ["id", "threadId", "role", "text", "createdAt", "similarity"],
                **_MESSAGE,
                similarity={"type": "number"},
            )
        ),
        notices=STRINGS,
    ),
    is_read_only=True,
    is_destructive=False,
    is_idempotent=True,
)

MESSAGE_ADD = ToolSpec(
    name="message_add",
    title="Save messages",
    description=(
        "Save messages of a conversation, all or none, in their order. Without a thread a new conversation begins; it "
        "is titled after its first user message. A message that has an id is saved once, however often it is sent."
    ),
    input_schema=input_schema(
        ["messages"],
        messages={
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "properties": {
                    "role": {"type": "string", "enum": [*ROLES]},
                    "content": {
                        "description": "A text, or a list of parts.",
                        "anyOf": [{"type": "string"}, {"type": "array"}, {"type": "object"}],
                    },
                    "id": STRING,
                    "createdAt": {"type": "string", "description": "ISO 8601; left out, now."},
                },
                "required": ["role", "content"],
            },
        },
        thread={"type": "string", "description": "The id of the conversation; left out, a new one begins."},
        title={"type": "string", "description": "For a new conversation."},
    ),
    output_schema=object_schema(
        ["thread", "items"],
        thread=object_schema([*_THREAD], **_THREAD),
        items=list_schema(object_schema(["id", "createdAt"], id=STRING, createdAt=STRING)),
    ),
    is_read_only=False,
    is_destructive=False,
    is_idempotent=False,
)

WORKING_MEMORY_READ = ToolSpec(
    name="working_memory_read",
    title="Read working memory",
    description=(
        "Read what to remember about the user in all conversations: preferences, projects, context, decisions. "
        "Read it first in a conversation; updateWorkingMemory changes it."
    ),
    input_schema=input_schema([]),
    output_schema=object_schema(["memory"], memory={"type": ["object", "string", "null"]}, updatedAt=STRING),
    is_read_only=True,
    is_destructive=False,
    is_idempotent=True,
)

TOOLS = (
    THREAD_LIST,
    THREAD_READ,
    CONVERSATION_SEARCH,
    MESSAGE_ADD,
    WORKING_MEMORY_READ,
    tool_spec(WorkingMemoryOptions()),
)
_SPECS = {tool.name: tool for tool in TOOLS}


# The tools


class ConversationTools:
    """The six tools of one space."""

    def __init__(self, space: Space, options: WorkingMemoryOptions | None = None) -> None:
        self.space = space
        self.working = WorkingMemoryTool(space, options)
        self._run: dict[str, Callable[[Arguments], ToolAnswer]] = {
            THREAD_LIST.name: self._list,
            THREAD_READ.name: self._read,
            CONVERSATION_SEARCH.name: self._search,
            MESSAGE_ADD.name: self._add,
            WORKING_MEMORY_READ.name: self._read_working,
        }

    def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolAnswer:
        """Run one of `TOOLS` by its name."""
        if tool == TOOL_NAME:
            return self.working.call(arguments)
        return call_tool(_SPECS[tool], self._run[tool], arguments)

    def _list(self, given: Arguments) -> ToolAnswer:
        page = self.space.threads.list(limit=given.limit(LIST_LIMIT, MAX_READ), cursor=given.optional_text("cursor"))
        items = [*map(_thread_item, page.threads)]
        lines = [f"• {item['id']} {item['title'] or '(no title)'} (last used {item['updatedAt']})" for item in items]
        more: dict[str, Any] = {} if page.cursor is None else {"nextCursor": page.cursor}
        if page.cursor is not None:
            lines.append(f"More with cursor {page.cursor}")
        return ToolAnswer("\n".join(lines) or "No conversations yet.", structured={"items": items, **more})

    def _read(self, given: Arguments) -> ToolAnswer:
        threads = self.space.threads
        thread = threads.get(given.text("thread"))
        around, query = given.optional_text("around"), given.optional_text("query")
        last = min(given.count("last", READ_LIMIT), MAX_READ)
        notices: tuple[str, ...] = ()
        found: Iterable[Message]
        if around is not None:
            if query is not None:
                raise InvalidInput("query and around ask for different messages; give one of them")
            found = threads.around(around, before=last, after=last)
            if found[0].thread_id != thread.id:
                raise InvalidInput(
                    f"message {around} is not in thread {thread.id}; leave out around, or name its thread"
                )
        elif query is not None:
            found = recalled = threads.recall(thread.id, query=query, last=last)
            notices = recalled.notices
        else:
            found = threads.messages(thread.id, last=last).messages
        items = _fitting([*map(_message_item, found)])
        structured = {"thread": _thread_item(thread), "items": items, **({"notices": [*notices]} if notices else {})}
        return ToolAnswer("\n".join([_heading(thread), *map(_line, items)]), structured=structured, notices=notices)

    def _search(self, given: Arguments) -> ToolAnswer:
        limit = given.limit(SEARCH_LIMIT, MAX_FOUND)
        found = self.space.search(given.query(), limit=limit, kinds=[MESSAGE])
        items = [*map(_hit_item, found)]
        lines = [f"thread {item['threadId']} message {item['id']} {_line(item)}" for item in items]
        notices = {"notices": [*found.notices]} if found.notices else {}
        return ToolAnswer(
            "\n".join(lines) or "No messages found.", structured={"items": items, **notices}, notices=found.notices
        )

    def _add(self, given: Arguments) -> ToolAnswer:
        threads = self.space.threads
        messages, id, title = given.get("messages"), given.optional_text("thread"), given.optional_text("title")
        if not isinstance(messages, list) or not messages:
            raise InvalidInput('messages must be a list, such as [{"role": "user", "content": "…"}]')
        if id is not None and title is not None:
            raise InvalidInput("title is for a new conversation; leave it out, or leave out thread")
        saved = threads.begin(messages, title) if id is None else threads.add(id, messages)
        thread = threads.get(saved[0].thread_id if id is None else id)
        text = untitled_text(threads.messages, thread)
        if text is not None and (made := local_title(text)) is not None:
            thread = threads.suggest_title(thread.id, made)
        items = [{"id": message.id, "createdAt": iso(message.created_at)} for message in saved]
        count = "1 message" if len(items) == 1 else f"{len(items)} messages"
        return ToolAnswer(
            f"{count} saved.\n{_heading(thread)}", structured={"thread": _thread_item(thread), "items": items}
        )

    def _read_working(self, given: Arguments) -> ToolAnswer:
        present = self.working.read()
        if present is None:
            return ToolAnswer("The working memory is empty.", structured={"memory": None})
        content = present.content
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, indent=2, default=dict)
        return ToolAnswer(text, structured={"memory": content, "updatedAt": iso(present.updated_at)})


def _thread_item(thread: Thread) -> dict[str, Any]:
    return {
        "id": thread.id,
        "title": thread.title,
        "createdAt": iso(thread.created_at),
        "updatedAt": iso(thread.updated_at),
    }


def _message_item(message: Message) -> dict[str, Any]:
    """A message in full; `text` has only its words."""
    words = searchable_text({**message.extra, "content": message.content})
    return {
        **_item(message.id, message.thread_id, message.role, words, iso(message.created_at)),
        "content": message.content,
    }


def _fitting(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages. If they do not fit into one answer, long ones are cut."""
    lengths = [len(json.dumps(item["content"], ensure_ascii=False, default=dict)) for item in items]
    if sum(lengths) + sum(len(item["text"]) for item in items) <= ANSWER_CHARACTERS:
        return items
    most = max(ANSWER_CHARACTERS // (2 * len(items)), 200)  # an item has both its words and its content
    return [item if length <= most else _cut(item, most, length) for item, length in zip(items, lengths, strict=True)]


def _cut(item: dict[str, Any], most: int, length: int) -> dict[str, Any]:
    whole = f"{length:,} characters at {uri_of(MESSAGE, item['id'])}"
    text = f"{item['text'][:most]}… [cut; the whole message has {whole}]"
    return {**item, "text": text, "content": text}


def _hit_item(hit: Hit) -> dict[str, Any]:
    attributes = cast("Mapping[str, str]", hit.entry.attributes)
    created = iso(moment(hit.entry.created_at))
    item = _item(hit.key, attributes["threadId"], attributes["role"], hit.snippet, created)
    return {**item, "similarity": similarity(hit)}


def _item(id: str, thread_id: str, role: str, text: str, created_at: str) -> dict[str, JSON]:
    return {"id": id, "threadId": thread_id, "role": role, "text": text, "createdAt": created_at}


def _heading(thread: Thread) -> str:
    return f"Thread {thread.id}: {thread.title or '(no title)'}"


def _line(item: Mapping[str, Any]) -> str:
    return f"[{item['createdAt']}] {item['role']}: {item['text']}"
