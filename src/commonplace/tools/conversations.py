"""The conversation tools on one space: threads listed, read and searched, messages saved, working memory kept.

They word requests and answers; the rules live in `space.threads`. A tool never raises for what was sent: the answer
says what to correct. The working memory is that of the namespace's own resource, with the default schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from commonplace.checks import JSON, moment
from commonplace.entry import Hit
from commonplace.errors import CommonplaceError, InvalidInput
from commonplace.space.conversation import Thread
from commonplace.space.message_text import searchable_text
from commonplace.space.messages import Message
from commonplace.space.names import MESSAGE
from commonplace.space.space import Space
from commonplace.space.titles import first_user_text, has_own_title, local_title
from commonplace.tools.conversations_specs import (
    CONVERSATION_SEARCH,
    MAX_FOUND,
    MAX_READ,
    MESSAGE_ADD,
    THREAD_LIST,
    THREAD_READ,
    WORKING_MEMORY_READ,
)
from commonplace.tools.records_answer import ANSWER_CHARACTERS, Answer, iso, refusal, uri_of
from commonplace.tools.records_arguments import Arguments, number
from commonplace.tools.working_memory import TOOL_NAME, WorkingMemoryOptions, WorkingMemoryTool, tool_spec

TOOLS = (
    THREAD_LIST,
    THREAD_READ,
    CONVERSATION_SEARCH,
    MESSAGE_ADD,
    WORKING_MEMORY_READ,
    tool_spec(WorkingMemoryOptions()),
)
LIST_LIMIT = 20
READ_LIMIT = 10
SEARCH_LIMIT = 10
_KNOWN = {tool.name: tuple(tool.input_schema["properties"]) for tool in TOOLS}


class ConversationTools:
    """The six tools of one space."""

    def __init__(self, space: Space, options: WorkingMemoryOptions | None = None) -> None:
        self.space = space
        self.working = WorkingMemoryTool(space, options)
        self._run: dict[str, Callable[[Arguments], Answer]] = {
            THREAD_LIST.name: self._list,
            THREAD_READ.name: self._read,
            CONVERSATION_SEARCH.name: self._search,
            MESSAGE_ADD.name: self._add,
            WORKING_MEMORY_READ.name: self._read_working,
        }

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Answer:
        """Run one of `TOOLS` by its name."""
        if tool == TOOL_NAME:
            return self.working.call(arguments)
        try:
            return self._run[tool](Arguments(tool, arguments, _KNOWN[tool]))
        except CommonplaceError as error:
            return refusal(str(error))

    def _list(self, given: Arguments) -> Answer:
        page = self.space.threads.list(limit=given.limit(LIST_LIMIT, MAX_READ), cursor=given.optional_text("cursor"))
        items = [*map(thread_item, page.threads)]
        lines = [f"• {item['id']} {item['title'] or '(no title)'} (last used {item['updatedAt']})" for item in items]
        more: dict[str, Any] = {} if page.cursor is None else {"nextCursor": page.cursor}
        if page.cursor is not None:
            lines.append(f"More with cursor {page.cursor}")
        return Answer("\n".join(lines) or "No conversations yet.", {"items": items, **more})

    def _read(self, given: Arguments) -> Answer:
        threads = self.space.threads
        thread = threads.get(given.text("thread"))
        around, query = given.optional_text("around"), given.optional_text("query")
        last = _count(given, READ_LIMIT)
        notices: tuple[str, ...] = ()
        found: Iterable[Message]
        if around is not None:
            if query is not None:
                raise InvalidInput("query and around ask for different messages; give one of them")
            if threads.get_message(around).thread_id != thread.id:
                raise InvalidInput(
                    f"message {around} is not in thread {thread.id}; leave out around, or name its thread"
                )
            found = threads.around(around, before=last, after=last)
        elif query is not None:
            found = recalled = threads.recall(thread.id, query=query, last=last)
            notices = recalled.notices
        else:
            found = threads.messages(thread.id, last=last).messages
        items = _fitting([*map(message_item, found)])
        structured = {"thread": thread_item(thread), "items": items, **({"notices": [*notices]} if notices else {})}
        return Answer("\n".join([_heading(thread), *map(_line, items)]), structured, notices=notices)

    def _search(self, given: Arguments) -> Answer:
        limit = given.limit(SEARCH_LIMIT, MAX_FOUND)
        found = self.space.search(given.query(), limit=limit, kinds=[MESSAGE])
        items = [*map(_hit_item, found)]
        lines = [f"thread {item['threadId']} message {item['id']} {_line(item)}" for item in items]
        notices = {"notices": [*found.notices]} if found.notices else {}
        return Answer("\n".join(lines) or "No messages found.", {"items": items, **notices}, notices=found.notices)

    def _add(self, given: Arguments) -> Answer:
        threads = self.space.threads
        messages, id, title = given.get("messages"), given.optional_text("thread"), given.optional_text("title")
        if not isinstance(messages, list) or not messages:
            raise InvalidInput('messages must be a list, such as [{"role": "user", "content": "…"}]')
        if id is not None and title is not None:
            raise InvalidInput("title is for a new conversation; leave it out, or leave out thread")
        saved = threads.begin(messages, title) if id is None else threads.add(id, messages)
        thread = threads.get(saved[0].thread_id if id is None else id)
        if not has_own_title(thread.title):
            text = first_user_text(threads.messages, thread.id)
            made = None if text is None else local_title(text)
            thread = thread if made is None else threads.suggest_title(thread.id, made)
        items = [{"id": message.id, "createdAt": iso(message.created_at)} for message in saved]
        count = "1 message" if len(items) == 1 else f"{len(items)} messages"
        text = f"{count} saved.\n{_heading(thread)}"
        return Answer(text, {"thread": thread_item(thread), "items": items})

    def _read_working(self, given: Arguments) -> Answer:
        present = self.working.read()
        if present is None:
            return Answer("The working memory is empty.", {"memory": None})
        content = present.content
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, indent=2, default=dict)
        return Answer(text, {"memory": content, "updatedAt": iso(present.updated_at)})


def thread_item(thread: Thread) -> dict[str, Any]:
    return {
        "id": thread.id,
        "title": thread.title,
        "createdAt": iso(thread.created_at),
        "updatedAt": iso(thread.updated_at),
    }


def message_item(message: Message) -> dict[str, Any]:
    """A message in full, with the words of it."""
    words = searchable_text({**message.extra, "content": message.content})
    return {
        **_item(message.id, message.thread_id, message.role, words, iso(message.created_at)),
        "content": message.content,
    }


def _fitting(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages, long ones cut where they do not fit into one answer."""
    lengths = [len(json.dumps(item["content"], ensure_ascii=False, default=dict)) for item in items]
    if sum(lengths) + sum(len(item["text"]) for item in items) <= ANSWER_CHARACTERS:
        return items
    most = max(ANSWER_CHARACTERS // (2 * len(items)), 200)  # an item has its words and its content
    return [item if length <= most else _cut(item, most, length) for item, length in zip(items, lengths, strict=True)]


def _cut(item: dict[str, Any], most: int, length: int) -> dict[str, Any]:
    whole = f"{length:,} characters at {uri_of(MESSAGE, item['id'])}"
    text = f"{item['text'][:most]}… [cut; the whole message has {whole}]"
    return {**item, "text": text, "content": text}


def _hit_item(hit: Hit) -> dict[str, Any]:
    attributes = cast("Mapping[str, str]", hit.entry.attributes)
    created = iso(moment(hit.entry.created_at))
    item = _item(hit.key, attributes["threadId"], attributes["role"], hit.snippet, created)
    return {**item, "similarity": round(min(max(hit.score, 0.0), 1.0), 4)}


def _item(id: str, thread_id: str, role: str, text: str, created_at: str) -> dict[str, JSON]:
    return {"id": id, "threadId": thread_id, "role": role, "text": text, "createdAt": created_at}


def _heading(thread: Thread) -> str:
    return f"Thread {thread.id}: {thread.title or '(no title)'}"


def _line(item: Mapping[str, Any]) -> str:
    return f"[{item['createdAt']}] {item['role']}: {item['text']}"


def _count(given: Arguments, default: int) -> int:
    if not given.has("last"):
        return default
    count = number(given.get("last"))
    if count is None or count < 0 or count != int(count):
        raise InvalidInput("last must be a whole number, 0 or more")
    return int(min(count, MAX_READ))
