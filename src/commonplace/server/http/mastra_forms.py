"""Mastra's JSON: what its client sends, and threads and messages as it reads them.

The client sends queries with JSON in them, and bodies that repeat the query. Unknown fields are ignored, as in Mastra's
own server. It reads camel case, times with milliseconds, and contents in format 2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, cast

from fastapi import Depends, Query, Request
from pydantic import BaseModel, ConfigDict, Field, StrictStr

from commonplace.agents import MemoryConfig
from commonplace.checks import JSON, check_json, microseconds, moment
from commonplace.errors import InvalidInput
from commonplace.server.http.service import client_of, principal_of, service_of
from commonplace.space.conversation import Direction, NumberedPage, OrderBy, Thread
from commonplace.space.message_text import searchable_text
from commonplace.space.messages import SIGNAL, Message, is_signal_of_user
from commonplace.space.space import Space
from commonplace.space.working_memory import WorkingMemory

Form = dict[str, Any]
CONFIG = MemoryConfig()
"""The configuration of an agent that no program has configured: the defaults of `commonplace.agents`."""

INTERFACE = "mastra"
_NOTHING = ("", "undefined", "null")
"""What JavaScript writes into a URL for a missing value."""

_METADATA_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_NO_METADATA_KEYS = ("__proto__", "prototype", "constructor")
MILLISECOND = timedelta(milliseconds=1)
REST_OF_MILLISECOND = timedelta(microseconds=999)
_LAST = datetime.max.replace(tzinfo=UTC)


def given(text: str | None) -> str | None:
    return None if text is None or text in _NOTHING else text


# The memory of a request


async def agent_space(
    request: Request,
    agent: Annotated[str | None, Query(alias="agentId", description="The agent whose memory it is.")] = None,
    network: Annotated[
        str | None, Query(alias="networkId", description="A network of agents, in place of one.")
    ] = None,
) -> Space:
    """The memory of an agent, or the caller's own without one."""
    asked = given(agent) or given(network)
    return principal_of(request).agent_space(
        service_of(request).book, asked, interface=INTERFACE, client=client_of(request)
    )


async def named_agent_space(request: Request, space: Annotated[Space, Depends(agent_space)]) -> Space:
    if not any(given(request.query_params.get(name)) for name in ("agentId", "networkId")):
        raise InvalidInput("agentId is required: name the agent whose memory is to be changed")
    return space


AgentSpace = Annotated[Space, Depends(agent_space)]
NamedAgentSpace = Annotated[Space, Depends(named_agent_space)]


async def resource_query(
    resource: Annotated[str | None, Query(alias="resourceId", description="Whose conversations.")] = None,
    in_small_letters: Annotated[str | None, Query(alias="resourceid", include_in_schema=False)] = None,
) -> str | None:
    return given(resource) or given(in_small_letters)


Resource = Annotated[str | None, Depends(resource_query)]


# JSON inside a query


def object_of(name: str, written: str | None) -> dict[str, Any] | None:
    value = _json_of(name, written)
    if value is not None and not isinstance(value, dict):
        raise InvalidInput(f"{name} must be a JSON object")
    return value


def list_of(name: str, written: str | None) -> list[Any]:
    value = _json_of(name, written)
    if value is not None and not isinstance(value, list):
        raise InvalidInput(f"{name} must be a JSON list")
    return value or []


def _json_of(name: str, written: str | None) -> Any:
    if given(written) is None:
        return None
    try:
        return check_json(name, json.loads(cast("str", written)))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{name} must be JSON: {error!s:.200}") from error


def metadata_of(written: dict[str, Any] | None) -> dict[str, Any] | None:
    """Metadata to filter by, with the rules of Mastra's own stores."""
    for name, value in (written or {}).items():
        if _METADATA_KEY.fullmatch(name) is None or name in _NO_METADATA_KEYS:
            raise InvalidInput(
                f"metadata has the key {name!r:.150}; a key to filter by begins with a letter or an underscore and has "
                "letters, digits and underscores, at most 128"
            )
        if isinstance(value, (dict, list)):
            raise InvalidInput(f"metadata.{name} must be a text, a number, true, false or null")
    return written


def time_of(name: str, written: object) -> datetime | None:
    if written is None:
        return None
    if not isinstance(written, str):
        raise InvalidInput(f"{name} must be a time such as 2026-01-31T12:00:00.000Z")
    found = microseconds(name, written)
    return None if found is None else moment(found)


def later(time: datetime, by: timedelta) -> datetime:
    """A time plus a little, or the last possible time, which clients often send as an open end."""
    return time + by if time <= _LAST - by else _LAST


