"""What goes wrong in a memory store, in a form that a tool can put into words."""

from __future__ import annotations

from typing import Literal

from commonplace.errors import CommonplaceError

Reason = Literal[
    "absent",  # the text to replace is not in the file
    "already_exists",
    "bad_line",  # `count` is how many lines the file has
    "empty_old",  # the text to replace is empty
    "escape",  # the path climbs out of the root
    "into_itself",
    "invalid_path",
    "is_directory",
    "not_a_directory",  # a part of the path is a file
    "not_found",
    "not_text",
    "not_unique",  # `lines` are where the text to replace stands
    "other",
    "outside",  # the path does not begin with the root
    "root",  # the root itself can be neither deleted nor renamed
    "symlink",
    "too_large",  # `count` is how many bytes are allowed
    "too_many_lines",  # `count` is how many lines are allowed
]


class MemoryException(CommonplaceError):
    """A memory store refused; nothing was changed.

    A store of your own may raise it with a message alone, which the model then reads. With a `reason`, the tool says
    it in the words that the model knows.
    """

    def __init__(
        self, message: str, reason: Reason = "other", *, lines: tuple[int, ...] = (), count: int | None = None
    ) -> None:
        super().__init__(message)
        self.reason: Reason = reason
        self.lines = lines
        self.count = count
