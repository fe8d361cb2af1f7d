"""One agent's memory: its configuration, threads, messages, recall, working memory and titles.

It adds only configuration to `space.threads`: how much is recalled, the form of working memory, and who titles a
thread. A title that fails or takes long does not affect `save_messages`.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from inspect import isawaitable
from typing import Any, TypeAlias

from commonplace.checks import JSON
from commonplace.errors import InvalidInput
from commonplace.space.context import Budget, CountTokens, estimate_tokens
from commonplace.space.conversation import Context, Thread
from commonplace.space.messages import Message, MessagePage
from commonplace.space.recall import Recall, RecallRequest, RecallScope
from commonplace.space.space import Space
from commonplace.space.threads import ThreadPage, Threads
from commonplace.space.titles import clean_title, has_own_title, local_title, untitled_text
from commonplace.space.working_memory import WorkingMemory
from commonplace.tools.working_memory_tool import WorkingMemoryOptions, WorkingMemoryTool

Job: TypeAlias = Callable[[], None]
TitleModel: TypeAlias = Callable[[str], "str | Awaitable[str]"]
"""Makes a title from the first user message. It is called in a background thread."""

_UNSET: Any = object()
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SemanticRecall:
    """What a query recalls: the `top` messages, each with its neighbours.

    The scope `resource` searches all threads of the user, so that a new thread recalls too.
    """

    top: int = 4
    neighbours: int = 1
    scope: RecallScope = "resource"

    def __post_init__(self) -> None:
        RecallRequest(None, 0, self.top, self.neighbours, self.scope)


@dataclass(frozen=True)
class MemoryConfig:
    """The defaults are those of the service: ten messages, the default working memory per user, titles by rule.

    `generate_title` is true, false, or a model: a function from the first user message to a title.
    """

    last_messages: int = 10
    semantic_recall: SemanticRecall = field(default_factory=SemanticRecall)
    working_memory: WorkingMemoryOptions = field(default_factory=WorkingMemoryOptions)
    generate_title: bool | TitleModel = True

    def __post_init__(self) -> None:
        RecallRequest(None, self.last_messages, 0, 0, "thread")
        if not isinstance(self.semantic_recall, SemanticRecall):
            raise InvalidInput(
                f"semantic_recall must be a SemanticRecall, not {self.semantic_recall!r:.100}; "
                "SemanticRecall(top=0) recalls nothing"
            )
        if not isinstance(self.working_memory, WorkingMemoryOptions):
            raise InvalidInput(
                f"working_memory must be WorkingMemoryOptions, not {self.working_memory!r:.100}; "
                "WorkingMemoryOptions(enabled=False) turns it off"
            )
        if not isinstance(self.generate_title, bool) and not callable(self.generate_title):
            raise InvalidInput("generate_title must be true, false, or a function from a message's text to a title")


class AgentMemory:
    """The memory of one agent. It is thread-safe, and you may hold it as long as you like."""

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
        """Create a thread for a resource, which is a user, or by default for the agent itself."""
        return self._threads.create(title, resource=resource, metadata=metadata, id=id)

    def get_thread(self, thread: str, *, resource: str | None = None) -> Thread:
        return self._threads.get(thread, resource=resource)

    def list_threads(self, resource: str | None = None, *, limit: int = 20, cursor: str | None = None) -> ThreadPage:
        """The threads of a resource, or all; the most recently used first."""
        return self._threads.list(resource=resource, limit=limit, cursor=cursor)

    def update_thread(
        self,
        thread: str,
        *,
        title: str | None = _UNSET,
        metadata: Mapping[str, JSON] = _UNSET,
        resource: str | None = None,
    ) -> Thread:
        """Change the title or fields of the metadata. None removes a field; other fields stay."""
        given: dict[str, Any] = {"title": title, "metadata": metadata}
        changes = {name: value for name, value in given.items() if value is not _UNSET}
        return self._threads.update(thread, resource=resource, **changes)

    def delete_thread(self, thread: str, *, resource: str | None = None) -> int:
        """Delete a thread and its messages; returns the commit, which `space.undo` can undo."""
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
        """Copy a thread, as a whole or up to a message or a time."""
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
        """Save messages in order, all or none. A thread without a title then gets one.

        For `verbatim` see `threads.add`.
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
        """A thread's messages, oldest first: a page of them, or the `last` ones."""
        return self._threads.messages(thread, resource=resource, last=last, limit=limit, cursor=cursor)

    def delete_messages(self, ids: Sequence[str], *, resource: str | None = None) -> int | None:
        """Delete messages; unknown ids are ignored. Returns the commit, which `space.undo` can undo."""
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
        min_relevance: float | None = None,
    ) -> Recall:
        """The last messages, and those that the query recalls. The configuration has the defaults."""
        semantic = self.config.semantic_recall
        return self._threads.recall(
            thread,
            resource=resource,
            query=query,
            last=self.config.last_messages if last is None else last,
            top=semantic.top if top is None else top,
            neighbours=semantic.neighbours if neighbours is None else neighbours,
            scope=semantic.scope if scope is None else scope,
            min_relevance=min_relevance,
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
        """What to give to a model before it answers: the system text, and the recalled messages that fit."""
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
        both = "\n\n".join(filter(None, (found.standing, system))) or None
        return replace(found, system=both, tokens=found.tokens + taken)

    # Working memory

    def working_memory(self, thread: str | None = None, resource: str | None = None) -> WorkingMemory | None:
        """The working memory of a resource, or of a thread if that is the scope; None if there is none."""
        return self._working(thread, resource).read()

    def update_working_memory(
        self,
        memory: str | Mapping[str, JSON],
        thread: str | None = None,
        resource: str | None = None,
        *,
        revision: int | None = None,
    ) -> WorkingMemory:
        """Replace the text or merge the data, as configured. With a `revision`, only if it is the current one."""
        return self._working(thread, resource).update(memory, revision=revision)

    def system_message(self, thread: str | None = None, resource: str | None = None) -> str | None:
        """The text for the system prompt: the working memory, and how to update it."""
        return self._working(thread, resource).system_message()

    def tools(self, thread: str | None = None, resource: str | None = None) -> tuple[WorkingMemoryTool, ...]:
        """The tools to offer to a model in this conversation; each has a `spec` and a `call`."""
        options = self.config.working_memory
        if not options.enabled or options.read_only:
            return ()
        tool = self._working(thread, resource)
        if options.rules is None:
            tool.read()  # the state at the start of the turn; later changes by others are not overwritten
        return (tool,)

    def _working(self, thread: str | None, resource: str | None) -> WorkingMemoryTool:
        return WorkingMemoryTool(self.space, self.config.working_memory, resource=resource, thread=thread)

    # Titles

    def _give_title(self, thread: str) -> None:
        """Title a thread by rule now, or by the model later. The messages are saved, so an error is only logged."""
        try:
            make = self.config.generate_title
            text = untitled_text(self._threads.messages, self._threads.get(thread))
            if text is None:
                return
            if callable(make):
                self._titling.submit((self.agent_id, thread), lambda: self._ask_model(make, thread, text))
            elif (title := local_title(text)) is not None:
                self._threads.suggest_title(thread, title)
        except Exception:  # noqa: BLE001 - the messages are saved
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


# Work in the background


class Background:
    """Runs jobs by key in daemon threads. Jobs with the same key run one after another, and only the last one waits.

    A job that fails is logged. Threads start with the first job and do not keep a program from ending. After a fork,
    the child starts empty: it has none of the threads, and the jobs belong to its parent.
    """

    def __init__(self, name: str, *, threads: int = 1, max_waiting: int = 10_000) -> None:
        self._name = name
        self._max_threads = threads
        self._max_waiting = max_waiting
        self._is_closed = False
        self._beginning = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[Hashable, Job] = {}
        self._running: set[Hashable] = set()
        self._threads = 0
        self._process = os.getpid()

    def submit(self, key: Hashable, job: Job) -> bool:
        """Queue a job; False if too many are waiting, no thread can be started, or this is closed."""
        with self._here():
            if self._is_closed or (len(self._waiting) >= self._max_waiting and key not in self._waiting):
                return False
            self._waiting[key] = job
            if self._threads < min(self._max_threads, len(self._waiting) + len(self._running)):
                self._start_thread()
            if not self._threads:
                del self._waiting[key]
                return False
            self._changed.notify_all()
            return True

    def settle(self, seconds: float) -> bool:
        """Wait until no job is left; returns whether that happened in time."""
        with self._here():
            return self._changed.wait_for(lambda: not self._waiting and not self._running, seconds)

    def close(self) -> None:
        """Drop the waiting jobs and accept no more. Running jobs are not interrupted."""
        with self._here():
            self._is_closed = True
            self._waiting.clear()
            self._changed.notify_all()

    def _here(self) -> threading.Condition:
        """The condition of this process. After a fork, a thread of the parent may hold the old one for ever."""
        if self._process != os.getpid():
            with self._beginning:
                if self._process != os.getpid():
                    self._begin()
        return self._changed

    def _start_thread(self) -> None:
        try:
            threading.Thread(target=self._loop, name=self._name, daemon=True).start()
        except RuntimeError:
            _log.exception("%s: cannot start a thread", self._name)
        else:
            self._threads += 1

    def _loop(self) -> None:
        while (taken := self._next()) is not None:
            key, job = taken
            try:
                job()
            except BaseException:  # noqa: BLE001 - a job that exits or is cancelled must not end this thread
                _log.exception("%s: a job failed; nothing else is affected", self._name)
            finally:
                with self._changed:
                    self._running.discard(key)
                    self._changed.notify_all()

    def _next(self) -> tuple[Hashable, Job] | None:
        """The job that has waited longest and whose key is not running; None if this is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._waiting.keys() - self._running)
            if self._is_closed:
                return None
            key = next(key for key in self._waiting if key not in self._running)
            self._running.add(key)
            return key, self._waiting.pop(key)