def order_of(request: Request) -> tuple[OrderBy | None, Direction | None]:
    """`orderBy[field]=…&orderBy[direction]=…`, JSON, or the older `orderBy=field&sortDirection=…`."""
    query = request.query_params
    asked: Mapping[str, Any] = {
        "field": query.get("orderBy[field]"),
        "direction": query.get("orderBy[direction]", query.get("sortDirection")),
    }
    written = given(query.get("orderBy"))
    if written is not None:
        asked = object_of("orderBy", written) or {} if written.startswith("{") else {**asked, "field": written}
    field, direction = asked.get("field"), asked.get("direction")
    if field not in (None, "createdAt", "updatedAt") or direction not in (None, "ASC", "DESC"):
        raise InvalidInput('orderBy has the fields "createdAt" and "updatedAt", and the directions "ASC" and "DESC"')
    return cast("OrderBy | None", field), cast("Direction | None", direction)


# Bodies


class Body(BaseModel):
    model_config = ConfigDict(extra="ignore")


Object = dict[str, Any]


class MastraNewThread(Body):
    resource: StrictStr = Field(alias="resourceId", min_length=1, examples=["u-123"])
    title: StrictStr | None = None
    metadata: Object | None = None
    thread: StrictStr | None = Field(None, alias="threadId")


class MastraThreadChange(Body):
    title: StrictStr | None = None
    metadata: Object | None = None
    resource: StrictStr | None = Field(None, alias="resourceId", description="Whose thread it must be.")


class MastraNewMessages(Body):
    messages: list[Object] = Field(
        examples=[[{"role": "user", "threadId": "t", "resourceId": "u-123", "content": "When do we deploy?"}]]
    )


class Named(Body):
    id: StrictStr


class MastraMessageIds(Body):
    ids: StrictStr | Named | list[StrictStr | Named] = Field(alias="messageIds")

    def listed(self) -> list[str]:
        many = self.ids if isinstance(self.ids, list) else [self.ids]
        return [one if isinstance(one, str) else one.id for one in many]


class MastraWorkingUpdate(Body):
    working: StrictStr = Field(alias="workingMemory", examples=["# Ann\n- likes tea"])
    resource: StrictStr | None = Field(None, alias="resourceId")
    config: Object | None = Field(None, alias="memoryConfig")


class MastraTransfer(Body):
    resource: StrictStr = Field(alias="resourceId", min_length=1)


class MessageFilter(Body):
    start: Any = Field(None, alias="startDate")
    end: Any = Field(None, alias="endDate")
    ids: list[StrictStr] | None = Field(None, alias="messageIds")


class CloneOptions(Body):
    limit: int | None = Field(None, alias="messageLimit", ge=0)
    filter: MessageFilter | None = Field(None, alias="messageFilter")


class MastraClone(Body):
    new_thread: StrictStr | None = Field(None, alias="newThreadId")
    resource: StrictStr | None = Field(None, alias="resourceId")
    title: StrictStr | None = None
    metadata: Object | None = None
    options: CloneOptions | None = None

    def choice(self) -> dict[str, Any]:
        """Which messages to copy, as arguments of `Threads.clone`."""
        last = None if self.options is None else self.options.limit
        chosen = None if self.options is None else self.options.filter
        if chosen is None:
            return {"last": last}
        end = time_of("endDate", chosen.end)
        return {
            "last": last,
            "only": chosen.ids,
            "after": time_of("startDate", chosen.start),
            "upto": None if end is None else later(end, REST_OF_MILLISECOND),
        }


class Observed(Body):
    agent: StrictStr = Field(alias="agentId")


# The configuration of a memory, in a request


def working_scope(config: Mapping[str, Any] | None) -> Literal["resource", "thread"]:
    scope = _part(config, "workingMemory").get("scope", "resource")
    if scope not in ("resource", "thread"):
        raise InvalidInput(f'memoryConfig.workingMemory.scope is "resource" or "thread", not {scope!r:.50}')
    return cast('Literal["resource", "thread"]', scope)


def working_template(config: Mapping[str, Any] | None) -> Any:
    return _part(config, "workingMemory").get("template")


class Recalling(BaseModel):
    """`memoryConfig.semanticRecall`, with Mastra's own names."""

    model_config = ConfigDict(extra="ignore", strict=True)
    top: int | None = Field(None, alias="topK", ge=0)
    range: int | dict[str, int] = Field(2, alias="messageRange")
    scope: Literal["resource", "thread"] = "resource"
    min_relevance: float | None = Field(None, alias="threshold", ge=0, le=1)

    @property
    def neighbours(self) -> tuple[int, int]:
        if isinstance(self.range, int):
            return self.range, self.range
        return self.range.get("before", 2), self.range.get("after", 2)


