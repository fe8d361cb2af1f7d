"""What an agent's memory does by itself: how much it recalls, what it keeps in mind, how threads get their titles."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from commonplace.errors import InvalidInput
from commonplace.space.recall import RecallRequest, RecallScope
from commonplace.tools.working_memory_tool import WorkingMemoryOptions

TitleModel: TypeAlias = Callable[[str], "str | Awaitable[str]"]
"""Given the first user message, a title; called behind the turns, in a thread of its own."""


@dataclass(frozen=True)
class SemanticRecall:
    """What a query brings to mind: the best so many messages, each with its neighbours.

    The scope `resource` looks into all threads of the user, so that a fresh thread recalls too.
    """

    top: int = 4
    neighbours: int = 1
    scope: RecallScope = "resource"

    def __post_init__(self) -> None:
        RecallRequest(None, 0, self.top, self.neighbours, self.scope)


@dataclass(frozen=True)
class MemoryConfig:
    """The defaults are those of the service: ten messages, one schema of working memory for each user, titles by rule.

    `generate_title` is a switch, or a model: a function from the first user message to a title.
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
