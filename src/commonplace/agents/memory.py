"""One agent's memory: its threads and messages, what they recall, its working memory, and titles by themselves.

It adds nothing to what `space.threads` promises but its configuration: how much is recalled, which form working memory
has, and who titles a thread. Titling never fails or delays a turn.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from inspect import isawaitable
from typing import Any

from commonplace.agents.background import Background
from commonplace.agents.config import MemoryConfig, TitleModel
from commonplace.checks import JSON
from commonplace.errors import InvalidInput
from commonplace.space.context import Budget, CountTokens, estimate_tokens
from commonplace.space.conversation import Context, Thread
from commonplace.space.messages import Message, MessagePage
from commonplace.space.recall import Recall, RecallScope
from commonplace.space.space import Space
from commonplace.space.threads import ThreadPage, Threads
from commonplace.space.titles import clean_title, first_user_text, has_own_title, local_title
from commonplace.space.working_memory import WorkingMemory
from commonplace.tools.working_memory_tool import WorkingMemoryTool

"""Among so many from the beginning of a thread, the first user message is looked for."""

_UNSET: Any = object()
_log = logging.getLogger(__name__)


class AgentMemory:
    """The memory of one agent, safe to use from many threads and to hold for as long as you like."""

    def __init__(self, agent_id: str, space: Space, config: MemoryConfig, titling: Background) -> None:
        self.agent_id = agent_id
        self.space = space
        self.config = config
        self._titling = titling

    def __repr__(self) -> str:
        return f"AgentMemory({self.agent_id!r})"

    @property
    def _threads(self) -> Threads:
        return self.space.threads

    # Threads

    def create_thread(
        self,
        resource: str | None = None,
        *,
        title: str | None = None,
        metadata: Mapping[str, JSON] | None = None,
        id: str | None = None,
    ) -> Thread:
        """Begin a conversation of a resource, which is a user; without one, of the agent itself."""
        return self._threads.create(title, resource=resource, metadata=metadata, id=id)

    def get_thread(self, thread: str, *, resource: str | None = None) -> Thread:
        return self._threads.get(thread, resource=resource)

    def list_threads(self, resource: str | None = None, *, limit: int = 20, cursor: str | None = None) -> ThreadPage:
        """The threads of a resource, or all; the one used last comes first."""
        return self._threads.list(resource=resource, limit=limit, cursor=cursor)

    def update_thread(
        self,
        thread: str,
        *,
        title: str | None = _UNSET,
        metadata: Mapping[str, JSON] = _UNSET,
        resource: str | None = None,
    ) -> Thread:
        """Change the title, or fields of the metadata: null removes one, those not named stay."""
        given: dict[str, Any] = {"title": title, "metadata": metadata}
        changes = {name: value for name, value in given.items() if value is not _UNSET}
        return self._threads.update(thread, resource=resource, **changes)

    def delete_thread(self, thread: str, *, resource: str | None = None) -> int:
        """Delete a thread with its messages; the commit that `space.undo` takes back."""
        return self._threads.delete(thread, resource=resource)

    def clone_thread(
        self,
        thread: str,
        *,
        upto_message: str | None = None,
        upto: datetime | str | None = None,
        title: str | None = None,
        resource: str | None = None,
    ) -> Thread:
        """Copy a thread, whole or up to a message or a time."""
        return self._threads.clone(thread, upto_message=upto_message, upto=upto, title=title, resource=resource)

    # Messages

    def save_messages(
        self,
        thread: str,
        messages: Sequence[Mapping[str, object]],
        *,
        resource: str | None = None,
        verbatim: bool = False,
    ) -> tuple[Message, ...]:
        """Save messages, all or none, in their order; a thread without a title of its own then gets one.

        `verbatim` is that of `threads.add`.
        """
        saved = self._threads.add(thread, messages, resource=resource, verbatim=verbatim)
        if self.config.generate_title and any(message.role == "user" for message in saved):
            self._give_title(thread)
        return saved

    def list_messages(
        self,
        thread: str,
        *,
        resource: str | None = None,
        last: int | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> MessagePage:
        """A thread's messages, oldest first: a page of them, or the `last` so many."""
        return self._threads.messages(thread, resource=resource, last=last, limit=limit, cursor=cursor)

    def delete_messages(self, ids: Sequence[str], *, resource: str | None = None) -> int | None:
        """Delete those of these messages that there are; the commit that `space.undo` takes back."""
        return self._threads.delete_messages(ids, resource=resource)

    def recall(
        self,
        thread: str,
        query: str | None = None,
        *,
        resource: str | None = None,
        last: int | None = None,
        top: int | None = None,
        neighbours: int | None = None,
        scope: RecallScope | None = None,
    ) -> Recall:
        """The last messages, and those that the query brings to mind; what is not given is as configured."""
        semantic = self.config.semantic_recall
        return self._threads.recall(
            thread,
            resource=resource,
            query=query,
            last=self.config.last_messages if last is None else last,
            top=semantic.top if top is None else top,
            neighbours=semantic.neighbours if neighbours is None else neighbours,
            scope=semantic.scope if scope is None else scope,
        )

    def context(
        self,
        thread: str,
        query: str | None = None,
        *,
        max_tokens: int | None = None,
        resource: str | None = None,
        count_tokens: CountTokens = estimate_tokens,
    ) -> Context:
        """What a model is given before it answers: the system text, and the recalled messages that fit beside it."""
        budget = Budget(max_tokens, count_tokens)
        system = self.system_message(thread, resource)
        taken = 0 if system is None else budget.count(system)
        if max_tokens is not None and taken >= max_tokens:
            raise InvalidInput(f"max_tokens is {max_tokens:,}, and the system text alone takes {taken:,}; allow more")
        semantic = self.config.semantic_recall
        found = self._threads.context(
            thread,
            query,
            max_tokens=None if max_tokens is None else max_tokens - taken,
            resource=resource,
            last=self.config.last_messages,
            top=semantic.top,
            neighbours=semantic.neighbours,
            scope=semantic.scope,
            working=False,
            count_tokens=count_tokens,
        )
        return replace(found, system=system, tokens=found.tokens + taken)

    # Working memory

    def working_memory(self, thread: str | None = None, resource: str | None = None) -> WorkingMemory | None:
        """What the agent has in mind of a resource, or of a thread where that is its scope; None where nothing."""
        return self._working(thread, resource).read()

    def update_working_memory(
        self,
        memory: str | Mapping[str, JSON],
        thread: str | None = None,
        resource: str | None = None,
        *,
        revision: int | None = None,
    ) -> WorkingMemory:
        """Replace the text, or merge the data, as configured; with a `revision`, only while that is the present one."""
        return self._working(thread, resource).update(memory, revision=revision)

    def system_message(self, thread: str | None = None, resource: str | None = None) -> str | None:
        """The text for the system prompt: what the agent has in mind, and how to keep it up to date."""
        return self._working(thread, resource).system_message()

    def tools(self, thread: str | None = None, resource: str | None = None) -> tuple[WorkingMemoryTool, ...]:
        """What to offer to a model in this conversation; each has a `spec` and a `call`."""
        options = self.config.working_memory
        if not options.enabled or options.read_only:
            return ()
        tool = self._working(thread, resource)
        if options.rules is None:
            tool.read()  # what the turn begins with: a text that changes meanwhile is not to be overwritten
        return (tool,)

    def _working(self, thread: str | None, resource: str | None) -> WorkingMemoryTool:
        return WorkingMemoryTool(self.space, self.config.working_memory, resource=resource, thread=thread)

    # Titles

    def _give_title(self, thread: str) -> None:
        """Title a thread by the rule now, or by the model later. The turn is saved: what fails here is only logged."""
        try:
            if has_own_title(self._threads.get(thread).title):
                return
            text = first_user_text(self._threads.messages, thread)
            make = self.config.generate_title
            if text is None:
                return
            if callable(make):
                self._titling.submit((self.agent_id, thread), lambda: self._ask_model(make, thread, text))
            elif (title := local_title(text)) is not None:
                self._threads.suggest_title(thread, title)
        except Exception:  # noqa: BLE001 - whatever it is, the messages are saved
            _log.exception("thread %s got no title", thread)

    def _ask_model(self, model: TitleModel, thread: str, text: str) -> None:
        if has_own_title(self._threads.get(thread).title):
            return
        answer = model(text)
        if isawaitable(answer):
            import asyncio

            answer = asyncio.run(_awaited(answer))
        if not isinstance(answer, str) or (title := clean_title(answer)) is None:
            _log.warning("thread %s got no title: the model answered %.100r", thread, answer)
            return
        self._threads.suggest_title(thread, title)


async def _awaited(answer: Any) -> Any:
    return await answer
