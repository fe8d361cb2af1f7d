"""What a client says it is, as one short word for the history: it is the client's own claim and proves nothing."""

from __future__ import annotations

MAX_CHARACTERS = 80


def client_word(said: str) -> str | None:
    """The first word, without what would not print; None where nothing is left."""
    first = next(iter(said.split()), "")
    return "".join(character for character in first if character.isprintable())[:MAX_CHARACTERS] or None
