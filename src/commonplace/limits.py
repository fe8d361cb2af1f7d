"""How large things may be; a book may be opened with other limits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    file_bytes: int = 10_000_000
    file_lines: int = 999_999
    path_bytes: int = 1_024
    path_segments: int = 20
    record_characters: int = 10_000
    tags: int = 20
    message_bytes: int = 16_000_000
    """An image in a message, as base64, has some megabytes."""
    metadata_bytes: int = 1_000_000
    """Of a thread's metadata; and of a working memory, which stands in every prompt."""