def recalling_of(config: Mapping[str, Any] | None) -> Recalling:
    try:
        return Recalling.model_validate(_part(config, "semanticRecall"))
    except ValueError as error:
        raise InvalidInput(
            "memoryConfig.semanticRecall has topK, messageRange, scope (resource or thread) and threshold (0 to 1)"
        ) from error


def _part(config: Mapping[str, Any] | None, name: str) -> Mapping[str, Any]:
    part = (config or {}).get(name)
    return part if isinstance(part, Mapping) else {}


# Answers


def time_form(time: datetime) -> str:
    """As JavaScript's `Date` writes it."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def thread_form(thread: Thread) -> Form:
    form = {
        "id": thread.id,
        "resourceId": thread.resource_id,
        "title": thread.title,
        "metadata": thread.metadata,
        "createdAt": time_form(thread.created_at),
        "updatedAt": time_form(thread.updated_at),
    }
    return form if thread.title is not None else {name: value for name, value in form.items() if name != "title"}


def message_form(message: Message) -> Form:
    """A message with all its fields. A content in another format is converted to format 2."""
    return {
        **message.extra,
        "id": message.id,
        "role": role_form(message),
        "content": content_form(message.content, message.extra.get("parts")),
        "threadId": message.thread_id,
        "resourceId": message.resource_id,
        "createdAt": time_form(message.created_at),
    }


def role_form(message: Message) -> str:
    return SIGNAL if message.role == "user" and is_signal_of_user(message.content) else message.role


def content_form(content: JSON, parts: JSON = None) -> JSON:
    """`{"format": 2, "parts": […]}`, the format that Mastra's programs read."""
    if isinstance(content, Mapping) and ("format" in content or "parts" in content):
        return content
    if isinstance(content, str) and not isinstance(parts, (list, tuple)):
        return {"format": 2, "parts": [{"type": "text", "text": content}], "content": content}
    given = parts if isinstance(parts, (list, tuple)) else content
    listed = given if isinstance(given, (list, tuple)) else [] if given is None else [given]
    return {"format": 2, "parts": [_part_form(part) for part in listed]}


def _part_form(part: JSON) -> JSON:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    kind = cast("Mapping[str, Any]", part).get("type") if isinstance(part, Mapping) else None
    if kind not in ("tool-call", "tool-result"):
        return part
    fields = {name: value for name, value in cast("Mapping[str, Any]", part).items() if name != "type"}
    return {
        "type": "tool-invocation",
        "toolInvocation": {"state": "call" if kind == "tool-call" else "result", **fields},
    }


def text_of(message: Message) -> str:
    """The text of a message, for search results."""
    return searchable_text({**message.extra, "content": message.content})


def page_form(name: str, page: NumberedPage[Any], items: Sequence[Form]) -> Form:
    return {
        name: items,
        "total": page.total,
        "page": page.page,
        "perPage": page.per_page,
        "hasMore": page.has_more,
    }


def short_form(message: Message) -> Form:
    """A neighbour of a search result."""
    return {
        "id": message.id,
        "role": role_form(message),
        "content": text_of(message),
        "createdAt": time_form(message.created_at),
    }


def hit_form(message: Message, thread: Thread, before: Sequence[Message], after: Sequence[Message]) -> Form:
    return {
        **short_form(message),
        "threadId": thread.id,
        "threadTitle": thread.title or thread.id,
        "context": {"before": [*map(short_form, before)], "after": [*map(short_form, after)]},
    }


def working_form(memory: WorkingMemory | None) -> str | None:
    """The text of a working memory; data is shown as JSON, which an update sends back."""
    if memory is None:
        return None
    if isinstance(memory.content, str):
        return memory.content
    return json.dumps(memory.content, ensure_ascii=False, default=dict)


def config_form() -> Form:
    """What the memory of an agent does automatically."""
    recall, working = CONFIG.semantic_recall, CONFIG.working_memory
    return {
        "memoryType": "local",
        "config": {
            "lastMessages": CONFIG.last_messages,
            "semanticRecall": {"topK": recall.top, "messageRange": recall.neighbours, "scope": recall.scope},
            "workingMemory": {"enabled": working.enabled, "scope": working.scope},
            "generateTitle": bool(CONFIG.generate_title),
            "observationalMemory": {"enabled": False},
        },
    }
